use super::*;
use proptest::prelude::*;

fn terms(language: Language, text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    TermSplitter::new(language).each(text, |term| terms.push(term.to_owned()));
    terms
}

#[test]
fn a_term_is_the_same_however_its_word_is_written() {
    for (text, expected) in [
        ("The Foxes' den", "the fox den"),
        ("fox's", "fox"),
        ("fox\u{2019}s FOX ＦＯＸ", "fox fox fox"),
        ("can't", "cant"),
        ("naïve cafe\u{301}", "naiv cafe"),
        ("foo_bar-baz.qux 3.14", "foo bar baz qux 3 14"),
        ("running runs", "run run"),
        ("co\u{ad}operate", "cooper"),
        ("книга книги КНИГУ книгой", "книг книг книг книг"),
        ("русский русского", "русск русск"),
        ("水 と 火", "水 と 火"),
        ("한국", "한국"),
        ("돈을", "돈을 돈"),
        ("AI를", "ai 를"),
        ("ไทย", "ไท ทย ไทย"),
        ("", ""),
        ("... --- '' \u{0} \u{301}", ""),
    ] {
        assert_eq!(terms(Language::English, text).join(" "), expected, "{text}");
    }
    assert_eq!(terms(Language::None, "हिन्दी"), ["हिनदी"]);
    assert_eq!(terms(Language::German, "Häuser"), ["haus"]);
    assert_eq!(terms(Language::None, "Häuser книги"), ["hauser", "книги"]);
    assert!(terms(Language::English, &"x".repeat(65)).is_empty());
    assert!(terms(Language::English, &format!("a{}", "\u{301}".repeat(10_000))).len() <= 1);
}

#[test]
fn unspaced_texts_have_their_words_and_all_pairs() {
    for (text, expected) in [
        (
            "こんにちは世界",
            &["こん", "んに", "は世", "世界", "こんにちは"][..],
        ),
        ("水は", &["水は"]),
        ("龟山岛", &["龟山", "山岛", "龟山岛"]),
        ("ทุกสองสัปดาห์", &["ทุก", "สอง"]),
        ("カタカナ", &["カタ", "タカ", "カナ"]),
        ("ｶﾀｶﾅ", &["カタ", "タカ", "カナ"]),
        ("用GPU训练", &["gpu", "训练"]),
        ("번역해", &["번역", "역해", "번역해"]),
    ] {
        let terms = terms(Language::English, text);
        for term in expected {
            assert!(
                terms.iter().any(|it| it == term),
                "{text}: {term}: {terms:?}"
            );
        }
    }
}

/// For each script without spaces: keywords, and words that stand around them.
const UNSPACED: &[(&[&str], &[&str])] = &[
    (
        &["翻译", "合同", "总结", "天气预报", "水"],
        &[
            "请",
            "把",
            "这句话",
            "成",
            "英文",
            "公司",
            "内容",
            "研究",
            "生命",
        ],
    ),
    (
        &["翻訳", "契約", "テスト", "まとめ"],
        &[
            "この",
            "文",
            "を",
            "してください",
            "データ",
            "の",
            "東京",
            "して",
        ],
    ),
    (
        &["แปล", "สัญญา", "สรุป", "อากาศ"],
        &[
            "ช่วย",
            "ประโยค",
            "นี้",
            "เป็น",
            "ภาษา",
            "อังกฤษ",
            "ที่",
            "ให้",
            "คน",
        ],
    ),
    (
        &["ແປ", "ສັນຍາ", "ອາກາດ"],
        &["ພາສາ", "ລາວ", "ປະໂຫຍກ", "ນີ້", "ເປັນ"],
    ),
    (&["បកប្រែ", "កិច្ចសន្យា"], &["ភាសា", "ខ្មែរ", "នេះ", "ជា", "សូម"]),
    (
        &["ဘာသာပြန်", "စာချုပ်"],
        &["ဒီ", "စာကြောင်း", "ကို", "ပေးပါ", "မြန်မာ"],
    ),
];

#[test]
fn keywords_are_words_in_every_script() {
    for (text, keyword, is_there) in [
        ("Translate this, please", "translate", true),
        ("the translated text", "translate", false),
        ("How\n many are there?", " how  many", true),
        ("somehow many", "how many", false),
        ("is C++ fast?", "c++", true),
        ("a CAFÉ", "cafe\u{301}", true),
        ("请把这句话翻译成英文", "翻译", true),
        ("请把这句话读一遍", "翻译", false),
        ("用GPU训练模型", "gpu", true),
        ("用GPUs训练模型", "gpu", false),
        ("この文を英語に翻訳してください", "翻訳", true),
        ("이 문장을 영어로 번역해 주세요", "번역", true),
        ("영어번역해줘", "번역", true),
        ("일기예보 알려줘", "예보", true),
        ("회사계약을 요약해 줘", "계약", true),
        ("영어번역기", "번역", false),
        ("강아지도 그려 줘", "지도", false),
        ("회사과제", "사과", false),
        ("변수도", "수도", false),
        ("지도를 그려 줘", "지도", true),
        ("기상 예보", "상", false),
        ("예상밖의 일", "상", false),
        ("AI를 써", "ai", true),
        ("ช่วยแปลประโยคนี้เป็นภาษาอังกฤษ", "แปล", true),
        ("เรื่องนี้แปลก", "แปล", false),
        ("ตลาด", "ลาด", false),
        ("กา", "ก", false),
        ("เก", "ก", false),
        ("Переведи эту книгу", "книга", true),
        ("перевод договора", "договор", true),
        ("разговор", "договор", false),
        ("سؤال عن الترجمة", "ترجمة", true),
        ("ترجم هذه الجملة", "ترجم", true),
        ("इस वाक्य का अनुवाद करें", "अनुवाद", true),
        ("anything", " ", false),
        ("", "a", false),
    ] {
        assert_eq!(
            KeywordText::new(text).has(keyword),
            is_there,
            "{text}: {keyword}"
        );
    }
}

proptest! {
    /// A keyword that is found with spaces around it is found without them, and terms are found likewise.
    #[test]
    fn statement_042_2_unspaced_words_are_found_among_others(
        script in 0..UNSPACED.len(),
        keyword in any::<prop::sample::Index>(),
        around in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        at in any::<prop::sample::Index>(),
    ) {
        let (keywords, others) = UNSPACED[script];
        let keyword = *keyword.get(keywords);
        let mut words: Vec<&str> = around.iter().map(|index| *index.get(others)).collect();
        words.insert(at.index(words.len() + 1), keyword);
        for text in [words.join(" "), words.concat()] {
            prop_assert!(KeywordText::new(&text).has(keyword), "{}: {}", text, keyword);
        }
        let pairs = |text: &str| {
            let mut pairs = Vec::new();
            let text = normal(text);
            each_pair(&text, &cluster_ends(&text), &mut |pair: &str| pairs.push(pair.to_owned()));
            pairs
        };
        let terms = terms(Language::English, &words.concat());
        for pair in pairs(keyword) {
            prop_assert!(terms.contains(&pair), "{:?}: {}", terms, pair);
        }
    }

    #[test]
    fn terms_have_letters_and_digits_only(text in "\\PC{0,80}", keyword in "\\PC{1,3}") {
        for term in terms(Language::English, &text) {
            prop_assert!(term.chars().all(char::is_alphanumeric), "{term:?}");
            prop_assert!(!term.is_empty() && term.len() <= MAX_TERM_BYTES, "{term:?}");
        }
        let _ = KeywordText::new(&text).has(&keyword);
        let is_word = !normal(&keyword).trim().is_empty();
        if is_word && keyword.chars().all(char::is_alphanumeric) {
            let text = format!("{text} {keyword} {text}");
            prop_assert!(KeywordText::new(&text).has(&keyword), "{text:?} {keyword:?}");
        }
    }
}
