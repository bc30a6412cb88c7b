//! Calls from one module to another's tools: what the sandbox checks before [`NestedCalls`] executes one.

use super::meter::{Gauge, KeptBytes};
use serde_json::Value;
use std::sync::Arc;
use toolhold_json::{bounded, depth, numbers};
use toolhold_policy::restrictions::GrantRestrictions;
use toolhold_policy::{
    BeginCheck, CallClock, CallError, Invocation, MAX_CALL_DEPTH, NestedCall, NestedCalls,
    OwnedCaller,
};

/// The tools of other modules that one call may call. The default is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct OtherTools(Option<Arc<ToolRights>>);

#[derive(Debug)]
struct ToolRights {
    /// Absent: the caller lets modules call no other tools.
    executor: Option<Arc<dyn NestedCalls>>,
    /// Full names of tools, or names of modules for all of theirs.
    tools: Vec<String>,
    /// Of the calling call.
    id: String,
    tool: String,
    caller: OwnedCaller,
    restrictions: Option<Arc<GrantRestrictions>>,
    begin: Option<Arc<dyn BeginCheck>>,
    depth: u8,
}

impl OtherTools {
    /// For a call of a module that was granted `tools`.
    pub fn new(tools: &[String], invocation: &Invocation<'_>) -> Self {
        if tools.is_empty() {
            return Self(None);
        }
        Self(Some(Arc::new(ToolRights {
            executor: invocation.nested.clone(),
            tools: tools.to_vec(),
            id: invocation.id.to_owned(),
            tool: invocation.tool.to_owned(),
            caller: invocation.caller.to_owned(),
            restrictions: invocation.restrictions.clone(),
            begin: invocation.begin.clone(),
            depth: invocation.depth,
        })))
    }

    /// Whether the module was granted `tool`.
    pub fn has(&self, tool: &str) -> bool {
        self.granted(tool).is_some()
    }

    fn granted(&self, tool: &str) -> Option<&Arc<ToolRights>> {
        let module = tool.split(['.', '@']).next().unwrap_or_default();
        self.0.as_ref().filter(|granted| {
            let mut tools = granted.tools.iter();
            tools.any(|name| name == tool || name == module)
        })
    }

    /// Calls `tool` within what is left on the calling call's `clock`; the result as JSON text. The `gauge` of the
    /// calling call counts the arguments while the other tool runs, and then the text of the result.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &str,
        clock: Arc<dyn CallClock>,
        gauge: &Gauge,
    ) -> Result<(String, KeptBytes), CallError> {
        let granted = self.granted(tool).ok_or_else(|| CallError::Denied {
            reason: format!("this module was not granted the tool {tool:?}"),
        })?;
        if granted.depth >= MAX_CALL_DEPTH {
            return Err(CallError::Denied {
                reason: format!("calls may be nested {MAX_CALL_DEPTH} deep"),
            });
        }
        let wrong = |reason| CallError::Arguments { reason };
        // Counted before it is read, and while the other tool runs.
        let weight = bounded::weigh(arguments.as_bytes()).map_err(|e| wrong(e.to_string()))?;
        let held = gauge.keep(weight)?;
        depth::check(arguments.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        numbers::check(arguments.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let arguments: Value =
            serde_json::from_str(arguments).map_err(|error| wrong(error.to_string()))?;
        // The context and the reserved properties of the calling call stay with it: its scopes let values in for
        // its own tool only.
        let call = NestedCall {
            parent: granted.id.clone(),
            parent_tool: granted.tool.clone(),
            tool: tool.to_owned(),
            arguments,
            caller: granted.caller.clone(),
            restrictions: granted.restrictions.clone(),
            begin: granted.begin.clone(),
            depth: granted.depth + 1,
            clock,
        };
        let Some(executor) = granted.executor.clone() else {
            return Err(CallError::Denied {
                reason: format!("{} calls no other tools here", granted.tool),
            });
        };
        let output = executor.call(call).await?.into_value();
        drop(held);
        let kept = gauge.keep(bounded::text_bytes(&output))?;
        Ok((output.to_string(), kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Clock;
    use futures_util::future::BoxFuture;
    use serde_json::json;
    use std::sync::Mutex;
    use std::time::Duration;
    use toolhold_admission::MemoryCeiling;
    use toolhold_policy::limits::Limits;
    use toolhold_policy::{Caller, NestedResult, Output, Permit, Restriction};

    /// Notes each call and answers with its arguments.
    #[derive(Debug, Default)]
    struct Echo(Mutex<Vec<NestedCall>>);

    impl NestedCalls for Echo {
        fn call(self: Arc<Self>, call: NestedCall) -> BoxFuture<'static, NestedResult> {
            Box::pin(async move {
                let output = Output::Value(call.arguments.clone());
                self.0.lock().unwrap().push(call);
                Ok(output)
            })
        }
    }

    fn gauge() -> Gauge {
        let limits = Limits {
            kept_bytes: 10_000,
            ..Limits::default()
        };
        Gauge::new(&limits, MemoryCeiling::new(20_000).of(""))
    }

    fn clock() -> Arc<dyn CallClock> {
        let pauses = crate::engine::Pauses::new(1, 0);
        Arc::new(Clock::new(Duration::from_secs(5), pauses, "".into()))
    }

    #[tokio::test]
    async fn a_nested_call_carries_what_its_parent_is() {
        let echo = Arc::new(Echo::default());
        let permits: Vec<Permit> = vec!["tools".parse().unwrap()];
        let restrictions =
            GrantRestrictions::default().with("this key", Restriction::Permits(permits));
        let restrictions = Arc::new(restrictions);
        let arguments = json!({});
        let invocation = Invocation {
            caller: Caller {
                tenant: "t",
                session: "s",
            },
            restrictions: Some(restrictions.clone()),
            nested: Some(echo.clone()),
            depth: 2,
            ..Invocation::new("call-7", "notes.sum", &arguments)
        };
        let tools = OtherTools::new(&["calculator".into()], &invocation);
        let text = tools
            .call("calculator.add", r#"{"a": 1}"#, clock(), &gauge())
            .await;
        let (text, kept) = text.unwrap();
        assert_eq!((text.as_str(), kept.bytes()), (r#"{"a":1}"#, 7));
        let calls = echo.0.lock().unwrap();
        let [call] = calls.as_slice() else {
            panic!("{calls:?}")
        };
        assert_eq!(
            (call.parent.as_str(), call.parent_tool.as_str()),
            ("call-7", "notes.sum")
        );
        assert_eq!((call.tool.as_str(), call.depth), ("calculator.add", 3));
        assert_eq!(call.caller.borrowed(), invocation.caller);
        assert_eq!(call.restrictions.as_ref(), Some(&restrictions));
        assert!(call.clock.remaining() > Duration::from_secs(1));
    }

    /// Answers with a text of so many bytes.
    #[derive(Debug)]
    struct Long(usize);

    impl NestedCalls for Long {
        fn call(self: Arc<Self>, _: NestedCall) -> BoxFuture<'static, NestedResult> {
            let text = "x".repeat(self.0);
            Box::pin(async move { Ok(Output::Value(text.into())) })
        }
    }

    /// Of what the gauge lets a call keep, 10 000 bytes: the arguments are given back before the result is counted.
    #[tokio::test]
    async fn a_result_is_counted_before_its_text_is_made_and_until_it_is_taken() {
        let gauge = gauge();
        for (bytes, fits) in [
            (8_000, true),
            (9_998, true),
            (9_999, false),
            (1 << 20, false),
        ] {
            let arguments = json!({});
            let invocation = Invocation {
                nested: Some(Arc::new(Long(bytes))),
                ..Invocation::new("call-1", "notes.sum", &arguments)
            };
            let tools = OtherTools::new(&["text.count".into()], &invocation);
            let given = format!("{:?}", "a".repeat(5_000));
            match tools.call("text.count", &given, clock(), &gauge).await {
                Ok((text, kept)) => {
                    assert!(fits, "{bytes}");
                    assert_eq!((text.len(), kept.bytes()), (bytes + 2, bytes as u64 + 2));
                    // While the guest has not taken it, there is no room for another.
                    let second = tools.call("text.count", "{}", clock(), &gauge).await;
                    assert_eq!(second.unwrap_err().kind(), "kept_bytes");
                }
                Err(error) => {
                    assert!(!fits, "{bytes}: {error}");
                    assert_eq!(error.kind(), "kept_bytes");
                }
            }
            assert!(gauge.keep(10_000).is_ok(), "all is given back");
        }
    }

    #[tokio::test]
    async fn ungranted_and_too_deep_calls_are_never_executed() {
        let echo = Arc::new(Echo::default());
        let arguments = json!({});
        let at = |depth| Invocation {
            nested: Some(echo.clone()),
            depth,
            ..Invocation::new("call-1", "notes.sum", &arguments)
        };
        let granted = ["text.count".to_owned()];
        let tools = OtherTools::new(&granted, &at(0));
        for (tool, arguments, expect) in [
            ("text.upper", "{}", "not granted the tool"),
            ("text", "{}", "not granted the tool"),
            ("text.count", "{", "arguments do not fit"),
        ] {
            let error = tools
                .call(tool, arguments, clock(), &gauge())
                .await
                .unwrap_err();
            assert!(error.to_string().contains(expect), "{tool}: {error}");
        }
        let deep = OtherTools::new(&granted, &at(MAX_CALL_DEPTH));
        let error = deep
            .call("text.count", "{}", clock(), &gauge())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("4 deep"), "{error}");
        let wide = format!("[{}]", vec!["[1]"; 100].join(","));
        let error = tools.call("text.count", &wide, clock(), &gauge()).await;
        assert_eq!(error.unwrap_err().kind(), "kept_bytes");
        let none = OtherTools::new(&[], &at(0));
        assert!(
            none.call("text.count", "{}", clock(), &gauge())
                .await
                .is_err()
        );
        assert!(echo.0.lock().unwrap().is_empty());
    }
}
