//! The `meta` message: what is worked on, and which version of it (docs/protocol.md, 2).
//!
//! A solution moves the version forward in one of these ways:
//!
//! - A **bump** of the minor, the patch or the major number by one, after which the numbers to the
//!   right are 0: `1.2.3` → `1.3.0`, `1.2.4` or `2.0.0`. On a branch it leads back to the line,
//!   `1.2.3.branch-A.1` → `1.2.4`; a branch of a minor line (`1.2.staging.1`) does not say which patch
//!   it left, so only `1.3.0` and `2.0.0` follow it.
//! - A **branch**: the same numbers, or only the first two, with a label and a number from 1 on that no
//!   one took yet, `1.2.3` → `1.2.3.branch-A.1` or `1.2.staging.1`. Each label counts on its own. Gaps
//!   are fine, since branches made elsewhere take numbers too. A branch of a branch cannot be written,
//!   so `1.2.3.branch-A.1` goes on with a higher number, `1.2.3.branch-A.2`.
//!
//! `domain` and `path` say what the versions are of, so a solution cannot change them.

mod moves;
mod version;

pub use moves::Accepted;
use moves::{moves_forward, names};
pub use version::{Label, LabelError, Version, VersionError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;
use toolhold_text::cut;

/// The message's `meta`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub version: Version,
    /// The labels that there are, and the numbers that are taken.
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
    /// `2`: this number of the label `branch` is taken, of whatever version.
    Number(u64),
    /// `"1.2.3.branch-A.2"`: that version is taken, and there is its label.
    Version(Version),
    /// `"branch-A"`: there is this label.
    Label(Label),
    /// A note, which takes no number; kept as it is.
    Other(Value),
}

/// Why a solution's `meta` is refused, in words that the model can act on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetaError {
    #[error("meta must be an object with the next version; write {accepted}")]
    Missing { accepted: Box<Accepted> },
    #[error("meta/version: {fault}; here write {accepted}")]
    Malformed {
        fault: VersionError,
        accepted: Box<Accepted>,
    },
    #[error("meta/version: {version} is the current version; write {accepted}")]
    Standing {
        version: Version,
        accepted: Box<Accepted>,
    },
    #[error("meta/version: {version} is before the current version {current}; write {accepted}")]
    Backwards {
        version: Version,
        current: Box<Version>,
        accepted: Box<Accepted>,
    },
    #[error("meta/version: {version} is not the next version after {current}; write {accepted}")]
    Skips {
        version: Version,
        current: Box<Version>,
        accepted: Box<Accepted>,
    },
    #[error(
        "meta/version: {version} is on another branch than the current version {current}; write {accepted}"
    )]
    OtherBranch {
        version: Version,
        current: Box<Version>,
        accepted: Box<Accepted>,
    },
    #[error("meta/version: the branch {version} exists already; write {accepted}")]
    BranchTaken {
        version: Version,
        accepted: Box<Accepted>,
    },
    #[error("meta/{field} must stay {current:?}; leave it out or write it unchanged")]
    Identity {
        field: &'static str,
        current: String,
    },
    #[error("meta: {reason}; correct the field or leave it out")]
    Field { reason: String },
}

/// JSON Schema of the solution's `meta`, in safe keywords. It offers the bumps, the next number of
/// each branch and, where one may be opened, any label; [`check`] also takes gaps.
pub fn schema(current: &Meta) -> Value {
    let mut properties = Map::new();
    for (field, value) in identity(current) {
        if let Some(value) = value {
            properties.insert(field.to_owned(), json!({"const": value}));
        }
    }
    let next = Accepted::after(current);
    let version = match (next.versions.as_slice(), new_branch(&current.version)) {
        // Every number is at its end; a person has to go on.
        ([], None) => json!({"type": "string"}),
        ([], Some(pattern)) => json!({"type": "string", "pattern": pattern}),
        (some, None) => json!({"enum": some}),
        (some, Some(pattern)) => {
            json!({"anyOf": [{"enum": some}, {"type": "string", "pattern": pattern}]})
        }
    };
    properties.insert("version".into(), version);
    let required: Vec<_> = properties.keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The versions of branches that `current` may open, with any label, as a pattern of the kind that
/// every server's grammar has.
fn new_branch(current: &Version) -> Option<String> {
    let patch = current.patch.filter(|_| current.branch.is_none())?;
    let (major, minor) = (current.major, current.minor);
    Some(format!(
        "^{major}[.]{minor}([.]{patch})?[.][A-Za-z][A-Za-z0-9-]{{0,31}}[.][1-9][0-9]{{0,3}}$"
    ))
}

/// The meta that holds after a solution: its own fields, and those of `before` that it left out.
/// `branches` only grows: by those it names, by the label of a branch that it opens, and by the number
/// that it takes.
///
/// # Errors
/// What is wrong, and what would be accepted.
pub fn check(before: &Meta, after: &Value) -> Result<Meta, MetaError> {
    let accepted = || Box::new(Accepted::after(before));
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
    moves_forward(before, &version)?;
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
    let mut add = |branch: Branch| {
        if !branches.contains(&branch) {
            branches.push(branch);
        }
    };
    after.branches.into_iter().for_each(&mut add);
    if let Some(opened) = &version.branch {
        let mut known = before.branches.iter();
        if !known.any(|branch| names(branch, &opened.label)) {
            add(Branch::Label(opened.label.clone()));
        }
        add(Branch::Version(version.clone()));
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

#[cfg(test)]
mod tests {
    use super::moves::MAX_OFFERED_BRANCHES;
    use super::version::tests::versions;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use toolhold_json::grammar_subset::GrammarSubset;

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
                "branches": [1, "1.2.3.branch.4", "1.2.staging.1", "branch-A", {"note": 1}, "01.2.3"],
                "createdAt": "2025-01-01", "author": {"name": "n"},
            }),
        ] {
            assert_eq!(serde_json::to_value(meta(value.clone())).unwrap(), value);
        }
    }

    #[test]
    fn numbers_at_their_end_are_no_panic() {
        let max = u64::MAX;
        let last = at(&format!("{max}.{max}.{max}.branch.{max}"));
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
        let after = json!({"path": "p", "domain": null, "version": "1.2.3.branch.2", "branches": [{"note": 1}], "x": 2});
        assert_eq!(
            serde_json::to_value(check(&before, &after).unwrap()).unwrap(),
            json!({
                "domain": "d", "path": "p", "version": "1.2.3.branch.2", "branches": [1, {"note": 1}, "1.2.3.branch.2"],
                "createdAt": "then", "author": "n", "x": 2,
            })
        );
    }

    #[test]
    fn a_new_branch_adds_its_label_and_its_number_once() {
        let mut meta = at("1.2.3");
        for (version, branches) in [
            ("1.2.3.branch-A.1", json!(["branch-A", "1.2.3.branch-A.1"])),
            (
                "1.2.3.branch-A.2",
                json!(["branch-A", "1.2.3.branch-A.1", "1.2.3.branch-A.2"]),
            ),
        ] {
            meta = check(&meta, &json!({"version": version})).unwrap();
            assert_eq!(json!(meta.branches), branches, "{version}");
        }
        let known = self::meta(json!({"version": "1.2.3", "branches": ["staging"]}));
        let after = check(&known, &json!({"version": "1.2.staging.1"})).unwrap();
        assert_eq!(json!(after.branches), json!(["staging", "1.2.staging.1"]));
    }

    #[test]
    fn the_schema_offers_what_is_accepted() {
        let before = meta(json!({"domain": "d", "version": "1.2.3",
            "branches": [4, "branch-A", "1.2.3.branch-A.2", "1.1.staging.7"]}));
        let offered = [
            "1.3.0",
            "1.2.4",
            "2.0.0",
            "1.2.3.branch.5",
            "1.2.3.branch-A.3",
            "1.2.staging.1",
        ];
        let pattern = "^1[.]2([.]3)?[.][A-Za-z][A-Za-z0-9-]{0,31}[.][1-9][0-9]{0,3}$";
        let expect = json!({
            "type": "object",
            "properties": {"domain": {"const": "d"}, "version": {"anyOf": [
                {"enum": offered}, {"type": "string", "pattern": pattern},
            ]}},
            "required": ["domain", "version"],
            "additionalProperties": false,
        });
        assert_eq!(schema(&before).to_string(), expect.to_string());
        let grammar = GrammarSubset::new(None).reduce(&expect, "meta");
        assert_eq!(grammar["properties"], expect["properties"]);
        assert_eq!(
            schema(&at("1.2.staging.1"))["properties"]["version"],
            json!({"enum": ["1.3.0", "2.0.0", "1.2.staging.2"]})
        );
    }

    #[test]
    fn of_many_branches_some_are_offered_and_all_are_counted() {
        let branches: Vec<String> = (0..1_000).map(|n| format!("b{n}")).collect();
        let before = meta(json!({"version": "1.2.3", "branches": branches}));
        let offered = schema(&before);
        let offered = offered.pointer("/properties/version/anyOf/0/enum").unwrap();
        assert_eq!(offered.as_array().unwrap().len(), 3 + MAX_OFFERED_BRANCHES);
        assert!(check(&before, &json!({"version": "1.2.3.b999.1"})).is_ok());
    }

    proptest! {
        #[test]
        fn exactly_the_successors_are_accepted(
            before in versions(),
            after in versions(),
            numbers in prop::collection::vec(1u64..4, 0..3),
            named in prop::collection::vec(versions(), 0..4),
        ) {
            let branches: Vec<Value> = numbers
                .iter()
                .map(|number| json!(number))
                .chain(named.iter().map(|version| json!(version)))
                .collect();
            let meta = meta(json!({"version": before, "branches": branches}));
            // Written out by hand from the rule, over all labels and numbers that `versions` makes.
            let (major, minor) = (before.major, before.minor);
            let mut successors = HashSet::from([
                format!("{major}.{}.0", minor + 1),
                format!("{}.0.0", major + 1),
            ]);
            successors.extend(before.patch.map(|patch| format!("{major}.{minor}.{}", patch + 1)));
            let text = before.to_string();
            let mut add = |line: &str, label: &str, above: u64| {
                for number in above + 1..4 {
                    let name = format!("{line}.{label}.{number}");
                    let is_number = label == "branch" && numbers.contains(&number);
                    if !is_number && !named.iter().any(|v| v.to_string() == name) {
                        successors.insert(name);
                    }
                }
            };
            match &before.branch {
                Some(_) => {
                    let (rest, number) = text.rsplit_once('.').unwrap();
                    let (line, label) = rest.rsplit_once('.').unwrap();
                    add(line, label, number.parse().unwrap());
                }
                None => for label in ["branch", "a", "b-1"] {
                    add(&text, label, 0);
                    add(&format!("{major}.{minor}"), label, 0);
                },
            }
            let checked = check(&meta, &json!({"version": after}));
            prop_assert_eq!(checked.is_ok(), successors.contains(&after.to_string()), "{:?}", checked);
            // What is accepted comes after, and what the schema and an error offer passes.
            prop_assert!(checked.is_err() || before < after);
            for version in Accepted::after(&meta).versions {
                let offer = check(&meta, &json!({"version": version}));
                prop_assert!(offer.is_ok(), "{:?}", offer);
            }
        }
    }
}
