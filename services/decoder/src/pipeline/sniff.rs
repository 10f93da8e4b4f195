//! What a file is by its first bytes, whatever its name or announced type says (R-C2, PROOF (c) 13).
//!
//! In: the bytes. Out: [`Sniffed`]. A file that is of another type than announced is refused: `type_mismatch` where the
//! other type is one that is taken in, `unsupported_format` for all else.

use cards::{MediaType, Problem, ProblemCode};

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// A type that is taken in. Text is found only by the absence of anything else.
    Allowed(MediaType),
    /// A known format that is not taken in.
    Other(&'static str),
    /// Text that a browser would run: SVG, HTML, XML. As `text/plain` it is text like any other.
    Markup(&'static str),
    /// Nothing that is known.
    Unknown,
}

/// This much of a file that has no magic bytes is looked at: enough to tell text from noise.
const TEXT_PREFIX_BYTES: usize = 4096;

/// Magic bytes at an offset. None of them begins a text: each has a control character or is a whole word of its format.
const MAGIC: [(usize, &[u8], Sniffed); 19] = [
    (0, b"\x89PNG\r\n\x1a\n", Sniffed::Allowed(MediaType::Png)),
    (0, b"\xff\xd8\xff", Sniffed::Allowed(MediaType::Jpeg)),
    (0, b"GIF87a", Sniffed::Allowed(MediaType::Gif)),
    (0, b"GIF89a", Sniffed::Allowed(MediaType::Gif)),
    (0, b"%PDF-", Sniffed::Allowed(MediaType::Pdf)),
    (0, b"\0\0\0\x0cJXL ", Sniffed::Other("JPEG XL")),
    (0, b"\xff\x0a", Sniffed::Other("JPEG XL")),
    (0, b"\0\0\0\x0cjP  ", Sniffed::Other("JPEG 2000")),
    (0, b"\xff\x4f\xff\x51", Sniffed::Other("JPEG 2000")),
    (0, b"II*\0", Sniffed::Other("TIFF")),
    (0, b"MM\0*", Sniffed::Other("TIFF")),
    (0, b"8BPS\0", Sniffed::Other("Photoshop")),
    (0, b"\0\0\x01\0", Sniffed::Other("icon")),
    (0, b"PK\x03\x04", Sniffed::Other("ZIP")),
    (0, b"PK\x05\x06", Sniffed::Other("ZIP")),
    (0, b"\x1f\x8b", Sniffed::Other("gzip")),
    (0, b"\x7fELF", Sniffed::Other("program")),
    // BMP: two letters are too few to go by, the four reserved bytes behind the size are zero.
    (6, b"\0\0\0\0", Sniffed::Other("BMP")),
    (4, b"ftyp", Sniffed::Other("MP4")),
];

/// Says what a file is.
pub fn sniff(bytes: &[u8]) -> Sniffed {
    if bytes.starts_with(b"RIFF") && bytes.len() >= 12 {
        return if &bytes[8..12] == b"WEBP" {
            Sniffed::Allowed(MediaType::Webp)
        } else {
            Sniffed::Other("RIFF")
        };
    }
    for (offset, magic, found) in MAGIC {
        if bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic)) {
            match found {
                Sniffed::Other("BMP") if !bytes.starts_with(b"BM") => {}
                Sniffed::Other("MP4") => return Sniffed::Other(brand(bytes)),
                Sniffed::Allowed(_) | Sniffed::Other(_) | Sniffed::Markup(_) | Sniffed::Unknown => {
                    return found;
                }
            }
        }
    }
    words(bytes)
}

/// Which member of the ISO media family: `ftyp`, then the major brand.
fn brand(bytes: &[u8]) -> &'static str {
    match bytes.get(8..12) {
        Some(b"avif" | b"avis") => "AVIF",
        Some(b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1") => "HEIC",
        Some(_) | None => "MP4",
    }
}

fn words(bytes: &[u8]) -> Sniffed {
    let prefix = &bytes[..bytes.len().min(TEXT_PREFIX_BYTES)];
    let text = match std::str::from_utf8(prefix) {
        Ok(text) => text,
        // A character cut by the end of the prefix is no fault.
        Err(error) if error.error_len().is_none() && prefix.len() == TEXT_PREFIX_BYTES => {
            std::str::from_utf8(&prefix[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Sniffed::Unknown,
    };
    // As `text/plain` control characters are allowed (all but NUL), but they are no sign of a text.
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control() && !"\t\n\x0c\r\x1b".contains(c)) {
        return Sniffed::Unknown;
    }
    let start: String = text
        .trim_start_matches('\u{feff}')
        .trim_start()
        .chars()
        .take(16)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    for (tag, name) in
        [("<svg", "SVG"), ("<?xml", "XML"), ("<!doctype", "HTML"), ("<html", "HTML"), ("<script", "HTML")]
    {
        if start.starts_with(tag) {
            return Sniffed::Markup(name);
        }
    }
    Sniffed::Allowed(MediaType::Text)
}

/// Checks that a file is of the type it was announced as.
pub fn check_type(announced: MediaType, bytes: &[u8]) -> Result<(), Problem> {
    if bytes.is_empty() {
        return Err(super::truncated("the file is empty"));
    }
    let unsupported = |what: &str| {
        Err(Problem::new(
            ProblemCode::UnsupportedFormat,
            format!("the file was announced as {announced} but is {what}, which is not taken in"),
        ))
    };
    match sniff(bytes) {
        Sniffed::Allowed(found) if found == announced => Ok(()),
        Sniffed::Allowed(found) => Err(Problem::new(
            ProblemCode::TypeMismatch,
            format!("the file was announced as {announced} but is {found}"),
        )),
        // What is wrong with a text is said by the text check itself (`text_invalid`).
        Sniffed::Markup(_) | Sniffed::Unknown if announced == MediaType::Text => Ok(()),
        Sniffed::Other(name) | Sniffed::Markup(name) => unsupported(name),
        Sniffed::Unknown => unsupported("of an unknown format"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_first_bytes_say() {
        let table: [(&[u8], Sniffed); 15] = [
            (b"\x89PNG\r\n\x1a\n....", Sniffed::Allowed(MediaType::Png)),
            (b"\xff\xd8\xff\xe0", Sniffed::Allowed(MediaType::Jpeg)),
            (b"RIFF\x04\0\0\0WEBP", Sniffed::Allowed(MediaType::Webp)),
            (b"RIFF\x04\0\0\0WAVE", Sniffed::Other("RIFF")),
            (b"\0\0\0\x1cftypavif", Sniffed::Other("AVIF")),
            (b"\0\0\0\x1cftypheic", Sniffed::Other("HEIC")),
            (b"\0\0\0\x1cftypisom", Sniffed::Other("MP4")),
            (b"BM\x46\0\0\0\0\0\0\0", Sniffed::Other("BMP")),
            (b"BMW builds cars", Sniffed::Allowed(MediaType::Text)),
            (b"\xef\xbb\xbf  <SVG onload=x>", Sniffed::Markup("SVG")),
            (b"<!DOCTYPE html>", Sniffed::Markup("HTML")),
            (b"hello\0", Sniffed::Unknown),
            (b"\x01\x02\x03", Sniffed::Unknown),
            (b"\xff\xfeh\0i\0", Sniffed::Unknown),
            (b"", Sniffed::Unknown),
        ];
        for (bytes, expected) in table {
            assert_eq!(sniff(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn another_allowed_type_is_a_mismatch_and_a_foreign_one_unsupported() {
        let code = |announced, bytes: &[u8]| check_type(announced, bytes).err().map(|problem| problem.code);
        assert_eq!(code(MediaType::Png, b"GIF89a"), Some(ProblemCode::TypeMismatch));
        assert_eq!(code(MediaType::Png, b"just words"), Some(ProblemCode::TypeMismatch));
        assert_eq!(code(MediaType::Text, b"%PDF-1.7"), Some(ProblemCode::TypeMismatch));
        assert_eq!(code(MediaType::Png, b"<svg/>"), Some(ProblemCode::UnsupportedFormat));
        assert_eq!(code(MediaType::Jpeg, b"\xff\x0a"), Some(ProblemCode::UnsupportedFormat));
        assert_eq!(code(MediaType::Text, b"PK\x03\x04"), Some(ProblemCode::UnsupportedFormat));
        assert_eq!(code(MediaType::Jpeg, b""), Some(ProblemCode::Truncated));
        assert_eq!(code(MediaType::Text, b"<svg/>"), None);
        assert_eq!(code(MediaType::Text, b"hello\0"), None);
    }

    #[test]
    fn a_character_cut_by_the_looked_at_prefix_is_no_fault() {
        let text = format!("{}é", "a".repeat(TEXT_PREFIX_BYTES - 1));
        assert_eq!(sniff(text.as_bytes()), Sniffed::Allowed(MediaType::Text));
    }
}
