//! Memory: facts that outlive a run.
//!
//! A fact is never changed: another takes its place, and what was replaced is history that is not found any more. To
//! forget deletes texts; what stays of a forgotten fact says when that was. Each change is one transaction.

use crate::audit_rows::{self, Draft};
use crate::column::{id, ids, parsed_id, signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::shown_texts;
use crate::statements::{OpenTransaction, SqlValue};
use crate::store::Store;
use crate::time::now_ms;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use uuid::Uuid;

/// For whom a fact is kept, of one owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FactScope {
    /// For the turns of a session, by its id. Deleted with it.
    Session(String),
    /// For all that the owner runs.
    User,
    /// For the runs of an agent, by its name.
    Agent(String),
}

impl FactScope {
    /// As the column `scope` holds it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Session(_) => "session",
            Self::User => "user",
            Self::Agent(_) => "agent",
        }
    }

    /// The session, or the agent; empty for [`Self::User`].
    pub fn subject(&self) -> &str {
        match self {
            Self::Session(subject) | Self::Agent(subject) => subject,
            Self::User => "",
        }
    }
}

/// A fact, or what is left of one that was forgotten.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// A UUIDv7.
    pub id: Uuid,
    pub scope: FactScope,
    /// The first fact of those that took each other's place.
    pub chain: Uuid,
    /// Empty when it was forgotten.
    pub text: String,
    /// Who wrote it: a call, a run or a person.
    pub source: String,
    /// How sure its writer was: 0 to 1.
    pub confidence: f64,
    /// Milliseconds since 1970 (UTC).
    pub created_ms: u64,
    /// When it was superseded or forgotten.
    pub ended_ms: Option<u64>,
    /// The fact that took its place.
    pub superseded_by: Option<Uuid>,
    /// When its text was deleted.
    pub forgotten_ms: Option<u64>,
}

/// A fact that is to be kept.
#[derive(Debug, Clone)]
pub struct NewFact<'a> {
    pub scope: &'a FactScope,
    pub text: &'a str,
    pub source: &'a str,
    /// 0 to 1.
    pub confidence: f64,
    /// The fact of the same scope whose place it takes.
    pub supersedes: Option<Uuid>,
}

/// What an owner's facts may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactQuota {
    /// Facts with their history.
    pub facts: u64,
    /// Bytes of a fact's text.
    pub bytes: usize,
}

impl Default for FactQuota {
    fn default() -> Self {
        Self {
            facts: 10_000,
            bytes: 2 << 10,
        }
    }
}

/// How much is forgotten with a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgetExtent {
    /// It alone: what it took the place of stays as history.
    Fact,
    /// All of its chain, older and newer.
    Chain,
}

/// What was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenFacts {
    pub facts: Vec<Uuid>,
    /// Whether SQLite's write-ahead log still holds the texts, because somebody reads an older state of the database.
    pub is_in_log: bool,
}

/// A fact was not kept.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("a fact has 1 to {most} bytes, and this one has {has}")]
    Length { has: usize, most: usize },
    #[error("there are {most} facts with their history, and no more are kept: forget some first")]
    Full { most: u64 },
    /// There is no such fact in this scope, or it was forgotten.
    #[error("there is no fact {fact} in this scope that could be superseded")]
    Unknown { fact: Uuid },
    /// Another writer was faster.
    #[error("the fact {fact} was superseded by {by}: read that one first")]
    Superseded { fact: Uuid, by: Uuid },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for MemoryError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

const COLUMNS: &str = "id, scope, subject, chain, text, source, confidence, created_ms, ended_ms, superseded_by, \
     forgotten_ms";
/// What is kept of forgotten facts of an owner: the newest.
const FORGOTTEN_ROWS: i64 = 1_000;
/// Bytes of a fact's source.
const MAX_SOURCE_BYTES: usize = 200;

impl Store {
    /// Keeps a fact of `owner`, in the place of the one that it supersedes.
    ///
    /// # Errors
    /// It is too long, the owner has too many, what it supersedes is not there any more, or the database failed. Nothing
    /// was changed then, unless the reply to the commit was lost.
    pub async fn remember(
        &self,
        owner: &str,
        new: NewFact<'_>,
        quota: FactQuota,
    ) -> Result<Fact, MemoryError> {
        // PostgreSQL's text type refuses NUL characters.
        let text = new.text.replace('\0', " ");
        if text.trim().is_empty() || text.len() > quota.bytes {
            return Err(MemoryError::Length {
                has: text.len(),
                most: quota.bytes,
            });
        }
        let mut source = new.source.replace('\0', "");
        source.truncate(source.floor_char_boundary(MAX_SOURCE_BYTES));
        let (owner, scope) = (owner.to_owned(), new.scope.clone());
        let (confidence, supersedes) = (thousandths(new.confidence), new.supersedes);
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                let facts = count(&mut transaction, &owner, 1).await?;
                if facts > quota.facts {
                    return Err(MemoryError::Full { most: quota.facts });
                }
                let id = Uuid::now_v7();
                let mut fact = Fact {
                    id,
                    scope,
                    chain: id,
                    text,
                    source,
                    confidence,
                    created_ms: now_ms(),
                    ended_ms: None,
                    superseded_by: None,
                    forgotten_ms: None,
                };
                if let Some(old) = supersedes {
                    fact.chain = supersede(&mut transaction, &owner, &fact, old).await?;
                }
                insert(&mut transaction, &owner, &fact).await?;
                let (scope, source) = (fact.scope.name(), &fact.source);
                let draft = Draft::fact_remembered(&owner, fact.id, scope, source, supersedes);
                audit_rows::append(transaction, &[&draft]).await?;
                Ok(fact)
            })
        });
        work.await
    }

    /// A fact of `owner`, whether it is found or not.
    pub async fn fact(&self, owner: &str, fact: Uuid) -> Result<Option<Fact>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM facts WHERE owner = $1 AND id = $2"
        )))
        .bind(owner)
        .bind(fact.to_string())
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(row.as_ref().map(self::fact).transpose()?)
    }

    /// The facts that took each other's place, of which `fact` of `owner` is one; oldest first, at most `most`.
    pub async fn fact_history(
        &self,
        owner: &str,
        fact: Uuid,
        most: u32,
    ) -> Result<Vec<Fact>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM facts WHERE owner = $1 \
             AND chain = (SELECT chain FROM facts WHERE owner = $1 AND id = $2) ORDER BY id LIMIT $3"
        )))
        .bind(owner)
        .bind(fact.to_string())
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        facts(&rows)
    }

    /// The facts of `owner` that are found in a scope, or in all of them, and are older than `before`; newest first.
    pub async fn facts(
        &self,
        owner: &str,
        scope: Option<&FactScope>,
        before: Option<Uuid>,
        most: u32,
    ) -> Result<Vec<Fact>, StoreError> {
        let condition = match scope {
            Some(_) => "AND scope = $4 AND subject = $5",
            None => "",
        };
        let statement = format!(
            "SELECT {COLUMNS} FROM facts WHERE owner = $1 AND ended_ms IS NULL AND id < $2 {condition} \
             ORDER BY id DESC LIMIT $3"
        );
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(owner)
            .bind(before.unwrap_or(Uuid::max()).to_string())
            .bind(i64::from(most));
        if let Some(scope) = scope {
            query = query.bind(scope.name()).bind(scope.subject());
        }
        let rows = query.fetch_all(&self.pool).in_time(&self.database).await?;
        facts(&rows)
    }

    /// Deletes the text of a fact of `owner`, on behalf of `by`, whether it is found or is history. `None` if there is
    /// no such fact.
    pub async fn forget(
        &self,
        owner: &str,
        fact: Uuid,
        extent: ForgetExtent,
        by: &str,
    ) -> Result<Option<ForgottenFacts>, StoreError> {
        let statement = match extent {
            ForgetExtent::Fact => FORGET_FACT,
            ForgetExtent::Chain => FORGET_CHAIN,
        };
        let (owner, by) = (owner.to_owned(), by.to_owned());
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                count(&mut transaction, &owner, 0).await?;
                let values = [(&owner).into(), fact.into(), signed(now_ms()).into()];
                let rows: Vec<(String,)> = transaction.rows(statement, &values).await?;
                let forgotten = ids(&rows)?;
                if forgotten.is_empty() {
                    return Ok(None);
                }
                let less = -signed(forgotten.len() as u64);
                count(&mut transaction, &owner, less).await?;
                let values = [(&owner).into(), FORGOTTEN_ROWS.into()];
                transaction.execute(DROP_OLDER, &values).await?;
                shown_texts::facts_forgotten(&mut transaction, &forgotten).await?;
                let draft = Draft::facts_forgotten(&owner, &by, &forgotten);
                audit_rows::append(transaction, &[&draft]).await?;
                Ok::<_, StoreError>(Some(forgotten))
            })
        });
        let Some(facts) = work.await? else {
            return Ok(None);
        };
        Ok(Some(ForgottenFacts {
            facts,
            is_in_log: self.database.is_file() && !self.empty_log().await?,
        }))
    }
}

const FORGET_FACT: &str = "UPDATE facts SET text = '', ended_ms = COALESCE(ended_ms, $3), forgotten_ms = $3 \
     WHERE owner = $1 AND id = $2 AND forgotten_ms IS NULL RETURNING id";
const FORGET_CHAIN: &str = "UPDATE facts SET text = '', ended_ms = COALESCE(ended_ms, $3), forgotten_ms = $3 \
     WHERE owner = $1 AND chain = (SELECT chain FROM facts WHERE owner = $1 AND id = $2) AND forgotten_ms IS NULL \
     RETURNING id";
const DROP_OLDER: &str = "DELETE FROM facts WHERE owner = $1 AND forgotten_ms IS NOT NULL AND id NOT IN \
     (SELECT id FROM facts WHERE owner = $1 AND forgotten_ms IS NOT NULL ORDER BY forgotten_ms DESC, id DESC LIMIT $2)";

/// Deletes what was kept for a session that is deleted.
pub(crate) async fn delete_facts_of_session(
    transaction: &mut OpenTransaction<'_>,
    session: Uuid,
) -> Result<(), sqlx::Error> {
    let rows: Vec<(String, i64)> = transaction
        .rows(DELETE_OF_SESSION, &[session.into()])
        .await?;
    let mut kept = std::collections::BTreeMap::<String, i64>::new();
    for (owner, facts) in rows {
        *kept.entry(owner).or_default() += facts;
    }
    for (owner, facts) in kept {
        count(&mut *transaction, &owner, -facts).await?;
    }
    Ok(())
}

/// Changes how many facts the owner has, and holds the owner's row until the transaction ends.
async fn count<'c>(
    transaction: impl Into<OpenTransaction<'c>>,
    owner: &str,
    more: i64,
) -> Result<u64, sqlx::Error> {
    let mut transaction = transaction.into();
    let counted: Option<(i64,)> = transaction.row(COUNT, &[owner.into(), more.into()]).await?;
    let (facts,) = counted.ok_or(sqlx::Error::RowNotFound)?;
    Ok(u64::try_from(facts).unwrap_or_default())
}

const DELETE_OF_SESSION: &str = "DELETE FROM facts WHERE scope = 'session' AND subject = $1 \
     RETURNING owner, CASE WHEN forgotten_ms IS NULL THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END AS kept";
const COUNT: &str = "INSERT INTO fact_owners (owner, facts) VALUES ($1, $2) \
     ON CONFLICT (owner) DO UPDATE SET facts = fact_owners.facts + $2 RETURNING facts";

/// Ends the fact `old` by `new`, of the same scope. Returns its chain.
async fn supersede(
    transaction: &mut OpenTransaction<'_>,
    owner: &str,
    new: &Fact,
    old: Uuid,
) -> Result<Uuid, MemoryError> {
    let (scope, subject) = (new.scope.name(), new.scope.subject());
    let values = [
        SqlValue::from(signed(new.created_ms)),
        new.id.into(),
        owner.into(),
        old.into(),
        scope.into(),
        subject.into(),
    ];
    let ended: Option<(String,)> = transaction.row(SUPERSEDE, &values).await?;
    if let Some((chain,)) = ended {
        return Ok(parsed_id(&chain)?);
    }
    let values = [
        SqlValue::from(owner),
        old.into(),
        scope.into(),
        subject.into(),
    ];
    let other: Option<(String,)> = transaction.row(SUCCESSOR, &values).await?;
    Err(match other {
        Some((by,)) => MemoryError::Superseded {
            fact: old,
            by: parsed_id(&by)?,
        },
        None => MemoryError::Unknown { fact: old },
    })
}

const SUPERSEDE: &str = "UPDATE facts SET ended_ms = $1, superseded_by = $2 WHERE owner = $3 AND id = $4 AND scope = $5 \
     AND subject = $6 AND ended_ms IS NULL RETURNING chain";
const SUCCESSOR: &str = "SELECT superseded_by FROM facts WHERE owner = $1 AND id = $2 AND scope = $3 AND subject = $4 \
     AND forgotten_ms IS NULL AND superseded_by IS NOT NULL";
const INSERT: &str = "INSERT INTO facts (id, owner, scope, subject, chain, text, source, confidence, created_ms) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

async fn insert(
    transaction: &mut OpenTransaction<'_>,
    owner: &str,
    fact: &Fact,
) -> Result<(), sqlx::Error> {
    let values = [
        SqlValue::from(fact.id),
        owner.into(),
        fact.scope.name().into(),
        fact.scope.subject().into(),
        fact.chain.into(),
        (&fact.text).into(),
        (&fact.source).into(),
        in_thousandths(fact.confidence).into(),
        signed(fact.created_ms).into(),
    ];
    transaction.execute(INSERT, &values).await?;
    Ok(())
}

fn facts(rows: &[AnyRow]) -> Result<Vec<Fact>, StoreError> {
    let facts: Result<_, sqlx::Error> = rows.iter().map(fact).collect();
    Ok(facts?)
}

fn fact(row: &AnyRow) -> Result<Fact, sqlx::Error> {
    let subject: String = row.try_get("subject")?;
    let scope: String = row.try_get("scope")?;
    let scope = match scope.as_str() {
        "session" => FactScope::Session(subject),
        "agent" => FactScope::Agent(subject),
        _ => FactScope::User,
    };
    let time = |column| {
        let ms: Option<i64> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(ms.and_then(|ms| u64::try_from(ms).ok()))
    };
    let successor: Option<String> = row.try_get("superseded_by")?;
    let confidence = u16::try_from(row.try_get::<i64, _>("confidence")?).unwrap_or_default();
    Ok(Fact {
        id: id(row, "id")?,
        scope,
        chain: id(row, "chain")?,
        text: row.try_get("text")?,
        source: row.try_get("source")?,
        confidence: f64::from(confidence) / 1_000.0,
        created_ms: unsigned(row, "created_ms")?,
        ended_ms: time("ended_ms")?,
        superseded_by: successor.and_then(|id| id.parse().ok()),
        forgotten_ms: time("forgotten_ms")?,
    })
}

/// As it comes back from the database.
fn thousandths(confidence: f64) -> f64 {
    let thousandths = u16::try_from(in_thousandths(confidence)).unwrap_or_default();
    f64::from(thousandths) / 1_000.0
}

/// What is no number counts as 0.
#[expect(clippy::cast_possible_truncation, reason = "it is between 0 and 1,000")]
fn in_thousandths(confidence: f64) -> i64 {
    (confidence.clamp(0.0, 1.0) * 1_000.0).round() as i64
}
