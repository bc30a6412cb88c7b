//! Confidence intervals and significance tests for few attempts.

/// Two-sided 95 %.
const Z: f64 = 1.959_963_984_540_054;

/// The Wilson score interval at 95 % of `successes` in `attempts`: where the true rate lies, if attempts
/// are independent. Of no attempts nothing is known.
///
/// (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n)
pub fn wilson(successes: usize, attempts: usize) -> (f64, f64) {
    if attempts == 0 {
        return (0.0, 1.0);
    }
    let n = attempts as f64;
    let p = successes as f64 / n;
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    let bound = |value: f64| (value / scale).clamp(0.0, 1.0);
    (bound(middle - half), bound(middle + half))
}

/// The exact two-sided sign test: how likely a split at least as uneven as `better` to `worse` is, if
/// either had been as likely for each pair. Pairs without a difference say nothing and are left out.
/// With one attempt at each task this is McNemar's exact test.
///
/// p = min(1, 2·Σ C(n,i)/2ⁿ), i from 0 to the smaller of the two, n = better + worse
pub fn sign_test(better: usize, worse: usize) -> f64 {
    let n = better + worse;
    let half = 0.5_f64.ln() * n as f64;
    // ln C(n, i), from C(n, i-1).
    let (mut choose, mut sum) = (0.0_f64, 0.0_f64);
    for i in 0..=better.min(worse) {
        if i > 0 {
            choose += ((n - i + 1) as f64).ln() - (i as f64).ln();
        }
        sum += (choose + half).exp();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 5e-4
    }

    /// Figures that statistics packages give.
    #[test]
    fn intervals_are_the_published_ones() {
        for (successes, attempts, low, high) in [
            (0, 10, 0.0, 0.2775),
            (10, 10, 0.7225, 1.0),
            (5, 10, 0.2366, 0.7634),
            (81, 263, 0.2553, 0.3662),
        ] {
            let (l, h) = wilson(successes, attempts);
            assert!(
                near(l, low) && near(h, high),
                "{successes}/{attempts}: {l} {h}"
            );
        }
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }

    #[test]
    fn a_split_is_as_unlikely_as_counting_says() {
        for (better, worse, p) in [
            (0, 0, 1.0),
            (1, 1, 1.0),
            (5, 0, 0.0625),
            (1, 9, 0.021_48),
            (9, 1, 0.021_48),
            (3, 14, 0.012_73),
            (1_000, 1_000, 1.0),
        ] {
            assert!(
                near(sign_test(better, worse), p),
                "{better}:{worse} {}",
                sign_test(better, worse)
            );
        }
    }
}
