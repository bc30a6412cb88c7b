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

/// `text` as languages and libraries write it in ways that no table of whole encodings has: parts of it
/// escaped, in mixed case, in lines, in several alphabets at once.
pub fn odd_forms(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let each = |form: &dyn Fn(usize, u8) -> String| -> String {
        text.bytes()
            .enumerate()
            .map(|(at, b)| form(at, b))
            .collect()
    };
    let kept = |unescaped: &str| {
        each(&|_, b| {
            let c = char::from(b);
            if c.is_ascii_alphanumeric() || unescaped.contains(c) {
                c.into()
            } else {
                format!("%{b:02X}")
            }
        })
    };
    let plain = |b: u8| char::from(b).to_string();
    let whole = base64_whole(text);
    let lines = |width: usize, end: &str| {
        let lines: Vec<_> = whole
            .as_bytes()
            .chunks(width)
            .map(String::from_utf8_lossy)
            .collect();
        lines.join(end)
    };
    let mut forms = vec![
        // Python's quote and quote_plus; Go's PathEscape; JavaScript's encodeURI and encodeURIComponent.
        kept("/_.-~"),
        kept("_.-"),
        kept("-_.~$&+=:@"),
        kept(";/?:@&=+$,#-_.!~*'()"),
        kept("-_.!~*'()"),
        // One letter escaped, every other one, and in either case.
        each(&|at, b| {
            if at == 0 {
                format!("%{b:02x}")
            } else {
                plain(b)
            }
        }),
        each(&|at, b| {
            if at == 3 {
                format!("%{b:02X}")
            } else {
                plain(b)
            }
        }),
        each(&|at, b| {
            if at % 2 == 1 {
                format!("%{b:02x}")
            } else {
                plain(b)
            }
        }),
        each(&|at, b| {
            if at % 2 == 0 {
                format!("%{b:02x}")
            } else {
                format!("%{b:02X}")
            }
        }),
        each(&|at, b| {
            if at % 2 == 0 {
                format!("{b:02x}")
            } else {
                format!("{b:02X}")
            }
        }),
        each(&|at, b| {
            if at == 0 {
                format!("\\u00{b:02x}")
            } else {
                plain(b)
            }
        }),
        each(&|at, b| {
            if at % 2 == 1 {
                format!("\\u00{b:02x}")
            } else {
                plain(b)
            }
        }),
        each(&|at, b| {
            if at % 2 == 0 {
                format!("\\u00{b:02X}")
            } else {
                format!("\\u00{b:02x}")
            }
        }),
        each(&|at, b| {
            if at % 3 == 0 {
                format!("%{b:02x}")
            } else {
                format!("\\u00{b:02x}")
            }
        }),
    ];
    for end in ["\r\n", "\n", "\\n", "\n "] {
        forms.extend([4, 8, 13].map(|width| lines(width, end)));
    }
    // The forms that change nothing of this text are no odd ones.
    forms.retain(|form| form != text);
    forms.sort();
    forms.dedup();
    forms
}

fn base64_whole(text: &str) -> String {
    let mut whole = base64_within(&format!("{text}\0\0"), 0);
    whole.truncate((text.len() * 8).div_ceil(6));
    whole
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
    fn odd_forms_are_what_libraries_write() {
        let forms = odd_forms("s3/k+y");
        for form in [
            "s3/k%2By",
            "s3%2Fk+y",
            "%733/k+y",
            "\\u00733/k+y",
            "czMv\r\naytl",
        ] {
            let is_there = forms.iter().any(|own| own.starts_with(&form[..4]));
            assert!(is_there, "{form}: {forms:?}");
        }
        assert_eq!(base64_whole("foobar1"), "Zm9vYmFyMQ");
    }

    #[test]
    fn base64_of_what_lies_within() {
        // "foo", "xfoo" and "xyfoo" are Zm9v, eGZvbw== and eHlmb28=.
        assert_eq!(base64_within("foo", 0), "Zm9v");
        assert_eq!(base64_within("foo", 1), "Zvb");
        assert_eq!(base64_within("foo", 2), "mb2");
    }
}
