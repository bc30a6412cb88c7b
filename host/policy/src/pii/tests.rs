use super::*;

fn kinds(text: &str) -> Vec<(Kind, &str)> {
    find(text, |_| true)
        .into_iter()
        .map(|finding| (finding.kind, &text[finding.start..finding.end]))
        .collect()
}

/// Text, and what of it is found.
const FOUND: &[(Kind, &str, &str)] = &[
    (
        Kind::Email,
        "write to ann.lee+x@mail.example.co.uk.",
        "ann.lee+x@mail.example.co.uk",
    ),
    (Kind::Email, "<ann@example.com>", "ann@example.com"),
    (
        Kind::Email,
        "mailto:ann@example.com?subject=hi",
        "ann@example.com",
    ),
    (Kind::Email, "jörg@müller.de,", "jörg@müller.de"),
    (
        Kind::Email,
        r#"{"to":"line\njoe@example.com"}"#,
        "joe@example.com",
    ),
    (Kind::Phone, "call +49 171 1234567 now", "+49 171 1234567"),
    (Kind::Phone, "+1 (415) 555-2671", "+1 (415) 555-2671"),
    (Kind::Phone, "+1 415 555 2671 42 times", "+1 415 555 2671"),
    (Kind::Phone, "tel:+442079460958", "+442079460958"),
    (Kind::Phone, "+49 (0) 171 1234567", "+49 (0) 171 1234567"),
    (Kind::Phone, "0049 171 1234567", "0049 171 1234567"),
    (Kind::Phone, "(415) 555-2671", "(415) 555-2671"),
    (Kind::Phone, "415-555-2671,", "415-555-2671"),
    (Kind::Phone, "415.555.2671", "415.555.2671"),
    (Kind::Phone, "1-415-555-2671", "1-415-555-2671"),
    (Kind::Phone, "Tel. 030 1234567", "030 1234567"),
    (Kind::Phone, "0171/1234567", "0171/1234567"),
    (Kind::Phone, "020 7946 0958", "020 7946 0958"),
    (Kind::Phone, "01 23 45 67 89", "01 23 45 67 89"),
    (Kind::Phone, "01.23.45.67.89", "01.23.45.67.89"),
    (Kind::Card, "4111 1111 1111 1111", "4111 1111 1111 1111"),
    (Kind::Card, "4111111111111111 2024", "4111111111111111"),
    (
        Kind::Card,
        "4111 1111 1111 1111 2024",
        "4111 1111 1111 1111",
    ),
    (Kind::Card, "5500-0055-5555-5559", "5500-0055-5555-5559"),
    (Kind::Card, "amex 3782 822463 10005", "3782 822463 10005"),
    (Kind::Card, "[4111111111111111,1]", "4111111111111111"),
    (
        Kind::Iban,
        "DE89 3704 0044 0532 0130 00",
        "DE89 3704 0044 0532 0130 00",
    ),
    (
        Kind::Iban,
        "GB82WEST12345698765432 today",
        "GB82WEST12345698765432",
    ),
    (
        Kind::Iban,
        "fr1420041010050500013m02606",
        "fr1420041010050500013m02606",
    ),
    (Kind::NationalId, "SSN 536-22-1234", "536-22-1234"),
    (Kind::NationalId, "AB 12 34 56 C", "AB 12 34 56 C"),
    (Kind::NationalId, "DNI 12345678Z", "12345678Z"),
    (Kind::NationalId, "X1234567L", "X1234567L"),
    (Kind::NationalId, "RSSMRA85T10A562S", "RSSMRA85T10A562S"),
    (
        Kind::NationalId,
        "1 85 05 78 006 084 91",
        "1 85 05 78 006 084 91",
    ),
    (Kind::NationalId, "529.982.247-25", "529.982.247-25"),
    (Kind::NationalId, "2341 2341 2346", "2341 2341 2346"),
    (Kind::NationalId, "11010519491231002X", "11010519491231002X"),
    (
        Kind::ApiKey,
        "id AKIAIOSFODNN7EXAMPLE.",
        "AKIAIOSFODNN7EXAMPLE",
    ),
    (
        Kind::ApiKey,
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    ),
    (
        Kind::ApiKey,
        "ghp_0123456789abcdefghij0123456789abcdef",
        "ghp_0123456789abcdefghij0123456789abcdef",
    ),
    (
        Kind::ApiKey,
        "glpat-0123456789abcdefghij",
        "glpat-0123456789abcdefghij",
    ),
    (
        Kind::ApiKey,
        "xoxb-123456789012-abcdefghij",
        "xoxb-123456789012-abcdefghij",
    ),
    (
        Kind::ApiKey,
        "sk-proj-abcDEF0123456789abcdef",
        "sk-proj-abcDEF0123456789abcdef",
    ),
    (
        Kind::ApiKey,
        "AIzaSyA0123456789abcdefghijklmnopqrstuv",
        "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    ),
    (
        Kind::ApiKey,
        r"a\nAKIAIOSFODNN7EXAMPLE",
        "AKIAIOSFODNN7EXAMPLE",
    ),
    (
        Kind::Jwt,
        "t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl;",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ),
    (
        Kind::PrivateKey,
        "x\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\ny",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ),
    (
        Kind::PrivateKey,
        r"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
        r"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
    ),
    (
        Kind::Authorization,
        "Authorization: Bearer abcdef",
        "abcdef",
    ),
    (
        Kind::Authorization,
        r#"{"Authorization": "Basic dXNlcjpwYXNz"}"#,
        "dXNlcjpwYXNz",
    ),
    (
        Kind::Authorization,
        "curl -H 'bearer 0123456789abcdef'",
        "0123456789abcdef",
    ),
];

/// Texts in which nothing is found.
const FREE: &[&str] = &[
    "ann at example.com",
    "user@localhost",
    "@handle",
    "git@github.com:org/repo.git",
    "text@1.2.count",
    "npm i left-pad@1.3.0",
    "a@b",
    "2024-01-02T03:04:05+0100",
    "2024-01-02 03:04:05",
    "01-02-2024 1200",
    "02/03/2024 10:30",
    "1.2.3.4",
    "192.168.100.200",
    "v10.20.300.4000",
    "0.12.345.6789",
    "1234567890123456",
    "4111111111111112",
    "1700000000000",
    "1700000000000000000",
    "17*23 = 391",
    "2^200 % 97",
    "3.14159265358979",
    "+3.14159265",
    "+40.712776",
    "order 0123 4567 8901",
    "555-12345",
    "123-456-7890",
    "ISBN 978-0-306-40615-7",
    "ISBN 0-306-40615-2",
    "550e8400-e29b-41d4-a716-446655440000",
    "4155552671",
    "01711234567",
    "000-12-3456",
    "666-12-3456",
    "900-12-3456",
    "536-00-1234",
    "1536-22-12345",
    "DE89370400440532013001",
    "XX89370400440532013000",
    "GB 12 34 56 C",
    "12345678A",
    "X1234567A",
    "RSSMRA85T10A562T",
    "529.982.247-26",
    "111.111.111-11",
    "2341 2341 2347",
    "110105194912310021",
    "AKIASHORT",
    "bearer of good news and more",
    "the bearer abcdefghijklmnopqrst",
    "sk-learn-is-a-nice-library-for-all",
    "ghp_short",
    "eyJ.eyJ.x",
    "-----BEGIN PUBLIC KEY-----\nMIIE\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----",
    "<email_1>",
    "call_12345678",
    "1,234,567,890",
    "0x4111111111111111",
];

#[test]
fn what_is_found_is_no_more_and_no_less() {
    for (kind, text, part) in FOUND {
        assert_eq!(kinds(text), [(*kind, *part)], "{text}");
    }
}

#[test]
fn numbers_and_words_are_left_alone() {
    for text in FREE {
        assert_eq!(kinds(text), [], "{text}");
    }
}

#[test]
fn long_hostile_texts_take_their_time_and_no_more() {
    for piece in [
        "a@",
        "1 ",
        "+1",
        "0 ",
        "4-",
        "eyJ",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "a.",
        "<email_",
        "Authorization:",
        "DE89 ",
        "é@é.",
        "\\n",
        "11",
    ] {
        let text = piece.repeat(200_000 / piece.len());
        let started = std::time::Instant::now();
        find(&text, |_| true);
        let took = started.elapsed();
        assert!(took.as_secs() < 20, "{piece:?}: {took:?}");
    }
}
