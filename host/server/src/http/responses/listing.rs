//! `/v1/responses/{response}/input_items`: the input of a response, in pages.

use crate::http::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// The most items of a page.
const MAX_PAGE_ITEMS: u32 = 100;
/// Items of a page if the client gives no limit.
const DEFAULT_PAGE_ITEMS: u32 = 20;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct InputItemPage {
    /// Id of the last item of the previous page.
    after: Option<String>,
    /// 1 to 100; default 20.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    #[param(inline)]
    order: SortOrder,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = InputOrder)]
#[serde(rename_all = "lowercase")]
enum SortOrder {
    Asc,
    /// Newest item first.
    #[default]
    Desc,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub struct InputItems {
    object: &'static str,
    /// Lists messages, `function_call` and `function_call_output` items, each with its `id`: items of the
    /// previous responses, then those of the input.
    #[schema(value_type = Vec<Object>)]
    data: Vec<Value>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

impl InputItemPage {
    /// # Errors
    /// The limit is out of range, or `after` names no item.
    pub fn of(&self, mut items: Vec<Value>) -> Result<InputItems, ApiError> {
        let limit = self.limit.unwrap_or(DEFAULT_PAGE_ITEMS);
        if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
            return Err(ApiError::member(
                "limit",
                format_args!("1 to {MAX_PAGE_ITEMS}"),
            ));
        }
        if self.order == SortOrder::Desc {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let place = items.iter().position(|item| id(item) == Some(after));
            let place = place.ok_or_else(|| {
                let reason = format_args!("no item of this response has the id {after:?}");
                ApiError::member("after", reason)
            })?;
            items.drain(..=place);
        }
        let limit = limit as usize;
        let has_more = items.len() > limit;
        items.truncate(limit);
        let named = |item: Option<&Value>| item.and_then(id).map(str::to_owned);
        Ok(InputItems {
            object: "list",
            first_id: named(items.first()),
            last_id: named(items.last()),
            has_more,
            data: items,
        })
    }
}

fn id(item: &Value) -> Option<&str> {
    item["id"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let items: Vec<Value> = (0..5).map(|n| json!({"id": format!("i{n}")})).collect();
        for (order, expected) in [
            (SortOrder::Asc, ["i0", "i1", "i2", "i3", "i4"]),
            (SortOrder::Desc, ["i4", "i3", "i2", "i1", "i0"]),
        ] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let page = InputItemPage {
                    after,
                    limit: Some(2),
                    order,
                };
                let page = page.of(items.clone()).unwrap();
                assert_eq!(page.first_id.as_deref(), id(&page.data[0]));
                seen.extend(page.data.iter().filter_map(id).map(str::to_owned));
                after = page.last_id;
                if !page.has_more {
                    break;
                }
            }
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn invalid_page_is_refused_with_the_reason() {
        let page = |limit, after: Option<&str>| InputItemPage {
            after: after.map(str::to_owned),
            limit,
            order: SortOrder::Asc,
        };
        let items = || vec![json!({"id": "i0"})];
        for (page, reason) in [
            (page(Some(0), None), "limit: 1 to 100"),
            (page(Some(101), None), "limit: 1 to 100"),
            (page(None, Some("i9")), "the id \"i9\""),
        ] {
            let refused = page.of(items()).unwrap_err().body().error.message;
            assert!(refused.contains(reason), "{refused}");
        }
        let past_the_end = page(None, Some("i0")).of(items()).unwrap();
        assert_eq!(
            (
                past_the_end.data.len(),
                past_the_end.last_id,
                past_the_end.has_more
            ),
            (0, None, false)
        );
    }
}
