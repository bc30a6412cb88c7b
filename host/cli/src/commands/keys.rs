//! `toolhold keys`: who may use the server.

use crate::exit::Exit;
use crate::terminal::{output, style};
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use toolhold_policy::{Permit, PermitError, is_name};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::stats::{Since, date_text, now_ms};
use toolhold_server::http::digest;
use toolhold_server::runs::{RunRefusal, cancel_orphan};
use toolhold_storage::{
    KeyState, NewSecret, Permits, RecordError, RotationAnswer, Scope, Store, StoredKey,
};
use uuid::Uuid;

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Create a key and print it; it cannot be printed again.
    Create {
        /// Name of the key's owner; sessions, files and limits are separate per owner.
        name: String,
        /// What the key permits.
        #[arg(long, value_enum, value_delimiter = ',', default_values = ["run", "approve"])]
        scopes: Vec<KeyScopeName>,
        /// Permit only these agents [default: all].
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        agents: Option<Vec<String>>,
        /// Permit only these tools, or all tools of these modules [default: all].
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        tools: Option<Vec<String>>,
        /// Permit only these kinds of grants in calls for this key: directories, scratch, environment, http,
        /// secrets, key_value, knowledge, tools, clocks, and mcp for calls of MCP servers' tools. NAME:KIND is for one
        /// module or server, NAME:* for all of its grants, none for no grants. A key never has more than its
        /// agent [default: all that the agent has].
        #[arg(long, value_name = "KINDS", value_delimiter = ',')]
        grants: Option<Vec<String>>,
        /// Time until the key expires, such as 12h or 90d [default: never].
        #[arg(long, value_name = "TIME")]
        expires: Option<Since>,
    },
    /// List all keys, expired and revoked ones included.
    List {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Replace a key's secret and print the new one; it cannot be printed again. Sessions, files and limits of its owner
    /// stay. A key that has expired is valid again.
    Rotate {
        /// Name of the key.
        name: String,
        /// Time during which the secret before is accepted, too.
        #[arg(long, value_name = "TIME", default_value = "24h")]
        overlap: Since,
        /// End the secret before at once, with the streams that were opened with it, and any that still overlaps.
        #[arg(long, conflicts_with = "overlap")]
        now: bool,
        /// Time until the new secret expires, such as 12h or 90d [default: as long as the secret before was given].
        #[arg(long, value_name = "TIME")]
        expires: Option<Since>,
    },
    /// Revoke a key. Its name cannot be used again, because its runs keep it.
    Revoke {
        /// Name of the key.
        name: String,
        /// Also end its runs that no server drives, and wait until all have ended.
        #[arg(long)]
        cancel_runs: bool,
    },
}

/// A scope as `--scopes` names it.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum KeyScopeName {
    /// Start runs, and read those of this key.
    Run,
    /// Decide pending calls of this key's runs.
    Approve,
    /// Read everything of all keys; approve modules.
    Admin,
    /// Read /metrics.
    Metrics,
}

impl From<KeyScopeName> for Scope {
    fn from(name: KeyScopeName) -> Self {
        match name {
            KeyScopeName::Run => Self::Run,
            KeyScopeName::Approve => Self::Approve,
            KeyScopeName::Admin => Self::Admin,
            KeyScopeName::Metrics => Self::Metrics,
        }
    }
}

/// Time for the processes that drive a revoked key's runs to end them.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two looks whether they have.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Random bytes of a key.
const KEY_BYTES: usize = 32;

pub async fn keys(config: &Configuration, command: KeysCommand) -> Result<Exit> {
    let store = host::store(config).await?;
    match command {
        KeysCommand::Create {
            name,
            scopes,
            agents,
            tools,
            grants,
            expires,
        } => {
            if !is_name(&name) {
                bail!(
                    "{name:?}: a key's name is lower case letters, digits and _, at most 48, starting with a letter"
                );
            }
            let permits = Permits {
                scopes: scopes.into_iter().map(Scope::from).collect(),
                agents,
                tools,
                grants: grants.as_deref().map(permitted).transpose()?,
            };
            let expires_ms = expires.map(|time| until("--expires", time)).transpose()?;
            let (key, hash) = new_secret()?;
            if !store.add_key(&name, &hash, &permits, expires_ms).await? {
                bail!("there is, or was, a key named {name:?}; `toolhold keys list` shows them");
            }
            show_once(&key);
        }
        KeysCommand::List { json } => {
            let keys = store.keys().await?;
            if json {
                let keys: Vec<_> = keys
                    .iter()
                    .map(|key| {
                        json!({
                            "name": key.name, "permits": key.permits, "created_ms": key.created_ms,
                            "expires_ms": key.expires_ms, "revoked_ms": key.revoked_ms,
                            "rotated_ms": key.rotation.as_ref().map(|last| last.rotated_ms),
                            "former_ends_ms": key.rotation.as_ref().map(|last| last.former_ends_ms).filter(|ms| *ms > 0),
                            "is_valid": key.is_valid(),
                        })
                    })
                    .collect();
                output::json(&keys)?;
                return Ok(Exit::Ok);
            }
            let widest = keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
            for key in &keys {
                let state = match (key.revoked_ms, key.is_valid()) {
                    (Some(_), _) => style::bad("revoked"),
                    (None, false) => style::warn("expired"),
                    (None, true) => style::good("valid  "),
                };
                let name = style::bold(&format!("{:<widest$}", key.name));
                output::tell(&format!(
                    "{name}  {state}  {}",
                    style::dim(&permitted_text(key)?)
                ));
            }
            if keys.is_empty() {
                output::remark("no keys; toolhold keys create NAME");
            }
        }
        KeysCommand::Rotate {
            name,
            overlap,
            now,
            expires,
        } => {
            let now_ms = now_ms();
            let overlap_ms = if now {
                0
            } else {
                until("--overlap", overlap)?.saturating_sub(now_ms)
            };
            let expires_ms = expires.map(|time| until("--expires", time)).transpose()?;
            let (key, hash) = new_secret()?;
            let secret = NewSecret {
                hash: &hash,
                overlap: Duration::from_millis(overlap_ms),
                expires_ms,
            };
            match store.rotate_key(&name, secret).await? {
                RotationAnswer::Rotated {
                    former_ends_ms,
                    expires_ms,
                } => {
                    show_once(&key);
                    if former_ends_ms > now_ms && !now {
                        let date = date_text(former_ends_ms);
                        output::remark(&format!("the secret before is accepted until {date}"));
                    } else {
                        output::remark("the secret before is accepted no more");
                    }
                    if let Some(expires_ms) = expires_ms {
                        output::remark(&format!("it expires on {}", date_text(expires_ms)));
                    }
                }
                RotationAnswer::Unknown => {
                    bail!("there is no key {name:?}; `toolhold keys list` shows them")
                }
                RotationAnswer::Revoked => bail!(
                    "the key {name:?} is revoked, for ever; `toolhold keys create` makes one of another name"
                ),
                RotationAnswer::InOverlap { former_ends_ms } => bail!(
                    "the secret of the key {name:?} was replaced a while ago, and the one before is accepted until {}: \
                     rotate after that, or with --now, which ends both",
                    date_text(former_ends_ms)
                ),
            }
        }
        KeysCommand::Revoke { name, cancel_runs } => {
            let is_revoked = store.revoke_key(&name).await?;
            // A key that was revoked before may have runs that are to be cancelled.
            let has_runs_to_cancel =
                cancel_runs && store.key_state(&name).await? == Some(KeyState::Revoked);
            if !is_revoked && !has_runs_to_cancel {
                bail!(
                    "there is no key {name:?} that could be revoked; `toolhold keys list` shows them"
                );
            }
            output::tell(&format!("{} {name}", style::good("revoked:")));
            if cancel_runs {
                let runs = cancel_runs_of(&store, &name).await?;
                output::tell(&format!(
                    "{} {runs} {}",
                    style::good("cancelled:"),
                    if runs == 1 { "run" } else { "runs" }
                ));
            }
        }
    }
    Ok(Exit::Ok)
}

/// Makes the secret of a key from random bytes. Returns it with its hash.
fn new_secret() -> Result<(String, String)> {
    let mut secret = [0_u8; KEY_BYTES];
    getrandom::fill(&mut secret).context("there is no randomness to be had")?;
    let key = format!("th_{}", URL_SAFE_NO_PAD.encode(secret));
    let hash = digest(key.as_bytes());
    Ok((key, hash))
}

fn show_once(key: &str) {
    println!("{key}");
    output::remark("kept nowhere: this is the only time that it is shown");
}

/// Cancels all runs of a revoked key that have not ended, and waits for their ends. Returns their number.
async fn cancel_runs_of(store: &Store, key: &str) -> Result<usize> {
    let open = store.open_runs_of(key).await?;
    for run in &open {
        store.request_cancellation(run.id).await?;
    }
    let reason = format!("the key {key:?} was revoked");
    let started = Instant::now();
    let mut failed = BTreeMap::new();
    loop {
        // With each look: the process that was told may have given the run back meanwhile, or have died.
        let mut left = store.open_runs_of(key).await?;
        left.retain(|run| !failed.contains_key(&run.id));
        if left.is_empty() {
            return match failed.into_values().next() {
                Some(failure) => Err(failure),
                None => Ok(open.len()),
            };
        }
        let free = left.iter().filter(|run| !run.is_held);
        let free: Vec<Uuid> = free.map(|run| run.id).collect();
        failed.extend(end_free(store, &free, &reason).await);
        if started.elapsed() >= CANCEL_TIMEOUT {
            bail!(
                "the key is revoked and makes no further call; {} of its runs have not ended yet, and their processes \
                 were told: `toolhold runs` shows them",
                left.len()
            );
        }
        tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
    }
}

/// Ends these runs, unless a process took or ended them meanwhile. Returns those that cannot be ended, with the reason.
async fn end_free(store: &Store, runs: &[Uuid], reason: &str) -> Vec<(Uuid, anyhow::Error)> {
    let mut failed = Vec::new();
    for run in runs {
        match cancel_orphan(store, *run, Some(reason.to_owned())).await {
            Ok(()) | Err(RunRefusal::Record(RecordError::Held | RecordError::Over { .. })) => {}
            Err(error) => {
                let error = anyhow::Error::new(error);
                failed.push((*run, error.context(format!("run {run} cannot be ended"))));
            }
        }
    }
    failed
}

/// `scopes run, approve; tools text; until Sat, 20 Feb 2027 12:00:00 GMT`.
fn permitted_text(key: &StoredKey) -> Result<String> {
    let mut parts = Vec::new();
    if let Value::Object(permits) = serde_json::to_value(&key.permits)? {
        for (kind, names) in &permits {
            let names: Vec<&str> = names
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            parts.push(format!("{kind} {names}"));
        }
    }
    if let Some(expires_ms) = key.expires_ms {
        parts.push(format!("until {}", date_text(expires_ms)));
    }
    if let Some(last) = &key.rotation {
        parts.push(format!("rotated {}", date_text(last.rotated_ms)));
        if last.former_ends_ms > now_ms() && key.is_valid() {
            let date = date_text(last.former_ends_ms);
            parts.push(format!("the secret before until {date}"));
        }
    }
    Ok(style::line(&parts.join("; ")))
}

/// Parses `--grants`.
fn permitted(names: &[String]) -> Result<Vec<Permit>> {
    if names == ["none"] {
        return Ok(Vec::new());
    }
    let permits = names.iter().map(|name| name.trim().parse());
    permits
        .collect::<Result<_, PermitError>>()
        .context("--grants (none alone permits nothing at all)")
}

/// Milliseconds since 1970 of a duration from now, or of a date.
fn until(option: &str, time: Since) -> Result<u64> {
    let now = now_ms();
    let at = match time {
        Since::Ago(seconds) => now.saturating_add(seconds.saturating_mul(1_000)),
        Since::At(at_ms) => at_ms,
    };
    if at <= now {
        bail!("{option}: that time has passed; name one to come, such as 90d");
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use toolhold_agent::{Driver, NoModules};
    use toolhold_model::NoModel;
    use toolhold_protocol::event::{Journal as _, NoJournal};
    use toolhold_protocol::settings::RunRequest;
    use toolhold_storage::{Label, Location};

    #[tokio::test]
    async fn a_run_that_its_server_gives_back_when_told_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let store = Store::open(&location, Duration::from_secs(30))
            .await
            .unwrap();
        let server = Store::open(&location, Duration::from_secs(30))
            .await
            .unwrap();
        let request = RunRequest::new(Uuid::now_v7(), "t");
        let id = request.id;
        let driver = Driver::new(Arc::new(NoModel), Arc::new(NoModules));
        let mut run = driver.start(request, Box::new(NoJournal)).await.unwrap();
        let begin = run.events.recv().await.unwrap();
        drop(run);
        let label = Label {
            owner: "ann".into(),
            ..Label::default()
        };
        let mut journal = server.journal(id, label);
        journal.append(&[begin]).await.unwrap();
        assert!(store.open_runs_of("ann").await.unwrap()[0].is_held);
        let parked = async {
            while server.requested_cancellations().await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            drop(journal);
        };
        let (cancelled, ()) = tokio::join!(cancel_runs_of(&store, "ann"), parked);
        assert_eq!(cancelled.unwrap(), 1);
        assert!(store.open_runs_of("ann").await.unwrap().is_empty());
    }
}
