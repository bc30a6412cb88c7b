//! Calls of no run that continue as a job: of an MCP client, and of a person at the terminal. A killed process leaves its
//! jobs to their modules, and nothing asks about them any more.

use super::of_no_run::{
    CANCEL, CLOSE, INT, KILL, REVOKE, Stop, stop_call_of_a_client, stop_call_of_a_person,
    until_it_begins,
};
use super::{CONFIG, SPIN, at_once, host_with};
use serde_json::Value;
use std::time::Duration;
use support::host::Host;
use support::until;
use toolhold_hostile::liar::{JobAnswers, JobLies, with_jobs};
use toolhold_hostile::processor_time_of;

/// The time of jobs is over.
const TIME: Stop = (
    "time",
    "timeout_ms = 1_500\n",
    "error",
    "job_deadline",
    "was not over in the time",
);

/// Processor time that a process takes only in a question about the job: it has nothing else to do.
const QUESTION: Duration = Duration::from_millis(300);

/// A host whose tool continues as a job, with this further configuration of `[jobs]`.
fn host(asked: JobAnswers, config: &str) -> Host {
    let lies = JobLies {
        tool: "spin",
        asked,
        ..JobLies::default()
    };
    let component = with_jobs(&lies).expect("a component");
    host_with(
        component,
        &format!("{CONFIG}[jobs]\nbackoff_ms = 20\n{config}"),
    )
}

/// Until the process computes in a question about the job, which has no end.
fn until_the_job_is_asked_about(host: &Host, process: u32, tool: &str) {
    until_it_begins(host, process, tool);
    let before = processor_time_of(process).expect("it lives");
    until("a question about the job", || {
        (processor_time_of(process)? >= before + QUESTION).then_some(())
    });
}

#[test]
fn jobs_of_an_mcp_client_end_with_their_calls() {
    at_once([CANCEL, CLOSE, KILL], |stop| {
        stop_jobs(stop, |host, call| {
            stop_call_of_a_client(host, call, stop, until_the_job_is_asked_about);
        });
    });
}

#[test]
fn jobs_of_an_mcp_client_whose_grant_is_taken_back_end() {
    stop_jobs(REVOKE, |host, call| {
        stop_call_of_a_client(host, call, REVOKE, until_the_job_is_asked_about);
    });
}

#[test]
fn jobs_of_an_mcp_client_that_run_out_of_time_end() {
    SPIN.with_each_call(|tool, arguments| {
        let host = host(JobAnswers::Works, TIME.1);
        stop_call_of_a_client(&host, (tool, arguments), TIME, until_it_begins);
    });
}

#[test]
fn jobs_of_a_person_end_with_their_calls() {
    at_once([INT, KILL], |stop| {
        stop_jobs(stop, |host, call| {
            stop_call_of_a_person(host, call, stop, until_the_job_is_asked_about);
        });
    });
}

#[test]
fn jobs_of_a_person_whose_grant_is_taken_back_end() {
    stop_jobs(REVOKE, |host, call| {
        stop_call_of_a_person(host, call, REVOKE, until_the_job_is_asked_about);
    });
}

#[test]
fn jobs_of_a_person_that_run_out_of_time_end() {
    SPIN.with_each_call(|tool, arguments| {
        let host = host(JobAnswers::Works, TIME.1);
        stop_call_of_a_person(&host, (tool, arguments), TIME, until_it_begins);
    });
}

/// Stops calls that continue as jobs, questions about which have no end.
fn stop_jobs(stop: Stop, stop_call: impl Fn(&Host, (&str, Value)) + Sync) {
    SPIN.with_each_call(|tool, arguments| {
        stop_call(&host(JobAnswers::Spins, stop.1), (tool, arguments));
    });
}
