//! Type names: a reader who meets `Request` must not have to ask which of five it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenTree};

use crate::source::SourceFile;

/// How many types of the same name the workspace may have.
const MAX_SAME_NAME: usize = 2;

/// Every crate has its own `Settings` (host/ARCHITECTURE.md, "What always holds", 7).
const ONE_PER_CRATE: &str = "Settings";

/// Where types are defined, by their names.
#[derive(Debug, Default)]
pub struct TypeNames(BTreeMap<String, Vec<(PathBuf, usize)>>);

impl TypeNames {
    /// Adds the structs, enums, unions, traits and type aliases that `source` defines. Associated types are left
    /// out: traits of other crates name most of them.
    pub fn add(&mut self, source: &SourceFile) {
        self.walk(&source.tokens, &source.path, false);
    }

    fn walk(&mut self, tokens: &[TokenTree], path: &Path, in_impl: bool) {
        let mut opens_impl = false;
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(keyword) => {
                    let keyword = keyword.to_string();
                    opens_impl |= keyword == "impl" || keyword == "trait";
                    let defines = match keyword.as_str() {
                        "struct" | "enum" | "union" | "trait" => true,
                        "type" => !in_impl,
                        _ => false,
                    };
                    if defines && let Some(TokenTree::Ident(name)) = tokens.get(index + 1) {
                        let places = self.0.entry(name.to_string()).or_default();
                        places.push((path.to_path_buf(), name.span().start().line));
                    }
                }
                TokenTree::Group(group) => {
                    let is_body = group.delimiter() == Delimiter::Brace;
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    self.walk(&inner, path, is_body && opens_impl);
                    opens_impl &= !is_body;
                }
                TokenTree::Punct(end) if end.as_char() == ';' => opens_impl = false,
                _ => {}
            }
        }
    }

    /// The names that more than [`MAX_SAME_NAME`] types share, or two of one crate.
    pub fn violations(&self, root: &Path) -> Vec<String> {
        let mut violations = Vec::new();
        for (name, places) in &self.0 {
            if places.len() > MAX_SAME_NAME && name != ONE_PER_CRATE {
                let what = format!("types are named {name}, more than {MAX_SAME_NAME}");
                violations.push(described(root, &what, places.iter()));
            }
            for of_crate in
                places.chunk_by(|(one, _), (two, _)| crate_of(one, root) == crate_of(two, root))
            {
                if of_crate.len() > 1 {
                    let what = format!("types of one crate are named {name}");
                    violations.push(described(root, &what, of_crate.iter()));
                }
            }
        }
        violations
    }
}

/// Folder of the crate in which `path` lies: `host/NAME`.
fn crate_of<'p>(path: &'p Path, root: &Path) -> Vec<&'p std::ffi::OsStr> {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.iter().take(2).collect()
}

fn described<'p>(
    root: &Path,
    what: &str,
    places: impl ExactSizeIterator<Item = &'p (PathBuf, usize)>,
) -> String {
    let count = places.len();
    let places: Vec<_> = places
        .map(|(path, line)| {
            let path = path.strip_prefix(root).unwrap_or(path);
            format!("{}:{line}", path.display())
        })
        .collect();
    format!("{count} {what}: {}", places.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source;
    use std::fs;

    fn violations(files: [&str; 3]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let mut names = TypeNames::default();
        for (index, text) in files.iter().enumerate() {
            let path = folder.path().join(format!("{index}.rs"));
            fs::write(&path, text).unwrap();
            for source in source::of_crate(&[path]).unwrap() {
                names.add(&source);
            }
        }
        names.violations(folder.path())
    }

    #[test]
    fn a_third_type_of_a_name_is_reported_with_all_places() {
        let found = violations([
            "pub struct Order;\nstruct Step;",
            "mod inner {\n    pub(super) enum Order { A }\n}\nenum Step {}",
            "fn f() { type Order<'a> = &'a str; }",
        ]);
        assert_eq!(
            found,
            ["3 types are named Order, more than 2: 0.rs:1, 1.rs:2, 2.rs:1"]
        );
    }

    #[test]
    fn two_types_of_one_crate_are_reported() {
        let found = violations(["mod one { struct Twin; } mod two { enum Twin {} }", "", ""]);
        assert_eq!(
            found,
            ["2 types of one crate are named Twin: 0.rs:1, 0.rs:1"]
        );
    }

    #[test]
    fn associated_types_settings_and_tests_are_not_counted() {
        let text =
            "struct Settings; trait One { type Error; } impl One for Settings { type Error = u8; }
            fn g(order: impl Into<u8>) {} #[cfg(test)] mod tests { struct Step; }";
        let found = violations([text, text, &text.replace("One", "Two")]);
        assert!(found.is_empty(), "{found:?}");
    }
}
