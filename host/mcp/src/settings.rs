//! What the operator says about a server.

use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_sandbox::Redactor;

/// The answers that carry lists may be this large at least, whatever results may be.
const LIST_BYTES: usize = 4 << 20;
/// What surrounds a result: the envelope and its escapes.
const ENVELOPE_BYTES: usize = 64 << 10;
/// Shorter secrets cannot be told from ordinary text.
const MIN_SECRET: usize = 8;

/// One server: `[mcp.NAME]`.
#[derive(Debug, Clone)]
pub struct Settings {
    pub name: String,
    pub launch: Launch,
    /// For starting, and for each call: everything that has to happen for it.
    pub timeout: Duration,
    pub max_result_bytes: usize,
    /// The tools that may be called, by the server's names. There are no others.
    pub tools: Vec<String>,
    /// Whether the tools are among the tools of every run.
    pub offer: bool,
    /// It is in a file that was found and not named, as in a folder that somebody downloaded.
    pub found: bool,
    /// Why it cannot be used, whoever approves it.
    pub fault: Option<String>,
}

/// How a server is reached. Serialised, it is what an approval pins; it holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Launch {
    /// A program that speaks on its stdin and stdout.
    Command {
        command: Vec<String>,
        env: BTreeMap<String, String>,
        /// Variables of ours that it gets, and that are taken out of whatever it says.
        secret_env: Vec<String>,
    },
    /// Streamable HTTP.
    Url {
        url: String,
        /// The variable of ours whose value is sent as the bearer token.
        token_env: Option<String>,
    },
}

impl Settings {
    /// The most bytes of one message: JSON in JSON doubles its quotes.
    pub fn message_bytes(&self) -> usize {
        let result = self.max_result_bytes.saturating_mul(2);
        result.max(LIST_BYTES).saturating_add(ENVELOPE_BYTES)
    }

    /// What an approval pins besides the tools: what is started, with what, for which tools.
    pub fn grant(&self) -> serde_json::Value {
        let mut grant = serde_json::to_value(&self.launch).unwrap_or_default();
        if let Some(fields) = grant.as_object_mut() {
            fields.insert("tools".into(), self.tools.clone().into());
        }
        grant
    }
}

impl Launch {
    /// The variables that hold secrets, with their values.
    ///
    /// # Errors
    /// One that is not set, or too short to be taken out of what the server says.
    pub fn secrets(&self) -> Result<Vec<(String, SecretString)>, String> {
        let names: Vec<&String> = match self {
            Self::Command { secret_env, .. } => secret_env.iter().collect(),
            Self::Url { token_env, .. } => token_env.iter().collect(),
        };
        let read = |name: &String| {
            let value =
                std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?;
            let value = value.trim().to_owned();
            if value.len() < MIN_SECRET {
                return Err(format!(
                    "the variable {name} holds fewer than {MIN_SECRET} bytes, too few to be told from other text"
                ));
            }
            Ok((name.clone(), SecretString::from(value)))
        };
        names.into_iter().map(read).collect()
    }

    /// In a line, for people.
    pub fn line(&self) -> String {
        match self {
            Self::Command { command, .. } => command.join(" "),
            Self::Url { url, .. } => url.clone(),
        }
    }
}

/// What takes `secrets` out of what comes back.
pub fn redactor(secrets: &[(String, SecretString)]) -> Result<Redactor, String> {
    let pairs = secrets
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose_secret()));
    Redactor::new(pairs).map_err(|error| error.to_string())
}
