//! Who asks: bearer tokens with roles, compared by hash in constant time.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use secrecy::ExposeSecret as _;
use sha2::{Digest, Sha256};
use shared::PodId;
use shared::config::{SecretError, SecretRef};
use shared::error::Kind;
use subtle::ConstantTimeEq as _;

use super::app::App;
use super::config::TokenFile;
use super::failure::Failure;
use crate::catalog::{ApiToken, Role};

/// Shorter tokens could be guessed; ours have 43 characters.
pub(super) const TOKEN_LEN_MIN: usize = 20;

/// Who asks. In the extensions of each request that got through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    /// The actor in the audit.
    pub(super) name: String,
    pub(super) role: Role,
    /// The one pod that it may ask for; none means any.
    pub(super) pod: Option<PodId>,
}

/// Reads the files of tokens. All that cannot be read are told.
pub(super) fn read_tokens(files: &[TokenFile]) -> Result<Vec<ApiToken>, Vec<String>> {
    let mut tokens = Vec::with_capacity(files.len());
    let mut faults = Vec::new();
    for TokenFile {
        role,
        name,
        pod,
        file,
    } in files
    {
        match read_token(file) {
            Ok(hash) => tokens.push(ApiToken {
                name: name.clone(),
                role: *role,
                pod: *pod,
                hash,
            }),
            Err(text) => faults.push(format!("token {name:?}: {text}")),
        }
    }
    if faults.is_empty() {
        Ok(tokens)
    } else {
        Err(faults)
    }
}

fn read_token(file: &std::path::Path) -> Result<[u8; 32], String> {
    let text = SecretRef::File(file.to_owned())
        .read()
        .map_err(|e: SecretError| shared::error::chain(&e))?;
    let text = text.expose_secret().trim();
    if text.len() < TOKEN_LEN_MIN {
        return Err(format!(
            "the token in {} is shorter than {TOKEN_LEN_MIN}",
            file.display()
        ));
    }
    Ok(Sha256::digest(text.as_bytes()).into())
}

/// The layers of the three roles.
pub(super) async fn edge(app: State<Arc<App>>, request: Request, next: Next) -> Response {
    check(&app, request, next, Role::Edge).await
}

/// As [`edge`].
pub(super) async fn pod(app: State<Arc<App>>, request: Request, next: Next) -> Response {
    check(&app, request, next, Role::Pod).await
}

/// As [`edge`].
pub(super) async fn operator(app: State<Arc<App>>, request: Request, next: Next) -> Response {
    check(&app, request, next, Role::Operator).await
}

async fn check(app: &App, mut request: Request, next: Next, least: Role) -> Response {
    let tokens = Arc::clone(&app.tokens.read());
    match admit(&tokens, request.headers(), least) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
}

/// Roles are steps: an operator may do what a pod may, a pod what an edge may.
const fn rank(role: Role) -> u8 {
    match role {
        Role::Edge => 0,
        Role::Pod => 1,
        Role::Operator => 2,
    }
}

fn admit(tokens: &[ApiToken], headers: &HeaderMap, least: Role) -> Result<Caller, Failure> {
    let unauthorized = |text: &str| Failure::new(Kind::Unauthorized, text);
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, more) = (values.next(), values.next());
    let value = value.ok_or_else(|| unauthorized("send `authorization: Bearer <token>`"))?;
    let text = match (value.to_str(), more) {
        (Ok(text), None) => text,
        (Ok(_), Some(_)) | (Err(_), _) => {
            return Err(unauthorized("`authorization` is not one `Bearer <token>`"));
        }
    };
    let token =
        bearer(text).ok_or_else(|| unauthorized("`authorization` is not one `Bearer <token>`"))?;
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    // All are compared, so that the time says nothing of which was near.
    let mut found = None;
    for token in tokens {
        if bool::from(token.hash.ct_eq(&hash)) {
            found = Some(token);
        }
    }
    let Some(ApiToken {
        name,
        role,
        pod,
        hash: _,
    }) = found
    else {
        return Err(unauthorized(
            "this token is not known; look at `tokens` of control.toml",
        ));
    };
    if rank(*role) < rank(least) {
        let text = format!(
            "the token {name} has the role {}, this needs {}",
            role.as_str(),
            least.as_str()
        );
        return Err(Failure::new(Kind::Forbidden, text));
    }
    Ok(Caller {
        name: name.clone(),
        role: *role,
        pod: *pod,
    })
}

/// The token of `Bearer <token>`, or the password of `Basic`, which is what browsers can send.
fn bearer(value: &str) -> Option<String> {
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return (!rest.is_empty()).then(|| rest.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(BASE64.decode(rest).ok()?).ok()?;
    pair.split_once(':')
        .map(|(_, password)| password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, role: Role, text: &str) -> ApiToken {
        let pod = (role == Role::Pod).then(|| PodId::new(1).unwrap());
        ApiToken {
            name: name.into(),
            role,
            pod,
            hash: Sha256::digest(text).into(),
        }
    }

    fn ask(value: &str, least: Role) -> Result<Caller, Kind> {
        let tokens = [
            token("operator", Role::Operator, "the operator's token"),
            token("pod-1", Role::Pod, "the token of a pod"),
            token("edge", Role::Edge, "the token of the edges"),
        ];
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        admit(&tokens, &headers, least).map_err(|failure| failure.kind)
    }

    #[test]
    fn roles_are_steps() {
        for (text, rank) in [
            ("the operator's token", 2),
            ("the token of a pod", 1),
            ("the token of the edges", 0),
        ] {
            for (least, needed) in [(Role::Edge, 0), (Role::Pod, 1), (Role::Operator, 2)] {
                let answer = ask(&format!("Bearer {text}"), least);
                assert_eq!(answer.is_ok(), rank >= needed, "{text} for {least:?}");
                if let Err(kind) = answer {
                    assert_eq!(kind, Kind::Forbidden);
                }
            }
        }
        let caller = ask("bearer the token of a pod", Role::Pod).unwrap();
        assert_eq!(
            (caller.name.as_str(), caller.pod.unwrap().get()),
            ("pod-1", 1)
        );
    }

    #[test]
    fn what_is_no_known_token_is_refused() {
        for bad in [
            "Bearer",
            "Bearer ",
            "Bearer x",
            "Digest x",
            "the operator's token",
            "Basic eA==",
        ] {
            assert_eq!(
                ask(bad, Role::Edge).unwrap_err(),
                Kind::Unauthorized,
                "{bad}"
            );
        }
        let basic = format!("Basic {}", BASE64.encode("me:the operator's token"));
        assert_eq!(ask(&basic, Role::Operator).unwrap().name, "operator");
    }
}
