//! Object keys as events write them.
//!
//! Form-encoding (MinIO, RustFS, AWS): `+` is a space, `%XX` a byte, every other character itself: `/` is seen bare
//! and escaped, `~` and `*` too. Decoded exactly once. Raw (Ceph, EventBridge): a `+` or `%` there is part of the key.

use super::{DeadReason, KEY_BYTES_MAX, Source};

/// The key, decoded by its source's rule.
pub(super) fn decode(source: Source, wire: &str) -> Result<String, DeadReason> {
    let key = match source {
        Source::Minio | Source::Rustfs | Source::Aws => {
            form_decode(wire).ok_or(DeadReason::KeyUndecodable)?
        }
        Source::Ceph | Source::EventBridge => wire.to_owned(),
    };
    if key.is_empty() {
        return Err(DeadReason::KeyEmpty);
    }
    if key.contains('\0') {
        return Err(DeadReason::KeyUndecodable);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(DeadReason::KeyTooLong);
    }
    Ok(key)
}

/// Strict: no lossy replacement, no broken escape kept as it is. Ready-made decoders do one or the other (FACTS 1.6).
fn form_decode(wire: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(wire.len());
    let mut rest = wire.as_bytes();
    loop {
        rest = match rest {
            [] => return String::from_utf8(decoded).ok(),
            [b'+', rest @ ..] => {
                decoded.push(b' ');
                rest
            }
            [b'%', high, low, rest @ ..] => {
                decoded.push(hex_digit(*high)? << 4 | hex_digit(*low)?);
                rest
            }
            [b'%', ..] => return None,
            [byte, rest @ ..] => {
                decoded.push(*byte);
                rest
            }
        };
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORM: [Source; 3] = [Source::Minio, Source::Rustfs, Source::Aws];
    const RAW: [Source; 2] = [Source::Ceph, Source::EventBridge];

    #[test]
    fn a_plus_is_a_space_and_an_escape_a_byte() {
        for source in FORM {
            assert_eq!(decode(source, "a+b%2Bc%252Bd%26e").unwrap(), "a b+c%2Bd&e");
            assert_eq!(decode(source, "x%2fy/z~*%7E%2a").unwrap(), "x/y/z~*~*");
            assert_eq!(decode(source, "Z%C3%BCrich").unwrap(), "Zürich");
        }
    }

    #[test]
    fn a_raw_key_is_taken_as_it_is() {
        for source in RAW {
            assert_eq!(decode(source, "a b+c%2Bd%ZZ%").unwrap(), "a b+c%2Bd%ZZ%");
        }
    }

    #[test]
    fn composed_and_decomposed_letters_stay_two_keys() {
        assert_ne!(decode(Source::Minio, "%C3%A9"), decode(Source::Minio, "e%CC%81"));
    }

    #[test]
    fn a_broken_escape_is_refused() {
        for wire in ["%", "a%", "a%2", "%ZZ", "%+1", "% 1", "%-1", "%G0", "%0G", "%%41", "%é"] {
            assert_eq!(decode(Source::Minio, wire), Err(DeadReason::KeyUndecodable), "{wire}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_never_replaced() {
        for wire in ["%FF", "%C3", "%C3x", "%ED%A0%80", "%C0%80", "%F4%90%80%80"] {
            assert_eq!(decode(Source::Minio, wire), Err(DeadReason::KeyUndecodable), "{wire}");
        }
    }

    #[test]
    fn nul_is_refused_escaped_or_raw() {
        assert_eq!(decode(Source::Minio, "a%00b"), Err(DeadReason::KeyUndecodable));
        for source in FORM.into_iter().chain(RAW) {
            assert_eq!(decode(source, "a\0b"), Err(DeadReason::KeyUndecodable));
        }
    }

    #[test]
    fn an_empty_key_is_refused() {
        for source in FORM.into_iter().chain(RAW) {
            assert_eq!(decode(source, ""), Err(DeadReason::KeyEmpty));
        }
    }

    #[test]
    fn a_key_has_at_most_1024_bytes_after_decoding() {
        assert_eq!(decode(Source::Minio, &"%C3%A9".repeat(512)).unwrap().len(), 1024);
        assert_eq!(decode(Source::Minio, &"%C3%A9".repeat(513)), Err(DeadReason::KeyTooLong));
        assert_eq!(decode(Source::Ceph, &"k".repeat(1024)).unwrap().len(), 1024);
        assert_eq!(decode(Source::Ceph, &"k".repeat(1025)), Err(DeadReason::KeyTooLong));
    }

    proptest! {
        #[test]
        fn what_was_form_encoded_decodes_back(chars in any::<Vec<char>>()) {
            let text: String = chars.into_iter().collect();
            let standard: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
            prop_assert_eq!(form_decode(&standard), Some(text.clone()));
            let every_byte = text.bytes().fold(String::new(), |wire, byte| format!("{wire}%{byte:02x}"));
            prop_assert_eq!(form_decode(&every_byte), Some(text));
        }

        #[test]
        fn a_decoded_key_keeps_its_promises(wire in any::<String>()) {
            for source in FORM.into_iter().chain(RAW) {
                if let Ok(key) = decode(source, &wire) {
                    prop_assert!((1..=KEY_BYTES_MAX).contains(&key.len()) && !key.contains('\0'));
                }
            }
        }
    }
}
