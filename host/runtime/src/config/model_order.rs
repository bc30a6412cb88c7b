//! The built-in order of models: whom a fallback asks first where no order is configured.
//!
//! Models of full size come before small ones; among them, families that are known to make tool calls well come first;
//! within a family the larger model. A name that is not known comes last of its size. The order is a default for
//! lists that nobody wrote, and no judgement: what an operator writes, and what was measured, goes before it.

use std::cmp::Reverse;

/// Families in their order, by what the names of their models begin with, after the maker's name and a slash.
const FAMILIES: [(&str, &[&str]); 17] = [
    ("Claude", &["claude"]),
    (
        "GPT",
        &["gpt-4", "gpt-5", "gpt-6", "chatgpt", "o1", "o3", "o4"],
    ),
    ("Gemini", &["gemini"]),
    ("Grok", &["grok"]),
    ("DeepSeek", &["deepseek"]),
    ("Kimi", &["kimi"]),
    ("GLM", &["glm"]),
    ("Qwen", &["qwen", "qwq"]),
    ("MiniMax", &["minimax"]),
    ("gpt-oss", &["gpt-oss"]),
    ("Llama", &["llama", "meta-llama"]),
    (
        "Mistral",
        &["mistral", "mixtral", "ministral", "magistral", "devstral"],
    ),
    ("Command", &["command"]),
    ("Nova", &["nova", "amazon.nova"]),
    ("Gemma", &["gemma"]),
    ("Granite", &["granite"]),
    ("Phi", &["phi"]),
];

/// Words in the names of models that are smaller than the others of their family.
const SMALL: [&str; 10] = [
    "mini",
    "nano",
    "micro",
    "lite",
    "flash",
    "haiku",
    "small",
    "tiny",
    "air",
    "ministral",
];

/// Billions of parameters from which a model counts as one of full size.
const FULL_SIZE: f64 = 24.0;

/// The place of a model in the order: the smallest is asked first.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub struct ModelRank {
    is_small: bool,
    family: usize,
    size: Reverse<f64>,
}

/// The rank of a model by the name that its endpoint gives it.
pub fn rank(model: &str) -> ModelRank {
    let name = model.to_ascii_lowercase();
    let name = name.rsplit('/').next().unwrap_or_default();
    let family = FAMILIES.iter().position(|(_, beginnings)| {
        let mut beginnings = beginnings.iter();
        beginnings.any(|beginning| name.starts_with(beginning))
    });
    let size = billions(name);
    let has_small_name = words(name).any(|word| SMALL.contains(&word));
    ModelRank {
        is_small: size.map_or(has_small_name, |size| size < FULL_SIZE),
        family: family.unwrap_or(FAMILIES.len()),
        size: Reverse(size.unwrap_or_default()),
    }
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|it: char| !it.is_ascii_alphanumeric() && it != '.')
}

/// The billions of parameters that a name tells, as in `qwen3-235b-a22b`: of several the most.
fn billions(name: &str) -> Option<f64> {
    let sizes = words(name).filter_map(|word| word.strip_suffix('b')?.parse::<f64>().ok());
    sizes.filter(|size| size.is_finite()).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_full_size_come_first_then_families_then_sizes() {
        let expected = [
            "anthropic/claude-sonnet-4-5",
            "openai/gpt-5",
            "o3",
            "gemini-2.5-pro",
            "deepseek-chat",
            "Qwen/Qwen3-235B-A22B-Instruct",
            "qwen3-32b",
            "gpt-oss-120b",
            "Llama-3.3-70B-Instruct",
            "mistral-large-latest",
            "my-own-model",
            "claude-haiku-4-5",
            "gpt-4o-mini",
            "gemini-2.5-flash-lite",
            "Qwen2.5-7B-Instruct",
            "qwen2.5-0.5b",
            "gpt-oss-20b",
            "mistral-small-latest",
            "phi-4-mini",
            "something-1b",
        ];
        let mut found = expected;
        found.reverse();
        found.sort_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap());
        // Equal ones keep their order, which was turned around.
        found[1..3].sort_unstable();
        let mut sorted = expected;
        sorted[1..3].sort_unstable();
        assert_eq!(found, sorted);
    }

    #[test]
    fn the_reference_has_this_order() {
        let reference = crate::config::DEFAULTS.replace("\n# ", " ");
        let families: Vec<&str> = FAMILIES.iter().map(|(family, _)| *family).collect();
        assert!(reference.contains(&families.join(", ")), "{families:?}");
    }

    #[test]
    fn a_size_is_a_number_of_billions() {
        for (name, size) in [
            ("qwen3-235b-a22b", Some(235.0)),
            ("gemma-3n-e4b", None),
            ("smollm2-1.7b", Some(1.7)),
            ("infb", None),
            ("b", None),
        ] {
            assert_eq!(billions(name), size, "{name}");
        }
    }
}
