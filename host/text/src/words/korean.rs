//! Particles of Korean, which are written onto nouns.

/// Particles by their length, longest first, so that `에서는` is not taken for `는`.
const PARTICLES: &[&str] = &[
    "에서부터",
    "으로부터",
    "에게서는",
    "에서는",
    "에서도",
    "으로는",
    "으로도",
    "으로서",
    "으로써",
    "에게는",
    "에게서",
    "한테서",
    "이라고",
    "이라는",
    "까지는",
    "부터는",
    "에서",
    "에게",
    "으로",
    "까지",
    "부터",
    "한테",
    "께서",
    "하고",
    "이나",
    "처럼",
    "보다",
    "마다",
    "밖에",
    "조차",
    "마저",
    "라고",
    "라는",
    "이란",
    "에는",
    "에도",
    "로는",
    "로도",
    "로서",
    "로써",
    "과는",
    "와는",
    "은",
    "는",
    "이",
    "가",
    "을",
    "를",
    "에",
    "의",
    "로",
    "와",
    "과",
    "도",
    "만",
];

/// The word without its particle. A word that is nothing but one stays as it is.
pub(super) fn without_particle(word: &str) -> &str {
    let bare = PARTICLES
        .iter()
        .find_map(|particle| word.strip_suffix(*particle));
    bare.filter(|bare| !bare.is_empty()).unwrap_or(word)
}

pub(super) fn is_particle(text: &str) -> bool {
    PARTICLES.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particles_are_taken_off_longest_first() {
        assert!(PARTICLES.is_sorted_by_key(|it| std::cmp::Reverse(it.chars().count())));
        for (word, bare) in [
            ("돈을", "돈"),
            ("서울에서는", "서울"),
            ("번역", "번역"),
            ("은", "은"),
        ] {
            assert_eq!(without_particle(word), bare);
        }
    }
}
