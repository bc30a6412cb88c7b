//! Keeps the debug information that a component is published without, in the cache: where its author works, a crash names
//! lines of the source (`toolhold_sandbox::debug_file`). The component is the same with it and without.

use std::fs;
use std::io;
use std::path::Path;

use toolhold_files::replace;
use toolhold_policy::Digest;
use toolhold_sandbox::debug_file;

use super::{BuildError, Job};

/// Most builds whose debug information is kept: that of the oldest makes room.
const MAX_KEPT: usize = 64;

/// Keeps `core`, the core module of the job's published component, as it was with its debug information.
pub fn keep(job: &Job<'_>, core: &[u8]) -> Result<(), BuildError> {
    let component = &job.manifest.component;
    let bytes = fs::read(component).map_err(BuildError::io("read", component))?;
    let file = debug_file(job.toolchains, &Digest::of(&bytes));
    // The component is built all the same.
    match write(&file, core) {
        Ok(()) => Ok(()),
        Err(error) => job.log.note(&format!(
            "crashes will name no lines: {}: {error}",
            file.display()
        )),
    }
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
        kept.push((entry.metadata()?.modified()?, entry.path()));
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
