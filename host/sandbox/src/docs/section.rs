//! The custom section `toolhold:docs`: [`Docs`] as JSON, appended to a component by `toolhold build`.
//!
//! ```json
//! {"version": 1,
//!  "exports": {"demo:shop/orders@0.1.0": {"place": {
//!      "description": "Places an order.",
//!      "annotations": {"destructive": true},
//!      "parameters": {"order": {"type": "demo:shop/orders@0.1.0#order"}}}}},
//!  "types": {"demo:shop/orders@0.1.0#order": {
//!      "description": "What somebody wants.",
//!      "parts": {"lines": {"description": "At least one.", "type": ["demo:shop/orders@0.1.0#line"]}}}}}
//! ```
//!
//! Keys that a reader does not know are for later readers. A component stays valid with it, and means
//! the same to every other host.

use super::Docs;
use serde::{Deserialize, Serialize};

/// The section's name.
pub const NAME: &str = "toolhold:docs";
/// More than this is not read: the docs of 256 functions at a full page each.
pub const MAX_BYTES: usize = 1 << 20;

const VERSION: u32 = 1;
/// Magic, version and layer: every component begins with these eight bytes.
const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
const CUSTOM: u8 = 0;

#[derive(Serialize, Deserialize)]
struct Envelope<D> {
    version: u32,
    #[serde(flatten)]
    docs: D,
}

/// What every version has: read first, so that another version is named and not misunderstood.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Reads the content of the section.
///
/// # Errors
/// Why it is ignored: too large, not JSON, of another version, or of another structure.
pub fn parse(content: &[u8]) -> Result<Docs, String> {
    if content.len() > MAX_BYTES {
        return Err(format!(
            "it has {} bytes, more than the {MAX_BYTES} that are read",
            content.len()
        ));
    }
    let Version { version } = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    if version != VERSION {
        return Err(format!(
            "it is of version {version}, and this host reads version {VERSION}"
        ));
    }
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

/// The content of the component's last custom section of this name, at the top level.
pub fn find<'a>(component: &'a [u8], name: &str) -> Option<&'a [u8]> {
    sections(component)
        .filter_map(|section| section.custom(name))
        .last()
}

/// The component with these docs in place of any that it had: the same bytes for the same input.
///
/// # Errors
/// If `component` is none.
pub fn replace(component: &[u8], docs: &Docs) -> Result<Vec<u8>, String> {
    if !component.starts_with(HEADER) {
        return Err("it is not a WebAssembly component".into());
    }
    let mut out = HEADER.to_vec();
    let mut read = HEADER.len();
    for section in sections(component) {
        read += section.whole.len();
        if section.custom(NAME).is_none() {
            out.extend_from_slice(section.whole);
        }
    }
    if read != component.len() {
        return Err(format!(
            "its sections end at byte {read} in the middle of one"
        ));
    }
    if docs.is_empty() {
        return Ok(out);
    }
    let envelope = Envelope {
        version: VERSION,
        docs,
    };
    let content = serde_json::to_vec(&envelope).map_err(|error| error.to_string())?;
    let mut body = Vec::with_capacity(content.len() + NAME.len() + 1);
    write_leb128(&mut body, NAME.len());
    body.extend_from_slice(NAME.as_bytes());
    body.extend_from_slice(&content);
    out.push(CUSTOM);
    write_leb128(&mut out, body.len());
    out.extend_from_slice(&body);
    Ok(out)
}

struct Section<'a> {
    id: u8,
    body: &'a [u8],
    /// With its id and size.
    whole: &'a [u8],
}

impl<'a> Section<'a> {
    fn custom(&self, name: &str) -> Option<&'a [u8]> {
        if self.id != CUSTOM {
            return None;
        }
        let mut rest = self.body;
        let length = read_leb128(&mut rest)?;
        (rest.get(..length)? == name.as_bytes()).then(|| &rest[length..])
    }
}

/// The sections of a component, nested components as one section each. Ends where the bytes do not
/// make sense any more.
fn sections(component: &[u8]) -> impl Iterator<Item = Section<'_>> {
    let mut rest = component.strip_prefix(HEADER).unwrap_or_default();
    std::iter::from_fn(move || {
        let whole = rest;
        let (&id, mut after) = rest.split_first()?;
        let size = read_leb128(&mut after)?;
        let (body, next) = after.split_at_checked(size)?;
        rest = next;
        Some(Section {
            id,
            body,
            whole: &whole[..whole.len() - next.len()],
        })
    })
}

fn read_leb128(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0_u64;
    // Five bytes hold 32 bits, the most that the format allows.
    for shift in [0, 7, 14, 21, 28] {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return usize::try_from(value).ok();
        }
    }
    None
}

fn write_leb128(out: &mut Vec<u8>, mut value: usize) {
    while value > 0x7f {
        out.push(0x80 | (value & 0x7f) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs::FunctionDocs;
    use proptest::prelude::*;

    fn docs(description: &str) -> Docs {
        let function = FunctionDocs {
            description: Some(description.into()),
            ..FunctionDocs::default()
        };
        let mut docs = Docs::default();
        docs.exports
            .entry("a:b/c".into())
            .or_default()
            .insert("f".into(), function);
        docs
    }

    #[test]
    fn docs_are_found_again_and_replaced() {
        // Longer than one byte of LEB128 can say.
        let (first, second) = (docs(&"x".repeat(300)), docs("second"));
        let component =
            wat::parse_str(r#"(component (@custom "other" "kept") (component))"#).unwrap();
        let once = replace(&component, &first).unwrap();
        assert_eq!(parse(find(&once, NAME).unwrap()).unwrap(), first);
        let twice = replace(&once, &second).unwrap();
        assert_eq!(twice, replace(&component, &second).unwrap());
        assert_eq!(find(&twice, "other"), Some(&b"kept"[..]));
        assert_eq!(replace(&twice, &Docs::default()).unwrap(), component);
    }

    #[test]
    fn files_other_than_components_are_left_alone() {
        assert!(replace(b"\0asm\x01\0\0\0", &docs("")).is_err());
        let cut = [HEADER, &[0, 200, 1, 0]].concat();
        assert!(replace(&cut, &docs("")).unwrap_err().contains("middle"));
    }

    #[test]
    fn other_keys_are_ignored_and_other_versions_refused() {
        let text = br#"{"version": 1, "later": {}, "exports": {"": {"f": {"description": "d", "later": 1}}}}"#;
        let docs = parse(text).unwrap();
        let function = docs.function(None, "f").unwrap();
        assert_eq!(function.description.as_deref(), Some("d"));
        assert!(
            parse(br#"{"version": 2}"#)
                .unwrap_err()
                .contains("version 2")
        );
        assert!(
            parse(&vec![b' '; MAX_BYTES + 1])
                .unwrap_err()
                .contains("more than")
        );
        assert!(
            parse(
                format!(
                    r#"{{"version":1,"types":{{"t":{{"type":{}"#,
                    "[".repeat(100_000)
                )
                .as_bytes()
            )
            .is_err()
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let component = [HEADER, &bytes].concat();
            let _ = find(&component, NAME);
            if let Ok(with) = replace(&component, &docs("d")) {
                prop_assert_eq!(parse(find(&with, NAME).unwrap()).unwrap(), docs("d"));
            }
        }
    }
}
