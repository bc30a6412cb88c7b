//! Rules by which texts of models are read.

/// The rules by which texts of models are read. A record is replayed by the rules under which it was written, so that each
/// of its replies means what it meant then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadingRules {
    /// The rules of records of format 3. In this crate: numbers are read also if they lose digits, and a pattern demands no
    /// notation of dates.
    Format3,
    #[default]
    Current,
}

impl ReadingRules {
    pub fn are_current(self) -> bool {
        self == Self::Current
    }
}
