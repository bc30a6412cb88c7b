//! `toolhold chat`: a session at the terminal.

use crate::commands::endpoint::EndpointArgs;
use crate::commands::loaded::{self, warn_of_failures};
use crate::commands::run::{Attached, exit_of, redact};
use crate::config::{Flags, Loaded};
use crate::exit::Exit;
use crate::terminal::decider::{InvalidAnswer, decision, question, unclear};
use crate::terminal::standing::StandingDecisions;
use crate::terminal::user_question::UserQuestion;
use crate::terminal::view::{EventPrinter, OutputOptions, QUIET_PERIOD};
use crate::terminal::{output, style};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use futures_util::future::BoxFuture;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config as EditorConfig, Editor};
use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;
use toolhold_admission::own_work;
use toolhold_agent::language;
use toolhold_agent::run::decider::Decider;
use toolhold_knowledge::Settings;
use toolhold_protocol::context::Message;
use toolhold_protocol::decision::{Decision, Pending};
use toolhold_protocol::event::EventKind;
use toolhold_runtime::agents::{Agent, Agents, RunClient};
use toolhold_runtime::config::DEFAULT_AGENT;
use toolhold_runtime::stored_decider::first_decision;
use toolhold_runtime::{host, knowledge};
use toolhold_server::sessions::{PAGE_TURNS, goes_on_from, left_by};
use toolhold_storage::{Label, Origin, RunRow, Session, Store};
use toolhold_telemetry::{ObservedRun, Telemetry};
use uuid::Uuid;

#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Name of a configured agent.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_AGENT)]
    agent: String,
    /// Continue this session: its id, the beginning of the id, or last [default: a new session].
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Show what the model writes as it writes it, and what each step and call took.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    endpoint: EndpointArgs,
}

impl ChatArgs {
    pub fn put(&self, flags: &mut Flags) {
        self.endpoint.put(flags);
    }
}

const HELP: &str = "\
/new          begin another session
/sessions     the sessions that there are
/open ID      go on with one of them
/file PATH    show the next turn a text or an image
/tools        what the agent may call
/history      the turns of this session
/quit         leave; Ctrl-D does, too
Ctrl-C stops a turn that goes on. A line that ends in \\ goes on with the next.";

pub async fn chat(loaded: &Loaded, args: ChatArgs) -> Result<Exit> {
    let config = &loaded.configuration;
    let registry = loaded::running_modules(loaded, config, None).await?;
    warn_of_failures(&registry);
    let store = host::store(config).await?;
    let knowledge = knowledge::open(config, store.clone(), Settings::default()).await?;
    let agents = Box::pin(Agents::new(config, registry, Some(Arc::new(knowledge)))).await?;
    let agent = agents.named(&args.agent).ok_or_else(|| {
        let names: Vec<String> = agents.all().ready.keys().cloned().collect();
        anyhow!(
            "there is no agent {:?}; there are {}",
            args.agent,
            names.join(", ")
        )
    })?;
    let session = match &args.session {
        Some(name) => found(&store, name).await?,
        None => new(&store, &agent).await?,
    };
    let telemetry = host::telemetry(config, false)?;
    let prompt = Prompt::new(config.state_folder().join("chat_history"))?;
    let (name, model) = (&agent.name, style::line(agent.model()));
    output::remark(&format!("{name} asks {model}; /help lists commands"));
    let chat = Chat {
        agent,
        store,
        session,
        prompt,
        telemetry: telemetry.clone(),
        attached: Vec::new(),
        shown: OutputOptions {
            verbose: args.verbose,
            ..OutputOptions::default()
        },
    };
    let exit = chat.talk().await;
    telemetry.close().await;
    exit
}

struct Chat {
    agent: Arc<Agent>,
    store: Store,
    session: Session,
    prompt: Prompt,
    telemetry: Telemetry,
    /// For the next turn.
    attached: Vec<Message>,
    shown: OutputOptions,
}

impl Chat {
    async fn talk(mut self) -> Result<Exit> {
        let mut exit = Exit::Ok;
        loop {
            let line = match self.prompt.read("› ").await? {
                Typed::Line(line) => line,
                // It discards the begun line, as in a shell.
                Typed::Interrupt => {
                    output::remark("Ctrl-D leaves");
                    continue;
                }
                Typed::End => break,
            };
            let line = line.trim();
            let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
            match command {
                "" => {}
                "/quit" | "/exit" => break,
                "/help" => println!("{HELP}"),
                "/new" => self.session = new(&self.store, &self.agent).await?,
                "/sessions" => self.sessions().await?,
                "/history" => self.history().await?,
                "/tools" => self.tools().await,
                "/file" => match self.attach(rest.trim()).await {
                    Ok(()) => {}
                    Err(error) => complain(&error),
                },
                "/open" => match found(&self.store, rest.trim()).await {
                    Ok(session) => {
                        self.session = session;
                        self.history().await?;
                    }
                    Err(error) => complain(&error),
                },
                other if other.starts_with('/') => {
                    complain(&anyhow!("{other} is no command; /help lists them"));
                }
                // A failed turn does not end the session.
                _ => match Box::pin(self.turn(line)).await {
                    Ok(ended) => {
                        self.attached.clear();
                        exit = ended;
                    }
                    Err(error) => complain(&error),
                },
            }
        }
        let command = format!("toolhold chat --session {}", self.session.id);
        output::say_command("", "", &command, " goes on");
        Ok(exit)
    }

    /// Reads what goes with the next turn.
    async fn attach(&mut self, path: &str) -> Result<()> {
        if path.is_empty() {
            bail!("/file needs the path of a text or an image");
        }
        if self.attached.len() >= MAX_ATTACHED {
            bail!("a turn takes at most {MAX_ATTACHED} files");
        }
        let attached = Attached {
            files: vec![PathBuf::from(path)],
            piped: None,
        };
        let deadline = self.agent.request().settings.timeout;
        self.attached.extend(attached.messages(deadline).await?);
        output::remark("it goes with what you say next");
        Ok(())
    }

    async fn turn(&self, text: &str) -> Result<Exit> {
        let session = self.session.id;
        let number = self.store.next_turn(session).await?.unwrap_or_default();
        let behalf = RunClient {
            session: self.session.id.to_string(),
            ..RunClient::default()
        };
        let mut request = self.agent.request();
        request.context.extend(self.attached.iter().cloned());
        request.context.push(Message::user(text));
        if let Some(tag) = language::recognise(text) {
            language::keep(&mut request, tag, false);
        }
        if let Some(before) = goes_on_from(&self.store, session, number).await? {
            let mut left = left_by(&self.store, before.id).await?;
            self.store
                .restore_images(before.id, &mut left.context)
                .await?;
            left.put(&mut request);
        }
        request.allowed = self.agent.allowed(&behalf);
        let observer = self.telemetry.observe(ObservedRun {
            run: request.id,
            agent: self.agent.name.clone(),
            conversation: Some(self.session.id),
            ..ObservedRun::default()
        });
        let label = Label {
            agent: self.agent.name.clone(),
            origin: Origin::Cli,
            turn: Some((session, number)),
            trace: observer.trace(),
            ..Label::default()
        };
        let journal = self.store.journal(request.id, label);
        let (mut driver, notes) = self.agent.driver(&self.store, &behalf, None).await;
        for note in notes {
            output::left_out(&note);
        }
        let interrupt = CancellationToken::new();
        driver.decider = Arc::new(PromptDecider {
            prompt: self.prompt.clone(),
            store: self.store.clone(),
            asking: tokio::sync::Mutex::default(),
            interrupt: interrupt.clone(),
            standing: StandingDecisions::default(),
        });
        let started = driver.start(request, Box::new(journal)).await;
        let (mut run, mut observer) = observer.begun(started)?;
        let (cancel, id) = (run.cancel.clone(), run.id);
        let mut view = EventPrinter::of_run(self.shown);
        let mut question = UserQuestion::default();
        let mut exit = Exit::Failed;
        let stopped = async {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                () = interrupt.cancelled() => {}
                () = toolhold_runtime::cancellation::wait_for_request(&self.store, id) => {}
            }
            cancel.cancel();
            std::future::pending::<()>().await;
        };
        tokio::pin!(stopped);
        loop {
            let event = tokio::select! {
                event = run.events.recv() => event,
                () = &mut stopped => None,
                () = tokio::time::sleep(QUIET_PERIOD) => {
                    view.quiet();
                    continue;
                }
            };
            let Some(event) = event else {
                break;
            };
            observer.take(&event);
            view.show(&event);
            if let Some(text) = question.take(&event.kind) {
                output::remark(text);
            }
            if let EventKind::Done { reason, .. } = event.kind {
                exit = exit_of(reason);
            }
        }
        run.finished().await?;
        redact(&self.store).await;
        Ok(exit)
    }

    async fn sessions(&self) -> Result<()> {
        for session in self
            .store
            .sessions("", None, MAX_LISTED_SESSIONS)
            .await?
            .iter()
            .rev()
        {
            let count = self.store.next_turn(session.id).await?.unwrap_or_default();
            let turns = self.store.turns(session.id, 0..1).await?;
            let first = turns
                .first()
                .map_or("(nothing was said)", |turn| &turn.task);
            let short: String = first.chars().take(60).collect();
            output::tell(&format!(
                "{}  {}  {}",
                session.id,
                style::plural(count, "turn"),
                style::readable_line(&short)
            ));
        }
        Ok(())
    }

    async fn history(&self) -> Result<()> {
        let mut next = 0;
        loop {
            let page = next..next + PAGE_TURNS;
            next = page.end;
            let turns = self.store.turns(self.session.id, page).await?;
            if turns.is_empty() {
                return Ok(());
            }
            self.show(&turns).await?;
        }
    }

    async fn show(&self, turns: &[RunRow]) -> Result<()> {
        for turn in turns {
            output::tell(&format!(
                "{} {}",
                style::bold("›"),
                style::readable_block(&turn.task)
            ));
            let said = left_by(&self.store, turn.id).await?;
            if let Some(Message::Text(text)) = said.context.last() {
                println!("{}", style::plain(&text.text));
            }
        }
        Ok(())
    }

    async fn tools(&self) {
        for tool in self.agent.tools(&RunClient::default()).await {
            output::tell(&format!(
                "{}  {}",
                style::bold(&tool.name),
                style::dim(&style::headline(&tool.description, 100))
            ));
        }
    }
}

/// Most files of a turn.
const MAX_ATTACHED: usize = 16;
/// Most sessions that `/sessions` lists.
const MAX_LISTED_SESSIONS: u32 = 50;

fn complain(error: &anyhow::Error) {
    output::failed(error, "");
}

async fn new(store: &Store, agent: &Agent) -> Result<Session> {
    Ok(store.create_session("", &agent.name, "").await?)
}

async fn found(store: &Store, name: &str) -> Result<Session> {
    let sessions = store.sessions("", None, u32::MAX).await?;
    let fits = |session: &&Session| {
        name == "last" || (!name.is_empty() && session.id.to_string().starts_with(name))
    };
    let mut fitting = sessions.into_iter().filter(|session| fits(&session));
    match (fitting.next(), fitting.next()) {
        (Some(session), _) if name == "last" => Ok(session),
        (Some(session), None) => Ok(session),
        (Some(_), Some(_)) => bail!("{name:?} begins the names of several sessions"),
        (None, _) => bail!("there is no session {name:?}; /sessions lists them"),
    }
}

/// The terminal, for one question at a time.
#[derive(Clone)]
struct Prompt {
    editor: Arc<Mutex<Editor<(), FileHistory>>>,
    history: PathBuf,
}

impl Debug for Prompt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt").finish_non_exhaustive()
    }
}

impl Prompt {
    fn new(history: PathBuf) -> Result<Self> {
        let config = EditorConfig::builder()
            .auto_add_history(false)
            .max_history_size(1_000)?
            .build();
        let mut editor = Editor::with_config(config).context("the terminal cannot be used")?;
        // The folder may not exist yet.
        let _ = editor.load_history(&history);
        Ok(Self {
            editor: Arc::new(Mutex::new(editor)),
            history,
        })
    }

    async fn read(&self, prompt: &'static str) -> Result<Typed> {
        let this = self.clone();
        own_work(move || this.typed(prompt)).await?
    }

    fn typed(&self, prompt: &str) -> Result<Typed> {
        let mut editor = self.editor.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        loop {
            let line = match editor.readline(if text.is_empty() { prompt } else { "… " }) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => return Ok(Typed::Interrupt),
                Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(error) => return Err(error.into()),
            };
            match line.strip_suffix('\\') {
                Some(begun) => {
                    text.push_str(begun);
                    text.push('\n');
                }
                None => {
                    text.push_str(&line);
                    break;
                }
            }
        }
        if !text.trim().is_empty() {
            // Without a history the session works.
            let _ = editor.add_history_entry(text.as_str());
            let _ = editor.save_history(&self.history);
        }
        Ok(Typed::Line(text))
    }
}

/// What a prompt was answered with.
enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// The input has ended.
    End,
}

/// Asks at the terminal, or applies a decision that was recorded elsewhere.
#[derive(Debug)]
struct PromptDecider {
    prompt: Prompt,
    store: Store,
    /// Serializes questions: an answer belongs to the last question asked.
    asking: tokio::sync::Mutex<()>,
    /// For the turn, which is a run.
    standing: StandingDecisions,
    /// Stops the turn. While a line is typed, the terminal makes no signal of Ctrl-C.
    interrupt: CancellationToken,
}

impl PromptDecider {
    async fn asked(&self, run: Uuid, pending: &Pending) -> Decision {
        let _alone = self.asking.lock().await;
        if let Some(decision) = self.standing.decision(run, pending) {
            return decision;
        }
        question(pending);
        loop {
            let answer = match self.prompt.read("approve? ").await {
                Ok(Typed::Line(answer)) => answer,
                Ok(Typed::Interrupt) => {
                    self.interrupt.cancel();
                    return std::future::pending().await;
                }
                // The decision must come from elsewhere.
                Ok(Typed::End) | Err(_) => return std::future::pending().await,
            };
            match decision(answer.trim(), run, pending, &self.standing) {
                Ok(decision) => return decision,
                Err(InvalidAnswer::Nothing) => question(pending),
                Err(InvalidAnswer::Because(reason)) => unclear(&reason),
            }
        }
    }
}

impl Decider for PromptDecider {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let asked = self.asked(run, pending);
            let decision = first_decision(&self.store, run, pending, asked).await;
            self.standing.follow(run, pending, &decision);
            decision
        })
    }
}
