//! Where personal data and secrets are in a text.

use super::bounds::{
    before, begins_number, behind_placeholders, goes_on_in_groups, is_alone, is_no_part_of_a_name,
    is_whole_number, near_before, slice,
};
use super::{Kind, checks, wide};
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;
use toolhold_text::fold::Folded;
use toolhold_text::{continues_value, ends_in_escape};

/// One piece of data, at these bytes of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub start: usize,
    pub end: usize,
    pub kind: Kind,
}

/// Narrows what a pattern matched to what it really is, if it is.
type MatchNarrowing = fn(&str, Range<usize>) -> Option<Range<usize>>;

/// No number is as long as this.
const MAX_NUMBER_BYTES: usize = 400;
/// Characters before a phone number among which the name of what it is may be.
const MAX_NAME_CHARS: usize = 16;
/// Digits between such a name and the number, as in `phone 2:`.
const MAX_DIGITS_BEHIND_NAME: usize = 2;

struct Detector {
    kind: Kind,
    pattern: Regex,
    judge: MatchNarrowing,
}

/// Finds data of the kinds that are `wanted`, in the order of the text. Pieces do not overlap: of two
/// the one that begins first counts, and of those the longer. A number within a longer one of another kind is that one,
/// also where the other kind is not wanted: four groups of an IBAN are no phone. Digits, spaces and signs of all scripts
/// count as those of ASCII. A value that hidden characters divide is found with them, because a model is shown it without.
pub fn find(text: &str, wanted: impl Fn(Kind) -> bool) -> Vec<Finding> {
    let (folded, digits) = (Folded::of(text), Folded::of_digits(text));
    let has_signs = folded.text() != digits.text();
    let without_hidden = Folded::without_hidden(text);
    let found_of = |counts: &dyn Fn(Kind) -> bool| {
        let mut found = find_folded(&folded, counts);
        if has_signs {
            // A dash of another script behind a number is not always one of its own.
            found.extend(find_folded(&digits, counts));
        }
        for shown in &without_hidden {
            found.extend(find_folded(shown, counts));
        }
        found
    };
    let mut found = found_of(&wanted);
    if found.iter().any(|finding| finding.kind.is_number()) {
        let others = found_of(&|kind: Kind| kind.has_proof() && !wanted(kind));
        remove_parts(&mut found, others);
    }
    found.sort_by_key(|finding| (finding.start, usize::MAX - finding.end, finding.kind));
    let mut end = 0;
    found.retain(|finding| {
        let is_free = finding.start >= end;
        if is_free {
            end = finding.end;
        }
        is_free
    });
    found
}

/// All that the detectors of some kinds find, at its places in the text of before.
fn find_folded(folded: &Folded<'_>, counts: &dyn Fn(Kind) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    for detector in DETECTORS.iter().filter(|detector| counts(detector.kind)) {
        detector.find(folded.text(), &mut found);
    }
    for finding in &mut found {
        finding.start = folded.origin(finding.start);
        finding.end = folded.origin_of_end(finding.end);
    }
    found
}

/// Removes the numbers that are parts of `others`.
fn remove_parts(found: &mut Vec<Finding>, mut others: Vec<Finding>) {
    others.sort_by_key(|other| (other.start, usize::MAX - other.end));
    found.sort();
    let mut others = others.into_iter().peekable();
    // The farthest end of those that begin before a finding, and of those that begin with it.
    let (mut earlier, mut beside) = (0, (0, 0));
    found.retain(|finding| {
        while let Some(other) = others.next_if(|other| other.start <= finding.start) {
            if beside.0 < other.start {
                earlier = earlier.max(beside.1);
                beside = (other.start, 0);
            }
            beside.1 = beside.1.max(other.end);
        }
        if beside.0 < finding.start {
            earlier = earlier.max(beside.1);
            beside = (finding.start, 0);
        }
        let is_part = earlier >= finding.end || beside.1 > finding.end;
        !(finding.kind.is_number() && is_part)
    });
}

impl Detector {
    fn find(&self, text: &str, found: &mut Vec<Finding>) {
        let mut from = 0;
        // Most texts have none of most kinds, and a search for groups allocates room for them.
        while let Some(whole) = self.pattern.find_at(text, from) {
            let part = match self.pattern.captures_len() {
                1 => None,
                _ => self.pattern.captures_at(text, from),
            };
            let part = part.and_then(|captures| captures.name("it"));
            let part = part.unwrap_or(whole);
            let judged = (self.judge)(text, part.range());
            from = match judged {
                Some(range) if !range.is_empty() => {
                    found.push(Finding {
                        start: range.start,
                        end: range.end,
                        kind: self.kind,
                    });
                    range.end
                }
                // Something may begin inside of what was none; of what is long it is not looked for, so
                // that this stays linear.
                _ if whole.len() > MAX_NUMBER_BYTES => whole.end(),
                _ => after(text, whole.start()),
            };
        }
    }
}

/// The place after the character at `at`.
fn after(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.chars().next().map_or(1, char::len_utf8)
}

/// The formats, with where they are written down. Cards: ISO/IEC 7812-1 and 7813. Account numbers: ISO 13616. Phones: ITU-T
/// E.164 and E.123, the plan of Russia (order 142 of 2006 of the Ministry of Information Technologies), that of China (MIIT,
/// 2017), that of North America (NANP). United States: 20 CFR 422.103. United Kingdom: NIM39110 of HMRC. Spain: royal decree
/// 1553/2005. Italy: decree 13813 of 1976. France: decree 82-103. Brazil: the two check digits of the Receita Federal.
/// India: Aadhaar of UIDAI. China: GB 11643-1999. Russia: SNILS by order 192p of the pension fund (2006), INN by order
/// MMV-7-6/435@ (2012), the passport by decree 828 of 1997. Japan: ordinance 85 of 2014.
static DETECTORS: LazyLock<Vec<Detector>> = LazyLock::new(|| {
    let table: [(Kind, &str, MatchNarrowing); 34] = [
        // One that a text ends in, as the begin of a long task in a list, is none the less secret.
        (
            Kind::PrivateKey,
            r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?s:.+?)(?:-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|\z)",
            whole,
        ),
        (
            Kind::Authorization,
            r#"(?i)authorization\\?["']?\s{0,8}[:=]\s{0,8}\\?["']?(?:bearer|basic|token|apikey)\s{1,8}(?P<it>[A-Za-z0-9._~+/=-]{6,})"#,
            whole,
        ),
        (
            Kind::Authorization,
            r"(?i)bearer\s{1,8}(?P<it>[A-Za-z0-9._~+/=-]{16,})",
            bearer,
        ),
        (
            Kind::Jwt,
            r"eyJ[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
            alone,
        ),
        (
            Kind::ApiKey,
            r"(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA)[A-Z0-9]{16}",
            alone,
        ),
        (
            Kind::ApiKey,
            r#"(?i)aws_?(?:secret)?_?(?:access)?_?key["'\\]{0,2}\s{0,8}[:=]\s{0,8}["'\\]{0,2}(?P<it>[A-Za-z0-9/+]{40})"#,
            alone,
        ),
        (
            Kind::ApiKey,
            r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,})",
            alone,
        ),
        (
            Kind::ApiKey,
            r"(?:xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})",
            alone,
        ),
        (Kind::ApiKey, r"sk-[A-Za-z0-9_-]{20,}", opaque),
        (
            Kind::ApiKey,
            r"(?:AIza[A-Za-z0-9_-]{35}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,})",
            alone,
        ),
        (
            Kind::Iban,
            r"(?i)[a-z]{2}[0-9]{2}(?:[ -]?[a-z0-9]){11,29}",
            iban,
        ),
        (Kind::Iban, wide::IBAN, |text, range| {
            wide::account(text, iban(text, range)?)
        }),
        (Kind::Card, r"[2-6](?:[ .-]?[0-9]){12,18}", card),
        (Kind::Card, wide::CARD, wide::card),
        (
            Kind::NationalId,
            r"[0-9]{3}-[0-9]{2}-[0-9]{4}",
            |text, range| number(text, range, checks::ssn),
        ),
        (
            Kind::NationalId,
            r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]",
            nino,
        ),
        (Kind::NationalId, r"(?i)[0-9xyz][0-9]{7}-?[a-z]", dni),
        (
            Kind::NationalId,
            r"(?i)[a-z]{6}[0-9lmnpqrstuv]{2}[abcdehlmprst][0-9lmnpqrstuv]{2}[a-z][0-9lmnpqrstuv]{3}[a-z]",
            |text, range| proven(text, range, checks::codice_fiscale),
        ),
        (
            Kind::NationalId,
            r"(?i)[12378] ?[0-9]{2} ?[0-9]{2} ?[0-9][0-9ab] ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}",
            |text, range| proven(text, range, checks::nir),
        ),
        (
            Kind::NationalId,
            r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}",
            |text, range| number(text, range, checks::cpf),
        ),
        (
            Kind::NationalId,
            r"[2-9][0-9]{3}([ -])[0-9]{4}[ -][0-9]{4}",
            |text, range| number(text, range, checks::verhoeff),
        ),
        (
            Kind::NationalId,
            r"(?i)(?:aadhaar|aadhar|आधार)[^0-9]{0,20}(?P<it>[2-9][0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4})",
            |text, range| named(text, range, checks::verhoeff),
        ),
        (
            Kind::NationalId,
            r"(?i)[1-9][0-9]{16}[0-9x]",
            |text, range| proven(text, range, checks::resident_identity),
        ),
        // SNILS of Russia: as it is printed, and in any groups behind its name. In forms and tables a number with check digits
        // is often on the line below its name.
        (
            Kind::NationalId,
            r"[0-9]{3}-[0-9]{3}-[0-9]{3}[ -][0-9]{2}",
            |text, range| named(text, range, checks::snils),
        ),
        (
            Kind::NationalId,
            r"(?i)(?:снилс|snils)[^0-9]{0,20}(?P<it>[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{2})",
            |text, range| named(text, range, checks::snils),
        ),
        // Numbers whose check digits many other numbers pass, or that have none, count only behind their names: the tax
        // number of a person (INN) and the passport of Russia, and My Number of Japan.
        (
            Kind::NationalId,
            r"(?i)(?:инн|inn)[^0-9]{0,20}(?P<it>[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{4})",
            |text, range| named(text, range, checks::inn),
        ),
        (
            Kind::NationalId,
            r"(?i)(?:паспорт(?:[а-я]{0,3} гражданина (?:рф|россии|российской федерации))?|серия|серии|passport)[^0-9\n]{0,30}(?:\n[ \t]{0,8})?(?P<it>[0-9]{2} ?[0-9]{2}(?:[ №#n-]{1,4}|,? ?номер:? ?)[0-9]{6})",
            |text, range| named(text, range, |_| true),
        ),
        // In one piece its ten digits are a time as well, behind the English word, and in the lines below a series.
        (
            Kind::NationalId,
            r"(?i)паспорт(?:[а-я]{0,3} гражданина (?:рф|россии|российской федерации))?[^0-9\n]{0,20}(?:\n[ \t]{0,8})?(?P<it>[0-9]{10})",
            passport_in_one_piece,
        ),
        (
            Kind::NationalId,
            r"(?i)(?:серия|серии)[^0-9\n]{0,20}(?P<it>[0-9]{10})",
            passport_in_one_piece,
        ),
        (
            Kind::NationalId,
            r"(?i)(?:マイナンバー|個人番号|my ?number)[^0-9]{0,20}(?P<it>[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{4})",
            |text, range| named(text, range, checks::my_number),
        ),
        (
            Kind::Email,
            r"[\p{L}\p{N}._%+'-]+@(?:(?:[\p{L}\p{N}-]+\.)+\p{L}{2,}|(?:[A-Za-z0-9-]+[.\u{3002}\u{ff61}])+[A-Za-z]{2,})",
            email,
        ),
        (
            Kind::Phone,
            r"(?:\+|00)[1-9](?:[ ()./-]{0,3}[0-9]){6,14}|(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}|\(?0[1-9][0-9]{0,4}\)?(?:[ ./-]{1,2}[0-9]{2,8}){1,5}",
            phone,
        ),
        // Russia's national form, with the trunk prefix 8, and China's mobile numbers (13 to 19): eleven digits.
        (
            Kind::Phone,
            r"8[ -]?(?:\([3489][0-9]{2}\)|9[0-9]{2}|[ -][348][0-9]{2}[ -])[ -]?[0-9]{3}[ -]?[0-9]{2}[ -]?[0-9]{2}",
            national_phone,
        ),
        (
            Kind::Phone,
            r"1[3-9][0-9](?:[0-9]{8}|[ -][0-9]{4}[ -][0-9]{4})",
            national_phone,
        ),
    ];
    table
        .into_iter()
        .map(|(kind, pattern, judge)| Detector {
            kind,
            pattern: constant(pattern),
            judge,
        })
        .collect()
});

#[expect(
    clippy::expect_used,
    reason = "patterns are constants, and every test of this module compiles them all"
)]
fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a judge that lets everything pass"
)]
fn whole(_: &str, range: Range<usize>) -> Option<Range<usize>> {
    Some(range)
}

fn alone(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    is_alone(text, &range).then_some(range)
}

/// Whether it cannot be words: it has digits.
fn opaque(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let has_digits = slice(text, range.clone()).contains(|c: char| c.is_ascii_digit());
    (has_digits && is_alone(text, &range)).then_some(range)
}

/// The token behind the word `bearer`, which is no part of a longer word.
fn bearer(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let word = slice(text, 0..range.start).trim_end();
    let begin = word.len().checked_sub("bearer".len())?;
    let is_word = !before(text, begin)
        .0
        .is_some_and(|c| c.is_ascii_alphanumeric());
    is_word.then(|| opaque(text, range)).flatten()
}

fn number(
    text: &str,
    range: Range<usize>,
    is_right: impl Fn(&[u32]) -> bool,
) -> Option<Range<usize>> {
    let digits = checks::digits(slice(text, range.clone()));
    let is_whole = is_whole_number(text, &range) && !goes_on_in_groups(text, &range);
    (is_whole && is_right(&digits)).then_some(range)
}

/// A number behind its name, or in a form that no other number has. Groups beside it are not its own.
fn named(
    text: &str,
    range: Range<usize>,
    is_right: impl Fn(&[u32]) -> bool,
) -> Option<Range<usize>> {
    let digits = checks::digits(slice(text, range.clone()));
    (is_whole_number(text, &range) && is_right(&digits)).then_some(range)
}

fn proven(
    text: &str,
    range: Range<usize>,
    is_right: impl Fn(&str) -> bool,
) -> Option<Range<usize>> {
    let is_whole = is_alone(text, &range) && !goes_on_in_groups(text, &range);
    (is_whole && is_right(slice(text, range.clone()))).then_some(range)
}

fn nino(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let prefix = slice(text, range.start..range.start + 2);
    let is_given = !["BG", "GB", "KN", "NK", "NT", "TN", "ZZ"].contains(&prefix);
    (is_given && is_no_part_of_a_name(text, &range)).then_some(range)
}

fn dni(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let found = proven(text, range, |dni| checks::dni(&dni.replace('-', "")))?;
    is_no_part_of_a_name(text, &found).then_some(found)
}

/// Ten digits, unless others follow that belong to them. A date does not.
fn passport_in_one_piece(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let range = named(text, range, |_| true)?;
    let rest = slice(text, range.end..text.len());
    let rest = rest.trim_start_matches([' ', '-', ',', '№', '#']);
    let rest = rest.strip_prefix("номер").unwrap_or(rest);
    let rest = rest.trim_start_matches([' ', ':']);
    let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let mut next = behind.chars();
    let is_date = next.next().is_some_and(|c| ".-/".contains(c))
        && next.next().is_some_and(|c| c.is_ascii_digit());
    (behind.len() == rest.len() || is_date).then_some(range)
}

fn email(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let found = slice(text, range.clone());
    // `\njoe@…` in JSON text is a line break before `joe`.
    let is_escaped =
        found.starts_with(['n', 'r', 't', 'b', 'f']) && ends_in_escape(slice(text, 0..range.start));
    let start = range.start + usize::from(is_escaped);
    let (local, domain) = slice(text, start..range.end).split_once('@')?;
    let is_rest = before(text, start).0.is_some_and(continues_value);
    let next = slice(text, range.end..text.len()).chars().next();
    // The address of a repository, and `module@1.2.tool`.
    let is_remote = local == "git" && next == Some(':');
    let mut labels = domain.rsplit(['.', '\u{3002}', '\u{ff61}']).skip(1);
    let is_version = labels.all(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    (!local.is_empty() && !is_rest && !is_remote && !is_version).then_some(start..range.end)
}

fn iban(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let length = checks::iban_length(slice(text, range.start..range.start + 2))?;
    let found = slice(text, range.clone());
    let is_part = |(_, c): &(usize, char)| c.is_ascii_alphanumeric();
    let (last, _) = found.char_indices().filter(is_part).nth(length - 1)?;
    let range = range.start..range.start + last + 1;
    let compact: String = slice(text, range.clone())
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    (checks::iban(&compact) && is_alone(text, &range)).then_some(range)
}

/// The longest part of a row of digits that is a card's number, written in one piece or in the groups
/// that are printed on cards.
fn card(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    if !begins_number(text, range.start) {
        return None;
    }
    let found = slice(text, range.clone());
    let ends = found
        .char_indices()
        .filter(|(_, c)| c.is_ascii_digit())
        .map(|(at, _)| at + 1);
    let ends: Vec<usize> = ends.collect();
    ends.iter().skip(12).rev().find_map(|end| {
        let range = range.start..range.start + end;
        let written = slice(text, range.clone());
        let digits = checks::digits(written);
        let groups: Vec<usize> = written.split([' ', '-', '.']).map(str::len).collect();
        let is_written = match groups.as_slice() {
            // Points stand between all groups: `4111.1111 1111.1111` are two numbers.
            [_, _, ..] if written.contains('.') && written.contains([' ', '-']) => false,
            [_] | [4, 6, 4 | 5] => true,
            [first @ .., last] => first.iter().all(|length| *length == 4) && (1..=4).contains(last),
            [] => false,
        };
        let is_card = is_written && checks::is_issued(&digits) && checks::luhn(&digits);
        let is_whole = || {
            let behind = slice(text, range.end..text.len());
            is_whole_number(text, &range) || is_alone(text, &range) && is_expiry(behind)
        };
        (is_card && is_whole()).then_some(range)
    })
}

/// True if a card's last month stands directly behind its number: `/12/27`, `-12/2027` or `/1227`.
fn is_expiry(behind: &str) -> bool {
    let Some(date) = behind.strip_prefix(['/', '-']) else {
        return false;
    };
    let (month, rest) = date.split_at_checked(2).unwrap_or((date, ""));
    let year = rest.strip_prefix(['/', '-', '.']).unwrap_or(rest);
    let digits = year.bytes().take_while(u8::is_ascii_digit).count();
    let is_number = month.bytes().all(|byte| byte.is_ascii_digit());
    let is_month = |month: u8| (1..=12).contains(&month);
    is_number && month.parse().is_ok_and(is_month) && matches!(digits, 2 | 4)
}

/// Names of phones, and what people say who ask to be called, in small letters. A word for numbers of any kind is none.
const PHONE_NAMES: [&str; 46] = [
    "tel",
    "phone",
    "mobile",
    "whatsapp",
    "viber",
    "call me",
    "text me",
    "reach me",
    "dial ",
    "тел",
    "моб",
    "сотов",
    "звон",
    "набер",
    "набра",
    "смс",
    "ватсап",
    "вотсап",
    "вайбер",
    "контакт",
    "свяж",
    "для связи",
    "мой номер",
    "моего номер",
    "ваш номер",
    "по номеру",
    "на номер",
    "手机",
    "手機",
    "电话",
    "電話",
    "联系",
    "聯繫",
    "聯系",
    "联络",
    "聯絡",
    "致电",
    "致電",
    "拨打",
    "撥打",
    "微信",
    "短信",
    "热线",
    "熱線",
    "携帯",
    "연락",
];

/// A phone number without a country's code. In one piece it is a number as any other, unless a letter of another script
/// or a name of phones goes before.
fn national_phone(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let is_in_groups = slice(text, range.clone()).contains([' ', '-', '(']);
    let is_named = || {
        let last = slice(text, 0..range.start).chars().next_back();
        let is_beside = last.is_some_and(|c| c.is_alphabetic() && !continues_value(c));
        let near = near_before(text, range.start, MAX_NAME_CHARS);
        let near = behind_placeholders(&near);
        let names = PHONE_NAMES.iter().filter_map(|name| near.rsplit_once(name));
        // Behind another number it is none of that name.
        let is_near = |(_, between): (&str, &str)| {
            between.bytes().filter(u8::is_ascii_digit).count() <= MAX_DIGITS_BEHIND_NAME
        };
        is_beside || names.into_iter().any(is_near)
    };
    ((is_in_groups || is_named()) && is_whole_number(text, &range)).then_some(range)
}

/// A phone number: with a country's code, or in the form of a country.
fn phone(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let found = slice(text, range.clone());
    let range = if found.starts_with("+1") || found.starts_with("001") {
        // North American numbers have ten digits; what follows is another number.
        let skipped = if found.starts_with('+') { 11 } else { 13 };
        let is_digit = |(_, c): &(usize, char)| c.is_ascii_digit();
        let (last, _) = found.char_indices().filter(is_digit).nth(skipped - 1)?;
        range.start..range.start + last + 1
    } else {
        range
    };
    let found = slice(text, range.clone());
    let digits = checks::digits(found).len();
    let groups: Vec<&str> = found
        .split(|c: char| !c.is_ascii_digit())
        .filter(|group| !group.is_empty())
        .collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let is_dotted = found.contains('.') && !found.contains([' ', '-', '/', '(']);
    let is_phone = if found.starts_with('+') {
        // Two groups with a point between them are a number with decimals.
        (8..=15).contains(&digits) && !(is_dotted && groups.len() < 3)
    } else if found.starts_with("00") {
        (10..=17).contains(&digits) && groups.len() > 1 && !is_dotted
    } else if found.trim_start_matches('(').starts_with('0') {
        let is_date = matches!(lengths.as_slice(), [2, 2, 4, ..] | [2, 4, ..]);
        let is_pairs = lengths.len() > 3 && lengths.iter().all(|length| *length == 2);
        let is_dotted_other = is_dotted && !is_pairs;
        let is_row = lengths.len() > 1 && lengths.iter().all(|length| *length == 4);
        (9..=12).contains(&digits) && !is_date && !is_dotted_other && !is_row
    } else {
        true
    };
    (is_phone && is_whole_number(text, &range)).then_some(range)
}
