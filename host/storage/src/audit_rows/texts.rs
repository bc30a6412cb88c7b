//! Texts of memory: what calls of its tools are given and return stands in no row of the log.
//!
//! A fact that is forgotten must be gone. So the rows of these calls have salted digests in the place of texts, and rows
//! of versions that kept the texts are redacted: a tombstone keeps the row's hash, and a later row, the seal, has a
//! digest of each tombstone.

use super::call::REASON;
use super::{digest, link};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The tools of the module `knowledge` that take or return facts.
pub const MEMORY_TOOLS: [&str; 3] = ["knowledge.remember", "knowledge.recall", "knowledge.forget"];
/// The action of a seal.
pub const SEAL: &str = "texts_redacted";
/// The member of a seal with the redacted entries, each as its number and digest.
pub const SEALED: &str = "entries";

/// The member that says what stands in the place of a row's texts.
const TEXTS: &str = "texts";
/// Value of [`TEXTS`]: salted digests.
const SALTED: &str = "salted";
/// Value of [`TEXTS`]: nothing.
const REDACTED: &str = "redacted";
/// The member with the arguments of a call.
const ARGUMENTS: &str = "arguments";
/// The member with the digest of what a call returned, or of the text of its error.
const RESULT_DIGEST: &str = "result_digest";
/// The members with a call's result and with the text of its error. [`RESULT_DIGEST`] has the digest of either.
const OUTCOMES: [&str; 2] = ["result", "message"];
/// Random bytes of which a salt is made.
const SALT_BYTES: usize = 32;

/// Whether calls of this tool are of memory. The name may have a version: `knowledge@1.2.recall`.
pub fn is_of_memory(tool: &str) -> bool {
    let (module, own) = tool.rsplit_once('.').unwrap_or((tool, ""));
    let module = module.split('@').next().unwrap_or_default();
    let mut known = MEMORY_TOOLS
        .iter()
        .filter_map(|known| known.split_once('.'));
    known.any(|known| known == (module, own))
}

/// Puts salted digests in the place of the texts of a call of memory. Returns their salt. Members that have digests
/// already stay.
pub fn salt_call(details: &mut BTreeMap<String, Value>) -> Option<String> {
    if details.contains_key(TEXTS) {
        return None;
    }
    for name in OUTCOMES {
        details.remove(name);
    }
    let salt = salt_members(details, &[ARGUMENTS, REASON, RESULT_DIGEST]);
    let instead = if salt.is_some() { SALTED } else { REDACTED };
    details.insert(TEXTS.into(), instead.into());
    salt
}

/// Puts salted digests in the place of these members, and returns the salt. Without randomness the members are removed,
/// because a digest without a salt would prove a guess right.
pub fn salt_members(details: &mut BTreeMap<String, Value>, names: &[&str]) -> Option<String> {
    let mut random = [0_u8; SALT_BYTES];
    if getrandom::fill(&mut random).is_err() {
        for name in names {
            details.remove(*name);
        }
        return None;
    }
    let salt = digest(&random);
    for name in names {
        if let Some(value) = details.get_mut(*name) {
            *value = salted(&salt, value).into();
        }
    }
    Some(salt)
}

/// SHA-256, in hex, over the salt in hex, a line feed, and the value: the text of a string, or canonical JSON.
fn salted(salt: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => {
            let mut sorted = other.clone();
            sorted.sort_all_objects();
            sorted.to_string()
        }
    };
    digest(format!("{salt}\n{text}").as_bytes())
}

/// The tombstone of an entry that has texts of memory, as canonical JSON. `None` of an entry that has none.
pub fn tombstone(entry: &str) -> Option<String> {
    let mut members: BTreeMap<String, Value> = serde_json::from_str(entry).ok()?;
    if !is_call_of_memory(|name| members.get(name)) || members.contains_key(TEXTS) {
        return None;
    }
    for name in removed_members() {
        members.remove(name);
    }
    members.insert(TEXTS.into(), REDACTED.into());
    serde_json::to_string(&members).ok()
}

/// Whether an entry has the form of a tombstone.
pub fn is_tombstone(entry: &Value) -> bool {
    is_call_of_memory(|name| entry.get(name))
        && entry.get(TEXTS).and_then(Value::as_str) == Some(REDACTED)
        && removed_members().all(|name| entry.get(name).is_none())
}

/// The digest of a tombstone that a seal has. It covers the hash of the row, which the text does not lead to any more.
pub fn tombstone_digest(hash: &str, entry: &str) -> String {
    link(hash, entry)
}

/// The members of a seal for tombstones, each with its number and digest.
pub fn seal_members(tombstones: &[(i64, String)]) -> Value {
    json!({SEALED: tombstones})
}

/// The tombstones that a seal has: number and digest of each.
pub fn sealed(entry: &Value) -> impl Iterator<Item = (i64, &str)> {
    let is_seal = entry.get("action").and_then(Value::as_str) == Some(SEAL);
    let listed = entry.get(SEALED).filter(|_| is_seal);
    let listed = listed.and_then(Value::as_array).into_iter().flatten();
    listed.filter_map(|one| Some((one.get(0)?.as_i64()?, one.get(1)?.as_str()?)))
}

fn removed_members() -> impl Iterator<Item = &'static str> {
    [ARGUMENTS, REASON, RESULT_DIGEST]
        .into_iter()
        .chain(OUTCOMES)
}

fn is_call_of_memory<'e>(member: impl Fn(&str) -> Option<&'e Value>) -> bool {
    let is_call = member("action").and_then(Value::as_str) == Some("call");
    is_call
        && member("tool")
            .and_then(Value::as_str)
            .is_some_and(is_of_memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details() -> BTreeMap<String, Value> {
        BTreeMap::from([
            (
                "arguments".to_owned(),
                json!({"b": 1, "a": "Ann lives in Trier"}),
            ),
            ("reason".to_owned(), json!("Ann said so")),
            ("result".to_owned(), json!({"text": "Ann lives in Trier"})),
            ("result_digest".to_owned(), json!("ab12")),
            ("status".to_owned(), json!("ok")),
        ])
    }

    #[test]
    fn a_salted_row_has_no_text_and_each_row_another_digest() {
        let (mut one, mut other) = (details(), details());
        let salt = salt_call(&mut one).unwrap();
        salt_call(&mut other).unwrap();
        let text = json!(one).to_string();
        assert!(!text.contains("Ann") && !text.contains("ab12"), "{text}");
        assert_ne!(one["arguments"], other["arguments"]);
        // The order of members does not matter to who checks it.
        let given = json!({"a": "Ann lives in Trier", "b": 1});
        assert_eq!(one["arguments"], json!(salted(&salt, &given)));
        assert_eq!(one["result_digest"], json!(salted(&salt, &json!("ab12"))));
        let before = one.clone();
        assert_eq!(salt_call(&mut one), None);
        assert_eq!(one, before, "it has its digests already");
    }

    #[test]
    fn memory_is_known_by_every_version_of_its_module() {
        for (tool, expected) in [
            ("knowledge.remember", true),
            ("knowledge@1.2.recall", true),
            ("knowledge.search", false),
            ("probe.remember", false),
            ("remember", false),
        ] {
            assert_eq!(is_of_memory(tool), expected, "{tool}");
        }
    }

    #[test]
    fn a_tombstone_has_neither_texts_nor_digests_of_them() {
        let mut entry = details();
        entry.insert("action".into(), "call".into());
        entry.insert("tool".into(), "files.write".into());
        assert_eq!(tombstone(&json!(entry).to_string()), None);
        entry.insert("tool".into(), "knowledge.remember".into());
        let text = tombstone(&json!(entry).to_string()).unwrap();
        assert_eq!(
            text,
            r#"{"action":"call","status":"ok","texts":"redacted","tool":"knowledge.remember"}"#
        );
        assert!(is_tombstone(&serde_json::from_str(&text).unwrap()));
        assert_eq!(tombstone(&text), None);
    }
}
