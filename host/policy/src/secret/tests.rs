use super::*;

const VALUE: &str = "s3cret/token&more";

fn slot(origin: &str, place: SecretPlace) -> SecretSlot {
    SecretSlot {
        name: "api-key".into(),
        origin: origin.parse().unwrap(),
        place,
    }
}

fn header(name: &str, format: Option<&str>) -> SecretPlace {
    SecretPlace::Header {
        name: name.into(),
        format: format.map(str::to_owned),
    }
}

fn query(name: &str) -> SecretPlace {
    SecretPlace::Query { name: name.into() }
}

fn injected(
    place: SecretPlace,
    url: &str,
    headers: &[(&'static str, &str)],
) -> (bool, String, HeaderMap) {
    let secret = SecretGrant::new(slot("https://api.example.com", place), VALUE.into()).unwrap();
    let mut url = Url::parse(url).unwrap();
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    let done = secret.inject(&mut url, &mut map);
    (done, url.into(), map)
}

#[test]
fn it_goes_to_its_origin_alone() {
    for (url, expect) in [
        ("https://api.example.com/v1", true),
        ("https://API.example.com:443/", true),
        ("http://api.example.com/", false),
        ("https://api.example.com:8443/", false),
        ("https://example.com/", false),
        ("https://api.example.com.evil.net/", false),
    ] {
        let (done, _, headers) = injected(header("Authorization", None), url, &[]);
        assert_eq!(
            (done, headers.len()),
            (expect, usize::from(expect)),
            "{url}"
        );
    }
}

#[test]
fn it_replaces_what_the_guest_put_in_its_place() {
    let (_, _, headers) = injected(
        header("authorization", None),
        "https://api.example.com/",
        &[
            ("authorization", "Bearer mine"),
            ("authorization", "Basic mine"),
        ],
    );
    let values: Vec<_> = headers.get_all("authorization").iter().collect();
    assert_eq!(values, [&format!("Bearer {VALUE}")]);
    assert!(values[0].is_sensitive());

    let (_, url, _) = injected(
        query("key"),
        "https://api.example.com/?a=1&key=mine&b=%20x&%6Bey=mine&KEY=mine&c=1;key=mine&d",
        &[],
    );
    assert_eq!(
        url,
        "https://api.example.com/?a=1&b=%20x&d&key=s3cret%2Ftoken%26more"
    );
    let (_, url, _) = injected(query("key"), "https://api.example.com/?key=mine", &[]);
    assert_eq!(url, "https://api.example.com/?key=s3cret%2Ftoken%26more");
}

#[test]
fn a_header_has_a_format() {
    for (place, expect) in [
        (header("X-Api-Key", None), VALUE.to_owned()),
        (
            header("Authorization", Some("token {secret}")),
            format!("token {VALUE}"),
        ),
    ] {
        let (_, _, headers) = injected(place, "https://api.example.com/", &[]);
        assert_eq!(headers.values().next().unwrap(), &expect);
    }
}

#[test]
fn a_secret_that_cannot_be_kept_is_refused() {
    let https = "https://api.example.com";
    let auth = || header("Authorization", None);
    for (origin, place, value, reason) in [
        (https, auth(), "short12", "fewer than 8"),
        (https, auth(), "with a line break\n", "line break"),
        (https, auth(), "umlaut-ä-umlaut", "printable ASCII"),
        (
            https,
            header("Host", None),
            VALUE,
            "belongs to the connection",
        ),
        (
            https,
            header("Content-Length", None),
            VALUE,
            "belongs to the connection",
        ),
        (https, header("no header", None), VALUE, "name of a header"),
        (
            https,
            header("X-Key", Some("Bearer")),
            VALUE,
            "{secret} in it",
        ),
        (https, query(""), VALUE, "query parameter"),
        ("http://api.example.com", auth(), VALUE, "unencrypted"),
        ("http://10.0.0.1", auth(), VALUE, "unencrypted"),
        ("https://*.example.com", auth(), VALUE, "one host"),
    ] {
        let error = SecretGrant::new(slot(origin, place), value.into())
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason), "{origin}: {error}");
        assert!(!error.contains(VALUE), "{error}");
    }
    assert!(SecretGrant::new(slot("http://127.0.0.1:8080", auth()), VALUE.into()).is_ok());
}

#[test]
fn nothing_that_is_shown_has_the_value() {
    let secret = SecretGrant::new(slot("https://a.example", query("key")), VALUE.into()).unwrap();
    let shown = format!(
        "{secret} {secret:?} {}",
        serde_json::to_string(&secret).unwrap()
    );
    assert!(!shown.contains("s3cret"), "{shown}");
    assert_eq!(
        secret.to_string(),
        "the secret api-key goes into the query parameter key of requests to https://a.example"
    );
}

#[test]
fn a_manifest_has_no_word_for_what_is_done_with_a_response() {
    let asked = serde_json::json!({
        "name": "api-key", "origin": "https://a.example", "place": {"query": {"name": "key"}},
    });
    serde_json::from_value::<SecretSlot>(asked.clone()).unwrap();
    for reflect in ["redact", "deny"] {
        let mut asked = asked.clone();
        asked["reflect"] = reflect.into();
        serde_json::from_value::<SecretSlot>(asked).unwrap_err();
    }
    let secret = SecretGrant::new(slot("https://a.example", query("key")), VALUE.into()).unwrap();
    let refused = secret.clone().reflecting(Reflect::Deny);
    assert!(refused.is_refused() && !secret.is_refused());
    // Calls are given the new decision.
    assert!(secret == refused && !secret.is_same(&refused));
}
