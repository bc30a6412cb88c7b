//! Where the results of a tool's calls go, as far as its author says so (docs/protocol.md, 3.1 and 5.5).

use super::constant;
use crate::reference::{MAX_TERMS, Path, ReferenceError, Target};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolhold_schema::Validator;

/// What a tool's `_outputPath` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OutputPath {
    /// `const`: always there, whatever the call says.
    Fixed(Target),
    /// `enum`, or the alternatives of a latent tool's `const`: the call says which of these.
    OneOf(Vec<Target>),
    /// Other keywords: what the call says must satisfy this schema, as a whole and each of its places.
    Matching(Map<String, Value>),
}

/// The keywords that restrict a text.
const RESTRICTIONS: [&str; 7] = [
    "pattern",
    "minLength",
    "maxLength",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
];

impl OutputPath {
    /// Reads the property; `None` if the call says freely where its result goes.
    ///
    /// # Errors
    /// Why it cannot be used, after its place in the property.
    pub(super) fn read(own: &Value, is_latent: bool) -> Result<Option<Self>, (String, String)> {
        let wrong = |at: &str, reason: String| Err((at.to_owned(), reason));
        if let Some(constant) = constant(own) {
            let Some(text) = constant.as_str() else {
                let reason = "must be fixed by a const, such as †state.weather, or free: \
                              {\"type\": \"string\", \"pattern\": \"^†\"}";
                return wrong("", reason.into());
            };
            return match target(text) {
                Ok(target) => Ok(Some(Self::fixed_at(target, is_latent))),
                Err(reason) => wrong("", reason),
            };
        }
        let Value::Object(schema) = own else {
            return Ok(None);
        };
        let restrictions = restrictions(schema);
        let validator = match Validator::new(&Value::Object(restrictions.clone())) {
            Ok(validator) => validator,
            Err(fault) => return wrong("", format!("cannot be used: {fault}")),
        };
        let Some(offered) = schema.get("enum") else {
            let is_free = restrictions.len() == 1;
            return Ok((!is_free).then_some(Self::Matching(restrictions)));
        };
        let Some(offered) = offered.as_array().filter(|offered| !offered.is_empty()) else {
            return wrong(
                "/enum",
                "must be a list of places, such as †state.weather".into(),
            );
        };
        let mut targets = Vec::new();
        let mut places = 0;
        for (index, text) in offered.iter().enumerate() {
            let at = format!("/enum/{index}");
            let Some(text) = text.as_str() else {
                return wrong(&at, "must be a place, such as †state.weather".into());
            };
            if let Err(fault) = validator.check(&json!(text)) {
                return wrong(&at, format!("breaks the rest of the schema: {fault}"));
            }
            let target = match target(text) {
                Ok(target) => target,
                Err(reason) => return wrong(&at, reason),
            };
            places += target.paths().len();
            if places > MAX_TERMS {
                return wrong("/enum", format!("names more than {MAX_TERMS} places"));
            }
            targets.push(target);
        }
        Ok(Some(match (targets.pop(), targets.is_empty()) {
            (Some(only), true) => Self::fixed_at(only, is_latent),
            (last, _) => {
                targets.extend(last);
                Self::OneOf(targets)
            }
        }))
    }

    /// Of alternatives, the outcome of a call picks one, unless a model writes the result: then the model
    /// picks it too.
    fn fixed_at(target: Target, is_latent: bool) -> Self {
        match target {
            Target::Outcome(paths) if is_latent => {
                let each = paths.into_iter().map(|path| Target::Every(vec![path]));
                Self::OneOf(each.collect())
            }
            target => Self::Fixed(target),
        }
    }

    /// Where results go whatever a call says.
    pub fn fixed(&self) -> Option<&Target> {
        match self {
            Self::Fixed(target) => Some(target),
            Self::OneOf(_) | Self::Matching(_) => None,
        }
    }

    /// The one kind of data that every allowed place is of, as far as the beginning of a pattern says so.
    pub fn kind(&self) -> Option<&str> {
        match self {
            Self::Matching(schema) => kind_of_pattern(schema.get("pattern")?.as_str()?),
            Self::Fixed(_) | Self::OneOf(_) => None,
        }
    }

    /// Every place of those that a call may choose from, if it may.
    pub fn alternatives(&self) -> Option<Vec<Path>> {
        let Self::OneOf(offered) = self else {
            return None;
        };
        let mut places: Vec<Path> = Vec::new();
        for path in offered.iter().flat_map(Target::paths) {
            if !places.contains(path) {
                places.push(path.clone());
            }
        }
        Some(places)
    }

    /// The property's schema.
    pub fn schema(&self) -> Value {
        match self {
            Self::Fixed(target) => json!({"const": target}),
            Self::OneOf(offered) => json!({"type": "string", "enum": offered}),
            Self::Matching(schema) => schema.clone().into(),
        }
    }
}

/// The kind in `^†kind\.…` and `^†kind$`. An alternative (`|`) may begin otherwise, and what is repeated or left out may
/// belong to the name: such patterns have none.
fn kind_of_pattern(pattern: &str) -> Option<&str> {
    let rest = pattern
        .strip_prefix("^†")
        .filter(|rest| !rest.contains('|'))?;
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let (kind, end) = rest.split_at(rest.find(|c| !is_of_name(c))?);
    let is_end = match end.strip_prefix("\\.").or_else(|| end.strip_prefix("\\[")) {
        Some(after) => !after.starts_with(['?', '*', '+', '{']),
        None => end == "$",
    };
    (is_end && !kind.is_empty()).then_some(kind)
}

fn target(text: &str) -> Result<Target, String> {
    text.parse()
        .map_err(|error: ReferenceError| format!("is wrong: {error}"))
}

/// The part of the schema that a free place, `{"type": "string", "pattern": "^†"}`, does not have.
fn restrictions(schema: &Map<String, Value>) -> Map<String, Value> {
    let own = schema.iter().filter(|(keyword, value)| {
        RESTRICTIONS.contains(&keyword.as_str())
            && !(*keyword == "pattern" && value.as_str() == Some("^†"))
    });
    let own = own.map(|(keyword, value)| (keyword.clone(), value.clone()));
    std::iter::once(("type".to_owned(), json!("string")))
        .chain(own)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_the_kind_that_it_begins_with_and_no_other() {
        for (pattern, kind) in [
            (r"^†inbox\.[a-z]+$", Some("inbox")),
            (r"^†inbox\.", Some("inbox")),
            (r"^†inbox$", Some("inbox")),
            (r"^†inbox\[[0-9]+\]$", Some("inbox")),
            (r"^†my-in_box2\.x", Some("my-in_box2")),
            (r"^†inbox", None),
            (r"^†inbox.ada", None),
            (r"^†inbox?\.ada", None),
            (r"^†inbox\.?ada", None),
            (r"^†inbox\.*ada", None),
            (r"^†inbox\.{0}ada", None),
            (r"^†inbox\.a|^†rules", None),
            (r"†inbox\.a", None),
            (r"^†(inbox)\.a", None),
            (r"^†\.a", None),
            (r"^†[a-z]+$", None),
        ] {
            assert_eq!(kind_of_pattern(pattern), kind, "{pattern}");
        }
    }
}
