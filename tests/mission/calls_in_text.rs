//! Calls that model servers leave in the text of a reply, in forms that no server parsed.

use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::transcript::Transcript;

const FORM: &str = "<|new_call|>{\"name\": \"calculator-evaluate\", \"arguments\": {\"expression\": \"6*7\"}}<|/new_call|>";

fn transcript(replies: impl IntoIterator<Item = Reply>) -> (Endpoint, Transcript) {
    let host = Host::new();
    host.ship("calculator");
    let endpoint = Endpoint::start(Scenario::new(replies));
    let arguments = ["run", "What is 6*7?", "--contract", "tools"];
    let transcript = Transcript::of(&host, &endpoint, &arguments);
    (endpoint, transcript)
}

#[test]
fn statement_043_a3_a_call_between_unknown_marks_is_made() {
    let (_endpoint, transcript) = transcript([Reply::content(FORM), Reply::content("It is 42.")]);
    assert_eq!(transcript.result("calculator.evaluate")["value"], "42");
    assert_eq!(transcript.output(), "It is 42.");
}

#[test]
fn statement_043_a3_marks_that_cannot_be_read_go_back() {
    let unread = "<x_call>calculator-evaluate: 6*7</x_call>";
    let (endpoint, transcript) = transcript([Reply::content(unread), Reply::content("It is 42.")]);
    assert_eq!(transcript.results("calculator.evaluate").len(), 0);
    assert_eq!(transcript.output(), "It is 42.");
    let told = endpoint.requests()[1].to_string();
    assert!(told.contains("looks like a call"), "{told}");
}
