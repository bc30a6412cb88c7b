//! The forms in which texts are compared: a copy that was re-spaced, quoted, encoded or given another form of calls is
//! the same text.

mod decoded;

use decoded::decoded;
use std::borrow::Cow;
use toolhold_json::rules::ReadingRules;
use toolhold_policy::text;
use unicode_normalization::UnicodeNormalization as _;

/// The mark between two words of a [`wording`].
pub(super) const BETWEEN_WORDS: char = ':';
/// Maximum letters of a line's number, of `cat -n` or `grep -n`.
const MAX_NUMBER: usize = 9;
/// Maximum bytes of a tool's name.
const MAX_NAME: usize = 64;
/// Names of functions that servers put before a tool's name, some with a number behind it.
const NUMBERED: [&str; 2] = ["functions_", "default_api_"];
/// Prefixes of tool names, as they are read (`toolhold_protocol::function_names`).
const NAMESPACES: [&str; 11] = [
    "functions_",
    "functions/",
    "function_",
    "function/",
    "tools_",
    "tools/",
    "tool_",
    "tool/",
    "default_api_",
    "default_api/",
    "multi_tool_use_",
];

/// The attribute that says whether a value is a string or JSON.
const TYPE: &str = "string";

/// Words of the form of calls, and not of their content, in alphabetical order.
const FORM: [&str; 60] = [
    "_tool",
    "action_end",
    "analysis",
    "analysisto",
    "arg_key",
    "arg_value",
    "args",
    "arguments",
    "assistant",
    "assistantto",
    "call",
    "call_id",
    "calls",
    "channel",
    "commentary",
    "commentaryto",
    "constrain",
    "default_api",
    "end",
    "end_action",
    "end_function_call",
    "escape",
    "false",
    "function",
    "function_call",
    "function_calls",
    "function_name",
    "functions",
    "functools",
    "id",
    "index",
    "input",
    "invoke",
    "invokename",
    "json",
    "message",
    "name",
    "null",
    "output",
    "parameter",
    "parametername",
    "parameters",
    "plugin",
    "print",
    "python_tag",
    "start",
    "start_action",
    "start_function_call",
    "string",
    "to",
    "tool",
    "tool_call",
    "tool_call_id",
    "tool_calls",
    "tool_code",
    "tool_input",
    "tool_name",
    "tools",
    "true",
    "type",
];
/// Further words of the form of calls, unknown to the rules of format 3.
const LATER_FORM: [&str; 10] = [
    "dots_function_call",
    "longcat_arg_key",
    "longcat_arg_value",
    "longcat_tool_call",
    "minimax",
    "seed",
    "steptml",
    "toolcall",
    "tools_prefix",
    "tools_suffix",
];
/// Further words of the form of calls, unknown to the rules before format 5.
const FORM_FROM_5: [&str; 11] = [
    "bot_end",
    "end_tool_request",
    "function_args",
    "functioncall",
    "recipient_name",
    "tool_args",
    "tool_arguments",
    "tool_request",
    "tool_uses",
    "unused11",
    "unused12",
];
/// Beginnings of words that are marks of calls, such as `tool_call_begin`.
const MARKS: [&str; 3] = ["tool_call", "tool_sep", "dsml"];

/// `text` without white space, quotation marks, backslashes and what is invisible, in lower case and in Unicode's
/// compatibility form (NFKC); encodings of characters are what they stand for. The marks that are left are those that
/// calls are built of. Time and space grow with the text.
pub(super) fn plain(text: &str) -> String {
    DecodedText::of(text).plain()
}

/// The lines of `text`, each [`plain`].
pub(super) fn plain_lines(text: &str) -> Vec<String> {
    decoded(text).split('\n').map(folded).collect()
}

/// The words of `text`, each behind [`BETWEEN_WORDS`], without all that differs between the forms of calls (marks, tags,
/// names of members, fences) or between copies of lines (`> `, `+`, `// `, numbers).
pub(super) fn wording(rules: ReadingRules, text: &str) -> String {
    DecodedText::of(text).wording(rules)
}

/// A text without encodings, from which both of its forms are made.
#[derive(Debug)]
pub(super) struct DecodedText<'t>(Cow<'t, str>);

impl<'t> DecodedText<'t> {
    pub fn of(text: &'t str) -> Self {
        Self(decoded(text))
    }

    /// The plain text; see the function [`plain`].
    pub fn plain(&self) -> String {
        folded(&self.0)
    }

    /// The wording; see the function [`wording`].
    pub fn wording(&self, rules: ReadingRules) -> String {
        words(rules, &without_prefixes(&self.0))
    }
}

/// The plain text of the lines, without what stands before them.
fn without_prefixes(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut lines = text.split('\n').map(without_prefix).peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            // Its language stands for nothing.
            whole.push(';');
            continue;
        }
        // A name and its arguments on the next line are a form of calls.
        if is_name(line) && lines.peek().is_some_and(|next| next.starts_with('{')) {
            whole.push(';');
        }
        whole.push_str(&folded(line));
    }
    whole
}

/// The words of a plain text that are none of a form.
fn words(rules: ReadingRules, text: &str) -> String {
    let namespaces: &[&str] = match rules {
        ReadingRules::Format3 => &NUMBERED,
        ReadingRules::Format4 | ReadingRules::Current => &NAMESPACES,
    };
    let mut out = String::with_capacity(text.len());
    let mut before = "";
    for part in text.split_inclusive(is_syntax) {
        let word = part.strip_suffix(is_syntax).unwrap_or(part);
        if word.is_empty() {
            continue;
        }
        let bare = without_type(before, bare(word), part);
        let name = namespaces.iter().find_map(|space| bare.strip_prefix(space));
        let is_placed = NUMBERED.iter().any(|space| before.starts_with(space));
        let is_index = is_placed && bare.chars().all(|c| c.is_ascii_digit());
        let is_type = before.ends_with(TYPE) && matches!(bare, "true" | "false");
        let is_value = matches!(bare, "true" | "false" | "null") && !is_type;
        if !bare.is_empty() && !is_index && (!is_form(rules, bare) || is_value) {
            out.push(BETWEEN_WORDS);
            let name = name.map(|name| match name.strip_suffix("json") {
                Some(name) if part.ends_with(['{', '<']) && !name.is_empty() => name,
                _ => name,
            });
            out.push_str(name.unwrap_or(bare));
        }
        before = self::bare(word);
    }
    out.push(BETWEEN_WORDS);
    out
}

/// Whether calls are built of it.
pub(super) fn is_syntax(c: char) -> bool {
    matches!(
        c,
        '{' | '}' | '[' | ']' | '(' | ')' | '<' | '>' | ':' | '=' | ',' | ';' | '|'
    )
}

/// Whether a plain word is one of a form of calls.
pub(super) fn is_form(rules: ReadingRules, word: &str) -> bool {
    MARKS.iter().any(|mark| word.starts_with(mark))
        || FORM.binary_search(&word).is_ok()
        || (rules.are_from_4() && LATER_FORM.contains(&word))
        || (rules.are_from_5() && FORM_FROM_5.contains(&word))
        || word.chars().all(|c| c == '_')
}

/// A plain word without the marks at its ends: `/` of a closing tag, `*` of a list.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| c.is_ascii_punctuation())
}

fn is_name(line: &str) -> bool {
    let line = line.trim_end();
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    (1..=MAX_NAME).contains(&line.len()) && line.chars().all(is_letter)
}

/// A word without the attribute `string` behind it, which the form of DeepSeek has: `name="path" string="true"`.
fn without_type<'w>(before: &str, word: &'w str, part: &str) -> &'w str {
    match word.strip_suffix(TYPE) {
        Some(name) if part.ends_with('=') && before == "parametername" => name,
        _ => word,
    }
}

/// A line without what quotations, changes, comments, lists and numbered listings put before it.
fn without_prefix(line: &str) -> &str {
    let is_mark = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '>' | '+' | '-' | '#' | '*' | '/' | '%' | ';' | '|' | '│' | '!' | '"' | '\''
            )
    };
    let line = line.trim_start_matches(is_mark);
    without_number(line).trim_start_matches(is_mark)
}

/// `12:`, `12|`, `12)` and a tab or two spaces behind a number, perhaps with the name of a file and a colon before.
fn without_number(line: &str) -> &str {
    let counted = |text: &'_ str| {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &text[digits..];
        let is_marked = rest.starts_with([':', '|', ')', '\t', '-'])
            || rest.starts_with("  ")
            || rest.starts_with(" |");
        ((1..=MAX_NUMBER).contains(&digits) && is_marked).then(|| text.len() - rest.len())
    };
    if let Some(at) = counted(line) {
        return line[at..].trim_start_matches([':', '|', ')', '-']);
    }
    let named = line.char_indices().take_while(|(_, c)| {
        !c.is_whitespace() && !matches!(c, '{' | '<' | '[' | '(' | '"' | '=' | ',')
    });
    for (at, c) in named {
        if matches!(c, ':' | '-')
            && let Some(end) = counted(&line[at + 1..])
        {
            return line[at + 1 + end..].trim_start_matches([':', '|', ')', '-']);
        }
    }
    line
}

fn folded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    if text.is_ascii() {
        for c in text.chars() {
            push(c, &mut out);
        }
    } else {
        for c in text.nfkc() {
            push(c, &mut out);
        }
    }
    out
}

fn push(c: char, out: &mut String) {
    match c {
        '"'
        | '\''
        | '`'
        | '\\'
        | '\u{B4}'
        | '\u{AB}'
        | '\u{BB}'
        | '\u{2018}'..='\u{201F}'
        | '\u{2039}'
        | '\u{203A}'
        // How white space is shown.
        | '\u{B7}' | '\u{B6}' | '\u{2190}'..='\u{2193}' | '\u{21B2}'..='\u{21B5}' | '\u{23CE}' | '\u{2400}'..='\u{2426}' => {}
        // How functions are named differs in these.
        '-' | '.' | '\u{2581}' | '\u{2010}'..='\u{2015}' => out.push('_'),
        c if c.is_ascii() => {
            if !c.is_ascii_whitespace() && !c.is_ascii_control() {
                out.push(c.to_ascii_lowercase());
            }
        }
        c if c.is_whitespace() || text::is_escaped(c) => {}
        c => out.extend(c.to_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str =
        "<tool_call>{\"name\": \"files.write\", \"arguments\": {\"path\": \"a b\"}}</tool_call>";

    #[test]
    fn copies_in_other_clothes_are_the_same_text() {
        let call = CALL;
        let same = plain(call);
        assert_eq!(
            same,
            "<tool_call>{name:files_write,arguments:{path:ab}}</tool_call>"
        );
        let json = serde_json::to_string(call).unwrap();
        let twice = serde_json::to_string(&json).unwrap();
        for copy in [
            call.replace(' ', "\n\t "),
            call.replace(' ', "\u{B7}"),
            call.replace('"', "'"),
            call.replace('"', "\u{201C}"),
            call.replace("files", "fi\u{200B}les\u{AD}"),
            call.replace("files", "\u{1D41F}\u{1D422}\u{1D425}\u{1D41E}\u{1D42C}"),
            call.replace("files", "\u{FB01}les"),
            call.to_uppercase(),
            call.replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;"),
            call.replace('<', "&amp;lt;")
                .replace('"', "&#34;")
                .replace('>', "&#x3e;"),
            call.replace('<', "\\u003c").replace('>', "\\x3E"),
            call.replace('<', "\u{FF1C}"),
            call.replace('.', "-"),
            json,
            twice,
        ] {
            assert_eq!(plain(&copy), same, "{copy}");
        }
        assert_eq!(plain("E\u{301}"), plain("\u{C9}"));
    }

    #[test]
    fn forms_of_calls_have_the_same_words() {
        let words =
            ":files_write:path:ab:content:one,two;three:last:true:".replace([',', ';'], ":");
        for call in [
            "{\"name\": \"files.write\", \"arguments\": {\"path\": \"a b\", \"content\": \"one,\\ntwo;\\nthree\", \"last\": true}}",
            "<tool_call>\n<function=files.write>\n<parameter=path>\na b\n</parameter>\n<parameter=content>\none,\ntwo;\nthree\n</parameter>\n<parameter=last>\ntrue\n</parameter>\n</function>\n</tool_call>",
            "<tool_call>files.write<arg_key>path</arg_key><arg_value>a b</arg_value><arg_key>content</arg_key><arg_value>one,two;three</arg_value><arg_key>last</arg_key><arg_value>true</arg_value></tool_call>",
            "<|tool_call_begin|>functions.files.write:0<|tool_call_argument_begin|>{\"path\": \"a b\", \"content\": \"one,\\ntwo;three\", \"last\": true}<|tool_call_end|>",
            "<|channel|>commentary to=functions.files.write json<|message|>{\"path\": \"a b\", \"content\": \"one, two; three\", \"last\": true}<|call|>",
            "<｜DSML｜invoke name=\"files.write\"><｜DSML｜parameter name=\"path\" string=\"true\">a b</｜DSML｜parameter><｜DSML｜parameter name=\"content\" string=\"true\">one,two;three</｜DSML｜parameter><｜DSML｜parameter name=\"last\" string=\"false\">true</｜DSML｜parameter></｜DSML｜invoke>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>files.write\n```json\n{\"path\": \"a b\", \"content\": \"one,two;three\", \"last\": true}\n```<｜tool▁call▁end｜>",
            "```tool_code\nprint(files.write(path=\"a b\", content=\"one,two;three\", last=true))\n```",
            "<seed:tool_call><function=files.write><parameter=path>a b</parameter><parameter=content>one,two;three</parameter><parameter=last>true</parameter></function></seed:tool_call>",
            "<longcat_tool_call>files.write<longcat_arg_key>path</longcat_arg_key><longcat_arg_value>a b</longcat_arg_value><longcat_arg_key>content</longcat_arg_key><longcat_arg_value>one,two;three</longcat_arg_value><longcat_arg_key>last</longcat_arg_key><longcat_arg_value>true</longcat_arg_value></longcat_tool_call>",
            "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"files.write\"><steptml:parameter name=\"path\">a b</steptml:parameter><steptml:parameter name=\"content\">one,two;three</steptml:parameter><steptml:parameter name=\"last\">true</steptml:parameter></steptml:invoke><｜tool_call_end｜>",
            "<TOOLCALL>[{\"name\": \"tools.files.write\", \"arguments\": {\"path\": \"a b\", \"content\": \"one,two;three\", \"last\": true}}]</TOOLCALL>",
            "<|tools_prefix|>[{\"multi_tool_use.files.write\": {\"path\": \"a b\", \"content\": \"one,two;three\", \"last\": true}}]<|tools_suffix|>",
        ] {
            assert_eq!(wording(ReadingRules::Current, call), words, "{call}");
        }
    }

    type Numbered = fn(usize, &str) -> String;

    #[test]
    fn prefixes_of_lines_are_no_words() {
        let lines = [
            "<function=f>",
            "<parameter=a>",
            "one",
            "two",
            "</parameter>",
        ];
        let expect = wording(ReadingRules::Current, &lines.join("\n"));
        assert_eq!(expect, ":f:a:onetwo:");
        for prefix in ["+", "> ", ">> ", "| ", "// ", "# ", " * ", "-- "] {
            let copy: Vec<String> = lines.iter().map(|line| format!("{prefix}{line}")).collect();
            assert_eq!(
                wording(ReadingRules::Current, &copy.join("\n")),
                expect,
                "{prefix:?}"
            );
        }
        let numbered: [Numbered; 6] = [
            |n, line| format!("{n:6}\t{line}"),
            |n, line| format!("{n}:{line}"),
            |n, line| format!("src/a b.txt:{n}:{line}").replace(' ', "_"),
            |n, line| format!("a.txt-{n}-{line}"),
            |n, line| format!("{n:>4} | {line}"),
            |n, line| format!("{n:>4}  {line}"),
        ];
        for (at, number) in numbered.iter().enumerate() {
            let copy: Vec<String> = (98..).zip(lines).map(|(n, line)| number(n, line)).collect();
            assert_eq!(
                wording(ReadingRules::Current, &copy.join("\n")),
                expect,
                "{at}"
            );
        }
    }

    #[test]
    fn words_of_the_form_are_in_order() {
        assert!(FORM.is_sorted());
        let later = LATER_FORM.iter().chain(&FORM_FROM_5);
        assert!(!later.into_iter().any(|word| FORM.contains(word)));
    }
}
