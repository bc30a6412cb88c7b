//! Row 55: collections that a stranger's key shares with a victim's.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::serving::{Answered, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 55,
    name: "shares_of_a_stranger",
    attack: "a key shares one collection after the other with another key, again after it left, and accepts in its place",
    must: "ten offers at most; no search without names looks in them",
    company: Company::Others,
    tries: |lab| Box::pin(ready(shares_of_a_stranger(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
/// Maximum number of unanswered offers of one owner to one key (docs/server.md).
const MOST_OFFERS: usize = 10;
const LURES: usize = MOST_OFFERS + 3;
/// Words of the stranger's documents, and of the victim's own.
const LURE: &str = "obey-the-stranger";
const OWN: &str = "own-words-of-the-victim";
const ALL: &str = "/v1/knowledge/collections";

/// A client of the server with a key.
struct KeyHolder<'a> {
    served: &'a Served,
    authorization: String,
}

impl KeyHolder<'_> {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Answered, AttackFailure> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let headers = [("authorization", self.authorization.as_str())];
        self.served.ask(method, path, &headers, &body)
    }

    fn must(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        status: u16,
    ) -> Result<Answered, AttackFailure> {
        let answered = self.ask(method, path, body)?;
        ensure(answered.status == status, || {
            format!("{method} {path}: {status} was expected: {answered:?}")
        })?;
        Ok(answered)
    }

    /// A collection with one document.
    fn collects(&self, name: &str, words: &str) -> Result<(), AttackFailure> {
        self.must("POST", ALL, &json!({"name": name}), 201)?;
        let document =
            json!({"source": format!("{name}.md"), "content": format!("The blue heron: {words}.")});
        self.must("POST", &format!("{ALL}/{name}/documents"), &document, 201)?;
        Ok(())
    }

    fn finds(&self, search: &Value) -> Result<String, AttackFailure> {
        Ok(self.must("POST", "/v1/knowledge/search", search, 200)?.body)
    }

    /// A search without names finds the victim's own words and none of the stranger's, however it is asked.
    fn ensure_undisturbed(&self, when: &str) -> Result<(), AttackFailure> {
        for search in [
            json!({"text": "heron"}),
            json!({"texts": ["heron", "blue heron"], "most": 50}),
            json!({"text": "obey stranger heron", "by": "words", "most": 50}),
        ] {
            let found = self.finds(&search)?;
            ensure(found.contains(OWN) && !found.contains(LURE), || {
                format!("{when}: {search} found {found:.400}")
            })?;
        }
        Ok(())
    }
}

fn shares_of_a_stranger(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = CommandFolder::new(lab)?;
    folder.write("host.toml", "[serve]\nkeys = \"always\"\n")?;
    let config = ["--config", "host.toml"];
    let keys = [
        folder.key(&config, "ada", BOUNDS)?,
        folder.key(&config, "eve", BOUNDS)?,
    ];
    let served = Served::start(
        &folder,
        &[&config[..], &["serve", "--listen", "127.0.0.1:0"]].concat(),
    )?;
    let holder = |authorization: &String| KeyHolder {
        served: &served,
        authorization: authorization.clone(),
    };
    let (ada, eve) = (holder(&keys[0]), holder(&keys[1]));
    ada.collects("own", OWN)?;
    let offer = |number: usize| {
        let access = ["read", "write"][number % 2];
        let path = format!("{ALL}/lure{number}/shares/ada");
        eve.ask("PUT", &path, &json!({"access": access}))
    };
    for number in 0..LURES {
        eve.collects(&format!("lure{number}"), LURE)?;
        let status = offer(number)?.status;
        let expected = if number < MOST_OFFERS { 204 } else { 409 };
        ensure(status == expected, || {
            format!("offer {number} of {MOST_OFFERS} was answered {status}")
        })?;
    }
    // An offer that is made anew, with other rights, makes no place for another one.
    offer(1)?;
    offer(2)?;
    let refused = offer(LURES - 1)?.status;
    ensure(refused == 409, || {
        format!("one more offer was answered {refused}")
    })?;
    let listed = ada.must("GET", ALL, &Value::Null, 200)?.body;
    let listed: Value = serde_json::from_str(&listed).unwrap_or_default();
    let offers = listed["collections"].as_array().map_or(0, |all| {
        let names = all.iter().filter_map(|it| it["name"].as_str());
        names.filter(|name| name.starts_with("eve/")).count()
    });
    ensure(offers == MOST_OFFERS, || {
        format!("{offers} collections of the stranger are listed: {listed:.400}")
    })?;
    ada.ensure_undisturbed("beside offers")?;
    // The stranger cannot answer in the place of the victim.
    for path in ["lure2/share", "eve%2Flure2/share", "ada%2Fown/share"] {
        let status = eve
            .ask("PUT", &format!("{ALL}/{path}"), &Value::Null)?
            .status;
        ensure(status >= 400, || {
            format!("the stranger accepted {path} itself: {status}")
        })?;
    }
    ada.ensure_undisturbed("after the stranger accepted")?;
    // By its name an offer is found, and once it is accepted also without, or nothing is proved.
    let found = ada.finds(&json!({"text": "heron", "collections": ["eve/lure0"]}))?;
    ensure(found.contains(LURE), || {
        format!("an offer is not found by its name: {found:.300}")
    })?;
    let answer = format!("{ALL}/eve%2Flure1/share");
    ada.must("PUT", &answer, &Value::Null, 204)?;
    let found = ada.finds(&json!({"text": "heron", "most": 50}))?;
    ensure(found.contains(LURE), || {
        format!("what was accepted is not found: {found:.300}")
    })?;
    // What was left is an offer again at most.
    ada.must("DELETE", &answer, &Value::Null, 204)?;
    ada.ensure_undisturbed("after it was left")?;
    offer(1)?;
    ada.ensure_undisturbed("after it was offered again")?;
    Ok(format!(
        "{MOST_OFFERS} of {LURES} offers taken; none found without its name"
    ))
}
