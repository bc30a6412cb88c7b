//! The language of a task, in which the model answers and the host speaks to the user, and the decisions in it that a
//! summary of the conversation keeps.

use super::LANGUAGES;
use crate::mission::{ask, server};
use serde_json::json;
use support::transcript::{answers, told};
use toolhold_agent::context::ConversationSummary;
use toolhold_agent::language::recognise;
use toolhold_agent::user_text::UserText;
use toolhold_protocol::context::Message;

const CARD: &str = "5500-0055-5555-5559";

/// Maximum bytes of a summary: less than a third of what was said.
const SUMMARY_BYTES: usize = 400;

#[test]
fn statement_042_3_tasks_are_recognised_and_refused_in_eight_languages() {
    let policy = "[shields.cards]\nkind = \"pii\"\nblock = [\"card\"]\nplaces = [\"input\"]\n";
    let (_host, endpoint, server) = server(policy, LANGUAGES.iter().map(|_| answers("ok")));
    for (at, case) in LANGUAGES.iter().enumerate() {
        let language = case.language;
        let answer = server.post("/v1/agent", &ask(case.task)).good();
        assert_eq!(answer["language"], case.tag, "{language}: {answer}");
        // A model needs not be told to stay in English.
        let told = told(&endpoint, at).to_lowercase();
        let instruction = "the language of the task is ";
        let is_told = told.contains(&format!("{instruction}{language}:"));
        assert_eq!(is_told, case.tag != "en", "{language}: {told}");
        assert_eq!(is_told, told.contains(instruction), "{language}: {told}");

        let task = format!("{} {}", case.task, case.beside_letters(CARD));
        let asked = json!({"model": "default", "messages": [{"role": "user", "content": task}]});
        let answer = server.post("/v1/chat/completions", &asked).good();
        let text = &answer["choices"][0]["message"]["content"];
        let expected = UserText::Blocked.in_language(Some(case.tag));
        assert_eq!(*text, expected, "{language}: {answer}");
        assert_eq!(recognise(expected), Some(case.texts), "{language}");
        // Streams have the same text.
        for (path, input) in [
            ("/v1/chat/completions", "messages"),
            ("/v1/responses", "input"),
        ] {
            let mut streamed = json!({"model": "default", "stream": true});
            streamed[input] = asked["messages"].clone();
            let events = server.post(path, &streamed).text;
            assert!(events.contains(expected), "{path} {language}: {events}");
        }
    }
    // What was blocked was sent nowhere.
    assert_eq!(endpoint.requests().len(), LANGUAGES.len());
}

#[test]
fn statement_042_1_summaries_keep_decisions_in_eight_languages() {
    for case in &LANGUAGES {
        let mut summary = ConversationSummary::default();
        summary.add(&Message::user(case.decision), str::to_owned);
        for n in 0..100 {
            let talk = format!("{} {n}", case.other);
            summary.add(&Message::user(talk), str::to_owned);
        }
        assert!(summary.trim(SUMMARY_BYTES), "{}", case.language);
        let mut lines = summary.message().lines.iter();
        assert!(
            lines.any(|line| line.text == case.decision),
            "{}: {:?}",
            case.language,
            summary.message()
        );
    }
}
