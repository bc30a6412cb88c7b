//! Web search. The engine is configuration: a URL template as OpenSearch defines it, and where the results are in what
//! it answers.

mod engine;
mod feed;
mod results;
mod template;
mod web;

use toolhold_guest::Tool;

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![web::tool()]
}
