//! Bytes as records and people write them.

use sha2::{Digest as _, Sha256};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// In lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)])
        .collect()
}

/// The SHA-256 of some bytes, in lower-case hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_people_compare_them() {
        assert_eq!(hex(&[0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
        assert!(sha256("").starts_with("e3b0c44298fc1c14"));
    }
}
