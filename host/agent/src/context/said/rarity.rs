//! The value of a statement among the others: how much of it is rare in the conversation.
//!
//! A form that many statements share says little, and a cue that many have is a habit of speech. A fact (a name, a choice,
//! an amount) has words beside each other that stand nowhere else. So the value of a statement is a weight, that of its
//! signs or of its rarest cue, times the part of its pairs of neighbouring words that are rare. Every script has pairs, and
//! not every script has capital letters. In pairs all numbers are equal.
//!
//! Each author has counts of its own: an assistant that repeats what the user said does not make it common. Counts of the
//! others are added up to twice the author's, because authors share many words of talk.
//!
//! What a user says in numbers is worth a part at least, so that a list outlasts talk. Of statements that differ in their
//! numbers alone, the newest counts as rare: it may be the one that holds.

use super::weight::{
    CUES, IDENTIFIED, NAMED, PLAIN, has_cue, has_grouped_number, is_question, weight_of_signs,
};
use super::words::each_word;
use super::{line_bytes, shape};
use std::collections::HashMap;
use std::hash::Hash;
use toolhold_protocol::context::{Speaker, SummaryLine};

/// Part of the statements with room that may share a pair of words or a cue before it counts as common.
const COMMON_DIVISOR: usize = 32;
/// Minimum number of statements that may share a pair of words or a cue, in a summary of any size.
const MIN_COMMON: usize = 3;
/// The largest part of a statement's pairs that is rare, in units of 1/1024.
const WHOLE: u64 = 1 << 10;
/// Minimum part of a user's statement with an identifier or an amount. Its weight is twice that of a statement without signs,
/// so that 2/5 of it are as much as 4/5 of the other. In simulated conversations talk has less, and a fact has more.
const LISTED: u64 = WHOLE * 2 / 5;
/// How many times as often as an author others may have a pair of words, for that to count. With [`MIN_COMMON`], a pair that
/// an author has once stays rare.
const MAX_OF_OTHERS: usize = 2;
/// Words from which on a statement without any sign may tell something: a name is no sign in most scripts.
const TELLING_WORDS: usize = 2;
/// The neighbour of the first and of the last word of a statement.
const EDGE: u32 = 0;

/// A pair of neighbouring words, by their numbers.
type Pair = (u32, u32);

/// The words and cues of the statements of a summary. Each statement is read once.
#[derive(Debug, Default)]
pub(super) struct StatementWords {
    /// Numbers of words, from 1 on.
    numbers: HashMap<String, u32>,
    /// The words of each statement, in the order of the summary.
    statements: Vec<WordsOfStatement>,
}

#[derive(Debug)]
struct WordsOfStatement {
    count: usize,
    /// Pairs of neighbouring words, each once.
    pairs: Vec<Pair>,
    /// Places of its cues in [`CUES`].
    cues: Vec<usize>,
}

impl StatementWords {
    /// Returns the values of the statements in their order, for a summary that has `max` bytes.
    pub(super) fn values(&mut self, lines: &[SummaryLine], max: usize) -> Vec<u64> {
        self.read(lines);
        let statements = || lines.iter().zip(&self.statements);
        let (mut pairs, mut cues) = (CountsByAuthor::default(), CountsByAuthor::default());
        for (line, words) in statements() {
            for pair in &words.pairs {
                pairs.add(line.from, *pair);
            }
            for cue in &words.cues {
                cues.add(line.from, *cue);
            }
        }
        let bytes: usize = lines.iter().map(line_bytes).sum();
        let with_room = lines.len().saturating_mul(max) / bytes.max(1);
        let rarity = Rarity {
            most: (with_room / COMMON_DIVISOR).max(MIN_COMMON),
        };
        let newest = newest_of_forms(lines);
        statements()
            .enumerate()
            .map(|(at, (line, words))| {
                let counts = words.pairs.iter().map(|pair| pairs.of(line.from, pair));
                let rare: u64 = counts.map(|count| rarity.of(count)).sum();
                let count = u64::try_from(words.pairs.len()).unwrap_or(u64::MAX);
                let rare = rare / count.max(1);
                let rare = match newest.get(&at) {
                    Some(true) => WHOLE,
                    Some(false) => rare.max(LISTED),
                    None => rare,
                };
                let of_cue = words.cues.iter().map(|cue| cues.of_author(line.from, cue));
                let cue = of_cue.min().map(|count| rarity.of(count));
                worth(line, words.count, cue).saturating_mul(rare)
            })
            .collect()
    }

    /// Reads the statements that were added since.
    pub(super) fn read(&mut self, lines: &[SummaryLine]) {
        for line in lines.iter().skip(self.statements.len()) {
            let words = self.words_of(&line.text);
            self.statements.push(words);
        }
    }

    /// Keeps what is known of the statements that stay.
    pub(super) fn retain(&mut self, stays: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.statements.retain(|_| {
            let is_kept = stays(at);
            at += 1;
            is_kept
        });
    }

    /// Puts the statements, all of which were read, into another order: that of their present places.
    pub(super) fn reorder(&mut self, order: &[usize]) {
        let statements = std::mem::take(&mut self.statements);
        let mut statements: Vec<Option<WordsOfStatement>> =
            statements.into_iter().map(Some).collect();
        let next = order
            .iter()
            .filter_map(|at| statements.get_mut(*at)?.take());
        self.statements = next.collect();
    }

    fn words_of(&mut self, text: &str) -> WordsOfStatement {
        let mut sequence = vec![EDGE];
        each_word(text, |word| {
            let next = u32::try_from(self.numbers.len() + 1).unwrap_or(u32::MAX);
            sequence.push(*self.numbers.entry(shape(word)).or_insert(next));
        });
        let count = sequence.len() - 1;
        sequence.push(EDGE);
        let seconds = sequence.iter().copied().skip(1);
        let mut pairs: Vec<Pair> = sequence.iter().copied().zip(seconds).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let lower = text.to_lowercase();
        let cues = CUES.iter().enumerate();
        let cues = cues.filter(|(_, cue)| has_cue(&lower, cue));
        WordsOfStatement {
            count,
            pairs,
            cues: cues.map(|(at, _)| at).collect(),
        }
    }
}

/// True if a statement has less words than one that tells something by itself.
pub(super) fn is_one_word(text: &str) -> bool {
    let mut count = 0;
    each_word(text, |_| count += 1);
    count < TELLING_WORDS
}

/// The places of the user's statements with an identifier or an amount. `true`: there are older ones that differ in their
/// numbers alone, and no newer one.
fn newest_of_forms(lines: &[SummaryLine]) -> HashMap<usize, bool> {
    let mut places = HashMap::new();
    let mut last: HashMap<String, usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        if line.from != Speaker::User || signs(&line.text) < IDENTIFIED {
            continue;
        }
        let before = last.insert(shape(&line.text), at);
        if let Some(before) = before {
            places.insert(before, false);
        }
        places.insert(at, before.is_some());
    }
    places
}

/// How many statements of each author have something.
#[derive(Debug)]
struct CountsByAuthor<T> {
    of_authors: HashMap<(Speaker, T), usize>,
    all: HashMap<T, usize>,
}

impl<T> Default for CountsByAuthor<T> {
    fn default() -> Self {
        Self {
            of_authors: HashMap::new(),
            all: HashMap::new(),
        }
    }
}

impl<T: Copy + Eq + Hash> CountsByAuthor<T> {
    fn add(&mut self, from: Speaker, what: T) {
        *self.of_authors.entry((from, what)).or_default() += 1;
        *self.all.entry(what).or_default() += 1;
    }

    fn of_author(&self, from: Speaker, what: &T) -> usize {
        let of_author = self.of_authors.get(&(from, *what));
        of_author.copied().unwrap_or_default()
    }

    /// The count of the author, with those of the others up to [`MAX_OF_OTHERS`] times as many.
    fn of(&self, from: Speaker, what: &T) -> usize {
        let own = self.of_author(from, what);
        let all = self.all.get(what).copied().unwrap_or_default();
        let others = all.saturating_sub(own);
        own.saturating_add(others.min(own.saturating_mul(MAX_OF_OTHERS)))
    }
}

/// Tells how rare something is, by the number of statements that have it.
#[derive(Debug, Clone, Copy)]
struct Rarity {
    /// Maximum number of statements that have what is rare altogether.
    most: usize,
}

impl Rarity {
    fn of(self, count: usize) -> u64 {
        if count <= self.most {
            return WHOLE;
        }
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        WHOLE.saturating_mul(number(self.most)) / number(count)
    }
}

/// The weight of a statement's signs.
fn signs(text: &str) -> u8 {
    if has_grouped_number(text) {
        IDENTIFIED
    } else {
        weight_of_signs(text)
    }
}

/// The worth of a statement whose words are rare. It doubles with each weight; that of a question without signs is half: one
/// with a name or a number may tell both. `cue`: the rarity of its rarest cue.
fn worth(line: &SummaryLine, words: usize, cue: Option<u64>) -> u64 {
    let own = signs(&line.text);
    let signs = match line.from {
        Speaker::Assistant => own.saturating_sub(1),
        Speaker::User => own,
        Speaker::Tool => own.min(NAMED),
    };
    let telling = match line.from {
        _ if words < TELLING_WORDS => PLAIN,
        Speaker::User => NAMED,
        Speaker::Assistant | Speaker::Tool => NAMED - 1,
    };
    let signs = signs.max(telling);
    let worth_of = |weight: u8| WHOLE << weight;
    let worth = match cue {
        Some(rarity) => (worth_of(line.weight) / WHOLE)
            .saturating_mul(rarity)
            .max(worth_of(signs)),
        None => worth_of(line.weight.max(signs)),
    };
    if own == PLAIN && is_question(&line.text) {
        worth / 2
    } else {
        worth
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConversationSummary, TrimOrder};
    use super::*;
    use toolhold_protocol::context::Message;
    use toolhold_protocol::turn::Role;

    /// Reveals a text in which no value is hidden.
    fn open(text: &str) -> String {
        text.to_owned()
    }

    fn add(summary: &mut ConversationSummary, role: Role, text: &str) {
        summary.add(&Message::text(role, text), open);
    }

    fn has(summary: &ConversationSummary, text: &str) -> bool {
        let mut lines = summary.message().lines.iter();
        lines.any(|line| line.text == text)
    }

    /// A word of letters, another one for each number.
    fn word(number: usize) -> String {
        let mut state = number as u64;
        let letters = (0..6).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + (state >> 33) as u8 % 20)
        });
        letters.collect()
    }

    /// A conversation in which each other statement of the user has a cue, and those to be kept have none.
    struct CuedTalk {
        facts: [&'static str; 3],
        /// Has its number in the place of `#`.
        talk: &'static str,
    }

    const TALKS: [CuedTalk; 6] = [
        CuedTalk {
            facts: [
                "The cover stays green.",
                "Zhang Wei answers for the printing.",
                "Daisy is the code word.",
            ],
            talk: "Let's go on with my list, item #.",
        },
        CuedTalk {
            facts: [
                "Обложка остаётся зелёной.",
                "За печать отвечает Чжан Вэй.",
                "Кодовое слово — ромашка.",
            ],
            talk: "Расскажи про мои заказы, пункт #.",
        },
        CuedTalk {
            facts: ["项目代号是蓝鲸。", "印刷由张伟负责。", "就用绿色的封面吧。"],
            talk: "请继续讲我的清单上的第#个题目。",
        },
        CuedTalk {
            facts: [
                "担当者は田中さんです。",
                "表紙は緑色のままで。",
                "合言葉はひなぎくです。",
            ],
            talk: "私のリストの#番目の話題を続けてください。",
        },
        CuedTalk {
            facts: [
                "담당자는 김민수입니다.",
                "표지는 초록색으로 합시다.",
                "암호는 데이지입니다.",
            ],
            talk: "예산 항목 #번을 설명해 주세요.",
        },
        CuedTalk {
            facts: ["ผู้รับผิดชอบคือคุณสมชาย", "ใช้ปกสีเขียวต่อไป", "รหัสคือดอกเดซี่"],
            talk: "ช่วยอธิบายชื่อหัวข้อที่ # ให้หน่อย",
        },
    ];

    #[test]
    fn facts_without_cues_survive_ten_summaries_of_statements_with_cues() {
        for CuedTalk { facts, talk } in &TALKS {
            let mut summary = ConversationSummary::default();
            for fact in facts {
                add(&mut summary, Role::User, fact);
            }
            for round in 0..10 {
                let message = summary.message().clone();
                let mut next = ConversationSummary::of(message, TrimOrder::Rarity);
                for n in 0..40 {
                    let number = (round * 40 + n).to_string();
                    add(&mut next, Role::User, &talk.replace('#', &number));
                    add(&mut next, Role::Assistant, &format!("{n}: it is nice."));
                }
                assert!(next.trim(1_500), "{round}");
                summary = next;
            }
            for fact in facts {
                assert!(has(&summary, fact), "{fact}: {:?}", summary.message());
            }
        }
    }

    /// Records of older formats had the weight first.
    #[test]
    fn by_weight_a_cue_outlasts_what_is_told_once() {
        for CuedTalk { facts, talk } in &TALKS {
            let message = ConversationSummary::default().message().clone();
            let mut summary = ConversationSummary::of(message, TrimOrder::Weight);
            add(&mut summary, Role::User, facts[0]);
            for n in 0..80 {
                add(&mut summary, Role::User, &talk.replace('#', &n.to_string()));
            }
            assert!(summary.trim(1_500));
            assert!(!has(&summary, facts[0]), "{:?}", summary.message());
        }
    }

    /// Requests that share a few words only, beside others that are new each time.
    #[test]
    fn a_cue_that_many_statements_have_says_little() {
        let mut summary = ConversationSummary::default();
        add(&mut summary, Role::User, "The cover stays green.");
        for n in 0..200 {
            let (one, two) = (word(n), word(n + 1_000));
            let text = format!("Let's talk about {one} {two}.");
            add(&mut summary, Role::User, &text);
        }
        assert!(summary.trim(1_500));
        assert!(
            has(&summary, "The cover stays green."),
            "{:?}",
            summary.message()
        );
    }

    #[test]
    fn an_amount_outlasts_identifiers_of_one_form() {
        let mut summary = ConversationSummary::default();
        add(&mut summary, Role::User, "Сумма 48 300 рублей.");
        for n in 0..200 {
            let text = format!("Заявка T-{n}: принтер не работает.");
            add(&mut summary, Role::User, &text);
        }
        assert!(summary.trim(1_500));
        assert!(
            has(&summary, "Сумма 48 300 рублей."),
            "{:?}",
            summary.message()
        );
    }

    /// A few statements of one form are no habit.
    #[test]
    fn a_short_list_outlasts_talk() {
        let mut summary = ConversationSummary::default();
        let list: Vec<String> = (0..6)
            .map(|n| format!("Remember the code of door {n}: {}.", word(n)))
            .collect();
        for code in &list {
            add(&mut summary, Role::User, code);
        }
        for n in 0..200 {
            let text = format!("{} {} {}?", word(n), word(n + 1_000), word(n + 2_000));
            add(&mut summary, Role::User, &text);
        }
        assert!(summary.trim(2_000));
        for code in &list {
            assert!(has(&summary, code), "{code}: {:?}", summary.message());
        }
    }

    /// Answers are longer than questions, and none of their sentences is like another one.
    #[test]
    fn answers_leave_the_user_half_of_the_room() {
        let mut summary = ConversationSummary::default();
        add(&mut summary, Role::User, "项目代号是蓝鲸。");
        for n in 0..300 {
            let (one, two) = (word(n), word(n + 1_000));
            let text = format!("{one} {} {two} {}.", 1_000 + n, word(n + 4_000));
            add(&mut summary, Role::Assistant, &text);
            let text = format!("{}{}？", word(n + 2_000), word(n + 3_000));
            add(&mut summary, Role::User, &text);
        }
        assert!(summary.trim(1_500));
        assert!(has(&summary, "项目代号是蓝鲸。"), "{:?}", summary.message());
        let lines = summary.message().lines.iter();
        let users = lines.filter(|line| line.from == Speaker::User);
        let bytes: usize = users.map(line_bytes).sum();
        assert!(bytes >= 700, "{bytes}");
    }

    /// A sentence of talk with words of a list of forty, in one of seven forms.
    fn varied(number: usize) -> String {
        const FORMS: [&str; 7] = [
            "Why do people like the # and the #?",
            "Tell me how a # moves a #.",
            "We had a # next to the # once.",
            "Give me three ways to paint a #.",
            "Now the # with a #, please.",
            "They wanted every # in the # then.",
            "What would a # do without its #?",
        ];
        let form = FORMS[number % FORMS.len()];
        let mut parts = form.split('#');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (place, part) in parts.enumerate() {
            text += &word((number * 7 + place * 13 + number / 40) % 40);
            text += part;
        }
        text
    }

    /// An answer of three sentences of talk.
    fn varied_answer(number: usize) -> String {
        [0, 1, 2]
            .map(|more| varied(number * 3 + 1_000 + more))
            .join(" ")
    }

    /// The summary of 300 turns, made shorter after each twenty of them. `told` is said first, and then `talk`.
    fn talked(
        told: &[String],
        talk: impl Fn(usize) -> String,
        answer: impl Fn(usize) -> String,
        max: usize,
    ) -> ConversationSummary {
        let mut summary = ConversationSummary::default();
        for n in 0..300 {
            let text = told.get(n).cloned().unwrap_or_else(|| talk(n));
            add(&mut summary, Role::User, &text);
            add(&mut summary, Role::Assistant, &answer(n));
            if n % 20 == 19 {
                let message = summary.message().clone();
                summary = ConversationSummary::of(message, TrimOrder::Rarity);
                summary.trim(max);
            }
        }
        summary
    }

    fn users(summary: &ConversationSummary) -> Vec<&str> {
        let lines = summary.message().lines.iter();
        let lines = lines.filter(|line| line.from == Speaker::User);
        lines.map(|line| line.text.as_str()).collect()
    }

    const PLAIN_FACTS: [&str; 3] = [
        "The cover stays green.",
        "Zhang Wei answers for the printing.",
        "We chose the blue logo.",
    ];

    #[test]
    fn facts_outlast_varied_talk_and_an_assistant_that_repeats_them() {
        let told = PLAIN_FACTS.map(str::to_owned);
        let echo = |n: usize| {
            let (one, two, three) = (varied(n + 500), word(n), word(n + 7));
            format!(
                "{one} The cover stays green, as {two} says, and Zhang Wei answers for the printing of {three}."
            )
        };
        for summary in [
            talked(&told, varied, varied_answer, 1_500),
            talked(&told, varied, echo, 1_500),
        ] {
            for fact in PLAIN_FACTS {
                assert!(users(&summary).contains(&fact), "{:?}", summary.message());
            }
        }
    }

    #[test]
    fn a_list_of_forty_orders_outlasts_varied_talk() {
        let order = |n: usize| format!("Order A-{} costs {}.50 EUR.", 1_000 + n, n * 7 + 13);
        let told: Vec<String> = (0..40).map(order).collect();
        let summary = talked(&told, varied, varied_answer, 4_000);
        for order in &told {
            assert!(users(&summary).contains(&order.as_str()), "{order}");
        }
    }

    /// Each ticket has an identifier, and all have the same words.
    #[test]
    fn facts_outlast_tickets_of_one_form() {
        let told = PLAIN_FACTS.map(str::to_owned);
        let ticket = |n: usize| format!("Ticket T-{n}: the printer is broken.");
        let summary = talked(&told, ticket, varied_answer, 1_500);
        for fact in PLAIN_FACTS {
            assert!(users(&summary).contains(&fact), "{:?}", summary.message());
        }
    }

    #[test]
    fn the_newest_value_outlasts_talk() {
        let balance = |n: usize| format!("The balance is now {} EUR.", 4_000 - n);
        let talk = |n: usize| {
            if n < 180 && n.is_multiple_of(3) {
                balance(n)
            } else {
                varied(n)
            }
        };
        let summary = talked(&[], talk, varied_answer, 1_500);
        let newest = balance(177);
        assert!(users(&summary).contains(&newest.as_str()), "{newest}");
    }

    #[test]
    fn a_question_with_a_name_is_worth_what_a_statement_is() {
        let line = |text: &str| SummaryLine {
            from: Speaker::User,
            text: text.to_owned(),
            weight: PLAIN,
        };
        let of = |text: &str| worth(&line(text), 6, None);
        let named = of("Can you put Zhang Wei on the printing?");
        assert_eq!(named, of("You can put Zhang Wei on the printing."));
        let asked = of("Can you say more about that?");
        assert_eq!(asked * 2, of("You can say more about that."));
    }

    /// Statements that are read one by one have the values that they have when they are read at once.
    #[test]
    fn values_do_not_depend_on_when_statements_were_read() {
        let mut lines: Vec<SummaryLine> = Vec::new();
        let (mut gradual, mut at_once) = (StatementWords::default(), StatementWords::default());
        for n in 0..50 {
            lines.push(SummaryLine {
                from: Speaker::User,
                text: format!("请继续讲第{}个题目 {}", n, word(n)),
                weight: PLAIN,
            });
            gradual.values(&lines, 1_000);
        }
        assert_eq!(gradual.values(&lines, 1_000), at_once.values(&lines, 1_000));
    }
}
