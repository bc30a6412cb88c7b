//! SHA-256 digests: the names of content in a registry.

use sha2::{Digest as _, Sha256};
use std::fmt::{self, Write as _};
use std::str::FromStr;

/// The SHA-256 of some content, written `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hex digits without `sha256:`, as the cache's file names use them.
    pub fn hex(&self) -> String {
        self.0
            .iter()
            .fold(String::with_capacity(64), |mut hex, byte| {
                // Writing to a string cannot fail.
                let _ = write!(hex, "{byte:02x}");
                hex
            })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    /// Upper-case hex is refused: the specification's digests have one spelling, and so have their
    /// files in the store.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a digest is sha256: and 64 lower-case hex digits";
        let hex = text.strip_prefix("sha256:").ok_or(FORM)?;
        let is_hex = |b: u8| b.is_ascii_digit() || matches!(b, b'a'..=b'f');
        if hex.len() != 64 || !hex.bytes().all(is_hex) {
            return Err(FORM);
        }
        let mut digest = [0; 32];
        for (place, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| FORM)?;
            *place = u8::from_str_radix(pair, 16).map_err(|_| FORM)?;
        }
        Ok(Self(digest))
    }
}

/// Hashes content that comes in pieces.
#[derive(Debug, Default)]
pub struct DigestHasher(Sha256);

impl DigestHasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_hash_of_the_content_and_reads_back() {
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), known);
        assert_eq!(known.parse(), Ok(Digest::of(b"abc")));
        let mut running = DigestHasher::default();
        running.update(b"a");
        running.update(b"bc");
        assert_eq!(running.finish(), Digest::of(b"abc"));
    }

    #[test]
    fn a_digest_has_one_spelling() {
        let hex = Digest::of(b"abc").hex();
        for bad in [
            hex.clone(),
            format!("sha256:{}", hex.to_uppercase()),
            format!("sha256:{}", &hex[1..]),
            format!("sha256:{hex}0"),
            format!("sha512:{hex}"),
            format!("sha256:../{}", &hex[3..]),
            format!("sha256:+{}", &hex[1..]),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
