//! The value of a statement among the others: how much of it is rare in the conversation.
//!
//! A form that many statements share says little, and a cue that many have is a habit of speech. A fact (a name, a choice,
//! an amount) has words beside each other that stand nowhere else. So the value of a statement is a weight, that of its
//! signs or of its rarest cue, times the part of its pairs of neighbouring words that are rare. Every script has pairs, and
//! not every script has capital letters. In pairs all numbers are equal.

use super::weight::{
    CUES, IDENTIFIED, NAMED, PLAIN, has_cue, has_grouped_number, is_question, weight_of_signs,
};
use super::{line_bytes, shape};
use std::collections::HashMap;
use toolhold_protocol::context::{Speaker, SummaryLine};
use toolhold_text::words::{Language, TermSplitter};

/// Part of the statements with room that may share a pair of words or a cue before it counts as common.
const COMMON_DIVISOR: usize = 32;
/// Minimum number of statements that may share a pair of words or a cue, in a summary of any size.
const MIN_COMMON: usize = 3;
/// Part of what is rare altogether.
const WHOLE: u64 = 1 << 10;
/// Words from which on a statement without any sign may tell something: a name is no sign in most scripts.
const TELLING_WORDS: usize = 2;
/// The neighbour of the first and of the last word of a statement.
const EDGE: u32 = 0;

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
    pairs: Vec<(u32, u32)>,
    /// Places of its cues in [`CUES`].
    cues: Vec<usize>,
}

impl StatementWords {
    /// Returns the values of the statements in their order, for a summary that has `max` bytes.
    pub(super) fn values(&mut self, lines: &[SummaryLine], max: usize) -> Vec<u64> {
        let splitter = TermSplitter::new(Language::None);
        for line in lines.iter().skip(self.statements.len()) {
            let words = self.read(&splitter, &line.text);
            self.statements.push(words);
        }
        let mut pairs: HashMap<(u32, u32), usize> = HashMap::new();
        let mut cues: HashMap<usize, usize> = HashMap::new();
        for words in &self.statements {
            for pair in &words.pairs {
                *pairs.entry(*pair).or_default() += 1;
            }
            for cue in &words.cues {
                *cues.entry(*cue).or_default() += 1;
            }
        }
        let bytes: usize = lines.iter().map(line_bytes).sum();
        let with_room = lines.len().saturating_mul(max) / bytes.max(1);
        let rarity = Rarity {
            most: (with_room / COMMON_DIVISOR).max(MIN_COMMON),
        };
        let statements = lines.iter().zip(&self.statements);
        statements
            .map(|(line, words)| {
                let counts = words.pairs.iter().filter_map(|pair| pairs.get(pair));
                let rare: u64 = counts.map(|count| rarity.of(*count)).sum();
                let count = u64::try_from(words.pairs.len()).unwrap_or(u64::MAX);
                let rare = rare / count.max(1);
                let of_cue = words.cues.iter().filter_map(|cue| cues.get(cue));
                let cue = of_cue.min().map(|count| rarity.of(*count));
                worth(line, words.count, cue).saturating_mul(rare)
            })
            .collect()
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

    fn read(&mut self, splitter: &TermSplitter, text: &str) -> WordsOfStatement {
        let mut sequence = vec![EDGE];
        splitter.each(text, |word| {
            let next = u32::try_from(self.numbers.len() + 1).unwrap_or(u32::MAX);
            sequence.push(*self.numbers.entry(shape(word)).or_insert(next));
        });
        let count = sequence.len() - 1;
        sequence.push(EDGE);
        let seconds = sequence.iter().copied().skip(1);
        let mut pairs: Vec<(u32, u32)> = sequence.iter().copied().zip(seconds).collect();
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

/// The worth of a statement whose words are rare. It doubles with each weight; that of a question is half. `cue`: the rarity
/// of its rarest cue.
fn worth(line: &SummaryLine, words: usize, cue: Option<u64>) -> u64 {
    let signs = if has_grouped_number(&line.text) {
        IDENTIFIED
    } else {
        weight_of_signs(&line.text)
    };
    let signs = match line.from {
        Speaker::Assistant => signs.saturating_sub(1),
        Speaker::User => signs,
        Speaker::Tool => signs.min(NAMED),
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
    if is_question(&line.text) {
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
