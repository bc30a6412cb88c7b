//! Files and folders that the host takes decisions from, or runs natively. A module that could write one of them would
//! decide for the host, so none may (`docs/security.md`, "Files of the host inside of a grant").
//!
//! A found `./toolhold.toml` and components that need approval are not among them: their bytes are pinned, and changed
//! bytes need a person.

use super::configuration::Configuration;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toolhold_mcp as mcp;
use toolhold_sandbox::ReservedPath;

/// Parameters of the database's URL that name files, and whether one holds a key.
const DATABASE_FILES: [(&str, bool); 3] =
    [("sslrootcert", false), ("sslcert", false), ("sslkey", true)];
/// Maximum number of files that the command of one MCP server may name.
const MAX_LAUNCH_FILES: usize = 256;

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
    /// All of them, absolute or relative to the working folder. It reads which programs exist, and no content.
    pub fn reserved(&self) -> Vec<ReservedPath> {
        let mut all = self.reserved_outside.clone();
        let state = "the state of this host, with its grants, approvals, keys and records";
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
            let files = launched(&server.launch, self.program_path.as_deref());
            all.extend(files.into_iter().map(|file| decisive(file, what.clone())));
        }
        if self.tables.modules.approval == mcp::Trust::Never {
            let folders = [self.modules_folder(), self.new_modules_folder()].into_iter();
            let folders = folders.chain(self.module_roots().iter().map(PathBuf::as_path));
            all.extend(folders.map(|it| decisive(it, "modules that run without approval")));
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

/// Program of a server, and the files that its arguments and variables name. A name that is not there yet counts, too,
/// where it is written as a path.
fn launched(launch: &mcp::Launch, path_variable: Option<&str>) -> BTreeSet<PathBuf> {
    let mcp::Launch::Command { command, env, .. } = launch else {
        return BTreeSet::new();
    };
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.as_str(), arguments),
        None => return BTreeSet::new(),
    };
    let mut files: BTreeSet<PathBuf> = candidates(program, path_variable).into_iter().collect();
    let texts = || arguments.iter().chain(env.values());
    let words: Vec<&str> = texts().flat_map(|text| words(text)).collect();
    // A script may be named relative to a folder that another argument names (`--directory DIR server.py`).
    let folders: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| Path::new(word).is_dir())
        .collect();
    for pair in arguments.windows(2) {
        if let [flag, module] = pair
            && flag == "-m"
        {
            files.insert(format!("{}.py", module.replace('.', "/")).into());
            files.insert(module.replace('.', "/").into());
        }
    }
    for word in &words {
        let path = Path::new(word);
        let is_path = word.contains('/') && !word.contains("://");
        if !path.is_dir() && (is_path || path.exists()) {
            files.insert(path.to_owned());
        }
        let in_folders = folders.iter().map(|folder| Path::new(folder).join(word));
        files.extend(in_folders.filter(|path| path.is_file()));
    }
    files.into_iter().take(MAX_LAUNCH_FILES).collect()
}

/// Places where the system looks for a program, up to the one where it is.
fn candidates(program: &str, path_variable: Option<&str>) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![program.into()];
    }
    let mut places = Vec::new();
    for folder in std::env::split_paths(path_variable.unwrap_or_default()) {
        let place = folder.join(program);
        let is_there = place.is_file();
        places.push(place);
        if is_there {
            break;
        }
    }
    places
}

/// Words of an argument that may be paths: of a shell's command line, or behind a flag's `=`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "'\"`;|&<>()=,".contains(c);
    let whole = std::iter::once(text);
    whole
        .chain(text.split(ends))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn command(words: &[&str]) -> mcp::Launch {
        mcp::Launch::Command {
            command: words.iter().map(|&word| word.to_owned()).collect(),
            env: [("CONFIG".to_owned(), "/etc/server.json".to_owned())].into(),
            secret_env: Vec::new(),
        }
    }

    #[test]
    fn files_of_a_server_are_its_program_its_scripts_and_its_settings() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("first")).unwrap();
        fs::create_dir_all(at("second")).unwrap();
        fs::write(at("second/python3"), "").unwrap();
        fs::write(at("first/server.py"), "").unwrap();
        let path = std::env::join_paths([at("first"), at("second"), at("third")]).unwrap();
        let first = at("first").display().to_string();
        let script = at("later.sh").display().to_string();
        let shell = format!("exec {script} --flag");
        let launch = command(&["python3", "--directory", &first, "server.py", "-c", &shell]);
        let files = launched(&launch, path.to_str());
        for expected in [
            at("first/python3"),
            at("second/python3"),
            at("first/server.py"),
            at("later.sh"),
            "/etc/server.json".into(),
        ] {
            assert!(
                files.contains(&expected),
                "{}: {files:?}",
                expected.display()
            );
        }
        for other in [at("third/python3"), at("first"), "server.py".into()] {
            assert!(!files.contains(&other), "{}", other.display());
        }
        let module = launched(&command(&["python3", "-m", "pack.server"]), None);
        assert!(module.contains(Path::new("pack/server.py")), "{module:?}");
    }

    #[test]
    fn an_address_in_an_argument_is_no_file() {
        let files = launched(&command(&["./run", "--url=https://host/path"]), None);
        let expected = ["./run", "/etc/server.json"].map(PathBuf::from);
        assert_eq!(files, expected.into());
    }
}
