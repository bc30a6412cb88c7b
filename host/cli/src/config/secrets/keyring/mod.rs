//! The system's keyring, on a thread of its own: whatever it does, the caller has an answer when its time is over.
//!
//! On Linux it is what answers as a Secret Service on the session bus (GNOME's keyring, KWallet), on macOS the login
//! keychain. Reading never has it ask for its password. Some keyrings ask a person by themselves before they give a
//! secret to a program: reading does not wait for that.

#[cfg(any(test, not(feature = "keyring")))]
mod absent;
#[cfg(all(feature = "keyring", not(target_os = "macos")))]
mod bus;
#[cfg(all(feature = "keyring", target_os = "macos"))]
mod macos;
#[cfg(all(feature = "keyring", not(target_os = "macos")))]
mod service;

#[cfg(not(feature = "keyring"))]
use absent::NoKeyring as Backend;
#[cfg(all(feature = "keyring", target_os = "macos"))]
use macos::Keychain as Backend;
#[cfg(all(feature = "keyring", not(target_os = "macos")))]
use service::ServiceKeyring as Backend;

use super::MAX_SECRET_BYTES;
use secrecy::SecretString;
use std::cell::OnceCell;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use thiserror::Error;

/// What a secret is found by: this as its service, and its name as the variable (Linux) or the account (macOS).
#[cfg(feature = "keyring")]
const SERVICE: &str = "toolhold";
/// For one question: a keyring that is unlocked answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// For a person who is asked to unlock it, or for leave.
pub const PROMPT_PATIENCE: Duration = Duration::from_mins(1);
/// What an answer may come later than the thread that waits for it gives up.
const GRACE: Duration = Duration::from_millis(250);
/// Most secrets of ours that are listed, and that one name may have.
#[cfg(all(feature = "keyring", not(target_os = "macos")))]
const MAX_ITEMS: usize = 256;

/// Why the keyring could not be used.
#[derive(Debug, Error)]
#[cfg_attr(
    not(feature = "keyring"),
    expect(dead_code, reason = "the keyrings of systems fail in these ways")
)]
pub enum KeyringError {
    #[error("this toolhold is built without keyrings")]
    #[cfg_attr(
        all(feature = "keyring", not(test)),
        expect(dead_code, reason = "a build with them has one")
    )]
    NotBuilt,
    #[error("there is no session bus to reach it over ({0})")]
    NoBus(String),
    #[error("no keyring answers on the session bus")]
    NoService,
    #[error("it has no default collection; make one in the settings of your desktop")]
    NoCollection,
    #[error("it is locked")]
    Locked,
    #[error("its question was not answered with a password")]
    Dismissed,
    #[error("it did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("it answers with more than {0} bytes")]
    TooLarge(usize),
    #[error("it has {0} secrets of this name")]
    Several(usize),
    #[error("what it has is empty, or no text of at most {} KiB", MAX_SECRET_BYTES >> 10)]
    NotText,
    #[error("it has no secret of this name any more")]
    Gone,
    #[error("it failed: {0}")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl KeyringError {
    /// Whether there is no keyring at all, as on a server.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::NotBuilt | Self::NoBus(_) | Self::NoService)
    }

    /// Whether a new secret may be kept in the file instead, unencrypted: there is no keyring, or it cannot be used now
    /// and does not have the secret either. What else is wrong with it, a person has to know.
    pub fn leaves_the_file(&self, is_marked: bool) -> bool {
        self.is_absent() || !is_marked && matches!(self, Self::Silent(_) | Self::Locked)
    }

    /// Whether it says something of the secret that was asked for, and not of the keyring.
    pub fn is_of_secret(&self) -> bool {
        matches!(
            self,
            Self::TooLarge(_) | Self::Several(_) | Self::NotText | Self::Gone
        )
    }
}

impl From<std::io::Error> for KeyringError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// What a person who is at the terminal is asked on the desktop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyringQuestion {
    /// For the password of the keyring.
    Password,
    /// Maybe whether we may do it: the keyring answers, and takes its time.
    Leave,
}

/// Whether somebody is there whom the keyring may ask. It is told before that is waited for.
pub type Asks<'a> = Option<&'a dyn Fn(KeyringQuestion)>;

/// How long the keyring may take.
fn patience(asks: Asks) -> Duration {
    asks.map_or(PATIENCE, |_| PROMPT_PATIENCE)
}

type KeyringJob = Box<dyn FnOnce(&mut Backend) + Send>;

/// A way to the keyring. It is opened with the first question and closed when this is dropped.
#[derive(Debug, Default)]
pub struct Keyring {
    thread: OnceCell<SyncSender<KeyringJob>>,
    /// It did not answer once, so nothing is waited for again.
    silent: OnceCell<Duration>,
}

impl Keyring {
    pub fn new() -> Self {
        Self::default()
    }

    /// The secret of this name.
    pub fn get(&self, name: &str) -> Result<Option<SecretString>, KeyringError> {
        let name = name.to_owned();
        self.ask(None, move |backend| backend.get(&name, PATIENCE))
    }

    /// Keeps it, in place of all that have its name.
    pub fn set(&self, name: &str, value: &SecretString, asks: Asks) -> Result<(), KeyringError> {
        let (name, value) = (name.to_owned(), value.clone());
        let within = patience(asks);
        self.ask(asks, move |backend| backend.set(&name, &value, within))
    }

    /// Forgets it. Returns whether it was there.
    pub fn remove(&self, name: &str, asks: Asks) -> Result<bool, KeyringError> {
        let name = name.to_owned();
        let within = patience(asks);
        self.ask(asks, move |backend| backend.remove(&name, within))
    }

    /// The names of all secrets of ours, as far as the system can list them.
    pub fn names(&self) -> Result<Vec<String>, KeyringError> {
        self.ask(None, |backend| backend.names(PATIENCE))
    }

    /// Whether new secrets could not be kept in it without asking for a password.
    pub fn is_locked(&self) -> Result<bool, KeyringError> {
        self.ask(None, |backend| backend.is_locked(PATIENCE))
    }

    /// Has it ask for its password, and for leave to use the secret of this name.
    pub fn unlock(&self, name: &str, asks: &dyn Fn(KeyringQuestion)) -> Result<(), KeyringError> {
        asks(KeyringQuestion::Password);
        let name = name.to_owned();
        // It was said already what is waited for.
        let said = |_: KeyringQuestion| {};
        self.ask(Some(&said), move |backend| {
            backend.unlock(&name, PROMPT_PATIENCE)
        })
    }

    fn ask<T: Send + 'static>(
        &self,
        asks: Asks,
        work: impl FnOnce(&mut Backend) -> Result<T, KeyringError> + Send + 'static,
    ) -> Result<T, KeyringError> {
        if let Some(waited) = self.silent.get() {
            return Err(KeyringError::Silent(*waited));
        }
        let within = patience(asks);
        let (tell, answer) = sync_channel(1);
        let job: KeyringJob = Box::new(move |backend| {
            // Nobody listens for an answer that comes too late.
            let _ = tell.send(work(backend));
        });
        let silent = || {
            let _ = self.silent.set(within);
            KeyringError::Silent(within)
        };
        let ended = || KeyringError::Failed("its thread ended".into());
        self.thread()?.send(job).map_err(|_| ended())?;
        let mut told = answer.recv_timeout(PATIENCE + GRACE);
        if let (Err(RecvTimeoutError::Timeout), Some(asks)) = (&told, asks) {
            asks(KeyringQuestion::Leave);
            told = answer.recv_timeout(within.saturating_sub(PATIENCE));
        }
        match told {
            Ok(Err(KeyringError::Silent(_))) | Err(RecvTimeoutError::Timeout) => Err(silent()),
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }

    /// The thread, which ends with this, or with what it is at when this is dropped.
    fn thread(&self) -> Result<&SyncSender<KeyringJob>, KeyringError> {
        if let Some(thread) = self.thread.get() {
            return Ok(thread);
        }
        // One question at a time, and none behind one that is not answered.
        let (sender, jobs) = sync_channel::<KeyringJob>(1);
        let thread = std::thread::Builder::new().name("keyring".into());
        thread.spawn(move || {
            let mut backend = Backend::default();
            for job in jobs {
                job(&mut backend);
            }
        })?;
        Ok(self.thread.get_or_init(|| sender))
    }
}

/// A secret as the keyring has it.
#[cfg(feature = "keyring")]
fn secret(bytes: Vec<u8>) -> Result<SecretString, KeyringError> {
    if bytes.len() as u64 > MAX_SECRET_BYTES {
        return Err(KeyringError::NotText);
    }
    let text = String::from_utf8(bytes).map_err(|_| KeyringError::NotText)?;
    // No key: as a variable that is empty is none.
    if text.trim().is_empty() {
        return Err(KeyringError::NotText);
    }
    Ok(text.into())
}
