//! Rules on SQL: in migrations, and in the string literals of code.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use regex::Regex;

use crate::code::line_of;
use crate::tree::File;

fn regex(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

/// A `create table` with its name and what stands between its parentheses. Ours end with `);` at a line's start.
fn tables(schema: &str) -> Vec<(String, String)> {
    let head = regex(r"(?is)create\s+table\s+(?:if\s+not\s+exists\s+)?`?(\w+)`?\s*\((.*?)\n\s*\)");
    let schema = without_comments(schema);
    let found = head.captures_iter(&schema);
    found
        .map(|c| (c[1].to_lowercase(), c[2].to_lowercase()))
        .collect()
}

fn without_comments(sql: &str) -> String {
    regex(r"(?m)--.*$").replace_all(sql, "").into_owned()
}

/// Tables that hold rows of shops.
pub(crate) fn tenant_tables(schema: &str) -> Vec<String> {
    let has = regex(r"(?m)^\s*`?shop_id`?\s");
    tables(schema)
        .into_iter()
        .filter(|(_, body)| has.is_match(body))
        .map(|(name, _)| name)
        .collect()
}

/// Primary and unique keys of tenant tables that do not begin with `shop_id`: a `replace` through such a key removes
/// another tenant's row. Other indexes may serve jobs that look for due rows of all shops.
pub(crate) fn keys(file: &File) -> Vec<String> {
    let key = regex(r"(?:primary\s+key|unique(?:\s+(?:key|index))?)\s*(?:`?\w+`?\s*)?\(\s*`?(\w+)");
    let inline = regex(r"(?m)^\s*`?(\w+)`?\s+[^,\n]*\b(primary\s+key|unique)\b\s*(?:,|$|check)");
    let tenant: BTreeSet<String> = tenant_tables(&file.text).into_iter().collect();
    let mut breaches = Vec::new();
    for (table, body) in tables(&file.text) {
        if !tenant.contains(&table) {
            continue;
        }
        let listed = key.captures_iter(&body).map(|c| c[1].to_owned());
        let own = inline.captures_iter(&body).map(|c| c[1].to_owned());
        let not_a_column = ["primary", "unique", "key", "index", "constraint"];
        for first in listed.chain(own.filter(|c| !not_a_column.contains(&c.as_str()))) {
            if first != "shop_id" {
                breaches.push(file.breach(
                    1,
                    &format!("a key of {table} begins with {first}, not shop_id"),
                ));
            }
        }
        if !regex(r"primary\s+key").is_match(&body) {
            breaches.push(file.breach(1, &format!("{table} has no primary key")));
        }
    }
    breaches
}

/// The string literals of a file with their lines, those in macros too; documentation is not code.
fn literals(file: &File) -> Vec<(usize, String)> {
    fn walk(stream: TokenStream, found: &mut Vec<(usize, String)>) {
        for tree in stream {
            match tree {
                TokenTree::Group(group) => {
                    let first = group.stream().into_iter().next();
                    if !matches!(first, Some(TokenTree::Ident(name)) if name == "doc") {
                        walk(group.stream(), found);
                    }
                }
                TokenTree::Literal(literal) => {
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        found.push((line_of(&text), text.value()));
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
    let mut found = Vec::new();
    walk(
        file.text
            .parse()
            .unwrap_or_else(|error| panic!("{}: {error}", file.path)),
        &mut found,
    );
    found
}

/// Statements on tenant tables that do not bind every one of them to a shop. A statement that is put together from
/// parts must name the shop in the part that names the table.
pub(crate) fn statements(file: &File, tenant: &BTreeSet<String>) -> Vec<String> {
    let named = regex(
        r"(?i)\b(from|join|into|update)\s+`?(?:podhost`?\.`?)?(\w+)`?|,\s*`?(\w+)`?\s+(?:as\s+)?\w\b",
    );
    let replace = regex(r"(?i)^\s*replace\s+(into\s+)?\w+");
    let changes = regex(r"(?i)^\s*(update|delete)\b");
    let bound = regex(r"(?i)\bshop_id\s*(=|in\b|<=>)");
    let column = regex(r"(?i)\bshop_id\b");
    let is_sql = regex(r"(?i)\b(select|insert|update|delete|replace|with)\b");
    let mut breaches = Vec::new();
    for (line, text) in literals(file) {
        if !is_sql.is_match(&text) {
            continue;
        }
        let of = |c: regex::Captures<'_>| c.get(2).or(c.get(3)).map(|m| m.as_str().to_lowercase());
        let found: Vec<String> = named
            .captures_iter(&text)
            .filter_map(of)
            .filter(|name| tenant.contains(name))
            .collect();
        let Some(first) = found.first() else { continue };
        let count = column.find_iter(&text).count();
        if replace.is_match(&text) {
            let what = format!("`replace` on {first} removes rows through any unique key");
            breaches.push(file.breach(line, &what));
        } else if count < found.len() {
            let what = format!(
                "a statement on {} names shop_id {count} times: {text:?}",
                found.join(", ")
            );
            breaches.push(file.breach(line, &what));
        } else if changes.is_match(&text) && !bound.is_match(&text) {
            breaches.push(file.breach(
                line,
                &format!("changes rows of {first} of more than one shop: {text:?}"),
            ));
        }
    }
    breaches
}

/// `select *` breaks when a column is added; an offset reads and drops what it skips, and skips what moved.
pub(crate) fn stars_and_offsets(file: &File) -> Vec<String> {
    let star = regex(r"(?i)\bselect\s+(distinct\s+)?(\w+\.)?\*|,\s*\w+\.\*\s+(from\b|,)");
    let offset =
        regex(r"(?i)\blimit\s+\S+\s+offset\b|\blimit\s+[\w:?{}]+\s*,|\boffset\s+(\?|\{|:|\d)");
    let literals = literals(file)
        .into_iter()
        .filter(|_| file.path != "tests/tidy/sql.rs");
    let check = |(line, text): (usize, String)| {
        if star.is_match(&text) {
            Some(file.breach(line, &format!("selects a star: {text:?}")))
        } else if offset.is_match(&text) {
            Some(file.breach(line, &format!("pages by offset: {text:?}")))
        } else {
            None
        }
    };
    literals.filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "
-- create table ghost (
--   shop_id int
-- );
create table if not exists product (
  shop_id bigint unsigned not null,
  product_id binary(16) not null, -- comes second
  primary key (shop_id, product_id)
);
create table pod_identity (
  one tinyint unsigned not null primary key check (one = 1)
);
create table if not exists shop_home (
  shop_id bigint unsigned not null primary key,
  epoch bigint unsigned not null
);
";

    fn sql(text: &str) -> File {
        File::new("pod/src/x.rs", &format!("fn f() {{ q(r#\"{text}\"#); }}"))
    }

    fn breaches(text: &str) -> usize {
        let tenant = ["product", "shop_home", "inventory"]
            .map(str::to_owned)
            .into();
        statements(&sql(text), &tenant).len()
    }

    #[test]
    fn tenant_tables_are_those_with_a_shop_id() {
        assert_eq!(tenant_tables(SCHEMA), ["product", "shop_home"]);
        assert!(keys(&File::new("m.sql", SCHEMA)).is_empty());
    }

    #[test]
    fn keys_that_begin_with_something_else_are_found() {
        let with = |line: &str| {
            let text = SCHEMA.replace("  primary key (shop_id, product_id)", line);
            keys(&File::new("m.sql", &text)).len()
        };
        let good = "  primary key (shop_id, product_id)";
        for bad in [
            "  primary key (product_id)",
            "  primary key (product_id, shop_id)",
            &format!("{good},\n  unique key by_title (title)"),
            &format!("{good},\n  unique (title)"),
            &format!("{good},\n  sku varchar(9) unique"),
        ] {
            assert_eq!(with(bad), 1, "{bad}");
        }
        assert_eq!(
            with("  constraint p check (price > 0)"),
            1,
            "no primary key"
        );
        assert_eq!(
            with(&format!("{good},\n  unique key by_title (shop_id, title)")),
            0
        );
    }

    #[test]
    fn statements_without_a_shop_are_found() {
        for bad in [
            "select title from product where product_id = ?",
            "SELECT title FROM `product` WHERE product_id = ?",
            "delete from podhost.product where product_id = ?",
            "update product set title = ? where product_id = ?",
            "insert into product (product_id) values (?)",
            "replace into product (shop_id, product_id) values (?, ?)",
            "select p.title from product p join inventory i on i.product_id = p.product_id where p.shop_id = ?",
            "select 1 from shop_home, product p where product_id = ?",
            "update product set title = ? where product_id = (select max(shop_id) from shop_home)",
            "with x as (select 1) select title from product",
        ] {
            let expected = usize::from(bad != "update product set shop_id = shop_id + 1");
            assert_eq!(
                breaches(bad),
                expected.max(usize::from(expected == 1)),
                "{bad}"
            );
        }
        for good in [
            "select title from product where shop_id = ? and product_id = ?",
            "insert into product (shop_id, product_id) values (?, ?)",
            "select 1 from product p join inventory i using (shop_id, product_id) where p.shop_id = ?",
            "select term from pod_identity",
            "take a product from product shelves",
        ] {
            assert_eq!(breaches(good), 0, "{good}");
        }
    }

    #[test]
    fn statements_in_macros_are_found_and_documentation_is_not() {
        let tenant: BTreeSet<String> = ["product".to_owned()].into();
        let text = "fn f() { sqlx::query!(\"delete from product\"); format!(\"select a from product {x}\"); }";
        assert_eq!(
            statements(&File::new("pod/src/x.rs", text), &tenant).len(),
            2
        );
        let text = "/// select a from product\nfn f() {}";
        assert!(statements(&File::new("pod/src/x.rs", text), &tenant).is_empty());
    }

    #[test]
    fn stars_and_offsets_are_found() {
        for bad in [
            "select * from product",
            "select p.* from product p",
            "select distinct * from product",
            "select a, p.* from product p",
            "select a from product limit ? offset ?",
            "select a from product limit 10, 20",
        ] {
            assert_eq!(stars_and_offsets(&sql(bad)).len(), 1, "{bad}");
        }
        for good in [
            "select count(*) from product",
            "select a * b from t limit ?",
            "the offset 5",
        ] {
            let count = stars_and_offsets(&sql(good)).len();
            assert_eq!(count, usize::from(good == "the offset 5"), "{good}");
        }
    }
}
