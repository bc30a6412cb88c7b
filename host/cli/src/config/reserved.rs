//! Files that only the command line knows of and that the host takes decisions from, or runs
//! (`docs/security.md`, "Files of the host inside of a grant").

use super::files::{ConfigFiles, user_file};
use super::{secrets, users_state_folder, variable};
use toolhold_runtime::config::{decisive, secret};
use toolhold_sandbox::ReservedPath;

/// Variables that name certificates of authorities which connections trust.
const CERTIFICATES: [&str; 3] = ["SSL_CERT_FILE", "SSL_CERT_DIR", "PGSSLROOTCERT"];
/// Variables that name files with passwords or keys of the database.
const DATABASE_KEYS: [&str; 3] = ["PGPASSFILE", "PGSSLCERT", "PGSSLKEY"];

/// The paths, whether something is there or not.
pub fn paths(files: &ConfigFiles) -> Vec<ReservedPath> {
    let named = files.named.as_ref();
    let named = named.map(|path| decisive(path, "the configuration that --config names"));
    let users = user_file().map(|path| decisive(path, "your configuration"));
    let stored = secrets::path().map(|path| secret(path, "your stored secrets"));
    let state = users_state_folder().ok();
    let state = state.map(|path| secret(path, "your state, with grants, approvals and keys"));
    let program = std::env::current_exe().ok();
    let program = program.map(|path| decisive(path, "the program of this host"));
    let set = |name: &&'static str| {
        let value = variable(name)?;
        (!value.is_empty()).then_some((*name, value))
    };
    let certificates = CERTIFICATES.iter().filter_map(set);
    let certificates =
        certificates.map(|(name, path)| decisive(path, format!("a file that {name} names")));
    let keys = DATABASE_KEYS.iter().filter_map(set);
    let keys = keys.map(|(name, path)| secret(path, format!("a file that {name} names")));
    let all = named.into_iter().chain(users).chain(stored).chain(state);
    all.chain(program).chain(certificates).chain(keys).collect()
}
