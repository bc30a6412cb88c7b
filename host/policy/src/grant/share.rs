//! A part of a grant: what an agent leaves a module of what the operator gave it.

use super::{Access, Clocks, DirectoryGrant, Grant, KeyValueGrant, KnowledgeGrant, ScratchGrant};
use crate::egress::HttpGrant;
use crate::secret::SecretSlot;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use strum::{IntoStaticStr, VariantArray};

/// A kind of what a grant gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Capability {
    Directories,
    Scratch,
    Environment,
    Http,
    Secrets,
    KeyValue,
    Knowledge,
    Tools,
    /// Finer ones than everybody has.
    Clocks,
}

impl Capability {
    pub const ALL: &[Self] = Self::VARIANTS;

    /// As in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Whether two paths of the host name the same directory. This crate does no I/O: the caller compares them
/// on its file system.
pub type SameDirectory<'a> = &'a dyn Fn(&Path, &Path) -> bool;

/// The part of a grant that remains, written like a grant. What is not named is not left; what is named and
/// was not given is not given by this.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Share {
    /// The very directories that were given, to read only or with less room if this says so. Not folders
    /// inside of them: a guest that may write to the directory could turn those into links.
    pub directories: Vec<DirectoryGrant>,
    pub scratch: Option<ScratchGrant>,
    /// With the values that were given.
    pub environment: BTreeMap<String, String>,
    pub http: Vec<HttpGrant>,
    /// By name.
    pub secrets: Vec<String>,
    pub key_value: Option<KeyValueGrant>,
    pub knowledge: Option<KnowledgeGrant>,
    pub tools: Vec<String>,
    pub clocks: Clocks,
}

impl Share {
    /// Everything that `grant` gives.
    pub fn all_of(grant: &Grant) -> Self {
        Self {
            directories: grant.directories.clone(),
            scratch: grant.scratch.clone(),
            environment: grant.environment.clone(),
            http: grant.http.clone(),
            secrets: grant
                .secrets
                .iter()
                .map(|secret| secret.slot().name.clone())
                .collect(),
            key_value: grant.key_value.clone(),
            knowledge: grant.knowledge.clone(),
            tools: grant.tools.clone(),
            clocks: grant.clocks,
        }
    }

    /// What both this and `grant` give.
    pub fn of(&self, grant: &Grant, same_directory: SameDirectory<'_>) -> Grant {
        let directories = self.directories.iter().filter_map(|own| {
            let mut given = grant.directories.iter();
            let given = given.find(|given| is_same(given, own, same_directory))?;
            Some(DirectoryGrant {
                access: match (own.access, given.access) {
                    (Access::ReadWrite, Access::ReadWrite) => Access::ReadWrite,
                    _ => Access::Read,
                },
                quota_bytes: least(own.quota_bytes, given.quota_bytes),
                ..given.clone()
            })
        });
        let scratch = self.scratch.as_ref().zip(grant.scratch.as_ref());
        let environment = grant.environment.iter();
        let environment =
            environment.filter(|(name, value)| self.environment.get(*name) == Some(*value));
        let http = grant.http.iter();
        let http = http.flat_map(|given| self.http.iter().filter_map(|own| given.and(own)));
        let secrets = grant.secrets.iter();
        let secrets = secrets.filter(|secret| self.secrets.contains(&secret.slot().name));
        let key_value = self.key_value.as_ref().zip(grant.key_value.as_ref());
        let key_value = key_value
            .filter(|(own, given)| own.namespace.is_empty() || own.namespace == given.namespace);
        let knowledge = self.knowledge.as_ref().zip(grant.knowledge.as_ref());
        let knowledge = knowledge.map(|(own, given)| own.and(given));
        Grant {
            directories: directories.collect(),
            scratch: scratch.map(|(own, given)| ScratchGrant {
                quota_bytes: own.quota_bytes.min(given.quota_bytes),
                keep: own.keep.min(given.keep),
                ..given.clone()
            }),
            environment: environment
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            http: http.collect(),
            secrets: secrets.cloned().collect(),
            key_value: key_value.map(|(own, given)| KeyValueGrant {
                quota_bytes: own.quota_bytes.min(given.quota_bytes),
                ..given.clone()
            }),
            knowledge: knowledge.filter(|both| !both.is_empty()),
            tools: both(&self.tools, &grant.tools),
            clocks: Clocks {
                precision_us: self.clocks.precision_us.max(grant.clocks.precision_us),
            },
            // Neither reaches anything.
            randomness: grant.randomness,
            log_level: grant.log_level,
        }
    }
}

impl Share {
    /// Whether this gives everything that `grant` gives, but for its secrets. The same directory has the same path.
    fn covers(&self, grant: &Grant) -> bool {
        let same = |one: &Path, other: &Path| one == other;
        let left = self.of(grant, &same);
        let namespace = self.key_value.as_ref().map(|own| &own.namespace);
        let given = grant.key_value.as_ref().map(|own| &own.namespace);
        left.directories == grant.directories
            && left.scratch == grant.scratch
            && left.environment == grant.environment
            && grant.http.iter().all(|own| left.http.contains(own))
            && left.key_value == grant.key_value
            && (given.is_none() || namespace == given)
            && covers_knowledge(self.knowledge.as_ref(), grant.knowledge.as_ref())
            && grant.tools.iter().all(|own| left.tools.contains(own))
            && left.clocks == grant.clocks
    }

    /// The kinds that this names and of which nothing is left, because `grant` has nothing of it.
    pub fn in_vain(&self, grant: &Grant, same_directory: SameDirectory<'_>) -> Vec<Capability> {
        let left = self.of(grant, same_directory);
        let is_named = |kind: &Capability| match kind {
            Capability::Directories => !self.directories.is_empty(),
            Capability::Scratch => self.scratch.is_some(),
            Capability::Environment => !self.environment.is_empty(),
            Capability::Http => !self.http.is_empty(),
            Capability::Secrets => !self.secrets.is_empty(),
            Capability::KeyValue => self.key_value.is_some(),
            Capability::Knowledge => self.knowledge.is_some(),
            Capability::Tools => !self.tools.is_empty(),
            Capability::Clocks => self.clocks != Clocks::default(),
        };
        let named = Capability::ALL.iter().copied().filter(is_named);
        named.filter(|kind| !left.has(*kind)).collect()
    }
}

impl Grant {
    /// Whether this gives everything that `other` gives. The values of secrets are not compared: a new value
    /// under an old name takes nothing away.
    pub fn covers(&self, other: &Self) -> bool {
        Share::all_of(self).covers(other)
            && other.secrets.iter().all(|own| self.secrets.contains(own))
    }

    /// Whether a record of a grant, which is the JSON form of one, gives everything that this gives. Not if it cannot be
    /// read.
    pub(crate) fn is_within(&self, record: &Value) -> bool {
        let Some(mut parts) = record.as_object().cloned() else {
            return false;
        };
        // Neither reaches anything.
        for name in ["randomness", "log_level"] {
            parts.remove(name);
        }
        // A record has them without values.
        let slots = parts.remove("secrets").map(serde_json::from_value);
        let slots: Option<Vec<SecretSlot>> = slots.transpose().ok().map(Option::unwrap_or_default);
        let share = serde_json::from_value::<Share>(Value::Object(parts)).ok();
        share.zip(slots).is_some_and(|(share, slots)| {
            let mut own = self.secrets.iter();
            share.covers(self) && own.all(|secret| slots.contains(secret.slot()))
        })
    }

    /// The same without the kinds that `permits` does not name.
    pub(crate) fn only(&self, permits: impl Fn(Capability) -> bool) -> Self {
        let mut left = self.clone();
        for &kind in Capability::ALL.iter().filter(|kind| !permits(**kind)) {
            match kind {
                Capability::Directories => left.directories.clear(),
                Capability::Scratch => left.scratch = None,
                Capability::Environment => left.environment.clear(),
                Capability::Http => left.http.clear(),
                Capability::Secrets => left.secrets.clear(),
                Capability::KeyValue => left.key_value = None,
                Capability::Knowledge => left.knowledge = None,
                Capability::Tools => left.tools.clear(),
                Capability::Clocks => {
                    let usual = Clocks::default().precision_us;
                    left.clocks.precision_us = left.clocks.precision_us.max(usual);
                }
            }
        }
        left
    }

    /// This kind of it and nothing else.
    pub(crate) fn part(&self, kind: Capability) -> Self {
        let mut part = Self::default();
        match kind {
            Capability::Directories => part.directories.clone_from(&self.directories),
            Capability::Scratch => part.scratch.clone_from(&self.scratch),
            Capability::Environment => part.environment.clone_from(&self.environment),
            Capability::Http => part.http.clone_from(&self.http),
            Capability::Secrets => part.secrets.clone_from(&self.secrets),
            Capability::KeyValue => part.key_value.clone_from(&self.key_value),
            Capability::Knowledge => part.knowledge.clone_from(&self.knowledge),
            Capability::Tools => part.tools.clone_from(&self.tools),
            Capability::Clocks => part.clocks = self.clocks,
        }
        part
    }

    /// Whether anything of this kind is given.
    pub(crate) fn has(&self, kind: Capability) -> bool {
        self.part(kind) != Self::default()
    }
}

/// Whether `own` gives everything that `other` gives.
fn covers_knowledge(own: Option<&KnowledgeGrant>, other: Option<&KnowledgeGrant>) -> bool {
    match (own, other) {
        (_, None) => true,
        (None, Some(other)) => other.is_empty(),
        (Some(own), Some(other)) => {
            other.collections.iter().all(|wish| own.covers(wish))
                && own.and(other).memory == other.memory
        }
    }
}

/// The same directory under the same name.
fn is_same(
    given: &DirectoryGrant,
    own: &DirectoryGrant,
    same_directory: SameDirectory<'_>,
) -> bool {
    given.guest == own.guest && (given.host == own.host || same_directory(&given.host, &own.host))
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The names that both lists allow, each the narrower of two: `text` and `text.count` is `text.count`.
fn both(one: &[String], other: &[String]) -> Vec<String> {
    let within = |name: &String, list: &[String]| {
        let module = name.split(['.', '@']).next().unwrap_or_default();
        list.iter().any(|known| known == name || known == module)
    };
    let narrow = one.iter().filter(|name| within(name, other));
    let mut names: Vec<String> = narrow
        .chain(other.iter().filter(|name| within(name, one)))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::Keep;
    use crate::secret::{SecretGrant, SecretPlace, SecretSlot};

    fn same(given: &Path, own: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        real(given).is_some() && real(given) == real(own)
    }

    fn share(text: &str) -> Share {
        toml::from_str(text).unwrap()
    }

    /// The form of a grant in a pin.
    fn record(grant: &Grant) -> Value {
        serde_json::to_value(grant).unwrap()
    }

    fn http(text: &str) -> HttpGrant {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_share_is_never_more_than_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().display();
        let slot = SecretSlot {
            name: "key".into(),
            origin: "https://a.example".parse().unwrap(),
            place: SecretPlace::Query { name: "k".into() },
        };
        let grant = Grant {
            directories: vec![DirectoryGrant {
                host: folder.path().into(),
                guest: "/data".into(),
                access: Access::ReadWrite,
                quota_bytes: Some(100),
            }],
            scratch: Some(ScratchGrant {
                guest: "/tmp".into(),
                quota_bytes: 50,
                keep: Keep::Call,
            }),
            environment: [("A".into(), "a".into()), ("B".into(), "b".into())].into(),
            http: vec![http(
                "origin = 'https://*.example.com'\nmethods = ['GET', 'POST']",
            )],
            secrets: vec![SecretGrant::new(slot, "long enough".to_owned().into()).unwrap()],
            key_value: Some(KeyValueGrant {
                namespace: "team".into(),
                quota_bytes: 10,
            }),
            knowledge: Some(
                toml::from_str(
                    "collections = [{ name = 'team-*' }]\nmemory = { user = ['recall'] }",
                )
                .unwrap(),
            ),
            tools: vec!["text".into()],
            clocks: Clocks { precision_us: 1 },
            ..Grant::default()
        };
        assert_eq!(
            Share::default().of(&grant, &same),
            Grant::default(),
            "nothing is named"
        );
        let vain = share(
            "tools = ['shell']\nkey_value = {}\nhttp = [{ origin = 'https://elsewhere.com' }]",
        );
        assert_eq!(
            vain.in_vain(&grant, &same),
            [Capability::Http, Capability::Tools]
        );
        let more = share(&format!(
            "directories = [{{ host = '{host}/.', guest = '/data', access = 'read-write', quota_bytes = 1000 }},\n\
             {{ host = '/', guest = '/data' }}, {{ host = '{host}', guest = '/other' }}]\n\
             scratch = {{ quota_bytes = 1000, keep = 'session' }}\n\
             environment = {{ A = 'a', B = 'other', C = 'c' }}\n\
             http = [{{ origin = 'https://api.example.com', methods = ['GET', 'PUT'], path_prefix = '/v1', redirects = 3 }},\n\
             {{ origin = 'https://elsewhere.com' }}]\n\
             secrets = ['key', 'other']\nkey_value = {{ quota_bytes = 1000 }}\n\
             knowledge = {{ collections = [{{ name = '*' }}], memory = {{ user = ['recall', 'forget'] }} }}\ntools = ['text.count', 'shell']\n\
             clocks = {{ precision_us = 5 }}"
        ));
        let left = more.of(&grant, &same);
        assert_eq!(
            left,
            Grant {
                environment: [("A".into(), "a".into())].into(),
                http: vec![http(
                    "origin = 'https://api.example.com'\npath_prefix = '/v1'\nmethods = ['GET']"
                )],
                tools: vec!["text.count".into()],
                clocks: Clocks { precision_us: 5 },
                ..grant.clone()
            }
        );
        let less = share(&format!(
            "directories = [{{ host = '{host}', guest = '/data', quota_bytes = 7 }}]\nscratch = {{ quota_bytes = 3 }}\n\
             key_value = {{ namespace = 'other' }}"
        ));
        let left = less.of(&grant, &same);
        assert_eq!(
            (left.directories[0].access, left.directories[0].quota_bytes),
            (Access::Read, Some(7))
        );
        assert_eq!(left.scratch.as_ref().map(|it| it.quota_bytes), Some(3));
        assert!(left.key_value.is_none() && left.secrets.is_empty() && left.http.is_empty());
        // Asking again changes nothing, whatever was asked.
        assert_eq!(less.of(&left, &same), left);

        assert!(grant.covers(&grant) && grant.covers(&left) && grant.covers(&Grant::default()));
        assert!(!left.covers(&grant), "less covers no more");
        for kind in Capability::ALL {
            let without = grant.only(|other| other != *kind);
            assert!(grant.covers(&without), "{kind:?}");
            assert!(!without.covers(&grant), "{kind:?}");
            assert!(without.is_within(&record(&grant)), "{kind:?}");
            assert!(!grant.is_within(&record(&without)), "{kind:?}");
        }
        assert!(grant.is_within(&record(&grant)));
        let elsewhere = Grant {
            key_value: Some(KeyValueGrant::default()),
            ..grant.clone()
        };
        assert!(
            !elsewhere.covers(&grant),
            "another namespace is another place"
        );
        assert!(!grant.is_within(&record(&elsewhere)));
        let mut newer = record(&grant);
        newer["gpu"] = true.into();
        for unreadable in [newer, Value::Null, serde_json::json!({"tools": "text"})] {
            assert!(!grant.is_within(&unreadable), "{unreadable}");
        }
        let mut moved = record(&grant);
        moved["secrets"][0]["origin"] = "https://b.example".into();
        assert!(!grant.is_within(&moved), "a secret goes elsewhere");
    }
}
