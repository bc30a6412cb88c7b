//! Backups that are restored, and archives of another origin, which are refused.

use super::*;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;
use tempfile::TempDir;
use toolhold_files::archive::ArchiveWriter;
use toolhold_policy::{Digest, Grant, Pin, PinStore as _, PinnedBy};
use toolhold_sandbox::PinFolder;
use toolhold_storage::Store;

/// A folder with a state folder, and what is backed up of it.
struct BackupPlace {
    folder: TempDir,
}

impl BackupPlace {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn database(&self) -> Location {
        Location::File(self.at("state").join(DATABASE_FILE))
    }

    async fn store(&self) -> Store {
        let patience = Duration::from_secs(1);
        Store::open(&self.database(), patience).await.unwrap()
    }

    fn source(&self) -> BackupSource {
        BackupSource {
            state: self.at("state"),
            database: self.database(),
            modules: self.at("modules"),
            configuration: vec![(self.at("toolhold.toml"), b"endpoint = \"x\"".to_vec())],
        }
    }

    fn pins(&self) -> PinFolder {
        PinFolder::new(self.at("state/approvals/one"))
    }

    fn target(&self) -> RestoreTarget {
        RestoreTarget {
            state: self.at("state"),
            database: self.database(),
            pins: self.pins(),
        }
    }

    async fn restore(&self, file: &Path) -> Result<Restored, RestoreError> {
        restore(file.to_owned(), self.target()).await
    }

    /// Names of the entries of the state folder, hidden files included.
    fn entries(&self) -> Vec<String> {
        let names = names(&self.at("state")).unwrap();
        let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
        names.collect()
    }

    /// An archive with these members behind what it says of itself.
    fn archive(&self, members: &[(&str, &[u8])]) -> PathBuf {
        let about = BackupAbout {
            format: FORMAT,
            version: "0".into(),
            made_ms: 0,
            has_database: members
                .iter()
                .any(|(name, _)| name.ends_with(DATABASE_FILE)),
            modules: String::new(),
            configuration: Vec::new(),
        };
        let about = serde_json::to_vec(&about).unwrap();
        self.archive_of(&[&[(ABOUT, &*about)], members].concat())
    }

    fn archive_of(&self, members: &[(&str, &[u8])]) -> PathBuf {
        let mut writer = ArchiveWriter::new(Vec::new(), 0);
        for (name, content) in members {
            writer.add(name, content.len() as u64, *content).unwrap();
        }
        let file = self.at("foreign.tar");
        fs::write(&file, writer.finish().unwrap()).unwrap();
        file
    }
}

fn pin(name: &str) -> Pin {
    let digest = Digest::of(name.as_bytes());
    Pin::of(name, name, digest, &[], &Grant::default(), PinnedBy::Person)
}

/// Names and contents.
type Members<'a> = &'a [(&'a str, &'a [u8])];

#[tokio::test]
async fn kept_files_come_back_and_passing_ones_do_not() {
    let from = BackupPlace::new();
    let store = from.store().await;
    let kept = [
        ("grants.toml", "[module.files]"),
        ("mcp/tickets.json", "{}"),
        ("trusted/abc.json", "{}"),
        ("dialects/d.json", "{}"),
        ("fallback.json", "[]"),
        ("chat_history", "hello"),
    ];
    let deep = format!("modules/key-value/{}/{}", "a".repeat(32), "b".repeat(200));
    let kept = kept.into_iter().chain([(deep.as_str(), "value")]);
    let kept: Vec<(&str, &str)> = kept.collect();
    for (name, content) in &kept {
        from.write(&format!("state/{name}"), content);
    }
    let pins = from.pins();
    pins.replace(None, &pin("calculator")).unwrap();
    pins.replace(None, &pin("gone")).unwrap();
    pins.revoke("gone").unwrap();
    for passing in [
        "cache.key",
        "modules/scratch/call/file",
        "modules/key-value/a/.unfinished",
        "servers/1.lock",
    ] {
        from.write(&format!("state/{passing}"), "passing");
    }
    from.write("state/mine.txt", "somebody's");
    symlink("/etc/passwd", from.at("state/mcp/link.json")).unwrap();

    let file = from.at("backup.tar");
    let made = back_up(from.source(), &file).await.unwrap();
    assert!(made.has_database);
    assert_eq!(made.files, kept.len() as u64 + 2);
    let left_out = [from.at("state/mine.txt"), from.at("state/mcp/link.json")];
    assert_eq!(made.left_out, left_out);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(made.bytes, fs::metadata(&file).unwrap().len());
    let beside = names(from.folder.path()).unwrap();
    assert_eq!(
        beside,
        ["backup.tar", "state"],
        "no unfinished file is left"
    );
    let again = back_up(from.source(), &file).await.unwrap_err();
    assert!(matches!(again, BackupError::Exists { .. }), "{again}");
    drop(store);

    let to = BackupPlace::new();
    // Left by a restore that was killed; and what a look at modules made.
    to.write("state/.restore-0000000000000000/grants.toml", "half");
    to.write("state/cache.key", "another");
    let restored = to.restore(&file).await.unwrap();
    assert_eq!(restored.files, made.files + 1, "and the configuration");
    assert_eq!(restored.approved, ["calculator"]);
    assert_eq!(
        restored.about.modules,
        from.at("modules").display().to_string()
    );
    for (name, content) in &kept {
        let path = to.at("state").join(name);
        assert_eq!(&fs::read_to_string(&path).unwrap(), content, "{name}");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let configuration = restored.configuration.unwrap().join("1-toolhold.toml");
    assert_eq!(
        fs::read_to_string(configuration).unwrap(),
        "endpoint = \"x\""
    );
    let entries = [
        "approvals",
        "cache.key",
        "chat_history",
        RESTORED_CONFIGURATION,
        "dialects",
        "fallback.json",
        "grants.toml",
        "mcp",
        "modules",
        DATABASE_FILE,
        "trusted",
    ];
    assert_eq!(to.entries(), entries);
    assert!(!to.at("state/modules/scratch").exists());
    assert_eq!(
        fs::read_to_string(to.at("state/cache.key")).unwrap(),
        "another"
    );
    // A backup of what was restored leaves nothing out.
    assert!(to.store().await.runs_since(0).await.unwrap().is_empty());
    let made = back_up(to.source(), &to.at("next.tar")).await.unwrap();
    assert_eq!(made.left_out, [] as [PathBuf; 0]);
}

#[tokio::test]
async fn a_state_folder_that_is_in_use_is_left_alone() {
    let from = BackupPlace::new();
    drop(from.store().await);
    let file = from.at("backup.tar");
    back_up(from.source(), &file).await.unwrap();
    for used in ["toolhold.db", "grants.toml", "approvals/one/m.json", "mine"] {
        let to = BackupPlace::new();
        to.write(&format!("state/{used}"), "used");
        let before = to.entries();
        let refused = to.restore(&file).await.unwrap_err();
        assert!(
            matches!(refused, RestoreError::NotEmpty { .. }),
            "{refused}"
        );
        assert_eq!(to.entries(), before);
        let content = fs::read_to_string(to.at("state").join(used)).unwrap();
        assert_eq!(content, "used");
    }
}

/// Names that lead elsewhere, names of what no backup has, and one name twice.
#[tokio::test]
async fn a_member_without_a_place_is_refused_and_nothing_is_restored() {
    let long = format!("state/mcp/{}", "n".repeat(256));
    let deep = format!("state/mcp{}", "/d".repeat(8));
    for name in [
        "state/../../escaped",
        "state/mcp/../../../escaped",
        "/escaped",
        "state//escaped",
        "state/mcp/./a",
        "state/mcp/.hidden",
        "state/mcp/",
        "state/mcp/a\nb",
        "state/mcp/a\\b",
        "state/cache.key",
        "state/modules/scratch/a",
        "state/mcpx/a",
        "state/toolhold.db-wal",
        "configuration/a/b",
        "configuration/..",
        "elsewhere/a",
        "plain",
        ABOUT,
        &long,
        &deep,
    ] {
        let place = BackupPlace::new();
        let file = place.archive(&[("state/grants.toml", b"x"), (name, b"y")]);
        let refused = place.restore(&file).await.unwrap_err();
        assert!(
            matches!(refused, RestoreError::Member { .. }),
            "{name:?}: {refused}"
        );
        assert_eq!(place.entries(), [] as [&str; 0], "{name:?}");
        assert!(!place.at("escaped").exists());
    }
    let place = BackupPlace::new();
    let file = place.archive(&[("state/mcp/a", b"x"), ("state/mcp/a", b"y")]);
    let refused = place.restore(&file).await.unwrap_err();
    assert!(matches!(refused, RestoreError::Write { .. }), "{refused}");
    let file = place.archive(&[("state/mcp", b"x"), ("state/mcp/a", b"y")]);
    let refused = place.restore(&file).await.unwrap_err();
    assert!(matches!(refused, RestoreError::Write { .. }), "{refused}");
    assert_eq!(place.entries(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_file_that_is_no_backup_of_this_version_is_refused() {
    let place = BackupPlace::new();
    let refuse = async |file: &Path| {
        let refused = place.restore(file).await.unwrap_err();
        assert_eq!(place.entries(), [] as [&str; 0], "{refused}");
        refused
    };
    // A backup that was cut off or changed after it was made.
    let whole = place.archive(&[("state/grants.toml", &[b'x'; 5_000])]);
    let bytes = fs::read(&whole).unwrap();
    for changed in [bytes[..bytes.len() - 2_000].to_vec(), {
        let mut bytes = bytes.clone();
        bytes[4_000] ^= 1;
        bytes
    }] {
        fs::write(place.at("changed.tar"), changed).unwrap();
        let refused = refuse(&place.at("changed.tar")).await;
        assert!(matches!(refused, RestoreError::Archive(_)), "{refused}");
    }
    // What it says of itself is not first, too long, of a later form, or no JSON.
    let long = vec![b' '; (1 << 20) + 1];
    let cases: [(Members<'_>, &str); 5] = [
        (&[("state/grants.toml", b"x")], "no backup has a member"),
        (&[(ABOUT, &long)], "no backup has a member"),
        (
            &[(ABOUT, b"{\"format\": 2, \"later\": 1}")],
            "newer version",
        ),
        (&[(ABOUT, b"{\"format\": 1}")], "says of itself"),
        (&[], "no backup has a member"),
    ];
    for (members, expect) in cases {
        let refused = refuse(&place.archive_of(members)).await;
        assert!(refused.to_string().contains(expect), "{refused}");
    }
    // A database that is none.
    let file = place.archive(&[("state/toolhold.db", &[b'x'; 8_192])]);
    let refused = refuse(&file).await;
    assert!(matches!(refused, RestoreError::Database(_)), "{refused}");
    fs::create_dir(place.at("folder.tar")).unwrap();
    let refused = refuse(&place.at("folder.tar")).await;
    assert!(matches!(refused, RestoreError::Open { .. }), "{refused}");
}

#[tokio::test]
async fn a_database_is_not_restored_beside_another_one() {
    let from = BackupPlace::new();
    drop(from.store().await);
    let file = from.at("backup.tar");
    back_up(from.source(), &file).await.unwrap();
    let to = BackupPlace::new();
    let elsewhere = || Location::Postgres("postgres://user:secret@host/runs".to_owned().into());
    let target = RestoreTarget {
        database: elsewhere(),
        ..to.target()
    };
    let refused = restore(file, target).await.unwrap_err();
    assert!(
        matches!(refused, RestoreError::OtherDatabase { .. }),
        "{refused}"
    );
    assert!(!refused.to_string().contains("secret"), "{refused}");
    // With PostgreSQL, a backup has the files alone.
    from.write("state/grants.toml", "x");
    let source = BackupSource {
        database: elsewhere(),
        ..from.source()
    };
    let file = from.at("files.tar");
    let made = back_up(source, &file).await.unwrap();
    assert!(!made.has_database && made.files == 1);
    let target = RestoreTarget {
        database: elsewhere(),
        ..to.target()
    };
    assert_eq!(restore(file, target).await.unwrap().files, 2);
    assert!(!to.at("state").join(DATABASE_FILE).exists());
}
