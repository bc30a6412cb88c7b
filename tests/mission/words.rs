//! Words in eight languages: keywords of the router, the choice of tools, and the search of knowledge (issue 42, item 2).

use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use support::host::Host;
use toolhold_agent::context::Toolbook;
use toolhold_agent::router::{Class, Router, RouterPolicy, Rules};
use toolhold_model::{ChatMessage, ChatRequest, CompletionObserver, Model as _, NoModel};
use toolhold_protocol::completion::Delta;
use toolhold_protocol::routing::{Classifier, Routing};
use toolhold_protocol::tool::Tool;

/// Texts of a language about three subjects, as a user writes them.
struct LanguageCase {
    language: &'static str,
    keyword: &'static str,
    /// Has the keyword.
    task: &'static str,
    /// Has it not.
    other: &'static str,
    /// Descriptions of tools: for mail, for translations, for the weather.
    tools: [&'static str; 3],
    /// Is found by the question.
    document: &'static str,
    question: &'static str,
    /// Is not.
    distractor: &'static str,
}

const LANGUAGES: [LanguageCase; 8] = [
    LanguageCase {
        language: "english",
        keyword: "translate",
        task: "Please translate this sentence into German",
        other: "How is the weather today?",
        tools: [
            "Sends an e-mail",
            "Translates a text into another language",
            "Tells the weather of a city",
        ],
        document: "A lost card costs 20 euro to replace.",
        question: "replacing cards",
        distractor: "The bank is open on Saturdays.",
    },
    LanguageCase {
        language: "russian",
        keyword: "перевод",
        task: "Нет перевода этой фразы на английский",
        other: "Какая сегодня погода?",
        tools: [
            "Отправляет письмо по почте",
            "Переводит текст на другой язык",
            "Показывает погоду в городе",
        ],
        document: "Замена утерянной карты стоит 20 евро.",
        question: "потеряна моя карта",
        distractor: "Банк открыт по субботам.",
    },
    LanguageCase {
        language: "chinese",
        keyword: "翻译",
        task: "请把这句话翻译成英文",
        other: "今天天气怎么样",
        tools: ["发送电子邮件", "翻译文本", "查询城市天气"],
        document: "补办丢失的银行卡需要二十欧元。",
        question: "我的银行卡丢了",
        distractor: "本店周六营业。",
    },
    LanguageCase {
        language: "japanese",
        keyword: "翻訳",
        task: "この文を英語に翻訳してください",
        other: "今日の天気はどうですか",
        tools: [
            "メールを送信します",
            "文章を別の言語に翻訳します",
            "都市の天気を調べます",
        ],
        document: "紛失したカードの再発行は20ユーロです。",
        question: "カードを紛失しました",
        distractor: "土曜日も営業しています。",
    },
    LanguageCase {
        language: "korean",
        keyword: "번역",
        task: "이 문장을 영어로 번역해 주세요",
        other: "오늘 날씨는 어때요?",
        tools: [
            "전자우편을 보냅니다",
            "글을 다른 언어로 번역합니다",
            "도시의 날씨를 알려 줍니다",
        ],
        document: "분실한 카드의 재발급 비용은 20유로입니다.",
        question: "카드를 분실했어요",
        distractor: "토요일에도 영업합니다.",
    },
    LanguageCase {
        language: "thai",
        keyword: "แปล",
        task: "ช่วยแปลประโยคนี้เป็นภาษาอังกฤษ",
        other: "วันนี้อากาศเป็นอย่างไร",
        tools: ["ส่งอีเมล", "แปลข้อความเป็นภาษาอื่น", "บอกสภาพอากาศในเมือง"],
        document: "การออกบัตรใหม่แทนบัตรที่หายมีค่าใช้จ่าย 20 ยูโร",
        question: "ฉันทำบัตรหาย",
        distractor: "ธนาคารเปิดวันเสาร์",
    },
    LanguageCase {
        language: "arabic",
        keyword: "ترجمة",
        task: "أريد الترجمة إلى الإنجليزية لهذه الجملة",
        other: "كيف الطقس اليوم؟",
        tools: [
            "يرسل بريدا إلكترونيا",
            "ترجمة نص إلى لغة أخرى",
            "حالة الطقس في المدينة",
        ],
        document: "استبدال البطاقة المفقودة يكلف عشرين يورو.",
        question: "فقدت بطاقة",
        distractor: "المصرف مفتوح يوم السبت.",
    },
    LanguageCase {
        language: "hindi",
        keyword: "अनुवाद",
        task: "इस वाक्य का अंग्रेज़ी में अनुवाद करें",
        other: "आज मौसम कैसा है?",
        tools: [
            "ईमेल भेजता है",
            "पाठ का दूसरी भाषा में अनुवाद करता है",
            "शहर का मौसम बताता है",
        ],
        document: "खोए हुए कार्ड को बदलने में 20 यूरो लगते हैं।",
        question: "मेरे कार्डों का क्या होगा",
        distractor: "बैंक शनिवार से खुला है।",
    },
];

/// Keeps how a task was classified.
#[derive(Default)]
struct ClassObserver(Vec<Routing>);

impl CompletionObserver for ClassObserver {
    fn delta(&mut self, _: Delta) {}

    fn routing(&mut self, routing: Routing) {
        self.0.push(routing);
    }
}

/// True if a rule with this keyword decides the class of the task.
async fn rule_holds(keyword: &str, task: &str) -> bool {
    let class = |name: &str, keywords: Vec<String>| Class {
        name: name.into(),
        description: String::new(),
        to: name.into(),
        model: Arc::new(NoModel),
        rules: Rules {
            keywords,
            ..Rules::default()
        },
    };
    let classes = vec![
        class("translations", vec![keyword.into()]),
        class("others", Vec::new()),
    ];
    let policy = RouterPolicy {
        picker: None,
        timeout: Duration::from_secs(1),
        default: 1,
    };
    let router = Router::new("router", classes, policy).unwrap();
    let request = ChatRequest::new("", vec![ChatMessage::user(task)]);
    let mut observer = ClassObserver::default();
    // No model answers, and the class is told before.
    let _ = router.complete(&request, &mut observer).await;
    let [Routing::Classified { by, .. }] = observer.0.as_slice() else {
        panic!("{:?}", observer.0)
    };
    *by == Classifier::Rule
}

#[tokio::test]
async fn statement_042_2_router_keywords_in_eight_languages() {
    for case in &LANGUAGES {
        let language = case.language;
        assert!(rule_holds(case.keyword, case.task).await, "{language}");
        assert!(!rule_holds(case.keyword, case.other).await, "{language}");
    }
    // A word with spaces around it and without.
    for (spaced, keyword) in [
        ("请 翻译 这句话", "翻译"),
        ("この 文 を 翻訳 して", "翻訳"),
        ("ช่วย แปล ประโยค นี้", "แปล"),
    ] {
        assert!(rule_holds(keyword, spaced).await, "{spaced}");
        assert!(
            rule_holds(keyword, &spaced.replace(' ', "")).await,
            "{spaced}"
        );
    }
}

#[test]
fn statement_042_2_tools_are_chosen_in_eight_languages() {
    for case in &LANGUAGES {
        let tools = [("m.t1", 0), ("m.t2", 1), ("m.t3", 2)].map(|(name, at)| {
            Arc::new(Tool {
                description: case.tools[at].into(),
                ..Tool::new(name)
            })
        });
        let book = Toolbook::new(&tools);
        let language = case.language;
        assert_eq!(book.find(case.task).first(), Some(&"m.t2"), "{language}");
        assert_eq!(book.find(case.other).first(), Some(&"m.t3"), "{language}");
    }
}

#[test]
fn statement_042_2_documents_are_found_in_eight_languages() {
    let host = Host::new();
    for case in &LANGUAGES {
        let language = case.language;
        host.write(&format!("notes/{language}.txt"), case.document)
            .write(&format!("notes/{language}_hours.txt"), case.distractor);
    }
    let added = host.run(&["knowledge", "add", "notes"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    for case in &LANGUAGES {
        let done = host.run(&["knowledge", "search", "--json", case.question]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        let source = found["passages"][0]["source"].as_str().unwrap_or_default();
        let name = format!("{}.txt", case.language);
        assert!(source.ends_with(&name), "{}: {found}", case.question);
    }
}
