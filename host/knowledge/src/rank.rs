//! Puts lists of passages that were found in different ways into one order.

use std::collections::HashMap;

/// How much a place at the top of a list counts more than one behind it. Source: Cormack, Clarke and Büttcher,
/// "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009, who found 60.
const RANK_OFFSET: f64 = 60.0;

/// The passages of all `lists`, each of which has its best one first, by the sum of `1 / (60 + place)` over the lists
/// that have them; best first.
pub fn fuse(lists: &[Vec<i64>]) -> Vec<i64> {
    let mut scores: HashMap<i64, f64> = HashMap::new();
    for list in lists {
        let mut place = RANK_OFFSET;
        for passage in list {
            place += 1.0;
            *scores.entry(*passage).or_default() += 1.0 / place;
        }
    }
    let mut fused: Vec<(i64, f64)> = scores.into_iter().collect();
    fused.sort_by(|(a, left), (b, right)| right.total_cmp(left).then(a.cmp(b)));
    fused.into_iter().map(|(passage, _)| passage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_lists_have_comes_before_the_first_of_one() {
        assert_eq!(fuse(&[vec![1, 2, 3], vec![4, 3]]), [3, 1, 4, 2]);
        assert_eq!(fuse(&[vec![7, 5]]), [7, 5]);
        assert!(fuse(&[]).is_empty());
    }
}
