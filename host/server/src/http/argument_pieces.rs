//! Arguments of a client's call in pieces, as streams bring them. A call is the client's once the run has ended with it,
//! so the pieces come one after the other then.

/// Most pieces of one call's arguments.
const MAX_PIECES: usize = 64;
/// Least bytes of a piece, but for the last one.
const LEAST_BYTES: usize = 16;

/// The text in pieces, in order. There is one of an empty text, too.
pub fn pieces(arguments: &str) -> Vec<&str> {
    let size = arguments.len().div_ceil(MAX_PIECES).max(LEAST_BYTES);
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
            assert!((1..=MAX_PIECES).contains(&pieces.len()), "{}", pieces.len());
        }
        assert!(pieces("{\"city\":\"Bern\",\"of\":\"more\"}").len() > 1);
    }
}
