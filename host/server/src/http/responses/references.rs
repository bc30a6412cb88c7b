//! Items that an input names in the place of having them (`item_reference`): those of responses that the client may see.
//! Clients that leave their history to the server send such names by themselves.

use super::object;
use crate::http::App;
use crate::http::auth::Client;
use crate::http::error::ApiError;
use crate::http::unsent::Gathering;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_connections::UnsentBytes;
use toolhold_json::bounded;
use toolhold_protocol::settings::CarriedTexts;
use toolhold_text::cut;
use uuid::Uuid;

/// The type of an item that names another one.
const REFERENCE: &str = "item_reference";
/// Maximum number of responses whose items one input may name: the record of each is read.
const MAX_RESPONSES: usize = 256;
/// Maximum characters of an id that an error quotes.
const MAX_ID_CHARS: usize = 100;
/// Copies of an item in memory: in the input, among the listed items, and in the record.
const COPIES: u64 = 3;

/// Items that took the places of their names in an input.
#[derive(Debug, Default)]
pub struct ReferencedItems {
    /// Places of messages that the host composed from the records of their responses.
    pub composed: BTreeSet<usize>,
    /// Ids of calls, whose arguments the host may have filled in.
    pub calls: BTreeSet<String>,
    /// Documents and facts whose texts both may have. It has no messages.
    pub carried: CarriedTexts,
    /// The memory that the items take.
    pub memory: Option<UnsentBytes>,
}

#[derive(Debug)]
struct FoundItem {
    item: Value,
    /// True if it may have texts that the host put into the record of the response.
    is_composed: bool,
}

/// Items by their ids, and the memory that they take.
#[derive(Debug, Default)]
struct FoundItems {
    items: BTreeMap<String, FoundItem>,
    carried: CarriedTexts,
    /// Responses that are there. True if texts were taken out of the answer.
    responses: BTreeMap<Uuid, bool>,
    memory: Option<UnsentBytes>,
}

/// Why an id is that of no item. A response of another client is not told from a deleted one.
#[derive(Debug, Clone, Copy)]
enum MissingItem {
    /// Ids of this server's have another form.
    OtherForm,
    NoResponse,
    TextDeleted,
    NotOfResponse,
}

impl MissingItem {
    fn words(self) -> &'static str {
        match self {
            Self::OtherForm => "this server gives no item such an id; send the item itself",
            Self::NoResponse => {
                "its response was deleted, or is not of this key; send the item itself"
            }
            Self::TextDeleted => {
                "the text of its response was deleted; send the item itself, or leave it out"
            }
            Self::NotOfResponse => {
                "its response has no such item; send the item itself, or go on from that response \
                 (previous_response_id)"
            }
        }
    }
}

/// Puts the named items into their places in `input`. Items of the previous responses (`before`) are in the context
/// already, so their names are left out.
///
/// # Errors
/// A name is that of no item that the client may see, or is there twice; too many responses are named.
pub async fn put_in(
    app: &App,
    client: &Client,
    input: &mut Value,
    before: &[Value],
) -> Result<ReferencedItems, ApiError> {
    let mut referenced = ReferencedItems::default();
    let Value::Array(items) = input else {
        return Ok(referenced);
    };
    if !items.iter().any(|item| reference(item).is_some()) {
        return Ok(referenced);
    }
    let known: BTreeSet<&str> = before.iter().filter_map(|it| it["id"].as_str()).collect();
    items.retain(|item| reference(item).is_none_or(|id| !known.contains(id)));
    let wanted = wanted(items)?;
    let mut found = FoundItems::default();
    for (run, ids) in wanted {
        app.find_items(client, run, &ids, &mut found).await?;
    }
    for (index, item) in items.iter_mut().enumerate() {
        let Some(id) = reference(item) else { continue };
        let named = found.items.remove(id);
        let named = named.ok_or_else(|| unknown(index, id, found.missing(id)))?;
        if named.is_composed {
            referenced.composed.insert(index);
            let call = named.item["call_id"].as_str();
            referenced.calls.extend(call.map(str::to_owned));
        }
        *item = named.item;
    }
    referenced.carried = found.carried;
    referenced.memory = found.memory;
    Ok(referenced)
}

/// The named items, by the runs that have them.
fn wanted(items: &[Value]) -> Result<BTreeMap<Uuid, BTreeSet<String>>, ApiError> {
    let mut wanted = BTreeMap::<Uuid, BTreeSet<String>>::new();
    for (index, item) in items.iter().enumerate() {
        let Some(id) = reference(item) else { continue };
        let run = run_of(id).ok_or_else(|| unknown(index, id, MissingItem::OtherForm))?;
        if !wanted.entry(run).or_default().insert(id.to_owned()) {
            let id = cut(id, MAX_ID_CHARS);
            let reason = format_args!("the item {id:?} is named twice");
            return Err(ApiError::member(&format!("input[{index}]"), reason));
        }
    }
    if wanted.len() > MAX_RESPONSES {
        let reason = format_args!(
            "items of at most {MAX_RESPONSES} responses can be named; use previous_response_id, or send the items"
        );
        return Err(ApiError::member("input", reason));
    }
    Ok(wanted)
}

/// The id of the item that this one names. The type may be left out.
fn reference(item: &Value) -> Option<&str> {
    let is_reference = match item["type"].as_str() {
        Some(kind) => kind == REFERENCE,
        None => item["role"].is_null(),
    };
    item["id"].as_str().filter(|_| is_reference)
}

/// The run in the id of an item, such as `msg_RUN_0`.
fn run_of(id: &str) -> Option<Uuid> {
    let run = id.split('_').nth(1)?;
    object::run_of(&format!("resp_{run}"))
}

fn unknown(index: usize, id: &str, missing: MissingItem) -> ApiError {
    let (id, reason) = (cut(id, MAX_ID_CHARS), missing.words());
    let error = ApiError::not_found(format_args!("item {id:?}: {reason}"));
    error.of(&format!("input[{index}].id"))
}

impl FoundItems {
    /// Why there is no item of this id.
    fn missing(&self, id: &str) -> MissingItem {
        let response = run_of(id).and_then(|run| self.responses.get(&run));
        match response {
            None => MissingItem::NoResponse,
            Some(true) => MissingItem::TextDeleted,
            Some(false) => MissingItem::NotOfResponse,
        }
    }
}

impl App {
    /// Adds those items of a run that have one of these ids.
    async fn find_items(
        &self,
        client: &Client,
        run: Uuid,
        ids: &BTreeSet<String>,
        found: &mut FoundItems,
    ) -> Result<(), ApiError> {
        if self.visible_run(client, run).await?.is_none() {
            return Ok(());
        }
        let recorded = self.recorded(client, run, Gathering::Record).await?;
        let (recorded, mut memory) = recorded.into_parts();
        found.responses.insert(run, recorded.is_gone);
        let (is_of_host, has_composed) =
            (recorded.is_output_of_host(), recorded.has_composed_input());
        let output = recorded.output.items.iter().map(serde_json::to_value);
        let output = output.filter_map(Result::ok).map(|item| FoundItem {
            is_composed: is_of_host,
            item,
        });
        // Messages of the user, and results, are what a client sent.
        let input = recorded.input().into_iter().map(|item| FoundItem {
            is_composed: has_composed
                && (item["role"] == "assistant" || item["type"] == "function_call"),
            item,
        });
        let (mut bytes, mut has_some_composed) = (0, false);
        for found_item in output.chain(input) {
            let item = &found_item.item;
            let Some(id) = item["id"].as_str().filter(|id| ids.contains(*id)) else {
                continue;
            };
            bytes += COPIES * bounded::text_bytes(item);
            has_some_composed |= found_item.is_composed;
            found.items.insert(id.to_owned(), found_item);
        }
        if has_some_composed {
            let carried = self.dispatcher.store().carried_texts(run).await?;
            found.carried.add_texts(carried);
        }
        memory.shrink_to(bytes);
        match &mut found.memory {
            Some(all) => all.join(&mut memory),
            none => *none = Some(memory),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_told_from_items() {
        for (item, id) in [
            (
                json!({"type": "item_reference", "id": "msg_1"}),
                Some("msg_1"),
            ),
            (json!({"type": null, "id": "msg_1"}), Some("msg_1")),
            (json!({"id": "msg_1"}), Some("msg_1")),
            (json!({"id": "msg_1", "role": "user", "content": "t"}), None),
            (json!({"type": "message", "id": "msg_1"}), None),
            (json!({"type": "item_reference"}), None),
            (json!(7), None),
        ] {
            assert_eq!(reference(&item), id, "{item}");
        }
    }

    #[test]
    fn a_name_is_refused_where_it_cannot_be_that_of_an_item() {
        let run = Uuid::now_v7();
        let one = format!("msg_{}_0", run.simple());
        let named = |id: &str| json!({"type": "item_reference", "id": id});
        let found = wanted(&[json!({"role": "user"}), named(&one)]).unwrap();
        assert_eq!(
            found,
            BTreeMap::from([(run, BTreeSet::from([one.clone()]))])
        );
        for (items, place, reason) in [
            (vec![named("rs_68f")], "input[0].id", "no item \"rs_68f\""),
            (vec![named(&one), named(&one)], "input[1]", "named twice"),
        ] {
            let error = wanted(&items).unwrap_err().body().error;
            assert_eq!(error.param.as_deref(), Some(place));
            assert!(error.message.contains(reason), "{}", error.message);
        }
        let many =
            (0..=MAX_RESPONSES).map(|_| named(&format!("msg_{}_0", Uuid::now_v7().simple())));
        let error = wanted(&many.collect::<Vec<_>>()).unwrap_err().body().error;
        assert_eq!(error.param.as_deref(), Some("input"));
    }
}
