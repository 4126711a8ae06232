//! The OpenAPI document, made of the handlers themselves.

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{clear, feed, moves, operations, overview, pods, shops};

/// The document at `/v1/openapi.json`.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Podhost control server",
        description = "Shops, pods, placements, moves and operations. Bearer tokens with the roles edge, pod and operator. \
            Errors are RFC 9457 problems; the field at fault is in `field`."
    ),
    paths(
        feed::table, feed::changes,
        shops::list, shops::create, shops::show, shops::set_state, shops::history, shops::placement,
        clear::clear, shops::add_host, shops::remove_host, shops::create_token, shops::tokens, shops::revoke_token,
        pods::list, pods::show, pods::put, pods::set_status, pods::set_primary, pods::topology,
        moves::list, moves::create, moves::try_out, moves::show, moves::pause, moves::resume, moves::abort, moves::finish, moves::events,
        moves::park, moves::pin, moves::unpin,
        operations::list, operations::show, operations::create, operations::change,
        overview::status, overview::healthz, overview::metrics
    ),
    security(("token" = [])),
    modifiers(&Token, &Names)
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

/// Handlers of different files may share a name (`list`); what they do may not: `shops_list`, `pods_list`.
struct Names;

impl Modify for Names {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let all = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.patch,
                &mut item.delete,
            ];
            for operation in all.into_iter().flatten() {
                let tag = operation.tags.iter().flatten().next();
                if let (Some(tag), Some(id)) = (tag, &operation.operation_id) {
                    operation.operation_id = Some(format!("{tag}_{id}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_has_a_name_of_its_own_and_queries_stand_as_queries() {
        let json = serde_json::to_value(Document::openapi()).unwrap();
        let mut names = BTreeSet::new();
        for (path, item) in json["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{name}");
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let named = format!("{{{}}}", parameter["name"].as_str().unwrap());
                    assert_eq!(
                        path.contains(&named),
                        parameter["in"] == "path",
                        "{path} {named}"
                    );
                }
            }
        }
        assert!(names.len() > 20, "{names:?}");
    }

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
