//! The modules that come with the program: in it, because `cargo install` installs one file, and put into the cache
//! folder, because modules are loaded from folders.

use std::io;
use std::path::{Path, PathBuf};
use toolhold_files::temporary_folder;
use toolhold_policy::Digest;

/// The name, `module.toml` and the component of a module in `modules/`.
macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        [$((
            $name,
            include_str!(concat!("../../../../modules/", $name, "/module.toml")),
            include_bytes!(concat!("../../../../modules/", $name, "/", $name, ".wasm")),
        )),+]
    };
}

/// Those whose components are in the repository; larger ones are built.
const SHIPPED: [(&str, &str, &[u8]); 7] = shipped![
    "calculator",
    "files",
    "http",
    "javascript",
    "search",
    "sqlite",
    "text",
];

/// The folder with the modules below the cache folder, which is named by their content. It is made if it is not there.
///
/// # Errors
/// The cache folder cannot be written.
pub fn folder(cache: &Path) -> io::Result<PathBuf> {
    let all = cache.join("shipped");
    let folder = all.join(version());
    if folder.is_dir() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&all)?;
    let unfinished = temporary_folder(&all, ".")?;
    let made = fill(&unfinished).and_then(|()| std::fs::rename(&unfinished, &folder));
    if made.is_err() {
        // The first error says more.
        let _ = std::fs::remove_dir_all(&unfinished);
        // Another process may have made it at the same time.
        if !folder.is_dir() {
            made?;
        }
    }
    Ok(folder)
}

/// Removes the modules of other versions of the program from the cache folder.
///
/// # Errors
/// A folder cannot be read or removed.
pub fn remove_outdated(cache: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(cache.join("shipped")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        // One that begins with a dot is being made.
        let is_whole = !name.as_encoded_bytes().starts_with(b".");
        if is_whole && name != version() && entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn fill(folder: &Path) -> io::Result<()> {
    for (name, manifest, component) in SHIPPED {
        let module = folder.join(name);
        std::fs::create_dir(&module)?;
        std::fs::write(module.join("module.toml"), manifest)?;
        std::fs::write(module.join(format!("{name}.wasm")), component)?;
    }
    Ok(())
}

/// A name for these modules, and for no others.
fn version() -> &'static str {
    static VERSION: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let parts: Vec<String> = SHIPPED
            .iter()
            .flat_map(|(name, manifest, component)| {
                let digest = |bytes: &[u8]| Digest::of(bytes).to_string();
                [
                    (*name).to_owned(),
                    digest(manifest.as_bytes()),
                    digest(component),
                ]
            })
            .collect();
        let all = Digest::of(parts.join("\n").as_bytes()).to_string();
        let hexadecimal = all.chars().filter(char::is_ascii_hexdigit);
        hexadecimal.take(16).collect()
    });
    &VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_are_put_into_the_cache_once() {
        let cache = tempfile::tempdir().unwrap();
        let folders: Vec<PathBuf> = std::thread::scope(|threads| {
            let make = || folder(cache.path()).unwrap();
            let made: Vec<_> = (0..4).map(|_| threads.spawn(make)).collect();
            made.into_iter().map(|made| made.join().unwrap()).collect()
        });
        assert!(folders.iter().all(|made| *made == folders[0]));
        for (name, _, component) in SHIPPED {
            let path = folders[0].join(name).join(format!("{name}.wasm"));
            assert_eq!(std::fs::read(path).unwrap(), component, "{name}");
        }
        let entries = std::fs::read_dir(cache.path().join("shipped")).unwrap();
        assert_eq!(entries.count(), 1, "nothing unfinished is left");
        let old = cache.path().join("shipped/0123456789abcdef");
        std::fs::create_dir_all(old.join("calculator")).unwrap();
        remove_outdated(cache.path()).unwrap();
        assert!(!old.exists() && folders[0].is_dir());
        remove_outdated(&cache.path().join("none")).unwrap();
        let file = cache.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(folder(&file).is_err());
    }
}
