//! JSON-RPC 2.0 as MCP uses it, for both sides: parses requests, notifications and answers, and writes them.

use bytes::Bytes;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value, json};
use std::fmt::{self, Formatter};
use toolhold_json::bounded::TooMuchMemory;
use toolhold_json::hex::sha256;
use toolhold_json::scan::{JsonLexer, JsonToken};
use toolhold_json::string::StringPart;
use toolhold_json::{bounded, numbers};

pub const PARSE_ERROR: i64 = -32_700;
pub const INVALID_REQUEST: i64 = -32_600;
pub const METHOD_NOT_FOUND: i64 = -32_601;
pub const INVALID_PARAMS: i64 = -32_602;
pub const INTERNAL_ERROR: i64 = -32_603;
// Of revision 2026-07-28.
pub const HEADER_MISMATCH: i64 = -32_020;
pub const MISSING_CAPABILITY: i64 = -32_021;
pub const UNSUPPORTED_VERSION: i64 = -32_022;

/// Most bytes of an id or a method; longer ones are invalid.
const MAX_ID: usize = 256;
const MAX_METHOD: usize = 256;
/// Smaller messages are read before the size of their arguments is looked at.
const SMALL_BYTES: usize = 16 << 10;
/// Most messages of one batch.
pub const MAX_BATCH: usize = 100;

/// The id of a request: text or integer, never null.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    Number(Number),
    Text(String),
}

impl Id {
    /// The id as the number of a request that we made. Some servers write it back as a text.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RpcRequest {
    pub id: Id,
    pub method: String,
    pub params: Map<String, Value>,
}

/// One message of the other side.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Request(RpcRequest),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// The response to one of our requests: its result or its error.
    Answer {
        id: Id,
        outcome: Result<Value, Value>,
    },
}

/// The content of one transmission.
#[derive(Debug, Clone, PartialEq)]
pub enum Transmission {
    One(Message),
    /// A batch of at least one message (revisions up to 2025-03-26). Each may be invalid by itself.
    Batch(Vec<Result<Message, InvalidMessage>>),
}

/// A protocol error, as opposed to a tool's error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

/// An invalid message, with its id as far as it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct InvalidMessage {
    id: Option<Id>,
    code: i64,
    pub reason: String,
    /// The call that it asks for, if its arguments were refused unread.
    pub refused: Option<Box<RefusedCall>>,
}

/// A call whose arguments were not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCall {
    pub tool: String,
    pub argument_bytes: usize,
    /// SHA-256 of the arguments as they came, in hex.
    pub digest: String,
}

impl InvalidMessage {
    pub fn reply(self) -> Bytes {
        reply(
            self.id.as_ref(),
            &Err(RpcError::new(self.code, self.reason)),
        )
    }
}

/// Whether a tool takes arguments of so many bytes, and why not.
pub type TakesArguments<'a> = &'a dyn Fn(&str, usize) -> Result<(), String>;

/// Parses one transmission of a client. Arguments that are larger than their tool `takes` are refused before any value
/// is made of the message.
///
/// # Errors
/// It is neither a message nor a batch of at most [`MAX_BATCH`] messages, or its arguments are refused.
pub fn parse(bytes: &[u8], takes: TakesArguments<'_>) -> Result<Transmission, InvalidMessage> {
    parse_weighed(bytes, bounded::weigh(bytes), takes)
}

/// [`parse`] of a transmission that was weighed.
///
/// # Errors
/// As [`parse`].
pub fn parse_weighed(
    bytes: &[u8],
    weight: Result<u64, TooMuchMemory>,
    takes: TakesArguments<'_>,
) -> Result<Transmission, InvalidMessage> {
    if !bytes.trim_ascii_start().starts_with(b"[") {
        taken(bytes, takes)?;
        return parse_one(bytes, weight).map(Transmission::One);
    }
    weight.map_err(too_heavy)?;
    let Items { first, more } = serde_json::from_slice(bytes).map_err(no_json)?;
    let reason = match (first.len(), more) {
        (0, _) => "a batch has at least one message".to_owned(),
        (_, 0) => {
            let read = |message: &RawValue| {
                let message = message.get().as_bytes();
                taken(message, takes)?;
                // It weighs no more than all of them.
                parse_one(message, weight)
            };
            return Ok(Transmission::Batch(first.into_iter().map(read).collect()));
        }
        (some, more) => {
            let count = some.saturating_add(more);
            format!("a batch has at most {MAX_BATCH} messages, and this one has {count}")
        }
    };
    Err(malformed(None, INVALID_REQUEST, reason))
}

/// Parses one message of a client. The numbers of a call are those that it wrote, or the call is refused.
fn parse_one(bytes: &[u8], weight: Result<u64, TooMuchMemory>) -> Result<Message, InvalidMessage> {
    let message = read(bounded::from_weighed(bytes, weight).map_err(no_json)?)?;
    if let Message::Request(request) = &message
        && request.method == "tools/call"
    {
        numbers::check(bytes).map_err(|error| {
            malformed(Some(request.id.clone()), INVALID_PARAMS, error.to_string())
        })?;
    }
    Ok(message)
}

/// Looks at the size of a call's arguments, where they may be large, and makes no value of them.
fn taken(bytes: &[u8], takes: TakesArguments<'_>) -> Result<(), InvalidMessage> {
    #[derive(Deserialize)]
    struct Outline<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<&'a RawValue>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    // What is longer is no name.
    let short = |value: Option<&RawValue>| -> Option<Value> {
        let text = value?.get();
        (text.len() <= 8 * MAX_METHOD).then(|| serde_json::from_str(text).ok())?
    };
    if bytes.len() <= SMALL_BYTES {
        return Ok(());
    }
    // A list or a text is no message; the reader says so.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(());
    }
    let outline: Outline<'_> = serde_json::from_slice(bytes).map_err(no_json)?;
    let is_call = short(outline.method).is_some_and(|method| method == "tools/call");
    let params = outline
        .params
        .filter(|params| params.get().starts_with('{'));
    let (true, Some(params)) = (is_call, params) else {
        return Ok(());
    };
    let Params { name, arguments } = serde_json::from_str(params.get()).map_err(no_json)?;
    if let (Some(Value::String(name)), Some(arguments)) = (short(name), arguments) {
        let arguments = arguments.get();
        takes(&name, arguments.len()).map_err(|reason| InvalidMessage {
            refused: Some(Box::new(RefusedCall {
                digest: sha256(arguments.as_bytes()),
                argument_bytes: arguments.len(),
                tool: name,
            })),
            ..malformed(short(outline.id).and_then(read_id), INVALID_PARAMS, reason)
        })?;
    }
    Ok(())
}

/// The id of a message, of which nothing else is read.
pub fn id_of(bytes: &[u8]) -> Option<Id> {
    #[derive(Deserialize)]
    struct IdMember<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let IdMember { id } = serde_json::from_slice(bytes).ok()?;
    let id = id?.get();
    (id.len() <= 8 * MAX_ID).then(|| serde_json::from_str(id).ok().and_then(read_id))?
}

/// The id of an answer, of a message that may be no JSON. None of a request, whose id is the other side's own.
pub fn answered_id(bytes: &[u8]) -> Option<Id> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    if !rest.starts_with('{') {
        return None;
    }
    let mut lexer = JsonLexer::default();
    let mut depth = 0_usize;
    // The member of the message itself that is being read: its name, and its value after the colon.
    let (mut name, mut value, mut is_value) = (String::new(), String::new(), false);
    let mut id = None;
    loop {
        let Some(token) = lexer.next(&mut rest) else {
            return id;
        };
        match token {
            JsonToken::Between('{' | '[') => depth += 1,
            JsonToken::Between('}' | ']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        match token {
            JsonToken::Between(':') if depth == 1 && !is_value => is_value = true,
            JsonToken::Between(',') if depth == 1 => {
                id = id.or_else(|| own_id(&name, &value));
                (name, value, is_value) = (String::new(), String::new(), false);
            }
            JsonToken::Between('}') if depth == 0 => return id.or_else(|| own_id(&name, &value)),
            JsonToken::Inside(StringPart::Plain(c) | StringPart::Escaped(c)) if depth == 1 => {
                keep(if is_value { &mut value } else { &mut name }, c);
            }
            JsonToken::Between(c) if is_value && !c.is_whitespace() => keep(&mut value, c),
            JsonToken::End if depth == 1 && !is_value && name == "method" => return None,
            _ => {}
        }
    }
}

/// Keeps no more of a name or a value than an id has.
fn keep(text: &mut String, c: char) {
    if text.len() <= MAX_ID {
        text.push(c);
    }
}

/// The id of a request of ours, which is a number, perhaps as a text, if this is the member that has it.
fn own_id(name: &str, value: &str) -> Option<Id> {
    if name != "id" {
        return None;
    }
    let whole = value.strip_suffix(".0").unwrap_or(value);
    Some(Id::Number(whole.parse::<u64>().ok()?.into()))
}

fn too_heavy(error: TooMuchMemory) -> InvalidMessage {
    malformed(None, PARSE_ERROR, error.to_string())
}

fn no_json(error: serde_json::Error) -> InvalidMessage {
    malformed(None, PARSE_ERROR, format!("this is not JSON: {error}"))
}

/// The first [`MAX_BATCH`] items of a JSON array, and the number of further items.
struct Items<'a> {
    first: Vec<&'a RawValue>,
    more: usize,
}

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemsVisitor;
        impl<'de> Visitor<'de> for ItemsVisitor {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Items<'de>, A::Error> {
                let mut first = Vec::new();
                while first.len() < MAX_BATCH {
                    match items.next_element()? {
                        Some(item) => first.push(item),
                        None => return Ok(Items { first, more: 0 }),
                    }
                }
                let mut more = 0_usize;
                while items.next_element::<IgnoredAny>()?.is_some() {
                    more += 1;
                }
                Ok(Items { first, more })
            }
        }
        deserializer.deserialize_seq(ItemsVisitor)
    }
}

/// Reads a message that is JSON already.
///
/// # Errors
/// It is no message.
pub fn read(value: Value) -> Result<Message, InvalidMessage> {
    let Value::Object(mut message) = value else {
        let reason = "a message is a JSON object";
        return Err(malformed(None, INVALID_REQUEST, reason));
    };
    let id = match message.remove("id") {
        None => None,
        Some(id) => match read_id(id) {
            Some(id) => Some(id),
            None => {
                let form = "\"id\" must be an integer or a text of at most 256 bytes";
                return Err(malformed(None, INVALID_REQUEST, form));
            }
        },
    };
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(malformed(
            id,
            INVALID_REQUEST,
            "\"jsonrpc\" must be \"2.0\"",
        ));
    }
    let method = match message.remove("method") {
        Some(Value::String(method)) if method.len() <= MAX_METHOD => Some(method),
        Some(_) => {
            return Err(malformed(
                id,
                INVALID_REQUEST,
                "\"method\" must be a short text",
            ));
        }
        None => None,
    };
    let Some(method) = method else {
        return match (id, message.remove("result"), message.remove("error")) {
            (Some(id), Some(result), None) => Ok(Message::Answer {
                id,
                outcome: Ok(result),
            }),
            (Some(id), None, Some(error)) => Ok(Message::Answer {
                id,
                outcome: Err(error),
            }),
            (id, ..) => Err(malformed(
                id,
                INVALID_REQUEST,
                "a message has a \"method\", or an \"id\" with a \"result\" or an \"error\"",
            )),
        };
    };
    let params = match message.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => {
            return Err(malformed(
                id,
                INVALID_PARAMS,
                "\"params\" must be an object",
            ));
        }
    };
    Ok(match id {
        Some(id) => Message::Request(RpcRequest { id, method, params }),
        None => Message::Notification { method, params },
    })
}

/// The reply to a batch; `None` if no message of it has a reply.
pub fn batch(replies: &[Bytes]) -> Option<Bytes> {
    (!replies.is_empty()).then(|| {
        [b"[", replies.join(&b","[..]).as_slice(), b"]"]
            .concat()
            .into()
    })
}

/// The reply to the request `id`, as one line without its line break.
pub fn reply(id: Option<&Id>, outcome: &Result<Value, RpcError>) -> Bytes {
    #[derive(Serialize)]
    struct ReplyBody<'a> {
        jsonrpc: &'static str,
        id: Option<&'a Id>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a RpcError>,
    }
    let reply = ReplyBody {
        jsonrpc: "2.0",
        id,
        result: outcome.as_ref().ok(),
        error: outcome.as_ref().err(),
    };
    // Cannot fail: maps have text keys, and numbers are valid JSON.
    serde_json::to_vec(&reply).unwrap_or_default().into()
}

pub fn notification(method: &str, params: impl Into<Option<Value>>) -> Bytes {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if let Some(params) = params.into() {
        message["params"] = params;
    }
    message.to_string().into_bytes().into()
}

/// A request to the other side.
pub fn request(id: u64, method: &str, params: Value) -> Bytes {
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    message.to_string().into_bytes().into()
}

/// The id at `key` in a message's parameters.
pub fn read_id(id: Value) -> Option<Id> {
    match id {
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(Id::Number(number)),
        Value::String(text) if text.len() <= MAX_ID => Some(Id::Text(text)),
        _ => None,
    }
}

fn malformed(id: Option<Id>, code: i64, reason: impl Into<String>) -> InvalidMessage {
    let reason = reason.into();
    InvalidMessage {
        id,
        code,
        reason,
        refused: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[expect(
        clippy::unnecessary_wraps,
        reason = "as a tool without a limit says it"
    )]
    fn all(_: &str, _: usize) -> Result<(), String> {
        Ok(())
    }

    #[test]
    fn arguments_that_no_tool_takes_are_refused_before_they_are_read() {
        let takes = |tool: &str, bytes: usize| match (tool, bytes) {
            ("m.f", 0..=20_000) => Ok(()),
            (tool, bytes) => Err(format!("{tool} does not take {bytes} bytes")),
        };
        let call = |tool: &str, arguments: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
            )
        };
        let text = |bytes: usize| format!(r#"{{"x":"{}"}}"#, "x".repeat(bytes));
        assert!(parse(call("m.f", &text(19_000)).as_bytes(), &takes).is_ok());
        // It is not looked into: its size is enough, where a reader would say that it is nested too deep.
        let deep = "[".repeat(30_000) + &"]".repeat(30_000);
        for arguments in [text(20_000), deep] {
            let refused = parse(call("m.f", &arguments).as_bytes(), &takes).unwrap_err();
            let id = Some(Id::Number(7.into()));
            assert_eq!((refused.code, refused.id), (INVALID_PARAMS, id));
            let reason = refused.reason;
            assert!(reason.starts_with("m.f does not take "), "{reason}");
        }
        // Not hidden behind others: of two the last one would count.
        let twice = format!("\"arguments\":{{}},\"arguments\":{}", text(30_000));
        let twice = call("m.f", "0").replace("\"arguments\":0", &twice);
        assert!(parse(twice.as_bytes(), &takes).is_err());
        let batch = format!("[{},{}]", call("m.f", "{}"), call("n.f", &text(20_000)));
        let Ok(Transmission::Batch(messages)) = parse(batch.as_bytes(), &takes) else {
            panic!("a batch");
        };
        assert!(messages[0].is_ok() && messages[1].is_err());
    }

    #[test]
    fn messages_of_every_kind_are_told_apart() {
        let number = |n: i64| Id::Number(n.into());
        let params = json!({"a": 1}).as_object().cloned().unwrap_or_default();
        for (text, expect) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
                Message::Request(RpcRequest {
                    id: number(1),
                    method: "ping".into(),
                    params: Map::new(),
                }),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"a":1}}"#,
                Message::Request(RpcRequest {
                    id: Id::Text("a".into()),
                    method: "m".into(),
                    params: params.clone(),
                }),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"n","params":{"a":1}}"#,
                Message::Notification {
                    method: "n".into(),
                    params,
                },
            ),
            (
                r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#,
                Message::Answer {
                    id: number(-7),
                    outcome: Ok(json!({})),
                },
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#,
                Message::Answer {
                    id: number(7),
                    outcome: Err(json!({"code": -1, "message": "no"})),
                },
            ),
        ] {
            assert_eq!(
                parse(text.as_bytes(), &all),
                Ok(Transmission::One(expect)),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_message_is_refused_with_its_id() {
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#,
            "x".repeat(300)
        );
        let too_many = format!("[{}1]", "1,".repeat(MAX_BATCH));
        let broken = format!("[{}", "1,".repeat(2 * MAX_BATCH));
        for (text, code, id) in [
            ("", PARSE_ERROR, None),
            ("{", PARSE_ERROR, None),
            ("[]", INVALID_REQUEST, None),
            ("[1", PARSE_ERROR, None),
            (&too_many, INVALID_REQUEST, None),
            (&broken, PARSE_ERROR, None),
            ("7", INVALID_REQUEST, None),
            ("-1.5", INVALID_REQUEST, None),
            ("null", INVALID_REQUEST, None),
            ("true", INVALID_REQUEST, None),
            (r#""ping""#, INVALID_REQUEST, None),
            (r#"{"id":1,"method":"ping"}"#, INVALID_REQUEST, Some(1)),
            (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST, Some(1)),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
                INVALID_REQUEST,
                Some(1),
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
                INVALID_REQUEST,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#,
                INVALID_REQUEST,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#,
                INVALID_PARAMS,
                Some(1),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
                INVALID_REQUEST,
                Some(1),
            ),
            (&long, INVALID_REQUEST, None),
            (&"[".repeat(100_000), PARSE_ERROR, None),
        ] {
            let malformed = parse(text.as_bytes(), &all).expect_err(text);
            assert_eq!(malformed.code, code, "{text:.60}");
            assert_eq!(malformed.id, id.map(|id: i64| Id::Number(id.into())));
        }
    }

    #[test]
    fn of_a_batch_each_is_a_message_for_itself() {
        let text = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}, [], {"id":2}, 7]"#;
        let Ok(Transmission::Batch(messages)) = parse(text.as_bytes(), &all) else {
            panic!("{text}");
        };
        let ids: Vec<_> = messages
            .iter()
            .map(|message| match message {
                Ok(Message::Request(request)) => Ok(request.id.clone()),
                Ok(other) => panic!("{other:?}"),
                Err(malformed) => Err(malformed.id.clone()),
            })
            .collect();
        let number = |n: i64| Id::Number(n.into());
        assert_eq!(
            ids,
            [Ok(number(1)), Err(None), Err(Some(number(2))), Err(None)]
        );
        let most = format!("[{}1]", "1,".repeat(MAX_BATCH - 1));
        assert!(
            matches!(parse(most.as_bytes(), &all), Ok(Transmission::Batch(all)) if all.len() == MAX_BATCH)
        );
    }

    #[test]
    fn replies_to_a_batch_are_one() {
        assert_eq!(batch(&[]), None);
        assert_eq!(batch(&["{}".into()]).unwrap(), "[{}]");
        assert_eq!(batch(&["1".into(), "2".into()]).unwrap(), "[1,2]");
    }

    #[test]
    fn a_reply_holds_a_result_or_an_error() {
        let id = Id::Text("a".into());
        assert_eq!(
            reply(Some(&id), &Ok(json!({}))),
            r#"{"jsonrpc":"2.0","id":"a","result":{}}"#
        );
        assert_eq!(
            reply(None, &Err(RpcError::new(-1, "no"))),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, &all);
        }

        #[test]
        fn an_id_comes_back_as_it_was(id in prop_oneof![
            any::<i64>().prop_map(|n| Id::Number(n.into())),
            "[ -~]{0,40}".prop_map(Id::Text),
        ]) {
            let text = json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
            let Ok(Transmission::One(Message::Request(request))) = parse(text.as_bytes(), &all) else {
                panic!("{text}");
            };
            prop_assert_eq!(request.id, id);
        }
    }
}
