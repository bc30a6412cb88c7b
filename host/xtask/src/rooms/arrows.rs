//! The uses between rooms, with their places.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proc_macro2::{Delimiter, TokenTree};

use crate::source::SourceFile;

#[derive(Debug, Default)]
pub struct Arrows {
    pub rooms: BTreeSet<String>,
    /// From a room to another: the lines that name it.
    pub lines: BTreeMap<(String, String), Vec<(PathBuf, usize)>>,
}

impl Arrows {
    pub fn between(sources: &[SourceFile]) -> Self {
        let rooms: BTreeSet<_> = sources
            .iter()
            .filter_map(|source| source.module.first().cloned())
            .chain(sources.iter().flat_map(inline_rooms))
            .collect();
        let mut reexported = BTreeMap::new();
        for root in sources.iter().filter(|source| source.module.is_empty()) {
            for (first, name) in imports(&root.tokens) {
                if rooms.contains(&first) {
                    reexported.insert(name, first);
                }
            }
        }
        let mut arrows = Self {
            rooms,
            ..Self::default()
        };
        for source in sources {
            let mut named = Vec::new();
            walk(&source.tokens, &mut source.module.clone(), &mut named);
            for name in named {
                // The root itself may use every room, because it re-exports them.
                let Some(from) = name.module.first() else {
                    continue;
                };
                let to = match arrows.rooms.get(&name.target) {
                    Some(room) => Some(room),
                    None => reexported.get(&name.target),
                };
                if let Some(to) = to.filter(|to| *to != from) {
                    let arrow = (from.clone(), to.clone());
                    let lines = arrows.lines.entry(arrow).or_default();
                    lines.push((source.path.clone(), name.line));
                }
            }
        }
        arrows
    }

    /// The rooms that `room` uses.
    pub fn from<'a>(&'a self, room: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines
            .keys()
            .filter(move |(from, _)| from == room)
            .map(|(_, to)| to.as_str())
    }
}

/// Modules whose bodies are in the root file.
fn inline_rooms(source: &SourceFile) -> Vec<String> {
    if !source.module.is_empty() {
        return Vec::new();
    }
    let rooms = source.tokens.windows(3).filter_map(|window| match window {
        [
            TokenTree::Ident(keyword),
            TokenTree::Ident(name),
            TokenTree::Group(_),
        ] if keyword == "mod" => Some(name.to_string()),
        _ => None,
    });
    rooms.collect()
}

/// A name in the crate's root that some module names.
struct RootName {
    module: Vec<String>,
    target: String,
    line: usize,
}

fn walk(tokens: &[TokenTree], module: &mut Vec<String>, named: &mut Vec<RootName>) {
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        index += 1;
        match token {
            TokenTree::Ident(word) if word == "crate" => {
                index = root_names(tokens, index, module, named);
            }
            TokenTree::Ident(word) if word == "super" => {
                let mut up = 1;
                while is_path(tokens, index) && is_word(tokens.get(index + 2), "super") {
                    up += 1;
                    index += 3;
                }
                if up == module.len() {
                    index = root_names(tokens, index, module, named);
                }
            }
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(index), tokens.get(index + 1))
                {
                    module.push(name.to_string());
                    walk(&trees(body), module, named);
                    module.pop();
                    index += 2;
                }
            }
            TokenTree::Group(group) => walk(&trees(group), module, named),
            _ => {}
        }
    }
}

/// What follows a path to the root: `::name`, or `::{name::…, name}`. Returns where to go on.
fn root_names(
    tokens: &[TokenTree],
    index: usize,
    module: &[String],
    named: &mut Vec<RootName>,
) -> usize {
    let mut name = |word: &proc_macro2::Ident| {
        named.push(RootName {
            module: module.to_vec(),
            target: word.to_string(),
            line: word.span().start().line,
        });
    };
    if !is_path(tokens, index) {
        return index;
    }
    match tokens.get(index + 2) {
        Some(TokenTree::Ident(word)) => {
            name(word);
            index + 3
        }
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            for branch in branches(&trees(group)) {
                if let Some(TokenTree::Ident(word)) = branch.first() {
                    name(word);
                }
            }
            index + 3
        }
        _ => index,
    }
}

/// The names that `use` declarations bring into a file, each with the first word of its path, less
/// `crate` and `self`.
fn imports(tokens: &[TokenTree]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in tokens.split(|token| is_punct(Some(token), ';')) {
        let Some(start) = part.iter().position(|token| is_word(Some(token), "use")) else {
            continue;
        };
        let mut path = &part[start + 1..];
        while ["crate", "self"]
            .iter()
            .any(|word| is_word(path.first(), word))
        {
            path = path.get(3..).unwrap_or_default();
        }
        // `use {one::…, two::…}`, or a single path.
        let paths = match path {
            [TokenTree::Group(group)] => branches(&trees(group)),
            path => vec![path.to_vec()],
        };
        for path in paths {
            if let Some(TokenTree::Ident(first)) = path.first() {
                let mut names = Vec::new();
                leaves(&path, &mut names);
                let first = first.to_string();
                found.extend(names.into_iter().map(|name| (first.clone(), name)));
            }
        }
    }
    found
}

/// The names at the ends of a `use` tree: `a::{b, c as d}` brings `b` and `d`.
fn leaves(path: &[TokenTree], names: &mut Vec<String>) {
    match path.last() {
        Some(TokenTree::Group(group)) => {
            for branch in branches(&trees(group)) {
                leaves(&branch, names);
            }
        }
        Some(TokenTree::Ident(name)) => names.push(name.to_string()),
        _ => {}
    }
}

fn branches(tokens: &[TokenTree]) -> Vec<Vec<TokenTree>> {
    let branches = tokens.split(|token| is_punct(Some(token), ','));
    branches.map(<[TokenTree]>::to_vec).collect()
}

fn trees(group: &proc_macro2::Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

fn is_path(tokens: &[TokenTree], index: usize) -> bool {
    is_punct(tokens.get(index), ':') && is_punct(tokens.get(index + 1), ':')
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_word(token: Option<&TokenTree>, wanted: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(word)) if word == wanted)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::source;
    use std::fs;

    /// The arrows of a crate of these files.
    pub fn arrows(files: &[(&str, &str)]) -> Arrows {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Arrows::between(&source::of_crate(&[folder.path().join("lib.rs")]).unwrap())
    }

    fn shown(arrows: &Arrows) -> Vec<String> {
        let lines = arrows.lines.iter().map(|((from, to), lines)| {
            let lines: Vec<_> = lines.iter().map(|(_, line)| line.to_string()).collect();
            format!("{from}->{to}:{}", lines.join(","))
        });
        lines.collect()
    }

    #[test]
    fn every_way_to_name_a_room_is_an_arrow() {
        let arrows = arrows(&[
            (
                "lib.rs",
                "mod a; mod b; mod c; mod d; mod e { fn f() { crate::d::g() } }",
            ),
            (
                "a.rs",
                "use crate::{\n    b::{One, c::Two},\n    c,\n    a::Own,\n};\nfn f() { select!(crate::d::g()) }",
            ),
            ("b/mod.rs", "mod deep;\nuse super::c::Three;"),
            (
                "b/deep.rs",
                "use super::own;\nuse super::super::{d, b};\nmod inner { use super::super::super::a; }",
            ),
            ("c.rs", ""),
            ("d.rs", ""),
        ]);
        assert_eq!(
            shown(&arrows),
            [
                "a->b:2", "a->c:3", "a->d:6", "b->a:3", "b->c:2", "b->d:2", "e->d:1"
            ]
        );
    }

    #[test]
    fn strings_comments_and_tests_make_no_arrows() {
        let arrows = arrows(&[
            ("lib.rs", "mod a; mod b; fn f() { crate::b::g() }"),
            (
                "a.rs",
                "//! [`crate::b`]\n// use crate::b;\n/* crate::b::x */\nconst X: &str = \"crate::b::x\";\n\
                 const Y: &str = r#\"crate::b::x\"#;\npub(crate) fn f() {}\n\
                 #[cfg(test)] use crate::b::T;\n#[cfg(test)]\nmod tests { use crate::b; }",
            ),
            ("b.rs", "pub(super) fn g() { vec![1].into_iter(); }"),
        ]);
        assert_eq!(shown(&arrows), Vec::<String>::new());
        assert_eq!(arrows.rooms.len(), 2);
    }

    #[test]
    fn a_name_that_the_root_re_exports_leads_to_its_room() {
        let arrows = arrows(&[
            (
                "lib.rs",
                "mod a; mod b; mod c;\npub use a::{One, deep::Two as Three};\npub use crate::c::Four; use std::fmt;",
            ),
            ("a.rs", ""),
            ("b.rs", "use crate::{Three, fmt};\nuse crate::Four;"),
            ("c.rs", "fn f() -> super::One {}"),
        ]);
        assert_eq!(shown(&arrows), ["b->a:1", "b->c:2", "c->a:1"]);
    }
}
