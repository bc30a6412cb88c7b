//! Requests over HTTP. What may be reached is the grant's matter; this module asks, and shows what came in a form that
//! a model can use.

mod body;
mod get;
mod send;

use toolhold_guest::Tool;

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![get::tool(), send::tool()]
}
