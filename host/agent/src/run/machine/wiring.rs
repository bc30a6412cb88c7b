//! What a call says besides its parameters: the data that it reads, where its result goes, what it is shown of
//! the context (docs/protocol.md, 5 and 9).

use super::results::some_of;
use super::scopes::scopes;
use serde_json::{Map, Value, json};
use toolhold_protocol::context::Context;
use toolhold_protocol::data::Method;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference::{self, Path, Source, Target};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{OutputPath, Scopes, Tool};
use toolhold_text::cut;

/// What a call's reserved properties say about data.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    /// The run has no data, so a dagger at the beginning of an argument is text.
    pub is_text: bool,
    pub reads: Vec<Source>,
    pub target: Option<Target>,
    pub method: Method,
    pub scopes: Vec<Path>,
}

impl Wiring {
    /// `is_text`: the run has no data to refer to.
    ///
    /// # Errors
    /// A property that cannot be followed, in words that the model can act on.
    pub fn of(
        call: &Call,
        tool: &Tool,
        context: &Context,
        is_text: bool,
    ) -> Result<Self, ToolFailure> {
        let wrong = |message: String| ToolFailure::correctable("reference", message);
        known_instance(call, &context.instances)?;
        let reads = if tool.is_latent() || is_text {
            Vec::new()
        } else {
            let found = reference::references(&call.arguments).map_err(|(place, error)| {
                wrong(format!(
                    "at {place}: {error}; a literal dagger is written ††"
                ))
            })?;
            found.into_iter().map(|(_, source)| source).collect()
        };
        let output_path = call.output_path.as_deref().filter(|text| !text.is_empty());
        let written = output_path
            .map(str::parse::<Target>)
            .transpose()
            .map_err(|error| wrong(format!("_outputPath: {error}")))?;
        let output_method = call
            .output_method
            .as_deref()
            .filter(|text| !text.is_empty());
        let method = match output_method {
            None => Method::default(),
            Some(method) => serde_json::from_value(json!(method)).map_err(|_| {
                wrong(format!(
                    "_outputMethod {method:.40?} is none of set, merge, assign, push, concat"
                ))
            })?,
        };
        Ok(Self {
            is_text,
            reads,
            target: target(tool, call, written),
            method,
            scopes: scopes(tool, call)?,
        })
    }

    /// Places in the arguments of a call that have references, which are checked with what they stand for.
    pub fn open(&self, call: &Call) -> Vec<String> {
        if self.is_text {
            return Vec::new();
        }
        let references = reference::references(&call.arguments).unwrap_or_default();
        references.into_iter().map(|(at, _)| at).collect()
    }

    /// The places that a result may be written to.
    pub fn writes(&self) -> &[Path] {
        self.target.as_ref().map_or(&[], Target::paths)
    }

    /// The call's reserved properties, as they are in force.
    pub fn reserved(&self, tool: &Tool, call: &Call) -> Map<String, Value> {
        let mut reserved = call.reserved();
        if let Some(target) = tool.fixed_output_path() {
            reserved.insert("_outputPath".into(), json!(target));
        }
        if let Scopes::Provisioned(_) = &tool.scopes {
            reserved.insert("_scopes".into(), json!(self.scopes));
        }
        reserved
    }
}

/// What the author fixed is not the model's to choose. A latent call that is not answered has chosen none
/// of its alternatives: what reads one of them waits for it.
fn target(tool: &Tool, call: &Call, written: Option<Target>) -> Option<Target> {
    let is_open = tool.is_latent() && call.output.is_none();
    match &tool.output_path {
        Some(OutputPath::Fixed(fixed)) => Some(fixed.clone()),
        Some(path) if is_open => path.alternatives().map(Target::Every).or(written),
        _ => written,
    }
}

/// A call may name an instance that there is, or none: then it works on the data of all (9).
pub(super) fn known_instance(call: &Call, known: &[String]) -> Result<(), ToolFailure> {
    let Some(instance) = call.instance.as_ref().filter(|own| !known.contains(own)) else {
        return Ok(());
    };
    let known = match known {
        [] => "there are none here; leave _instance out".to_owned(),
        known => format!("there are {}", some_of(known)),
    };
    let instance = cut(instance, 64);
    Err(ToolFailure::correctable(
        "instance",
        format!("there is no instance {instance:?}; {known}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::tool::Execution;

    fn call(value: Value) -> Call {
        Call::read(value).unwrap()
    }

    fn tool() -> Tool {
        Tool {
            execution: Execution::Activity("t".into()),
            scopes: Scopes::Requested(vec!["†user".parse().unwrap()]),
            ..Tool::new("t")
        }
    }

    #[test]
    fn a_call_says_what_it_reads_and_where_its_result_goes() {
        let call = call(json!({
            "_tool": "t", "a": "†user.name", "b": ["†x || †y"], "_outputPath": "†found",
            "_outputMethod": "push", "_scopes": ["user"],
        }));
        let wiring = Wiring::of(&call, &tool(), &Context::default(), false).unwrap();
        assert_eq!(wiring.reads.len(), 2);
        assert_eq!(wiring.writes(), ["†found".parse().unwrap()]);
        assert_eq!(wiring.method, Method::Push);
        assert_eq!(wiring.scopes, ["†user".parse().unwrap()]);
    }

    #[test]
    fn without_data_a_dagger_is_text() {
        let call = call(json!({"_tool": "t", "a": ["† 1832", "†state.x"]}));
        let wiring = Wiring::of(&call, &tool(), &Context::default(), true).unwrap();
        assert!(wiring.reads.is_empty() && wiring.open(&call).is_empty());
    }

    #[test]
    fn fixed_arguments_are_not_offered_to_the_model() {
        let fixed = Tool {
            output_path: Some(OutputPath::Fixed("†fixed".parse().unwrap())),
            scopes: Scopes::Provisioned(vec!["†user".parse().unwrap()]),
            ..Tool::new("t")
        };
        let call = call(json!({"_tool": "t", "_outputPath": "†mine"}));
        let wiring = Wiring::of(&call, &fixed, &Context::default(), false).unwrap();
        assert_eq!(wiring.writes(), ["†fixed".parse().unwrap()]);
        let reserved = wiring.reserved(&fixed, &call);
        assert_eq!(reserved["_outputPath"], "†fixed");
        assert_eq!(reserved["_scopes"], json!(["†user"]));
    }

    #[test]
    fn invalid_reserved_properties_are_named() {
        for (wrong, kind, part) in [
            (
                json!({"_outputPath": "nowhere!"}),
                "reference",
                "_outputPath",
            ),
            (json!({"_outputMethod": "add"}), "reference", "none of set"),
            (json!({"a": "†"}), "reference", "a literal dagger"),
            (json!({"_instance": "x"}), "instance", "leave _instance out"),
            (json!({"_scopes": ["other"]}), "scope", "not offered"),
        ] {
            let mut object = wrong.clone();
            object["_tool"] = json!("t");
            let failure =
                Wiring::of(&call(object), &tool(), &Context::default(), false).unwrap_err();
            assert_eq!(failure.kind, kind, "{wrong}: {}", failure.message);
            assert!(
                failure.message.contains(part),
                "{wrong}: {}",
                failure.message
            );
        }
        let known = ["a".to_owned(), "b".to_owned()];
        let named = |instance: &str| call(json!({"_tool": "t", "_instance": instance}));
        assert!(known_instance(&named("b"), &known).is_ok());
        let failure = known_instance(&named("c"), &known).unwrap_err();
        assert!(
            failure.message.contains("there are a, b"),
            "{}",
            failure.message
        );
    }
}
