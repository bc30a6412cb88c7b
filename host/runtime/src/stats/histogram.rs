//! Numbers counted in buckets, as HdrHistogram does it: memory does not grow with how many there are,
//! and a percentile is at most 1 % above the true one.

use std::collections::BTreeMap;

/// Numbers below this have buckets of their own; above, each power of two has half as many.
const EXACT: u64 = 256;
const EXACT_BITS: u32 = EXACT.trailing_zeros();

/// How often numbers occurred.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By the bucket's greatest number: at most 7 400 of them.
    buckets: BTreeMap<u64, u64>,
    count: u64,
    sum: u128,
}

impl Histogram {
    pub fn add(&mut self, number: u64) {
        *self.buckets.entry(bucket(number)).or_default() += 1;
        self.count += 1;
        self.sum += u128::from(number);
    }

    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
        self.count += other.count;
        self.sum += other.sum;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The number that `percent` of the numbers are not above (nearest rank); `None` of no numbers.
    pub fn percentile(&self, percent: u32) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(percent))
            .div_ceil(100)
            .max(1);
        let mut seen = 0_u128;
        self.buckets.iter().find_map(|(bucket, count)| {
            seen += u128::from(*count);
            (seen >= rank).then_some(*bucket)
        })
    }
}

/// The greatest number that is counted together with `number`.
fn bucket(number: u64) -> u64 {
    if number < EXACT {
        return number;
    }
    let dropped = u64::BITS - number.leading_zeros() - EXACT_BITS;
    number | ((1 << dropped) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(numbers: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for number in numbers {
            histogram.add(*number);
        }
        histogram
    }

    #[test]
    fn small_numbers_are_exact() {
        let hundred: Vec<u64> = (1..=100).collect();
        let histogram = of(&hundred);
        let percentiles = [50, 95, 99, 100].map(|p| histogram.percentile(p));
        assert_eq!(percentiles, [Some(50), Some(95), Some(99), Some(100)]);
        assert_eq!((histogram.count(), histogram.sum()), (100, 5_050));
        assert_eq!(of(&[]).percentile(50), None);
        assert_eq!(of(&[7]).percentile(1), Some(7));
        assert_eq!(of(&[u64::MAX]).percentile(50), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn percentiles_are_within_one_in_a_hundred(
            mut numbers in prop::collection::vec(0..u64::MAX / 2, 1..200),
            percent in 1..=100_u32,
        ) {
            let found = of(&numbers).percentile(percent).unwrap();
            numbers.sort_unstable();
            let rank = (numbers.len() * percent as usize).div_ceil(100).max(1);
            let truth = numbers[rank - 1];
            prop_assert!(found >= truth && found - truth <= truth / 100, "{found} for {truth}");
        }

        #[test]
        fn parts_add_up(a in prop::collection::vec(any::<u64>(), 0..50), b in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }
    }
}
