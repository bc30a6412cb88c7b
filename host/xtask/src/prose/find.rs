//! All findings of the tree.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow};

use super::files::{ProseFile, ProseKind};
use super::rust::{DocComment, RustProse};
use super::sign::{ProseFinding, Sign};
use super::{markdown, opening, rust, unit, words};

/// Maximum words of a sentence in a document; readers lose the subject of a longer one.
pub const MAX_WORDS: usize = 30;

/// First words of a test's name that stand for its subject.
const TEST_OPENINGS: [&str; 5] = ["what", "of", "with", "that", "who"];

/// The findings of `files`, in the order of their paths and lines.
///
/// # Errors
/// A file cannot be read, or is not Rust as it stands.
pub fn all(root: &Path, files: &[ProseFile]) -> Result<Vec<ProseFinding>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = |first: usize| -> Result<Vec<ProseFinding>> {
        let mut findings = Vec::new();
        for file in files.iter().skip(first).step_by(threads) {
            let text = fs::read_to_string(root.join(&file.path))
                .with_context(|| format!("could not read {}", file.path.display()))?;
            findings.extend(in_file(file, &text)?);
        }
        Ok(findings)
    };
    let parts = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || part(first)))
            .collect();
        started
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .map_err(|_| anyhow!("a reading thread panicked"))?
            })
            .collect::<Result<Vec<_>>>()
    })?;
    let mut findings: Vec<_> = parts.into_iter().flatten().collect();
    findings.sort();
    Ok(findings)
}

/// The findings of one file with this text.
///
/// # Errors
/// It is not Rust as it stands.
pub fn in_file(file: &ProseFile, text: &str) -> Result<Vec<ProseFinding>> {
    let mut findings = Vec::new();
    let mut add = |lines: (usize, usize), sign, text: String| {
        findings.push(ProseFinding {
            path: file.path.clone(),
            first_line: lines.0,
            last_line: lines.1,
            sign,
            text,
        });
    };
    match file.kind {
        ProseKind::Rust => {
            let prose = rust::read(text)
                .with_context(|| format!("{} is not Rust as it stands", file.path.display()))?;
            in_rust(&prose, &mut add);
        }
        ProseKind::Markdown => {
            for sentence in markdown::sentences(text) {
                if sentence.words > MAX_WORDS {
                    let lines = (sentence.first_line, sentence.last_line);
                    let text = format!("{} words: {}", sentence.words, sentence.text);
                    add(lines, Sign::LongSentence, text);
                }
            }
        }
    }
    Ok(findings)
}

fn in_rust(prose: &RustProse, add: &mut impl FnMut((usize, usize), Sign, String)) {
    for comment in &prose.comments {
        let in_words = words::signs(comment).into_iter();
        let in_words = in_words.map(|index| (index, Sign::Words));
        for (index, sign) in opening::signs(comment).into_iter().chain(in_words) {
            let line = &comment.lines[index];
            add((line.number, line.number), sign, line.text.clone());
        }
    }
    for constant in prose.constants.iter().filter(|each| unit::is_missing(each)) {
        let first = constant
            .doc
            .lines
            .first()
            .map_or(constant.line, |line| line.number);
        let text = format!("{}: {}", constant.name, joined(&constant.doc));
        add((first, constant.line), Sign::Unit, text);
    }
    for test in &prose.tests {
        let first = test.name.split('_').next().unwrap_or_default();
        if TEST_OPENINGS.contains(&first) {
            add((test.line, test.line), Sign::TestName, test.name.clone());
        }
    }
}

fn joined(comment: &DocComment) -> String {
    let lines = comment.lines.iter();
    let lines: Vec<_> = lines.map(|line| line.text.trim()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, Sign)> {
        let file = ProseFile::at(Path::new(path)).unwrap();
        let mut findings = in_file(&file, text).unwrap();
        findings.sort();
        let findings = findings.iter();
        findings.map(|each| (each.first_line, each.sign)).collect()
    }

    #[test]
    fn each_sign_of_rust_has_its_line() {
        let text = "//! What it is.\n/// A list.\n///\n/// # Errors\n/// As there.\nfn f() {}\n\
            /// The most.\nconst MOST: u64 = 1;\n#[test]\nfn what_is_kept_is_kept() {}\n\
            #[test]\nfn whatever_is_kept() {}\n/// Nobody knows.\nfn g() {}\n";
        assert_eq!(
            found("host/json/src/lib.rs", text),
            [
                (1, Sign::Opening),
                (5, Sign::Reference),
                (7, Sign::Unit),
                (10, Sign::TestName),
                (13, Sign::Words),
            ]
        );
    }

    #[test]
    fn sentences_of_documents_are_long_beyond_thirty_words() {
        let sentence = |words: usize| format!("{}.\n", vec!["word"; words].join(" "));
        assert_eq!(found("docs/runs.md", &sentence(MAX_WORDS)), []);
        let long = format!("# Head\n\n{}", sentence(MAX_WORDS + 1));
        assert_eq!(found("docs/runs.md", &long), [(3, Sign::LongSentence)]);
    }

    #[test]
    fn broken_files_are_named() {
        let file = ProseFile::at(Path::new("host/json/src/lib.rs")).unwrap();
        let error = in_file(&file, "fn f() {").unwrap_err().to_string();
        assert!(error.contains("host/json/src/lib.rs"), "{error}");
    }
}
