//! `[shields.NAME]`: shields of runs and tools.

use crate::config::surroundings::{ConfigFault, at_least_one};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;
use toolhold_agent::guard::shield::{Category, OnFailure};
use toolhold_policy::is_name;
use toolhold_policy::pii::Kind;
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::shield::ShieldPlace;

const MAX_CHARS: usize = 24_000;

/// The hazard categories that Llama Guard 3 was trained on.
const CATEGORIES: [(&str, &str); 14] = [
    ("S1", "Violent Crimes."),
    ("S2", "Non-Violent Crimes."),
    ("S3", "Sex Crimes."),
    ("S4", "Child Exploitation."),
    ("S5", "Defamation."),
    ("S6", "Specialized Advice."),
    ("S7", "Privacy."),
    ("S8", "Intellectual Property."),
    ("S9", "Indiscriminate Weapons."),
    ("S10", "Hate."),
    ("S11", "Self-Harm."),
    ("S12", "Sexual Content."),
    ("S13", "Elections."),
    ("S14", "Code Interpreter Abuse."),
];

/// The table as written. A wrong value is an error of the configuration: a shield must not be missing.
#[derive(Debug, Clone, Deserialize)]
pub struct ShieldTable {
    kind: ShieldKind,
    order: Option<i64>,
    places: Option<BTreeSet<ShieldPlace>>,
    tools: Option<BTreeSet<String>>,
    timeout_ms: Option<u64>,
    on_failure: Option<OnFailure>,
    hide: Option<BTreeSet<Kind>>,
    reveal: Option<BTreeSet<String>>,
    reveal_secrets: Option<BTreeSet<String>>,
    block: Option<BTreeSet<Kind>>,
    allow: Option<Vec<String>>,
    module: Option<String>,
    settings: Option<serde_json::Map<String, serde_json::Value>>,
    endpoint: Option<String>,
    categories: Option<Vec<Category>>,
    max_chars: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ShieldKind {
    Pii,
    Domains,
    Wasm,
    Model,
}

/// A shield as it is configured.
#[derive(Debug, Clone)]
pub struct ShieldSettings {
    pub name: String,
    pub order: i64,
    pub places: BTreeSet<ShieldPlace>,
    pub tools: BTreeSet<String>,
    pub timeout: Duration,
    pub on_failure: OnFailure,
    pub what: ShieldWhat,
}

/// The kind of the shield.
#[derive(Debug, Clone)]
pub enum ShieldWhat {
    Pii {
        privacy: Privacy,
        block: BTreeSet<Kind>,
    },
    Domains {
        allow: Vec<String>,
    },
    Wasm {
        module: String,
        settings: serde_json::Map<String, serde_json::Value>,
    },
    Model {
        endpoint: String,
        categories: Vec<Category>,
        max_chars: usize,
    },
}

impl ShieldTable {
    /// The endpoint of the guard model that the shield asks.
    pub(super) fn guard(&self) -> Option<&str> {
        let is_asking = matches!(self.kind, ShieldKind::Model);
        self.endpoint.as_deref().filter(|_| is_asking)
    }

    /// Checks the table.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn settings(&self, name: &str) -> Result<ShieldSettings, ConfigFault> {
        if !is_name(name) {
            let reason = "a shield's name is lower case letters, digits and _, at most 48, starting with a letter";
            return Err(ConfigFault::new("kind", reason));
        }
        at_least_one([
            ("timeout_ms", self.timeout_ms == Some(0)),
            ("max_chars", self.max_chars == Some(0)),
        ])?;
        self.check_keys()?;
        let (places, timeout_ms): (&[ShieldPlace], _) = match self.kind {
            ShieldKind::Pii | ShieldKind::Wasm => (&ShieldPlace::ALL, 5_000),
            ShieldKind::Domains => (&[ShieldPlace::ToolInput], 5_000),
            ShieldKind::Model => (&[ShieldPlace::Input, ShieldPlace::Output], 30_000),
        };
        let usual = || places.iter().copied().collect();
        let places = self.places.clone().unwrap_or_else(usual);
        if places.is_empty() {
            let reason = "names no place, so nothing is screened";
            return Err(ConfigFault::new("places", reason));
        }
        Ok(ShieldSettings {
            name: name.to_owned(),
            order: self.order.unwrap_or_default(),
            places,
            tools: self.tools.clone().unwrap_or_default(),
            timeout: Duration::from_millis(self.timeout_ms.unwrap_or(timeout_ms)),
            on_failure: self.on_failure.unwrap_or_default(),
            what: self.what()?,
        })
    }

    fn what(&self) -> Result<ShieldWhat, ConfigFault> {
        Ok(match self.kind {
            ShieldKind::Pii => {
                let hide = self.hide.clone().unwrap_or_default();
                let block = self.block.clone().unwrap_or_default();
                if hide.is_empty() && block.is_empty() {
                    return Err(ConfigFault::new("hide", "name kinds to hide, or to block"));
                }
                ShieldWhat::Pii {
                    privacy: Privacy {
                        hide,
                        reveal: self.reveal.clone().unwrap_or_default(),
                        reveal_secrets: self.reveal_secrets.clone().unwrap_or_default(),
                    },
                    block,
                }
            }
            ShieldKind::Domains => ShieldWhat::Domains {
                allow: needed("allow", self.allow.as_ref())?,
            },
            ShieldKind::Wasm => ShieldWhat::Wasm {
                module: needed("module", self.module.as_ref())?,
                settings: self.settings.clone().unwrap_or_default(),
            },
            ShieldKind::Model => {
                let known = CATEGORIES.iter().map(|(code, text)| Category {
                    code: (*code).into(),
                    text: (*text).into(),
                });
                let categories = self.categories.clone();
                ShieldWhat::Model {
                    endpoint: needed("endpoint", self.endpoint.as_ref())?,
                    categories: categories.unwrap_or_else(|| known.collect()),
                    max_chars: self.max_chars.unwrap_or(MAX_CHARS),
                }
            }
        })
    }

    /// A key of another kind of shield would have no effect, which its author would not expect.
    fn check_keys(&self) -> Result<(), ConfigFault> {
        use ShieldKind::{Domains, Model, Pii, Wasm};
        let set = [
            (Pii, "hide", self.hide.is_some()),
            (Pii, "reveal", self.reveal.is_some()),
            (Pii, "reveal_secrets", self.reveal_secrets.is_some()),
            (Pii, "block", self.block.is_some()),
            (Domains, "allow", self.allow.is_some()),
            (Wasm, "module", self.module.is_some()),
            (Wasm, "settings", self.settings.is_some()),
            (Model, "endpoint", self.endpoint.is_some()),
            (Model, "categories", self.categories.is_some()),
            (Model, "max_chars", self.max_chars.is_some()),
        ];
        let mut others = set.iter().filter(|(kind, ..)| *kind != self.kind);
        if let Some((_, key, _)) = others.find(|(_, _, is_set)| *is_set) {
            let reason = "means nothing for a shield of this kind";
            return Err(ConfigFault::new(*key, reason));
        }
        self.check_screening()
    }

    /// Hidden data is hidden everywhere: where and how a shield screens only concerns what it blocks.
    fn check_screening(&self) -> Result<(), ConfigFault> {
        let blocks = self.block.as_ref().is_some_and(|block| !block.is_empty());
        if !matches!(self.kind, ShieldKind::Pii) || self.hide.is_none() || blocks {
            return Ok(());
        }
        let set = [
            ("order", self.order.is_some()),
            ("places", self.places.is_some()),
            ("tools", self.tools.is_some()),
            ("timeout_ms", self.timeout_ms.is_some()),
            ("on_failure", self.on_failure.is_some()),
        ];
        let Some((key, _)) = set.iter().find(|(_, is_set)| *is_set) else {
            return Ok(());
        };
        let reason = "means nothing without `block`: what `hide` names is hidden from the model everywhere, and \
                      `reveal` says who gets it; leave this out, or name what to block";
        Err(ConfigFault::new(*key, reason))
    }
}

fn needed<T: Clone>(key: &str, value: Option<&T>) -> Result<T, ConfigFault> {
    let needed = || ConfigFault::new(key, "is needed by a shield of this kind");
    value.cloned().ok_or_else(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ShieldSettings, ConfigFault> {
        let table: ShieldTable = toml::from_str(text).unwrap();
        table.settings("one")
    }

    #[test]
    fn a_failing_shield_blocks_unless_configured_otherwise() {
        let shield = read("kind = \"wasm\"\nmodule = \"guard\"").unwrap();
        assert_eq!(
            (shield.on_failure, shield.places.len()),
            (OnFailure::Block, 4)
        );
        let shield = read("kind = \"domains\"\nallow = []").unwrap();
        assert_eq!(shield.places, [ShieldPlace::ToolInput].into());
    }

    #[test]
    fn the_places_of_a_shield_follow_from_what_it_blocks() {
        let shield =
            "kind = \"pii\"\nhide = [\"email\"]\nblock = [\"card\"]\nplaces = [\"output\"]";
        assert_eq!(read(shield).unwrap().places, [ShieldPlace::Output].into());
        // What is hidden is hidden in every place, whatever a shield names.
        let hides = read("kind = \"pii\"\nhide = [\"email\"]").unwrap();
        assert_eq!(hides.places, ShieldPlace::ALL.into());
        let ShieldWhat::Pii { privacy, block } = hides.what else {
            panic!("{:?}", hides.what);
        };
        assert_eq!((privacy.hide, block), ([Kind::Email].into(), [].into()));
    }

    #[test]
    fn each_kind_of_shield_screens_its_places_in_its_time() {
        use ShieldPlace::{Input, Output, ToolInput};
        for (text, places, seconds) in [
            (
                "kind = \"pii\"\nblock = [\"card\"]",
                &ShieldPlace::ALL[..],
                5,
            ),
            ("kind = \"wasm\"\nmodule = \"guard\"", &ShieldPlace::ALL, 5),
            ("kind = \"domains\"\nallow = []", &[ToolInput], 5),
            (
                "kind = \"model\"\nendpoint = \"guard\"",
                &[Input, Output],
                30,
            ),
        ] {
            let shield = read(text).unwrap();
            assert_eq!(shield.places, places.iter().copied().collect(), "{text}");
            assert_eq!(shield.timeout, Duration::from_secs(seconds), "{text}");
        }
    }

    #[test]
    fn a_wrong_table_names_the_key() {
        for (text, key) in [
            ("kind = \"pii\"", "hide"),
            ("kind = \"pii\"\nhide = [\"email\"]\nallow = []", "allow"),
            (
                "kind = \"pii\"\nhide = [\"email\"]\nplaces = [\"output\"]",
                "places",
            ),
            (
                "kind = \"pii\"\nhide = [\"email\"]\ntools = [\"crm\"]",
                "tools",
            ),
            (
                "kind = \"pii\"\nhide = [\"email\"]\nblock = []\non_failure = \"pass\"",
                "on_failure",
            ),
            (
                "kind = \"pii\"\nhide = [\"email\"]\ntimeout_ms = 9",
                "timeout_ms",
            ),
            ("kind = \"domains\"", "allow"),
            ("kind = \"domains\"\nallow = []\nplaces = []", "places"),
            (
                "kind = \"domains\"\nallow = []\ntimeout_ms = 0",
                "timeout_ms",
            ),
            ("kind = \"wasm\"", "module"),
            (
                "kind = \"wasm\"\nmodule = \"a\"\nblock = [\"card\"]",
                "block",
            ),
            ("kind = \"model\"", "endpoint"),
            (
                "kind = \"model\"\nendpoint = \"a\"\nmax_chars = 0",
                "max_chars",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().key, key, "{text}");
        }
    }
}
