//! Rows 17 and 18: malicious files in the modules folder.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, PseudoRandom, invoke, ms};
use crate::process;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toolhold_policy::Digest;
use toolhold_policy::Limits;
use toolhold_sandbox::{LoadError, Policy, Registry};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 17,
        name: "files_that_are_no_component",
        attack: "core module, .cwasm, ELF, text, links, large, empty",
        must: "refused with the reason; others load",
        company: Company::Others,
        tries: |lab| Box::pin(files_that_are_no_component(lab)),
    },
    Attack {
        row: 17,
        name: "bombs",
        attack: "100 MB; 5 000 nested components; type bombs",
        must: "refused in seconds; others answer",
        company: Company::One,
        tries: |lab| Box::pin(bombs(lab)),
    },
    Attack {
        row: 17,
        name: "truncated_files",
        attack: "a component cut off at every byte",
        must: "refused; never a panic",
        company: Company::Others,
        tries: |lab| Box::pin(truncated_files(lab)),
    },
    Attack {
        row: 17,
        name: "random_bytes",
        attack: "random bytes; a component with flipped bytes",
        must: "refused, or runs in its limits",
        company: Company::Others,
        tries: |lab| Box::pin(random_bytes(lab)),
    },
    Attack {
        row: 17,
        name: "file_being_written",
        attack: "a file that is written while it is read",
        must: "refused or whole, never half",
        company: Company::Others,
        tries: |lab| Box::pin(file_being_written(lab)),
    },
    Attack {
        row: 18,
        name: "file_being_swapped",
        attack: "a file swapped while it is loaded, over and over",
        must: "what runs is what was hashed",
        company: Company::Others,
        tries: |lab| Box::pin(file_being_swapped(lab)),
    },
];

/// Loads `folder` beside the modules of `arena`, on the same engine.
async fn load(arena: &Arena, folder: &Path, policy: Policy) -> Result<Registry, AttackFailure> {
    let registry = Registry::new(arena.engine.clone(), None, policy);
    registry.load_folder(folder, None, &|_| ()).await?;
    Ok(registry)
}

async fn files_that_are_no_component(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = lab.folder()?;
    let folder = folder.path();
    let good = components::parse(components::COMPUTE)?;
    let elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".as_slice();
    let large = vec![0; 200_000];
    // Each with a part of the reason that must be given.
    let files: [(&str, &[u8], &str); 11] = [
        ("text.wasm", b"hello", "does not begin with the Wasm header"),
        ("empty.wasm", b"", "the file is empty"),
        ("core.wasm", b"\0asm\x01\0\0\0", "core module"),
        ("future.wasm", b"\0asm\x0e\0\x01\0", "version"),
        ("cut.wasm", &good[..good.len() - 5], "does not compile"),
        ("native.cwasm", elf, "precompiled"),
        ("renamed.wasm", elf, "precompiled"),
        ("large.wasm", &large, "200000 bytes"),
        ("UPPER.wasm", &good, "cannot name a module"),
        ("script.wasm", b"#!/bin/sh\nid\n", "Wasm header"),
        ("wat.wasm", b"(component)", "Wasm header"),
    ];
    for (name, bytes, _) in files {
        fs::write(folder.join(name), bytes)?;
    }
    fs::write(folder.join("good.wasm"), &good)?;
    std::os::unix::fs::symlink("/etc/hostname", folder.join("link.wasm"))?;
    let manifests = [
        ("good", "", "already taken"),
        ("typo", "[limits]\nfule = 1", "fule"),
        ("escape", "component = \"../good.wasm\"", "cannot be read"),
        (
            "absolute",
            "component = \"/etc/hostname\"",
            "must name a .wasm",
        ),
        ("long", &"#".repeat(100_000), "100000 bytes"),
    ];
    for (name, manifest, _) in manifests {
        fs::create_dir(folder.join(name))?;
        fs::write(folder.join(name).join("module.toml"), manifest)?;
        fs::write(folder.join(name).join(format!("{name}.wasm")), &good)?;
    }

    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let policy = Policy {
        limits: Limits {
            component_bytes: 100_000,
            ..Limits::default()
        },
        ..Policy::default()
    };
    let registry = load(&arena, folder, policy).await?;
    let loaded: Vec<_> = registry
        .modules()
        .iter()
        .map(|m| m.origin.raw().to_owned())
        .collect();
    ensure(loaded.len() == 1, || format!("{loaded:?} were loaded"))?;
    let mut expected: Vec<_> = files.iter().map(|(name, _, why)| (*name, *why)).collect();
    expected.extend(manifests.iter().map(|(name, _, why)| (*name, *why)));
    expected.push(("link.wasm", "cannot be read"));
    // `good` is two candidates; which one comes first is the folder's order.
    for (name, why) in expected.iter().filter(|(name, _)| *name != "good") {
        let failures = registry.failures();
        let failed = failures
            .iter()
            .find(|failed| failed.origin.raw().ends_with(&format!("/{name}")))
            .ok_or_else(|| AttackFailure::Broke(format!("{name} was not refused")))?;
        let reason = failed.error.to_string();
        ensure(reason.contains(why), || format!("{name}: {reason}"))?;
    }
    ensure(registry.failures().len() == expected.len(), || {
        format!("{:?}", registry.failures())
    })?;
    arena.unharmed().await?;
    Ok(format!("{} refused with the reason", expected.len()))
}

async fn bombs(lab: &Lab) -> Result<String, AttackFailure> {
    /// "In seconds."
    const SECONDS: Duration = Duration::from_secs(10);
    // Where the compiler is a process of its own, what the host needs for 100 MB that it refuses
    // unread and 32 MiB that it hands on; else what a component needs that is large and honest.
    let allowed: u64 = if lab.program().is_some() {
        192 << 20
    } else {
        1 << 30
    };
    let mut bombs: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let hundred_megabytes = {
        let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
        bytes.resize(100_000_000, 0);
        bytes
    };
    // One custom section that fills what the size limit leaves.
    let padded = {
        let mut bytes = b"\0asm\x0d\0\x01\0\0".to_vec();
        bytes.extend(components::leb128(32 << 20));
        bytes.resize(bytes.len() + (32 << 20), 0);
        bytes
    };
    bombs.insert("large", hundred_megabytes);
    bombs.insert("padded", padded);
    bombs.insert("nested", components::nested_components(5_000));
    let many = components::many_components(5_000);
    bombs.insert("many", components::parse(&many)?);
    for (name, levels) in [("types_12", 12), ("types_14", 14), ("types_40", 40)] {
        bombs.insert(name, components::parse(&components::type_bomb(levels))?);
    }
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let (mut longest, mut slowest, mut most) = (Duration::ZERO, Duration::ZERO, 0);
    let count = bombs.len();
    for (name, bytes) in bombs {
        let folder = lab.folder()?;
        fs::write(folder.path().join(format!("{name}.wasm")), bytes)?;
        let before = process::resident_bytes();
        process::forget_peak();
        let started = Instant::now();
        let (registry, meanwhile) = load_beside_calls(&arena, folder.path()).await?;
        let took = started.elapsed();
        let loaded = registry.modules().len();
        ensure(loaded == 0, || format!("{name} was loaded"))?;
        for failed in registry.failures() {
            ensure(failed.error.to_string().len() < 2_000, || {
                format!("{name}: an unreadable reason")
            })?;
        }
        ensure(took < SECONDS, || {
            format!("refusing {name} took {}", ms(took))
        })?;
        ensure(meanwhile < lab.grace(), || {
            format!("a benign call beside {name} took {}", ms(meanwhile))
        })?;
        if let (Some(peak), Some(before)) = (process::peak_bytes(), before) {
            let more = peak.saturating_sub(before);
            ensure(more < allowed, || {
                format!("refusing {name} took {} MiB of memory", more >> 20)
            })?;
            most = more.max(most);
        }
        (longest, slowest) = (longest.max(took), slowest.max(meanwhile));
    }
    arena.unharmed().await?;
    Ok(format!(
        "{count} refused, each within {} and {} MiB; slowest benign call {}",
        ms(longest),
        most >> 20,
        ms(slowest)
    ))
}

/// Loads a folder while a benign module is called all the time; the slowest of its calls.
async fn load_beside_calls(
    arena: &Arena,
    folder: &Path,
) -> Result<(Registry, Duration), AttackFailure> {
    let done = AtomicBool::new(false);
    let loading = async {
        let registry = load(arena, folder, Policy::default()).await;
        done.store(true, Ordering::Relaxed);
        registry
    };
    let beside = async {
        let mut slowest = Duration::ZERO;
        while !done.load(Ordering::Relaxed) {
            let asked = Instant::now();
            arena.value("benign.count", json!({})).await?;
            slowest = slowest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, AttackFailure>(slowest)
    };
    let (registry, slowest) = tokio::join!(loading, beside);
    Ok((registry?, slowest?))
}

/// Loads hostile bytes: the result must be a refusal, or a module that stays within its limits.
async fn tried(arena: &mut Arena, name: &str, bytes: Vec<u8>) -> Result<bool, AttackFailure> {
    match arena.load(name, bytes).await {
        Ok(()) => {
            let tools: Vec<_> = arena
                .registry
                .module(name)
                .map(|module| module.tools.iter().map(|t| t.name.clone()).collect())
                .unwrap_or_default();
            for tool in tools {
                // Every call must return.
                arena
                    .call_within(&tool, json!({}), Some(Duration::from_millis(20)))
                    .await;
            }
            Ok(true)
        }
        Err(LoadError::Read { source }) => Err(source.into()),
        Err(_) => Ok(false),
    }
}

async fn truncated_files(lab: &Lab) -> Result<String, AttackFailure> {
    let mut arena = lab.against(components::COMPUTE, |_| ()).await?;
    let whole = components::parse(components::CLOCKS)?;
    let mut loaded = Vec::new();
    let ends: Vec<usize> = (0..whole.len()).step_by(lab.times(7, 1)).collect();
    for &end in &ends {
        if tried(&mut arena, &format!("cut_{end}"), whole[..end].to_vec()).await? {
            loaded.push(end);
        }
    }
    // A cut between two exports is a smaller component, whole in itself; only there may one load.
    ensure(loaded.len() <= 3, || {
        format!("cut after {loaded:?} bytes, it was loaded")
    })?;
    // The guest is large: boundaries, and some bytes beside them.
    let cuts = lab.times(10, 200);
    let step = components::ATTACKER.len() / cuts;
    for end in (0..components::ATTACKER.len()).step_by(step) {
        let cut = components::ATTACKER[..end].to_vec();
        let loaded = tried(&mut arena, &format!("guest_{end}"), cut).await?;
        ensure(!loaded, || format!("cut after {end} bytes, it was loaded"))?;
    }
    arena.unharmed().await?;
    Ok(format!("cut at {} places, refused", ends.len() + cuts))
}

async fn random_bytes(lab: &Lab) -> Result<String, AttackFailure> {
    /// Memory of each module in bytes. A component with flipped bytes fills all of it; the limit itself is tried by row 4.
    const MEMORY: u64 = 4 << 20;
    let mut arena = lab
        .against(components::COMPUTE, |l| l.memory_bytes = MEMORY)
        .await?;
    let mut dice = PseudoRandom(0x5eed);
    let rounds = lab.times(40, 300);
    let whole = components::parse(components::GROWTH)?;
    let mut ran = 0;
    for round in 0..rounds {
        let mut bytes: Vec<u8> = (0..dice.below(2_000))
            .map(|_| dice.below(256) as u8)
            .collect();
        if round % 2 == 0 {
            // After a header that lets them in.
            bytes.splice(0..0, b"\0asm\x0d\0\x01\0".iter().copied());
        }
        let loaded = tried(&mut arena, &format!("random_{round}"), bytes).await?;
        ensure(!loaded, || format!("round {round} was loaded"))?;

        let mut flipped = whole.clone();
        for _ in 0..=dice.below(3) {
            let at = dice.below(flipped.len() as u64) as usize;
            flipped[at] ^= 1 << dice.below(8);
        }
        let loaded = tried(&mut arena, &format!("flipped_{round}"), flipped).await?;
        ran += usize::from(loaded);
    }
    arena.unharmed().await?;
    Ok(format!(
        "{} refused; {ran} still components, held in limits",
        2 * rounds - ran
    ))
}

async fn file_being_written(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = lab.folder()?;
    let path = folder.path().join("slow.wasm");
    let bytes = components::parse(components::CLOCKS)?;
    let whole = Digest::of(&bytes);
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (stop, path) = (stop.clone(), path.clone());
        fs::write(&path, b"")?;
        std::thread::spawn(move || -> std::io::Result<()> {
            while !stop.load(Ordering::Relaxed) {
                let mut file = fs::File::create(&path)?;
                for piece in bytes.chunks(64) {
                    file.write_all(piece)?;
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            Ok(())
        })
    };
    let mut outcome = Ok([0, 0]);
    for _ in 0..lab.times(100, 300) {
        outcome = match (
            outcome,
            load(&arena, folder.path(), Policy::default()).await,
        ) {
            (Ok([refused, loaded]), Ok(registry)) => match registry.module("slow") {
                Some(module) if module.digest != whole => Err(AttackFailure::Broke(format!(
                    "the loaded component of {} bytes matches no file that was written",
                    module.size
                ))),
                Some(_) => Ok([refused, loaded + 1]),
                None => Ok([refused + 1, loaded]),
            },
            (Ok(_), Err(fault)) => Err(fault),
            (broke, _) => broke,
        };
    }
    stop.store(true, Ordering::Relaxed);
    let wrote = writer
        .join()
        .map_err(|_| AttackFailure::Broke("the writer panicked".into()))?;
    wrote?;
    let [refused, loaded] = outcome?;
    arena.unharmed().await?;
    Ok(format!(
        "half written {refused} times, whole {loaded}: never else"
    ))
}

async fn file_being_swapped(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = lab.folder_in_memory()?;
    let aside = lab.folder_in_memory()?;
    let path = folder.path().join("swapped.wasm");
    let variants: Vec<_> = [1, 2]
        .into_iter()
        .map(|number| Ok((number, components::parse(&components::which(number))?)))
        .collect::<Result<_, AttackFailure>>()?;
    let digests: Vec<_> = variants
        .iter()
        .map(|(number, bytes)| (Digest::of(bytes), *number))
        .collect();
    let files: Vec<_> = ["one", "two"].map(|name| aside.path().join(name)).into();
    for (file, (_, bytes)) in files.iter().zip(&variants) {
        fs::write(file, bytes)?;
    }
    fs::copy(&files[0], &path)?;
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, next) = (stop.clone(), aside.path().join("next"));
        std::thread::spawn(move || -> std::io::Result<u32> {
            let mut swaps = 0;
            while !stop.load(Ordering::Relaxed) {
                // In one step, by a name for what is written already: as fast as it can be done.
                fs::hard_link(&files[swaps as usize % 2], &next)?;
                fs::rename(&next, &path)?;
                swaps += 1;
                std::thread::sleep(Duration::from_micros(100));
            }
            Ok(swaps)
        })
    };
    let mut seen = [0, 0];
    let mut outcome = Ok(());
    for _ in 0..lab.times(100, 300) {
        outcome = match load(&arena, folder.path(), Policy::default()).await {
            Ok(registry) => matches(&registry, &digests, &mut seen).await,
            Err(fault) => Err(fault),
        };
        if outcome.is_err() {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapper
        .join()
        .map_err(|_| AttackFailure::Broke("the swapper panicked".into()))??;
    outcome?;
    ensure(seen[0] > 0 && seen[1] > 0, || {
        format!("only one variant was ever loaded: {seen:?}")
    })?;
    arena.unharmed().await?;
    Ok(format!(
        "{swaps} swaps, {} loads: each ran what was hashed",
        seen[0] + seen[1]
    ))
}

/// The loaded module answers as the component does whose digest it bears.
async fn matches(
    registry: &Registry,
    digests: &[(Digest, u32)],
    seen: &mut [u32; 2],
) -> Result<(), AttackFailure> {
    let Some(module) = registry.module("swapped") else {
        // That it changed under the reader is seen, and it is read again later.
        if let [failed] = &*registry.failures()
            && matches!(failed.error, LoadError::Changing)
        {
            return Ok(());
        }
        return Err(AttackFailure::Broke(format!(
            "it was refused: {:?}",
            registry.failures()
        )));
    };
    let expected = digests.iter().find(|(digest, _)| *digest == module.digest);
    let Some((_, expected)) = expected else {
        return Err(AttackFailure::Broke(format!(
            "{:?} was never written",
            module.digest
        )));
    };
    let report = invoke(registry, "swapped.which", &json!({}), None).await;
    let answer = report.result?;
    ensure(
        answer == toolhold_policy::Output::Value(json!(expected)),
        || format!("the component with the digest of {expected} answered {answer:?}"),
    )?;
    seen[*expected as usize - 1] += 1;
    Ok(())
}
