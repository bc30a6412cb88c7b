//! Restrictions that narrow the grants of modules for one call. A call never gets more than its module has.
//!
//! [`GrantRestrictions`] are layers, each of which takes away: what an agent leaves of a module's grant, as a
//! [`Share`] of it, and which kinds of capabilities a key may use, as [`Permit`]s. They hold for the call and
//! for every nested call that its module makes.

use crate::grant::{Capability, Grant, SameDirectory, Share};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// All restrictions of a call. The default restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct GrantRestrictions {
    layers: Vec<OwnedRestriction>,
    /// The layers as one text: calls with equal restrictions share what was prepared for them.
    #[serde(skip)]
    key: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct OwnedRestriction {
    /// The source of the restriction, as a message names it: `this key`.
    owner: String,
    restriction: Restriction,
}

/// One layer of [`GrantRestrictions`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Restriction {
    /// The remaining grants of these modules; other modules keep theirs.
    Shares(BTreeMap<String, Share>),
    /// The capabilities that may be used at all, of whatever module.
    Permits(Vec<Permit>),
}

/// A kind of capability of every module (`http`), of one (`weather:http`), or all that a module has
/// (`weather:*`). Where modules are not all that can be called, `mcp` is a kind, too: calls of the tools of
/// every MCP server, or of one (`tickets:mcp`, `tickets:*`).
///
/// ```
/// use toolhold_policy::Permit;
///
/// let permit: Permit = "weather:http".parse()?;
/// assert_eq!(permit.to_string(), "weather:http");
/// assert!("weather:files".parse::<Permit>().is_err());
/// # Ok::<(), toolhold_policy::PermitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// Absent: every module, or every server.
    module: Option<String>,
    kind: RestrictedKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestrictedKind {
    All,
    Capability(Capability),
    /// Calls that leave this sandbox.
    Mcp,
}

const MCP: &str = "mcp";

/// Why text permits nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} permits nothing; write a kind ({}), MODULE:KIND, or MODULE:* for all that a module has",
    kinds()
)]
pub struct PermitError {
    text: String,
}

fn kinds() -> String {
    let names = Capability::ALL.iter().map(|kind| kind.name());
    let names: Vec<_> = names.chain([MCP]).collect();
    names.join(", ")
}

/// What restrictions leave of a grant, and what they took away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NarrowedGrant {
    pub grant: Grant,
    /// One phrase for each capability that was taken away, for the error of a call that needed it.
    pub withheld: Vec<String>,
}

impl GrantRestrictions {
    /// Adds a layer. `owner` names who sets it in messages, such as `this key`.
    #[must_use]
    pub fn with(mut self, owner: &str, restriction: Restriction) -> Self {
        let owner = owner.to_owned();
        self.layers.push(OwnedRestriction { owner, restriction });
        // Serialising our own types cannot fail.
        self.key = serde_json::to_string(&self.layers).unwrap_or_default();
        self
    }

    /// Whether nothing is restricted.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// One text for all layers: equal for equal restrictions.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The remaining grant of `module`.
    pub fn narrow(
        &self,
        module: &str,
        grant: &Grant,
        same_directory: SameDirectory<'_>,
    ) -> NarrowedGrant {
        let mut left = grant.clone();
        let mut withheld = Vec::new();
        for OwnedRestriction { owner, restriction } in &self.layers {
            let less = match restriction {
                Restriction::Shares(shares) => match shares.get(module) {
                    Some(share) => share.of(&left, same_directory),
                    None => continue,
                },
                Restriction::Permits(permits) => {
                    left.only(|kind| permits.iter().any(|permit| permit.covers(module, kind)))
                }
            };
            for &kind in Capability::ALL {
                if left.part(kind) == less.part(kind) {
                    continue;
                }
                let name = kind.name();
                withheld.push(if less.has(kind) {
                    format!("{name} granted to {owner} only in part")
                } else {
                    format!("{name} not granted to {owner}")
                });
            }
            left = less;
        }
        NarrowedGrant {
            grant: left,
            withheld,
        }
    }
}

impl Permit {
    /// Whether tools of the MCP server of this name may be called.
    pub fn covers_server(&self, server: &str) -> bool {
        self.is_of(server) && matches!(self.kind, RestrictedKind::All | RestrictedKind::Mcp)
    }

    fn covers(&self, module: &str, kind: Capability) -> bool {
        self.is_of(module)
            && (self.kind == RestrictedKind::All || self.kind == RestrictedKind::Capability(kind))
    }

    fn is_of(&self, name: &str) -> bool {
        self.module.as_ref().is_none_or(|own| own == name)
    }
}

impl FromStr for Permit {
    type Err = PermitError;

    fn from_str(text: &str) -> Result<Self, PermitError> {
        let wrong = || PermitError {
            text: text.chars().take(200).collect(),
        };
        let kind = |name: &str| {
            let mut known = Capability::ALL.iter().copied();
            let own = known.find(|kind| kind.name() == name);
            let mcp = (name == MCP).then_some(RestrictedKind::Mcp);
            own.map(RestrictedKind::Capability)
                .or(mcp)
                .ok_or_else(wrong)
        };
        let permit = match text.split_once(':') {
            None => Self {
                module: None,
                kind: kind(text)?,
            },
            Some((module, _)) if !crate::text::is_name(module) => return Err(wrong()),
            Some((module, "*")) => Self {
                module: Some(module.to_owned()),
                kind: RestrictedKind::All,
            },
            Some((module, name)) => Self {
                module: Some(module.to_owned()),
                kind: kind(name)?,
            },
        };
        Ok(permit)
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(module) = &self.module {
            write!(f, "{module}:")?;
        }
        f.write_str(match self.kind {
            RestrictedKind::All => "*",
            RestrictedKind::Capability(kind) => kind.name(),
            RestrictedKind::Mcp => MCP,
        })
    }
}

impl Serialize for Permit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Permit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::{KeyValueGrant, ScratchGrant};

    fn same(given: &std::path::Path, own: &std::path::Path) -> bool {
        given == own
    }

    fn given() -> Grant {
        Grant {
            scratch: Some(ScratchGrant::default()),
            environment: [("A".to_owned(), "a".to_owned())].into(),
            key_value: Some(KeyValueGrant::default()),
            tools: vec!["calculator".into()],
            ..Grant::default()
        }
    }

    fn permits(texts: &[&str]) -> Restriction {
        Restriction::Permits(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn a_layer_takes_away_and_says_so() {
        let share: Share =
            toml::from_str("tools = ['calculator.evaluate', 'shell']\nscratch = {}").unwrap();
        let shares = Restriction::Shares([("m".to_owned(), share)].into());
        let bounds = GrantRestrictions::default()
            .with("this agent", shares)
            .with("this key", permits(&["tools", "m:scratch", "other:*"]));
        let narrowed = bounds.narrow("m", &given(), &same);
        assert_eq!(
            narrowed.grant,
            Grant {
                scratch: Some(ScratchGrant::default()),
                tools: vec!["calculator.evaluate".into()],
                ..Grant::default()
            }
        );
        assert_eq!(
            narrowed.withheld,
            [
                "environment not granted to this agent",
                "key_value not granted to this agent",
                "tools granted to this agent only in part",
            ]
        );
        let other = bounds.narrow("other", &given(), &same);
        assert_eq!((other.grant, other.withheld), (given(), vec![]));
        let third = bounds.narrow("third", &given(), &same);
        assert_eq!(third.grant.tools, ["calculator"]);
        assert_eq!(third.withheld.len(), 3, "{:?}", third.withheld);
        let nothing = GrantRestrictions::default().with("this key", permits(&[]));
        assert!(nothing.narrow("m", &given(), &same).grant.is_empty());
    }

    #[test]
    fn servers_are_permitted_by_their_kind_and_name() {
        for (text, tickets, mails) in [
            ("mcp", true, true),
            ("tickets:mcp", true, false),
            ("tickets:*", true, false),
            ("http", false, false),
            ("tickets:tools", false, false),
        ] {
            let permit: Permit = text.parse().unwrap();
            let permitted = (
                permit.covers_server("tickets"),
                permit.covers_server("mails"),
            );
            assert_eq!(permitted, (tickets, mails), "{text}");
        }
        let bounds = GrantRestrictions::default().with("this key", permits(&["mcp"]));
        assert!(bounds.narrow("m", &given(), &same).grant.is_empty());
    }

    #[test]
    fn a_permit_is_read_as_it_is_written() {
        for text in [
            "http",
            "key_value",
            "mcp",
            "weather:http",
            "weather:mcp",
            "weather:*",
        ] {
            let permit: Permit = text.parse().unwrap();
            assert_eq!(permit.to_string(), text);
            let json = serde_json::to_string(&permit).unwrap();
            assert_eq!(serde_json::from_str::<Permit>(&json).unwrap(), permit);
        }
        for wrong in [
            "",
            "*",
            "files",
            "Weather:http",
            "weather:",
            ":http",
            "a:b:http",
        ] {
            let error = wrong.parse::<Permit>().unwrap_err().to_string();
            assert!(error.contains("MODULE:KIND"), "{wrong}: {error}");
        }
    }
}
