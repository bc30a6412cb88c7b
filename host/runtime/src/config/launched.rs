//! Files that an MCP server is started with: its program, what runs it, and the files that its arguments and variables
//! name. A name that does not exist yet counts where it is written as a path or as a script: the next start would run it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use toolhold_mcp as mcp;

/// Programs that run the file, or the folder, which their first argument names. A version may follow the name.
const INTERPRETERS: [&str; 14] = [
    "python", "pypy", "node", "deno", "bun", "ruby", "perl", "php", "lua", "java", "uv", "sh",
    "bash", "zsh",
];
/// Files of a folder that an interpreter begins with.
const FIRST_FILES: [&str; 3] = ["__main__.py", "index.js", "package.json"];
/// Variables that name folders from which interpreters and the system's loader take code.
const CODE_FOLDERS: [&str; 8] = [
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "NODE_PATH",
    "LD_LIBRARY_PATH",
    "PERL5LIB",
    "RUBYLIB",
    "CLASSPATH",
];
/// Ends of names that are files of programs or of settings, also without a slash.
const FILE_ENDS: [&str; 24] = [
    "py", "pyz", "js", "mjs", "cjs", "ts", "mts", "sh", "rb", "pl", "php", "lua", "jar", "so",
    "wasm", "exe", "json", "toml", "yaml", "yml", "ini", "cfg", "conf", "env",
];
/// Bytes of a program's first line that are looked at.
const FIRST_LINE: u64 = 256;

/// The files and folders. `path_variable` and `home` are those of this process. Blocks on the file system.
pub fn launched(
    launch: &mcp::Launch,
    path_variable: Option<&str>,
    home: Option<&Path>,
) -> BTreeSet<PathBuf> {
    let mcp::Launch::Command { command, env, .. } = launch else {
        return BTreeSet::new();
    };
    let Some((program, arguments)) = command.split_first() else {
        return BTreeSet::new();
    };
    let home = env.get("HOME").map(Path::new).or(home);
    // The system looks for the program in the server's own path, and the server for others.
    let paths = env.get("PATH").map(String::as_str).into_iter();
    let mut paths: Vec<&str> = paths.chain(path_variable).collect();
    if paths.is_empty() {
        paths.push("");
    }
    let mut files = BTreeSet::new();
    for path in &paths {
        for place in candidates(program, path) {
            files.extend(runners(&place, path));
            files.insert(place);
        }
    }
    files.extend(of_variables(env));
    files.extend(of_script(program, arguments));
    let texts = arguments.iter().chain(env.values());
    let words: Vec<PathWord> = texts.flat_map(|text| words(text, home)).collect();
    // A script may be named relative to a folder that another argument names (`--directory DIR server.py`).
    let folders: Vec<&Path> = words
        .iter()
        .map(|word| word.path.as_path())
        .filter(|path| path.is_dir())
        .collect();
    for word in &words {
        let in_folders = folders.iter().map(|folder| folder.join(&word.path));
        files.extend(in_folders.filter(|path| path.is_file()));
        if !word.path.is_dir() && (word.is_written_as_file || word.path.exists()) {
            files.insert(word.path.clone());
        }
    }
    files
}

/// Places where the system looks for a program, up to the one where it is.
fn candidates(program: &str, path_variable: &str) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![program.into()];
    }
    let mut places = Vec::new();
    for folder in std::env::split_paths(path_variable) {
        let place = folder.join(program);
        let is_there = place.is_file();
        places.push(place);
        if is_there {
            break;
        }
    }
    places
}

/// Interpreter that the first line of a program names, and the virtual environment that the program is of.
fn runners(program: &Path, path_variable: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let environment = program.parent().and_then(Path::parent);
    found.extend(
        environment
            .filter(|it| it.join("pyvenv.cfg").exists())
            .map(Path::to_owned),
    );
    let mut line = Vec::new();
    let read = File::open(program).and_then(|file| {
        // A FIFO would be waited for.
        if !file.metadata()?.is_file() {
            return Ok(0);
        }
        file.take(FIRST_LINE).read_to_end(&mut line)
    });
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = read.ok().and_then(|_| std::str::from_utf8(line).ok());
    if let Some(interpreter) = text.and_then(|text| text.strip_prefix("#!")) {
        let words = interpreter.split_whitespace();
        found.extend(words.flat_map(|word| candidates(word, path_variable)));
    }
    found
}

/// Folders in variables from which code is taken.
fn of_variables(env: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let of_code = CODE_FOLDERS.iter().filter_map(|name| env.get(*name));
    let folders = of_code.flat_map(|value| std::env::split_paths(value).collect::<Vec<_>>());
    // The working folder is the user's: it would reserve all of it.
    folders
        .filter(|folder| !folder.as_os_str().is_empty() && folder != Path::new("."))
        .collect()
}

/// Script, folder, or module of Python that the arguments have an interpreter run.
fn of_script(program: &str, arguments: &[String]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for pair in arguments.windows(2) {
        if let [flag, module] = pair
            && flag == "-m"
        {
            let parts: Vec<&str> = module.split('.').collect();
            for depth in 1..=parts.len() {
                let way = parts[..depth].join("/");
                files.push(format!("{way}/__init__.py").into());
                files.push(format!("{way}.py").into());
            }
            files.push(parts.join("/").into());
        }
    }
    let name = Path::new(program).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if INTERPRETERS.contains(&name) {
        // Behind `run` where there is such a word (`uv run`, `deno run`).
        let mut words = arguments.iter().filter(|word| !word.starts_with('-'));
        let script = words.find(|word| *word != "run").map(PathBuf::from);
        if let Some(script) = script {
            if script.is_dir() {
                files.extend(FIRST_FILES.map(|first| script.join(first)));
            } else {
                files.push(script);
            }
        }
    }
    files
}

/// A word of an argument or a variable that may be a path.
struct PathWord {
    path: PathBuf,
    /// Whether the text alone tells that it is a file.
    is_written_as_file: bool,
}

/// Words of a text that may be paths: of a shell's command line, of a list, behind a flag or its `=`.
fn words(text: &str, home: Option<&Path>) -> Vec<PathWord> {
    let ends = |c: char| c.is_whitespace() || "'\"`;|&<>()=,".contains(c);
    let mut found = Vec::new();
    let whole = std::iter::once(text);
    for word in whole.chain(text.split(ends)) {
        if let Some((scheme, rest)) = word.split_once("://") {
            // Of addresses, only those of files.
            if scheme == "file" {
                found.extend(path_word(rest, home));
            }
            continue;
        }
        for word in std::iter::once(word).chain(word.split(':')) {
            found.extend(path_word(word, home));
            // `-r./hook.js`, `-I/usr/include`
            let is_short = word.starts_with('-') && !word.starts_with("--");
            let attached = word.find(['.', '/', '~']).filter(|_| is_short);
            found.extend(attached.and_then(|at| path_word(&word[at..], home)));
        }
    }
    found
}

fn path_word(word: &str, home: Option<&Path>) -> Option<PathWord> {
    if word.is_empty() {
        return None;
    }
    let of_home = ["~/", "$HOME/", "${HOME}/"];
    let below = of_home.iter().find_map(|start| word.strip_prefix(start));
    let path = match (below, home) {
        (Some(below), Some(home)) => home.join(below),
        _ => PathBuf::from(word),
    };
    let end = path.extension().and_then(|end| end.to_str());
    let is_anchored = ["/", "./", "../"]
        .iter()
        .any(|start| word.starts_with(start));
    // `@scope/name` and `text/plain` are no paths.
    let is_named = !word.starts_with('@') && end.is_some_and(|end| FILE_ENDS.contains(&end));
    Some(PathWord {
        is_written_as_file: below.is_some() || is_anchored || is_named,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

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
        let files = launched(&launch, path.to_str(), None);
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
        for other in [at("third/python3"), at("first")] {
            assert!(!files.contains(&other), "{}", other.display());
        }
        let module = launched(&command(&["python3", "-m", "pack.server"]), None, None);
        for expected in ["pack/server.py", "pack/__init__.py", "pack/server"] {
            assert!(module.contains(Path::new(expected)), "{module:?}");
        }
    }

    #[test]
    fn an_address_in_an_argument_is_no_file() {
        let files = launched(&command(&["./run", "--url=https://host/path"]), None, None);
        let expected = ["./run", "/etc/server.json"].map(PathBuf::from);
        assert_eq!(files, expected.into());
    }

    #[test]
    fn a_program_is_found_in_the_server_s_own_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("own")).unwrap();
        fs::write(at("own/server"), "").unwrap();
        let mut launch = command(&["server"]);
        if let mcp::Launch::Command { env, .. } = &mut launch {
            env.insert("PATH".into(), format!("{}:/usr/bin", at("own").display()));
        }
        let files = launched(&launch, Some("/nowhere"), None);
        assert!(files.contains(&at("own/server")), "{files:?}");
        // Whatever the server itself looks for there.
        assert!(files.contains(&at("own")), "{files:?}");
    }

    #[test]
    fn every_usual_spelling_of_a_file_counts() {
        let home = Path::new("/home/u");
        for (words, expected) in [
            (
                &["node", "--import", "file:///proj/hook.mjs"][..],
                "/proj/hook.mjs",
            ),
            (&["java", "-cp", "/p/a.jar:/p/b.jar"], "/p/b.jar"),
            (&["java", "-javaagent:/proj/agent.jar"], "/proj/agent.jar"),
            (&["node", "-r./hook.js", "x"], "./hook.js"),
            (&["sh", "-c", "exec $HOME/run.sh"], "/home/u/run.sh"),
            (&["sh", "-c", "~/bin/run --now"], "/home/u/bin/run"),
            (&["python3", "server.py"], "server.py"),
            (&["python3.12", "start"], "start"),
            (&["uv", "run", "start"], "start"),
            (&["serve", "--config=server.json"], "server.json"),
        ] {
            let files = launched(&command(words), None, Some(home));
            assert!(files.contains(Path::new(expected)), "{words:?}: {files:?}");
        }
    }

    #[test]
    fn names_of_packages_images_and_kinds_are_no_files() {
        for words in [
            &["npx", "-y", "@scope/server-files"][..],
            &["docker", "run", "mcp/fetch"],
            &["./run", "--accept", "text/plain"],
            &["./run", "--repository=acme/src"],
        ] {
            let files = launched(&command(words), Some("/nowhere"), None);
            let allowed = ["./run", "/etc/server.json"].map(PathBuf::from);
            let others: Vec<_> = files
                .iter()
                .filter(|it| !allowed.contains(it) && !it.starts_with("/nowhere"))
                .collect();
            assert!(others.is_empty(), "{words:?}: {others:?}");
        }
    }

    #[test]
    fn what_runs_a_program_counts_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("venv/bin")).unwrap();
        fs::create_dir_all(at("app")).unwrap();
        fs::write(at("venv/pyvenv.cfg"), "").unwrap();
        let interpreter = at("venv/bin/python");
        fs::write(&interpreter, "").unwrap();
        let line = format!("#!{} -E\nimport server\n", interpreter.display());
        fs::write(at("venv/bin/server"), &line).unwrap();
        symlink(at("venv/bin/server"), at("link")).unwrap();
        let program = at("venv/bin/server").display().to_string();
        let files = launched(&command(&[&program]), None, None);
        assert!(
            files.contains(&interpreter) && files.contains(&at("venv")),
            "{files:?}"
        );
        let link = at("link").display().to_string();
        assert!(launched(&command(&[&link]), None, None).contains(&interpreter));
        let app = at("app").display().to_string();
        let files = launched(&command(&["python3", &app]), None, None);
        assert!(files.contains(&at("app/__main__.py")), "{files:?}");
    }
}
