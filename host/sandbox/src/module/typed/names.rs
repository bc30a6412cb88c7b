//! The tool names of exported functions.
//!
//! A function is called by its own name as long as no other export could be meant by it. Where two
//! could, **neither** gets it: both are told apart by their interface, if need be by its package,
//! if need be by its version. So a name never changes its meaning: a component that gains an
//! interface may lose the short name of a tool, which a caller sees as an unknown tool and a
//! pin as a changed module, but it never hands calls meant for one function to another, as
//! "first come, first served" would.

use std::collections::HashMap;
use toolhold_policy::text;

/// The local tool name of each export (interface, function), or why it has none.
pub(super) fn assign(
    module: &str,
    exports: &[(Option<&str>, &str)],
) -> Vec<Result<String, String>> {
    let candidates: Vec<_> = exports
        .iter()
        .map(|(interface, function)| candidates(*interface, function))
        .collect();
    let mut chosen = vec![0; exports.len()];
    loop {
        let mut holders: HashMap<&str, Vec<usize>> = HashMap::new();
        for (export, names) in candidates.iter().enumerate() {
            holders
                .entry(&names[chosen[export]])
                .or_default()
                .push(export);
        }
        // Each turn makes some name longer, and names have an end.
        let mut changed = false;
        for export in holders.values().filter(|h| h.len() > 1).flatten() {
            if chosen[*export] + 1 < candidates[*export].len() {
                chosen[*export] += 1;
                changed = true;
            }
        }
        if !changed {
            let name = |export: usize| {
                let local = &candidates[export][chosen[export]];
                if holders.get(local.as_str()).is_some_and(|h| h.len() > 1) {
                    return Err(format!(
                        "another export would be named {module}.{local} as well; rename one of them"
                    ));
                }
                text::tool_name(module, local).map(|_| local.clone())
            };
            return (0..exports.len()).map(name).collect();
        }
    }
}

/// `place`, `orders_place`, `shop_orders_place`, `demo_shop_orders_0_1_0_place`.
fn candidates(interface: Option<&str>, function: &str) -> Vec<String> {
    let function = snake(function);
    let Some(interface) = interface else {
        return vec![function.clone(), format!("world_{function}")];
    };
    let plain = interface.split('@').next().unwrap_or(interface);
    let mut names = vec![function.clone()];
    let package_and_name = plain.rsplit(':').next().unwrap_or(plain);
    let name = plain.rsplit('/').next().unwrap_or(plain);
    for prefix in [name, package_and_name, interface] {
        let name = format!("{}_{function}", snake(prefix));
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names
}

fn snake(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() => c.to_ascii_lowercase(),
            _ => '_',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(exports: &[(Option<&str>, &str)]) -> Vec<String> {
        assign("m", exports)
            .into_iter()
            .map(|name| name.unwrap_or_else(|reason| format!("refused: {reason}")))
            .collect()
    }

    #[test]
    fn a_name_that_two_could_mean_belongs_to_neither() {
        let book = Some("demo:shop/book@0.1.0");
        assert_eq!(names(&[(book, "look-up")]), ["look_up"]);
        assert_eq!(
            names(&[
                (book, "get"),
                (Some("demo:shop/stock"), "get"),
                (None, "get"),
                (book, "put")
            ]),
            ["book_get", "stock_get", "world_get", "put"]
        );
    }

    #[test]
    fn packages_and_versions_distinguish_equal_interface_names() {
        assert_eq!(
            names(&[(Some("a:x/api"), "get"), (Some("a:y/api"), "get")]),
            ["x_api_get", "y_api_get"]
        );
        assert_eq!(
            names(&[
                (Some("a:x/api@1.0.0"), "get"),
                (Some("a:x/api@2.0.0"), "get")
            ]),
            ["a_x_api_1_0_0_get", "a_x_api_2_0_0_get"]
        );
        // The longer name of one is the short name of another.
        assert_eq!(
            names(&[(Some("a:x/api"), "get"), (None, "get"), (None, "api-get")]),
            ["x_api_get", "world_get", "world_api_get"]
        );
    }

    #[test]
    fn ambiguous_names_are_refused() {
        let twice = names(&[
            (Some("a:b/c-d"), "e"),
            (Some("a:b/c"), "d-e"),
            (None, "e"),
            (None, "d-e"),
        ]);
        assert!(
            twice[0].starts_with("refused: another export") && twice[1].starts_with("refused"),
            "{twice:?}"
        );
        assert_eq!(twice[2..], ["world_e", "world_d_e"]);
        let long = "x".repeat(60);
        assert!(names(&[(None, &long)])[0].contains("at most 48"));
    }
}
