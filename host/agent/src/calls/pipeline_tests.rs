use super::*;
use crate::calls::Unlimited;
use crate::toolbox::NoModules;
use futures_util::future::BoxFuture;
use serde_json::json;
use std::io;
use std::sync::Mutex;
use toolhold_protocol::decision::{DecisionMode, Verdict};
use toolhold_protocol::tool::Tool;

/// Keeps the arguments with which calls begin; `None` for those of the caller.
#[derive(Debug, Clone, Default)]
struct BegunArguments(Arc<Mutex<Vec<Option<Value>>>>);

impl CallRecorder for BegunArguments {
    fn ready(&self) -> Result<(), ToolFailure> {
        Ok(())
    }

    fn begin<'a>(&'a self, _: NewCall<'a>) -> BoxFuture<'a, Box<dyn CallRecording>> {
        let recording: Box<dyn CallRecording> = Box::new(self.clone());
        Box::pin(std::future::ready(recording))
    }

    fn within(&self, _: &str) -> Arc<dyn CallRecorder> {
        Arc::new(self.clone())
    }
}

impl CallRecording for BegunArguments {
    fn event(&mut self, _: EventKind) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn started<'a>(
        &'a mut self,
        others: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ToolFailure>> {
        self.0.lock().unwrap().push(others.cloned());
        Box::pin(std::future::ready(Ok(())))
    }

    fn ended(self: Box<Self>, _: &CallEnd) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn forget(self: Box<Self>) {}
}

/// A person who lets each call be made with 2.
#[derive(Debug)]
struct EditingDecider;

impl CallDecider for EditingDecider {
    fn decide<'a>(&'a self, pending: &'a Pending) -> BoxFuture<'a, Result<Decision, NoDecision>> {
        let decision = Decision {
            digest: pending.digest.clone(),
            verdict: Verdict::Edit {
                arguments: json!({"n": 2}),
            },
            by: None,
        };
        Box::pin(std::future::ready(Ok(decision)))
    }

    fn within(&self, _: &str) -> Arc<dyn CallDecider> {
        Arc::new(Self)
    }
}

#[tokio::test]
async fn begin_of_a_call_is_recorded_with_the_arguments_that_were_changed() {
    let never = DecisionRules::default();
    let always = DecisionRules {
        default: DecisionMode::Always,
        ..DecisionRules::default()
    };
    for (repair, decisions, arguments, expected) in [
        (false, &never, json!({"n": 1}), None),
        (true, &never, json!({"n": 1}), None),
        (true, &never, json!({"n": "5"}), Some(json!({"n": 5}))),
        (false, &always, json!({"n": 1}), Some(json!({"n": 2}))),
        (false, &always, json!({"n": 2}), None),
    ] {
        let settings = Settings {
            decisions: decisions.clone(),
            ..Settings::default()
        };
        let begun = BegunArguments::default();
        let pipeline = CallPipeline {
            toolbox: Arc::new(NoModules).into(),
            tools: Arc::default(),
            rules: Arc::new(CallRules {
                repair,
                ..CallRules::direct(&settings, Shields::default())
            }),
            decider: Arc::new(EditingDecider),
            budget: Arc::new(Unlimited),
            recorder: Arc::new(begun.clone()),
            jobs: OpenJobs::default(),
            hiding: None,
            call_depth: 0,
        };
        let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let tool = Tool {
            parameters,
            ..Tool::new("t")
        };
        let end = pipeline
            .call(CallRequest {
                id: "c".into(),
                tool: Arc::new(CallableTool::new(tool).unwrap()),
                name: "t".into(),
                arguments,
                asked_as: "c".into(),
                callers: Vec::new(),
                timeout: None,
                restrictions: None,
                begin: None,
                listener: None,
            })
            .await
            .unwrap();
        assert!(!end.by_host, "{end:?}");
        assert_eq!(*begun.0.lock().unwrap(), [expected]);
    }
}
