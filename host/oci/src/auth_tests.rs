use super::*;

fn credentials(variables: &[(&str, &str)]) -> Result<Option<Credentials>, FetchError> {
    Credentials::read(|name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

const WHOLE: [(&str, &str); 3] = [
    (HOST, "Registry.Example:443"),
    (USERNAME, "me"),
    (PASSWORD, "very-secret\n"),
];

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn a_password_is_for_one_host_and_its_named_token_host() {
    let own = credentials(&WHOLE).unwrap().unwrap();
    let expected = format!("Basic {}", BASE64_STANDARD.encode("me:very-secret"));
    assert_eq!(own.basic_for("registry.example").unwrap(), &expected);
    for other in [
        "evil.example",
        "registry.example:5000",
        "registry.example.evil",
        "x.registry.example",
    ] {
        assert!(own.basic_for(other).is_none(), "{other}");
        let realm = url("https://registry.example/token");
        assert!(own.basic_for_token(other, &realm).unwrap().is_none());
    }
    let token = |credentials: &Credentials, realm: &str| {
        let found = credentials.basic_for_token("registry.example", &url(realm));
        found
            .map(|header| header.is_some())
            .map_err(|e| e.to_string())
    };
    assert_eq!(token(&own, "https://registry.example/token"), Ok(true));
    let error = token(&own, "https://auth.example/token").unwrap_err();
    assert!(
        error.contains("TOOLHOLD_OCI_TOKEN_HOST=auth.example"),
        "{error}"
    );
    let named = [&WHOLE[..], &[(TOKEN_HOST, "auth.example")]].concat();
    let named = credentials(&named).unwrap().unwrap();
    assert_eq!(token(&named, "https://auth.example/token"), Ok(true));
    assert!(token(&named, "https://auth.example:8443/token").is_err());
}

#[test]
fn incomplete_credentials_name_what_is_missing() {
    assert!(credentials(&[]).unwrap().is_none());
    assert!(credentials(&WHOLE[..1]).unwrap().is_none());
    for (variables, word) in [
        (&WHOLE[1..], HOST),
        (&WHOLE[1..2], PASSWORD),
        (&WHOLE[2..], USERNAME),
        (
            &[(HOST, "https://registry.example"), WHOLE[1], WHOLE[2]],
            "without a scheme",
        ),
    ] {
        let error = credentials(variables).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn debug_output_never_holds_the_password() {
    let text = format!("{:?}", credentials(&WHOLE).unwrap());
    assert!(text.contains("registry.example"), "{text}");
    let encoded = BASE64_STANDARD.encode("me:very-secret");
    assert!(
        !text.contains("secret") && !text.contains(&encoded),
        "{text}"
    );
}

#[test]
fn challenges_are_read_in_every_spelling() {
    let read = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(value));
        }
        Challenge::read(&headers)
    };
    let bearer = Challenge::Bearer {
        realm: url("https://auth.example/token"),
        service: Some("a, b".into()),
    };
    assert_eq!(
        read(&[
            "Basic realm=\"x\", bearer Realm=\"https://auth.example/token\",service=\"a, b\",scope=\"s\""
        ]),
        Ok(bearer)
    );
    assert_eq!(read(&["Basic realm=\"x\""]), Ok(Challenge::Basic));
    assert_eq!(
        read(&["garbage \" ,,=", "Basic realm=x"]),
        Ok(Challenge::Basic)
    );
    for bad in [
        &[][..],
        &["Digest realm=\"x\""],
        &["Bearer service=\"x\""],
        &["Bearer realm=\"/token\""],
    ] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn tokens_are_asked_for_with_no_more_than_is_needed() {
    let url = token_url(&url("https://auth.example/token?a=b"), Some("x&y"), "r/s");
    assert_eq!(
        url.as_str(),
        "https://auth.example/token?a=b&service=x%26y&scope=repository%3Ar%2Fs%3Apull"
    );
}

#[test]
fn a_token_is_read_and_never_cited() {
    assert_eq!(bearer(br#"{"token":"t"}"#).unwrap(), "Bearer t");
    assert_eq!(bearer(br#"{"access_token":"t"}"#).unwrap(), "Bearer t");
    for bad in [
        &b"{}"[..],
        b"tok-secret",
        br#"{"token":"tok-secret\r\nX: y"}"#,
        br#"{"token":""}"#,
    ] {
        let reason = bearer(bad).unwrap_err();
        assert!(!reason.contains("secret"), "{reason}");
    }
}
