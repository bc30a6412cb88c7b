//! Row 72: images and files that are not what they say, too many, too large, or another key's.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::runs::until;
use crate::scripted::ScriptedModel;
use crate::serving::{Answered, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 72,
    name: "images_of_others",
    attack: "parts without bytes, of a false type, too large, thousands; images of another key by digest and by run; more than a key's quota",
    must: "refused in time, and no model is shown them; a key's own quota is full, and others' images are kept",
    company: Company::Others,
    tries: |lab| Box::pin(ready(images_of_others(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
/// Maximum processor time of the server for a request that it refuses.
const MOST: Duration = Duration::from_secs(3);
const MOST_MEMORY: u64 = 256 << 20;
/// Bytes of images of one key.
const QUOTA: usize = 20_000;
const CHAT: &str = "/v1/chat/completions";
const AGENT: &str = "/v1/agent";

/// Returns an image of about `bytes` bytes as a `data:` URL: the begin of a PNG, zeros, and a last byte by `last`.
fn png(bytes: usize, last: char) -> String {
    let zeros = "AAAA".repeat(bytes / 3);
    format!("data:image/png;base64,iVBORw0KGgoA{zeros}AAA{last}")
}

fn part(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn chat(content: &Value) -> Value {
    json!({"model": "default", "messages": [{"role": "user", "content": content}]})
}

/// Requests that are refused, and what is wrong with each.
fn refused() -> Vec<(&'static str, &'static str, Value)> {
    let urls = [
        ("a page as an image", "data:image/png;base64,PHN2Zz4="),
        (
            "a program as an image",
            "data:image/png;base64,f0VMRgIBAQA=",
        ),
        ("no base64", "data:image/png;base64,%89PNG"),
        ("no encoding", "data:image/png,abc"),
        ("no bytes", "data:image/png;base64,"),
        ("a file of this machine", "file:///etc/passwd"),
        ("this machine's own network", "http://127.0.0.1:1/a.png"),
        (
            "the cloud's own address",
            "http://169.254.169.254/latest/meta-data",
        ),
        ("a scheme in disguise", " \tfile:///etc/passwd"),
    ];
    let mut all: Vec<_> = urls
        .into_iter()
        .map(|(what, url)| (what, CHAT, chat(&json!([part(url)]))))
        .collect();
    let large = png(6 << 20, 'B');
    let breaks = format!("data:image/png;base64,{}", "\n".repeat(7 << 20));
    let many = vec![part(&png(9, 'B')); 5_000];
    let one = |url: &str| chat(&json!([part(url)]));
    all.extend([
        ("more than 5 MiB", CHAT, one(&large)),
        ("line breaks alone", CHAT, one(&breaks)),
        ("thousands of parts", CHAT, chat(&Value::Array(many))),
        (
            "an image of the system",
            CHAT,
            json!({"model": "default", "messages": [
                {"role": "system", "content": [part(&png(9, 'B'))]}, {"role": "user", "content": "Hello"},
            ]}),
        ),
        (
            "an id of a file",
            CHAT,
            chat(&json!([{"type": "input_image", "file_id": "file-1"}])),
        ),
    ]);
    all
}

/// Two keys of a server.
struct TwoKeys<'a> {
    served: &'a Served,
    ada: &'a str,
    eve: &'a str,
}

impl TwoKeys<'_> {
    fn post(&self, key: &str, path: &str, body: &Value) -> Result<Answered, AttackFailure> {
        let headers = [("authorization", key)];
        self.served.ask("POST", path, &headers, &body.to_string())
    }

    /// A run of a key that shows the model an image.
    fn shows(&self, key: &str, last: char) -> Result<Answered, AttackFailure> {
        let content = json!([part(&png(6_000, last))]);
        let body = json!({"messages": [{"role": "user", "content": content}]});
        self.post(key, AGENT, &body)
    }

    fn must_show(&self, key: &str, last: char) -> Result<Value, AttackFailure> {
        let answered = self.shows(key, last)?;
        ensure(answered.status == 200, || {
            format!("an image that a key has room for was answered {answered:?}")
        })?;
        Ok(serde_json::from_str(&answered.body).unwrap_or_default())
    }
}

fn images_of_others(lab: &Lab) -> Result<String, AttackFailure> {
    let model = ScriptedModel::start("done")?;
    let folder = CommandFolder::new(lab)?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\nimages = true\n\
             [modules]\npinning = \"never\"\n[fallback]\nenabled = false\n\
             [serve]\nkeys = \"always\"\nkey_requests_per_minute = 0\nkey_image_bytes = {QUOTA}\n",
            model.port
        ),
    )?;
    let config = ["--config", "host.toml"];
    let ada = folder.key(&config, "ada", BOUNDS)?;
    let eve = folder.key(&config, "eve", BOUNDS)?;
    let serve = [&config[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let served = Served::start(&folder, &serve)?;
    until("a server that is ready", || {
        let ready = served.ask("GET", "/readyz", &[], "")?;
        Ok((ready.status == 200).then_some(()))
    })?;
    let keys = TwoKeys {
        served: &served,
        ada: &ada,
        eve: &eve,
    };
    let before = served.peak();
    model.say([]);
    let mut tried = 0;
    for (what, path, body) in refused() {
        let work = served.work();
        let answered = keys.post(&eve, path, &body)?;
        let is_refused = matches!(answered.status, 400 | 413);
        ensure(is_refused && !work.is_over(MOST), || {
            format!(
                "{what}: answered after {}: {answered:?}",
                ms(work.elapsed())
            )
        })?;
        tried += 1;
    }
    let asked = model.prompts().len();
    ensure(asked == 0, || {
        format!("the model was asked {asked} times about images that are refused")
    })?;
    let grown = match (before, served.peak()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => 0,
    };
    ensure(grown < MOST_MEMORY, || {
        format!("{} MiB of memory were needed", grown >> 20)
    })?;
    tried += by_reference(&keys, &model)?;
    quota(&keys)?;
    Ok(format!("{tried} parts refused; {} MiB", grown >> 20))
}

/// The stranger names the victim's image without its bytes, and asks for the run that has it. Returns how often.
fn by_reference(keys: &TwoKeys<'_>, model: &ScriptedModel) -> Result<usize, AttackFailure> {
    model.say([]);
    let run = keys.must_show(keys.ada, 'C')?;
    let shown = model.prompts().concat();
    ensure(shown.contains("iVBORw0KGgoA"), || {
        "the victim's model was not shown the image: nothing is proved".into()
    })?;
    let id = run["id"].as_str().unwrap_or_default();
    let headers = [("authorization", keys.ada)];
    let events = keys
        .served
        .ask("GET", &format!("/v1/runs/{id}/events"), &headers, "")?;
    // Its digest, as the victim's record has it.
    let named = events.body.split("\"digest\":\"").skip(1);
    let mut digests = named.filter_map(|rest| rest.split('"').next());
    let digest = digests.find(|digest| digest.starts_with("sha256:"));
    let Some(digest) = digest else {
        return Err(AttackFailure::Broke(
            "the record of the victim's run names no image: nothing is proved".into(),
        ));
    };
    model.say([]);
    let image = |more: Value| {
        let mut image = json!({
            "type": "image", "media_type": "image/png", "digest": digest, "bytes": 6_012,
        });
        if let (Some(image), Value::Object(more)) = (image.as_object_mut(), more) {
            image.extend(more);
        }
        json!([image])
    };
    let messages = json!([{"role": "user", "content": "What is there?"}]);
    let named = [
        json!({"context": image(json!({})), "messages": messages}),
        json!({"context": image(json!({"data": null})), "messages": messages}),
        json!({"context": image(json!({"data": ""})), "messages": messages}),
        json!({"messages": [{"role": "user", "content": [part(digest)]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": digest}}]}]}),
    ];
    let mut tried = 0;
    for body in &named {
        let answered = keys.post(keys.eve, AGENT, body)?;
        ensure(answered.status == 400, || {
            format!("an image by its digest was answered {answered:?}: {body}")
        })?;
        tried += 1;
    }
    let response = format!("resp_{}", id.replace('-', ""));
    for path in [
        format!("/v1/responses/{response}/input_items"),
        format!("/v1/responses/{response}"),
        format!("/v1/runs/{id}/events"),
    ] {
        let headers = [("authorization", keys.eve)];
        let answered = keys.served.ask("GET", &path, &headers, "")?;
        ensure((400..500).contains(&answered.status), || {
            format!("another key's {path} was answered {answered:?}")
        })?;
        tried += 1;
    }
    let follows =
        json!({"model": "default", "input": "What is there?", "previous_response_id": response});
    let answered = keys.post(keys.eve, "/v1/responses", &follows)?;
    ensure((400..500).contains(&answered.status), || {
        format!("a response after another key's was answered {answered:?}")
    })?;
    let shown = model.prompts().concat();
    ensure(!shown.contains("iVBORw0KGgoA"), || {
        "a model was shown the image of another key".into()
    })?;
    Ok(tried + 1)
}

/// The stranger fills its own quota, also with the victim's image.
fn quota(keys: &TwoKeys<'_>) -> Result<(), AttackFailure> {
    // The same bytes as the victim's count for the stranger as well.
    for last in ['C', 'D', 'E'] {
        keys.must_show(keys.eve, last)?;
    }
    let answered = keys.shows(keys.eve, 'F')?;
    ensure(
        answered.status == 413 && answered.body.contains("image_quota"),
        || format!("more images than a key may have were answered {answered:?}"),
    )?;
    // One that is kept with the key's runs needs no room.
    keys.must_show(keys.eve, 'C')?;
    keys.must_show(keys.ada, 'G')?;
    Ok(())
}
