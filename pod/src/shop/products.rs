//! Products: what a shop sells. Reading is anyone's and comes from a cache or a replica; changing is the merchant's.

use std::sync::Arc;
use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cursor::{List, Page, PageQuery};
use super::fields::{self, PathId, Strict, invalid};
use super::limits::Limits;
use super::money::{self, Currency};
use super::profile::Profile;
use crate::{
    App, Call, Consistency, Entity, Error, Event, IdempotencyKey, Json, Merchant, Reader, Reply,
    Shop, Tx,
};

/// `available` may be two seconds old; half of that is left for the replica behind the cache.
pub(crate) static PRODUCT: Entity = Entity::new("product", Duration::from_secs(1));

/// The first page is dropped when a product is made or changed, not when one is sold: it would never be kept.
static FIRST_PAGE: Entity = Entity::new("products", Duration::from_secs(1));
const FIRST_PAGE_ID: &str = "first";

/// A product as clients read it, and as it is cached.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) id: Uuid,
    pub(crate) title: String,
    pub(crate) price: String,
    pub(crate) currency: String,
    pub(crate) available: i64,
}

/// A product as the database has it.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct ProductRow {
    product_id: Uuid,
    title: String,
    price: Decimal,
    currency: String,
    available: i64,
}

impl ProductRow {
    fn view(self) -> Result<Product, Error> {
        let Self {
            product_id,
            title,
            price,
            currency,
            available,
        } = self;
        let code = Currency::parse(&currency)
            .ok_or_else(|| Error::bug(format!("product {product_id} has no currency")))?;
        Ok(Product {
            id: product_id,
            title,
            price: money::text(price, code),
            currency,
            available,
        })
    }
}

/// A page of products, as clients read it and as the first one is cached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Products {
    pub(crate) products: Vec<Product>,
    pub(crate) next: Option<String>,
}

/// `GET /api/v1/products`
pub(crate) async fn list(
    State(app): State<App>,
    shop: Shop,
    Strict(query): Strict<PageQuery>,
) -> Result<Answer<Products>, Error> {
    page(&app, &shop, query.page(List::Products)?)
        .await
        .map(Answer)
}

/// One page, newest first. Most visitors see the first one and no other, so that one is cached.
pub(crate) async fn page(app: &App, shop: &Shop, page: Page) -> Result<Products, Error> {
    if page == Page::FIRST {
        let first = app
            .cached(shop, &FIRST_PAGE, FIRST_PAGE_ID, move |reader| {
                Box::pin(async move { load_page(reader, page).await.map(Some) })
            })
            .await?;
        return first
            .map(|products| Products::clone(&products))
            .ok_or_else(|| Error::bug("the first page of products is cached as missing"));
    }
    app.read(shop, Consistency::Eventual, move |reader| {
        Box::pin(load_page(reader, page))
    })
    .await
}

/// `GET /api/v1/products/{id}`
pub(crate) async fn show(
    State(app): State<App>,
    shop: Shop,
    PathId(id): PathId,
) -> Result<Answer<Product>, Error> {
    let product = find(&app, &shop, id).await?;
    Ok(Answer(Product::clone(&product)))
}

/// One product, at most two seconds old.
pub(crate) async fn find(app: &App, shop: &Shop, id: Uuid) -> Result<Arc<Product>, Error> {
    app.cached(shop, &PRODUCT, &id.to_string(), move |reader| {
        Box::pin(load(reader, id))
    })
    .await?
    .ok_or_else(Error::not_found)
}

/// The body of `POST`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewProduct {
    title: String,
    price: String,
    currency: String,
    available: i64,
}

/// `POST /api/v1/products`
pub(crate) async fn create(
    State(app): State<App>,
    shop: Shop,
    _: Merchant,
    limits: Limits,
    key: IdempotencyKey,
    body: Json<NewProduct>,
) -> Result<Reply, Error> {
    let currency = Profile::of(&app, &shop).await?.currency()?;
    let NewProduct {
        title,
        price,
        currency: code,
        available,
    } = body.value;
    let row = Arc::new(ProductRow {
        product_id: Uuid::now_v7(),
        title: fields::title(&title)?,
        price: check_price(&price, check_currency(&code, currency)?)?,
        currency: code,
        available: fields::available(available, limits.available)?,
    });
    let call = Call::new("products.create", &key, body.fingerprint);
    let prefix = shop.prefix().to_owned();
    app.write(&shop, call, move |tx| {
        let (row, prefix) = (Arc::clone(&row), prefix.clone());
        Box::pin(async move {
            insert(tx, &row).await?;
            let product = publish(tx, "product.created", row.product_id).await?;
            let location = format!("{prefix}/api/v1/products/{}", product.id);
            Ok(Reply::json(StatusCode::CREATED, &product)?.at(location))
        })
    })
    .await
}

/// The body of `PATCH`: what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProductChange {
    #[serde(default, deserialize_with = "fields::some")]
    title: Option<String>,
    #[serde(default, deserialize_with = "fields::some")]
    price: Option<String>,
    #[serde(default, deserialize_with = "fields::some")]
    currency: Option<String>,
    #[serde(default, deserialize_with = "fields::some")]
    available: Option<i64>,
}

/// A change that has been checked.
#[derive(Debug)]
struct Change {
    title: Option<String>,
    price: Option<Decimal>,
    available: Option<i64>,
}

impl ProductChange {
    fn check(self, shop: Currency, limits: Limits) -> Result<Change, Error> {
        let Self {
            title,
            price,
            currency,
            available,
        } = self;
        if title.is_none() && price.is_none() && currency.is_none() && available.is_none() {
            return Err(Error::because(
                shared::error::Kind::Invalid,
                "Nothing to change: give title, price or available.",
            ));
        }
        if let Some(code) = currency {
            check_currency(&code, shop)?;
        }
        Ok(Change {
            title: title.as_deref().map(fields::title).transpose()?,
            price: price.map(|text| check_price(&text, shop)).transpose()?,
            available: available
                .map(|number| fields::available(number, limits.available))
                .transpose()?,
        })
    }
}

/// `PATCH /api/v1/products/{id}`
pub(crate) async fn update(
    State(app): State<App>,
    shop: Shop,
    _: Merchant,
    PathId(id): PathId,
    limits: Limits,
    key: IdempotencyKey,
    body: Json<ProductChange>,
) -> Result<Reply, Error> {
    let currency = Profile::of(&app, &shop).await?.currency()?;
    let change = Arc::new(body.value.check(currency, limits)?);
    let call = Call::new("products.update", &key, body.fingerprint);
    app.write(&shop, call, move |tx| {
        let change = Arc::clone(&change);
        Box::pin(async move {
            apply(tx, id, &change).await?;
            let product = publish(tx, "product.updated", id).await?;
            Reply::json(StatusCode::OK, &product)
        })
    })
    .await
}

fn check_currency(code: &str, shop: Currency) -> Result<Currency, Error> {
    if code == shop.as_str() {
        Ok(shop)
    } else {
        Err(invalid(
            "currency",
            format!("This shop sells in {}.", shop.as_str()),
        ))
    }
}

fn check_price(text: &str, currency: Currency) -> Result<Decimal, Error> {
    money::parse(text, currency).map_err(|bad| invalid("price", bad.to_string()))
}

/// The product as the transaction sees it, told to caches and consumers.
pub(crate) async fn publish(tx: &mut Tx, kind: &'static str, id: Uuid) -> Result<Product, Error> {
    let query = sqlx::query_as(SELECT_ONE).bind(tx.shop().get()).bind(id);
    let row: ProductRow = tx.fetch_one(query).await?;
    let product = row.view()?;
    tx.changed(&PRODUCT, &id.to_string());
    tx.changed(&FIRST_PAGE, FIRST_PAGE_ID);
    tx.outbox(Event::new(kind, id.to_string(), &product)?);
    Ok(product)
}

const SELECT_ONE: &str = "select p.product_id, p.title, p.price, p.currency, i.available
     from product p join inventory i on i.shop_id = p.shop_id and i.product_id = p.product_id
     where p.shop_id = ? and p.product_id = ?";

async fn load(reader: &mut Reader, id: Uuid) -> Result<Option<Product>, Error> {
    let query = sqlx::query_as(SELECT_ONE)
        .bind(reader.shop().get())
        .bind(id);
    let row: Option<ProductRow> = reader.fetch_optional(query).await?;
    row.map(ProductRow::view).transpose()
}

async fn load_page(reader: &mut Reader, page: Page) -> Result<Products, Error> {
    let query = sqlx::query_as(
        "select p.product_id, p.title, p.price, p.currency, i.available
         from product p join inventory i on i.shop_id = p.shop_id and i.product_id = p.product_id
         where p.shop_id = ? and p.product_id < ?
         order by p.product_id desc limit ?",
    )
    .bind(reader.shop().get())
    .bind(page.before)
    .bind(page.probe());
    let mut rows: Vec<ProductRow> = reader.fetch_all(query).await?;
    let next = page.cut(List::Products, &mut rows, |row| row.product_id);
    let products = rows
        .into_iter()
        .map(ProductRow::view)
        .collect::<Result<_, _>>()?;
    Ok(Products { products, next })
}

async fn insert(tx: &mut Tx, row: &ProductRow) -> Result<(), Error> {
    let product = sqlx::query(
        "insert into product (shop_id, product_id, title, price, currency) values (?, ?, ?, ?, ?)",
    )
    .bind(tx.shop().get())
    .bind(row.product_id)
    .bind(&row.title)
    .bind(row.price)
    .bind(&row.currency);
    tx.execute(product).await?;
    let inventory =
        sqlx::query("insert into inventory (shop_id, product_id, available) values (?, ?, ?)")
            .bind(tx.shop().get())
            .bind(row.product_id)
            .bind(row.available);
    tx.execute(inventory).await?;
    Ok(())
}

async fn apply(tx: &mut Tx, id: Uuid, change: &Change) -> Result<(), Error> {
    let query = sqlx::query(
        "update product set title = coalesce(?, title), price = coalesce(?, price),
           updated_at = utc_timestamp(3)
         where shop_id = ? and product_id = ?",
    )
    .bind(&change.title)
    .bind(change.price)
    .bind(tx.shop().get())
    .bind(id);
    if tx.execute(query).await? == 0 {
        return Err(Error::not_found());
    }
    match change.available {
        Some(available) => super::inventory::set(tx, id, available).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd() -> Currency {
        Currency::parse("USD").unwrap()
    }

    fn change(json: &str) -> Result<Change, Error> {
        let body: ProductChange =
            serde_json::from_str(json).map_err(|e| Error::bug(e.to_string()))?;
        body.check(usd(), Limits::default())
    }

    #[test]
    fn a_change_names_what_changes() {
        let good = change(r#"{"price": "3.50"}"#).unwrap();
        assert_eq!((good.title, good.available), (None, None));
        assert!(change(r#"{"currency": "USD", "available": 0}"#).is_ok());
        for bad in [
            "{}",
            r#"{"title": null}"#,
            r#"{"price": 3.5}"#,
            r#"{"currency": "EUR"}"#,
            r#"{"available": -1}"#,
            r#"{"available": 1.5}"#,
            r#"{"id": "x"}"#,
        ] {
            assert!(change(bad).is_err(), "{bad}");
        }
    }
}
