//! Passes on what a guest says while its call still runs.

use std::sync::Arc;
use toolhold_policy::{Listener, LogLine, Progress, Redactor};

/// Where the logs and the progress of one call go: to its listener, if it has one, without secrets.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestLogSink {
    listener: Option<Arc<dyn Listener>>,
    redactor: Redactor,
}

impl GuestLogSink {
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
    use std::sync::Mutex;
    use toolhold_policy::LogLevel;

    #[derive(Debug, Default)]
    struct CapturedLines(Mutex<Vec<String>>);

    impl Listener for CapturedLines {
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
    fn no_listener_gets_a_secret() {
        let heard = Arc::new(CapturedLines::default());
        let redactor = Redactor::new([("key", "s3cr3t-value")]).unwrap();
        let sink = GuestLogSink::new(Some(heard.clone()), &redactor);
        sink.logged(&LogLine {
            level: LogLevel::Info,
            message: "it is s3cr3t-value".into(),
        });
        sink.progressed(1, 0, "s3cr3t-value");
        sink.progressed(2, 4, "half");
        assert_eq!(
            *heard.0.lock().unwrap(),
            [
                "it is [secret key]",
                "1 None [secret key]",
                "2 Some(4) half"
            ]
        );
        GuestLogSink::default().progressed(1, 2, "without a listener");
    }
}
