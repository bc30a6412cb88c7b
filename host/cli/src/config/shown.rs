//! Values of settings as commands show them: without passwords and keys that a person wrote into an address.

use toml::Value;

/// The mark in the place of a part that is not shown.
const MARK: &str = "…";
/// Parts of names of parameters whose values are not shown.
const SECRET_NAMES: [&str; 8] = [
    "key",
    "token",
    "secret",
    "pass",
    "pwd",
    "sig",
    "auth",
    "credential",
];

/// The value with the user, the password and secret parameters of each address in it masked.
pub fn shown(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_secrets(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(shown).collect()),
        Value::Table(table) => {
            let entries = table.into_iter();
            Value::Table(entries.map(|(key, value)| (key, shown(value))).collect())
        }
        other => other,
    }
}

/// Masks all addresses of a text. It need not be a valid address: a mistyped one may hold a password, too.
fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        let (address, others) = after.split_at(end);
        // Another address in it, such as in a parameter, is the next one.
        let inner = address.find("://").unwrap_or(address.len());
        let (address, nested) = address.split_at(inner);
        push_address(address, &mut shown);
        rest = &after[after.len() - others.len() - nested.len()..];
    }
    shown.push_str(rest);
    shown
}

/// An address behind its scheme.
fn push_address(address: &str, shown: &mut String) {
    let host = match user_end(address) {
        Some(end) => {
            shown.push_str(MARK);
            &address[end..]
        }
        None => address,
    };
    // Behind an address in a parameter, the next parameter of the outer one follows without a question mark.
    let (path, mut query) = host.split_at(host.find(['?', '&']).unwrap_or(host.len()));
    shown.push_str(path);
    while let Some(mark) = query.chars().next() {
        shown.push(mark);
        let rest = &query[mark.len_utf8()..];
        let (parameter, next) = rest.split_at(rest.find(['&', '?']).unwrap_or(rest.len()));
        query = next;
        match parameter.split_once('=') {
            Some((name, value)) if is_secret(name) => {
                let fragment = value.find('#').map_or("", |at| &value[at..]);
                shown.extend([name, "=", MARK, fragment]);
            }
            _ => shown.push_str(parameter),
        }
    }
}

/// The place of the `@` that ends the user and the password. A password with a slash ends the authority early, which then
/// has no number in the place of the port.
fn user_end(address: &str) -> Option<usize> {
    let end = address.find(['/', '?', '#', '\\']).unwrap_or(address.len());
    let authority = &address[..end];
    if let Some(at) = authority.rfind('@') {
        return Some(at);
    }
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let is_port = |port: &str| port.ends_with(']') || port.bytes().all(|it| it.is_ascii_digit());
    match port {
        Some(port) if !is_port(port) => address.rfind('@'),
        _ => None,
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_addresses_are_masked_and_nothing_else() {
        for (text, expected) in [
            ("http://ann:hunter2@h:1/v1", "http://…@h:1/v1"),
            ("https://hunter2@h/v1", "https://…@h/v1"),
            ("http://ann:hun@ter2@h/v1", "http://…@h/v1"),
            ("http://ann:hun/ter2@h/v1", "http://…@h/v1"),
            ("http://ann:hun?ter2@h/v1", "http://…@h/v1"),
            ("http://ann:hunter2@", "http://…@"),
            (
                "--db=postgres://u:hunter2@h/d --x",
                "--db=postgres://…@h/d --x",
            ),
            (
                "http://h/v1?api_key=hunter2&v=1#a",
                "http://h/v1?api_key=…&v=1#a",
            ),
            (
                "http://h/?AccessToken=hunter2#a",
                "http://h/?AccessToken=…#a",
            ),
            (
                "http://h/?to=https://u:hunter2@g/&sig=hunter2",
                "http://h/?to=https://…@g/&sig=…",
            ),
            (
                "https://h/login?next=/cb?token=hunter2&a=b",
                "https://h/login?next=/cb?token=…&a=b",
            ),
            ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
            ("http://[::1]/v1", "http://[::1]/v1"),
            ("https://h/a.json@sha256:00", "https://h/a.json@sha256:00"),
            ("https://h:8443/a@b", "https://h:8443/a@b"),
            ("ann@example.com", "ann@example.com"),
            ("th_key=1", "th_key=1"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), expected, "{text}");
        }
        let table: toml::Table = toml::from_str("a = [{ b = \"http://u:hunter2@h\" }]\nc = 1")
            .unwrap_or_else(|error| panic!("{error}"));
        let shown = shown(Value::Table(table)).to_string();
        assert!(
            !shown.contains("hunter2") && shown.contains("c = 1"),
            "{shown}"
        );
    }
}
