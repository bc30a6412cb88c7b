//! Where thoughts end, and that streaming changes nothing.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;

#[test]
fn thoughts_stand_apart() {
    for (text, thought, answer) in [
        ("It is 7.", "", "It is 7."),
        ("<think>2+5</think>7", "<think>2+5</think>", "7"),
        (
            "\n<think>\n2+5\n</think>\n\n7",
            "\n<think>\n2+5\n</think>",
            "\n\n7",
        ),
        (
            "<|channel>thought\n2+5<channel|>7",
            "<|channel>thought\n2+5<channel|>",
            "7",
        ),
        ("<think></think>7", "<think></think>", "7"),
        (
            "<reasoning>2+5</reasoning>7",
            "<reasoning>2+5</reasoning>",
            "7",
        ),
        (
            "<thinking>a</thinking><think>b</think>7",
            "<thinking>a</thinking><think>b</think>",
            "7",
        ),
        ("[THINK]2+5[/THINK]7", "[THINK]2+5[/THINK]", "7"),
        ("◁think▷2+5◁/think▷7", "◁think▷2+5◁/think▷", "7"),
        ("<THINK>2+5</THINK>7", "<THINK>2+5</THINK>", "7"),
        (
            "<longcat_think>\n2+5\n</longcat_think>\n7",
            "<longcat_think>\n2+5\n</longcat_think>",
            "\n7",
        ),
        (
            "<|inner_prefix|>2+5<|inner_suffix|>7",
            "<|inner_prefix|>2+5<|inner_suffix|>",
            "7",
        ),
        (
            "<|START_THINKING|>2+5<|END_THINKING|><|START_RESPONSE|>7<|END_RESPONSE|>",
            "<|START_THINKING|>2+5<|END_THINKING|><|START_RESPONSE|>",
            "7",
        ),
        // Marks around the answer.
        (
            "<think>2+5</think>\n<answer>\n7\n</answer>\n",
            "<think>2+5</think>\n<answer>",
            "\n7\n",
        ),
        (
            "<think>2+5</think><answer>7",
            "<think>2+5</think><answer>",
            "7",
        ),
        (
            "<think>2+5</think><answer>7</answer> or 8",
            "<think>2+5</think><answer>",
            "7</answer> or 8",
        ),
        ("<answer>7</answer>", "", "<answer>7</answer>"),
        // In words.
        (
            "Here is my thought process:\n2+5\n\nHere is my response:\n7",
            "Here is my thought process:\n2+5\n\nHere is my response:",
            "\n7",
        ),
        (
            "Here's my thought process: 2+5\nHere's my response: 7",
            "Here's my thought process: 2+5\nHere's my response:",
            " 7",
        ),
        (
            "Here is my thought process: 2+5 is 7.",
            "",
            "Here is my thought process: 2+5 is 7.",
        ),
        (
            "It is 7.\nHere is my response: 7",
            "",
            "It is 7.\nHere is my response: 7",
        ),
        (
            "Here are my reasoning steps:\n2+5\n[BEGIN FINAL RESPONSE]\n7\n[END FINAL RESPONSE]\n",
            "Here are my reasoning steps:\n2+5\n[BEGIN FINAL RESPONSE]",
            "\n7\n",
        ),
        (
            "Thought: 2+5\nFinal Answer: 7",
            "Thought: 2+5\nFinal Answer:",
            " 7",
        ),
        (
            "Thought: 2+5\nAction: add\nAction Input: {}\nThought: done\nFinal Answer: 7",
            "",
            "Thought: 2+5\nAction: add\nAction Input: {}\nThought: done\nFinal Answer: 7",
        ),
        ("Thought: 2+5 is 7.", "", "Thought: 2+5 is 7."),
        // In code.
        (
            "Thought: see\n```\nAction log\nFinal Answer: 3\n```\nThat was the sample.",
            "",
            "Thought: see\n```\nAction log\nFinal Answer: 3\n```\nThat was the sample.",
        ),
        (
            "Thought: see\n  ```\nAction: add\n  ```\nFinal Answer: 7",
            "Thought: see\n  ```\nAction: add\n  ```\nFinal Answer:",
            " 7",
        ),
        ("It is 7.\nFinal Answer: 7", "", "It is 7.\nFinal Answer: 7"),
        // Of which a mark ends the answer, too.
        (
            "[unused16]2+5[unused17]7[unused10]",
            "[unused16]2+5[unused17]",
            "7",
        ),
        ("[unused16]2+5[unused17]7", "[unused16]2+5[unused17]", "7"),
        ("2+5\n[unused17]7[unused10]", "2+5\n[unused17]", "7"),
        ("[unused17]7[unused10]", "[unused17]", "7"),
        (
            "<|thought_start|>\n2+5\n<|thought_end|>\n7",
            "<|thought_start|>\n2+5\n<|thought_end|>",
            "\n7",
        ),
        // It never ends.
        ("<think>2+5 is 7", "<think>2+5 is 7", ""),
        ("<think>2+5</thinking>7", "<think>2+5</thinking>7", ""),
        // It began in the prompt.
        ("2+5 is\n</think>\n7", "2+5 is\n</think>", "\n7"),
        ("2+5\n  </think>{\"x\":1}", "2+5\n  </think>", "{\"x\":1}"),
        ("\n</think>\n\n7", "\n</think>", "\n\n7"),
        ("a\n</think>\n</think>\n7", "a\n</think>\n</think>", "\n7"),
        // Quoted.
        (
            "Write </think> at the end.",
            "",
            "Write </think> at the end.",
        ),
        (
            "Like this:\n```\n</think>\n```\nOK.",
            "",
            "Like this:\n```\n</think>\n```\nOK.",
        ),
        ("{\"x\":\n</think>", "", "{\"x\":\n</think>"),
        (
            "The tag <think>x</think> is of R1.",
            "",
            "The tag <think>x</think> is of R1.",
        ),
        ("7 <think>x</think>", "", "7 <think>x</think>"),
        ("<thinker>x", "", "<thinker>x"),
        // Harmony.
        (
            "<|channel|>analysis<|message|>2+5<|end|><|start|>assistant<|channel|>final<|message|>7<|return|>",
            "<|channel|>analysis<|message|>2+5<|end|><|start|>assistant<|channel|>final<|message|>",
            "7",
        ),
        (
            "<|channel|>final <|constrain|>json<|message|>{\"x\":1}",
            "<|channel|>final <|constrain|>json<|message|>",
            "{\"x\":1}",
        ),
        (
            "<|channel|>analysis<|message|>2+5",
            "<|channel|>analysis<|message|>2+5",
            "",
        ),
        (
            "<|channel|>commentary<|message|>I add.<|end|><|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}<|call|>",
            "<|channel|>commentary<|message|>I add.<|end|>",
            "<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}<|call|>",
        ),
        (
            "<|channel|>commentary<|message|>7<|end|>\n",
            "<|channel|>commentary<|message|>",
            "7",
        ),
        (
            "<|channel|>final<|message|>A message ends with <|end|> or so.",
            "<|channel|>final<|message|>",
            "A message ends with <|end|> or so.",
        ),
        ("<|channel|>", "", "<|channel|>"),
        (
            "<|channel|>secret<|message|>7",
            "",
            "<|channel|>secret<|message|>7",
        ),
        // The same from a server that drops its marks.
        (
            "analysisI add.assistantfinal7",
            "analysisI add.assistantfinal",
            "7",
        ),
        (
            "\nanalysis2+5?assistantanalysis7.assistantcommentaryI add.assistantfinal\n7",
            "\nanalysis2+5?assistantanalysis7.assistantcommentaryI add.assistantfinal",
            "\n7",
        ),
        ("analysisassistantfinal", "analysisassistantfinal", ""),
        (
            "analysisI add.assistantfinal{\"x\":1}",
            "analysisI add.assistantfinal",
            "{\"x\":1}",
        ),
        (
            "analysis of it: assistantfinal7",
            "",
            "analysis of it: assistantfinal7",
        ),
        ("analysisI add.", "", "analysisI add."),
        (
            "I say: analysisI add.assistantfinal7",
            "",
            "I say: analysisI add.assistantfinal7",
        ),
        (
            "analysisI add.assistantcommentary to=functions.add json{}",
            "",
            "analysisI add.assistantcommentary to=functions.add json{}",
        ),
        (
            "analysisI add.assistantcommentary to=functions.add json{}assistantfinal7",
            "",
            "analysisI add.assistantcommentary to=functions.add json{}assistantfinal7",
        ),
        // Phi ends its replies with this mark.
        ("It is\n<|end|>", "", "It is\n<|end|>"),
        ("", "", ""),
    ] {
        assert_eq!(split(text), ThoughtAndAnswer { thought, answer }, "{text}");
    }
}

/// A record of format 4 has such replies as answers.
#[test]
fn thoughts_in_later_forms_are_none_before_format_5() {
    for text in [
        "Here are my reasoning steps:\n2+5\n[BEGIN FINAL RESPONSE]\n7\n[END FINAL RESPONSE]\n",
        "Thought: 2+5\nFinal Answer: 7",
        "[unused16]2+5[unused17]7[unused10]",
        "<|thought_start|>\n2+5\n<|thought_end|>\n7",
    ] {
        assert_ne!(split(text).thought, "", "{text}");
        for rules in [ReadingRules::Format3, ReadingRules::Format4] {
            assert_eq!(split_under(rules, text).answer, text);
            let pieces: Vec<&str> = text.split("").collect();
            assert_eq!(streamed_by(Filter::under(rules), &pieces), text);
        }
    }
    let granite = "Here is my thought process:\n2+5\nHere is my response: 7";
    assert_eq!(split_under(ReadingRules::Format4, granite).answer, " 7");
}

fn streamed(pieces: &[&str]) -> String {
    streamed_by(Filter::default(), pieces)
}

fn streamed_by(mut filter: Filter, pieces: &[&str]) -> String {
    let mut answer = String::new();
    let mut take = |part| match part {
        ReplyText::Answer(text) => answer += &text,
        ReplyText::Restart => answer.clear(),
    };
    for piece in pieces {
        for part in filter.push(piece) {
            take(part);
        }
    }
    filter
        .finish()
        .map(ReplyText::Answer)
        .into_iter()
        .for_each(take);
    answer
}

proptest! {
    /// However it is cut, and whatever it is made of.
    #[test]
    fn pieces_come_to_the_same(
        parts in proptest::collection::vec(select(vec![
            "<think>", "</think>", "<|channel>thought", "<channel|>", "<think", ">", "</", "think>", "<reasoning>", "</reasoning>", "[THINK]", "[/THINK]",
            "◁think▷", "◁/think▷", "\n", " ", "a", "<|start|>assistant", "<|channel|>analysis", "<|channel|>final",
            "<|channel|>commentary", " to=functions.a", "<|message|>", "<|end|>", "<|return|>", "<|channel|>final<|message|>", "```", "`", "{", "[", "é", "◁",
            "analysis", "assistant", "final", "assistantfinal", "assistantcommentary to=functions.a json{}",
            "<answer>", "</answer>", "</ans", "Here is my thought process:", "\nHere is my response:", "Here",
            "[unused16]", "[unused17]", "[unused10]", "Thought:", "\nFinal Answer:", "\nAction:", "\n```",
            "Here are my reasoning steps:", "\n[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]",
            "<think></think>", "\n</think>", "a\n</think>", "<|channel|>analysis<|message|>a<|end|>",
            "<|start|>assistant<|channel|>commentary<|message|>a",
        ]), 0..24),
        size in select(vec![1_usize, 2, 3, 4, 44]),
    ) {
        let text = parts.concat();
        let chars: Vec<String> = text.chars().collect::<Vec<_>>().chunks(size).map(|chunk| chunk.iter().collect()).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        let whole = streamed(&[&text]);
        prop_assert_eq!(&streamed(&chars), &whole);
        prop_assert_eq!(whole.trim_start(), split(&text).answer.trim_start());
        let split = split(&text);
        let rest = text.strip_prefix(split.thought).unwrap_or_default();
        let is_end = |end: &str| end.is_empty() || harmony::ending(end) == Some(0)
            || harmony::ending_with(end, &["</answer>", "[unused10]", "[END FINAL RESPONSE]"]) == Some(0);
        let is_prefix = rest.strip_prefix(split.answer).is_some_and(is_end);
        prop_assert!(is_prefix, "{:?} of {:?}", split.answer, rest);
    }
}

/// A header of 256 bytes is one, and a longer one is none, in any pieces.
#[test]
fn the_longest_header_is_one_in_any_pieces() {
    for (blanks, answer) in [(200, "7"), (239, "7"), (240, "")] {
        let head = format!("<|channel|>final {}", " ".repeat(blanks));
        let text = format!("{head}<|message|>7");
        let answer = if answer.is_empty() { &text } else { answer };
        let pieces: Vec<&str> = text.split("").collect();
        assert_eq!(streamed(&pieces), answer, "{}", head.len());
        assert_eq!(streamed(&[&text]), answer, "{}", head.len());
    }
}

/// Only the last restart counts.
#[test]
fn a_piece_of_many_thoughts_restarts_once() {
    let text = "a\n</think>".repeat(1_000) + "7";
    let parts = Filter::default().push(&text);
    assert_eq!(
        parts,
        [ReplyText::Restart, ReplyText::Answer("7".to_owned())]
    );
}
