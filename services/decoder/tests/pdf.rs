//! PDFs made by code, through the real child (R-C2, PROOF (c) 16).

mod common;
#[path = "common/program.rs"]
mod program;

use cards::MediaType;
use decoder::pipeline::Options;

use common::outcome;
use program::children;

/// A PDF of these objects, numbered from 1, with a sound cross-reference table. The first is the catalog.
fn pdf(objects: &[String], trailer: &str) -> Vec<u8> {
    let mut file = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n".to_vec();
    let mut offsets = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        offsets.push(file.len());
        file.extend(format!("{} 0 obj\n{object}\nendobj\n", index + 1).bytes());
    }
    let start = file.len();
    file.extend(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).bytes());
    for offset in offsets {
        file.extend(format!("{offset:010} 00000 n \n").bytes());
    }
    let size = objects.len() + 1;
    file.extend(
        format!("trailer\n<< /Size {size} /Root 1 0 R {trailer}>>\nstartxref\n{start}\n%%EOF\n").bytes(),
    );
    file
}

const CATALOG: &str = "<< /Type /Catalog /Pages 2 0 R >>";
const PAGE: &str = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] >>";

fn objects(tail: &[&str]) -> Vec<String> {
    [CATALOG].iter().chain(tail).map(|object| (*object).to_owned()).collect()
}

fn good() -> Vec<u8> {
    let pages = "<< /Type /Pages /Kids [3 0 R 4 0 R 5 0 R] /Count 3 >>";
    pdf(&objects(&[pages, PAGE, PAGE, PAGE]), "")
}

fn one_page(extra: &str) -> Vec<u8> {
    pdf(&objects(&["<< /Type /Pages /Kids [3 0 R] /Count 1 >>", PAGE, extra]), "")
}

#[tokio::test]
async fn pdfs_end_ready_with_their_pages_or_refused_with_a_reason() {
    let stray = b"%PDF-1.7\nthis is no PDF at all\n%%EOF\n".to_vec();
    let mut broken_xref = good();
    let xref = broken_xref.windows(4).position(|window| window == b"xref").unwrap();
    broken_xref.splice(xref..xref + 4, *b"xxxx");
    let mut wrong_offsets = good();
    for byte in &mut wrong_offsets[xref + 30..xref + 120] {
        if byte.is_ascii_digit() {
            *byte = b'7';
        }
    }
    let whole = good();
    let encrypt = "<< /Filter /Standard /V 1 /R 2 /P -4 /O (01234567890123456789012345678901) \
                   /U (01234567890123456789012345678901) >>";
    let encrypted = pdf(
        &objects(&["<< /Type /Pages /Kids [3 0 R] /Count 1 >>", PAGE, encrypt]),
        "/Encrypt 4 0 R /ID [(0123456789012345) (0123456789012345)] ",
    );
    let foreign_lock = pdf(
        &objects(&["<< /Type /Pages /Kids [3 0 R] /Count 1 >>", PAGE, "<< /Filter /Acme.Lock /V 9 >>"]),
        "/Encrypt 4 0 R ",
    );
    let direct_lock = pdf(
        &objects(&["<< /Type /Pages /Kids [3 0 R] /Count 1 >>", PAGE]),
        &format!("/Encrypt {encrypt} /ID [(0123456789012345) (0123456789012345)] "),
    );
    let nested =
        |open: &str, close: &str| one_page(&format!("{}{}", open.repeat(10_000), close.repeat(10_000)));
    let mut tall: Vec<String> = objects(&[]);
    for number in 2..200 {
        tall.push(format!("<< /Type /Pages /Kids [{} 0 R] /Count 1 >>", number + 1));
    }
    tall.push(PAGE.to_owned());

    let table: Vec<(&str, Vec<u8>, &[&str])> = vec![
        ("three pages", good(), &["ready pages 3"]),
        ("trailing bytes", [good(), b"\n\n".to_vec()].concat(), &["ready pages 3"]),
        ("encrypted", encrypted, &["pdf_encrypted"]),
        ("encrypted, said in the trailer itself", direct_lock, &["pdf_encrypted"]),
        ("locked by a foreign handler", foreign_lock, &["pdf_encrypted"]),
        ("arrays 10,000 deep", nested("[", "]"), &["corrupt", "limit_exceeded"]),
        ("dictionaries 10,000 deep", nested("<</A ", ">>"), &["corrupt", "limit_exceeded"]),
        ("strings 10,000 deep", nested("(", ")"), &["corrupt", "limit_exceeded"]),
        ("broken xref", broken_xref, &["corrupt"]),
        ("wrong offsets", wrong_offsets, &["corrupt"]),
        ("cut", whole[..whole.len() / 2].to_vec(), &["truncated"]),
        (
            "cyclic page tree",
            pdf(
                &objects(&["<< /Type /Pages /Kids [3 0 R] /Count 1 >>", "<< /Type /Pages /Kids [2 0 R] >>"]),
                "",
            ),
            &["corrupt"],
        ),
        (
            "one page twice",
            pdf(&objects(&["<< /Type /Pages /Kids [3 0 R 3 0 R] /Count 2 >>", PAGE]), ""),
            &["corrupt"],
        ),
        ("a page tree 198 levels high", pdf(&tall, ""), &["limit_exceeded"]),
        ("no pages", pdf(&objects(&["<< /Type /Pages /Kids [] /Count 0 >>"]), ""), &["corrupt"]),
        ("no page tree", pdf(&["<< /Type /Catalog >>".to_owned()], ""), &["corrupt"]),
        ("a page that is missing", pdf(&objects(&["<< /Type /Pages /Kids [9 0 R] >>"]), ""), &["corrupt"]),
        ("not a PDF", stray, &["corrupt"]),
        ("another type", b"GIF89a".to_vec(), &["type_mismatch"]),
        ("unknown", b"\x01\x02\x03\x04".to_vec(), &["unsupported_format"]),
    ];
    let children = children(Options::default());
    let mut wrong = Vec::new();
    for (name, file, expected) in table {
        let (line, _) = outcome(&children, MediaType::Pdf, &file).await;
        if !expected.contains(&line.as_str()) {
            wrong.push(format!("{name}: expected {expected:?}, got {line}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
