//! Texts of which the language is certain, and texts that tell none.

use super::*;
use proptest::prelude::*;

#[test]
fn code_names_urls_and_numbers_tell_no_language() {
    for text in [
        "",
        "2+2?",
        "OK",
        "git push --force origin main",
        "https://example.com/путь?q=привет",
        "user@example.com",
        "+49 30 901820",
        "kubectl get pods -n kube-system",
        "fn main() { println!(\"hello\"); }",
        "Angela Merkel",
        "São Paulo, Malmö, Łódź",
        "Москва",
        "Σ π Δ",
        "東京 大阪",
        "計算結果",
        "lorem ipsum dolor sit amet",
        "asdf qwer zxcv",
    ] {
        assert_eq!(recognise(text), None, "{text}");
    }
}

#[test]
fn the_language_of_a_request_is_not_that_of_what_it_quotes() {
    for (text, tag) in [
        ("Открой src/main.rs и исправь тест", "ru"),
        ("Что значит \"get away with it\"?", "ru"),
        ("Переведи на немецкий: Мы встретимся завтра в семь", "ru"),
        ("打开https://example.com并截图，这是什么", "zh"),
        ("解释 Kubernetes 的 Service 是什么", "zh"),
        ("Was heißt „good morning everyone“ auf Deutsch?", "de"),
        ("Führe `git status` aus und erkläre die Ausgabe", "de"),
        ("How do I say \"спасибо большое\" politely?", "en"),
        ("What does 请把这句话翻译成英文 mean?", "en"),
        ("Summarise the book \"Cien años de soledad\"", "en"),
        (
            "Explique le fichier Cargo.toml et la commande cargo build",
            "fr",
        ),
        ("Pythonでソート関数を書いて", "ja"),
        ("Docker 이미지를 빌드해 줘", "ko"),
    ] {
        assert_eq!(recognise(text), Some(tag), "{text}");
    }
}

#[test]
fn a_text_in_two_languages_tells_none() {
    for text in [
        "Translate into German: Wie geht es dir heute Abend?",
        "请解释ありがとう是什么意思",
        "这个こんにちは怎么读",
        "翻译成英文: the quick brown fox jumps over the lazy dog and runs away from here",
    ] {
        assert_eq!(recognise(text), None, "{text}");
    }
}

#[test]
fn languages_known_only_as_rivals_are_never_told() {
    for text in [
        // Catalan, Croatian, Afrikaans, Nynorsk.
        "Tradueix aquesta carta a l'anglès amb cura",
        "Prevedi ovo pismo na engleski i pošalji ga",
        "Vertaal hierdie brief na Engels asseblief",
        "Korleis blir vêret i Bergen i morgon?",
        // Assamese.
        "এই চিঠিখন ইংৰাজীলৈ অনুবাদ কৰক",
        // Belarusian, Macedonian.
        "Перакладзі гэты ліст на англійскую",
        "Преведи го ова писмо на англиски",
    ] {
        assert_eq!(recognise(text), None, "{text}");
    }
}

#[test]
fn each_language_that_can_be_told_has_a_name() {
    let tags: Vec<&str> = LANGUAGES.iter().map(|(tag, _)| *tag).collect();
    assert!(tags.is_sorted());
    assert_eq!(name("ru"), Some("Russian"));
    assert_eq!(name("ca"), None);
}

proptest! {
    /// No text makes it panic, whatever its marks and however it is cut.
    #[test]
    fn any_text_is_read(text in "[a-zа-яñ\u{300}漢かक「」\"«»`:./ \n]{0,60}", times in 1_usize..200) {
        let _ = recognise(&text.repeat(times));
    }
}
