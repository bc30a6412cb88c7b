//! Row 77: personal data, secrets and addresses in texts of all scripts, as people write them there.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::runs::until;
use crate::scripted::ScriptedModel;
use crate::serving::Served;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::future::ready;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 77,
        name: "values_beside_letters",
        attack: "cards, accounts, numbers of persons, keys, tokens, mail and addresses directly between letters and signs of 40 scripts",
        must: "no model is shown one; what is allowed reaches it",
        company: Company::Others,
        tries: |lab| Box::pin(ready(values_beside_letters(lab))),
    },
    Attack {
        row: 77,
        name: "values_in_other_forms",
        attack: "the same with digits and colons of full width, other spaces between groups, names of other languages, other slashes and dots, hidden characters, behind escapes",
        must: "no model is shown one",
        company: Company::Others,
        tries: |lab| Box::pin(ready(values_in_other_forms(lab))),
    },
    Attack {
        row: 77,
        name: "values_that_are_divided",
        attack: "cards, accounts, keys, tokens, mail and addresses that tags, selectors of variants, marks of direction, joiners and soft hyphens divide, beside letters of other scripts",
        must: "the host puts none together for a model; ordinary texts with such characters, and numbers that are like such values, reach it",
        company: Company::Others,
        tries: |lab| Box::pin(ready(values_that_are_divided(lab))),
    },
];

/// A letter, mark or sign of each: scripts without spaces, others without Latin letters, some beyond 16 bits, and what
/// stands before and behind words.
const BESIDE: [char; 48] = [
    '号', '々', '𠀀', 'の', 'カ', 'ｶ', 'ー', 'ㄅ', '각', 'บ', 'ี', 'ກ', 'ក', 'က', 'ཀ', 'ꀀ', 'ꦲ',
    'ᬓ', 'ж', 'Ӂ', 'λ', 'ա', 'ა', 'א', 'ع', 'ܐ', 'ߊ', 'क', '्', 'ক', 'ਕ', 'ક', 'க', 'క', 'ക', 'අ',
    'አ', 'Ꭰ', 'ᠠ', 'ᐁ', '𞤀', '𐌰', '𐒰', '、', '。', '「', '：', '🔑',
];
/// Values that the shield hides, each whole: none is a part of another.
const VALUES: [&str; 9] = [
    "4111111111111111",
    "5500 0055 5555 5559",
    "DE89370400440532013000",
    "AKIAIOSFODNN7EXAMPLE",
    "sk-proj-abcDEF0123456789abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "11010519491231002X",
    "+442079460958",
    "ann@example.com",
];
/// Addresses of a host that is not allowed.
const ADDRESSES: [&str; 5] = [
    "http://evil.test/x",
    "www.evil.test",
    "https:evil.test",
    "//evil.test/x",
    "wss://evil.test",
];
/// Texts, and the part of each that no model may be shown.
const OTHER_FORMS: [(&str, &str); 32] = [
    ("卡号４１１１１１１１１１１１１１１１有效", "４１１１１"),
    ("マイナンバーは１２３４５６７８９０１８です", "５６７８"),
    ("card_4111111111111111", "41111111"),
    ("4111\u{a0}1111\u{a0}1111\u{a0}1111", "1111\u{a0}1111"),
    (
        "4111\u{2009}1111\u{2009}1111\u{2009}1111",
        "1111\u{2009}1111",
    ),
    (
        "4111\u{202f}1111\u{202f}1111\u{202f}1111",
        "1111\u{202f}1111",
    ),
    (
        "账号DE89\u{a0}3704\u{a0}0044\u{a0}0532\u{a0}0130\u{a0}00",
        "3704\u{a0}0044",
    ),
    (
        "IBAN DE89\u{202f}3704\u{202f}0044\u{202f}0532\u{202f}0130\u{202f}00",
        "3704\u{202f}0044",
    ),
    ("联系方式：13812345678", "12345678"),
    ("联系我 13812345678", "12345678"),
    ("позвоните 89161234567", "1234567"),
    ("мой номер 89161234567", "1234567"),
    ("8\u{a0}(916)\u{a0}123-45-67", "123-45-67"),
    ("+7\u{a0}916\u{a0}123\u{a0}45\u{a0}67", "916\u{a0}123"),
    ("СНИЛС 112 233 445 95", "233 445"),
    ("СНИЛС: 112-233-445-95", "233-445"),
    ("паспорт РФ 4508123456", "8123456"),
    ("паспорт 45 08 № 123456", "123456"),
    // Hidden characters, which no model is shown.
    ("4111\u{200b}1111\u{ad}1111\u{2060}1111", "4111111111"),
    ("jo\u{200b}e@exam\u{ad}ple.com", "joe@example"),
    // Behind escapes, as servers write HTML into JSON, and URLs into URLs.
    (r"\u003e5500005555555559\u003c", "55000055"),
    ("next=%2F%3Fcard%3D5500005555555559", "55000055"),
    // Other dots, and a name on a line of its own.
    ("5500.0055.5555.5559", "0055.5555"),
    ("ИНН:\n500100732259", "0100732"),
    // Of a terminal, of JSON in JSON, and behind the icon of a font.
    ("\u{1b}[1;33m5500005555555559\u{1b}[0m", "55000055"),
    (r"\\n5500005555555559", "55000055"),
    (
        "x\u{e000}5500\u{200b}0055\u{200b}5555\u{200b}5559",
        "55000055",
    ),
    // Groups farther apart. Tabs are escapes in JSON.
    ("5500  0055  5555  5559", "0055  5555"),
    ("card\t5500\t0055\t5555\t5559\t12/27", r"0055\t5555"),
    ("5500 - 0055 - 5555 - 5559", "0055 - 5555"),
    ("5500·0055·5555·5559", "0055·5555"),
    ("DE89  3704  0044  0532  0130  00", "3704  0044"),
];
/// Addresses whose host is another than it seems, or that only some readers take for one.
const OTHER_ADDRESSES: [&str; 13] = [
    "访问www。evil.test",
    "_//evil.test/x",
    "<//evil.test>",
    "`//evil.test/x`",
    "ｈｔｔｐ://evil.test/",
    "http://example.com\\@evil.test",
    "w\u{200b}ww.evil.test",
    r"see\nwww.evil.test",
    r"`\\evil.test\share`",
    r"打开\\evil.test\share",
    r"path:\\\\evil.test\\share",
    "\u{1b}[4mwww.evil.test\u{1b}[0m",
    "see w\u{ad}ww%\u{200b}2Eevil.test",
];
/// Characters that the host leaves out of what a model is shown: tags, selectors of variants, marks of direction, a soft
/// hyphen, joiners, fillers, and signs that are not written.
const DIVIDERS: [char; 20] = [
    '\u{e0041}',
    '\u{e007f}',
    '\u{fe0f}',
    '\u{fe00}',
    '\u{e0100}',
    '\u{202e}',
    '\u{202c}',
    '\u{2066}',
    '\u{200e}',
    '\u{200f}',
    '\u{61c}',
    '\u{ad}',
    '\u{200b}',
    '\u{200c}',
    '\u{200d}',
    '\u{34f}',
    '\u{2060}',
    '\u{2063}',
    '\u{feff}',
    '\u{115f}',
];
/// Texts that no shield may change or block. Some have hidden characters that belong to them, others numbers that are like
/// values: two with four decimals, a version, a number of a book, days, twelve digits.
const ORDINARY: [&str; 8] = [
    "می\u{200c}خواهم ۱۲۳",
    "👨\u{200d}👩 at http://example.com/x",
    "หนังสือ ๒๕๖๗",
    "今天 2024-12-31",
    "4111.1111 1111.1111",
    "v4.5.6.7 of 31.12.2024",
    "ISBN 978-0-306-40615-7",
    "5001 0073 2259",
];

/// A server with both shields, and the model that it asks.
struct ShieldBench {
    model: ScriptedModel,
    served: Served,
    _folder: CommandFolder,
}

impl ShieldBench {
    fn start(lab: &Lab) -> Result<Self, AttackFailure> {
        let model = ScriptedModel::start("done")?;
        let folder = CommandFolder::new(lab)?;
        folder.write(
            "host.toml",
            format!(
                "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n\
                 [fallback]\nenabled = false\n[modules]\npinning = \"never\"\n\
                 [serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
                 [shields.private]\nkind = \"pii\"\n\
                 hide = [\"api_key\", \"card\", \"email\", \"iban\", \"jwt\", \"national_id\", \"phone\"]\n\
                 [shields.hosts]\nkind = \"domains\"\nallow = [\"example.com\"]\nplaces = [\"input\"]\n",
                model.port
            ),
        )?;
        let served = Served::start(
            &folder,
            &["--config", "host.toml", "serve", "--listen", "127.0.0.1:0"],
        )?;
        until("a server that is ready", || {
            let ready = served.ask("GET", "/readyz", &[], "")?;
            Ok((ready.status == 200).then_some(()))
        })?;
        let bench = Self {
            model,
            served,
            _folder: folder,
        };
        let shown = bench.shown("Open http://example.com/x, and see 12.")?;
        ensure(
            shown.contains("http://example.com/x") && shown.contains("see 12"),
            || format!("the model is not shown what is allowed: nothing is proved: {shown:.300}"),
        )?;
        Ok(bench)
    }

    /// The texts that the model was shown in a run of this task; empty if it was not asked.
    fn shown(&self, task: &str) -> Result<String, AttackFailure> {
        self.model.say([]);
        let body = json!({"messages": [{"role": "user", "content": task}]});
        let answered = self
            .served
            .ask("POST", "/v1/agent", &[], &body.to_string())?;
        ensure(answered.status == 200, || {
            format!("a run of {task:.100} was answered {answered:?}")
        })?;
        // Written anew, so that no letter is an escape.
        let prompts = self.model.prompts();
        let prompts = prompts.iter().map(|prompt| {
            let prompt: Value = serde_json::from_str(prompt).unwrap_or_default();
            prompt.to_string()
        });
        Ok(prompts.collect())
    }
}

/// The text with the character behind each third one.
fn divided(text: &str, divider: char) -> String {
    let mut divided = String::new();
    for (at, c) in text.chars().enumerate() {
        if at > 0 && at.is_multiple_of(3) {
            divided.push(divider);
        }
        divided.push(c);
    }
    divided
}

/// The text around the first place of a value in what the model was shown.
fn around<'a>(shown: &'a str, value: &str) -> &'a str {
    let at = shown.find(value).unwrap_or(0);
    let begin = shown.floor_char_boundary(at.saturating_sub(24));
    let end = shown.floor_char_boundary(at + value.len() + 24);
    &shown[begin..end]
}

fn values_beside_letters(lab: &Lab) -> Result<String, AttackFailure> {
    let bench = ShieldBench::start(lab)?;
    let mut broke = Vec::new();
    // All in one text: whatever is left of it in clear is seen.
    let between = BESIDE
        .iter()
        .flat_map(|beside| VALUES.map(|value| format!("{beside}{value}{beside}")));
    let text = between.collect::<Vec<_>>().join(" ");
    let shown = bench.shown(&text)?;
    ensure(!shown.is_empty(), || {
        "a text of values did not reach the model: nothing is proved".into()
    })?;
    for value in VALUES {
        if shown.contains(value) {
            broke.push(format!("clear: {:?}", around(&shown, value)));
        }
    }
    // A text of several addresses would be blocked for any of them.
    let addresses = ADDRESSES.into_iter().cycle();
    let mut tried = 0;
    for (beside, address) in BESIDE.iter().zip(addresses).step_by(lab.times(4, 1)) {
        let text = format!("Open {beside}{address}{beside}");
        if !bench.shown(&text)?.is_empty() {
            broke.push(format!("passed: {text:?}"));
        }
        tried += 1;
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    Ok(format!(
        "{} values hidden, {tried} addresses blocked",
        BESIDE.len() * VALUES.len()
    ))
}

fn values_in_other_forms(lab: &Lab) -> Result<String, AttackFailure> {
    let bench = ShieldBench::start(lab)?;
    let mut broke = Vec::new();
    let texts = OTHER_FORMS.map(|(text, _)| text);
    // A sentence each.
    let shown = bench.shown(&texts.join("\n\n"))?;
    ensure(!shown.is_empty(), || {
        "a text of values did not reach the model: nothing is proved".into()
    })?;
    for (text, part) in OTHER_FORMS {
        if shown.contains(part) {
            broke.push(format!("clear: {text:?} in {:?}", around(&shown, part)));
        }
    }
    for text in OTHER_ADDRESSES {
        if !bench.shown(text)?.is_empty() {
            broke.push(format!("passed: {text:?}"));
        }
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    Ok(format!(
        "{} values hidden, {} addresses blocked",
        OTHER_FORMS.len(),
        OTHER_ADDRESSES.len()
    ))
}

fn values_that_are_divided(lab: &Lab) -> Result<String, AttackFailure> {
    let bench = ShieldBench::start(lab)?;
    let mut broke = Vec::new();
    let ordinary = bench.shown(&ORDINARY.join("; "))?;
    for text in ORDINARY {
        if !ordinary.contains(text) {
            broke.push(format!("changed: {text:?}"));
        }
    }
    let mut beside = BESIDE.iter().cycle();
    let mut addresses = ADDRESSES.into_iter().chain([r"\\evil.test\share"]).cycle();
    let mut tried = 0;
    for (at, divider) in DIVIDERS.into_iter().enumerate() {
        // A run for each, which knows no value yet. The word shows that the host leaves this character out.
        let mut text = divided("ordinary", divider);
        for (value, beside) in VALUES.iter().zip(&mut beside) {
            let value = divided(value, divider);
            let _ = write!(text, " {beside}{divider}{value}{divider}{beside}");
        }
        let shown = bench.shown(&text)?;
        ensure(shown.contains("ordinary"), || {
            format!("a model is shown {divider:?}, or no text: nothing is proved: {shown:.300}")
        })?;
        for value in VALUES {
            if shown.contains(value) {
                broke.push(format!("{divider:?}: {:?}", around(&shown, value)));
            }
        }
        if !at.is_multiple_of(lab.times(4, 1)) {
            continue;
        }
        for address in addresses.by_ref().take(2) {
            let text = format!("Open 打开{}号", divided(address, divider));
            if !bench.shown(&text)?.is_empty() {
                broke.push(format!("passed: {text:?}"));
            }
            tried += 1;
        }
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    Ok(format!(
        "{} values hidden, {tried} addresses blocked",
        DIVIDERS.len() * VALUES.len()
    ))
}
