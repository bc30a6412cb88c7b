//! What runs took and what a deployment would take: `toolhold stats`, `toolhold plan-capacity`, and the
//! caps on money and calls, with the real binary against a scripted endpoint.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::{Finished, Host};
use support::records::Records;

const PRICES: &str = "[run]\ncurrency = \"EUR\"\n[endpoints.default]\nprice_per_million = { prompt = 0.5, completion = 2 }\n";

fn calls(tool: &str, arguments: &Value) -> Reply {
    let mut call = json!({"_tool": tool, "_reasoningForCall": "because"});
    call.as_object_mut()
        .unwrap()
        .extend(arguments.as_object().unwrap().clone());
    Reply::solution(json!({"calls": [call], "output": null}))
}

fn answers(output: &str) -> Reply {
    Reply::solution(json!({"calls": [], "output": output}))
}

fn counted(reply: Reply, prompt: u64, completion: u64) -> Reply {
    Reply {
        usage: Some((prompt, completion)),
        ..reply
    }
}

/// A reply of a server that counts no tokens.
fn uncounted(output: &str) -> Reply {
    let content = json!({"calls": [], "output": output}).to_string();
    let pieces = [
        json!({"choices": [{"index": 0, "delta": {"content": content}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ];
    let events = pieces.map(|piece| format!("data: {piece}\n\n"));
    Reply::raw(format!("{}data: [DONE]\n\n", events.concat()))
}

fn host(configuration: &str) -> Host {
    let host = Host::new();
    host.ship("calculator")
        .write("toolhold.toml", configuration);
    host
}

/// Two requests and a call between them.
fn task() -> Vec<Reply> {
    let call = calls("calculator.evaluate", &json!({"expression": "1+1"}));
    vec![
        counted(call, 100, 20).delayed_ms(60, 3),
        counted(answers("2"), 150, 10),
    ]
}

fn run(host: &Host, replies: Vec<Reply>, extra: &[&str]) -> Finished {
    let endpoint = Endpoint::start(Scenario::new(replies));
    let url = endpoint.base_url();
    host.run(&[&["run", "the task", "--base-url", &url], extra].concat())
}

fn json_of(done: &Finished) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

fn is(found: &Value, expected: f64) -> bool {
    found
        .as_f64()
        .is_some_and(|found| (found - expected).abs() <= expected.abs() * 1e-6)
}

#[test]
fn a_runs_steps_are_counted_timed_and_priced() {
    let host = host(PRICES);
    let done = run(&host, task(), &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("0.000185 EUR"), "{}", done.stderr);

    let stats = json_of(&host.run(&["stats", "last", "--json"]));
    // 250 × 0.5 + 30 × 2 millionths.
    for (place, expected) in [
        ("/currency", json!("EUR")),
        ("/reason", json!("output")),
        ("/total/cost_nano", json!(185_000)),
        ("/total/prompt_tokens", json!(250)),
        ("/total/completion_tokens", json!(30)),
        ("/total/calls", json!(1)),
        ("/steps/0/cost_nano", json!(90_000)),
        ("/steps/0/calls", json!(1)),
        ("/steps/1/prompt_tokens", json!(150)),
        ("/steps/1/calls", json!(0)),
        ("/tools/calculator.evaluate/calls", json!(1)),
        ("/tools/calculator.evaluate/errors", json!({})),
    ] {
        assert_eq!(stats.pointer(place), Some(&expected), "{place}: {stats}");
    }
    let time = |name: &str| stats["steps"][0][name].as_f64().unwrap();
    let (first, between, last) = (
        time("first_token_ms"),
        time("between_tokens_ms"),
        time("last_token_ms"),
    );
    assert!(first >= 60.0 && last > first, "{first} {last}");
    assert!(
        (between - (last - first) / 19.0).abs() < 1e-3,
        "19 spaces between 20 tokens: {between}"
    );
    assert!(time("between_pieces_p95_ms") >= 2.0, "{stats}");
    assert!(stats["total"]["in_tools_ms"].as_f64().unwrap() > 0.0);

    let text = host.run(&["stats", "last"]).stdout;
    for part in [
        "the task",
        "250 prompt",
        "30 completion",
        "0.000185 EUR",
        "calculator.evaluate",
        "1 call",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn fuel_that_is_not_counted_is_never_shown_as_zero() {
    for (limits, is_counted) in [("", true), ("[limits]\nfuel = 0\n", false)] {
        let host = host(limits);
        let done = run(&host, task(), &[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let stats = json_of(&host.run(&["stats", "last", "--json"]));
        let tool = &stats["tools"]["calculator.evaluate"];
        assert_eq!(tool["calls"], json!(1), "{stats}");
        for fuel in [&tool["fuel"]["p50"], &tool["fuel_total"]] {
            assert_eq!(fuel.as_u64() > Some(0), is_counted, "{stats}");
            assert_eq!(fuel.is_null(), !is_counted, "{stats}");
        }
    }
}

#[test]
fn an_unknown_cost_is_never_shown_as_zero() {
    let host = host("");
    run(&host, task(), &[]);
    assert!(
        host.run(&["stats", "last"])
            .stdout
            .contains("cost      unknown")
    );
    let stats = json_of(&host.run(&["stats", "last", "--json"]));
    assert_eq!(stats["total"]["cost_nano"], Value::Null);

    host.write("toolhold.toml", PRICES);
    run(&host, vec![task().remove(0), uncounted("2")], &[]);
    let stats = json_of(&host.run(&["stats", "last", "--json"]));
    assert_eq!(
        stats["total"]["cost_nano"],
        Value::Null,
        "part of it is not known"
    );
    assert_eq!(stats["steps"][0]["cost_nano"], json!(90_000));
    let text = host.run(&["stats", "last"]).stdout;
    assert!(
        text.contains("0.00009 EUR and what 1 reply cost, which is unknown"),
        "{text}"
    );
}

#[test]
fn repairs_are_counted() {
    let host = host("");
    let bad = calls("calculator.evaluate", &json!({"expression": "1+"}));
    let replies = vec![
        Reply::content("Sure: {'calls': [], 'output': 'x'").truncated_after(900),
        bad,
        Reply::content("Here it is: {'calls': [], 'output': 'two'}"),
    ];
    let done = run(&host, replies, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let stats = json_of(&host.run(&["stats", "last", "--json"]));
    assert_eq!(stats["total"]["replies_failed"], 1, "{stats}");
    assert!(stats["total"]["repairs"].as_u64().unwrap() >= 2, "{stats}");
    let errors = stats["tools"]["calculator.evaluate"]["errors"]
        .as_object()
        .unwrap();
    assert_eq!(
        errors.values().map(|n| n.as_u64().unwrap()).sum::<u64>(),
        1,
        "{stats}"
    );
}

#[test]
fn all_runs_since_then_are_added_up_and_damaged_ones_named() {
    let host = host(PRICES);
    let nothing = host.run(&["stats", "--since", "2h"]);
    assert_eq!(nothing.code, Some(1));
    assert!(
        nothing.stderr.contains("no run began since then"),
        "{nothing:?}"
    );
    for _ in 0..4 {
        run(&host, task(), &[]);
    }
    run(&host, vec![task().remove(0)], &["--max-steps", "1"]);
    let of = |since: &str| host.run(&["stats", "--since", since, "--json"]);
    let all = json_of(&of("2h"));
    assert_eq!(all["runs"], 5);
    assert_eq!(all["reasons"], json!({"output": 4, "max_steps": 1}));
    assert_eq!(all["known_cost_nano"], json!({"EUR": 4 * 185_000 + 90_000}));
    assert_eq!(all["models"][0]["requests"], 9);
    assert_eq!(all["models"][0]["prompt_tokens"]["p50"], 100);
    assert_eq!(all["models"][0]["prompt_tokens"]["p95"], 150);
    assert_eq!(all["tools"]["calculator.evaluate"]["calls"], 5);
    assert_eq!(json_of(&of("2999-01-01"))["runs"], 0);
    assert_eq!(json_of(&of("1970-01-01"))["runs"], 5);

    let records = Records::of(&host);
    let runs = records.runs();
    let first = records.lines(&runs[0])[0].replacen("the task", "the tusk", 1);
    records.change(&runs[0], 0, &first);
    records.change(&runs[1], 0, "no event");
    // A process that was killed before it wrote its last event; what it had written counts.
    records.lose(&runs[2], records.lines(&runs[2]).len() - 1);
    let rest = of("2h");
    assert_eq!(rest.code, Some(1), "{rest:?}");
    let value = json_of(&rest);
    assert_eq!(
        value["reasons"],
        json!({"output": 1, "max_steps": 1, "not over": 1})
    );
    assert_eq!(value["left_out"].as_array().unwrap().len(), 2);
    for run in &runs[..2] {
        assert!(rest.stderr.contains(run), "{run}: {}", rest.stderr);
    }
    let text = host.run(&["stats", "--since", "2h"]).stdout;
    for part in [
        "3 runs",
        "1 not over",
        "schema contract",
        "first token",
        "calculator.evaluate",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_wrong_question_is_said_to_be_one() {
    let host = host("");
    for (arguments, code, part) in [
        (&["stats"][..], 2, "required"),
        (&["stats", "--since", "yesterday"], 2, "90m, 2h or 7d"),
        (
            &["stats", "last", "--since", "2h"],
            2,
            "cannot be used with",
        ),
        (&["stats", "last"], 1, "there are no runs yet"),
        (
            &["plan-capacity"],
            1,
            "nothing says --ttft-ms, --itl-ms, --prompt-tokens, --completion-tokens:",
        ),
        (&["plan-capacity", "--ttft-ms", "fast"], 2, "no number"),
        (&["plan-capacity", "--up-to", "4"], 2, "--measure"),
        (&["plan-capacity", "--from-runs"], 1, "no runs"),
        (&["plan-capacity", "--target-qps", "0"], 1, "above 0"),
    ] {
        let done = host.run(arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains(part), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn caps_on_money_and_calls_stop_a_run_and_name_themselves() {
    for (flags, reason, setting) in [
        (
            ["--max-cost", "0.00009"],
            "max_cost",
            "0.00009 of 0.00009 EUR were spent before there was an output (run.max_cost)",
        ),
        (["--max-tool-calls", "0"], "output", ""),
        (["--max-tool-calls", "1"], "output", ""),
    ] {
        let host = host(PRICES);
        let done = run(&host, task(), &[&flags[..], &["--json"]].concat());
        let last: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(last["reason"], reason, "{flags:?}: {last}");
        assert_eq!(done.code, Some(if setting.is_empty() { 0 } else { 4 }));
        assert!(last.to_string().contains(setting), "{flags:?}: {last}");
    }
    let more = vec![
        calls("calculator.evaluate", &json!({"expression": "1"})),
        calls("calculator.evaluate", &json!({"expression": "2"})),
    ];
    let host = host("");
    let done = run(&host, more, &["--max-tool-calls", "1"]);
    assert_eq!(done.code, Some(4), "{done:?}");
    for part in ["run.max_tool_calls", "tool call limit"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    // What stopped it is what replaying it comes to.
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
    let stats = json_of(&host.run(&["stats", "last", "--json"]));
    assert_eq!(stats["tools"]["calculator.evaluate"]["calls"], 1);
    assert_eq!(
        stats["tools"]["calculator.evaluate"]["errors"],
        json!({"calls": 1})
    );
}

#[test]
fn a_cap_on_money_needs_a_price_and_a_price_a_currency() {
    for (configuration, part) in [
        (
            "[run]\nmax_cost = 1",
            "the cost of a reply of default is not known: set endpoints.default.price_per_million",
        ),
        (&PRICES.replace("EUR", ""), "say in which currency"),
        ("[endpoints.default]\ngpu_hour = -3", "no amount of money"),
        (
            "[endpoints.default]\nprice_per_million = { prompt = 1 }",
            "completion is missing",
        ),
    ] {
        let done = host(configuration).run(&["runs"]);
        assert_eq!(done.code, Some(1), "{configuration}: {done:?}");
        assert!(
            done.stderr.contains(part),
            "{configuration}: {}",
            done.stderr
        );
    }
}

/// 3.60 an hour is 0.001 a second, and the first reply took at least 60 ms of one GPU.
#[test]
fn time_on_a_gpu_has_a_price() {
    let host = host("[run]\ncurrency = \"EUR\"\n[endpoints.default]\ngpu_hour = 3.60\n");
    run(&host, task(), &[]);
    let stats = json_of(&host.run(&["stats", "last", "--json"]));
    let nano = |place: &str| stats.pointer(place).unwrap().as_f64().unwrap();
    let millis = nano("/steps/0/last_token_ms");
    assert!(
        (nano("/steps/0/cost_nano") - millis * 1_000.0).abs() <= 1_000.0,
        "{stats}"
    );
    assert!(nano("/total/cost_nano") >= 60_000.0);
}

/// 0.2 + 90 × 0.02 = 2 s a request, 3 × 2 + 0.5 a run; 8 / 2 requests/s; 10 runs/s by 2/3 a replica.
#[test]
fn a_plan_follows_from_its_flags() {
    let host = host(PRICES);
    let flags = [
        "plan-capacity",
        "--ttft-ms",
        "200,400",
        "--itl-ms",
        "20",
        "--prompt-tokens",
        "1000",
        "--completion-tokens",
        "91",
        "--requests",
        "3",
        "--tools-ms",
        "500",
        "--in-flight",
        "8",
        "--utilization",
        "0.5",
        "--target-qps",
        "10",
    ];
    let plan = json_of(&host.run(&[&flags[..], &["--json"]].concat()));
    for (place, expected) in [
        ("/p50/request_latency_s", 2.0),
        ("/p95/request_latency_s", 2.2),
        ("/p50/run_latency_s", 6.5),
        ("/p50/requests_per_s", 4.0),
        ("/p50/completion_tokens_per_s", 364.0),
        ("/p50/replicas", 15.0),
        // 3 × (1 000 × 0.5 + 91 × 2) / 10⁶
        ("/p50/run_cost", 0.002_046),
    ] {
        let found = plan.pointer(place).unwrap();
        assert!(is(found, expected), "{place} is {found}, not {expected}");
    }
    let text = host.run(&flags).stdout;
    for part in [
        "flag --ttft-ms",
        "assumed",
        "endpoints.default.price_per_million",
        "replicas for 10 runs/s",
        "EUR",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    host.write("toolhold.toml", "");
    let text = host.run(&flags).stdout;
    assert!(
        text.contains("unknown: set endpoints.default.price_per_million"),
        "{text}"
    );
    let explained = host.run(&["plan-capacity", "--explain"]).stdout;
    for part in ["L = TTFT + (C - 1) x ITL", "Little", "Kleinrock", "1961"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
}

/// The price of a million generated tokens: 364 tokens/s of a replica at 2.50 an hour are 1.91.
#[test]
fn generated_tokens_cost_what_their_gpu_costs() {
    let host = host("[run]\ncurrency = \"EUR\"\n[endpoints.default]\ngpu_hour = 2.50\n");
    let flags = [
        "plan-capacity",
        "--ttft-ms=200",
        "--itl-ms=20",
        "--prompt-tokens=1000",
        "--completion-tokens=91",
        "--requests=3",
        "--tools-ms=500",
        "--marshal-ms=10",
        "--overhead-ms=190",
        "--in-flight=8",
    ];
    let plan = json_of(&host.run(&[&flags[..], &["--json"]].concat()));
    for (place, expected) in [
        ("/p50/completion_tokens_per_s", 364.0),
        ("/p50/completion_tokens_per_hour", 1_310_400.0),
        ("/p50/million_generated_cost", 2.5 / 1.3104),
        // 3 × (2 + 0.01 + 0.19) + 0.5
        ("/p50/run_latency_s", 7.1),
    ] {
        let found = plan.pointer(place).unwrap();
        assert!(is(found, expected), "{place} is {found}, not {expected}");
    }
    let text = host.run(&flags).stdout;
    let row = text
        .lines()
        .find(|line| line.contains("10^6 generated, EUR"));
    assert!(row.is_some_and(|row| row.ends_with("1.91")), "{text}");
    let explained = host.run(&["plan-capacity", "--explain"]).stdout;
    for letter in [
        "L_in / P + L_out / (D / B) + O",
        "P: prompt tokens/s",
        "D: tokens/s",
        "B: the batch",
        "T_marshal: the",
        "O: other",
    ] {
        assert!(explained.contains(letter), "{letter}: {explained}");
    }
}

#[test]
fn an_endpoint_is_measured_at_several_requests_in_flight() {
    let reply = counted(Reply::content("1\n2\n3\n4\n5\n6\n7\n8\n"), 40, 5).delayed_ms(40, 10);
    let endpoint = Endpoint::start(Scenario::new([reply]).in_order(ReplyOrder::Repeat));
    let host = host(PRICES);
    let url = endpoint.base_url();
    let flags = [
        "plan-capacity",
        "--measure",
        "--up-to",
        "4",
        "--base-url",
        &url,
    ];
    let done = host.run(&[&flags[..], &["--json"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let plan = json_of(&done);
    let levels = plan["measured"].as_array().unwrap();
    let in_flight: Vec<_> = levels
        .iter()
        .map(|level| level["in_flight"].as_u64().unwrap())
        .collect();
    assert_eq!(in_flight, [1, 2, 4]);
    for level in levels {
        assert!(
            level["first_token_s"]["p50"].as_f64().unwrap() >= 0.04,
            "{level}"
        );
        // Four pieces, ten milliseconds apart, of what it counts as five tokens.
        assert!(
            level["between_tokens_s"]["p50"].as_f64().unwrap() >= 0.005,
            "{level}"
        );
        assert_eq!(level["tokens_counted"], true);
    }
    // How much faster that is depends on what else the machine does.
    let rate = |at: usize| levels[at]["requests_per_s"].as_f64().unwrap();
    assert!(rate(2) > rate(0), "{plan}");
    assert!(
        endpoint.most_open_streams() >= 4,
        "requests were in flight together: {plan}"
    );
    assert_eq!(plan["inputs"]["completion_tokens"]["p50"], 5.0);
    let from = plan["inputs"]["first_token"]["from"].as_str().unwrap();
    assert!(
        from.starts_with("measured at 4 in flight, 12 requests"),
        "{from}"
    );
    // One that is not counted, and three rounds of each.
    assert_eq!(endpoint.requests().len(), 1 + 3 * (1 + 2 + 4));
    let text = host.run(&flags).stdout;
    assert!(
        text.contains("in flight") && text.contains("measured: the most tokens per second"),
        "{text}"
    );
}

#[test]
fn a_measurement_ends_in_time_and_says_what_it_could_not_do() {
    let host = host("");
    let silent = Endpoint::start(Scenario::new([Reply::never()]).in_order(ReplyOrder::Repeat));
    let url = silent.base_url();
    let done = host.run(&[
        "plan-capacity",
        "--measure",
        "--measure-seconds",
        "1",
        "--base-url",
        &url,
    ]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr
            .contains("nothing could be measured: not one reply came within 1 s"),
        "{}",
        done.stderr
    );

    let error = Reply::error(401, json!({"error": {"message": "no key"}}));
    let closed = Endpoint::start(Scenario::new([error]).in_order(ReplyOrder::Repeat));
    let url = closed.base_url();
    let done = host.run(&["plan-capacity", "--measure", "--base-url", &url]);
    assert_eq!(done.code, Some(3), "{done:?}");
}

#[test]
fn a_plan_follows_from_past_runs() {
    let host = host(PRICES);
    for _ in 0..3 {
        run(&host, task(), &[]);
    }
    // A saved plan asks no model, and says nothing about what one has to serve.
    host.write(
        "plan.json",
        r#"[{"_tool": "calculator.evaluate", "expression": "1+1", "_outputPath": "†state.sum"}]"#,
    );
    for _ in 0..4 {
        let done = host.run(&["plan", "run", "plan.json"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let plan = json_of(&host.run(&["plan-capacity", "--from-runs", "--json"]));
    for (place, expected) in [
        ("/inputs/prompt_tokens/p50", 100.0),
        ("/inputs/prompt_tokens/p95", 150.0),
        ("/inputs/requests_of_a_run/p50", 2.0),
        ("/inputs/completion_tokens/p50", 10.0),
        ("/inputs/completion_tokens/p95", 20.0),
    ] {
        let found = plan.pointer(place).unwrap();
        assert!(is(found, expected), "{place} is {found}, not {expected}");
    }
    let from = plan["inputs"]["first_token"]["from"].as_str().unwrap();
    assert!(from.starts_with("6 recorded requests of "), "{from}");
    assert_eq!(
        plan["inputs"]["requests_of_a_run"]["from"],
        "3 recorded runs"
    );
    // What the command line says counts before what was recorded.
    let plan = json_of(&host.run(&["plan-capacity", "--from-runs", "--requests", "7", "--json"]));
    assert_eq!(
        plan["inputs"]["requests_of_a_run"]["from"],
        "flag --requests"
    );
}
