//! The commerce application: the reference user of the library. It says what a shop sells and how an order lives; who
//! the tenant is, whether it may write here, what happens once and what is read from where are the library's business.
//!
//! One feature, one file, in reading order:

// From cart to paid order.
mod checkout;
// Pages of a list.
mod cursor;
// What the fields of a request may hold.
mod fields;
// How many there are.
mod inventory;
// The limits, with their config keys.
pub mod limits;
// What a merchant does with them.
mod merchant;
pub use limits::Limits;
// Amounts of money.
mod money;
// Orders as clients read them.
mod orders;
// The storefront.
mod pages;
// Systems that move money.
mod payment;
// Things for sale.
mod products;
// The shop's own name and currency.
mod profile;
// Its first transaction.
mod reserve;
// Its second transaction.
mod settle;
// The life of an order.
mod state;
// What a crash left between the two.
mod sweep;
// A step of it, in a transaction.
mod transition;

use crate::host::Job;
use crate::{Routes, Who};

/// Every route of the application.
pub fn routes(limits: Limits) -> Routes {
    let api = Routes::new()
        .get("/api/v1/products", Who::Anyone, products::list)
        .post("/api/v1/products", Who::Merchant, products::create)
        .get("/api/v1/products/{id}", Who::Anyone, products::show)
        .patch("/api/v1/products/{id}", Who::Merchant, products::update)
        .get(
            "/api/v1/products/{id}/inventory",
            Who::Merchant,
            inventory::show,
        )
        .put(
            "/api/v1/products/{id}/inventory",
            Who::Merchant,
            inventory::put,
        )
        .post("/api/v1/checkouts", Who::Anyone, checkout::create)
        .get("/api/v1/orders", Who::Merchant, orders::list)
        .get("/api/v1/orders/{id}", Who::Order, orders::show)
        .post(
            "/api/v1/orders/{id}/fulfil",
            Who::Merchant,
            merchant::fulfil,
        )
        .post(
            "/api/v1/orders/{id}/cancel",
            Who::Merchant,
            merchant::cancel,
        )
        .post(
            "/api/v1/orders/{id}/refund",
            Who::Merchant,
            merchant::refund,
        );
    api.get("/", Who::Anyone, pages::home)
        .get("/products/{id}", Who::Anyone, pages::product)
        .post("/buy", Who::Anyone, pages::buy)
        .get("/orders/{id}", Who::Order, pages::order)
        .get("/assets/style.css", Who::Anyone, pages::style)
        .otherwise(pages::missing)
        .with(limits)
}

/// Work that no request asks for.
pub fn jobs(limits: Limits) -> Vec<Job> {
    vec![sweep::job(limits)]
}
