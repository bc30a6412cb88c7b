//! Models that make no calls, by their names: guards, embedders, rerankers, and models of speech and images. Endpoints
//! list them beside models that answer, and the built-in order of the fallback leaves them out.

/// Parts of the names of such models, wherever they stand.
const PARTS: [&str; 14] = [
    "guard",
    "shieldgemma",
    "moderation",
    "embed",
    "rerank",
    "colbert",
    "minilm",
    "reward",
    "whisper",
    "transcri",
    "speech",
    "diffusion",
    "dall-e",
    "imagen",
];

/// Whole words of their names.
const WORDS: [&str; 16] = [
    "bge", "e5", "gte", "tts", "stt", "asr", "audio", "image", "realtime", "sora", "veo", "flux",
    "clip", "ocr", "davinci", "babbage",
];

/// Whether a model of this name may be asked to make a call. A name that says nothing about its work may.
pub fn makes_calls(model: &str) -> bool {
    let name = model.to_ascii_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    !PARTS.iter().any(|part| name.contains(part)) && !words.any(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_for_other_work_are_known_by_their_names() {
        for name in [
            "meta-llama/Llama-Guard-3-8B",
            "gpt-oss-safeguard-20b",
            "google/shieldgemma-9b",
            "ibm/granite-guardian-3.2",
            "Qwen/Qwen3Guard-Gen-8B",
            "omni-moderation-latest",
            "text-embedding-3-large",
            "nomic-embed-text:latest",
            "BAAI/bge-m3",
            "intfloat/multilingual-e5-large",
            "Alibaba-NLP/gte-Qwen2-7B-instruct",
            "bge-reranker-v2-m3",
            "whisper-1",
            "gpt-4o-mini-tts",
            "gpt-4o-transcribe",
            "gpt-image-1",
            "gpt-4o-realtime-preview",
        ] {
            assert!(!makes_calls(name), "{name}");
        }
        for name in [
            "gpt-4o",
            "qwen2.5-vl-72b-instruct",
            "deepseek-chat",
            "claude-sonnet-4-5",
            "Llama-3.3-70B-Instruct",
            "mistral-large-latest",
            "my-own-model",
            "",
        ] {
            assert!(makes_calls(name), "{name}");
        }
    }
}
