//! Encodings of servers and languages in which a secret may leak.

use serde_json::Value;

/// `text` in the forms in which servers and languages write bytes. Independent of the sandbox's own
/// list, so that each checks the other.
pub fn forms(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let each = |form: fn(u8) -> String| text.bytes().map(form).collect::<String>();
    let json = Value::from(text).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let mut forms = vec![
        text.to_owned(),
        json.replace('/', "\\/"),
        json,
        each(|b| format!("{b:02x}")),
        each(|b| format!("{b:02X}")),
        each(|b| format!("%{b:02x}")),
        each(|b| format!("%{b:02X}")),
        each(|b| format!("\\u00{b:02x}")),
        each(|b| {
            if b.is_ascii_alphanumeric() {
                char::from(b).into()
            } else {
                format!("%{b:02X}")
            }
        }),
    ];
    for before in 0..3 {
        let standard = base64_within(text, before);
        forms.push(standard.replace('+', "-").replace('/', "_"));
        forms.push(standard);
    }
    forms
}

/// The common part of the base64 of all texts that hold `text` after `before` bytes (modulo 3): the
/// characters that consist of bits of `text` alone.
fn base64_within(text: &str, before: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = text
        .bytes()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    // Characters begin at multiples of six bits, counted from the start of the whole.
    let skip = (6 - before * 8 % 6) % 6;
    bits[skip..]
        .chunks_exact(6)
        .map(|six| {
            let digit = six
                .iter()
                .fold(0, |value, bit| value << 1 | usize::from(*bit));
            char::from(DIGITS[digit])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_what_lies_within() {
        // "foo", "xfoo" and "xyfoo" are Zm9v, eGZvbw== and eHlmb28=.
        assert_eq!(base64_within("foo", 0), "Zm9v");
        assert_eq!(base64_within("foo", 1), "Zvb");
        assert_eq!(base64_within("foo", 2), "mb2");
    }
}
