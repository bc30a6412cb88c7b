//! Names of months and days of the week in the languages of models, words beside them, and dates in Chinese characters and
//! Korean.

use crate::rules::ReadingRules;
use jiff::civil::{Date, Weekday};

/// Names of months in one language, from January on.
type Months = [&'static str; 12];

/// Names of the days of the week in one language, from Monday on.
type Days = [&'static str; 7];

/// English comes first: no others are read under the rules of formats 3 and 4. Slavic languages have the names in dates, and
/// Russian and Ukrainian the others, too.
pub(super) static MONTHS: [Months; 11] = [
    [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ],
    // Russian.
    [
        "января",
        "февраля",
        "марта",
        "апреля",
        "мая",
        "июня",
        "июля",
        "августа",
        "сентября",
        "октября",
        "ноября",
        "декабря",
    ],
    [
        "январь",
        "февраль",
        "март",
        "апрель",
        "май",
        "июнь",
        "июль",
        "август",
        "сентябрь",
        "октябрь",
        "ноябрь",
        "декабрь",
    ],
    // Ukrainian.
    [
        "січня",
        "лютого",
        "березня",
        "квітня",
        "травня",
        "червня",
        "липня",
        "серпня",
        "вересня",
        "жовтня",
        "листопада",
        "грудня",
    ],
    [
        "січень",
        "лютий",
        "березень",
        "квітень",
        "травень",
        "червень",
        "липень",
        "серпень",
        "вересень",
        "жовтень",
        "листопад",
        "грудень",
    ],
    // German.
    [
        "januar",
        "februar",
        "märz",
        "april",
        "mai",
        "juni",
        "juli",
        "august",
        "september",
        "oktober",
        "november",
        "dezember",
    ],
    // French.
    [
        "janvier",
        "février",
        "mars",
        "avril",
        "mai",
        "juin",
        "juillet",
        "août",
        "septembre",
        "octobre",
        "novembre",
        "décembre",
    ],
    // Spanish.
    [
        "enero",
        "febrero",
        "marzo",
        "abril",
        "mayo",
        "junio",
        "julio",
        "agosto",
        "septiembre",
        "octubre",
        "noviembre",
        "diciembre",
    ],
    // Portuguese.
    [
        "janeiro",
        "fevereiro",
        "março",
        "abril",
        "maio",
        "junho",
        "julho",
        "agosto",
        "setembro",
        "outubro",
        "novembro",
        "dezembro",
    ],
    // Italian.
    [
        "gennaio",
        "febbraio",
        "marzo",
        "aprile",
        "maggio",
        "giugno",
        "luglio",
        "agosto",
        "settembre",
        "ottobre",
        "novembre",
        "dicembre",
    ],
    // Polish.
    [
        "stycznia",
        "lutego",
        "marca",
        "kwietnia",
        "maja",
        "czerwca",
        "lipca",
        "sierpnia",
        "września",
        "października",
        "listopada",
        "grudnia",
    ],
];

/// Months of Croatian, which are not read. Polish has some of their names, and shorter forms of them, for other months.
static CROATIAN: [Months; 2] = [
    [
        "siječnja",
        "veljače",
        "ožujka",
        "travnja",
        "svibnja",
        "lipnja",
        "srpnja",
        "kolovoza",
        "rujna",
        "listopada",
        "studenoga",
        "prosinca",
    ],
    [
        "siječanj",
        "veljača",
        "ožujak",
        "travanj",
        "svibanj",
        "lipanj",
        "srpanj",
        "kolovoz",
        "rujan",
        "listopad",
        "studeni",
        "prosinac",
    ],
];

/// English comes first, as in [`MONTHS`].
pub(super) static DAYS: [Days; 10] = [
    [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ],
    // Russian.
    [
        "понедельник",
        "вторник",
        "среда",
        "четверг",
        "пятница",
        "суббота",
        "воскресенье",
    ],
    ["пн", "вт", "ср", "чт", "пт", "сб", "вс"],
    // Ukrainian.
    [
        "понеділок",
        "вівторок",
        "середа",
        "четвер",
        "п'ятниця",
        "субота",
        "неділя",
    ],
    // German.
    [
        "montag",
        "dienstag",
        "mittwoch",
        "donnerstag",
        "freitag",
        "samstag",
        "sonntag",
    ],
    // French.
    [
        "lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche",
    ],
    // Spanish.
    [
        "lunes",
        "martes",
        "miércoles",
        "jueves",
        "viernes",
        "sábado",
        "domingo",
    ],
    // Portuguese.
    [
        "segunda-feira",
        "terça-feira",
        "quarta-feira",
        "quinta-feira",
        "sexta-feira",
        "sábado",
        "domingo",
    ],
    // Italian.
    [
        "lunedì",
        "martedì",
        "mercoledì",
        "giovedì",
        "venerdì",
        "sabato",
        "domenica",
    ],
    // Polish.
    [
        "poniedziałek",
        "wtorek",
        "środa",
        "czwartek",
        "piątek",
        "sobota",
        "niedziela",
    ],
];

/// Words between the parts of a date. English comes first.
const LINKS: [&str; 3] = ["of", "de", "del"];

/// Words at the beginning of a date, or right behind its day of the week. Elsewhere they are other words, such as `AM` before
/// a time. Portuguese `do` is none of them, because it is Thursday in German.
const OPENINGS: [&str; 8] = ["den", "der", "am", "le", "el", "il", "dia", "día"];

/// Ends of the number of a day. Those of English come first.
const ORDINALS: [&str; 11] = [
    "st", "nd", "rd", "th", ".", "er", "º", "°", "-го", "-е", "го",
];

/// Number of [`ORDINALS`] that are read under the rules of formats 3 and 4.
const ENGLISH_ORDINALS: usize = 5;

/// Words between a day and a time. English comes first.
const AT: [&str; 10] = [
    " at", " в", " о", " об", " um", " à", " a las", " às", " alle", " o",
];

/// Words of Russian and Ukrainian behind a year.
const YEAR_MARKS: [&str; 8] = ["года", "году", "год", "г.", "г", "року", "р.", "р"];

/// Words of Polish behind a year.
const POLISH_YEAR_MARKS: [&str; 3] = ["roku", "r.", "r"];

/// Choice of the names of months that are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameRules {
    pub rules: ReadingRules,
    /// The word behind the year is Polish, so the month is not Croatian.
    pub is_polish: bool,
}

/// Number of a month by its name: whole, or its first three letters or four, if only one month begins with them.
pub(super) fn month(names: NameRules, word: &str) -> Option<usize> {
    let word = bare(word);
    let mut numbers = numbers_of(known(names.rules, &MONTHS), &word);
    let number = numbers.next()?;
    let mut rivals = numbers_of(&CROATIAN, &word).filter(|_| !names.is_polish);
    let is_one = numbers.all(|other| other == number) && rivals.all(|other| other == number);
    is_one.then_some(number)
}

/// Numbers of the months in these tables that have this name, or begin with it.
fn numbers_of(tables: &[Months], word: &str) -> impl Iterator<Item = usize> {
    let named = tables.iter().flat_map(|names| names.iter().zip(1..));
    let known = named.filter(move |(name, _)| **name == word || is_abbreviation(word, name));
    known.map(|(_, number)| number)
}

/// Day of the week by its name. An abbreviation is read in English alone: `mar` is a month and a day.
pub(super) fn weekday(rules: ReadingRules, word: &str) -> Option<Weekday> {
    let word = bare(word);
    let [english, ..] = &DAYS;
    let at = english.iter().position(|name| is_abbreviation(&word, name));
    let at = at.or_else(|| {
        let mut days = known(rules, &DAYS).iter();
        days.find_map(|names| names.iter().position(|name| *name == word))
    })?;
    Weekday::from_monday_zero_offset(i8::try_from(at).ok()?).ok()
}

/// True for a word between the parts of a date.
pub(super) fn is_link(rules: ReadingRules, word: &str) -> bool {
    known(rules, &LINKS)
        .iter()
        .any(|link| link.eq_ignore_ascii_case(word))
}

/// True for a word at the beginning of a date. In capitals it is another word.
pub(super) fn is_opening(rules: ReadingRules, word: &str) -> bool {
    let is_small = !word.chars().skip(1).any(char::is_uppercase);
    rules.are_from_5() && is_small && OPENINGS.contains(&word.to_lowercase().as_str())
}

/// The number of a day without its ending.
pub(super) fn without_ordinal(rules: ReadingRules, number: &str) -> &str {
    let known = if rules.are_from_5() {
        ORDINALS.len()
    } else {
        ENGLISH_ORDINALS
    };
    let mut ordinals = ORDINALS.iter().take(known);
    let bare = ordinals.find_map(|ordinal| number.strip_suffix(ordinal));
    bare.unwrap_or(number)
}

/// A day without the word between it and a time.
pub(super) fn without_at(rules: ReadingRules, day: &str) -> &str {
    let mut words = known(rules, &AT).iter();
    let bare = words.find_map(|at| day.strip_suffix(at));
    bare.unwrap_or(day)
}

/// A date without the word behind its year, and the names that this word leaves.
pub(super) fn without_year_mark(rules: ReadingRules, text: &str) -> (NameRules, &str) {
    let before = |marks: &[&str]| {
        let bare = marks.iter().find_map(|mark| text.strip_suffix(mark));
        bare.map(str::trim_end)
            .filter(|bare| rules.are_from_5() && bare.ends_with(|c: char| c.is_ascii_digit()))
    };
    let polish = before(&POLISH_YEAR_MARKS);
    let names = NameRules {
        rules,
        is_polish: polish.is_some(),
    };
    let bare = polish.or_else(|| before(&YEAR_MARKS));
    (names, bare.unwrap_or(text))
}

/// True for the character behind the day in [`in_characters`].
pub(super) fn ends_day(character: char) -> bool {
    matches!(character, '日' | '号' | '號' | '일')
}

/// A date such as `2025年9月25日`, and the day of the week if one follows.
pub(super) fn in_characters(rules: ReadingRules, text: &str) -> Option<(Date, Option<Weekday>)> {
    if !rules.are_from_5() {
        return None;
    }
    let (year, rest) = text.split_once(['年', '년'])?;
    let (month, rest) = rest.split_once(['月', '월'])?;
    let (day, rest) = rest.split_once(ends_day)?;
    let year = i16::try_from(number(year)?).ok()?;
    let month = i8::try_from(number(month)?).ok()?;
    let day = i8::try_from(number(day)?).ok()?;
    // A year of two digits is told by no century, and one of Japan by its era.
    let date = Date::new(year, month, day).ok().filter(|_| year >= 1_000)?;
    match rest.trim() {
        "" => Some((date, None)),
        rest => Some((date, Some(weekday_in_characters(rest)?))),
    }
}

/// A number in figures, or in Chinese ones: up to 99, or each figure of it.
fn number(text: &str) -> Option<u16> {
    const MAX_FIGURES: usize = 4;
    let text = text.trim();
    let figure = |c: char| match c {
        '〇' | '零' | '○' => Some(0),
        _ => "一二三四五六七八九"
            .chars()
            .zip(1..)
            .find_map(|(own, value)| (own == c).then_some(value)),
    };
    let only = |text: &str| {
        let mut characters = text.chars();
        let only = characters.next().and_then(figure);
        only.filter(|_| characters.next().is_none())
    };
    if text.is_empty() || text.chars().count() > MAX_FIGURES {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    if let Some((tens, ones)) = text.split_once('十') {
        let tens = if tens.is_empty() { Some(1) } else { only(tens) }?;
        let ones = if ones.is_empty() { Some(0) } else { only(ones) }?;
        return Some(tens * 10 + ones);
    }
    text.chars()
        .try_fold(0, |number, c| Some(number * 10 + figure(c)?))
}

/// A day of the week in Chinese, Japanese or Korean, perhaps in brackets.
fn weekday_in_characters(text: &str) -> Option<Weekday> {
    const CHINESE: &str = "一二三四五六日";
    const JAPANESE: &str = "月火水木金土日";
    const KOREAN: &str = "월화수목금토일";
    let bare = text.trim_matches(['(', ')', '（', '）']).trim();
    let chinese = ["星期", "周", "週", "礼拜", "禮拜"];
    let behind = chinese.iter().find_map(|mark| bare.strip_prefix(mark));
    let before = || {
        let marks = ["曜日", "曜", "요일"];
        marks.iter().find_map(|mark| bare.strip_suffix(mark))
    };
    let name = behind.or_else(before).unwrap_or(bare);
    // The other name of Sunday in Chinese.
    let name = if name == "天" { "日" } else { name };
    let mut characters = name.chars();
    let day = characters.next().filter(|_| characters.next().is_none())?;
    let at = [CHINESE, JAPANESE, KOREAN]
        .iter()
        .find_map(|days| days.chars().position(|own| own == day))?;
    Weekday::from_monday_zero_offset(i8::try_from(at).ok()?).ok()
}

/// All entries of a table whose first is English, or that one alone.
fn known<T>(rules: ReadingRules, table: &[T]) -> &[T] {
    match table.split_at_checked(1) {
        Some((english, _)) if !rules.are_from_5() => english,
        _ => table,
    }
}

fn bare(word: &str) -> String {
    word.strip_suffix('.').unwrap_or(word).to_lowercase()
}

/// True if `word` is the first three letters of the name, or four.
fn is_abbreviation(word: &str, name: &str) -> bool {
    (3..=4).contains(&word.chars().count()) && name.starts_with(word)
}
