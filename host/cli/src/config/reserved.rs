//! Files that only the command line knows of and that the host takes decisions from, or runs
//! (`docs/security.md`, "Files of the host inside of a grant").

use super::files::{ConfigFiles, user_file};
use super::{secrets, users_state_folder, variable};
use std::path::{Path, PathBuf};
use toolhold_runtime::config::{decisive, secret};
use toolhold_sandbox::ReservedPath;

/// Variables that name certificates, of authorities which connections trust or of this host.
const CERTIFICATES: [&str; 4] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "PGSSLROOTCERT",
    "PGSSLCERT",
];
/// Variables that name files with passwords or keys of the database.
const DATABASE_KEYS: [&str; 2] = ["PGPASSFILE", "PGSSLKEY"];
/// File with passwords of databases, in the home folder, where `PGPASSFILE` names none.
const USUAL_PASSWORDS: &str = ".pgpass";

/// The paths, whether something is there or not.
pub fn paths(files: &ConfigFiles) -> Vec<ReservedPath> {
    let named = files.named.as_ref();
    let named = named.map(|path| decisive(path, "the configuration that --config names"));
    let users = user_file().map(|path| decisive(path, "your configuration"));
    let stored = secrets::path().map(|path| secret(path, "your stored secrets"));
    let state = users_state_folder().ok();
    let state = state.map(|path| secret(path, "your state, with grants, pins and keys"));
    let program = std::env::current_exe().ok();
    let program = program.map(|path| decisive(path, "the program of this host"));
    let set = |name: &&'static str| {
        let value = variable(name)?;
        (!value.is_empty()).then_some((*name, value))
    };
    let certificates = CERTIFICATES.iter().filter_map(set);
    // `SSL_CERT_DIR` is a list.
    let certificates = certificates.flat_map(|(name, paths)| {
        let paths: Vec<PathBuf> = std::env::split_paths(&paths).collect();
        let paths = paths
            .into_iter()
            .filter(|path| !path.as_os_str().is_empty());
        paths.map(move |path| decisive(path, format!("a file that {name} names")))
    });
    let home = variable("HOME").map(PathBuf::from);
    let passwords = home.map(|home| secret(home.join(USUAL_PASSWORDS), "passwords of databases"));
    // Builds, `doctor` and MCP servers take their programs from there. The working folder itself is the user's.
    let programs = variable("PATH").unwrap_or_default();
    let programs: Vec<PathBuf> = std::env::split_paths(&programs)
        .filter(|folder| !folder.as_os_str().is_empty() && folder != Path::new("."))
        .collect();
    let programs = programs.into_iter().map(|folder| {
        decisive(
            folder,
            "a folder of PATH, from which this host runs programs",
        )
    });
    let keys = DATABASE_KEYS.iter().filter_map(set);
    let keys = keys.map(|(name, path)| secret(path, format!("a file that {name} names")));
    let all = named.into_iter().chain(users).chain(stored).chain(state);
    let all = all.chain(program).chain(certificates).chain(keys);
    all.chain(passwords).chain(programs).collect()
}
