use serde::{Serialize, Serializer};
use std::fmt::{self, Display, Formatter};

/// A place in a plan: `plan[3]` is a step, `plan[3]/to` an argument of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanPlace {
    pub step: usize,
    /// JSON pointer into the call; empty means the whole of it.
    pub pointer: String,
}

impl PlanPlace {
    pub fn step(step: usize) -> Self {
        Self::new(step, "")
    }

    pub fn new(step: usize, pointer: impl Into<String>) -> Self {
        Self {
            step,
            pointer: pointer.into(),
        }
    }
}

impl Display for PlanPlace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let pointer = super::text::printable(&self.pointer, 200);
        write!(f, "plan[{}]{pointer}", self.step)
    }
}

impl Serialize for PlanPlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
