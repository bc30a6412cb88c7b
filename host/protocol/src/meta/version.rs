//! Versions of what a run works on: `1.2.3`, and of a branch `1.2.3.branch-A.1` or `1.2.staging.1`.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use thiserror::Error;
use toolhold_text::cut;

/// Maximum characters shown of a text that a model wrote.
const MAX_SHOWN_CHARS: usize = 64;
/// Maximum characters of a branch's label.
const MAX_LABEL_CHARS: usize = 64;

/// `1.2.3`, or a branch of it (`1.2.3.branch-A.1`), or a branch of its minor line (`1.2.staging.1`).
/// Numbers have no leading zeros, so that a version is written in one way.
///
/// Versions are compared number by number from the left. A branch comes after what it starts from: a
/// branch of `1.2.3` after `1.2.3` and before `1.2.4`, a branch of the line `1.2` after all `1.2.x`
/// and before `1.3.0`. Branches that start from the same version count each on its own: of
/// `1.2.3.a.1` and `1.2.3.b.2` neither comes before the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
    /// Absent only of a branch of a minor line.
    pub(super) patch: Option<u64>,
    pub(super) branch: Option<BranchNumber>,
}

/// The last two parts of a branch's version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BranchNumber {
    pub label: Label,
    /// From 1 on.
    pub number: u64,
}

/// A branch's name: an ASCII letter, then up to 63 letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no version; write 1.2.3, or 1.2.3.branch-A.1 or 1.2.staging.1 for a branch, with a label of \
     at most 64 letters, digits and hyphens"
)]
pub struct VersionError {
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no label of a branch; write a letter and then letters, digits and hyphens")]
pub struct LabelError {
    pub text: String,
}

impl Version {
    fn line(major: u64, minor: u64, patch: u64) -> Self {
        Self {
            major,
            minor,
            patch: Some(patch),
            branch: None,
        }
    }

    pub(super) fn minor_bump(&self) -> Option<Self> {
        Some(Self::line(self.major, self.minor.checked_add(1)?, 0))
    }

    /// Of a branch of a minor line there is none: it does not say which patch it left.
    pub(super) fn patch_bump(&self) -> Option<Self> {
        let patch = self.patch?.checked_add(1)?;
        Some(Self::line(self.major, self.minor, patch))
    }

    pub(super) fn major_bump(&self) -> Option<Self> {
        Some(Self::line(self.major.checked_add(1)?, 0, 0))
    }

    /// Whether both are, or start from, the same version.
    pub(super) fn starts_where(&self, other: &Self) -> bool {
        self.start() == other.start()
    }

    /// The order of what the version starts from: a minor line comes after each of its patches.
    fn start(&self) -> (u64, u64, bool, u64) {
        let patch = self.patch.unwrap_or_default();
        (self.major, self.minor, self.patch.is_none(), patch)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let start = self.start().cmp(&other.start());
        match (&self.branch, &other.branch) {
            _ if start != Ordering::Equal => Some(start),
            (None, None) => Some(Ordering::Equal),
            (None, Some(_)) => Some(Ordering::Less),
            (Some(_), None) => Some(Ordering::Greater),
            (Some(own), Some(others)) if own.label == others.label => {
                Some(own.number.cmp(&others.number))
            }
            (Some(_), Some(_)) => None,
        }
    }
}

impl Label {
    /// The label of branches whose author named none: `1.2.3.branch.1`.
    pub(super) fn unnamed() -> Self {
        Self("branch".to_owned())
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
        let read = || {
            let (major, minor, patch, branch) = match parts.as_slice() {
                [major, minor, patch] => (major, minor, Some(patch), None),
                [major, minor, label, number] => (major, minor, None, Some((label, number))),
                [major, minor, patch, label, number] => {
                    (major, minor, Some(patch), Some((label, number)))
                }
                _ => return None,
            };
            let branch = match branch {
                None => None,
                Some((label, number)) => Some(BranchNumber {
                    label: label.parse().ok()?,
                    number: numeral(number).filter(|number| *number > 0)?,
                }),
            };
            Some(Self {
                major: numeral(major)?,
                minor: numeral(minor)?,
                patch: match patch {
                    Some(patch) => Some(numeral(patch)?),
                    None => None,
                },
                branch,
            })
        };
        read().ok_or_else(|| VersionError::of(text))
    }
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let is_label = text.len() <= MAX_LABEL_CHARS
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        if is_label {
            return Ok(Self(text.to_owned()));
        }
        Err(LabelError {
            text: cut(text, MAX_SHOWN_CHARS),
        })
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

impl TryFrom<String> for Label {
    type Error = LabelError;

    fn try_from(text: String) -> Result<Self, LabelError> {
        text.parse()
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0
    }
}

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if let Some(patch) = self.patch {
            write!(f, ".{patch}")?;
        }
        match &self.branch {
            Some(branch) => write!(f, ".{}.{}", branch.label.0, branch.number),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Few numbers and labels, so that two versions are often near each other.
    pub(in crate::meta) fn versions() -> impl Strategy<Value = Version> {
        let label = prop::sample::select(vec!["branch", "a", "b-1"]);
        let branch = (label, 1u64..4).prop_map(|(label, number)| BranchNumber {
            label: label.parse().unwrap(),
            number,
        });
        let rest = prop_oneof![
            (0u64..3, prop::option::of(branch.clone()))
                .prop_map(|(patch, branch)| (Some(patch), branch)),
            branch.prop_map(|branch| (None, Some(branch))),
        ];
        (0u64..3, 0u64..3, rest).prop_map(|(major, minor, (patch, branch))| Version {
            major,
            minor,
            patch,
            branch,
        })
    }

    #[test]
    fn versions_are_written_in_one_way() {
        let longest = format!("1.2.{}.1", "a".repeat(64));
        for text in [
            "0.0.0",
            "1.2.3",
            "10.20.30.branch.1",
            "1.2.18446744073709551615",
            "1.2.3.branch-A.1",
            "1.2.staging.1",
            "1.2.3.Branch.1",
            "1.2.3.x-.18446744073709551615",
            "1.2.x.1",
            &longest,
        ] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
        let too_long = format!("1.2.{}.1", "a".repeat(65));
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
            "1.2.3.branch_A.1",
            "1.2.3.-a.1",
            "1.2.3.1a.1",
            "1.2.3..1",
            "1.2.3.brünn.1",
            "1.staging.1",
            "1.2.staging",
            "1.2.staging.0",
            "1.2.3.branch.1.branch.2",
            "1.2.18446744073709551616",
            "١.2.3",
            &too_long,
        ] {
            let error = text.parse::<Version>().unwrap_err().to_string();
            assert!(
                error.contains("write 1.2.3, or 1.2.3.branch-A.1 or 1.2.staging.1"),
                "{error}"
            );
            assert!(serde_json::from_value::<Version>(text.into()).is_err());
        }
    }

    #[test]
    fn a_branch_comes_after_what_it_starts_from() {
        let texts = [
            "1.2.3",
            "1.2.3.branch-A.1",
            "1.2.3.branch-A.10",
            "1.2.4",
            "1.2.10",
            "1.2.staging.1",
            "1.2.staging.2",
            "1.3.0",
            "1.10.0",
            "2.0.0",
        ];
        let versions: Vec<Version> = texts.iter().map(|text| text.parse().unwrap()).collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        for (one, other) in [
            ("1.2.3.a.1", "1.2.3.b.2"),
            ("1.2.staging.1", "1.2.canary.1"),
        ] {
            let [one, other] = [one, other].map(|text| text.parse::<Version>().unwrap());
            assert_eq!(one.partial_cmp(&other), None, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(
            text in "[0-9.]{0,12}([a-zA-Z-]{0,8})?[0-9.]{0,6}|\\PC{0,16}",
        ) {
            if let Ok(version) = text.parse::<Version>() {
                prop_assert_eq!(version.to_string(), text);
            }
        }

        #[test]
        fn printed_version_parses(
            major: u64,
            minor: u64,
            patch in prop::option::of(0..=u64::MAX),
            branch in ("[A-Za-z][A-Za-z0-9-]{0,63}", 1..=u64::MAX),
            is_branch: bool,
        ) {
            let (label, number) = branch;
            let branch = BranchNumber { label: label.parse().unwrap(), number };
            // What has no patch number is a branch.
            let branch = (is_branch || patch.is_none()).then_some(branch);
            let version = Version { major, minor, patch, branch };
            prop_assert_eq!(version.to_string().parse(), Ok(version));
        }

        #[test]
        fn the_order_is_an_order(a in versions(), b in versions(), c in versions()) {
            prop_assert_eq!(a.partial_cmp(&b) == Some(Ordering::Equal), a == b);
            prop_assert_eq!(a.partial_cmp(&b), b.partial_cmp(&a).map(Ordering::reverse));
            if a < b && b < c {
                prop_assert!(a < c, "{} {} {}", a, b, c);
            }
            // Only branches of one start with two labels have no order.
            let apart = a.branch.is_some() && b.branch.is_some() && a.starts_where(&b);
            prop_assert!(a.partial_cmp(&b).is_some() || apart, "{} {}", a, b);
        }

        #[test]
        fn every_bump_comes_after(version in versions()) {
            for bumped in [version.minor_bump(), version.patch_bump(), version.major_bump()] {
                prop_assert!(bumped.is_none_or(|bumped| version < bumped));
            }
        }
    }
}
