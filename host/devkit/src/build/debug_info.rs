//! Keeps the debug information that a component is published without, in the cache: where its author works, a crash names
//! lines of the source (`toolhold_sandbox::debug_file`). The component is the same with it and without.

use std::fs;
use std::io;
use std::path::Path;

use toolhold_files::replace;
use toolhold_policy::Digest;
use toolhold_sandbox::debug_file;

/// Most builds whose debug information is kept: that of the oldest makes room.
const MAX_KEPT: usize = 64;

/// Keeps `core`, the core module of the published `component`, as it was with its debug information. Returns what the
/// author is told where that fails: the component is built all the same.
pub fn keep(component: &Path, toolchains: &Path, core: &[u8]) -> Option<String> {
    let kept = match fs::read(component) {
        Ok(bytes) => {
            let file = debug_file(toolchains, &Digest::of(&bytes));
            write(&file, core).map_err(|error| (file, error))
        }
        // Another build, or a watcher, replaces it.
        Err(error) => Err((component.to_owned(), error)),
    };
    let (path, error) = kept.err()?;
    Some(format!(
        "crashes will name no lines: {}: {error}",
        path.display()
    ))
}

fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    let folder = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    replace(file, content)?;
    make_room(folder)
}

fn make_room(folder: &Path) -> io::Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) => kept.push((metadata.modified()?, entry.path())),
            // Another build removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    kept.sort();
    let too_many = kept.len().saturating_sub(MAX_KEPT);
    for (_, path) in kept.into_iter().take(too_many) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // Another build removed it.
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn what_cannot_be_kept_is_said_and_the_component_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let (component, toolchains) = (folder.path().join("a.wasm"), folder.path().join("t"));
        let gone = keep(&component, &toolchains, b"core").unwrap();
        assert!(
            gone.starts_with("crashes will name no lines: ") && gone.contains("a.wasm"),
            "{gone}"
        );
        fs::write(&component, b"component").unwrap();
        assert_eq!(keep(&component, &toolchains, b"core"), None);
        let file = debug_file(&toolchains, &Digest::of(b"component"));
        assert_eq!(fs::read(file).unwrap(), b"core");
        fs::write(folder.path().join("no folder"), b"").unwrap();
        let denied = keep(&component, &folder.path().join("no folder"), b"core");
        assert!(denied.is_some());
    }

    #[test]
    fn the_oldest_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let file = |index: usize| folder.path().join(format!("debug/{index}.wasm"));
        for index in 0..MAX_KEPT {
            write(&file(index), b"core").unwrap();
            let written = fs::File::options().append(true).open(file(index)).unwrap();
            let ago = Duration::from_secs(1_000 - index as u64);
            written.set_modified(SystemTime::now() - ago).unwrap();
        }
        write(&file(0), b"again").unwrap();
        assert!(file(1).exists());
        write(&file(MAX_KEPT), b"core").unwrap();
        assert!(!file(1).exists());
        assert_eq!(fs::read(file(0)).unwrap(), b"again");
        assert_eq!(
            fs::read_dir(file(0).parent().unwrap()).unwrap().count(),
            MAX_KEPT
        );
    }
}
