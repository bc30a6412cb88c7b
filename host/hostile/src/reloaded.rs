//! Row 78: a configuration file that loses its content while a server runs.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::runs::{RunClient, until};
use crate::scripted::ScriptedModel;
use crate::serving::Served;
use serde_json::{Value, json};
use std::future::ready;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 78,
        name: "configuration_that_is_cut",
        attack: "the configuration of a server is left empty, without a setting, without endpoints, without grants, or cut in a number",
        must: "endpoints and grants stay in use until it is whole, or until a person says that it is meant",
        company: Company::Others,
        tries: |lab| Box::pin(ready(configuration_that_is_cut(lab))),
    },
    Attack {
        row: 78,
        name: "shields_that_a_cut_takes",
        attack: "the configuration of a server is cut at the end of each of its tables, and within that of its shield",
        must: "no model is shown what the shield hides, until a person says that it is meant",
        company: Company::Others,
        tries: |lab| Box::pin(ready(shields_that_a_cut_takes(lab))),
    },
];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// The answer of the model.
const DONE: &str = "done";
/// The beginning of the file. A cut after `7` is a number all the same.
const HEAD: &str = "[run]\nmax_steps = 70\n[modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n\
    [fallback]\nenabled = false\n[serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n";
/// The last table of a file, with a card that it hides and the part of that which no model may be shown.
const SHIELD: &str = "[shields.private]\nkind = \"pii\"\nhide = [\"card\"]\n";
const CARD: &str = "5500 0055 5555 5559";
const PART: &str = "0055 5555";
const GRANTS: &str = "[module.probe]\nkey_value = {}\n[module.other]\nkey_value = {}\n";

/// A server whose file is cut.
struct CutBench<'a> {
    folder: &'a CommandFolder,
    client: RunClient<'a>,
    /// Time in which a cut file stays, which is more than a server takes until it has read one.
    window: Duration,
}

impl<'a> CutBench<'a> {
    /// Waits until the server answers runs.
    fn of_ready(
        lab: &Lab,
        folder: &'a CommandFolder,
        served: &'a Served,
    ) -> Result<Self, AttackFailure> {
        let bench = Self {
            folder,
            client: RunClient { served, key: None },
            window: lab.times(Duration::from_secs(1), Duration::from_millis(500)),
        };
        until("a server that is ready", || {
            Ok(bench.unanswered()?.is_none().then_some(()))
        })?;
        Ok(bench)
    }

    /// Writes the file as a shell's `>` does: in place.
    fn write(&self, text: &str) -> Result<(), AttackFailure> {
        self.folder.write("host.toml", text)
    }

    /// Why a module's grant is not in use; `None` if it is.
    fn denied(&self, module: &str) -> Result<Option<String>, AttackFailure> {
        let path = format!("/v1/tools/{module}.remember");
        let body = json!({"arguments": {"key": "a", "value": "b"}});
        let answered = self.client.ask("POST", &path, &body)?;
        let answer: Value = serde_json::from_str(&answered.body).unwrap_or_default();
        let is_made = answered.status == 200 && answer["error"].is_null();
        Ok((!is_made).then(|| format!("{module}: {} {:.200}", answered.status, answered.body)))
    }

    /// Why the agent has no endpoint; `None` if it has.
    fn unanswered(&self) -> Result<Option<String>, AttackFailure> {
        let body = json!({"messages": [{"role": "user", "content": "Say that you are done."}]});
        let answered = self.client.ask("POST", "/v1/agent", &body)?;
        let answer: Value = serde_json::from_str(&answered.body).unwrap_or_default();
        let is_good = answered.status == 200 && answer["output"] == DONE;
        Ok((!is_good).then(|| format!("the agent: {} {:.200}", answered.status, answered.body)))
    }

    /// The first of the grants and endpoints that is not in use, and why.
    fn lost(&self) -> Result<Option<String>, AttackFailure> {
        for module in ["probe", "other"] {
            if let Some(lost) = self.denied(module)? {
                return Ok(Some(lost));
            }
        }
        self.unanswered()
    }

    /// Writes a cut file, and looks for a while whether everything is as it was. How often it looked.
    fn cut(&self, what: &str, text: &str) -> Result<u32, AttackFailure> {
        self.write(text)?;
        let (began, mut looks) = (Instant::now(), 0);
        while began.elapsed() < self.window {
            let lost = self.lost()?;
            ensure(lost.is_none(), || {
                format!(
                    "{what}: {} after {}",
                    lost.unwrap_or_default(),
                    ms(began.elapsed())
                )
            })?;
            looks += 1;
            sleep(Duration::from_millis(40));
        }
        Ok(looks)
    }
}

fn configuration_that_is_cut(lab: &Lab) -> Result<String, AttackFailure> {
    let model = ScriptedModel::start(DONE)?;
    let folder = CommandFolder::new(lab)?;
    for module in ["probe", "other"] {
        folder.write(&format!("modules/{module}.wasm"), components::PROBE)?;
    }
    let endpoint = format!(
        "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n",
        model.port
    );
    let whole = format!("{HEAD}{GRANTS}{endpoint}");
    // The other module has nothing yet.
    folder.write(
        "host.toml",
        format!("{HEAD}[module.probe]\nkey_value = {{}}\n{endpoint}"),
    )?;
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let served = Served::start(&folder, &serve)?;
    let bench = CutBench::of_ready(lab, &folder, &served)?;
    // The file is watched, or nothing is proved.
    let denied = bench.denied("other")?;
    ensure(denied.is_some(), || {
        "a module has what it was not granted".into()
    })?;
    bench.write(&whole)?;
    until("a grant more", || Ok(bench.lost()?.is_none().then_some(())))?;

    let number = HEAD.find("0\n").unwrap_or(0);
    let granted = format!("{HEAD}{GRANTS}");
    let mut looks = 0;
    for (what, text) in [
        ("an empty file", ""),
        ("a comment", "# written anew\n"),
        ("the end of a table", granted.as_str()),
        ("within a number", &HEAD[..number]),
        (
            "within an address",
            &whole[..whole.len() - endpoint.len() / 2],
        ),
        // What is left of another file: a setting of it, and no more.
        ("a setting", "[run]\nmax_steps = 69\n"),
    ] {
        looks += bench.cut(what, text)?;
        bench.write(&whole)?;
    }
    // The same content in another order, whose last part are the grants.
    let ungranted = format!("{HEAD}{endpoint}");
    bench.write(&format!("{ungranted}{GRANTS}"))?;
    looks += bench.cut("without grants", &ungranted)?;
    // A person means it.
    let reload = [&CONFIG[..], &["serve", "--reload"]].concat();
    let said = folder.run(&reload, BOUNDS)?;
    ensure(said.code == Some(0), || {
        format!("a server cannot be told to read its file: {}", said.stderr)
    })?;
    until("the end of a grant that a person took away", || {
        Ok(bench.denied("probe")?.map(drop))
    })?;
    let lost = bench.unanswered()?;
    ensure(lost.is_none(), || {
        format!(
            "what stayed in the file is gone: {}",
            lost.unwrap_or_default()
        )
    })?;
    Ok(format!(
        "7 cuts, everything in use at {looks} looks; taken away when a person said so"
    ))
}

fn shields_that_a_cut_takes(lab: &Lab) -> Result<String, AttackFailure> {
    let model = ScriptedModel::start(DONE)?;
    let folder = CommandFolder::new(lab)?;
    let unshielded = format!(
        "{HEAD}[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n",
        model.port
    );
    let whole = format!("{unshielded}{SHIELD}");
    folder.write("host.toml", whole.as_str())?;
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let served = Served::start(&folder, &serve)?;
    let bench = CutBench::of_ready(lab, &folder, &served)?;
    // Whether the model was shown the card; `None` if the run was refused.
    let is_shown = || -> Result<Option<bool>, AttackFailure> {
        model.say([]);
        let task = format!("Pay with {CARD}, please.");
        let body = json!({"messages": [{"role": "user", "content": task}]});
        let answered = bench.client.ask("POST", "/v1/agent", &body)?;
        let is_made = answered.status == 200 && !model.prompts().is_empty();
        Ok(is_made.then(|| model.prompts().concat().contains(PART)))
    };
    let shows = |expected: bool| -> Result<Option<()>, AttackFailure> {
        Ok((is_shown()? == Some(expected)).then_some(()))
    };
    // The file is watched, and what a person changes in a shield holds at once, or nothing is proved.
    until("a shield", || shows(false))?;
    bench.write(&whole.replace("card", "email"))?;
    until("a shield that hides something else", || shows(true))?;
    bench.write(&whole)?;
    until("the shield again", || shows(false))?;

    let tables = whole.match_indices("\n[").map(|(at, _)| at + 1);
    let lines = SHIELD
        .match_indices('\n')
        .map(|(at, _)| unshielded.len() + at + 1);
    let (mut cuts, mut looks) = (0, 0);
    for at in tables.chain(lines).filter(|at| *at < whole.len()) {
        bench.write(&whole[..at])?;
        let began = Instant::now();
        while began.elapsed() < bench.window {
            let is_shown = is_shown()?;
            ensure(is_shown != Some(true), || {
                format!(
                    "a model is shown a card {} after a cut at {at}, behind {:?}",
                    ms(began.elapsed()),
                    whole[..at].lines().next_back().unwrap_or_default()
                )
            })?;
            looks += u32::from(is_shown.is_some());
            sleep(Duration::from_millis(40));
        }
        cuts += 1;
        bench.write(&whole)?;
        until("the whole file in use", || shows(false))?;
    }
    ensure(looks > cuts, || {
        format!("{looks} runs were made: nothing is proved")
    })?;
    // A person means it.
    bench.write(&unshielded)?;
    let reload = [&CONFIG[..], &["serve", "--reload"]].concat();
    let said = folder.run(&reload, BOUNDS)?;
    ensure(said.code == Some(0), || {
        format!("a server cannot be told to read its file: {}", said.stderr)
    })?;
    until("the end of a shield that a person took away", || {
        shows(true)
    })?;
    Ok(format!("{cuts} cuts, the card hidden in {looks} runs"))
}
