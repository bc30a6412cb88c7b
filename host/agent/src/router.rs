//! Sends each run to a model by the class of its task.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::contract;
use toolhold_json::repair::{TextEnd, repair};
use toolhold_model::chat::{ChatMessage, ChatRequest, Role};
use toolhold_model::error::ModelError;
use toolhold_model::side::SideObserver;
use toolhold_model::{CompletionObserver, Model, RunContext};
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::{Completion, Usage};
use toolhold_protocol::routing::{Classifier, Routing};
use toolhold_text::words::KeywordText;

/// Maximum characters of a task's beginning, and of its end, that the model is shown: the request usually
/// stands in one of them, with material in between.
const MAX_SHOWN_CHARS: usize = 2_000;
/// Maximum tokens of the reply. A class is one word, but some models think first.
const MAX_ANSWER_TOKENS: u32 = 256;
const INSTRUCTIONS: &str = "You sort tasks into classes. Do not do the task: say which class it is of. \
     Answer with JSON and nothing else: {\"class\": \"NAME\"}. The classes:\n";

/// A kind of task.
#[derive(Clone, Debug)]
pub struct Class {
    pub name: String,
    /// Its description for the deciding model.
    pub description: String,
    /// What `model` is called in the configuration.
    pub to: String,
    pub model: Arc<dyn Model>,
    pub rules: Rules,
}

/// When a task is of a class without asking a model: when all of these hold that are set, and any is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// One of them is in the task, as a word or words of its own ([`KeywordText::has`]).
    pub keywords: Vec<String>,
    pub min_chars: Option<usize>,
    pub max_chars: Option<usize>,
}

impl Rules {
    fn hold(&self, task: &str, words: &KeywordText<'_>) -> bool {
        let Self {
            keywords,
            min_chars,
            max_chars,
        } = self;
        if keywords.is_empty() && min_chars.is_none() && max_chars.is_none() {
            return false;
        }
        let chars = task.chars().count();
        min_chars.is_none_or(|least| chars >= least)
            && max_chars.is_none_or(|most| chars <= most)
            && (keywords.is_empty() || keywords.iter().any(|word| words.has(word)))
    }
}

/// Classifies tasks that no rule matches.
#[derive(Clone, Debug)]
pub struct RouterPolicy {
    /// The model that is asked, with its name in the configuration. Where what it takes counts, a
    /// [`SideModel`](toolhold_model::side::SideModel).
    pub picker: Option<(String, Arc<dyn Model>)>,
    /// How long it may take: a run waits for it.
    pub timeout: Duration,
    /// Index of the class for tasks that neither rules nor the model could classify.
    pub default: usize,
}

/// Decides once per run, for its first request, and keeps to it: the endpoint's prefix cache knows the run
/// from then on.
#[derive(Clone, Debug)]
pub struct Router {
    name: String,
    classes: Arc<[Class]>,
    policy: RouterPolicy,
}

impl Router {
    /// # Errors
    /// There is no class, or no default one.
    pub fn new(
        name: impl Into<String>,
        classes: Vec<Class>,
        policy: RouterPolicy,
    ) -> Result<Self, ModelError> {
        if policy.default >= classes.len() {
            return Err(ModelError::Config {
                message: "the router has no default class".into(),
            });
        }
        Ok(Self {
            name: name.into(),
            classes: classes.into(),
            policy,
        })
    }

    async fn classify(
        &self,
        task: &str,
        of: &ChatRequest,
        watch: &mut dyn CompletionObserver,
    ) -> usize {
        let mut usage = None;
        let by_rule = self.by_rule(task);
        let (class, by) = match (by_rule, &self.policy.picker) {
            (Some(class), _) => (class, Classifier::Rule),
            (None, None) => {
                let reason = "no rule holds".into();
                (self.policy.default, Classifier::Default { reason })
            }
            (None, Some((name, model))) => {
                let asked = self.ask(model.as_ref(), task, of, &mut usage, watch);
                let said = timeout(self.policy.timeout, asked)
                    .await
                    .unwrap_or_else(|_| {
                        Err(format!(
                            "{name} did not decide within {:.1?}",
                            self.policy.timeout
                        ))
                    });
                match said {
                    Ok(class) => {
                        let model = name.clone();
                        (class, Classifier::Model { model })
                    }
                    Err(reason) => (self.policy.default, Classifier::Default { reason }),
                }
            }
        };
        let Class { name, to, .. } = &self.classes[class];
        watch.routing(Routing::Classified {
            class: name.clone(),
            to: to.clone(),
            by,
            usage,
        });
        class
    }

    /// The first class whose rules hold.
    fn by_rule(&self, task: &str) -> Option<usize> {
        let words = KeywordText::new(task);
        let mut classes = self.classes.iter();
        classes.position(|class| class.rules.hold(task, &words))
    }

    async fn ask(
        &self,
        model: &dyn Model,
        task: &str,
        of: &ChatRequest,
        usage: &mut Option<Usage>,
        watch: &mut dyn CompletionObserver,
    ) -> Result<usize, String> {
        let mut aside = SideObserver(watch);
        let mut request = ChatRequest {
            owner: of.owner.clone(),
            run: of.run,
            ..self.request(task)
        };
        let mut completion = model.complete(&request, &mut aside).await;
        // The instructions alone ask for the same.
        if completion.as_ref().err().is_some_and(may_be_of_the_format) {
            request.response_format = None;
            completion = model.complete(&request, &mut aside).await;
        }
        let completion = completion.map_err(|error| error.to_string())?;
        *usage = completion.usage;
        self.class_in(&completion).ok_or_else(|| {
            let said = completion.content.trim();
            let said: String = said.chars().take(80).collect();
            format!("{said:?} is no class")
        })
    }

    /// The class that a reply names, as JSON or by its name alone.
    fn class_in(&self, completion: &Completion) -> Option<usize> {
        let answer = contract::answer(&completion.content).trim();
        let end = match completion.finish_reason.as_deref() {
            Some("length") => TextEnd::Cut,
            _ => TextEnd::Own,
        };
        let json = repair(answer, end).map(|repaired| repaired.value);
        let name = json
            .as_ref()
            .and_then(|answer| answer.get("class")?.as_str())
            .unwrap_or(answer)
            .trim();
        let is_it = |class: &Class| class.name == name;
        let is_like_it = |class: &Class| class.name.to_lowercase() == name.to_lowercase();
        let exact = self.classes.iter().position(is_it);
        exact.or_else(|| self.classes.iter().position(is_like_it))
    }

    fn request(&self, task: &str) -> ChatRequest {
        let mut instructions = INSTRUCTIONS.to_owned();
        for class in self.classes.iter() {
            let _ = writeln!(instructions, "- {}: {}", class.name, class.description);
        }
        let names: Vec<&str> = self
            .classes
            .iter()
            .map(|class| class.name.as_str())
            .collect();
        let messages = vec![
            ChatMessage::system(instructions),
            ChatMessage::user(shown(task)),
        ];
        ChatRequest {
            response_format: Some(json!({
                "type": "json_schema",
                "json_schema": {
                    "name": "class",
                    "strict": true,
                    "schema": {
                        "type": "object",
                        "properties": {"class": {"type": "string", "enum": names}},
                        "required": ["class"],
                        "additionalProperties": false,
                    },
                },
            })),
            max_tokens: Some(MAX_ANSWER_TOKENS),
            temperature: Some(0.0),
            ..ChatRequest::new("", messages)
        }
    }
}

impl Model for Router {
    fn name(&self) -> &str {
        &self.name
    }

    /// Without a session each request is a run of its own.
    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            let user = |message: &&ChatMessage| message.role == Role::User;
            let task = request.messages.iter().rev().find(user);
            let task = task.and_then(ChatMessage::text).unwrap_or_default();
            let class = self.classify(task, request, watch).await;
            // Each endpoint has its own name for what it serves.
            let request = request.unnamed();
            self.classes[class].model.complete(&request, watch).await
        }
        .boxed()
    }

    fn session(&self, session: &RunContext<'_>) -> Option<Arc<dyn Model>> {
        let decided = session.class.and_then(|name| {
            let mut classes = self.classes.iter();
            classes.position(|class| class.name == name)
        });
        let session = Routed {
            router: self.clone(),
            task: session.task.to_owned(),
            model: OnceCell::new(),
        };
        if let Some(class) = decided {
            let _ = session.model.set(session.model_of(class));
        }
        Some(Arc::new(session))
    }
}

/// The router in one run.
#[derive(Debug)]
struct Routed {
    router: Router,
    task: String,
    model: OnceCell<Arc<dyn Model>>,
}

impl Routed {
    fn model_of(&self, class: usize) -> Arc<dyn Model> {
        let Class { name, model, .. } = &self.router.classes[class];
        let session = RunContext {
            task: &self.task,
            class: Some(name),
        };
        model.session(&session).unwrap_or_else(|| model.clone())
    }
}

impl Model for Routed {
    fn name(&self) -> &str {
        &self.router.name
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            let model = self
                .model
                .get_or_init(async || {
                    let class = self.router.classify(&self.task, request, watch).await;
                    self.model_of(class)
                })
                .await;
            model.complete(&request.unnamed(), watch).await
        }
        .boxed()
    }

    fn session(&self, session: &RunContext<'_>) -> Option<Arc<dyn Model>> {
        self.router.session(session)
    }
}

/// Whether an endpoint refused the form of a request, as one without grammars does.
fn may_be_of_the_format(error: &ModelError) -> bool {
    let is_refused = matches!(
        error,
        ModelError::Status { .. } | ModelError::InStream { .. } | ModelError::GaveUp { .. }
    );
    is_refused && error.class() == ErrorClass::Correctable && error.context_overflow().is_none()
}

/// The beginning and the end of the task.
fn shown(task: &str) -> String {
    let chars = task.chars().count();
    if chars <= 2 * MAX_SHOWN_CHARS {
        return task.to_owned();
    }
    let begin: String = task.chars().take(MAX_SHOWN_CHARS).collect();
    let end: String = task.chars().skip(chars - MAX_SHOWN_CHARS).collect();
    format!("{begin}\n[…]\n{end}")
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
