//! The OpenAPI document, made of the handlers themselves.

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{feed, operations, overview, pods, shops};

/// The document at `/v1/openapi.json`.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Podhost control server",
        description = "Shops, pods, placements and operations. Bearer tokens with the roles edge, pod and operator. \
            Errors are RFC 9457 problems; the field at fault is in `field`."
    ),
    paths(
        feed::table, feed::changes,
        shops::list, shops::create, shops::show, shops::set_state, shops::history, shops::placement,
        shops::add_host, shops::remove_host, shops::create_token, shops::tokens, shops::revoke_token,
        pods::list, pods::show, pods::put, pods::set_status, pods::set_primary, pods::topology,
        operations::list, operations::show, operations::create, operations::change,
        overview::status, overview::healthz, overview::metrics
    ),
    security(("token" = [])),
    modifiers(&Token)
)]
pub(super) struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("token", scheme);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every route of the router is in the document: it is compared with the router's own text.
    #[test]
    fn every_route_is_described() {
        let document = Document::openapi();
        let source = include_str!("router.rs");
        let mut routes = 0;
        for line in source
            .lines()
            .filter_map(|line| line.trim().strip_prefix(".route(\""))
        {
            let (path, _) = line.split_once('"').unwrap();
            if path == "/" || path == "/v1/openapi.json" {
                continue;
            }
            routes += 1;
            let same = |known: &&String| *known == path || known.replace("{id}", "{ref}") == path;
            assert!(
                document.paths.paths.keys().any(|known| same(&known)),
                "{path}"
            );
        }
        assert!(routes > 15);
    }
}
