//! Rules by which texts of models are read.

/// The rules by which texts of models are read. A record is replayed by the rules under which it was written, so that each
/// of its replies means what it meant then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadingRules {
    /// The rules of records of format 3. In this crate: numbers are read also if they lose digits, a pattern demands no
    /// notation of dates, and these have English words or none.
    Format3,
    /// The rules of records of format 4. In this crate: dates have English words or none.
    Format4,
    #[default]
    Current,
}

impl ReadingRules {
    /// True under the rules of format 4, and under later ones.
    pub fn are_from_4(self) -> bool {
        self >= Self::Format4
    }

    /// True under the rules of format 5, which are the current ones.
    pub fn are_from_5(self) -> bool {
        self >= Self::Current
    }
}
