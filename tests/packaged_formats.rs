//! Programs by others read what is in `host/cli/packaging`: systemd checks the units, strict schemas of Kubernetes and of the
//! operator of Prometheus the manifests. No test has a cluster.

use crate::packaging::packaged;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use support::foreign;
use support::host::binary;
use support::sandbox::repository;
use toolhold_needs::{Need, leave_out};

/// Units of systemd that are packaged.
const UNITS: [&str; 3] = [
    "toolhold.service",
    "toolhold-eval.service",
    "toolhold-eval.timer",
];
/// How exposed each service is, in tenths, as `systemd-analyze security` of systemd 252 counts. The numbers only sink.
const EXPOSURES: [(&str, &str); 2] = [("toolhold.service", "11"), ("toolhold-eval.service", "26")];
/// The first version whose `systemd-analyze security` judges files.
const JUDGES_FILES: u32 = 250;

/// The program with the strict schemas of Kubernetes' versions.
const KUBERNETES_VALIDATE: &str = "kubernetes-validate==1.37.0";
/// The oldest and the newest version of Kubernetes that the program knows (docs/operations.md, "Packages").
const KUBERNETES: [&str; 2] = ["1.25", "1.37"];
/// Types of the operator of Prometheus, which are made from its own, and a compiler that takes no field that a type lacks.
const OPERATOR: [&str; 2] = [
    "@kubernetes-models/prometheus-operator@6.0.0",
    "typescript@7.0.2",
];

/// `None` where the program is not installed.
fn systemd_analyze(arguments: &[&str], folder: &Path) -> Option<Output> {
    let said = Command::new("systemd-analyze")
        .args(arguments)
        .current_dir(folder)
        .output();
    if said.is_err() {
        leave_out(
            Need::SystemdAnalyze,
            "systemd-analyze is not installed, so systemd checks no unit",
        );
    }
    said.ok()
}

/// Writes a unit with this binary in the place of the installed one, which machines of tests do not have.
fn write_unit(folder: &Path, name: &str, text: &str) {
    let here = binary().display().to_string();
    std::fs::write(
        folder.join(name),
        text.replace("/usr/local/bin/toolhold", &here),
    )
    .unwrap();
}

#[test]
fn systemd_takes_the_units_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let verify = || {
        let arguments = [
            "--man=no",
            "verify",
            "./toolhold.service",
            "./toolhold-eval.service",
            "./toolhold-eval.timer",
        ];
        systemd_analyze(&arguments, folder.path())
    };
    for name in UNITS {
        write_unit(folder.path(), name, &packaged(name));
    }
    let Some(verified) = verify() else {
        return;
    };
    // A key that it does not know is a warning, and no failure.
    assert!(
        verified.status.success() && verified.stderr.is_empty(),
        "{verified:?}"
    );
    let mistyped = packaged(UNITS[0]).replace("ProtectHome=", "ProtectHomes=");
    write_unit(folder.path(), UNITS[0], &mistyped);
    let warned = verify().expect("it was there");
    let words = String::from_utf8_lossy(&warned.stderr);
    assert!(words.contains("ProtectHomes"), "{words}");
}

#[test]
fn units_are_no_more_exposed_than_before() {
    let folder = tempfile::tempdir().unwrap();
    let Some(version) = systemd_analyze(&["--version"], folder.path()) else {
        return;
    };
    let words = String::from_utf8_lossy(&version.stdout);
    let number = words.split_whitespace().nth(1).unwrap_or_default();
    if number
        .parse()
        .is_ok_and(|number: u32| number < JUDGES_FILES)
    {
        let why = format!("systemd {number} judges no unit that is not installed");
        leave_out(Need::SystemdAnalyze, why);
        return;
    }
    let judge = |name: &str, text: &str, most: &str| {
        write_unit(folder.path(), name, text);
        let threshold = format!("--threshold={most}");
        let unit = format!("./{name}");
        let arguments = [
            "security",
            "--no-pager",
            "--offline=true",
            &threshold,
            &unit,
        ];
        systemd_analyze(&arguments, folder.path()).expect("it was there")
    };
    for (name, most) in EXPOSURES {
        let unit = packaged(name);
        let judged = judge(name, &unit, most);
        assert!(judged.status.success(), "{name}: {judged:?}");
        let open = unit.replace("\nSystemCallFilter=", "\n#");
        assert!(!judge(name, &open, most).status.success(), "{name}");
    }
}

/// Strictly: a field that Kubernetes does not know is a fault.
#[test]
fn kubernetes_knows_every_field_of_the_manifests() {
    let folder = KUBERNETES_VALIDATE.replace("==", "-");
    let Some(programs) = foreign::python(&folder, &[KUBERNETES_VALIDATE]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let validate = |manifest: &str| {
        let path = folder.path().join("manifest.yaml");
        std::fs::write(&path, manifest).unwrap();
        let mut command = Command::new(programs.join("kubernetes-validate"));
        command.arg("--strict");
        for version in KUBERNETES {
            command.args(["-k", version]);
        }
        let done = command.arg(&path).output().unwrap();
        let words = String::from_utf8_lossy(&done.stdout).into_owned();
        (done.status.success(), words)
    };
    for (file, field) in [
        ("kubernetes.yaml", "terminationGracePeriodSeconds"),
        ("inference.yaml", "failureThreshold"),
        ("servers/sglang.kubernetes.yaml", "failureThreshold"),
        ("servers/tgi.kubernetes.yaml", "failureThreshold"),
        ("servers/tensorrt-llm.kubernetes.yaml", "failureThreshold"),
        ("servers/llama-cpp.kubernetes.yaml", "failureThreshold"),
    ] {
        let manifest = packaged(file);
        let kinds = manifest.lines().filter(|line| line.starts_with("kind: "));
        let expected = kinds.count() * KUBERNETES.len();
        let (is_valid, words) = validate(&manifest);
        // A kind without a schema passes, with a warning.
        let passed = words.lines().filter(|line| line.starts_with("INFO "));
        assert!(is_valid && passed.count() == expected, "{file}: {words}");
        let mistyped = field.to_lowercase();
        let (is_valid, words) = validate(&manifest.replace(field, &mistyped));
        assert!(!is_valid && words.contains(&mistyped), "{file}: {words}");
    }
}

#[test]
fn prometheus_operator_knows_every_field_of_the_monitor() {
    let folder = KUBERNETES_VALIDATE.replace("==", "-");
    let Some(programs) = foreign::python(&folder, &[KUBERNETES_VALIDATE]) else {
        return;
    };
    let Some(packages) = foreign::node("prometheus-operator-6.0.0", &OPERATOR) else {
        return;
    };
    let read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let file = repository().join("host/cli/packaging/servicemonitor.yaml");
    let monitor = Command::new(programs.join("python"))
        .args(["-c", read])
        .stdin(File::open(file).unwrap())
        .output()
        .unwrap();
    let monitor = String::from_utf8_lossy(&monitor.stdout).into_owned();
    let folder = tempfile::tempdir().unwrap();
    let modules = packages.join("node_modules");
    symlink(&modules, folder.path().join("node_modules")).unwrap();
    let compile = |monitor: &str| {
        let types =
            "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";
        let source = format!(
            "import type {{ IServiceMonitor }} from \"{types}\";\nexport const monitor: IServiceMonitor = {monitor};\n"
        );
        std::fs::write(folder.path().join("monitor.mts"), source).unwrap();
        Command::new(modules.join(".bin/tsc"))
            .args(["--noEmit", "--strict", "--skipLibCheck"])
            .args(["--module", "nodenext", "monitor.mts"])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let compiled = compile(&monitor);
    assert!(compiled.status.success(), "{monitor}\n{compiled:?}");
    let mistyped = compile(&monitor.replace("scrapeTimeout", "scrapetimeout"));
    let words = String::from_utf8_lossy(&mistyped.stdout);
    assert!(
        words.contains("'\"scrapetimeout\"' does not exist"),
        "{words}"
    );
    let other_type = compile(&monitor.replace("\"10s\"", "10"));
    assert!(!other_type.status.success(), "{other_type:?}");
}
