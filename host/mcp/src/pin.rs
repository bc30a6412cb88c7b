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
use toolhold_admission::WorkKind;
use toolhold_json::hex::sha256;
use toolhold_policy::{GrantChange, Pin, PinState, PinStore, PinWriteError, PinnedBy};

/// Maximum attempts to judge an offer while other processes change the server's pin.
const MAX_JUDGE_ATTEMPTS: usize = 8;

/// Reads and writes of pins, which each call of a server's tool may cause.
const PINS: WorkKind = WorkKind::new("pins of MCP servers", 16);

/// When a person must approve a server before its tools run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pinning {
    /// If it is in a configuration file that was found in the working folder. Other servers are pinned when first seen.
    FirstSight,
    /// Each server.
    Always,
    /// Only if it is in a configuration file that was found: that file may say `never` itself.
    Never,
}

/// The pins of all servers.
#[derive(Debug, Clone)]
pub struct ServerPins {
    pins: Arc<dyn PinStore>,
    pinning: Pinning,
}

impl ServerPins {
    /// Returns the pins that `pins` keeps.
    pub fn new(pins: Arc<dyn PinStore>, pinning: Pinning) -> Self {
        Self { pins, pinning }
    }

    /// Whether the server may be started or reached at all.
    ///
    /// # Errors
    /// It needs a pin, which the message explains.
    pub async fn may_start(&self, settings: &ServerSettings) -> Result<(), Failure> {
        match self.launch(settings).await {
            pin_state if pin_state.may_run() => Ok(()),
            pin_state => Err(refused(settings, &pin_state)),
        }
    }

    /// Compares how the server would be started with what was approved.
    pub async fn launch(&self, settings: &ServerSettings) -> PinState {
        if !self.asks(settings) {
            return PinState::Trusted;
        }
        match self.recorded(settings).await {
            Recorded::One(pin) => {
                let now = Pin {
                    grant: settings.grant(),
                    ..(*pin).clone()
                };
                pin_state(pin.changes(&now, true))
            }
            Recorded::None if self.pinning != Pinning::Always && !settings.found => {
                PinState::Trusted
            }
            Recorded::None | Recorded::Unreadable => pending(),
        }
    }

    /// Whether the tools that the server offers now may run. An offer that is seen for the first time is pinned, if
    /// `modules.pinning` allows that.
    pub async fn judge(&self, settings: &ServerSettings, offer: &Offer) -> PinState {
        // Without tools that may be called there is nothing to pin.
        if self.pinning == Pinning::Never || settings.tools.is_empty() {
            return PinState::Trusted;
        }
        for _ in 0..MAX_JUDGE_ATTEMPTS {
            match self.recorded(settings).await {
                Recorded::One(pin) => {
                    return pin_state(changes(&pin, &pin_of(settings, offer, pin.by)));
                }
                Recorded::None if self.pinning == Pinning::FirstSight && !settings.found => {}
                Recorded::None | Recorded::Unreadable => return pending(),
            }
            let pin = pin_of(settings, offer, PinnedBy::FirstSight);
            match self.replace(None, pin).await {
                Ok(()) => return PinState::Approved,
                // Another process or a person decided about it meanwhile, which holds.
                Err(PinWriteError::Decided(_)) => {}
                Err(PinWriteError::Io(error)) => {
                    tracing::warn!(server = settings.name, %error, "what it offers cannot be pinned");
                    return pending();
                }
            }
        }
        pending()
    }

    /// Returns the differences from what was approved; `None` without a pin, or with a revoked one.
    pub async fn compare(
        &self,
        settings: &ServerSettings,
        offer: &Offer,
    ) -> Option<Vec<GrantChange>> {
        match self.recorded(settings).await {
            Recorded::One(pin) if is_revoked(&pin) => None,
            Recorded::One(pin) => Some(changes(&pin, &pin_of(settings, offer, pin.by))),
            Recorded::None | Recorded::Unreadable => None,
        }
    }

    /// The pinned tools, if the server may be started unchanged as far as its settings tell.
    pub async fn known(&self, settings: &ServerSettings) -> Option<Vec<OfferedTool>> {
        if self.pinning == Pinning::Never {
            return None;
        }
        let Recorded::One(pin) = self.recorded(settings).await else {
            return None;
        };
        self.may_start(settings).await.ok()?;
        serde_json::from_value(pin.tools).ok()
    }

    /// Pins what the server offers as approved by a person, to whom it was compared with the record `before`.
    ///
    /// # Errors
    /// Another decision about the server came first, and holds; the record cannot be written.
    pub async fn approve(
        &self,
        settings: &ServerSettings,
        offer: &Offer,
        before: Option<Pin>,
    ) -> Result<(), PinWriteError> {
        let pin = pin_of(settings, offer, PinnedBy::Person);
        self.replace(before, pin).await
    }

    /// Revokes the pin: no server of this name runs until a person approves it.
    ///
    /// # Errors
    /// The record cannot be written.
    pub async fn revoke(&self, name: &str) -> io::Result<()> {
        let (pins, name) = (self.pins.clone(), name.to_owned());
        let revoked = PINS.run(None, move || pins.revoke(&name)).await;
        revoked.map_err(io::Error::from)?
    }

    /// Whether there is a record for this name, even if no such server is configured.
    pub async fn knows(&self, name: &str) -> bool {
        let (pins, name) = (self.pins.clone(), name.to_owned());
        let known = PINS.run(None, move || pins.knows(&name)).await;
        known.unwrap_or(false)
    }

    /// True if this server needs a pin at all.
    pub fn asks(&self, settings: &ServerSettings) -> bool {
        self.pinning != Pinning::Never || settings.found
    }

    /// Returns the server's pin, by a person or by first sight.
    pub async fn record(&self, settings: &ServerSettings) -> Option<Pin> {
        match self.recorded(settings).await {
            Recorded::One(pin) => Some(*pin),
            Recorded::None | Recorded::Unreadable => None,
        }
    }

    async fn replace(&self, before: Option<Pin>, pin: Pin) -> Result<(), PinWriteError> {
        let pins = self.pins.clone();
        let replace = move || pins.replace(before.as_ref(), &pin);
        let replaced = PINS.run(None, replace).await;
        replaced.map_err(io::Error::from)?
    }

    async fn recorded(&self, settings: &ServerSettings) -> Recorded {
        let (pins, name) = (self.pins.clone(), settings.name.clone());
        let read = PINS.run(None, move || match pins.get(&name) {
            Some(pin) => Recorded::One(Box::new(pin)),
            None if pins.knows(&name) => Recorded::Unreadable,
            None => Recorded::None,
        });
        read.await.unwrap_or(Recorded::Unreadable)
    }
}

enum Recorded {
    None,
    /// The record is damaged. That must not count as a server that was never seen.
    Unreadable,
    One(Box<Pin>),
}

/// Returns the failure of a call that needs a pin, with advice for the operator.
pub fn refused(settings: &ServerSettings, pin_state: &PinState) -> Failure {
    let name = &settings.name;
    let look = match pin_state {
        // There is nothing to compare with.
        PinState::Pending { changes } if changes.iter().all(GrantChange::is_whole) => String::new(),
        _ => format!("look at it with `toolhold mcp diff {name}` and "),
    };
    Failure::NotApproved(format!(
        "its tools are disabled: {}; a person can {look}allow it with `toolhold mcp approve {name}`",
        pin_state.reason()
    ))
}

/// True if a person revoked the pin.
pub fn is_revoked(pin: &Pin) -> bool {
    pin.is_revoked()
}

fn pin_of(settings: &ServerSettings, offer: &Offer, by: PinnedBy) -> Pin {
    let tools = json!(offer.tools);
    let grant = settings.grant();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Pin {
        slot: settings.name.clone(),
        name: settings.name.clone(),
        digest: digest(&json!([tools, grant])),
        tools,
        grant,
        by,
        at: now.map_or(0, |now| now.as_secs()),
    }
}

fn changes(pin: &Pin, now: &Pin) -> Vec<GrantChange> {
    // The digest would show as a further difference; the parts are listed instead.
    let now = Pin {
        digest: pin.digest.clone(),
        ..now.clone()
    };
    pin.changes(&now, true)
}

fn pin_state(changes: Vec<GrantChange>) -> PinState {
    if changes.is_empty() {
        PinState::Approved
    } else {
        PinState::Pending { changes }
    }
}

fn pending() -> PinState {
    PinState::Pending {
        changes: Vec::new(),
    }
}

/// The digest of a value with sorted keys: their order in a server's answer does not matter.
fn digest(what: &Value) -> String {
    let mut what = what.clone();
    what.sort_all_objects();
    format!("sha256:{}", sha256(what.to_string()))
}
