//! Modules of the tool world with arbitrary claims and answers: names, descriptions and results
//! that no toolchain would let an author write by accident.

use crate::components::beside;
use crate::fault::AttackFailure;
use std::fmt::Write as _;
use std::time::Duration;

/// A module's claims about one of its tools.
#[derive(Debug, Clone)]
pub struct Claim {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: String,
    pub output_schema: Option<String>,
    pub examples: Vec<ClaimedExample>,
}

/// A worked example as the module claims it. All but the task is JSON text.
#[derive(Debug, Clone)]
pub struct ClaimedExample {
    pub task: String,
    pub arguments: String,
    pub output: String,
}

impl Claim {
    /// An ordinary tool of this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: "Says what it was told to say.".into(),
            input_schema: r#"{"type":"object"}"#.into(),
            output_schema: None,
            examples: Vec::new(),
        }
    }
}

/// Its fixed answer to every call.
#[derive(Debug, Clone)]
pub enum LiarReply {
    Value(String),
    Message(String),
    Error {
        message: String,
        data: Option<String>,
    },
}

/// The component that claims `tools` and answers `reply`.
///
/// # Errors
/// [`AttackFailure::Wat`], which would be a mistake of ours.
pub fn component(tools: &[Claim], reply: &LiarReply) -> Result<Vec<u8>, AttackFailure> {
    Ok(wat::parse_str(text(tools, reply).0)?)
}

/// The component has these definitions, in WAT, before its own.
///
/// # Errors
/// [`AttackFailure::Wat`], which would be a mistake of ours.
pub fn component_beside(
    parts: &str,
    tools: &[Claim],
    reply: &LiarReply,
) -> Result<Vec<u8>, AttackFailure> {
    Ok(wat::parse_str(beside(parts, &text(tools, reply).0))?)
}

/// A [`component`] with a description of the first tool that begins differently each time that it lists them.
///
/// # Errors
/// [`AttackFailure::Wat`], which would be a mistake of ours.
pub fn fickle(tools: &[Claim], reply: &LiarReply) -> Result<Vec<u8>, AttackFailure> {
    let (world, list) = text(tools, reply);
    // The pointer to the description is the sixth word of the first tool, after the name and the optional title.
    let described = format!("(i32.load (i32.add (i32.load (i32.const {list})) (i32.const 20)))");
    let list = format!("(i32.const {list})");
    let anew = format!(
        "(i64.store {described}
           (i64.or (i64.and (call $random) (i64.const 0x0f0f0f0f0f0f0f0f)) (i64.const 0x6060606060606060)))
         {list}"
    );
    Ok(wat::parse_str(with_random(&world).replace(&list, &anew))?)
}

/// The component of the world with the function `$random`, which returns an `i64`.
fn with_random(world: &str) -> String {
    world
        .replace(
            "(component",
            "(component
               (import \"wasi:random/random@0.2.0\" (instance $source
                 (export \"get-random-u64\" (func (result u64)))))
               (core func $random (canon lower (func $source \"get-random-u64\")))",
        )
        .replace(
            "(core module $m",
            "(core module $m (import \"h\" \"random\" (func $random (result i64)))",
        )
        .replace(
            "(instantiate $m)",
            "(instantiate $m (with \"h\" (instance (export \"random\" (func $random)))))",
        )
}

/// The component as text, and where its list of tools is.
fn text(tools: &[Claim], reply: &LiarReply) -> (String, u32) {
    let mut data = GuestMemory::default();
    let (list, answer) = (data.tools(tools), data.reply(reply));
    (data.world(list, answer), list)
}

/// A module with one tool, each call of which continues as a job.
#[derive(Debug, Clone)]
pub struct JobLies {
    /// The name of the tool.
    pub tool: &'static str,
    /// The id of each job.
    pub id: String,
    /// The note of each answer about a job.
    pub note: String,
    pub asked: JobAnswers,
    /// True if `cancel` computes for ever.
    pub is_unstoppable: bool,
    /// True if `state` has the type of `cancel`.
    pub is_mistyped: bool,
}

impl Default for JobLies {
    fn default() -> Self {
        Self {
            tool: "render",
            id: "job-7".into(),
            note: String::new(),
            asked: JobAnswers::Works,
            is_unstoppable: false,
            is_mistyped: false,
        }
    }
}

/// Answers about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobAnswers {
    /// Progress without end, with another number each time.
    Works,
    /// No answer: `state` computes for ever.
    Spins,
    /// The result `7`.
    Ends,
}

/// The component whose calls continue as such jobs.
///
/// # Errors
/// [`AttackFailure::Wat`], which would be a mistake of ours.
pub fn with_jobs(lies: &JobLies) -> Result<Vec<u8>, AttackFailure> {
    let mut data = GuestMemory::default();
    let list = data.tools(&[Claim::named(lies.tool)]);
    let answer = data.reply(&LiarReply::Value("null".into()));
    let [id, id_bytes] = data.text(&lies.id);
    // `result<started, tool-error>`, as long as the longer case, as all of these.
    let start = data.words(&[0, 1, id, id_bytes, 0, 0, 0, 0]);
    let ([note, note_bytes], [value, value_bytes]) = (data.text(&lies.note), data.text("7"));
    // `result<job-state, tool-error>`, whose numbers are of 8 bytes.
    data.0.resize(data.0.len().next_multiple_of(8), 0);
    let state = data.words(&match lies.asked {
        JobAnswers::Ends => [0, 0, 1, 0, 0, value, value_bytes, 0, 0, 0],
        JobAnswers::Works | JobAnswers::Spins => [0, 0, 0, 0, 0, 0, 9, 0, note, note_bytes],
    });
    let cancel = data.words(&[0; 8]);
    let spins = "(loop (br 0))";
    let asked = match lies.asked {
        JobAnswers::Works => format!("(i64.store (i32.const {}) (call $random))", state + 16),
        JobAnswers::Spins => spins.to_owned(),
        JobAnswers::Ends => String::new(),
    };
    let functions = JOB_FUNCTIONS
        .replace("{start}", &start.to_string())
        .replace("{asked}", &asked)
        .replace("{state}", &state.to_string())
        .replace("{stopped}", if lies.is_unstoppable { spins } else { "" })
        .replace("{cancel}", &cancel.to_string());
    let exports = JOB_EXPORTS.replace("{ask}", if lies.is_mistyped { "$stop" } else { "$ask" });
    let (list_function, tools_export) = (
        "(func (export \"list\")",
        "(export \"toolhold:module/tools@0.1.0\"",
    );
    let world = data
        .world(list, answer)
        .replace(list_function, &format!("{functions}{list_function}"))
        .replace(tools_export, &format!("{exports}{tools_export}"));
    Ok(wat::parse_str(with_random(&world))?)
}

/// How a module fails to list its tools.
#[derive(Debug, Clone, Copy)]
pub enum Stall {
    /// It computes for ever.
    Spins,
    /// It sleeps for an hour in a host call.
    Sleeps,
}

/// A module that never says which tools it has.
///
/// # Errors
/// [`AttackFailure::Wat`], which would be a mistake of ours.
pub fn stalling(stall: Stall) -> Result<Vec<u8>, AttackFailure> {
    stalling_beside("", stall)
}

/// The component has these definitions, in WAT, before its own.
///
/// # Errors
/// [`AttackFailure::Wat`], which would be a mistake of ours.
pub fn stalling_beside(parts: &str, stall: Stall) -> Result<Vec<u8>, AttackFailure> {
    let world = WORLD
        .replace("{pages}", "1")
        .replace("{end}", "64")
        .replace("{answer}", "0")
        .replace("{data}", "");
    let world = match stall {
        Stall::Spins => world.replace("(i32.const {list})", "(loop (br 0)) (unreachable)"),
        Stall::Sleeps => with_clock(&world).replace(
            "(i32.const {list})",
            "(call $block (call $subscribe (i64.const 3600000000000))) (unreachable)",
        ),
    };
    Ok(wat::parse_str(beside(parts, &world))?)
}

/// A [`component`] that sleeps for so long each time before it lists its tools.
///
/// # Errors
/// [`AttackFailure::Wat`], which would be a mistake of ours.
pub fn listing_late(
    tools: &[Claim],
    reply: &LiarReply,
    pause: Duration,
) -> Result<Vec<u8>, AttackFailure> {
    let (world, list) = text(tools, reply);
    let function = "(func (export \"list\") (result i32)";
    let late = format!(
        "{function} (call $block (call $subscribe (i64.const {})))",
        pause.as_nanos()
    );
    let world = with_clock(&world).replace(
        &format!("{function} (i32.const {list})"),
        &format!("{late} (i32.const {list})"),
    );
    Ok(wat::parse_str(world)?)
}

/// The component of the world with the functions `$block` and `$subscribe`, by which it sleeps.
fn with_clock(world: &str) -> String {
    world
        .replace("(component", &format!("(component {CLOCK}"))
        .replace("(core module $m", &format!("(core module $m {CORE_CLOCK}"))
        .replace(
            "(instantiate $m)",
            "(instantiate $m (with \"h\" (instance
               (export \"block\" (func $block)) (export \"subscribe\" (func $subscribe)))))",
        )
}

/// What a module needs to sleep.
const CLOCK: &str = r#"
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $p (eq $outer)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))"#;
const CORE_CLOCK: &str = r#"
    (import "h" "block" (func $block (param i32)))
    (import "h" "subscribe" (func $subscribe (param i64) (result i32)))"#;

/// The component's memory, laid out as the canonical ABI reads it.
#[derive(Default)]
struct GuestMemory(Vec<u8>);

impl GuestMemory {
    fn put(&mut self, bytes: &[u8]) -> u32 {
        // Records are aligned to 4; for strings it does no harm.
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        let at = self.0.len() as u32;
        self.0.extend_from_slice(bytes);
        at
    }

    /// Pointer and length.
    fn text(&mut self, text: &str) -> [u32; 2] {
        [self.put(text.as_bytes()), text.len() as u32]
    }

    /// Discriminant, pointer and length.
    fn option(&mut self, text: Option<&str>) -> [u32; 3] {
        text.map_or([0; 3], |text| {
            let [at, length] = self.text(text);
            [1, at, length]
        })
    }

    /// The component over these bytes, as text.
    fn world(&self, list: u32, answer: u32) -> String {
        let mut escaped = String::with_capacity(self.0.len() * 3);
        for byte in &self.0 {
            let _ = write!(escaped, "\\{byte:02x}");
        }
        let end = self.0.len();
        let pages = end / 65_536 + 1;
        WORLD
            .replace("{pages}", &pages.to_string())
            .replace("{end}", &end.to_string())
            .replace("{list}", &list.to_string())
            .replace("{answer}", &answer.to_string())
            .replace("{data}", &escaped)
    }

    fn words(&mut self, words: &[u32]) -> u32 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(&bytes)
    }

    /// `list<tool>`, by a pointer to its pointer and length.
    fn tools(&mut self, tools: &[Claim]) -> u32 {
        let mut records = Vec::new();
        for tool in tools {
            records.extend(self.text(&tool.name));
            records.extend(self.option(tool.title.as_deref()));
            records.extend(self.text(&tool.description));
            records.extend(self.text(&tool.input_schema));
            records.extend(self.option(tool.output_schema.as_deref()));
            // No annotations.
            records.push(0);
            let mut examples = Vec::new();
            for example in &tool.examples {
                for text in [&example.task, &example.arguments, &example.output] {
                    examples.extend(self.text(text));
                }
                // Nothing is answered.
                examples.extend([0; 2]);
            }
            records.extend([self.words(&examples), tool.examples.len() as u32]);
        }
        let at = self.words(&records);
        self.words(&[at, tools.len() as u32])
    }

    /// `result<output, tool-error>`, by pointer.
    fn reply(&mut self, reply: &LiarReply) -> u32 {
        let words = match reply {
            LiarReply::Value(json) | LiarReply::Message(json) => {
                let [at, length] = self.text(json);
                vec![
                    0,
                    u32::from(matches!(reply, LiarReply::Message(_))),
                    at,
                    length,
                ]
            }
            LiarReply::Error { message, data } => {
                let (message, data) = (self.text(message), self.option(data.as_deref()));
                [&[1, 0][..], &message, &data].concat()
            }
        };
        // As long as the longer case: the ABI may read all of it.
        let mut whole = words;
        whole.resize(8, 0);
        self.words(&whole)
    }
}

/// `toolhold:module/tools@0.1.0` over static data.
const WORLD: &str = r#"(component
  (core module $m
    (memory (export "memory") {pages})
    (data (i32.const 0) "{data}")
    (global $next (mut i32) (i32.const {end}))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (block (loop
        (br_if 1 (i32.le_u (global.get $next) (i32.mul (memory.size) (i32.const 65536))))
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
        (br 0)))
      (local.get $at))
    (func (export "list") (result i32) (i32.const {list}))
    (func (export "call") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const {answer})))
  (core instance $i (instantiate $m))
  (type $annotations (flags "read-only" "idempotent" "destructive" "open-world"))
  (type $example (record
    (field "task" string) (field "arguments" string) (field "output" string) (field "answer" string)))
  (type $tool (record
    (field "name" string) (field "title" (option string)) (field "description" string)
    (field "input-schema" string) (field "output-schema" (option string))
    (field "annotations" $annotations) (field "examples" (list $example))))
  (type $scoped (record (field "path" string) (field "value" string)))
  (type $invocation (record
    (field "id" string) (field "tool" string) (field "arguments" string) (field "context" (list $scoped))))
  (type $output (variant (case "value" string) (case "message" string)))
  (type $class (enum "correctable" "retryable" "fatal"))
  (type $error (record
    (field "class" $class) (field "message" string) (field "data" (option string))))
  (func $list (result (list $tool)) (canon lift (core func $i "list") (memory $i "memory")))
  (func $call (param "invocation" $invocation) (result (result $output (error $error)))
    (canon lift (core func $i "call") (memory $i "memory") (realloc (func $i "realloc"))))
  (instance $tools
    (export "annotations" (type $annotations)) (export "example" (type $example))
    (export "tool" (type $tool)) (export "scoped-value" (type $scoped))
    (export "invocation" (type $invocation)) (export "output" (type $output))
    (export "error-class" (type $class)) (export "tool-error" (type $error))
    (export "list-tools" (func $list)) (export "call" (func $call)))
  (export "toolhold:module/tools@0.1.0" (instance $tools)))"#;

/// Functions about jobs, of the core module.
const JOB_FUNCTIONS: &str = r#"(func (export "start") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
      (i32.const {start}))
    (func (export "state") (param i32 i32) (result i32) {asked} (i32.const {state}))
    (func (export "cancel") (param i32 i32) (result i32) {stopped} (i32.const {cancel}))
    "#;

/// `toolhold:module/jobs@0.1.0` over these.
const JOB_EXPORTS: &str = r#"(type $started (variant (case "done" $output) (case "job" string)))
  (type $progress (record (field "done" u64) (field "total" u64) (field "note" string)))
  (type $state (variant (case "working" $progress) (case "done" $output) (case "failed" $error)))
  (func $start (param "invocation" $invocation) (result (result $started (error $error)))
    (canon lift (core func $i "start") (memory $i "memory") (realloc (func $i "realloc"))))
  (func $ask (param "job" string) (result (result $state (error $error)))
    (canon lift (core func $i "state") (memory $i "memory") (realloc (func $i "realloc"))))
  (func $stop (param "job" string) (result (result (error $error)))
    (canon lift (core func $i "cancel") (memory $i "memory") (realloc (func $i "realloc"))))
  (instance $jobs
    (export "scoped-value" (type $scoped)) (export "invocation" (type $invocation)) (export "output" (type $output))
    (export "error-class" (type $class)) (export "tool-error" (type $error))
    (export "started" (type $started)) (export "job-progress" (type $progress)) (export "job-state" (type $state))
    (export "start" (func $start)) (export "state" (func {ask})) (export "cancel" (func $stop)))
  (export "toolhold:module/jobs@0.1.0" (instance $jobs))
  "#;
