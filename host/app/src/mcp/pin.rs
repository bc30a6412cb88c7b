//! What a server said of its tools when a person agreed to it, or when it was first seen, is what
//! models read and what may run (THREATS.md, promise 4).
//!
//! The records are those of modules: what is started, with what and for which tools is the grant, and
//! the tools' texts and schemas are the tools.

use super::error::Failure;
use super::offer::{Offer, Offered};
use super::settings::Settings;
use serde_json::{Value, json};
use std::io;
use std::time::SystemTime;
use toolhold_agent::hex::sha256;
use toolhold_sandbox::{Approval, ApprovalStore as _, Approvals, ApprovedBy, Change, Standing};

/// When a person must approve a server before its tools run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// One that is in a file that nobody named; all others are pinned as they are first seen.
    FirstSight,
    Always,
    /// What is in a file that nobody named still needs it: the file may say `never` itself.
    Never,
}

/// What is known of the servers.
#[derive(Debug, Clone)]
pub struct Pins {
    approvals: Approvals,
    trust: Trust,
}

impl Pins {
    pub fn new(approvals: Approvals, trust: Trust) -> Self {
        Self { approvals, trust }
    }

    /// Whether the server may be started or reached at all.
    ///
    /// # Errors
    /// Why not, and who can change it.
    pub async fn may_start(&self, settings: &Settings) -> Result<(), Failure> {
        match self.launch(settings).await {
            standing if standing.may_run() => Ok(()),
            standing => Err(refused(settings, &standing)),
        }
    }

    /// How what would be started stands to what was approved.
    pub async fn launch(&self, settings: &Settings) -> Standing {
        if !self.asks(settings) {
            return Standing::Trusted;
        }
        match self.recorded(settings).await {
            Recorded::One(pin) => {
                let now = Approval {
                    grant: settings.grant(),
                    ..(*pin).clone()
                };
                standing(pin.changes(&now, true))
            }
            Recorded::None if self.trust != Trust::Always && !settings.found => Standing::Trusted,
            Recorded::None | Recorded::Unreadable => pending(),
        }
    }

    /// Whether the tools may run that the server offers now. What is seen for the first time is
    /// pinned, where that is enough.
    pub async fn judge(&self, settings: &Settings, offer: &Offer) -> Standing {
        // Nothing can be called, so there is nothing to hold it to yet.
        if self.trust == Trust::Never || settings.tools.is_empty() {
            return Standing::Trusted;
        }
        match self.recorded(settings).await {
            Recorded::One(pin) => standing(changes(&pin, &approval(settings, offer, pin.by))),
            Recorded::None if self.trust == Trust::FirstSight && !settings.found => {
                match self.put(settings, offer, ApprovedBy::FirstSight).await {
                    Ok(()) => Standing::Approved,
                    Err(error) => {
                        tracing::warn!(server = settings.name, %error, "what it offers cannot be pinned");
                        pending()
                    }
                }
            }
            Recorded::None | Recorded::Unreadable => pending(),
        }
    }

    /// What differs from what was approved; without an approval, or with one that was withdrawn,
    /// nothing can be said.
    pub async fn compare(&self, settings: &Settings, offer: &Offer) -> Option<Vec<Change>> {
        match self.recorded(settings).await {
            Recorded::One(pin) if is_revoked(&pin) => None,
            Recorded::One(pin) => Some(changes(&pin, &approval(settings, offer, pin.by))),
            Recorded::None | Recorded::Unreadable => None,
        }
    }

    /// The tools as they were pinned, if the server is still what was pinned as far as can be said
    /// without starting it.
    pub async fn known(&self, settings: &Settings) -> Option<Vec<Offered>> {
        if self.trust == Trust::Never {
            return None;
        }
        let Recorded::One(pin) = self.recorded(settings).await else {
            return None;
        };
        self.may_start(settings).await.ok()?;
        serde_json::from_value(pin.tools).ok()
    }

    /// A person agrees to what the server offers now.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn approve(&self, settings: &Settings, offer: &Offer) -> io::Result<()> {
        self.put(settings, offer, ApprovedBy::Person).await
    }

    /// What was agreed to is withdrawn: nothing that has this name runs until a person approves it.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn revoke(&self, name: &str) -> io::Result<()> {
        let (approvals, pin) = (self.approvals.clone(), Approval::revoked(name));
        let put = tokio::task::spawn_blocking(move || approvals.put(&pin)).await;
        put.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Whether there is a record for a server of this name, be it configured or not.
    pub async fn knows(&self, name: &str) -> bool {
        let (approvals, name) = (self.approvals.clone(), name.to_owned());
        let known = tokio::task::spawn_blocking(move || approvals.knows(&name)).await;
        known.unwrap_or(false)
    }

    /// Whether approvals count for this server: one that the operator named may be trusted as it is.
    pub fn asks(&self, settings: &Settings) -> bool {
        self.trust != Trust::Never || settings.found
    }

    /// What was recorded when the server was approved or first seen.
    pub async fn record(&self, settings: &Settings) -> Option<Approval> {
        match self.recorded(settings).await {
            Recorded::One(pin) => Some(*pin),
            Recorded::None | Recorded::Unreadable => None,
        }
    }

    async fn put(&self, settings: &Settings, offer: &Offer, by: ApprovedBy) -> io::Result<()> {
        let (approvals, pin) = (self.approvals.clone(), approval(settings, offer, by));
        let put = tokio::task::spawn_blocking(move || approvals.put(&pin)).await;
        put.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    async fn recorded(&self, settings: &Settings) -> Recorded {
        let (approvals, name) = (self.approvals.clone(), settings.name.clone());
        let read = tokio::task::spawn_blocking(move || match approvals.get(&name) {
            Some(pin) => Recorded::One(Box::new(pin)),
            None if approvals.knows(&name) => Recorded::Unreadable,
            None => Recorded::None,
        });
        read.await.unwrap_or(Recorded::Unreadable)
    }
}

enum Recorded {
    None,
    /// Somebody spoilt it: this is no server that nobody ever saw.
    Unreadable,
    One(Box<Approval>),
}

/// Why the tools of a server do not run, in words for model and operator.
pub fn refused(settings: &Settings, standing: &Standing) -> Failure {
    let name = &settings.name;
    let look = match standing {
        // There is nothing to compare with.
        Standing::Pending { changes } if changes.iter().all(is_whole) => String::new(),
        _ => format!("look at it with `toolhold mcp diff {name}` and "),
    };
    Failure::NotApproved(format!(
        "its tools are disabled: {}; a person can {look}allow it with `toolhold mcp approve {name}`",
        reason(standing)
    ))
}

/// Why a server may not be used, in a line.
pub fn reason(standing: &Standing) -> String {
    match standing {
        Standing::Pending { changes } if !changes.is_empty() && changes.iter().all(is_whole) => {
            let what: Vec<_> = changes.iter().map(|change| change.what.as_str()).collect();
            what.join(", ")
        }
        other => other.reason(),
    }
}

/// It is about the approval itself, and not about a part of what was approved.
fn is_whole(change: &Change) -> bool {
    change.before.is_none() && change.after.is_none()
}

/// Whether a person took the approval back.
pub fn is_revoked(pin: &Approval) -> bool {
    pin.digest == Approval::revoked(&pin.slot).digest
}

fn approval(settings: &Settings, offer: &Offer, by: ApprovedBy) -> Approval {
    let tools = json!(offer.tools);
    let grant = settings.grant();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Approval {
        slot: settings.name.clone(),
        digest: digest(&json!([tools, grant])),
        tools,
        grant,
        by,
        at: now.map_or(0, |now| now.as_secs()),
    }
}

fn changes(pin: &Approval, now: &Approval) -> Vec<Change> {
    // The digest only says that something differs; what does is spelt out.
    let now = Approval {
        digest: pin.digest.clone(),
        ..now.clone()
    };
    pin.changes(&now, true)
}

fn standing(changes: Vec<Change>) -> Standing {
    if changes.is_empty() {
        Standing::Approved
    } else {
        Standing::Pending { changes }
    }
}

fn pending() -> Standing {
    Standing::Pending {
        changes: Vec::new(),
    }
}

/// Keys sorted: the order in which a server writes them does not matter.
fn digest(what: &Value) -> String {
    let mut what = what.clone();
    what.sort_all_objects();
    format!("sha256:{}", sha256(what.to_string()))
}
