//! Failures of servers, and who can resolve them.

use std::time::Duration;
use thiserror::Error;
use toolhold_policy::ErrorClass;
use toolhold_policy::visible;
use toolhold_protocol::failure::ToolFailure;
use toolhold_schema::CheckTooCostly;

/// Characters of a server's text in a failure.
const MAX_QUOTED: usize = 500;

/// A call or a session failed. Text of the server is cleaned and cut when the failure is made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    #[error("it cannot be used: {0}")]
    Settings(String),
    #[error("{0}")]
    NotApproved(String),
    /// The call ran while the pin was revoked.
    #[error(
        "the call was stopped, because the pin of the server was taken back; what it did until then is done"
    )]
    Revoked,
    #[error("denied: mcp not granted to this key")]
    Withheld,
    #[error("it cannot be started: {0}")]
    Start(String),
    #[error("it ended{0}")]
    Ended(String),
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error(
        "it refuses us with status {0}; the operator of this host must configure a token for it (token_env)"
    )]
    Forbidden(String),
    #[error("it does not speak MCP as it should: {0}")]
    Protocol(String),
    #[error("it sent more than the {0} bytes that a result may have; ask for less")]
    TooLarge(usize),
    #[error("it did not answer within {} ms; ask for less work in one call", .0.as_millis())]
    Deadline(Duration),
    #[error("it has no tool {tool:?} that may be called{known}")]
    UnknownTool { tool: String, known: String },
    #[error("the arguments do not fit the tool's parameters: {0}")]
    Arguments(String),
    #[error("its result cannot be used: {0}")]
    Output(String),
    #[error("the tool returned something that does not fit its own output schema: {0}")]
    OutputSchema(String),
    #[error("its arguments or its result: {0}")]
    CheckCost(CheckTooCostly),
    /// The tool itself reported a failure, as a result or as an error of the application.
    #[error("the tool reports: {0}")]
    Tool(String),
    #[error("it answered with the error {code}: {message}")]
    Rpc { code: i64, message: String },
}

impl Failure {
    /// The failure for a JSON-RPC error. -32602 means wrong arguments, or an unknown tool.
    pub fn of_rpc(code: i64, message: &str) -> Self {
        let message = one_line(message);
        match code {
            -32_602 => Self::Arguments(message),
            _ => Self::Rpc { code, message },
        }
    }

    /// The failure's name for models and records.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Settings(_) | Self::Start(_) | Self::Forbidden(_) => "host",
            Self::NotApproved(_) => "not_approved",
            Self::Revoked => "revoked",
            Self::Withheld => "denied",
            Self::Ended(_) | Self::Unreachable(_) | Self::Rpc { .. } => "server",
            Self::Protocol(_) => "protocol",
            Self::TooLarge(_) | Self::Output(_) => "output",
            Self::Deadline(_) => "deadline",
            Self::UnknownTool { .. } => "unknown_tool",
            Self::Arguments(_) => "arguments",
            Self::OutputSchema(_) => "output_schema",
            Self::CheckCost(_) => "check_cost",
            Self::Tool(_) => "tool",
        }
    }

    /// Whether a retry, or other arguments, can help.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Settings(_)
            | Self::NotApproved(_)
            | Self::Revoked
            | Self::Withheld
            | Self::Start(_)
            | Self::Forbidden(_)
            | Self::Protocol(_) => ErrorClass::Fatal,
            Self::Ended(_) | Self::Unreachable(_) | Self::Deadline(_) => ErrorClass::Retryable,
            Self::Rpc { code, .. } => match code {
                // The server did not understand us: neither a retry nor other arguments help.
                -32_700 | -32_600 | -32_601 => ErrorClass::Fatal,
                // A fault inside the server.
                -32_603 | -32_099..=-32_000 => ErrorClass::Retryable,
                _ => ErrorClass::Correctable,
            },
            Self::TooLarge(_)
            | Self::UnknownTool { .. }
            | Self::Arguments(_)
            | Self::Output(_)
            | Self::OutputSchema(_)
            | Self::CheckCost(_)
            | Self::Tool(_) => ErrorClass::Correctable,
        }
    }

    /// The failure as the model reads it; it names the server.
    pub fn told(&self, server: &str) -> ToolFailure {
        ToolFailure {
            kind: self.kind().into(),
            class: self.class(),
            message: format!("the MCP server {server}: {self}"),
        }
    }
}

/// A server's text for a message: cleaned, cut, and in one line, so that it cannot look like a message of its own.
pub fn one_line(text: &str) -> String {
    let lines = ['\n', '\r', '\t', '\u{85}', '\u{2028}', '\u{2029}'];
    visible(&text.trim().replace(lines, " "), MAX_QUOTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_protocol_have_a_class() {
        for (code, kind, class) in [
            (-32_602, "arguments", ErrorClass::Correctable),
            (-32_601, "server", ErrorClass::Fatal),
            (-32_603, "server", ErrorClass::Retryable),
            (-32_001, "server", ErrorClass::Retryable),
            (17, "server", ErrorClass::Correctable),
        ] {
            let failure = Failure::of_rpc(code, "\nno\u{202e}\n");
            assert_eq!((failure.kind(), failure.class()), (kind, class), "{code}");
            let told = failure.told("s").message;
            assert!(
                told.starts_with("the MCP server s: ") && told.ends_with("no"),
                "{told}"
            );
        }
    }
}
