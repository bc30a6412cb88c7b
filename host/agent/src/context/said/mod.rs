//! The statements of a conversation: takes messages apart, weighs each statement alone (`weight`) and among the others
//! (`rarity`), and keeps those that are worth most, word for word. No model takes part, so that a replayed run comes to the
//! same summary.

mod rarity;
mod weight;
mod words;

use super::facts;
use rarity::{StatementWords, is_one_word};
use std::collections::{HashMap, HashSet};
use toolhold_protocol::context::{Message, Speaker, SummaryLine, SummaryMessage};
use toolhold_protocol::turn::Role;
use toolhold_text::cut;
use weight::{MAX_WEIGHT, NAMED, PLAIN, is_question, weight};

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

/// The order in which statements leave a summary that has no room for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrimOrder {
    /// Statements of the least weight leave first, and of these the ones that are like many others but for their numbers.
    /// Records of formats 3 and 4 were made in this order.
    Weight,
    /// Statements that are worth least among the others leave first (`rarity`). Each author keeps a part of the room. A
    /// statement that is made again goes behind the others, and an answer of one word weighs as a name.
    #[default]
    Rarity,
}

/// A summary that is being made or extended.
#[derive(Debug, Default)]
pub struct ConversationSummary {
    summary: SummaryMessage,
    /// The place of each statement in the summary.
    places: HashMap<String, usize>,
    order: TrimOrder,
    words: StatementWords,
    /// When each statement was made last: numbers that rise.
    said: Vec<usize>,
    /// The number of the next one.
    next: usize,
    /// A statement was made again, and does not stand behind the others yet.
    is_unordered: bool,
    /// The message before was an answer that ends with a question.
    is_asked: bool,
}

impl ConversationSummary {
    /// A summary that an earlier run made.
    pub fn of(mut summary: SummaryMessage, order: TrimOrder) -> Self {
        for line in &mut summary.lines {
            line.weight = line.weight.min(MAX_WEIGHT);
        }
        let mut all = Self {
            summary,
            order,
            ..Self::default()
        };
        all.note_places();
        all
    }

    fn note_places(&mut self) {
        let lines = self.summary.lines.iter().enumerate();
        self.places = lines.map(|(at, line)| (line.text.clone(), at)).collect();
        self.next = self.summary.lines.len();
        self.said = (0..self.next).collect();
        self.is_unordered = false;
    }

    /// Puts the statements into the order in which they were made last.
    fn put_in_order(&mut self) {
        if !self.is_unordered {
            return;
        }
        let mut order: Vec<usize> = (0..self.summary.lines.len()).collect();
        order.sort_by_key(|at| self.said.get(*at));
        self.words.read(&self.summary.lines);
        self.words.reorder(&order);
        let lines = order.iter().filter_map(|at| self.summary.lines.get(*at));
        self.summary.lines = lines.cloned().collect();
        self.note_places();
    }

    /// The present message. Statements that were made again since the last [`trim`](Self::trim) stand in their first place.
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
        let is_asked = std::mem::take(&mut self.is_asked);
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
                let is_answer = is_asked && from == Speaker::User && is_one_word(&text.text);
                let least = if is_answer { NAMED } else { PLAIN };
                for (part, is_fenced) in parts(&text.text) {
                    let from = if is_fenced { Speaker::Tool } else { from };
                    for statement in statements(part) {
                        self.add_statement(from, statement, least, &reveal);
                    }
                }
                self.is_asked = self.order == TrimOrder::Rarity
                    && from == Speaker::Assistant
                    && is_question(&text.text);
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

    /// `least`: the minimum weight of the statement.
    fn add_statement(
        &mut self,
        from: Speaker,
        mut rest: &str,
        least: u8,
        reveal: &impl Fn(&str) -> String,
    ) {
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
                self.push(from, reveal(part), weight.max(least));
            }
            rest = after.trim_start();
        }
    }

    fn push(&mut self, from: Speaker, text: String, weight: u8) {
        if let Some(at) = self.places.get(&text).copied() {
            self.push_again(at, from, weight);
            return;
        }
        self.places.insert(text.clone(), self.summary.lines.len());
        self.said.push(self.next);
        self.next += 1;
        self.summary.lines.push(SummaryLine { from, text, weight });
    }

    /// A statement that is there was made again. It goes behind the others, because it may take back what was said since. Where
    /// an assistant or a tool repeats the user, it stays where the user said it.
    fn push_again(&mut self, at: usize, from: Speaker, weight: u8) {
        let Some(known) = self.summary.lines.get_mut(at) else {
            return;
        };
        if known.weight > PLAIN {
            known.weight = known.weight.max(weight).saturating_add(1).min(MAX_WEIGHT);
        }
        let is_users = from == Speaker::User;
        if self.order == TrimOrder::Weight || (known.from == Speaker::User && !is_users) {
            return;
        }
        if is_users {
            known.from = from;
        }
        if let Some(said) = self.said.get_mut(at) {
            *said = self.next;
            self.next += 1;
            self.is_unordered = true;
        }
    }

    /// Lets statements go until the summary takes at most about `max` bytes, in its [`TrimOrder`]; of two that are equal in
    /// it, the older one first. A model's text that leaves them less than half of the room goes before. Returns whether some
    /// went.
    pub fn trim(&mut self, max: usize) -> bool {
        self.put_in_order();
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
        let room = max.saturating_sub(self.summary.text.len());
        let mut of_authors = BytesOfAuthors::of(&self.summary.lines);
        let mut gone = HashSet::new();
        for at in self.leaving(room) {
            if bytes <= max {
                break;
            }
            let Some(line) = self.summary.lines.get(at) else {
                continue;
            };
            let of_author = of_authors.of_author(line.from);
            if self.order == TrimOrder::Rarity && *of_author <= room / kept_divisor(line.from) {
                continue;
            }
            let size = line_bytes(line);
            *of_author = of_author.saturating_sub(size);
            bytes = bytes.saturating_sub(size);
            gone.insert(at);
        }
        if gone.is_empty() {
            return is_shorter;
        }
        self.words.retain(|at| !gone.contains(&at));
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

    /// Returns the places of all statements in the order in which they leave.
    fn leaving(&mut self, room: usize) -> Vec<usize> {
        let lines = &self.summary.lines;
        let values: Vec<(u64, usize)> = match self.order {
            TrimOrder::Weight => {
                let mut alike: HashMap<String, usize> = HashMap::new();
                for line in lines {
                    *alike.entry(shape(&line.text)).or_default() += 1;
                }
                let values = lines.iter().map(|line| {
                    let others = alike.get(&shape(&line.text)).copied().unwrap_or(1);
                    (u64::from(line.weight), usize::MAX - others)
                });
                values.collect()
            }
            TrimOrder::Rarity => {
                let values = self.words.values(lines, room).into_iter();
                values.map(|value| (value, 0)).collect()
            }
        };
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by_key(|at| values.get(*at));
        order
    }
}

/// Bytes of the statements of each author.
#[derive(Debug, Default)]
struct BytesOfAuthors {
    user: usize,
    assistant: usize,
    tool: usize,
}

impl BytesOfAuthors {
    fn of(lines: &[SummaryLine]) -> Self {
        let mut all = Self::default();
        for line in lines {
            *all.of_author(line.from) += line_bytes(line);
        }
        all
    }

    fn of_author(&mut self, from: Speaker) -> &mut usize {
        match from {
            Speaker::User => &mut self.user,
            Speaker::Assistant => &mut self.assistant,
            Speaker::Tool => &mut self.tool,
        }
    }
}

/// Divisor of the room for the part that statements of an author keep, however many the others made. The parts are less
/// than the whole together. Users say least and know most.
fn kept_divisor(from: Speaker) -> usize {
    match from {
        Speaker::User => 2,
        Speaker::Tool => 4,
        Speaker::Assistant => 8,
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

#[cfg(test)]
mod tests {
    use super::weight::DECIDED;
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
                let mut next =
                    ConversationSummary::of(summary.message().clone(), TrimOrder::Rarity);
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

    /// The user chose green, then blue, then green again.
    #[test]
    fn a_statement_that_is_made_again_stands_last() {
        let green = "The cover is green.";
        let blue = "The cover is blue.";
        for (order, expected) in [
            (TrimOrder::Rarity, [blue, green]),
            (TrimOrder::Weight, [green, blue]),
        ] {
            let mut summary = ConversationSummary::of(SummaryMessage::default(), order);
            for text in [green, blue, green] {
                summary.add(&Message::user(text), open);
            }
            summary.trim(1_000);
            assert_eq!(lines(&summary), expected, "{order:?}");
            // The words go with their statements.
            for n in 0..100 {
                summary.add(&Message::user(format!("topic {n}, please")), open);
            }
            summary.add(&Message::user(blue), open);
            assert!(summary.trim(400));
            if order == TrimOrder::Rarity {
                assert_eq!(lines(&summary)[0], green);
                assert_eq!(lines(&summary).last(), Some(&blue));
            }
        }
    }

    #[test]
    fn a_statement_of_the_user_and_of_others_is_the_users() {
        let text = "The cover is green.";
        for roles in [[Role::Assistant, Role::User], [Role::User, Role::Assistant]] {
            let mut summary = ConversationSummary::default();
            summary.add(&Message::text(roles[0], text), open);
            summary.add(&Message::user("The back is blue."), open);
            summary.add(&Message::text(roles[1], text), open);
            summary.trim(1_000);
            let all = &summary.message().lines;
            let mut green = all.iter().filter(|line| line.text == text);
            assert_eq!(green.next().unwrap().from, Speaker::User, "{roles:?}");
            assert_eq!(all[1].text == text, roles[1] == Role::User, "{roles:?}");
        }
    }

    /// A name alone says something where it was asked for.
    #[test]
    fn an_answer_of_one_word_weighs_as_a_name() {
        for (asked, answer, weight) in [
            ("What is the code word?", "Daisy.", NAMED),
            ("项目代号是什么？", "蓝鲸。", NAMED),
            ("That is nice.", "Daisy.", PLAIN),
            ("What is the code word?", "I do not know.", PLAIN),
        ] {
            let mut summary = ConversationSummary::default();
            summary.add(&Message::text(Role::Assistant, asked), open);
            summary.add(&Message::user(answer), open);
            let last = summary.message().lines.last().unwrap();
            assert_eq!((last.text.as_str(), last.weight), (answer, weight));
        }
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
        /// No text panics, nothing is lost but what is too long, and a bound holds in each order.
        #[test]
        fn any_text_can_be_summed_up(texts in any::<[String; 3]>(), max in 0_usize..500) {
            for order in [TrimOrder::Weight, TrimOrder::Rarity] {
                let mut summary = ConversationSummary::of(SummaryMessage::default(), order);
                let [user, assistant, file] = &texts;
                summary.add(&Message::user(user), open);
                summary.add(&Message::text(Role::Assistant, assistant), open);
                let file = format!("<file 0123456789ab>\n{file}");
                summary.add(&Message::user(file), open);
                summary.trim(max);
                let bytes: usize = summary.message().lines.iter().map(line_bytes).sum();
                prop_assert!(bytes <= max);
            }
        }
    }
}
