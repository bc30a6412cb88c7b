//! Where in the JSON a conversion failed. Built from the inside out, so that it costs nothing until
//! then.

use std::fmt;

/// A value that does not fit its type. One pointer: the good case carries its size too.
#[derive(Debug)]
pub(super) struct TypeMismatch(Box<TypeMismatchDetails>);

#[derive(Debug)]
struct TypeMismatchDetails {
    /// Innermost first.
    path: Vec<PathStep>,
    reason: String,
}

#[derive(Debug)]
enum PathStep {
    Key(String),
    Index(usize),
}

impl TypeMismatch {
    pub fn new(reason: impl Into<String>) -> Self {
        Self(Box::new(TypeMismatchDetails {
            path: Vec::new(),
            reason: reason.into(),
        }))
    }

    pub fn at_key(mut self, key: &str) -> Self {
        self.0.path.push(PathStep::Key(key.to_owned()));
        self
    }

    pub fn at_index(mut self, index: usize) -> Self {
        self.0.path.push(PathStep::Index(index));
        self
    }
}

/// `$.items[2].price: expected …`, a JSONPath (RFC 9535) and the reason.
impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for step in self.0.path.iter().rev() {
            match step {
                PathStep::Index(index) => write!(f, "[{index}]")?,
                // WIT's names have dashes; they read better than brackets and stay unambiguous.
                PathStep::Key(key)
                    if key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') =>
                {
                    write!(f, ".{key}")?;
                }
                PathStep::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        write!(f, ": {}", self.0.reason)
    }
}
