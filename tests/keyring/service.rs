//! A session bus of its own, and a keyring on it that does as it is told: what `toolhold` sees of GNOME's keyring or
//! KWallet, and of one that misbehaves.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};
use hkdf::Hkdf;
use serde::{Serialize, Serializer};
use sha2::Sha256;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zbus::message::Header;
use zbus::object_server::SignalEmitter;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Signature, Type, Value};
use zbus::{ObjectServer, fdo};

const ROOT: &str = "/org/freedesktop/secrets";
const COLLECTION: &str = "/org/freedesktop/secrets/collection/usual";
const PROMPT: &str = "/org/freedesktop/secrets/prompt/one";
const NONE: &str = "/";
/// The key exchange is of numbers with so many bytes.
const KEY_BYTES: usize = 128;

/// A session bus. Programs that are installed are not started over it.
pub struct Bus {
    daemon: Child,
    address: String,
    _folder: TempDir,
}

impl Bus {
    /// `None` where the daemon is not installed.
    pub fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bus.conf");
        let configuration = format!(
            "<busconfig><type>session</type><listen>unix:dir={}</listen><policy context=\"default\">\
             <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/>\
             </policy></busconfig>",
            folder.path().display()
        );
        std::fs::write(&file, configuration).unwrap();
        let daemon = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", file.display()))
            .args(["--nofork", "--print-address"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut daemon = daemon.ok()?;
        let mut address = String::new();
        let output = BufReader::new(daemon.stdout.take().unwrap());
        { output }.read_line(&mut address).unwrap();
        Some(Self {
            daemon,
            address: address.trim().to_owned(),
            _folder: folder,
        })
    }

    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// What becomes of the question for the keyring's password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Password,
    Dismissed,
    None,
}

#[derive(Debug)]
pub struct State {
    /// Attributes and secrets.
    pub items: BTreeMap<u64, (HashMap<String, String>, Vec<u8>)>,
    pub is_locked: bool,
    /// What is locked is not found.
    pub hides: bool,
    /// Each secret is locked for each program.
    pub locks_items: bool,
    /// The connections that they are not locked for.
    allowed: HashSet<String>,
    /// The one that asked last for that.
    asking: Option<String>,
    pub answer: Answer,
    /// How often it asked for its password.
    pub asked: usize,
    /// Nothing is answered.
    pub is_silent: bool,
    /// How long a person thinks about it when something is to be deleted.
    pub confirms: Option<Duration>,
    /// What is to be deleted then.
    doomed: Option<u64>,
    /// Nothing is kept.
    pub fails: bool,
    /// So many bytes are said to be the secret.
    pub flood: Option<usize>,
    next: u64,
    /// By session.
    keys: HashMap<String, [u8; 16]>,
}

type Shared = Arc<Mutex<State>>;

/// The keyring. It stops when this is dropped.
pub struct Keyring {
    state: Shared,
    connection: zbus::Connection,
    runtime: Runtime,
}

impl Keyring {
    pub fn start(bus: &Bus) -> Self {
        let state = State {
            items: BTreeMap::new(),
            is_locked: false,
            hides: false,
            locks_items: false,
            allowed: HashSet::new(),
            asking: None,
            answer: Answer::Password,
            asked: 0,
            is_silent: false,
            confirms: None,
            doomed: None,
            fails: false,
            flood: None,
            next: 1,
            keys: HashMap::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let runtime = Runtime::new().unwrap();
        let connection = runtime.block_on(async {
            zbus::connection::Builder::address(bus.address())
                .unwrap()
                .serve_at(ROOT, Service(Arc::clone(&state)))
                .unwrap()
                .serve_at(COLLECTION, Collection(Arc::clone(&state)))
                .unwrap()
                .serve_at(PROMPT, Prompt(Arc::clone(&state)))
                .unwrap()
                .name("org.freedesktop.secrets")
                .unwrap()
                .build()
                .await
                .unwrap()
        });
        Self {
            state,
            connection,
            runtime,
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The secrets by their names.
    pub fn secrets(&self) -> BTreeMap<String, String> {
        let state = self.state();
        let secrets = state.items.values().map(|(attributes, secret)| {
            assert_eq!(attributes["service"], "toolhold");
            let secret = String::from_utf8(secret.clone()).unwrap();
            (attributes["variable"].clone(), secret)
        });
        secrets.collect()
    }

    /// A secret that another program put there.
    pub fn put(&self, variable: &str, secret: &[u8]) {
        let attributes = [("service", "toolhold"), ("variable", variable)];
        let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let number = self.state().added(attributes.into(), secret.to_vec());
        let served = Item(Arc::clone(&self.state), number);
        let server = self.connection.object_server();
        let added = self.runtime.block_on(server.at(item(number), served));
        assert!(added.unwrap());
    }
}

type Secret = (OwnedObjectPath, Vec<u8>, Vec<u8>, String);
/// The same, as it is answered.
type Answered = (OwnedObjectPath, Vec<u8>, Bytes, String);

/// Written at once, not byte by byte: megabytes of them are, too, before anybody's patience ends.
struct Bytes(Vec<u8>);

impl Type for Bytes {
    const SIGNATURE: &'static Signature = <Vec<u8>>::SIGNATURE;
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

fn path(text: &str) -> OwnedObjectPath {
    text.to_owned().try_into().unwrap()
}

fn item(number: u64) -> OwnedObjectPath {
    path(&format!("{ROOT}/item/{number}"))
}

fn locked() -> fdo::Error {
    fdo::Error::AccessDenied("locked".to_owned())
}

fn sender(header: &Header<'_>) -> String {
    header.sender().unwrap().to_string()
}

impl State {
    fn added(&mut self, attributes: HashMap<String, String>, secret: Vec<u8>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.items.insert(number, (attributes, secret));
        number
    }

    fn is_locked_for(&self, sender: &str) -> bool {
        self.locks_items && !self.allowed.contains(sender)
    }

    fn decrypted(&self, (session, vector, secret, _): &Secret) -> Vec<u8> {
        let key = self.keys[session.as_str()];
        let vector: [u8; 16] = vector.as_slice().try_into().unwrap();
        let cipher = cbc::Decryptor::<aes::Aes128>::new(&key.into(), &vector.into());
        cipher.decrypt_padded_vec::<Pkcs7>(secret).unwrap()
    }

    fn encrypted(&self, session: OwnedObjectPath, secret: &[u8]) -> Answered {
        let key = self.keys[session.as_str()];
        let vector = [7; 16];
        let cipher = cbc::Encryptor::<aes::Aes128>::new(&key.into(), &vector.into());
        let secret = match self.flood {
            Some(bytes) => vec![b'x'; bytes],
            None => cipher.encrypt_padded_vec::<Pkcs7>(secret),
        };
        (
            session,
            vector.to_vec(),
            Bytes(secret),
            "text/plain".to_owned(),
        )
    }
}

struct Service(Shared);

#[zbus::interface(name = "org.freedesktop.Secret.Service")]
impl Service {
    /// Our secret number is 1, so the public one is 2, and what both know is the client's public one.
    fn open_session(&self, algorithm: &str, input: OwnedValue) -> (OwnedValue, OwnedObjectPath) {
        assert_eq!(algorithm, "dh-ietf1024-sha256-aes128-cbc-pkcs7");
        let public: Vec<u8> = input.try_into().unwrap();
        let mut known = vec![0; KEY_BYTES - public.len()];
        known.extend(public);
        let mut key = [0; 16];
        let derived = Hkdf::<Sha256>::new(None, &known).expand(&[], &mut key);
        derived.unwrap();
        let mut state = self.0.lock().unwrap();
        let session = format!("{ROOT}/session/{}", state.keys.len());
        state.keys.insert(session.clone(), key);
        let output = Value::from(vec![2_u8]).try_into().unwrap();
        (output, path(&session))
    }

    async fn search_items(
        &self,
        attributes: HashMap<String, String>,
        #[zbus(header)] header: Header<'_>,
    ) -> (Vec<OwnedObjectPath>, Vec<OwnedObjectPath>) {
        if self.0.lock().unwrap().is_silent {
            std::future::pending::<()>().await;
        }
        let state = self.0.lock().unwrap();
        let is_meant = |own: &HashMap<String, String>| {
            let mut wanted = attributes.iter();
            wanted.all(|(key, value)| own.get(key) == Some(value))
        };
        let found = state.items.iter().filter(|(_, (own, _))| is_meant(own));
        let found = found.map(|(number, _)| item(*number)).collect();
        if state.is_locked && state.hides {
            (Vec::new(), Vec::new())
        } else if state.is_locked || state.is_locked_for(&sender(&header)) {
            (Vec::new(), found)
        } else {
            (found, Vec::new())
        }
    }

    fn unlock(
        &self,
        objects: Vec<OwnedObjectPath>,
        #[zbus(header)] header: Header<'_>,
    ) -> (Vec<OwnedObjectPath>, OwnedObjectPath) {
        let mut state = self.0.lock().unwrap();
        let sender = sender(&header);
        let are_items = objects.iter().any(|object| object.as_str() != COLLECTION);
        if state.is_locked || are_items && state.is_locked_for(&sender) {
            state.asking = Some(sender);
            return (Vec::new(), path(PROMPT));
        }
        (objects, path(NONE))
    }

    fn read_alias(&self, name: &str) -> OwnedObjectPath {
        let is_there = name == "default" && self.0.lock().is_ok();
        path(if is_there { COLLECTION } else { NONE })
    }
}

struct Collection(Shared);

#[zbus::interface(name = "org.freedesktop.Secret.Collection")]
impl Collection {
    async fn create_item(
        &self,
        properties: HashMap<String, OwnedValue>,
        secret: Secret,
        replace: bool,
        #[zbus(object_server)] server: &ObjectServer,
    ) -> fdo::Result<(OwnedObjectPath, OwnedObjectPath)> {
        assert!(replace);
        let number = {
            let mut state = self.0.lock().unwrap();
            if state.is_locked {
                return Err(locked());
            }
            if state.fails {
                return Err(fdo::Error::Failed("the disk is full".to_owned()));
            }
            let mut properties = properties;
            let attributes = properties.remove("org.freedesktop.Secret.Item.Attributes");
            let attributes: HashMap<String, String> = attributes.unwrap().try_into().unwrap();
            let secret = state.decrypted(&secret);
            state.added(attributes, secret)
        };
        let shared = Arc::clone(&self.0);
        server.at(item(number), Item(shared, number)).await?;
        Ok((item(number), path(NONE)))
    }

    #[zbus(property)]
    fn locked(&self) -> bool {
        self.0.lock().unwrap().is_locked
    }
}

struct Item(Shared, u64);

#[zbus::interface(name = "org.freedesktop.Secret.Item")]
impl Item {
    fn get_secret(&self, session: OwnedObjectPath) -> fdo::Result<(Answered,)> {
        let state = self.0.lock().unwrap();
        match state.items.get(&self.1) {
            Some((_, secret)) if !state.is_locked => Ok((state.encrypted(session, secret),)),
            _ => Err(locked()),
        }
    }

    fn set_secret(&self, secret: Secret) -> fdo::Result<()> {
        let mut state = self.0.lock().unwrap();
        if state.is_locked {
            return Err(locked());
        }
        if state.fails {
            return Err(fdo::Error::Failed("the disk is full".to_owned()));
        }
        let secret = state.decrypted(&secret);
        state.items.get_mut(&self.1).unwrap().1 = secret;
        Ok(())
    }

    fn delete(&self) -> OwnedObjectPath {
        let mut state = self.0.lock().unwrap();
        if state.confirms.is_some() {
            state.doomed = Some(self.1);
            return path(PROMPT);
        }
        state.items.remove(&self.1);
        path(NONE)
    }

    #[zbus(property)]
    fn locked(&self) -> bool {
        self.0.lock().unwrap().is_locked
    }

    #[zbus(property)]
    fn attributes(&self) -> HashMap<String, String> {
        let state = self.0.lock().unwrap();
        let item = state.items.get(&self.1);
        item.map(|(own, _)| own.clone()).unwrap_or_default()
    }
}

struct Prompt(Shared);

#[zbus::interface(name = "org.freedesktop.Secret.Prompt")]
impl Prompt {
    async fn prompt(
        &self,
        window: &str,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<()> {
        assert_eq!(window, "");
        let thinks = self.0.lock().unwrap().confirms;
        tokio::time::sleep(thinks.unwrap_or_default()).await;
        let answer = {
            let mut state = self.0.lock().unwrap();
            state.asked += 1;
            if state.answer == Answer::Password {
                state.is_locked = false;
                let asking = state.asking.take();
                state.allowed.extend(asking);
                if let Some(doomed) = state.doomed.take() {
                    state.items.remove(&doomed);
                }
            }
            state.answer
        };
        if answer != Answer::None {
            let dismissed = answer == Answer::Dismissed;
            Self::completed(&emitter, dismissed, Value::from("")).await?;
        }
        Ok(())
    }

    #[zbus(signal)]
    async fn completed(
        emitter: &SignalEmitter<'_>,
        dismissed: bool,
        result: Value<'_>,
    ) -> zbus::Result<()>;
}
