use super::*;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;
use std::sync::Arc;
use toolhold_agent::contract::{RequestView, read};
use toolhold_policy::ErrorClass;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::compose::Composition;
use toolhold_protocol::event::{RunFailure, UnusableReply};
use toolhold_protocol::knowledge::Retrieval;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::solution::Solution;
use toolhold_protocol::tool::Tool;
use uuid::Uuid;

fn said(contract: Contract, pieces: &[&str]) -> String {
    let mut answer_stream = AnswerStream::new(contract);
    pieces
        .iter()
        .map(|piece| answer_stream.push(piece))
        .collect()
}

#[test]
fn the_answer_is_heard_and_nothing_else() {
    for (reply, answer) in [
        (r#"{"calls": [], "output": "Hello"}"#, "Hello"),
        (
            r#"{"calls": [{"_tool": "t", "output": "no"}], "output": null}"#,
            "",
        ),
        (r#"{"output": {"output": "no"}}"#, ""),
        (r#"{"final_answer": "a \"b\" \\ \n c"}"#, "a \"b\" \\ \n c"),
        (r#"{"reason": "output", "output": "yes"}"#, "yes"),
        (r#"{"output": "\ud83e\udd80!", "output": "twice"}"#, "🦀!"),
        (r#"```json {"output": "fenced"}"#, "fenced"),
        (r#"{"output": "bad \x escape"}"#, "bad "),
        (
            r#"{"output": "half a pair: \ud83dA\ude00"}"#,
            "half a pair: ",
        ),
        (r#"{"output": "half a pair: \ude00A"}"#, "half a pair: "),
        (r#"{"output": "half a pair: \ud83d"}"#, "half a pair: "),
        (r#"{"output": "no digits: \u+041"}"#, "no digits: "),
        ("no JSON at all", ""),
    ] {
        assert_eq!(said(Contract::Schema, &[reply]), answer, "{reply}");
        let letters: Vec<String> = reply.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(said(Contract::Schema, &letters), answer, "{reply}");
    }
    assert_eq!(said(Contract::Tools, &["plain ", "{text}"]), "plain {text}");
    for (reply, answer) in [
        (r#"{"tool_name": "t", "final_answer": "no"}"#, ""),
        (r#"{"output": "no"} {"final_answer": "yes"}"#, ""),
        (r#"{"final_answer": "yes"}"#, "yes"),
    ] {
        assert_eq!(said(Contract::Simple, &[reply]), answer, "{reply}");
    }
    let beside = r#"{"calls": [{"_tool": "t"}], "output": "no"}"#;
    assert_eq!(said(Contract::Schema, &[beside]), "");
}

/// Wherever the text is cut.
#[test]
fn neither_thoughts_nor_white_space_nor_calls_around_a_text_are_the_answer() {
    for (text, answer) in [
        ("hello world\n", "hello world"),
        ("\n\nhello\n\nworld ", "hello\n\nworld"),
        ("```py\nx=1\n```\n", "```py\nx=1\n```"),
        ("<think>hm, 7?</think>\nIt is 4.", "It is 4."),
        (
            "<think>a</think>\n<reasoning>b</reasoning>\n\nIt is 4.\n",
            "It is 4.",
        ),
        ("<think>It never ends", ""),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|return|>",
            "It is 4.",
        ),
        (
            "I look.\n<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>",
            "I look.",
        ),
        ("I look.\n</s>\n[TOOL_CALLS][{", "I look."),
        ("a < b [c] `d` <e>", "a < b [c] `d` <e>"),
        // Quotations, and a call behind one.
        (
            "It writes `<tool_call>` and <tools> there.\n```\n[TOOL_CALLS][]\n```\nThat is all.",
            "It writes `<tool_call>` and <tools> there.\n```\n[TOOL_CALLS][]\n```\nThat is all.",
        ),
        (
            "I use `<tool_call>`:\n<tool_call>{\"name\":",
            "I use `<tool_call>`:",
        ),
        (
            "I use marks:\n<tool_call> begins a call.\n</tool_call> ends it.\n",
            "I use marks:\n<tool_call> begins a call.\n</tool_call> ends it.",
        ),
    ] {
        for (at, _) in text.char_indices() {
            let (head, tail) = text.split_at(at);
            let heard = said(Contract::Tools, &[head, tail]);
            assert_eq!(heard, answer, "{text} at {at}");
        }
    }
    let thought = "<think>{\"output\": \"no\"}</think>{\"output\": \"yes\"}";
    assert_eq!(said(Contract::Schema, &[thought]), "yes");
}

/// A piece of a call is no piece of an answer, wherever the text is cut.
#[test]
fn text_that_may_be_a_call_is_held() {
    for text in [
        "<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>",
        " \n<|tool_call_start|>[news(q=1)]<|tool_call_end|>",
        "<|new_call|>{\"name\": \"news\", \"arguments\": {}}<|/new_call|>",
        "[TOOL_REQUEST]{\"name\": \"news\"}[END_TOOL_REQUEST]",
        "<answer>{\"name\": \"news\", \"arguments\": {}}</answer>",
        "</s><tool_calls>[",
        "<|new",
    ] {
        for (at, _) in text.char_indices() {
            let (head, tail) = text.split_at(at);
            assert_eq!(said(Contract::Tools, &[head, tail]), "", "{text} at {at}");
        }
        let mut answer_stream = AnswerStream::new(Contract::Tools);
        answer_stream.push(text);
        assert_eq!(answer_stream.rest(text, true), AnswerRest::More(text));
    }
}

/// A member of its arguments may have the name of the answer's.
#[test]
fn arguments_of_a_call_between_marks_are_no_answer_in_json() {
    for text in [
        "<function=convert>{\"input\": \"a\", \"output\": \"b\"}</function>",
        "<tool_call>convert\n{\"output\": \"b\"}</tool_call>",
        "</s>\n[TOOL_CALLS]convert{\"final_answer\": \"b\"}",
        // Behind a sentence, at the begin of a line, and behind another object.
        "I convert it.\n<function=convert>{\"input\": \"a\", \"output\": \"b\"}</function>",
        "I convert it: [TOOL_CALLS]convert{\"output\": \"b\", \"final_answer\": \"b\"}",
        "{\"a\": 1}\n<tool_call>convert\n{\"output\": \"b\", \"final_answer\": \"b\"}</tool_call>",
        "<answer><tool_call>{\"output\": \"b\", \"final_answer\": \"b\"}</tool_call></answer>",
        // Within a sentence.
        "I convert it: <function=convert>{\"output\": \"b\", \"final_answer\": \"b\"}</function>",
        "Then <tool_call>convert\n{\"output\": \"b\", \"final_answer\": \"b\"}</tool_call> is next.",
        "I write <tools>{\"output\": \"b\", \"final_answer\": \"b\"}</tools>",
    ] {
        for contract in [Contract::Schema, Contract::Simple] {
            for (at, _) in text.char_indices() {
                let (head, tail) = text.split_at(at);
                assert_eq!(said(contract, &[head, tail]), "", "{text} at {at}");
            }
        }
    }
    for text in [
        " {\"final_answer\": \"a\"}",
        "```json\n{\"final_answer\": \"a\"}\n```",
        "I know: {\"final_answer\": \"a\"}",
        "<p>{\"final_answer\": \"a\"}",
        "I know `<tool_call>` and [it]:\n{\"final_answer\": \"a\"}",
        "I know <tool_call> and then:\n{\"final_answer\": \"a\"}",
        "I know it.\n<tool_call> is a mark:\n{\"final_answer\": \"a\"}",
        "{\"b\": \"\\n<tool_call>\", \"final_answer\": \"a\"}",
        // Marks that are not of calls.
        "<json>{\"final_answer\": \"a\"}</json>",
        "<answer>\n{\"final_answer\": \"a\"}\n</answer>",
    ] {
        for (at, _) in text.char_indices() {
            let (head, tail) = text.split_at(at);
            assert_eq!(said(Contract::Simple, &[head, tail]), "a", "{text} at {at}");
        }
    }
}

#[test]
fn other_text_is_streamed_when_it_is_known() {
    for (text, at) in [
        // `Here` may begin a mark of Granite.
        ("Hello", "Hel"),
        (" \nHello", " \nHel"),
        ("No", "N"),
        ("<p>Hello</p>", "<p>"),
        ("< 5", "< "),
        ("[WARNING] It", "[WARNING]"),
        ("[1, 2]", "[1"),
        ("```rust", "```r"),
        ("<answer>It is 4.", "<answer>It "),
        ("<think>So</think>It", "<think>So</think>I"),
        ("- a list", "-"),
    ] {
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        let shown = text.strip_prefix("<think>So</think>").unwrap_or(text);
        assert_eq!(said(Contract::Tools, &letters), shown.trim());
        let mut answer_stream = AnswerStream::new(Contract::Tools);
        let mut read = String::new();
        let first = letters.iter().find(|letter| {
            read.push_str(letter);
            !answer_stream.push(letter).is_empty()
        });
        assert!(first.is_some(), "{text}");
        assert_eq!(read, at, "{text}");
    }
}

fn event(kind: serde_json::Value) -> EventKind {
    serde_json::from_value(kind).unwrap()
}

fn request(step: u32) -> EventKind {
    event(json!({"event": "request", "step": step, "body": {}}))
}

fn started(step: u32) -> EventKind {
    event(
        json!({"event": "tool_start", "step": step, "id": "a", "tool": "m.write", "arguments": {}}),
    )
}

fn wrote(text: &str) -> EventKind {
    EventKind::Delta {
        step: 1,
        delta: Delta::Content(text.to_owned()),
        from: None,
    }
}

fn settings() -> Settings {
    Settings {
        contract: Contract::Tools,
        ..Settings::default()
    }
}

/// A run with these settings and tools.
fn stream_of(settings: Settings, tools: Vec<Bound>) -> AnswerStream {
    let request = RunRequest {
        settings,
        ..RunRequest::new(Uuid::nil(), "t")
    };
    AnswerStream::of(&request, &tools.into())
}

/// The text that these events give.
fn heard(answer_stream: &mut AnswerStream, events: &[EventKind]) -> String {
    let news = events.iter().map(|event| match answer_stream.take(event) {
        AnswerNews::Text(text) => text,
        AnswerNews::Aside => "|".into(),
        AnswerNews::Nothing => String::new(),
    });
    news.collect()
}

#[test]
fn nothing_is_streamed_before_a_call_that_has_to_be_made() {
    let must_call = Settings {
        must_call: true,
        ..settings()
    };
    let events = [
        request(1),
        wrote("I know."),
        request(2),
        wrote("I call."),
        started(2),
        request(3),
        wrote("It is 4."),
    ];
    let mut own = stream_of(must_call.clone(), Vec::new());
    assert_eq!(heard(&mut own, &events), "It is 4.");
    // A call that is not the client's is not the one.
    let bound = |name: &str, runner| Bound {
        tool: Tool::new(name).into(),
        runner,
    };
    let tools = vec![
        bound("own", Runner::Activity("own".into())),
        bound("weather", Runner::Client),
    ];
    let mut clients = stream_of(must_call, tools);
    assert_eq!(heard(&mut clients, &events), "");
}

/// Without a mark a call is all of a reply, so what begins otherwise is text.
#[test]
fn a_text_that_may_be_a_call_of_a_tool_is_held() {
    let tools = || {
        vec![Bound {
            tool: Tool::new("calculator.evaluate").into(),
            runner: Runner::Activity("calculator".into()),
        }]
    };
    for call in [
        r#"{"name": "calculator-evaluate", "arguments": {}}"#,
        "[calculator_evaluate(expression=\"1\")]",
        "```json\n{\"name\": \"calculator-evaluate\", \"arguments\": {}}\n```",
        "calculator-evaluate\n{}",
    ] {
        let mut answer_stream = stream_of(settings(), tools());
        let mut events = vec![request(1)];
        events.extend(call.chars().map(|c| wrote(&c.to_string())));
        events.extend([started(1), request(2), wrote("It is 42.")]);
        assert_eq!(heard(&mut answer_stream, &events), "It is 42.", "{call}");
        // No tool could be meant.
        let mut answer_stream = stream_of(settings(), Vec::new());
        let shown = heard(&mut answer_stream, &[request(1), wrote(call)]);
        assert!(!shown.is_empty(), "{call}");
    }
    let mut answer_stream = stream_of(settings(), tools());
    let events = [request(1), wrote("calculator-"), wrote("evaluate says 42.")];
    assert_eq!(
        heard(&mut answer_stream, &events),
        "calculator-evaluate says 42."
    );
    let mut answer_stream = stream_of(settings(), tools());
    let answer = r#"{"sky": "blue"}"#;
    assert_eq!(heard(&mut answer_stream, &[request(1), wrote(answer)]), "");
    assert_eq!(answer_stream.rest(answer, true), AnswerRest::More(answer));
}

fn news() -> Bound {
    Bound {
        tool: Tool::new("news").into(),
        runner: Runner::Activity("news".into()),
    }
}

#[test]
fn prose_behind_a_quoted_mark_is_streamed_before_the_reply_ends() {
    let text = "Models write marks.\n<tool_call> begins a call and </tool_call> ends it.\n\
        [TOOL_CALLS] is Mistral's.";
    for tools in [Vec::new(), vec![news()]] {
        let mut answer_stream = stream_of(settings(), tools);
        let mut shown = heard(&mut answer_stream, &[request(1)]);
        for (at, c) in text.char_indices() {
            shown += &heard(&mut answer_stream, &[wrote(&c.to_string())]);
            // A mark, and the words that tell.
            let held = at + c.len_utf8() - shown.len();
            assert!(held <= "\n<tool_call> begins ".len(), "{shown}");
        }
        assert_eq!(shown, text);
    }
}

/// The name of a tool between marks is a call without arguments.
#[test]
fn a_name_behind_a_mark_is_held_at_the_end() {
    let mut answer_stream = AnswerStream::new(Contract::Tools);
    let shown = answer_stream.push("I look.\n<tool_call>news");
    assert_eq!(shown, "I look.");
    assert_eq!(answer_stream.finish(), "");
    assert!(answer_stream.ends_at_call());
}

/// Text that quotes marks of calls.
const QUOTING: &[&str] = &[
    "It is so. ",
    "Sure! ",
    "I look: ",
    "a < b. ",
    "\n",
    " </s> ",
    "`<tool_call>` is a mark. ",
    "\n<tool_call> opens a call.",
    "\n\"<tool_call>\" is Hermes's. ",
    "\n[TOOL_CALLS] is a mark of Mistral. ",
    "\n```\n<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>\n```\n",
    "<function=NAME> is one. ",
    "\n<tool_calls> and </tool_calls> enclose calls (of all kinds). ",
    "\n<tool_call> (of Hermes) and <function= of Llama: \"news\". ",
    "Then <|channel|> is there. ",
];

/// Calls of `news` in the forms of many models, each at the begin of a line.
const CALLS: &[&str] = &[
    "\n<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>",
    "\n<tool_call>news</tool_call>",
    "\n<tool_call>news<arg_key>q</arg_key><arg_value>1</arg_value></tool_call>",
    "\n<tool_call>\n```json\n{\"name\": \"news\"}\n```\n</tool_call>",
    "\n<tools>{\"name\": \"news\"}</tools>",
    "\n<function_call>{\"name\": \"news\"}</function_call>",
    "\n<function=news>{}</function>",
    "\n<function=news><parameter=q>1</parameter></function>",
    "\n<invoke name=\"news\"><parameter name=\"q\">1</parameter></invoke>",
    "\n[TOOL_CALLS][{\"name\": \"news\"}]",
    "\n[TOOL_CALLS]news[ARGS]{}",
    "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>news\n```json\n{}\n```<｜tool▁call▁end｜>",
    "\n<｜DSML｜invoke name=\"news\"></｜DSML｜invoke>",
    "\n<|channel|>commentary to=functions.news <|constrain|>json<|message|>{}<|call|>",
    "\n<|tool_call_begin|>functions.news:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    "\n<|python_tag|>news(q=1)",
    "\n<|tool_call|>[{\"name\": \"news\"}]",
    "\n<|START_ACTION|>[{\"tool_name\": \"news\", \"parameters\": {}}]<|END_ACTION|>",
    "\n<|plugin|>{\"name\": \"news\"}<|action_end|>",
    "\n<start_function_call>call:news{}<end_function_call>",
    "\n<|tool_call>call:news{}<tool_call|>",
    "\n```tool_code\nprint(news(q=1))\n```",
    "\n<tool_calls>[{\"name\": \"news\"}]</tool_calls>",
    "\n<tool_calls><tool_call>news<tool_sep></tool_call></tool_calls>",
    "\n<function_calls>\nnews(q=1)\n</function_calls>",
    "\n<|tool_call_start|>[news(q=1)]<|tool_call_end|>",
    "\n<seed:tool_call><function=news></function></seed:tool_call>",
    "\n<longcat_tool_call>{\"name\": \"news\"}</longcat_tool_call>",
    "\n<TOOLCALL>[{\"name\": \"news\"}]</TOOLCALL>",
    "\n<|tools_prefix|>[{\"news\": {}}]<|tools_suffix|>",
    "\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"news\"></steptml:invoke>",
    "\n[unused11][{\"name\": \"news\"}][unused12]",
    "\n[TOOL_REQUEST]{\"name\": \"news\"}[END_TOOL_REQUEST]",
];

/// The solution in a complete reply.
fn whole(text: &str) -> Result<Solution, String> {
    let completion = Completion {
        content: text.to_owned(),
        ..Completion::default()
    };
    let view = RequestView {
        model: "",
        instructions: "",
        turns: &[],
        tools: &[Arc::new(Tool::new("news"))],
        output_schema: None,
        settings: &settings(),
        composition: Composition::default(),
    };
    read(Contract::Tools, &completion, &view)
}

/// [`CALLS`] are calls for the readers of complete replies.
#[test]
fn each_form_behind_a_sentence_is_a_call() {
    for call in CALLS {
        let solution = whole(&format!("It is so.{call}")).unwrap();
        let tools: Vec<_> = solution.calls.iter().map(|call| &call.tool).collect();
        assert_eq!(tools, ["news"], "{call}");
    }
}

#[test]
fn nothing_is_streamed_of_an_output_that_is_checked() {
    let plain = RunRequest {
        settings: settings(),
        ..RunRequest::new(Uuid::nil(), "t")
    };
    let of_schema = RunRequest {
        output_schema: Some(json!({})),
        ..plain.clone()
    };
    let cited = RunRequest {
        retrieval: Some(Retrieval {
            citations: CitationRule::Require,
            ..Retrieval::default()
        }),
        ..plain.clone()
    };
    let none = BoundTools::default();
    for (run, text) in [(plain, "Sorry"), (of_schema, ""), (cited, "")] {
        let mut answer_stream = AnswerStream::of(&run, &none);
        let events = [request(1), wrote("Sorry")];
        assert_eq!(heard(&mut answer_stream, &events), text);
        let answer = r#"{"name":"Bern"}"#;
        let rest = answer_stream.rest(answer, true);
        let expected = match text {
            "" => AnswerRest::More(answer),
            _ => AnswerRest::Contradiction,
        };
        assert_eq!(rest, expected);
    }
}

/// A text that the client has is never given twice.
#[test]
fn a_reply_after_one_that_broke_off_continues_its_text() {
    let broken = [request(1), wrote("The answer is ")];
    for (next, more, rest) in [
        (&["The answer is 42."][..], " 42.", AnswerRest::More("")),
        (&["The ans", "wer", " is 42."], " 42.", AnswerRest::More("")),
        (&["The an"], "", AnswerRest::More(" 42.")),
        (&["It is", " 42."], "", AnswerRest::Contradiction),
        (&["The answer: 42."], "", AnswerRest::Contradiction),
    ] {
        let mut answer_stream = stream_of(settings(), Vec::new());
        assert_eq!(heard(&mut answer_stream, &broken), "The answer is");
        let mut events = vec![request(1)];
        events.extend(next.iter().map(|text| wrote(text)));
        assert_eq!(heard(&mut answer_stream, &events), more, "{next:?}");
        let answer = match rest {
            AnswerRest::Contradiction => next.concat(),
            _ => "The answer is 42.".to_owned(),
        };
        assert_eq!(answer_stream.rest(&answer, true), rest, "{next:?}");
    }
    // Of a run that was stopped there is no other text.
    let mut answer_stream = stream_of(settings(), Vec::new());
    heard(&mut answer_stream, &broken);
    assert_eq!(
        answer_stream.rest("Out of time", false),
        AnswerRest::More("")
    );
}

#[test]
fn a_text_beside_calls_is_complete_and_not_the_answer() {
    let mut answer_stream = stream_of(settings(), Vec::new());
    // A call of an earlier step says nothing of this reply.
    let events = [request(2), wrote("I look."), started(1)];
    assert_eq!(heard(&mut answer_stream, &events), "I look.");
    assert_eq!(
        answer_stream.rest("It is 4.", true),
        AnswerRest::Contradiction
    );
    let events = [started(2), request(3), wrote("It is 4.")];
    assert_eq!(heard(&mut answer_stream, &events), "|It is 4.");
    assert_eq!(answer_stream.rest("It is 4.", true), AnswerRest::More(""));
    let events = [started(3)];
    assert_eq!(heard(&mut answer_stream, &events), "");
    let stopped = AnswerRest::Apart("Out of steps");
    assert_eq!(answer_stream.rest("Out of steps", false), stopped);
    // What broke off was not said beside the calls of another reply.
    let mut answer_stream = stream_of(settings(), Vec::new());
    let events = [
        request(1),
        wrote("I think"),
        request(1),
        wrote("I look."),
        started(1),
        request(2),
        wrote("It is 4."),
    ];
    assert_eq!(heard(&mut answer_stream, &events), "I think");
    assert_eq!(
        answer_stream.rest("It is 4.", true),
        AnswerRest::Contradiction
    );
}

/// The words before a call that is refused are complete, and the next reply is no continuation of them.
#[test]
fn a_text_of_a_reply_that_goes_back_to_the_model_is_complete_and_not_the_answer() {
    let refused = |step| {
        EventKind::UnusableReply(UnusableReply {
            step,
            calls_made: false,
            reason: String::new(),
        })
    };
    let call = "Sure! <tool_call>{\"name\": \"news\"}</tool_call> I wait.";
    for next in ["It is 4.", "Sure! It is 4.", "Sure!"] {
        let mut answer_stream = stream_of(settings(), Vec::new());
        let events = [request(1), wrote(call), refused(1), request(2), wrote(next)];
        let shown = format!("Sure!|{next}");
        assert_eq!(heard(&mut answer_stream, &events), shown);
        assert_eq!(answer_stream.rest(next, true), AnswerRest::More(""));
    }
    // The run ended with another text.
    let mut answer_stream = stream_of(settings(), Vec::new());
    heard(&mut answer_stream, &[request(1), wrote(call), refused(1)]);
    let rest = answer_stream.rest("Out of steps", false);
    assert_eq!(rest, AnswerRest::Apart("Out of steps"));
    // The reply of another step was refused.
    let mut answer_stream = stream_of(settings(), Vec::new());
    let events = [
        request(2),
        wrote("The answer"),
        refused(1),
        request(2),
        wrote("The answer is 4."),
    ];
    assert_eq!(heard(&mut answer_stream, &events), "The answer is 4.");
}

/// The reply of another model that is asked in place of the run's own.
#[test]
fn a_refused_reply_of_another_model_is_complete_and_not_the_answer() {
    let failed = || {
        event(
            json!({"event": "fallback", "step": 1, "stage": "failed", "candidate": "b", "attempt": 1, "reason": "r"}),
        )
    };
    let mut answer_stream = stream_of(settings(), Vec::new());
    let refused = [request(1), wrote("Sure! "), failed()];
    assert_eq!(heard(&mut answer_stream, &refused), "Sure!");
    let next = [request(1), wrote("It is 4.")];
    assert_eq!(heard(&mut answer_stream, &next), "|It is 4.");
    assert_eq!(answer_stream.rest("It is 4.", true), AnswerRest::More(""));
    // One that broke off is continued.
    let broke_off = EventKind::ModelFailed {
        step: 1,
        failure: RunFailure::new(ErrorClass::Retryable, "cut"),
    };
    let mut answer_stream = stream_of(settings(), Vec::new());
    let events = [
        request(1),
        wrote("It is "),
        broke_off,
        failed(),
        request(1),
        wrote("It is 4."),
    ];
    assert_eq!(heard(&mut answer_stream, &events), "It is 4.");
}

/// The prompt held the mark that opens the thought.
#[test]
fn an_answer_follows_a_thought_without_its_first_mark() {
    let mut answer_stream = AnswerStream::new(Contract::Tools);
    assert_eq!(answer_stream.push("Hm, 7?\n</thi"), "Hm, 7?");
    assert_eq!(answer_stream.push("nk>\nIt is 4."), "");
    assert_eq!(
        answer_stream.rest("It is 4.", true),
        AnswerRest::Apart("It is 4.")
    );
}

#[test]
fn a_streamed_answer_ends_before_a_stop() {
    let stops = StopTexts::read(&json!("END")).unwrap();
    let mut answer_stream = AnswerStream::new(Contract::Tools).stopping(stops);
    assert_eq!(answer_stream.push("It is 4.E"), "It is 4.");
    assert_eq!(answer_stream.push("ND and more"), "");
    let rest = answer_stream.rest("It is 4.", true);
    assert_eq!(rest, AnswerRest::More(""));
}

#[test]
fn missing_text_is_completed_at_the_end() {
    let mut answer_stream = AnswerStream::new(Contract::Schema);
    answer_stream.push(r#"{"output": "Hel"#);
    assert_eq!(answer_stream.rest("Hello", true), AnswerRest::More("lo"));
    let other = answer_stream.rest("Other", true);
    assert_eq!(other, AnswerRest::Contradiction);
}

proptest! {
    /// The text that is streamed is the beginning of the answer. Without a call it is all of it, before the reply ends.
    #[test]
    fn a_call_is_not_streamed_and_prose_behind_quoted_marks_is(
        parts in prop::collection::vec(prop_oneof![
            3 => select(QUOTING).prop_map(|text| (text, false)),
            1 => select(CALLS).prop_map(|text| (text, true)),
        ], 0..6),
        size in select(vec![1_usize, 2, 3, 7, 44, 4096]),
    ) {
        let mut text = "It is so. ".to_owned();
        let mut first_call = None;
        for (part, is_call) in parts {
            if is_call {
                first_call.get_or_insert(text.len());
            }
            text.push_str(part);
        }
        if first_call.is_none() {
            text.push_str("\nThat is all, then.");
        }
        let letters: Vec<char> = text.chars().collect();
        let pieces = letters.chunks(size).map(|piece| piece.iter().collect::<String>());
        let mut events = vec![request(1)];
        events.extend(pieces.map(|piece| wrote(&piece)));
        let mut answer_stream = stream_of(settings(), vec![news()]);
        let streamed = heard(&mut answer_stream, &events);
        let solution = whole(&text);
        if let Some(at) = first_call {
            prop_assert!(streamed.len() <= at, "{:?} of {:?}", streamed, text);
        } else {
            prop_assert_eq!(&streamed, &text);
            prop_assert!(solution.is_ok(), "{:?} of {:?}", solution, text);
        }
        let answer = solution.ok().and_then(|solution| solution.output);
        let answer = answer.as_ref().and_then(|answer| answer.as_str()).unwrap_or(&text);
        prop_assert!(answer.starts_with(&streamed), "{:?} of {:?}", streamed, text);
    }

    #[test]
    fn any_text_is_said_as_it_is(text in ".*") {
        let reply = json!({"calls": [], "output": text}).to_string();
        prop_assert_eq!(said(Contract::Schema, &[&reply]), text);
    }

    #[test]
    fn a_cut_changes_nothing(
        reply in r#"\{"(a|calls|output)": ("b"|\[\{\}\]|1), "(output|final_answer)": "(\\u(d83d|de0|[0-9a-g]{3})[0e]?|[\\"un1-eé😀\n]){0,12}"#,
    ) {
        let whole = said(Contract::Schema, &[&reply]);
        for (at, _) in reply.char_indices() {
            let (head, tail) = reply.split_at(at);
            prop_assert_eq!(&said(Contract::Schema, &[head, tail]), &whole, "cut at {}", at);
        }
    }
}
