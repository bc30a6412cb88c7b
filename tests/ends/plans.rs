//! Calls of `plan run`. `run` and `resume` at a terminal go the same way.

use super::{CutTool, SPIN, newest_run, recorded};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio as Pipe;
use support::host::{finish, signal};

#[test]
fn a_plan_that_runs_out_of_time_ends_its_calls() {
    outlast_the_time_of_plans(SPIN);
}

pub(super) fn outlast_the_time_of_plans(cut: CutTool) {
    cut.with_each_call_of_plans(|tool, arguments| {
        let host = cut.host("[run]\ntimeout_ms = 4_000\n");
        let mut step = arguments;
        step["_tool"] = tool.into();
        host.write("plan.json", json!([step]).to_string());
        let done = host.run(&["plan", "run", "plan.json", "--json"]);
        let events: Vec<Value> = done
            .stdout
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        cut.end(&events);
        assert_eq!(events.last().unwrap()["reason"], "timeout", "{done:?}");
        assert_eq!(cut.row(&host)["status"], "interrupted");
    });
}

/// Stops `plan run` while its call runs. The next process that opens the database writes the row of one that was killed. A
/// process that Ctrl-C parks writes the row itself; resuming or ending the run writes no second one.
#[test]
fn a_plan_whose_process_is_stopped_ends_its_calls() {
    stop_plans(SPIN, &STOPS);
}

/// Stops of a process: the stop, the exit code, words that are printed, and the status of the row.
pub(super) const STOPS: [(&str, Option<i32>, &str, &str); 4] = [
    ("park", Some(130), "parked:", "interrupted"),
    ("end", Some(130), "cancelled:", "interrupted"),
    ("KILL", None, "", "interrupted"),
    ("revoke", Some(5), "taken back", "error"),
];

pub(super) fn stop_plans(cut: CutTool, stops: &[(&str, Option<i32>, &str, &str)]) {
    for &(stop, code, words, status) in stops {
        cut.with_each_call_of_plans(|tool, arguments| {
            let host = cut.host(cut.granting);
            let mut step = arguments;
            step["_tool"] = tool.into();
            host.write("plan.json", json!([step]).to_string());
            let mut command = host.command(&["plan", "run", "plan.json", "--json"]);
            let child = command.stdout(Pipe::piped()).stderr(Pipe::piped()).spawn();
            let mut child = child.expect("it starts");
            let run = newest_run(&host);
            cut.until_it_runs(&host, &run, tool);
            let mut told = String::new();
            match stop {
                "revoke" => (cut.take_back)(&host),
                "KILL" => signal(child.id(), stop),
                _ => signal(child.id(), "INT"),
            }
            if stop == "end" {
                let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
                while !told.contains("Ctrl-C again") {
                    assert_ne!(said.read_line(&mut told).expect("text"), 0, "{told}");
                }
                signal(child.id(), "INT");
                said.read_to_string(&mut told).expect("text");
            }
            let done = finish(child.wait_with_output().expect("it ends"));
            assert_eq!(done.code, code, "{stop} {tool}: {done:?} {told}");
            let all = [told, done.stdout, done.stderr].concat();
            assert!(all.contains(words), "{stop} {tool}: {all}");
            assert_eq!(cut.row(&host)["status"], status, "{stop} {tool}");
            let events = || recorded(&host, &run);
            match stop {
                "park" => {
                    host.run(&["resume", &run]);
                    cut.end(&events());
                    assert_eq!(cut.row(&host)["status"], status, "one row for one begin");
                }
                "end" => {
                    assert_eq!(cut.end(&events())["error"]["kind"], "unfinished");
                    assert_eq!(events().last().unwrap()["reason"], "cancelled");
                }
                "revoke" => assert_eq!(cut.end(&events())["error"]["kind"], "revoked"),
                _ => return,
            }
            assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0), "{stop}");
        });
    }
}
