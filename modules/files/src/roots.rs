//! Which directories were granted, and where a path that a model wrote leads.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use toolhold_guest::Error;

/// The granted directories by their guest paths, in the order of the grants.
#[derive(Clone)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// What this instance was granted. `std` has no call for it, WASI has.
    #[cfg(target_os = "wasi")]
    pub fn granted() -> Self {
        let directories = wasip2::filesystem::preopens::get_directories();
        Self(
            directories
                .into_iter()
                .map(|(_, path)| PathBuf::from(path))
                .collect(),
        )
    }

    /// Natively, in tests, nothing is granted.
    #[cfg(not(target_os = "wasi"))]
    pub fn granted() -> Self {
        Self(Vec::new())
    }

    #[cfg(test)]
    pub fn of(directories: &[&Path]) -> Self {
        Self(directories.iter().map(|path| path.to_path_buf()).collect())
    }

    /// The place a path means: relative ones begin in the first granted directory, absolute ones
    /// must lie in a granted one.
    pub fn resolve(&self, path: &str) -> Result<PathBuf, Error> {
        let Some(first) = self.0.first() else {
            return Err(Error::fatal(
                "no directory is granted to this module: ask the operator to grant it one \
                 (directory `/data`, access `read` or `read-write`), then call again",
            ));
        };
        let asked = Path::new(path);
        let root = if asked.is_absolute() {
            self.0.iter().find(|root| asked.starts_with(root))
        } else {
            Some(first)
        };
        let outside = || {
            Error::correctable(format!(
                "`{path}` is outside the granted directories; use a relative path or one under {}",
                self.names().join(", ")
            ))
        };
        let root = root.ok_or_else(outside)?;
        let inside = if asked.is_absolute() {
            asked.strip_prefix(root).unwrap_or(asked)
        } else {
            asked
        };

        let mut resolved = PathBuf::new();
        for component in inside.components() {
            match component {
                Component::Normal(name) => resolved.push(name),
                Component::ParentDir if !resolved.pop() => return Err(outside()),
                _ => {}
            }
        }
        // A path with a slash at its end would ask the system for a directory.
        Ok(if resolved.as_os_str().is_empty() {
            root.clone()
        } else {
            root.join(resolved)
        })
    }

    /// How results name a path: so that the next call can pass it back, and as short as may be.
    pub fn display(&self, path: &Path) -> String {
        let relative = self.0.first().and_then(|root| path.strip_prefix(root).ok());
        match relative {
            Some(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
            Some(inside) => inside.display().to_string(),
            None => path.display().to_string(),
        }
    }

    /// The granted directories besides the first.
    pub fn others(&self) -> Vec<String> {
        self.names().split_off(self.0.len().min(1))
    }

    /// Says that there is a FIFO, a socket or a device, which the system refuses for no reason that the model could
    /// see. Whatever else is there, or is not, is for opening to find out.
    pub fn may_open(&self, path: &Path, action: &str) -> Result<(), Error> {
        let special = fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir());
        if special {
            let shown = self.display(path);
            return Err(Error::correctable(format!(
                "cannot {action} `{shown}`: it is no file with content, but a FIFO, a socket or a device; choose \
                 another one"
            )));
        }
        Ok(())
    }

    /// What a failed operation means to the model.
    pub fn explain(&self, error: &io::Error, action: &str, path: &Path) -> Error {
        let shown = self.display(path);
        match error.kind() {
            ErrorKind::NotFound => Error::correctable(format!(
                "cannot {action} `{shown}`: it does not exist; list its directory to see what does"
            )),
            ErrorKind::AlreadyExists => Error::correctable(format!(
                "cannot {action} `{shown}`: it exists already; use mode `overwrite` or `append`, or \
                 another name"
            )),
            ErrorKind::IsADirectory => Error::correctable(format!(
                "cannot {action} `{shown}`: it is a directory; list it, or name a file in it"
            )),
            ErrorKind::NotADirectory => Error::correctable(format!(
                "cannot {action} `{shown}`: a part of the path is a file and not a directory"
            )),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::fatal(format!(
                "cannot {action} `{shown}`: the grant does not allow it; writing needs a \
                 read-write grant from the operator, links must not lead out of the directory, and \
                 files from which the host takes decisions (its configuration, saved Requests, \
                 modules) are written by no tool"
            )),
            ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::ResourceBusy => {
                Error::retryable(format!("cannot {action} `{shown}` now: {error}; try again"))
            }
            _ => Error::fatal(format!("cannot {action} `{shown}`: {error}")),
        }
    }

    fn names(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|root| root.display().to_string())
            .collect()
    }
}
