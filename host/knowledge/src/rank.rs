//! Puts lists of passages that were found in different ways into one order.

use std::collections::HashMap;

/// How much the nearest vector counts beside the best match of words. Static vectors know little of a long question:
/// with 1, both together find less than words alone, with a fifth as much or more (`benches/retrieval`).
const VECTOR_WEIGHT: f64 = 0.2;

/// A list of passages with what the search that found them gave them, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredList {
    pub by: ScoredBy,
    pub passages: Vec<(i64, f64)>,
}

/// What the scores of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoredBy {
    /// BM25: 0 is no match.
    Words,
    /// The cosine: what is near depends on the model, so the last of the list counts as 0.
    Vectors,
}

impl ScoredList {
    /// The scores between 0 and what the list counts.
    fn weighed(&self) -> impl Iterator<Item = (i64, f64)> {
        let best = self.passages.first().map_or(0.0, |(_, score)| *score);
        let last = self.passages.last().map_or(0.0, |(_, score)| *score);
        let (least, weight) = match self.by {
            ScoredBy::Words => (0.0, 1.0),
            ScoredBy::Vectors => (last, VECTOR_WEIGHT),
        };
        let span = best - least;
        self.passages.iter().map(move |(passage, score)| {
            let share = if span > 0.0 {
                (score - least) / span
            } else {
                1.0
            };
            (*passage, share * weight)
        })
    }
}

/// The passages of all lists by the sum of their weighed scores; best first. Source: Bruch, Gai and Ingber, "An Analysis
/// of Fusion Functions for Hybrid Retrieval", ACM TOIS 2023, who found it better than Reciprocal Rank Fusion.
pub fn fuse(lists: &[ScoredList]) -> Vec<i64> {
    let mut scores: HashMap<i64, f64> = HashMap::new();
    for (passage, score) in lists.iter().flat_map(ScoredList::weighed) {
        *scores.entry(passage).or_default() += score;
    }
    let mut fused: Vec<(i64, f64)> = scores.into_iter().collect();
    fused.sort_by(|(a, left), (b, right)| right.total_cmp(left).then(a.cmp(b)));
    fused.into_iter().map(|(passage, _)| passage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(by: ScoredBy, passages: &[(i64, f64)]) -> ScoredList {
        ScoredList {
            by,
            passages: passages.to_vec(),
        }
    }

    #[test]
    fn what_both_have_comes_before_what_one_has() {
        let words = list(ScoredBy::Words, &[(1, 8.0), (2, 7.0), (3, 1.0)]);
        let vectors = list(ScoredBy::Vectors, &[(4, 0.9), (2, 0.8), (5, 0.1)]);
        assert_eq!(fuse(&[words.clone(), vectors.clone()]), [2, 1, 4, 3, 5]);
        assert_eq!(fuse(std::slice::from_ref(&words)), [1, 2, 3]);
        assert_eq!(fuse(&[vectors]), [4, 2, 5]);
        assert_eq!(fuse(&[words.clone(), words]), [1, 2, 3]);
        assert!(fuse(&[]).is_empty());
    }

    #[test]
    fn scores_that_tell_nothing_apart_keep_the_passages() {
        let same = list(ScoredBy::Vectors, &[(2, 0.5), (1, 0.5)]);
        assert_eq!(fuse(&[same]), [1, 2]);
        let none = list(ScoredBy::Words, &[(1, 0.0)]);
        assert_eq!(fuse(&[none]), [1]);
    }
}
