//! Verification of the audit log.

use crate::audit_rows::{expired_until, is_tombstone, link, sealed, tombstone_digest};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use serde_json::Value;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::BTreeMap;
use thiserror::Error;

/// A fault of the audit log, and its place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AuditFault {
    #[error("entry {number} was changed: it is not what its hash was made of")]
    Changed { number: i64 },
    #[error("entries {from} to {to} are missing")]
    Removed { from: i64, to: i64 },
    #[error(
        "entry {number} holds what was written as entry {was}: entries were put in another order"
    )]
    Reordered { number: i64, was: i64 },
    #[error("entry {number} was inserted: the log ends with entry {head}")]
    Inserted { number: i64, head: i64 },
    #[error("entry {number} has lost its texts, and no later entry says that they were redacted")]
    NotRedacted { number: i64 },
    #[error("the log's head is gone, or there is more than one")]
    NoHead,
    #[error("the log's last hash is not the one that was written last")]
    OtherHead,
    #[error("the given hash is of no entry: the log was written anew, or cut off before it")]
    NotExpected,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Entries that were read.
    pub entries: u64,
    /// Entries whose texts were redacted, as later entries say.
    pub redacted: u64,
    /// The last entry of those that were deleted from the begin of the log, as a later entry says; 0 for none.
    pub expired_until: i64,
    /// Hash of the last entry; empty for an empty log. Kept elsewhere, it proves later that the log was not written
    /// anew.
    pub head: String,
    /// The first faults, at most `MAX_FAULTS`; a shuffled log has one for each entry.
    pub faults: Vec<AuditFault>,
}

/// Rows of one query.
const PAGE_ROWS: i64 = 512;
/// Faults of one verification.
const MAX_FAULTS: usize = 100;
/// Verifications from the first entry on, while others delete old ones.
const ATTEMPTS: u32 = 3;

impl Store {
    /// Reads and verifies the whole log. `expected` is an earlier value of [`Verified::head`], which must be in the log.
    ///
    /// # Errors
    /// The database failed, or others delete old entries all the time ([`StoreError::AuditMoves`]). Faults that were found
    /// then may be gaps that they made.
    pub async fn verify_audit(&self, expected: Option<&str>) -> Result<Verified, StoreError> {
        let mut attempts = 1;
        loop {
            let oldest = self.oldest_entry().await?;
            let verified = self.verify_once(expected).await?;
            // Entries that are deleted before they are read look like a gap.
            let is_still = verified.faults.is_empty() || self.oldest_entry().await? == oldest;
            if is_still {
                return Ok(verified);
            }
            if attempts >= ATTEMPTS {
                return Err(StoreError::AuditMoves);
            }
            attempts += 1;
        }
    }

    async fn oldest_entry(&self) -> Result<Option<i64>, sqlx::Error> {
        sqlx::query_scalar("SELECT MIN(number) FROM audit")
            .fetch_one(&self.pool)
            .in_time(&self.database)
            .await
    }

    async fn verify_once(&self, expected: Option<&str>) -> Result<Verified, StoreError> {
        let mut chain = ChainVerification {
            expected: expected.map(str::to_ascii_lowercase),
            ..ChainVerification::default()
        };
        let mut is_first = true;
        loop {
            let before = chain.number;
            self.take_rest(&mut chain).await?;
            // The head is read after the entries, so it is at least as new. If it is newer, more entries follow.
            let head = self.audit_head().await?;
            let has_more = head.as_ref().is_some_and(|(last, _)| *last > chain.number);
            if !has_more || !(is_first || chain.number > before) {
                chain.end(head.as_ref());
                break;
            }
            is_first = false;
        }
        Ok(Verified {
            entries: chain.entries,
            redacted: chain.redacted,
            expired_until: chain.expired_until,
            head: chain.hash,
            faults: chain.faults,
        })
    }

    async fn take_rest(&self, chain: &mut ChainVerification) -> Result<(), StoreError> {
        loop {
            let page = self.audit_page(chain.number).await?;
            for row in &page {
                chain.take(row)?;
            }
            if page.len() < PAGE_ROWS as usize {
                return Ok(());
            }
        }
    }

    async fn audit_head(&self) -> Result<Option<(i64, String)>, sqlx::Error> {
        let heads: Vec<(i64, String)> = sqlx::query_as("SELECT number, hash FROM audit_head")
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(<[_; 1]>::try_from(heads).ok().map(|[head]| head))
    }

    async fn audit_page(&self, after: i64) -> Result<Vec<AnyRow>, sqlx::Error> {
        sqlx::query(
            "SELECT number, at_ms, owner, action, run, seq, tool, entry, hash FROM audit WHERE number > $1 \
             ORDER BY number LIMIT $2",
        )
        .bind(after)
        .bind(PAGE_ROWS)
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await
    }
}

/// The state of a verification after the rows so far.
#[derive(Debug, Default)]
struct ChainVerification {
    number: i64,
    hash: String,
    entries: u64,
    redacted: u64,
    /// Tombstones of which no entry has told yet, by their numbers, each with its digest.
    tombstones: BTreeMap<i64, String>,
    expired_until: i64,
    /// The first entry, if it is not the entry 1, until a later one tells of those before.
    begin: Option<LaterBegin>,
    faults: Vec<AuditFault>,
    expected: Option<String>,
    /// The last row held the entry of another number, so its hash does not continue the chain.
    is_lost: bool,
}

/// The first entry of a log whose begin is missing.
#[derive(Debug)]
struct LaterBegin {
    number: i64,
    text: String,
    hash: String,
    /// Its columns are those of its text.
    agrees: bool,
    /// Its hash is not that of its text.
    is_tombstone: bool,
}

impl ChainVerification {
    fn take(&mut self, row: &AnyRow) -> Result<(), sqlx::Error> {
        let number: i64 = row.try_get("number")?;
        let (text, hash): (String, String) = (row.try_get("entry")?, row.try_get("hash")?);
        let entry: Value = serde_json::from_str(&text).unwrap_or_default();
        let agrees = agrees(row, &entry)?;
        let is_begin = self.entries == 0 && number > 1;
        if is_begin {
            self.begin = Some(LaterBegin {
                number,
                text: text.clone(),
                hash: hash.clone(),
                agrees,
                is_tombstone: is_tombstone(&entry),
            });
        } else if number > self.number + 1 {
            self.note(AuditFault::Removed {
                from: self.number + 1,
                to: number - 1,
            });
        }
        let follows = number == self.number + 1 && !self.is_lost;
        let was = entry.get("number").and_then(Value::as_i64);
        let is_whole = follows && agrees && link(&self.hash, &text) == hash;
        match was {
            Some(was) if was != number => self.note(AuditFault::Reordered { number, was }),
            Some(_) if is_whole => {
                self.take_seal(&entry);
                self.take_expiry(&entry);
            }
            // It may be all that is left, and then it tells of what was before itself.
            Some(_) if is_begin && agrees && expired_until(&entry).is_some() => {
                self.take_expiry(&entry);
            }
            Some(_) if agrees && is_tombstone(&entry) => {
                let digest = tombstone_digest(&hash, &text);
                self.tombstones.insert(number, digest);
            }
            // After a gap, or after a foreign entry, the previous hash is unknown.
            Some(_) if !follows => {}
            _ => self.note(AuditFault::Changed { number }),
        }
        if self.expected.as_deref() == Some(hash.as_str()) {
            self.expected = None;
        }
        self.is_lost = was != Some(number);
        (self.number, self.hash) = (number, hash);
        self.entries += 1;
        Ok(())
    }

    /// Accepts the tombstones that this entry tells of.
    fn take_seal(&mut self, entry: &Value) {
        for (number, digest) in sealed(entry) {
            if self.tombstones.get(&number).is_some_and(|of| of == digest) {
                self.tombstones.remove(&number);
                self.redacted += 1;
            }
        }
    }

    /// Accepts a missing begin that this entry tells of, if the first entry follows from the hash that it has.
    fn take_expiry(&mut self, entry: &Value) {
        let Some((until, hash)) = expired_until(entry) else {
            return;
        };
        let told = |begin: &mut LaterBegin| begin.number.checked_sub(1) == Some(until);
        let Some(begin) = self.begin.take_if(told) else {
            return;
        };
        let follows = begin.is_tombstone || link(hash, &begin.text) == begin.hash;
        if !(begin.agrees && follows) {
            let number = begin.number;
            self.note(AuditFault::Changed { number });
        }
        if self.expected.as_deref() == Some(hash) {
            self.expected = None;
        }
        self.expired_until = until;
    }

    fn note(&mut self, fault: AuditFault) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        }
    }

    fn end(&mut self, head: Option<&(i64, String)>) {
        if let Some(begin) = self.begin.take() {
            let removed = AuditFault::Removed {
                from: 1,
                to: begin.number - 1,
            };
            self.faults.insert(0, removed);
            self.faults.truncate(MAX_FAULTS);
        }
        for number in std::mem::take(&mut self.tombstones).into_keys() {
            self.note(AuditFault::NotRedacted { number });
        }
        match head {
            None => self.note(AuditFault::NoHead),
            Some((last, _)) if self.number < *last => self.note(AuditFault::Removed {
                from: self.number + 1,
                to: *last,
            }),
            Some((last, _)) if self.number > *last => {
                let is_behind = |fault: &AuditFault| {
                    matches!(fault, AuditFault::Changed { number } | AuditFault::NotRedacted { number }
                        if number > last)
                };
                self.faults.retain(|fault| !is_behind(fault));
                self.note(AuditFault::Inserted {
                    number: last + 1,
                    head: *last,
                });
            }
            Some((_, hash)) if *hash != self.hash => self.note(AuditFault::OtherHead),
            Some(_) => {}
        }
        if self.expected.is_some() {
            self.note(AuditFault::NotExpected);
        }
    }
}

/// Whether the columns agree with the entry: searches use the columns, and only the entry is sealed.
fn agrees(row: &AnyRow, entry: &Value) -> Result<bool, sqlx::Error> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| entry.get(name).and_then(Value::as_i64);
    // The columns `run` and `seq` name the event that an entry was made of. An entry of no event, such as that of a deleted
    // record, may have a run among its details.
    let run = number("seq").and_then(|_| text("run"));
    let texts = ["owner", "action", "tool"].map(|name| (name, text(name)));
    for (name, expected) in texts.into_iter().chain([("run", run)]) {
        let column: Option<String> = row.try_get(name)?;
        if column != expected {
            return Ok(false);
        }
    }
    for name in ["at_ms", "seq"] {
        let column: Option<i64> = row.try_get(name)?;
        if column != number(name) {
            return Ok(false);
        }
    }
    Ok(true)
}
