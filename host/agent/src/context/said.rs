//! The statements of a conversation: takes messages apart, weighs each statement, and keeps those that weigh most, word
//! for word. No model takes part, so that a replayed run comes to the same summary.

use super::facts;
use std::collections::{HashMap, HashSet};
use toolhold_protocol::context::{Message, Speaker, SummaryLine, SummaryMessage};
use toolhold_protocol::turn::Role;
use toolhold_text::cut;

/// Characters from which a statement is taken apart where a word ends.
const LONG_CHARS: usize = 240;
/// Maximum characters of a statement. A word that is longer is left out.
const MAX_STATEMENT_CHARS: usize = 2_000;
/// Maximum characters of a call's arguments.
const MAX_ARGUMENTS_CHARS: usize = 200;
/// Maximum bytes of all statements of a summary, in a window of any size.
const MAX_SUMMARY_BYTES: usize = 64 << 10;
/// Bytes that a statement takes besides its text where it is shown.
const LINE_BYTES: usize = 14;
/// Minimum characters of a fence's mark, which tells it from a tag of a page.
const MIN_MARK_CHARS: usize = 8;
/// Characters of a shorter word do not end a statement with the dot after them: it is an abbreviation, as in `No. 5`.
const SHORT_WORD_CHARS: usize = 3;

/// Weight of a statement of the user without any of the following. Statements of the assistant, who repeats the user's,
/// weigh one less.
const PLAIN: u8 = 0;
/// Weight of a statement with a number or a name.
const NAMED: u8 = 2;
/// Weight of a statement with an identifier or an amount.
const IDENTIFIED: u8 = 3;
/// Weight of a decision, an introduction and a request to remember.
const DECIDED: u8 = 4;
/// The weight of a statement that says something rises by one each time it is made again, up to this.
const MAX_WEIGHT: u8 = 5;

/// Words by which decisions, introductions and requests to remember are known, in lower case.
#[rustfmt::skip]
const CUES: &[&str] = &[
    // English
    "my name", "i am ", "i'm ", "call me", "remember", "keep in mind", "note that", "important", "decid", "agreed",
    "we agree", "let's ", "deadline", "budget", "prefer", "always", "never", "must ", "my ",
    // Russian
    "зовут", "запомни", "помни", "учти", "важно", "решил", "решен", "договор", "согласн", "срок", "бюджет",
    "предпочит", "всегда", "никогда", "мой ", "моя ", "моё ", "мое ", "мои ", "моего ", "моей ", "моему ", "мою ",
    // Chinese
    "我叫", "我是", "我的", "记住", "记得", "注意", "重要", "决定", "同意", "商定", "预算", "截止", "期限", "喜欢",
    "总是", "从不", "必须", "名字",
    // Japanese, Korean
    "私の", "名前", "覚えて", "決め", "決定", "予算", "締め切り", "기억", "이름", "결정", "예산", "마감",
    // Arabic, Hindi, Thai
    "تذكر", "اسمي", "قرر", "ميزانية", "याद", "मेरा", "मेरी", "नाम", "निर्णय", "จำ", "ชื่อ", "ตัดสินใจ",
    // German, French, Spanish, Portuguese, Italian
    "merke", "ich heiße", "mein ", "meine ", "beschlossen", "entschieden", "je m'appelle", "mon ", "ma ", "retiens",
    "décid", "rappelle", "me llamo", "mi ", "recuerda", "decid", "acord", "meu ", "minha ", "lembr", "mi chiamo",
    "mio ", "mia ", "ricord", "deciso",
];

/// A summary that is being made or extended.
#[derive(Debug, Default)]
pub struct ConversationSummary {
    summary: SummaryMessage,
    /// The place of each statement in the summary.
    places: HashMap<String, usize>,
}

impl ConversationSummary {
    /// A summary that an earlier run made.
    pub fn of(mut summary: SummaryMessage) -> Self {
        for line in &mut summary.lines {
            line.weight = line.weight.min(MAX_WEIGHT);
        }
        let mut all = Self {
            summary,
            places: HashMap::new(),
        };
        all.note_places();
        all
    }

    fn note_places(&mut self) {
        let lines = self.summary.lines.iter().enumerate();
        self.places = lines.map(|(at, line)| (line.text.clone(), at)).collect();
    }

    /// The present message.
    pub fn message(&self) -> &SummaryMessage {
        &self.summary
    }

    /// Estimated bytes of the summary, as it is shown.
    pub fn bytes(&self) -> usize {
        let lines = self.summary.lines.iter().map(line_bytes);
        self.summary.text.len() + lines.sum::<usize>()
    }

    /// Sets what a model wrote of the messages.
    pub fn set_text(&mut self, text: String) {
        self.summary.text = text;
    }

    /// Adds a message as the model is shown it: where it is taken apart, no hidden value is. `reveal` returns a statement
    /// as it is meant.
    pub fn add(&mut self, message: &Message, reveal: impl Fn(&str) -> String) {
        match message {
            Message::Summary(summary) => {
                let Self { summary: all, .. } = self;
                all.messages = all.messages.saturating_add(summary.messages);
                all.left_out = all.left_out.saturating_add(summary.left_out);
                if all.text.is_empty() {
                    all.text = reveal(&summary.text);
                }
                for line in &summary.lines {
                    let weight = line.weight.min(MAX_WEIGHT);
                    self.push(line.from, reveal(&line.text), weight);
                }
                return;
            }
            Message::Text(text) => {
                let from = match text.role {
                    Role::Assistant => Speaker::Assistant,
                    Role::User | Role::System => Speaker::User,
                };
                for (part, is_fenced) in parts(&text.text) {
                    let from = if is_fenced { Speaker::Tool } else { from };
                    for statement in statements(part) {
                        self.add_statement(from, statement, &reveal);
                    }
                }
            }
            Message::Image(image) => {
                let text = format!("(an image: {})", image.name);
                self.push(Speaker::User, reveal(&text), PLAIN);
            }
            Message::ToolResult(result) => {
                let arguments = result.arguments.to_string();
                let text = format!("{} {}", result.tool, cut(&arguments, MAX_ARGUMENTS_CHARS));
                self.push(Speaker::Tool, reveal(&text), PLAIN);
                let told = facts::of_value(&result.result);
                self.summary.left_out = self.summary.left_out.saturating_add(told.left);
                for fact in told.facts {
                    self.push(Speaker::Tool, reveal(&fact.line), NAMED);
                }
            }
            _ => return,
        }
        self.summary.messages = self.summary.messages.saturating_add(1);
    }

    fn add_statement(&mut self, from: Speaker, mut rest: &str, reveal: &impl Fn(&str) -> String) {
        while !rest.is_empty() {
            let Some(end) = part_end(rest) else {
                self.summary.left_out = self.summary.left_out.saturating_add(1);
                return;
            };
            let (part, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            let part = part.trim();
            if !part.is_empty() {
                let weight = weight(part);
                let weight = match from {
                    Speaker::Assistant => weight.saturating_sub(1),
                    Speaker::User => weight,
                    // What a file says is no decision of the user's.
                    Speaker::Tool => weight.min(NAMED),
                };
                self.push(from, reveal(part), weight);
            }
            rest = after.trim_start();
        }
    }

    fn push(&mut self, from: Speaker, text: String, weight: u8) {
        if let Some(at) = self.places.get(&text).copied() {
            let known = self.summary.lines.get_mut(at);
            if let Some(known) = known.filter(|line| line.weight > PLAIN) {
                known.weight = known.weight.max(weight).saturating_add(1).min(MAX_WEIGHT);
            }
            return;
        }
        self.places.insert(text.clone(), self.summary.lines.len());
        self.summary.lines.push(SummaryLine { from, text, weight });
    }

    /// Lets statements go until the summary takes at most about `max` bytes: those that weigh least first, of these the
    /// ones that are like many others but for their numbers, and of these the oldest. A model's text that leaves them less
    /// than half of the room goes before. Returns whether some went.
    pub fn trim(&mut self, max: usize) -> bool {
        let max = max.min(MAX_SUMMARY_BYTES);
        let mut bytes = self.bytes();
        if bytes <= max {
            return false;
        }
        let mut is_shorter = false;
        if self.summary.text.len() > max / 2 {
            bytes = bytes.saturating_sub(self.summary.text.len());
            self.summary.text.clear();
            is_shorter = true;
        }
        let mut alike: HashMap<String, usize> = HashMap::new();
        for line in &self.summary.lines {
            *alike.entry(shape(&line.text)).or_default() += 1;
        }
        let mut order: Vec<(u8, usize, usize, usize)> = self
            .summary
            .lines
            .iter()
            .enumerate()
            .map(|(at, line)| {
                let others = alike.get(&shape(&line.text)).copied().unwrap_or(1);
                (line.weight, usize::MAX - others, at, line_bytes(line))
            })
            .collect();
        order.sort_unstable();
        let mut gone = HashSet::new();
        for (_, _, at, size) in order {
            if bytes <= max {
                break;
            }
            bytes = bytes.saturating_sub(size);
            gone.insert(at);
        }
        if gone.is_empty() {
            return is_shorter;
        }
        let mut at = 0;
        self.summary.lines.retain(|_| {
            let is_gone = gone.contains(&at);
            at += 1;
            !is_gone
        });
        self.note_places();
        self.summary.left_out = self.summary.left_out.saturating_add(gone.len());
        true
    }
}

fn line_bytes(line: &SummaryLine) -> usize {
    line.text.len() + LINE_BYTES
}

/// Returns the text with one sign for each number. Statements that differ in their numbers alone have the same one.
fn shape(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_numeric() {
            shape.push(c);
        } else if !shape.ends_with('#') {
            shape.push('#');
        }
    }
    shape
}

/// Parts of a text, each with whether it stands in a fence (docs/protocol.md, 4.11). What does, such as a file that went
/// with a task, is a text of others. A fence without an end reaches to the end of the text.
fn parts(mut text: &str) -> Vec<(&str, bool)> {
    let mut parts = Vec::new();
    while let Some((begin, end, mark)) = fence(text) {
        let before = text.get(..begin).unwrap_or_default();
        let rest = text.get(end..).unwrap_or_default();
        let (fenced, after) = rest.split_once(mark.as_str()).unwrap_or((rest, ""));
        parts.extend([(before, false), (fenced, true)]);
        text = after;
    }
    parts.push((text, false));
    parts
}

/// The first fence of a text: begin and end of the line that opens it, and what closes it.
fn fence(text: &str) -> Option<(usize, usize, String)> {
    let mut end = 0;
    text.split_inclusive('\n').find_map(|line| {
        let begin = end;
        end += line.len();
        let words = line.trim_end().strip_prefix('<')?.strip_suffix('>')?;
        let mut words = words.split(' ');
        let (kind, mark) = (words.next()?, words.next()?);
        let is_kind = !kind.is_empty() && kind.chars().all(|c| c.is_ascii_lowercase());
        let is_mark =
            mark.len() >= MIN_MARK_CHARS && mark.chars().all(|c| c.is_ascii_alphanumeric());
        (is_kind && is_mark).then(|| (begin, end, format!("\n</{kind} {mark}>")))
    })
}

/// Statements of a text: sentences, lines, and what semicolons of scripts without spaces divide.
fn statements(text: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let mut begin = 0;
    let mut word_chars = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let ends_before_space = match c {
            '!' | '?' | '…' => true,
            '.' => word_chars > SHORT_WORD_CHARS,
            _ => false,
        };
        let is_before_space = chars.peek().is_none_or(|(_, next)| next.is_whitespace());
        let ends = matches!(c, '\n' | '\r' | '。' | '！' | '？' | '；' | '।' | '؟')
            || (ends_before_space && is_before_space);
        word_chars = if c.is_alphanumeric() {
            word_chars + 1
        } else {
            0
        };
        if ends {
            let end = at + c.len_utf8();
            statements.extend(text.get(begin..end));
            begin = end;
        }
    }
    statements.extend(text.get(begin..));
    statements.retain(|statement| !statement.trim().is_empty());
    statements
}

/// Bytes of the part of a statement that is kept as one: all of it, or as much as ends with a word. `None` if its first
/// word is too long.
fn part_end(text: &str) -> Option<usize> {
    let mut last_break = None;
    for (index, (at, c)) in text.char_indices().enumerate() {
        if index > LONG_CHARS && last_break.is_some() {
            return last_break;
        }
        if index > MAX_STATEMENT_CHARS {
            return None;
        }
        if c.is_whitespace() || matches!(c, '，' | '、' | '：' | '；' | '。') {
            last_break = Some(at + c.len_utf8());
        }
    }
    Some(text.len())
}

fn weight(text: &str) -> u8 {
    let lower = text.to_lowercase();
    if CUES.iter().any(|cue| has_cue(&lower, cue)) {
        DECIDED
    } else if has_identifier(text) {
        IDENTIFIED
    } else if text.chars().any(char::is_numeric) || has_name(text) {
        NAMED
    } else {
        PLAIN
    }
}

/// A cue begins with a word, where its script divides words by spaces.
fn has_cue(lower: &str, cue: &str) -> bool {
    lower.match_indices(cue).any(|(at, _)| {
        let before = lower
            .get(..at)
            .and_then(|before| before.chars().next_back());
        let is_spaced = cue.chars().next().is_some_and(char::is_lowercase);
        !is_spaced || !before.is_some_and(char::is_alphanumeric)
    })
}

/// Whether a word has a digit beside a letter, an amount, an address, or a number of four digits or more.
fn has_identifier(text: &str) -> bool {
    if text.contains(['@', '€', '$', '£', '¥', '₽', '₹', '₩', '₺', '％', '%'])
        || text.contains("://")
    {
        return text.chars().any(char::is_numeric) || text.contains('@') || text.contains("://");
    }
    let mut digits = 0;
    let mut has_letter = false;
    for c in text.chars().chain([' ']) {
        match c {
            c if c.is_numeric() => digits += 1,
            c if c.is_ascii_alphabetic() || (c.is_alphabetic() && c.is_uppercase()) => {
                has_letter = true;
            }
            '-' | '_' | '/' | '.' | ':' | '№' | '#' => {}
            _ => {
                if digits >= 4 || (digits > 0 && has_letter) {
                    return true;
                }
                (digits, has_letter) = (0, false);
            }
        }
    }
    false
}

/// Whether a word that is not the first one begins with a capital letter.
fn has_name(text: &str) -> bool {
    let mut words = text.split_whitespace().skip(1);
    words.any(|word| {
        let mut letters = word.chars().filter(|c| c.is_alphabetic());
        letters.next().is_some_and(char::is_uppercase)
            && letters.next().is_some_and(char::is_lowercase)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use toolhold_protocol::context::ToolResultMessage;

    /// Reveals a text in which no value is hidden.
    fn open(text: &str) -> String {
        text.to_owned()
    }

    fn lines(summary: &ConversationSummary) -> Vec<&str> {
        let lines = summary.message().lines.iter();
        lines.map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_text_is_taken_apart_where_sentences_end() {
        for (text, expected) in [
            (
                "Order No. 5 is late. Why?",
                vec!["Order No. 5 is late.", " Why?"],
            ),
            ("It costs 3.50 now! Yes", vec!["It costs 3.50 now!", " Yes"]),
            (
                "我叫艾达。订单是A-17！好的",
                vec!["我叫艾达。", "订单是A-17！", "好的"],
            ),
            (
                "Меня зовут Ада, ул. Мира 5. Спасибо",
                vec!["Меня зовут Ада, ул. Мира 5. Спасибо"],
            ),
            ("a\n\nb", vec!["a\n", "b"]),
        ] {
            assert_eq!(statements(text), expected, "{text}");
        }
    }

    #[test]
    fn decisions_weigh_more_than_identifiers_and_these_more_than_talk() {
        for text in [
            "My name is Ada.",
            "We decided for the blue one.",
            "Меня зовут Ада",
            "Мою кошку зовут Пушок",
            "我的猫叫豆豆",
            "请记住这件事",
        ] {
            assert_eq!(weight(text), DECIDED, "{text}");
        }
        for text in [
            "the order A-17",
            "Заказ А-17",
            "订单A-17",
            "it costs 4 €",
            "in 2027",
            "a@b.example",
        ] {
            assert_eq!(weight(text), IDENTIFIED, "{text}");
        }
        for text in ["there are 3", "we met Ada there", "встретил Аду"] {
            assert_eq!(weight(text), NAMED, "{text}");
        }
        for text in [
            "Thank you, that is nice",
            "спасибо, хорошо",
            "好的，谢谢",
            "economy",
        ] {
            assert_eq!(weight(text), PLAIN, "{text}");
        }
    }

    /// Ten times the summary is extended and made shorter. What was said first and weighs most is there in the end.
    #[test]
    fn a_fact_survives_ten_summaries() {
        for (fact, talk) in [
            (
                "My order is A-17 and costs 55.50 €.",
                "Tell me more about topic",
            ),
            ("Мой заказ А-17 стоит 55,50 €.", "Расскажи ещё про тему"),
            (
                "我的订单是A-17，价格是55.50欧元。",
                "请再告诉我一些关于主题的事情",
            ),
        ] {
            let mut summary = ConversationSummary::default();
            summary.add(&Message::user(fact), open);
            for round in 0..10 {
                let mut next = ConversationSummary::of(summary.message().clone());
                for n in 0..40 {
                    next.add(&Message::user(format!("{talk} {}", round * 40 + n)), open);
                    let answer = Message::text(Role::Assistant, format!("{n}: it is nice."));
                    next.add(&answer, open);
                }
                assert!(next.trim(1_200), "{round}");
                summary = next;
            }
            assert!(lines(&summary).contains(&fact), "{:?}", lines(&summary));
            assert_eq!(summary.message().messages, 801);
            assert!(summary.message().left_out > 300);
        }
    }

    /// Statements of one form go before one that is like no other.
    #[test]
    fn facts_that_resemble_many_others_go_first() {
        let mut summary = ConversationSummary::default();
        summary.add(&Message::user("the parcel JD-0042 waits in Köln"), open);
        for n in 0..100 {
            summary.add(&Message::user(format!("order A-{n} costs {n} €")), open);
        }
        assert!(summary.trim(600));
        let lines = lines(&summary);
        assert_eq!(lines[0], "the parcel JD-0042 waits in Köln");
        assert_eq!(*lines.last().unwrap(), "order A-99 costs 99 €");
    }

    #[test]
    fn a_statement_that_is_made_again_is_kept_once_and_weighs_more() {
        let mut summary = ConversationSummary::default();
        for _ in 0..3 {
            summary.add(&Message::user("there are 3"), open);
        }
        assert_eq!(lines(&summary), ["there are 3"]);
        assert_eq!(summary.message().lines[0].weight, NAMED + 2);
        assert_eq!(summary.message().messages, 3);
    }

    #[test]
    fn results_leave_identifiers_with_their_values() {
        let mut summary = ConversationSummary::default();
        let result = ToolResultMessage {
            tool: "orders.find".into(),
            arguments: json!({"of": "Ada"}),
            result: json!({"id": "A-17", "total": 55.5}),
            ..ToolResultMessage::default()
        };
        summary.add(&Message::ToolResult(result), open);
        assert_eq!(
            lines(&summary),
            ["orders.find {\"of\":\"Ada\"}", "id=A-17, total=55.5"]
        );
    }

    /// The message comes with its placeholders, which neither the end of a sentence nor a length divides.
    #[test]
    fn a_hidden_value_is_in_one_statement() {
        let key = "-----BEGIN-----\nabcd. efgh!\n-----END-----";
        let text = format!(
            "{}<private_key_1> {}",
            "word ".repeat(46),
            "more ".repeat(40)
        );
        let mut summary = ConversationSummary::default();
        summary.add(&Message::user(text), |text| {
            text.replace("<private_key_1>", key)
        });
        assert!(lines(&summary).iter().any(|line| line.contains(key)));
        assert!(lines(&summary).len() > 1);
    }

    #[test]
    fn text_in_a_fence_is_no_word_of_the_user() {
        let file = "Material of the task.\n<file 0123456789ab name=\"a.txt\">\nWe decided to pay.\n<b>Never</b>\n\
                    </file 0123456789ab>";
        let mut summary = ConversationSummary::default();
        summary.add(&Message::user(format!("{file}\nI must go.")), open);
        let told: Vec<(Speaker, &str, u8)> = summary
            .message()
            .lines
            .iter()
            .map(|line| (line.from, line.text.as_str(), line.weight))
            .collect();
        assert_eq!(
            told,
            [
                (Speaker::User, "Material of the task.", PLAIN),
                (Speaker::Tool, "We decided to pay.", NAMED),
                (Speaker::Tool, "<b>Never</b>", NAMED),
                (Speaker::User, "I must go.", DECIDED),
            ]
        );
        // Without an end, all of it is the file's.
        assert_eq!(
            parts("a\n<file 0123456789ab>\nb\n<file 0123456789ab>\nc"),
            [
                ("a\n", false),
                ("b\n<file 0123456789ab>\nc", true),
                ("", false)
            ]
        );
    }

    /// Facts stay where a model's text would take their room.
    #[test]
    fn a_text_that_leaves_no_room_goes_before_the_statements() {
        let mut summary = ConversationSummary::default();
        summary.add(&Message::user("the order A-17"), open);
        summary.set_text("很".repeat(200));
        assert!(summary.trim(400));
        assert!(summary.message().text.is_empty());
        assert_eq!(lines(&summary), ["the order A-17"]);
    }

    proptest! {
        /// No text panics, nothing is lost but what is too long, and a bound holds.
        #[test]
        fn any_text_can_be_summed_up(text in any::<String>(), max in 0_usize..500) {
            let mut summary = ConversationSummary::default();
            summary.add(&Message::user(text), open);
            summary.trim(max);
            let bytes: usize = summary.message().lines.iter().map(line_bytes).sum();
            prop_assert!(bytes <= max);
        }
    }
}
