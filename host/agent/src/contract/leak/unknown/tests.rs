//! Forms that no table has, answers that only look like them, and that streaming changes nothing.

use super::*;
use crate::contract::leak::tests::assert_held;
use crate::contract::leak::{Fate, LeakReader, find, front, is_failed};
use crate::contract::provenance::Provenance;
use crate::contract::tests::read_completion_from;
use serde_json::json;
use std::sync::Arc;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::tool::Tool;

fn tools() -> [Arc<Tool>; 3] {
    ["weather.now", "news", "a_b.c_d"].map(|name| Arc::new(Tool::new(name)))
}

fn offer() -> CallableNames {
    CallableNames::of(&tools())
}

fn found(text: &str) -> Vec<(String, Value)> {
    let leaked = find(text, &offer(), TextEnd::Own).unwrap_or_default();
    let calls = leaked.calls.into_iter();
    calls
        .map(|call| (call.tool, call.arguments.into()))
        .collect()
}

/// One form a row: a call of `weather.now` in `Rome`, and how many calls there are.
const FORMS: [(&str, usize); 26] = [
    (
        "<|new_call|>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}<|/new_call|>",
        1,
    ),
    (
        "<|new_call|>[{\"name\": \"weather.now\", \"parameters\": {\"city\": \"Rome\"}}, {\"name\": \"news\"}]<|new_end|>",
        2,
    ),
    (
        "<call>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}</call>\n<call>{\"name\": \"news\", \"arguments\": {}}</call>",
        2,
    ),
    (
        "<my_tool>\n```json\n{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}\n```\n</my_tool>",
        1,
    ),
    // Between marks that do not speak of calls JSON is one all the same, as it is without marks.
    (
        "<answer>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}</answer>",
        1,
    ),
    // Gorilla.
    ("<<function>>weather_now(city='Rome')", 1),
    (
        "[[CALL]]weather_now(city=\"Rome\")[[/CALL]][[CALL]]news()[[/CALL]]",
        2,
    ),
    ("⟦tool⟧weather-now⟦args⟧{\"city\": \"Rome\"}⟦end⟧", 1),
    ("<|x_call|>[weather_now(city=\"Rome\"), news()]<|x_end|>", 2),
    ("<action>weather_now(city='Rome')</action>", 1),
    ("<x:call>weather-now(city=\"Rome\")\nnews()</x:call>", 2),
    (
        "<|call:begin|>7f3a<|call:name|>weather-now<|call:args|>{\"city\": \"Rome\"}<|call:end|><|calls|>",
        1,
    ),
    (
        "<tool>weather-now</tool><arguments>{\"city\": \"Rome\"}</arguments>",
        1,
    ),
    (
        "<tool_use><name_tool>weather-now</name_tool><parameters><city>Rome</city></parameters></tool_use>",
        1,
    ),
    (
        "<function name=\"weather-now\"><param name=\"city\">Rome</param></function>",
        1,
    ),
    (
        "<function name=\"weather-now\"><param name=\"city\"><![CDATA[Rome]]></param></function>\n<function name=\"news\"></function>",
        2,
    ),
    (
        "<my_calls><run_call tool=\"weather-now\"><city>Rome</city></run_call></my_calls>",
        1,
    ),
    ("<my_call=weather-now><arg=city>Rome</arg></my_call>", 1),
    (
        "<tool_use><weather-now>\n<city>Rome</city>\n</weather-now></tool_use>",
        1,
    ),
    (
        "<x_tool_call>weather-now\n<x_arg_key>city</x_arg_key>\n<x_arg_value>Rome</x_arg_value>\n</x_tool_call>",
        1,
    ),
    // Hunyuan 3 with the suffix of its tokens.
    (
        "<tool_calls:opensource>\n<tool_call:opensource>weather-now<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Rome</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
        1,
    ),
    // MiniMax M3.
    (
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"weather-now\">]<]minimax[>[<city>Rome]<]minimax[>[</city>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
        1,
    ),
    // Kimi K3.
    (
        "<|open|>tools<|sep|><|open|>call tool=\"weather-now\" index=\"0\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>Rome<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        1,
    ),
    (
        "<|x_call|>weather-now<|x_sep|>{\"city\": \"Rome\"}<|x_end|><|x_call|>news<|x_sep|>{}<|x_end|>",
        2,
    ),
    (
        "◁tool_call▷{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}◁/tool_call▷",
        1,
    ),
    // The server took the last mark away.
    (
        "<|x_call|>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}",
        1,
    ),
];

#[test]
fn forms_that_are_not_known_are_read() {
    let rome = ("weather.now".to_owned(), json!({"city": "Rome"}));
    let news = ("news".to_owned(), json!({}));
    for (text, count) in FORMS {
        let all = [rome.clone(), news.clone()];
        assert_eq!(found(text), all[..count], "{text}");
        assert!(!is_failed(text, &offer(), TextEnd::Own), "{text}");
        // Of a reply that was cut, more may have been to come.
        let cut = find(text, &offer(), TextEnd::Cut);
        assert!(
            cut.is_none() && is_failed(text, &offer(), TextEnd::Cut),
            "{text}"
        );
    }
}

#[test]
fn unknown_forms_are_the_same_in_every_split() {
    for (text, _) in FORMS {
        assert_eq!(front(text, &offer(), TextEnd::Own), None, "{text}");
        for (at, _) in text.char_indices() {
            let (head, tail) = text.split_at(at);
            let mut reader = LeakReader::new(offer());
            let mut passed = String::new();
            for piece in [head, tail] {
                match reader.push(piece) {
                    Fate::Taken(calls) => assert_eq!(calls, [], "{text} at {at}"),
                    Fate::Passed(text) => passed += &text,
                }
            }
            passed += &reader.finish().unwrap_or_default();
            assert_eq!(passed, text, "at {at}");
        }
    }
}

fn output(text: &str, provenance: &Provenance) -> Result<bool, String> {
    let completion = Completion {
        content: text.to_owned(),
        ..Completion::default()
    };
    let read = read_completion_from(Contract::Tools, &completion, &tools(), provenance)?;
    Ok(read.output.is_some())
}

/// The call is not made and is no answer: the model gets an error.
#[test]
fn a_call_that_cannot_be_read_goes_back() {
    for text in [
        "<|new_call|>weather-now: Rome<|/new_call|>",
        "<|new_call|>weather-now Rome<|new_end|>",
        "<x_call>weather-now</x_call>",
        "<x_call>weather-now<city>Rome</x_call>",
        "<x_call>{\"name\": \"weather-now\", \"arguments\": {\"city\": }}</x_call>",
        "<x_call>{\"name\": \"other\", \"arguments\": {}}</x_call>",
        "<x_call>[weather_now(city=rome)]</x_call>",
        "<weather-now><city>Rome</city></weather-now>",
        "<x_call name=\"weather-now\"><city>Rome</city><city>Oslo</city></x_call>",
        "<x_call name=\"news\"><q name=\"weather-now\">1</q></x_call>",
        "<|new|><function=news><parameter=q>a <parameter=r> b</parameter></function><|/new|>",
        "<tool>news</tool><tool>weather-now</tool>",
        "<do>weather-now(city=\"Rome\")</do>",
        // Forms without marks, and marks in a fence that is all there is.
        "[weather_now(\"Rome\")]",
        "[news(q=1 + 1)]",
        "[news(q=1, q=2)]",
        "[news(q=r\"a\")]<|eot_id|>",
        "weather_now(city=\"Rome\")",
        "```python\nnews()\nprint(weather_now(city=\"Rome\"))\n```",
        "```json\n<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>\n```",
        "{\"weather-now\": {\"city\": \"Rome\"}}",
        "{\"name\": \"news\", \"arguments\": 7}",
        "{\"tool_calls\": [{\"name\": \"news\", \"arguments\": 7}]}",
        ">>>weather-now\nRome",
        "Thought: I look.\nAction: news\nAction Input: of today",
        "Thought: I look.\nAction: weather-now[Rome]",
        // Signs and words around a tool with arguments.
        "-> weather-now({\"city\": \"Rome\"})",
        "{{weather_now(city=\"Rome\")}}",
        "await weather_now({\"city\": \"Rome\"})",
        "**weather-now**\n```json\n{\"city\": \"Rome\"}\n```",
        "@tool:weather-now {\"city\": \"Rome\"}",
        "### Tool Call\n\nweather-now\n\n{\"city\": \"Rome\"}",
        "tool: weather-now\nargs:\n  city: Rome",
        "```yaml\ntool: weather-now\narguments:\n  city: Rome\n```",
        "Call: weather_now(city=\"Rome\")",
        "✿FUNCTION✿: weather-now\n✿ARGS✿: Rome",
        "Call: weather_now(\"Rome\")<bot_end>",
        "=> news()",
        "→ weather_now(city=\"Rome\")",
        "- news()\n-> news()",
        "[[news()]]",
        "<<weather_now(city=\"Rome\")>>",
        "⟦news()⟧",
        "[Tool: weather-now {\"city\": \"Rome\"}]",
        "-> {{news()}}",
        "-> call: tool: function: name: news()",
        "API: news()",
        "return news();",
        "func: news()",
        "JSON: news()",
        "Assistant: weather_now(city=\"Rome\")",
        "tool_call: weather-now {\"city\": \"Rome\"}",
        "tool_calls: news()",
        "tool_use: news()",
        "function_call: news()",
        "Plugin: news()",
        "End: news()",
        "calls: news()",
        "Call:\n```python\nnews()\n```",
        "- weather-now\n  args: {\"city\": \"Rome\"}",
        "- weather-now\nargs:\n  city: Rome",
        "**weather-now** | args: {\"city\": \"Rome\"}",
        "```yaml\n- tool: weather-now\n  arguments: {\"city\": \"Rome\"}\n```",
        "<role>ASSISTANT</role>weather_now(city=\"Rome\")",
    ] {
        assert_eq!(found(text), [], "{text}");
        assert_held(text);
        let told = output(text, &Provenance::default());
        let is_told = told
            .as_ref()
            .is_err_and(|reason| reason.contains("looks like a call"));
        assert!(is_told, "{text}: {told:?}");
    }
}

/// A number that would lose digits is the reason that is given.
#[test]
fn a_number_that_loses_digits_is_named() {
    let number = "123456789012345678901234567890";
    for text in [
        format!(
            "<tool_call>{{\"name\": \"news\", \"arguments\": {{\"n\": {number}}}}}</tool_call>"
        ),
        format!("{{\"name\": \"news\", \"arguments\": {{\"n\": {number}}}}}"),
        format!("[news(n={number})]"),
        format!("<start_function_call>call:news{{n:{number}}}<end_function_call>"),
    ] {
        let told = output(&text, &Provenance::default());
        let is_told = told
            .as_ref()
            .is_err_and(|reason| reason.contains("would lose digits"));
        assert!(is_told, "{text}: {told:?}");
    }
}

/// An answer that speaks of a form, or is markup of another kind, is an answer.
#[test]
fn answers_that_look_like_calls_stay_answers() {
    let call = "<|new_call|>{\"name\": \"news\", \"arguments\": {}}<|/new_call|>";
    for text in [
        format!("Write {call} to read the news."),
        format!("The form:\n{call}"),
        format!("{call} is how it is written."),
        format!("```\n{call}\n```"),
        format!("`{call}`"),
        "<p>weather-now</p>".to_owned(),
        "<ul><li>weather-now</li><li>news</li></ul>".to_owned(),
        "<html><body><code>weather_now(city=\"Rome\")</code></body></html>".to_owned(),
        "<?xml version=\"1.0\"?><tool name=\"news\"/>".to_owned(),
        "<answer>weather-now</answer>".to_owned(),
        "<answer>weather-now is the tool.</answer>".to_owned(),
        "<summary_of_day>news of today</summary_of_day>".to_owned(),
        "<items><item name=\"news\">1</item></items>".to_owned(),
        "<config><news>true</news></config>".to_owned(),
        "<response>{\"title\": \"news\", \"of\": 7}</response>".to_owned(),
        "<tool_report>All of them work.</tool_report>".to_owned(),
        "[NEWS] It rains.".to_owned(),
        "[1] weather-now".to_owned(),
        "<3 news".to_owned(),
        "[news](https://example.org)".to_owned(),
        "{\"news\": {\"of\": 7}}".to_owned(),
        "{\"name\": \"news\", \"description\": \"Reads.\", \"parameters\": {}}".to_owned(),
        "weather_now(city=\"Rome\") reads the weather.".to_owned(),
        "Write this:\n```python\nweather_now(city=\"Rome\")\n```".to_owned(),
        "```python\nx = news()\n```".to_owned(),
        "- weather-now(city: string)\n- news()".to_owned(),
        "`weather_now(city=\"Rome\")`".to_owned(),
        "Use weather_now(city=\"Rome\").".to_owned(),
        "Call weather-now(city=\"Rome\").".to_owned(),
        "-> weather-now(city=\"Rome\") reads the weather.".to_owned(),
        "* weather-now: the weather\n* news: the news".to_owned(),
        "**weather-now**\n{city} is needed.".to_owned(),
        "[weather-now](https://example.org)".to_owned(),
        "Tool: weather-now\nIt reads the weather.".to_owned(),
        "{{weather-now}}".to_owned(),
        "✿FUNCTION✿ is a mark of Qwen-Agent.".to_owned(),
        "Call: news()<bot_end> is what NexusRaven writes.".to_owned(),
        "<function(news){}</function> is what Groq returns.".to_owned(),
        // Signs that format a text, and code in a fence.
        "* weather_now(city=\"Rome\")\n* news()".to_owned(),
        "- news()\n- weather_now(city=\"Rome\")".to_owned(),
        "• weather_now(city=\"Rome\")".to_owned(),
        "- [ ] news()".to_owned(),
        "**news(1, 2)**".to_owned(),
        "*weather_now(city=\"Rome\")*".to_owned(),
        "### news(1, 2)".to_owned(),
        "| news(1, 2) |".to_owned(),
        "> news(1, 2)".to_owned(),
        "✅ weather_now(city=\"Rome\")".to_owned(),
        "$weather_now(city=\"Rome\")$".to_owned(),
        "$$news(1, 2)$$".to_owned(),
        "\\(news(1,2)\\)".to_owned(),
        "... news(1, 2)".to_owned(),
        "<!-- news() -->".to_owned(),
        "```js\nreturn news();\n```".to_owned(),
        "```\n=> news()\n```".to_owned(),
    ] {
        assert_eq!(found(&text), [], "{text}");
        assert_eq!(output(&text, &Provenance::default()), Ok(true), "{text}");
    }
}

/// A call goes back in any form if native calls work, or if it stands in the material of the run.
#[test]
fn unknown_forms_are_never_made_of_material_or_beside_native_calls() {
    for (text, _) in FORMS {
        let mut native = Provenance::default();
        native.had_native_call(None);
        let told = output(text, &native);
        assert!(
            told.is_err_and(|reason| reason.contains("made natively")),
            "{text}"
        );
        let told = output(text, &Provenance::of([text]));
        assert!(
            told.is_err_and(|reason| reason.contains("only repeated")),
            "{text}"
        );
    }
}

/// Forms without marks that stand in the material of the run are answers, whether they can be read or not.
#[test]
fn copies_of_forms_without_marks_are_answers() {
    for (text, is_read) in [
        ("return news();", false),
        ("=> weather_now(city=\"Rome\")", false),
        ("-> news()\n-> weather_now(city=\"Rome\")", false),
        ("Call: weather_now(\"Rome\")<bot_end>", false),
        ("Tool: weather-now\nargs:\n  city: Rome", false),
        ("<<weather-now>>", false),
        (
            "✿FUNCTION✿: weather-now\n✿ARGS✿: {\"city\": \"Rome\"}",
            true,
        ),
        (
            "<function(weather-now){\"city\": \"Rome\"}</function>",
            true,
        ),
        ("Call: weather_now(city=\"Rome\")<bot_end>", true),
    ] {
        let own = output(text, &Provenance::default());
        assert_eq!(own.ok(), is_read.then_some(false), "{text}");
        let shown = format!("Repeat exactly this line and nothing else:\n{text}");
        assert_eq!(
            output(text, &Provenance::of([shown.as_str()])),
            Ok(true),
            "{text}"
        );
    }
}

/// A list of the calls that a run made natively is an answer.
#[test]
fn tools_among_signs_are_answers_beside_native_calls() {
    let mut native = Provenance::default();
    native.had_native_call(None);
    for text in [
        "-> weather_now(city=\"Rome\")\n-> news()",
        "Tool: weather-now\nargs:\n  city: Rome",
        "**weather-now**\n```json\n{\"city\": \"Rome\"}\n```",
    ] {
        assert_eq!(output(text, &native), Ok(true), "{text}");
    }
}

/// A call of the model's own beside a copied one does not make that its own.
#[test]
fn a_copied_call_behind_an_own_one_is_not_made() {
    let call = |city: &str| {
        format!("<function name=\"weather-now\"><param name=\"city\">{city}</param></function>")
    };
    let completion = Completion {
        content: [call("Oslo"), call("Rome")].join("\n"),
        ..Completion::default()
    };
    for (material, cities) in [
        (String::new(), vec!["Oslo", "Rome"]),
        (call("Rome"), vec!["Oslo"]),
        (call("Oslo"), vec![]),
    ] {
        let provenance = Provenance::of([material.as_str()]);
        let read = read_completion_from(Contract::Tools, &completion, &tools(), &provenance);
        let calls = read.map(|solution| solution.calls).unwrap_or_default();
        let called: Vec<_> = calls.iter().map(|call| &call.arguments["city"]).collect();
        assert_eq!(called, cities, "{material}");
    }
}

/// A value that quotes a call is read whole.
#[test]
fn a_value_may_quote_a_call() {
    let quoted = "<|new|><function=news><parameter=q>1</parameter></function><|/new|>";
    let text =
        format!("<|new|><function=news><parameter=q>{quoted}</parameter></function><|/new|>");
    assert_eq!(found(&text), [("news".to_owned(), json!({"q": quoted}))]);
}

/// Marks without end are read in bounded time, and are none.
#[test]
fn marks_are_bounded() {
    for part in ["<a_call>", "<x>", "</x>", "word<y|>"] {
        let text = format!("<x_call>{}", part.repeat(200_000 / part.len()));
        assert_eq!(calls(&text, &offer(), TextEnd::Own), None, "{part}");
    }
}
