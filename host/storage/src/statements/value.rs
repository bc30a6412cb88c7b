//! Values of statements, and rows of their answers, in types that both ways to a database have.

use rusqlite::ToSql;
use rusqlite::types::ToSqlOutput;
use sqlx::FromRow;
use sqlx::any::AnyRow;
use std::borrow::Cow;
use uuid::Uuid;

/// A value of a statement.
#[derive(Debug)]
pub enum SqlValue<'v> {
    /// An integer, or NULL.
    Number(Option<i64>),
    /// A text, or NULL.
    Text(Option<Cow<'v, str>>),
    /// Bytes, or NULL.
    Bytes(Option<Vec<u8>>),
}

impl From<i64> for SqlValue<'_> {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<Option<i64>> for SqlValue<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}

impl<'v> From<&'v str> for SqlValue<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl<'v> From<&'v String> for SqlValue<'v> {
    fn from(text: &'v String) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl From<String> for SqlValue<'_> {
    fn from(text: String) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl<'v> From<Option<&'v str>> for SqlValue<'v> {
    fn from(text: Option<&'v str>) -> Self {
        Self::Text(text.map(Cow::from))
    }
}

impl From<Option<String>> for SqlValue<'_> {
    fn from(text: Option<String>) -> Self {
        Self::Text(text.map(Cow::from))
    }
}

impl From<Uuid> for SqlValue<'_> {
    fn from(id: Uuid) -> Self {
        id.to_string().into()
    }
}

impl From<Option<Vec<u8>>> for SqlValue<'_> {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        Self::Bytes(bytes)
    }
}

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Number(number) => number.to_sql(),
            Self::Text(text) => text.to_sql(),
            Self::Bytes(bytes) => bytes.to_sql(),
        }
    }
}

/// The columns of a row, as a tuple.
pub trait Columns:
    for<'r> FromRow<'r, AnyRow>
    + for<'r> TryFrom<&'r rusqlite::Row<'r>, Error = rusqlite::Error>
    + Send
    + Unpin
{
}

impl<T> Columns for T where
    T: for<'r> FromRow<'r, AnyRow>
        + for<'r> TryFrom<&'r rusqlite::Row<'r>, Error = rusqlite::Error>
        + Send
        + Unpin
{
}
