//! Marks around thoughts of models, which stand in the text of an answer where the server has no parser for them.

/// Marks that begin a thought, each with the one that ends it. Readers of earlier formats know the first ones.
pub static THOUGHT_MARKS: [(&str, &str); 15] = [
    ("<think>", "</think>"),
    ("<THINK>", "</THINK>"),
    ("<Think>", "</Think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    // Gemma 4.
    ("<|channel>thought", "<channel|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    // LongCat, Apertus and Command.
    ("<longcat_think>", "</longcat_think>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    // MiniCPM and Pangu, from format 5 on.
    ("<|thought_start|>", "<|thought_end|>"),
    ("[unused16]", PANGU_END),
];
/// The mark that ends a thought of Pangu.
pub const PANGU_END: &str = "[unused17]";
