//! The interfaces of `toolhold:module` that a module may import: log, progress, keys and values,
//! secrets by reference, other modules' tools. Each answers "denied" to a module that was not
//! granted it. What needs no grant, the call itself, is in
//! `current_call`; documents and facts are in `knowledge`.

use crate::bindings::{key_value, log, other_tools, progress, secrets, types};
use crate::blocking::Stop;
use crate::call::CallState;
use crate::call::meter::KeptBytes;
use crate::disk::key_value::{KeyValueError, Namespace};
use key_value::KeyValueError as Denial;
use toolhold_policy::{CallError, ErrorClass};
use toolhold_policy::{LogLevel, LogLine};

/// Most bytes of a note beside progress. People read a line of it.
const MAX_NOTE_BYTES: usize = 4 << 10;

impl types::Host for CallState {}

impl log::Host for CallState {
    fn write(&mut self, level: log::Level, message: String) {
        let level = match level {
            log::Level::Trace => LogLevel::Trace,
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.logs.log(LogLine { level, message });
    }
}

impl progress::Host for CallState {
    fn report(&mut self, done: u64, total: u64, mut note: String) {
        // Those who watch keep the last one.
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
        self.logs.sink.progressed(done, total, &note);
        let of = if total == 0 {
            String::new()
        } else {
            format!(" of {total}")
        };
        self.logs.push(LogLine {
            level: LogLevel::Info,
            message: format!("{done}{of} {note}"),
        });
    }
}

impl key_value::Host for CallState {
    async fn get(&mut self, key: String) -> Result<Option<Vec<u8>>, Denial> {
        let value = self
            .with_namespace(move |space, stop, kept| {
                space.get(&key, stop, |bytes| kept.grow(bytes).is_ok())
            })
            .await?;
        self.count(value.as_ref().map_or(0, Vec::len))?;
        Ok(value)
    }

    async fn set(&mut self, key: String, value: Vec<u8>) -> Result<(), Denial> {
        let bytes = key.len() + value.len();
        self.count(bytes)?;
        self.with_namespace(move |space, stop, kept| {
            // While other writes are waited for.
            kept.grow(bytes as u64).map_err(|_| KeyValueError::NoRoom)?;
            space.set(&key, &value, stop)
        })
        .await
    }

    async fn delete(&mut self, key: String) -> Result<bool, Denial> {
        self.with_namespace(move |space, stop, _| space.delete(&key, stop))
            .await
    }

    async fn keys(&mut self, prefix: String) -> Result<Vec<String>, Denial> {
        let keys = self
            .with_namespace(move |space, stop, kept| {
                space.keys(&prefix, stop, |bytes| kept.grow(bytes).is_ok())
            })
            .await?;
        self.count(keys.iter().map(String::len).sum())?;
        Ok(keys)
    }
}

impl CallState {
    /// Runs `work` on the module's namespace, off the async threads. It changes nothing after the call, or after what the
    /// call may use was taken back. What it counts as kept stays counted until the guest has taken it.
    async fn with_namespace<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Namespace, &Stop, &mut KeptBytes) -> Result<T, KeyValueError>
        + Send
        + 'static,
    ) -> Result<T, Denial> {
        self.revocation.check().map_err(|_| Denial::Denied)?;
        let Some(space) = self.key_value.clone() else {
            self.denials.key_value();
            return Err(Denial::Denied);
        };
        let kept = self.gauge.keep(0);
        let mut kept = kept.map_err(|full| Denial::Other(full.to_string()))?;
        let work = move |stop: &Stop| work(&space, stop, &mut kept).map(|done| (done, kept));
        let done = self.work.run(work).await;
        done.map(|(done, kept)| {
            self.answers(kept);
            done
        })
        .map_err(|error| match error {
            KeyValueError::Key => Denial::InvalidKey,
            KeyValueError::Quota { .. } => Denial::Quota,
            full @ KeyValueError::NoRoom => Denial::Other(full.to_string()),
            KeyValueError::Io(_) if self.revocation.check().is_err() => Denial::Denied,
            // The host's own paths are none of the guest's business.
            KeyValueError::Io(error) => Denial::Other(error.kind().to_string()),
        })
    }

    fn count(&self, bytes: usize) -> Result<(), Denial> {
        self.gauge
            .moved(bytes as u64)
            .map_err(|error| Denial::Other(error.to_string()))
    }
}

impl secrets::Host for CallState {
    fn available(&mut self) -> Vec<secrets::Secret> {
        let granted = self.outbound.secrets();
        let told = granted.iter().map(|secret| secrets::Secret {
            name: secret.slot().name.clone(),
            origin: secret.slot().origin.to_string(),
        });
        told.collect()
    }
}

impl other_tools::Host for CallState {
    async fn call(&mut self, tool: String, arguments: String) -> Result<String, types::ToolError> {
        let (other_tools, clock) = (self.other_tools.clone(), self.clock.clone());
        let called = match self.revocation.check() {
            Ok(()) => {
                if !other_tools.has(&tool) {
                    self.denials.tool(&tool);
                }
                other_tools
                    .call(&tool, &arguments, clock, &self.gauge)
                    .await
            }
            Err(revoked) => Err(CallError::Denied {
                reason: revoked.to_string(),
            }),
        };
        let text = called.map(|(text, kept)| {
            self.answers(kept);
            text
        });
        text.map_err(|error| types::ToolError {
            class: match error.class() {
                ErrorClass::Correctable => types::ErrorClass::Correctable,
                ErrorClass::Retryable => types::ErrorClass::Retryable,
                ErrorClass::Fatal => types::ErrorClass::Fatal,
            },
            message: error.to_string(),
            data: match error {
                CallError::Tool { data, .. } => data.map(|data| data.to_string()),
                _ => None,
            },
        })
    }
}
