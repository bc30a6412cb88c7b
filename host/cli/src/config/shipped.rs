//! The modules that come with the program: in it, because `cargo install` installs one file, and put into the cache
//! folder, because modules are loaded from folders.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, SystemTime};
use toolhold_files::{Links, temporary_folder, temporary_name};
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
const SHIPPED: [(&str, &str, &[u8]); 11] = shipped![
    "calculator",
    "extract_html",
    "extract_office",
    "extract_pdf",
    "files",
    "http",
    "javascript",
    "knowledge",
    "search",
    "sqlite",
    "text",
];

/// The folder with the modules below the cache folder, which is named by their content. It is made if it is not there, or
/// not as it was made: everything in it is compared, because others may have written to the cache folder, and a system
/// that went down may have left half of it.
///
/// # Errors
/// The cache folder cannot be written, or others can write to it.
pub fn folder(cache: &Path) -> io::Result<PathBuf> {
    let all = cache.join("shipped");
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", all.display()));
    let folder = all.join(version());
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&all).map_err(at)?;
    if !is_own(&all).map_err(at)? {
        let reason = "it is a link, or others can write to it; make it a folder of mode 0700";
        return Err(at(io::Error::other(reason)));
    }
    if !is_whole(&folder) {
        make(&all, &folder).map_err(at)?;
    }
    // `remove_unused` goes by it. A cache that cannot be written to is used as it is.
    let used = File::open(&folder).and_then(|folder| folder.set_modified(SystemTime::now()));
    used.unwrap_or_else(|error| tracing::debug!(%error, "the use of the folder is not recorded"));
    Ok(folder)
}

/// The digest of the component that comes with the program as the module `name`.
pub fn digest(name: &str) -> Option<Digest> {
    let mut all = SHIPPED.into_iter().zip(&DIGESTS);
    let ((_, _, component), kept) = all.find(|((own, ..), _)| *own == name)?;
    Some(digest_of(component, kept))
}

/// Removes the modules of other versions of the program that were not used for this long from the cache folder, and
/// returns their names.
///
/// # Errors
/// A folder cannot be read or removed.
pub fn remove_unused(cache: &Path, unused_for: Duration) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(cache.join("shipped")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut removed = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // One that begins with a dot is being made, or was when its process ended.
        let least = if name.starts_with('.') {
            UNFINISHED
        } else {
            Duration::ZERO
        };
        let metadata = entry.metadata()?;
        let age = metadata.modified()?.elapsed().unwrap_or_default();
        if name != version() && metadata.is_dir() && age >= unused_for.max(least) {
            std::fs::remove_dir_all(entry.path())?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// After this long, nobody is making a folder any more.
const UNFINISHED: Duration = Duration::from_hours(1);

/// Puts the modules at `folder` in one step, in place of what is there.
fn make(all: &Path, folder: &Path) -> io::Result<()> {
    let unfinished = temporary_folder(all, ".")?;
    let made = fill(&unfinished).and_then(|()| {
        // Another process may have made it meanwhile.
        if is_whole(folder) {
            return std::fs::remove_dir_all(&unfinished);
        }
        if std::fs::symlink_metadata(folder).is_ok() {
            let old = all.join(temporary_name(".", "")?);
            std::fs::rename(folder, &old)?;
            std::fs::remove_dir_all(&old)?;
        }
        std::fs::rename(&unfinished, folder)
    });
    if made.is_err() {
        // The first error says more.
        let _ = std::fs::remove_dir_all(&unfinished);
        if !is_whole(folder) {
            made?;
        }
    }
    Ok(())
}

/// Bytes of a file that are compared at a time.
const COMPARED_BYTES: usize = 64 << 10;

/// Whether everything lies in `folder` as [`fill`] puts it, and nothing else.
fn is_whole(folder: &Path) -> bool {
    let has = |folder: &Path, entries: usize| -> io::Result<bool> {
        Ok(is_own(folder)? && std::fs::read_dir(folder)?.count() == entries)
    };
    has(folder, SHIPPED.len()).unwrap_or(false)
        && SHIPPED.iter().all(|(name, manifest, component)| {
            let module = folder.join(name);
            has(&module, 2).unwrap_or(false)
                && has_bytes(&module.join("module.toml"), manifest.as_bytes()).unwrap_or(false)
                && has_bytes(&module.join(format!("{name}.wasm")), component).unwrap_or(false)
        })
}

/// Whether a file has these bytes and no more. It is not kept in memory: this is done at each start.
fn has_bytes(path: &Path, expect: &[u8]) -> io::Result<bool> {
    let mut file = toolhold_files::open(path, Links::Refuse)?;
    let mut buffer = vec![0; COMPARED_BYTES];
    for part in expect.chunks(COMPARED_BYTES) {
        let Some(read) = buffer.get_mut(..part.len()) else {
            return Ok(false);
        };
        file.read_exact(read)?;
        if *read != *part {
            return Ok(false);
        }
    }
    Ok(file.read(&mut [0])? == 0)
}

/// Whether it is a folder, and no link to one, that only this user may write to.
fn is_own(folder: &Path) -> io::Result<bool> {
    let metadata = std::fs::symlink_metadata(folder)?;
    Ok(metadata.is_dir() && metadata.mode() & 0o022 == 0)
}

fn fill(folder: &Path) -> io::Result<()> {
    for (name, manifest, component) in SHIPPED {
        let module = folder.join(name);
        DirBuilder::new().mode(0o700).create(&module)?;
        write(&module.join("module.toml"), manifest.as_bytes())?;
        write(&module.join(format!("{name}.wasm")), component)?;
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Digests of the components that were asked for: those of all take five milliseconds, and most commands need few.
static DIGESTS: [OnceLock<Digest>; SHIPPED.len()] = [const { OnceLock::new() }; SHIPPED.len()];

fn digest_of(component: &[u8], kept: &OnceLock<Digest>) -> Digest {
    *kept.get_or_init(|| Digest::of(component))
}

/// A name for these modules, and for no others.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let parts: Vec<String> = SHIPPED
            .into_iter()
            .zip(&DIGESTS)
            .flat_map(|((name, manifest, component), kept)| {
                let manifest = Digest::of(manifest.as_bytes());
                let component = digest_of(component, kept);
                [name.to_owned(), manifest.to_string(), component.to_string()]
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
        let unfinished = cache.path().join("shipped/.0123456789abcdef");
        std::fs::create_dir(&unfinished).unwrap();
        let prune = |cache: &Path, after| remove_unused(cache, Duration::from_secs(after)).unwrap();
        assert!(
            prune(cache.path(), 60).is_empty(),
            "another version uses it"
        );
        assert_eq!(prune(cache.path(), 0), ["0123456789abcdef"]);
        assert!(!old.exists() && folders[0].is_dir() && unfinished.is_dir());
        assert!(prune(&cache.path().join("none"), 0).is_empty());
        let file = cache.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(folder(&file).is_err());
    }

    #[test]
    fn what_others_put_into_the_cache_is_replaced() {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt as _;
        let cache = tempfile::tempdir().unwrap();
        let made = folder(cache.path()).unwrap();
        let component = made.join("text/text.wasm");
        let damages: [&dyn Fn(); 7] = [
            &|| std::fs::write(&component, "another").unwrap(),
            &|| std::fs::write(&component, "").unwrap(),
            &|| std::fs::write(made.join("text/module.toml"), "").unwrap(),
            &|| std::fs::remove_dir_all(made.join("files")).unwrap(),
            &|| std::fs::create_dir(made.join("more")).unwrap(),
            &|| std::fs::set_permissions(&made, Permissions::from_mode(0o770)).unwrap(),
            &|| {
                let elsewhere = cache.path().join("elsewhere");
                std::fs::rename(&made, &elsewhere).unwrap();
                std::os::unix::fs::symlink(&elsewhere, &made).unwrap();
            },
        ];
        for (number, damage) in damages.iter().enumerate() {
            damage();
            assert!(!is_whole(&made), "{number}");
            assert_eq!(folder(cache.path()).unwrap(), made);
            assert!(is_whole(&made), "{number}");
        }
        let shipped = cache.path().join("shipped");
        assert_eq!(std::fs::read_dir(&shipped).unwrap().count(), 1);
        std::fs::set_permissions(&shipped, Permissions::from_mode(0o777)).unwrap();
        let error = folder(cache.path()).unwrap_err().to_string();
        assert!(error.contains("others can write"), "{error}");
    }
}
