//! A conversation with one server: `initialize`, `tools/list`, `tools/call`, over either transport.

use crate::error::{Failure, one_line};
use crate::settings::{Launch, ServerSettings};
use crate::wire::process::Process;
use crate::wire::stderr::Stderr;
use crate::wire::web::HttpSession;
use secrecy::SecretString;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The protocol revision that we ask for.
const VERSION: &str = "2025-06-18";
/// Revisions that we accept: the methods that we use are the same in them.
const KNOWN: [&str; 4] = ["2024-11-05", "2025-03-26", VERSION, "2025-11-25"];
const MAX_PAGES: usize = 100;
pub const MAX_TOOLS: usize = 1_000;
/// Most tools of all pages together.
const MAX_LIST_BYTES: usize = 8 << 20;

/// An open session.
#[derive(Debug)]
pub struct McpSession {
    connection: Connection,
    /// The server's own name and version; untrusted text.
    pub server: String,
}

#[derive(Debug)]
enum Connection {
    Process(Process),
    Web(HttpSession),
}

impl McpSession {
    /// Starts or connects to the server, and agrees on a version.
    pub async fn open(
        settings: &ServerSettings,
        secrets: &[(String, SecretString)],
        stderr: Arc<Stderr>,
    ) -> Result<Self, Failure> {
        let connection = match &settings.launch {
            Launch::Command { command, env, .. } => {
                Connection::Process(Process::start(settings, command, env, secrets, stderr)?)
            }
            Launch::Url { url, .. } => Connection::Web(HttpSession::new(settings, url, secrets)?),
        };
        let hello = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "toolhold", "version": env!("CARGO_PKG_VERSION")},
        });
        let welcome = connection.request("initialize", hello).await?;
        let version = welcome.get("protocolVersion").and_then(Value::as_str);
        let version = version.unwrap_or_default();
        if !KNOWN.contains(&version) {
            return Err(Failure::Protocol(format!(
                "it speaks the version {:?}, and we {}",
                one_line(version),
                KNOWN.join(", ")
            )));
        }
        if welcome.pointer("/capabilities/tools").is_none() {
            return Err(Failure::Protocol("it says that it has no tools".into()));
        }
        if let Connection::Web(web) = &connection {
            web.agree(version);
        }
        connection.notify("notifications/initialized").await?;
        let text = |key| {
            let text = welcome.pointer(key).and_then(Value::as_str);
            one_line(text.unwrap_or_default())
                .chars()
                .take(64)
                .collect::<String>()
        };
        Ok(Self {
            connection,
            server: format!(
                "{} {}",
                text("/serverInfo/name"),
                text("/serverInfo/version")
            ),
        })
    }

    /// All items that the server lists, page by page, not validated.
    pub async fn tools(&self) -> Result<Vec<Value>, Failure> {
        let mut tools = Vec::new();
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        let mut params = json!({});
        for _ in 0..MAX_PAGES {
            let mut page = self.connection.request("tools/list", params).await?;
            bytes += page.to_string().len();
            let Some(Value::Array(listed)) = page.get_mut("tools").map(Value::take) else {
                return Err(Failure::Protocol("its list of tools is no list".into()));
            };
            tools.extend(listed);
            if tools.len() > MAX_TOOLS || bytes > MAX_LIST_BYTES {
                return Err(Failure::Protocol(format!(
                    "it lists more than {MAX_TOOLS} tools or {MAX_LIST_BYTES} bytes of them"
                )));
            }
            match page.get("nextCursor").and_then(Value::as_str) {
                None => return Ok(tools),
                Some(cursor) if seen.insert(cursor.to_owned()) => {
                    params = json!({"cursor": cursor});
                }
                Some(_) => {
                    return Err(Failure::Protocol(
                        "its list of tools goes round in circles".into(),
                    ));
                }
            }
        }
        Err(Failure::Protocol(format!(
            "its list of tools has more than {MAX_PAGES} pages"
        )))
    }

    pub async fn call(&self, tool: &str, arguments: &Value) -> Result<Value, Failure> {
        let params = json!({"name": tool, "arguments": arguments});
        self.connection.request("tools/call", params).await
    }

    pub fn is_open(&self) -> bool {
        match &self.connection {
            Connection::Process(process) => process.is_open(),
            Connection::Web(web) => web.is_open(),
        }
    }

    /// Whether the server announced a change of its tools since the previous call.
    pub fn tools_changed(&self) -> bool {
        match &self.connection {
            Connection::Process(process) => process.tools_changed(),
            Connection::Web(web) => web.tools_changed(),
        }
    }

    /// Kills the process of the session at once; open requests fail.
    pub fn kill(&self) {
        if let Connection::Process(process) = &self.connection {
            process.kill();
        }
    }

    /// Ends the session orderly. Dropping it ends it at once.
    pub async fn close(&mut self) {
        match &mut self.connection {
            Connection::Process(process) => process.close().await,
            Connection::Web(web) => web.close().await,
        }
    }
}

impl Connection {
    async fn request(&self, method: &str, params: Value) -> Result<Value, Failure> {
        match self {
            Self::Process(process) => process.request(method, params).await,
            Self::Web(web) => web.request(method, params).await,
        }
    }

    async fn notify(&self, method: &str) -> Result<(), Failure> {
        match self {
            Self::Process(process) => process.notify(method).await,
            Self::Web(web) => web.notify(method).await,
        }
    }
}
