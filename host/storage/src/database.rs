//! The location of the database, and connections to it.

use secrecy::{ExposeSecret as _, SecretString};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, ConnectOptions as _, Connection as _};
use std::io;
use std::path::PathBuf;
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
/// overwritten, also what moves to another page: a page that is merely free keeps its bytes.
const PRAGMAS: &str = "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;";

/// PostgreSQL: frees the locks of a process that hangs or whose machine vanished, after at most a minute.
const SESSION: &str = "SET idle_in_transaction_session_timeout = 60000; SET tcp_keepalives_idle = 10; \
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
    is_file: bool,
}

impl Database {
    /// Parses the location; does not connect yet.
    pub fn of(location: &Location) -> Result<Self, sqlx::Error> {
        sqlx::any::install_default_drivers();
        Ok(Self {
            options: location.options()?,
            is_file: matches!(location, Location::File(_)),
        })
    }

    /// Whether it is SQLite.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// A pool of at most `most` connections, opened when they are needed.
    pub fn pool(&self, most: u32) -> AnyPool {
        let settings = self.settings();
        AnyPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(ACQUIRE_TIMEOUT)
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
        if self.is_file {
            return work.await;
        }
        let done = tokio::time::timeout(time, work).await;
        done.unwrap_or_else(|_| {
            let late = io::Error::from(io::ErrorKind::TimedOut);
            Err(sqlx::Error::Io(late).into())
        })
    }

    fn settings(&self) -> &'static str {
        if self.is_file { PRAGMAS } else { SESSION }
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
            .field("is_file", &self.is_file)
            .finish_non_exhaustive()
    }
}

impl Location {
    fn options(&self) -> Result<AnyConnectOptions, sqlx::Error> {
        let wrong = |why: &str| sqlx::Error::Configuration(why.into());
        let url: Url = match self {
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
        // Not logged: statements hold conversations.
        Ok(AnyConnectOptions::from_url(&url)?
            .log_statements(LevelFilter::Off)
            .log_slow_statements(LevelFilter::Off, Duration::MAX))
    }
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
