//! What a module's sources mention, so that it is built with what it needs and nothing else. A mention that means
//! something else costs size, and is no error.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// Deeper folders are not looked into.
const DEPTH: usize = 8;
/// Most files and folders that are looked at.
const MOST_ENTRIES: usize = 10_000;
/// Most bytes of a file that is looked into.
const MOST_BYTES: u64 = 1 << 20;

/// Whether a file of the folder with one of these extensions has what is looked for, or could not be looked into. What
/// is not the author's own text does not count: names that begin with a dot, installed packages, what links lead to.
pub fn mention(folder: &Path, ends: &[&str], is_meant: &dyn Fn(&str) -> bool) -> bool {
    let mut left = MOST_ENTRIES;
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            return true;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                return true;
            };
            let Some(fewer) = left.checked_sub(1) else {
                return true;
            };
            left = fewer;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with('.')
                || name == "node_modules"
                || name == "__pycache__"
            {
                continue;
            }
            let (path, kind) = (entry.path(), entry.file_type().ok());
            if kind.is_some_and(|kind| kind.is_dir()) {
                // A folder of `python -m venv` has packages of that Python, which no component takes.
                if path.join("pyvenv.cfg").exists() {
                    continue;
                }
                if depth == DEPTH {
                    return true;
                }
                open.push((path, depth + 1));
                continue;
            }
            let end = path.extension().and_then(|end| end.to_str());
            if end.is_some_and(|end| ends.contains(&end)) {
                // A link leads out of the folder, and a pipe would not end.
                let is_read = kind.is_some_and(|kind| kind.is_file());
                let text = is_read.then(|| text(&path)).flatten();
                if text.is_none_or(|text| is_meant(&text)) {
                    return true;
                }
            }
        }
    }
    false
}

/// The text of a file that is short enough.
fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).ok()?;
    let is_whole = bytes.len() as u64 <= MOST_BYTES;
    is_whole.then(|| String::from_utf8(bytes).ok()).flatten()
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

    #[test]
    fn what_is_not_the_authors_own_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            ".venv/a.py",
            "env/a.py",
            "node_modules/p/a.py",
            "lib/__pycache__/a.py",
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "word").unwrap();
        }
        fs::write(folder.path().join("env/pyvenv.cfg"), "").unwrap();
        std::os::unix::fs::symlink("lib", folder.path().join("lib64")).unwrap();
        let mentions = || mention(folder.path(), &["py"], &|text| has_word(text, &["word"]));
        assert!(!mentions());
        // What cannot be looked into may have the word.
        let linked = folder.path().join("linked.py");
        std::os::unix::fs::symlink("/dev/zero", &linked).unwrap();
        assert!(mentions());
        fs::remove_file(&linked).unwrap();
        assert!(!mentions());
    }

    #[test]
    fn files_of_any_size_and_number_end_the_search() {
        let folder = tempfile::tempdir().unwrap();
        let mentions = || mention(folder.path(), &["js"], &|_| false);
        let large = folder.path().join("large.js");
        let file = File::create(&large).unwrap();
        file.set_len(MOST_BYTES).unwrap();
        assert!(!mentions());
        file.set_len(1 << 40).unwrap();
        assert!(mentions());
        fs::remove_file(&large).unwrap();
        for index in 0..MOST_ENTRIES {
            File::create(folder.path().join(format!("{index}.txt"))).unwrap();
        }
        assert!(!mentions());
        File::create(folder.path().join("more.txt")).unwrap();
        assert!(mentions());
    }
}
