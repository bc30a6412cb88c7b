//! docs/protocol.md, 8: plans.

use super::support::told::{FinishedRun, request, run, run_with};
use super::support::{calls, output};
use serde_json::{Value, json};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::decision::Verdict;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::settings::RunRequest;

fn plan(mode: &str, steps: &Value) -> Value {
    json!([{"type": "plan", "plan": steps, "mode": mode}, {"type": "state", "state": {"x": 1}}])
}

fn lazy() -> RunRequest {
    request(Contract::Schema, plan("lazy", &json!([])))
}

/// `a` + `b`, at `place`.
fn add(a: impl Into<Value>, b: impl Into<Value>, place: &str) -> Value {
    json!({"_tool": "math.add", "a": a.into(), "b": b.into(), "_outputPath": place})
}

/// Reads what the other writes.
fn circle() -> Value {
    json!([
        add("†state.q", 1, "†state.p"),
        add("†state.p", 1, "†state.q")
    ])
}

const CIRCLE: &str = "math.add → †state.p → math.add → †state.q → math.add";

/// The last `## Plan` of the `n`th Request: its steps with their standing.
fn standings(told: &FinishedRun, n: usize) -> Vec<String> {
    let asked = told.asked(n);
    let block = asked.rsplit("## Plan").next().unwrap_or_default();
    let lines = block.lines().filter_map(|line| line.strip_prefix("- "));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn eager_planning_is_execution_and_latent_outputs_are_written_in_place() {
    for contract in [Contract::Schema, Contract::Tools] {
        let told = run(
            request(contract, plan("eager", &json!([]))),
            [
                calls(json!([
                    {"_tool": "think", "about": "it", "_outputPath": "†state.n", "_output": 5},
                    add("†state.n", "†state.x", "†state.m"),
                ])),
                output("six"),
            ],
        )
        .await;
        assert_eq!(told.arguments(), [json!({"a": 5, "b": 1})], "{contract:?}");
        assert!(
            told.asked(1).contains("\"n\":5,\"m\":6"),
            "{}",
            told.asked(1)
        );
        // The first call was over before the reply was.
        assert!(told.at("tool_result") < told.at("reply"), "{contract:?}");
    }
}

#[tokio::test]
async fn a_cycle_is_named_and_the_model_plans_anew() {
    let good = calls(json!([
        add(1, 1, "†state.p"),
        add("†state.p", 1, "†state.q")
    ]));
    for (mode, begin) in [
        ("eager", "the calls wait for each other in a circle"),
        (
            "lazy",
            "the plan has a cycle, so none of its steps can be the first",
        ),
    ] {
        let told = run(
            request(Contract::Schema, plan(mode, &json!([]))),
            [calls(circle()), good.clone(), output("done")],
        )
        .await;
        let asked = told.asked(1);
        assert!(asked.contains(begin), "{mode}: {asked}");
        let names = asked.contains(CIRCLE)
            || (asked.contains("→ †state.p →") && asked.contains("→ †state.q →"));
        assert!(names, "{mode}: {asked}");
        assert_eq!(
            told.arguments(),
            [json!({"a": 1, "b": 1}), json!({"a": 2, "b": 1})]
        );
        assert_eq!(told.done(), (StopReason::Output, json!("done")));
    }
}

/// A lazy plan with this fault, and the model's message about it.
#[tokio::test]
async fn a_lazy_plan_is_checked_as_a_whole_before_any_of_it_runs() {
    let fine = add(1, 1, "†state.fine");
    let fixed = |place: &str| json!({"type": "object", "properties": {"value": {}, "_activity": {"const": "echo.say"}, "_outputPath": {"const": place}}});
    for (steps, reason) in [
        (circle(), CIRCLE),
        (
            json!([fine, {"_tool": "math.guess"}]),
            "plan[1]: there is no tool named \"math.guess\"",
        ),
        (
            json!([fine, {"_tool": "math.add", "a": "one", "b": "†state.fine"}]),
            "plan[1]/a: \"one\" is not of type \"integer\"",
        ),
        (
            json!([fine, {"_tool": "math.add", "a": 1}]),
            "plan[1]: \"b\" is a required property",
        ),
        (
            json!([fine, add("†state.nowhere", 1, "†state.p")]),
            "nothing provides †state.nowhere",
        ),
        (
            json!([fine, add("†state.", 1, "†state.p")]),
            "plan[1]/a: \"†state.\" is no reference",
        ),
        (
            json!([fine, add(1, 1, "state.p")]),
            "plan[1]/_outputPath: \"state.p\" is no reference",
        ),
        (
            json!([fine, {"_tool": "text.up", "text": "a", "_instance": "ghost"}]),
            "plan[1]: there is no instance \"ghost\"; there are none here",
        ),
        (
            json!([fine, {"_tool": "echo.say", "value": 1, "_scopes": ["secret"]}]),
            "plan[1]: _scopes asks for †secret",
        ),
        (
            json!([fine, {"_tool": "text.up", "text": "a", "_outputMethod": "append"}]),
            "plan[1]/_outputMethod: there is no \"append\"",
        ),
        // Where the author fixed the places, a call does not have to say them.
        (
            json!([{"_tool": "to.p", "value": "†state.q"}, {"_tool": "to.q", "value": "†state.p"}]),
            "to.p → †state.p → to.q → †state.q → to.p",
        ),
    ] {
        let mut messages = plan("lazy", &json!([]));
        let tools = json!({"to.p": fixed("†state.p"), "to.q": fixed("†state.q")});
        messages
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "tool", "tool": tools}));
        let told = run(
            request(Contract::Schema, messages),
            [
                calls(steps.clone()),
                calls(json!([{"_tool": "to.p", "value": 7}, add("†state.p", 1, "†state.q")])),
                output("done"),
            ],
        )
        .await;
        let asked = told.asked(1);
        assert!(
            asked.contains("the plan cannot be run: "),
            "{steps}: {asked}"
        );
        assert!(asked.contains(reason), "{steps}: {asked}");
        // Of the wrong one nothing, of the right one everything in its order.
        assert_eq!(
            told.arguments(),
            [json!({"value": 7}), json!({"a": 7, "b": 1})],
            "{steps}"
        );
        assert_eq!(told.done(), (StopReason::Output, json!("done")), "{steps}");
    }
}

#[tokio::test]
async fn every_faulty_step_is_told_at_once() {
    let wrong =
        json!([{"_tool": "math.guess"}, add(1, 1, "†state.p"), {"_tool": "text.up", "text": 7}]);
    let told = run(lazy(), [calls(wrong), output("never mind")]).await;
    let asked = told.asked(1);
    assert!(
        asked.contains("plan[0]: ") && asked.contains("plan[2]/text: "),
        "{asked}"
    );
}

#[tokio::test]
async fn a_model_that_plans_nothing_but_cycles_ends_the_run() {
    let told = run(lazy(), [calls(circle()), calls(circle()), calls(circle())]).await;
    assert_eq!(told.done().0, StopReason::Unusable);
    assert!(told.failure().contains(CIRCLE), "{}", told.failure());
}

#[tokio::test]
async fn nothing_of_a_lazy_plan_runs_while_the_model_writes_it_and_then_it_runs_in_its_order() {
    let told = run(
        lazy(),
        [
            // Written backwards.
            calls(json!([
                add("†state.b", "†state.c", "†state.d"),
                add("†state.a", 1, "†state.b"),
                add("†state.a", 2, "†state.c"),
                add(1, 1, "†state.a"),
            ])),
            output("seven"),
        ],
    )
    .await;
    assert!(told.at("reply") < told.at("tool_start"));
    assert_eq!(
        told.arguments(),
        [
            json!({"a": 1, "b": 1}),
            json!({"a": 2, "b": 1}),
            json!({"a": 2, "b": 2}),
            json!({"a": 3, "b": 4})
        ]
    );
}

/// What an advisor should look at is written before it is asked, in whatever order the plan says it.
/// That is guidance: it makes no plan impossible.
#[tokio::test]
async fn in_a_plan_an_advisor_is_asked_after_what_it_should_look_at() {
    let question = json!({"_tool": "ConsultAdvisor", "id": "critic", "question": "Is it good?",
        "_outputPath": "†state.verdict"});
    let messages = json!([
        {"type": "plan", "mode": "lazy"},
        {"type": "advisor", "id": "critic", "role": "Looks for mistakes.", "on": null, "scopes": ["state.draft"]},
    ]);
    let opinion = json!({"calls": [], "output": {"opinion": "Yes."}});
    let draft = add(20, 22, "†state.draft");
    // Written from the verdict, so the question cannot come after it.
    let late =
        json!({"_tool": "echo.say", "value": "†state.verdict", "_outputPath": "†state.draft"});
    for (plan, order) in [
        (json!([question, draft]), vec!["math.add", "ConsultAdvisor"]),
        (json!([draft, question]), vec!["math.add", "ConsultAdvisor"]),
        (json!([late, question]), vec!["ConsultAdvisor", "echo.say"]),
        (json!([question]), vec!["ConsultAdvisor"]),
    ] {
        let told = run(
            request(Contract::Schema, messages.clone()),
            [calls(plan.clone()), opinion.clone(), output("done")],
        )
        .await;
        assert_eq!(told.done(), (StopReason::Output, json!("done")), "{plan}");
        let made = told.events.iter().filter_map(|event| match &event.kind {
            EventKind::ToolStart { call, .. } => Some(call.tool.as_str()),
            _ => None,
        });
        assert_eq!(made.collect::<Vec<_>>(), order, "{plan}");
        let sees_draft = told.asked(1).contains("42");
        assert_eq!(sees_draft, order[0] == "math.add", "{plan}");
    }
}

#[tokio::test]
async fn call_sees_context_written_before_it() {
    let sees = json!({"_tool": "echo.say", "value": 1, "_scopes": ["state"]});
    let messages = json!([{"type": "plan", "mode": "lazy"}]);
    let told = run(
        request(Contract::Schema, messages.clone()),
        [
            calls(json!([sees])),
            calls(json!([sees, add(1, 1, "†state.a")])),
            output("done"),
        ],
    )
    .await;
    assert!(
        told.asked(1)
            .contains("plan[0]/_scopes: nothing provides †state")
    );
    let shown: Vec<&Value> = told.calls[1]
        .context
        .iter()
        .map(|(_, value)| value)
        .collect();
    assert_eq!(shown, [&json!({"a": 2})]);
}

#[tokio::test]
async fn a_latent_step_is_left_to_the_model_and_what_needs_it_comes_after() {
    let uses = add("†state.n", 1, "†state.m");
    let think = |output: Value| {
        let mut call = json!({"_tool": "think", "about": "it", "_outputPath": "†state.n"});
        if !output.is_null() {
            call["_output"] = output;
        }
        call
    };
    let told = run(
        lazy(),
        [
            calls(json!([think(Value::Null), uses])),
            calls(json!([think(json!(5)), uses])),
            output("done"),
        ],
    )
    .await;
    // In a lazy plan the schema lets a latent output be left out.
    let schema = told.schema(0).to_string();
    assert!(!schema.contains("\"_output\"]"), "{schema}");
    let asked = told.asked(1);
    assert!(asked.contains("write its result as \"_output\""), "{asked}");
    assert!(
        asked.contains("(think) should have written †state.n and did not"),
        "{asked}"
    );
    assert_eq!(standings(&told, 1).len(), 2, "{asked}");
    assert_eq!(told.arguments(), [json!({"a": 5, "b": 1})]);
}

#[tokio::test]
async fn a_dry_run_reports_order_parallel_groups_and_missing_inputs_and_runs_nothing() {
    let mut request = lazy();
    request.settings.dry_run = true;
    let steps = json!([
        add("†state.a", "†input.n", "†state.b"),
        add("†state.x", 1, "†state.a"),
        {"_tool": "text.up", "text": "†input.text || †input.title"},
    ]);
    let told = run(request, [calls(steps.clone())]).await;
    let (reason, report) = told.done();
    assert_eq!(reason, StopReason::Planned);
    assert!(told.calls.is_empty());
    assert_eq!(
        report,
        json!({"type": "plan", "mode": "lazy", "plan": [steps[1], steps[2], steps[0]], "layers": [[0, 1], [2]],
        "needs": [
            {"paths": ["†input.n"], "tool": "math.add"},
            {"paths": ["†input.text", "†input.title"], "tool": "text.up"},
        ]})
    );
}

/// Whatever the context says of plans: the calls are checked and returned.
#[tokio::test]
async fn a_dry_run_without_a_lazy_plan_runs_nothing_either() {
    for messages in [
        json!([]),
        json!([{"type": "plan", "plan": []}]),
        json!([{"type": "plan", "plan": [add(1, 1, "†state.z")], "mode": "eager"}]),
    ] {
        let mut asked = request(Contract::Schema, messages.clone());
        asked.settings.dry_run = true;
        let steps = json!([add(1, 1, "†state.a"), add("†state.a", 1, "†state.b")]);
        let broken = json!([add("†state.nowhere", 1, "†state.b")]);
        let told = run(asked, [calls(broken), calls(steps.clone())]).await;
        let (reason, report) = told.done();
        assert_eq!(reason, StopReason::Planned, "{messages}");
        assert_eq!(report["plan"], steps, "{messages}");
        assert!(told.calls.is_empty(), "{messages}");
        assert!(told.asked(1).contains("nothing provides †state.nowhere"));
    }
    let mut asked = request(Contract::Schema, json!([]));
    asked.settings.dry_run = true;
    let told = run(asked, [output("no call is needed")]).await;
    assert_eq!(
        told.done(),
        (StopReason::Output, json!("no call is needed"))
    );

    let mut saved = request(Contract::Schema, json!([]));
    saved.settings.dry_run = true;
    saved.plan = Some(vec![add(1, 1, "†state.a")]);
    let told = run(saved, []).await;
    assert_eq!(told.done().0, StopReason::Planned);
    assert!(told.calls.is_empty());
}

#[tokio::test]
async fn faults_of_a_dry_run_besides_inputs_go_back_to_the_model() {
    let with_input = json!([{"type": "plan", "mode": "lazy"}, {"type": "input", "input": {"n": 1}, "schema": {}}]);
    for (messages, missing) in [
        (plan("lazy", &json!([])), "†state.nowhere"),
        (with_input, "†input.text"),
    ] {
        let mut request = request(Contract::Schema, messages);
        request.settings.dry_run = true;
        let told = run(
            request,
            [
                calls(json!([add(missing, 1, "†state.a")])),
                calls(json!([add(1, 1, "†state.a")])),
            ],
        )
        .await;
        assert!(
            told.asked(1)
                .contains(&format!("nothing provides {missing}"))
        );
        assert_eq!(told.done().0, StopReason::Planned);
    }
}

/// A person's decision about a plan, the calls that run then, and the model's message.
#[tokio::test]
async fn a_plan_is_approved_changed_or_refused_as_a_whole() {
    let steps = json!([add(1, 1, "†state.a"), add("†state.a", 1, "†state.b")]);
    let edit = |arguments: Value| Verdict::Edit { arguments };
    let changed = json!([add(5, 5, "†state.a")]);
    let made = [json!({"a": 1, "b": 1}), json!({"a": 2, "b": 1})];
    let five = [json!({"a": 5, "b": 5})];
    for (what, verdicts, expect) in [
        ("as it is", vec![Verdict::Approve], &made[..]),
        ("a list of calls", vec![edit(changed.clone())], &five),
        (
            "a plan message",
            vec![edit(json!({"type": "plan", "plan": changed}))],
            &five,
        ),
        (
            "another instead",
            vec![Verdict::Replace {
                result: changed.clone(),
            }],
            &five,
        ),
        (
            "with a cycle, then not",
            vec![edit(circle()), edit(changed.clone())],
            &five,
        ),
        (
            "no plan, then yes",
            vec![edit(json!(7)), edit(json!([])), Verdict::Approve],
            &made,
        ),
    ] {
        let mut request = lazy();
        request.settings.decisions.plans = true;
        let asks = verdicts.len();
        let told = run_with(request, [calls(steps.clone()), output("done")], verdicts)
            .await
            .unwrap();
        assert_eq!(told.arguments(), expect, "{what}");
        assert_eq!(told.done(), (StopReason::Output, json!("done")), "{what}");
        let asked = told.events.iter().filter_map(|event| match &event.kind {
            EventKind::Approval { pending, .. } => Some(pending.arguments.clone()),
            _ => None,
        });
        // What a person cannot have is asked about again.
        assert!(asked.eq(vec![steps.clone(); asks]), "{what}");
        assert_eq!(
            told.notices().len(),
            asks - 1,
            "{what}: {:?}",
            told.notices()
        );
        assert!(told.at("approval") < told.at("tool_start"), "{what}");
    }
}

#[tokio::test]
async fn a_refused_plan_makes_the_model_plan_anew() {
    for contract in [Contract::Schema, Contract::Tools] {
        let mut request = request(contract, plan("lazy", &json!([])));
        request.settings.decisions.plans = true;
        let refuse = Verdict::Refuse {
            reason: "too expensive".into(),
        };
        let told = run_with(
            request,
            [
                calls(json!([add(1, 1, "†state.a")])),
                calls(json!([add(2, 2, "†state.a")])),
                output("done"),
            ],
            vec![refuse, Verdict::Approve],
        )
        .await
        .unwrap();
        let asked = told.asked(1);
        assert!(
            asked.contains("a person refused this plan: too expensive. Make another"),
            "{asked}"
        );
        assert!(
            asked.contains("\"a\":1"),
            "the message names the call: {asked}"
        );
        assert!(
            standings(&told, 1).is_empty(),
            "what was refused is not carried: {asked}"
        );
        assert_eq!(told.arguments(), [json!({"a": 2, "b": 2})]);
        assert_eq!(told.done().0, StopReason::Output);
    }
}

#[tokio::test]
async fn plan_and_state_are_carried_by_step_and_followed_extended_or_replaced() {
    // Three steps of one tool: what became of one says nothing about another.
    let steps = json!([
        add("†state.x", 1, "†state.a"),
        add("†state.a", 1, "†state.b"),
        add("†state.b", 1, "†state.c")
    ]);
    let told = run(
        request(Contract::Schema, plan("eager", &steps)),
        [
            // Follows the first, with an argument filled in.
            calls(json!([add(1, 1, "†state.a")])),
            // Tries the second in vain, and does something else.
            calls(
                json!([add("†state.nowhere", 1, "†state.b"), {"_tool": "text.up", "text": "more"}]),
            ),
            // Makes the second as it was planned.
            calls(json!([steps[1].clone()])),
            output("enough"),
        ],
    )
    .await;
    let expect = |expect: &[(&str, Value)]| -> Vec<String> {
        expect
            .iter()
            .map(|(standing, call)| format!("{standing}: {call}"))
            .collect()
    };
    let (first, up) = (
        add(1, 1, "†state.a"),
        json!({"_tool": "text.up", "text": "more"}),
    );
    let tried = add("†state.nowhere", 1, "†state.b");
    assert_eq!(
        standings(&told, 0),
        expect(&[
            ("open", steps[0].clone()),
            ("open", steps[1].clone()),
            ("open", steps[2].clone())
        ])
    );
    assert_eq!(
        standings(&told, 1),
        expect(&[
            ("made", first.clone()),
            ("open", steps[1].clone()),
            ("open", steps[2].clone())
        ])
    );
    assert_eq!(
        standings(&told, 2),
        expect(&[
            ("made", first.clone()),
            ("failed", tried),
            ("open", steps[2].clone()),
            ("made", up.clone())
        ])
    );
    assert_eq!(
        standings(&told, 3),
        expect(&[
            ("made", first),
            ("made", steps[1].clone()),
            ("open", steps[2].clone()),
            ("made", up)
        ])
    );
    for (n, state) in [(1, "{\"x\":1,\"a\":2}"), (3, "{\"x\":1,\"a\":2,\"b\":3}")] {
        let asked = told.asked(n);
        assert!(
            asked.contains(&format!("## Data: ¶state\n{state}")),
            "{asked}"
        );
        assert!(asked.contains("Follow it, extend it or replace it."));
    }
}

#[tokio::test]
async fn the_calls_of_an_eager_run_are_its_plan() {
    let told = run(
        request(Contract::Schema, plan("eager", &json!([]))),
        [
            calls(json!([add(1, 1, "†state.a"), {"_tool": "fail.now"}, {"_tool": "nobody.knows"}])),
            output("done"),
        ],
    )
    .await;
    assert!(!told.asked(0).contains("## Plan"));
    assert_eq!(
        standings(&told, 1),
        [
            format!("made: {}", add(1, 1, "†state.a")),
            "failed: {\"_tool\":\"fail.now\"}".into()
        ]
    );
}

#[tokio::test]
async fn a_lazy_plan_replaces_what_was_not_made() {
    let told = run(
        request(
            Contract::Schema,
            plan("lazy", &json!([add(9, 9, "†state.z")])),
        ),
        [
            calls(json!([add(1, 1, "†state.a"), {"_tool": "fail.now"}])),
            calls(json!([add("†state.a", 1, "†state.b")])),
            output("done"),
        ],
    )
    .await;
    assert!(
        told.asked(0)
            .contains("it is checked as a whole before any of them is made")
    );
    let a = format!("made: {}", add(1, 1, "†state.a"));
    assert_eq!(
        standings(&told, 0),
        [format!("open: {}", add(9, 9, "†state.z"))]
    );
    assert_eq!(
        standings(&told, 1),
        [a.clone(), "failed: {\"_tool\":\"fail.now\"}".into()]
    );
    assert_eq!(
        standings(&told, 2),
        [a, format!("made: {}", add("†state.a", 1, "†state.b"))]
    );
}

#[tokio::test]
async fn a_plan_that_was_brought_along_and_cannot_be_run_is_told_with_the_reason() {
    let told = run(
        request(Contract::Schema, plan("eager", &circle())),
        [output("no")],
    )
    .await;
    let asked = told.asked(0);
    assert!(
        asked.contains("It cannot be run as it is: the plan has a cycle"),
        "{asked}"
    );
    assert!(asked.contains(CIRCLE), "{asked}");
    let error = run_with(
        request(Contract::Schema, plan("eager", &json!([{"no": "tool"}]))),
        [],
        Vec::new(),
    )
    .await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("plan[0] lacks \"_tool\""), "{error}");
}

#[tokio::test]
async fn an_output_beside_a_lazy_plan_counts_once_the_plan_was_run() {
    let mut request = lazy();
    request.settings.shape = toolhold_protocol::compose::Shape::Both;
    let both = json!({"calls": [add(1, 1, "†state.a")], "output": "done"});
    let told = run(request, [both]).await;
    assert_eq!(told.calls.len(), 1);
    assert_eq!(told.done(), (StopReason::Output, json!("done")));
}

/// Without a model: whatever is asked of it would fail the run.
async fn saved(messages: Value, steps: Value) -> Result<FinishedRun, String> {
    let mut request = request(Contract::Schema, messages);
    request.plan = Some(steps.as_array().cloned().unwrap());
    let told = run_with(request, [], Vec::new()).await;
    told.map_err(|error| error.to_string())
}

fn input(value: Value) -> Value {
    json!([{"type": "input", "input": value, "schema": {}}])
}

#[tokio::test]
async fn a_saved_plan_runs_again_on_other_inputs_without_a_model() {
    let steps = json!([
        add("†state.sum", "†input.n", "†state.twice"),
        add("†input.n", 1, "†state.sum"),
        {"_tool": "text.up", "text": "†input.text", "_outputPath": "†report.text"},
    ]);
    for (given, expect) in [
        (
            json!({"n": 1, "text": "a"}),
            json!({"state": {"sum": 2, "twice": 3}, "report": {"text": "A"}}),
        ),
        (
            json!({"n": 40, "text": "b"}),
            json!({"state": {"sum": 41, "twice": 81}, "report": {"text": "B"}}),
        ),
    ] {
        let told = saved(input(given), steps.clone()).await.unwrap();
        let (reason, mut output) = told.done();
        output.sort_all_objects();
        let mut expect = expect;
        expect.sort_all_objects();
        assert_eq!((reason, output), (StopReason::Output, expect));
        assert!(told.requests.is_empty());
    }
}

#[tokio::test]
async fn a_saved_plan_whose_calls_fail_says_so_and_gives_what_there_is() {
    let told = saved(
        json!([]),
        json!([
            {"_tool": "fail.now", "_outputPath": "†state.broken"},
            {"_tool": "echo.say", "value": "†state.broken"},
            add(1, 1, "†state.a"),
        ]),
    )
    .await
    .unwrap();
    assert_eq!(
        told.done(),
        (StopReason::Incomplete, json!({"state": {"a": 2}}))
    );
    let failure = told.failure();
    for part in [
        "2 of the plan's calls failed",
        "fail.now: it broke on purpose",
        "echo.say: it could not run",
    ] {
        assert!(failure.contains(part), "{part}: {failure}");
    }
}

#[tokio::test]
async fn a_saved_plan_that_needs_a_model_or_cannot_be_run_is_refused() {
    let room = json!([{"type": "tool", "tool": {
        "room.ask": {"type": "object", "properties": {"_module": {"const": "anonymous"}}}}},
        {"type": "advisor", "id": "ceo", "role": "Decides."}]);
    for (messages, steps, reason) in [
        (
            json!([]),
            json!([add(1, 1, "†state.a"), {"_tool": "think", "_output": 5}]),
            "plan[1] calls \"think\", and a model writes its result (it is latent)",
        ),
        (
            room.clone(),
            json!([{"_tool": "room.ask"}]),
            "plan[0] calls \"room.ask\", and a sub-agent answers it",
        ),
        (
            room,
            json!([{"_tool": "ConsultAdvisor", "id": "ceo", "question": "?"}]),
            "and an advisor answers it",
        ),
        (json!([]), json!([]), "it holds no calls"),
        (json!([]), circle(), CIRCLE),
        (
            json!([]),
            json!([{"_tool": "math.guess"}]),
            "there is no tool named \"math.guess\"",
        ),
        (
            json!([]),
            json!([add("†input.n", 1, "†state.a")]),
            "nothing provides †input.n",
        ),
        (
            json!([]),
            json!([add("one", 1, "†state.a")]),
            "plan[0]/a: \"one\" is not of type",
        ),
    ] {
        let error = saved(messages, steps.clone()).await.unwrap_err();
        assert!(error.starts_with("the plan cannot be run: "), "{error}");
        assert!(error.contains(reason), "{steps}: {error}");
    }
}
