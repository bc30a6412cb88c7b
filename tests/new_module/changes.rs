//! What a build fetches and shares, and a module that is built whenever it changes.

use super::{answered, edited, template};
use std::path::Path;
use std::process::Command;
use support::host::{Host, finish, signal};
use support::until;
use toolhold_needs::has_program;

/// Makes a zip archive of these files, as wheels and Go's modules are.
fn zip(path: &Path, files: &[(&str, &str)]) {
    let script = "import json, sys, zipfile\n\
                  with zipfile.ZipFile(sys.argv[1], 'w') as archive:\n    \
                  for name, text in json.loads(sys.argv[2]): archive.writestr(name, text)";
    let files = serde_json::to_string(files).expect("JSON");
    let made = Command::new("python3")
        .args(["-c", script])
        .args([path.as_os_str(), files.as_ref()])
        .output();
    let made = finish(made.expect("python3"));
    assert_eq!(made.code, Some(0), "{made:?}");
}

/// Packages of `requirements.txt` are there while the module is built; one that is not pure Python is refused with
/// words.
#[test]
fn requirements_of_python_are_installed_by_the_build() {
    let edits = [
        ("import re\n", "import re\n\nimport greet\n"),
        ("text.lower()", "(text + greet.WORD).lower()"),
    ];
    let Some(host) = template("python", &["python3"]) else {
        return;
    };
    let Some(built) = edited(&host, "app.py", &edits) else {
        return;
    };
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built.stderr.contains("No module named 'greet'"),
        "{built:?}"
    );

    let words = host.path().join("modules/words");
    // A name of its own for each run, because what is installed stays in the cache.
    let name = format!("greet_{}", std::process::id());
    let wheel = format!("{name}-1.0-py3-none-any.whl");
    let tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    zip(
        &words.join(&wheel),
        &[
            ("greet.py", "WORD = ' hello'\n"),
            (
                &format!("{name}-1.0.dist-info/METADATA"),
                &format!("Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"),
            ),
            (&format!("{name}-1.0.dist-info/WHEEL"), tag),
            (&format!("{name}-1.0.dist-info/RECORD"), ""),
        ],
    );
    // The folder of another module, or a source package, would be taken by pip.
    for line in [format!("./{wheel}"), wheel.clone(), "-e .".to_owned()] {
        host.write(
            "modules/words/requirements.txt",
            format!("# ours\n{line}\n"),
        );
        let built = host.run(&["build", "words"]);
        assert_eq!(built.code, Some(1), "{built:?}");
        assert!(
            built.stderr.contains("requirements.txt, line 2: `")
                && built.stderr.contains("not taken"),
            "{built:?}"
        );
    }

    let pages = format!("index/{}", name.replace('_', "-"));
    let offer = |file: &str| {
        std::fs::copy(words.join(&wheel), host.path().join(&pages).join(file)).expect("a copy");
        host.write(
            &format!("{pages}/index.html"),
            format!("<a href=\"{file}\">{file}</a>\n"),
        );
    };
    let build = || {
        let mut command = host.command(&["build", "words"]);
        let index = format!("file://{}", host.path().join("index").display());
        command.env("PIP_INDEX_URL", index);
        finish(command.output().expect("the binary runs"))
    };
    std::fs::create_dir_all(host.path().join(&pages)).expect("a folder");
    offer(&format!("{name}-2.0-cp314-cp314-linux_x86_64.whl"));
    host.write("modules/words/requirements.txt", format!("{name}==2.0\n"));
    let built = build();
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(built.stderr.contains("pure Python"), "{built:?}");
    offer(&wheel);
    host.write("modules/words/requirements.txt", format!("{name}  # any\n"));
    let built = build();
    assert_eq!(built.code, Some(0), "{built:?}");

    // A call builds only what is built in the sandbox, and pip is not.
    std::fs::remove_file(words.join("words.wasm")).expect("removed");
    let call = host.run(&["modules", "call", "words.word_frequency", "{}"]);
    assert_eq!(call.code, Some(1), "{call:?}");
    assert!(call.stderr.contains("toolhold build"), "{call:?}");
}

/// Modules that `go.mod` requires come from the user's proxy, and `go.sum` pins them.
#[test]
fn modules_of_go_are_fetched_by_the_build() {
    let edits = [
        (
            "\t\"toolhold\"\n",
            "\t\"example.org/greet\"\n\t\"toolhold\"\n",
        ),
        (
            "strings.ToLower(arguments.Text)",
            "strings.ToLower(arguments.Text+greet.Word)",
        ),
    ];
    let Some(host) = template("go", &["python3"]) else {
        return;
    };
    let Some(built) = edited(&host, "main.go", &edits) else {
        return;
    };
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built.stderr.contains("example.org/greet") && built.stderr.contains("GOPROXY"),
        "{built:?}"
    );

    for name in ["greet", "part"] {
        let go_mod = format!("module example.org/{name}\n\ngo 1.20\n");
        let folder = format!("proxy/example.org/{name}/@v");
        host.write(&format!("{folder}/list"), "v1.0.0\n")
            .write(&format!("{folder}/v1.0.0.info"), r#"{"Version":"v1.0.0"}"#)
            .write(&format!("{folder}/v1.0.0.mod"), go_mod.clone());
        zip(
            &host.path().join(format!("{folder}/v1.0.0.zip")),
            &[
                (&format!("example.org/{name}@v1.0.0/go.mod"), &go_mod),
                (
                    &format!("example.org/{name}@v1.0.0/{name}.go"),
                    &format!("package {name}\n\nconst Word = \" {name}\"\n"),
                ),
            ],
        );
    }
    let build = || {
        let mut command = host.command(&["build", "words"]);
        let proxy = format!("file://{}", host.path().join("proxy").display());
        command.env("GOPROXY", proxy).env("GOSUMDB", "off");
        finish(command.output().expect("the binary runs"))
    };
    let built = build();
    assert_eq!(built.code, Some(0), "{built:?}");
    let sums = std::fs::read_to_string(host.path().join("modules/words/go.sum")).expect("sums");
    assert!(sums.contains("example.org/greet v1.0.0 h1:"), "{sums}");
    assert_eq!(build().code, Some(0), "as the sums pin it");

    // A second one is fetched as the first was; the source's own fault is told, and nothing is fetched for it.
    let source = host.path().join("modules/words/main.go");
    let text = std::fs::read_to_string(&source).expect("the source");
    let import = "\t\"example.org/greet\"\n";
    let both = text
        .replace(import, &format!("{import}\t\"example.org/part\"\n"))
        .replace("greet.Word", "greet.Word+part.Word");
    host.write("modules/words/main.go", both.as_str());
    let built = build();
    assert_eq!(built.code, Some(0), "{built:?}");
    host.write(
        "modules/words/main.go",
        both.replace("\"strings\"", "\"strinks\""),
    );
    let built = build();
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built.stderr.contains("strinks is not in std") && !built.stderr.contains("GOPROXY"),
        "{built:?}"
    );
    host.write("modules/words/main.go", both);
    let sums = std::fs::read_to_string(host.path().join("modules/words/go.sum")).expect("sums");

    let other = sums.replace("h1:", "h1:A");
    host.write("modules/words/go.sum", other);
    let built = build();
    assert_eq!(built.code, Some(1), "{built:?}");
}

/// What two modules depend on is compiled once, and crates of one name are not mistaken for each other.
#[test]
fn modules_in_rust_share_what_they_depend_on() {
    if !has_program("cargo", "the rust template is not built") {
        return;
    }
    let host = Host::new();
    let build = |folder: &str| answered("build", || host.run(&["build", folder]));
    for folder in ["one", "two"] {
        let modules = format!("{folder}/modules");
        let new = [
            "--modules",
            &modules,
            "new-module",
            "words",
            "--lang",
            "rust",
        ];
        let made = host.run(&new);
        assert_eq!(made.code, Some(0), "{made:?}");
        let words = host.path().join(&modules).join("words");
        // Both have a helper crate at the same path, which each author may change.
        let edits = [
            ("src/lib.rs", "Word frequency"),
            ("vendor/toolhold-guest/src/tool.rs", "no tool `"),
        ];
        for (source, text) in edits {
            let source = words.join(source);
            let whole = std::fs::read_to_string(&source).expect("the template");
            assert!(whole.contains(text), "{}", source.display());
            let whole = whole.replace(text, &format!("{folder}: {text}"));
            std::fs::write(&source, whole).expect("written");
        }
        let Some(built) = build(&format!("{modules}/words")) else {
            return;
        };
        assert_eq!(built.code, Some(0), "{built:?}");
        assert!(!host.path().join(&modules).join("words/target").exists());
    }
    let component = |folder: &str| {
        let path = format!("{folder}/modules/words/words.wasm");
        std::fs::read(host.path().join(path)).expect("a component")
    };
    let (one, two) = (component("one"), component("two"));
    let has = |component: &[u8], text: &str| {
        component
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    for text in ["one: Word frequency", "one: no tool `"] {
        assert!(has(&one, text) && !has(&two, text), "{text}");
    }
    for text in ["two: Word frequency", "two: no tool `"] {
        assert!(has(&two, text) && !has(&one, text), "{text}");
    }
    // Nothing changed, so cargo would take the file that is there.
    assert_eq!(
        build("one/modules/words").map(|built| built.code),
        Some(Some(0))
    );
    assert_eq!(component("one"), one, "the other one's component was taken");
}

/// The watch builds what changes, and keeps the component while the source is wrong.
#[test]
fn a_watched_module_is_built_and_loaded_when_its_source_changes() {
    // The compiler is there after this.
    let Some(host) = template("c", &["python3"]) else {
        return;
    };
    let Some(built) = edited(&host, "module.c", &[]) else {
        return;
    };
    assert_eq!(built.code, Some(0), "{built:?}");
    let component = host.path().join("modules/words/words.wasm");
    std::fs::remove_file(&component).expect("removed");
    let log = host.path().join("watch.log");
    let file = std::fs::File::create(&log).expect("a file");
    // A typing error, and what completion makes of a name.
    let unknown = host.run(&["modules", "watch", "wrds"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(
        unknown.stderr.contains("did you mean \"words\"?") && unknown.stderr.contains("--modules"),
        "{unknown:?}"
    );
    let mut command = host.command(&["--trust-all", "modules", "watch", "words/"]);
    let mut watch = command
        .stdout(file.try_clone().expect("a file"))
        .stderr(file)
        .spawn()
        .expect("the binary runs");
    let told = || std::fs::read_to_string(&log).expect("the log");
    let wait = |what: &str, times: usize| {
        until(what, || {
            (told().matches(what).count() >= times).then_some(())
        });
    };
    wait("watching", 1);
    assert!(told().contains("built: words"), "{}", told());
    let source = host.path().join("modules/words/module.c");
    let text = std::fs::read_to_string(&source).expect("the template");
    let first = std::fs::read(&component).expect("a component");

    std::fs::write(&source, text.replace("size_t top =", "size_t tpo =")).expect("written");
    wait("not built:", 1);
    wait("module.c:", 1);
    assert_eq!(std::fs::read(&component).expect("a component"), first);

    std::fs::write(&source, text.replace("Counts how often", "Tells how often")).expect("written");
    wait("built: words (", 2);
    wait("reloaded: words", 1);
    assert_ne!(std::fs::read(&component).expect("a component"), first);

    // Had the build's own writes been a change, it would be built again before this one.
    std::fs::write(&source, text.replace("size_t top =", "size_t pto =")).expect("written");
    wait("not built:", 2);
    signal(watch.id(), "INT");
    assert_eq!(
        watch.wait().expect("it ends").code(),
        Some(130),
        "{}",
        told()
    );
    assert_eq!(told().matches("built: words (").count(), 2, "{}", told());
}
