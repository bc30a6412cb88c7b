//! jq filters over JSON: pick, filter, group and reshape without reading it all.

mod fault;
mod query;

use toolhold_guest::Tool;

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![query::tool()]
}

#[cfg(test)]
mod tests;
