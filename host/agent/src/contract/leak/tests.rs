//! Forms, what is quoted, and that streaming changes nothing.

use super::*;
use crate::contract::leak::body::CallableNames;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::tool::Tool;

fn offer() -> CallableNames {
    CallableNames::of(&["weather.now", "news", "a_b.c_d"].map(|name| Arc::new(Tool::new(name))))
}

fn found(text: &str) -> Vec<(String, Value)> {
    let leaked = find(text, &offer(), TextEnd::Own).unwrap_or_default();
    let calls = leaked.calls.into_iter();
    calls
        .map(|call| (call.tool, call.arguments.into()))
        .collect()
}

fn call(tool: &str, arguments: Value) -> (String, Value) {
    (tool.to_owned(), arguments)
}

/// Asserts that readers of a stream are shown nothing of a text before its end.
pub(super) fn assert_held(text: &str) {
    let names = OfferedNames::of(["weather.now", "news", "a_b.c_d"]);
    for (at, c) in text.char_indices() {
        let begun = &text[..at + c.len_utf8()];
        let kind = names.opening_of(begun);
        assert_ne!(kind, ReplyOpening::Text, "{text:?} at {begun:?}");
    }
}

/// Asserts that readers of a stream are shown nothing of a call that stands behind a sentence.
fn assert_held_behind_prose(call: &str) {
    const BEFORE: &str = "It is so.\n";
    let names = OfferedNames::of(["weather.now", "news", "a_b.c_d"]);
    let text = format!("{BEFORE}{call}");
    for (at, c) in text.char_indices() {
        let begun = &text[..at + c.len_utf8()];
        let shown = CallSearch::of(names.clone()).pass(begun).bytes;
        assert!(shown <= BEFORE.len(), "{text:?} at {begun:?}");
    }
}

/// Names are read in several spellings where a mark says that a call stands there, and in no other place: an answer may be a
/// heading above an object.
#[test]
fn a_heading_above_an_object_is_no_name() {
    let tools = ["weather.now", "news", "a-b", "a.b"].map(|name| Arc::new(Tool::new(name)));
    let names = Arc::new(ToolNames::new(&tools, &[]));
    // `a-b` is not offered.
    let offered = [tools[0].clone(), tools[1].clone(), tools[3].clone()];
    let offer = CallableNames::of(&offered).named(Some(&names));
    let tool = |text: &str| {
        let leaked = find(text, &offer, TextEnd::Own).unwrap_or_default();
        leaked.calls.into_iter().map(|call| call.tool).next()
    };
    for name in ["weather.now", "weather-now", "functions.weather-now:0"] {
        assert_eq!(
            tool(&format!("{name}\n{{\"of\": 7}}")).as_deref(),
            Some("weather.now")
        );
    }
    for heading in [
        "News",
        "Weather.Now",
        "weather_now",
        "<b>news</b>",
        "`news`",
        "n e w s",
    ] {
        assert_eq!(
            tool(&format!("{heading}\n{{\"of\": 7}}")),
            None,
            "{heading}"
        );
    }
    for name in ["News", "tools.news", "functions.NEWS:0"] {
        let text = format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {{}}}}</tool_call>");
        assert_eq!(tool(&text).as_deref(), Some("news"), "{name}");
    }
    let hyphen = "<tool_call>{\"name\": \"a-b\", \"arguments\": {}}</tool_call>";
    assert_eq!(tool(hyphen), None, "it is another tool");
}

/// Everything that a form may say: one call of `weather.now` in `Rome`, and where there are two, one of
/// `news` without arguments.
#[test]
fn every_form_is_read() {
    let rules = ReadingRules::Current;
    let rome = call("weather.now", json!({"city": "Rome"}));
    let news = call("news", json!({}));
    let one = std::slice::from_ref(&rome);
    let both = [rome.clone(), news];
    for (text, calls) in [
        // Hermes, Qwen.
        (
            "<tool_call>\n{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
            one,
        ),
        (
            "<tool_call>{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>\n<tool_call>{\"name\": \"news\"}</tool_call>",
            &both,
        ),
        (
            "<tool_call>{\"name\": \"weather.now\", \"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}</tool_call>",
            one,
        ),
        (
            "<tool_call>{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}",
            one,
        ),
        (
            "<tool_call>{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>",
            &both,
        ),
        (
            "<tool_call>{'name': 'weather.now', 'arguments': {'city': 'Rome',}}</tool_call>",
            one,
        ),
        (
            "<tool_call>{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}}</tool_call>",
            one,
        ),
        (
            "<tool_call>\n```json\n{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}\n```\n</tool_call>",
            one,
        ),
        (
            "<tool_call>[{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": \"news\"}]</tool_call>",
            &both,
        ),
        (
            "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}}</tool_call>",
            one,
        ),
        (
            "<tools>{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}</tools><|im_end|>",
            one,
        ),
        (
            "<function_call>{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}</function_call>",
            one,
        ),
        (
            "It is warm there.\n<tool_call>{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>",
            one,
        ),
        (
            "I look at both.\n\n<tool_call>{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>\n<tool_call>{\"name\": \"news\"}</tool_call>\n",
            &both,
        ),
        // What servers leave of the end of a turn, or of the next one.
        (
            "<tool_call>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}</tool_call><|im_end|><|endoftext|>",
            one,
        ),
        (
            "I look.\n<tool_call>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>[|endofturn|]<end_of_utterance>",
            one,
        ),
        (
            "<tool_call>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}</tool_call></s>[INST]And Oslo?",
            one,
        ),
        (
            "I look.\n<tool_call>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}</tool_call><|eot_id|><|start_header_id|>assistant<|end_header_id|>",
            one,
        ),
        (
            "<tool_call>weather-now<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call><|observation|>",
            one,
        ),
        (
            "[TOOL_CALLS]weather-now{\"city\": \"Rome\"}<|END_OF_TURN_TOKEN|><|im_start|>assistant",
            one,
        ),
        (
            "<tool_call>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}</tool_call><|x_end|>\n<tool_call>{\"name\": \"news\"}</tool_call>",
            &both,
        ),
        // A sentence behind a special token.
        (
            "<|tool_call_start|>[weather_now(city=\"Rome\")]<|tool_call_end|>Checking the weather.<|im_end|>",
            one,
        ),
        // Llama 3.1, Qwen3-Coder.
        ("<function=weather.now>{\"city\": \"Rome\"}</function>", one),
        (
            "<function=weather.now>{\"city\": \"Rome\"}</function><function=news></function>",
            &both,
        ),
        (
            "<tool_call>\n<function=weather-now>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
            one,
        ),
        (
            "<function=weather-now>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=news>\n</function>\n</tool_call>",
            &both,
        ),
        (
            "<tool_call>\n<function=weather-now>\n<parameter=city>\nRome\n</function>\n</tool_call>",
            one,
        ),
        (
            "<tool_call>\n<function=weather-now>\n<parameter=city>\nRome\n</parameter>\n</tool_call>",
            one,
        ),
        (
            "<tool_call><function=weather-now><parameter=city>Rome</parameter></function><function=news></function></tool_call>",
            &both,
        ),
        // GLM.
        (
            "<tool_call>weather.now\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>",
            one,
        ),
        (
            "<tool_call>weather-now<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call><tool_call>news</tool_call>",
            &both,
        ),
        ("weather.now\n{\"city\": \"Rome\"}", one),
        // MiniMax.
        (
            "<minimax:tool_call>\n<invoke name=\"weather-now\">\n<parameter name=\"city\">Rome</parameter>\n</invoke>\n<invoke name=\"news\">\n</invoke>\n</minimax:tool_call>",
            &both,
        ),
        // Mistral.
        (
            "[TOOL_CALLS] [{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}, \"id\": \"123456789\"}]",
            one,
        ),
        (
            "[TOOL_CALLS][{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": \"news\", \"arguments\": {}}]</s>",
            &both,
        ),
        (
            "[TOOL_CALLS]weather-now[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]news[ARGS]{}",
            &both,
        ),
        (
            "[TOOL_CALLS]weather-now[CALL_ID]123456789[ARGS]{\"city\": \"Rome\"}",
            one,
        ),
        ("[TOOL_CALLS]weather-now{\"city\": \"Rome\"}", one),
        ("I look.[TOOL_CALLS]weather-now{\"city\": \"Rome\"}", one),
        // DeepSeek.
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather-now\n```json\n{\"city\": \"Rome\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>news\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
            &both,
        ),
        (
            "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather-now<｜tool▁sep｜>{\"city\": \"Rome\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            one,
        ),
        (
            "<|tool▁calls▁begin|><|tool▁call▁begin|>weather-now<|tool▁sep|>{\"city\": \"Rome\"}<|tool▁call▁end|><|tool▁calls▁end|>",
            one,
        ),
        // DeepSeek V3.2 and V4.
        (
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather-now\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Rome</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"news\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls><｜end▁of▁sentence｜>",
            &both,
        ),
        (
            "I look.\n\n<｜DSML｜tool_calls><｜DSML｜invoke name=\"weather-now\"><｜DSML｜parameter name=\"city\" string=\"false\">\"Rome\"</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>",
            one,
        ),
        (
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather-now\">\n{\"city\": \"Rome\"}\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            one,
        ),
        (
            "<|DSML|function_calls><|DSML|invoke name=\"weather-now\"><|DSML|parameter name=\"city\" string=\"true\">Rome</|DSML|parameter></|DSML|invoke></|DSML|function_calls>",
            one,
        ),
        // gpt-oss.
        (
            "<|start|>assistant<|channel|>commentary to=functions.weather-now <|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>",
            one,
        ),
        (
            "<|channel|>commentary to=functions.weather-now<|constrain|>json<|message|>{\"city\": \"Rome\"}",
            one,
        ),
        (
            "<|start|>assistant to=functions.weather-now<|channel|>commentary json<|message|>{\"city\": \"Rome\"}<|end|>",
            one,
        ),
        (
            "<|channel|>analysis to=functions.weather-now code<|message|>{\"city\": \"Rome\"}<|call|><|start|>assistant<|channel|>commentary to=functions.news <|constrain|>json<|message|>{}<|call|>",
            &both,
        ),
        (
            "I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather-now <|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>",
            one,
        ),
        // The same from a server that drops its marks.
        (
            "commentary to=functions.weather-now json{\"city\": \"Rome\"}",
            one,
        ),
        (
            "analysisI look.assistantcommentary to=functions.weather-nowjson{\"city\": \"Rome\"}assistantcommentary to=functions.news json{}",
            &both,
        ),
        // Kimi.
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather-now:0<|tool_call_argument_begin|>{\"city\": \"Rome\"}<|tool_call_end|><|tool_call_begin|>functions.news:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
            &both,
        ),
        // Llama 3.
        (
            "<|python_tag|>{\"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}<|eom_id|>",
            one,
        ),
        (
            "<|python_tag|>{\"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}; {\"name\": \"news\", \"parameters\": {}}",
            &both,
        ),
        ("<|python_tag|>weather.now(city=\"Rome\")", one),
        (
            "{\"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}",
            one,
        ),
        (
            "{\"type\": \"function\", \"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}",
            one,
        ),
        (
            "[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}, {\"name\": \"news\", \"arguments\": {}}]",
            &both,
        ),
        (
            "```json\n{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}\n```",
            one,
        ),
        (
            "```\n{\"tool\": \"weather.now\", \"parameters\": {\"city\": \"Rome\"}}\n```\n",
            one,
        ),
        (
            "```tool_call\n{\"function\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}\n```",
            one,
        ),
        (
            "{'tool_name': 'weather.now', 'args': {'city': 'Rome'}}",
            one,
        ),
        ("{\"_tool\": \"weather.now\", \"city\": \"Rome\"}", one),
        // Llama 4.
        ("[weather.now(city=\"Rome\"), news()]", &both),
        ("[weather.now(city='Rome')]", one),
        // Gemma.
        ("[weather_now(city=\"Rome\"), news()]", &both),
        ("```python\n[weather.now(city=\"Rome\")]\n```", one),
        ("```tool_code\nweather.now(city=\"Rome\")\n```", one),
        (
            "```tool_code\nweather_now(city=\"Rome\")\nnews()\n```\n```tool_output\nSunny.\n```",
            &both,
        ),
        (
            "```tool_code\nprint(default_api.weather_now(city='Rome'))\n```\n```tool_code\nprint(news())\n```",
            &both,
        ),
        (
            "Okay, I look.\n```tool_code\nweather.now(city=\"Rome\"); news()\n```",
            &both,
        ),
        ("```tool_code\n[weather.now(city=\"Rome\")]\n```", one),
        (
            "```tool_code\n{\"name\": \"weather.now\", \"arguments\": {\"city\": \"Rome\"}}\n```",
            one,
        ),
        ("```tool_code\nweather.now(city=\"Rome\")", one),
        (
            "<start_function_call>call:weather_now{city:<escape>Rome<escape>}<end_function_call><start_function_call>call:news{}<end_function_call><start_function_response>",
            &both,
        ),
        (
            "<start_function_call>call:weather.now{city:<escape>Rome<escape>}",
            one,
        ),
        (
            "I look.<|tool_call>call:weather_now{city:<|\"|>Rome<|\"|>}<tool_call|><|tool_call>call:news{}<tool_call|><turn|>",
            &both,
        ),
        (
            "<|tool_call>call:weather_now{\"city\": \"Rome\"}<tool_call|>",
            one,
        ),
        // Hunyuan, Jamba, MiniMax M1.
        (
            "<tool_calls>[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]</tool_calls>",
            one,
        ),
        (
            "I look.\n<tool_calls>[\n  {\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}},\n  {\"name\": \"news\", \"arguments\": {}},\n]</tool_calls>",
            &both,
        ),
        (
            "<tool_calls>\n{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}\n{\"name\": \"news\", \"arguments\": {}}\n</tool_calls>",
            &both,
        ),
        (
            "<tool_calls><tool_call>function<tool_sep>weather-now\n```json\n{\"city\": \"Rome\"}\n```</tool_call></tool_calls>",
            one,
        ),
        (
            "<tool_calls>\n<tool_call>weather-now<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>\n<tool_call>news<tool_sep>\n</tool_call>\n</tool_calls>",
            &both,
        ),
        // Nemotron, Apertus, LFM2.
        (
            "<TOOLCALL>[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]</TOOLCALL>",
            one,
        ),
        (
            "<|tools_prefix|>[{\"weather-now\": {\"city\": \"Rome\"}}, {\"news\": {}}]<|tools_suffix|>",
            &both,
        ),
        (
            "<|tool_call_start|>[weather_now(city=\"Rome\"), news()]<|tool_call_end|><|im_end|>",
            &both,
        ),
        (
            "<|tool_call_start|>[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]<|tool_call_end|>",
            one,
        ),
        // OLMo 3, dots.
        (
            "<function_calls>\nweather_now(city=\"Rome\")\nnews()\n</function_calls>",
            &both,
        ),
        (
            "<function_calls>\n<invoke name=\"weather-now\">\n<parameter name=\"city\">Rome</parameter>\n</invoke>\n<invoke name=\"news\">\n</invoke>\n</function_calls>",
            &both,
        ),
        (
            "<dots_function_call>\n<invoke name=\"weather-now\">\n<parameter name=\"city\">Rome</parameter>\n</invoke>\n</dots_function_call>",
            one,
        ),
        // Seed, LongCat, Step 3.
        (
            "<seed:tool_call>\n<function=weather-now>\n<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>",
            one,
        ),
        (
            "<longcat_tool_call>weather-now\n<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Rome</longcat_arg_value>\n</longcat_tool_call><longcat_tool_call>{\"name\": \"news\", \"arguments\": {}}</longcat_tool_call>",
            &both,
        ),
        (
            "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"weather-now\"><steptml:parameter name=\"city\">Rome</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
            one,
        ),
        (
            "<|tool_call|>[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]<|/tool_call|>",
            one,
        ),
        // Granite, Command, InternLM, Phi.
        (
            "<|tool_call|>[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]",
            one,
        ),
        (
            "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}]<|END_ACTION|>",
            one,
        ),
        (
            "<|action_start|><|plugin|>{\"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}<|action_end|>",
            one,
        ),
        (
            "functools[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]",
            one,
        ),
        // Several objects, and ends of turns behind forms without marks.
        (
            "{\"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}; {\"name\": \"news\", \"parameters\": {}}",
            &both,
        ),
        (
            "{\"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}\n{\"name\": \"news\", \"parameters\": {}}",
            &both,
        ),
        (
            "{\"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}<|eom_id|>",
            one,
        ),
        ("[weather_now(city=\"Rome\")]<|eot|>", one),
        // Python.
        ("[weather_now(city=\"Rome\",), news(),]", &both),
        ("[weather_now(city=\"\"\"Rome\"\"\")]", one),
        ("[weather_now(city='\\x52ome')]", one),
        // Functionary.
        (
            ">>>all\nI look.\n>>>weather-now\n{\"city\": \"Rome\"}\n>>>news\n{}",
            &both,
        ),
        (
            "<|from|>assistant\n<|recipient|>weather-now\n<|content|>{\"city\": \"Rome\"}<|stop|>",
            one,
        ),
        // Members of an object.
        (
            "{\"thought\": \"I look.\", \"tool_calls\": [{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]}",
            one,
        ),
        (
            "{\"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\": \"weather-now\", \"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}}]}",
            one,
        ),
        (
            "{\"action\": \"weather-now\", \"action_input\": {\"city\": \"Rome\"}}",
            one,
        ),
        // Command R+, ReAct, SmolLM3, Cline.
        (
            "Action: ```json\n[{\"tool_name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}]\n```",
            one,
        ),
        (
            "Thought: I look.\nAction: weather-now\nAction Input: {\"city\": \"Rome\"}\nObservation: Sunny.",
            one,
        ),
        ("<code>\nweather_now(city=\"Rome\")\nnews()\n</code>", &both),
        (
            "<use_mcp_tool>\n<server_name>weather</server_name>\n<tool_name>now</tool_name>\n<arguments>\n{\"city\": \"Rome\"}\n</arguments>\n</use_mcp_tool>",
            one,
        ),
        // Qwen-Agent, NexusRaven, HyperCLOVA, ChatGLM3, Groq.
        ("✿FUNCTION✿: weather-now\n✿ARGS✿: {\"city\": \"Rome\"}", one),
        (
            "✿FUNCTION✿: weather-now\n✿ARGS✿: {\"city\": \"Rome\"}\n✿FUNCTION✿: news\n✿ARGS✿: {}\n✿RESULT✿",
            &both,
        ),
        ("Call: weather_now(city='Rome')<bot_end>", one),
        (
            "Call: weather_now(city='Rome'); news()<bot_end>\nThought: I look.",
            &both,
        ),
        (
            " -> tool/function_call\n[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]",
            one,
        ),
        ("weather-now\n```python\ntool_call(city='Rome')\n```", one),
        ("<function(weather-now){\"city\": \"Rome\"}</function>", one),
        ("<function=weather-now{\"city\": \"Rome\"}</function>", one),
        // MiniCPM, Pangu, LM Studio, Ling.
        (
            "<|tool_call_start|>\n```python\nweather_now(city=\"Rome\")\nnews()\n```\n<|tool_call_end|>",
            &both,
        ),
        (
            "[unused11][{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}][unused12][unused10]",
            one,
        ),
        (
            "I look.\n\n[TOOL_REQUEST]{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}[END_TOOL_REQUEST]",
            one,
        ),
        (
            "<role>ASSISTANT</role><tool_call>\n{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call><|role_end|>",
            one,
        ),
        // Members of other names.
        (
            "{\"functionCall\": {\"name\": \"weather-now\", \"args\": {\"city\": \"Rome\"}}}",
            one,
        ),
        (
            "{\"function_call\": {\"name\": \"weather-now\", \"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}}",
            one,
        ),
        (
            "{\"action\": {\"name\": \"weather-now\", \"parameters\": {\"city\": \"Rome\"}}}",
            one,
        ),
        (
            "{\"tool_uses\": [{\"recipient_name\": \"functions.weather-now\", \"parameters\": {\"city\": \"Rome\"}}, {\"recipient_name\": \"functions.news\", \"parameters\": {}}]}",
            &both,
        ),
        (
            "{\"function_name\": \"weather-now\", \"function_args\": {\"city\": \"Rome\"}}",
            one,
        ),
        (
            "{\"tool_name\": \"weather-now\", \"tool_args\": {\"city\": \"Rome\"}}",
            one,
        ),
        (
            "{\"thought\": \"I look.\", \"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}",
            one,
        ),
        // Marks that a server took away.
        (
            "weather-now<｜tool▁sep｜>{\"city\": \"Rome\"}<｜tool▁call▁end｜>",
            one,
        ),
        (
            "TOOL_CALLS[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]",
            one,
        ),
        ("weather-now{\"city\": \"Rome\"}", one),
        ("@weather-now{\"city\": \"Rome\"}", one),
        (
            "<role>ASSISTANT</role>{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}",
            one,
        ),
        (
            "functions.weather-now:0\n{\"city\": \"Rome\"}<|role_end|>",
            one,
        ),
    ] {
        assert_eq!(found(text), calls, "{text}");
        // A thought without marks is held apart.
        if body::unmarked(text, &offer(), TextEnd::Own).is_some() && !text.starts_with("analysis") {
            assert_held(text);
        }
        if opening(rules, past_around(rules, text)).is_some() {
            assert_held_behind_prose(text);
        }
    }
}

/// A name before arguments is one word. A text behind a mark is prose where its first words are none of a call.
#[test]
fn a_sentence_that_ends_with_a_name_is_no_call() {
    let tools = ["weather.now", "news"].map(|name| Arc::new(Tool::new(name)));
    let names = Arc::new(ToolNames::new(&tools, &[]));
    let offer = CallableNames::of(&tools).named(Some(&names));
    for text in [
        "It is so.\n<tool_call> opens a call as in to=news()",
        "It is so.\n<tool_call> opens to=news<arg_key>q</arg_key><arg_value>1</arg_value>",
        "It is so.\n<function= opens to=news></function>",
        "It is so.\n<tool_call>n e w s()</tool_call>",
    ] {
        assert_eq!(find(text, &offer, TextEnd::Own), None, "{text}");
        let former = offer.clone().under(ReadingRules::Format4);
        assert!(find(text, &former, TextEnd::Own).is_some(), "{text}");
    }
    let call = "It is so.\n<tool_call>tools.news()</tool_call>";
    assert!(find(call, &offer, TextEnd::Own).is_some());
}

/// Parameters beside the name are arguments if the tool has them, and the name is no word of a language.
#[test]
fn parameters_beside_the_name_are_arguments() {
    let tools = ["weather.now", "news"].map(|name| {
        Arc::new(Tool {
            parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
            ..Tool::new(name)
        })
    });
    let offer = CallableNames::of(&tools);
    for (text, is_call) in [
        ("{\"tool\": \"weather-now\", \"city\": \"Rome\"}", true),
        (
            "{\"tool\": \"weather-now\", \"city\": \"Rome\", \"of\": 7}",
            false,
        ),
        ("{\"tool\": \"weather-now\"}", false),
        ("{\"tool\": \"news\", \"city\": \"Rome\"}", false),
        ("{\"name\": \"weather-now\", \"city\": \"Rome\"}", false),
    ] {
        let found = find(text, &offer, TextEnd::Own).unwrap_or_default();
        let calls = found.calls.into_iter();
        let calls: Vec<_> = calls.map(|call| (call.tool, call.arguments)).collect();
        let city = json!({"city": "Rome"}).as_object().unwrap().clone();
        let expected = is_call.then(|| ("weather.now".to_owned(), city));
        assert_eq!(calls, expected.into_iter().collect::<Vec<_>>(), "{text}");
    }
}

/// Forms with words as marks are calls, and are made of no text by the rules of format 3.
#[test]
fn forms_with_words_as_marks_are_calls() {
    for text in [
        "✿FUNCTION✿: weather-now\n✿ARGS✿: {\"city\": \"Rome\"}",
        "Call: weather_now(city='Rome')<bot_end>",
        "-> tool/function_call\n[{\"name\": \"weather-now\", \"arguments\": {\"city\": \"Rome\"}}]",
        "weather-now\n```python\ntool_call(city='Rome')\n```",
        "<function(weather-now){\"city\": \"Rome\"}</function>",
        "{{weather_now(city=\"Rome\")}}",
    ] {
        let call = |offer: &CallableNames| {
            let spoken = bare::spoken_call(text, offer);
            let call = spoken.or_else(|| framed::call(text, offer));
            call.map(|call| (call.tool, call.written.to_string()))
        };
        let expected = ("weather.now".to_owned(), text.to_owned());
        assert_eq!(call(&offer()), Some(expected), "{text}");
        for rules in [ReadingRules::Format3, ReadingRules::Format4] {
            let former = offer().under(rules);
            assert_eq!(call(&former), None, "{text}");
            assert_eq!(find(text, &former, TextEnd::Own), None, "{text}");
        }
    }
}

#[test]
fn values_are_what_was_written() {
    for (text, arguments) in [
        (
            "<tool_call>{\"name\": \"news\", \"arguments\": {\"q\": \"a </tool_call> b\"}}</tool_call>",
            json!({"q": "a </tool_call> b"}),
        ),
        (
            "<|tool_call>call:news{q:<|\"|>a}, <tool_call|> \"b\"<|\"|>,n:-1.5,all:true,none:null,days:[1,{from:2}],of:{},to:[]}<tool_call|>",
            json!({"q": "a}, <tool_call|> \"b\"", "n": -1.5, "all": true, "none": null, "days": [1, {"from": 2}], "of": {}, "to": []}),
        ),
        (
            "<start_function_call>call:news{ q : <escape>a,b:<escape> , <escape>r s<escape>:1 }<end_function_call>",
            json!({"q": "a,b:", "r s": 1}),
        ),
        (
            "<function=news>{\"q\": \"</function>\"}</function>",
            json!({"q": "</function>"}),
        ),
        (
            "<function=news>\n<parameter=q>\nx <function=weather.now><parameter=city>Rome</parameter></function>\n</parameter>\n</function>",
            json!({"q": "x <function=weather.now><parameter=city>Rome</parameter></function>"}),
        ),
        (
            "<function=news><parameter=q>\n  7\n\n</parameter></function>",
            json!({"q": "  7\n"}),
        ),
        (
            "<function=news><parameter=q>a </parameter> b</parameter><parameter=r>1</parameter></function>",
            json!({"q": "a </parameter> b", "r": "1"}),
        ),
        (
            "<function=news>\n<parameter=q>\nx = 1\n<parameter=r>\ny\n</function>",
            json!({"q": "x = 1", "r": "y"}),
        ),
        (
            "<tool_call>news<arg_key>q</arg_key><arg_value>{\"a\": 1}</arg_value><arg_key>r</arg_key><arg_value></arg_value></tool_call>",
            json!({"q": "{\"a\": 1}", "r": ""}),
        ),
        (
            "<｜DSML｜invoke name=\"news\"><｜DSML｜parameter name=\"q\" string=\"true\">\n 7\n</｜DSML｜parameter><｜DSML｜parameter name=\"r\" string=\"false\"> [7, null] </｜DSML｜parameter></｜DSML｜invoke>",
            json!({"q": "\n 7\n", "r": [7, null]}),
        ),
        (
            "<invoke name=\"news\"><parameter name=\"q\" string=\"false\">7</parameter></invoke>",
            json!({"q": 7}),
        ),
        (
            "<|channel|>commentary to=functions.news <|constrain|>json<|message|>{\"q\": \"<|call|>\"}<|call|>",
            json!({"q": "<|call|>"}),
        ),
        (
            "```tool_code\nprint(news(q=\"a ``` (b)\", r=[1, None]))\n```",
            json!({"q": "a ``` (b)", "r": [1, null]}),
        ),
        (
            "[news(q=[1, -2.5, None], r={\"a\": \"x, (y)\"}, s='it\\'s', t=True)]",
            json!({"q": [1, -2.5, null], "r": {"a": "x, (y)"}, "s": "it's", "t": true}),
        ),
        (
            "{\"name\": \"news\", \"arguments\": {\"name\": \"x\", \"_reasoningForCall\": \"r\"}}",
            json!({"name": "x", "_reasoningForCall": "r"}),
        ),
        (
            "{\"name\": \"news\", \"_reasoningForCall\": \"r\", \"arguments\": {\"x\": 1}}",
            json!({"_reasoningForCall": "r", "x": 1}),
        ),
    ] {
        assert_eq!(found(text), [call("news", arguments)], "{text}");
    }
}

const NEWS: &str = "<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>";

/// The other side of the rule: a call that is only quoted is not made.
#[test]
fn quoted_forms_are_not_calls() {
    let fence = "```json\n{\"name\": \"news\", \"arguments\": {}}\n```";
    for text in [
        // Within prose.
        format!("Write {NEWS} to read the news."),
        format!("Write\n{NEWS}\nto read the news."),
        format!("{NEWS} is how Hermes writes a call."),
        format!("{NEWS}<|im_end|> is how Hermes writes a call."),
        "<|tool_call_start|>[news()]<|tool_call_end|> is how LFM2 writes one.".to_owned(),
        "LFM2 writes <|tool_call_start|>[news()]<|tool_call_end|>Then it waits.".to_owned(),
        format!("The form is {NEWS}"),
        format!("The form is `{NEWS}`"),
        format!("The form:\n`{NEWS}`"),
        format!("The form:\n```\n{NEWS}\n```"),
        format!("```\n{NEWS}\n```"),
        format!("Like this:\n```xml\n{NEWS}\n"),
        format!("\"{NEWS}\""),
        "Write `[TOOL_CALLS]news{}`".to_owned(),
        "Mistral begins with [TOOL_CALLS]news[ARGS]{} and goes on.".to_owned(),
        // Forms without a mark, and more than the form.
        format!("Like this:\n{fence}"),
        format!("{fence}\nThat reads the news."),
        format!("{fence}\n{fence}"),
        "{\"name\": \"news\", \"arguments\": {}} reads the news.".to_owned(),
        "So: {\"name\": \"news\", \"arguments\": {}}".to_owned(),
        "[news()] is Python.".to_owned(),
        "Use [news()]".to_owned(),
        "news()".to_owned(),
        "news".to_owned(),
        "{\"name\": \"news\"}".to_owned(),
        // Not what is offered.
        "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>".to_owned(),
        "<tool_call>{\"name\": \"News\", \"arguments\": {}}</tool_call>".to_owned(),
        "<tool_call>{\"name\": \"a.b.c.d\", \"arguments\": {}}</tool_call>".to_owned(),
        "[{\"name\": \"news\", \"arguments\": {}}, {\"name\": \"other\", \"arguments\": {}}]".to_owned(),
        "[news(), other()]".to_owned(),
        "<|channel|>commentary to=python code<|message|>print(1)<|call|>".to_owned(),
        "```tool_code\nprint(news)\n```".to_owned(),
        "```tool_code\nimport news\nnews()\n```".to_owned(),
        "```tool_code\nx = news()\n```".to_owned(),
        "```tool_code\nnews() other()\n```".to_owned(),
        "```tool_code\nprint(news(), 1)\n```".to_owned(),
        "```tool_code\nprint(news(q=1)\n```".to_owned(),
        // In another fence, or in the line.
        "So:\n````\n```tool_code\nnews()\n```\n````".to_owned(),
        "Write ```tool_code news()``` for the news.".to_owned(),
        "Write `<|channel|>commentary to=functions.news<|message|>{}<|call|>`".to_owned(),
        "gpt-oss writes <|channel|>commentary to=functions.news<|message|>{}<|call|> and waits.".to_owned(),
        "Write `<|tool_call>call:news{}<tool_call|>`".to_owned(),
        "call:news{}".to_owned(),
        "commentary to=functions.news json{} reads the news.".to_owned(),
        "I look. commentary to=functions.news json{}".to_owned(),
        "analysis of the news: assistantcommentary to=functions.news json{}assistantfinal7".to_owned(),
        "It is `<｜DSML｜invoke name=\"news\"></｜DSML｜invoke>`".to_owned(),
        // More than one reading.
        "<｜DSML｜invoke name=\"news\"><｜DSML｜parameter name=\"q\" string=\"false\">Rome</｜DSML｜parameter></｜DSML｜invoke>".to_owned(),
        "<｜DSML｜invoke name=\"news\"><｜DSML｜parameter name=\"q\" string=\"maybe\">1</｜DSML｜parameter></｜DSML｜invoke>".to_owned(),
        "<|channel|>commentary to=functions.news to=functions.news<|message|>{}<|call|>".to_owned(),
        "<tool_call>{\"name\": \"news\", \"tool\": \"weather.now\", \"arguments\": {}}</tool_call>".to_owned(),
        "<tool_call>{\"name\": \"news\", \"arguments\": {}, \"parameters\": {}}</tool_call>".to_owned(),
        "<tool_call>{\"name\": \"news\", \"arguments\": {\"q\": 1, \"q\": 2}}</tool_call>".to_owned(),
        "<tool_call>{\"name\": \"news\", \"arguments\": [1]}</tool_call>".to_owned(),
        "<tool_call>{\"name\": \"news\", \"arguments\": {\"q\": }}</tool_call>".to_owned(),
        "<tool_call>{\"name\": \"news\", \"arguments\": {\"q\": \"cut".to_owned(),
        "<function=news><parameter=q>1</parameter><parameter=q>2</parameter></function>".to_owned(),
        "<function=news><parameter=q>cut".to_owned(),
        "<tool_call>news<arg_key>q</arg_key><arg_value>1</tool_call>".to_owned(),
        // A value that quotes a call, cut within that.
        "<function=news>\n<parameter=q>\n<function=weather.now>\n<parameter=city>\nRome\n</parameter>\n</function>\n</parameter>\n</function>".to_owned(),
        "<function=news>\n<parameter=q>x</function>\ny".to_owned(),
        "<invoke name=\"news\">\n<parameter name=\"q\">\nsee\n<parameter name=\"r\">\n1</parameter>\n</parameter>\n</invoke>".to_owned(),
        "<tool_call>news<arg_key>q</arg_key><arg_value><tool_call>news<arg_key>r</arg_key><arg_value>1</arg_value></tool_call>\n</arg_value></tool_call>".to_owned(),
        "<|tool_call>call:news{q:Rome}<tool_call|>".to_owned(),
        "<|tool_call>call:news{q:1,q:2}<tool_call|>".to_owned(),
        "<|tool_call>call:news{q:<|\"|>cut".to_owned(),
        format!("<|tool_call>call:news{{q:{}}}<tool_call|>", "[".repeat(99) + &"]".repeat(99)),
        "[news(1)]".to_owned(),
        "[news(q=x)]".to_owned(),
        "[news(q=1 + 1)]".to_owned(),
        "[news(q=1, q=2)]".to_owned(),
        "[news(q=open('x'))]".to_owned(),
        // The definition of a tool.
        "{\"name\": \"news\", \"description\": \"Reads.\", \"parameters\": {}}".to_owned(),
        "{\"name\": \"news\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}".to_owned(),
        "<tools>{\"name\": \"news\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}</tools>".to_owned(),
        // Ends of nothing.
        "</tool_call>".to_owned(),
        "<tool_call></tool_call>".to_owned(),
        "<tool_call>".to_owned(),
        String::new(),
    ] {
        assert_eq!(found(&text), [], "{text}");
    }
}

#[test]
fn a_cut_call_is_not_completed() {
    for (text, own) in [
        (
            "<tool_call>{\"name\": \"news\", \"arguments\": {\"q\": 1}",
            1,
        ),
        ("<tool_call>news", 1),
        ("<function=news><parameter=q>1</parameter>", 1),
        (
            "<tool_call>news<arg_key>q</arg_key><arg_value>1</arg_value>",
            1,
        ),
        ("{\"name\": \"news\", \"parameters\": {\"q\": 1}", 1),
        (
            "<｜DSML｜invoke name=\"news\"><｜DSML｜parameter name=\"q\" string=\"true\">1</｜DSML｜parameter>",
            1,
        ),
        (
            "<|channel|>commentary to=functions.news <|constrain|>json<|message|>{\"q\": [1]",
            1,
        ),
        ("<|channel|>commentary to=functions.news<|message|>", 1),
    ] {
        let calls = |end| find(text, &offer(), end).map_or(0, |leaked| leaked.calls.len());
        assert_eq!(
            (calls(TextEnd::Own), calls(TextEnd::Cut)),
            (own, 0),
            "{text}"
        );
    }
    // A call that was complete before the cut is one.
    let cut = format!("{NEWS}\n<tool_call>{{\"name\": \"weather.now\", \"argum");
    assert_eq!(find(&cut, &offer(), TextEnd::Cut).unwrap().calls.len(), 1);
}

#[test]
fn a_thought_that_ends_with_a_call_calls() {
    for (thought, calls) in [
        (format!("<think>The news, then.\n{NEWS}\n</think>"), 1),
        (format!("The news, then.\n{NEWS}"), 1),
        (NEWS.to_owned(), 1),
        (format!("I could write\n{NEWS}\nbut I will not."), 0),
        (format!("{NEWS}\nis one way."), 0),
        (format!("I could write `{NEWS}`"), 0),
        ("{\"name\": \"news\", \"parameters\": {}}".to_owned(), 0),
    ] {
        let found = of_thought(&thought, &offer(), TextEnd::Own);
        assert_eq!(
            found.map_or(0, |leaked| leaked.calls.len()),
            calls,
            "{thought}"
        );
    }
}

#[test]
fn repairs_of_leaked_calls_are_reported() {
    for (text, repairs) in [
        (NEWS, &[RepairKind::LeakedCall][..]),
        (
            "<tool_call>{'name': 'news', 'arguments': {},}</tool_call>",
            &[
                RepairKind::LeakedCall,
                RepairKind::SingleQuotes,
                RepairKind::TrailingComma,
            ],
        ),
        (
            "```json\n{\"name\": \"news\", \"arguments\": {}}\n```",
            &[RepairKind::LeakedCall, RepairKind::CodeFence],
        ),
    ] {
        assert_eq!(
            find(text, &offer(), TextEnd::Own).unwrap().repairs,
            repairs,
            "{text}"
        );
    }
}

/// A failed call alone is not taken for an answer.
#[test]
fn a_failed_call_is_no_answer() {
    for (text, is_failed) in [
        (
            "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>",
            true,
        ),
        ("<tool_call>{\"name\": \"news\", \"arguments\": {", true),
        ("[TOOL_CALLS]other[ARGS]{}", true),
        (
            "<|channel|>commentary to=browser.search<|message|>{}<|call|>",
            true,
        ),
        ("```tool_code\nimport numpy\n```", true),
        ("```tool_code\nimport numpy\n```\nloads it.", false),
        ("<｜DSML｜invoke name=\"other\">", true),
        (
            "<tool_call>{\"name\": \"other\"}</tool_call>\nis how Hermes writes calls.",
            false,
        ),
        ("Hello", false),
        (NEWS, false),
    ] {
        assert_eq!(
            super::is_failed(text, &offer(), TextEnd::Own),
            is_failed,
            "{text}"
        );
    }
}

fn streamed(text: &str, size: usize) -> (Vec<(String, usize)>, Option<String>) {
    let mut reader = LeakReader::new(offer());
    let (mut given, mut passed, mut at) = (Vec::new(), String::new(), 0);
    let chars: Vec<char> = text.chars().collect();
    for piece in chars.chunks(size) {
        let piece: String = piece.iter().collect();
        at += piece.len();
        match reader.push(&piece) {
            Fate::Taken(calls) => given.extend(calls.into_iter().map(|call| (call.tool, at))),
            Fate::Passed(text) => passed += &text,
        }
    }
    let last = reader.finish();
    assert_eq!(reader.held(), 0);
    passed += &last.unwrap_or_default();
    (given, (!passed.is_empty()).then_some(passed))
}

#[test]
fn a_call_is_given_when_its_line_shows_that_it_is_one() {
    let text = format!(
        "{NEWS}\n<tool_call>{{\"name\": \"news\", \"arguments\": {{}}}}</tool_call><|im_end|>"
    );
    let (given, passed) = streamed(&text, 1);
    // The line ended after the first; the reply did after the second.
    assert_eq!(given, [("news".to_owned(), NEWS.len() + 1)]);
    assert_eq!(passed, None);
    let (given, _) = streamed(&format!("{NEWS}{NEWS}{NEWS}"), 3);
    assert_eq!(given.len(), 2, "{given:?}");
    for text in [
        "Hello",
        "<tool",
        "<b>bold</b>",
        "{\"calls\": []}",
        &format!("{NEWS} is it."),
    ] {
        assert_eq!(streamed(text, 1), (Vec::new(), Some(text.to_owned())));
    }
}

/// Text that is almost calls, again and again, is read in one go.
#[test]
fn time_grows_with_the_text() {
    for part in [
        "<tool_call>",
        "</tool_call>",
        "<tool_call>{\"name\":",
        "<tool_call>{}</tool_call>\n",
        "<tool_call>{\"name\": \"news\"}",
        "\n<tool_call>{\"name\": \"news\"}</tool_call>",
        "[TOOL_CALLS]",
        "<function=news>",
        "<function=news><parameter=q>",
        "</parameter>",
        "<parameter=q>1</parameter>",
        "`",
        "[news(",
        "<arg_key>",
        "</think>\n",
        "<｜",
        "<｜DSML｜parameter name=\"q\" string=\"true\">",
        "<｜DSML｜invoke name=\"news\">",
        "<|channel|>commentary to=functions.news<|message|>",
        "<|start|>assistant",
        "<|call|>",
        "```tool_code\n",
        "```tool_code\nnews()\n```\n",
        "news()\n",
        "call:news{q:[",
        "call:news{}",
        "<|\"|>",
        "assistantcommentary to=functions.news json{}",
        "<tool_calls>",
        "<tool_calls><tool_call>",
        "<tool_calls><tool_call>{\"name\": \"news\"}</tool_call></tool_calls>",
        "<a>",
        "<x_call name=\"news\">",
        "<x_call name=\"news\"></x_call>",
        "<x>1</x>",
        "</x>",
    ] {
        for start in [
            "",
            "<tool_call>",
            "<function=news><parameter=q>",
            "text\n",
            "[TOOL_CALLS]",
            "<|channel|>commentary to=functions.news<|message|>",
            "```tool_code\n",
            "<|tool_call>",
            "analysis",
            "<tool_calls>",
            "<tool_calls><tool_call>",
            "<x_call name=\"news\">",
            "<x_call name=\"news\"><x>",
            "<x_call>{",
        ] {
            let text = start.to_owned() + &part.repeat(10_000 / part.len());
            let begun = std::time::Instant::now();
            let _ = find(&text, &offer(), TextEnd::Own);
            let _ = streamed(&text, 64);
            let took = begun.elapsed();
            assert!(took.as_secs() < 10, "{start}{part}… took {took:?}");
        }
    }
}

proptest! {
    /// For any text: no panic; what is given while it grows is what the whole begins with; and what is no
    /// call comes out as it went in.
    #[test]
    fn pieces_come_to_what_the_whole_is(
        parts in proptest::collection::vec(select(vec![
            "<tool_call>", "</tool_call>", "<tool_", "{\"name\": \"news\", \"arguments\": {}}", "{\"name\": \"news\"", "}",
            "<function=news>", "</function>", "<parameter=q>", "</parameter>", "news", "[TOOL_CALLS]", "[ARGS]", "{}", "\n", " ",
            "<|python_tag|>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "`", "```", "text", "\"", "[", "]", "(", ")",
            "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "é", "<|im_end|>",
            "<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>",
            "<|endoftext|>", "[|x|]", "<|user|>", "[INST]", "<|x_", "Then ", "<tool_calls>", "</tool_calls>", "<|tool_call_start|>", "<|tool_call_end|>", "<new_call>", "</new_call>",
            "<|tool_call>", "call:news{", "q:", "<|\"|>", "<tool_call|>", "<start_function_call>", "<escape>",
            "commentary to=functions.news", "analysis", "assistant", "</s>", "<|eot_id|>", "</think>", "</", "<|", "<eos>", "\t", "\r\n",
            "<tool_call>{\"name\": \"news\", \"arguments\": {}}</tool_call>\n", "<|channel|>commentary to=functions.news<|message|>{}<|call|>",
            "[TOOL_CALLS][{\"name\": \"news\", \"arguments\": {}}, {\"name\": \"weather.now\"}]",
        ]), 0..20),
        size in select(vec![1_usize, 2, 3, 4, 6, 8, 44]),
    ) {
        let text = parts.concat();
        let (given, passed) = streamed(&text, size);
        let (in_one, passed_in_one) = streamed(&text, text.len().max(1));
        let tools = |given: &[(String, usize)]| given.iter().map(|(tool, _)| tool.clone()).collect::<Vec<_>>();
        prop_assert_eq!((tools(&given), &passed), (tools(&in_one), &passed_in_one));
        let whole = front(&text, &offer(), TextEnd::Own).unwrap_or_default();
        let tools: Vec<_> = whole.calls.iter().map(|call| &call.tool).collect();
        let given: Vec<_> = given.iter().map(|(tool, _)| tool).collect();
        prop_assert!(tools.starts_with(&given), "{text:?}: {given:?} {tools:?}");
        if tools.is_empty() {
            prop_assert_eq!(passed.unwrap_or_default(), text.clone());
        } else {
            prop_assert_eq!(passed, None);
        }
        let _ = find(&text, &offer(), TextEnd::Cut);
        let _ = of_thought(&text, &offer(), TextEnd::Own);
        let _ = is_failed(&text, &offer(), TextEnd::Own);
    }
}
