//! Search in the audit log, page by page.

use crate::column::is_storable;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use uuid::Uuid;

/// One row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// 1, 2, 3… without gaps, from the oldest entry on that was not deleted.
    pub number: i64,
    /// Canonical JSON.
    pub text: String,
    /// Covers this row and all before, in hex.
    pub hash: String,
}

/// Conditions for entries. An absent field matches all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Earliest time, included: milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Latest time, included.
    pub until_ms: Option<u64>,
    /// The tool that was called.
    pub tool: Option<String>,
    /// Name of the API key, or the user of this machine.
    pub owner: Option<String>,
    /// The run that the entry follows from.
    pub run: Option<Uuid>,
    /// A part of the entry's JSON; the case of ASCII letters does not matter.
    pub text: Option<String>,
}

/// Begin and order of a page.
#[derive(Debug, Clone, Copy)]
pub enum PageStart {
    /// The oldest first, after this number.
    After(i64),
    /// The newest first, before this number.
    Before(i64),
}

impl Store {
    /// At most `most` entries that match `filter`.
    pub async fn audited(
        &self,
        filter: &Filter,
        order: PageStart,
        most: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut names = filter.tool.iter().chain(&filter.owner);
        if !names.all(|name| is_storable(name)) {
            return Ok(Vec::new());
        }
        let (statement, values) = statement(filter, order, self.database.is_file());
        let query = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(i64::from(most));
        let query = values.into_iter().fold(query, |query, value| match value {
            BoundValue::Number(number) => query.bind(number),
            BoundValue::Text(text) => query.bind(text),
        });
        let rows = query.fetch_all(&self.pool).in_time(&self.database).await?;
        let entries: Result<_, sqlx::Error> = rows.iter().map(entry).collect();
        Ok(entries?)
    }
}

/// A value that a statement binds.
#[derive(Debug, Clone)]
pub enum BoundValue {
    Number(i64),
    Text(String),
}

/// The statement with only those conditions that are set, so that the database can use its indexes; and the values
/// to bind from $2 on.
pub fn statement(filter: &Filter, order: PageStart, is_file: bool) -> (String, Vec<BoundValue>) {
    let time =
        |ms: &Option<u64>| ms.map(|ms| BoundValue::Number(i64::try_from(ms).unwrap_or(i64::MAX)));
    let text = |text: &Option<String>| {
        text.clone()
            .filter(|it| !it.is_empty())
            .map(BoundValue::Text)
    };
    let (beyond, sorted, number) = match order {
        PageStart::After(number) => ("number > ", "number", number),
        PageStart::Before(number) => ("number < ", "number DESC", number),
    };
    let given = [
        (beyond, Some(BoundValue::Number(number)), ""),
        ("at_ms >= ", time(&filter.since_ms), ""),
        ("at_ms <= ", time(&filter.until_ms), ""),
        ("tool = ", text(&filter.tool), ""),
        ("owner = ", text(&filter.owner), ""),
        (
            "run = ",
            filter.run.map(|run| BoundValue::Text(run.to_string())),
            "",
        ),
        // LOWER on both sides, because SQLite's knows only ASCII. PostgreSQL's does so with the collation "C".
        (
            if is_file {
                "LOWER(entry) LIKE LOWER("
            } else {
                "LOWER(entry COLLATE \"C\") LIKE LOWER(CAST("
            },
            filter
                .text
                .as_deref()
                .map(|text| BoundValue::Text(pattern(text))),
            if is_file {
                ") ESCAPE '!'"
            } else {
                " AS TEXT) COLLATE \"C\") ESCAPE '!'"
            },
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
    let conditions = conditions.join(" AND ");
    let times = usize::from(filter.since_ms.is_some()) + usize::from(filter.until_ms.is_some());
    let is_by_time = times > 0 && values.len() == 1 + times;
    let statement = if is_by_time {
        // The index by time has the numbers, so that no entry is read but those of the page. Without `+ 0` the databases
        // may read all entries in the order of their numbers instead.
        let numbers = conditions.replacen("number", "number + 0", 1);
        format!(
            "SELECT number, entry, hash FROM audit WHERE number IN (SELECT number FROM audit WHERE {numbers} \
             ORDER BY {} LIMIT $1) ORDER BY {sorted}",
            sorted.replacen("number", "number + 0", 1)
        )
    } else {
        format!(
            "SELECT number, entry, hash FROM audit WHERE {conditions} ORDER BY {sorted} LIMIT $1"
        )
    };
    (statement, values)
}

fn entry(row: &AnyRow) -> Result<Entry, sqlx::Error> {
    Ok(Entry {
        number: row.try_get("number")?,
        text: row.try_get("entry")?,
        hash: row.try_get("hash")?,
    })
}

/// The pattern for LIKE that finds `text`, escaped as in JSON, anywhere.
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
