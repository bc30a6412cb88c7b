//! A modules folder that somebody changes while it is loaded.

use super::{SLOTS, guest};
use crate::types;
use arbitrary::Unstructured;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use toolhold_admission::own_work;
use toolhold_hostile::components;

/// The name of a hostile module.
pub fn name(slot: usize) -> String {
    format!("h{slot}")
}

/// Removes everything in `folder`.
pub fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The folder, and who changes it.
#[derive(Debug)]
pub struct ChangingFolder {
    folder: PathBuf,
    components: Vec<Vec<u8>>,
    random: StdRng,
}

impl ChangingFolder {
    pub fn new(folder: &Path, components: Vec<Vec<u8>>, seed: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            components,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Changes one module: another component, none, half of one, or a file that is no file.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn change(&mut self) -> io::Result<()> {
        let path = self
            .folder
            .join(format!("{}.wasm", name(self.random.random_range(0..SLOTS))));
        let kind = self.random.random_range(0..20);
        let bytes = self.component();
        own_work(move || {
            if path.is_dir() {
                fs::remove_dir(&path)?;
            } else if fs::symlink_metadata(&path).is_ok() {
                fs::remove_file(&path)?;
            }
            match kind {
                0 => Ok(()),
                1 => fs::create_dir(&path),
                2 => std::os::unix::fs::symlink("/dev/zero", &path),
                3 => std::os::unix::fs::symlink("../outside/secret.txt", &path),
                4 => fs::write(&path, &bytes[..bytes.len() / 2]),
                5 => make_fifo(&path),
                _ => fs::write(&path, &bytes),
            }
        })
        .await
        .map_err(io::Error::from)?
    }

    /// Some component: by the grammar, by wasm-smith, of any types, the attackers of the hostile suite, or one of
    /// these with bytes exchanged.
    fn component(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let mut entropy = vec![0; 2_048];
        random.fill_bytes(&mut entropy);
        let mut u = Unstructured::new(&entropy);
        let mut bytes = match random.random_range(0..10) {
            0..4 => guest::component(&mut u)
                .ok()
                .and_then(|text| wat::parse_str(text).ok()),
            4..6 => self.components.choose(random).cloned(),
            6 => types::echoing(&mut u)
                .ok()
                .and_then(|text| wat::parse_str(text).ok()),
            7 => Some(components::PROBE.to_vec()),
            8 => Some(components::FETCHER.to_vec()),
            _ => None,
        }
        .unwrap_or_else(|| components::ATTACKER.to_vec());
        if random.random_ratio(1, 6) {
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
        }
        bytes
    }
}

/// With a system tool, since std cannot; where there is none, the module is missing for once.
fn make_fifo(path: &Path) -> io::Result<()> {
    std::process::Command::new("mkfifo")
        .arg(path)
        .status()
        .map(drop)
}
