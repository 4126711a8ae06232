//! The storefront, as a person without scripts meets it.

use anyhow::{Context, Result};
use tests::suite::Test;
use tests::{Call, Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares: a_person_buys_without_scripts]
}

/// The storefront: a list, a product with a form, and an order page at the end of posting that form.
async fn a_person_buys_without_scripts(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug <&> 'Cup'", "3.00", 4).await?;
    let page = |path: String| shop.send(Call::get(path).browser());
    let front = page("/".to_owned()).await?.wants(200)?;
    assert!(
        front
            .header("content-type")
            .unwrap_or_default()
            .starts_with("text/html")
    );
    assert!(
        front.text().contains("Mug &#60;&#38;&#62;") || front.text().contains("Mug &lt;&amp;&gt;"),
        "{}",
        front.text()
    );
    let product = page(format!("/products/{}", mug.id))
        .await?
        .wants(200)?
        .text();
    let form = Form::first(&product).context("a product page has a form")?;
    let mut fields = form.fields.clone();
    for (name, value) in &mut fields {
        match name.as_str() {
            "email" => *value = "buyer@example.com".into(),
            "quantity" => *value = "2".into(),
            _ => {}
        }
    }
    let body = url_encoded(&fields);
    let post = Call::post(form.action.as_str()).browser();
    let post = post.body("application/x-www-form-urlencoded", body);
    let sent = shop.send(post.clone()).await?.wants(303)?;
    let order_page = sent.header("location").context("a location")?.to_owned();
    let order = page(order_page.clone()).await?.wants(200)?.text();
    assert!(
        order.contains("6.00") && order.to_lowercase().contains("paid"),
        "{order}"
    );
    // The back button and a second click: the same order.
    let again = shop.send(post).await?.wants(303)?;
    assert_eq!(again.header("location"), Some(order_page.as_str()));
    assert_eq!(
        (shop.order_ids().await?.len(), shop.available(&mug).await?),
        (1, 2)
    );
    Ok(())
}

/// The first form that posts in a page.
struct Form {
    action: String,
    fields: Vec<(String, String)>,
}

impl Form {
    fn first(page: &str) -> Option<Self> {
        let start = page.find("<form")?;
        let form = page.get(start..)?;
        let form = form.get(..form.find("</form>")?)?;
        let action = attribute(form.get(..form.find('>')?)?, "action")?;
        let inputs = form
            .split("<input")
            .chain(form.split("<select"))
            .chain(form.split("<button"));
        let fields = inputs.filter_map(|tag| {
            let tag = tag.get(..tag.find('>')?)?;
            // As a browser does: of radio buttons only the checked one is sent.
            let radio = attribute(tag, "type").is_some_and(|kind| kind == "radio");
            if radio && !tag.contains(" checked") {
                return None;
            }
            Some((
                attribute(tag, "name")?,
                attribute(tag, "value").unwrap_or_default(),
            ))
        });
        Some(Self {
            action,
            fields: fields.collect(),
        })
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let rest = tag.split_once(&format!(" {name}=\""))?.1;
    Some(rest.split_once('"')?.0.to_owned())
}

fn url_encoded(fields: &[(String, String)]) -> String {
    let encoded = |text: &str| {
        text.bytes()
            .map(|b| match b {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                    char::from(b).to_string()
                }
                other => format!("%{other:02X}"),
            })
            .collect::<String>()
    };
    let pairs: Vec<String> = fields
        .iter()
        .map(|(n, v)| format!("{}={}", encoded(n), encoded(v)))
        .collect();
    pairs.join("&")
}
