//! Text in many scripts, and PDFs written by hand: objects, a cross-reference table, a trailer.

use std::fmt::Write as _;

/// The same greeting in the scripts a text must survive in.
pub(super) fn many_scripts() -> String {
    [
        "English: the quick brown fox jumps over the lazy dog.",
        "Русский: съешь же ещё этих мягких французских булок.",
        "Українська: щастя, їжак, ґанок.",
        "Oʻzbekcha: gʻoz, choʻl, shahar.",
        "Ўзбекча: ғоз, чўл, шаҳар.",
        "Ελληνικά: καλημέρα κόσμε.",
        "ქართული: გამარჯობა.",
        "العربية: مرحبا بالعالم.",
        "עברית: שלום עולם.",
        "हिन्दी: नमस्ते दुनिया.",
        "中文：你好，世界。",
        "日本語：こんにちは、世界。",
        "한국어: 안녕하세요.",
        "Signs: ‰ № ∞ ≠ 🐈\u{200d}⬛ and a composed e\u{301}.",
    ]
    .map(|line| format!("{line}\n"))
    .concat()
}

/// An encrypted PDF must have an id; any will do.
const FILE_ID: &str = "00112233445566778899aabbccddeeff";

/// A PDF of this many pages. Locked: it says that it is encrypted, with a password nobody knows.
pub(super) fn pdf(pages: u32, locked: bool) -> Vec<u8> {
    // 1: catalog, 2: page tree, 3: font, then two objects for each page.
    let page_object = |page: u32| 4 + 2 * (page - 1);
    let kids: Vec<_> = (1..=pages).map(|page| format!("{} 0 R", page_object(page))).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Kids [{}] /Count {pages} >>", kids.join(" ")),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    for page in 1..=pages {
        let drawing = format!("BT /F1 36 Tf 72 720 Td (Arkiv demo, page {page} of {pages}) Tj ET");
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> \
             /Contents {} 0 R >>",
            page_object(page) + 1
        ));
        objects.push(format!("<< /Length {} >>\nstream\n{drawing}\nendstream", drawing.len()));
    }
    if locked {
        let (owner, user) = ("5a".repeat(32), "a5".repeat(32));
        objects.push(format!("<< /Filter /Standard /V 1 /R 2 /Length 40 /P -44 /O <{owner}> /U <{user}> >>"));
    }
    let mut file = "%PDF-1.4\n".to_owned();
    let mut table = "0000000000 65535 f \n".to_owned();
    for (at, object) in objects.iter().enumerate() {
        // Writing to a String can't fail.
        let _ = writeln!(table, "{:010} 00000 n ", file.len());
        let _ = write!(file, "{} 0 obj\n{object}\nendobj\n", at + 1);
    }
    let size = objects.len() + 1;
    let lock = if locked {
        format!(" /Encrypt {} 0 R /ID [<{FILE_ID}> <{FILE_ID}>]", objects.len())
    } else {
        String::new()
    };
    let start = file.len();
    let _ = write!(
        file,
        "xref\n0 {size}\n{table}trailer\n<< /Size {size} /Root 1 0 R{lock} >>\nstartxref\n{start}\n%%EOF\n"
    );
    file.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pdf_has_its_pages_at_the_offsets_it_says() {
        let bytes = pdf(3, false);
        assert!(bytes.starts_with(b"%PDF-1.4\n") && bytes.ends_with(b"%%EOF\n"));
        let document = lopdf::Document::load_mem(&bytes).unwrap();
        assert_eq!(document.get_pages().len(), 3);
        assert_eq!(document.xref_recovery, None, "the table was right");
        assert!(!document.is_encrypted());
        assert!(document.extract_text(&[2]).unwrap().contains("page 2 of 3"));
    }

    #[test]
    fn a_locked_pdf_opens_for_nobody() {
        let loaded = lopdf::Document::load_mem(&pdf(1, true));
        assert!(
            loaded.as_ref().map_or(true, lopdf::Document::is_encrypted),
            "opened without a password: {loaded:?}"
        );
    }

    #[test]
    fn the_text_has_letters_of_at_least_eight_scripts() {
        let text = many_scripts();
        let starts = ['a', 'а', 'α', 'ა', 'ا', 'א', 'क', '中', 'あ', '가'];
        // Within 0x60 of each script's beginning, or its whole block for the large ones.
        let has = |from: char| text.chars().any(|c| (from..=from_block_end(from)).contains(&c));
        assert!(starts.into_iter().all(has));
    }

    fn from_block_end(from: char) -> char {
        let span = if matches!(from, '中' | '가') { 0x2000 } else { 0x60 };
        char::from_u32(u32::from(from) + span).unwrap()
    }
}
