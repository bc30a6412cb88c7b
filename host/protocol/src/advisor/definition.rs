//! The definition of an advisor in the context.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;
use toolhold_schema::{SchemaFault, Validator};

/// Properties of an opinion that the protocol fills; an advisor's own fields have other names.
pub(super) const RESERVED: [&str; 3] = ["id", "_instance", "calls"];

/// A message of type `advisor` (docs/protocol.md, 10), less its `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Advisor {
    /// Unique; the last definition of an id wins, as with tools.
    pub id: String,
    /// The advisor's role, in the author's words.
    pub role: String,
    /// JSON Schema, `"type": "object"`, of what it says besides its votes. Without one it gives an
    /// `opinion` in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Absent: it speaks only when the model asks it through `ConsultAdvisor`.
    #[serde(default)]
    pub on: Option<Attendance>,
    /// Context keys that it should look at: guidance, not isolation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Whether it speaks once for each instance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_instanced: bool,
    /// Fields that the protocol does not know: kept for the record.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// In which iterations an advisor takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attendance {
    /// The first.
    Start,
    /// The one before the loop ends.
    Finish,
    /// Every one, the first and the last included.
    Request,
}

/// Why an advisor cannot be used, with the place and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AdvisorError {
    #[error(
        "advisor {id:?}: id must be a name of letters, digits, _ or -; write one such as \"security-review\""
    )]
    Id { id: String },
    #[error("advisor {id:?}: role is empty; say who the advisor is and what it watches for")]
    Role { id: String },
    #[error(
        "advisor {id:?}: schema must be a JSON Schema of type object with its fields under properties; \
         correct it, or leave it out for an opinion in words"
    )]
    Shape { id: String },
    #[error(
        "advisor {id:?}: schema/properties/{field} has a name that the protocol uses; rename the field"
    )]
    ReservedField { id: String, field: String },
    #[error(
        "advisor {id:?}: schema/required names {field:?}, which is not under properties; add it there, or remove it"
    )]
    UnknownRequired { id: String, field: String },
    #[error("advisor {id:?}: correct its schema: {reason}")]
    Schema { id: String, reason: SchemaFault },
}

impl Advisor {
    /// # Errors
    /// The first thing that is wrong with the definition.
    pub fn check(&self) -> Result<(), AdvisorError> {
        let id = || self.id.clone();
        if self.id.is_empty() || !self.id.chars().all(is_name) {
            return Err(AdvisorError::Id { id: id() });
        }
        if self.role.trim().is_empty() {
            return Err(AdvisorError::Role { id: id() });
        }
        let Some(schema) = &self.schema else {
            return Ok(());
        };
        let properties = properties(schema).ok_or_else(|| AdvisorError::Shape { id: id() })?;
        if let Some(field) = RESERVED.iter().find(|name| properties.contains_key(**name)) {
            return Err(AdvisorError::ReservedField {
                id: id(),
                field: (*field).to_owned(),
            });
        }
        // The model is held to the properties, so such a field could never be written.
        let required = schema.get("required").and_then(Value::as_array);
        let missing = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .find(|name| !properties.contains_key(*name));
        if let Some(field) = missing {
            return Err(AdvisorError::UnknownRequired {
                id: id(),
                field: field.to_owned(),
            });
        }
        Validator::new(schema).map_err(|reason| AdvisorError::Schema { id: id(), reason })?;
        Ok(())
    }

    /// The schema of what it says besides its votes.
    pub fn fields(&self) -> Value {
        self.schema.clone().unwrap_or_else(|| {
            json!({"type": "object", "properties": {"opinion": {"type": "string"}}, "required": ["opinion"]})
        })
    }

    /// The schema of its answer to a question: what it says and, if it has a preference, its votes.
    pub fn answer(&self) -> Value {
        let mut schema = self.fields();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.insert("calls".into(), json!({"type": "string"}));
        }
        schema
    }
}

/// Letters of any script, as in references.
fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    match schema.get("type") {
        None => {}
        Some(Value::String(one)) if one == "object" => {}
        Some(_) => return None,
    }
    schema.get("properties")?.as_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advisor(value: Value) -> Advisor {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_message_is_read_and_written_without_loss() {
        let full = json!({
            "id": "skeptic", "role": "Doubts.", "schema": {"type": "object", "properties": {"risk": {"type": "integer"}}},
            "on": "start", "scopes": ["state", "user"], "isInstanced": true, "_date": "today",
        });
        let read = advisor(full.clone());
        assert_eq!(read.on, Some(Attendance::Start));
        assert!(read.is_instanced);
        assert_eq!(serde_json::to_value(&read).unwrap(), full);

        for least in [
            json!({"id": "a", "role": "r", "on": null}),
            json!({"id": "a", "role": "r"}),
        ] {
            let read = advisor(least);
            assert_eq!((read.on, read.is_instanced), (None, false));
            assert_eq!(advisor(serde_json::to_value(&read).unwrap()), read);
        }
    }

    #[test]
    fn the_tag_of_a_message_is_not_part_of_it() {
        #[derive(Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        enum TaggedMessage {
            Advisor(Advisor),
        }
        let TaggedMessage::Advisor(read) = serde_json::from_value(
            json!({"type": "advisor", "id": "a", "role": "r", "on": "request"}),
        )
        .unwrap();
        assert_eq!(read.on, Some(Attendance::Request));
        assert!(read.other.is_empty());
    }

    #[test]
    fn invalid_definition_is_refused() {
        for value in [
            json!({"role": "r"}),
            json!({"id": "a"}),
            json!({"id": "a", "role": "r", "on": "always"}),
            json!({"id": "a", "role": "r", "isInstanced": "yes"}),
        ] {
            assert!(
                serde_json::from_value::<Advisor>(value.clone()).is_err(),
                "{value}"
            );
        }
    }
}
