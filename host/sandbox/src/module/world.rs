//! Modules of the tool world: what a module says of its own tools, checked and cleaned.

use crate::bindings::jobs::JobToolsPre;
use crate::bindings::{ToolModulePre, types};
use crate::call::{
    self, ArgumentText, CallContext, CallOutcome, CallState, CurrentCall, GrantedKnowledge,
    GuestCall, GuestLogSink, OtherTools, shallow,
};
use crate::compile::DebugInfo;
use crate::descriptors::DescriptorShare;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::grant::PreparedGrant;
use serde_json::Value;
use std::sync::Arc;
use toolhold_json::{bounded, numbers};
use toolhold_policy::Caller;
use toolhold_policy::DocsSource;
use toolhold_policy::limits::Limits;
use toolhold_policy::text;
use toolhold_policy::tool::{Annotations, Example, MAX_TOOLS_PER_MODULE, ToolSpec};
use toolhold_policy::{CallError, ErrorClass, Invocation, Output};
use toolhold_schema::Validator;
use wasmtime::Store;

/// Maximum characters of a description, and of the message of an error.
const MAX_DESCRIPTION_CHARS: usize = 4_000;
/// Maximum bytes of one schema, and of one part of an example.
const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// Asks a fresh instance, without grants, for its tools, within `list_tools_ms`. Modules that are loaded wait for
/// one another in places of their own, so that neither running calls nor a list that takes long hold them up.
pub(super) async fn list_tools(
    engine: &Engine,
    module: &str,
    limits: &Limits,
    pre: &ToolModulePre<CallState>,
    jobs: Option<&JobToolsPre<CallState>>,
    debug: Option<&DebugInfo>,
) -> Result<Vec<ToolSpec>, LoadError> {
    // The wait is bounded by the time of those before it, and does not count.
    let _permit = engine.listing_permit().await;
    let granted = PreparedGrant::default();
    let context = || {
        Box::new(CallContext {
            engine,
            limits,
            granted: &granted,
            descriptors: DescriptorShare::of_module(engine.descriptors()),
            module: (0, module),
            is_listing: true,
            begin: None,
            depth: 0,
            document: bytes::Bytes::new(),
            revocation: Arc::default(),
            caller: Caller::default(),
            other_tools: OtherTools::default(),
            knowledge: GrantedKnowledge::default(),
            current: CurrentCall::default(),
            reserved: None,
            log_sink: GuestLogSink::default(),
            profiler: None,
            debug,
            timeout: limits.list_tools_time(),
        })
    };
    let listing = ListBeside {
        pre,
        jobs,
        listing: context(),
    };
    let listed = call::run(context(), listing).await;
    let tools = listed.result.and_then(|listed| listed.result);
    let tools = tools.map_err(|source| LoadError::ListTools { source })?;
    if tools.is_empty() || tools.len() > MAX_TOOLS_PER_MODULE {
        return Err(LoadError::NoTools {
            detail: format!(
                ": list-tools returned {} tools; 1 to {MAX_TOOLS_PER_MODULE} are accepted",
                tools.len()
            ),
        });
    }
    specs(module, tools).await
}

/// `list-tools` of a module of the tool world.
struct ListTools<'a>(&'a ToolModulePre<CallState>);

impl GuestCall for ListTools<'_> {
    type Return = Vec<types::Tool>;

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        let instance = self.0.instantiate_async(&mut *store).await?;
        instance
            .toolhold_module_tools()
            .call_list_tools(store)
            .await
    }
}

/// Lists in a second instance, which ends before the first.
///
/// The pool gives an instance the place that ended last, and after each call writes zeros over all pages that were ever
/// written there. A list of tools writes more of them than most calls: so the first calls get a place that has none.
struct ListBeside<'a> {
    pre: &'a ToolModulePre<CallState>,
    /// Its first instance is one of these, where there are any: functions about jobs that have other types than the contract's
    /// are noticed when the module is loaded, and not by its first call.
    jobs: Option<&'a JobToolsPre<CallState>>,
    listing: Box<CallContext<'a>>,
}

impl GuestCall for ListBeside<'_> {
    type Return = CallOutcome<Vec<types::Tool>>;

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        if let Some(jobs) = self.jobs {
            jobs.instantiate_async(&mut *store).await?;
        } else {
            self.pre.instantiate_async(&mut *store).await?;
        }
        Ok(call::run(self.listing, ListTools(self.pre)).await)
    }
}

/// `call` of a module of the tool world.
pub(super) struct CallTool<'a> {
    pub pre: &'a ToolModulePre<CallState>,
    /// Its name in the module.
    pub tool: &'a str,
    pub invocation: &'a Invocation<'a>,
    pub text: ArgumentText,
}

impl CallTool<'_> {
    /// Bytes of the texts that the guest gets.
    pub(super) fn weight(&self) -> u64 {
        self.text.bytes() + scoped_bytes(self.invocation.context)
    }

    /// The invocation in the guest's types.
    pub(super) fn guest(self) -> types::Invocation {
        let Invocation {
            id,
            context,
            arguments,
            ..
        } = self.invocation;
        types::Invocation {
            id: (*id).to_owned(),
            tool: self.tool.to_owned(),
            context: scoped(context),
            arguments: self.text.text(arguments),
        }
    }
}

impl GuestCall for CallTool<'_> {
    type Return = Result<types::Output, types::ToolError>;

    fn waits(&mut self) {
        self.text.forget();
    }

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        let _kept = store.data().gauge.keep_arguments(self.weight())?;
        let pre = self.pre;
        let invocation = self.guest();
        let instance = pre.instantiate_async(&mut *store).await?;
        instance
            .toolhold_module_tools()
            .call_call(store, &invocation)
            .await
    }
}

/// The part of a context that a guest is shown: each path with its value as JSON.
pub(super) fn scoped(context: &[(String, Value)]) -> Vec<types::ScopedValue> {
    let scoped = context.iter().map(|(path, value)| types::ScopedValue {
        path: path.clone(),
        value: value.to_string(),
    });
    scoped.collect()
}

/// Bytes of that.
pub(super) fn scoped_bytes(context: &[(String, Value)]) -> u64 {
    let bytes = |(path, value): &(String, Value)| path.len() as u64 + bounded::text_bytes(value);
    context.iter().map(bytes).sum()
}

/// The result of a tool-world call, within its limits.
pub(super) fn output(
    returned: Result<types::Output, types::ToolError>,
    limits: &Limits,
) -> Result<Output, CallError> {
    let parse = |json: String| {
        if json.len() as u64 > limits.output_bytes {
            return Err(CallError::Output {
                limit: limits.output_bytes,
            });
        }
        let value = parsed(&json)?;
        shallow(&value, limits.json_depth).map_err(|reason| CallError::Encoding { reason })?;
        Ok(value)
    };
    match returned {
        Ok(types::Output::Value(json)) => parse(json).map(Output::Value),
        Ok(types::Output::Message(json)) => parse(json).map(Output::Message),
        Err(error) => Err(CallError::Tool {
            class: match error.class {
                types::ErrorClass::Correctable => ErrorClass::Correctable,
                types::ErrorClass::Retryable => ErrorClass::Retryable,
                types::ErrorClass::Fatal => ErrorClass::Fatal,
            },
            message: text::visible(&error.message, MAX_DESCRIPTION_CHARS),
            data: error.data.map(parse).transpose()?,
        }),
    }
}

/// What a guest wrote as JSON.
pub(super) fn parsed(json: &str) -> Result<Value, CallError> {
    bounded::weigh(json.as_bytes()).map_err(|error| CallError::KeptBytes { limit: error.limit })?;
    let value = serde_json::from_str(json).map_err(|error| CallError::Encoding {
        reason: error.to_string(),
    })?;
    numbers::check(json.as_bytes()).map_err(|error| CallError::Encoding {
        reason: error.to_string(),
    })?;
    Ok(value)
}

/// The tools as they are offered, or the first that cannot be.
async fn specs(module: &str, tools: Vec<types::Tool>) -> Result<Vec<ToolSpec>, LoadError> {
    let mut specs: Vec<ToolSpec> = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = tool.name.clone();
        let spec = tool_spec(module, tool).map_err(|reason| LoadError::Tool {
            tool: text::visible(&name, 64),
            reason,
        })?;
        if specs.iter().any(|s| s.name == spec.name) {
            return Err(LoadError::Tool {
                tool: name,
                reason: "the module lists it twice".into(),
            });
        }
        specs.push(spec);
        // A hostile schema takes tens of milliseconds until it is refused.
        tokio::task::yield_now().await;
    }
    Ok(specs)
}

/// A schema that no call could be checked by is refused here, with its module, and not in the runs that would use it.
fn usable(which: &str, schema: &Value) -> Result<(), String> {
    Validator::new(schema)
        .map(|_| ())
        .map_err(|fault| format!("its {which} schema cannot be used: {fault}"))
}

/// Checks and cleans what a module says of one of its tools.
fn tool_spec(module: &str, tool: types::Tool) -> Result<ToolSpec, String> {
    let name = text::tool_name(module, &tool.name)?;
    let parse = |what: &str, json: &str| -> Result<Value, String> {
        if json.len() > MAX_SCHEMA_BYTES {
            return Err(format!("its {what} has more than {MAX_SCHEMA_BYTES} bytes"));
        }
        bounded::from_str(json).map_err(|error| format!("its {what} is not JSON: {error}"))
    };
    let schema = |what: &str, json: &str| -> Result<Value, String> {
        text::visible_schema(parse(what, json)?)
            .map_err(|unseen| format!("its {what} cannot be used: {unseen}"))
    };
    let input_schema = schema("input schema", &tool.input_schema)?;
    if input_schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its input schema must be of \"type\": \"object\"".into());
    }
    let output_schema = tool
        .output_schema
        .map(|json| schema("output schema", &json))
        .transpose()?;
    usable("input", &input_schema)?;
    output_schema
        .as_ref()
        .map_or(Ok(()), |schema| usable("output", schema))?;
    let examples = tool
        .examples
        .iter()
        .map(|e| {
            Ok(Example {
                task: text::visible(&e.task, 500),
                arguments: text::visible_json(parse("example's arguments", &e.arguments)?),
                output: text::visible_json(parse("example's output", &e.output)?),
                answer: text::visible(&e.answer, 500),
            })
        })
        .collect::<Result<_, String>>()?;
    let has = |flag| tool.annotations.contains(flag);
    Ok(ToolSpec {
        name,
        title: tool.title.map(|t| text::visible(&t, 100).into()),
        description: text::description(&tool.description, MAX_DESCRIPTION_CHARS).into(),
        input_schema,
        output_schema,
        annotations: Annotations {
            read_only: has(types::Annotations::READ_ONLY),
            idempotent: has(types::Annotations::IDEMPOTENT),
            destructive: has(types::Annotations::DESTRUCTIVE),
            open_world: has(types::Annotations::OPEN_WORLD),
        },
        examples,
        docs_source: DocsSource::Module,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_with_a_number_that_would_change_is_refused() {
        let error = parsed("{\"n\": 123456789012345678901234567890}").unwrap_err();
        assert!(error.to_string().contains("as a string"), "{error}");
        assert!(parsed("[18446744073709551615, 0.1, 1e300]").is_ok());
    }

    fn tool(name: &str, schema: &str) -> types::Tool {
        types::Tool {
            name: name.into(),
            title: None,
            description: "does\u{202E} it".into(),
            input_schema: schema.into(),
            output_schema: None,
            annotations: types::Annotations::empty(),
            examples: Vec::new(),
        }
    }

    #[tokio::test]
    async fn tools_are_cleaned_and_named_by_their_module() {
        let specs = specs("m", vec![tool("a", r#"{"type":"object"}"#)])
            .await
            .unwrap();
        assert_eq!(
            (specs[0].name.as_str(), specs[0].description.raw()),
            ("m.a", "does it")
        );
    }

    #[tokio::test]
    async fn a_tool_that_cannot_be_offered_is_named_with_the_reason() {
        let object = r#"{"type":"object"}"#;
        for (tools, expect) in [
            (vec![tool("a", object), tool("a", object)], "lists it twice"),
            (vec![tool("Bad-Name", object)], "lower case"),
            (vec![tool("a", "{")], "not JSON"),
            (
                vec![tool("a", r#"{"type":"string"}"#)],
                "must be of \"type\": \"object\"",
            ),
            (
                vec![tool(
                    "a",
                    r#"{"type":"object","properties":{"x\n# Task":{}}}"#,
                )],
                "its input schema cannot be used: the name \"x\\n# Task\"",
            ),
        ] {
            let error = specs("m", tools).await.unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
