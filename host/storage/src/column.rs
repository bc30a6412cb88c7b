//! Columns of rows: SQL has neither unsigned integers nor, on SQLite, UUIDs.

use sqlx::Row as _;
use sqlx::any::AnyRow;
use uuid::Uuid;

/// An unsigned number as a column holds it; larger ones are cut to the largest.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A UUID that is stored as text.
pub fn id(row: &AnyRow, column: &str) -> Result<Uuid, sqlx::Error> {
    let text: String = row.try_get(column)?;
    parsed_id(&text)
}

/// A UUID that was read as text.
pub fn parsed_id(text: &str) -> Result<Uuid, sqlx::Error> {
    Uuid::parse_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// UUIDs that are the only column of rows.
pub fn ids(rows: &[(String,)]) -> Result<Vec<Uuid>, sqlx::Error> {
    rows.iter().map(|(text,)| parsed_id(text)).collect()
}

/// An unsigned number; 0 for a negative value, which is never stored.
pub fn unsigned(row: &AnyRow, column: &str) -> Result<u64, sqlx::Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or_default())
}

/// True if a stored text can be `text`: PostgreSQL's text type refuses NUL, so no text with one is stored, and a query for
/// one is answered without the database.
pub fn is_storable(text: &str) -> bool {
    !text.contains('\0')
}
