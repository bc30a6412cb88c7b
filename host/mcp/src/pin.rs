//! Pins what a server says about its tools: models read, and calls use, only what a person approved or what was first
//! seen.
//!
//! The records are the same as for modules: the launch and the names of the tools take the place of the grant, and the
//! texts and schemas of the tools that of the module's tools.

use crate::error::Failure;
use crate::offer::{Offer, OfferedTool};
use crate::settings::ServerSettings;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;
use toolhold_json::hex::sha256;
use toolhold_policy::{Approval, ApprovalStore, ApprovedBy, GrantChange, Standing};

/// When a person must approve a server before its tools run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// If it is in a configuration file that was found in the working folder. Other servers are pinned when first seen.
    FirstSight,
    /// Each server.
    Always,
    /// Only if it is in a configuration file that was found: that file may say `never` itself.
    Never,
}

/// The pins of all servers.
#[derive(Debug, Clone)]
pub struct Pins {
    approvals: Arc<dyn ApprovalStore>,
    trust: Trust,
}

impl Pins {
    /// Pins that `approvals` keeps.
    pub fn new(approvals: Arc<dyn ApprovalStore>, trust: Trust) -> Self {
        Self { approvals, trust }
    }

    /// Whether the server may be started or reached at all.
    ///
    /// # Errors
    /// It needs an approval, which the message explains.
    pub async fn may_start(&self, settings: &ServerSettings) -> Result<(), Failure> {
        match self.launch(settings).await {
            standing if standing.may_run() => Ok(()),
            standing => Err(refused(settings, &standing)),
        }
    }

    /// Compares how the server would be started with what was approved.
    pub async fn launch(&self, settings: &ServerSettings) -> Standing {
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

    /// Whether the tools that the server offers now may run. An offer that is seen for the first time is pinned, if the
    /// trust setting allows that.
    pub async fn judge(&self, settings: &ServerSettings, offer: &Offer) -> Standing {
        // Without tools that may be called there is nothing to pin.
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

    /// The differences from what was approved; `None` without an approval, or with a revoked one.
    pub async fn compare(
        &self,
        settings: &ServerSettings,
        offer: &Offer,
    ) -> Option<Vec<GrantChange>> {
        match self.recorded(settings).await {
            Recorded::One(pin) if is_revoked(&pin) => None,
            Recorded::One(pin) => Some(changes(&pin, &approval(settings, offer, pin.by))),
            Recorded::None | Recorded::Unreadable => None,
        }
    }

    /// The pinned tools, if the server may be started unchanged as far as its settings tell.
    pub async fn known(&self, settings: &ServerSettings) -> Option<Vec<OfferedTool>> {
        if self.trust == Trust::Never {
            return None;
        }
        let Recorded::One(pin) = self.recorded(settings).await else {
            return None;
        };
        self.may_start(settings).await.ok()?;
        serde_json::from_value(pin.tools).ok()
    }

    /// Pins what the server offers now as approved by a person.
    ///
    /// # Errors
    /// The record cannot be written.
    pub async fn approve(&self, settings: &ServerSettings, offer: &Offer) -> io::Result<()> {
        self.put(settings, offer, ApprovedBy::Person).await
    }

    /// Revokes the approval: no server of this name runs until a person approves it.
    ///
    /// # Errors
    /// The record cannot be written.
    pub async fn revoke(&self, name: &str) -> io::Result<()> {
        let (approvals, pin) = (self.approvals.clone(), Approval::revoked(name));
        let put = tokio::task::spawn_blocking(move || approvals.put(&pin)).await;
        put.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Whether there is a record for this name, even if no such server is configured.
    pub async fn knows(&self, name: &str) -> bool {
        let (approvals, name) = (self.approvals.clone(), name.to_owned());
        let known = tokio::task::spawn_blocking(move || approvals.knows(&name)).await;
        known.unwrap_or(false)
    }

    /// Whether this server needs an approval at all.
    pub fn asks(&self, settings: &ServerSettings) -> bool {
        self.trust != Trust::Never || settings.found
    }

    /// The record of the server's approval or first sight.
    pub async fn record(&self, settings: &ServerSettings) -> Option<Approval> {
        match self.recorded(settings).await {
            Recorded::One(pin) => Some(*pin),
            Recorded::None | Recorded::Unreadable => None,
        }
    }

    async fn put(
        &self,
        settings: &ServerSettings,
        offer: &Offer,
        by: ApprovedBy,
    ) -> io::Result<()> {
        let (approvals, pin) = (self.approvals.clone(), approval(settings, offer, by));
        let put = tokio::task::spawn_blocking(move || approvals.put(&pin)).await;
        put.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    async fn recorded(&self, settings: &ServerSettings) -> Recorded {
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
    /// The record is damaged. That must not count as a server that was never seen.
    Unreadable,
    One(Box<Approval>),
}

/// The failure of a call that needs an approval, with advice for the operator.
pub fn refused(settings: &ServerSettings, standing: &Standing) -> Failure {
    let name = &settings.name;
    let look = match standing {
        // There is nothing to compare with.
        Standing::Pending { changes } if changes.iter().all(GrantChange::is_whole) => String::new(),
        _ => format!("look at it with `toolhold mcp diff {name}` and "),
    };
    Failure::NotApproved(format!(
        "its tools are disabled: {}; a person can {look}allow it with `toolhold mcp approve {name}`",
        standing.reason()
    ))
}

/// Whether a person revoked the approval.
pub fn is_revoked(pin: &Approval) -> bool {
    pin.digest == Approval::revoked(&pin.slot).digest
}

fn approval(settings: &ServerSettings, offer: &Offer, by: ApprovedBy) -> Approval {
    let tools = json!(offer.tools);
    let grant = settings.grant();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Approval {
        slot: settings.name.clone(),
        name: settings.name.clone(),
        digest: digest(&json!([tools, grant])),
        tools,
        grant,
        by,
        at: now.map_or(0, |now| now.as_secs()),
    }
}

fn changes(pin: &Approval, now: &Approval) -> Vec<GrantChange> {
    // The digest would show as a further difference; the parts are listed instead.
    let now = Approval {
        digest: pin.digest.clone(),
        ..now.clone()
    };
    pin.changes(&now, true)
}

fn standing(changes: Vec<GrantChange>) -> Standing {
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

/// The digest of a value with sorted keys: their order in a server's answer does not matter.
fn digest(what: &Value) -> String {
    let mut what = what.clone();
    what.sort_all_objects();
    format!("sha256:{}", sha256(what.to_string()))
}
