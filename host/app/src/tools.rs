//! The bridge: the loop's [`Toolbox`] over the sandbox's [`Registry`].

use futures_util::future::BoxFuture;
use toolhold_agent::protocol::{Annotations, Example, Tool};
use toolhold_agent::{ErrorClass, ToolCall, ToolFailure, ToolResult, ToolUsage, Toolbox};
use toolhold_sandbox::{
    self as sandbox, CallReport, Caller, Invocation, Output, Registry, ToolSpec,
};

/// The tools of the loaded modules, or those of them that a run may use.
#[derive(Debug)]
pub struct SandboxTools {
    registry: Registry,
    /// Tool names, or module names for all tools of a module. Absent: everything.
    allowed: Option<Vec<String>>,
}

impl SandboxTools {
    pub fn new(registry: Registry, allowed: Option<Vec<String>>) -> Self {
        Self { registry, allowed }
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

    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let invocation = Invocation {
                id: &call.id,
                tool: &call.tool,
                arguments: &call.arguments,
                context: &[],
                timeout: Some(call.timeout),
                caller: Caller::default(),
            };
            result(self.registry.call(&invocation).await)
        })
    }
}

/// A sandbox tool as the protocol sees it.
pub fn tool(spec: &ToolSpec) -> Tool {
    Tool {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: spec.input_schema.clone(),
        output: spec.output_schema.clone(),
        annotations: Annotations {
            read_only: spec.annotations.read_only,
            idempotent: spec.annotations.idempotent,
            destructive: spec.annotations.destructive,
            open_world: spec.annotations.open_world,
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
    }
}

fn result(report: CallReport) -> ToolResult {
    let printed = printed(&report);
    let outcome = match report.result {
        Ok(Output::Value(value) | Output::Message(value)) => Ok(value),
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
    };
    ToolResult {
        outcome,
        usage,
        printed,
    }
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
