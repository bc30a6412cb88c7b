use super::{Reading, moment, number};
use crate::rules::ReadingRules;

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
