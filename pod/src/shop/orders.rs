//! Orders as clients read them.

use axum::Json as Answer;
use axum::extract::{FromRequestParts, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::request::Parts;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use shared::error::Kind;
use sqlx::types::time::OffsetDateTime;
use subtle::ConstantTimeEq;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::cursor::{List, Page, PageQuery};
use super::fields::{PathId, Strict};
use super::money::{self, Currency};
use super::state::Status;
use crate::extract::bearer;
use crate::{App, Consistency, Error, Merchant, Reader, Shop, Tx};

/// What an order's access token begins with, so that it is not taken for a merchant's.
const ACCESS_PREFIX: &str = "pho_";

/// An order as the database has it.
#[derive(Debug, sqlx::FromRow)]
struct OrderRow {
    order_id: Uuid,
    status: String,
    total: Decimal,
    currency: String,
    access_key: Vec<u8>,
    created_at: OffsetDateTime,
    email: String,
}

/// A line as the database has it.
#[derive(Debug, sqlx::FromRow)]
struct ItemRow {
    order_id: Uuid,
    product_id: Uuid,
    title: String,
    price: Decimal,
    quantity: i32,
}

/// An order as clients read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: Uuid,
    pub(crate) status: String,
    pub(crate) total: String,
    pub(crate) currency: String,
    pub(crate) email: String,
    pub(crate) created_at: String,
    pub(crate) lines: Vec<OrderLine>,
    /// Only in the answer of the checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access_token: Option<String>,
    #[serde(skip)]
    access_key: Vec<u8>,
}

/// A line of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OrderLine {
    pub(crate) product_id: Uuid,
    pub(crate) title: String,
    pub(crate) price: String,
    pub(crate) quantity: i32,
}

impl Order {
    fn new(row: OrderRow, items: Vec<ItemRow>) -> Result<Self, Error> {
        let OrderRow {
            order_id,
            status,
            total,
            currency,
            access_key,
            created_at,
            email,
        } = row;
        let code = Currency::parse(&currency)
            .ok_or_else(|| Error::bug(format!("order {order_id} has no currency")))?;
        let created_at = created_at
            .format(&Rfc3339)
            .map_err(|e| Error::bug(format!("order {order_id} has no time: {e}")))?;
        let line = |item: ItemRow| OrderLine {
            product_id: item.product_id,
            title: item.title,
            price: money::text(item.price, code),
            quantity: item.quantity,
        };
        Ok(Self {
            id: order_id,
            status,
            total: money::text(total, code),
            currency,
            email,
            created_at,
            lines: items.into_iter().map(line).collect(),
            access_token: None,
            access_key,
        })
    }

    /// With the token by which the buyer reads it.
    pub(crate) fn with_access_token(mut self) -> Self {
        self.access_token = Some(format!(
            "{ACCESS_PREFIX}{}",
            BASE64.encode(&self.access_key)
        ));
        self
    }

    /// What it is, in words.
    pub(crate) fn state(&self) -> Option<Status> {
        Status::parse(&self.status)
    }
}

/// Who asks for one order.
#[derive(Debug)]
pub(crate) enum Viewer {
    /// The merchant, who may see every order.
    Merchant,
    /// Somebody with a token that an order may have.
    Buyer(Vec<u8>),
}

/// The query of one order.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AccessQuery {
    access_token: Option<String>,
}

impl Viewer {
    /// By an order's token; 401 for a text that is none.
    pub(crate) fn by_token(token: &str) -> Result<Self, Error> {
        token
            .strip_prefix(ACCESS_PREFIX)
            .and_then(|text| BASE64.decode(text).ok())
            .map(Self::Buyer)
            .ok_or_else(unauthorized)
    }

    /// Whether this one may see an order. Nobody is told that an order exists which is not theirs: 404.
    fn admit(&self, order: Order) -> Result<Order, Error> {
        let may = match self {
            Self::Merchant => true,
            Self::Buyer(key) => bool::from(key.as_slice().ct_eq(&order.access_key)),
        };
        if may {
            Ok(order)
        } else {
            Err(Error::not_found())
        }
    }
}

fn unauthorized() -> Error {
    let detail = "This needs a merchant token, or the order's access token, as `authorization: Bearer` or `?access_token=`.";
    Error::because(Kind::Unauthorized, detail)
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let Strict(query) = Strict::<AccessQuery>::from_request_parts(parts, app).await?;
        match (bearer(&parts.headers)?, query.access_token) {
            (Some(token), _) if token.starts_with(ACCESS_PREFIX) => Self::by_token(token),
            (Some(_), _) => Merchant::from_request_parts(parts, app)
                .await
                .map(|_| Self::Merchant),
            (None, Some(token)) => Self::by_token(&token),
            (None, None) => Err(unauthorized()),
        }
    }
}

/// `GET /api/v1/orders/{id}`
pub(crate) async fn show(
    State(app): State<App>,
    shop: Shop,
    viewer: Viewer,
    PathId(id): PathId,
) -> Result<Answer<Order>, Error> {
    find(&app, &shop, &viewer, id).await.map(Answer)
}

/// One order for somebody who may see it.
pub(crate) async fn find(
    app: &App,
    shop: &Shop,
    viewer: &Viewer,
    id: Uuid,
) -> Result<Order, Error> {
    let order = app
        .read(shop, Consistency::Strong, move |reader| {
            Box::pin(load(reader, id))
        })
        .await?
        .ok_or_else(Error::not_found)?;
    viewer.admit(order)
}

/// A page of orders.
#[derive(Debug, Serialize)]
pub(crate) struct Orders {
    orders: Vec<Order>,
    next: Option<String>,
}

/// `GET /api/v1/orders`
pub(crate) async fn list(
    State(app): State<App>,
    shop: Shop,
    _: Merchant,
    Strict(query): Strict<PageQuery>,
) -> Result<Answer<Orders>, Error> {
    let page = query.page(List::Orders)?;
    let (orders, next) = app
        .read(&shop, Consistency::Session, move |reader| {
            Box::pin(load_page(reader, page))
        })
        .await?;
    Ok(Answer(Orders { orders, next }))
}

const SELECT_ONE: &str =
    "select o.order_id, o.status, o.total, o.currency, o.access_key, o.created_at, c.email
     from shop_order o join customer c on c.shop_id = o.shop_id and c.customer_id = o.customer_id
     where o.shop_id = ? and o.order_id = ?";

/// The lines of the orders between two ids: a page is a range of ids, so this is one range of the primary key.
const SELECT_ITEMS: &str = "select order_id, product_id, title, price, quantity from order_item
     where shop_id = ? and order_id between ? and ? order by order_id desc, line";

/// An order as a transaction sees it.
pub(crate) async fn in_transaction(tx: &mut Tx, id: Uuid) -> Result<Order, Error> {
    let shop = tx.shop().get();
    let row = tx
        .fetch_one(sqlx::query_as(SELECT_ONE).bind(shop).bind(id))
        .await?;
    let items = sqlx::query_as(SELECT_ITEMS).bind(shop).bind(id).bind(id);
    Order::new(row, tx.fetch_all(items).await?)
}

async fn load(reader: &mut Reader, id: Uuid) -> Result<Option<Order>, Error> {
    let shop = reader.shop().get();
    let row = reader
        .fetch_optional(sqlx::query_as(SELECT_ONE).bind(shop).bind(id))
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let items = sqlx::query_as(SELECT_ITEMS).bind(shop).bind(id).bind(id);
    Order::new(row, reader.fetch_all(items).await?).map(Some)
}

async fn load_page(reader: &mut Reader, page: Page) -> Result<(Vec<Order>, Option<String>), Error> {
    let shop = reader.shop().get();
    let query = sqlx::query_as(
        "select o.order_id, o.status, o.total, o.currency, o.access_key, o.created_at, c.email
         from shop_order o
         join customer c on c.shop_id = o.shop_id and c.customer_id = o.customer_id
         where o.shop_id = ? and o.order_id < ? order by o.order_id desc limit ?",
    )
    .bind(shop)
    .bind(page.before)
    .bind(page.probe());
    let mut rows: Vec<OrderRow> = reader.fetch_all(query).await?;
    let next = page.cut(List::Orders, &mut rows, |row| row.order_id);
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Ok((Vec::new(), None));
    };
    let items = sqlx::query_as(SELECT_ITEMS)
        .bind(shop)
        .bind(last.order_id)
        .bind(first.order_id);
    let items: Vec<ItemRow> = reader.fetch_all(items).await?;
    Ok((gather(rows, items)?, next))
}

/// Gives each order its lines; both lists run from the newest order to the oldest.
fn gather(rows: Vec<OrderRow>, items: Vec<ItemRow>) -> Result<Vec<Order>, Error> {
    let mut items = items.into_iter().peekable();
    rows.into_iter()
        .map(|row| {
            let mut own = Vec::new();
            while let Some(item) = items.next_if(|item| item.order_id == row.order_id) {
                own.push(item);
            }
            Order::new(row, own)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u128) -> OrderRow {
        OrderRow {
            order_id: Uuid::from_u128(id),
            status: "paid".into(),
            total: Decimal::ONE,
            currency: "USD".into(),
            access_key: vec![7; 32],
            created_at: OffsetDateTime::UNIX_EPOCH,
            email: "a@b.c".into(),
        }
    }

    fn item(order: u128, quantity: i32) -> ItemRow {
        ItemRow {
            order_id: Uuid::from_u128(order),
            product_id: Uuid::nil(),
            title: "x".into(),
            price: Decimal::ONE,
            quantity,
        }
    }

    #[test]
    fn lines_go_to_their_order() {
        let items = vec![item(3, 1), item(3, 2), item(1, 9)];
        let orders = gather(vec![row(3), row(2), row(1)], items).unwrap();
        let quantities: Vec<Vec<i32>> = orders
            .iter()
            .map(|order| order.lines.iter().map(|line| line.quantity).collect())
            .collect();
        assert_eq!(quantities, [vec![1, 2], vec![], vec![9]]);
    }

    #[test]
    fn an_order_opens_to_its_own_token_alone() {
        let order = || Order::new(row(1), vec![]).unwrap();
        let token = order().with_access_token().access_token.unwrap();
        assert!(Viewer::by_token(&token).unwrap().admit(order()).is_ok());
        assert!(Viewer::Merchant.admit(order()).is_ok());
        let mut other = row(1);
        other.access_key = vec![8; 32];
        let other = Order::new(other, vec![]).unwrap();
        assert!(Viewer::by_token(&token).unwrap().admit(other).is_err());
        assert!(
            Viewer::by_token(ACCESS_PREFIX)
                .unwrap()
                .admit(order())
                .is_err()
        );
        for bad in ["", "x", "pht_abc", "pho_%%%"] {
            assert!(Viewer::by_token(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_token_is_in_the_checkouts_answer_only() {
        let order = Order::new(row(1), vec![item(1, 1)]).unwrap();
        let plain = serde_json::to_value(&order).unwrap();
        assert_eq!(plain.get("access_token"), None);
        assert_eq!(plain.get("access_key"), None);
        assert_eq!(plain["total"], "1.00");
        let full = serde_json::to_value(order.with_access_token()).unwrap();
        assert!(
            full["access_token"]
                .as_str()
                .unwrap()
                .starts_with(ACCESS_PREFIX)
        );
    }
}
