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

/// Attacks that take longest and compute, the longest first. They begin first, so that no processor waits for one in the
/// end.
const LONGEST: [&str; 23] = [
    "databases_of_many_writers",
    "keys_sent_elsewhere",
    "truncated_files",
    "foreign_component_under_a_shipped_name",
    "random_bytes",
    "copies_of_requests_that_left",
    "found_file_of_a_stranger",
    "flipped_bytes",
    "file_being_swapped",
    "found_file_without_end",
    "cancelled_at_random",
    "schema_of_arguments",
    "weight_of_all_places",
    "grants_of_many_processes",
    "decisions_of_many_people",
    "module_becomes_a_fifo",
    "calls_that_begin_beside_sweeps",
    "schema_of_a_result",
    "state_left_behind",
    "values_kept_by_many",
    "nested_in_all_places",
    "forged_tombstones",
    "two_tenants",
];

/// Attacks that wait for deadlines and turns and compute next to nothing, the longest first. They wait beside those that
/// compute, and take no place of these.
const WAITING: [&str; 15] = [
    "calls_in_places_that_an_end_frees",
    "directory_never_left",
    "failures_for_now_without_end",
    "runs_of_a_frozen_server",
    "dropped_while_made",
    "requests_that_wait_for_their_turn",
    "memory_kept_by_one_key",
    "descriptors_hoarded_by_two",
    "configuration_that_is_cut",
    "sweeps_beside_a_stopped_process",
    "work_of_an_expired_key",
    "locks_never_released",
    "work_of_a_revoked_key",
    "resumed_before_modules_are_loaded",
    "bytes_that_wait_for_a_place",
];

/// Attacks of [`Company::One`] that take as long as all others of them.
const LONGEST_OF_PAIRS: [&str; 1] = ["debug_information_bombs"];

/// What happens while a suite runs.
#[derive(Debug)]
pub enum SuiteProgress<'a> {
    Begun(&'a Attack),
    Ended(&'a Attack, AttackVerdict),
}

/// Attacks that are run one after the other by each of some workers.
struct AttackLane<'a> {
    attacks: Vec<&'a Attack>,
    next: AtomicUsize,
    workers: usize,
}

impl<'a> AttackLane<'a> {
    /// `first`: names of the attacks that begin first.
    fn new(mut attacks: Vec<&'a Attack>, first: &[&str], workers: usize) -> Self {
        attacks.sort_by_key(|attack| {
            let place = first.iter().position(|name| *name == attack.name);
            place.unwrap_or(first.len())
        });
        Self {
            attacks,
            next: AtomicUsize::new(0),
            workers,
        }
    }

    fn begin_next(&self) -> Option<&'a Attack> {
        let place = self.next.fetch_add(1, Ordering::Relaxed);
        self.attacks.get(place).copied()
    }
}

/// Runs `attacks` in processes: for each processor of this machine two at a time, because few compute all the time, and
/// one more that only waits. Those of [`Company::One`] come next, in pairs, and those of [`Company::Alone`] last.
/// `command` makes the command that runs one attack by [`crate::run`] and prints its verdict as one JSON object; `told`
/// hears of each.
pub fn run_all(
    attacks: &[Attack],
    scale: Scale,
    command: &(dyn Fn(&Attack) -> Command + Sync),
    mut told: impl FnMut(SuiteProgress<'_>),
) {
    let of = |company: Company| -> Vec<&Attack> {
        let attacks = attacks.iter();
        attacks.filter(|attack| attack.company == company).collect()
    };
    let (waiting, computing): (Vec<&Attack>, Vec<&Attack>) = of(Company::Others)
        .into_iter()
        .partition(|attack| WAITING.contains(&attack.name));
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
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let beside = [
        AttackLane::new(computing, &LONGEST, 2 * processors),
        AttackLane::new(waiting, &WAITING, processors),
    ];
    let pairs = [AttackLane::new(
        of(Company::One),
        &LONGEST_OF_PAIRS,
        processors.min(2),
    )];
    let apart = [AttackLane::new(of(Company::Alone), &[], 1)];
    for lanes in [&beside[..], &pairs[..], &apart[..]] {
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for lane in lanes {
                for _ in 0..lane.workers {
                    let sender = sender.clone();
                    scope.spawn(move || work(lane, scale, command, &sender));
                }
            }
            drop(sender);
            receiver.iter().for_each(&mut told);
        });
    }
}

fn work<'a>(
    lane: &AttackLane<'a>,
    scale: Scale,
    command: &(dyn Fn(&Attack) -> Command + Sync),
    told: &Sender<SuiteProgress<'a>>,
) {
    while let Some(attack) = lane.begin_next() {
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
        for name in LONGEST.iter().chain(&WAITING) {
            let attack = suite.iter().find(|attack| attack.name == *name);
            let company = attack.map(|attack| attack.company);
            assert_eq!(company, Some(Company::Others), "{name}");
        }
        for name in LONGEST_OF_PAIRS {
            let attack = suite.iter().find(|attack| attack.name == name);
            assert_eq!(attack.map(|attack| attack.company), Some(Company::One));
        }
        let in_both = LONGEST.iter().find(|name| WAITING.contains(name));
        assert_eq!(in_both, None);
    }
}
