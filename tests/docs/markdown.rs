//! What of Markdown the documents use: fenced blocks, headings with their anchors, links.

use super::REASONS;

/// A fenced block.
#[derive(Debug)]
pub struct Block {
    pub language: String,
    /// What stands behind the language, without parentheses.
    pub info: String,
    pub text: String,
    /// Of its first fence, from 1.
    pub line: usize,
}

/// What is to be done with a block.
#[derive(Debug, PartialEq, Eq)]
pub enum Mark<'b> {
    /// It is there to be read.
    Text,
    File(&'b str),
    Run,
    Server,
    Starts,
    NotRun,
}

impl Block {
    /// # Errors
    /// What is wrong with its mark.
    pub fn mark(&self) -> Result<Mark<'_>, String> {
        if let Some(name) = self.info.strip_prefix("file: ") {
            return Ok(Mark::File(name));
        }
        if self.language != "sh" {
            return match self.info.as_str() {
                "" => Ok(Mark::Text),
                info => Err(format!("({info}) is known only behind `sh`")),
            };
        }
        match self.info.as_str() {
            "run" => Ok(Mark::Run),
            "server" => Ok(Mark::Server),
            "starts" => Ok(Mark::Starts),
            info => match info.strip_prefix("no test: ") {
                Some(reason) if REASONS.contains(&reason) => Ok(Mark::NotRun),
                Some(reason) => Err(format!("{reason:?} is none of {REASONS:?}")),
                None => Err(format!(
                    "`sh ({info})`: write (run), (server), (starts) or (no test: REASON)"
                )),
            },
        }
    }
}

/// Lines outside and inside of fenced blocks: `(number, line, is inside or a fence)`.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut is_inside = false;
    text.lines().enumerate().map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        let is_code = is_inside || is_fence;
        is_inside ^= is_fence;
        (index + 1, line, is_code)
    })
}

/// The fenced blocks, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line, is_code) in lines(text) {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => {
                let (language, info) = info.trim().split_once(' ').unwrap_or((info.trim(), ""));
                let info = info.trim_start_matches('(').trim_end_matches(')');
                open = Some(Block {
                    language: language.to_owned(),
                    info: info.to_owned(),
                    text: String::new(),
                    line: number,
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) if is_code => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

/// The headings as written, without `#`.
pub fn headings(text: &str) -> Vec<String> {
    let outside = lines(text).filter(|(.., is_code)| !is_code);
    outside
        .filter(|(_, line, _)| line.starts_with('#'))
        .map(|(_, line, _)| line.trim_start_matches('#').trim().to_owned())
        .collect()
}

/// The anchor that a heading has on the usual forges: lower case, letters, digits, `-` and `_`, with a
/// hyphen for each space.
pub fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}

/// The targets of `[text](target)`, each with its line; what stands in code is no link.
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line, is_code) in lines(text) {
        if is_code {
            continue;
        }
        // Every second piece is between backticks; a link's text may be code, so its end is kept.
        let line = line.replace("`](", "](").replace("[`", "[");
        let outside = line.split('`').step_by(2);
        for piece in outside {
            let mut rest = piece;
            while let Some((_, after)) = rest.split_once("](") {
                let Some((target, next)) = after.split_once(')') else {
                    break;
                };
                found.push((number, target.to_owned()));
                rest = next;
            }
        }
    }
    found
}

/// What stands between backticks within a line.
pub fn code_spans(text: &str) -> Vec<(usize, String)> {
    let outside = lines(text).filter(|(.., is_code)| !is_code);
    outside
        .flat_map(|(number, line, _)| {
            let spans = line.split('`').skip(1).step_by(2);
            spans.map(move |span| (number, span.to_owned()))
        })
        .collect()
}

#[test]
fn markdown_is_read_as_it_is_shown() {
    let text = "# One `two` & three!\n[a](b.md#c) `[no](x)` [`d`](e)\n```sh (run)\n# no heading\n[no](y)\n```\n## Last\n";
    assert_eq!(headings(text), ["One `two` & three!", "Last"]);
    assert_eq!(anchor("One `two` & three!"), "one-two--three");
    let targets: Vec<_> = links(text).into_iter().map(|(_, target)| target).collect();
    assert_eq!(targets, ["b.md#c", "e"]);
    let spans: Vec<_> = code_spans(text).into_iter().map(|(_, span)| span).collect();
    assert_eq!(spans, ["two", "[no](x)", "d"]);
    let blocks = blocks(text);
    assert_eq!(blocks.len(), 1);
    assert_eq!(blocks[0].mark(), Ok(Mark::Run));
    assert_eq!((blocks[0].line, blocks[0].text.lines().count()), (3, 2));
}
