//! Plain text: valid UTF-8 without a NUL (R-C2). A UTF-8 byte order mark is accepted.

use cards::{Problem, ProblemCode};

/// Checks the whole text.
pub(super) fn check(bytes: &[u8]) -> Result<(), Problem> {
    let invalid = |detail: String| Err(Problem::new(ProblemCode::TextInvalid, detail));
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return invalid("the text is UTF-16; save it as UTF-8".to_owned());
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return invalid(format!("the text is not UTF-8 from byte {} on", error.valid_up_to()));
    }
    // PostgreSQL and C programs end a text at a NUL: what they would show is not what was uploaded.
    match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => invalid(format!("the text has a NUL at byte {at}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf8_without_a_nul_and_a_byte_order_mark_is_fine() {
        assert!(check("grüße".as_bytes()).is_ok());
        assert!(check(b"\xef\xbb\xbfhello").is_ok());
        for bytes in [&b"a\0b"[..], b"\xff\xfeh\0i\0", b"\xfe\xff\0h", b"caf\xe9", b"cut \xc3"] {
            assert_eq!(check(bytes).unwrap_err().code, ProblemCode::TextInvalid, "{bytes:?}");
        }
    }
}
