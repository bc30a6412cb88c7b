//! Row 62: decisions of many people about one call.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::effects::EffectServer;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::runs::{RunClient, count, joined};
use crate::serving::{Answering, MODELS, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 62,
    name: "decisions_of_many_people",
    attack: "keys and commands decide on one waiting call at once, other keys too, again later, and while no server drives its run",
    must: "one counts, the others hear which; it alone has an effect, once, and is in the audit log",
    company: Company::Others,
    tries: |lab| Box::pin(ready(decisions_of_many_people(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
const TOOL: &str = "bad.drain";
/// The agent that a server may lack, which then leaves its runs where they are.
const AGENT: &str = "judged";
/// The agent that every server has.
const DEFAULT_AGENT: &str = "default";

/// A person or program that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voter {
    /// The key that began the run.
    Owner,
    /// A key with the scope `admin`.
    Admin,
    /// `toolhold approvals`.
    Command,
}

#[derive(Debug, PartialEq, Eq)]
enum VoteVerdict {
    Approve,
    /// Approve with another path.
    Edit(String),
    /// Refuse for this reason.
    Refuse(String),
}

#[derive(Debug, PartialEq, Eq)]
struct Vote {
    voter: Voter,
    verdict: VoteVerdict,
}

/// The reply to a vote.
#[derive(Debug)]
enum VoteReply {
    Counted,
    /// Another one counts; the text has which.
    Refused(String),
    /// The call waits no longer.
    Gone,
}

impl Vote {
    /// The name of the verdict in the API, the command and the record.
    fn name(&self) -> &'static str {
        match self.verdict {
            VoteVerdict::Approve => "approve",
            VoteVerdict::Edit(_) => "edit",
            VoteVerdict::Refuse(_) => "refuse",
        }
    }

    /// The voter in the record.
    fn by(&self) -> &'static str {
        match self.voter {
            Voter::Owner => "key ada",
            Voter::Admin => "key root",
            Voter::Command => "toolhold approvals",
        }
    }

    /// Words of the decision in the replies to later voters.
    fn words(&self) -> String {
        let by = self.by();
        match &self.verdict {
            VoteVerdict::Approve => format!("approved by {by}"),
            VoteVerdict::Edit(_) => format!("approved with other arguments by {by}"),
            VoteVerdict::Refuse(reason) => format!("refused by {by}: {reason}"),
        }
    }

    /// Paths that the tool asks for if this one counts.
    fn effects(&self, asked: &str) -> Vec<String> {
        match &self.verdict {
            VoteVerdict::Approve => vec![asked.to_owned()],
            VoteVerdict::Edit(path) => vec![path.clone()],
            VoteVerdict::Refuse(_) => Vec::new(),
        }
    }
}

/// Headers of the keys.
struct VoterKeys {
    owner: String,
    admin: String,
    other: String,
    /// Lacks the scope `approve`.
    mute: String,
}

/// The parts of all rounds.
struct VotingBench {
    folder: CommandFolder,
    effects: EffectServer,
    keys: VoterKeys,
}

/// A server at which is voted.
#[derive(Clone, Copy)]
struct VotingPlace<'a> {
    bench: &'a VotingBench,
    served: &'a Served,
}

impl VotingBench {
    fn serve(&self) -> Result<Served, AttackFailure> {
        let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
        Served::start(&self.folder, &serve)
    }

    fn at<'a>(&'a self, served: &'a Served) -> VotingPlace<'a> {
        VotingPlace {
            bench: self,
            served,
        }
    }
}

/// The waiting call of a round.
struct Question {
    run: String,
    /// JSON of the call from the server's list.
    call: Value,
    /// Path that the tool was to ask for.
    path: String,
}

impl Question {
    fn target(&self) -> String {
        let call = self.call["call"].as_str().unwrap_or_default();
        format!("/v1/approvals/{}/{call}", self.run)
    }
}

impl<'a> VotingPlace<'a> {
    fn owner(self) -> RunClient<'a> {
        self.client(&self.bench.keys.owner)
    }

    fn admin(self) -> RunClient<'a> {
        self.client(&self.bench.keys.admin)
    }

    fn client(self, key: &'a str) -> RunClient<'a> {
        RunClient {
            served: self.served,
            key: Some(key),
        }
    }

    fn run(self, arguments: &[&str]) -> Result<(Option<i32>, String), AttackFailure> {
        // Many run at the same time, so none has files of the folder for its output.
        let output = self
            .bench
            .folder
            .command(&[&CONFIG[..], arguments].concat())
            .output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((output.status.code(), said))
    }

    /// Begins a call that waits for a person.
    fn ask(self, path: &str, agent: &str) -> Result<Question, AttackFailure> {
        let effects = &self.bench.effects;
        let harmless =
            json!({"method": "GET", "url": effects.url("/ready"), "headers": [], "body": null});
        let ready = json!({"arguments": harmless, "agent": agent});
        self.owner().until_ready("bad.fetch", &ready)?;
        effects.take();
        let body = json!({"arguments": {"url": effects.url(path)}, "agent": agent});
        let (run, _answer) = self.owner().begin(TOOL, &body)?;
        let call = self.owner().until_question(&run)?;
        Ok(Question {
            run,
            call,
            path: path.to_owned(),
        })
    }

    fn cast(self, question: &Question, vote: &Vote) -> Result<VoteReply, AttackFailure> {
        let key = match vote.voter {
            Voter::Owner => &self.bench.keys.owner,
            Voter::Admin => &self.bench.keys.admin,
            Voter::Command => return self.cast_by_command(question, vote),
        };
        let mut body = json!({"digest": question.call["digest"], "verdict": vote.name()});
        match &vote.verdict {
            VoteVerdict::Approve => {}
            VoteVerdict::Edit(path) => {
                body["arguments"] = json!({"url": self.bench.effects.url(path)});
            }
            VoteVerdict::Refuse(reason) => body["reason"] = reason.as_str().into(),
        }
        let answered = self.client(key).ask("POST", &question.target(), &body)?;
        match answered.status {
            202 => Ok(VoteReply::Counted),
            404 => Ok(VoteReply::Gone),
            409 if answered.body.contains("does not wait any longer") => Ok(VoteReply::Gone),
            409 => Ok(VoteReply::Refused(answered.body)),
            _ => Err(AttackFailure::Broke(format!(
                "{vote:?} was answered {answered:?}"
            ))),
        }
    }

    fn cast_by_command(self, question: &Question, vote: &Vote) -> Result<VoteReply, AttackFailure> {
        let call = question.call["call"].as_str().unwrap_or_default();
        let more = match &vote.verdict {
            VoteVerdict::Approve => None,
            VoteVerdict::Edit(path) => {
                Some(json!({"url": self.bench.effects.url(path)}).to_string())
            }
            VoteVerdict::Refuse(reason) => Some(reason.clone()),
        };
        let mut arguments = vec!["approvals", vote.name(), call];
        arguments.extend(more.as_deref());
        let (code, said) = self.run(&arguments)?;
        match code {
            Some(0) => Ok(VoteReply::Counted),
            Some(1) if said.contains("decided before") => Ok(VoteReply::Refused(said)),
            Some(1) if said.contains("waits") || said.contains("wait any longer") => {
                Ok(VoteReply::Gone)
            }
            _ => Err(AttackFailure::Broke(format!(
                "{vote:?} ended with {code:?}: {said:.400}"
            ))),
        }
    }

    /// Decisions that never count: of another key, of one without the right to decide, about another call.
    fn cast_of_strangers(self, question: &Question, number: usize) -> Result<(), AttackFailure> {
        let shown = &question.call["digest"];
        let other = json!("0".repeat(64));
        let (key, digest, statuses): (_, _, &[u16]) = match number {
            0 => (&self.bench.keys.other, shown, &[404]),
            1 => (&self.bench.keys.mute, shown, &[403]),
            _ => (&self.bench.keys.owner, &other, &[404, 409]),
        };
        let body = json!({"digest": digest, "verdict": "approve"});
        let answered = self.client(key).ask("POST", &question.target(), &body)?;
        ensure(statuses.contains(&answered.status), || {
            format!("stranger {number} was answered {answered:?}")
        })?;
        let words = ["approved", "refused by"];
        let hears = words.iter().any(|word| answered.body.contains(word));
        ensure(!hears, || {
            format!("a stranger hears of a decision: {answered:?}")
        })
    }

    /// Casts all votes at the same time, with those of strangers between them.
    fn cast_at_once(
        self,
        question: &Question,
        votes: &[Vote],
    ) -> Result<Vec<VoteReply>, AttackFailure> {
        let gate = Barrier::new(votes.len() + STRANGERS);
        let gate = &gate;
        scope(|threads| {
            let cast = votes.iter().map(|vote| {
                threads.spawn(move || {
                    gate.wait();
                    self.cast(question, vote)
                })
            });
            let cast: Vec<_> = cast.collect();
            let strange = (0..STRANGERS).map(|number| {
                threads.spawn(move || {
                    gate.wait();
                    self.cast_of_strangers(question, number)
                })
            });
            let strange: Vec<_> = strange.collect();
            for stranger in strange {
                joined(stranger)?;
            }
            cast.into_iter().map(joined).collect()
        })
    }

    /// One of the votes counts, and the others hear which. `is_driven`: the run may have taken it up by then.
    fn one_counts<'v>(
        self,
        question: &Question,
        votes: &'v [Vote],
        is_driven: bool,
    ) -> Result<&'v Vote, AttackFailure> {
        let replies = self.cast_at_once(question, votes)?;
        let all = || votes.iter().zip(&replies);
        let mut counted = all().filter(|(_, reply)| matches!(reply, VoteReply::Counted));
        let (Some((winner, _)), None) = (counted.next(), counted.next()) else {
            return Err(AttackFailure::Broke(format!(
                "not one decision counts: {replies:?}"
            )));
        };
        for (vote, reply) in all() {
            ensure_told(winner, vote, reply, is_driven)?;
        }
        Ok(winner)
    }

    /// Casts later votes, none of which may count beside the winner.
    fn none_counts(
        self,
        question: &Question,
        votes: &[Vote],
        winner: &Vote,
        is_driven: bool,
    ) -> Result<(), AttackFailure> {
        let replies = self.cast_at_once(question, votes)?;
        for (vote, reply) in votes.iter().zip(&replies) {
            // Whoever repeats the decision that counted is told the same again.
            let is_repeated = vote == winner;
            ensure(is_repeated || !matches!(reply, VoteReply::Counted), || {
                format!("{vote:?} counts after {winner:?}")
            })?;
            ensure_told(winner, vote, reply, is_driven)?;
        }
        Ok(())
    }

    /// The run is over, and the decision that counted is the one that the record, the audit log and the effects have.
    fn ensure_obeyed(self, question: &Question, winner: &Vote) -> Result<(), AttackFailure> {
        let admin = self.admin();
        admin.until_over(&question.run)?;
        let (effects, expected) = (self.bench.effects.take(), winner.effects(&question.path));
        ensure(effects == expected, || {
            format!("{winner:?} counted, and the tool asked for {effects:?}, not for {expected:?}")
        })?;
        let events = admin.events(&question.run)?;
        let is_winner =
            |it: &Value| it["verdict"] == winner.name() && it["by"].as_str() == Some(winner.by());
        let mut decided = events.iter().filter(|event| event["event"] == "decided");
        ensure(
            count(&events, "decided") == 1
                && decided.all(is_winner)
                && count(&events, "tool_start") <= 1,
            || format!("{winner:?} counted, and the record has {events:?}"),
        )?;
        let (code, said) = self.run(&["audit", "search", "--run", &question.run, "--json"])?;
        let rows = said
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let rows: Vec<Value> = rows
            .filter(|row| row["action"] == "approval_decided")
            .collect();
        ensure(
            code == Some(0) && rows.len() == 1 && rows.iter().all(is_winner),
            || format!("{winner:?} counted, and the audit log has {said:.600}"),
        )
    }
}

/// Number of decisions that never count, beside each round's votes.
const STRANGERS: usize = 3;

fn ensure_told(
    winner: &Vote,
    vote: &Vote,
    reply: &VoteReply,
    is_driven: bool,
) -> Result<(), AttackFailure> {
    let is_told = match reply {
        VoteReply::Counted => true,
        VoteReply::Refused(said) => said.contains(&winner.words()),
        // The command names no run, so it only knows the calls that wait.
        VoteReply::Gone => is_driven && matches!(vote.voter, Voter::Command),
    };
    ensure(is_told, || {
        format!("{winner:?} counted, and {vote:?} heard {reply:?}")
    })
}

/// Votes that let the call be made, and votes against it. No two are the same decision of the same voter.
fn votes(path: &str) -> (Vec<Vote>, Vec<Vote>) {
    let vote = |voter, verdict| Vote { voter, verdict };
    let voters = [Voter::Owner, Voter::Admin, Voter::Command];
    let mut pro: Vec<Vote> = voters
        .iter()
        .map(|voter| vote(*voter, VoteVerdict::Approve))
        .collect();
    pro.extend([Voter::Owner, Voter::Admin].map(|voter| {
        let path = format!("{path}-edited-{voter:?}");
        vote(voter, VoteVerdict::Edit(path))
    }));
    let contra = [
        Voter::Owner,
        Voter::Admin,
        Voter::Owner,
        Voter::Admin,
        Voter::Command,
    ];
    let contra = contra.iter().enumerate().map(|(number, voter)| {
        let reason = format!("reason {number} against {path}");
        vote(*voter, VoteVerdict::Refuse(reason))
    });
    (pro, contra.collect())
}

fn configuration(endpoint: u16, effects: &EffectServer, has_agent: bool) -> String {
    let agent = if has_agent {
        format!("[agents.{AGENT}]\ndescription = \"Waits for a person\"\n")
    } else {
        String::new()
    };
    format!(
        "[endpoints.default]\nbase_url = \"http://127.0.0.1:{endpoint}/v1\"\nmodel = \"m\"\n\
         [modules]\npinning = \"never\"\n[serve]\nkeys = \"always\"\nkey_requests_per_minute = 0\n\
         [decisions]\ndefault = \"never\"\nalways = [\"{TOOL}\"]\n\
         [run]\ncall_timeout_ms = 120000\n{agent}[module.bad]\n{}\
         [module.bad.limits]\ntimeout_ms = 120000\n",
        effects.grant()
    )
}

fn decisions_of_many_people(lab: &Lab) -> Result<String, AttackFailure> {
    let (driven, left) = lab.times((3, 1), (12, 3));
    let endpoint = Answering::start(200, MODELS)?;
    let effects = EffectServer::start()?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/bad.wasm", components::FETCHER)?;
    let with_agent = configuration(endpoint.port, &effects, true);
    let without = configuration(endpoint.port, &effects, false);
    folder.write("host.toml", &with_agent)?;
    let keys = VoterKeys {
        owner: folder.key(&CONFIG, "ada", BOUNDS)?,
        admin: folder.key_with(&CONFIG, "root", &["--scopes", "run,approve,admin"], BOUNDS)?,
        other: folder.key(&CONFIG, "eve", BOUNDS)?,
        mute: folder.key_with(&CONFIG, "mute", &["--scopes", "run"], BOUNDS)?,
    };
    let bench = VotingBench {
        folder,
        effects,
        keys,
    };
    let mut served = bench.serve()?;
    for number in 0..driven {
        driven_round(bench.at(&served), number)?;
    }
    for number in 0..left {
        let path = format!("/left-{number}");
        let question = bench.at(&served).ask(&path, AGENT)?;
        served.kill()?;
        // A server that lacks the agent leaves the run, and so every later vote can hear which one counted.
        bench.folder.write("host.toml", &without)?;
        served = bench.serve()?;
        let (mut all, contra) = votes(&path);
        all.extend(contra);
        let at = bench.at(&served);
        let winner = at.one_counts(&question, &all, false)?;
        let (mut others, contra) = votes(&path);
        others.extend(contra);
        // Who repeats the decision that counts hears that it does.
        others.retain(|vote| vote.words() != winner.words());
        at.none_counts(&question, &others, winner, false)?;
        served.kill()?;
        bench.folder.write("host.toml", &with_agent)?;
        served = bench.serve()?;
        bench.at(&served).ensure_obeyed(&question, winner)?;
    }
    // No late effect of any round.
    let late = bench.effects.take();
    ensure(late.is_empty(), || {
        format!("the tool asked once more for {late:?}")
    })?;
    let verify = [&CONFIG[..], &["audit", "verify"]].concat();
    let verified = bench.folder.run(&verify, BOUNDS)?;
    ensure(verified.code == Some(0), || {
        format!("the audit log does not verify: {}", verified.stdout)
    })?;
    Ok(format!(
        "one decision counted in each of {} rounds",
        driven + left
    ))
}

/// A round whose run continues as soon as it has a decision: votes for the call, then those against it, or the other way
/// round, or all at once; then all again.
fn driven_round(at: VotingPlace<'_>, number: usize) -> Result<(), AttackFailure> {
    let path = format!("/asked-{number}");
    let question = at.ask(&path, DEFAULT_AGENT)?;
    let (mut pro, mut contra) = votes(&path);
    let (first, later) = match number % 3 {
        0 => (pro, contra),
        1 => (contra, pro),
        _ => {
            pro.append(&mut contra);
            (pro, contra)
        }
    };
    let winner = at.one_counts(&question, &first, true)?;
    at.none_counts(&question, &later, winner, true)?;
    at.ensure_obeyed(&question, winner)?;
    at.none_counts(&question, &first, winner, true)
}
