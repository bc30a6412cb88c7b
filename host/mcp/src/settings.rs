//! What an operator decides about a server.

use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_policy::Redactor;
use toolhold_protocol::function_names::{NameKind, NameMap};

/// Least bound of an answer's bytes: lists of tools may be larger than results.
const LIST_BYTES: usize = 4 << 20;
/// Bytes around a result in its message.
const ENVELOPE_BYTES: usize = 64 << 10;
/// Least bytes of a secret: a shorter one could not be told from ordinary text in a server's output.
const MIN_SECRET: usize = 8;

/// The names and values of a server's secrets, or why one cannot be used; then no call of the server is made.
pub type Secrets = Result<Vec<(String, SecretString)>, String>;

/// One server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Unique among servers and modules.
    pub name: String,
    /// How the server is started or reached.
    pub launch: Launch,
    /// The secrets that the server gets, as [`Launch::secrets`] reads them.
    pub secrets: Secrets,
    /// Bound of a call, with the start of the server if it has to be started.
    pub timeout: Duration,
    /// Bytes of a result.
    pub max_result_bytes: usize,
    /// The tools that may be called, by the server's names for them, or in another notation of those that fits one tool
    /// (`toolhold_protocol::function_names`). No other tool is called.
    pub tools: Vec<String>,
    /// Whether its tools are among the tools of every run.
    pub offer: bool,
    /// The configuration file was found in the working folder, and not named by the operator: it may be downloaded.
    pub found: bool,
    /// Why it cannot be used, even if it is approved.
    pub fault: Option<String>,
}

/// How a server is started or reached. Its JSON is part of the server's pin and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Launch {
    /// A program that speaks MCP on its stdin and stdout.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// Variables of its environment.
        env: BTreeMap<String, String>,
        /// Variables of our environment that it gets. Their values are removed from its output.
        secret_env: Vec<String>,
    },
    /// A server that speaks streamable HTTP.
    Url {
        /// Its address.
        url: String,
        /// The variable of our environment with the bearer token.
        token_env: Option<String>,
    },
}

impl ServerSettings {
    /// Bound of one message's bytes. JSON inside of JSON may double in size.
    pub fn message_bytes(&self) -> usize {
        let result = self.max_result_bytes.saturating_mul(2);
        result.max(LIST_BYTES).saturating_add(ENVELOPE_BYTES)
    }

    /// Returns the names of its tools as a part of Toolhold's: `SERVER.tool`.
    pub fn tool_names(&self) -> NameMap {
        NameMap::new(NameKind::Tool, self.tools.iter().map(String::as_str))
    }

    /// Returns the part of a pin besides the texts of the tools: how the server is started, and which tools may be
    /// called.
    pub fn grant(&self) -> serde_json::Value {
        let mut grant = serde_json::to_value(&self.launch).unwrap_or_default();
        if let Some(fields) = grant.as_object_mut() {
            fields.insert("tools".into(), self.tools.clone().into());
        }
        grant
    }
}

impl Launch {
    /// Reads the variables that hold secrets through `variable`, such as `|name| std::env::var(name).ok()`.
    ///
    /// # Errors
    /// A variable is not set, or too short to be found in the server's output.
    pub fn secrets(&self, variable: impl Fn(&str) -> Option<String>) -> Secrets {
        let names: Vec<&String> = match self {
            Self::Command { secret_env, .. } => secret_env.iter().collect(),
            Self::Url { token_env, .. } => token_env.iter().collect(),
        };
        let read = |name: &String| {
            let value = variable(name).ok_or_else(|| format!("the variable {name} is not set"))?;
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

    /// The command or URL in one line, for people.
    pub fn line(&self) -> String {
        match self {
            Self::Command { command, .. } => command.join(" "),
            Self::Url { url, .. } => url.clone(),
        }
    }
}

/// A redactor that removes `secrets` from the server's output.
pub fn redactor(secrets: &[(String, SecretString)]) -> Result<Redactor, String> {
    let pairs = secrets
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose_secret()));
    Redactor::new(pairs).map_err(|error| error.to_string())
}
