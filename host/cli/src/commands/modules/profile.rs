//! The profile of one call: a file for the Firefox Profiler, and a table for those without a browser.

use crate::terminal::columns::{Column, aligned};
use crate::terminal::output::{self, NoteMark};
use crate::terminal::style::plain;
use anyhow::{Result, bail};
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolhold_admission::own_work;
use toolhold_policy::{ProfileSlot, ProfileSummary};

/// A profile that is to be written when the call is over.
#[derive(Debug)]
pub struct RequestedProfile {
    file: PathBuf,
    slot: Arc<ProfileSlot>,
}

/// What became of it.
#[derive(Debug, Serialize)]
pub struct WrittenProfile {
    file: PathBuf,
    #[serde(flatten)]
    summary: Option<ProfileSummary>,
    /// Why there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl RequestedProfile {
    /// # Errors
    /// The file cannot be there, or what is there is no file: said before anything is called.
    pub fn new(file: &Path) -> Result<Self> {
        let folder = file.parent().unwrap_or(file);
        let is_here = folder.as_os_str().is_empty();
        let has_name = file.file_name().is_some_and(|name| name.to_str().is_some());
        if !has_name || !(is_here || folder.is_dir()) {
            bail!(
                "--profile {}: expected a file in a folder that is there, with a name in UTF-8",
                file.display()
            );
        }
        // The file is replaced: a device, a pipe or a link (`/dev/stdout` is one) would be gone.
        match file.symlink_metadata() {
            Ok(there) if !there.is_file() => bail!(
                "--profile {}: it is there and is no regular file, which the profile would replace; name another",
                file.display()
            ),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                bail!("--profile {}: {error}", file.display())
            }
            _ => {}
        }
        Ok(Self {
            file: file.to_owned(),
            slot: Arc::default(),
        })
    }

    /// What takes the profile of the call.
    pub fn slot(&self) -> Arc<ProfileSlot> {
        self.slot.clone()
    }

    /// Writes what the slot took. That there is no profile is no failure of the call.
    pub async fn write(self) -> Result<WrittenProfile> {
        let Self { file, slot } = self;
        let (summary, error) = match slot.take() {
            None => (None, Some("the module's code did not run".to_owned())),
            Some(Err(reason)) => (None, Some(reason)),
            Some(Ok(profile)) => {
                let path = file.clone();
                let written =
                    own_work(move || toolhold_files::replace(&path, &profile.firefox_json));
                let error = written.await?.err().map(|error| error.to_string());
                (Some(profile.summary), error)
            }
        };
        Ok(WrittenProfile {
            file,
            summary,
            error,
        })
    }
}

impl WrittenProfile {
    /// Shows it to the person at the terminal.
    pub fn show(&self) {
        let file = self.file.display();
        if let Some(error) = &self.error {
            output::note(
                NoteMark::Warn("profile:"),
                &format!("{file} was not written: {error}"),
            );
        }
        let Some(summary) = &self.summary else {
            return;
        };
        if self.error.is_none() {
            output::remark(&format!(
                "profile: {file}; open it at https://profiler.firefox.com, which reads it in the browser and uploads nothing"
            ));
        }
        output::remark(&counted(summary));
        for line in table(summary) {
            output::say(&plain(&line));
        }
    }
}

fn counted(summary: &ProfileSummary) -> String {
    let much = match summary.samples {
        0 => "no samples: the call computed for less than a millisecond".to_owned(),
        1 => "1 sample, at most one each millisecond in which the module computes".to_owned(),
        samples => {
            format!("{samples} samples, at most one each millisecond in which the module computes")
        }
    };
    if summary.is_cut {
        format!("{much}; sampling ended before the call, at its bound")
    } else {
        much
    }
}

fn table(summary: &ProfileSummary) -> Vec<String> {
    if summary.functions.is_empty() {
        return Vec::new();
    }
    let share = |count: u64| format!("{:.1} %", count as f64 * 100.0 / summary.samples as f64);
    let headings = ["self", "total", "function"].map(str::to_owned);
    let rows = summary
        .functions
        .iter()
        .map(|it| [share(it.own), share(it.total), it.name.to_string()]);
    let layout = [Column::Right(8), Column::Right(8), Column::Left(0)];
    aligned(&layout, 2, std::iter::once(headings).chain(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use toolhold_policy::ProfiledFunction;

    #[test]
    fn names_of_functions_are_shown_escaped() {
        let summary = ProfileSummary {
            samples: 3,
            is_cut: true,
            functions: vec![ProfiledFunction {
                name: "hot\u{1b}[2J".into(),
                own: 2,
                total: 3,
            }],
        };
        let lines = table(&summary).join("\n");
        assert!(lines.contains("66.7 %   100.0 %  hot\\u{1b}[2J"), "{lines}");
        assert!(counted(&summary).starts_with("3 samples, "));
        assert!(counted(&summary).ends_with("at its bound"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_before_the_call() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, link) = (folder.path().join("socket"), folder.path().join("link"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::write(folder.path().join("old.json"), "{}").unwrap();
        std::os::unix::fs::symlink("old.json", &link).unwrap();
        for wrong in [
            folder.path().to_owned(),
            folder.path().join("none/a.json"),
            folder.path().join(OsStr::from_bytes(b"a\xff.json")),
            "/dev/null".into(),
            "/dev/stdout".into(),
            socket,
            link,
        ] {
            assert!(RequestedProfile::new(&wrong).is_err(), "{wrong:?}");
        }
        assert!(RequestedProfile::new(&folder.path().join("old.json")).is_ok());
        assert!(RequestedProfile::new(&folder.path().join("a.json")).is_ok());
        assert!(RequestedProfile::new(Path::new("a.json")).is_ok());
    }
}
