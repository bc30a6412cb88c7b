//! The bridge: the loop's [`Toolbox`] over the sandbox's [`Registry`], and the requests folder.

use crate::requests::Requests;
use futures_util::future::BoxFuture;
use serde_json::Value;
use toolhold_agent::protocol::{Annotations, Example, Execution, Tool};
use toolhold_agent::{
    ErrorClass, Module, ToolCall, ToolFailure, ToolOutput, ToolResult, ToolUsage, Toolbox,
};
use toolhold_sandbox::{
    self as sandbox, CallReport, Caller, Invocation, Output, Registry, ToolSpec,
};

/// The tools of the loaded modules, or those of them that a run may use, and the saved Requests.
#[derive(Debug)]
pub struct SandboxTools {
    registry: Registry,
    requests: Requests,
    /// Tool names, or module names for all tools of a module. Absent: everything.
    allowed: Option<Vec<String>>,
}

impl SandboxTools {
    pub fn new(registry: Registry, requests: Requests, allowed: Option<Vec<String>>) -> Self {
        Self {
            registry,
            requests,
            allowed,
        }
    }

    /// Names in the allow-list that no loaded tool or module has.
    pub fn unknown(&self) -> Vec<&str> {
        let named =
            |name: &str| self.registry.module(name).is_some() || self.registry.tool(name).is_some();
        self.allowed
            .iter()
            .flatten()
            .map(String::as_str)
            .filter(|name| !named(name))
            .collect()
    }

    fn is_allowed(&self, tool: &str) -> bool {
        let module = tool.split('.').next().unwrap_or_default();
        self.allowed
            .as_ref()
            .is_none_or(|allowed| allowed.iter().any(|name| name == tool || name == module))
    }

    /// `name`, `name@1.2`, `name#tool`: a component's only tool, or one of its tools.
    fn component(&self, name: &str) -> Result<Tool, String> {
        let (reference, wanted) = match name.split_once('#') {
            Some((module, tool)) => (module, Some(tool)),
            None => (name, None),
        };
        // A module's tool may be named as a call names it, too.
        let Some(module) = self.registry.module(reference) else {
            // A tool may be named as a call names it, too.
            return match self.registry.tool(name) {
                Some(spec) if self.is_allowed(&spec.name) => Ok(named(&spec, name)),
                _ => Err(self.nothing(name)),
            };
        };
        let own = |spec: &&ToolSpec| spec.name.split_once('.').map(|(_, tool)| tool) == wanted;
        let spec = match (wanted, module.tools.as_slice()) {
            (Some(_), tools) => tools.iter().find(own),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let Some(spec) = spec.filter(|spec| self.is_allowed(&spec.name)) else {
            let tools = module
                .tools
                .iter()
                .filter_map(|spec| spec.name.split_once('.'));
            let tools: Vec<_> = tools
                .map(|(_, tool)| format!("{reference}#{tool}"))
                .collect();
            return Err(format!(
                "{name:?} names no one tool; write one of {}",
                tools.join(", ")
            ));
        };
        let tool = spec.name.split_once('.').map_or("", |(_, tool)| tool);
        Ok(named(spec, &format!("{reference}.{tool}")))
    }

    fn nothing(&self, name: &str) -> String {
        let mut known: Vec<String> = self
            .registry
            .modules()
            .iter()
            .map(|module| module.name.clone())
            .collect();
        known.dedup();
        known.extend(self.requests.names());
        match known.as_slice() {
            [] => format!("there is no module {name:?}, because none is loaded"),
            known => format!(
                "there is no module {name:?}; there are {}",
                known.join(", ")
            ),
        }
    }
}

impl Toolbox for SandboxTools {
    fn tools(&self) -> Vec<Tool> {
        self.registry
            .tools()
            .iter()
            .filter(|spec| self.is_allowed(&spec.name))
            .map(tool)
            .collect()
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Module, String>> {
        Box::pin(async move {
            match self.requests.find(name).await {
                Some(found) => found.map(|saved| Module::Request(Box::new(saved))),
                None => self
                    .component(name)
                    .map(|tool| Module::Tool(Box::new(tool))),
            }
        })
    }

    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let context: Vec<(String, Value)> = call
                .context
                .iter()
                .map(|(path, value)| {
                    (
                        path.to_string().trim_start_matches('†').to_owned(),
                        value.clone(),
                    )
                })
                .collect();
            let invocation = Invocation {
                id: &call.id,
                tool: &call.tool,
                arguments: &call.arguments,
                context: &context,
                timeout: Some(call.timeout),
                caller: Caller::default(),
            };
            result(self.registry.call(&invocation).await)
        })
    }
}

/// A sandbox tool under the name by which the registry finds it.
fn named(spec: &ToolSpec, name: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        ..tool(spec)
    }
}

/// A sandbox tool as the protocol sees it.
pub fn tool(spec: &ToolSpec) -> Tool {
    Tool {
        description: spec.description.clone(),
        parameters: spec.input_schema.clone(),
        output: spec.output_schema.clone(),
        execution: Execution::Module(spec.name.clone()),
        annotations: Annotations {
            read_only: spec.annotations.read_only,
            idempotent: spec.annotations.idempotent,
            destructive: spec.annotations.destructive,
            open_world: spec.annotations.open_world,
            fire_and_forget: false,
        },
        examples: spec
            .examples
            .iter()
            .map(|example| Example {
                task: example.task.clone(),
                arguments: example.arguments.clone(),
                output: example.output.clone(),
                answer: example.answer.clone(),
            })
            .collect(),
        ..Tool::new(spec.name.clone())
    }
}

fn result(report: CallReport) -> ToolResult {
    let printed = printed(&report);
    let outcome = match report.result {
        Ok(Output::Value(value)) => Ok(ToolOutput::from(value)),
        Ok(Output::Message(message)) => Ok(message_of(message)),
        Err(error) => Err(ToolFailure {
            kind: error.kind().to_owned(),
            class: match error.class() {
                sandbox::ErrorClass::Retryable => ErrorClass::Retryable,
                sandbox::ErrorClass::Correctable => ErrorClass::Correctable,
                sandbox::ErrorClass::Fatal => ErrorClass::Fatal,
            },
            message: error.to_string(),
        }),
    };
    let usage = ToolUsage {
        duration_us: u64::try_from(report.usage.duration.as_micros()).unwrap_or(u64::MAX),
        fuel: report.usage.fuel,
        memory_bytes: report.usage.memory_bytes,
        tokens: 0,
    };
    ToolResult {
        outcome,
        usage,
        printed,
    }
}

/// A data message picks its place by `_outputPath`; one without is a value like any other.
fn message_of(mut message: Value) -> ToolOutput {
    let output_path = message
        .get("_outputPath")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let value = match message.get_mut("data") {
        Some(data) => data.take(),
        None => message,
    };
    ToolOutput { value, output_path }
}
/// What a guest printed and logged, a line each, labelled with where it came from.
pub fn printed(report: &CallReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, captured) in [("stdout", &report.stdout), ("stderr", &report.stderr)] {
        lines.extend(captured.text.lines().map(|line| format!("{name}: {line}")));
        if captured.dropped_bytes > 0 {
            lines.push(format!(
                "{name}: {} more bytes were dropped",
                captured.dropped_bytes
            ));
        }
    }
    lines.extend(
        report
            .logs
            .iter()
            .map(|line| format!("log {:?}: {}", line.level, line.message)),
    );
    if report.dropped_logs > 0 {
        lines.push(format!(
            "log: {} more lines were dropped",
            report.dropped_logs
        ));
    }
    lines
}
