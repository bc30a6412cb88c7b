//! 000.69: tools whose work outlives their call, such as renders, transcodes and inference.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::sandbox::repository;
use toolhold_needs::is_built;

const MODULE: &str = "job_rust";

fn host(configuration: &str) -> Option<Host> {
    host_that_asks_after(20, configuration)
}

/// A host with the example of a job and a folder for its state, which asks about a job after `backoff_ms` first. Absent: the
/// example is not built.
pub fn host_that_asks_after(backoff_ms: u32, configuration: &str) -> Option<Host> {
    if !is_built(&repository(), &format!("modules/examples/{MODULE}")) {
        return None;
    }
    let host = Host::new();
    host.ship_from("modules/examples", MODULE)
        .write("jobs/.keep", "")
        .write(
            "toolhold.toml",
            format!(
                "{configuration}\n[jobs]\nbackoff_ms = {backoff_ms}\n[module.{MODULE}]\n\
                 directories = [{{ host = \"jobs\", guest = \"/jobs\", access = \"read-write\" }}]\n"
            ),
        );
    let approved = host.run(&["modules", "approve", MODULE, "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    Some(host)
}

/// A model that calls the tool and answers.
fn endpoint(below: u64) -> Endpoint {
    let call = json!({"_tool": "job_rust.count_primes", "below": below});
    Endpoint::start(Scenario::new([
        Reply::solution(json!({"calls": [call], "output": null})),
        Reply::solution(json!({"calls": [], "output": "There are 78,498."})),
    ]))
}

fn events(printed: &str) -> Vec<Value> {
    let lines = printed.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    let found = events.iter().filter(|event| event["event"] == kind);
    found.collect()
}

/// Names of the files of jobs.
fn files(host: &Host) -> Vec<String> {
    let entries = std::fs::read_dir(host.path().join("jobs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let has_ending = |name: &String| std::path::Path::new(name).extension() == Some("job".as_ref());
    names.filter(has_ending).collect()
}

#[test]
fn statement_000_69_a_job_is_waited_for_and_its_progress_is_shown() {
    let Some(host) = host("") else { return };
    let endpoint = endpoint(1_000_000);
    let url = endpoint.base_url();
    let done = host.run(&[
        "run",
        "How many primes are below one million?",
        "--base-url",
        &url,
        "--model",
        "m",
        "--json",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let events = events(&done.stdout);
    let results = of(&events, "tool_result");
    assert_eq!(results[0]["output"], json!({"primes": 78_498}), "{done:?}");
    // Its begin, and a piece of the work each.
    let jobs = of(&events, "job");
    let far: Vec<_> = jobs.iter().map(|job| job["done"].as_u64()).collect();
    assert_eq!(
        far[..3],
        [Some(0), Some(200_000), Some(400_000)],
        "{jobs:?}"
    );
    assert_eq!(of(&events, "tool_start").len(), 1);
    assert_eq!(
        endpoint.requests().len(),
        2,
        "no step is taken to ask about it"
    );
    // The model is shown the result, and not the job.
    let id = jobs[0]["job"].as_str().unwrap();
    assert!(!endpoint.requests()[1].to_string().contains(id));
}

#[test]
fn statement_000_69_a_job_is_waited_for_after_a_restart() {
    let Some(host) = host("") else { return };
    let endpoint = endpoint(1_000_000);
    let url = endpoint.base_url();
    let server = ["--base-url", &url, "--model", "m"];
    let task = ["run", "How many primes are below one million?", "--json"];
    // Ctrl-C parks the run.
    let parked = host.run_until(&[&task[..], &server].concat(), r#""event":"job""#, 2);
    let begun = events(&parked.stdout);
    assert!(of(&begun, "done").is_empty(), "{parked:?}");
    assert_eq!(files(&host).len(), 1, "its job stays");
    let resumed = host.run(&[&["resume", "last", "--json"][..], &server].concat());
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let events = events(&resumed.stdout);
    let results = of(&events, "tool_result");
    assert_eq!(
        results[0]["output"],
        json!({"primes": 78_498}),
        "{resumed:?}"
    );
    // The tool does not say that it only reads; and it was not called again.
    assert!(of(&events, "tool_start").is_empty(), "{resumed:?}");
    assert_eq!(files(&host).len(), 1);
}

#[test]
fn statement_000_69_a_cancelled_run_tells_its_job_to_stop() {
    let Some(host) = host("") else { return };
    // Minutes of work.
    let endpoint = endpoint(100_000_000);
    let url = endpoint.base_url();
    let printed = host.path().join("stdout");
    let task = "How many primes are below a hundred million?";
    let mut child = host
        .command(&["run", task, "--base-url", &url, "--model", "m", "--json"])
        .stdout(std::fs::File::create(&printed).unwrap())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let run = support::until("an event of the job", || {
        let text = std::fs::read_to_string(&printed).unwrap();
        let (lines, _) = text.rsplit_once('\n')?;
        let jobs = events(lines);
        let job = of(&jobs, "job").first().map(|job| job["run"].clone());
        Some(job?.as_str()?.to_owned())
    });
    let cancelled = host.run(&["runs", "cancel", &run]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    child.wait().unwrap();
    // It removes the file of its job.
    assert_eq!(files(&host), [] as [String; 0]);
}
