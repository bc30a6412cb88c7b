//! Every target over its seeds and over bytes without meaning: what `cargo xtask fuzz` begins with,
//! on machines that cannot run it too.

use crate::process_alone;
use std::fs;
use std::path::Path;
use toolhold_fuzz::TARGETS;

#[test]
fn every_target_holds_for_its_seeds() {
    let _alone = process_alone();
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("seeds")
            .join(name);
        let mut seeds = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            target(&fs::read(entry.unwrap().path()).unwrap());
            seeds += 1;
        }
        assert!(seeds > 0, "{name} has no seeds");
    }
}

#[test]
fn every_target_holds_for_noise() {
    let _alone = process_alone();
    for (name, target) in TARGETS {
        // A generator of its own, so that every run sees the same bytes.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for length in 0..100 {
            let noise: Vec<u8> = (0..length * 8)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state.to_le_bytes()[0]
                })
                .collect();
            let held = std::panic::catch_unwind(|| target(&noise));
            assert!(held.is_ok(), "{name} does not hold for {noise:?}");
        }
    }
}

#[test]
fn every_target_is_listed() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut files: Vec<_> = fs::read_dir(targets)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .display()
                .to_string()
        })
        .collect();
    files.sort();
    let listed: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, listed);
}
