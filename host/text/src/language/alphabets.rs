//! Letters of languages, beside those that all languages of a script have.

use super::endings::{self, Ending};

/// Letters of the languages of one script.
pub(super) struct Alphabet {
    /// True for letters that every language has.
    pub is_common: fn(char) -> bool,
    /// By the tag of a language, its other letters. A letter that no language has belongs to a language that is not known.
    pub letters: &'static [(&'static str, &'static str)],
    pub endings: &'static [Ending],
}

pub(super) static LATIN: Alphabet = Alphabet {
    is_common: |letter| letter.is_ascii_lowercase(),
    letters: &[
        ("en", "éèêïçñ"),
        ("de", "äöüßéà"),
        ("fr", "àâæçéèêëîïôœùûüÿ"),
        ("es", "áéíñóúü"),
        ("pt", "áâãàçéêíóôõúü"),
        ("it", "àèéìíîòóùú"),
        ("nl", "éèëêïóöüáç"),
        ("pl", "ąćęłńóśźż"),
        ("cs", "áčďéěíňóřšťúůýž"),
        ("sk", "áäčďéíĺľňóôŕšťúýž"),
        ("hu", "áéíóöőúüű"),
        ("ro", "ăâîșşțţ"),
        ("sv", "åäöéà"),
        ("da", "æøåé"),
        ("nb", "æøåéèêòóô"),
        ("fi", "äöå"),
        ("tr", "çğıöşüâîû\u{307}"),
        (
            "vi",
            "àáảãạăằắẳẵặâầấẩẫậđèéẻẽẹêềếểễệìíỉĩịòóỏõọôồốổỗộơờớởỡợùúủũụưừứửữựỳýỷỹỵ",
        ),
        ("id", "é"),
        ("ms", "é"),
        ("ca", "àçèéíïòóúü"),
        ("gl", "áéíñóúïü"),
        ("hr", "čćđšž"),
        ("sl", "čšž"),
        ("nn", "æøåéèêòóô"),
        ("af", "êëéèîïôöûüá"),
        ("is", "áðéíóúýþæö"),
        ("et", "äõöüšž"),
        ("lt", "ąčęėįšųūž"),
        ("lv", "āčēģīķļņšūž"),
        ("sq", "çë"),
        ("az", "çəğıöşü\u{307}"),
        ("eu", "ñçü"),
        ("tl", "ñ"),
    ],
    endings: endings::LATIN,
};

pub(super) static CYRILLIC: Alphabet = Alphabet {
    is_common: |letter| "абвгдежзклмнопрстуфхцчш'".contains(letter),
    letters: &[
        ("ru", "ёийщъыьэюя"),
        ("uk", "иійїєґщьюя"),
        ("bg", "ийщъьюя"),
        ("sr", "ијђљњћџ"),
        ("mk", "ијѓѕљњќџѐѝ"),
        ("be", "ёійўыьэюя"),
        ("kk", "ёийщъыьэюяәғқңөұүһі"),
        ("ky", "ёийщъыьэюяңөү"),
        ("mn", "ёийщъыьэюяөү"),
        ("tt", "ёийщъыьэюяәөүҗңһ"),
        ("tg", "ёийъэюяғӣқӯҳҷ"),
        ("uz", "ёийъьэюяўқғҳ"),
    ],
    endings: endings::CYRILLIC,
};

pub(super) static ARABIC: Alphabet = Alphabet {
    // Signs of vowels stand in all of them, and are seldom written.
    is_common: |letter| {
        "ءابتثجحخدذرزسشصضطظعغفقلمنوئآأؤ\u{200c}\u{670}".contains(letter)
            || ('\u{64b}'..='\u{652}').contains(&letter)
    },
    letters: &[
        ("ar", "ةىكيإه"),
        ("fa", "پچژگکیه"),
        ("ur", "پچژگکیہھےٹڈڑںۂۓۃ"),
    ],
    endings: endings::NONE,
};

pub(super) static DEVANAGARI: Alphabet = Alphabet {
    is_common: |letter| !"ळऱ\u{93c}".contains(letter),
    letters: &[("hi", "\u{93c}"), ("mr", "ळऱ")],
    endings: endings::NONE,
};
