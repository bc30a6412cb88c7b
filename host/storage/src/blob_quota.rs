//! How many bytes of images runs may be kept with.

use thiserror::Error;

/// Bytes of the blobs that are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobSums {
    /// Bytes that the owner's runs name, each blob once.
    pub owner: u64,
    /// Bytes of all blobs.
    pub all: u64,
}

/// Bytes of blobs that may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobQuota {
    /// Maximum for the runs of one owner.
    pub owner: u64,
    /// Maximum for all runs.
    pub all: u64,
}

/// The quota that the blobs of a new run must fit.
#[derive(Debug, Clone)]
pub struct BlobBound {
    pub owner: String,
    pub quota: BlobQuota,
}

/// Images do not fit into a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the images and files of {whose} would have more than {most} bytes: delete runs or sessions that have some"
)]
pub struct BlobsFull {
    whose: &'static str,
    most: u64,
}

impl BlobQuota {
    /// Checks that blobs which would add these bytes fit beside those that are kept. Blobs that add nothing always fit.
    ///
    /// # Errors
    /// The owner's blobs, or all blobs, would have more bytes than they may.
    pub fn check(self, kept: BlobSums, added: BlobSums) -> Result<(), BlobsFull> {
        for (whose, kept, added, most) in [
            ("this key's runs", kept.owner, added.owner, self.owner),
            ("all runs", kept.all, added.all, self.all),
        ] {
            if added > 0 && kept.saturating_add(added) > most {
                return Err(BlobsFull { whose, most });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_full_for_what_adds_to_it() {
        let quota = BlobQuota {
            owner: 10,
            all: 100,
        };
        let sums = |owner, all| BlobSums { owner, all };
        for (kept, added, whose) in [
            (sums(0, 0), sums(10, 10), None),
            (sums(1, 1), sums(10, 10), Some("this key's runs")),
            // Kept for other owners already.
            (sums(1, 100), sums(9, 0), None),
            (sums(0, 91), sums(10, 10), Some("all runs")),
            // A quota that the operator has lowered.
            (sums(50, 200), sums(0, 0), None),
            (sums(u64::MAX, 1), sums(1, 1), Some("this key's runs")),
        ] {
            let refused = quota.check(kept, added).map_err(|full| full.whose);
            assert_eq!(refused.err(), whose, "{kept:?} {added:?}");
        }
    }
}
