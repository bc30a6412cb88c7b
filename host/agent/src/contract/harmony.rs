//! The messages of OpenAI's Harmony, as gpt-oss writes them where the server does not take them apart:
//! `<|start|>assistant<|channel|>analysis<|message|>…<|end|>`. What stands in `analysis` is thought, what
//! stands in `final` is the answer, and what has a recipient (`to=functions.NAME`) is a call. A
//! `commentary` without one is what the model says before its calls, and the answer where nothing follows.

const ROLE: &str = "<|start|>assistant";
const CHANNEL: &str = "<|channel|>";
const CONSTRAIN: &str = "<|constrain|>";
const MESSAGE: &str = "<|message|>";
/// What ends a message that another one follows.
pub(super) const END: &str = "<|end|>";
/// What the last one may end with, if the server left it.
const ENDS: [&str; 3] = ["<|return|>", END, "<|call|>"];
const UNMARKED_THOUGHT: &str = "analysis";
const UNMARKED_ANSWER: &str = "assistantfinal";
const UNMARKED_ROLE: &str = "assistant";
const UNMARKED_CALL: &str = "commentary to=";
const UNMARKED_NEXT: &str = "assistantcommentary to=";
/// Maximum bytes of a header. Tools have names of at most 64 characters; the rest is marks.
const MAX_HEADER: usize = 256;
/// Maximum bytes of a text that may still become one that begins with a header.
pub(super) const MAX_OPENING: usize = MAX_HEADER + MESSAGE.len();
/// Beginnings of messages.
pub(super) const MARKS: [&str; 2] = [ROLE, CHANNEL];
/// White space behind the mark that ends a reply.
const MAX_SPACE: usize = 64;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header<'t> {
    pub(super) channel: Channel,
    /// The recipient, `functions.NAME`.
    pub(super) recipient: Option<&'t str>,
    /// What follows the header.
    pub(super) content: &'t str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Analysis,
    Commentary,
    Final,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderMatch<'t> {
    With(Header<'t>),
    /// Perhaps with a header: it is not complete.
    Open,
    WithNone,
}

/// Whether `text` begins with the header of a message.
pub(super) fn begins(text: &str) -> HeaderMatch<'_> {
    if !MARKS.iter().any(|mark| text.starts_with(mark)) {
        let is_begun = MARKS.iter().any(|mark| mark.starts_with(text));
        return if is_begun {
            HeaderMatch::Open
        } else {
            HeaderMatch::WithNone
        };
    }
    // No more is looked at, however long the text is.
    let head = &text[..text.floor_char_boundary(MAX_OPENING)];
    match head.split_once(MESSAGE) {
        Some((head, _)) => {
            let content = &text[head.len() + MESSAGE.len()..];
            header(head, content).map_or(HeaderMatch::WithNone, HeaderMatch::With)
        }
        None if text.len() < MAX_OPENING => HeaderMatch::Open,
        None => HeaderMatch::WithNone,
    }
}

/// The recipient stands with the role or with the channel, the type of the content behind either.
fn header<'t>(head: &'t str, content: &'t str) -> Option<Header<'t>> {
    let head = head.strip_prefix(ROLE).unwrap_or(head);
    let (role, said) = head.split_once(CHANNEL)?;
    let said = said.split_once(CONSTRAIN).map_or(said, |(said, _)| said);
    let mut words = said.split_whitespace();
    let channel = channel_of(words.next()?)?;
    let mut recipient = None;
    for word in role.split_whitespace().chain(words) {
        // Models write the type as a word of its own, too.
        let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match word.strip_prefix("to=") {
            Some(name) if recipient.is_none() => recipient = Some(name),
            None if is_plain => {}
            _ => return None,
        }
    }
    Some(Header {
        channel,
        recipient,
        content,
    })
}

/// The channel of this name.
fn channel_of(name: &str) -> Option<Channel> {
    match name {
        "analysis" => Some(Channel::Analysis),
        "commentary" => Some(Channel::Commentary),
        "final" => Some(Channel::Final),
        _ => None,
    }
}

/// Whether the channel that a text names, which begins like a message and ends with white space, is known. True where it
/// names none so far.
pub(super) fn may_have_channel(text: &str) -> bool {
    let said = text.split_once(CHANNEL).map_or("", |(_, said)| said);
    let mut words = said.split(|c: char| c.is_whitespace() || c == '<');
    let name = words.find(|word| !word.is_empty());
    name.is_none_or(|name| channel_of(name).is_some())
}

/// The recipients and arguments of calls in a text that lost its marks: servers that drop special tokens
/// leave `analysisI look.assistantcommentary to=functions.NAME json{…}`. Empty where that is not all of it.
pub(super) fn unmarked_calls(text: &str) -> Vec<(&str, &str)> {
    let start = match text.strip_prefix(UNMARKED_THOUGHT) {
        Some(thought) => thought.find(UNMARKED_NEXT).map(|at| &thought[at..]),
        None => Some(text),
    };
    let Some(start) = start.map(|start| start.strip_prefix(UNMARKED_ROLE).unwrap_or(start)) else {
        return Vec::new();
    };
    let Some(calls) = start.strip_prefix(UNMARKED_CALL) else {
        return Vec::new();
    };
    let calls = calls.split(UNMARKED_NEXT).map(unmarked_call);
    calls.collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn unmarked_call(text: &str) -> Option<(&str, &str)> {
    let (said, content) = text.split_at(text.find('{')?);
    // The content's type may have grown onto the name.
    let said = said.trim_end();
    let name = said.strip_suffix("json").unwrap_or(said).trim_end();
    (!name.contains(char::is_whitespace)).then_some((name, content.trim_end()))
}

/// Looks for the answer in a text that lost its marks, `analysisI add.assistantfinal7`, one character after
/// the other. A genuine answer may begin with the word too, but then a space follows; text behind a call is
/// not trusted as an answer.
#[derive(Debug, Clone)]
pub(super) enum UnmarkedThought {
    /// The part of the first word that has not arrived yet.
    Begins(&'static str),
    /// The end of what was read of it.
    InThought(String),
    /// The text is no thought of this form, or holds a call.
    Other,
}

impl Default for UnmarkedThought {
    fn default() -> Self {
        Self::Begins(UNMARKED_THOUGHT)
    }
}

impl UnmarkedThought {
    /// Whether the thought ends with this character.
    pub(super) fn ends_with(&mut self, c: char) -> bool {
        match self {
            Self::Begins("") => {
                *self = if c.is_whitespace() {
                    Self::Other
                } else {
                    Self::InThought(c.into())
                };
            }
            Self::Begins(word) => {
                *self = word.strip_prefix(c).map_or(Self::Other, Self::Begins);
            }
            Self::InThought(end) => {
                end.push(c);
                if end.ends_with(UNMARKED_ANSWER) {
                    return true;
                }
                if end.ends_with(UNMARKED_NEXT) {
                    *self = Self::Other;
                } else if end.len() > 2 * UNMARKED_NEXT.len() {
                    let kept = end.ceil_char_boundary(end.len() - UNMARKED_NEXT.len());
                    end.replace_range(..kept, "");
                }
            }
            Self::Other => {}
        }
        false
    }
}

/// Where the next message begins, from `from` on.
pub(super) fn next_message(text: &str, from: usize) -> Option<usize> {
    let at = text.get(from..)?.find(ROLE)?;
    Some(from + at)
}

/// How much of a text's end has to be looked at again when more of it comes.
pub(super) const NEXT: usize = ROLE.len() - 1;

/// Where the mark stands that ends a reply.
pub(super) fn ending(text: &str) -> Option<usize> {
    ending_with(text, &ENDS)
}

/// [`ending`], of one of these marks.
pub(super) fn ending_with(text: &str, ends: &[&str]) -> Option<usize> {
    let trimmed = text.trim_end();
    let end = ends.iter().find(|end| trimmed.ends_with(**end))?;
    (text.len() - trimmed.len() <= MAX_SPACE).then(|| trimmed.len() - end.len())
}

/// From where on a text may become one that ends with such a mark, as more of it comes.
pub(super) fn open_ending(text: &str) -> usize {
    open_ending_with(text, &ENDS)
}

/// [`open_ending`], of one of these marks.
pub(super) fn open_ending_with(text: &str, ends: &[&str]) -> usize {
    if let Some(at) = ending_with(text, ends) {
        return at;
    }
    let begun = |end: &str| (1..end.len()).rev().find(|&n| text.ends_with(&end[..n]));
    let begun = ends.iter().filter_map(|end| begun(end)).max();
    text.len() - begun.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_channel_and_recipient() {
        let with = |channel, recipient| {
            HeaderMatch::With(Header {
                channel,
                recipient,
                content: "{}",
            })
        };
        let call = with(Channel::Commentary, Some("functions.news"));
        for (text, begins) in [
            (
                "<|channel|>analysis<|message|>{}",
                with(Channel::Analysis, None),
            ),
            (
                "<|start|>assistant<|channel|>final<|message|>{}",
                with(Channel::Final, None),
            ),
            (
                "<|channel|>final <|constrain|>json<|message|>{}",
                with(Channel::Final, None),
            ),
            (
                "<|channel|>commentary to=functions.news <|constrain|>json<|message|>{}",
                call,
            ),
            (
                "<|channel|>commentary to=functions.news<|constrain|>json<|message|>{}",
                call,
            ),
            (
                "<|channel|>commentary to=functions.news json<|message|>{}",
                call,
            ),
            (
                "<|start|>assistant to=functions.news<|channel|>commentary <|constrain|>json<|message|>{}",
                call,
            ),
            (
                "<|start|>assistant<|channel|>commentary to=functions.news<|message|>{}",
                call,
            ),
            // Not complete.
            ("", HeaderMatch::Open),
            ("<|cha", HeaderMatch::Open),
            ("<|start|>assistant<|channel|>fin", HeaderMatch::Open),
            // None.
            ("<|channel|>secret<|message|>{}", HeaderMatch::WithNone),
            (
                "<|channel|>commentary to=a to=b<|message|>{}",
                HeaderMatch::WithNone,
            ),
            (
                "<|channel|>final, as it is called<|message|>{}",
                HeaderMatch::WithNone,
            ),
            ("<|start|>user<|message|>{}", HeaderMatch::WithNone),
            ("<|start|>assistant<|message|>{}", HeaderMatch::WithNone),
            ("{}", HeaderMatch::WithNone),
        ] {
            assert_eq!(super::begins(text), begins, "{text}");
        }
        let long = format!("<|channel|>{}", "a".repeat(MAX_HEADER));
        assert_eq!(begins(&long), HeaderMatch::WithNone);
    }

    #[test]
    fn a_mark_at_the_end_is_found_and_awaited() {
        for (text, ends, open) in [
            ("7", None, 1),
            ("7<|return|>", Some(1), 1),
            ("7<|end|>\n ", Some(1), 1),
            ("7<|call|> 8", None, 11),
            ("7<|", None, 1),
            ("7 <", None, 2),
            ("<|return|>", Some(0), 0),
        ] {
            assert_eq!((ending(text), open_ending(text)), (ends, open), "{text}");
        }
    }
}
