//! Which versions follow one (docs/protocol.md, 2.6).

use super::version::BranchNumber;
use super::{Branch, Label, Meta, MetaError, Version};
use std::cmp::Ordering;
use std::fmt::{self, Display, Formatter};

/// What may be written instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub(super) versions: Vec<Version>,
    /// Whether a branch with a label of its own may be opened.
    opens: bool,
}

/// Maximum branches that the schema offers by their next version.
pub(super) const MAX_OFFERED_BRANCHES: usize = 16;

impl Accepted {
    /// The bumps, and the next number of each branch: the one that the version is on, or else those
    /// that there are.
    pub(super) fn after(current: &Meta) -> Self {
        let version = &current.version;
        let bumps = [
            version.minor_bump(),
            version.patch_bump(),
            version.major_bump(),
        ];
        let branches = if version.branch.is_some() {
            next_number(current, version.clone()).into_iter().collect()
        } else {
            next_branches(current)
        };
        Self {
            versions: bumps.into_iter().flatten().chain(branches).collect(),
            opens: version.branch.is_none(),
        }
    }
}

/// The next version of each branch that could start here. Without any, the first one of a branch that
/// is called `branch`.
fn next_branches(current: &Meta) -> Vec<Version> {
    let starts = |label: &Label, patch: Option<u64>| Version {
        patch: patch.and(current.version.patch),
        branch: Some(BranchNumber {
            label: label.clone(),
            number: 0,
        }),
        ..current.version.clone()
    };
    let mut found: Vec<Version> = Vec::new();
    for branch in &current.branches {
        let start = match branch {
            Branch::Number(_) => starts(&Label::unnamed(), current.version.patch),
            Branch::Label(label) => starts(label, current.version.patch),
            Branch::Version(version) => match &version.branch {
                Some(branch) => starts(&branch.label, version.patch),
                None => continue,
            },
            Branch::Other(_) => continue,
        };
        if !found.contains(&start) {
            found.push(start);
        }
        if found.len() == MAX_OFFERED_BRANCHES {
            break;
        }
    }
    if found.is_empty() {
        found.push(starts(&Label::unnamed(), current.version.patch));
    }
    let next = found.into_iter();
    next.filter_map(|start| next_number(current, start))
        .collect()
}

/// The lowest number of the branch that `own` is on, above its own and all that are taken.
fn next_number(current: &Meta, own: Version) -> Option<Version> {
    let branch = own.branch.as_ref()?;
    let taken = current.branches.iter().filter_map(|one| number(one, &own));
    let number = taken.max().unwrap_or(0).max(branch.number).checked_add(1)?;
    let branch = BranchNumber {
        number,
        ..branch.clone()
    };
    Some(Version {
        branch: Some(branch),
        ..own
    })
}

pub(super) fn moves_forward(before: &Meta, version: &Version) -> Result<(), MetaError> {
    let current = &before.version;
    let accepted = Box::new(Accepted::after(before));
    match version.partial_cmp(current) {
        Some(Ordering::Greater) => {}
        Some(Ordering::Equal) => {
            return Err(MetaError::Standing {
                version: version.clone(),
                accepted,
            });
        }
        Some(Ordering::Less) => {
            return Err(MetaError::Backwards {
                version: version.clone(),
                current: Box::new(current.clone()),
                accepted,
            });
        }
        None => {
            return Err(MetaError::OtherBranch {
                version: version.clone(),
                current: Box::new(current.clone()),
                accepted,
            });
        }
    }
    let skips = |accepted| MetaError::Skips {
        version: version.clone(),
        current: Box::new(current.clone()),
        accepted,
    };
    let Some(branch) = &version.branch else {
        let bumps = [
            current.minor_bump(),
            current.patch_bump(),
            current.major_bump(),
        ];
        let is_bump = bumps.iter().flatten().any(|bump| bump == version);
        return if is_bump {
            Ok(())
        } else {
            Err(skips(accepted))
        };
    };
    let starts_here = version.starts_where(current)
        // A branch of the minor line is opened from any of its versions, and not from a branch.
        || (current.branch.is_none()
            && version.patch.is_none()
            && (version.major, version.minor) == (current.major, current.minor));
    if !starts_here {
        return Err(skips(accepted));
    }
    let mut taken = before.branches.iter().map(|one| number(one, version));
    if taken.any(|number| number == Some(branch.number)) {
        return Err(MetaError::BranchTaken {
            version: version.clone(),
            accepted,
        });
    }
    Ok(())
}

/// The number that `branch` takes of the branch that `version` is on.
fn number(branch: &Branch, version: &Version) -> Option<u64> {
    let own = version.branch.as_ref()?;
    match branch {
        Branch::Number(number) => (own.label == Label::unnamed()).then_some(*number),
        Branch::Version(taken) if taken.starts_where(version) => {
            let taken = taken.branch.as_ref()?;
            (taken.label == own.label).then_some(taken.number)
        }
        _ => None,
    }
}

/// Whether `branch` says that there is this label.
pub(super) fn names(branch: &Branch, label: &Label) -> bool {
    match branch {
        Branch::Number(_) => *label == Label::unnamed(),
        Branch::Label(own) => own == label,
        Branch::Version(version) => version
            .branch
            .as_ref()
            .is_some_and(|own| own.label == *label),
        Branch::Other(_) => false,
    }
}

impl Display for Accepted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.versions.is_empty() {
            return f.write_str("no version, because the numbers are at their end");
        }
        let is_bump = |version: &&Version| version.branch.is_none();
        let (bumps, branches): (Vec<_>, Vec<_>) = self.versions.iter().partition(is_bump);
        alternatives(f, &bumps)?;
        if !branches.is_empty() {
            if !bumps.is_empty() {
                f.write_str(", or ")?;
            }
            alternatives(f, &branches)?;
            f.write_str(" for a branch")?;
        }
        if self.opens {
            f.write_str(" (a new branch may have another label)")?;
        }
        Ok(())
    }
}

/// `"a", "b" or "c"`.
fn alternatives(f: &mut Formatter<'_>, versions: &[&Version]) -> fmt::Result {
    for (index, version) in versions.iter().enumerate() {
        let between = match index {
            0 => "",
            _ if index + 1 == versions.len() => " or ",
            _ => ", ",
        };
        write!(f, "{between}\"{version}\"")?;
    }
    Ok(())
}
