//! The log on stderr. What it says of modules, servers and models is their text, so it is escaped like theirs.

use crate::terminal::{rows, style};
use std::io::{self, Write};
use toolhold_policy::text;
use toolhold_runtime::config::LogFormat;
use tracing::Metadata;

/// Writes each event escaped. An event comes in one write.
#[derive(Debug)]
pub struct EscapedLog {
    pub format: LogFormat,
}

impl Write for EscapedLog {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let shown = escaped(
            text.trim_end_matches('\n'),
            self.format,
            style::has_colours(),
        );
        let shown = rows::broken(&shown, rows::width(&io::stderr()));
        io::stderr().write_all(format!("{shown}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// False for events of libraries that hold a line of a file of passwords: sqlx logs a malformed line of `.pgpass` as it is.
pub fn holds_no_secret(event: &Metadata<'_>) -> bool {
    !(event.target().starts_with("sqlx_postgres::options::pgpass")
        && event.fields().field("line").is_some())
}

/// The colours are the log's own: the formatter escapes those in values.
fn escaped(event: &str, format: LogFormat, has_colours: bool) -> String {
    match format {
        LogFormat::Json => text::json(event),
        LogFormat::Text if has_colours => {
            let parts: Vec<String> = event.split('\x1b').map(style::block).collect();
            parts.join("\x1b")
        }
        LogFormat::Text => style::block(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_escaped() {
        let event = "WARN left out: a\u{202e}b\u{9b}\nERROR forged";
        let shown = "WARN left out: a\\u{202e}b\\u{9b}\n  │ ERROR forged";
        assert_eq!(escaped(event, LogFormat::Text, false), shown);
        let coloured = format!("\x1b[33m{event}");
        assert_eq!(
            escaped(&coloured, LogFormat::Text, true),
            format!("\x1b[33m{shown}")
        );
        assert_eq!(
            escaped("{\"a\":\"\u{9b}\"}", LogFormat::Json, false),
            r#"{"a":"\u009b"}"#
        );
    }
}
