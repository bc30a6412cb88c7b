//! A tool: what the model is told about it, and the function behind it.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::toolhold::module::types as wit;
use crate::schema;

/// One tool of a module.
pub struct Tool {
    name: &'static str,
    title: Option<&'static str>,
    description: &'static str,
    annotations: wit::Annotations,
    examples: Vec<Example>,
    input_schema: fn() -> Value,
    output_schema: fn() -> Value,
    run: Box<Run>,
}

/// From arguments as JSON text to the result.
type Run = dyn Fn(&str) -> Result<Value, Error>;

/// A worked example of a tool; see [`Tool::example`].
pub(crate) struct Example {
    pub(crate) task: &'static str,
    pub(crate) arguments: Value,
    pub(crate) output: Value,
    pub(crate) answer: &'static str,
}

impl Tool {
    /// A tool that runs `function`. The description is what the model chooses by: say what the tool
    /// does, when to use it and what comes back. The doc comments of `A`'s fields describe the
    /// arguments; put `#[serde(deny_unknown_fields)]` on `A`, so that a misspelt argument is an
    /// error and not silence.
    pub fn new<A, O>(
        name: &'static str,
        description: &'static str,
        function: impl Fn(A) -> Result<O, Error> + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        O: Serialize + JsonSchema,
    {
        Self {
            name,
            title: None,
            description,
            annotations: wit::Annotations::empty(),
            examples: Vec::new(),
            // Kept as functions: a call needs neither schema, and making them is most of the work.
            input_schema: schema::of_arguments::<A>,
            output_schema: schema::of_result::<O>,
            run: Box::new(move |arguments| {
                let arguments = serde_json::from_str(arguments).map_err(|error| {
                    Error::correctable(format!("the arguments do not fit {name}: {error}"))
                })?;
                serde_json::to_value(function(arguments)?).map_err(|error| {
                    Error::fatal(format!("{name} made a result that is not JSON: {error}"))
                })
            }),
        }
    }

    /// A short human title, for pages and the dialogs in which a person decides.
    pub fn title(mut self, title: &'static str) -> Self {
        self.title = Some(title);
        self
    }

    /// Sets the effects that the tool has on the world. Because of them the host may ask a person more often, never
    /// less.
    pub fn annotations(mut self, annotations: wit::Annotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// A worked example: the task as a person says it, the arguments a good model passes, what the
    /// tool returns for them, and the final answer. Small models imitate it.
    pub fn example(
        mut self,
        task: &'static str,
        arguments: Value,
        output: Value,
        answer: &'static str,
    ) -> Self {
        self.examples.push(Example {
            task,
            arguments,
            output,
            answer,
        });
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn examples(&self) -> &[Example] {
        &self.examples
    }

    /// Calls the function with arguments as JSON text.
    pub(crate) fn run(&self, arguments: &str) -> Result<Value, Error> {
        (self.run)(arguments)
    }
}

/// Why a call failed, in words for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    class: wit::ErrorClass,
    message: String,
    data: Option<Value>,
}

impl Error {
    /// The model should change the call; the message says how.
    pub fn correctable(message: impl Into<String>) -> Self {
        Self::new(wit::ErrorClass::Correctable, message)
    }

    /// The same call may work later.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self::new(wit::ErrorClass::Retryable, message)
    }

    /// Neither helps: somebody has to configure or grant something.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::new(wit::ErrorClass::Fatal, message)
    }

    /// Adds structured details.
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Whether changing the call can help.
    pub fn is_correctable(&self) -> bool {
        self.class == wit::ErrorClass::Correctable
    }

    /// What went wrong and what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }

    fn new(class: wit::ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            data: None,
        }
    }
}

/// `list-tools` over a module's tools.
pub fn list(tools: Vec<Tool>) -> Vec<wit::Tool> {
    tools.into_iter().map(describe).collect()
}

/// `call` over a module's tools.
pub fn call(tools: Vec<Tool>, invocation: &wit::Invocation) -> Result<wit::Output, wit::ToolError> {
    let Some(tool) = tools.iter().find(|tool| tool.name == invocation.tool) else {
        let known: Vec<_> = tools.iter().map(Tool::name).collect();
        let message = format!(
            "no tool `{}` here; there are: {}",
            invocation.tool,
            known.join(", ")
        );
        return Err(into_wit(Error::correctable(message)));
    };
    match tool.run(&invocation.arguments) {
        Ok(value) => Ok(wit::Output::Value(value.to_string())),
        Err(error) => Err(into_wit(error)),
    }
}

fn describe(tool: Tool) -> wit::Tool {
    wit::Tool {
        name: tool.name.to_owned(),
        title: tool.title.map(str::to_owned),
        description: tool.description.to_owned(),
        input_schema: (tool.input_schema)().to_string(),
        output_schema: Some((tool.output_schema)().to_string()),
        annotations: tool.annotations,
        examples: tool
            .examples
            .into_iter()
            .map(|example| wit::Example {
                task: example.task.to_owned(),
                arguments: example.arguments.to_string(),
                output: example.output.to_string(),
                answer: example.answer.to_owned(),
            })
            .collect(),
    }
}

pub(crate) fn into_wit(error: Error) -> wit::ToolError {
    wit::ToolError {
        class: error.class,
        message: error.message,
        data: error.data.map(|data| data.to_string()),
    }
}
