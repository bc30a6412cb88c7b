//! How servers write back what they were sent. Written apart from the sandbox's own list, so that
//! each checks the other.

/// `text` in every encoding, with something before it to shift base64 by one and two bytes.
pub fn all(text: &str) -> Vec<String> {
    let bytes = |before: &str| format!("{before}{text}.").into_bytes();
    let mut forms = vec![text.to_owned()];
    for before in ["", "x", "xy"] {
        let standard = base64(&bytes(before));
        forms.push(standard.trim_end_matches('=').to_owned());
        forms.push(standard.replace('+', "-").replace('/', "_"));
        forms.push(standard);
    }
    let each = |form: fn(u8) -> String| text.bytes().map(form).collect::<String>();
    forms.push(each(|b| format!("{b:02x}")));
    forms.push(each(|b| format!("{b:02X}")));
    forms.push(each(|b| format!("%{b:02x}")));
    forms.push(each(|b| format!("%{b:02X}")));
    forms.push(each(|b| format!("\\u00{b:02x}")));
    forms.push(each(|b| {
        if b.is_ascii_alphanumeric() {
            char::from(b).into()
        } else {
            format!("%{b:02X}")
        }
    }));
    let json = serde_json::Value::from(text).to_string();
    forms.push(json.replace('/', "\\/"));
    forms.push(json);
    forms
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let triple = |chunk: &[u8]| {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        (0..4)
            .map(move |digit| (digit, bits >> (18 - 6 * digit) & 63))
            .map({
                let given = chunk.len();
                move |(digit, value)| {
                    if digit > given {
                        '='
                    } else {
                        char::from(DIGITS[value as usize])
                    }
                }
            })
            .collect::<String>()
    };
    bytes.chunks(3).map(triple).collect()
}

#[test]
fn base64_is_base64() {
    for (text, encoded) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("fooba\u{7f}>", "Zm9vYmF/Pg=="),
    ] {
        assert_eq!(base64(text.as_bytes()), encoded);
    }
}
