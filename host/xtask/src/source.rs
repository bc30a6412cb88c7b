//! The product code of a crate: its modules as the compiler finds them, from the crate's root along
//! `mod` declarations, without what is compiled for tests only.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Folders with the sources of tests, from the root of the repository.
const TESTED: [&str; 2] = ["host", "tests"];

/// The text of each Rust file that may have tests of the host.
pub fn texts_with_tests(root: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for folder in TESTED {
        read_below(&root.join(folder), &mut texts)?;
    }
    Ok(texts)
}

fn read_below(folder: &Path, texts: &mut Vec<String>) -> Result<()> {
    let at = |path: &Path| format!("could not read {}", path.display());
    for entry in fs::read_dir(folder).with_context(|| at(folder))? {
        let entry = entry.with_context(|| at(folder))?;
        let path = entry.path();
        // Of the entry and not of what it leads to: a link may lead in a circle.
        let kind = entry.file_type().with_context(|| at(&path))?;
        if kind.is_dir() {
            read_below(&path, texts)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            texts.push(fs::read_to_string(&path).with_context(|| at(&path))?);
        }
    }
    Ok(())
}

/// One file.
pub struct SourceFile {
    pub path: PathBuf,
    /// The module that the file holds, from the crate's root: empty for the root itself.
    pub module: Vec<String>,
    /// Its tokens; items under `#[cfg(test)]` are taken out.
    pub tokens: Vec<TokenTree>,
    text: String,
}

impl SourceFile {
    /// Lines that hold code: no blank lines, no comments, no tests.
    pub fn lines(&self) -> usize {
        let mut lines = BTreeSet::new();
        code_lines(&self.tokens, &mut lines);
        let is_blank = |line: &str| line.trim().is_empty();
        let text = self.text.lines().enumerate();
        text.filter(|(index, line)| !is_blank(line) && lines.contains(&(index + 1)))
            .count()
    }
}

/// The files of a crate with these root files: a library's and a binary's, say. A file that both
/// name is there once.
pub fn of_crate(roots: &[PathBuf]) -> Result<Vec<SourceFile>> {
    let mut sources = Vec::new();
    for root in roots {
        collect(root, Vec::new(), &mut sources)?;
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources.dedup_by(|one, other| one.path == other.path);
    Ok(sources)
}

fn collect(path: &Path, module: Vec<String>, sources: &mut Vec<SourceFile>) -> Result<()> {
    let text =
        fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    let tokens =
        lex(&text).with_context(|| format!("{} is not Rust as it stands", path.display()))?;
    // `mod.rs` and a crate's root have their children beside them, any other file in a folder of its name.
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_root = module.is_empty() || path.file_name().is_some_and(|name| name == "mod.rs");
    let folder = if is_root {
        folder.to_path_buf()
    } else {
        path.with_extension("")
    };
    let mut children = Vec::new();
    declared(&tokens, &module, &folder, path, &mut children);
    sources.push(SourceFile {
        path: path.to_path_buf(),
        module,
        tokens,
        text,
    });
    for child in children {
        let found = child.places.iter().find(|place| place.is_file());
        let found = found.with_context(|| {
            let name = child.module.join("::");
            format!("{} declares {name}, which has no file", path.display())
        })?;
        collect(found, child.module, sources)?;
    }
    Ok(())
}

/// A module that is declared in one file and defined in another.
struct Child {
    module: Vec<String>,
    /// The files in which the compiler looks for it.
    places: Vec<PathBuf>,
}

fn declared(
    tokens: &[TokenTree],
    module: &[String],
    folder: &Path,
    file: &Path,
    children: &mut Vec<Child>,
) {
    for (index, window) in tokens.windows(3).enumerate() {
        let [TokenTree::Ident(keyword), TokenTree::Ident(name), end] = window else {
            continue;
        };
        if keyword != "mod" {
            continue;
        }
        let name = name.to_string();
        let path = [module, std::slice::from_ref(&name)].concat();
        match end {
            TokenTree::Punct(end) if end.as_char() == ';' => {
                let beside = file.parent().unwrap_or(Path::new(""));
                let places = match path_attribute(&tokens[..index]) {
                    Some(given) => vec![beside.join(given)],
                    None => vec![
                        folder.join(format!("{name}.rs")),
                        folder.join(&name).join("mod.rs"),
                    ],
                };
                let module = path;
                children.push(Child { module, places });
            }
            TokenTree::Group(body) => {
                let body: Vec<_> = body.stream().into_iter().collect();
                declared(&body, &path, &folder.join(&name), file, children);
            }
            _ => {}
        }
    }
}

/// The value of a `#[path = "…"]` among the attributes and the visibility that `before` ends with.
fn path_attribute(before: &[TokenTree]) -> Option<String> {
    for token in before.iter().rev() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                if let [TokenTree::Ident(name), _, TokenTree::Literal(value)] = inner.as_slice()
                    && name == "path"
                {
                    return Some(value.to_string().trim_matches('"').to_owned());
                }
            }
            // `pub(super)`
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {}
            TokenTree::Ident(name) if name == "pub" => {}
            TokenTree::Punct(punct) if punct.as_char() == '#' => {}
            _ => return None,
        }
    }
    None
}

/// The tokens of `text` without items that are compiled for tests only.
pub fn lex(text: &str) -> Result<Vec<TokenTree>> {
    let stream = TokenStream::from_str(text).map_err(|error| {
        let at = error.span().start();
        anyhow!("line {}: {error}", at.line)
    })?;
    Ok(without_tests(stream))
}

fn without_tests(stream: TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(hash) if hash.as_char() == '#' => match tokens.peek() {
                Some(TokenTree::Group(group)) if is_test_only(group.stream()) => {
                    tokens.next();
                    skip_item(&mut tokens);
                }
                _ => kept.push(TokenTree::Punct(hash)),
            },
            TokenTree::Group(group) => {
                let inner = without_tests(group.stream()).into_iter().collect();
                let mut cleaned = proc_macro2::Group::new(group.delimiter(), inner);
                cleaned.set_span(group.span());
                kept.push(TokenTree::Group(cleaned));
            }
            token => kept.push(token),
        }
    }
    kept
}

/// `cfg(test)` and `cfg(all(test, …))`.
fn is_test_only(attribute: TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Skips the target of an attribute: an item up to its body or `;`, anything else up to its comma.
fn skip_item(tokens: &mut std::iter::Peekable<proc_macro2::token_stream::IntoIter>) {
    const ITEMS: [&str; 12] = [
        "mod",
        "use",
        "fn",
        "impl",
        "struct",
        "enum",
        "trait",
        "static",
        "const",
        "type",
        "union",
        "macro_rules",
    ];
    let mut is_item = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) => is_item |= ITEMS.iter().any(|item| word == *item),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                // `use a::{b, c};` goes on after its braces.
                tokens
                    .next_if(|next| matches!(next, TokenTree::Punct(end) if end.as_char() == ';'));
                return;
            }
            TokenTree::Punct(end) if end.as_char() == ';' => return,
            TokenTree::Punct(end) if end.as_char() == ',' && !is_item => return,
            _ => {}
        }
    }
}

fn code_lines(tokens: &[TokenTree], lines: &mut BTreeSet<usize>) {
    let mut tokens = tokens.iter().peekable();
    while let Some(token) = tokens.next() {
        let span = token.span();
        match token {
            TokenTree::Punct(hash) if hash.as_char() == '#' => {
                // A doc comment reaches us as an attribute: `#[doc = "…"]`, or `#![doc = "…"]`.
                let mut ahead = tokens.clone();
                if matches!(ahead.peek(), Some(TokenTree::Punct(bang)) if bang.as_char() == '!') {
                    ahead.next();
                }
                if ahead.next().is_some_and(is_doc) {
                    tokens = ahead;
                } else {
                    lines.insert(span.start().line);
                }
            }
            TokenTree::Group(group) => {
                lines.insert(group.span_open().start().line);
                lines.insert(group.span_close().end().line);
                let inner: Vec<_> = group.stream().into_iter().collect();
                code_lines(&inner, lines);
            }
            _ => lines.extend(span.start().line..=span.end().line),
        }
    }
}

fn is_doc(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else {
        return false;
    };
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> usize {
        let source = SourceFile {
            path: PathBuf::new(),
            module: Vec::new(),
            tokens: lex(text).unwrap(),
            text: text.to_owned(),
        };
        source.lines()
    }

    #[test]
    fn comments_blank_lines_and_tests_are_no_code() {
        let text = r#"//! What it is.

/* a block
   comment */
/// Documented.
#[derive(Debug)] // derived
struct One {
    #[cfg(test)]
    seen: Vec<u8>,
    two: &'static str,
}

const TEXT: &str = "first

// third";

#[cfg(test)]
use std::{fs, io};

#[cfg(all(test, unix))]
fn only_in_tests<A, B>() -> u8 {
    1
}

fn last() {}

#[cfg(test)]
mod tests {
    fn not() {}
}
"#;
        // `derive`, `struct`, `two`, `}`, two lines of TEXT, `last`.
        assert_eq!(lines(text), 7);
    }

    #[test]
    fn code_of_tests_and_product_counts() {
        assert_eq!(lines("#[cfg(not(test))]\nfn one() {}\n"), 2);
        assert_eq!(lines("#[cfg(any(test, unix))]\nfn one() {}\n"), 2);
        assert_eq!(lines("#[cfg_attr(test, derive(Debug))]\nstruct One;\n"), 2);
    }

    #[test]
    fn modules_are_found_as_the_compiler_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file(
            "lib.rs",
            "mod flat; pub(crate) mod deep; mod inline { mod inner; } #[cfg(test)] mod tests;",
        );
        file(
            "flat.rs",
            "mod child; #[path = \"named.rs\"] mod elsewhere;",
        );
        file("flat/child.rs", "");
        file("named.rs", "");
        file("deep/mod.rs", "pub mod child;");
        file("deep/child.rs", "");
        file("inline/inner.rs", "");
        file("tests.rs", "");
        file("unused.rs", "");
        let sources = of_crate(&[folder.path().join("lib.rs")]).unwrap();
        let mut found: Vec<_> = sources.iter().map(|file| file.module.join("::")).collect();
        found.sort();
        assert_eq!(
            found,
            [
                "",
                "deep",
                "deep::child",
                "flat",
                "flat::child",
                "flat::elsewhere",
                "inline::inner"
            ]
        );
        file("deep/mod.rs", "mod gone;");
        let refused = of_crate(&[folder.path().join("lib.rs")]).err().unwrap();
        assert!(refused.to_string().contains("deep::gone"), "{refused}");
    }
}
