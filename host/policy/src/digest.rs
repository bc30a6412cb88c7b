//! The identity of a component: the SHA-256 of its bytes.

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::{fmt, io};

/// The SHA-256 of a component's bytes: what a module *is*.
///
/// `Display` writes 64 hexadecimal digits, `Debug` and JSON write `sha256:` before them.
///
/// ```
/// use toolhold_policy::Digest;
///
/// let digest = Digest::of(b"");
/// assert!(digest.to_string().starts_with("e3b0c44298fc1c14"));
/// assert!(format!("{digest:?}").starts_with("sha256:e3b0"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of all that `reader` gives, of which a piece at a time is in memory.
    ///
    /// # Errors
    /// As the reader's.
    pub fn of_reader(mut reader: impl io::Read) -> io::Result<Self> {
        let mut hasher = Sha256::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            match reader.read(&mut piece) {
                Ok(0) => return Ok(Self(hasher.finalize().into())),
                Ok(read) => hasher.update(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The 32 bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
        let digits = self.0.iter();
        let digits = digits.flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]);
        // In one write: a formatter may do a system call for each piece.
        f.write_str(&digits.collect::<String>())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("sha256:{self}"))
    }
}
