//! What a module's sources mention, so that it is built with what it needs and nothing else. A mention that means
//! something else costs size, and is no error.

use std::fs;
use std::path::Path;

/// Deeper folders are not looked into.
const DEPTH: usize = 8;

/// Whether a file of the folder with one of these extensions has what is looked for, or could not be looked into.
pub fn mention(folder: &Path, ends: &[&str], is_meant: &dyn Fn(&str) -> bool) -> bool {
    inside(folder, ends, is_meant, 0)
}

fn inside(folder: &Path, ends: &[&str], is_meant: &dyn Fn(&str) -> bool, depth: usize) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return true;
    };
    entries.into_iter().any(|entry| {
        let Ok(entry) = entry else {
            return true;
        };
        let (path, kind) = (entry.path(), entry.file_type().ok());
        if kind.is_some_and(|kind| kind.is_dir()) {
            return depth == DEPTH || inside(&path, ends, is_meant, depth + 1);
        }
        let end = path.extension().and_then(|end| end.to_str());
        if !end.is_some_and(|end| ends.contains(&end)) {
            return path.is_dir();
        }
        // A link leads out of the folder, and a pipe would not end.
        let is_read = kind.is_some_and(|kind| kind.is_file());
        let text = is_read.then(|| fs::read_to_string(&path).ok()).flatten();
        text.is_none_or(|text| is_meant(&text))
    })
}

/// Whether one of these words stands alone in the text.
pub fn has_word(text: &str, words: &[&str]) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    text.split(|letter| !is_part(letter))
        .any(|word| words.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_seen_in_all_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mentions = |word| {
            mention(folder.path(), &["js", "mjs"], &|text| {
                has_word(text, &[word])
            })
        };
        write("module.js", "const prefetch = 1; // asynchronous");
        write("notes.txt", "async await fetch");
        assert!(!mentions("async") && !mentions("fetch"));
        write(
            "lib/a/b.mjs",
            "export const get = async (url) => fetch(url);",
        );
        assert!(mentions("async") && mentions("fetch") && !mentions("await"));
    }
}
