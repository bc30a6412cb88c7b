//! A PostgreSQL of one test, which it may stop and start again.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use toolhold_files::DiskSpace;
use toolhold_needs::{Need, leave_out};

/// A cluster that is gone when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    folder: TempDir,
    binaries: PathBuf,
    port: u16,
}

impl Cluster {
    /// Starts one; none where PostgreSQL is not installed or makes no cluster, and says so.
    ///
    /// # Panics
    /// If there is one that does not start.
    pub fn start() -> Option<Self> {
        let Some(binaries) = installed() else {
            leave_out(Need::PostgreSql, "no PostgreSQL is installed");
            return None;
        };
        let folder = folder().expect("a folder");
        // PostgreSQL refuses to run as root, and another user has to get in.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("its mode");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let cluster = Self {
            folder,
            binaries,
            port: free.expect("a port").port(),
        };
        let data = cluster.data();
        // The locale of the environment may not be installed.
        let made = cluster.tried(
            "initdb",
            &[
                "-D",
                &data,
                "-A",
                "trust",
                "-U",
                "toolhold",
                "--no-sync",
                "--locale=C.UTF-8",
            ],
        );
        if !made {
            leave_out(Need::PostgreSql, "PostgreSQL's initdb makes no cluster");
            return None;
        }
        cluster.go_on();
        Some(cluster)
    }

    pub fn url(&self) -> String {
        format!("postgres://toolhold@127.0.0.1:{}/postgres", self.port)
    }

    /// Ends it as a crash does.
    ///
    /// # Panics
    /// If it does not end.
    pub fn stop(&self) {
        self.run(
            "pg_ctl",
            &["-D", &self.data(), "-m", "immediate", "-w", "stop"],
        );
    }

    /// Starts it again.
    ///
    /// # Panics
    /// If it does not start.
    pub fn go_on(&self) {
        let place = self.folder.path().display();
        // What is acknowledged has to survive the process, and no machine.
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c fsync=off -k {place}",
            self.port
        );
        let log = format!("{place}/log");
        self.run(
            "pg_ctl",
            &[
                "-D",
                &self.data(),
                "-l",
                &log,
                "-o",
                &options,
                "-w",
                "start",
            ],
        );
    }

    /// Stops all of its processes where they are: connections stay open, and nothing is answered.
    ///
    /// # Panics
    /// If it does not run.
    pub fn freeze(&self) {
        let postmaster = self.postmaster();
        // It starts no other process then.
        crate::host::signal(postmaster, "STOP");
        signal_all(&children(postmaster), "STOP");
    }

    /// Has them go on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn thaw(&self) {
        let postmaster = self.postmaster();
        // It removes no process before all have gone on.
        signal_all(&children(postmaster), "CONT");
        crate::host::signal(postmaster, "CONT");
    }

    fn postmaster(&self) -> u32 {
        let written = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid"));
        let written = written.expect("it runs");
        let first = written.lines().next().map(str::parse);
        first.and_then(Result::ok).expect("its process")
    }

    /// Runs a statement.
    ///
    /// # Panics
    /// If it fails.
    pub fn execute(&self, statement: &str) {
        self.run(
            "psql",
            &[&self.url(), "-v", "ON_ERROR_STOP=1", "-c", statement],
        );
    }

    /// Copies the database into a new one of this name, by a dump that is restored. Returns the URL of the new one.
    ///
    /// # Panics
    /// If it fails.
    pub fn restored(&self, name: &str) -> String {
        let dump = self.folder.path().join("runs.dump").display().to_string();
        self.run("pg_dump", &["-Fc", "-f", &dump, &self.url()]);
        self.execute(&format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"
        ));
        let url = format!("postgres://toolhold@127.0.0.1:{}/{name}", self.port);
        self.run("pg_restore", &["--exit-on-error", "-d", &url, &dump]);
        url
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        assert!(self.tried(program, arguments), "{program} {arguments:?}");
    }

    fn tried(&self, program: &str, arguments: &[&str]) -> bool {
        let program = self.binaries.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(&program);
            command
        } else {
            Command::new(&program)
        };
        // A server that goes on must not keep the test's pipes open.
        let done = command
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        done.is_ok_and(|status| status.success())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may be stopped already.
        self.tried(
            "pg_ctl",
            &["-D", &self.data(), "-m", "immediate", "-w", "stop"],
        );
    }
}

/// Room that there must be in memory for a cluster of 40 MB, with what it logs.
const MEMORY_BYTES: u64 = 2 << 30;

/// A folder for a cluster: in memory where that has room, because some disks take seconds for the thousand files that
/// `initdb` makes, and all that a test writes is gone with it.
fn folder() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if DiskSpace::at(memory).is_ok_and(|space| space.free >= MEMORY_BYTES) {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
}

/// Debian's place, the newest; or wherever `pg_ctl` is found.
fn installed() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let folders = versions.flatten().map(|entry| entry.path().join("bin"));
    let newest = folders.filter(|bin| bin.join("initdb").is_file()).max();
    newest.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder: &PathBuf| folder.join("initdb").is_file())
    })
}

fn signal_all(processes: &[u32], name: &str) {
    for process in processes {
        crate::host::signal(*process, name);
    }
}

/// The processes that this one started.
fn children(parent: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let listed = listed.expect("Linux says it");
    let ids = listed.split_whitespace();
    ids.filter_map(|id| id.parse().ok()).collect()
}

fn is_root() -> bool {
    let owner = Path::new("/proc/self").metadata();
    owner.is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}
