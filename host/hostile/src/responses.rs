//! Row 15: servers that answer too much, or never stop.

use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::fetcher::{FetcherGrants, get};
use crate::lab::{Lab, expect_kind, kind, ms};
use crate::process;
use crate::web::{AttackServer, BOMB};
use serde_json::json;
use std::time::{Duration, Instant};
use toolhold_policy::{CallReport, Output};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 15,
        name: "response_without_end",
        attack: "a byte at a time for ever; nothing at all",
        must: "deadline, or http-body; connection closed",
        company: Company::Others,
        tries: |lab| Box::pin(response_without_end(lab)),
    },
    Attack {
        row: 15,
        name: "response_of_a_gigabyte",
        attack: "a response of 1 GiB, read whole or in pieces",
        must: "http-body; memory bounded",
        company: Company::Others,
        tries: |lab| Box::pin(response_of_a_gigabyte(lab)),
    },
    Attack {
        row: 15,
        name: "compressed_bomb",
        attack: "16 KiB of gzip that would be 16 MiB",
        must: "stays compressed; memory bounded",
        company: Company::Others,
        tries: |lab| Box::pin(compressed_bomb(lab)),
    },
];

/// Maximum time that a connection may outlive its call.
const MAX_CLOSE_DELAY: Duration = Duration::from_secs(1);
/// Maximum bytes that the host may need for a call in addition to the guest's memory.
const MAX_HOST_BYTES: u64 = 64 << 20;

async fn response_without_end(lab: &Lab) -> Result<String, AttackFailure> {
    const TIMEOUT: u64 = 400;
    let web = AttackServer::start().await?;
    let by_deadline = FetcherGrants::http([web.granted()?])
        .fetcher(lab, |l| l.timeout_ms = TIMEOUT)
        .await?;
    let by_request = FetcherGrants::http([web.granted()?])
        .fetcher(lab, |l| l.http_timeout_ms = TIMEOUT / 2)
        .await?;
    let mut slowest = Duration::ZERO;
    for path in ["/endless", "/silent"] {
        for (arena, ends, says) in [
            (
                &by_deadline,
                "deadline",
                format!("deadline of {TIMEOUT} ms"),
            ),
            (
                &by_request,
                "http-body",
                format!("{} ms for one HTTP request", TIMEOUT / 2),
            ),
        ] {
            let url = json!({"url": web.url(path)});
            // `ends` checks the time.
            let report = arena.ends("bad.drain", url, ends).await?;
            ensure_says(&report, &says)?;
            slowest = slowest.max(report.usage.duration);
            web.ensure_left_alone(MAX_CLOSE_DELAY).await?;
        }
        // The maximum number at once; the guest waits for any of them.
        let many = json!({"url": web.url(path), "count": 100});
        let report = by_deadline.call("bad.fetch_many", many).await;
        ensure(["deadline", "ok"].contains(&kind(&report)), || {
            format!("100 at once: {:?}", report.result)
        })?;
        web.ensure_left_alone(MAX_CLOSE_DELAY).await?;
    }
    by_deadline.unharmed().await?;
    Ok(format!(
        "ended, slowest after {}; connections closed",
        ms(slowest)
    ))
}

async fn response_of_a_gigabyte(lab: &Lab) -> Result<String, AttackFailure> {
    let web = AttackServer::start().await?;
    let arena = FetcherGrants::http([web.granted()?])
        .fetcher(lab, |_| ())
        .await?;
    let before = process::resident_bytes();
    process::forget_peak();
    let url = web.url("/gigabyte");
    let mut most = 0;
    for (tool, arguments) in [
        ("bad.drain", json!({"url": url})),
        (
            "bad.fetch",
            json!({"url": url, "method": "GET", "headers": [], "body": null}),
        ),
    ] {
        let written = web.written();
        let report = arena.ends(tool, arguments, "http-body").await?;
        ensure_says(&report, "8388608 bytes of HTTP responses")?;
        web.ensure_left_alone(MAX_CLOSE_DELAY).await?;
        // The host's limit is 8 MiB; the rest lies in the buffers of two sockets, as large as the system makes them.
        let taken = web.written() - written;
        ensure(taken < 96 << 20, || {
            format!("{tool} took {} MiB", taken >> 20)
        })?;
        most = most.max(taken);
    }
    ensure_memory(before)?;
    Ok(format!("ended after {:.1} MiB", most as f64 / 1_048_576.0))
}

async fn compressed_bomb(lab: &Lab) -> Result<String, AttackFailure> {
    let web = AttackServer::start().await?;
    let arena = FetcherGrants::http([web.granted()?])
        .fetcher(lab, |l| l.http_response_bytes = 20_000)
        .await?;
    let before = process::resident_bytes();
    process::forget_peak();
    let started = Instant::now();
    let report = get(&arena, &web.url("/gzip")).await;
    expect_kind(&report, "ok")?;
    let Ok(Output::Value(seen)) = &report.result else {
        return Err(AttackFailure::Broke(format!(
            "it answered {:?}",
            report.result
        )));
    };
    // Byte for byte: the guest unpacks it in its own memory, under its own limits.
    ensure(seen["size"] == json!(BOMB.len()), || {
        format!("{} bytes instead of {} arrived", seen["size"], BOMB.len())
    })?;
    ensure_memory(before)?;
    arena.unharmed().await?;
    Ok(format!(
        "{} bytes as they were, in {}",
        BOMB.len(),
        ms(started.elapsed())
    ))
}

/// The error names the limit that fired.
fn ensure_says(report: &CallReport, limit: &str) -> Result<(), AttackFailure> {
    let said = report.result.as_ref().err().map(ToString::to_string);
    ensure(
        said.as_ref().is_some_and(|said| said.contains(limit)),
        || format!("it says {said:?}, and not {limit:?}"),
    )
}

fn ensure_memory(before: Option<u64>) -> Result<(), AttackFailure> {
    let more = match (process::peak_bytes(), before) {
        (Some(peak), Some(before)) => peak.saturating_sub(before),
        _ => 0,
    };
    ensure(more < MAX_HOST_BYTES, || {
        format!("{} MiB of memory were needed", more >> 20)
    })
}
