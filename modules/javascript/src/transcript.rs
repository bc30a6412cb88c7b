//! What the code printed: the beginning is kept, the rest is counted.

/// What is printed goes into the model's context: more than this helps nobody.
const MAX_CHARACTERS: usize = 16_000;

#[derive(Debug, Default)]
pub struct Transcript {
    text: String,
    characters: usize,
    dropped: usize,
}

impl Transcript {
    pub fn line(&mut self, line: &str) {
        for character in line.chars().chain(['\n']) {
            if self.characters < MAX_CHARACTERS {
                self.text.push(character);
                self.characters += 1;
            } else {
                self.dropped += 1;
            }
        }
    }

    pub fn text(&self) -> String {
        if self.dropped == 0 {
            return self.text.clone();
        }
        format!("{}\n[{} more characters were cut]", self.text, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_kept_and_the_rest_counted() {
        let mut transcript = Transcript::default();
        transcript.line(&"ä".repeat(MAX_CHARACTERS - 1));
        transcript.line("12");
        let text = transcript.text();
        assert!(text.starts_with("ää") && text.ends_with("\n\n[3 more characters were cut]"));
    }
}
