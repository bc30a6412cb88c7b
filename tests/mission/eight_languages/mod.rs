//! One table of eight languages for all that looks at words: the router, the choice of tools, search, guards, the language
//! of a task, and what a summary keeps (issue 42).

mod guards;
mod tasks;
mod words;

/// Texts of a language about three subjects, as a user writes them, and personal data beside its letters.
struct LanguageCase {
    language: &'static str,
    /// BCP 47 tag.
    tag: &'static str,
    /// Tag of the language of the host's own texts for a user of this language: English where they have no translation.
    texts: &'static str,
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
    /// Letters before and behind a value, without a space where the script can do without: of English, which is written
    /// with the letters of the values, punctuation.
    letters: [&'static str; 2],
    /// Kind and text of personal data that a user of this language writes.
    personal: (&'static str, &'static str),
    /// Has no number and no name: only its words tell that it must be kept.
    decision: &'static str,
}

const LANGUAGES: [LanguageCase; 8] = [
    LanguageCase {
        language: "english",
        tag: "en",
        texts: "en",
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
        letters: ["my number:", ", please"],
        personal: ("national_id", "536-22-1234"),
        decision: "Remember that I drink tea without sugar.",
    },
    LanguageCase {
        language: "russian",
        tag: "ru",
        texts: "ru",
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
        letters: ["номер", "клиента"],
        personal: ("national_id", "112-233-445 95"),
        decision: "Запомни, что я пью чай без сахара.",
    },
    LanguageCase {
        language: "chinese",
        tag: "zh",
        texts: "zh",
        keyword: "翻译",
        task: "请把这句话翻译成英文",
        other: "今天天气怎么样",
        tools: ["发送电子邮件", "翻译文本", "查询城市天气"],
        document: "补办丢失的银行卡需要二十欧元。",
        question: "我的银行卡丢了",
        distractor: "本店周六营业。",
        letters: ["我的号码是", "谢谢"],
        personal: ("national_id", "11010519491231002X"),
        decision: "请记住，我喝茶不加糖。",
    },
    LanguageCase {
        language: "japanese",
        tag: "ja",
        texts: "en",
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
        letters: ["個人番号は", "です"],
        personal: ("national_id", "123456789018"),
        decision: "お茶に砂糖を入れないことを覚えていてください。",
    },
    LanguageCase {
        language: "korean",
        tag: "ko",
        texts: "en",
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
        letters: ["제 번호는", "입니다"],
        personal: ("phone", "010-1234-5678"),
        decision: "차에 설탕을 넣지 않는다는 것을 기억해 주세요.",
    },
    LanguageCase {
        language: "thai",
        tag: "th",
        texts: "en",
        keyword: "แปล",
        task: "ช่วยแปลประโยคนี้เป็นภาษาอังกฤษ",
        other: "วันนี้อากาศเป็นอย่างไร",
        tools: ["ส่งอีเมล", "แปลข้อความเป็นภาษาอื่น", "บอกสภาพอากาศในเมือง"],
        document: "การออกบัตรใหม่แทนบัตรที่หายมีค่าใช้จ่าย 20 ยูโร",
        question: "ฉันทำบัตรหาย",
        distractor: "ธนาคารเปิดวันเสาร์",
        letters: ["เบอร์ของฉันคือ", "ครับ"],
        personal: ("phone", "081-234-5678"),
        decision: "จำไว้ว่าฉันดื่มชาไม่ใส่น้ำตาล",
    },
    LanguageCase {
        language: "arabic",
        tag: "ar",
        texts: "en",
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
        letters: ["رقم حسابي", "شكرا"],
        personal: ("iban", "SA03 8000 0000 6080 1016 7519"),
        decision: "تذكر أنني أشرب الشاي بلا سكر.",
    },
    LanguageCase {
        language: "hindi",
        tag: "hi",
        texts: "en",
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
        letters: ["मेरा नंबर", "है"],
        personal: ("national_id", "2341 2341 2346"),
        decision: "याद रखना कि मैं चाय में चीनी नहीं लेता।",
    },
];

impl LanguageCase {
    /// A value beside letters of the language.
    fn beside_letters(&self, value: &str) -> String {
        let [before, behind] = self.letters;
        format!("{before}{value}{behind}")
    }

    /// Text for the model in the place of the personal data.
    fn placeholder(&self) -> String {
        let (kind, _) = self.personal;
        format!("<{kind}_1>")
    }
}
