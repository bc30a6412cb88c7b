use super::*;
use pdf_extract::{Dictionary, Stream};

/// A PDF of one page with these operators, whose objects `change` may change.
fn pdf(content: &str, change: impl FnOnce(&mut Pdf, (u32, u16))) -> Vec<u8> {
    let mut pdf = Pdf::with_version("1.5");
    let name = |name: &str| Object::Name(name.as_bytes().to_vec());
    let dictionary = |pairs: Vec<(&str, Object)>| Dictionary::from_iter(pairs);
    let font = pdf.add_object(dictionary(vec![
        ("Type", name("Font")),
        ("Subtype", name("Type1")),
        ("BaseFont", name("Helvetica")),
        ("Encoding", name("WinAnsiEncoding")),
    ]));
    let form = pdf.new_object_id();
    let stream = Stream::new(
        dictionary(vec![("Type", name("XObject")), ("Subtype", name("Form"))]),
        Vec::new(),
    );
    pdf.objects.insert(form, stream.into());
    let resources = dictionary(vec![
        ("Font", dictionary(vec![("F1", font.into())]).into()),
        ("XObject", dictionary(vec![("F", form.into())]).into()),
    ]);
    let content = pdf.add_object(Stream::new(Dictionary::new(), content.as_bytes().to_vec()));
    let pages = pdf.new_object_id();
    let page = pdf.add_object(dictionary(vec![
        ("Type", name("Page")),
        ("Parent", pages.into()),
        ("Contents", content.into()),
        ("Resources", resources.into()),
    ]));
    let tree = dictionary(vec![
        ("Type", name("Pages")),
        ("Kids", vec![page.into()].into()),
        ("Count", 1.into()),
    ]);
    pdf.objects.insert(pages, tree.into());
    let catalog = pdf.add_object(dictionary(vec![
        ("Type", name("Catalog")),
        ("Pages", pages.into()),
    ]));
    pdf.trailer.set("Root", catalog);
    let info = pdf.add_object(dictionary(vec![(
        "Title",
        Object::string_literal("The  fees"),
    )]));
    pdf.trailer.set("Info", info);
    change(&mut pdf, pages);
    let mut bytes = Vec::new();
    pdf.save_to(&mut bytes).unwrap();
    bytes
}

const TEXT: &str = "BT /F1 12 Tf 50 700 Td (A lost card) Tj 0 -20 Td (costs 20 euro.) Tj ET";

#[test]
fn a_page_is_read_under_its_heading() {
    let extracted = convert(&pdf(TEXT, |_, _| ())).unwrap();
    assert_eq!(extracted.title.as_deref(), Some("The fees"));
    let words: Vec<&str> = extracted.text.split_whitespace().collect();
    assert_eq!(words.join(" "), "## Page 1 A lost card costs 20 euro.");
}

#[test]
fn what_cannot_be_read_is_refused_with_its_reason() {
    for bytes in [
        &b""[..],
        b"%PDF-1.7",
        b"%PDF-1.7\ntrailer<</Root 1 0 R>>\n%%EOF",
    ] {
        assert!(
            matches!(convert(bytes), Err(ExtractError::Damaged(_))),
            "{bytes:?}"
        );
    }
    let empty = pdf(TEXT, |pdf, pages| {
        let tree = pdf
            .get_object_mut(pages)
            .and_then(Object::as_dict_mut)
            .unwrap();
        tree.set("Kids", Object::Array(Vec::new()));
    });
    assert!(matches!(convert(&empty), Err(ExtractError::Damaged(why)) if why.contains("no pages")));
}

#[test]
fn pages_in_a_circle_come_to_an_end() {
    let circle = pdf(TEXT, |pdf, pages| {
        let tree = pdf
            .get_object_mut(pages)
            .and_then(Object::as_dict_mut)
            .unwrap();
        let mut kids = tree
            .get(b"Kids")
            .and_then(Object::as_array)
            .unwrap()
            .clone();
        kids.push(pages.into());
        tree.set("Kids", kids);
    });
    // Which of both is the library's affair.
    match convert(&circle) {
        Ok(extracted) => assert!(extracted.text.contains("card")),
        Err(error) => assert!(matches!(error, ExtractError::Damaged(_)), "{error:?}"),
    }
}

#[test]
fn forms_in_a_circle_are_refused_and_forms_in_forms_are_read() {
    let forms = |last: usize, circle: bool| {
        pdf("/F Do", |pdf, _| {
            let name = |name: &str| Object::Name(name.as_bytes().to_vec());
            let ids: Vec<_> = (0..last).map(|_| pdf.new_object_id()).collect();
            let first = pdf.objects.iter().find_map(|(id, object)| {
                let form = object.as_stream().ok()?;
                form.dict.get(b"Subtype").is_ok().then_some(*id)
            });
            for (place, id) in first.iter().chain(&ids).enumerate() {
                let next = ids
                    .get(place)
                    .or(if circle { first.as_ref() } else { None });
                let drawn = next.map(|next| ("F", Object::from(*next)));
                let drawn = Dictionary::from_iter(drawn);
                let resources = Dictionary::from_iter([("XObject", Object::from(drawn))]);
                let dict = Dictionary::from_iter([
                    ("Subtype", name("Form")),
                    ("Resources", resources.into()),
                ]);
                let content = if next.is_some() { "/F Do" } else { "" };
                let form = Stream::new(dict, content.as_bytes().to_vec());
                pdf.objects.insert(*id, form.into());
            }
        })
    };
    assert!(convert(&forms(20, false)).is_ok());
    assert!(
        matches!(convert(&forms(40, false)), Err(ExtractError::TooLarge(why)) if why.contains("32 deep"))
    );
    for length in [0, 1, 5] {
        let refused = convert(&forms(length, true));
        assert!(
            matches!(refused, Err(ExtractError::Damaged(why)) if why.contains("circle")),
            "{length}"
        );
    }
}
