//! Images of the context. A record of a run has their digests and sizes; their bytes are kept beside it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;
use toolhold_policy::Digest;

/// Most images of a context. Each takes about a thousand tokens.
pub const MAX_IMAGES: usize = 16;
/// Most bytes of one image: what the strictest of the large services take.
pub const MAX_IMAGE_BYTES: usize = 5 << 20;
/// Most bytes of all images of a context: each Request carries all of them, a third larger as base64.
pub const MAX_ALL_IMAGE_BYTES: usize = 10 << 20;
/// Most characters of an image's name.
const MAX_NAME: usize = 256;

/// The formats that models take, by what their files begin with: a name says nothing.
const FORMATS: [(&str, &[u8]); 4] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF87a"),
    ("image/gif", b"GIF89a"),
];

/// Characters of base64 whose bytes tell a format.
const BEGIN: usize = 16;

/// The media type that two places of the bytes tell.
const WEBP: &str = "image/webp";

/// The resolution in which a model is asked to look at an image. Endpoints that know none of them ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageDetail {
    Low,
    High,
}

/// An image that the user shows the model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Image {
    /// What it is called, such as the name of its file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub media_type: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    pub bytes: u64,
    /// Absent: the endpoint chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<ImageDetail>,
    /// Its bytes as base64. Never written: a record would repeat them in each line that has the request.
    #[serde(skip)]
    data: Option<Arc<str>>,
}

/// The digest is of the bytes, whether they are here or not.
impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        let told = |it: &Self| (it.bytes, it.detail);
        (&self.name, &self.media_type, &self.digest, told(self))
            == (&other.name, &other.media_type, &other.digest, told(other))
    }
}

/// Why something cannot be an image of a context.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImageError {
    #[error("it is no image that models take: PNG, JPEG, GIF or WebP")]
    Format,
    #[error("it has {bytes} bytes, and an image has at most {MAX_IMAGE_BYTES}; make it smaller")]
    TooLarge { bytes: usize },
    #[error("its data is not base64")]
    Base64,
    #[error("its name has more than {MAX_NAME} characters, or control characters")]
    Name,
    #[error("there are more than {MAX_IMAGES} images")]
    TooMany,
    #[error(
        "the images have {bytes} bytes together, and a context takes at most {MAX_ALL_IMAGE_BYTES}"
    )]
    AllTooLarge { bytes: u64 },
}

impl Image {
    /// What an image of `bytes` is, by its first bytes.
    pub fn media_type_of(bytes: &[u8]) -> Option<&'static str> {
        let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
        let known = FORMATS.iter().find(|(_, magic)| bytes.starts_with(magic));
        match known {
            Some((media_type, _)) => Some(media_type),
            None => is_webp.then_some(WEBP),
        }
    }

    /// # Errors
    /// It is none that models take, too large, or has an odd name.
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> Result<Self, ImageError> {
        let name = name.into();
        if name.chars().count() > MAX_NAME || name.contains(char::is_control) {
            return Err(ImageError::Name);
        }
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err(ImageError::TooLarge { bytes: bytes.len() });
        }
        let media_type = Self::media_type_of(bytes).ok_or(ImageError::Format)?;
        Ok(Self {
            name,
            media_type: media_type.to_owned(),
            digest: format!("{:?}", Digest::of(bytes)),
            bytes: bytes.len() as u64,
            detail: None,
            data: Some(BASE64_STANDARD.encode(bytes).into()),
        })
    }

    /// As [`Image::new`], of bytes as base64.
    ///
    /// # Errors
    /// It is no base64, or what [`Image::new`] refuses.
    pub fn of_base64(name: impl Into<String>, data: &str) -> Result<Self, ImageError> {
        let most = MAX_IMAGE_BYTES.div_ceil(3) * 4;
        if data.len() > most {
            return Err(ImageError::TooLarge {
                bytes: data.len() / 4 * 3,
            });
        }
        let bytes = BASE64_STANDARD
            .decode(data)
            .map_err(|_| ImageError::Base64)?;
        Self::new(name, &bytes)
    }

    /// True if models take images of this media type.
    pub(super) fn is_taken(media_type: &str) -> bool {
        let mut known = FORMATS.iter().map(|(known, _)| *known);
        media_type == WEBP || known.any(|known| known == media_type)
    }

    /// An image of a result, whose bytes are kept under their digest.
    pub(super) fn kept(name: &str, media_type: &str, digest: &str, bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            digest: digest.to_owned(),
            bytes,
            detail: None,
            data: None,
        }
    }

    /// Gives the image the bytes, as base64, that were kept under its digest, if they are an image of the media type and
    /// the size that it says.
    pub fn fill(&mut self, data: Arc<str>) {
        let begin = data.get(..BEGIN).unwrap_or(&data);
        let begin = BASE64_STANDARD.decode(begin).unwrap_or_default();
        let is_it = Self::media_type_of(&begin) == Some(&*self.media_type);
        if is_it && decoded_bytes(&data) == self.bytes {
            self.data = Some(data);
        }
    }

    /// Its bytes as base64. Absent in a record, and where they were not kept.
    pub fn data(&self) -> Option<&Arc<str>> {
        self.data.as_ref()
    }

    /// The memory in bytes that an image of `bytes` takes, as base64.
    pub fn memory(bytes: u64) -> u64 {
        bytes.div_ceil(3).saturating_mul(4)
    }

    /// Gives an image of a record its bytes again. Others than its own are not taken.
    pub fn restore(&mut self, data: &str) {
        if let Ok(image) = Self::of_base64("", data) {
            self.share(&image);
        }
    }

    /// Shares the bytes of another image, if that has the same.
    pub fn share(&mut self, other: &Self) {
        if other.digest == self.digest {
            self.data.clone_from(&other.data);
        }
    }

    /// `data:image/png;base64,…`, as models take it.
    pub fn url(&self) -> Option<String> {
        let data = self.data.as_ref()?;
        Some(format!("data:{};base64,{data}", self.media_type))
    }
}

/// The number of bytes that a text of base64 has.
fn decoded_bytes(base64: &str) -> u64 {
    let padding = base64
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'=')
        .count();
    let length = base64.len().saturating_sub(padding) as u64;
    length.saturating_mul(3) / 4
}

/// The images of a context that were counted so far.
#[derive(Debug, Default)]
pub(super) struct ImageCount {
    images: usize,
    bytes: u64,
}

impl ImageCount {
    pub fn add(&mut self, image: &Image) -> Result<(), ImageError> {
        self.images += 1;
        self.bytes = self.bytes.saturating_add(image.bytes);
        if self.images > MAX_IMAGES {
            return Err(ImageError::TooMany);
        }
        if self.bytes > MAX_ALL_IMAGE_BYTES as u64 {
            return Err(ImageError::AllTooLarge { bytes: self.bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Context, Message};
    use serde_json::json;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    fn padded(size: usize) -> Vec<u8> {
        let mut bytes = PNG.to_vec();
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn an_image_is_what_its_bytes_say() {
        for (bytes, expect) in [
            (PNG, Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a..", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"<svg xmlns=", None),
            (b"\x89PNG", None),
            (b"", None),
        ] {
            assert_eq!(Image::media_type_of(bytes), expect, "{bytes:?}");
        }
        assert_eq!(Image::new("a", b"text"), Err(ImageError::Format));
        assert_eq!(Image::new("a\nb", PNG), Err(ImageError::Name));
        assert_eq!(Image::of_base64("a", "?"), Err(ImageError::Base64));
    }

    #[test]
    fn images_are_bounded() {
        assert!(Image::new("a", &padded(MAX_IMAGE_BYTES)).is_ok());
        let bytes = MAX_IMAGE_BYTES + 1;
        let too_large = Err(ImageError::TooLarge { bytes });
        assert_eq!(Image::new("a", &padded(bytes)), too_large);
        let long = "A".repeat(MAX_IMAGE_BYTES / 3 * 4 + 8);
        assert!(matches!(
            Image::of_base64("a", &long),
            Err(ImageError::TooLarge { .. })
        ));
        let context = |size: usize, count: usize| {
            let image = Image::new("a", &padded(size)).unwrap();
            Context::new(vec![Message::Image(image); count]).map(drop)
        };
        assert!(context(PNG.len(), MAX_IMAGES).is_ok());
        let error = context(PNG.len(), MAX_IMAGES + 1).unwrap_err();
        assert!(error.to_string().contains("more than 16 images"), "{error}");
        assert!(context(MAX_IMAGE_BYTES, 2).is_ok());
        let error = context(MAX_IMAGE_BYTES, 3).unwrap_err();
        assert!(error.to_string().contains("at most 10485760"), "{error}");
    }

    #[test]
    fn an_image_takes_no_other_bytes_than_it_says() {
        for size in [12, 13, 14, 3_000] {
            let bytes = padded(size);
            let data: Arc<str> = BASE64_STANDARD.encode(&bytes).into();
            let text: Arc<str> = BASE64_STANDARD.encode(vec![b'x'; size]).into();
            let digest = format!("{:?}", Digest::of(&bytes));
            for (media_type, claimed, data, is_taken) in [
                ("image/png", size, &data, true),
                ("image/gif", size, &data, false),
                ("image/png", size - 1, &data, false),
                ("image/png", size, &text, false),
            ] {
                let mut image = Image::kept("a", media_type, &digest, claimed as u64);
                image.fill(data.clone());
                assert_eq!(
                    image.url().is_some(),
                    is_taken,
                    "{size} {media_type} {claimed}"
                );
            }
        }
    }

    #[test]
    fn a_record_has_the_digest_and_not_the_bytes() {
        let image = Image::new("a.png", PNG).unwrap();
        let data = image.data().unwrap().to_string();
        let written = json!(Message::Image(image.clone()));
        assert_eq!(written["type"], "image");
        assert!(!written.to_string().contains(&data), "{written}");
        let Message::Image(mut read) = serde_json::from_value(written.clone()).unwrap() else {
            panic!("{written}");
        };
        assert_eq!((&read, read.url()), (&image, None));
        read.restore(&BASE64_STANDARD.encode(padded(50)));
        assert_eq!(read.url(), None, "others are not taken");
        read.restore(&data);
        assert_eq!(read.url(), image.url());
        // Whoever begins a run gives the bytes.
        let error = Message::parse_all(&json!([written])).unwrap_err();
        assert!(error.to_string().contains("\"data\""), "{error}");
        let low = json!([{"type": "image", "name": "a.png", "data": data, "detail": "low"}]);
        let read = Message::parse_all(&low).unwrap();
        let recorded: Message = serde_json::from_value(json!(read[0])).unwrap();
        let [Message::Image(low)] = std::slice::from_ref(&recorded) else {
            panic!("{recorded:?}");
        };
        assert_eq!(low.detail, Some(ImageDetail::Low));
        let given = json!([{"type": "image", "name": "a.png", "data": data}]);
        let read = Message::parse_all(&given).unwrap();
        let [Message::Image(given)] = read.as_slice() else {
            panic!("{given}");
        };
        assert_eq!((given, given.url()), (&image, image.url()));
    }
}
