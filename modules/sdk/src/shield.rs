//! Shields: what screens a run's input, what tools are given and give back, and the run's output.
//!
//! A shield is a function from a [`Screening`] to a [`Verdict`]; [`crate::export_shield!`] makes a module
//! of it. It may log and reach nothing else. It takes away and adds nothing: the host holds every
//! redaction against what was shown, and one that changes more is no verdict.
//!
//! ```ignore
//! use toolhold_guest::shield::{Screening, Verdict};
//!
//! toolhold_guest::export_shield!(screen);
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Settings {
//!     word: String,
//! }
//!
//! fn screen(screening: &Screening<Settings>) -> Result<Verdict, String> {
//!     let word = &screening.settings.word;
//!     Ok(screening.redact("it says the word", |text| text.replace(word, "[redacted]")))
//! }
//! ```

use bindings::exports::toolhold::module::shields as wit;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use wit::Place;

/// What `wit-bindgen` makes of the world. Modules touch it through [`crate::export_shield!`] alone.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "shield",
        pub_export_macro: true,
        export_macro_name: "export_world",
        default_bindings_module: "toolhold_guest::shield::bindings",
    });
}

/// What a shield is shown. `S` is what the operator configures for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Screening<S> {
    pub place: Place,
    /// The tool, where there is one: `module.tool`.
    pub tool: Option<String>,
    /// By its place: the list of the contents of the user's messages, a call's arguments, what it
    /// returned or the message of its failure, the final output.
    pub value: Value,
    /// What a call is shown of the context, by path: reason to block it, and never redacted.
    pub context: Vec<(String, Value)>,
    pub settings: S,
}

/// What a shield says.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Pass,
    /// The value with pieces of its strings, or whole values, replaced by `[redacted]` or
    /// `[redacted: WHAT]`, and everything else as it was.
    Redact {
        value: Value,
        reason: String,
    },
    /// With the reason, in words that a model can act on.
    Block {
        reason: String,
    },
}

impl Verdict {
    pub fn block(reason: impl Into<String>) -> Self {
        Self::Block {
            reason: reason.into(),
        }
    }
}

impl<S> Screening<S> {
    /// One without tool and context: for tests.
    pub fn new(place: Place, value: Value, settings: S) -> Self {
        Self {
            place,
            tool: None,
            value,
            context: Vec::new(),
            settings,
        }
    }

    /// Whether a string of the value, or the name of a member, contains `text`.
    pub fn says(&self, text: &str) -> bool {
        says(&self.value, text)
    }

    /// A verdict that puts into the place of every string what `redact` makes of it; a pass, if that
    /// changes none.
    pub fn redact(&self, reason: impl Into<String>, redact: impl Fn(&str) -> String) -> Verdict {
        let value = redacted(&self.value, &redact);
        if value == self.value {
            return Verdict::Pass;
        }
        Verdict::Redact {
            value,
            reason: reason.into(),
        }
    }
}

fn says(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text.contains(wanted),
        Value::Array(items) => items.iter().any(|item| says(item, wanted)),
        Value::Object(members) => {
            let mut members = members.iter();
            members.any(|(name, member)| name.contains(wanted) || says(member, wanted))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn redacted(value: &Value, redact: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => redact(text).into(),
        Value::Array(items) => items.iter().map(|item| redacted(item, redact)).collect(),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, member)| (name.clone(), redacted(member, redact)));
            members.collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

/// `screen` over a module's function.
#[doc(hidden)]
pub fn screen<S: DeserializeOwned>(
    screening: wit::Screening,
    screen: impl Fn(&Screening<S>) -> Result<Verdict, String>,
) -> Result<wit::Verdict, String> {
    let parse = |what: &str, json: &str| -> Result<Value, String> {
        serde_json::from_str(json).map_err(|error| format!("{what} is not JSON: {error}"))
    };
    let settings = serde_json::from_str(&screening.settings)
        .map_err(|error| format!("its settings do not fit: {error}"))?;
    let context = screening.context.iter().map(|shown| {
        let value = parse(&shown.path, &shown.value)?;
        Ok((shown.path.clone(), value))
    });
    let shown = Screening {
        place: screening.place,
        tool: screening.tool.clone(),
        value: parse("what it is shown", &screening.value)?,
        context: context.collect::<Result<_, String>>()?,
        settings,
    };
    Ok(match screen(&shown)? {
        Verdict::Pass => wit::Verdict::Pass,
        Verdict::Redact { value, reason } => wit::Verdict::Redact(wit::Redaction {
            value: value.to_string(),
            reason,
        }),
        Verdict::Block { reason } => wit::Verdict::Block(reason),
    })
}

/// Exports a function as a shield: `fn(&Screening<S>) -> Result<Verdict, String>`, where `S` reads the
/// settings. Once in a module, which then has no tools.
#[macro_export]
macro_rules! export_shield {
    ($screen:path) => {
        struct ToolholdShield;

        impl $crate::shield::bindings::exports::toolhold::module::shields::Guest
            for ToolholdShield
        {
            fn screen(
                screening: $crate::shield::bindings::exports::toolhold::module::shields::Screening,
            ) -> Result<
                $crate::shield::bindings::exports::toolhold::module::shields::Verdict,
                String,
            > {
                $crate::shield::screen(screening, $screen)
            }
        }

        $crate::shield::bindings::export_world!(
            ToolholdShield with_types_in $crate::shield::bindings
        );
    };
}
