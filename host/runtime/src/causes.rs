//! Errors with their causes, as one text for people.

/// Returns an error with its causes, as they are and without repetitions: many messages contain their cause already.
pub fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_said_once() {
        let error = anyhow::anyhow!("refused")
            .context("cannot connect: refused")
            .context("the endpoint");
        assert_eq!(causes(&error), "the endpoint: cannot connect: refused");
    }
}
