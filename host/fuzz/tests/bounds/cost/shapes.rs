//! Inputs of about a wanted size, each made to cost its reader as much as it can.

use std::fmt::Write as _;

/// A shape's name, and an input of it of about so many bytes.
pub type Shape = (&'static str, fn(usize) -> String);

/// `unit` again and again, numbered at `#`, between two texts.
pub fn many(bytes: usize, before: &str, unit: &str, between: &str, after: &str) -> String {
    let mut text = String::with_capacity(bytes + 64);
    text.push_str(before);
    for number in 0_u32.. {
        if number > 0 {
            if text.len() >= bytes {
                break;
            }
            text.push_str(between);
        }
        match unit.split_once('#') {
            Some((head, tail)) => {
                let tail = tail.replace('#', &number.to_string());
                let _ = write!(text, "{head}{number}{tail}");
            }
            None => text.push_str(unit),
        }
    }
    text.push_str(after);
    text
}

/// Letters of an alphabet in an order without meaning, the same in each run.
fn noise(bytes: usize, seed: u64, alphabet: &str) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = seed | 1;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(letters[(state % letters.len() as u64) as usize]);
    }
    text
}

/// As deep as readers of JSON go, again and again.
fn towers(bytes: usize, open: &str, inner: &str, close: &str) -> String {
    let tower = open.repeat(90) + inner + &close.repeat(90);
    many(bytes, "[", &tower, ",", "]")
}

/// JSON, and what is nearly JSON.
pub const JSON: &[Shape] = &[
    ("brackets that stay open", |n| "[".repeat(n)),
    ("braces that stay open", |n| "{\"a\":".repeat(n / 5)),
    ("small lists", |n| many(n, "[", "[1]", ",", "]")),
    ("empty objects", |n| many(n, "[", "{}", ",", "]")),
    ("one object of many members", |n| {
        many(n, "{", "\"k#\":0", ",", "}")
    }),
    ("the same key in many objects", |n| {
        many(n, "[", "{\"\":0}", ",", "]")
    }),
    ("keys that are there twice", |n| {
        many(n, "{", "\"a\":0,\"b\":1", ",", "}")
    }),
    ("towers of lists", |n| towers(n, "[", "1", "]")),
    ("towers of objects", |n| towers(n, "{\"a\":", "1", "}")),
    ("long keys", |n| {
        let key = format!("\"{}#\":0", "k".repeat(2_000));
        many(n, "{", &key, ",", "}")
    }),
    ("one text", |n| format!("\"{}\"", "x".repeat(n))),
    ("a text that does not end", |n| {
        format!("{{\"a\":\"{}", "x".repeat(n))
    }),
    ("escapes", |n| many(n, "{\"a\":\"", "\\u0041", "", "\"}")),
    ("escaped quotes", |n| many(n, "[\"", "\\\"", "", "\"]")),
    ("halves of pairs", |n| many(n, "[\"", "\\ud800", "", "\"]")),
    ("quotes", |n| "\"".repeat(n)),
    ("backslashes", |n| format!("[\"{}", "\\".repeat(n))),
    ("JSON in a text in a text", |n| {
        let inner = many(n / 3, "[", "{\\\\\\\"a\\\\\\\":1}", ",", "]");
        format!("{{\"a\":\"{{\\\"b\\\":\\\"{inner}")
    }),
    ("a number without end", |n| format!("[{}]", "7".repeat(n))),
    ("digits behind the point", |n| {
        format!("[0.{}1]", "0".repeat(n))
    }),
    ("large exponents", |n| {
        many(n, "[", "1e308,1e-999", ",", "]")
    }),
    ("white space", |n| format!("[{}1]", " \n".repeat(n / 2))),
    ("commas", |n| format!("[{}", ",".repeat(n))),
    ("single quotes", |n| many(n, "{", "'k#': 'v'", ", ", "}")),
    ("comments", |n| many(n, "[", "1 /* c */ // d\n", ",", "]")),
    ("comments that stay open", |n| "[/*".repeat(n / 3)),
    ("noise", |n| {
        noise(n, 0x9e37_79b9, "[]{}\",:\\01a e-+.'/*\n")
    }),
    ("more noise", |n| noise(n, 0x2545_f491, "{\"a\":[1,]} ")),
];

/// Schemas as bytes, from small ones of many parts to such that repeat themselves.
pub const SCHEMAS: &[Shape] = &[
    ("properties", |n| {
        many(
            n,
            "{\"properties\":{",
            "\"p#\":{\"type\":\"string\"}",
            ",",
            "}}",
        )
    }),
    ("alternatives", |n| {
        many(n, "{\"anyOf\":[", "{\"const\":#}", ",", "]}")
    }),
    ("one of many objects", |n| {
        many(
            n,
            "{\"oneOf\":[",
            "{\"properties\":{\"a\":{\"const\":#}}}",
            ",",
            "]}",
        )
    }),
    ("a long enum", |n| many(n, "{\"enum\":[", "#", ",", "]}")),
    ("an enum of lists", |n| {
        many(n, "{\"enum\":[", "[[#]]", ",", "]}")
    }),
    ("names that are required", |n| {
        many(n, "{\"required\":[", "\"p#\"", ",", "]}")
    }),
    ("references that double", |n| {
        let mut defs = String::new();
        let count = n / 70;
        for at in 0..count {
            let _ = write!(
                defs,
                "\"d{at}\":{{\"allOf\":[{{\"$ref\":\"#/$defs/d{}\"}},{{\"$ref\":\"#/$defs/d{}\"}}]}},",
                at + 1,
                at + 1
            );
        }
        format!("{{\"$ref\":\"#/$defs/d0\",\"$defs\":{{{defs}\"d{count}\":{{}}}}}}")
    }),
    ("lists of themselves", |n| {
        let mut defs = String::from("{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d0\":{}");
        for at in 1..n / 40 {
            let _ = write!(
                defs,
                ",\"d{at}\":{{\"items\":{{\"$ref\":\"#/$defs/d{}\"}}}}",
                at - 1
            );
        }
        defs + "}}"
    }),
    ("schemas in each other", |n| {
        let tower = "{\"items\":".repeat(28) + "true" + &"}".repeat(28);
        many(n, "{\"anyOf\":[", &tower, ",", "]}")
    }),
    ("not in each other", |n| {
        let tower = "{\"not\":".repeat(28) + "true" + &"}".repeat(28);
        many(n, "{\"allOf\":[", &tower, ",", "]}")
    }),
    ("patterns", |n| {
        many(
            n,
            "{\"patternProperties\":{",
            "\"^(a|b#)+c*$\":{}",
            ",",
            "}}",
        )
    }),
    ("patterns that repeat", |n| {
        many(
            n,
            "{\"allOf\":[",
            "{\"pattern\":\"(a{1,50}){1,#}\"}",
            ",",
            "]}",
        )
    }),
    ("one long pattern", |n| {
        format!("{{\"pattern\":\"{}\"}}", "(a|b)*".repeat(n / 6))
    }),
    ("what is not evaluated", |n| {
        many(
            n,
            "{\"unevaluatedProperties\":false,\"anyOf\":[",
            "{\"properties\":{\"p#\":{}},\"unevaluatedProperties\":true}",
            ",",
            "]}",
        )
    }),
    ("inner schemas with an id", |n| {
        many(
            n,
            "{\"$defs\":{",
            "\"d#\":{\"$id\":\"i#\",\"$ref\":\"i0\"}",
            ",",
            "}}",
        )
    }),
    ("long names above others", |n| {
        let name = "n".repeat(n / 60);
        let tower = format!("{{\"properties\":{{\"{name}\":").repeat(20) + "{}" + &"}}".repeat(20);
        format!("{{\"allOf\":[{tower},{tower}]}}")
    }),
];

/// Server-sent events of a chat completion, and such that are none.
pub const STREAMS: &[Shape] = &[
    ("single letters", |n| {
        many(
            n,
            "",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("calls of one piece each", |n| {
        many(
            n,
            "",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":#,\"id\":\"i#\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("one call in pieces that may be its end", |n| {
        let piece = |arguments: &str| {
            let call = format!(
                "{{\"index\":0,\"function\":{{\"name\":\"f\",\"arguments\":\"{arguments}\"}}}}"
            );
            format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n")
        };
        let letters = "x".repeat(40) + "}";
        many(
            n,
            &piece("{\\\"a\\\":\\\""),
            &piece(&letters),
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("pieces of a call that only looks whole", |n| {
        let piece = |arguments: &str| {
            let call = format!(
                "{{\"index\":0,\"function\":{{\"name\":\"f\",\"arguments\":\"{arguments}\"}}}}"
            );
            format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n")
        };
        let arguments = format!("{{\\\"a\\\":[{}01]}}", "[],".repeat(n / 6));
        many(n, &piece(&arguments), &piece(" "), "", "data: [DONE]\n\n")
    }),
    ("one call in pieces", |n| {
        many(
            n,
            "",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"[\"}}]}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("pieces of a call under an index each", |n| {
        many(
            n,
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\\\"\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":#,\"function\":{\"arguments\":\"x\"}}]}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("a name in pieces", |n| {
        many(
            n,
            "",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"name\":\"n#\"},{\"name\":\"m#\"}]}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("thoughts in parts of small values", |n| {
        many(
            n,
            "",
            "data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"t\",\"index\":#,\"data\":[[],[],[],[]]}]}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("pieces that fit no call", |n| {
        many(
            n,
            "",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":#,\"function\":{\"arguments\":\"x\"}}]}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("thoughts in parts", |n| {
        many(
            n,
            "",
            "data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"t\",\"index\":0,\"text\":\"a\"}]}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("thoughts", |n| {
        many(
            n,
            "",
            "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}\n\n",
            "",
            "data: [DONE]\n\n",
        )
    }),
    ("one long line", |n| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
            "x".repeat(n)
        )
    }),
    ("a line that does not end", |n| {
        format!("data: {}", "x".repeat(n))
    }),
    ("one event of many lines", |n| "data: 1\n".repeat(n / 8)),
    ("empty lines", |n| "\n".repeat(n)),
    ("comments", |n| ":\n\n".repeat(n / 3)),
    ("carriage returns", |n| "\r".repeat(n)),
    ("names of events", |n| "event: a\nid: 1\n\n".repeat(n / 16)),
    ("JSON as a whole", |n| {
        many(
            n,
            "{\"choices\":[{\"message\":{\"tool_calls\":[",
            "{\"id\":\"i#\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}",
            ",",
            "]}}]}",
        )
    }),
    ("choices", |n| {
        many(
            n,
            "{\"choices\":[",
            "{\"message\":{\"content\":\"a\"}}",
            ",",
            "]}",
        )
    }),
    ("noise", |n| noise(n, 0x1234_5678, "data: {}\n\r[]\":event")),
];

/// What a model may write as its answer, beside JSON.
pub const REPLIES: &[Shape] = &[
    ("calls", |n| {
        many(
            n,
            "{\"calls\":[",
            "{\"_tool\":\"news\",\"x\":#}",
            ",",
            "],\"output\":null}",
        )
    }),
    ("calls that leaked", |n| {
        many(
            n,
            "",
            "<tool_call>{\"name\":\"news\",\"arguments\":{\"x\":#}}</tool_call>",
            "\n",
            "",
        )
    }),
    ("calls that stay open", |n| "<tool_call>".repeat(n / 11)),
    ("calls of functions", |n| {
        many(
            n,
            "",
            "<function=news><parameter=x>#</parameter></function>",
            "\n",
            "",
        )
    }),
    ("calls in brackets", |n| {
        many(n, "[", "news(x=#)", ", ", "]")
    }),
    ("thoughts", |n| "<think>a</think>".repeat(n / 16)),
    ("thoughts that stay open", |n| "<think>".repeat(n / 7)),
    ("fences", |n| {
        many(n, "", "```json\n{\"a\":#}\n```\n", "", "")
    }),
    ("fences that stay open", |n| "```".repeat(n / 3)),
    ("angle brackets", |n| "<".repeat(n)),
    ("marks of tokens", |n| "<|tool_call|>".repeat(n / 13)),
    ("marks of calls", |n| "[TOOL_CALLS]".repeat(n / 12)),
    ("prose", |n| "one word and another, ".repeat(n / 22)),
    ("lines", |n| "\n".repeat(n)),
];

/// A call of `news` whose argument has about `bytes` bytes, without the mark that closes it.
fn open_call(bytes: usize) -> String {
    let argument = "x".repeat(bytes);
    format!("<tool_call>{{\"name\":\"news\",\"arguments\":{{\"x\":\"{argument}\"}}}}")
}

/// Replies rich in marks: of thoughts, of calls, and around calls.
pub const MARKS: &[Shape] = &[
    ("marks around calls", |n| "</s>".repeat(n / 4)),
    ("marks and blanks around calls", |n| {
        " <|im_end|>\n</tool_calls>".repeat(n / 25)
    }),
    ("beginnings of marks", |n| "<\u{ff5c}tool".repeat(n / 8)),
    ("marks after a call", |n| {
        open_call(n / 2) + "</tool_call>" + &"</s>".repeat(n / 8)
    }),
    ("blanks after a call", |n| {
        open_call(n / 2) + "</tool_call>" + &" ".repeat(n / 2)
    }),
    ("marks between calls", |n| {
        open_call(0) + "</tool_call>\n" + &"</s>\n".repeat(n / 5)
    }),
    ("calls with marks after each", |n| {
        (open_call(n / 80) + "</tool_call></s>\n").repeat(80)
    }),
    ("closing marks in a call", |n| {
        open_call(n / 2).replace("\"}}", "") + &"</tool_call>".repeat(n / 24)
    }),
    ("closing marks after a quoted call", |n| {
        open_call(n / 2) + "</tool_call> is a call.\n" + &"</tool_call>".repeat(n / 24)
    }),
    ("closing marks after a call of nothing", |n| {
        open_call(n / 2).replace("news", "none") + &"</tool_call>".repeat(n / 24)
    }),
    ("a call that another one closes", |n| {
        let call = format!("[TOOL_CALLS]news{{\"x\":\"{}\"}}", "x".repeat(n / 2));
        call + &"[TOOL_CALLS]".repeat(n / 24)
    }),
    ("marks before calls that are none", |n| {
        "</s>".repeat(n / 8) + &"<tool_call>".repeat(n / 22)
    }),
    ("marks that close thoughts", |n| "</think>".repeat(n / 8)),
    ("thoughts that begin in the prompt", |n| {
        "a\n</think>".repeat(n / 10)
    }),
    ("thoughts of nothing", |n| "<think></think>".repeat(n / 15)),
    ("beginnings of a mark in a thought", |n| {
        "<think>".to_owned() + &"</think".repeat(n / 7)
    }),
    ("thoughts of Harmony", |n| {
        "<|channel|>analysis<|message|><|end|>".repeat(n / 37)
    }),
    ("commentaries of Harmony", |n| {
        "<|start|>assistant<|channel|>commentary<|message|>".repeat(n / 50)
    }),
    ("a commentary with beginnings of marks", |n| {
        "<|channel|>commentary<|message|>".to_owned() + &"<|start|>".repeat(n / 9)
    }),
    ("a header without an end", |n| {
        "<|channel|>".to_owned() + &"a".repeat(n)
    }),
    ("marks in the last message of Harmony", |n| {
        "<|channel|>final<|message|>".to_owned() + &"<|end|> \n".repeat(n / 9)
    }),
    ("a thought that lost its marks", |n| {
        "analysis.".to_owned() + &"assistantcommentary".repeat(n / 19)
    }),
    ("lists of calls in each other", |n| {
        "<tool_calls><tool_call>".repeat(n / 23)
    }),
    ("lists with a call each", |n| {
        "<tool_calls><tool_call>{\"name\":\"none\"}</tool_call></tool_calls>\n".repeat(n / 64)
    }),
    ("marks of no known form", |n| "<x_call>".repeat(n / 8)),
    ("a call of no known form with many parameters", |n| {
        many(n, "<x_call name=\"news\">", "<p#>1</p#>", "", "</x_call>")
    }),
    ("a parameter that many marks may close", |n| {
        "<x_call name=\"news\"><p>".to_owned() + &"</p> ".repeat(n / 5)
    }),
    ("words between marks of no known form", |n| {
        "<x_call>".to_owned() + &"a<b>".repeat(n / 4)
    }),
    ("brackets behind a mark of no known form", |n| {
        "<x_call>".to_owned() + &"[".repeat(n)
    }),
];

/// Texts for those who look for something in them.
pub const TEXTS: &[Shape] = &[
    ("one letter", |n| "a".repeat(n)),
    ("digits", |n| "4".repeat(n)),
    ("groups of digits", |n| "4111-".repeat(n / 5)),
    ("numbers", |n| many(n, "+", "49 30 #", " ", "")),
    ("at signs", |n| "@".repeat(n)),
    ("addresses", |n| many(n, "", "a#@b.c", "", "")),
    ("dots", |n| "a.".repeat(n / 2)),
    ("words", |n| many(n, "", "w#", " ", "")),
    ("lines", |n| "\n".repeat(n)),
    ("escapes of a terminal", |n| "\u{1b}[31m".repeat(n / 5)),
    ("marks of direction", |n| "\u{202e}".repeat(n / 3)),
    ("percent", |n| "%61".repeat(n / 3)),
    ("percent of percent", |n| "%25".repeat(n / 3)),
    ("escapes", |n| "\\u0061".repeat(n / 6)),
    ("entities", |n| "&#97;".repeat(n / 5)),
    ("backslashes", |n| "\\".repeat(n)),
    ("base64", |n| "YWFh".repeat(n / 4)),
    ("base64 in lines", |n| "YWFh\r\n".repeat(n / 6)),
    ("escaped base64 in lines", |n| "YWFh%0A\\n".repeat(n / 9)),
    ("hex", |n| "61".repeat(n / 2)),
    ("keys", |n| "sk-AKIAeyJ".repeat(n / 10)),
    ("slashes", |n| "/../%2e%2e".repeat(n / 10)),
    ("daggers", |n| "\u{2020}a.b[0]||".repeat(n / 12)),
    ("noise", |n| noise(n, 0x0bad_cafe, "a@.%61\\u00&#;+= \n-4")),
];

/// TOML, as manifests are.
pub const TOML: &[Shape] = &[
    ("keys", |n| many(n, "", "k# = 1", "\n", "")),
    ("dotted keys", |n| many(n, "", "a.b#.c = 1", "\n", "")),
    ("one long key", |n| format!("{}a = 1", "a.".repeat(n / 2))),
    ("tables", |n| many(n, "", "[t#]", "\n", "")),
    ("one deep table", |n| format!("[{}a]", "a.".repeat(n / 2))),
    ("lists of tables", |n| {
        many(n, "", "[[grants.directories]]\nguest = \"/d#\"", "\n", "")
    }),
    ("lists in each other", |n| {
        format!("a = {}{}", "[".repeat(n / 2), "]".repeat(n / 2))
    }),
    ("tables in each other", |n| {
        format!("a = {}{}", "{a=".repeat(n / 4), "}".repeat(n / 4))
    }),
    ("a list", |n| many(n, "a = [", "1", ",", "]")),
    ("a text", |n| {
        format!("description = \"\"\"{}\"\"\"", "x\n".repeat(n / 2))
    }),
    ("a text that does not end", |n| {
        format!("description = \"\"\"{}", "\"\\\n".repeat(n / 3))
    }),
    ("comments", |n| "# c\n".repeat(n / 4)),
    ("a number", |n| format!("a = {}", "1_".repeat(n / 2))),
];

/// Plans and saved contexts.
pub const PLANS: &[Shape] = &[
    ("a chain", |n| {
        let mut text = String::from("[{\"_tool\":\"t\",\"_outputPath\":\"\u{2020}s.k0\"}");
        for at in 1..(n / 70).max(1) {
            let _ = write!(
                text,
                ",{{\"_tool\":\"t\",\"x\":\"\u{2020}s.k{}\",\"_outputPath\":\"\u{2020}s.k{at}\"}}",
                at - 1
            );
        }
        text + "]"
    }),
    ("all read and write one place", |n| {
        many(
            n,
            "[",
            "{\"_tool\":\"t\",\"x\":\"\u{2020}s.k\",\"_outputPath\":\"\u{2020}s.k\",\"_outputMethod\":\"push\"}",
            ",",
            "]",
        )
    }),
    ("all write one place, and all read it", |n| {
        let write = many(
            n / 2,
            "[",
            "{\"_tool\":\"t\",\"_outputPath\":\"\u{2020}s.k\"}",
            ",",
            "",
        );
        let read = many(
            n / 2,
            ",",
            "{\"_tool\":\"t\",\"x\":\"\u{2020}s.k\"}",
            ",",
            "]",
        );
        write + &read
    }),
    ("nothing to do with each other", |n| {
        many(n, "[", "{\"_tool\":\"t\",\"x\":#}", ",", "]")
    }),
    ("alternatives", |n| {
        let paths = many(n, "", "\u{2020}s.k#", " || ", "");
        format!(
            "[{{\"_tool\":\"t\",\"_outputPath\":\"\u{2020}s.k0\"}},{{\"_tool\":\"t\",\"x\":\"{paths}\"}}]"
        )
    }),
    ("a long path", |n| {
        format!(
            "[{{\"_tool\":\"t\",\"x\":\"\u{2020}s{}\"}}]",
            ".a".repeat(n / 2)
        )
    }),
    ("a deep argument", |n| {
        towers(n, "[", "{\"_tool\":\"t\"}", "]")
    }),
    ("faulty steps", |n| many(n, "[", "{\"_tool\":#}", ",", "]")),
    ("steps in a circle", |n| {
        many(
            n,
            "[",
            "{\"_tool\":\"t\",\"x\":\"\u{2020}s.k#\",\"_outputPath\":\"\u{2020}s.k#\"}",
            ",",
            "]",
        )
    }),
];

pub const CONTEXTS: &[Shape] = &[
    ("messages", |n| {
        many(n, "[", "{\"role\":\"user\",\"content\":\"a\"}", ",", "]")
    }),
    ("data", |n| {
        many(
            n,
            "[",
            "{\"type\":\"state\",\"state\":{\"k#\":#}}",
            ",",
            "]",
        )
    }),
    ("data of instances", |n| {
        many(
            n,
            "[",
            "{\"type\":\"state\",\"state\":{\"k\":#},\"_instance\":\"i#\"}",
            ",",
            "]",
        )
    }),
    ("data with schemas", |n| {
        many(
            n,
            "[",
            "{\"type\":\"state\",\"state\":#,\"schema\":{\"type\":\"integer\"},\"_instance\":\"i#\"}",
            ",",
            "]",
        )
    }),
    ("tools", |n| {
        many(
            n,
            "[",
            "{\"type\":\"tool\",\"tool\":{\"name\":\"t#\",\"parameters\":{\"type\":\"object\"}}}",
            ",",
            "]",
        )
    }),
    ("messages of a registered type", |n| {
        many(
            n,
            "[{\"type\":\"type\",\"name\":\"p\",\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}},",
            "{\"type\":\"p\",\"a\":#}",
            ",",
            "]",
        )
    }),
    ("instances of a registered type", |n| {
        many(
            n,
            "[{\"type\":\"type\",\"name\":\"p\",\"schema\":true},",
            "{\"type\":\"p\",\"a\":#,\"_instance\":\"i#\"}",
            ",",
            "]",
        )
    }),
    ("the same tool", |n| {
        many(
            n,
            "[",
            "{\"type\":\"tool\",\"tool\":{\"name\":\"t\",\"parameters\":{\"n\":#}}}",
            ",",
            "]",
        )
    }),
    ("plans", |n| {
        many(n, "[", "{\"type\":\"plan\",\"plan\":[]}", ",", "]")
    }),
    ("messages of no kind", |n| {
        many(n, "[", "{\"type\":\"none\"}", ",", "]")
    }),
];

/// WIT, as modules bring it beside their component.
pub const WIT: &[Shape] = &[
    ("functions", |n| {
        many(
            n,
            "package a:b;\ninterface i {\n",
            "f#: func(a: string) -> list<u8>;",
            "\n",
            "}",
        )
    }),
    ("names of types", |n| {
        many(
            n,
            "package a:b;\ninterface i {\n",
            "type t# = string;",
            "\n",
            "}",
        )
    }),
    ("records", |n| {
        many(
            n,
            "package a:b;\ninterface i {\n",
            "record r# { a: u8, b: list<string> }",
            "\n",
            "}",
        )
    }),
    ("one large record", |n| {
        many(
            n,
            "package a:b;\ninterface i {\nrecord r {\n",
            "f#: u8",
            ",\n",
            "}\n}",
        )
    }),
    ("types in each other", |n| {
        let depth = n / 6;
        format!(
            "package a:b;\ninterface i {{ f: func(a: {}u8{}); }}",
            "list<".repeat(depth),
            ">".repeat(depth)
        )
    }),
    ("interfaces", |n| {
        many(n, "package a:b;\n", "interface i# { f: func(); }", "\n", "")
    }),
    ("comments", |n| {
        many(
            n,
            "package a:b;\ninterface i {\n",
            "/// d",
            "\n",
            "\nf: func();\n}",
        )
    }),
    ("comments that stay open", |n| "/*".repeat(n / 2)),
    ("packages", |n| {
        many(
            n,
            "package a:b;\n",
            "package c:d# { interface i { f: func(); } }",
            "\n",
            "",
        )
    }),
    ("worlds", |n| {
        many(
            n,
            "package a:b;\n",
            "world w# { import f: func(); }",
            "\n",
            "",
        )
    }),
    ("noise", |n| {
        noise(n, 0x00de_fec8, "package interface{}:;<>,%/* \n")
    }),
];

/// Messages of MCP.
pub const MESSAGES: &[Shape] = &[
    ("a call", |n| {
        many(
            n,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"arguments\":{\"x\":[",
            "[1]",
            ",",
            "]}}}",
        )
    }),
    ("parameters", |n| {
        many(
            n,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{",
            "\"k#\":0",
            ",",
            "}}",
        )
    }),
    ("a batch", |n| {
        many(
            n,
            "[",
            "{\"jsonrpc\":\"2.0\",\"id\":#,\"method\":\"ping\"}",
            ",",
            "]",
        )
    }),
    ("a batch of nothing", |n| many(n, "[", "1", ",", "]")),
    ("a result", |n| {
        many(
            n,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[",
            "{\"type\":\"text\",\"text\":\"a\"}",
            ",",
            "]}}",
        )
    }),
    ("an error", |n| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":1,\"message\":\"{}\"}}}}",
            "x".repeat(n)
        )
    }),
    ("a long id", |n| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"m\"}}",
            "x".repeat(n)
        )
    }),
    ("a long method", |n| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}",
            "x".repeat(n)
        )
    }),
    ("members", |n| {
        many(
            n,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",",
            "\"k#\":0",
            ",",
            "}",
        )
    }),
    ("the same member", |n| {
        many(
            n,
            "{\"jsonrpc\":\"2.0\",\"id\":1,",
            "\"method\":\"m\"",
            ",",
            "}",
        )
    }),
    ("a list of tools", |n| {
        many(
            n,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[",
            "{\"name\":\"t#\",\"inputSchema\":{\"type\":\"object\"}}",
            ",",
            "]}}",
        )
    }),
];
