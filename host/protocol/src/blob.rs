//! Bytes in results of calls, such as images and sound of MCP servers. The record has a reference in their place, and the
//! bytes are kept beside it.
//!
//! A result, or an element of one, that is bytes is an object of `mime` and `base64`. In its reference, `base64` is the
//! name of the bytes, `blob:sha256:…`, and `bytes` their number. So a path such as `†state.shot.base64` leads to a text
//! in both, and the bytes take the place of that text where a tool is called with it.

use crate::image::{Image, MAX_IMAGE_BYTES};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use thiserror::Error;
use toolhold_policy::Digest;
use uuid::Uuid;

/// How the name of kept bytes begins. No base64 has a colon.
const SCHEME: &str = "blob:";
/// How a digest begins.
const ALGORITHM: &str = "sha256:";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 64;
/// Fewer bytes stay in the result, unless they are an image: a reference is hardly shorter, and a model may read them.
const MIN_BYTES: usize = 1_024;
/// Least bytes of an image. One of a single point has more.
const MIN_IMAGE_BYTES: usize = 64;
/// Most distinct parts of one result whose bytes are kept.
pub const MAX_KEPT_PARTS: usize = 64;
/// The media type of bytes that are not what they were said to be.
const UNKNOWN: &str = "application/octet-stream";

/// Bytes of a result.
#[derive(Clone, PartialEq, Eq)]
pub struct BlobContent {
    pub media_type: String,
    /// `sha256:` and the digest of the bytes.
    pub digest: String,
    /// Their number.
    pub bytes: u64,
    pub base64: Arc<str>,
}

/// Without the bytes.
impl Debug for BlobContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobContent")
            .field("media_type", &self.media_type)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// Why bytes of a result are not kept. The result says so in their place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BlobRefusal {
    #[error("these bytes were not kept, and nobody is shown them: {0}")]
    Full(String),
    #[error(
        "these bytes were not kept, and nobody is shown them: they could not be written; call the tool again later"
    )]
    Failed,
    #[error("a tool gives bytes, and no name of bytes")]
    Named,
}

impl BlobRefusal {
    /// The reason for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Full(_) => "blob_quota",
            Self::Failed => "blob_failed",
            Self::Named => "blob_name",
        }
    }
}

/// Keeps bytes of results beside the records of runs.
pub trait BlobKeeper: Send + Sync + Debug {
    /// Keeps the bytes of a result until the record of the run is deleted: all of them, or none.
    ///
    /// # Errors
    /// There is no room for all of them, or they cannot be written.
    fn keep<'a>(
        &'a self,
        run: Uuid,
        contents: &'a [BlobContent],
    ) -> BoxFuture<'a, Result<(), BlobRefusal>>;

    /// Returns bytes as base64, by their digest; `None` if they are not kept with a run of the same owner any more, or
    /// cannot be read.
    fn read<'a>(&'a self, run: Uuid, digest: &'a str) -> BoxFuture<'a, Option<Arc<str>>>;
}

impl BlobContent {
    /// The bytes of a part of a result, if it is bytes that are kept beside the record. What they are, they say
    /// themselves where they are an image: an endpoint refuses a Request with a false one.
    pub fn of(part: &Value) -> Option<Self> {
        if part.as_object()?.len() != 2 {
            return None;
        }
        let claimed = part.get("mime")?.as_str()?;
        let base64 = part.get("base64")?.as_str()?;
        let bytes = BASE64_STANDARD.decode(base64).ok()?;
        let image = Image::media_type_of(&bytes).filter(|_| bytes.len() >= MIN_IMAGE_BYTES);
        let media_type = match image {
            Some(image) => image,
            None if bytes.len() < MIN_BYTES => return None,
            None if Image::is_taken(claimed) => UNKNOWN,
            None => claimed,
        };
        Some(Self {
            media_type: media_type.to_owned(),
            digest: format!("{:?}", Digest::of(&bytes)),
            bytes: bytes.len() as u64,
            base64: base64.into(),
        })
    }

    /// Returns the object that takes the place of the bytes in the result.
    pub fn reference(&self) -> Value {
        let name = format!("{SCHEME}{}", self.digest);
        json!({"mime": self.media_type, "base64": name, "bytes": self.bytes})
    }

    /// Returns the object that takes their place if they are not kept.
    pub fn refused(&self, refusal: &BlobRefusal) -> Value {
        json!({
            "mime": self.media_type,
            "bytes": self.bytes,
            "error": refusal.kind(),
            "message": refusal.to_string(),
        })
    }
}

/// The parts of a result: its elements, or the result itself.
pub fn parts(result: &Value) -> &[Value] {
    match result {
        Value::Array(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

/// Returns the [`parts`] of a result to change them.
pub fn parts_mut(result: &mut Value) -> &mut [Value] {
    match result {
        Value::Array(parts) => parts,
        one => std::slice::from_mut(one),
    }
}

/// Refuses the names of bytes that the parts of a tool's result have: a tool has no bytes by their name, and its result
/// would show the model bytes that it did not give.
pub fn refuse_names(result: &mut Value) {
    for part in parts_mut(result) {
        let base64 = part.get("base64").and_then(Value::as_str);
        if base64.and_then(named).is_none() {
            continue;
        }
        if let Some(members) = part.as_object_mut() {
            let refusal = BlobRefusal::Named;
            members.remove("base64");
            members.insert("error".to_owned(), refusal.kind().into());
            members.insert("message".to_owned(), refusal.to_string().into());
        }
    }
}

/// The images that a result of `tool` refers to and that models take, without their bytes.
pub fn images<'a>(result: &'a Value, tool: &'a str) -> impl Iterator<Item = Image> + 'a {
    parts(result).iter().filter_map(move |part| {
        let digest = named(part.get("base64")?.as_str()?)?;
        let media_type = part.get("mime")?.as_str()?;
        let bytes = part.get("bytes")?.as_u64()?;
        let is_shown = Image::is_taken(media_type) && bytes <= MAX_IMAGE_BYTES as u64;
        is_shown.then(|| Image::kept(tool, media_type, digest, bytes))
    })
}

/// The digest that a text names, if it is the name of kept bytes.
fn named(text: &str) -> Option<&str> {
    let digest = text.strip_prefix(SCHEME)?;
    let digits = digest.strip_prefix(ALGORITHM)?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (digits.len() == DIGITS && digits.bytes().all(is_digit)).then_some(digest)
}

/// Adds the digests that texts of a value name, each as often as it is named.
pub fn add_named(value: &Value, digests: &mut Vec<String>) {
    match value {
        Value::String(text) => digests.extend(named(text).map(str::to_owned)),
        Value::Array(elements) => {
            for element in elements {
                add_named(element, digests);
            }
        }
        Value::Object(members) => {
            for member in members.values() {
                add_named(member, digests);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Puts bytes as base64 in the place of the texts of a value that name them. `kept`: by their digests.
pub fn put_back(value: &mut Value, kept: &BTreeMap<String, Arc<str>>) {
    match value {
        Value::String(text) => {
            let base64 = named(text).and_then(|digest| kept.get(digest));
            if let Some(base64) = base64.cloned() {
                *text = base64.to_string();
            }
        }
        Value::Array(elements) => {
            for element in elements {
                put_back(element, kept);
            }
        }
        Value::Object(members) => {
            for member in members.values_mut() {
                put_back(member, kept);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Puts bytes back into the parts of a result that refer to them, and into its other texts that name them: the parts are as
/// the tool returned them. `kept`: by their digests.
pub fn restore(result: &mut Value, kept: &BTreeMap<String, Arc<str>>) {
    for part in parts_mut(result) {
        let base64 = part.get("base64").and_then(Value::as_str);
        let is_kept = base64
            .and_then(named)
            .is_some_and(|digest| kept.contains_key(digest));
        if let (true, Some(members)) = (is_kept, part.as_object_mut()) {
            members.remove("bytes");
        }
    }
    put_back(result, kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] =
        b"\x89PNG\r\n\x1a\nthe rest, with which it has the sixty-four bytes of an image.";

    fn part(mime: &str, bytes: &[u8]) -> Value {
        json!({"mime": mime, "base64": BASE64_STANDARD.encode(bytes)})
    }

    #[test]
    fn a_reference_tells_what_the_bytes_are() {
        let long = [b'x'; MIN_BYTES];
        for (mime, bytes, expect) in [
            ("image/png", PNG, Some("image/png")),
            // What they are, they say themselves.
            ("text/plain", PNG, Some("image/png")),
            ("image/png", &long[..], Some(UNKNOWN)),
            ("audio/wav", &long[..], Some("audio/wav")),
            ("audio/wav", &long[1..], None),
            ("image/png", &PNG[..MIN_IMAGE_BYTES - 1], None),
        ] {
            let content = BlobContent::of(&part(mime, bytes));
            let told = content.as_ref().map(|it| it.media_type.as_str());
            assert_eq!(told, expect, "{mime}");
        }
        let own = json!({"mime": "image/png", "base64": BASE64_STANDARD.encode(PNG), "name": "a"});
        let none = json!({"mime": "image/png", "base64": "?"});
        for other in [own, none, json!("text"), json!(null), json!([])] {
            assert_eq!(BlobContent::of(&other), None, "{other}");
        }
        let content = BlobContent::of(&part("image/png", PNG)).unwrap();
        let reference = content.reference();
        assert_eq!(reference["bytes"], PNG.len());
        assert_eq!(BlobContent::of(&reference), None);
        assert!(!format!("{content:?}").contains(&*content.base64));
    }

    #[test]
    fn the_images_of_a_result_are_those_that_models_take() {
        let content = BlobContent::of(&part("image/png", PNG)).unwrap();
        let (png, mut svg, mut large) = (
            content.reference(),
            content.reference(),
            content.reference(),
        );
        svg["mime"] = json!("image/svg+xml");
        large["bytes"] = json!(MAX_IMAGE_BYTES + 1);
        let refused = content.refused(&BlobRefusal::Full("it is full".into()));
        assert_eq!(refused["error"], "blob_quota");
        let result = json!(["text", png, svg, large, refused, {"base64": "AAAA"}]);
        let shown: Vec<Image> = images(&result, "s.shot").collect();
        let [image] = shown.as_slice() else {
            panic!("{shown:?}");
        };
        assert_eq!(
            (image.name.as_str(), &image.digest, image.bytes),
            ("s.shot", &content.digest, content.bytes)
        );
        assert_eq!(image.url(), None);
        assert_eq!(images(&png, "s.shot").count(), 1);
    }

    #[test]
    fn a_name_that_a_tool_gives_is_refused() {
        let content = BlobContent::of(&part("image/png", PNG)).unwrap();
        let own = part("image/png", PNG);
        let text = content.reference()["base64"].clone();
        let mut result = json!([content.reference(), own, text]);
        refuse_names(&mut result);
        let refused = json!({
            "mime": "image/png", "bytes": PNG.len(),
            "error": "blob_name", "message": BlobRefusal::Named.to_string(),
        });
        assert_eq!(result, json!([refused, own, text]));
        let mut alone = content.reference();
        refuse_names(&mut alone);
        assert_eq!(alone, refused);
    }

    #[test]
    fn bytes_take_the_place_of_their_names() {
        let content = BlobContent::of(&part("image/png", PNG)).unwrap();
        let reference = content.reference();
        let name = reference["base64"].clone();
        let mut value = json!({"a": [name, reference], "b": format!("see {name}"), "c": 1});
        let mut digests = Vec::new();
        add_named(&value, &mut digests);
        assert_eq!(digests, [content.digest.clone(), content.digest.clone()]);
        let kept = BTreeMap::from([(content.digest.clone(), content.base64.clone())]);
        put_back(&mut value, &kept);
        assert_eq!(value["a"][0], *content.base64);
        assert_eq!(value["a"][1]["base64"], *content.base64);
        assert!(value["b"].as_str().unwrap().contains("blob:"));
        let mut result = json!(["text", reference]);
        restore(&mut result, &BTreeMap::new());
        assert_eq!(result[1], reference);
        restore(&mut result, &kept);
        assert_eq!(result, json!(["text", part("image/png", PNG)]));
    }
}
