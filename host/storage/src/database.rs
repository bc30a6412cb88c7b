//! The location of the database, and connections to it.

use crate::statements::NativeConnection;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, ConnectOptions as _, Connection as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::log::LevelFilter;
use url::Url;

/// Longest wait for a connection of the pool.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a reply of PostgreSQL. A connection whose other end vanished gives no error by itself.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for transactions that delete many rows.
const LONG_REPLY_TIMEOUT: Duration = Duration::from_mins(5);

/// SQLite: write-ahead logging lets other connections and processes read during a write. What is deleted is
/// overwritten, also what moves to another page: a page that is merely free keeps its bytes. Journals of statements and
/// of savepoints, which hold old contents of pages, stay in memory: a file of them would keep deleted texts.
const PRAGMAS: &str = "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;";

/// Settings of a connection to PostgreSQL. A process that is frozen in the middle of a transaction, or whose machine
/// vanished, loses its row locks after 5 s, which is before its lease ends (see `process_lease`): others wait for these
/// locks. A connection whose other end is gone is ended after half a minute.
const SESSION: &str = "SET idle_in_transaction_session_timeout = 5000; SET tcp_keepalives_idle = 10; \
     SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000;";

/// The location of a database.
#[derive(Debug, Clone)]
pub enum Location {
    /// A SQLite file, created if it does not exist.
    File(PathBuf),
    /// A `postgres://…` URL, which may hold a password.
    Postgres(SecretString),
}

/// Makes connections to one database, and bounds the wait for replies.
#[derive(Clone)]
pub struct Database {
    options: AnyConnectOptions,
    /// The absolute path of a SQLite file; absent for PostgreSQL.
    file: Option<Arc<Path>>,
}

impl Database {
    /// Parses the location; does not connect yet.
    pub fn of(location: &Location) -> Result<Self, sqlx::Error> {
        sqlx::any::install_default_drivers();
        Ok(Self {
            options: location.options()?,
            file: match location {
                Location::File(path) => Some(std::path::absolute(path)?.into()),
                Location::Postgres(_) => None,
            },
        })
    }

    /// Whether it is SQLite.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Opens a connection to a SQLite file through SQLite's own library; absent for PostgreSQL. Blocks, and so do the
    /// methods of the connection.
    pub fn native(&self) -> Option<Result<NativeConnection, sqlx::Error>> {
        let file = self.file.as_ref()?;
        Some(NativeConnection::open(file, PRAGMAS))
    }

    /// A pool of at most `most` connections, opened when they are needed.
    pub fn pool(&self, most: u32) -> AnyPool {
        let settings = self.settings();
        AnyPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A connection to a file does not break, and its ping is one more change of threads for each query.
            .test_before_acquire(!self.is_file())
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    sqlx::raw_sql(settings).execute(connection).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(self.options.clone())
    }

    /// A single connection. A pool would ping before each use, and would retry a connection that cannot succeed.
    pub async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        let connecting = async {
            let mut connection = AnyConnection::connect_with(&self.options).await?;
            sqlx::raw_sql(self.settings())
                .execute(&mut connection)
                .await?;
            Ok::<_, sqlx::Error>(connection)
        };
        self.within(connecting).await
    }

    /// Bounds `work` by the reply timeout. SQLite is not bounded: its file may be slow, but always replies.
    pub async fn within<T, E: From<sqlx::Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.within_time(REPLY_TIMEOUT, work).await
    }

    /// Like [`Self::within`], for transactions whose time depends on the number of rows.
    pub async fn within_minutes<T, E: From<sqlx::Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.within_time(LONG_REPLY_TIMEOUT, work).await
    }

    async fn within_time<T, E: From<sqlx::Error>>(
        &self,
        time: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if self.is_file() {
            return work.await;
        }
        let done = tokio::time::timeout(time, work).await;
        done.unwrap_or_else(|_| {
            let late = io::Error::from(io::ErrorKind::TimedOut);
            Err(sqlx::Error::Io(late).into())
        })
    }

    fn settings(&self) -> &'static str {
        if self.is_file() { PRAGMAS } else { SESSION }
    }
}

/// Adds [`Database::within`] to the end of a query.
pub trait InTime<T>: Future<Output = Result<T, sqlx::Error>> + Sized {
    /// Bounds the query by the reply timeout of `database`.
    fn in_time(self, database: &Database) -> impl Future<Output = Result<T, sqlx::Error>> {
        database.within(self)
    }
}

impl<T, F: Future<Output = Result<T, sqlx::Error>>> InTime<T> for F {}

impl std::fmt::Debug for Database {
    /// Without the options, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Location {
    fn options(&self) -> Result<AnyConnectOptions, sqlx::Error> {
        let wrong = |why: &str| sqlx::Error::Configuration(why.into());
        let mut url: Url = match self {
            Self::File(path) => {
                let path = std::path::absolute(path)?;
                let path = Url::from_file_path(path).map_err(|()| wrong("it is no path"))?;
                format!("sqlite://{}", path.path()).parse()
            }
            Self::Postgres(url) => {
                let url = url.expose_secret();
                if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
                    return Err(wrong(
                        "it is no postgres:// URL; storage.url_env names the variable that has it",
                    ));
                }
                url.parse()
            }
        }
        .map_err(|error: url::ParseError| sqlx::Error::Configuration(error.into()))?;
        if matches!(self, Self::Postgres(_)) {
            for number in drop_unknown_parameters(&mut url) {
                // Without its text: a part of a password may stand there.
                tracing::warn!(
                    "parameter {number} of the database's URL is unknown and ignored; known are {}",
                    PARAMETERS.join(", ")
                );
            }
        }
        // Not logged: statements hold conversations.
        Ok(AnyConnectOptions::from_url(&url)?
            .log_statements(LevelFilter::Off)
            .log_slow_statements(LevelFilter::Off, Duration::MAX))
    }
}

/// Parameters of a PostgreSQL URL that sqlx knows, in their main spelling.
const PARAMETERS: [&str; 12] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];
/// Other spellings and parameters with a part of their own.
const MORE_PARAMETERS: [&str; 6] = [
    "ssl-mode",
    "ssl-root-cert",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "options",
];

/// Removes the parameters that sqlx does not know: it would write them into the log with their values, and the value of a
/// mistyped `password` is the password. Returns their numbers, from 1 on.
fn drop_unknown_parameters(url: &mut Url) -> Vec<usize> {
    let Some(query) = url.query() else {
        return Vec::new();
    };
    let is_known = |parameter: &str| {
        let name = url::form_urlencoded::parse(parameter.as_bytes()).next();
        name.is_none_or(|(name, _)| {
            PARAMETERS.contains(&&*name)
                || MORE_PARAMETERS.contains(&&*name)
                || name.starts_with("options[")
        })
    };
    let parameters: Vec<(usize, &str)> = (1..).zip(query.split('&')).collect();
    let (known, unknown): (Vec<_>, Vec<_>) = parameters
        .into_iter()
        .partition(|(_, parameter)| is_known(parameter));
    let known: Vec<&str> = known.into_iter().map(|(_, parameter)| parameter).collect();
    let unknown = unknown.into_iter().map(|(number, _)| number).collect();
    let known = known.join("&");
    url.set_query(
        Some(&known)
            .filter(|known| !known.is_empty())
            .map(String::as_str),
    );
    unknown
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "the database {}", path.display()),
            Self::Postgres(url) => match Url::parse(url.expose_secret()) {
                Ok(url) => write!(
                    f,
                    "the database {} at {}",
                    url.path().trim_start_matches('/'),
                    url.host_str().unwrap_or("this machine")
                ),
                Err(_) => f.write_str("the database"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameters_do_not_reach_the_log() {
        for (query, kept, unknown) in [
            (
                "?sslmode=require&pasword=hunter2",
                "?sslmode=require",
                &[2][..],
            ),
            ("?Password=hunter2", "", &[1]),
            ("?password=hunt&er2", "?password=hunt", &[2]),
            (
                "?options%5Bx%5D=1&options[y]=2",
                "?options%5Bx%5D=1&options[y]=2",
                &[],
            ),
            ("?%70assword=p&user=u", "?%70assword=p&user=u", &[]),
            ("?channel_binding=require&&port=1", "?&port=1", &[1]),
            ("", "", &[]),
        ] {
            let mut url: Url = format!("postgres://h/d{query}").parse().unwrap();
            assert_eq!(drop_unknown_parameters(&mut url), unknown, "{query}");
            assert_eq!(url.as_str(), format!("postgres://h/d{kept}"), "{query}");
        }
    }

    #[test]
    fn a_file_is_the_same_one_after_a_change_of_the_working_directory() {
        let relative = Database::of(&Location::File("toolhold.db".into())).unwrap();
        let path = relative.file.unwrap();
        assert!(path.is_absolute(), "{}", path.display());
    }

    #[test]
    fn journals_of_statements_stay_in_memory() {
        const MEMORY: i64 = 2;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolhold.db");
        std::fs::write(&path, "").unwrap();
        let database = Database::of(&Location::File(path)).unwrap();
        let connection = database.native().unwrap().unwrap();
        let kind = connection.rows::<(i64,)>("PRAGMA temp_store", &[]);
        assert_eq!(kind.unwrap(), [(MEMORY,)]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_server_has_a_reply_timeout() {
        let url = "postgres://u:secret@h/d".to_owned();
        let server = Database::of(&Location::Postgres(url.into())).unwrap();
        let silent = std::future::pending::<Result<(), sqlx::Error>>();
        let late = server.within(silent).await.unwrap_err();
        assert!(matches!(late, sqlx::Error::Io(_)), "{late}");
        assert!(!format!("{server:?}").contains("secret"));
        let file = Database::of(&Location::File("toolhold.db".into())).unwrap();
        let slow = async {
            tokio::time::sleep(REPLY_TIMEOUT * 2).await;
            Ok::<_, sqlx::Error>(())
        };
        assert!(file.within(slow).await.is_ok());
    }
}
