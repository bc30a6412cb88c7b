//! `[mcp.NAME]`: servers whose tools may be called.

use crate::config::surroundings::{ConfigFault, at_least_one};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_mcp::{Launch, ServerSettings, address};
use toolhold_policy::is_name;

/// Enough for servers that look something up; slower ones set their own timeout.
const TIMEOUT_MS: u64 = 30_000;
/// Far more than a model can read, and enough for data that is passed by reference.
const MAX_RESULT_BYTES: usize = 1 << 20;
const MAX_TOOL_NAME: usize = 128;
const MAX_TOOLS: usize = 256;

/// The table as written. A wrong value is an error of the configuration: a limit must not be missing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct McpTable {
    command: Option<Vec<String>>,
    env: BTreeMap<String, String>,
    secret_env: Vec<String>,
    url: Option<String>,
    token_env: Option<String>,
    timeout_ms: Option<u64>,
    max_result_bytes: Option<usize>,
    tools: Vec<String>,
    offer: bool,
}

impl McpTable {
    /// The variables that hold secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let token = self.token_env.as_deref();
        self.secret_env.iter().map(String::as_str).chain(token)
    }

    /// Checks the table. `is_found` and `is_state_found`: whether the table, or the state folder, comes from
    /// a file that was found in the working folder. `variable` reads the environment.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn settings(
        &self,
        name: &str,
        is_found: bool,
        is_state_found: bool,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ServerSettings, ConfigFault> {
        if !is_name(name) {
            let reason = "a server's name is lower case letters, digits and _, at most 48, starting with a letter";
            return Err(ConfigFault::new("command", reason));
        }
        at_least_one([
            ("timeout_ms", self.timeout_ms == Some(0)),
            ("max_result_bytes", self.max_result_bytes == Some(0)),
        ])?;
        if self.tools.len() > MAX_TOOLS {
            let reason = format!("has more than {MAX_TOOLS} names");
            return Err(ConfigFault::new("tools", reason));
        }
        if let Some(wrong) = self.tools.iter().find(|tool| !is_tool(tool)) {
            let form = "1 to 128 letters, digits, _, -, . and /";
            let reason = format!("{wrong:?} is no tool's name: {form}");
            return Err(ConfigFault::new("tools", reason));
        }
        let launch = self.launch()?;
        Ok(ServerSettings {
            name: name.to_owned(),
            secrets: launch.secrets(variable),
            launch,
            timeout: Duration::from_millis(self.timeout_ms.unwrap_or(TIMEOUT_MS)),
            max_result_bytes: self.max_result_bytes.unwrap_or(MAX_RESULT_BYTES),
            tools: self.tools.clone(),
            offer: self.offer,
            found: is_found,
            fault: (is_found && is_state_found).then(|| {
                "./toolhold.toml names both the server and, as paths.state, the folder with its pin; \
                 name that folder in a variable or in your own file, or this file with --config"
                    .into()
            }),
        })
    }

    fn launch(&self) -> Result<Launch, ConfigFault> {
        let wrong = |key, reason| Err(ConfigFault::new(key, reason));
        match (&self.command, &self.url) {
            (Some(command), None) => {
                if command.first().is_none_or(String::is_empty) {
                    let reason = "needs a program, such as [\"uvx\", \"server\"]";
                    return wrong("command", reason);
                }
                if self.token_env.is_some() {
                    return wrong("token_env", "is for a url; give a command secret_env");
                }
                Ok(Launch::Command {
                    command: command.clone(),
                    env: self.env.clone(),
                    secret_env: self.secret_env.clone(),
                })
            }
            (None, Some(url)) => {
                address(url).map_err(|reason| ConfigFault::new("url", reason))?;
                if !self.env.is_empty() || !self.secret_env.is_empty() {
                    return wrong("env", "is for a command; give a url token_env");
                }
                Ok(Launch::Url {
                    url: url.clone(),
                    token_env: self.token_env.clone(),
                })
            }
            _ => wrong("command", "give either `command` or `url`"),
        }
    }
}

fn is_tool(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    !name.is_empty() && name.len() <= MAX_TOOL_NAME && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServerSettings, ConfigFault> {
        let table: McpTable = toml::from_str(text).unwrap();
        table.settings("weather", false, false, &|_| None)
    }

    #[test]
    fn nothing_may_be_called_that_is_not_named() {
        let settings = read("command = [\"server\"]").unwrap();
        assert!(settings.tools.is_empty() && !settings.offer && settings.fault.is_none());
    }

    #[test]
    fn a_wrong_table_names_the_key() {
        for (text, key) in [
            ("", "command"),
            ("command = []", "command"),
            ("command = [\"\"]", "command"),
            ("command = [\"a\"]\nurl = \"https://a\"", "command"),
            ("command = [\"a\"]\ntoken_env = \"T\"", "token_env"),
            ("url = \"http://example.com\"", "url"),
            ("url = \"https://example.com\"\nenv = { A = \"b\" }", "env"),
            ("command = [\"a\"]\ntimeout_ms = 0", "timeout_ms"),
            (
                "command = [\"a\"]\nmax_result_bytes = 0",
                "max_result_bytes",
            ),
            ("command = [\"a\"]\ntools = [\"a b\"]", "tools"),
        ] {
            assert_eq!(read(text).unwrap_err().key, key, "{text}");
        }
        let table: McpTable = toml::from_str("command = [\"a\"]").unwrap();
        assert!(table.settings("Weather", false, false, &|_| None).is_err());
    }

    #[test]
    fn a_file_that_was_found_cannot_bring_its_own_pin() {
        let table: McpTable = toml::from_str("command = [\"a\"]").unwrap();
        assert!(
            table
                .settings("weather", true, true, &|_| None)
                .unwrap()
                .fault
                .is_some()
        );
        let found = table.settings("weather", true, false, &|_| None).unwrap();
        assert!(found.found && found.fault.is_none());
    }
}
