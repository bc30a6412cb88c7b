//! The tables, and what brings those of an older version up to date.

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// A version that was released is never changed: what is new is another version.
pub fn migrator() -> Migrator {
    let versions = [
        (1, "runs", include_str!("schema/0001_runs.sql")),
        (2, "serve", include_str!("schema/0002_serve.sql")),
        (3, "audit", include_str!("schema/0003_audit.sql")),
        (4, "responses", include_str!("schema/0004_responses.sql")),
        (5, "faults", include_str!("schema/0005_faults.sql")),
        (6, "grants", include_str!("schema/0006_grants.sql")),
    ];
    let migration = |(number, name, sql): (i64, &'static str, &'static str)| {
        let sql = sql.into_sql_str();
        Migration::new(number, name.into(), MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations(versions.into_iter().map(migration).collect())
}
