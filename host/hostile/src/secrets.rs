//! Rows 16 and 38: a secret that a server sends back, or that a guest somehow got, in every form and by every
//! way out that a call has.

use crate::attack::{Attack, Company};
use crate::components;
use crate::encodings::{forms, odd_forms};
use crate::fault::{AttackFailure, ensure};
use crate::fetcher::{FetcherGrants, ensure_refused, get, request};
use crate::lab::{Arena, Lab, kind};
use crate::web::{AttackServer, grant};
use serde_json::{Value, json};
use toolhold_policy::{CallReport, Output, SecretGrant, SecretPlace, SecretSlot};

/// Printable ASCII with what every encoding has to escape.
const CANARY: &str = "c4nary/+\"key\"&<42>=?";
/// The part of it that few encodings change.
const CORE: &str = "c4nary";

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 16,
        name: "secret_that_comes_back",
        attack: "a secret echoed in headers, body, trailers, all forms",
        must: "redacted and counted; the guest never sees it",
        company: Company::Others,
        tries: |lab| Box::pin(secret_that_comes_back(lab)),
    },
    Attack {
        row: 16,
        name: "secret_that_is_told",
        attack: "a secret in result, error, panic, output, log",
        must: "redacted and counted in the report",
        company: Company::Others,
        tries: |lab| Box::pin(secret_that_is_told(lab)),
    },
    Attack {
        row: 16,
        name: "secret_sent_elsewhere",
        attack: "a secret lured to another origin, by redirect too",
        must: "it stays with its origin",
        company: Company::Others,
        tries: |lab| Box::pin(secret_sent_elsewhere(lab)),
    },
    Attack {
        row: 38,
        name: "secret_in_odd_forms",
        attack: "a secret echoed partly escaped, in mixed case, in lines, in pieces",
        must: "redacted, or the answer refused; the guest never sees it",
        company: Company::Others,
        tries: |lab| Box::pin(secret_in_odd_forms(lab)),
    },
];

fn canary(web: &AttackServer, place: SecretPlace) -> Result<SecretGrant, AttackFailure> {
    let origin = web.origin();
    let slot = SecretSlot {
        name: "canary".into(),
        origin: origin
            .parse()
            .map_err(|error| AttackFailure::Broke(format!("{origin} is no origin: {error}")))?,
        place,
    };
    SecretGrant::new(slot, CANARY.into())
        .map_err(|error| AttackFailure::Broke(format!("no such secret: {error}")))
}

fn in_header() -> SecretPlace {
    SecretPlace::Header {
        name: "Authorization".into(),
        format: None,
    }
}

async fn secret_that_comes_back(lab: &Lab) -> Result<String, AttackFailure> {
    let mut redactions = 0;
    for place in [in_header(), SecretPlace::Query { name: "key".into() }] {
        let web = AttackServer::start().await?;
        let given = FetcherGrants {
            secrets: vec![canary(&web, place)?],
            ..FetcherGrants::http([web.granted()?])
        };
        let arena = given.fetcher(lab, |_| ()).await?;
        let report = get(&arena, &web.url("/echo")).await;
        ensure(kind(&report) == "ok", || format!("{:?}", report.result))?;
        // It did go out, or nothing is proved.
        let sent: String = web.requests().into_iter().map(|seen| seen.head).collect();
        ensure(sent.contains(CORE), || "no secret was sent".into())?;
        redactions += clean(&report, 10)?;
        // The guest prints what it was answered, and dies with it.
        let url = json!({"url": web.url("/echo")});
        let report = arena.ends("bad.fetch_and_panic", url, "trap").await?;
        let last = report.result.as_ref().err().map(ToString::to_string);
        for text in [
            &report.stdout.text,
            &report.stderr.text,
            &last.unwrap_or_default(),
        ] {
            ensure(text.contains("[secret canary]"), || {
                format!("the guest was answered something else: {text:.200}")
            })?;
        }
        redactions += clean(&report, 10)?;
        // A body that cannot be searched does not reach the guest.
        let report = get(&arena, &web.url("/gzip")).await;
        ensure_refused(&report, "an unsearched body", "HttpResponseContentCoding")?;
        // The placeholder that a guest may send is never what goes out.
        let own = json!([["authorization", "mine"], ["accept-encoding", "gzip"]]);
        redactions += clean(
            &request(&arena, "GET", &web.url("/echo?key=mine"), own).await,
            1,
        )?;
        arena.unharmed().await?;
    }
    Ok(format!("{redactions} redactions; never seen"))
}

async fn secret_that_is_told(lab: &Lab) -> Result<String, AttackFailure> {
    // The guest is handed the secret as its argument: however else it may have come by it, this is
    // how it would tell.
    let web = AttackServer::start().await?;
    let given = || {
        Ok::<_, AttackFailure>(FetcherGrants {
            secrets: vec![canary(&web, in_header())?],
            ..FetcherGrants::http([web.granted()?])
        })
    };
    let arena = given()?.arena(components::ATTACKER, lab, |_| ()).await?;
    let (mut told, mut redactions) = (0, 0);
    for form in forms(CANARY) {
        let bytes = form.len();
        let flood = |channel: &str| json!({"channel": channel, "text": form, "bytes": bytes});
        for (tool, arguments, ends) in [
            ("fail", json!({"text": form}), "tool"),
            ("panic", json!({"text": form}), "trap"),
            ("flood", flood("standard-output"), "ok"),
            ("flood", flood("standard-error"), "ok"),
            ("flood", flood("log"), "ok"),
            ("lookup", json!({"name": form}), "tool"),
        ] {
            let report = arena.call(&format!("bad.{tool}"), arguments).await;
            ensure(kind(&report) == ends, || {
                format!("{tool} ended with {:?}", report.result)
            })?;
            // A lookup is denied without a word about the name.
            redactions += clean(&report, u64::from(tool != "lookup"))?;
            told += 1;
        }
    }
    // In the URL and in a header, of requests that go wrong in as many ways, and in an error of the
    // host's own about arguments.
    let fetcher = given()?.fetcher(lab, |_| ()).await?;
    for url in [
        format!("{CANARY}://x"),
        format!("http://{CANARY}/"),
        web.url(&format!("/{CANARY}")),
    ] {
        clean(&get(&fetcher, &url).await, 0)?;
    }
    let named = json!([[CANARY, CANARY]]);
    clean(&request(&fetcher, "GET", &web.url("/"), named).await, 0)?;
    clean(
        &request(&fetcher, CANARY, &web.url("/"), json!([])).await,
        0,
    )?;
    let misfit = json!({"text": {CANARY: CANARY}});
    clean(&arena.call("bad.fail", misfit).await, 0)?;
    arena.unharmed().await?;
    Ok(format!("told {told} times, {redactions} redactions"))
}

async fn secret_in_odd_forms(lab: &Lab) -> Result<String, AttackFailure> {
    let web = AttackServer::start().await?;
    let given = FetcherGrants {
        secrets: vec![canary(&web, in_header())?],
        ..FetcherGrants::http([web.granted()?])
    };
    let arena = given.fetcher(lab, |l| l.calls_per_minute = 0).await?;
    let odd = odd_forms(CANARY);
    let (mut seen, mut tried) = (Vec::<&str>::new(), 0);
    for (number, form) in odd.iter().enumerate() {
        for piece in [1, 5, 4_096] {
            let report = get(&arena, &web.url(&format!("/odd/{number}/{piece}"))).await;
            tried += 1;
            if texts(&report).iter().any(|text| text.contains(form)) {
                seen.push(form.as_str());
            }
        }
    }
    let sent: String = web.requests().into_iter().map(|seen| seen.head).collect();
    ensure(sent.contains(CORE), || "no secret was sent".into())?;
    ensure(seen.is_empty(), || {
        let number = seen.len();
        seen.dedup();
        format!("the guest saw {number} of {tried}: {}", seen.join("  "))
    })?;
    arena.unharmed().await?;
    Ok(format!("{} forms, {tried} answers: never seen", odd.len()))
}

async fn secret_sent_elsewhere(lab: &Lab) -> Result<String, AttackFailure> {
    let (web, other) = (AttackServer::start().await?, AttackServer::start().await?);
    for place in [in_header(), SecretPlace::Query { name: "key".into() }] {
        let follow = json!({"origin": web.origin(), "redirects": 5, "private": true});
        let given = FetcherGrants {
            secrets: vec![canary(&web, place)?],
            ..FetcherGrants::http([grant(follow)?, other.granted()?])
        };
        let arena = given.fetcher(lab, |_| ()).await?;
        let lure = format!("/redirect/302?{}", other.url("/?x=1"));
        for url in [other.url("/echo"), web.url(&lure)] {
            clean(&get(&arena, &url).await, 0)?;
        }
        lured(&arena, &web, &other).await?;
        arena.unharmed().await?;
    }
    let sent = other.requests();
    ensure(!sent.is_empty(), || "nothing was sent there".into())?;
    ensure(sent.iter().all(|seen| found(&seen.head).is_none()), || {
        "the secret went to another origin".into()
    })?;
    Ok(format!("{} requests elsewhere, none with it", sent.len()))
}

/// A `Host` that says where the secret should go.
async fn lured(
    arena: &Arena,
    web: &AttackServer,
    other: &AttackServer,
) -> Result<(), AttackFailure> {
    let host = other.origin().replace("http://", "");
    let before = web.requests().len();
    clean(
        &request(arena, "GET", &web.url("/"), json!([["host", host]])).await,
        0,
    )?;
    let chosen = web.requests()[before..]
        .iter()
        .any(|seen| seen.header("host") == [host.as_str()]);
    ensure(!chosen, || "the guest chose the Host header".into())
}

/// The canary is in no part of a report in any form; how often it was taken out, which must be
/// `least` times or more.
fn clean(report: &CallReport, least: u64) -> Result<u64, AttackFailure> {
    for text in texts(report) {
        if let Some(form) = found(&text) {
            return Err(AttackFailure::Broke(format!(
                "the secret got out as {form:?}"
            )));
        }
    }
    ensure(report.redactions >= least, || {
        format!(
            "{} redactions were counted, instead of {least} or more: {report:?}",
            report.redactions
        )
    })?;
    Ok(report.redactions)
}

/// All texts of a report.
fn texts(report: &CallReport) -> Vec<String> {
    let mut texts = vec![report.stdout.text.clone(), report.stderr.text.clone()];
    texts.extend(report.logs.iter().map(|line| line.message.clone()));
    match &report.result {
        Ok(Output::Value(value) | Output::Message(value)) => strings(value, &mut texts),
        Err(error) => texts.push(error.to_string()),
    }
    texts.push(format!("{report:?}"));
    texts
}

/// Every string of a value, and the value as text.
fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(members) => {
            for (name, member) in members {
                into.push(name.clone());
                strings(member, into);
            }
        }
        _ => into.push(value.to_string()),
    }
}

/// The form in which the canary is in `text`.
fn found(text: &str) -> Option<String> {
    let plain = [CORE.to_owned(), "c4nary%2F".to_owned()];
    forms(CANARY)
        .into_iter()
        .chain(plain)
        .find(|form| text.contains(form.as_str()))
}
