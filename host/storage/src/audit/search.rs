//! Entries of the audit log, found and read in pages.

use crate::storage::Store;
use crate::storage::database::InTime as _;
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
    /// Somewhere in the entry, whatever the case of its ASCII letters; on PostgreSQL, of all letters.
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

impl Store {
    /// At most so many entries.
    pub async fn audited(
        &self,
        filter: &Filter,
        order: Order,
        most: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let (statement, values) = statement(filter, order);
        let query = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(i64::from(most));
        let query = values.into_iter().fold(query, |query, value| match value {
            Value::Number(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
        });
        let rows = query.fetch_all(&self.pool).in_time(&self.database).await?;
        let entries: Result<_, sqlx::Error> = rows.iter().map(entry).collect();
        Ok(entries?)
    }
}

#[derive(Debug, Clone)]
pub(in crate::storage) enum Value {
    Number(i64),
    Text(String),
}

/// With those conditions only that are given, so that the database can use its indexes; and the values from
/// $2 on.
pub(in crate::storage) fn statement(filter: &Filter, order: Order) -> (String, Vec<Value>) {
    let time = |ms: &Option<u64>| ms.map(|ms| Value::Number(i64::try_from(ms).unwrap_or(i64::MAX)));
    let text = |text: &Option<String>| text.clone().filter(|it| !it.is_empty()).map(Value::Text);
    let (beyond, sorted, number) = match order {
        Order::After(number) => ("number > ", "number", number),
        Order::Before(number) => ("number < ", "number DESC", number),
    };
    let given = [
        (beyond, Some(Value::Number(number)), ""),
        ("at_ms >= ", time(&filter.since_ms), ""),
        ("at_ms <= ", time(&filter.until_ms), ""),
        ("tool = ", text(&filter.tool), ""),
        ("owner = ", text(&filter.owner), ""),
        (
            "run = ",
            filter.run.map(|run| Value::Text(run.to_string())),
            "",
        ),
        // Both sides by the same function: SQLite's knows only ASCII.
        (
            "LOWER(entry) LIKE LOWER(",
            filter
                .text
                .as_deref()
                .map(|text| Value::Text(pattern(text))),
            ") ESCAPE '!'",
        ),
    ];
    let given = given
        .into_iter()
        .filter_map(|(before, value, after)| Some((before, value?, after)));
    let (mut conditions, mut values) = (Vec::new(), Vec::new());
    for (before, value, after) in given {
        conditions.push(format!("{before}${}{after}", values.len() + 2));
        values.push(value);
    }
    let statement = format!(
        "SELECT number, entry, hash FROM audit WHERE {} ORDER BY {sorted} LIMIT $1",
        conditions.join(" AND ")
    );
    (statement, values)
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
    let written = serde_json::Value::from(text).to_string();
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
