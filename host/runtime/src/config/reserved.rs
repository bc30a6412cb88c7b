//! Files and folders that the host takes decisions from, or runs natively. A module that could write one of them would
//! decide for the host, so none may (`docs/security.md`, "Files of the host inside of a grant").
//!
//! A found `./toolhold.toml` and components that need a pin are not among them: their bytes are pinned, and changed
//! bytes need a person.

use super::configuration::Configuration;
use super::launched::launched;
use std::path::PathBuf;
use toolhold_mcp as mcp;
use toolhold_sandbox::ReservedPath;

/// Parameters of the database's URL that name files, in all spellings that sqlx takes, and whether one holds a key.
const DATABASE_FILES: [(&str, bool); 7] = [
    ("sslrootcert", false),
    ("ssl-root-cert", false),
    ("ssl-ca", false),
    ("sslcert", false),
    ("ssl-cert", false),
    ("sslkey", true),
    ("ssl-key", true),
];

/// A path that is decisive and holds no secret.
pub fn decisive(path: impl Into<PathBuf>, what: impl Into<String>) -> ReservedPath {
    ReservedPath {
        path: path.into(),
        what: what.into(),
        is_secret: false,
    }
}

/// A path that holds secrets or keys.
pub fn secret(path: impl Into<PathBuf>, what: impl Into<String>) -> ReservedPath {
    ReservedPath {
        is_secret: true,
        ..decisive(path, what)
    }
}

impl Configuration {
    /// All of them, absolute or relative to the working folder. Of files it reads nothing but the first line of programs,
    /// which may name an interpreter. Blocks on the file system.
    pub fn reserved(&self) -> Vec<ReservedPath> {
        let mut all = self.reserved_outside.clone();
        let state = "the state of this host, with its grants, pins, keys and records";
        all.push(secret(self.state_folder(), state));
        all.push(decisive(
            self.cache_folder(),
            "compiled code and compilers of this host",
        ));
        all.push(decisive(self.requests_folder(), "the saved Requests"));
        let knowledge = &self.tables.knowledge;
        let weights = [&knowledge.weights, &knowledge.tokenizer].into_iter();
        let weights = weights.filter(|path| !path.as_os_str().is_empty());
        all.extend(weights.map(|path| decisive(path, "a file of [knowledge]")));
        for (module, table) in &self.tables.module {
            let files = table.secrets.iter().filter_map(|it| it.file.as_ref());
            all.extend(files.map(|file| secret(file, format!("a secret of [module.{module}]"))));
        }
        for (agent, table) in &self.tables.agents {
            let schema = table.output_schema.as_ref();
            all.extend(schema.map(|it| decisive(it, format!("the schema of [agents.{agent}]"))));
        }
        if let Some(compiler) = &self.compiler {
            all.push(decisive(&compiler.program, "the program of this host"));
        }
        for server in self.servers() {
            let what = format!("a file that [mcp.{}] runs or names", server.name);
            let files = launched(
                &server.launch,
                self.program_path.as_deref(),
                self.home.as_deref(),
            );
            all.extend(files.into_iter().map(|file| decisive(file, what.clone())));
        }
        if self.tables.modules.pinning == mcp::Pinning::Never {
            let folders = [self.modules_folder(), self.new_modules_folder()].into_iter();
            let folders = folders.chain(self.module_roots().iter().map(PathBuf::as_path));
            all.extend(folders.map(|it| decisive(it, "modules that run without pins")));
        }
        all.extend(self.database_files());
        all
    }

    fn database_files(&self) -> Vec<ReservedPath> {
        let Some(url) = self.database_url() else {
            return Vec::new();
        };
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        let files = pairs.filter_map(|(name, path)| {
            let (_, is_key) = DATABASE_FILES.iter().find(|(known, _)| *known == name)?;
            let what = "a certificate or key of the database";
            Some(ReservedPath {
                is_secret: *is_key,
                ..decisive(path.into_owned(), what)
            })
        });
        files.collect()
    }
}
