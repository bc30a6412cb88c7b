//! Arguments of a client's call in pieces, as streams bring them.
//!
//! The pieces come one after the other when the run has ended with the call, and not while the model writes them. No client
//! can take a piece back, and until that end every call may turn out to be none: its arguments may not fit and go back to the
//! model, the reply may break off and be asked for again, shields may change the call, and a limit may end the run before.
//! The model's text is also not what the client is given, where light faults are put right and references are filled in.

/// Most pieces of one call's arguments, as long as none is longer than [`MOST_BYTES`].
const MOST_PIECES: usize = 64;
/// Least bytes of a piece, but for the last one.
const LEAST_BYTES: usize = 16;
/// Bytes of a long piece, up to the end of a character. Pieces of replies have the same bound.
const MOST_BYTES: usize = 16 << 10;

/// The text in pieces, in order. There is one of an empty text, too.
pub fn pieces(arguments: &str) -> Vec<&str> {
    let size = arguments.len().div_ceil(MOST_PIECES);
    let size = size.clamp(LEAST_BYTES, MOST_BYTES);
    let mut pieces = Vec::new();
    let mut rest = arguments;
    while rest.len() > size {
        let end = rest.ceil_char_boundary(size);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_arguments_and_are_few() {
        for arguments in [
            String::new(),
            "{}".into(),
            "{\"city\":\"Bern\",\"of\":\"é and more\"}".into(),
            "é".repeat(10_000),
        ] {
            let pieces = pieces(&arguments);
            assert_eq!(pieces.concat(), arguments);
            assert!(
                (1..=MOST_PIECES).contains(&pieces.len()),
                "{}",
                pieces.len()
            );
        }
        assert!(pieces("{\"city\":\"Bern\",\"of\":\"more\"}").len() > 1);
    }

    /// A client's parser is given no event of a megabyte, however long the arguments are.
    #[test]
    fn pieces_are_at_most_of_the_maximum() {
        let arguments = "né€🦀".repeat(1 << 18);
        let pieces = pieces(&arguments);
        assert_eq!(pieces.concat(), arguments);
        let longest = pieces.iter().map(|piece| piece.len()).max();
        assert!(longest < Some(MOST_BYTES + 4), "{longest:?}");
    }
}
