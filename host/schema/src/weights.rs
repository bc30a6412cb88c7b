//! The price of reading a value, in steps.

/// Steps that reading a value costs under one schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Steps of a value that is reached, for schemas in place that do not read it.
    pub child: u64,
    /// Steps of 32 bytes of a text that is read.
    pub text: u64,
    /// Steps of 32 bytes of a property's name that is read.
    pub name: u64,
    /// Steps of a number that is read.
    pub number: u64,
    /// Steps of a comparison with a list or an object in `const` or `enum`.
    pub constant: u64,
    /// Steps of a fault that is written down: it copies parts of the schema.
    pub fault: u64,
}

impl Weights {
    pub const NONE: Self = Self {
        child: 1,
        text: 1,
        name: 1,
        number: 1,
        constant: 1,
        fault: 1,
    };

    /// While faults are written down, which takes memory that is kept to the end: names are listed, and each
    /// fault is one of many.
    pub fn writing(self) -> Self {
        Self {
            name: self.name.max(MIN_NAME_WRITTEN),
            fault: self.fault.saturating_mul(FAULT_FACTOR),
            ..self
        }
    }
}

/// The least steps of 32 bytes of a name that may be listed in a fault.
const MIN_NAME_WRITTEN: u64 = 1024;
/// How many times the steps of other work a fault costs, because it takes memory.
const FAULT_FACTOR: u64 = 16;
