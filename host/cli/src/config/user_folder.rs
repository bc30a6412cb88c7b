//! The folders of a user, as XDG's specification of base directories has them; on macOS too, where people who work at a
//! terminal look for them.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserFolder {
    Config,
    Data,
    Cache,
    State,
}

impl UserFolder {
    /// The path, which is absolute: a relative one (`HOME=""`) would be in the working folder.
    pub fn path(self) -> Option<PathBuf> {
        let (variable, usual) = self.names();
        absolute(env::var_os(variable), env::home_dir(), usual)
    }

    /// The variable that names it, and where it is in the home folder otherwise.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Config => ("XDG_CONFIG_HOME", ".config"),
            Self::Data => ("XDG_DATA_HOME", ".local/share"),
            Self::Cache => ("XDG_CACHE_HOME", ".cache"),
            Self::State => ("XDG_STATE_HOME", ".local/state"),
        }
    }
}

fn absolute(named: Option<OsString>, home: Option<PathBuf>, usual: &str) -> Option<PathBuf> {
    let is_absolute = |folder: &PathBuf| folder.is_absolute();
    // A relative one is ignored, as the specification says.
    let named = named.map(PathBuf::from).filter(is_absolute);
    named.or_else(|| Some(home?.join(usual)).filter(is_absolute))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_where_its_variable_says_or_in_the_home_folder() {
        for (named, home, expect) in [
            (None, Some("/home/ann"), Some("/home/ann/.cache")),
            (Some("/x"), Some("/home/ann"), Some("/x")),
            (Some("x"), Some("/home/ann"), Some("/home/ann/.cache")),
            (Some(""), Some("/home/ann"), Some("/home/ann/.cache")),
            (Some("/x"), None, Some("/x")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let folder = absolute(named.map(OsString::from), home.map(PathBuf::from), ".cache");
            assert_eq!(folder, expect.map(PathBuf::from), "{named:?} {home:?}");
        }
    }
}
