//! Versions of what a run works on: `1.2.3`, and `1.2.3.branch.1` for a branch.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use thiserror::Error;
use toolhold_json::validate::cut;

/// Maximum characters shown of a text that a model wrote.
const MAX_SHOWN_CHARS: usize = 64;

/// `1.2.3` or `1.2.3.branch.1`, without leading zeros, so that a version is written in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
    /// From 1 on. A branch comes after what it branches from.
    pub branch: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no version; write 1.2.3, or 1.2.3.branch.1 for a branch")]
pub struct VersionError {
    pub text: String,
}

impl Version {
    /// The line that a branch leaves.
    pub(super) fn base(self) -> Self {
        Self {
            branch: None,
            ..self
        }
    }

    pub(super) fn minor_bump(self) -> Option<Self> {
        Some(Self {
            major: self.major,
            minor: self.minor.checked_add(1)?,
            patch: 0,
            branch: None,
        })
    }

    pub(super) fn branched(self, branch: u64) -> Self {
        Self {
            branch: Some(branch),
            ..self
        }
    }
}

impl VersionError {
    pub(super) fn of(text: &str) -> Self {
        Self {
            text: cut(text, MAX_SHOWN_CHARS),
        }
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let parts: Vec<&str> = text.splitn(6, '.').collect();
        let read = || match parts.as_slice() {
            [major, minor, patch] => Some((major, minor, patch, None)),
            [major, minor, patch, "branch", branch] => {
                let branch = numeral(branch).filter(|branch| *branch > 0)?;
                Some((major, minor, patch, Some(branch)))
            }
            _ => None,
        };
        read()
            .and_then(|(major, minor, patch, branch)| {
                Some(Self {
                    major: numeral(major)?,
                    minor: numeral(minor)?,
                    patch: numeral(patch)?,
                    branch,
                })
            })
            .ok_or_else(|| VersionError::of(text))
    }
}

fn numeral(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    // `parse` alone takes a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok()).flatten()
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        match self.branch {
            Some(branch) => write!(f, ".branch.{branch}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_are_written_in_one_way() {
        for text in [
            "0.0.0",
            "1.2.3",
            "10.20.30.branch.1",
            "1.2.18446744073709551615",
        ] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            " 1.2.3",
            "1.2.3 ",
            "01.2.3",
            "1.+2.3",
            "1.-2.3",
            "1..3",
            "1.2.x",
            "1.2.3-rc1",
            "1.2.3.branch",
            "1.2.3.branch.",
            "1.2.3.branch.0",
            "1.2.3.branch.01",
            "1.2.3.Branch.1",
            "1.2.3.branch.1.branch.2",
            "1.2.18446744073709551616",
            "١.2.3",
        ] {
            let error = text.parse::<Version>().unwrap_err().to_string();
            assert!(error.contains("write 1.2.3, or 1.2.3.branch.1"), "{error}");
            assert!(serde_json::from_value::<Version>(text.into()).is_err());
        }
    }

    #[test]
    fn a_branch_comes_after_what_it_branches_from() {
        let texts = [
            "1.2.3",
            "1.2.3.branch.1",
            "1.2.3.branch.10",
            "1.2.4",
            "1.10.0",
            "2.0.0",
        ];
        let versions: Vec<Version> = texts.iter().map(|text| text.parse().unwrap()).collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "[0-9.]{0,12}(branch)?[0-9.]{0,6}|\\PC{0,16}") {
            if let Ok(version) = text.parse::<Version>() {
                prop_assert_eq!(version.to_string(), text);
            }
        }

        #[test]
        fn printed_version_parses(
            major: u64, minor: u64, patch: u64, branch in prop::option::of(1..=u64::MAX),
        ) {
            let version = Version { major, minor, patch, branch };
            prop_assert_eq!(version.to_string().parse(), Ok(version));
        }
    }
}
