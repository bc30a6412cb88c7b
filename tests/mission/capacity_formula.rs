//! 000.74: latency ≈ L_in/P + L_out/(D/B) + N_tools×(T_tool+T_marshal) + O, from speeds in tokens a second.

use serde_json::Value;
use std::time::Instant;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::Host;

fn is(found: &Value, expected: f64) -> bool {
    let found = found.as_f64().unwrap_or(f64::NAN);
    (found - expected).abs() <= expected.abs() * 1e-9
}

/// 1000/5000 + 100/(400/8) + 3 × (150 + 2) ms + 40 ms = 0.2 + 2 + 0.456 + 0.04 s.
#[test]
fn statement_000_74_latency_follows_from_speeds() {
    let host = Host::new();
    let flags = [
        "plan-capacity",
        "--prefill-rate=5000",
        "--decode-rate=400",
        "--in-flight=8",
        "--prompt-tokens=1000",
        "--completion-tokens=100",
        "--tool-calls=3",
        "--tool-ms=150",
        "--call-marshal-ms=2",
        "--overhead-ms=40",
    ];
    let done = host.run(&[&flags[..], &["--json"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let plan: Value = serde_json::from_str(&done.stdout).unwrap();
    for (place, expected) in [
        ("/p50/terms/prefill_tokens_per_s", 5_000.0),
        ("/p50/terms/decode_tokens_per_s", 400.0),
        ("/p50/terms/prefill_s", 0.2),
        ("/p50/terms/decode_s", 2.0),
        ("/p50/terms/tools_s", 0.456),
        ("/p50/terms/overhead_s", 0.04),
        ("/p50/terms/sum_s", 2.696),
        // One space between tokens less.
        ("/p50/run_latency_s", 2.676),
    ] {
        let found = plan.pointer(place).unwrap();
        assert!(is(found, expected), "{place} is {found}, not {expected}");
    }
    let text = host.run(&flags).stdout;
    for part in [
        "S x (L_in / P + L_out / (D / B) + O) + N_tools x (T_tool + T_marshal)",
        "P, prompt tokens/s",
        "flag --prefill-rate",
        "flag --decode-rate",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (flag, other) in [
        ("--prefill-rate=1", "--ttft-ms=1"),
        ("--decode-rate=1", "--itl-ms=1"),
        ("--tool-ms=1", "--tools-ms=1"),
    ] {
        let done = host.run(&["plan-capacity", flag, other]);
        assert_eq!(done.code, Some(2), "{done:?}");
    }
    let done = host.run(&["plan-capacity", "--decode-rate=0"]);
    assert_eq!(done.code, Some(2), "{done:?}");
}

/// Each reply says that it has 400 prompt tokens and 21 of its own. It begins after 200 ms, and its seven events up to these
/// numbers are 10 ms apart. A machine with other work makes times longer, but none of them longer than the command.
#[test]
fn statement_000_74_speeds_are_measured() {
    let reply = Reply {
        usage: Some((400, 21)),
        ..Reply::content("1\n2\n3\n4\n5\n6\n7\n8\n").delayed_ms(200, 10)
    };
    let endpoint = Endpoint::start(Scenario::new([reply]).in_order(ReplyOrder::Repeat));
    let url = endpoint.base_url();
    let began = Instant::now();
    let done = Host::new().run(&[
        "plan-capacity",
        "--measure",
        "--up-to=2",
        "--base-url",
        &url,
        "--json",
    ]);
    let took = began.elapsed().as_secs_f64();
    assert_eq!(done.code, Some(0), "{done:?}");
    let plan: Value = serde_json::from_str(&done.stdout).unwrap();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    // The level that the plan is made from.
    let inputs = &plan["inputs"];
    let batch = number(&inputs["in_flight_of_a_replica"]["p50"]);
    let mut levels = plan["measured"].as_array().unwrap().iter();
    let level = levels.find(|level| is(&level["in_flight"], batch));
    let level = level.unwrap();
    assert_eq!(level["tokens_counted"], true, "{plan}");
    for (input, expected) in [("prompt_tokens", 400.0), ("completion_tokens", 21.0)] {
        let found = &inputs[input]["p50"];
        assert!(is(found, expected), "{input} is {found}, not {expected}");
    }
    for column in ["mean", "p50", "p95"] {
        let first = number(&level["first_token_s"][column]);
        let between = number(&level["between_tokens_s"][column]);
        assert!((0.2..took).contains(&first), "{first} of {took} s: {plan}");
        assert!(between > 0.0 && between < took, "{between} of {took} s");
        let terms = &plan[column]["terms"];
        for (term, expected) in [
            ("prefill_tokens_per_s", 400.0 / first),
            ("decode_tokens_per_s", batch / between),
            ("prefill_s", first),
            ("decode_s", 21.0 * between),
            ("tools_s", 0.0),
            ("overhead_s", 0.0),
        ] {
            let found = &terms[term];
            assert!(
                is(found, expected),
                "{column}: {term} is {found}, not {expected}"
            );
        }
        // L_in / P + L_out / (D / B) with what is printed.
        let speed = |term: &str| number(&terms[term]);
        let prefill = 400.0 / speed("prefill_tokens_per_s");
        let decode = 21.0 / (speed("decode_tokens_per_s") / batch);
        let sum = prefill + decode;
        let found = &terms["sum_s"];
        assert!(is(found, sum), "{column}: the sum is {found}, not {sum}");
    }
    // Whole replies: the first token and twenty spaces between tokens.
    let mean = |time: &str| number(&level[time]["mean"]);
    let latency = mean("latency_s");
    assert!((0.26..took).contains(&latency), "{latency} of {took} s");
    let sum = mean("first_token_s") + 20.0 * mean("between_tokens_s");
    assert!((latency - sum).abs() < 1e-9, "{latency} {sum}");
}
