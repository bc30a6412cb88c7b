//! Row 59: a service behind a tool that fails for now, as often as it is asked.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::serving::{Answering, MODELS, Served};
use std::future::ready;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[Attack {
    row: 59,
    name: "failures_for_now_without_end",
    attack: "a service fails for now at once, late, or by silence, and asks for a wait of a day: from a shell, over HTTP",
    must: "one deadline over all attempts and waits; none begins after it, or beyond their number",
    company: Company::Others,
    tries: |lab| Box::pin(ready(failures_for_now_without_end(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// The shipped module `search` under a name of its own, so that the server loads no other one.
const TOOL: &str = "lookup.web";
const QUERY: &str = r#"{"query":"heron"}"#;
/// A process takes this long at most to write its record and to end.
const LEAVING: Duration = Duration::from_secs(2);
/// Time for a further attempt to arrive after the answer.
const LULL: Duration = Duration::from_millis(300);
/// The longest that the service waits for a request, or for the end of a connection.
const PATIENCE: Duration = Duration::from_mins(1);
const BUSY: &[u8] =
    b"HTTP/1.1 503 X\r\nretry-after: 86400\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy";
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
const LATE: Option<Duration> = Some(Duration::from_millis(1_300));
const SILENT: Option<Duration> = None;

/// A call of a tool whose service fails.
struct Case {
    name: &'static str,
    /// The time before each answer; absent where none comes. The last one is for all further requests.
    answers: &'static [Option<Duration>],
    /// The deadline of the call.
    deadline_ms: u64,
    /// The module's own limit for one attempt.
    module_ms: u64,
    attempts: usize,
    backoff_ms: u64,
    /// The requests that must arrive, at least and at most.
    asked: (usize, usize),
    /// Whether it is tried over HTTP where the suite is short.
    is_served: bool,
}

const CASES: [Case; 5] = [
    Case {
        name: "failures at once",
        answers: &[AT_ONCE],
        deadline_ms: 1_000,
        module_ms: 30_000,
        attempts: 10,
        backoff_ms: 200,
        asked: (2, 10),
        is_served: false,
    },
    // The second attempt has what is left of the time, and not the whole of it again.
    Case {
        name: "a late failure, then silence",
        answers: &[LATE, SILENT],
        deadline_ms: 2_000,
        module_ms: 30_000,
        attempts: 10,
        backoff_ms: 10,
        asked: (2, 2),
        is_served: true,
    },
    Case {
        name: "silence beyond the module's own limit",
        answers: &[SILENT],
        deadline_ms: 1_000,
        module_ms: 250,
        attempts: 10,
        backoff_ms: 10,
        asked: (2, 10),
        is_served: false,
    },
    Case {
        name: "three attempts",
        answers: &[AT_ONCE],
        deadline_ms: 10_000,
        module_ms: 30_000,
        attempts: 3,
        backoff_ms: 10,
        asked: (3, 3),
        is_served: false,
    },
    // A wait that would end after the deadline is not begun.
    Case {
        name: "a wait of a day",
        answers: &[AT_ONCE],
        deadline_ms: 2_000,
        module_ms: 30_000,
        attempts: 10,
        backoff_ms: 86_400_000,
        asked: (1, 1),
        is_served: false,
    },
];

/// When requests came, and when their connections ended.
#[derive(Debug, Default)]
struct Noted {
    asked: Vec<Instant>,
    closed: Vec<Instant>,
}

/// A service that fails. It ends with this process, which every attack has for itself.
struct FailingService {
    port: u16,
    noted: Arc<Mutex<Noted>>,
}

impl FailingService {
    fn start(answers: &'static [Option<Duration>]) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let noted = Arc::<Mutex<Noted>>::default();
        let notes = noted.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = {
                    let mut notes = locked(&notes);
                    notes.asked.push(Instant::now());
                    notes.asked.len() - 1
                };
                let answer = answers.get(number).or(answers.last()).copied();
                let notes = notes.clone();
                std::thread::spawn(move || {
                    fails(stream, answer.flatten());
                    locked(&notes).closed.push(Instant::now());
                });
            }
        });
        Ok(Self { port, noted })
    }

    fn asked(&self) -> Vec<Instant> {
        locked(&self.noted).asked.clone()
    }

    /// When the last connection ended, once all have.
    fn closed(&self) -> Result<Option<Instant>, AttackFailure> {
        let started = Instant::now();
        loop {
            {
                let noted = locked(&self.noted);
                if noted.closed.len() == noted.asked.len() {
                    return Ok(noted.closed.iter().max().copied());
                }
            }
            ensure(started.elapsed() < LEAVING, || {
                "an attempt goes on after the answer".into()
            })?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn locked(noted: &Mutex<Noted>) -> MutexGuard<'_, Noted> {
    noted.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers after this time, or never, and returns when the other side has closed the connection.
fn fails(mut stream: TcpStream, answer: Option<Duration>) {
    let mut bytes = [0; 8 << 10];
    // Without it a read waits for ever, and the process ends all the same.
    let _ = stream.set_read_timeout(Some(PATIENCE));
    if !stream.read(&mut bytes).is_ok_and(|read| read > 0) {
        return;
    }
    if let Some(pause) = answer {
        std::thread::sleep(pause);
        // A client that is gone needs no answer.
        let _ = stream.write_all(BUSY);
        return;
    }
    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
}

impl Case {
    fn configuration(&self, service: u16, model: u16) -> String {
        let Self {
            deadline_ms,
            module_ms,
            attempts,
            backoff_ms,
            ..
        } = self;
        let origin = format!("http://127.0.0.1:{service}");
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{model}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n[serve]\nkeys = \"never\"\n[decisions]\ndefault = \"never\"\n\
             [run]\ncall_timeout_ms = {deadline_ms}\n\
             [tool_retry]\nattempts = {attempts}\nbackoff_ms = {backoff_ms}\n\
             [module.lookup]\nenvironment = {{ SEARCH_URL = \"{origin}/s?q={{searchTerms}}\" }}\n\
             http = [{{ origin = \"{origin}\", private = true }}]\n\
             [module.lookup.limits]\ntimeout_ms = {module_ms}\n"
        )
    }

    /// Judges a call whose answer came at `answered`. Returns its duration from its first request on.
    fn judged(
        &self,
        lab: &Lab,
        service: &FailingService,
        way: &str,
        answered: Instant,
    ) -> Result<Duration, AttackFailure> {
        let name = self.name;
        let asked = service.asked();
        let (least, most) = self.asked;
        ensure((least..=most).contains(&asked.len()), || {
            let times = asked.len();
            format!("{name}, {way}: asked {times} times, expected {least} to {most}")
        })?;
        let (Some(first), Some(last)) = (asked.first(), asked.last()) else {
            return Err(AttackFailure::Broke(format!("{name}, {way}: not asked")));
        };
        let deadline = Duration::from_millis(self.deadline_ms);
        let begun = last.saturating_duration_since(*first);
        ensure(begun <= deadline + lab.grace(), || {
            format!(
                "{name}, {way}: an attempt began {} after the first one, deadline {}",
                ms(begun),
                ms(deadline)
            )
        })?;
        let closed = service
            .closed()?
            .map(|at| at.saturating_duration_since(*first));
        ensure(
            closed.is_none_or(|closed| closed <= deadline + lab.grace()),
            || {
                let closed = ms(closed.unwrap_or_default());
                format!(
                    "{name}, {way}: the last attempt ended {closed} after the first one began, deadline {}",
                    ms(deadline)
                )
            },
        )?;
        let took = answered.saturating_duration_since(*first);
        ensure(took <= deadline + lab.grace() + LEAVING, || {
            format!(
                "{name}, {way}: answered after {}, deadline {}",
                ms(took),
                ms(deadline)
            )
        })?;
        Ok(took)
    }
}

fn failures_for_now_without_end(lab: &Lab) -> Result<String, AttackFailure> {
    let model = Answering::start(200, MODELS)?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/lookup.wasm", components::SEARCH)?;
    let mut slowest = Duration::ZERO;
    let mut calls = 0;
    for case in &CASES {
        slowest = slowest.max(from_a_shell(lab, &folder, case, model.port)?);
        calls += 1;
        if case.is_served || lab.times(false, true) {
            slowest = slowest.max(over_http(lab, &folder, case, model.port)?);
            calls += 1;
        }
    }
    Ok(format!(
        "{calls} calls, each within its deadline; the longest took {}",
        ms(slowest)
    ))
}

fn from_a_shell(
    lab: &Lab,
    folder: &CommandFolder,
    case: &Case,
    model: u16,
) -> Result<Duration, AttackFailure> {
    let service = FailingService::start(case.answers)?;
    folder.write("host.toml", case.configuration(service.port, model))?;
    let call = [&CONFIG[..], &["modules", "call", TOOL, QUERY]].concat();
    let ran = folder.run(&call, BOUNDS)?;
    let answered = Instant::now();
    let name = case.name;
    ran.ensure_ended(name)?;
    ensure(ran.code != Some(0), || {
        format!(
            "{name}: a call that failed is told as done: {:.200}",
            ran.stdout
        )
    })?;
    let took = case.judged(lab, &service, "from a shell", answered)?;
    ensure(case.asked.0 == 1 || ran.stderr.contains("tried"), || {
        format!("{name}: it is not told how often: {:.300}", ran.stderr)
    })?;
    Ok(took)
}

fn over_http(
    lab: &Lab,
    folder: &CommandFolder,
    case: &Case,
    model: u16,
) -> Result<Duration, AttackFailure> {
    let service = FailingService::start(case.answers)?;
    folder.write("host.toml", case.configuration(service.port, model))?;
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let served = Served::start(folder, &serve)?;
    let (path, body) = (
        format!("/v1/tools/{TOOL}"),
        format!("{{\"arguments\":{QUERY}}}"),
    );
    let started = Instant::now();
    // A server that is not ready is asked again.
    let answer = loop {
        let answer = served.ask("POST", &path, &[], &body)?;
        if answer.status != 503 || !service.asked().is_empty() {
            break answer;
        }
        ensure(started.elapsed() < BOUNDS.time, || {
            format!("the server does not get ready: {answer:?}")
        })?;
        std::thread::sleep(Duration::from_millis(20));
    };
    let answered = Instant::now();
    let name = case.name;
    ensure(answer.body.contains("\"error\""), || {
        format!("{name}: a call that failed is told as done: {answer:?}")
    })?;
    let took = case.judged(lab, &service, "over HTTP", answered)?;
    let asked = service.asked().len();
    while answered.elapsed() < LULL {
        ensure(service.asked().len() == asked, || {
            format!("{name}: an attempt began after the answer")
        })?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(took)
}
