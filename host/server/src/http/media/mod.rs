//! Images and files that messages bring: decoded or fetched within bounds before a message is read.
//!
//! What the bytes are, they say themselves. An image is shown to the model as one. Of a file the model is shown the text,
//! as material between marks: what is text already as it is, and the rest by the extractors of `knowledge.extractors`.

mod part;

pub use part::is_media;

use crate::http::App;
use crate::http::agent::Prepared;
use crate::http::attached::FETCH_PATIENCE;
use crate::http::auth::Client;
use crate::http::error::ApiError;
use crate::http::knowledge::refused;
use crate::http::messages::{ChatMessage, content_at};
use part::{MediaKind, MediaPart, MediaSource, decoded};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_admission::WorkKind;
use toolhold_policy::Digest;
use toolhold_policy::prompt::Fence;
use toolhold_protocol::context::Message;
use toolhold_protocol::image::{Image, MAX_ALL_IMAGE_BYTES, MAX_IMAGE_BYTES, MAX_IMAGES};
use toolhold_protocol::sent_file::SentFile;
use toolhold_protocol::settings::RunRequest;
use toolhold_runtime::extract::{DocumentBytes, Unreadable};
use uuid::Uuid;

/// Images and files of one request, those of its history among them.
const MAX_PARTS: usize = 128;
/// Files of one request, whose text is taken out: more of them are documents for a collection.
const MAX_FILES: usize = 16;
/// Bytes of the text of all files of one request: a million tokens, which is more than a model's window.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// Maximum characters of a file's name in a prompt.
const MAX_NAME: usize = 200;
/// Hexadecimal digits of a file's digest that mark its text. A text cannot have them of itself.
const MARK_DIGITS: usize = 24;
/// Name of a file that has none.
const NAMELESS: &str = "file";

/// Images and files whose bytes are decoded and looked at.
const READINGS: WorkKind = WorkKind::new("images and files of requests", 16);

/// Bytes as they came.
enum GivenBytes {
    Base64(String),
    Raw(Vec<u8>),
}

/// An image or a document, told by its bytes.
enum MediaContent {
    Image(Image),
    Document(MediaDocument, SentFile),
}

/// A document, and what its bytes say of it.
struct MediaDocument {
    bytes: Vec<u8>,
    digest: String,
    media_type: Option<String>,
}

/// Remaining bounds of one request while its parts are read.
struct MediaBounds {
    files: usize,
    text: usize,
    patience: Duration,
    /// Images that were read, and their bytes.
    images: usize,
    image_bytes: u64,
    /// The files that were read, each once.
    sent: Vec<SentFile>,
}

impl MediaBounds {
    /// True if more images were read than a context takes. Those before them are not shown, or the context is refused.
    fn has_all_images(&self) -> bool {
        self.images > MAX_IMAGES || self.image_bytes > MAX_ALL_IMAGE_BYTES as u64
    }
}

impl App {
    /// Reads the images and files of messages, in the request's member `place`, and puts them beside the messages'
    /// texts. The newest come first: of a long conversation, images that a context has no room for are not fetched. Returns
    /// the files, whose bytes are kept with the run.
    ///
    /// # Errors
    /// A part cannot be read or is too large, no grant reaches its address, or its message is of another role than `user`
    /// and `tool`.
    pub async fn read_media(
        &self,
        client: &Client,
        place: &str,
        messages: &mut [ChatMessage],
    ) -> Result<Vec<SentFile>, ApiError> {
        let count = messages.iter().map(|it| parts(&it.content).count());
        if count.sum::<usize>() > MAX_PARTS {
            return Err(ApiError::member(
                place,
                format_args!("at most {MAX_PARTS} images and files"),
            ));
        }
        let mut bounds = MediaBounds {
            files: MAX_FILES,
            text: MAX_TEXT_BYTES,
            patience: FETCH_PATIENCE,
            images: 0,
            image_bytes: 0,
            sent: Vec::new(),
        };
        let is_answer =
            |it: &ChatMessage| !matches!(it.role.as_str(), "user" | "system" | "developer");
        let newest = messages.iter().rposition(is_answer);
        for (index, message) in messages.iter_mut().enumerate().rev() {
            let mut material = Vec::new();
            let given: Vec<(usize, &Value)> = parts(&message.content).collect();
            for (number, part) in given.into_iter().rev() {
                let at = format!("{}[{number}]", content_at(place, index, message));
                if !matches!(message.role.as_str(), "user" | "tool" | "function") {
                    let reason = "images and files stand in messages of the roles user and tool";
                    return Err(ApiError::member(&at, reason));
                }
                let part = MediaPart::of(part).map_err(|error| ApiError::member(&at, error))?;
                let Some(part) = part else { continue };
                let read = self.read_part(client, &part, &mut bounds).await;
                material.push(read.map_err(|error| error.at(&at))?);
            }
            // Older ones make room for them, and these are not shown without each other.
            if newest.is_none_or(|newest| index > newest) && bounds.has_all_images() {
                let reason = format_args!(
                    "there are more than {MAX_IMAGES} images, or they have more than {} MiB together; send fewer, or smaller ones",
                    MAX_ALL_IMAGE_BYTES >> 20
                );
                return Err(ApiError::member(&format!("{place}[{index}]"), reason));
            }
            material.reverse();
            message.material = material;
        }
        bounds.sent.reverse();
        Ok(bounds.sent)
    }

    async fn read_part(
        &self,
        client: &Client,
        part: &MediaPart<'_>,
        bounds: &mut MediaBounds,
    ) -> Result<Message, ApiError> {
        let mut claimed = String::new();
        let mut name = part.name.map(str::to_owned);
        let (bytes, held) = match part.source {
            MediaSource::Inline { media_type, base64 } => {
                media_type.clone_into(&mut claimed);
                (GivenBytes::Base64(base64.to_owned()), None)
            }
            MediaSource::Address(_)
                if matches!(part.kind, MediaKind::Image(_)) && bounds.has_all_images() =>
            {
                return Ok(Message::older_image());
            }
            MediaSource::Address(address) => {
                let fetching = self.fetched(client, address, &mut bounds.patience);
                let (read, permit) = Box::pin(fetching).await?;
                claimed = read.media_type;
                name = name.or_else(|| last_part(address));
                let is_image = Image::media_type_of(&read.bytes).is_some();
                if !is_image || !bounds.has_all_images() {
                    client.memory.keep(Image::memory(read.bytes.len() as u64))?;
                }
                (GivenBytes::Raw(read.bytes), Some((permit, read.kept)))
            }
        };
        let name = name.map_or_else(String::new, |name| shown_name(&name));
        let (kind, told) = (part.kind, name.clone());
        let most = match kind {
            MediaKind::Image(_) => MAX_IMAGE_BYTES as u64,
            MediaKind::File => {
                self.knowledge
                    .configured
                    .knowledge
                    .settings()
                    .document_bytes
            }
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let reading = READINGS.run(Some(client.name.as_str()), move || {
            content(bytes, most, kind, told, &claimed)
        });
        let content = reading
            .await
            .map_err(|error| ApiError::unavailable(error.to_string()))?
            .map_err(ApiError::invalid)?;
        let message = match content {
            // A file that turned out to be one.
            MediaContent::Image(_) if bounds.has_all_images() => Message::older_image(),
            MediaContent::Image(image) => {
                bounds.images += 1;
                bounds.image_bytes = bounds.image_bytes.saturating_add(image.bytes);
                Message::Image(image)
            }
            MediaContent::Document(document, file) => {
                bounds.files = bounds.files.checked_sub(1).ok_or_else(|| {
                    ApiError::invalid(format!(
                        "a request has at most {MAX_FILES} files; documents, or a collection, takes more"
                    ))
                })?;
                let text = self.file_text(client, &name, document, &mut bounds.text);
                let text = text.await?;
                if !bounds.sent.iter().any(|sent| sent.digest == file.digest) {
                    bounds.sent.push(file);
                }
                text
            }
        };
        drop(held);
        Ok(message)
    }

    /// The text of a file, between marks. `room`: the bytes of text that are left for it.
    async fn file_text(
        &self,
        client: &Client,
        name: &str,
        document: MediaDocument,
        room: &mut usize,
    ) -> Result<Message, ApiError> {
        let served = &self.knowledge;
        let _permit = served.may_add(&client.name).await.map_err(refused)?;
        let MediaDocument {
            bytes,
            digest,
            media_type,
        } = document;
        let name = if name.is_empty() { NAMELESS } else { name };
        let document = DocumentBytes {
            source: telling_name(name, &bytes),
            media_type,
            bytes,
            labels: BTreeMap::new(),
        };
        let document = Box::pin(served.extractors.text(document)).await;
        let document = document.map_err(unread)?;
        // The wait and the extraction may have taken minutes.
        client.right.look().await?;
        *room = room.checked_sub(document.text.len()).ok_or_else(|| {
            ApiError::payload_too_large(format!(
                "the files have more than {MAX_TEXT_BYTES} bytes of text together"
            ))
        })?;
        let fence = Fence {
            kind: "file",
            mark: digest.get(..MARK_DIGITS).unwrap_or(&digest),
            attributes: &[("name", name)],
        };
        Ok(Message::material(&fence, &document.text))
    }

    /// Gives the images of an earlier run's context their bytes again. They count as those of this request.
    ///
    /// # Errors
    /// There is no memory for them, or the database failed.
    pub async fn restore_images(
        &self,
        client: &Client,
        run: Uuid,
        context: &mut [Message],
    ) -> Result<(), ApiError> {
        let lacking = context.iter().filter_map(|message| match message {
            Message::Image(image) if image.data().is_none() => {
                Some((image.digest.as_str(), image.bytes))
            }
            _ => None,
        });
        // Equal ones share their bytes.
        let lacking: BTreeMap<&str, u64> = lacking.collect();
        let sizes = lacking.values().map(|bytes| Image::memory(*bytes));
        client.memory.keep(sizes.fold(0, u64::saturating_add))?;
        let store = self.dispatcher.store();
        Ok(store.restore_images(run, context).await?)
    }

    /// Checks that the images and files of a request may be kept with the run that it is about to begin. The run begins only if
    /// they still may when they are written ([`Dispatcher::start`](crate::runs::Dispatcher::start)).
    ///
    /// # Errors
    /// The runs of the key, or of all keys, have as many images as the server keeps.
    pub async fn ensure_images_fit(&self, prepared: &Prepared) -> Result<(), ApiError> {
        let RunRequest { context, files, .. } = &prepared.request;
        let images = context.iter().filter_map(|message| match message {
            Message::Image(image) => Some((image.digest.as_str(), image.bytes)),
            _ => None,
        });
        let files = files.iter().map(|file| (file.digest.as_str(), file.bytes));
        let images: BTreeMap<&str, u64> = images.chain(files).collect();
        if images.is_empty() {
            return Ok(());
        }
        let (store, owner) = (self.dispatcher.store(), &prepared.behalf.owner);
        let quota = self.dispatcher.image_quota();
        let fit = store.fit_blobs(owner, &images, quota).await?;
        fit.map_err(|full| ApiError::payload_too_large(full.to_string()).coded("image_quota"))
    }
}

/// The parts of a content that are images or files, with their numbers.
fn parts(content: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let parts = content.as_array().into_iter().flatten().enumerate();
    parts.filter(|(_, part)| part["type"].as_str().is_some_and(is_media))
}

/// Decodes the bytes and looks at them.
fn content(
    bytes: GivenBytes,
    most: usize,
    kind: MediaKind,
    name: String,
    claimed: &str,
) -> Result<MediaContent, String> {
    let bytes = match bytes {
        GivenBytes::Base64(base64) => decoded(&base64, most)?,
        GivenBytes::Raw(bytes) => bytes,
    };
    let detail = match kind {
        MediaKind::File if Image::media_type_of(&bytes).is_none() => {
            let media_type = media_type(&bytes, claimed);
            let name = if name.is_empty() {
                NAMELESS
            } else {
                name.as_str()
            };
            let file = SentFile::new(name, media_type.clone(), &bytes);
            let document = MediaDocument {
                digest: Digest::of(&bytes).to_string(),
                media_type,
                bytes,
            };
            return Ok(MediaContent::Document(document, file));
        }
        MediaKind::File => None,
        MediaKind::Image(detail) => detail,
    };
    let mut image = Image::new(name, &bytes).map_err(|error| error.to_string())?;
    image.detail = detail;
    Ok(MediaContent::Image(image))
}

/// How a PDF begins.
const PDF: &[u8] = b"%PDF-";

/// The media type of a file: by its bytes where they tell, and by the client's claim where only that does. A claim that the
/// bytes contradict counts for nothing.
fn media_type(bytes: &[u8], claimed: &str) -> Option<String> {
    if bytes.starts_with(PDF) {
        return Some("application/pdf".to_owned());
    }
    let claimed = claimed.split(';').next().unwrap_or_default().trim();
    let claimed = claimed.to_ascii_lowercase();
    let is_text = is_text(bytes);
    let is_for_bytes = claimed == "application/pdf"
        || claimed.starts_with("image/")
        || claimed.starts_with("application/vnd.")
        || matches!(
            claimed.as_str(),
            "application/msword" | "application/epub+zip"
        );
    let is_for_text = claimed.starts_with("text/");
    let holds = if is_text { !is_for_bytes } else { !is_for_text };
    Some(claimed).filter(|claimed| holds && !claimed.is_empty())
}

fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// Endings of the names of files that are no text.
const BINARY_ENDINGS: [&str; 12] = [
    "pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "epub", "zip",
];

/// Returns the name of a file, with `.txt` behind an ending that its bytes contradict: some clients name every text `.pdf`.
fn telling_name(name: &str, bytes: &[u8]) -> String {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    let is_binary = ending.is_some_and(|ending| {
        let mut known = BINARY_ENDINGS.iter();
        known.any(|known| ending.eq_ignore_ascii_case(known))
    });
    if is_binary && is_text(bytes) && !bytes.starts_with(PDF) {
        format!("{name}.txt")
    } else {
        name.to_owned()
    }
}

fn unread(error: Unreadable) -> ApiError {
    let message = format!("no text can be taken out of this file: {error}");
    match error {
        Unreadable::Start(_) => ApiError::unavailable(message),
        _ => ApiError::invalid(message).coded("unsupported_file"),
    }
}

/// Returns the last part of a name, without control characters and cut.
fn shown_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let shown = name.chars().filter(|c| !c.is_control());
    shown.take(MAX_NAME).collect()
}

/// The last part of an address's path. Its query may be a key.
fn last_part(address: &str) -> Option<String> {
    let path = address.split(['?', '#']).next()?;
    let (_, path) = path.split_once("://")?;
    let (_, last) = path.rsplit_once('/')?;
    (!last.is_empty()).then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_bytes_say() {
        for (bytes, claimed, expected) in [
            (&b"%PDF-1.7"[..], "text/plain", Some("application/pdf")),
            (b"text", "application/pdf", None),
            (
                b"text",
                "Text/Markdown; charset=utf-8",
                Some("text/markdown"),
            ),
            (b"<p>", "text/html", Some("text/html")),
            (b"{}", "application/json", Some("application/json")),
            (b"text", "", None),
            (b"PK\x03\x04\0", "text/plain", None),
            (
                b"PK\x03\x04\0",
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
                Some("application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
            ),
        ] {
            let found = media_type(bytes, claimed);
            assert_eq!(found.as_deref(), expected, "{claimed} {bytes:?}");
        }
    }

    #[test]
    fn the_name_of_a_file_says_less_than_its_bytes() {
        for (name, bytes, expected) in [
            ("my_file.pdf", &b"hello"[..], "my_file.pdf.txt"),
            ("a.DOCX", b"hello", "a.DOCX.txt"),
            ("a.html", b"<p>", "a.html"),
            ("a.pdf", b"%PDF-1.7", "a.pdf"),
            ("a.docx", b"PK\x03\x04\0", "a.docx"),
            ("pdf", b"hello", "pdf"),
        ] {
            assert_eq!(telling_name(name, bytes), expected);
        }
    }

    #[test]
    fn a_file_that_is_an_image_is_shown_as_one() {
        const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";
        let of = |bytes: &[u8], kind| {
            let read = content(GivenBytes::Raw(bytes.to_vec()), 100, kind, "a".into(), "")?;
            Ok::<_, String>(match read {
                MediaContent::Image(image) => image.media_type,
                MediaContent::Document(..) => "document".into(),
            })
        };
        assert_eq!(of(PNG, MediaKind::File).unwrap(), "image/png");
        assert_eq!(of(PNG, MediaKind::Image(None)).unwrap(), "image/png");
        assert_eq!(of(b"text", MediaKind::File).unwrap(), "document");
        let error = of(b"%PDF-1.7", MediaKind::Image(None)).unwrap_err();
        assert!(error.contains("PNG, JPEG, GIF or WebP"), "{error}");
        let long = content(
            GivenBytes::Base64("A".repeat(400)),
            100,
            MediaKind::File,
            String::new(),
            "",
        );
        assert!(long.is_err_and(|error| error.contains("more than 100 bytes")));
    }

    #[test]
    fn names_are_those_of_files() {
        assert_eq!(shown_name("C:\\a\\b\n.pdf"), "b.pdf");
        assert_eq!(
            last_part("https://a.example/b/c.png?key=1").as_deref(),
            Some("c.png")
        );
        assert_eq!(last_part("https://a.example"), None);
        assert_eq!(last_part("https://a.example/"), None);
    }
}
