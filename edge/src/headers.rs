//! What the edge takes from a request, and adds to it, before a pod sees it; and what it takes from an answer.

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use shared::telemetry::{TRACEPARENT, TraceParent};
use shared::wire::{self, folds_to, is_reserved};

/// The client's chain of addresses.
pub(crate) const FORWARDED_FOR: &str = "x-forwarded-for";
/// `http` or `https`, as the client spoke.
pub(crate) const FORWARDED_PROTO: &str = "x-forwarded-proto";
/// The host that the client asked for.
pub(crate) const FORWARDED_HOST: &str = "x-forwarded-host";
const TRACESTATE: &str = "tracestate";

/// Which part of a request a client controls, and a pod must not see.
pub(crate) fn to_strip(headers: &HeaderMap, trusted: bool) -> Vec<HeaderName> {
    headers
        .keys()
        .filter(|name| must_strip(name.as_str(), trusted))
        .cloned()
        .collect()
}

fn must_strip(name: &str, trusted: bool) -> bool {
    // Most names are none of these: one byte tells.
    match name.as_bytes().first() {
        Some(b'p') => is_reserved(name),
        Some(b'f') => name == header::FORWARDED.as_str(),
        Some(b't') => !trusted && (name == TRACEPARENT || name == TRACESTATE),
        Some(b'x') => {
            if trusted && [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST].contains(&name) {
                return false;
            }
            folds_to(name, "x-forwarded-") || folds_to(name, "x-real-ip")
        }
        Some(_) | None => false,
    }
}

/// The value of `x-forwarded-for`: the peer, behind what a trusted peer said.
pub(crate) fn forwarded_for(headers: &HeaderMap, peer: &HeaderValue, trusted: bool) -> HeaderValue {
    if !trusted || !headers.contains_key(FORWARDED_FOR) {
        return peer.clone();
    }
    let said = headers.get_all(FORWARDED_FOR).iter();
    let chain = said
        .chain([peer])
        .map(HeaderValue::as_bytes)
        .collect::<Vec<_>>()
        .join(&b", "[..]);
    HeaderValue::from_bytes(&chain).unwrap_or_else(|_| peer.clone())
}

/// How large a header is: fields, and bytes as HTTP/1.1 writes them.
pub(crate) fn size(headers: &HeaderMap) -> (usize, usize) {
    const COLON_SPACE_CRLF: usize = 4;
    headers
        .iter()
        .fold((0, 0), |(fields, bytes), (name, value)| {
            let field = name.as_str().len() + value.len() + COLON_SPACE_CRLF;
            (fields + 1, bytes + field)
        })
}

/// Whether `Content-Length`, where it is there, says one number. Pingora reads a list (`2, 2`) as its one value, and takes
/// numbers to the last of 64 bits; a pod's server refuses both, without a word for the client.
pub(crate) fn length_is_one_number(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_LENGTH).iter().all(|value| {
        let text = value.to_str().unwrap_or_default();
        text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<i64>().is_ok()
    })
}

/// Which fields of a pod's answer are not the client's: the fence, other `podhost-` names but the token, and what
/// belongs to the hop (RFC 9110 section 7.6.1; Pingora strips only requests, pingora#706).
pub(crate) fn to_strip_from_answer(headers: &HeaderMap, status: StatusCode) -> Vec<HeaderName> {
    let upgrade = status == StatusCode::SWITCHING_PROTOCOLS;
    let mut names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let text = name.as_str();
            match text.as_bytes().first() {
                Some(b'p') => text.starts_with("proxy-") || is_reserved(text),
                Some(b'k') => text == "keep-alive",
                Some(b't') => text == "te" || text == "trailer",
                Some(b'u') => text == "upgrade" && !upgrade,
                Some(_) | None => false,
            }
        })
        .cloned()
        .collect();
    if !upgrade {
        names.extend(nominated(headers));
    }
    names
}

/// The fields that `Connection` names. Framing is Pingora's, whatever it says.
fn nominated(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .filter(|name| {
            ![
                header::CONNECTION,
                header::TRANSFER_ENCODING,
                header::CONTENT_LENGTH,
            ]
            .contains(name)
                && name.as_str() != "close"
        })
}

/// The trace that a trusted peer began.
pub(crate) fn trace(headers: &HeaderMap, trusted: bool) -> Option<TraceParent> {
    let value = headers.get(TRACEPARENT).filter(|_| trusted)?;
    TraceParent::parse(value.to_str().ok()?)
}

/// `podhost-fence` of an answer.
pub(crate) fn fence(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(wire::FENCE).map(HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| {
                let name = HeaderName::from_bytes(k.as_bytes()).unwrap();
                (name, HeaderValue::from_str(v).unwrap())
            })
            .collect()
    }

    fn names(stripped: &[HeaderName]) -> Vec<&str> {
        let mut names: Vec<_> = stripped.iter().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn forged_headers_in_any_spelling_are_stripped_and_the_token_is_not() {
        let headers = map(&[
            ("Podhost-Shop", "1"),
            ("podhost_epoch", "1"),
            ("podhost.pod", "1"),
            ("PODHOST-SIGNATURE", "1"),
            ("podhost-token", "kept"),
            ("X_Forwarded_For", "1"),
            ("x-forwarded-for", "1"),
            ("x-forwarded-prefix", "1"),
            ("x-real-ip", "1"),
            ("forwarded", "for=1"),
            ("traceparent", "1"),
            ("x-forwarded", "kept"),
            ("accept", "kept"),
        ]);
        assert_eq!(
            names(&to_strip(&headers, false)),
            [
                "forwarded",
                "podhost-shop",
                "podhost-signature",
                "podhost.pod",
                "podhost_epoch",
                "traceparent",
                "x-forwarded-for",
                "x-forwarded-prefix",
                "x-real-ip",
                "x_forwarded_for",
            ]
        );
        assert_eq!(
            names(&to_strip(&headers, true)),
            [
                "forwarded",
                "podhost-shop",
                "podhost-signature",
                "podhost.pod",
                "podhost_epoch",
                "x-forwarded-prefix",
                "x-real-ip",
                "x_forwarded_for",
            ]
        );
    }

    #[test]
    fn a_length_is_one_number() {
        for (text, good) in [
            ("0", true),
            ("9223372036854775807", true),
            ("18446744073709551615", false),
            ("2, 2", false),
            ("+2", false),
            ("", false),
        ] {
            let headers = map(&[("content-length", text)]);
            assert_eq!(length_is_one_number(&headers), good, "{text:?}");
        }
        assert!(length_is_one_number(&map(&[])));
    }

    #[test]
    fn the_chain_is_appended_to_only_for_a_trusted_peer() {
        let peer = HeaderValue::from_static("192.0.2.9");
        let headers = map(&[
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
        ]);
        assert_eq!(forwarded_for(&headers, &peer, false), "192.0.2.9");
        assert_eq!(
            forwarded_for(&headers, &peer, true),
            "1.1.1.1, 2.2.2.2, 192.0.2.9"
        );
        assert_eq!(forwarded_for(&map(&[]), &peer, true), "192.0.2.9");
    }

    #[test]
    fn a_trace_goes_on_only_for_a_trusted_peer() {
        let theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let headers = map(&[("traceparent", theirs)]);
        assert_eq!(trace(&headers, true).unwrap().to_string(), theirs);
        assert_eq!(trace(&headers, false), None);
        assert_eq!(
            trace(&map(&[("traceparent", "00-0af7-b7ad-01")]), true),
            None
        );
    }

    #[test]
    fn an_answer_loses_what_belongs_to_the_hop() {
        let headers = map(&[
            ("podhost-fence", "stale"),
            ("podhost_debug", "1"),
            ("podhost-token", "kept"),
            ("keep-alive", "timeout=5"),
            ("proxy-authenticate", "1"),
            ("connection", "close, X-Foo"),
            ("x-foo", "1"),
            ("upgrade", "h2c"),
            ("trailer", "x"),
            ("content-type", "kept"),
        ]);
        assert_eq!(
            names(&to_strip_from_answer(&headers, StatusCode::OK)),
            [
                "keep-alive",
                "podhost-fence",
                "podhost_debug",
                "proxy-authenticate",
                "trailer",
                "upgrade",
                "x-foo",
            ]
        );
        let switched = map(&[("upgrade", "websocket"), ("connection", "upgrade")]);
        let status = StatusCode::SWITCHING_PROTOCOLS;
        assert!(to_strip_from_answer(&switched, status).is_empty());
    }

    #[test]
    fn the_size_counts_what_is_on_the_wire() {
        assert_eq!(size(&map(&[("a", "bc"), ("a", "")])), (2, 7 + 5));
    }
}
