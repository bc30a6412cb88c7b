//! `toolhold secrets`: keys and passwords that the configuration refers to by the name of a variable.

use crate::config::secrets::{
    self as store, Asks, KeyringError, KeyringQuestion, Needs, SecretPlace, SecretStore,
    UnreadSecret,
};
use crate::config::{self, ConfigError, Flags, Loaded, presets};
use crate::exit::Exit;
use crate::terminal::output::NoteMark;
use crate::terminal::{input, output, style};
use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use secrecy::SecretString;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;
use toolhold_admission::own_work;

#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Keep a secret, which is typed unseen, or read from stdin: in the system's keyring, or in a file of yours
    /// (secrets.store). It is used wherever the configuration names the variable NAME, such as in api_key_env, unless
    /// that variable is set.
    Set {
        /// Name of the variable, such as OPENAI_API_KEY, or of a preset, such as openai.
        name: String,
    },
    /// List the names of the kept secrets and where they are, and never their values.
    List {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Forget a secret, wherever it is.
    Remove {
        /// Name of the variable, or of a preset.
        name: String,
    },
}

/// Says that a secret could not be read, to a command that goes on without it.
pub fn note(loaded: &Loaded, needs: Needs) {
    let is_told = |unread: &&UnreadSecret| match needs {
        Needs::All => false,
        Needs::Database => true,
        // The keyring was not asked, and need not be.
        Needs::None => matches!(unread, UnreadSecret::NoFile { .. }),
    };
    if let Some(unread) = loaded.secrets.unread().filter(is_told) {
        output::note(NoteMark::Warn("secrets:"), &unread.to_string());
    }
}

pub async fn secrets(file: Option<&Path>, flags: &Flags, command: SecretsCommand) -> Result<Exit> {
    let at_least = || {
        let (place, fault) = config::secret_store_at_least(file, flags)?;
        if let Some(fault) = fault {
            let text = format!("secrets.store is not known, and is taken for \"auto\": {fault}");
            output::note(NoteMark::Warn("note:"), &text);
        }
        Ok::<_, ConfigError>(place)
    };
    match command {
        SecretsCommand::Set { name } => set(&config::secret_store(file, flags)?, &name).await,
        SecretsCommand::List { json } => {
            let place = at_least()?;
            match until_stopped(move || place.list()).await? {
                Some((places, unasked)) => list(&places, unasked.as_ref(), json),
                None => Ok(Exit::Interrupted),
            }
        }
        SecretsCommand::Remove { name } => remove(&at_least()?, variable(&name)?).await,
    }
}

async fn set(place: &SecretStore, name: &str) -> Result<Exit> {
    let name = variable(name)?;
    let is_at_terminal = std::io::stdin().is_terminal();
    let value = if is_at_terminal {
        match input::hidden_line(&format!("{name}: ")).await? {
            Some(line) => line,
            None => return Ok(Exit::Interrupted),
        }
    } else {
        input::within(std::io::stdin(), &mut { store::MAX_SECRET_BYTES })
            .context("the secret cannot be read from stdin; it is text of at most 64 KiB")?
    };
    let value = value.trim_end_matches(['\r', '\n']);
    if value.trim().is_empty() || value.contains('\0') {
        bail!("no secret was given; type it, or pipe it in: toolhold secrets set {name} < FILE");
    }
    let (to, key, value) = (place.clone(), name.to_owned(), SecretString::from(value));
    let keep = move || to.keep(&key, &value, asks(is_at_terminal));
    let Some(kept) = until_stopped(keep).await? else {
        return Ok(Exit::Interrupted);
    };
    let done = if kept.is_replaced { "replaced" } else { "kept" };
    let text = match kept.place {
        SecretPlace::Keyring => format!("{done} {name} in the keyring"),
        SecretPlace::File => format!(
            "{done} {name} in {} (mode 600: only you can read it; it is not encrypted)",
            place.file().display()
        ),
    };
    println!("{}", style::line(&text));
    if let Some(error) = kept.instead {
        let text = format!("it is not in the keyring, which cannot be used: {error}");
        output::note(NoteMark::Warn("note:"), &text);
    }
    if let Some(error) = kept.unreadable {
        let text = format!(
            "commands cannot read it from there: {error}. Have the keyring give it to programs without asking you, or \
             keep it in the file: TOOLHOLD_SECRETS__STORE=file toolhold secrets set {name}"
        );
        output::note(NoteMark::Warn("note:"), &text);
    }
    note_left_over(name, kept.left_over.as_ref());
    if is_set(name) {
        let text = format!("the environment variable {name} is set here, and is used in its place");
        output::note(NoteMark::Warn("note:"), &text);
    }
    Ok(Exit::Ok)
}

async fn remove(place: &SecretStore, name: &str) -> Result<Exit> {
    let is_at_terminal = std::io::stdin().is_terminal();
    let (from, key) = (place.clone(), name.to_owned());
    let forget = move || from.forget(&key, asks(is_at_terminal));
    let Some(forgotten) = until_stopped(forget).await? else {
        return Ok(Exit::Interrupted);
    };
    note_left_over(name, forgotten.left_over.as_ref());
    if !forgotten.was_kept {
        bail!("no secret {name} is kept; `toolhold secrets list` shows the names");
    }
    println!("forgot {name}");
    Ok(Exit::Ok)
}

fn note_left_over(name: &str, left_over: Option<&KeyringError>) {
    if let Some(error) = left_over {
        let text = format!(
            "a copy of {name} that is not used may be in the keyring, which was not looked through: {error}"
        );
        output::note(NoteMark::Warn("note:"), &text);
    }
}

/// What is said before the keyring asks, where somebody is there to answer.
fn asks(is_at_terminal: bool) -> Asks<'static> {
    is_at_terminal.then_some(&|question| {
        let does = match question {
            KeyringQuestion::Password => "is locked and asks for its password",
            KeyringQuestion::Leave => "may be asking you whether it should do that",
        };
        let seconds = store::PROMPT_PATIENCE.as_secs();
        let text = format!("the keyring {does}; this waits for {seconds} s");
        output::note(NoteMark::Warn("waiting:"), &text);
    })
}

/// Work that may wait for the keyring, and for the person who unlocks it. `None`: Ctrl-C.
async fn until_stopped<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ConfigError> + Send + 'static,
) -> Result<Option<T>> {
    tokio::select! {
        done = own_work(work) => Ok(Some(done??)),
        stopped = tokio::signal::ctrl_c() => Ok(stopped.map(|()| None)?),
    }
}

fn list(
    places: &BTreeMap<String, SecretPlace>,
    unasked: Option<&KeyringError>,
    json: bool,
) -> Result<Exit> {
    if let Some(error) = unasked {
        let text = format!("the keyring, which may have more, cannot be used: {error}");
        output::note(NoteMark::Warn("note:"), &text);
    }
    if json {
        let entry = |(name, place): (&String, &SecretPlace)| json!({"name": name, "place": place.name(), "variable_is_set": is_set(name)});
        let entries: Vec<_> = places.iter().map(entry).collect();
        output::json(&entries)?;
        return Ok(Exit::Ok);
    }
    for (name, place) in places {
        let note = if is_set(name) {
            "; the environment variable of this name is set, and is used"
        } else {
            ""
        };
        let place = style::dim(&format!("  (in the {}{note})", place.name()));
        println!("{}{place}", style::line(name));
    }
    Ok(Exit::Ok)
}

/// The variable that `name` is, or that holds the key of the preset of this name.
fn variable(name: &str) -> Result<&str> {
    let name = presets::key_variable(name).unwrap_or(name);
    if !store::is_valid_name(name) {
        bail!("{name:?} cannot be the name of a variable: letters, digits and _, at most 128");
    }
    Ok(name)
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.trim().is_empty())
}
