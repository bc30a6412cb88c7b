//! The work: primes, counted in pieces.

/// How many numbers one question looks at: well below a second.
pub const PIECE: u64 = 200_000;

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub below: u64,
    /// The first number that was not looked at.
    pub next: u64,
    /// Primes among those before it.
    pub found: u64,
}

impl Work {
    pub fn new(below: u64) -> Self {
        Self {
            below,
            next: 0,
            found: 0,
        }
    }

    pub fn is_over(self) -> bool {
        self.next >= self.below
    }

    /// Does the next piece.
    pub fn advance(&mut self) {
        let end = self.next.saturating_add(PIECE).min(self.below);
        let primes = (self.next..end).filter(|number| is_prime(*number)).count();
        self.found += primes as u64;
        self.next = end;
    }
}

/// Every prime above 3 is beside a multiple of 6.
fn is_prime(number: u64) -> bool {
    if number < 4 {
        return number > 1;
    }
    if number.is_multiple_of(2) || number.is_multiple_of(3) {
        return false;
    }
    let mut divisor = 5;
    while divisor * divisor <= number {
        if number.is_multiple_of(divisor) || number.is_multiple_of(divisor + 2) {
            return false;
        }
        divisor += 6;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_to_the_whole() {
        for (below, primes) in [
            (0, 0),
            (3, 1),
            (100, 25),
            (PIECE, 17_984),
            (1_000_000, 78_498),
        ] {
            let mut work = Work::new(below);
            let mut pieces = 0;
            while !work.is_over() {
                work.advance();
                pieces += 1;
            }
            assert_eq!(
                (work.found, pieces),
                (primes, below.div_ceil(PIECE)),
                "{below}"
            );
        }
    }
}
