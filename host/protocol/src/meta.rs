//! The `meta` message: what is worked on, and which version of it (docs/protocol.md, 2).
//!
//! A solution moves the version forward in one of two ways, and the protocol's words are read
//! strictly, so that two readers of a version never differ about what led to it:
//!
//! - A **minor bump**: the minor number rises by one and the patch number is 0, `1.2.3` → `1.3.0`.
//!   On a branch it leads back to the line, `1.2.3.branch.1` → `1.3.0`. A patch or a major bump is a
//!   person's decision.
//! - A **branch**: the same three numbers with a branch number from 1 on that no one took yet,
//!   `1.2.3` → `1.2.3.branch.1`. Gaps are fine, since branches made elsewhere take numbers too. A
//!   branch of a branch cannot be written, so `1.2.3.branch.1` branches to a higher number,
//!   `1.2.3.branch.2`.
//!
//! `domain` and `path` say what the versions are of, so a solution cannot change them.

mod version;

pub use version::{Version, VersionError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt::{self, Display, Formatter};
use thiserror::Error;
use toolhold_json::validate::cut;

/// The message's `meta`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub version: Version,
    /// Whose numbers are taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Branch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Fields that the protocol does not know: kept for the record.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An entry of `branches`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Branch {
    /// `2`: the number is taken, of whatever version.
    Number(u64),
    /// `"1.2.3.branch.2"`: the number is taken of that version.
    Version(Version),
    /// A label or note, which takes no number; kept as it is.
    Other(Value),
}

/// Why a solution's `meta` is refused, in words that the model can act on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetaError {
    #[error("meta must be an object with the next version; write {accepted}")]
    Missing { accepted: Accepted },
    #[error("meta/version: {fault}; here write {accepted}")]
    Malformed {
        fault: VersionError,
        accepted: Accepted,
    },
    #[error("meta/version: {version} is the current version; write {accepted}")]
    Standing {
        version: Version,
        accepted: Accepted,
    },
    #[error("meta/version: {version} is before the current version {current}; write {accepted}")]
    Backwards {
        version: Version,
        current: Version,
        accepted: Accepted,
    },
    #[error("meta/version: {version} is not the next version after {current}; write {accepted}")]
    Skips {
        version: Version,
        current: Version,
        accepted: Accepted,
    },
    #[error("meta/version: the branch {version} exists already; write {accepted}")]
    BranchTaken {
        version: Version,
        accepted: Accepted,
    },
    #[error("meta/{field} must stay {current:?}; leave it out or write it unchanged")]
    Identity {
        field: &'static str,
        current: String,
    },
    #[error("meta: {reason}; correct the field or leave it out")]
    Field { reason: String },
}

/// What may be written instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted(Vec<Version>);

/// JSON Schema of the solution's `meta`, in safe keywords. It offers the minor bump and one branch;
/// [`check`] takes any free branch number.
pub fn schema(current: &Meta) -> Value {
    let mut properties = Map::new();
    for (field, value) in identity(current) {
        if let Some(value) = value {
            properties.insert(field.to_owned(), json!({"const": value}));
        }
    }
    let next = successors(current);
    let version = match next.as_slice() {
        // Every number is at its end; a person has to go on.
        [] => json!({"type": "string"}),
        some => json!({"enum": some}),
    };
    properties.insert("version".into(), version);
    let required: Vec<_> = properties.keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The meta that holds after a solution: its own fields, and those of `before` that it left out.
/// `branches` only grows, by those it names and by the branch that it opens.
///
/// # Errors
/// What is wrong, and what would be accepted.
pub fn check(before: &Meta, after: &Value) -> Result<Meta, MetaError> {
    let accepted = || Accepted(successors(before));
    let Value::Object(written) = after else {
        return Err(MetaError::Missing {
            accepted: accepted(),
        });
    };
    let version = match written.get("version") {
        None | Some(Value::Null) => {
            return Err(MetaError::Missing {
                accepted: accepted(),
            });
        }
        Some(Value::String(text)) => text.parse(),
        Some(other) => Err(VersionError::of(&other.to_string())),
    };
    let version = version.map_err(|fault| MetaError::Malformed {
        fault,
        accepted: accepted(),
    })?;
    moves_forward(before, version)?;
    for (field, current) in identity(before) {
        match (current, written.get(field)) {
            (Some(current), Some(new)) if !new.is_null() && new.as_str() != Some(current) => {
                return Err(MetaError::Identity {
                    field,
                    current: current.clone(),
                });
            }
            _ => {}
        }
    }
    merge(before, written, version)
}

/// The minor bump, and the lowest branch above all that are taken.
fn successors(current: &Meta) -> Vec<Version> {
    let own = current.version.branch;
    let taken = current
        .branches
        .iter()
        .filter_map(|branch| number(branch, current.version));
    let highest = taken.chain(own).max().unwrap_or(0);
    let branch = highest.checked_add(1).map(|n| current.version.branched(n));
    current
        .version
        .minor_bump()
        .into_iter()
        .chain(branch)
        .collect()
}

fn moves_forward(before: &Meta, version: Version) -> Result<(), MetaError> {
    let current = before.version;
    let accepted = Accepted(successors(before));
    if version == current {
        return Err(MetaError::Standing { version, accepted });
    }
    if version < current {
        return Err(MetaError::Backwards {
            version,
            current,
            accepted,
        });
    }
    if Some(version) == current.minor_bump() {
        return Ok(());
    }
    if version.base() != current.base() {
        return Err(MetaError::Skips {
            version,
            current,
            accepted,
        });
    }
    let mut taken = before.branches.iter().map(|branch| number(branch, current));
    if taken.any(|number| number == version.branch) {
        return Err(MetaError::BranchTaken { version, accepted });
    }
    Ok(())
}

/// The branch number of `version` that `branch` takes.
fn number(branch: &Branch, version: Version) -> Option<u64> {
    match branch {
        Branch::Number(number) => Some(*number),
        Branch::Version(taken) if taken.base() == version.base() => taken.branch,
        _ => None,
    }
}

fn identity(meta: &Meta) -> [(&'static str, Option<&String>); 2] {
    [
        ("domain", meta.domain.as_ref()),
        ("path", meta.path.as_ref()),
    ]
}

fn merge(before: &Meta, written: &Map<String, Value>, version: Version) -> Result<Meta, MetaError> {
    let written: Map<String, Value> = written
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let after: Meta = serde_json::from_value(written.into()).map_err(|error| MetaError::Field {
        reason: cut(&error.to_string(), 300),
    })?;
    let mut branches = before.branches.clone();
    let opened = version.branch.map(|_| Branch::Version(version));
    for branch in after.branches.into_iter().chain(opened) {
        if !branches.contains(&branch) {
            branches.push(branch);
        }
    }
    let mut other = before.other.clone();
    other.extend(after.other);
    Ok(Meta {
        domain: after.domain.or_else(|| before.domain.clone()),
        path: after.path.or_else(|| before.path.clone()),
        version,
        branches,
        created_at: after.created_at.or_else(|| before.created_at.clone()),
        other,
    })
}

impl Display for Accepted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no version, because the numbers are at their end");
        }
        for (index, version) in self.0.iter().enumerate() {
            let (between, after) = match (index, version.branch) {
                (0, None) => ("", ""),
                (0, Some(_)) => ("", " for a branch"),
                (_, None) => (" or ", ""),
                (_, Some(_)) => (" or ", " for a branch"),
            };
            write!(f, "{between}\"{version}\"{after}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn meta(value: Value) -> Meta {
        serde_json::from_value(value).unwrap()
    }

    fn at(version: &str) -> Meta {
        meta(json!({"version": version}))
    }

    #[test]
    fn a_meta_is_read_and_written_without_loss() {
        for value in [
            json!({"version": "1.2.3"}),
            json!({
                "domain": "d", "path": "p", "version": "1.2.3.branch.4",
                "branches": [1, "1.2.3.branch.4", "main", {"note": 1}, "01.2.3"],
                "createdAt": "2025-01-01", "author": {"name": "n"},
            }),
        ] {
            assert_eq!(serde_json::to_value(meta(value.clone())).unwrap(), value);
        }
    }

    #[test]
    fn numbers_at_their_end_are_no_panic() {
        let max = u64::MAX;
        let last = at(&format!("1.{max}.0.branch.{max}"));
        let error = check(&last, &json!({"version": "1.0.0"})).unwrap_err();
        assert!(error.to_string().contains("no version, because"), "{error}");
        assert_eq!(
            schema(&last)["properties"]["version"],
            json!({"type": "string"})
        );
    }

    #[test]
    fn members_absent_from_a_solution_keep_their_values() {
        let before = meta(json!({
            "domain": "d", "path": "p", "version": "1.2.3", "branches": [1], "createdAt": "then", "author": "n", "x": 1,
        }));
        let after = json!({"path": "p", "domain": null, "version": "1.2.3.branch.2", "branches": ["b"], "x": 2});
        assert_eq!(
            serde_json::to_value(check(&before, &after).unwrap()).unwrap(),
            json!({
                "domain": "d", "path": "p", "version": "1.2.3.branch.2", "branches": [1, "b", "1.2.3.branch.2"],
                "createdAt": "then", "author": "n", "x": 2,
            })
        );
    }

    #[test]
    fn the_schema_offers_what_is_accepted() {
        let before = meta(json!({"domain": "d", "version": "1.2.3", "branches": [4]}));
        let expect = json!({
            "type": "object",
            "properties": {"domain": {"const": "d"}, "version": {"enum": ["1.3.0", "1.2.3.branch.5"]}},
            "required": ["domain", "version"],
            "additionalProperties": false,
        });
        assert_eq!(schema(&before).to_string(), expect.to_string());
    }

    fn versions() -> impl Strategy<Value = Version> {
        let branch = prop::option::of(1u64..5);
        (0u64..3, 0u64..4, 0u64..3, branch).prop_map(|(major, minor, patch, branch)| Version {
            major,
            minor,
            patch,
            branch,
        })
    }

    proptest! {
        #[test]
        fn exactly_the_successors_are_accepted(
            before in versions(),
            after in versions(),
            numbers in prop::collection::vec(1u64..5, 0..3),
            named in prop::collection::vec(versions(), 0..4),
        ) {
            let branches: Vec<Value> = numbers
                .iter()
                .map(|number| json!(number))
                .chain(named.iter().map(|version| json!(version)))
                .collect();
            let meta = meta(json!({"version": before, "branches": branches}));
            // Written out by hand from the rule, over all branch numbers that `versions` makes.
            let mut successors = HashSet::from([format!("{}.{}.0", before.major, before.minor + 1)]);
            let line = format!("{}.{}.{}", before.major, before.minor, before.patch);
            for number in before.branch.unwrap_or(0) + 1..5 {
                let name = format!("{line}.branch.{number}");
                if !numbers.contains(&number) && !named.iter().any(|v| v.to_string() == name) {
                    successors.insert(name);
                }
            }
            let checked = check(&meta, &json!({"version": after}));
            prop_assert_eq!(checked.is_ok(), successors.contains(&after.to_string()), "{:?}", checked);
            // What the schema offers, and what an error offers, passes.
            let offered = schema(&meta)["properties"]["version"]["enum"].clone();
            for version in offered.as_array().unwrap() {
                let offer = check(&meta, &json!({"version": version}));
                prop_assert!(offer.is_ok(), "{:?}", offer);
            }
        }
    }
}
