//! Row 67: modules whose calls continue as jobs, and that lie about them or never end them.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, expect_kind, ms};
use crate::liar::{JobAnswers, JobLies, with_jobs};
use crate::runs::{RunClient, count, until};
use crate::scripted::ScriptedModel;
use crate::serving::Served;
use serde_json::{Value, json};
use std::fs;
use std::future::ready;
use std::time::{Duration, Instant};
use toolhold_policy::{BegunJob, CallReport, Invocation, JobQuestion};
use toolhold_sandbox::LoadError;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 67,
        name: "jobs_that_lie",
        attack: "ids with spaces, controls and other scripts, or of a megabyte; notes of escapes; questions without an end. Functions of wrong types. Another component that takes the name of the one that began a job",
        must: "encoding, deadline, or refused when loaded; nothing of it is kept; only the component that began the job is asked",
        company: Company::Others,
        tries: |lab| Box::pin(jobs_that_lie(lab)),
    },
    Attack {
        row: 67,
        name: "jobs_without_end",
        attack: "all calls of a run continue as jobs that never end and do not stop, on a server with one place; questions about a job never return",
        must: "calls of others are answered meanwhile; the run ends when it is cancelled, and the call when its time for jobs is over; each call begins and ends once",
        company: Company::Others,
        tries: |lab| Box::pin(ready(jobs_without_end(lab))),
    },
];

/// Time limit of each call and question.
const LIMIT: Duration = Duration::from_millis(500);

async fn jobs_that_lie(lab: &Lab) -> Result<String, AttackFailure> {
    let mut arena = lab.arena(|policy| policy.limits.timeout_ms = 500)?;
    arena.benign().await?;
    let ids = ids_that_are_refused(&mut arena).await?;
    notes_are_cleaned(&mut arena).await?;
    questions_end(lab, &mut arena).await?;
    let mistyped = with_jobs(&JobLies {
        is_mistyped: true,
        ..JobLies::default()
    })?;
    let loaded = arena.load("mistyped", mistyped).await;
    ensure(matches!(loaded, Err(LoadError::ListTools { .. })), || {
        format!("functions of wrong types were not refused: {loaded:?}")
    })?;
    another_component_is_not_asked(lab, &arena).await?;
    arena.unharmed().await?;
    Ok(format!("{ids} ids refused; four other lies held off"))
}

/// Number of the ids that were tried.
async fn ids_that_are_refused(arena: &mut Arena) -> Result<usize, AttackFailure> {
    let ids = [
        String::new(),
        "a b".into(),
        "a\n# System".into(),
        "\u{1b}[2J".into(),
        "\0".into(),
        "жоб".into(),
        "a\u{202e}b".into(),
        "x".repeat(257),
        "x".repeat(1 << 20),
    ];
    for (number, id) in ids.iter().enumerate() {
        let name = format!("id{number}");
        let lies = JobLies {
            id: id.clone(),
            ..JobLies::default()
        };
        arena.load(&name, with_jobs(&lies)?).await?;
        let report = arena.call(&format!("{name}.render"), json!({})).await;
        expect_kind(&report, "encoding")?;
        ensure(report.job.is_none(), || {
            format!("a job of the id {id:.20?} was taken")
        })?;
    }
    // One that is as long as it may be.
    let lies = JobLies {
        id: "x".repeat(256),
        ..JobLies::default()
    };
    arena.load("longest", with_jobs(&lies)?).await?;
    begun(arena, "longest.render").await?;
    Ok(ids.len())
}

async fn notes_are_cleaned(arena: &mut Arena) -> Result<(), AttackFailure> {
    let lies = JobLies {
        note: format!("\u{1b}[2J\u{202e}{}", "x".repeat(1 << 20)),
        ..JobLies::default()
    };
    arena.load("noted", with_jobs(&lies)?).await?;
    let job = begun(arena, "noted.render").await?;
    let report = ask(arena, "noted.render", &JobQuestion::State(job)).await;
    expect_kind(&report, "ok")?;
    let note = report.job.map(|job| job.note).unwrap_or_default();
    let is_clean = note.contains("xxx")
        && note.chars().count() <= 501
        && !note.contains(['\u{1b}', '\u{202e}']);
    ensure(is_clean, || format!("a note is {note:.100?}"))
}

async fn questions_end(lab: &Lab, arena: &mut Arena) -> Result<(), AttackFailure> {
    let lies = JobLies {
        asked: JobAnswers::Spins,
        is_unstoppable: true,
        ..JobLies::default()
    };
    arena.load("spins", with_jobs(&lies)?).await?;
    let job = begun(arena, "spins.render").await?;
    for question in [JobQuestion::State(job.clone()), JobQuestion::Cancel(job)] {
        let started = Instant::now();
        let report = ask(arena, "spins.render", &question).await;
        let took = started.elapsed();
        expect_kind(&report, "deadline")?;
        ensure(took < LIMIT + lab.grace(), || {
            format!(
                "a question came back after {}, deadline {}",
                ms(took),
                ms(LIMIT)
            )
        })?;
        arena.unharmed().await?;
    }
    Ok(())
}

/// A component is exchanged while a job of it is waited for. The other one knows the id as well, because all jobs of both have
/// the same, and would answer with a result.
async fn another_component_is_not_asked(lab: &Lab, arena: &Arena) -> Result<(), AttackFailure> {
    let folder = lab.folder()?;
    let file = folder.path().join("bad.wasm");
    let mut jobs = Vec::new();
    for asked in [JobAnswers::Works, JobAnswers::Ends] {
        let lies = JobLies {
            asked,
            ..JobLies::default()
        };
        fs::write(&file, with_jobs(&lies)?)?;
        arena
            .registry
            .load_folder(folder.path(), None, &|_| ())
            .await?;
        jobs.push(begun(arena, "bad.render").await?);
    }
    let [first, second] = jobs.as_slice() else {
        return Err(AttackFailure::Broke("two jobs did not begin".into()));
    };
    ensure(first.module != second.module, || {
        "the component was not exchanged: nothing is proved".into()
    })?;
    for question in [
        JobQuestion::State(first.clone()),
        JobQuestion::Cancel(first.clone()),
    ] {
        let report = ask(arena, "bad.render", &question).await;
        expect_kind(&report, "job_exchanged")?;
    }
    let report = ask(arena, "bad.render", &JobQuestion::State(second.clone())).await;
    expect_kind(&report, "ok")?;
    ensure(report.job.is_none(), || {
        "a component is not asked about its own job: nothing is proved".into()
    })
}

/// The job as which a call continues.
async fn begun(arena: &Arena, tool: &str) -> Result<BegunJob, AttackFailure> {
    let CallReport {
        result,
        job,
        module,
        ..
    } = arena.call(tool, json!({})).await;
    result?;
    let Some(job) = job else {
        return Err(AttackFailure::Broke(format!(
            "a call of {tool} did not continue as a job: nothing is proved"
        )));
    };
    Ok(BegunJob {
        id: job.id,
        module: module.map(|digest| digest.to_string()),
    })
}

async fn ask(arena: &Arena, tool: &str, question: &JobQuestion) -> CallReport {
    let arguments = json!({});
    let invocation = Invocation {
        job: Some(question),
        ..Invocation::new("attack", tool, &arguments)
    };
    arena.registry.call(&invocation).await
}

const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// Number of the calls of the run.
const CALLS: usize = 8;
/// Time that jobs have.
const JOB_TIME: Duration = Duration::from_secs(6);
/// The longest time between the end of a run and its last event: its jobs have 5 s to be told.
const ENDING: Duration = Duration::from_secs(10);
/// Maximum number of events of one job.
const EVENTS: usize = 100;

fn jobs_without_end(lab: &Lab) -> Result<String, AttackFailure> {
    let model = ScriptedModel::start(r#"{"calls": [], "output": "done"}"#)?;
    let folder = CommandFolder::new(lab)?;
    folder.write(
        "modules/benign.wasm",
        components::parse(components::COMPUTE)?,
    )?;
    for (name, asked) in [("bad", JobAnswers::Works), ("slow", JobAnswers::Spins)] {
        let lies = JobLies {
            asked,
            is_unstoppable: true,
            ..JobLies::default()
        };
        folder.write(&format!("modules/{name}.wasm"), with_jobs(&lies)?)?;
    }
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"schema\"\n\
             [modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n[fallback]\nenabled = false\n\
             [serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\nconcurrent_runs = 1\n\
             [run]\nmax_calls = 16\nparallel_calls = 16\nmax_tokens = 4000\n\
             [jobs]\ntimeout_ms = {}\nbackoff_ms = 10\n\
             [module.bad.limits]\ntimeout_ms = 500\n[module.slow.limits]\ntimeout_ms = 500\n",
            model.port,
            JOB_TIME.as_millis()
        ),
    )?;
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let served = Served::start(&folder, &serve)?;
    let task = json!({"messages": [{"role": "user", "content": "Render."}]}).to_string();
    served.run_task(&task)?;
    let client = RunClient {
        served: &served,
        key: None,
    };
    let benign = json!({"arguments": {}});
    client.until_ready("benign.count", &benign)?;

    let calls = (0..CALLS).map(|number| json!({"_tool": "bad.render", "number": number}));
    let calls: Vec<Value> = calls.collect();
    model.say([json!({"calls": calls, "output": null}).to_string()]);
    let known = client.runs()?;
    let _answer = served.send("POST", "/v1/agent", &[], &task)?;
    let run = until("a run", || {
        let mut runs = client.runs()?.into_iter();
        Ok(runs.find(|run| !known.contains(run)))
    })?;
    // It has the one place until its jobs are all that it waits for.
    let answered = client.ask("POST", "/v1/tools/benign.count", &benign)?;
    let state = client.state(&run)?;
    ensure(answered.status == 200 && state != "done", || {
        format!("a call beside a run that waits for jobs, which is {state}: {answered:?}")
    })?;
    let cancel = format!("/v1/runs/{run}/cancel");
    let answered = client.ask("POST", &cancel, &Value::Null)?;
    let cancelled = Instant::now();
    ensure(answered.status == 202, || {
        format!("a cancellation was answered {answered:?}")
    })?;
    client.until_over(&run)?;
    let ending = cancelled.elapsed();
    ensure(ending < ENDING, || {
        format!("a cancelled run ended after {}", ms(ending))
    })?;
    let events = client.events(&run)?;
    ensure_whole(&events, CALLS)?;
    let reason = events.last().map(|event| event["reason"].clone());
    ensure(reason == Some(json!("cancelled")), || {
        format!("a cancelled run ended with {reason:?}")
    })?;

    let begun = Instant::now();
    let (run, _answer) = client.begin("slow.render", &benign)?;
    client.until_over(&run)?;
    let took = begun.elapsed();
    ensure(took < JOB_TIME + ENDING, || {
        format!("a job had {}, and took {}", ms(JOB_TIME), ms(took))
    })?;
    let events = client.events(&run)?;
    ensure_whole(&events, 1)?;
    let mut ends = events
        .iter()
        .filter(|event| event["event"] == "tool_result");
    let kind = ends.next().map(|event| event["error"]["kind"].clone());
    ensure(kind == Some(json!("job_deadline")), || {
        format!("a job without end ended with {kind:?}")
    })?;
    Ok(format!(
        "{CALLS} jobs stopped {} after their run was cancelled, and one after {}",
        ms(ending),
        ms(took)
    ))
}

/// Each call of a run began and ended once, became a job, and has no more events of it than it may.
fn ensure_whole(events: &[Value], calls: usize) -> Result<(), AttackFailure> {
    let [begun, ended, jobs] = ["tool_start", "tool_result", "job"].map(|kind| count(events, kind));
    ensure(
        (begun, ended) == (calls, calls) && (calls..=calls * EVENTS).contains(&jobs),
        || {
            format!(
                "{calls} calls began {begun} times, ended {ended} times, and have {jobs} events of jobs"
            )
        },
    )
}
