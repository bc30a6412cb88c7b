//! BM25, by which passages are ranked: the same for both databases.

use std::collections::HashMap;

/// A word that is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionWord {
    /// Letters and digits only, as [`NewPassage::words`](super::NewPassage::words) has them.
    pub word: String,
    /// How often the question has it: it counts so often.
    pub count: u32,
}

/// As Lucene and `bm25s` have them.
const K1: f64 = 1.5;
const B: f64 = 0.75;

/// What the words of a question weigh in texts of a known number.
#[derive(Debug, Default)]
pub struct WordWeights {
    /// Where a word's weight is. Weights are summed in their order: the sum of the same numbers in another order is
    /// another one, and equal passages would have unequal scores.
    places: HashMap<String, usize>,
    weights: Vec<f64>,
    /// Words of a passage.
    average: f64,
}

impl WordWeights {
    /// `counted` has the words of the question, and how many of all `passages` hold each; the passages have
    /// `all_words` words together.
    pub fn new(counted: &[(&QuestionWord, u64)], passages: u64, all_words: u64) -> Self {
        let mut ranking = Self {
            average: (as_f64(all_words) / as_f64(passages.max(1))).max(1.0),
            ..Self::default()
        };
        for (word, holding) in counted {
            ranking
                .places
                .insert(word.word.clone(), ranking.weights.len());
            let weight = f64::from(word.count) * rarity(*holding, passages);
            ranking.weights.push(weight);
        }
        ranking
    }

    /// The score of a passage with these `words`, which are separated by spaces.
    pub fn score(&self, words: &str) -> f64 {
        let mut counts = vec![0.0; self.weights.len()];
        let mut length = 0.0;
        for word in words.split(' ') {
            length += 1.0;
            if let Some(place) = self.places.get(word) {
                counts[*place] += 1.0;
            }
        }
        let norm = K1 * (1.0 - B + B * length / self.average);
        let scores = counts.iter().zip(&self.weights);
        scores
            .map(|(count, weight)| weight * count / (count + norm))
            .sum()
    }
}

/// How much it says that a passage holds a word that `holding` of all `passages` hold: more than 0 also for a word that
/// all of them hold.
fn rarity(holding: u64, passages: u64) -> f64 {
    let others = as_f64(passages.saturating_sub(holding));
    (1.0 + (others + 0.5) / (as_f64(holding) + 0.5)).ln()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of passages and words; a score needs no more than 52 bits"
)]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(word: &str, count: u32) -> QuestionWord {
        QuestionWord {
            word: word.into(),
            count,
        }
    }

    #[test]
    fn scores_are_those_of_bm25s() {
        // By bm25s 0.3.16 with its defaults (method "lucene"), of the corpus ["fox fox dog", "dog cat", "cat", "owl"].
        let (fox, dog) = (asked("fox", 1), asked("dog", 1));
        let ranking = WordWeights::new(&[(&fox, 1), (&dog, 2)], 4, 7);
        let close = |left: f64, right: f64| assert!((left - right).abs() < 1e-6, "{left} {right}");
        close(ranking.score("fox fox dog"), 0.769_340);
        close(ranking.score("dog cat"), 0.260_512);
        close(ranking.score("cat"), 0.0);
    }

    #[test]
    fn what_a_question_repeats_weighs_more() {
        let (once, twice, other) = (asked("fox", 1), asked("fox", 2), asked("dog", 1));
        let passages = ["fox it is", "dog it is"];
        let scores =
            |fox| passages.map(|it| WordWeights::new(&[(fox, 5), (&other, 4)], 9, 27).score(it));
        let [fox, dog] = scores(&once);
        assert!(fox < dog);
        let [fox_again, dog_again] = scores(&twice);
        assert!(fox_again > dog_again);
        assert!((fox_again - 2.0 * fox).abs() < 1e-9);
    }
}
