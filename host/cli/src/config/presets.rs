//! Well-known endpoints: where they are, which variable holds their key, and how they are spoken to.
//!
//! `[endpoints.NAME]` with the name of a preset and without a `base_url` has the preset's values where it sets none of
//! its own. Nothing of `[endpoints.default]` that is about one server (its key, its extra fields) goes there.

use toml::{Table, Value};

/// A service or a server.
#[derive(Debug)]
struct Preset {
    name: &'static str,
    base_url: &'static str,
    /// The variable, or the stored secret, that holds the key.
    key: &'static str,
    contract: &'static str,
    is_streamed: bool,
    /// Its names of fields, where they differ.
    fields: &'static [(&'static str, &'static str)],
}

/// Services on the network offer native tool calling, and not all of them hold an answer to any schema.
const fn hosted(name: &'static str, base_url: &'static str, key: &'static str) -> Preset {
    Preset {
        name,
        base_url,
        key,
        contract: "tools",
        is_streamed: true,
        fields: &[],
    }
}

/// Servers on this machine, at the ports that they take by themselves.
const fn local(name: &'static str, base_url: &'static str, key: &'static str) -> Preset {
    Preset {
        contract: "auto",
        ..hosted(name, base_url, key)
    }
}

const PRESETS: [Preset; 13] = [
    Preset {
        // Its reasoning models refuse max_tokens, and every temperature but their own.
        fields: &[("max_tokens", "max_completion_tokens"), ("temperature", "")],
        ..hosted("openai", "https://api.openai.com/v1", "OPENAI_API_KEY")
    },
    hosted(
        "anthropic",
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
    ),
    hosted(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
    ),
    hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    hosted(
        "together",
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
    ),
    Preset {
        // It refuses requests with fields that it does not know, and streams are asked for with one.
        is_streamed: false,
        // Not "mistral": `mistral:7b` is a model of Ollama's.
        ..hosted("mistralai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY")
    },
    hosted(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
    ),
    hosted(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
    ),
    local("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_API_KEY"),
    local("lmstudio", "http://127.0.0.1:1234/v1", "LMSTUDIO_API_KEY"),
    local("vllm", "http://127.0.0.1:8000/v1", "VLLM_API_KEY"),
    local("llamacpp", "http://127.0.0.1:8080/v1", "LLAMA_API_KEY"),
    local("sglang", "http://127.0.0.1:30000/v1", "SGLANG_API_KEY"),
];

/// The settings of the preset of this name: leaves of `[endpoints.NAME]`.
pub fn settings(name: &str) -> Option<Vec<(&'static str, Value)>> {
    let preset = PRESETS.iter().find(|preset| preset.name == name)?;
    let fields = preset.fields.iter();
    let fields: Table = fields
        .map(|(usual, own)| ((*usual).to_owned(), Value::from(*own)))
        .collect();
    Some(vec![
        ("base_url", preset.base_url.into()),
        ("api_key_env", preset.key.into()),
        ("contract", preset.contract.into()),
        ("stream", preset.is_streamed.into()),
        ("extra", Value::Table(Table::new())),
        ("fields", Value::Table(fields)),
    ])
}

/// Whether there is a preset of this name.
pub fn is_preset(name: &str) -> bool {
    PRESETS.iter().any(|preset| preset.name == name)
}

/// The variable that holds the key of this preset.
pub fn key_variable(name: &str) -> Option<&'static str> {
    let preset = PRESETS.iter().find(|preset| preset.name == name)?;
    Some(preset.key)
}

/// The preset and the model of `PRESET:MODEL`. Names of models may have colons, too.
pub fn split(model: &str) -> Option<(&str, &str)> {
    let (preset, model) = model.split_once(':')?;
    (is_preset(preset) && !model.is_empty()).then_some((preset, model))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_model_is_split_at_the_name_of_a_preset() {
        for (text, expect) in [
            ("openai:gpt-x", Some(("openai", "gpt-x"))),
            ("ollama:mistral:7b", Some(("ollama", "mistral:7b"))),
            (
                "openrouter:openai/gpt-x:free",
                Some(("openrouter", "openai/gpt-x:free")),
            ),
            // Models of Ollama's.
            ("mistral:7b", None),
            ("qwen2.5-coder:0.5b", None),
            ("openai:", None),
            ("openai", None),
        ] {
            assert_eq!(split(text), expect, "{text}");
        }
    }

    #[test]
    fn each_preset_has_a_key_and_a_url_of_its_own() {
        let names: BTreeSet<_> = PRESETS.iter().map(|preset| preset.name).collect();
        let keys: BTreeSet<_> = PRESETS.iter().map(|preset| preset.key).collect();
        let urls: BTreeSet<_> = PRESETS.iter().map(|preset| preset.base_url).collect();
        assert_eq!(
            [names.len(), keys.len(), urls.len()],
            [PRESETS.len(); 3],
            "no key goes to two services"
        );
        for preset in &PRESETS {
            let is_local = preset.base_url.starts_with("http://127.0.0.1:");
            assert!(
                is_local || preset.base_url.starts_with("https://"),
                "{preset:?}"
            );
            assert!(preset.base_url.ends_with("/v1"), "{preset:?}");
        }
    }
}
