//! The tools that a client lets the model call, or demands (`tool_choice`), in the forms of OpenAI's APIs.

use crate::http::error::ApiError;
use serde_json::Value;

/// The client's choice. Names are those of functions, as the client wrote them.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum ChosenTools {
    /// The model decides.
    #[default]
    Auto,
    /// No tool may be called, neither the client's nor the agent's.
    None,
    /// One has to be called.
    Required,
    /// This one has to be called, and no other may be.
    Named(String),
    /// Only these may be called.
    Allowed {
        names: Vec<String>,
        /// True if one of them has to be called.
        is_required: bool,
    },
}

/// Maximum number of tools in a list of allowed ones.
const MAX_ALLOWED: usize = 1_024;

const FORMS: &str = "expected auto, none, required, {\"type\": \"function\", \"name\": …} or {\"type\": \"allowed_tools\", …}; \
                     tools that OpenAI runs itself are not here";

impl ChosenTools {
    /// Reads the member `place` of a request. Every API takes the forms of both.
    ///
    /// # Errors
    /// It has none of the forms.
    pub fn read(place: &str, choice: &Value) -> Result<Self, ApiError> {
        let read = match choice {
            Value::Null => Some(Self::Auto),
            Value::String(mode) => match mode.as_str() {
                "auto" => Some(Self::Auto),
                "none" => Some(Self::None),
                // Another server's word for it, which some clients send to all.
                "required" | "any" => Some(Self::Required),
                _ => None,
            },
            Value::Object(_) => match choice["type"].as_str() {
                Some("allowed_tools") => allowed(choice),
                Some("function") | None => function_name(choice).map(Self::Named),
                Some(_) => None,
            },
            _ => None,
        };
        read.ok_or_else(|| ApiError::member(place, FORMS))
    }

    /// Whether a call has to be made.
    pub fn demands_call(&self) -> bool {
        match self {
            Self::Required | Self::Named(_) => true,
            Self::Allowed { is_required, .. } => *is_required,
            Self::Auto | Self::None => false,
        }
    }
}

/// The list and its mode stand beside `type`, as in the Responses API, or inside of `allowed_tools`, as in Chat Completions.
fn allowed(choice: &Value) -> Option<ChosenTools> {
    let inner = match &choice["allowed_tools"] {
        Value::Null => choice,
        inner => inner,
    };
    let is_required = match inner["mode"].as_str() {
        Some("auto") | None => false,
        Some("required") => true,
        Some("none") => return Some(ChosenTools::None),
        Some(_) => return None,
    };
    let tools = inner["tools"].as_array()?;
    if tools.is_empty() || tools.len() > MAX_ALLOWED {
        return None;
    }
    let names: Option<Vec<String>> = tools.iter().map(function_name).collect();
    Some(ChosenTools::Allowed {
        names: names?,
        is_required,
    })
}

/// The name of a function, which stands beside `type` or inside of `function`.
fn function_name(tool: &Value) -> Option<String> {
    let is_function = tool["type"].is_null() || tool["type"] == "function";
    let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
    name.filter(|name| is_function && !name.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_choice_is_read_in_the_forms_of_both_apis() {
        let named = || ChosenTools::Named("weather".into());
        let allowed = |is_required| ChosenTools::Allowed {
            names: vec!["weather".into(), "news".into()],
            is_required,
        };
        let nested = |name: &str| json!({"type": "function", "function": {"name": name}});
        let flat = |name: &str| json!({"type": "function", "name": name});
        for (choice, read) in [
            (Value::Null, ChosenTools::Auto),
            (json!("auto"), ChosenTools::Auto),
            (json!("none"), ChosenTools::None),
            (json!("required"), ChosenTools::Required),
            (json!("any"), ChosenTools::Required),
            (nested("weather"), named()),
            (flat("weather"), named()),
            (json!({"name": "weather"}), named()),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [nested("weather"), nested("news")]}}),
                allowed(false),
            ),
            (
                json!({"type": "allowed_tools", "mode": "required", "tools": [flat("weather"), flat("news")]}),
                allowed(true),
            ),
        ] {
            assert_eq!(ChosenTools::read("tool_choice", &choice).unwrap(), read);
        }
    }

    #[test]
    fn a_choice_of_another_form_is_refused_with_the_forms() {
        for choice in [
            json!("must"),
            json!(1),
            json!({}),
            json!({"type": "function", "name": ""}),
            json!({"type": "web_search"}),
            json!({"type": "allowed_tools", "mode": "auto", "tools": []}),
            json!({"type": "allowed_tools", "mode": "never", "tools": [{"type": "function", "name": "f"}]}),
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "name": "f"}]}),
        ] {
            let refused = ChosenTools::read("tool_choice", &choice).unwrap_err();
            let error = refused.body().error;
            assert_eq!(error.param.as_deref(), Some("tool_choice"), "{choice}");
            assert!(error.message.contains("allowed_tools"), "{choice}");
        }
    }
}
