//! Links and citations lead somewhere.

use super::markdown::{anchor, code_spans, headings, links};
use super::{documents, read};
use std::fs;
use std::path::{Component, Path, PathBuf};
use support::sandbox::repository;

/// `docs/../host/x` → `host/x`; nothing if it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir if normal.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(normal)
}

/// What is wrong with a link of `document`.
fn fault(document: &Path, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") {
        return None;
    }
    let (path, section) = target.split_once('#').unwrap_or((target, ""));
    let folder = document.parent().unwrap_or(Path::new(""));
    let found = if path.is_empty() {
        document.to_owned()
    } else {
        let Some(found) = normal(&folder.join(path)) else {
            return Some("it leaves the repository".into());
        };
        found
    };
    if !repository().join(&found).exists() {
        return Some(format!("there is no {}", found.display()));
    }
    let is_there = section.is_empty()
        || headings(&read(&found))
            .iter()
            .any(|heading| anchor(heading) == section);
    (!is_there).then(|| format!("{} has no heading for #{section}", found.display()))
}

#[test]
fn links_lead_somewhere() {
    let mut faults = Vec::new();
    for document in documents() {
        for (line, target) in links(&read(&document)) {
            if let Some(fault) = fault(&document, &target) {
                faults.push(format!("{}:{line}: {target}: {fault}", document.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// `host/sandbox/src/call.rs` in a document is a file, wherever a later change moves it.
#[test]
fn files_that_documents_name_exist() {
    let mut faults = Vec::new();
    for document in documents() {
        for (line, span) in code_spans(&read(&document)) {
            let is_path = SOURCES
                .iter()
                .chain(&["docs"])
                .any(|folder| span.starts_with(&format!("{folder}/")));
            // `row_NN`, `modules/*` and the like stand for many files.
            let is_one = span
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c));
            if is_path && is_one && !repository().join(&span).exists() {
                faults.push(format!("{}:{line}: there is no {span}", document.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Folders with text that cites documents.
const SOURCES: [&str; 5] = ["host", "tests", "modules", "wit", ".ci"];
/// What is made and not written.
const MADE: [&str; 4] = ["target", "node_modules", "corpus", "artifacts"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let is_made = MADE.iter().any(|made| entry.file_name() == *made);
        if path.is_dir() && !is_made {
            sources(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// The design that Toolhold was built from, whose documents are not in the repository.
const ELSEWHERE: [&str; 4] = ["PROTOCOL", "THREATS", "WASMTIME", "TOOLCHAINS"];

/// What is wrong with the citation that begins with `docs/` at the beginning of `text`: a document that is
/// not there, or a section of it. `docs/protocol.md, 7.3`, `docs/security.md, promise 4`,
/// `docs/runtime.md, "Egress"`.
fn wrong(text: &str) -> Option<String> {
    let end = text.find(".md")? + ".md".len();
    let (document, rest) = text.split_at(end);
    let is_name = |c: char| c.is_ascii_lowercase() || c == '/' || c == '_';
    if !document.strip_suffix(".md")?.chars().all(is_name) {
        return None;
    }
    if !repository().join(document).is_file() {
        return Some(format!("there is no {document}"));
    }
    let section = rest.strip_prefix(", ")?;
    let text = read(Path::new(document));
    let number = |section: &str| -> String {
        let end = section.find(|c: char| !c.is_ascii_digit() && c != '.');
        let number = &section[..end.unwrap_or(section.len())];
        number.trim_end_matches('.').to_owned()
    };
    let is_there = if let Some(quoted) = section.strip_prefix('"') {
        let heading = quoted.split('"').next()?;
        headings(&text).iter().any(|found| found == heading)
    } else if let Some(promise) = section.strip_prefix("promise ") {
        text.contains(&format!("**Promise {}.", number(promise)))
    } else if let Some(row) = section.strip_prefix("row ") {
        text.contains(&format!("\n| {} |", number(row)))
    } else {
        let number = number(section);
        number.is_empty()
            || text.contains(&format!("\n**{number}** "))
            || headings(&text).iter().any(|heading| {
                heading.starts_with(&format!("{number} "))
                    || heading.starts_with(&format!("{number}. "))
            })
    };
    let cited: String = section.chars().take(40).collect();
    (!is_there).then(|| format!("{document} has no section {cited:?}"))
}

#[test]
fn comments_cite_sections_that_exist() {
    let root = repository();
    let mut files = vec![root.join("Cargo.toml")];
    for folder in SOURCES {
        sources(&root.join(folder), &mut files);
    }
    let mut faults = Vec::new();
    // Bad citations on purpose are below, and nowhere else.
    files.retain(|file| !file.ends_with("tests/docs/links.rs"));
    for file in files {
        // Components and other binaries are no text.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            let mut tell = |fault: String| {
                let file = file.strip_prefix(&root).unwrap_or(&file).display();
                faults.push(format!("{file}:{}: {fault}", index + 1));
            };
            for name in ELSEWHERE {
                let document = format!("{name}.md");
                if line.contains(&document) {
                    tell(format!("{document} is not in the repository"));
                }
            }
            for (at, _) in line.match_indices("docs/") {
                // `host/sandbox/src/docs/files.rs` is a path, and no citation.
                let is_word = line[..at].ends_with(|c: char| c == '/' || c.is_alphanumeric());
                if let Some(fault) = wrong(&line[at..]).filter(|_| !is_word) {
                    tell(fault);
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_citation_of_nothing_is_found() {
    for good in [
        "docs/protocol.md, 7.3)",
        "docs/protocol.md, 7).",
        "docs/protocol.md,",
        "docs/security.md, promise 4",
        "docs/security.md, row 28",
        "docs/runtime.md, \"Egress\"",
        "docs/files.rs",
    ] {
        assert_eq!(wrong(good), None, "{good}");
    }
    for bad in [
        "docs/nowhere.md",
        "docs/protocol.md, 17",
        "docs/protocol.md, 7.99",
        "docs/security.md, promise 12",
        "docs/security.md, row 99",
        "docs/runtime.md, \"Nothing\"",
    ] {
        assert!(wrong(bad).is_some(), "{bad}");
    }
}
