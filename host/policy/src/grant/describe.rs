//! A grant in words, for the person who decides.

use super::{Access, Grant, Keep, Randomness};
use crate::secret::SecretPlace;

impl Grant {
    /// The same without the values of variables, for what is kept: one may be a secret after all.
    pub fn without_values(&self) -> Vec<String> {
        let mut named = self.clone();
        for value in named.environment.values_mut() {
            "…".clone_into(value);
        }
        named.sentences()
    }

    /// One sentence for each thing the module may do, beginning with a verb.
    pub fn sentences(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for directory in &self.directories {
            let verb = match directory.access {
                Access::Read => "read",
                Access::ReadWrite => "read, write and delete",
            };
            let quota = directory.quota_bytes.map_or(String::new(), |bytes| {
                format!(", at most {bytes} bytes in all")
            });
            lines.push(format!(
                "{verb} files in {}, which it sees as {}{quota}",
                directory.host.display(),
                directory.guest
            ));
        }
        if let Some(scratch) = &self.scratch {
            let kept = match scratch.keep {
                Keep::Call => "emptied after every call",
                Keep::Session => "kept for the calls of a session",
            };
            lines.push(format!(
                "keep {} bytes of scratch files in {}, {kept}",
                scratch.quota_bytes, scratch.guest
            ));
        }
        for (name, value) in &self.environment {
            lines.push(format!("see the variable {name}={value}"));
        }
        for http in &self.http {
            let sentence = http.to_string();
            lines.push(
                sentence
                    .strip_prefix("may ")
                    .unwrap_or(&sentence)
                    .to_owned(),
            );
        }
        for secret in &self.secrets {
            let slot = secret.slot();
            let place = match &slot.place {
                SecretPlace::Header { name, .. } => format!("the header {name}"),
                SecretPlace::Query { name } => format!("the query parameter {name}"),
            };
            let refused = if secret.is_refused() {
                "; a response that holds it is refused"
            } else {
                ""
            };
            lines.push(format!(
                "have the secret {} put into {place} of its requests to {}, without seeing it{refused}",
                slot.name, slot.origin
            ));
        }
        if let Some(key_value) = &self.key_value {
            let of = if key_value.namespace.is_empty() {
                String::new()
            } else {
                format!(", shared by all modules of {:?}", key_value.namespace)
            };
            lines.push(format!(
                "remember {} bytes of keys and values between calls{of}",
                key_value.quota_bytes
            ));
        }
        if let Some(knowledge) = &self.knowledge {
            lines.extend(knowledge.sentences());
        }
        for tool in &self.tools {
            lines.push(format!("call the tool {tool}, with that tool's own grants"));
        }
        if !self.clocks.is_default() {
            lines.push(format!(
                "tell the time to {} microseconds",
                self.clocks.precision_us
            ));
        }
        if let Randomness::Seed(seed) = self.randomness {
            lines.push(format!(
                "draw the same random numbers in every call (seed {seed})"
            ));
        }
        lines
    }
}
