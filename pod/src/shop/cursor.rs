//! Pages of a list, by key: a cursor says after which row the next page begins.
//!
//! A cursor is opaque to clients and checked when it comes back. It is not signed: it holds one id, and every statement
//! that uses it names the shop, so that an invented one only begins the page somewhere else in the same list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Deserialize;
use shared::error::Kind;
use uuid::Uuid;

use crate::Error;

/// Rows on a page when the client does not say.
const LIMIT_DEFAULT: u32 = 20;
/// Rows on a page at most: an answer stays within some tens of kilobytes.
const LIMIT_MAX: u32 = 100;

/// A list, as the first letter of its cursors: one list's cursor is refused by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// Products, newest first.
    Products,
    /// Orders, newest first.
    Orders,
}

impl List {
    const fn letter(self) -> char {
        match self {
            Self::Products => 'p',
            Self::Orders => 'o',
        }
    }
}

/// What the query of a list says, as it came.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    limit: Option<String>,
    cursor: Option<String>,
}

/// Which rows a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    /// Rows at most.
    pub(crate) limit: u32,
    /// The last row of the page before. Ids are compared as bytes; the first page begins after the highest there is.
    pub(crate) before: Uuid,
}

impl PageQuery {
    /// A page of the usual size.
    pub(crate) const fn after(cursor: Option<String>) -> Self {
        Self {
            limit: None,
            cursor,
        }
    }

    /// Checks it for one list.
    pub(crate) fn page(&self, list: List) -> Result<Page, Error> {
        let limit = match self.limit.as_deref() {
            None => LIMIT_DEFAULT,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=LIMIT_MAX).contains(limit) && !text.starts_with('+'))
                .ok_or_else(|| {
                    let rule = format!("A page has 1 to {LIMIT_MAX} rows.");
                    Error::field(Kind::Invalid, "limit", rule)
                })?,
        };
        let before = match self.cursor.as_deref() {
            None => Uuid::max(),
            Some(text) => parse(list, text).ok_or_else(|| {
                let rule = "A cursor is the `next` of an earlier page of the same list.";
                Error::field(Kind::Invalid, "cursor", rule)
            })?,
        };
        Ok(Page { limit, before })
    }
}

impl Page {
    /// What a visitor sees first.
    pub(crate) const FIRST: Self = Self {
        limit: LIMIT_DEFAULT,
        before: Uuid::max(),
    };

    /// Ask for this many rows: one more than the page has, to know whether another page follows.
    pub(crate) const fn probe(&self) -> u32 {
        self.limit + 1
    }

    /// Cuts the probed rows to the page, and gives the cursor of the next one if there is one.
    pub(crate) fn cut<T>(
        &self,
        list: List,
        rows: &mut Vec<T>,
        id: impl Fn(&T) -> Uuid,
    ) -> Option<String> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        if rows.len() <= limit {
            return None;
        }
        rows.truncate(limit);
        rows.last().map(|row| text(list, id(row)))
    }
}

fn text(list: List, last: Uuid) -> String {
    format!("{}{}", list.letter(), BASE64.encode(last.as_bytes()))
}

fn parse(list: List, text: &str) -> Option<Uuid> {
    let bytes = BASE64.decode(text.strip_prefix(list.letter())?).ok()?;
    Uuid::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(limit: Option<&str>, cursor: Option<&str>) -> PageQuery {
        PageQuery {
            limit: limit.map(Into::into),
            cursor: cursor.map(Into::into),
        }
    }

    #[test]
    fn pages_follow_each_other_until_the_list_ends() {
        let mut ids: Vec<Uuid> = (0..5).map(|_| Uuid::now_v7()).collect();
        ids.reverse();
        let mut seen = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = query(Some("2"), cursor.as_deref())
                .page(List::Orders)
                .unwrap();
            let mut rows: Vec<Uuid> = ids.iter().copied().filter(|id| *id < page.before).collect();
            rows.truncate(page.probe() as usize);
            cursor = page.cut(List::Orders, &mut rows, |id| *id);
            assert!(rows.len() <= 2);
            seen.extend(rows);
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, ids);
    }

    #[test]
    fn limits_and_cursors_are_checked() {
        for bad in ["0", "101", "-1", "+5", "x", "", "1.5", "99999999999999"] {
            assert!(
                query(Some(bad), None).page(List::Products).is_err(),
                "{bad:?}"
            );
        }
        assert_eq!(query(None, None).page(List::Products).unwrap().limit, 20);
        let good = text(List::Products, Uuid::now_v7());
        assert!(query(None, Some(&good)).page(List::Products).is_ok());
        for bad in [
            "",
            "p",
            "x",
            &good[1..],
            &good[..20],
            &format!("{good}A"),
            "p' or 1=1",
        ] {
            assert!(
                query(None, Some(bad)).page(List::Products).is_err(),
                "{bad:?}"
            );
        }
        assert!(
            query(None, Some(&good)).page(List::Orders).is_err(),
            "another list's"
        );
    }
}
