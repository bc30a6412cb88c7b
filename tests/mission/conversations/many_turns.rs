//! 300 turns by each way into the host, in each language. `.ci/run` has one of these conversations, and thirty longer turns by
//! each way (`mod.rs`). All of them take minutes, so `cargo xtask test --long` has them.

use super::{
    RUSSIAN, TALKS, Talk, endpoint, host, replays, serve, session, talk_at_terminal,
    talk_in_completions, talk_in_responses, talk_in_session, types,
};
use support::endpoint::Endpoint;
use support::host::Host;

const TURNS: usize = 300;

/// Has a conversation of [`TURNS`] turns, each of which is answered.
type ConversationWay = fn(&Host, &Endpoint, Talk);

fn by_session(host: &Host, endpoint: &Endpoint, talk: Talk) {
    let server = serve(host, endpoint);
    let turns = session(&server);
    talk_in_session(&server, &turns, talk, TURNS, 1);
}

fn by_completions(host: &Host, endpoint: &Endpoint, talk: Talk) {
    talk_in_completions(&serve(host, endpoint), talk, TURNS, 1);
}

fn by_responses(host: &Host, endpoint: &Endpoint, talk: Talk) {
    talk_in_responses(&serve(host, endpoint), talk, TURNS, 1);
}

fn by_terminal(host: &Host, endpoint: &Endpoint, talk: Talk) {
    talk_at_terminal(host, endpoint, talk, TURNS, 1);
}

/// The request of the last turn has the fact of the third, in each language.
fn hold_in_each_language(way: ConversationWay) {
    for talk in TALKS {
        let (host, endpoint) = (host(), endpoint(talk));
        way(&host, &endpoint, talk);
        assert_eq!(endpoint.requests().len(), TURNS);
        talk.holds(&endpoint);
    }
}

#[test]
fn statement_000_51_a_session_of_300_turns_keeps_a_fact_of_its_third() {
    let (host, endpoint) = (host(), endpoint(RUSSIAN));
    let server = serve(&host, &endpoint);
    let turns = session(&server);
    let last = talk_in_session(&server, &turns, RUSSIAN, TURNS, 1);
    assert_eq!(endpoint.requests().len(), TURNS);
    RUSSIAN.holds(&endpoint);
    // One summary, made longer and not beside another one, and few messages beside it.
    let run = last["id"].as_str().unwrap();
    let types = types(&host, run);
    assert_eq!(
        types.iter().filter(|name| *name == "summary").count(),
        1,
        "{types:?}"
    );
    assert!(types.len() < 100, "{types:?}");
    replays(&host, run);
}

#[test]
#[ignore = "cargo xtask test --long has all languages"]
fn statement_000_51_sessions_of_300_turns_in_each_language() {
    hold_in_each_language(by_session);
}

#[test]
#[ignore = "cargo xtask test --long has all languages"]
fn statement_000_51_chat_completions_of_300_turns_in_each_language() {
    hold_in_each_language(by_completions);
}

#[test]
#[ignore = "cargo xtask test --long has all languages"]
fn statement_000_51_responses_of_300_turns_in_each_language() {
    hold_in_each_language(by_responses);
}

#[test]
#[ignore = "cargo xtask test --long has all languages"]
fn statement_000_51_chats_at_the_terminal_of_300_turns_in_each_language() {
    hold_in_each_language(by_terminal);
}
