//! Shops: made, listed, looked at, frozen; their hosts, history and merchant tokens.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use shared::error::Kind;
use time::OffsetDateTime;
use uuid::Uuid;

use super::app::App;
use super::auth::Caller;
use super::body::{Json, Params};
use super::check;
use super::failure::{Answer, Failure};
use super::{creation, state_order};
use crate::api::{
    History, PlacementAt, PlacementQuery, SHOP_PAGE_MAX, Shop, ShopNew, ShopPage, ShopPageQuery,
    StateChange, TokenList, TokenMade, TokenNew,
};
use crate::catalog::ShopRef;

type Body<T> = axum::Json<T>;
/// The header that makes a request to make a shop repeatable.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// A page when nobody says how long.
const PAGE: u32 = 100;

/// Shops by id, page by page.
#[utoipa::path(get, path = "/v1/shops", tag = "shops", params(ShopPageQuery),
    responses((status = 200, body = ShopPage), (status = 400, description = "A field is wrong.")))]
pub(super) async fn list(
    app: State<Arc<App>>,
    Params(query): Params<ShopPageQuery>,
) -> Answer<Body<ShopPage>> {
    let ShopPageQuery { after, limit } = query;
    let limit = limit.unwrap_or(PAGE);
    if !(1..=SHOP_PAGE_MAX).contains(&limit) {
        return Err(Failure::field(
            "limit",
            format!("not within 1 and {SHOP_PAGE_MAX}"),
        ));
    }
    Ok(axum::Json(app.catalog.shops(after, limit).await?))
}

/// Makes a shop. Killed anywhere, it is finished or undone by the next start, or by the same request again.
#[utoipa::path(post, path = "/v1/shops", tag = "shops", request_body = ShopNew,
    params(("idempotency-key" = Option<String>, Header, description = "A UUID; the same request under it again gets the same shop.")),
    responses((status = 201, body = Shop), (status = 400, description = "A field is wrong."),
        (status = 409, description = "A name is taken, or no pod has room."),
        (status = 503, description = "The pod or the catalog cannot do it just now; nothing was made.")))]
pub(super) async fn create(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(new): Json<ShopNew>,
) -> Answer<(StatusCode, Body<Shop>)> {
    let key = idempotency_key(&headers)?;
    let new = check::shop(new, app.catalog.domains())?;
    let (catalog, store) = (&app.catalog, app.store.as_ref());
    let shop = creation::create(catalog, store, &app.shops, &caller.name, &new, key).await?;
    Ok((StatusCode::CREATED, axum::Json(shop)))
}

fn idempotency_key(headers: &HeaderMap) -> Answer<Option<Uuid>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(|text| text.parse().ok());
    match parsed {
        Some(key) => Ok(Some(key)),
        None => Err(Failure::field(IDEMPOTENCY_KEY, "it is not a UUID")),
    }
}

/// A shop by id, handle or host.
#[utoipa::path(get, path = "/v1/shops/{ref}", tag = "shops", params(("ref" = String, Path)),
    responses((status = 200, body = Shop), (status = 404, description = "No such shop.")))]
pub(super) async fn show(
    app: State<Arc<App>>,
    Path(reference): Path<String>,
) -> Answer<Body<Shop>> {
    let reference = ShopRef::parse(&reference, app.catalog.domains())?;
    Ok(axum::Json(app.catalog.shop(&reference).await?))
}

/// Freezes a shop, takes it offline, or lets it serve.
#[utoipa::path(put, path = "/v1/shops/{ref}/state", tag = "shops", params(("ref" = String, Path)),
    request_body = StateChange, responses((status = 200, body = Shop), (status = 404, description = "No such shop."),
        (status = 409, description = "The shop is changing hands, or a newer order replaced this one."),
        (status = 503, description = "The pod cannot be reached; the order goes on by itself.")))]
pub(super) async fn set_state(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
    Json(change): Json<StateChange>,
) -> Answer<Body<Shop>> {
    let StateChange { state, reason } = change;
    let reason = check::line("reason", reason, check::TEXT_LEN_MAX)?;
    let reference = ShopRef::parse(&reference, app.catalog.domains())?;
    let (catalog, store) = (&app.catalog, app.store.as_ref());
    let reason = reason.as_deref();
    let shop = state_order::order(
        catalog,
        store,
        &app.shops,
        &caller.name,
        &reference,
        state,
        reason,
    )
    .await?;
    Ok(axum::Json(shop))
}

/// What happened to a shop's placement.
#[utoipa::path(get, path = "/v1/shops/{ref}/history", tag = "shops", params(("ref" = String, Path)),
    responses((status = 200, body = History), (status = 404, description = "No such shop.")))]
pub(super) async fn history(
    app: State<Arc<App>>,
    Path(reference): Path<String>,
) -> Answer<Body<History>> {
    let reference = ShopRef::parse(&reference, app.catalog.domains())?;
    Ok(axum::Json(History {
        events: app.catalog.history(&reference).await?,
    }))
}

/// Who owned a shop at an instant.
#[utoipa::path(get, path = "/v1/shops/{ref}/placement", tag = "shops", params(("ref" = String, Path), PlacementQuery),
    responses((status = 200, body = PlacementAt), (status = 404, description = "No such shop, or not then.")))]
pub(super) async fn placement(
    app: State<Arc<App>>,
    Path(reference): Path<String>,
    Params(query): Params<PlacementQuery>,
) -> Answer<Body<PlacementAt>> {
    let reference = ShopRef::parse(&reference, app.catalog.domains())?;
    let at = query.at.unwrap_or_else(OffsetDateTime::now_utc);
    Ok(axum::Json(app.catalog.placement_at(&reference, at).await?))
}

/// Gives a shop a domain.
#[utoipa::path(put, path = "/v1/shops/{ref}/hosts/{host}", tag = "shops",
    params(("ref" = String, Path), ("host" = String, Path)),
    responses((status = 200, body = Shop), (status = 400, description = "Not a domain that a shop can have."),
        (status = 404, description = "No such shop."), (status = 409, description = "It is another shop's.")))]
pub(super) async fn add_host(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path((reference, host)): Path<(String, String)>,
) -> Answer<Body<Shop>> {
    let reference = ShopRef::parse(&reference, app.catalog.domains())?;
    let host = check::host("host", &host, app.catalog.domains())?;
    Ok(axum::Json(
        app.catalog
            .add_host(&caller.name, &reference, &host)
            .await?,
    ))
}

/// Takes a domain from a shop.
#[utoipa::path(delete, path = "/v1/shops/{ref}/hosts/{host}", tag = "shops",
    params(("ref" = String, Path), ("host" = String, Path)),
    responses((status = 200, body = Shop), (status = 404, description = "No such shop, or not its host.")))]
pub(super) async fn remove_host(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path((reference, host)): Path<(String, String)>,
) -> Answer<Body<Shop>> {
    let reference = ShopRef::parse(&reference, app.catalog.domains())?;
    let host = check::host("host", &host, app.catalog.domains())?;
    Ok(axum::Json(
        app.catalog
            .remove_host(&caller.name, &reference, &host)
            .await?,
    ))
}

/// Makes a merchant token; its text is told this once.
#[utoipa::path(post, path = "/v1/shops/{ref}/tokens", tag = "tokens", params(("ref" = String, Path)),
    request_body = TokenNew, responses((status = 201, body = TokenMade), (status = 404, description = "No such shop."),
        (status = 503, description = "The pod cannot be reached.")))]
pub(super) async fn create_token(
    app: State<Arc<App>>,
    Path(reference): Path<String>,
    Json(new): Json<TokenNew>,
) -> Answer<(StatusCode, Body<TokenMade>)> {
    let label = check::line("label", new.label, check::LABEL_LEN_MAX)?.unwrap_or_default();
    let shop = shop_of(&app, &reference).await?;
    let mut session = app.store.session(shop.pod.id).await?;
    let made = session.create_token(shop.id, shop.epoch, &label).await?;
    session.close().await;
    Ok((StatusCode::CREATED, axum::Json(made)))
}

/// A shop's merchant tokens, without their texts.
#[utoipa::path(get, path = "/v1/shops/{ref}/tokens", tag = "tokens", params(("ref" = String, Path)),
    responses((status = 200, body = TokenList), (status = 404, description = "No such shop."),
        (status = 503, description = "The pod cannot be reached.")))]
pub(super) async fn tokens(
    app: State<Arc<App>>,
    Path(reference): Path<String>,
) -> Answer<Body<TokenList>> {
    let shop = shop_of(&app, &reference).await?;
    let mut session = app.store.session(shop.pod.id).await?;
    let tokens = session.tokens(shop.id).await?;
    session.close().await;
    Ok(axum::Json(TokenList { tokens }))
}

/// Makes a merchant token worthless.
#[utoipa::path(delete, path = "/v1/shops/{ref}/tokens/{id}", tag = "tokens",
    params(("ref" = String, Path), ("id" = String, Path)),
    responses((status = 204), (status = 404, description = "No such shop, or not its token."),
        (status = 503, description = "The pod cannot be reached.")))]
pub(super) async fn revoke_token(
    app: State<Arc<App>>,
    Path((reference, id)): Path<(String, String)>,
) -> Answer<StatusCode> {
    let shop = shop_of(&app, &reference).await?;
    let mut session = app.store.session(shop.pod.id).await?;
    let found = session.revoke_token(shop.id, shop.epoch, &id).await?;
    session.close().await;
    if found {
        Ok(StatusCode::NO_CONTENT)
    } else {
        let text = format!("shop {} has no token {id:?}", shop.handle);
        Err(Failure::new(Kind::NotFound, text))
    }
}

async fn shop_of(app: &App, reference: &str) -> Answer<Shop> {
    let reference = ShopRef::parse(reference, app.catalog.domains())?;
    Ok(app.catalog.shop(&reference).await?)
}
