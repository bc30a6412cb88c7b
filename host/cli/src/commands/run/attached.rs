//! Texts that go with a task: files, and what is piped in.

use crate::terminal::{input, output, style};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toolhold_protocol::context::Message;

/// Most files of a task. More of them are a job for a module with a directory.
const MAX_FILES: usize = 32;
/// Most bytes of all texts together: a million tokens, which is more than a model's window.
const MAX_BYTES: u64 = 4 << 20;
/// Time after which a person is told that the run waits for stdin.
const QUIET_PERIOD: Duration = Duration::from_secs(2);

/// The texts as messages of the user: each file with its name, then stdin if it is a pipe or a file and `reads_stdin`.
///
/// # Errors
/// A text cannot be read within `deadline`, is too large, or is not UTF-8.
pub(super) async fn messages(
    files: Vec<PathBuf>,
    reads_stdin: bool,
    deadline: Duration,
) -> Result<Vec<Message>> {
    if files.len() > MAX_FILES {
        bail!(
            "--file was given {} times, and a task has at most {MAX_FILES} files",
            files.len()
        );
    }
    let reads_stdin = reads_stdin && input::is_piped();
    if files.is_empty() && !reads_stdin {
        return Ok(Vec::new());
    }
    let reading = tokio::task::spawn_blocking(move || read(&files, reads_stdin));
    let waiting = async {
        tokio::time::sleep(QUIET_PERIOD).await;
        let text =
            "for the end of stdin, which is a part of the task; `< /dev/null` gives the task none";
        if reads_stdin {
            output::note(&style::dim("waiting:"), text);
        }
        std::future::pending::<()>().await;
    };
    let all = tokio::select! {
        read = tokio::time::timeout(deadline, reading) => read,
        () = waiting => bail!("the texts of the task were not read"),
    };
    all.context("the texts of the task did not end within run.timeout_ms")??
}

fn read(files: &[PathBuf], reads_stdin: bool) -> Result<Vec<Message>> {
    let mut room = MAX_BYTES;
    let mut messages = Vec::new();
    for path in files {
        let text = input::text_file(path, &mut room)
            .with_context(|| format!("--file {}: {}", path.display(), rule(path)))?;
        messages.push(Message::user(format!("{}:\n\n{text}", path.display())));
    }
    if reads_stdin {
        let text = input::piped(&mut room).context(
            "stdin, which is a part of the task, cannot be used; the task takes text in UTF-8",
        )?;
        if !text.trim().is_empty() {
            messages.push(Message::user(text));
        }
    }
    Ok(messages)
}

/// What `--file` takes.
fn rule(path: &Path) -> &'static str {
    if path.is_dir() {
        "it is a folder; give a module the folder with --dir"
    } else {
        "it cannot be used; --file takes text in UTF-8, at most 4 MiB in all"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_bounded_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let of = async |files: Vec<PathBuf>| messages(files, false, Duration::from_secs(20)).await;
        let (a, b) = (file("a.md", b"one"), file("b.md", b"two"));
        let read = of(vec![a.clone(), b]).await.unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0], Message::user(format!("{}:\n\none", a.display())));
        let half = file("half", &vec![b'x'; 3 << 20]);
        for (files, expect) in [
            (vec![half.clone(), half], "at most 4 MiB in all"),
            (vec![file("png", b"\x89PNG")], "text in UTF-8"),
            (vec![folder.path().to_owned()], "it is a folder"),
            (vec![folder.path().join("none")], "No such file"),
            (vec![a; MAX_FILES + 1], "at most 32 files"),
        ] {
            let error = format!("{:#}", of(files).await.unwrap_err());
            assert!(error.contains(expect), "{error}");
        }
    }
}
