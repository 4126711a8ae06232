//! The storefront: plain pages, rendered here, that need no scripts. They do nothing that the JSON interface could not.

mod view;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use shared::error::{Classify, Kind};
use uuid::Uuid;

use self::view::{Again, Failure};
use super::checkout::{self, CheckoutBody, LineBody, PaymentBody};
use super::cursor::{List, PageQuery};
use super::fields::{PathId, invalid};
use super::limits::Limits;
use super::orders::{self, Order, Viewer};
use super::products;
use super::profile::Profile;
use crate::{App, Call, Error, Fingerprint, Form, IdempotencyKey, Shop};

const STYLE: &str = include_str!("../../templates/style.css");

/// `GET /`: what there is, newest first. Whatever else stands in the query (where a visitor came from) is passed over.
pub(crate) async fn home(
    State(app): State<App>,
    shop: Shop,
    Query(query): Query<HomeQuery>,
) -> Result<Response, PageError> {
    let site = Site::of(&app, &shop).await;
    let first = query.cursor.is_none();
    let page = PageQuery::after(query.cursor).page(List::Products);
    let page = site.or_page(page)?;
    let products = site.or_page(products::page(&app, &shop, page).await)?;
    site.or_page(view::products(&site, products, first))
}

/// The query of `GET /`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct HomeQuery {
    cursor: Option<String>,
}

/// `GET /products/{id}`: one thing, and a form to buy it. The form carries the key of the order that it makes, so that
/// a second click makes no second order.
pub(crate) async fn product(
    State(app): State<App>,
    shop: Shop,
    limits: Limits,
    id: Result<PathId, Error>,
) -> Result<Response, PageError> {
    let site = Site::of(&app, &shop).await;
    let PathId(id) = site.or_page(id)?;
    let product = site.or_page(products::find(&app, &shop, id).await)?;
    site.or_page(view::product(
        &site,
        &product,
        limits.quantity,
        Uuid::now_v7(),
    ))
}

/// The form on a product's page.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuyForm {
    key: String,
    product_id: String,
    quantity: String,
    email: String,
    outcome: String,
}

/// `POST /buy`: a checkout of one line, which ends at the order's page.
pub(crate) async fn buy(
    State(app): State<App>,
    shop: Shop,
    limits: Limits,
    form: Result<Form<BuyForm>, Error>,
) -> Result<Response, PageError> {
    let site = Site::of(&app, &shop).await;
    let form = site.or_page(form)?.value;
    let failed = |error| site.failed(error).about(&form.product_id);
    match order_of(&app, &shop, limits, &form).await {
        Ok(order) => {
            let token = order.access_token.as_deref().unwrap_or_default();
            let path = format!("{}/orders/{}?access_token={token}", shop.prefix(), order.id);
            Ok(see_other(&path))
        }
        // The same form once more ends the same order, whatever became of this try.
        Err(error) if error.kind().retryable() => {
            Err(failed(error).again(Again::from(form.clone())))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Checks the form out under its own key: `checkout` does the rest.
async fn order_of(app: &App, shop: &Shop, limits: Limits, form: &BuyForm) -> Result<Order, Error> {
    let key = IdempotencyKey::parse(&form.key)?;
    let quantity = form.quantity.trim().parse();
    let cart = CheckoutBody {
        email: form.email.clone(),
        lines: vec![LineBody {
            product_id: form.product_id.clone(),
            quantity: quantity.map_err(|_| invalid("quantity", "A quantity is a whole number."))?,
        }],
        payment: PaymentBody {
            method: "bogus".to_owned(),
            outcome: form.outcome.clone(),
        },
    };
    let parts = [
        "buy",
        &form.product_id,
        &form.quantity,
        &form.email,
        &form.outcome,
    ];
    let call = Call::new(
        checkout::ENDPOINT,
        &key,
        Fingerprint::of(&parts.map(str::as_bytes)),
    );
    let reply = checkout::check_out(app, shop, limits, call, cart.check(limits)?).await?;
    if reply.status() == StatusCode::PAYMENT_REQUIRED {
        let detail = "Nothing was charged. You can try again from the product's page.";
        return Err(Error::because(Kind::PaymentDeclined, detail));
    }
    serde_json::from_slice(reply.body())
        .map_err(|e| Error::bug(format!("the answer of a checkout is no order: {e}")))
}

/// `GET /orders/{id}?access_token=`: the buyer's view of an order.
pub(crate) async fn order(
    State(app): State<App>,
    shop: Shop,
    viewer: Result<Viewer, Error>,
    id: Result<PathId, Error>,
) -> Result<Response, PageError> {
    let site = Site::of(&app, &shop).await;
    let (viewer, PathId(id)) = (site.or_page(viewer)?, site.or_page(id)?);
    let order = site.or_page(orders::find(&app, &shop, &viewer, id).await)?;
    site.or_page(view::order(&site, &order))
}

/// What is not there: a page for a browser, a problem for a program.
pub(crate) async fn missing(State(app): State<App>, shop: Shop, headers: HeaderMap) -> Response {
    let is_browser = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|kinds| kinds.contains("text/html"));
    if !is_browser {
        return Error::not_found().into_response();
    }
    let site = Site::of(&app, &shop).await;
    site.failed(Error::not_found()).into_response()
}

/// `GET /assets/style.css`
pub(crate) async fn style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/css; charset=utf-8"),
        // The path does not change with the text: an hour is how long an old one may be seen.
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    (headers, STYLE).into_response()
}

/// What every page shows: whose shop it is, and what its links begin with.
#[derive(Debug)]
pub(crate) struct Site {
    name: String,
    prefix: String,
}

impl Site {
    /// A page of a shop whose name cannot be read just now is still a page.
    async fn of(app: &App, shop: &Shop) -> Self {
        let name = match Profile::of(app, shop).await {
            Ok(profile) => profile.handle.clone(),
            Err(_) => "Shop".to_owned(),
        };
        Self {
            name,
            prefix: shop.prefix().to_owned(),
        }
    }

    fn or_page<T>(&self, result: Result<T, Error>) -> Result<T, PageError> {
        result.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: Error) -> PageError {
        PageError {
            failure: Box::new(Failure::new(self, &error)),
            error,
        }
    }
}

/// An error as a page. What the edge must see as it is (421) stays as it is.
#[derive(Debug)]
pub(crate) struct PageError {
    failure: Box<Failure>,
    error: Error,
}

impl PageError {
    /// With the way back to a product.
    fn about(mut self, product: &str) -> Self {
        self.failure.back_to_product(product);
        self
    }

    /// With a button that sends the same form again.
    fn again(mut self, again: Again) -> Self {
        self.failure.offer_again(again);
        self
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let Self { failure, error } = self;
        let for_the_edge = error.kind() == Kind::Misdirected;
        let plain = error.into_response();
        if for_the_edge {
            return plain;
        }
        match view::problem(&failure) {
            Ok(mut page) => {
                *page.status_mut() = plain.status();
                if let Some(seconds) = plain.headers().get(header::RETRY_AFTER) {
                    page.headers_mut()
                        .insert(header::RETRY_AFTER, seconds.clone());
                }
                page
            }
            Err(_) => plain,
        }
    }
}

fn see_other(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(location) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
