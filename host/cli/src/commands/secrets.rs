//! `toolhold secrets`: keys and passwords that the configuration refers to by the name of a variable.

use crate::config::{StoredSecrets, presets, secrets as store};
use crate::exit::Exit;
use crate::terminal::{input, output, style};
use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::json;
use std::io::IsTerminal as _;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Keep a secret, which is typed unseen, or read from stdin. It is used wherever the configuration names the
    /// variable NAME, such as in api_key_env, unless that variable is set.
    Set {
        /// Name of the variable, such as OPENAI_API_KEY, or of a preset, such as openai.
        name: String,
    },
    /// List the names of the kept secrets, and never their values.
    List {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Forget a secret.
    Remove {
        /// Name of the variable, or of a preset.
        name: String,
    },
}

pub async fn secrets(command: SecretsCommand) -> Result<Exit> {
    let path = store::path().context(
        "there is no home folder to keep secrets in; set HOME or XDG_CONFIG_HOME to an absolute path",
    )?;
    match command {
        SecretsCommand::Set { name } => set(path, &name).await,
        SecretsCommand::List { json } => list(&StoredSecrets::read(&path)?, json),
        SecretsCommand::Remove { name } => {
            let name = variable(&name)?;
            if !store::change(&path, name, None)? {
                bail!("no secret {name} is kept; `toolhold secrets list` shows the names");
            }
            println!("forgot {name}");
            Ok(Exit::Ok)
        }
    }
}

async fn set(path: PathBuf, name: &str) -> Result<Exit> {
    let name = variable(name)?;
    let value = if std::io::stdin().is_terminal() {
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
    let was_kept = store::change(&path, name, Some(value))?;
    let kept = if was_kept { "replaced" } else { "kept" };
    let text = format!(
        "{kept} {name} in {} (mode 600: only you can read it; it is not encrypted)",
        path.display()
    );
    println!("{}", style::line(&text));
    if is_set(name) {
        let text = format!("the environment variable {name} is set here, and is used in its place");
        output::note(&style::warn("note:"), &text);
    }
    Ok(Exit::Ok)
}

fn list(kept: &StoredSecrets, json: bool) -> Result<Exit> {
    let names = kept.names();
    if json {
        let entries: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "variable_is_set": is_set(name)}))
            .collect();
        output::json(&entries)?;
        return Ok(Exit::Ok);
    }
    for name in names {
        let note = if is_set(name) {
            style::dim("  (the environment variable of this name is set, and is used)")
        } else {
            String::new()
        };
        println!("{}{note}", style::line(name));
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
