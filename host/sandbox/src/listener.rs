//! Hearing what a guest says while its call still runs.

use crate::capture::LogLine;
use crate::secret::Redactor;
use std::fmt::Debug;
use std::sync::Arc;

/// Told what a guest logs and how far it has come, as it happens. Secrets are taken out before. The
/// guest waits meanwhile, and it says as much as it likes: methods must return at once, and keep no
/// more than they have room for.
pub trait Listener: Send + Sync + Debug {
    /// A line that the report will have, too.
    fn logged(&self, line: LogLine);

    fn progressed(&self, progress: Progress);
}

/// How far a call has come, in its own measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    /// Absent: not known.
    pub total: Option<u64>,
    /// The guest's own words.
    pub note: String,
}

/// Whoever listens to one call, if anybody does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ear {
    listener: Option<Arc<dyn Listener>>,
    redactor: Redactor,
}

impl Ear {
    pub fn new(listener: Option<Arc<dyn Listener>>, redactor: &Redactor) -> Self {
        Self {
            listener,
            redactor: redactor.clone(),
        }
    }

    pub fn logged(&self, line: &LogLine) {
        if let Some(listener) = &self.listener {
            listener.logged(LogLine {
                level: line.level,
                message: self.cleaned(&line.message),
            });
        }
    }

    pub fn progressed(&self, done: u64, total: u64, note: &str) {
        if let Some(listener) = &self.listener {
            listener.progressed(Progress {
                done,
                total: (total > 0).then_some(total),
                note: self.cleaned(note),
            });
        }
    }

    fn cleaned(&self, text: &str) -> String {
        match self.redactor.clean(text.as_bytes()) {
            Some(cleaned) => String::from_utf8_lossy(&cleaned.bytes).into_owned(),
            None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::LogLevel;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Listener for Heard {
        fn logged(&self, line: LogLine) {
            self.0.lock().unwrap().push(line.message);
        }

        fn progressed(&self, progress: Progress) {
            let Progress { done, total, note } = progress;
            self.0
                .lock()
                .unwrap()
                .push(format!("{done} {total:?} {note}"));
        }
    }

    #[test]
    fn nobody_hears_a_secret() {
        let heard = Arc::new(Heard::default());
        let redactor = Redactor::new([("key", "s3cr3t-value")]).unwrap();
        let ear = Ear::new(Some(heard.clone()), &redactor);
        ear.logged(&LogLine {
            level: LogLevel::Info,
            message: "it is s3cr3t-value".into(),
        });
        ear.progressed(1, 0, "s3cr3t-value");
        ear.progressed(2, 4, "half");
        assert_eq!(
            *heard.0.lock().unwrap(),
            [
                "it is [secret key]",
                "1 None [secret key]",
                "2 Some(4) half"
            ]
        );
        Ear::default().progressed(1, 2, "to nobody");
    }
}
