use super::*;
use proptest::prelude::*;

const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn parse(text: &str) -> Result<Reference, ReferenceError> {
    text.parse()
}

#[test]
fn the_parts_are_read() {
    let reference = parse(&format!("oci://[::1]:5000/a/b-c__d.e:v1.0@sha256:{HEX}")).unwrap();
    assert_eq!(reference.authority(), "[::1]:5000");
    assert_eq!(reference.repository(), "a/b-c__d.e");
    assert_eq!(reference.tag(), "v1.0");
    assert_eq!(reference.digest().unwrap().hex(), HEX);
    assert_eq!(reference.module_name(), "b_c__d_e");
    let short = parse("oci://Registry.Example/clock").unwrap();
    assert_eq!(short.to_string(), "oci://registry.example/clock");
    assert_eq!((short.tag(), short.digest()), ("latest", None));
}

#[test]
fn invalid_oci_reference_says_why() {
    for (text, word) in [
        ("registry.example/a:1", "oci://"),
        ("https://registry.example/a", "oci://"),
        ("oci://registry.example", "repository"),
        ("oci://registry.example/", "repository"),
        ("oci:///a", "host"),
        ("oci://me:secret@registry.example/a", "port"),
        ("oci://me@registry.example/a", "host"),
        ("oci://registry.example:99999/a", "port"),
        ("oci://registry.example:+80/a", "port"),
        ("oci://registry.example:/a", "port"),
        ("oci://0x7f.1/a", "host"),
        ("oci://127.1/a", "host"),
        ("oci://2130706433/a", "host"),
        ("oci://[::1/a", "port"),
        ("oci://[::1]x/a", "host"),
        ("oci://[::g]/a", "host"),
        ("oci://a..b/a", "host"),
        ("oci://registry.example/A", "repository"),
        ("oci://registry.example/../../etc", "repository"),
        ("oci://registry.example/a//b", "repository"),
        ("oci://registry.example/a/", "repository"),
        ("oci://registry.example/a___b", "repository"),
        ("oci://registry.example/a?x=1", "repository"),
        ("oci://registry.example/a%2e", "repository"),
        ("oci://registry.example/a:", "tag"),
        ("oci://registry.example/a:../x", "tag"),
        ("oci://registry.example/a:b:c", "tag"),
        ("oci://registry.example/a@sha256:abc", "digest"),
        ("oci://registry.example/a@md5:abc", "digest"),
        (" oci://registry.example/a", "oci://"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn only_this_machine_is_loopback() {
    for (host, expected) in [
        ("localhost", true),
        ("127.0.0.1", true),
        ("127.8.9.10", true),
        ("[::1]", true),
        ("localhost.example", false),
        ("127.0.0.1.example", false),
        ("[::2]", false),
        ("10.0.0.1", false),
    ] {
        assert_eq!(is_loopback(host), expected, "{host}");
    }
}

/// Every part in every form that the grammar has.
fn references() -> impl Strategy<Value = Reference> {
    (
        "([a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?\\.){0,2}[a-z]{1,8}|127\\.0\\.0\\.[1-9]|\\[::1\\]",
        proptest::option::of(any::<u16>()),
        "[a-z0-9]{1,5}((\\.|_|__|-{1,3})[a-z0-9]{1,5}){0,2}(/[a-z0-9]{1,5}){0,3}",
        proptest::option::of("[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"),
        proptest::option::of(any::<[u8; 4]>()),
    )
        .prop_map(|(host, port, repository, tag, content)| Reference {
            host,
            port,
            repository,
            tag,
            digest: content.map(|content| Digest::of(&content)),
        })
}

/// Any text, and text that gets ever further into the parser: after the scheme, of the grammar's own
/// characters, and a reference with one place spoilt.
fn texts() -> impl Strategy<Value = String> {
    let spoilt = (
        references(),
        any::<proptest::sample::Index>(),
        0..4_usize,
        "\\PC{0,4}|[a-fA-F0-9:.@/_%?#\\[\\]\\\\ -]{0,3}",
    )
        .prop_map(|(reference, start, cut, put)| {
            let mut text = reference.to_string();
            let start = start.index(text.len());
            let end = text.len().min(start + cut);
            text.replace_range(start..end, &put);
            text
        });
    prop_oneof![
        any::<String>(),
        any::<String>().prop_map(|rest| format!("oci://{rest}")),
        "oci://[a-zA-Z0-9:.@/_%?#\\[\\]\\\\ -]{1,40}",
        spoilt,
    ]
}

proptest! {
    #[test]
    fn references_round_trip(reference in references()) {
        let text = reference.to_string();
        prop_assert_eq!(parse(&text), Ok(reference), "{}", text);
    }

    #[test]
    fn no_text_panics_and_what_parses_round_trips_within_its_host(text in texts()) {
        let Ok(reference) = parse(&text) else {
            return Ok(());
        };
        prop_assert_eq!(parse(&reference.to_string()), Ok(reference.clone()));
        let url = reqwest::Url::parse(&format!(
            "https://{}/v2/{}/manifests/{}",
            reference.authority(), reference.repository(), reference.tag(),
        )).unwrap();
        prop_assert_eq!(url.host_str().map(address), Some(address(&reference.host)));
        prop_assert!(url.username().is_empty() && url.password().is_none());
        prop_assert!(url.path().starts_with("/v2/"), "{}", url);
        prop_assert!(url.query().is_none() && url.fragment().is_none());
    }
}

/// A host, in one spelling where IPv6 has several.
fn address(host: &str) -> String {
    let v6 = host.trim_matches(['[', ']']).parse::<Ipv6Addr>();
    v6.map_or_else(|_| host.to_owned(), |address| address.to_string())
}
