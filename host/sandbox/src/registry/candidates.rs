//! In which order what lies in a folder is loaded: what claims different names side by side, what claims one
//! name one after the other.

use super::folder::ModuleCandidate;
use super::pin_state::recorded;
use crate::policy::Policy;
use std::collections::BTreeMap;

/// Candidates that claim one name, the best founded first: of equals, the first that is loaded has it.
pub(super) struct NameClaims {
    pub name: String,
    pub candidates: Vec<ModuleCandidate>,
    /// Bytes of the largest component.
    pub bytes: u64,
}

/// Groups candidates by the names that they claim. Blocks on the file system.
pub(super) fn by_name(candidates: Vec<ModuleCandidate>, policy: &Policy) -> Vec<NameClaims> {
    let mut groups: BTreeMap<String, Vec<(Rank, u64, ModuleCandidate)>> = BTreeMap::new();
    for candidate in candidates {
        let (name, bytes) = candidate.claim();
        // One that cannot be read claims nothing.
        let name = name.unwrap_or_else(|| candidate.slot.clone());
        let rank = Rank {
            is_new: recorded(policy, &candidate.slot, &name).is_none(),
            is_called_otherwise: candidate.presumed_name() != name,
        };
        groups
            .entry(name)
            .or_default()
            .push((rank, bytes, candidate));
    }
    let groups = groups.into_iter().map(|(name, mut group)| {
        // Stable: between equals, in the order of their paths.
        group.sort_by_key(|(rank, ..)| *rank);
        NameClaims {
            name,
            bytes: group.iter().map(|(_, bytes, _)| *bytes).max().unwrap_or(0),
            candidates: group.into_iter().map(|(.., candidate)| candidate).collect(),
        }
    });
    groups.collect()
}

/// The lower one is loaded first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// No record of the slot under the name exists.
    is_new: bool,
    /// Its file or folder has another name.
    is_called_otherwise: bool,
}
