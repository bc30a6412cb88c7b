//! The grant of knowledge: collections of documents, and the scopes of memory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use strum::{IntoStaticStr, VariantArray};

/// The knowledge of its callers that a module reaches: never that of others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KnowledgeGrant {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<CollectionGrant>,
    #[serde(skip_serializing_if = "MemoryGrant::is_empty")]
    pub memory: MemoryGrant,
}

/// Collections that a module reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectionGrant {
    /// A collection of the caller, or `owner/name` for one that the key `owner` shares with the caller. A `*` at the
    /// end stands for all names that begin so; it never reaches from one owner's to another's.
    pub name: String,
    #[serde(default = "all_rights")]
    pub rights: BTreeSet<CollectionRight>,
}

/// What a module may do with a collection.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CollectionRight {
    /// Find passages.
    Search,
    /// Read its documents passage by passage.
    Read,
}

fn all_rights() -> BTreeSet<CollectionRight> {
    CollectionRight::VARIANTS.iter().copied().collect()
}

/// What a module may do with the facts of each scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryGrant {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub session: BTreeSet<MemoryRight>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub user: BTreeSet<MemoryRight>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub agent: BTreeSet<MemoryRight>,
}

/// For whom a fact is kept.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MemoryScope {
    /// For the turns of a session.
    Session,
    /// For all that the caller runs.
    User,
    /// For the runs of an agent, and this caller.
    Agent,
}

/// What a module may do with facts.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MemoryRight {
    Recall,
    Remember,
    Forget,
}

impl CollectionRight {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl MemoryScope {
    pub const ALL: &[Self] = Self::VARIANTS;

    /// As in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl MemoryRight {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl CollectionGrant {
    /// A collection, or collections, with these rights.
    pub fn new(name: impl Into<String>, rights: impl IntoIterator<Item = CollectionRight>) -> Self {
        Self {
            name: name.into(),
            rights: rights.into_iter().collect(),
        }
    }

    /// The rights in words: `search and read`.
    pub fn told(&self) -> String {
        let names: Vec<_> = self.rights.iter().map(|right| right.name()).collect();
        names.join(" and ")
    }

    /// Whether it is of all names that `other` is of.
    fn reaches(&self, other: &str) -> bool {
        match self.name.strip_suffix('*') {
            None => self.name == other,
            Some(start) => {
                let rest = other.strip_prefix(start);
                rest.is_some_and(|rest| !rest.contains('/'))
            }
        }
    }

    /// What both give.
    fn and(&self, other: &Self) -> Option<Self> {
        let narrower = if self.reaches(&other.name) {
            &other.name
        } else if other.reaches(&self.name) {
            &self.name
        } else {
            return None;
        };
        let both = Self::new(
            narrower.clone(),
            self.rights.intersection(&other.rights).copied(),
        );
        (!both.rights.is_empty()).then_some(both)
    }
}

impl MemoryGrant {
    /// The rights in a scope.
    pub fn of(&self, scope: MemoryScope) -> &BTreeSet<MemoryRight> {
        match scope {
            MemoryScope::Session => &self.session,
            MemoryScope::User => &self.user,
            MemoryScope::Agent => &self.agent,
        }
    }

    /// The rights in a scope, to be changed.
    pub fn of_mut(&mut self, scope: MemoryScope) -> &mut BTreeSet<MemoryRight> {
        match scope {
            MemoryScope::Session => &mut self.session,
            MemoryScope::User => &mut self.user,
            MemoryScope::Agent => &mut self.agent,
        }
    }

    /// The scopes in which it gives `right`.
    pub fn scopes(&self, right: MemoryRight) -> Vec<MemoryScope> {
        let scopes = MemoryScope::ALL.iter().copied();
        scopes
            .filter(|scope| self.of(*scope).contains(&right))
            .collect()
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl KnowledgeGrant {
    /// Whether it gives `right` on the collection `name`, which is `owner/name` for another's.
    pub fn allows(&self, name: &str, right: CollectionRight) -> bool {
        let mut collections = self.collections.iter();
        collections.any(|grant| grant.rights.contains(&right) && grant.reaches(name))
    }

    /// True if it gives `right` on the collection `name` by its whole name, and not only by the beginning of it.
    pub fn names(&self, name: &str, right: CollectionRight) -> bool {
        let mut collections = self.collections.iter();
        collections.any(|grant| grant.rights.contains(&right) && grant.name == name)
    }

    /// Whether it gives `right` on any collection.
    pub fn has(&self, right: CollectionRight) -> bool {
        let mut collections = self.collections.iter();
        collections.any(|grant| grant.rights.contains(&right))
    }

    /// Whether it gives nothing.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.collections.iter().all(|it| it.rights.is_empty())
    }

    /// Whether it gives everything that `wish` does.
    pub fn covers(&self, wish: &CollectionGrant) -> bool {
        wish.rights.iter().all(|right| {
            let mut own = self.collections.iter();
            own.any(|own| own.rights.contains(right) && own.reaches(&wish.name))
        })
    }

    /// What both give.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut collections: Vec<CollectionGrant> = Vec::new();
        for own in &self.collections {
            for theirs in &other.collections {
                let Some(both) = own.and(theirs) else {
                    continue;
                };
                // Each name once, so that narrowing again changes nothing.
                match collections.iter_mut().find(|known| known.name == both.name) {
                    Some(known) => known.rights.extend(both.rights),
                    None => collections.push(both),
                }
            }
        }
        let mut memory = MemoryGrant::default();
        for scope in MemoryScope::ALL {
            let both = self.memory.of(*scope) & other.memory.of(*scope);
            *memory.of_mut(*scope) = both;
        }
        Self {
            collections,
            memory,
        }
    }

    /// One sentence for each thing that it gives, beginning with a verb.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for collection in &self.collections {
            if collection.rights.is_empty() {
                continue;
            }
            let which = match collection.name.strip_suffix('*') {
                Some("") => "all collections of its caller".to_owned(),
                Some(start) => format!("the collections {start}…"),
                None => format!("the collection {}", collection.name),
            };
            lines.push(format!("{} {which}", collection.told()));
        }
        for scope in MemoryScope::ALL {
            let rights: Vec<_> = self
                .memory
                .of(*scope)
                .iter()
                .map(|right| right.name())
                .collect();
            if rights.is_empty() {
                continue;
            }
            let of = match scope {
                MemoryScope::Session => "its caller's session",
                MemoryScope::User => "its caller",
                MemoryScope::Agent => "its caller and agent",
            };
            lines.push(format!("{} facts of {of}", rights.join(", ")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CollectionRight::{Read, Search};

    fn grant(text: &str) -> KnowledgeGrant {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_pattern_reaches_names_of_one_owner() {
        for (pattern, name, reaches) in [
            ("*", "fees", true),
            ("*", "bob/fees", false),
            ("*", "/fees", false),
            ("team-*", "team-a", true),
            ("team-*", "team", false),
            ("bob/*", "bob/fees", true),
            ("bob*", "bob/fees", false),
            ("fees", "fees", true),
            ("fees", "fees2", false),
            ("", "fees", false),
        ] {
            let grant = KnowledgeGrant {
                collections: vec![CollectionGrant::new(pattern, [Search])],
                ..KnowledgeGrant::default()
            };
            assert_eq!(grant.allows(name, Search), reaches, "{pattern} {name}");
            assert!(!grant.allows(name, Read));
        }
    }

    #[test]
    fn what_two_grants_give_is_what_each_gives() {
        let wide = grant(
            "collections = [{ name = '*' }, { name = 'bob/fees', rights = ['search'] }]\n\
             memory = { user = ['recall', 'remember'], agent = ['recall'] }",
        );
        let narrow = grant(
            "collections = [{ name = 'team-*', rights = ['read'] }, { name = 'bob/*' }, { name = 'ann/x' }]\n\
             memory = { user = ['recall', 'forget'] }",
        );
        let both = grant(
            "collections = [{ name = 'team-*', rights = ['read'] }, { name = 'bob/fees', rights = ['search'] }]\n\
             memory = { user = ['recall'] }",
        );
        assert_eq!(wide.and(&narrow), both);
        assert_eq!(both.and(&both), both);
        assert_eq!(wide.and(&wide), wide);
        assert!(wide.and(&KnowledgeGrant::default()).is_empty());
        for wish in &both.collections {
            assert!(wide.covers(wish) && narrow.covers(wish));
        }
        assert!(!narrow.covers(&wide.collections[0]));
    }
}
