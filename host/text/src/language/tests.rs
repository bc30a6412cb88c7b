//! Texts of which the language is certain, and texts that tell none.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

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

/// A text in one language with a request in another tells neither, wherever the request stands.
#[test]
fn the_language_of_a_text_before_its_request_is_not_told() {
    let long = |sentence: &str| sentence.repeat(MAX_TEXT_BYTES / sentence.len() + 1);
    let german = "Der Vertrag endet am letzten Tag des Jahres und wird nicht verlängert. ";
    for text in [
        "今天天气很好，我们一起去公园散步吧，晚上再去吃饭。Переведи на русский.",
        "今天天气很好，我们一起去公园散步吧，晚上再去吃饭\nПереведи на русский",
        "今天天气很好，我们一起去公园散步吧，晚上再去吃饭，переведи на русский",
        "今天天气很好，我们一起去公园散步吧，晚上再去吃饭 — переведи на русский",
        "今天天气很好，我们一起去公园散步吧，晚上再去吃饭 переведи на русский",
        "今天天气很好，我们一起去公园散步吧。Перевод?",
        "Перевод: 今天天气很好，我们一起去公园散步吧。",
        "Перевод 今天天气很好，我们一起去公园散步吧。",
        "Der Vertrag endet am 31. Dezember und wird nicht verlängert.\nПереведи на русский",
        "Der Vertrag endet am 31. Dezember und wird nicht verlängert. Translate it into English.",
        "Der Vertrag endet am 31. Dezember und wird nicht verlängert; 请把这句话翻译成中文",
        "Сегодня хорошая погода, мы пойдём гулять в парк. Please translate this sentence.",
        "Сегодня хорошая погода, мы пойдём гулять в парк. 翻译一下",
        "Сегодня хорошая погода, мы пойдём гулять в парк. 이 문장을 번역해 줘",
        "आज मौसम बहुत अच्छा है, हम पार्क जाएँगे। Переведи на русский",
        "明日の会議を午後三時に変更してください。请把这句话翻译成中文",
        "Сегодня хорошая погода, мы пойдём гулять в парк. Translate it.",
        "Сегодня хорошая погода, мы пойдём гулять в парк. Thanks, please translate it.",
        "Начальник написал мне сегодня длинное письмо: порт уже занят, и сервер не работает. Please translate it.",
        "Встреча с моим начальником и всеми коллегами завтра в 14:30. Please translate this.",
        &format!("{}\nПереведи на русский", long(german)),
        &format!(
            "{}Переведи на русский",
            long("今天天气很好，我们一起去公园散步吧。")
        ),
    ] {
        assert_eq!(recognise(text), None, "{text}");
    }
}

#[test]
fn sentences_in_one_language_and_terms_of_another_tell_it() {
    let russian = "Сегодня хорошая погода, и мы пойдём гулять в парк. ";
    for (text, tag) in [
        ("Сделай commit и push в main", "ru"),
        (
            "Объясни разницу между pull request и merge request в проекте",
            "ru",
        ),
        ("Что значит 你好?", "ru"),
        ("漢字 это что такое и как читается?", "ru"),
        (
            "Привет, помоги с ошибкой при запуске сервера.\nThe port is already in use.\nЧто делать?",
            "ru",
        ),
        (
            "Переведи, пожалуйста, на русский язык письмо моего начальника: The port is already in use. You can use it.",
            "ru",
        ),
        (
            "Подготовь краткое содержание встречи и разошли участникам. Thank you!",
            "ru",
        ),
        (
            "帮我写一封邮件给客户，告诉他会议改到星期五，语气要礼貌一点。Thank you!",
            "zh",
        ),
        ("이 코드를 설명해 줘. Thanks!", "ko"),
        ("Schreibe eine Antwort auf diese Mail. Thanks, John", "de"),
        ("Переведи на английский язык:\n你好", "ru"),
        (
            "Сегодня хорошая погода. Что мне надеть, чтобы не замёрзнуть?",
            "ru",
        ),
        (
            "Сделай отчёт о продажах за март. Python, Docker, Kubernetes.",
            "ru",
        ),
        ("帮我把这个 pull request 合并到 main 分支。谢谢！", "zh"),
        ("明日、東京に行きます。天気はどうですか。了解。", "ja"),
        (
            "Der Vertrag endet bald. Was muss ich jetzt tun? Danke!",
            "de",
        ),
        (&russian.repeat(80), "ru"),
        (
            &format!(
                "```\n{}```\nЧто делает этот код?",
                "let x = 1;\n".repeat(800)
            ),
            "ru",
        ),
        (
            &format!(
                "{}\n```\n{}```",
                russian.repeat(40),
                "let x = 1;\n".repeat(400)
            ),
            "ru",
        ),
    ] {
        assert_eq!(recognise(text), Some(tag), "{text}");
    }
}

#[test]
fn short_tasks_in_characters_of_both_tell_chinese_by_its_words() {
    for text in [
        "今天天气如何",
        "北京有多少人口",
        "今天几号",
        "明天下雨不下雨",
        "上海明天的天气如何",
        "法国的首都",
        "如何学好英文",
        "世界上最高的山",
        "三的平方",
        "去北京的机票",
        "地球有多大",
        "明天七点提醒大家",
        "月球的直径",
        "昨天北京下雨了",
        "推荐三本小说",
        "周末去那里玩",
        "一年有多少天",
        "英文如何学",
        "中国的人口",
        "中国的人口有多少",
        "重命名文件",
        "日本的首都",
        "画一只猫",
    ] {
        assert_eq!(recognise(text), Some("zh"), "{text}");
    }
    for text in [
        "計算結果",
        "是正措置",
        "是非確認",
        "自我同一性",
        "完了報告",
        "終了一覧",
        "了解事項",
        "科学的方法",
        "具体的事例",
        "日本的雇用慣行",
        "降水的中率",
        "地下雨水",
        "只今天候確認中",
        "説明天体観測",
        "日本周辺",
        "前回来場者",
        "許可以外",
        "愛知道路",
        "選手表彰",
        "司法国家",
        "第一下水道",
        "出来高",
        "多久市",
        "角倉了以",
        "論文件数",
        "分解方程式",
        "政治的首都",
        "宮城市町村",
        "中国首都人口",
        "孝明天皇",
        "孝明天皇陵",
        "欽明天皇",
        "有明天神",
        "鮮明天然色",
        "御機嫌如何",
        "体調如何",
        "結果如何",
        "今日如何",
        "体調、如何",
        "事業説明如何次第",
        "全国的人口",
        "全国的人口減少",
        "過去最高的中率",
        "朋友会名簿",
        "注意提醒",
    ] {
        assert_ne!(recognise(text), Some("zh"), "{text}");
    }
    assert_eq!(recognise("是非教えてください"), Some("ja"));
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
fn ordinary_and_colloquial_tasks_tell_their_language() {
    for (tag, texts) in [
        (
            "ar",
            ["قطتي تعطس كثيرا، هل هذا خطير؟", "اقترح اسما لمخبزي الجديد"],
        ),
        (
            "cs",
            [
                "Proč je můj kód tak pomalý?",
                "Recept na zeleninovou polévku",
            ],
        ),
        (
            "da",
            [
                "Findes der gode bøger om Rom?",
                "Foreslå et navn til mit bageri",
            ],
        ),
        (
            "de",
            [
                "Bring mir Gitarre bei",
                "Meine Katze niest ständig, ist das schlimm?",
            ],
        ),
        (
            "en",
            [
                "My cat keeps sneezing, should I worry?",
                "Proofread my essay",
            ],
        ),
        ("es", ["Dibuja un gato", "¿Conviene comprar o alquilar?"]),
        ("fi", ["Piirrä kissa", "Miksi koodini on hidas?"]),
        (
            "fr",
            [
                "Compte les lignes sans prix",
                "Tu peux raccourcir ce paragraphe ?",
            ],
        ),
        ("hi", ["मेरी बेकरी के लिए नाम सुझाओ", "इसे हाइकू बना दो"]),
        (
            "id",
            ["Gimana caranya daftar BPJS?", "Apa bedanya CV sama PT?"],
        ),
        (
            "it",
            ["Conviene comprare o affittare?", "Leggimi le notizie"],
        ),
        ("ja", ["コードが遅いのはなぜ", "卵は何分茹でる?"]),
        ("ko", ["노트북이 안 켜져요", "이 문단 줄여줘"]),
        ("ms", ["Susun folder mengikut abjad", "Resipi sup sayur"]),
        (
            "nb",
            ["Hvor lenge koker man et egg?", "Hva er klokka i Tokyo?"],
        ),
        ("nl", ["Maak er een haiku van", "Hoe lang kook je een ei?"]),
        ("pl", ["Policz wiersze bez ceny", "Wymyśl bajkę o smoku"]),
        (
            "pt",
            ["Dá um título a este texto", "Manda uma mensagem pra Laura"],
        ),
        ("ru", ["Что подарить тёще?", "Вреден ли кофе?"]),
        ("sv", ["Rita en katt", "Hur länge kokar man ett ägg?"]),
        ("th", ["ต้มไข่กี่นาที", "ช่วยตั้งชื่อร้านขนมปัง"]),
        ("tr", ["Haberleri oku", "Kahve zararlı mı?"]),
        ("uk", ["Розстав папки за абеткою", "Скільки варити яйце?"]),
        ("vi", ["Luộc trứng mấy phút?", "Nhắc tôi tưới cây ngày mai"]),
        ("zh", ["鸡蛋煮几分钟", "数一下没有价格的行"]),
    ] {
        for text in texts {
            assert_eq!(recognise(text), Some(tag), "{text}");
        }
    }
}

#[test]
fn the_smaller_of_two_languages_is_told_only_by_words_that_the_other_lacks() {
    for (text, tag) in [
        // Indonesian and Malay.
        ("Kenapa langit berwarna biru?", None),
        ("Bandingkan kedua kontrak", None),
        ("Bandingkan kedua kontrak karena harganya beda", Some("id")),
        (
            "Bandingkan kedua kontrak kerana harganya berbeza",
            Some("ms"),
        ),
        ("Kenapa mobil saya nggak mau jalan?", Some("id")),
        ("Kenapa kereta saya tak mahu hidup?", Some("ms")),
        // Danish and Norwegian.
        ("Sammenlign de to kontrakter", None),
        (
            "Sammenlign de to kontrakter i dag og skriv hvad du mener",
            Some("da"),
        ),
        (
            "Sammenlign de to kontraktene og skriv hva du mener",
            Some("nb"),
        ),
        // Czech and Slovak.
        ("Oprav chyby", None),
        ("Oprav chyby, prosím tě, ještě dnes", Some("cs")),
        // Dutch and Afrikaans.
        ("Hoe laat is dit?", None),
        ("Hoe laat vertrekt jullie trein?", Some("nl")),
    ] {
        assert_eq!(recognise(text), tag, "{text}");
    }
}

#[test]
fn texts_in_languages_without_a_table_tell_none() {
    for text in [
        // Esperanto, Welsh, Irish, Luxembourgish, Frisian, Latin, Hausa, Javanese, Maltese, Breton, Zulu.
        "Kiu estas la ĉefurbo de Aŭstralio?",
        "Beth yw prifddinas Awstralia?",
        "Scríobh dán gearr faoin bhfarraige",
        "Wéi eng Haaptstad huet Australien?",
        "Skriuw in koart gedicht oer de see",
        "Quae est urbs maxima Italiae?",
        "Rubuta gajeren waƙa game da teku",
        "Tulisen geguritan cekak bab segara",
        "Iktebli poeżija qasira dwar il-baħar",
        "Skriv ur varzhoneg berr diwar-benn ar mor",
        "Bhala inkondlo emfushane ngolwandle",
    ] {
        assert_eq!(recognise(text), None, "{text}");
    }
}

#[test]
fn words_of_a_table_are_in_lower_case_and_stand_there_once() {
    for family in [
        include_str!("latin.txt"),
        include_str!("cyrillic.txt"),
        include_str!("arabic.txt"),
        include_str!("devanagari.txt"),
    ] {
        for line in family.lines() {
            let (tag, words) = line.split_once(' ').unwrap();
            let mut known = HashSet::new();
            for word in words.split(' ') {
                assert_eq!(word.to_lowercase(), word, "{tag}");
                assert!(!word.is_empty() && known.insert(word), "{tag} {word:?}");
            }
        }
    }
}

/// `docs/runs.md` tells what recognition takes of the binary and of memory.
#[test]
fn tables_take_as_much_as_the_manual_says() {
    let texts = [
        include_str!("latin.txt"),
        include_str!("cyrillic.txt"),
        include_str!("arabic.txt"),
        include_str!("devanagari.txt"),
    ];
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    let lexicons = [
        &lexicon::LATIN,
        &lexicon::CYRILLIC,
        &lexicon::ARABIC,
        &lexicon::DEVANAGARI,
    ];
    let memory: usize = lexicons.iter().map(|lexicon| lexicon.memory()).sum();
    let manual = include_str!("../../../../docs/runs.md");
    for said in [
        format!("{} kB of the binary", bytes / 1_000),
        format!("{:.1} MB for all scripts", memory as f64 / 1e6),
    ] {
        assert!(manual.contains(&said), "{said}");
    }
}

/// A word that stands in the table of one language alone decides between it and all others.
#[test]
fn words_that_two_languages_share_stand_in_both_tables() {
    let lexicon = &lexicon::LATIN;
    for (word, tags) in [
        ("karena", &["id"][..]),
        ("nggak", &["id"]),
        ("kerana", &["ms"]),
        ("mesyuarat", &["ms"]),
        ("kenapa", &["id", "ms"]),
        ("esok", &["id", "ms"]),
        ("percuma", &["id", "ms"]),
        ("hoeveel", &["nl", "af"]),
        ("hvor", &["da", "nb"]),
        ("eit", &["nn"]),
    ] {
        let languages = lexicon.word(word).unwrap();
        let expected = lexicon.languages(tags);
        assert_eq!(languages, expected, "{word}");
    }
}

#[test]
fn endings_tell_languages_of_words_without_a_table() {
    for (word, tags) in [
        ("gedrukktheid", &["nl", "af"][..]),
        ("quantizzazione", &["it"]),
        ("kwantyfikacji", &["pl"]),
        ("bekijktjes", &["nl"]),
    ] {
        let family = &lexicon::LATIN;
        assert_eq!(family.word(word), None, "{word}");
        assert_eq!(family.ending(word), Some(family.languages(tags)), "{word}");
    }
    let family = &lexicon::CYRILLIC;
    assert_eq!(
        family.ending("квантування"),
        Some(family.languages(&["uk"]))
    );
    // The word is the ending.
    assert_eq!(family.ending("ння"), None);
}

#[test]
fn languages_of_endings_have_tables() {
    for (family, endings) in [
        (&lexicon::LATIN, endings::LATIN),
        (&lexicon::CYRILLIC, endings::CYRILLIC),
    ] {
        for (ending, tags) in endings {
            let count = family.languages(tags).count_ones() as usize;
            assert_eq!(count, tags.len(), "{ending}");
        }
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
    /// No text makes it panic, with any marks and cut at any place.
    #[test]
    fn any_text_is_read(text in "[a-zа-яñ\u{300}漢かक「」\"«»`:./ \n]{0,60}", times in 1_usize..200) {
        let _ = recognise(&text.repeat(times));
    }
}
