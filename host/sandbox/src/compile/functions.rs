//! Functions that the last compilation of an author's module made.
//!
//! A module in Python is an interpreter and a few kilobytes of the author's: an edit changes data and leaves the code of
//! nearly every function as it was. So for an author, who waits for it, the compiler takes such functions from a pack of
//! the module's last compilation. Cranelift looks them up by SHA-256 over everything that a function's code depends on,
//! so what comes out is, byte for byte, what it makes without a pack. One in twenty is made again all the same: Cranelift
//! does not clear the exception tables of a trampoline before it uses its memory for the next function, and they are part
//! of that one's key, though its code does not depend on them. Which ones these are differs with the order of threads.
//!
//! A pack is native code, and authenticated as such ([`super::cache`]). Only the module whose compilation made it is
//! compiled with it. It holds what its last compilation used, so that nothing has to look for what is of no use any more.
//! It is a row of functions, sorted: a key (32 bytes), a length (4 bytes, little endian), and so many bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum bytes of a pack. That of a module in Python has 34 MB, the largest that is known.
pub const MAX_PACK_BYTES: usize = 128 << 20;

const KEY_BYTES: usize = 32;
const LENGTH_BYTES: usize = 4;

type FunctionKey = [u8; KEY_BYTES];

/// How many functions a compilation took from a pack, and how many it made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FunctionCounts {
    pub taken: u64,
    pub made: u64,
}

/// What wasmtime's compiler looks functions up in.
pub(super) struct FunctionStore {
    pack: Vec<u8>,
    packed: HashMap<FunctionKey, PackedFunction>,
    made: Mutex<MadeFunctions>,
    /// Maximum bytes of what [`Self::write`] writes.
    limit: usize,
    taken: AtomicU64,
}

struct PackedFunction {
    bytes: Range<usize>,
    is_used: AtomicBool,
}

#[derive(Default)]
struct MadeFunctions {
    functions: BTreeMap<FunctionKey, Vec<u8>>,
    /// Of `functions`, in a pack.
    bytes: usize,
    count: u64,
}

impl FunctionStore {
    /// With the functions of this pack, which may be empty.
    pub fn new(pack: Vec<u8>, limit: usize) -> Self {
        let packed = parse(&pack);
        Self {
            pack,
            packed,
            made: Mutex::default(),
            limit,
            taken: AtomicU64::new(0),
        }
    }

    pub fn counts(&self) -> FunctionCounts {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        FunctionCounts {
            taken: self.taken.load(Ordering::Relaxed),
            made: made.count,
        }
    }

    /// Writes the pack of what was used since [`Self::new`]: taken first, then made, as far as there is room. Writes
    /// nothing if that is the pack from before.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let used = self
            .packed
            .iter()
            .filter(|(_, function)| function.is_used.load(Ordering::Relaxed));
        let mut functions: Vec<(&FunctionKey, &[u8])> = used
            .filter_map(|(key, function)| Some((key, self.pack.get(function.bytes.clone())?)))
            .collect();
        if made.functions.is_empty() && functions.len() == self.packed.len() {
            return Ok(());
        }
        let mut room = self.limit;
        let made = made.functions.iter();
        functions.extend(made.map(|(key, bytes)| (key, bytes.as_slice())));
        functions.retain(|(_, bytes)| {
            let left = room.checked_sub(in_pack(bytes));
            room = left.unwrap_or(room);
            left.is_some()
        });
        functions.sort_unstable_by_key(|(key, _)| *key);
        for (key, bytes) in functions {
            let Ok(length) = u32::try_from(bytes.len()) else {
                continue;
            };
            to.write_all(key)?;
            to.write_all(&length.to_le_bytes())?;
            to.write_all(bytes)?;
        }
        Ok(())
    }
}

/// Bytes that a function takes in a pack.
fn in_pack(function: &[u8]) -> usize {
    KEY_BYTES + LENGTH_BYTES + function.len()
}

/// Where each function of a pack lies. What follows a damaged one is none.
fn parse(pack: &[u8]) -> HashMap<FunctionKey, PackedFunction> {
    let mut packed = HashMap::new();
    let mut rest = pack;
    while let Some((key, after)) = rest.split_first_chunk::<KEY_BYTES>()
        && let Some((length, after)) = after.split_first_chunk::<LENGTH_BYTES>()
        && let Ok(length) = usize::try_from(u32::from_le_bytes(*length))
        && let Some(left) = after.get(length..)
    {
        let begin = pack.len() - after.len();
        let function = PackedFunction {
            bytes: begin..begin + length,
            is_used: AtomicBool::new(false),
        };
        packed.insert(*key, function);
        rest = left;
    }
    packed
}

impl wasmtime::CacheStore for FunctionStore {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let function = self.packed.get(key)?;
        function.is_used.store(true, Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.pack.get(function.bytes.clone()).map(Cow::Borrowed)
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        let Ok(key) = FunctionKey::try_from(key) else {
            return false;
        };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.count += 1;
        let bytes = made.bytes + in_pack(&value);
        // Beyond the limit it is not even kept in memory.
        if bytes > self.limit || made.functions.contains_key(&key) {
            return false;
        }
        made.bytes = bytes;
        made.functions.insert(key, value);
        true
    }
}

impl fmt::Debug for FunctionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionStore")
            .field("packed", &self.packed.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::compiled;
    use super::*;
    use crate::engine::Variant;
    use std::fmt::Write as _;
    use std::sync::Arc;
    use toolhold_policy::limits::Limits;
    use wasmtime::CacheStore as _;

    const FUNCTIONS: u64 = 64;

    /// A component with functions that differ from each other, and data: an edit of the author's changes the data, or the
    /// constant of one function.
    fn component(data: &str, edited: Option<u64>) -> Vec<u8> {
        let mut text = format!("(component (core module (memory 1) (data (i32.const 8) {data:?})");
        for n in 0..FUNCTIONS {
            let constant = if edited == Some(n) { 1_000 } else { n };
            write!(
                text,
                "(func (export \"f{n}\") (param i32) (result i32)
                   (i32.load (i32.add (local.get 0) (i32.const {constant})))
                   (call {callee})
                   (i32.mul (i32.const {n})))",
                callee = (n + 1) % FUNCTIONS,
            )
            .unwrap();
        }
        text += "))";
        wat::parse_str(text).unwrap()
    }

    fn compile(component: &[u8], pack: &[u8], limit: usize) -> (Vec<u8>, FunctionCounts, Vec<u8>) {
        let store = Arc::new(FunctionStore::new(pack.to_vec(), limit));
        let variant = Variant::of(&Limits::default());
        let artefact = compiled(variant, component, Some(store.clone())).unwrap();
        let mut pack = Vec::new();
        store.write(&mut pack).unwrap();
        (artefact, store.counts(), pack)
    }

    fn plain(component: &[u8]) -> Vec<u8> {
        compiled(Variant::of(&Limits::default()), component, None).unwrap()
    }

    /// Nearly all: the keys of a few differ with the order of threads.
    fn assert_taken(counts: FunctionCounts, cold: FunctionCounts, edited: u64) {
        assert_eq!(counts.taken + counts.made, cold.made);
        let tolerated = cold.made / 4 + edited;
        assert!(
            (edited..=tolerated).contains(&counts.made),
            "{counts:?} of {cold:?}"
        );
    }

    #[test]
    fn an_edit_compiles_what_it_changed_and_nothing_else() {
        let first = component("one", None);
        let (artefact, cold, pack) = compile(&first, &[], MAX_PACK_BYTES);
        assert!(artefact == plain(&first), "a store changes no code");
        assert_eq!(cold.taken, 0);
        assert!(cold.made >= FUNCTIONS, "{cold:?}");

        let data = component("two", None);
        let (artefact, counts, _) = compile(&data, &pack, MAX_PACK_BYTES);
        assert!(artefact == plain(&data), "nor do functions that were taken");
        assert_taken(counts, cold, 0);

        let code = component("one", Some(7));
        let (artefact, counts, edited) = compile(&code, &pack, MAX_PACK_BYTES);
        assert!(artefact == plain(&code));
        assert_taken(counts, cold, 1);
        // The function from before went.
        let functions = parse(&edited).len() as u64;
        assert!(functions <= counts.taken + counts.made, "{functions}");
        let (artefact, counts, _) = compile(&code, &edited, MAX_PACK_BYTES);
        assert!(artefact == plain(&code));
        assert_taken(counts, cold, 0);
    }

    /// As compilers use a store, without one.
    #[test]
    fn a_pack_holds_what_was_used_and_is_not_written_twice() {
        let write = |store: &FunctionStore| {
            let mut pack = Vec::new();
            store.write(&mut pack).unwrap();
            pack
        };
        let [one, two, three] = [[1; KEY_BYTES], [2; KEY_BYTES], [3; KEY_BYTES]];
        let store = FunctionStore::new(Vec::new(), MAX_PACK_BYTES);
        assert!(store.get(&one).is_none());
        assert!(store.insert(&two, b"second".to_vec()) && store.insert(&one, b"first".to_vec()));
        assert!(
            store.get(&one).is_none(),
            "what comes out does not depend on the order of threads"
        );
        let pack = write(&store);
        let store = FunctionStore::new(pack.clone(), MAX_PACK_BYTES);
        assert_eq!(store.get(&one).as_deref(), Some(&b"first"[..]));
        assert_eq!(store.get(&two).as_deref(), Some(&b"second"[..]));
        assert!(write(&store).is_empty(), "it is the one from before");
        let store = FunctionStore::new(pack, MAX_PACK_BYTES);
        store.get(&one);
        store.insert(&three, b"third".to_vec());
        let kept = parse(&write(&store));
        assert!(kept.contains_key(&one) && kept.contains_key(&three) && kept.len() == 2);
        assert_eq!(store.counts(), FunctionCounts { taken: 1, made: 1 });
    }

    #[test]
    fn a_pack_stays_within_its_limit() {
        let bytes = component("one", None);
        let (_, cold, pack) = compile(&bytes, &[], MAX_PACK_BYTES);
        let limit = pack.len() / 2;
        let (artefact, _, half) = compile(&bytes, &[], limit);
        assert!(artefact == plain(&bytes));
        assert!((1..=limit).contains(&half.len()), "{}", half.len());
        let (artefact, counts, after) = compile(&bytes, &half, limit);
        assert!(artefact == plain(&bytes));
        assert_eq!(counts.taken + counts.made, cold.made);
        assert!(counts.taken > 0 && after.len() <= limit);
        // As of a version of this program whose limit was larger.
        let (_, _, smaller) = compile(&component("one", Some(7)), &pack, limit);
        assert!(
            (1..=limit).contains(&smaller.len()),
            "{} {limit}",
            smaller.len()
        );
    }

    #[test]
    fn whatever_bytes_a_pack_has_it_is_read() {
        let bytes = component("one", None);
        let (_, _, pack) = compile(&bytes, &[], MAX_PACK_BYTES);
        let functions = parse(&pack).len();
        assert!(functions > 0);
        for end in 0..pack.len() {
            assert!(parse(&pack[..end]).len() < functions, "{end}");
        }
        assert!(parse(&[0xff; 100]).is_empty());
        let store = FunctionStore::new([0xff; 100].to_vec(), MAX_PACK_BYTES);
        assert!(store.get(&[0xff; KEY_BYTES]).is_none());
        assert!(!store.insert(b"short", Vec::new()));
    }
}
