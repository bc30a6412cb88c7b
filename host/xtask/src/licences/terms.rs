//! The parts of a licence's text: the terms, which many packages share, and the copyright lines, which differ.

/// A text of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Licence {
    /// The text, without characters that control a terminal.
    pub whole: String,
    /// The text without [`copyright`](Self::copyright), and without Apache's appendix, which says how to use the
    /// licence.
    pub terms: String,
    /// Lines that name an owner.
    pub copyright: Vec<String>,
}

/// Last words of Apache's terms; its appendix comes then.
const END: &str = "END OF TERMS AND CONDITIONS";
/// First words of the appendix, and last ones of the notice in it, which some have without the rest.
const APPENDIX: (&str, &str) = ("APPENDIX", "limitations under the License.");
/// Most bytes of the appendix. What is longer has another text in it.
const MAX_APPENDIX_BYTES: usize = 2_000;
/// First words of Apache's terms, after a title that has many forms.
const START: &str = "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION";
const MAX_TITLE_BYTES: usize = 300;

impl Licence {
    pub fn of(text: &str) -> Self {
        let whole = plain(text);
        let (rest, appendix) = without_appendix(&whole);
        let mut copyright: Vec<String> = appendix.lines().filter_map(owner).collect();
        let mut terms = Vec::new();
        let mut is_after_owner = false;
        for line in rest.lines() {
            if is_copyright(line) {
                copyright.extend(owner(line));
                is_after_owner = true;
                continue;
            }
            let said = line.trim().trim_end_matches('.');
            if is_after_owner && said.eq_ignore_ascii_case("all rights reserved") {
                continue;
            }
            is_after_owner &= said.is_empty();
            terms.push(line);
        }
        let terms = terms.join("\n").trim_matches('\n').to_owned();
        Self {
            whole,
            terms,
            copyright,
        }
    }

    /// The key that texts of equal terms share: their words in lower case, without punctuation and line breaks.
    pub fn key(&self) -> String {
        let terms = match self.terms.split_once(START) {
            Some((title, terms)) if title.len() <= MAX_TITLE_BYTES => terms,
            _ => &self.terms,
        };
        let words = terms.to_lowercase().replace("https://", "http://");
        let words = words.split(|c: char| !c.is_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }
}

/// The text with line feeds at the ends of lines and nowhere else a character of control; a tab is four spaces.
fn plain(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\t', "    ");
    let text: String = text
        .chars()
        .filter(|c| *c == '\n' || !(c.is_control() || *c == '\u{feff}'))
        .collect();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// The text without Apache's appendix, and that.
fn without_appendix(text: &str) -> (String, &str) {
    let whole = || (text.to_owned(), "");
    let Some((terms, rest)) = text.split_once(END) else {
        return whole();
    };
    let (first, last) = APPENDIX;
    let (appendix, after) = match rest.split_once(last) {
        Some(parts) => parts,
        None if rest.trim_start().starts_with(first) => (rest, ""),
        None => return whole(),
    };
    if appendix.len() > MAX_APPENDIX_BYTES {
        return whole();
    }
    (format!("{terms}{END}{after}"), appendix)
}

/// The line if it names an owner: templates have a place for one.
fn owner(line: &str) -> Option<String> {
    let line = bare(line);
    let lower = line.to_lowercase();
    let is_template = ["[yyyy", "{yyyy", "<year", "[year", "{year"]
        .iter()
        .any(|place| lower.contains(place));
    (is_copyright(line) && !is_template).then(|| line.to_owned())
}

/// A line without the marks of comments and lists.
fn bare(line: &str) -> &str {
    let is_mark = |c: char| c.is_whitespace() || "*#/-".contains(c);
    line.trim_start_matches('>').trim_matches(is_mark)
}

/// Whether the line says whose something is, and is no sentence about copyright.
fn is_copyright(line: &str) -> bool {
    let line = bare(line).to_lowercase();
    let starts = ["copyright", "(c)", "©"];
    let Some(rest) = starts.iter().find_map(|start| line.strip_prefix(start)) else {
        return false;
    };
    let rest = rest.trim_start();
    let first = rest.split(' ').next().unwrap_or_default();
    let begins = ["(c)", "©", "[", "{", "<"];
    begins.iter().any(|begin| rest.starts_with(begin))
        || rest.starts_with(|c: char| c.is_ascii_digit())
        || ["by", "the"].contains(&first)
        || has_year(rest)
}

fn has_year(text: &str) -> bool {
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut years = numbers.filter(|number| number.len() == 4);
    years.any(|year| year.starts_with("19") || year.starts_with("20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIT: &str = "MIT License\n\nCopyright (c) 2020 Ada\nAll rights reserved.\n\nPermission is hereby granted,\n\
        provided that the above\ncopyright notice appears in copies of 2 pages.\n";

    #[test]
    fn terms_are_compared_without_owners_and_breaks() {
        let ada = Licence::of(MIT);
        assert_eq!(ada.copyright, ["Copyright (c) 2020 Ada"]);
        let bo = Licence::of(
            "MIT License.\r\n\r\n  Copyright 2021-present, Bo <bo@example.com>\r\nPermission is hereby granted, \
             provided that the above copyright\nnotice appears in copies of 2 pages.\u{c}",
        );
        assert_eq!(
            bo.copyright,
            ["Copyright 2021-present, Bo <bo@example.com>"]
        );
        assert_eq!(ada.key(), bo.key());
        assert!(ada.terms.contains("copyright notice appears"), "{ada:?}");
        assert!(bo.whole.ends_with("pages."), "{bo:?}");
    }

    #[test]
    fn an_appendix_that_says_how_to_use_the_licence_is_no_term() {
        let terms = "Apache License\nVersion 2.0\n\nEND OF TERMS AND CONDITIONS";
        let with = |owner: &str| {
            Licence::of(&format!(
                "{terms}\n\nAPPENDIX: How to apply the Apache License to your work.\n\n   Copyright {owner}\n\n\
                 See the License for the\n   limitations under the License.\n"
            ))
        };
        let template = with("[yyyy] [name of copyright owner]");
        assert_eq!(template.copyright, Vec::<String>::new());
        let owned = with("2019 Ada");
        assert_eq!(owned.copyright, ["Copyright 2019 Ada"]);
        assert_eq!(owned.key(), Licence::of(terms).key());
        assert_eq!(template.key(), owned.key());
        let notice = format!(
            "{terms}\n\nLicensed under it.\nSee it for the\n   limitations under the License.\n\nExceptions: none."
        );
        let excepted = Licence::of(&notice);
        assert_eq!(
            excepted.key(),
            format!("{} exceptions none", template.key())
        );
    }
}
