use super::{Reading, names, number};
use crate::rules::ReadingRules;

fn moment(format: &str, text: &str) -> Option<Reading<String>> {
    super::moment(ReadingRules::Current, format, text)
}

fn one<T: ToString>(read: Option<Reading<T>>) -> Option<String> {
    match read? {
        Reading::One(value) => Some(value.to_string()),
        Reading::Unclear(why) => Some(format!("unclear: {why}")),
    }
}

#[test]
fn numbers_are_read_where_their_separators_have_one_meaning() {
    for (text, expect) in [
        ("1,234.50", "1234.50"),
        ("1.234,50", "1234.50"),
        ("-1,234,567", "-1234567"),
        ("\u{2212}1.234.567", "-1234567"),
        ("1 234", "1234"),
        ("1\u{202f}234\u{202f}567,8", "1234567.8"),
        ("1'234.5", "1234.5"),
        ("1\u{2019}234", "1234"),
        ("1_000", "1000"),
        ("12,5", "12.5"),
        ("0,500", "0.500"),
        ("1234,567", "1234.567"),
    ] {
        let read = one(number(ReadingRules::Current, text)).map(|it| it.parse::<f64>().unwrap());
        assert_eq!(read, Some(expect.parse::<f64>().unwrap()), "{text}");
    }
    let why = one(number(ReadingRules::Current, "1,000")).unwrap();
    assert!(
        why.starts_with("unclear: ") && why.contains("1000") && why.contains("1.000"),
        "{why}"
    );
    for text in [
        "1,2,3",
        "12,34",
        "1,23,456.0",
        "1.2.3",
        "1,234,56",
        "1 2",
        "1.234,567,8",
        ",5",
        "5,",
        "1,,0",
        "1,000.5.6",
        "1,000 EUR",
        "0x5",
        "+5",
        "007",
        "five",
        "",
        "-",
        "1'0",
        "1_0",
        "01,234",
    ] {
        let read = one(number(ReadingRules::Current, text));
        let is_decimal = text == "12,34";
        assert_eq!(read.is_some(), is_decimal, "{text}: {read:?}");
    }
    assert_eq!(one(number(ReadingRules::Current, &"1,".repeat(100))), None);
}

#[test]
fn dates_are_read_where_day_and_month_are_told_apart() {
    for text in [
        "3 May 2026",
        "May 3, 2026",
        "3rd of May 2026",
        "May 3rd, 2026",
        "03-May-2026",
        "3. May 2026",
        "2026 May 3",
        "Sunday, 3 May 2026",
        "Sun, 03 May 2026",
        "2026/05/03",
        "2026.5.3",
        "2026-5-3",
        "20260503",
        " 2026-05-03",
    ] {
        assert_eq!(
            one(moment("date", text)).as_deref(),
            Some("2026-05-03"),
            "{text}"
        );
    }
    for text in [
        "25/03/2026",
        "03/25/2026",
        "25.3.2026",
        "Sept. 9 2026",
        "09/09/2026",
    ] {
        let expect = if text.contains('9') {
            "2026-09-09"
        } else {
            "2026-03-25"
        };
        assert_eq!(one(moment("date", text)).as_deref(), Some(expect), "{text}");
    }
    for (text, told) in [
        ("05/03/2026", ["2026-03-05", "2026-05-03"]),
        ("5.3.2026", ["2026-03-05", "2026-05-03"]),
        ("05/03/26", ["which of its numbers", "year"]),
        ("Monday, 3 May 2026", ["day of the week", "2026-05-03"]),
    ] {
        let why = one(moment("date", text)).unwrap();
        assert!(why.starts_with("unclear: "), "{why}");
        assert!(told.iter().all(|part| why.contains(part)), "{why}");
    }
    for text in [
        "2026-05-03",
        "tomorrow",
        "31/02/2026",
        "2026-13-01",
        "10122026",
        "3 May",
        "May 2026",
        "",
        "3 Mai 2026x",
        "2026-05-03T10:00:00Z",
        "3/5",
        "1/2/3/4",
        "é/é/éééé",
        "3 M 2026",
    ] {
        assert_eq!(one(moment("date", text)), None, "{text}");
    }
}

#[test]
fn times_are_read_and_no_zone_is_added() {
    for (format, text, expect) in [
        ("time", "2:30 PM", "14:30:00"),
        ("time", "2pm", "14:00:00"),
        ("time", "12 a.m.", "00:00:00"),
        ("time", "12:05pm", "12:05:00"),
        ("time", "14:30Z", "14:30:00Z"),
        ("time", "2:30:05.25 pm +0200", "14:30:05.25+02:00"),
        ("date-time", "2026-05-03 14:30:00Z", "2026-05-03T14:30:00Z"),
        ("date-time", "2026-05-03 14:30 UTC", "2026-05-03T14:30:00Z"),
        (
            "date-time",
            "2026-05-03T14:30:00+02",
            "2026-05-03T14:30:00+02:00",
        ),
        ("date-time", "3 May 2026, 2:30 PM", "2026-05-03T14:30:00"),
        ("date-time", "May 3, 2026 at 2:30 pm", "2026-05-03T14:30:00"),
        (
            "date-time",
            "Sun, 03 May 2026 14:30:00 GMT",
            "2026-05-03T14:30:00Z",
        ),
        ("date-time", "2026-05-03 14:30", "2026-05-03T14:30:00"),
        ("date-time", "2026-05-03 2:30", "2026-05-03T02:30:00"),
    ] {
        assert_eq!(one(moment(format, text)).as_deref(), Some(expect), "{text}");
    }
    let why = one(moment("date-time", "05/03/2026 14:30")).unwrap();
    assert!(
        why.contains("2026-03-05") && why.contains("2026-05-03"),
        "{why}"
    );
    for (format, text) in [
        ("time", "14:30"),
        ("time", " 2:30"),
        ("time", "14:30:00"),
        ("time", "14:30:00Z"),
        ("time", "25:00Z"),
        ("time", "13 pm"),
        ("time", "noon"),
        ("time", "1\u{e9}2"),
        ("time", "12:00+1\u{e9}2"),
        ("date-time", "2026-05-03"),
        ("date-time", "2026-05-03T14:30:00"),
        ("date-time", "2026-05-03T14:30:00.5-07:00"),
        ("date-time", "soon"),
        ("email", "3 May 2026"),
    ] {
        assert_eq!(one(moment(format, text)), None, "{text}");
    }
}

#[test]
fn dates_of_other_languages_are_read() {
    for (text, expect) in [
        ("25 сентября 2025", "2025-09-25"),
        ("25 сентября 2025 г.", "2025-09-25"),
        ("25 Сентября 2025г.", "2025-09-25"),
        ("25 сент. 2025 года", "2025-09-25"),
        ("25 сентябрь 2025", "2025-09-25"),
        ("1-го мая 2025 года", "2025-05-01"),
        ("четверг, 25 сентября 2025 года", "2025-09-25"),
        ("чт, 25 сентября 2025", "2025-09-25"),
        ("25-сен-2025", "2025-09-25"),
        ("25.09.2025 г.", "2025-09-25"),
        ("25.09.2025г", "2025-09-25"),
        ("25 вересня 2025 року", "2025-09-25"),
        ("25. September 2025", "2025-09-25"),
        ("Donnerstag, den 25. September 2025", "2025-09-25"),
        ("3. März 2025", "2025-03-03"),
        ("1er août 2025", "2025-08-01"),
        ("le 25 septembre 2025", "2025-09-25"),
        ("15 juil. 2025", "2025-07-15"),
        ("jueves, 25 de septiembre de 2025", "2025-09-25"),
        ("1º de março de 2025", "2025-03-01"),
        ("25 settembre 2025", "2025-09-25"),
        ("giovedì 25 settembre 2025", "2025-09-25"),
        ("il giovedì 25 settembre 2025", "2025-09-25"),
        ("quinta-feira, 25 de setembro de 2025", "2025-09-25"),
        ("25 września 2025", "2025-09-25"),
        ("25 września 2025 r.", "2025-09-25"),
        ("25 września 2025r.", "2025-09-25"),
        ("25.09.2025 r.", "2025-09-25"),
        ("czwartek, 25 września 2025 roku", "2025-09-25"),
        ("25 listopada 2025 r.", "2025-11-25"),
        ("wtorek, 25 listopada 2025 roku", "2025-11-25"),
        ("25 lis 2025 r.", "2025-11-25"),
        ("25 lip 2025 r", "2025-07-25"),
        ("am 25. September 2025", "2025-09-25"),
        ("Am Donnerstag, den 25. September 2025", "2025-09-25"),
        ("Donnerstag, der 25. September 2025", "2025-09-25"),
        ("jeudi, le 25 septembre 2025", "2025-09-25"),
        ("el día 25 de septiembre de 2025", "2025-09-25"),
        ("dia 25 de setembro de 2025", "2025-09-25"),
        ("2025年9月25日", "2025-09-25"),
        ("2025 年 9 月 25 日", "2025-09-25"),
        ("2025年09月25号", "2025-09-25"),
        ("２０２５年９月２５日", "2025-09-25"),
        ("２０２５／０９／２５", "2025-09-25"),
        ("二〇二五年九月二十五日", "2025-09-25"),
        ("二零二五年十月十日", "2025-10-10"),
        ("2025年9月25日（木）", "2025-09-25"),
        ("2025年9月25日 木曜日", "2025-09-25"),
        ("2025年9月25日星期四", "2025-09-25"),
        ("2025年9月28日星期天", "2025-09-28"),
        ("2025년 9월 25일", "2025-09-25"),
        ("2025년 9월 25일 목요일", "2025-09-25"),
    ] {
        assert_eq!(one(moment("date", text)).as_deref(), Some(expect), "{text}");
        for rules in [ReadingRules::Format3, ReadingRules::Format4] {
            let is_english = text == "25. September 2025";
            let read = super::moment(rules, "date", text);
            assert_eq!(read.is_some(), is_english, "{text}");
        }
    }
    for (text, expect) in [
        ("25 сентября 2025 г., 14:30", "2025-09-25T14:30:00"),
        ("25 сентября 2025 года в 14:30", "2025-09-25T14:30:00"),
        (
            "воскресенье, 28 сентября 2025 года в 14:30",
            "2025-09-28T14:30:00",
        ),
        ("25. September 2025 um 14:30", "2025-09-25T14:30:00"),
        ("Am 25. September 2025 um 14:30", "2025-09-25T14:30:00"),
        ("25 listopada 2025 r., 14:30", "2025-11-25T14:30:00"),
        ("2025年9月25日 14:30", "2025-09-25T14:30:00"),
        ("2025年9月25日14：30", "2025-09-25T14:30:00"),
        ("2025년 9월 25일 14:30", "2025-09-25T14:30:00"),
    ] {
        let read = one(moment("date-time", text));
        assert_eq!(read.as_deref(), Some(expect), "{text}");
    }
    for text in [
        "понедельник, 25 сентября 2025",
        "2025年9月25日星期一",
        "poniedziałek, 25 września 2025 r.",
        "lunedì 25 settembre 2025",
        "05.03.2025 г.",
    ] {
        let why = one(moment("date", text)).unwrap();
        assert!(why.starts_with("unclear: "), "{why}");
    }
    for text in [
        "31 сентября 2025",
        "25 сентября",
        "25 сентября 25 г.",
        "сентябрь 2025 г.",
        "15 jui 2025",
        "завтра",
        "2025年9月",
        "2025年13月1日",
        "25年9月25日",
        "令和7年9月25日",
        "2025年9月25日前",
        "二〇二五年九月三十二日",
        "2025年9月十十日",
        "год 2025",
        // October in Croatian and November in Polish; June and July.
        "25 listopada 2025",
        "25 lis 2025",
        "25-lis-2025",
        "25 lip 2025",
        // Thursday in German, and 26 September 2025 was none.
        "Do, 26. September 2025",
        "Do 26. September 2025",
        "25 am September 2025",
        "25. September den 2025",
        "25. September 2025 am",
        "2025/09/25 AM",
        "AM 2025/09/25",
        "am",
    ] {
        assert_eq!(one(moment("date", text)), None, "{text}");
    }
    // German has the letters of an English time.
    for text in [
        "2025/09/25 AM 12:30",
        "2025/09/25 am 12:30",
        "25 September 2025 AM 12:30",
        "2025/09/25 PM 12:30",
        "AM 2025/09/25 12:30",
    ] {
        assert_eq!(one(moment("date-time", text)), None, "{text}");
    }
}

/// An abbreviation would stand for the first month whose name begins with it.
#[test]
fn names_of_months_and_days_are_whole_words_of_one_meaning() {
    let rules = ReadingRules::Current;
    let polish = names::NameRules {
        rules,
        is_polish: true,
    };
    for (names, count) in [
        (names::MONTHS.as_flattened(), 12),
        (names::DAYS.as_flattened(), 7),
    ] {
        for (at, name) in names.iter().enumerate() {
            let number = at % count + 1;
            assert_eq!(name.to_lowercase(), *name);
            let read = match count {
                12 => names::month(polish, name),
                _ => names::weekday(rules, name)
                    .map(|day| usize::try_from(day.to_monday_one_offset()).unwrap()),
            };
            assert_eq!(read, Some(number), "{name}");
        }
    }
    let other = names::NameRules {
        is_polish: false,
        ..polish
    };
    for name in names::MONTHS.as_flattened() {
        let is_shared = *name == "listopada";
        assert_eq!(names::month(other, name).is_none(), is_shared, "{name}");
    }
}
