//! The table of an application's routes: the router is built from it, and so is the list that tests walk, so that a
//! new endpoint cannot be forgotten by either.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use axum::{Extension, Router};

use crate::App;

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Anyone who reaches the shop.
    Anyone,
    /// A merchant token of the shop.
    Merchant,
    /// A merchant token of the shop, or the order's own access token.
    Order,
}

impl Who {
    /// The word in lists.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Merchant => "merchant",
            Self::Order => "order",
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// `GET`, `POST`, ...
    pub method: &'static str,
    /// As axum reads it: `/api/v1/products/{id}`.
    pub path: &'static str,
    /// Who may call it.
    pub who: Who,
}

/// The table, in the order of adding.
#[derive(Debug, Default)]
pub struct Routes {
    rows: Vec<Row>,
    router: Router<App>,
    otherwise: Option<MethodRouter<App>>,
}

macro_rules! verb {
    ($name:ident, $method:literal, $filter:ident) => {
        #[doc = concat!("Adds a `", $method, "` route.")]
        #[must_use]
        pub fn $name<H, T>(self, path: &'static str, who: Who, handler: H) -> Self
        where
            H: Handler<T, App>,
            T: 'static,
        {
            self.add($method, MethodFilter::$filter, path, who, handler)
        }
    };
}

impl Routes {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    verb!(get, "GET", GET);
    verb!(post, "POST", POST);
    verb!(put, "PUT", PUT);
    verb!(patch, "PATCH", PATCH);
    verb!(delete, "DELETE", DELETE);

    fn add<H, T>(
        mut self,
        method: &'static str,
        filter: MethodFilter,
        path: &'static str,
        who: Who,
        handler: H,
    ) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.rows.push(Row { method, path, who });
        self.router = self.router.route(path, on(filter, handler));
        self
    }

    /// Answers what no route has the path of; without one it is a problem, 404 `not-found`.
    #[must_use]
    pub fn otherwise<H, T>(mut self, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.otherwise = Some(any(handler));
        self
    }

    /// A value that the handlers of the routes above get as an extension of their request (an application's settings).
    #[must_use]
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.router = self.router.layer(Extension(value));
        self
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn into_parts(self) -> (Router<App>, Option<MethodRouter<App>>) {
        (self.router, self.otherwise)
    }
}
