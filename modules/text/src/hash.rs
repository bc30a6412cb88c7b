use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use toolhold_guest::{Annotations, Error, Tool, json};

pub fn tool() -> Tool {
    Tool::new(
        "hash",
        "Computes a cryptographic digest of a text (its UTF-8 bytes) and returns it in hexadecimal. \
         Hashes cannot be guessed: always call this.",
        |arguments: Hash| Ok::<_, Error>(hash(&arguments)),
    )
    .title("Hash a text")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "What is the SHA-256 of hello?",
        json!({ "text": "hello", "algorithm": "sha256" }),
        json!({
            "algorithm": "sha256",
            "digest": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        }),
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Hash {
    /// The text to hash, exactly as given: a trailing line break counts.
    text: String,
    /// The algorithm. MD5 and SHA-1 only to compare with old digests: both are broken.
    #[serde(default)]
    algorithm: Algorithm,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Algorithm {
    #[default]
    Sha256,
    Sha512,
    Sha1,
    Md5,
}

#[derive(Serialize, JsonSchema)]
struct Hashed {
    algorithm: Algorithm,
    /// The digest in lower-case hexadecimal.
    digest: String,
}

fn hash(arguments: &Hash) -> Hashed {
    let text = arguments.text.as_bytes();
    let digest = match arguments.algorithm {
        Algorithm::Sha256 => hexadecimal(&Sha256::digest(text)),
        Algorithm::Sha512 => hexadecimal(&Sha512::digest(text)),
        Algorithm::Sha1 => hexadecimal(&Sha1::digest(text)),
        Algorithm::Md5 => hexadecimal(&md5::Md5::digest(text)),
    };
    Hashed {
        algorithm: arguments.algorithm,
        digest,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}
