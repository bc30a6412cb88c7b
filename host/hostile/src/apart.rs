//! Attacks in processes of their own, several at a time: an attack measures the memory and the threads of a
//! process that does nothing else, and one that is not held off ends that process and not the suite.

use crate::attack::{Attack, AttackOutcome, AttackVerdict, Company};
use crate::lab::{CACHE, Scale, TREES};
use crate::process;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Resident memory at which the process of an attack is killed: several times what any attack may need, and
/// little enough for a small machine.
const MAX_RESIDENT: u64 = 4 << 30;
/// What a process may take on top of its attack's own patience: it starts, compiles its guest, and ends.
const AROUND: Duration = Duration::from_secs(30);
/// Bytes that are kept of what a process prints.
const MAX_PRINTED: u64 = 64 << 10;

/// The attacks that take longest. They begin first, so that no processor waits for one in the end.
const LONGEST: [&str; 12] = [
    "databases_of_many_writers",
    "random_bytes",
    "foreign_component_under_a_shipped_name",
    "keys_sent_elsewhere",
    "truncated_files",
    "state_left_behind",
    "cancelled_at_random",
    "directory_never_left",
    "nested_in_all_places",
    "two_tenants",
    "failures_for_now_without_end",
    "runs_of_a_frozen_server",
];

/// What happens while a suite runs.
#[derive(Debug)]
pub enum SuiteProgress<'a> {
    Begun(&'a Attack),
    Ended(&'a Attack, AttackVerdict),
}

/// Runs `attacks` in processes, two at a time for each processor of this machine, because many wait for their deadlines,
/// and those that want to be alone afterwards. `command` makes the command that runs one attack by [`crate::run`] and
/// prints its verdict as one JSON object; `told` hears of each.
pub fn run_all(
    attacks: &[Attack],
    scale: Scale,
    command: &(dyn Fn(&Attack) -> Command + Sync),
    mut told: impl FnMut(SuiteProgress<'_>),
) {
    let (alone, mut others): (Vec<&Attack>, Vec<&Attack>) = attacks
        .iter()
        .partition(|attack| attack.company == Company::Alone);
    others.sort_by_key(|attack| {
        LONGEST
            .iter()
            .position(|longest| *longest == attack.name)
            .unwrap_or(LONGEST.len())
    });
    // Without it, each compiles its guests anew.
    let cache = tempfile::Builder::new()
        .prefix("toolhold-hostile-")
        .tempdir()
        .ok();
    let command = |attack: &Attack| {
        let mut command = command(attack);
        if let Some(cache) = &cache {
            share_compiled(&mut command, cache.path());
        }
        command
    };
    let command: &(dyn Fn(&Attack) -> Command + Sync) = &command;
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for (attacks, workers) in [(others, 2 * workers), (alone, 1)] {
        let next = AtomicUsize::new(0);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (sender, attacks, next) = (sender.clone(), &attacks, &next);
                scope.spawn(move || work(attacks, next, scale, command, &sender));
            }
            drop(sender);
            receiver.iter().for_each(&mut told);
        });
    }
}

fn work<'a>(
    attacks: &[&'a Attack],
    next: &AtomicUsize,
    scale: Scale,
    command: &(dyn Fn(&Attack) -> Command + Sync),
    told: &Sender<SuiteProgress<'a>>,
) {
    while let Some(attack) = attacks.get(next.fetch_add(1, Ordering::Relaxed)) {
        // The receiver outlives the workers.
        let _ = told.send(SuiteProgress::Begun(attack));
        let verdict = run_apart(scale, command(attack));
        let _ = told.send(SuiteProgress::Ended(attack, verdict));
    }
}

/// Has the process of an attack keep compiled guests in `folder`, and find those that another one has compiled.
pub fn share_compiled(command: &mut Command, folder: &Path) {
    command.env(CACHE, folder);
}

/// Runs one attack by the process that `command` starts. Whatever becomes of that process, there is a verdict,
/// and no file is left behind.
pub fn run_apart(scale: Scale, mut command: Command) -> AttackVerdict {
    let started = Instant::now();
    let judged = in_folders(&mut command, scale);
    let broke = |observed: String| AttackVerdict {
        outcome: AttackOutcome::Broke,
        observed,
        duration: started.elapsed(),
        memory_bytes: None,
    };
    match judged {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(observed)) => broke(observed),
        Err(error) => broke(format!("its process could not be run: {error}")),
    }
}

/// Runs the command with folders of its own for what it writes, and removes them.
fn in_folders(command: &mut Command, scale: Scale) -> io::Result<Result<AttackVerdict, String>> {
    let named = || {
        let mut named = tempfile::Builder::new();
        named.prefix("toolhold-hostile-");
        named
    };
    let mut folders = vec![named().tempdir()?];
    // A file system in memory, where there is one.
    folders.extend(named().tempdir_in("/dev/shm").ok());
    for (variable, folder) in ["TMPDIR", TREES].iter().zip(&folders) {
        command.env(variable, folder.path());
    }
    let judged = watched(command, scale.patience() + AROUND);
    for folder in &folders {
        // Before the folder is dropped, which would recurse.
        remove(folder.path())?;
    }
    judged
}

/// Removes a folder, however long that takes: the process that filled it has ended.
fn remove(folder: &Path) -> io::Result<()> {
    loop {
        match toolhold_sandbox::remove_tree(folder) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            removed => return removed,
        }
    }
}

/// The verdict that the process prints, or how it ended instead.
fn watched(command: &mut Command, patience: Duration) -> io::Result<Result<AttackVerdict, String>> {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let printed = child.stdout.take().map(collect);
    let complained = child.stderr.take().map(collect);
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break Ok(status);
        }
        let resident = process::resident_of(child.id()).unwrap_or_default();
        if resident > MAX_RESIDENT {
            break Err(format!("it held {} MiB and was killed", resident >> 20));
        }
        if started.elapsed() > patience {
            break Err(format!("it did not end within {patience:?} and was killed"));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let status = match ended {
        Ok(status) => status,
        Err(why) => {
            stop(&mut child)?;
            return Ok(Err(why));
        }
    };
    Ok(verdict(status, &text(printed), &text(complained)))
}

fn verdict(status: ExitStatus, printed: &str, complained: &str) -> Result<AttackVerdict, String> {
    serde_json::from_str(printed).map_err(|_| {
        let last = complained
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty());
        let last = last.unwrap_or("it said nothing");
        format!("the host died ({status}): {last:.300}")
    })
}

fn stop(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

/// Reads a pipe to its end, which a full pipe would otherwise keep its writer from.
fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = pipe.by_ref().take(MAX_PRINTED).read_to_end(&mut kept);
        let _ = io::copy(&mut pipe, &mut io::sink());
        kept
    })
}

fn text(pipe: Option<JoinHandle<Vec<u8>>>) -> String {
    let bytes = pipe.and_then(|pipe| pipe.join().ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    #[test]
    fn those_that_begin_first_are_in_the_suite() {
        let suite = suite();
        for longest in LONGEST {
            let attack = suite.iter().find(|attack| attack.name == longest);
            assert_eq!(
                attack.map(|it| it.company),
                Some(Company::Others),
                "{longest}"
            );
        }
    }
}
