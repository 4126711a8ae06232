//! What the pages show, in words: amounts with their currency, states as a buyer would say them.

use askama::Template;
use axum::response::{IntoResponse, Response};
use http::header;
use shared::error::Classify;
use uuid::Uuid;

use super::{BuyForm, Site};
use crate::Error;
use crate::shop::fields;
use crate::shop::money::{self, Currency};
use crate::shop::orders::Order;
use crate::shop::products::{Product, Products};
use crate::shop::state::Status;

/// Nothing but this shop's own style sheet and forms. An order's address holds its access token, so no page tells another
/// site where a visitor came from, and no page is kept by a cache.
const HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
];

fn page(template: &impl Template) -> Result<Response, Error> {
    let html = template
        .render()
        .map_err(|e| Error::bug(format!("a page cannot be rendered: {e}")))?;
    Ok((HEADERS, html).into_response())
}

/// An amount that was rendered for clients, for people.
fn amount(text: &str, currency: &str) -> Result<String, Error> {
    let bad = || Error::bug(format!("{text:?} {currency:?} is no amount"));
    let code = Currency::parse(currency).ok_or_else(bad)?;
    let amount = money::parse(text, code).map_err(|_| bad())?;
    Ok(money::for_people(amount, code))
}

/// A product on a page.
struct Shown {
    id: Uuid,
    title: String,
    price: String,
    stock: String,
    available: i64,
}

/// Few units left are worth a word; how many there are otherwise is the merchant's business.
const FEW: i64 = 5;

impl Shown {
    fn new(product: &Product) -> Result<Self, Error> {
        let stock = match product.available {
            0 => "Sold out".to_owned(),
            few if few <= FEW => format!("Only {few} left"),
            _ => "In stock".to_owned(),
        };
        Ok(Self {
            id: product.id,
            title: product.title.clone(),
            price: amount(&product.price, &product.currency)?,
            stock,
            available: product.available,
        })
    }
}

#[derive(Template)]
#[template(path = "products.html")]
struct ProductsPage<'a> {
    name: &'a str,
    prefix: &'a str,
    products: Vec<Shown>,
    next: Option<String>,
    first: bool,
}

/// The list.
pub(super) fn products(site: &Site, page_of: Products, first: bool) -> Result<Response, Error> {
    let Products { products, next } = page_of;
    page(&ProductsPage {
        name: &site.name,
        prefix: &site.prefix,
        products: products.iter().map(Shown::new).collect::<Result<_, _>>()?,
        next,
        first,
    })
}

#[derive(Template)]
#[template(path = "product.html")]
struct ProductPage<'a> {
    name: &'a str,
    prefix: &'a str,
    product: Shown,
    key: Uuid,
    quantity_max: i64,
}

/// One product with its form.
pub(super) fn product(
    site: &Site,
    product: &Product,
    quantity_max: u32,
    key: Uuid,
) -> Result<Response, Error> {
    let product = Shown::new(product)?;
    page(&ProductPage {
        name: &site.name,
        prefix: &site.prefix,
        quantity_max: product.available.min(quantity_max.into()),
        product,
        key,
    })
}

#[derive(Template)]
#[template(path = "order.html")]
struct OrderPage<'a> {
    name: &'a str,
    prefix: &'a str,
    order: &'a Order,
    state: &'static str,
    placed: &'a str,
    waiting: bool,
    lines: Vec<ShownLine<'a>>,
    total: String,
}

struct ShownLine<'a> {
    title: &'a str,
    price: String,
    quantity: i32,
}

/// An order.
pub(super) fn order(site: &Site, order: &Order) -> Result<Response, Error> {
    let status = order.state();
    let lines = order.lines.iter().map(|line| {
        Ok(ShownLine {
            title: &line.title,
            price: amount(&line.price, &order.currency)?,
            quantity: line.quantity,
        })
    });
    page(&OrderPage {
        name: &site.name,
        prefix: &site.prefix,
        order,
        state: status.map_or("Unknown", Status::for_people),
        // RFC 3339 begins with the day.
        placed: order.created_at.get(..10).unwrap_or(&order.created_at),
        waiting: status == Some(Status::Pending),
        lines: lines.collect::<Result<_, Error>>()?,
        total: amount(&order.total, &order.currency)?,
    })
}

/// The same form once more, with the same key.
#[derive(Debug)]
pub(super) struct Again(BuyForm);

impl From<BuyForm> for Again {
    fn from(form: BuyForm) -> Self {
        Self(form)
    }
}

impl Again {
    fn fields(&self) -> [(&'static str, &str); 5] {
        let BuyForm {
            key,
            product_id,
            quantity,
            email,
            outcome,
        } = &self.0;
        [
            ("key", key),
            ("product_id", product_id),
            ("quantity", quantity),
            ("email", email),
            ("outcome", outcome),
        ]
    }
}

/// A page that says what went wrong, and where to go from there.
#[derive(Debug, Template)]
#[template(path = "problem.html")]
pub(super) struct Failure {
    name: String,
    prefix: String,
    title: &'static str,
    detail: Option<String>,
    again: Option<Again>,
    back: String,
    back_text: &'static str,
}

impl Failure {
    pub(super) fn new(site: &Site, error: &Error) -> Self {
        Self {
            name: site.name.clone(),
            prefix: site.prefix.clone(),
            title: error.kind().title(),
            detail: error.client_text(),
            again: None,
            back: "/".to_owned(),
            back_text: "To all products",
        }
    }

    pub(super) fn back_to_product(&mut self, product: &str) {
        if let Some(id) = fields::id(product) {
            self.back = format!("/products/{id}");
            self.back_text = "Back to the product";
        }
    }

    pub(super) fn offer_again(&mut self, again: Again) {
        self.again = Some(again);
    }
}

/// The page of an error; its status is the caller's.
pub(super) fn problem(failure: &Failure) -> Result<Response, Error> {
    page(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        Site {
            name: "<snow>".into(),
            prefix: "/s/snow".into(),
        }
    }

    fn lamp() -> Product {
        Product {
            id: Uuid::from_u128(7),
            title: "Lamp <script>".into(),
            price: "1234.50".into(),
            currency: "USD".into(),
            available: 3,
        }
    }

    async fn html(response: Result<Response, Error>) -> String {
        let response = response.unwrap();
        assert!(
            response
                .headers()
                .contains_key(header::CONTENT_SECURITY_POLICY)
        );
        let body = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    /// On the platform domain the edge cuts `/s/<handle>`: a link without it would lead to no shop.
    #[tokio::test]
    async fn every_link_begins_with_the_prefix_and_every_text_is_escaped() {
        let list = Products {
            products: vec![lamp()],
            next: Some("pAA".into()),
        };
        let failure = Failure::new(&site(), &Error::not_found());
        for text in [
            html(products(&site(), list, false)).await,
            html(product(&site(), &lamp(), 100, Uuid::max())).await,
            html(problem(&failure)).await,
        ] {
            for attribute in ["href=\"", "action=\"", "src=\""] {
                for link in text.split(attribute).skip(1) {
                    assert!(
                        link.starts_with("/s/snow/") || link.starts_with("#main"),
                        "{link}"
                    );
                }
            }
            assert!(
                !text.contains("<script>") && !text.contains("<snow>"),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn a_product_page_sells_what_there_is() {
        let text = html(product(&site(), &lamp(), 100, Uuid::max())).await;
        assert!(text.contains("1,234.50 USD") && text.contains("Only 3 left"));
        assert!(text.contains("max=\"3\"") && text.contains(&Uuid::max().to_string()));
        let none = Product {
            available: 0,
            ..lamp()
        };
        let text = html(product(&site(), &none, 100, Uuid::max())).await;
        assert!(text.contains("Sold out") && !text.contains("<form"));
    }
}
