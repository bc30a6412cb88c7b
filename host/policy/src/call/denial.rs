//! What a call asked for and was not given: for the author and the operator, never for the guest.

use crate::grant::Capability;
use crate::text::UntrustedText;
use serde::{Serialize, Serializer};
use std::fmt;

/// Most denials that are kept of one call: more of them usually have one cause.
const MAX_DENIALS: usize = 16;
/// Most characters of what was asked for, which a guest may choose.
const MAX_CHARS: usize = 200;

/// Something that a call asked for and was not given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// What was asked for, partly in the guest's words.
    pub asked: UntrustedText,
    pub rule: AllowingRule,
    /// The call tried it. Otherwise its module asks for it, or found that it has none.
    #[serde(rename = "refused")]
    pub is_refused: bool,
    /// What a grant would have to give. Absent: no grant gives it.
    #[serde(skip)]
    pub capability: Option<Capability>,
}

/// What would allow something that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowingRule {
    /// `toolhold modules grant` with these flags, of this module.
    Grant {
        module: String,
        flags: UntrustedText,
    },
    /// Restrictions took it, or a part of what it is of, away from the call. `otherwise`: what would allow it if it is
    /// of the part that the module itself was not given.
    Withheld {
        by: UntrustedText,
        otherwise: Option<Box<Self>>,
    },
    /// No flag does; why not, or what does.
    None(&'static str),
}

impl fmt::Display for AllowingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grant { module, flags } => {
                write!(f, "allowed by: toolhold modules grant {module} {flags}")
            }
            Self::Withheld { by, otherwise } => {
                write!(f, "withheld from this call: {by}")?;
                match otherwise {
                    Some(rule) => write!(f, "; if the module itself has it not, {rule}"),
                    None => Ok(()),
                }
            }
            Self::None(why) => f.write_str(why),
        }
    }
}

impl Serialize for AllowingRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One line for a person.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.asked, self.rule)
    }
}

/// The first different denials of one call, and how many were not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Denials {
    pub kept: Vec<Denial>,
    /// Others, after so many were kept.
    pub dropped: u64,
}

impl Denials {
    /// Keeps a denial if it is another than those that are kept, and there is room.
    pub fn push(&mut self, mut denial: Denial) {
        if denial.asked.raw().chars().nth(MAX_CHARS).is_some() {
            let mut cut: String = denial.asked.raw().chars().take(MAX_CHARS).collect();
            cut.push('…');
            denial.asked = cut.into();
        }
        if self.kept.contains(&denial) {
            return;
        }
        if self.is_full() {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.kept.push(denial);
    }

    /// Whether a denial that is not kept yet would only be counted.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= MAX_DENIALS
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(asked: &str) -> Denial {
        Denial {
            asked: asked.into(),
            rule: AllowingRule::None("it is a test"),
            is_refused: true,
            capability: None,
        }
    }

    #[test]
    fn a_guest_that_asks_for_much_is_told_of_in_bounds() {
        let mut denials = Denials::default();
        for n in 0..10_000 {
            denials.push(denial(&format!("file {}", n % 20)));
        }
        assert_eq!(denials.kept.len(), MAX_DENIALS);
        // 4 of 20 different ones found no room, each of 500 times.
        assert_eq!(denials.dropped, 2_000);
        let mut long = Denials::default();
        for _ in 0..2 {
            long.push(denial(&"é".repeat(100_000)));
        }
        assert_eq!((long.kept.len(), long.dropped), (1, 0));
        assert_eq!(long.kept[0].asked.raw().chars().count(), MAX_CHARS + 1);
    }

    #[test]
    fn a_denial_is_shown_on_one_line_escaped() {
        let hostile = "a\n\u{1b}[2Jdenied: b";
        let rule = AllowingRule::Grant {
            module: "m".into(),
            flags: hostile.into(),
        };
        let denial = Denial {
            rule,
            ..denial(hostile)
        };
        let shown = "a\\n\\u{1b}[2Jdenied: b";
        assert_eq!(
            denial.to_string(),
            format!("{shown}; allowed by: toolhold modules grant m {shown}")
        );
        let json = serde_json::to_value(&denial).unwrap();
        assert_eq!(
            json["rule"],
            format!("allowed by: toolhold modules grant m {shown}")
        );
    }
}
