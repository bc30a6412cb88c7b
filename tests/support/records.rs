//! The record of runs, read and changed behind the binary's back.

use crate::host::Host;
use crate::until;
use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use std::time::Duration;

/// A host's database.
#[derive(Debug)]
pub struct Records {
    options: SqliteConnectOptions,
    runtime: tokio::runtime::Runtime,
}

impl Records {
    pub fn of(host: &Host) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Self {
            options: SqliteConnectOptions::new()
                .filename(host.path().join(".state/toolhold.db"))
                .busy_timeout(Duration::from_secs(10))
                .disable_statement_logging(),
            runtime: runtime.expect("a runtime"),
        }
    }

    fn with<T>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> T {
        self.try_with(work).expect("the database")
    }

    fn try_with<T>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        self.runtime.block_on(async {
            let mut connection = self.options.connect().await?;
            let result = work(&mut connection).await;
            connection.close().await?;
            result
        })
    }

    /// Locks the database against writes meanwhile.
    pub fn kept_busy(&self, work: impl FnOnce()) {
        self.with(async |connection| {
            let transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            work();
            transaction.rollback().await
        });
    }

    /// The runs' ids, the oldest first; none while there is no database.
    pub fn runs(&self) -> Vec<String> {
        self.try_with(async |connection| {
            sqlx::query_scalar("SELECT id FROM runs ORDER BY id")
                .fetch_all(connection)
                .await
        })
        .unwrap_or_default()
    }

    /// Gives all runs this begin of their tasks, as older versions kept it.
    pub fn rename_tasks(&self, task: &str) {
        self.with(async |connection| {
            sqlx::query("UPDATE runs SET task = $1")
                .bind(task)
                .execute(connection)
                .await
        });
    }

    /// Requests the cancellation of all runs that have not ended, as a server does before it stops them.
    pub fn request_cancellations(&self) {
        self.with(async |connection| {
            sqlx::query("UPDATE runs SET cancel_ms = 1 WHERE ended_ms IS NULL")
                .execute(connection)
                .await
        });
    }

    /// Keeps bytes, as base64, with each of the runs: what a result of a run may have been.
    pub fn keep_bytes(&self, runs: &[String], digest: &str, bytes: usize, base64: &str) {
        self.with(async |connection| {
            sqlx::query("INSERT INTO blobs (digest, bytes, data) VALUES ($1, $2, $3)")
                .bind(digest)
                .bind(i64::try_from(bytes).expect("a size"))
                .bind(base64)
                .execute(&mut *connection)
                .await?;
            for run in runs {
                sqlx::query(
                    "INSERT INTO run_blobs (run, blob) SELECT $1, id FROM blobs WHERE digest = $2",
                )
                .bind(run)
                .bind(digest)
                .execute(&mut *connection)
                .await?;
            }
            Ok(())
        });
    }

    /// Number of calls of no run that have begun, with those that have ended since; none while there are no processes.
    pub fn begun_calls(&self) -> usize {
        let folder = self.options.get_filename().with_extension("processes");
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files = files.map(|file| file.path());
        let of_calls = files.filter(|path| path.extension().is_some_and(|it| it == "calls"));
        let texts = of_calls.filter_map(|path| std::fs::read_to_string(path).ok());
        texts
            .map(|text| {
                text.lines()
                    .filter(|it| it.starts_with("{\"begun\""))
                    .count()
            })
            .sum()
    }

    /// The lines of a run's record, with their key and with the texts that are kept beside them.
    pub fn lines(&self, run: &str) -> Vec<String> {
        let rows: Vec<(i64, String, Option<String>, Option<String>)> =
            self.with(async |connection| {
                sqlx::query_as(
                    "SELECT events.seq, line, digest, content FROM events LEFT JOIN event_texts USING (run, seq) \
                     LEFT JOIN shared_texts ON shared_texts.id = event_texts.text WHERE run = $1 ORDER BY events.seq",
                )
                .bind(run)
                .fetch_all(connection)
                .await
            });
        let whole = |(seq, line, digest, text): (i64, String, Option<String>, Option<String>)| {
            let line = match line.strip_prefix('{') {
                Some(rest) if !rest.starts_with("\"run\":") => {
                    format!("{{\"run\":\"{run}\",\"seq\":{seq},{rest}")
                }
                _ => line,
            };
            let (Some(digest), Some(text)) = (digest, text) else {
                return line;
            };
            let name = format!("{{\"catalogue\":\"{digest}\"");
            // Of a Request, of settings, of tools.
            let ends = [",\"messages\":[", "}}", "}"].map(|end| format!("{name}{end}"));
            let end = ends.iter().find(|name| line.contains(*name));
            end.map_or_else(|| line.clone(), |name| line.replacen(name, &text, 1))
        };
        rows.into_iter().map(whole).collect()
    }

    /// Bytes of the database: all pages that it has, without those that are free.
    pub fn bytes(&self) -> i64 {
        self.with(async |connection| {
            sqlx::query_scalar(
                "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, \
                 pragma_page_size",
            )
            .fetch_one(connection)
            .await
        })
    }

    /// The events of the newest run; none while there is no run.
    ///
    /// # Panics
    /// If one is no JSON.
    pub fn newest(&self) -> Vec<Value> {
        let newest = self.runs().pop();
        let lines = newest.map_or_else(Vec::new, |run| self.lines(&run));
        let event = |line: &String| serde_json::from_str(line).expect("an event");
        lines.iter().map(event).collect()
    }

    /// Waits until the newest run's record has an event of this kind.
    ///
    /// # Panics
    /// If it never has.
    pub fn until_there_is(&self, kind: &str) {
        until(kind, || {
            let mut events = self.newest().into_iter();
            events.find(|event| event["event"] == kind)
        });
    }

    /// Writes something else there.
    pub fn change(&self, run: &str, seq: usize, line: &str) {
        self.with(async |connection| {
            sqlx::query("UPDATE events SET line = $3 WHERE run = $1 AND seq = $2")
                .bind(run)
                .bind(i64::try_from(seq).expect("a number"))
                .bind(line)
                .execute(connection)
                .await
        });
    }

    /// Loses a line.
    pub fn lose(&self, run: &str, seq: usize) {
        self.with(async |connection| {
            sqlx::query("DELETE FROM events WHERE run = $1 AND seq = $2")
                .bind(run)
                .bind(i64::try_from(seq).expect("a number"))
                .execute(connection)
                .await
        });
    }

    /// Has another call wait in the place of one, as far as its digest says. Returns the one that it had.
    pub fn digest(&self, call: &str, digest: &str) -> String {
        let before = self.with(async |connection| {
            sqlx::query_scalar("SELECT digest FROM approvals WHERE call = $1")
                .bind(call)
                .fetch_one(&mut *connection)
                .await
        });
        self.with(async |connection| {
            sqlx::query("UPDATE approvals SET digest = $2 WHERE call = $1")
                .bind(call)
                .bind(digest)
                .execute(connection)
                .await
        });
        before
    }

    /// Leaves a decision about a call that waits.
    pub fn decide(&self, call: &str, decision: &str) {
        self.with(async |connection| {
            sqlx::query("UPDATE approvals SET decision = $2 WHERE call = $1")
                .bind(call)
                .bind(decision)
                .execute(connection)
                .await
        });
    }
}
