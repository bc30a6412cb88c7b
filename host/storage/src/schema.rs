//! The schema and its migrations.
//!
//! Version 1 is the schema of release 0.1.0. It evolves by migrations: each change of the schema is a new file
//! `schema/NNNN_name.sql`, or one for each database where they differ, with the next number, added to the list
//! below. A file that was released never changes, because every database stores the checksums of the migrations
//! that made it, and refuses to open if one differs ([`StoreError::Version`](crate::StoreError::Version)). A
//! database of a newer Toolhold is refused the same way. Migrations run when the store opens, each in a
//! transaction, and there are no downgrades. Databases that older versions made are in `tests/fixtures/older_state`; a
//! new migration adds one from before it.
//!
//! The events in `events.line` have a format of their own, which `toolhold-protocol` versions.

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// All migrations, oldest first: number, name and SQL.
const MIGRATIONS: [(i64, &str, Sql); 10] = [
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
        "indexes",
        Sql::Both(include_str!("schema/0010_indexes.sql")),
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
            Sql::Each { sqlite, .. } if is_file => sqlite,
            Sql::Each { postgres, .. } => postgres,
        };
        let sql = sql.into_sql_str();
        Migration::new(number, name.into(), MigrationType::Simple, sql, false)
    };
    let migrations = MIGRATIONS
        .into_iter()
        .filter(|(number, ..)| *number <= last);
    Migrator::with_migrations(migrations.map(migration).collect())
}
