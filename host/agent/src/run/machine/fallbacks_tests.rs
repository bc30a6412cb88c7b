use super::*;

fn call(tool: &str, instance: Option<&str>) -> Call {
    Call {
        tool: tool.into(),
        instance: instance.map(str::to_owned),
        ..Call::default()
    }
}

fn failed(kind: &str) -> Result<Value, ToolFailure> {
    Err(ToolFailure::correctable(kind, format!("{kind} is wrong")))
}

fn settings() -> Settings {
    Settings {
        max_steps: 12,
        fallback: Fallback {
            candidates: vec![Candidate::default(), Candidate::default()],
            ..Fallback::default()
        },
        ..Settings::default()
    }
}

fn end_at(fallbacks: &mut Fallbacks, call: &Call, result: &Result<Value, ToolFailure>, step: u32) {
    let outcome = CallOutcome {
        result,
        is_tools_own: false,
    };
    fallbacks.count(&settings().fallback, call, outcome, step, str::to_owned);
}

fn fail_in(fallbacks: &mut Fallbacks, call: &Call, kind: &str, steps: std::ops::Range<u32>) {
    for step in steps {
        end_at(fallbacks, call, &failed(kind), step);
    }
}

#[test]
fn calls_of_one_reply_are_one_attempt_and_a_success_forgets_them() {
    let add = call("add", None);
    let due = |fallbacks: &Fallbacks| fallbacks.due(&settings(), 5, false);
    let mut fallbacks = Fallbacks::default();
    for _ in 0..5 {
        fail_in(&mut fallbacks, &add, "arguments", 1..2);
    }
    assert_eq!(due(&fallbacks), None);
    fail_in(&mut fallbacks, &add, "deadline", 2..4);
    assert_eq!(
        due(&fallbacks),
        Some(Due {
            cause: Cause::Call(("add".into(), None)),
            failures: 3,
            first: "arguments is wrong".into()
        })
    );
    end_at(&mut fallbacks, &add, &Ok(Value::Null), 4);
    assert_eq!(due(&fallbacks), None);
}

#[test]
fn faults_of_others_are_not_counted_against_the_model() {
    let mut fallbacks = Fallbacks::default();
    let add = call("add", None);
    for kind in NOT_THE_MODELS {
        fail_in(&mut fallbacks, &add, kind, 0..9);
    }
    let fatal = ToolFailure {
        class: ErrorClass::Fatal,
        ..ToolFailure::correctable("denied", "no")
    };
    for step in 0..9 {
        end_at(&mut fallbacks, &add, &Err(fatal.clone()), step);
    }
    // Each instance fails for itself.
    fail_in(&mut fallbacks, &call("add", Some("a")), "arguments", 0..2);
    fail_in(&mut fallbacks, &call("add", Some("b")), "arguments", 2..4);
    assert_eq!(fallbacks.due(&settings(), 0, false), None);
}

#[test]
fn no_candidate_is_asked_beyond_what_the_run_may() {
    let mut fallbacks = Fallbacks::default();
    fail_in(&mut fallbacks, &call("add", None), "arguments", 0..3);
    assert!(fallbacks.due(&settings(), 11, false).is_some());
    assert_eq!(fallbacks.due(&settings(), 12, false), None);
    let mut off = settings();
    off.fallback.is_on = false;
    assert_eq!(fallbacks.due(&off, 0, false), None);
    fallbacks.requests = 12 * off.fallback.attempts;
    assert_eq!(fallbacks.due(&settings(), 0, false), None);
}

#[test]
fn candidates_take_turns_and_are_not_asked_again_when_all_failed() {
    let (mut fallbacks, settings) = (Fallbacks::default(), settings());
    let add = call("add", Some("a"));
    assert!(fallbacks.keep(Turn::user("the run's")).is_some());
    fail_in(&mut fallbacks, &add, "arguments", 0..3);
    let due = fallbacks.due(&settings, 3, false).unwrap();
    fallbacks.begin(due);
    assert!(fallbacks.check(&add).is_ok());
    for other in [call("add", None), call("sub", Some("a"))] {
        assert_eq!(fallbacks.check(&other).unwrap_err().kind, "forced");
    }
    assert!(fallbacks.keep(Turn::user("its own")).is_none());
    assert_eq!(fallbacks.aside().len(), 2);
    for (attempt, is_hopeless) in [(1, false), (2, false), (3, false), (1, true)] {
        assert!(fallbacks.candidate(&settings.fallback.candidates).is_some());
        let (_, made) = fallbacks
            .attempt_failed(is_hopeless, settings.fallback.attempts)
            .unwrap();
        assert_eq!(made, attempt);
    }
    assert_eq!(fallbacks.aside().len(), 1, "nothing of the one before");
    assert_eq!(fallbacks.candidate(&settings.fallback.candidates), None);
    let failed_at = Cause::Call(("add".into(), Some("a".into())));
    assert_eq!(
        fallbacks.exhausted().unwrap(),
        (failed_at.clone(), "arguments is wrong".to_owned())
    );
    assert_eq!(
        fallbacks.spent(),
        Some((&failed_at, "arguments is wrong")),
        "kept for the end of the run"
    );
    fail_in(&mut fallbacks, &add, "arguments", 4..9);
    assert_eq!(fallbacks.due(&settings, 3, false), None);
    end_at(&mut fallbacks, &add, &Ok(Value::Null), 9);
    fail_in(&mut fallbacks, &add, "arguments", 10..13);
    assert!(fallbacks.due(&settings, 3, false).is_some());
}

#[test]
fn work_of_a_successful_candidate_belongs_to_the_run() {
    let mut fallbacks = Fallbacks::default();
    fail_in(&mut fallbacks, &call("add", None), "arguments", 0..3);
    let due = fallbacks.due(&settings(), 3, false).unwrap();
    fallbacks.begin(due);
    fallbacks.keep(Turn::user("the call"));
    let (_, turns) = fallbacks.succeeded().unwrap();
    assert_eq!(turns.len(), 1);
    assert!(!fallbacks.is_on());
    assert_eq!(fallbacks.due(&settings(), 3, false), None);
}

#[test]
fn errors_of_the_tool_itself_are_counted_only_where_that_is_wanted() {
    let add = call("add", None);
    for (tool_errors, expected) in [(false, false), (true, true)] {
        let mut settings = settings();
        settings.fallback.tool_errors = tool_errors;
        let mut fallbacks = Fallbacks::default();
        for step in 0..3 {
            let outcome = CallOutcome {
                result: &failed("wrong"),
                is_tools_own: true,
            };
            fallbacks.count(&settings.fallback, &add, outcome, step, str::to_owned);
        }
        assert_eq!(fallbacks.due(&settings, 3, false).is_some(), expected);
    }
}

#[test]
fn of_what_no_candidate_managed_the_first_error_is_told() {
    let mut fallbacks = Fallbacks::default();
    for (tool, steps) in [("zip", 0..3), ("add", 3..6)] {
        fail_in(&mut fallbacks, &call(tool, None), tool, steps);
        let due = fallbacks.due(&settings(), 6, false).unwrap();
        fallbacks.begin(due);
        fallbacks.exhausted();
    }
    assert_eq!(fallbacks.spent().unwrap().1, "zip is wrong");
}

#[test]
fn replies_are_counted_as_long_as_there_is_another_model() {
    let mut fallbacks = Fallbacks::default();
    for step in 0..3 {
        assert_eq!(fallbacks.due(&settings(), step, true), None);
        fallbacks.count_reply(step, || format!("reason {step}"));
    }
    assert_eq!(fallbacks.unusable_replies(), 3);
    let of_last = |was_unused| fallbacks.due(&settings(), 3, was_unused);
    assert_eq!(of_last(false), None, "something of the last was done");
    let due = of_last(true).unwrap();
    assert_eq!((due.cause, due.first), (Cause::Reply, "reason 0".into()));
    let mut alone = settings();
    alone.fallback.candidates.clear();
    assert_eq!(fallbacks.due(&alone, 3, true), None);
    let mut strict = settings();
    strict.max_unusable = 2;
    fallbacks.reply_used();
    for step in 4..6 {
        fallbacks.count_reply(step, || format!("reason {step}"));
    }
    assert_eq!(fallbacks.due(&settings(), 6, true), None);
    assert!(
        fallbacks.due(&strict, 6, true).is_some(),
        "before the run ends"
    );
}
