//! What bodies are refused, and what the refusal names.

use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only their reading is looked at")]
struct Cart {
    email: String,
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only their reading is looked at")]
struct Line {
    quantity: i64,
}

fn fault(body: &str) -> (Option<String>, String) {
    let Error::Problem {
        kind,
        field,
        detail,
    } = json::<Cart>(body.as_bytes()).unwrap_err()
    else {
        panic!("{body}");
    };
    assert_eq!(kind, Kind::Invalid);
    (field, detail.unwrap())
}

#[test]
fn a_fault_names_its_field() {
    for (body, field) in [
        (r#"{"email": "a"}"#, Some("lines")),
        (r#"{"email": 7, "lines": []}"#, Some("email")),
        (r#"{"email": "a", "lines": "x"}"#, Some("lines")),
        (
            r#"{"email": "a", "lines": [{}]}"#,
            Some("lines[0].quantity"),
        ),
        (
            r#"{"email": "a", "lines": [{"quantity": 1}, {"quantity": 1.5}]}"#,
            Some("lines[1].quantity"),
        ),
        (
            r#"{"email": "a", "lines": [{"quantity": null}]}"#,
            Some("lines[0].quantity"),
        ),
        (
            r#"{"email": "a", "lines": [{"quantity": 1e99}]}"#,
            Some("lines[0].quantity"),
        ),
        (
            r#"{"email": "a", "lines": [{"quantity": 1, "price": 1}]}"#,
            Some("lines[0].price"),
        ),
        (
            r#"{"email": "a", "lines": [], "coupon": 1}"#,
            Some("coupon"),
        ),
        (
            r#"{"email": "a", "email": "b", "lines": []}"#,
            Some("email"),
        ),
        ("{", None),
        ("{\"email\": \"\\ud800\"}", None),
        (r#"{"email": "a", "lines": []} x"#, None),
    ] {
        let (named, detail) = fault(body);
        assert_eq!(named.as_deref(), field, "{body}: {detail}");
        assert!(
            detail.ends_with('.') && !detail.contains(" at line ") || field.is_none(),
            "{detail}"
        );
    }
}

#[test]
fn what_is_no_object_is_refused_at_once() {
    let deep = "[".repeat(50_000);
    let inner = format!("{{\"lines\": {deep}");
    for body in [
        "",
        "[]",
        "null",
        "\"x\"",
        "\0",
        r#"["a", []]"#,
        &deep,
        &inner,
    ] {
        assert!(json::<Cart>(body.as_bytes()).is_err());
    }
    assert!(json::<Cart>(b" {\"email\": \"a\", \"lines\": []} ").is_ok());
}

#[test]
fn a_fault_speaks_of_json() {
    let (_, detail) = fault(r#"{"email": "a", "lines": [{"quantity": "1"}]}"#);
    assert!(detail.ends_with("expected a whole number."), "{detail}");
    let (_, detail) = fault(r#"{"email": "a", "lines": ["x"]}"#);
    assert!(detail.ends_with("expected an object."), "{detail}");
    let (_, detail) = fault(r#"{"email": "a", "lines": {}}"#);
    assert!(detail.ends_with("expected an array."), "{detail}");
}

#[test]
fn a_long_value_is_not_repeated_whole() {
    let (_, detail) = fault(&format!(
        r#"{{"email": "a", "lines": "{}"}}"#,
        "x".repeat(10_000)
    ));
    assert!(detail.len() < 300, "{}", detail.len());
}

#[test]
fn a_forms_fault_names_its_field() {
    let text = "Failed to deserialize form body: quantity: invalid digit found in string";
    let Error::Problem { field, .. } = urlencoded_fault(text) else {
        panic!();
    };
    assert_eq!(field.as_deref(), Some("quantity"));
    let Error::Problem { field, .. } =
        urlencoded_fault("Failed to deserialize form body: missing field `key`")
    else {
        panic!();
    };
    assert_eq!(field.as_deref(), Some("key"));
}

#[test]
fn a_media_type_may_have_parameters() {
    let of = |text: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, text.parse().unwrap());
        media_type(&headers, "application/json").is_ok()
    };
    assert!(of("application/json") && of("Application/JSON; charset=utf-8"));
    assert!(!of("text/plain") && !of("application/jsonp") && !of(""));
    assert!(media_type(&HeaderMap::new(), "application/json").is_err());
}

#[tokio::test]
async fn a_body_has_a_limit_and_a_deadline() {
    let read_all = |body| read(body, 10, Duration::from_millis(20));
    assert_eq!(
        read_all(Body::from("0123456789")).await.unwrap(),
        "0123456789"
    );
    let kind = |error: Error| shared::error::Classify::kind(&error);
    assert_eq!(
        kind(read_all(Body::from("01234567890")).await.unwrap_err()),
        Kind::TooLarge
    );
    let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    assert_eq!(kind(read_all(never).await.unwrap_err()), Kind::SlowBody);
}
