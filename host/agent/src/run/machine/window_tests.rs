//! Replies that are given less than the run says, or more, and replies that break off: driven by hand, and
//! run again from the record.

use super::*;
use crate::run::replay::replay;
use toolhold_model::chat::ChatRequest;
use toolhold_protocol::completion::{Completion, ContextOverflow, Delta, Usage};
use toolhold_protocol::cost::{Amount, Price};
use toolhold_protocol::event::{Event, RunFailure, Seal};
use toolhold_protocol::settings::Settings;

struct Play {
    machine: Machine,
    events: Vec<Event>,
    asked: Vec<ChatRequest>,
}

impl Play {
    fn begin(change: impl FnOnce(&mut Settings)) -> Self {
        let mut request = RunRequest::new(uuid::Uuid::now_v7(), "task");
        change(&mut request.settings);
        let machine = Machine::new(request, "model".into(), Arc::default(), Vec::new());
        let mut play = Self {
            machine: machine.unwrap(),
            events: Vec::new(),
            asked: Vec::new(),
        };
        play.tell(Input::Start);
        play
    }

    fn tell(&mut self, input: Input) {
        let effects = self.machine.handle(input, Duration::ZERO);
        for kind in effects.events {
            if kind.is_shown_only() {
                continue;
            }
            self.events.push(Event {
                run: self.machine.request().id,
                seq: self.events.len() as u64,
                at_ms: 0,
                kind,
                removed: None,
                seal: Seal::default(),
            });
        }
        for action in effects.actions {
            if let Action::Ask { request, .. } = action {
                self.asked.push(*request);
            }
        }
    }

    fn refused(&mut self, prompt_tokens: Option<u64>, window: u64) {
        let overflow = ContextOverflow {
            prompt_tokens,
            window: Some(window),
            ..ContextOverflow::default()
        };
        self.tell(Input::ModelFailed(RunFailure {
            overflow: Some(overflow),
            ..RunFailure::new(ErrorClass::Correctable, "it is too long")
        }));
    }

    /// A reply that was cut, and what had been thought and said by then.
    fn cut(&mut self, reasoning: &str, content: &str) {
        self.tell(Input::Replied(Completion {
            content: content.into(),
            reasoning: reasoning.into(),
            finish_reason: Some("length".into()),
            usage: Some(USAGE),
            ..Completion::default()
        }));
    }

    fn breaks(&mut self, took_ms: Option<u64>) {
        self.tell(Input::ModelFailed(RunFailure {
            took_ms,
            ..RunFailure::new(ErrorClass::Retryable, "it broke off")
        }));
    }

    fn says(&mut self, content: &str) {
        self.tell(Input::Replied(Completion {
            content: content.into(),
            usage: Some(USAGE),
            duration: Duration::from_millis(500),
            ..Completion::default()
        }));
    }

    fn limits(&self) -> Vec<u32> {
        let limits = self.asked.iter().filter_map(|request| request.max_tokens);
        limits.collect()
    }

    /// Tokens of the first prompt, as they are estimated.
    fn prompt(&self) -> u64 {
        let prompt = self.events.iter().find_map(|event| match &event.kind {
            EventKind::Budget { parts, .. } => Some(parts.total()),
            _ => None,
        });
        prompt.unwrap()
    }

    fn notices(&self) -> String {
        let notices = self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Notice { message, .. } => Some(message.clone()),
            EventKind::UnusableReply(reply) => Some(reply.to_string()),
            _ => None,
        });
        notices.collect::<Vec<_>>().join("\n")
    }

    fn done(&self) -> Option<(StopReason, Option<Amount>)> {
        match &self.events.last()?.kind {
            EventKind::Done {
                reason, cost_nano, ..
            } => Some((*reason, *cost_nano)),
            _ => None,
        }
    }

    /// The record comes to the same again.
    fn holds(&self) {
        let kept = serde_json::to_string(&self.events).unwrap();
        let events: Vec<Event> = serde_json::from_str(&kept).unwrap();
        let replayed = replay(&events).unwrap();
        assert!(replayed.unsaid.is_empty(), "{:?}", replayed.unsaid);
    }
}

const USAGE: Usage = Usage {
    prompt_tokens: 100,
    completion_tokens: 500,
    cached_prompt_tokens: None,
};
const DONE: &str = r#"{"calls":[],"output":"done"}"#;

fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}

fn of_tokens() -> Price {
    Price::Tokens {
        prompt: amount("1"),
        cached: amount("1"),
        completion: amount("1"),
    }
}

#[test]
fn a_request_that_is_refused_leaves_its_reply_what_there_is() {
    let mut play = Play::begin(|_| ());
    play.refused(Some(3_200), 4_096);
    assert_eq!(play.limits(), [1_024, 895]);
    assert!(play.notices().contains("895 tokens for the reply"));
    let again = play.asked.iter().map(|request| &request.messages);
    let again: Vec<_> = again.collect();
    assert_eq!(again[0], again[1], "nothing else is different");
    // A step later the reply may take what it may.
    play.says("no JSON");
    assert_eq!(play.limits(), [1_024, 895, 1_024]);
    play.says(DONE);
    assert_eq!(
        play.done().map(|(reason, _)| reason),
        Some(StopReason::Output)
    );
    play.holds();
}

#[test]
fn it_is_tried_once_and_not_for_too_little() {
    let mut twice = Play::begin(|_| ());
    twice.refused(Some(3_200), 4_096);
    twice.refused(Some(3_200), 4_096);
    let mut little = Play::begin(|_| ());
    little.refused(Some(3_900), 4_096);
    for (play, asked) in [(&twice, 2), (&little, 1)] {
        assert_eq!(play.asked.len(), asked);
        assert_eq!(
            play.done().map(|(reason, _)| reason),
            Some(StopReason::Model)
        );
        play.holds();
    }
}

/// An endpoint that tells its window and not how long the prompt was.
#[test]
fn an_uncounted_prompt_is_estimated() {
    let mut play = Play::begin(|_| ());
    play.refused(None, play.prompt() + 600);
    let limits = play.limits();
    assert_eq!(limits.len(), 2, "{}", play.notices());
    assert!((256..600).contains(&limits[1]), "{limits:?}");
    play.holds();
}

#[test]
fn thoughts_that_were_cut_are_given_more() {
    for (reasoning, content) in [("Let me see", ""), ("", "<think>Let me see"), ("", "")] {
        let mut play = Play::begin(|settings| settings.max_unusable = 5);
        for _ in 0..5 {
            play.cut(reasoning, content);
        }
        // No more than four times as much.
        assert_eq!(
            play.limits(),
            [1_024, 2_048, 4_096, 4_096, 4_096],
            "{content}"
        );
        let told = play.notices();
        assert_eq!(told.matches("up to 2048 tokens").count(), 1, "{told}");
        assert_eq!(told.matches("up to 4096 tokens").count(), 1, "{told}");
        let rejected = serde_json::to_string(&play.events).unwrap();
        assert!(
            rejected.contains("cut at the limit of 2048 tokens"),
            "{told}"
        );
        assert_eq!(
            play.done().map(|(reason, _)| reason),
            Some(StopReason::Unusable)
        );
        play.holds();
    }
}

#[test]
fn a_chosen_limit_is_never_raised() {
    for chosen in [500, 1_024] {
        let mut play = Play::begin(|settings| {
            settings.max_tokens = chosen;
            if chosen == 1_024 {
                settings.assumed_max_tokens = None;
            }
        });
        play.cut("Let me see", "");
        assert_eq!(play.limits(), [chosen, chosen]);
        play.holds();
    }
    // An answer that was cut may be shorter.
    let mut play = Play::begin(|_| ());
    play.cut("Hm.", r#"{"calls":[],"output":"Once upon a time"#);
    assert_eq!(play.limits(), [1_024, 1_024]);
    play.holds();
}

#[test]
fn more_is_given_as_far_as_window_and_budget_go() {
    let prompt = Play::begin(|_| ()).prompt();
    let window = (prompt + 1_600) * 20 / 19;
    let budget = prompt + USAGE.total() + 1_500;
    let mut of_window = Play::begin(|settings| settings.window.tokens = Some(window));
    let mut of_budget = Play::begin(|settings| settings.token_budget = Some(budget));
    for play in [&mut of_window, &mut of_budget] {
        play.cut("Let me see", "");
        let limits = play.limits();
        assert!((1_025..2_048).contains(&limits[1]), "{limits:?}");
        play.holds();
    }
    // There was no room for twice as much, so there is none for four times as much.
    of_window.cut("Let me see", "");
    let told = of_window.notices();
    assert!(!told.contains("4096"), "{told}");
}

#[test]
fn the_cost_of_a_broken_reply_is_unknown() {
    let begun = || Input::Wrote(Delta::Content("{\"ca".into()));
    let tokens = |play: &Play| {
        let told = play.events.iter();
        told.filter(|event| matches!(event.kind, EventKind::Tokens { .. }))
            .count()
    };
    let mut play = Play::begin(|settings| settings.price = Some(of_tokens()));
    play.tell(begun());
    play.breaks(Some(1_500));
    play.says(DONE);
    assert_eq!(play.done(), Some((StopReason::Output, None)));
    assert_eq!(tokens(&play), 2);
    play.holds();

    // The host's own code failed, so the time is not known.
    let mut crashed = Play::begin(|settings| settings.price = Some(of_tokens()));
    crashed.tell(begun());
    crashed.breaks(None);
    crashed.says(DONE);
    assert_eq!(
        crashed.done(),
        Some((StopReason::Output, Some(amount("0.0006"))))
    );
    assert_eq!(tokens(&crashed), 1);
    crashed.holds();

    // Nothing was written, so nothing is owed.
    let mut play = Play::begin(|settings| settings.price = Some(of_tokens()));
    play.breaks(Some(1_500));
    assert_eq!(play.done(), Some((StopReason::Model, Some(Amount::ZERO))));
    play.holds();
}

/// 3.60 an hour is 0.001 a second.
#[test]
fn time_tells_what_a_reply_cost_that_broke_off() {
    let mut play = Play::begin(|settings| {
        settings.price = Some(Price::Time {
            gpu_hour: amount("3.60"),
            gpus: 1,
            in_flight: 1,
        });
        settings.max_cost = Some(amount("1"));
    });
    play.tell(Input::Wrote(Delta::Content("{\"ca".into())));
    play.breaks(Some(1_500));
    play.says(DONE);
    assert_eq!(
        play.done(),
        Some((StopReason::Output, Some(amount("0.002"))))
    );
    play.holds();
}

#[test]
fn a_cap_on_money_holds_where_a_reply_broke_off() {
    let mut play = Play::begin(|settings| {
        settings.price = Some(of_tokens());
        settings.max_cost = Some(amount("1"));
    });
    play.tell(Input::Wrote(Delta::Content("{\"ca".into())));
    play.breaks(Some(1_500));
    assert_eq!(play.done(), Some((StopReason::MaxCost, None)));
    assert_eq!(play.asked.len(), 1);
    play.holds();
}
