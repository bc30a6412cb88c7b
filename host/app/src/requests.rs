//! The requests folder: saved Requests, by name or by path (PROTOCOL.md, 6).

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use toolhold_agent::protocol::Saved;

/// Where saved Requests are looked for. Nothing outside of it is ever read.
#[derive(Debug, Clone)]
pub struct Requests {
    folder: PathBuf,
}

/// A Request that a person wrote has a few kilobytes; data belongs into its input.
const MAX_BYTES: u64 = 4 << 20;
const MAX_FILES: usize = 1_000;

impl Requests {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// No folder, and so no Requests.
    pub fn none() -> Self {
        Self::new(PathBuf::new())
    }

    /// Names that can be called, for messages.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .take(MAX_FILES)
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let is_json = path
                    .extension()
                    .is_some_and(|extension| extension == "json");
                is_json.then(|| Some(path.file_stem()?.to_str()?.to_owned()))?
            })
            .collect();
        names.sort();
        names
    }

    /// The Request that `name` means: `NAME` for `NAME.json` in the folder, or `./path.json` below it.
    /// `None` if it cannot be the name of one, or there is no such file.
    pub async fn find(&self, name: &str) -> Option<Result<Saved, String>> {
        let file = match name.strip_prefix("./") {
            Some(path)
                if Path::new(path)
                    .extension()
                    .is_some_and(|extension| extension == "json") =>
            {
                path.to_owned()
            }
            Some(_) => return None,
            None if name.contains(['/', '\\', ':', '#', '@']) => return None,
            None => format!("{name}.json"),
        };
        let folder = self.folder.clone();
        let shown = file.clone();
        let read = tokio::task::spawn_blocking(move || {
            // Below the folder, whatever links say.
            let folder = Dir::open_ambient_dir(folder, ambient_authority())?;
            let file = folder.open(file)?;
            let mut text = String::new();
            file.take(MAX_BYTES).read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(text)
        })
        .await;
        match read {
            Ok(Ok(text)) => Some(parse(&text).map_err(|reason| format!("{shown}: {reason}"))),
            Ok(Err(error))
                if error.kind() == std::io::ErrorKind::NotFound && !name.starts_with("./") =>
            {
                None
            }
            Ok(Err(error)) => Some(Err(format!(
                "{shown} in the requests folder cannot be read: {error}"
            ))),
            Err(error) => Some(Err(error.to_string())),
        }
    }
}

/// Reads the text of a saved Request.
pub fn parse(text: &str) -> Result<Saved, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("this is not JSON: {error}"))?;
    Saved::parse(&value)
}
