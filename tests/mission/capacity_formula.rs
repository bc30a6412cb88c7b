//! 000.74: latency ≈ L_in/P + L_out/(D/B) + N_tools×(T_tool+T_marshal) + O, from speeds in tokens a second.

use serde_json::{Value, json};
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

#[test]
fn statement_000_74_speeds_are_measured() {
    let reply = Reply::content("1\n2\n3\n4\n5\n6\n7\n8\n").delayed_ms(40, 10);
    let endpoint = Endpoint::start(Scenario::new([reply]).in_order(ReplyOrder::Repeat));
    let url = endpoint.base_url();
    let done = Host::new().run(&[
        "plan-capacity",
        "--measure",
        "--up-to=2",
        "--base-url",
        &url,
        "--json",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let plan: Value = serde_json::from_str(&done.stdout).unwrap();
    let terms = &plan["p50"]["terms"];
    for speed in ["prefill_tokens_per_s", "decode_tokens_per_s"] {
        assert!(terms[speed].as_f64() > Some(0.0), "{speed}: {plan}");
    }
    assert_ne!(terms["sum_s"], json!(0.0));
}
