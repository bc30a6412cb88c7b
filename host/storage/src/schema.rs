//! The schema and its migrations.
//!
//! Version 1 is the schema of release 0.1.0. It evolves by migrations: each change of the schema is a new file
//! `schema/NNNN_name.sql`, or one for each database where they differ, with the next number, added to the list below. A
//! file that was released never changes, because every database stores the checksums of the migrations that made it,
//! and refuses to open if one differs ([`StoreError::Version`](crate::StoreError::Version)). A database of a newer
//! Toolhold is refused, too ([`StoreError::Newer`](crate::StoreError::Newer)). Migrations run when the store opens,
//! each in a transaction, and there are no downgrades. From number 10 on, a migration locks at most one table that
//! exists already: servers that write meanwhile lock several, in an order of their own, and would be in a deadlock with
//! one that locks more. Numbers 20 and 21 drop tables and lock `runs` before them, which servers lock first. Databases
//! that older versions made are in `tests/fixtures/older_state`; a new migration adds one from before it.
//!
//! The events in `events.line` have a format of their own, which `toolhold-protocol` versions.

use crate::error::StoreError;
use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// All migrations, oldest first: number, name and SQL.
const MIGRATIONS: [(i64, &str, Sql); 23] = [
    (
        1,
        "initial",
        Sql::Both(include_str!("schema/0001_initial.sql")),
    ),
    (
        2,
        "open calls",
        Sql::Both(include_str!("schema/0002_open_calls.sql")),
    ),
    (
        3,
        "run images",
        Sql::Both(include_str!("schema/0003_run_images.sql")),
    ),
    (
        4,
        "knowledge",
        Sql::Both(include_str!("schema/0004_knowledge.sql")),
    ),
    (
        5,
        "passages",
        Sql::Each {
            sqlite: include_str!("schema/0005_passages.sqlite.sql"),
            postgres: include_str!("schema/0005_passages.postgres.sql"),
        },
    ),
    (6, "facts", Sql::Both(include_str!("schema/0006_facts.sql"))),
    (
        7,
        "collection retention",
        Sql::Both(include_str!("schema/0007_collection_retention.sql")),
    ),
    (
        8,
        "leases",
        Sql::Both(include_str!("schema/0008_leases.sql")),
    ),
    (
        9,
        "share consent",
        Sql::Both(include_str!("schema/0009_share_consent.sql")),
    ),
    (
        10,
        "audit by time",
        Sql::Both(include_str!("schema/0010_audit_by_time.sql")),
    ),
    (
        11,
        "runs by begin",
        Sql::Both(include_str!("schema/0011_runs_by_begin.sql")),
    ),
    (
        12,
        "sessions by age",
        Sql::Both(include_str!("schema/0012_sessions_by_age.sql")),
    ),
    (
        13,
        "collections gone",
        Sql::Both(include_str!("schema/0013_collections_gone.sql")),
    ),
    (
        14,
        "approvals by time",
        Sql::Both(include_str!("schema/0014_approvals_by_time.sql")),
    ),
    (
        15,
        "audit salts",
        Sql::Both(include_str!("schema/0015_audit_salts.sql")),
    ),
    (
        16,
        "key rotations",
        Sql::Both(include_str!("schema/0016_key_rotations.sql")),
    ),
    (
        17,
        "shown texts",
        Sql::Both(include_str!("schema/0017_shown_texts.sql")),
    ),
    (
        18,
        "reply parts",
        Sql::Both(include_str!("schema/0018_reply_parts.sql")),
    ),
    (
        19,
        "tool catalogues",
        Sql::Both(include_str!("schema/0019_tool_catalogues.sql")),
    ),
    (
        20,
        "shared texts",
        Sql::Each {
            sqlite: include_str!("schema/0020_shared_texts.sqlite.sql"),
            postgres: include_str!("schema/0020_shared_texts.postgres.sql"),
        },
    ),
    (
        21,
        "blobs",
        Sql::Each {
            sqlite: include_str!("schema/0021_blobs.sqlite.sql"),
            postgres: include_str!("schema/0021_blobs.postgres.sql"),
        },
    ),
    (
        22,
        "blobs by bytes",
        Sql::Both(include_str!("schema/0022_blobs_by_bytes.sql")),
    ),
    (
        23,
        "audit rows",
        Sql::Sqlite(include_str!("schema/0023_audit_rows.sqlite.sql")),
    ),
];

/// The statements of a migration.
#[derive(Clone, Copy)]
enum Sql {
    /// Read by both databases.
    Both(&'static str),
    /// For what they have no common words for.
    Each {
        sqlite: &'static str,
        postgres: &'static str,
    },
    /// For what concerns SQLite alone.
    Sqlite(&'static str),
}

/// Refuses a database that has a migration which this version does not know because it came later.
///
/// # Errors
/// [`StoreError::Newer`].
pub fn refuse_newer(what: &str, migration: i64) -> Result<(), StoreError> {
    let [.., (known, ..)] = MIGRATIONS;
    if migration <= known {
        return Ok(());
    }
    Err(StoreError::Newer {
        what: what.to_owned(),
        migration,
        known,
    })
}

/// Creates the tables in an empty database, and applies the migrations that an older one lacks.
pub fn migrator(is_file: bool) -> Migrator {
    migrator_until(is_file, i64::MAX)
}

/// Applies no migration after number `last`: makes a database as an older version left it.
pub fn migrator_until(is_file: bool, last: i64) -> Migrator {
    let migration = |(number, name, sql): (i64, &'static str, Sql)| {
        let sql = match sql {
            Sql::Both(sql) => sql,
            Sql::Each { sqlite, .. } | Sql::Sqlite(sqlite) if is_file => sqlite,
            Sql::Each { postgres, .. } => postgres,
            Sql::Sqlite(_) => return None,
        };
        let (name, sql) = (name.into(), sql.into_sql_str());
        Some(Migration::new(
            number,
            name,
            MigrationType::Simple,
            sql,
            false,
        ))
    };
    let migrations = MIGRATIONS
        .into_iter()
        .filter(|(number, ..)| *number <= last);
    Migrator::with_migrations(migrations.filter_map(migration).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The tables that a migration locks: those of its indexes and changes that it does not create itself.
    fn locked(sql: &str) -> BTreeSet<&str> {
        let words: Vec<&str> = sql.split_whitespace().collect();
        let created: BTreeSet<&str> = words
            .windows(3)
            .filter(|it| it[..2] == ["CREATE", "TABLE"])
            .map(|it| it[2])
            .collect();
        let indexed = words
            .windows(6)
            .filter(|it| it[0] == "CREATE" && it[..4].contains(&"INDEX"))
            .filter_map(|it| Some(*it.get(it.iter().position(|word| *word == "ON")? + 1)?));
        let altered = words
            .windows(3)
            .filter(|it| it[..2] == ["ALTER", "TABLE"])
            .map(|it| it[2]);
        indexed
            .chain(altered)
            .filter(|table| !created.contains(table))
            .collect()
    }

    #[test]
    fn a_migration_of_indexes_locks_one_table() {
        for (number, name, sql) in MIGRATIONS.into_iter().filter(|(number, ..)| *number >= 10) {
            let statements = match sql {
                Sql::Both(sql) => vec![sql],
                Sql::Each { sqlite, postgres } => vec![sqlite, postgres],
                Sql::Sqlite(sqlite) => vec![sqlite],
            };
            for sql in statements {
                assert!(locked(sql).len() <= 1, "{number} {name}: {:?}", locked(sql));
            }
        }
        let two = "CREATE INDEX a ON runs (id);\nCREATE UNIQUE INDEX b ON keys (name);\nCREATE TABLE c (d TEXT);\n\
                   CREATE INDEX e ON c (d);\nALTER TABLE runs ADD COLUMN f TEXT;";
        assert_eq!(locked(two), BTreeSet::from(["keys", "runs"]));
    }
}
