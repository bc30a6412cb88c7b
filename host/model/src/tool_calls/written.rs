//! How far the JSON text of a call's arguments is written.

use toolhold_json::scan::{JsonLexer, JsonToken};

/// How far the arguments of a call are written. Each character is looked at once, however small the pieces.
#[derive(Debug, Default)]
pub(super) struct Written {
    lexer: JsonLexer,
    /// Brackets that are open.
    depth: usize,
    /// All brackets that were opened are closed again.
    pub(super) is_closed: bool,
    /// Something came after that, so it is no JSON and will never be.
    pub(super) is_broken: bool,
    /// Number of tokens that are no blanks.
    pub(super) tokens: usize,
}

impl Written {
    pub(super) fn push(&mut self, mut piece: &str) {
        while let Some(token) = self.lexer.next(&mut piece) {
            if matches!(token, JsonToken::Between(c) if c.is_ascii_whitespace()) {
                continue;
            }
            self.tokens = self.tokens.saturating_add(1);
            match token {
                _ if self.is_closed => self.is_broken = true,
                JsonToken::Between('{' | '[') => self.depth += 1,
                JsonToken::Between('}' | ']') => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_closed = self.depth == 0;
                }
                _ => {}
            }
        }
    }
}
