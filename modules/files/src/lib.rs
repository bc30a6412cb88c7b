//! Files under the directories that the operator granted, through `std::fs`: the sandbox is the
//! host's work, and what was not granted does not exist here.

mod list;
mod listing;
mod read;
mod roots;
mod search;
mod walk;
mod write;

use toolhold_guest::Tool;

use roots::Roots;

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    tools_over(Roots::granted)
}

/// The tools over the directories that `roots` names when a call asks: tests bring their own.
fn tools_over(roots: impl Fn() -> Roots + Clone + 'static) -> Vec<Tool> {
    vec![
        list::tool(roots.clone()),
        read::tool(roots.clone()),
        search::tool(roots.clone()),
        write::tool(roots),
    ]
}

#[cfg(test)]
mod tests;
