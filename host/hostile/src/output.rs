//! Rows 8 and 9: what comes back, and what is said on the way.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, expect_kind};
use crate::liar::{self, Claim, LiarReply};
use serde_json::json;
use toolhold_policy::{CallError, Grant};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 8,
        name: "output_of_a_gigabyte",
        attack: "output of 1 GiB, of 64 MiB, of a million records",
        must: "output / encoding",
        company: Company::Others,
        tries: |lab| Box::pin(output_of_a_gigabyte(lab)),
    },
    Attack {
        row: 8,
        name: "output_that_is_not_text",
        attack: "invalid UTF-8; text outside its memory; NaN",
        must: "encoding",
        company: Company::Others,
        tries: |lab| Box::pin(output_that_is_not_text(lab)),
    },
    Attack {
        row: 8,
        name: "output_that_is_not_json",
        attack: "JSON nested 10 000 deep; 1e999999; halves",
        must: "encoding",
        company: Company::Others,
        tries: |lab| Box::pin(output_that_is_not_json(lab)),
    },
    Attack {
        row: 9,
        name: "flood",
        attack: "64 MiB to stdout, stderr, log, progress",
        must: "bounded and counted; the tool survives",
        company: Company::Others,
        tries: |lab| Box::pin(flood(lab)),
    },
    Attack {
        row: 9,
        name: "escape_sequences",
        attack: "terminal escapes in errors and last words",
        must: "stripped",
        company: Company::Others,
        tries: |lab| Box::pin(escape_sequences(lab)),
    },
];

async fn output_of_a_gigabyte(lab: &Lab) -> Result<String, AttackFailure> {
    let guest = lab
        .against_guest(Grant::default(), |l| l.timeout_ms = 20_000)
        .await?;
    let wat = lab.against(components::BAD_TEXT, |_| ()).await?;
    // Longer than its memory: refused before a byte is copied.
    wat.ends("bad.gigabyte", json!({}), "encoding").await?;
    for (tool, arguments) in [
        ("bad.say", json!({"bytes": 64 << 20})),
        ("bad.say", json!({"bytes": 5 << 20})),
        ("bad.say_many", json!({"count": 1_000_000})),
    ] {
        guest.ends(tool, arguments, "output").await?;
    }
    Ok("encoding, output, output, output".into())
}

async fn output_that_is_not_text(lab: &Lab) -> Result<String, AttackFailure> {
    let wat = lab.against(components::BAD_TEXT, |_| ()).await?;
    wat.ends("bad.invalid", json!({}), "encoding").await?;
    wat.ends("bad.outside", json!({}), "encoding").await?;
    let guest = lab.against_guest(Grant::default(), |_| ()).await?;
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let bits = number.to_bits().to_string();
        let report = guest
            .ends("bad.say_number", json!({"bits": bits}), "encoding")
            .await?;
        expect_kind(&report, "encoding")?;
    }
    Ok("encoding, five times".into())
}

async fn output_that_is_not_json(lab: &Lab) -> Result<String, AttackFailure> {
    let deep = |open: &str, close: &str| open.repeat(10_000) + "1" + &close.repeat(10_000);
    let answers = [
        deep("[", "]"),
        deep(r#"{"a":"#, "}"),
        "[".repeat(1 << 20),
        "1e999999".into(),
        "-1e999999".into(),
        "NaN".into(),
        r#"{"a":1"#.into(),
        r#"{"a":1} {"b":2}"#.into(),
        r#""\ud800""#.into(),
        "\u{feff}1".into(),
        "1\0".into(),
        String::new(),
    ];
    for answer in &answers {
        let replies = [
            LiarReply::Value(answer.clone()),
            LiarReply::Message(answer.clone()),
            LiarReply::Error {
                message: "no".into(),
                data: Some(answer.clone()),
            },
        ];
        for reply in replies {
            let mut arena = lab.against(components::COMPUTE, |_| ()).await?;
            let bytes = liar::component(&[Claim::named("tell")], &reply)?;
            arena.load("liar", bytes).await?;
            arena.ends("liar.tell", json!({}), "encoding").await?;
        }
    }
    Ok(format!("encoding, {} times", answers.len() * 3))
}

async fn flood(lab: &Lab) -> Result<String, AttackFailure> {
    const KEPT: u64 = 10_000;
    const BYTES: u64 = 64 << 20;
    let arena = lab
        .against_guest(Grant::default(), |l| {
            (l.capture_bytes, l.timeout_ms) = (KEPT, 60_000);
        })
        .await?;
    let text = "\u{1b}]0;owned\u{7}";
    for channel in ["standard-output", "standard-error", "log", "progress"] {
        // A log line is a host call of its own, so there are fewer bytes of those.
        let lines = ["log", "progress"].contains(&channel);
        let bytes = if lines { BYTES >> 6 } else { BYTES };
        let arguments = json!({"channel": channel, "text": text, "bytes": bytes});
        let report = arena.call("bad.flood", arguments).await;
        expect_kind(&report, "ok")?;
        if lines {
            let kept: usize = report.logs.iter().map(|line| line.message.len()).sum();
            ensure(kept as u64 <= KEPT && report.dropped_logs > 1_000, || {
                format!(
                    "{channel}: {kept} bytes kept, {} dropped",
                    report.dropped_logs
                )
            })?;
        } else {
            let stream = match channel {
                "standard-output" => &report.stdout,
                _ => &report.stderr,
            };
            let (kept, dropped) = (stream.text.len() as u64, stream.dropped_bytes);
            ensure(kept == KEPT && kept + dropped == BYTES, || {
                format!("{channel}: {kept} bytes kept, {dropped} counted as dropped")
            })?;
        }
        arena.unharmed().await?;
    }
    Ok("10 kB of each kept, the rest counted".into())
}

async fn escape_sequences(lab: &Lab) -> Result<String, AttackFailure> {
    let text = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\u{202e}backwards\u{200b}\u{9b}31m";
    let guest = lab.against_guest(Grant::default(), |_| ()).await?;
    let panicked = guest
        .ends("bad.panic", json!({"text": text}), "trap")
        .await?;
    let failed = guest
        .ends("bad.fail", json!({"text": text}), "tool")
        .await?;
    let mut arena = lab.against(components::COMPUTE, |_| ()).await?;
    let reply = LiarReply::Error {
        message: text.into(),
        data: None,
    };
    arena
        .load("liar", liar::component(&[Claim::named("tell")], &reply)?)
        .await?;
    let lied = arena.ends("liar.tell", json!({}), "tool").await?;
    for report in [&panicked, &failed, &lied] {
        let said = report
            .result
            .as_ref()
            .err()
            .map(CallError::to_string)
            .unwrap_or_default();
        ensure(said.contains("owned") && said.contains("backwards"), || {
            format!("the words are lost: {said:?}")
        })?;
        let hidden = said
            .chars()
            .find(|c| c.is_control() || ['\u{202e}', '\u{200b}'].contains(c));
        ensure(hidden.is_none(), || {
            format!("{hidden:?} is in the error's message")
        })?;
    }
    Ok("stripped from trap, tool error and panic".into())
}
