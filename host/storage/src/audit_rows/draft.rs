//! Rows for the audit log.

use super::expiry::{EXPIRED, ExpiredRange};
use super::records::{RECORD_REDACTED, redacted_record};
use super::texts::{SEAL, is_of_memory, salt_call, salt_members, seal_members};
use crate::column::signed;
use crate::time::now_ms;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use toolhold_protocol::event::RemovedSource;
use uuid::Uuid;

/// A row of the audit log, before it has a number and a hash.
#[derive(Debug, Serialize, Deserialize)]
pub struct Draft {
    /// Milliseconds since 1970 (UTC).
    pub(super) at_ms: i64,
    pub(super) owner: String,
    pub(super) action: Cow<'static, str>,
    /// The recorded run, and the number of the event that the row follows from.
    pub(super) source: Option<(Uuid, i64)>,
    pub(super) tool: Option<String>,
    /// Further members of the entry. The members of each object are sorted by name.
    pub(super) details: BTreeMap<String, Value>,
    /// The salt of the digests that stand in the place of texts. It is in no entry.
    #[serde(skip)]
    pub(super) salt: Option<String>,
}

/// Who deleted old records.
#[derive(Debug, Clone, Copy)]
pub enum PrunedBy {
    /// A person, with `toolhold runs prune` or `toolhold audit prune`.
    Person,
    /// The server: records that ended more than `days` ago, or entries of the audit log that were written before then.
    Retention {
        /// The age in days.
        days: u32,
    },
}

impl PrunedBy {
    /// Adds the members of a row that say who deleted.
    fn added_to(self, mut details: Value) -> Value {
        match self {
            Self::Person => details["by"] = "person".into(),
            Self::Retention { days } => {
                details["by"] = "retention".into();
                details["keep_days"] = days.into();
            }
        }
        details
    }
}

/// Characters of a tool's name in the log: twice the longest valid name.
const MAX_NAME_CHARS: usize = 128;

impl Draft {
    /// A person, or the key `owner`, approved a module as it is.
    pub fn module_approved(owner: &str, module: &str, digest: &str) -> Self {
        Self::now(
            owner,
            "module_approved",
            json!({"module": module, "digest": digest}),
        )
    }

    /// The key `owner` uploaded a component; `replaced` is the digest of the one that it replaced.
    pub fn module_uploaded(
        owner: &str,
        module: &str,
        digest: &str,
        replaced: Option<&str>,
    ) -> Self {
        Self::now(
            owner,
            "module_uploaded",
            json!({"module": module, "digest": digest, "replaced": replaced}),
        )
    }

    /// A person gave a module permanent grants, which `may` describes.
    pub fn module_granted(module: &str, digest: &str, may: Value) -> Self {
        Self::now(
            "",
            "module_granted",
            json!({"module": module, "digest": digest, "may": may}),
        )
    }

    /// A person revoked a module's grants and its pin.
    pub fn module_revoked(module: &str) -> Self {
        Self::now("", "module_revoked", json!({"module": module}))
    }

    /// A person approved an MCP server as it is.
    pub fn server_approved(server: &str) -> Self {
        Self::now("", "server_approved", json!({"server": server}))
    }

    /// A person revoked the pin of an MCP server.
    pub fn server_revoked(server: &str) -> Self {
        Self::now("", "server_revoked", json!({"server": server}))
    }

    /// A person trusted a found configuration file with exactly these bytes.
    pub fn file_trusted(path: &str, digest: &str) -> Self {
        Self::now("", "file_trusted", json!({"path": path, "digest": digest}))
    }

    /// A person trusts a found configuration file no more.
    pub fn file_revoked(path: &str) -> Self {
        Self::now("", "file_revoked", json!({"path": path}))
    }

    /// A person created an API key.
    pub fn key_created(key: &str, permits: Value) -> Self {
        Self::now("", "key_created", json!({"key": key, "permits": permits}))
    }

    /// A person replaced the secret of an API key.
    pub fn key_rotated(key: &str, former_ends_ms: u64, expires_ms: Option<u64>) -> Self {
        let detail =
            json!({"key": key, "former_ends_ms": former_ends_ms, "expires_ms": expires_ms});
        Self::now("", "key_rotated", detail)
    }

    /// A person revoked an API key.
    pub fn key_revoked(key: &str) -> Self {
        Self::now("", "key_revoked", json!({"key": key}))
    }

    /// `owner` deleted a session with its turns.
    pub fn session_deleted(owner: &str, session: Uuid, runs: &[Uuid]) -> Self {
        Self::now(
            owner,
            "session_deleted",
            json!({"session": session, "runs": runs}),
        )
    }

    /// `owner` deleted the record of a run.
    pub fn run_deleted(owner: &str, run: Uuid) -> Self {
        Self::now(owner, "run_deleted", json!({"run": run}))
    }

    /// Records of runs and sessions that had ended before `before_ms` were deleted.
    pub fn pruned(by: PrunedBy, before_ms: u64, runs: &[Uuid], sessions: &[Uuid]) -> Self {
        let details = json!({"before_ms": before_ms, "runs": runs, "sessions": sessions});
        Self::now("", "pruned", by.added_to(details))
    }

    /// `owner` created a collection of documents.
    pub(crate) fn collection_created(owner: &str, collection: &str) -> Self {
        Self::now(
            owner,
            "collection_created",
            json!({"collection": collection}),
        )
    }

    /// `actor` deleted a collection with its documents.
    pub(crate) fn collection_deleted(actor: &str, collection: CollectionName<'_>) -> Self {
        Self::now(actor, "collection_deleted", told(collection))
    }

    /// The owner of a collection changed what another key may do with it; absent: nothing any more.
    pub(crate) fn collection_shared(
        collection: CollectionName<'_>,
        grantee: &str,
        access: Option<&'static str>,
    ) -> Self {
        let mut details = told(collection);
        details["grantee"] = logged_owner(grantee).into();
        details["access"] = access.into();
        Self::now(collection.owner, "collection_shared", details)
    }

    /// The key `grantee` accepted the share of another's collection.
    pub(crate) fn share_accepted(grantee: &str, collection: CollectionName<'_>) -> Self {
        Self::now(grantee, "share_accepted", told(collection))
    }

    /// The key `grantee` refused the share of another's collection, or left it.
    pub(crate) fn share_left(grantee: &str, collection: CollectionName<'_>) -> Self {
        Self::now(grantee, "share_left", told(collection))
    }

    /// `actor` settled after how many days documents of a collection are deleted; absent: they are kept.
    pub(crate) fn collection_retention(
        actor: &str,
        collection: CollectionName<'_>,
        keep_days: Option<NonZeroU32>,
    ) -> Self {
        let mut details = told(collection);
        details["keep_days"] = keep_days.map(NonZeroU32::get).into();
        Self::now(actor, "collection_retention", details)
    }

    /// A document was older than its collection keeps documents.
    pub(crate) fn document_expired(
        collection: CollectionName<'_>,
        document: Uuid,
        source: &str,
        keep_days: NonZeroU32,
    ) -> Self {
        let mut details = of_document(collection, document, source);
        details["by"] = "retention".into();
        details["keep_days"] = keep_days.get().into();
        Self::now("", "document_deleted", details)
    }

    /// `actor` added a document, in the place of the one of the same source, if there was one.
    pub(crate) fn document_added(
        actor: &str,
        collection: CollectionName<'_>,
        document: Uuid,
        source: &str,
        digest: &str,
    ) -> Self {
        let mut details = of_document(collection, document, source);
        details["digest"] = digest.into();
        Self::now(actor, "document_added", details)
    }

    /// `actor` gave a document other labels.
    pub(crate) fn document_labelled(
        actor: &str,
        collection: CollectionName<'_>,
        document: Uuid,
        source: &str,
    ) -> Self {
        Self::now(
            actor,
            "document_labelled",
            of_document(collection, document, source),
        )
    }

    /// `actor` deleted a document.
    pub(crate) fn document_deleted(
        actor: &str,
        collection: CollectionName<'_>,
        document: Uuid,
        source: &str,
    ) -> Self {
        Self::now(
            actor,
            "document_deleted",
            of_document(collection, document, source),
        )
    }

    /// `owner` had a fact kept, in the place of another if it supersedes one. The log has no text of facts: what is
    /// forgotten must be gone.
    pub(crate) fn fact_remembered(
        owner: &str,
        fact: Uuid,
        scope: &'static str,
        source: &str,
        supersedes: Option<Uuid>,
    ) -> Self {
        Self::now(
            owner,
            "fact_remembered",
            json!({"fact": fact, "scope": scope, "by": source, "supersedes": supersedes}),
        )
    }

    /// The texts of facts of `owner` were deleted.
    pub(crate) fn facts_forgotten(owner: &str, by: &str, facts: &[Uuid]) -> Self {
        Self::now(owner, "facts_forgotten", json!({"facts": facts, "by": by}))
    }

    /// Texts of older rows were redacted; each row has its number and the digest of its tombstone.
    pub(crate) fn texts_redacted(tombstones: &[(i64, String)]) -> Self {
        Self::now("", SEAL, seal_members(tombstones))
    }

    /// Texts were taken out of events of a run's record; each event has its number and the digest of its line.
    pub(crate) fn record_redacted(
        run: Uuid,
        of: &[RemovedSource],
        lines: &[(u64, String)],
    ) -> Self {
        Self::now("", RECORD_REDACTED, redacted_record(run, of, lines))
    }

    /// Entries at the begin of the log were deleted, because they were old.
    pub(crate) fn entries_expired(by: PrunedBy, range: ExpiredRange<'_>) -> Self {
        Self::now("", EXPIRED, by.added_to(range.members()))
    }

    /// Puts salted digests in the place of texts, in the row of a call of memory.
    pub(crate) fn without_texts(self) -> Self {
        let is_call = self.action == "call";
        if is_call && self.tool.as_deref().is_some_and(is_of_memory) {
            self.with_salted_texts()
        } else {
            self
        }
    }

    /// Puts salted digests in the place of its texts.
    pub(super) fn with_salted_texts(mut self) -> Self {
        self.salt = salt_call(&mut self.details).or(self.salt);
        self
    }

    /// Puts salted digests in the place of these members.
    pub(super) fn salting(mut self, names: &[&str]) -> Self {
        if !names.is_empty() {
            self.salt = salt_members(&mut self.details, names);
        }
        self
    }

    pub(crate) fn at_ms(&self) -> i64 {
        self.at_ms
    }

    fn now(owner: &str, action: &'static str, details: Value) -> Self {
        let details = match details {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        Self {
            at_ms: signed(now_ms()),
            owner: logged_owner(owner),
            action: action.into(),
            source: None,
            tool: None,
            details: canonical(details),
            salt: None,
        }
    }

    /// The entry as canonical JSON: no spaces, members sorted by name.
    pub(super) fn entry(&self, number: i64) -> Result<String, serde_json::Error> {
        let details = self.details.iter();
        let mut entry: BTreeMap<&str, Member<'_>> = details
            .map(|(name, value)| (name.as_str(), Member::Value(value)))
            .collect();
        entry.insert("number", Member::Number(number));
        entry.insert("at_ms", Member::Number(self.at_ms));
        entry.insert("owner", Member::Text(&self.owner));
        entry.insert("action", Member::Text(&self.action));
        if let Some((run, seq)) = self.source {
            entry.insert("run", Member::Run(run));
            entry.insert("seq", Member::Number(seq));
        }
        if let Some(tool) = &self.tool {
            entry.insert("tool", Member::Text(tool));
        }
        serde_json::to_string(&entry)
    }
}

/// A collection as the log names it: names are unique among an owner's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CollectionName<'a> {
    pub owner: &'a str,
    pub name: &'a str,
}

fn told(collection: CollectionName<'_>) -> Value {
    json!({"collection": collection.name, "collection_owner": logged_owner(collection.owner)})
}

fn of_document(collection: CollectionName<'_>, document: Uuid, source: &str) -> Value {
    let mut details = told(collection);
    details["document"] = document.to_string().into();
    details["source"] = source.into();
    details
}

/// A member of the entry.
#[derive(Serialize)]
#[serde(untagged)]
enum Member<'a> {
    Number(i64),
    Text(&'a str),
    Run(Uuid),
    Value(&'a Value),
}

/// Sorts the members of all objects by name.
pub(super) fn canonical(members: Map<String, Value>) -> BTreeMap<String, Value> {
    let members = members.into_iter().map(|(name, mut value)| {
        value.sort_all_objects();
        (name, value)
    });
    members.collect()
}

/// The owner as the log names it: a key, or the user of this machine's terminal. Names of keys have no colon.
pub(super) fn logged_owner(owner: &str) -> String {
    if owner.is_empty() {
        format!("uid:{}", rustix::process::getuid().as_raw())
    } else {
        owner.to_owned()
    }
}

/// A tool's name, which may be a model's invention, as the log can hold it: PostgreSQL's text type refuses NUL
/// characters, and its indexes refuse long texts.
pub(super) fn tool_name(tool: &str) -> String {
    tool.chars()
        .filter(|c| *c != '\0')
        .take(MAX_NAME_CHARS)
        .collect()
}
