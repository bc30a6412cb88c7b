//! Parts of a message's content that are no text, in the forms in which OpenAI's clients write them.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use toolhold_protocol::image::ImageDetail;

/// Longest address of an image or a file, in bytes.
const MAX_ADDRESS: usize = 8_192;
/// Characters of base64 for each that may be white space: clients break its lines.
const MAX_BREAK_SHARE: usize = 16;

/// Base64 with or without its padding: clients differ.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const USUAL: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
const FOR_URLS: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

/// An image or a file that a message brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaPart<'p> {
    pub kind: MediaKind,
    pub source: MediaSource<'p>,
    /// The client's name of a file.
    pub name: Option<&'p str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    Image(Option<ImageDetail>),
    /// An image as well, if its bytes are one.
    File,
}

/// The bytes of a part, or their address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaSource<'p> {
    Inline {
        /// The client's claim, without parameters; empty if it makes none.
        media_type: &'p str,
        base64: &'p str,
    },
    /// Fetched where the operator granted it.
    Address(&'p str),
}

/// True for the types of parts that [`MediaPart::of`] reads.
pub fn is_media(kind: &str) -> bool {
    matches!(kind, "image_url" | "input_image" | "file" | "input_file")
}

impl<'p> MediaPart<'p> {
    /// Reads a part of a content; `None` if it is none of media.
    ///
    /// # Errors
    /// The part has no bytes and no address, or names what this server does not have.
    pub fn of(part: &'p Value) -> Result<Option<Self>, String> {
        let kind = part["type"].as_str().unwrap_or_default();
        let read = match kind {
            "image_url" | "input_image" => image(part)?,
            "file" => file(&part["file"])?,
            "input_file" => file(part)?,
            _ => return Ok(None),
        };
        Ok(Some(read))
    }
}

/// Reason why a file that is named by an id is refused.
const NO_FILE_IDS: &str = "file_id: this server keeps no files; send the bytes as a data: URL";

fn image(part: &Value) -> Result<MediaPart<'_>, String> {
    // A text, or an object: clients of both APIs write both.
    let (url, detail) = match &part["image_url"] {
        Value::Object(object) => (object.get("url"), object.get("detail")),
        url => (Some(url), None),
    };
    let detail = detail.or(part.get("detail")).and_then(Value::as_str);
    let Some(url) = url.and_then(Value::as_str) else {
        return Err(if part["file_id"].is_string() {
            NO_FILE_IDS.to_owned()
        } else {
            "image_url: expected a data: URL with the image, or its address".to_owned()
        });
    };
    Ok(MediaPart {
        kind: MediaKind::Image(match detail {
            Some("low") => Some(ImageDetail::Low),
            Some("high" | "original") => Some(ImageDetail::High),
            // "auto", which the endpoint does by itself.
            _ => None,
        }),
        source: source(url).ok_or_else(|| {
            format!("image_url: expected {DATA_URL}, or an address (https://…) of at most {MAX_ADDRESS} bytes")
        })?,
        name: None,
    })
}

fn file(part: &Value) -> Result<MediaPart<'_>, String> {
    let text = |name: &str| part[name].as_str().filter(|text| !text.is_empty());
    let given = match (text("file_data"), text("file_url"), text("file_id")) {
        (Some(data), ..) => inline(data),
        (None, Some(address), _) => source(address),
        (None, None, Some(_)) => return Err(NO_FILE_IDS.to_owned()),
        (None, None, None) => None,
    };
    Ok(MediaPart {
        kind: MediaKind::File,
        source: given.ok_or_else(|| format!("file_data: expected {DATA_URL}, or its base64"))?,
        name: text("filename"),
    })
}

/// A `data:` URL or an address; or base64 alone, as some clients send it.
fn inline(data: &str) -> Option<MediaSource<'_>> {
    let bare = MediaSource::Inline {
        media_type: "",
        base64: data,
    };
    let is_bare = !data.contains([':', ',']);
    source(data).or(is_bare.then_some(bare))
}

const DATA_URL: &str = "a data: URL in base64 (data:image/png;base64,…)";

/// A `data:` URL or an address; `None` if the text is neither.
fn source(text: &str) -> Option<MediaSource<'_>> {
    let text = text.trim();
    let begins_with = |scheme: &str| {
        let begin = text.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    if begins_with("data:") {
        let (head, base64) = text.get("data:".len()..)?.split_once(',')?;
        let (claim, encoding) = head.rsplit_once(';')?;
        let media_type = claim.split(';').next().unwrap_or_default().trim();
        return encoding
            .trim()
            .eq_ignore_ascii_case("base64")
            .then_some(MediaSource::Inline { media_type, base64 });
    }
    let is_address = begins_with("https://") || begins_with("http://");
    (is_address && text.len() <= MAX_ADDRESS && !text.contains(char::is_whitespace))
        .then_some(MediaSource::Address(text))
}

/// The bytes of base64, of which there are at most `most`.
///
/// # Errors
/// It is too long, or no base64.
pub fn decoded(base64: &str, most: usize) -> Result<Vec<u8>, String> {
    let longest = most.div_ceil(3).saturating_mul(4);
    if base64.len() > longest.saturating_add(longest / MAX_BREAK_SHARE) {
        return Err(format!("it has more than {most} bytes"));
    }
    let has_breaks = base64.contains(|c: char| c.is_ascii_whitespace());
    let whole: String;
    let base64 = if has_breaks {
        whole = base64.split_ascii_whitespace().collect();
        whole.as_str()
    } else {
        base64
    };
    let engine = if base64.contains(['-', '_']) {
        FOR_URLS
    } else {
        USUAL
    };
    let bytes = engine
        .decode(base64)
        .map_err(|_| "its data is not base64".to_owned())?;
    if bytes.len() > most {
        return Err(format!("it has more than {most} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PNG: &str = "data:image/png;base64,AAAA";
    const INLINE: MediaSource<'_> = MediaSource::Inline {
        media_type: "image/png",
        base64: "AAAA",
    };

    #[test]
    fn images_are_read_in_the_forms_of_both_apis() {
        for (part, source, detail) in [
            (
                json!({"type": "image_url", "image_url": {"url": PNG}}),
                INLINE,
                None,
            ),
            (json!({"type": "image_url", "image_url": PNG}), INLINE, None),
            (
                json!({"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}),
                INLINE,
                Some(ImageDetail::Low),
            ),
            (
                json!({"type": "input_image", "image_url": PNG, "detail": "high", "file_id": null}),
                INLINE,
                Some(ImageDetail::High),
            ),
            (
                json!({"type": "input_image", "image_url": "https://a.example/b.png", "detail": "auto"}),
                MediaSource::Address("https://a.example/b.png"),
                None,
            ),
        ] {
            let expected = MediaPart {
                kind: MediaKind::Image(detail),
                source,
                name: None,
            };
            assert_eq!(MediaPart::of(&part), Ok(Some(expected)), "{part}");
        }
    }

    #[test]
    fn files_are_read_in_the_forms_of_both_apis() {
        const PDF: &str = "data:application/pdf;name=a.pdf;base64,JVBERi0=";
        let inline = |media_type| MediaSource::Inline {
            media_type,
            base64: "JVBERi0=",
        };
        for (part, source, name) in [
            (
                json!({"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}),
                inline("application/pdf"),
                Some("a.pdf"),
            ),
            (
                json!({"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0="}),
                inline(""),
                Some("a.pdf"),
            ),
            (
                json!({"type": "input_file", "file_url": "https://a.example/a.pdf", "file_id": null}),
                MediaSource::Address("https://a.example/a.pdf"),
                None,
            ),
        ] {
            let expected = MediaPart {
                kind: MediaKind::File,
                source,
                name,
            };
            assert_eq!(MediaPart::of(&part), Ok(Some(expected)), "{part}");
        }
    }

    #[test]
    fn a_part_without_bytes_is_refused_with_words() {
        for (part, expected) in [
            (
                json!({"type": "input_image", "file_id": "file-1"}),
                "keeps no files",
            ),
            (
                json!({"type": "file", "file": {"file_id": "file-1"}}),
                "keeps no files",
            ),
            (json!({"type": "image_url"}), "image_url"),
            (
                json!({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
                "an address",
            ),
            (
                json!({"type": "image_url", "image_url": {"url": "data:image/png,abc"}}),
                "base64",
            ),
            (
                json!({"type": "input_file", "filename": "a.pdf"}),
                "file_data",
            ),
            (
                json!({"type": "input_file", "file_data": "data:text/plain,abc"}),
                "file_data",
            ),
        ] {
            let error = MediaPart::of(&part).unwrap_err();
            assert!(error.contains(expected), "{part}: {error}");
        }
        assert_eq!(
            MediaPart::of(&json!({"type": "text", "text": "a"})),
            Ok(None)
        );
    }

    #[test]
    fn base64_is_bounded_and_read_as_clients_write_it() {
        for (base64, expected) in [
            ("+/8=", Ok(vec![0xfb, 0xff])),
            ("+/8", Ok(vec![0xfb, 0xff])),
            ("-_8", Ok(vec![0xfb, 0xff])),
            ("+/\n8=", Ok(vec![0xfb, 0xff])),
            ("", Ok(Vec::new())),
            ("?", Err(())),
            ("AAAAAAAA", Err(())),
        ] {
            assert_eq!(decoded(base64, 5).map_err(drop), expected, "{base64:?}");
        }
        let long = "A".repeat(100_000);
        assert!(
            decoded(&long, 1_000)
                .unwrap_err()
                .contains("more than 1000 bytes")
        );
    }
}
