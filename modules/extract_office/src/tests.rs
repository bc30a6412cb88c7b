use super::*;
use std::io::{Cursor, Write as _};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const DOCX: &str = KINDS[0].0;
const PPTX: &str = KINDS[2].0;
const XLSX: &str = KINDS[3].0;
const ODT: &str = KINDS[5].0;
const ODP: &str = KINDS[6].0;

fn package(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn docx(body: &str) -> Vec<u8> {
    let document = format!("<w:document><w:body>{body}</w:body></w:document>");
    let styles = "<w:styles><w:style w:styleId='berschrift2'><w:name w:val='heading 2'/></w:style></w:styles>";
    let core = "<cp:coreProperties><dc:title>The fees</dc:title></cp:coreProperties>";
    package(&[
        ("word/document.xml", &document),
        ("word/styles.xml", styles),
        ("docProps/core.xml", core),
    ])
}

#[test]
fn a_text_keeps_its_structure() {
    let body = "<w:p><w:pPr><w:pStyle w:val='berschrift2'/></w:pPr><w:r><w:t>Cards</w:t></w:r></w:p>\
        <w:p><w:r><w:t xml:space='preserve'>A lost </w:t></w:r><w:r><w:t>card &amp; a key cost&#x20AC;.</w:t></w:r></w:p>\
        <w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>one</w:t></w:r></w:p>\
        <w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>\
        <w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b|c</w:t></w:r></w:p></w:tc></w:tr>\
        <w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc></w:tr></w:tbl>";
    let extracted = convert(&docx(body), DOCX).unwrap();
    assert_eq!(extracted.title.as_deref(), Some("The fees"));
    assert_eq!(
        extracted.text,
        "## Cards\n\nA lost card & a key cost\u{20ac}.\n- one\n\n| a | b\\|c |\n|---|---|\n| 1 |  |\n"
    );
}

#[test]
fn slides_and_open_documents_are_read() {
    let slide = |title: &str, text: &str| {
        format!(
            "<p:sld><p:sp><p:nvPr><p:ph type='title'/></p:nvPr><a:p><a:t>{title}</a:t></a:p></p:sp>\
             <p:sp><a:p><a:t>{text}</a:t></a:p></p:sp></p:sld>"
        )
    };
    let slides = [slide("Hours", "Monday"), slide("Fees", "20 euro")];
    let pptx = package(&[
        ("ppt/slides/slide10.xml", &slides[1]),
        ("ppt/slides/slide2.xml", &slides[0]),
    ]);
    assert_eq!(
        convert(&pptx, PPTX).unwrap().text,
        "## Slide 2 Hours\n\nMonday\n\n## Slide 10 Fees\n\n20 euro\n"
    );
    let content = "<office:document-content><text:h text:outline-level='2'>Fees</text:h><text:p>A lost<text:s text:c='2'/>card\
        <office:annotation><text:p>secret</text:p></office:annotation>.</text:p><table:table><table:table-row>\
        <table:table-cell><text:p>1</text:p></table:table-cell></table:table-row></table:table></office:document-content>";
    let odt = package(&[
        ("content.xml", content),
        ("meta.xml", "<m><dc:title>T</dc:title></m>"),
    ]);
    let extracted = convert(&odt, ODT).unwrap();
    assert_eq!(extracted.text, "## Fees\n\nA lost  card.\n\n| 1 |\n|---|\n");
    assert_eq!(extracted.title.as_deref(), Some("T"));
    let content = "<d><draw:page><text:p>one</text:p></draw:page><draw:page><text:p>two</text:p></draw:page></d>";
    let odp = package(&[("content.xml", content)]);
    assert_eq!(
        convert(&odp, ODP).unwrap().text,
        "## Slide 1\n\none\n\n## Slide 2\n\ntwo\n"
    );
}

#[test]
fn sheets_are_tables_however_far_their_cells_are_apart() {
    let book = "<workbook xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships'>\
        <sheets><sheet name='Rates' sheetId='1' r:id='r1'/></sheets></workbook>";
    let relations = "<Relationships><Relationship Id='r1' Type='x/worksheet' Target='worksheets/sheet1.xml'/></Relationships>";
    let sheet = "<worksheet><sheetData><row r='1'><c r='A1' t='inlineStr'><is><t>gold</t></is></c><c r='C1'><v>2</v></c></row>\
        <row r='1048576'><c r='XFD1048576'><v>3</v></c></row></sheetData></worksheet>";
    let xlsx = package(&[
        ("xl/workbook.xml", book),
        ("xl/_rels/workbook.xml.rels", relations),
        ("xl/worksheets/sheet1.xml", sheet),
        ("[Content_Types].xml", "<Types/>"),
        (
            "_rels/.rels",
            "<Relationships><Relationship Id='r1' Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument' Target='xl/workbook.xml'/></Relationships>",
        ),
    ]);
    let text = convert(&xlsx, XLSX).unwrap().text;
    assert_eq!(text, "## Rates\n\n| gold |  | 2 |\n|---|---|---|\n| 3 |\n");
}

#[test]
fn what_is_hostile_is_refused_with_the_bound_that_it_met() {
    let too_large = |bytes: &[u8], bound: &str| match convert(bytes, DOCX) {
        Err(ExtractError::TooLarge(why)) => assert!(why.contains(bound), "{why}"),
        other => panic!("{:?}", other.map(|extracted| extracted.text.len())),
    };
    // Of some hundred kilobytes.
    let bomb = format!("<d>{}", " ".repeat(65 << 20));
    too_large(&package(&[("word/document.xml", &bomb)]), "64 MiB");
    let deep = "<d>".repeat(100_000);
    too_large(&package(&[("word/document.xml", &deep)]), "1000 deep");
    let long = format!("<w:p><w:t>{}</w:t></w:p>", "long ".repeat(4 << 20));
    too_large(&docx(&long), "16 MiB");
    let laughs = "<!DOCTYPE d [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;\">]><d><w:p><w:t>&b;</w:t></w:p></d>";
    let damaged = |bytes: &[u8], media_type: &str, reason: &str| match convert(bytes, media_type) {
        Err(ExtractError::Damaged(why)) => assert!(why.contains(reason), "{why}"),
        other => panic!("{:?}", other.map(|extracted| extracted.text)),
    };
    damaged(
        &package(&[("word/document.xml", laughs)]),
        DOCX,
        "entities of its own",
    );
    damaged(b"PK\x03\x04", DOCX, "no whole zip file");
    damaged(b"text", ODT, "no whole zip file");
    damaged(&package(&[("a", "b")]), DOCX, "no word/document.xml");
    damaged(
        &package(&[("word/document.xml", "<d><w:p>")]),
        DOCX,
        "ends too early",
    );
    damaged(
        &package(&[("word/document.xml", "<d></e>")]),
        DOCX,
        "its XML",
    );
    damaged(&package(&[("a", "b")]), PPTX, "no slides");
    let compound = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";
    assert!(matches!(
        convert(compound, DOCX),
        Err(ExtractError::Encrypted)
    ));
    let manifest = "<m><file><encryption-data/></file></m>";
    let locked = package(&[
        ("META-INF/manifest.xml", manifest),
        ("content.xml", "noise"),
    ]);
    assert!(matches!(
        convert(&locked, ODT),
        Err(ExtractError::Encrypted)
    ));
}
