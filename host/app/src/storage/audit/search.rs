//! Entries of the audit log, found and read in pages.

use crate::storage::Store;
use crate::storage::error::StoreError;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use uuid::Uuid;

/// One row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub number: i64,
    /// Canonical JSON.
    pub text: String,
    pub hash: String,
}

/// Which entries. What is absent does not matter.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Milliseconds since 1970, both included.
    pub since_ms: Option<u64>,
    pub until_ms: Option<u64>,
    pub tool: Option<String>,
    pub owner: Option<String>,
    pub run: Option<Uuid>,
    /// Somewhere in the entry, whatever its case.
    pub text: Option<String>,
}

/// Where a page begins, and in which order it goes on.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// The oldest first, after this number.
    After(i64),
    /// The newest first, before this number.
    Before(i64),
}

const FROM: &str = "SELECT number, entry, hash FROM audit WHERE at_ms >= $1 AND at_ms <= $2 \
     AND ($3 = '' OR tool = $3) AND ($4 = '' OR owner = $4) AND ($5 = '' OR run = $5) \
     AND ($6 = '' OR LOWER(entry) LIKE $6 ESCAPE '!')";

impl Store {
    /// At most so many entries.
    pub async fn audited(
        &self,
        filter: &Filter,
        order: Order,
        most: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let (which, number) = match order {
            Order::After(number) => ("number > $7 ORDER BY number", number),
            Order::Before(number) => ("number < $7 ORDER BY number DESC", number),
        };
        // Made of what is in this program only.
        let statement = sqlx::AssertSqlSafe(format!("{FROM} AND {which} LIMIT $8"));
        let time = |ms: Option<u64>, default| {
            ms.map_or(default, |ms| i64::try_from(ms).unwrap_or(i64::MAX))
        };
        let rows = sqlx::query(statement)
            .bind(time(filter.since_ms, 0))
            .bind(time(filter.until_ms, i64::MAX))
            .bind(filter.tool.clone().unwrap_or_default())
            .bind(filter.owner.clone().unwrap_or_default())
            .bind(filter.run.map_or(String::new(), |run| run.to_string()))
            .bind(filter.text.as_deref().map_or(String::new(), pattern))
            .bind(number)
            .bind(i64::from(most))
            .fetch_all(&self.pool)
            .await?;
        let entries: Result<_, sqlx::Error> = rows.iter().map(entry).collect();
        Ok(entries?)
    }
}

fn entry(row: &AnyRow) -> Result<Entry, sqlx::Error> {
    Ok(Entry {
        number: row.try_get("number")?,
        text: row.try_get("entry")?,
        hash: row.try_get("hash")?,
    })
}

/// For LIKE: the text as JSON writes it, anywhere.
fn pattern(text: &str) -> String {
    let written = serde_json::Value::from(text.to_lowercase()).to_string();
    let inner = written.get(1..written.len() - 1).unwrap_or_default();
    let mut pattern = String::from("%");
    for c in inner.chars() {
        if matches!(c, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}
