//! Bytes of results, which are kept beside the record: the machine, the model and the record have references
//! (docs/protocol.md, 7.15). A reference is an input of the machine, and the bytes are not: a run that is replayed without
//! them comes to the same.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_admission::{MemoryReservation, MemoryShare};
use toolhold_model::chat::ChatRequest;
use toolhold_protocol::blob::{self, BlobContent, BlobKeeper, BlobRefusal, MAX_KEPT_PARTS};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::image::{Image, MAX_ALL_IMAGE_BYTES};
use uuid::Uuid;

/// Base64 in bytes that a run without a record keeps at most.
const MAX_HERE: usize = 64 << 20;
/// Base64 in bytes that takes the place of names in the arguments of one call at most.
const MAX_PUT_BACK: usize = 16 << 20;
/// The kind of failure of a call whose arguments name bytes that it cannot have.
const BLOB: &str = "blob";

/// Base64 by digests.
type Base64Texts = BTreeMap<String, Arc<str>>;

/// The bytes in results of a run's calls, and of the runs inside of it. Clones share them.
#[derive(Clone, Default)]
pub struct KeptBlobs {
    /// Absent: the run has no record, and the bytes are here alone.
    keeper: Option<Arc<dyn BlobKeeper>>,
    run: Uuid,
    /// The memory of the owner. Absent, nothing is counted.
    memory: Option<MemoryShare>,
    /// With a keeper, none.
    here: Arc<Mutex<Base64Texts>>,
}

/// Without the bytes.
impl std::fmt::Debug for KeptBlobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptBlobs")
            .field("keeper", &self.keeper)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl KeptBlobs {
    /// Bytes that `keeper` keeps.
    pub fn new(keeper: Arc<dyn BlobKeeper>) -> Self {
        Self {
            keeper: Some(keeper),
            ..Self::default()
        }
    }

    /// Counts what is read for Requests as memory that is kept for an owner.
    #[must_use]
    pub fn within(self, memory: MemoryShare) -> Self {
        Self {
            memory: Some(memory),
            ..self
        }
    }

    /// Returns the bytes of a run that is inside of no other one.
    pub(crate) fn of_run(&self, run: Uuid) -> Self {
        Self {
            keeper: self.keeper.clone(),
            run,
            memory: self.memory.clone(),
            here: Arc::default(),
        }
    }

    /// A result with references in the place of its bytes, which are kept. Bytes for which there is no room are said to
    /// be missing there: the rest of the result is of use, and the call was made.
    pub(crate) async fn kept(&self, mut result: Value) -> Value {
        let mut contents: Vec<BlobContent> = Vec::new();
        let mut places: Vec<(&mut Value, usize)> = Vec::new();
        for part in blob::parts_mut(&mut result) {
            let Some(content) = BlobContent::of(part) else {
                continue;
            };
            let known = contents.iter().position(|it| it.digest == content.digest);
            if known.is_none() && contents.len() >= MAX_KEPT_PARTS {
                let refusal = format!("of one result at most {MAX_KEPT_PARTS} such parts are kept");
                *part = content.refused(&BlobRefusal::Full(refusal));
                continue;
            }
            *part = content.reference();
            places.push((part, known.unwrap_or(contents.len())));
            if known.is_none() {
                contents.push(content);
            }
        }
        if contents.is_empty() {
            return result;
        }
        if let Err(refusal) = self.keep(&contents).await {
            for (part, index) in places {
                if let Some(content) = contents.get(index) {
                    *part = content.refused(&refusal);
                }
            }
        }
        result
    }

    /// Puts bytes in the place of their names in the arguments with which a tool is called.
    ///
    /// # Errors
    /// They are not kept, or too many.
    pub(crate) async fn put_back(&self, arguments: &mut Value) -> Result<(), ToolFailure> {
        let mut named = Vec::new();
        blob::add_named(arguments, &mut named);
        let (mut kept, mut length) = (Base64Texts::new(), 0_usize);
        for digest in named {
            let known = kept.get(&digest).cloned();
            let base64 = match known {
                Some(known) => known,
                None => self.read(&digest).await.ok_or_else(|| {
                    let message = format!(
                        "the bytes blob:{digest} are not kept, or not any more: pass on what a result of this run has \
                         as base64, or have the tool make them again"
                    );
                    ToolFailure::correctable(BLOB, message)
                })?,
            };
            length = length.saturating_add(base64.len());
            if length > MAX_PUT_BACK {
                let message = format!(
                    "the arguments name bytes that have more than {} MiB as base64: pass fewer of them",
                    MAX_PUT_BACK >> 20
                );
                return Err(ToolFailure::correctable(BLOB, message));
            }
            kept.insert(digest, base64);
        }
        if !kept.is_empty() {
            blob::put_back(arguments, &kept);
        }
        Ok(())
    }

    /// Reads the bytes of images in a Request. An image whose bytes are not kept, or are another one, has none afterwards,
    /// and so have those beyond what a Request takes, or for which the owner has no memory. The memory is reserved for as
    /// long as what is returned is kept.
    pub(crate) async fn fill(&self, request: &mut ChatRequest) -> Vec<MemoryReservation> {
        let (mut shown, mut reserved) = (Base64Texts::new(), Vec::new());
        let mut bytes = 0_u64;
        for message in &mut request.messages {
            for image in &mut message.images {
                bytes = bytes.saturating_add(image.bytes);
                if image.data().is_some() || bytes > MAX_ALL_IMAGE_BYTES as u64 {
                    continue;
                }
                // As it was read, and in the body of the Request.
                let needed = Image::memory(image.bytes).saturating_mul(2);
                let room = self.memory.as_ref().map(|memory| memory.reserve(needed));
                match room {
                    Some(Ok(room)) => reserved.push(room),
                    Some(Err(_)) => continue,
                    None => {}
                }
                let known = shown.get(&image.digest).cloned();
                let data = match known {
                    Some(known) => Some(known),
                    None => self.read(&image.digest).await,
                };
                if let Some(data) = data {
                    image.fill(data.clone());
                    if image.data().is_some() {
                        shown.insert(image.digest.clone(), data);
                    }
                }
            }
        }
        reserved
    }

    async fn keep(&self, contents: &[BlobContent]) -> Result<(), BlobRefusal> {
        match &self.keeper {
            Some(keeper) => keeper.keep(self.run, contents).await,
            None => self.keep_here(contents),
        }
    }

    fn keep_here(&self, contents: &[BlobContent]) -> Result<(), BlobRefusal> {
        let mut here = self.here();
        let length: usize = here.values().map(|base64| base64.len()).sum();
        let is_new = |content: &&BlobContent| !here.contains_key(&content.digest);
        let added = contents.iter().filter(is_new);
        let added: usize = added.map(|content| content.base64.len()).sum();
        if added > 0 && length.saturating_add(added) > MAX_HERE {
            return Err(BlobRefusal::Full(format!(
                "the results of a run without a record have at most {} MiB of bytes as base64",
                MAX_HERE >> 20
            )));
        }
        for content in contents {
            here.insert(content.digest.clone(), content.base64.clone());
        }
        Ok(())
    }

    async fn read(&self, digest: &str) -> Option<Arc<str>> {
        match &self.keeper {
            Some(keeper) => keeper.read(self.run, digest).await,
            None => self.here().get(digest).cloned(),
        }
    }

    fn here(&self) -> MutexGuard<'_, Base64Texts> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_admission::MemoryCeiling;
    use toolhold_model::chat::ChatMessage;

    const PNG: &[u8] =
        b"\x89PNG\r\n\x1a\nthe rest, with which it has the sixty-four bytes of an image.";

    fn bytes() -> (Value, String) {
        let image = Image::new("", PNG).unwrap();
        let base64 = image.data().unwrap().to_string();
        (json!({"mime": "image/png", "base64": base64}), base64)
    }

    #[tokio::test]
    async fn bytes_of_a_result_are_kept_beside_it_and_found_again() {
        let run = KeptBlobs::default().of_run(Uuid::now_v7());
        let (part, base64) = bytes();
        let kept = run.kept(json!(["two shots", part, part])).await;
        assert!(!kept.to_string().contains(&base64), "{kept}");
        assert_eq!(kept[1], kept[2]);

        let mut request = ChatRequest::default();
        for image in blob::images(&kept, "s.shot") {
            assert_eq!(image.url(), None);
            request.messages.push(ChatMessage::image("look", image));
        }
        run.fill(&mut request).await;
        for message in &request.messages {
            let data = message.images[0].data().map(|data| &**data);
            assert_eq!(data, Some(base64.as_str()));
        }
        assert_eq!(request.images(), 2);

        let mut arguments = json!({"of": kept[1]["base64"], "other": "text"});
        run.put_back(&mut arguments).await.unwrap();
        assert_eq!(arguments, json!({"of": base64, "other": "text"}));
    }

    #[tokio::test]
    async fn images_of_a_request_count_as_memory_for_as_long_as_it_is_under_way() {
        let ceiling = MemoryCeiling::new(1_000);
        let all = KeptBlobs::default().within(ceiling.of("ann"));
        let run = all.of_run(Uuid::now_v7());
        let kept = run.kept(bytes().0).await;
        let image = blob::images(&kept, "s.shot").next().unwrap();
        let needed = Image::memory(image.bytes) * 2;
        // Four times as much fits into seven eighths, and five times does not.
        assert_eq!(800 / needed, 4);
        let mut request = ChatRequest::default();
        for _ in 0..6 {
            let message = ChatMessage::image("look", image.clone());
            request.messages.push(message);
        }
        let reserved = run.fill(&mut request).await;
        let shown = request.messages.iter();
        let shown = shown.filter(|message| message.images[0].data().is_some());
        assert_eq!(shown.count(), 4);
        assert_eq!(ceiling.taken(), needed * 4);
        drop(reserved);
        assert_eq!(ceiling.taken(), 0);
    }

    #[tokio::test]
    async fn the_parts_of_a_result_that_are_kept_are_bounded() {
        let run = KeptBlobs::default().of_run(Uuid::now_v7());
        let parts: Vec<Value> = (0..100)
            .map(|last| {
                let bytes = [PNG, &[last]].concat();
                let image = Image::new("", &bytes).unwrap();
                json!({"mime": "image/png", "base64": image.data().unwrap().to_string()})
            })
            .collect();
        // Those that are kept already may be there again.
        let twice = [&parts[..], &parts[..1]].concat();
        let kept = run.kept(json!(twice)).await;
        assert_eq!(blob::images(&kept, "s.shot").count(), MAX_KEPT_PARTS + 1);
        assert_eq!(kept[MAX_KEPT_PARTS]["error"], "blob_quota", "{kept}");
        assert_eq!(kept[100], kept[0]);
    }

    #[tokio::test]
    async fn bytes_of_another_run_are_not_had() {
        let all = KeptBlobs::default();
        let kept = all.of_run(Uuid::now_v7()).kept(bytes().0).await;
        let other = all.of_run(Uuid::now_v7());
        let mut arguments = json!({"of": kept["base64"]});
        let failure = other.put_back(&mut arguments).await.unwrap_err();
        assert_eq!(failure.kind, BLOB);
        assert!(failure.message.contains("are not kept"));
        let mut request = ChatRequest::default();
        let image = blob::images(&kept, "s.shot").next().unwrap();
        request.messages.push(ChatMessage::image("look", image));
        other.fill(&mut request).await;
        assert_eq!(request.messages[0].images[0].url(), None);
    }

    /// Each name takes the place of megabytes.
    #[tokio::test]
    async fn bytes_for_names_are_bounded() {
        let run = KeptBlobs::default().of_run(Uuid::now_v7());
        let mut large = PNG.to_vec();
        large.resize(3 << 20, 0);
        let image = Image::new("", &large).unwrap();
        let base64 = image.data().unwrap().to_string();
        let kept = run
            .kept(json!({"mime": "image/png", "base64": base64}))
            .await;
        let name = kept["base64"].clone();
        let mut fits = json!([name, name, name, name]);
        run.put_back(&mut fits).await.unwrap();
        let mut many = json!([name, name, name, name, name]);
        let failure = run.put_back(&mut many).await.unwrap_err();
        assert!(failure.message.contains("16 MiB"), "{}", failure.message);
    }

    #[tokio::test]
    async fn a_run_without_a_record_has_bounded_bytes() {
        let run = KeptBlobs::default().of_run(Uuid::now_v7());
        for last in 0..13 {
            let mut large = PNG.to_vec();
            large.resize(4 << 20, last);
            let image = Image::new("", &large).unwrap();
            let base64 = image.data().unwrap().to_string();
            let kept = run
                .kept(json!({"mime": "image/png", "base64": base64}))
                .await;
            // Twelve of them have 64 MiB as base64, and a little.
            assert_eq!(kept["error"] == "blob_quota", last >= 11, "{last}: {kept}");
            assert_eq!(kept["bytes"], large.len());
        }
    }
}
