//! Counts numbers in buckets: the memory does not depend on how many there are, and a percentile is at most 1
//! % above the true one.

/// Significant decimal digits of a percentile: buckets are at most 1 % wide, and numbers below 256 have buckets
/// of their own.
const DIGITS: u8 = 2;

/// A histogram of numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// Absent while empty, because most histograms of a report are empty.
    numbers: Option<hdrhistogram::Histogram<u32>>,
    sum: u128,
}

impl Eq for Histogram {}

impl Histogram {
    pub fn add(&mut self, number: u64) {
        if self.numbers.is_none() {
            self.numbers = hdrhistogram::Histogram::new(DIGITS).ok();
        }
        let recorded = self.numbers.as_mut().map(|numbers| numbers.record(number));
        if let Some(Ok(())) = recorded {
            self.sum += u128::from(number);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        match (&mut self.numbers, &other.numbers) {
            (_, None) => return,
            // Resizes itself.
            (Some(own), Some(numbers)) => drop(own.add(numbers)),
            (own @ None, Some(numbers)) => *own = Some(numbers.clone()),
        }
        self.sum += other.sum;
    }

    pub fn count(&self) -> u64 {
        self.numbers
            .as_ref()
            .map_or(0, hdrhistogram::Histogram::len)
    }

    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The percentile by nearest rank; `None` for an empty histogram.
    pub fn percentile(&self, percent: u32) -> Option<u64> {
        let numbers = self.numbers.as_ref()?;
        // In integers: `value_at_percentile` rounds in floating point, and can come to the rank after the right one.
        let rank = (u128::from(percent) * u128::from(numbers.len()))
            .div_ceil(100)
            .max(1);
        let mut seen = 0;
        numbers.iter_recorded().find_map(|bucket| {
            seen += u128::from(bucket.count_since_last_iteration());
            (seen >= rank).then(|| bucket.value_iterated_to())
        })
    }
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
        assert!(of(&[u64::MAX]).percentile(50) >= Some(u64::MAX - 1));
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
