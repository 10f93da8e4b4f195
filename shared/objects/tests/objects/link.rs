//! The link's shape, and names that can't hurt (R-D2).

use std::collections::BTreeMap;

use cards::VersionId;
use objects::link::{LINK_LIFE, LinkRequest, LinkSigner, attachment};
use objects::{Credentials, SignerSettings};
use proptest::prelude::*;

#[test]
fn a_link_is_fixed_to_a_version_for_a_minute_with_our_own_headers() {
    let signer = LinkSigner::new(SignerSettings {
        endpoint: "https://s3.example.com".parse().unwrap(),
        region: "us-east-1".to_owned(),
        bucket: "arkiv".to_owned(),
        credentials: Credentials::new("reader", "secret"),
    });
    let disposition = attachment("наш кот+1&2.jpg");
    let url = signer
        .link(&LinkRequest {
            key: "files/a b/c",
            version: &VersionId::parse("v+1/=").unwrap(),
            issued_at: "2026-11-30T22:05:00Z".parse().unwrap(),
            life: LINK_LIFE,
            content_type: "image/jpeg",
            disposition: &disposition,
        })
        .unwrap();
    assert_eq!(url.path(), "/arkiv/files/a%20b/c");
    let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    assert_eq!(query["versionId"], "v+1/=");
    assert_eq!(query["X-Amz-Expires"], "60");
    assert_eq!(query["response-content-type"], "image/jpeg");
    assert_eq!(query["response-content-disposition"], disposition);
    assert_eq!(query["response-cache-control"], "private, max-age=60");
    assert_eq!(query["X-Amz-SignedHeaders"], "host");
    assert!(!url.as_str().contains('+'), "a plus is a space to some and a plus to others: {url}");
}

#[test]
fn names_are_made_safe() {
    for (name, expected) in [
        ("cat.jpg", r#"attachment; filename="cat.jpg"; filename*=UTF-8''cat.jpg"#),
        ("кот.jpg", r#"attachment; filename="___.jpg"; filename*=UTF-8''%D0%BA%D0%BE%D1%82.jpg"#),
        ("שלום.pdf", r#"attachment; filename="____.pdf"; filename*=UTF-8''%D7%A9%D7%9C%D7%95%D7%9D.pdf"#),
        ("猫 1.png", r#"attachment; filename="_ 1.png"; filename*=UTF-8''%E7%8C%AB%201.png"#),
        (
            r#"a"; filename="b.exe"#,
            r#"attachment; filename="a; filename=b.exe"; filename*=UTF-8''a%3B%20filename%3Db.exe"#,
        ),
        ("a\r\nSet-Cookie: x", r#"attachment; filename="aSet-Cookie_ x"; filename*=UTF-8''aSet-Cookie_%20x"#),
        ("\u{202E}gpj.exe", r#"attachment; filename="gpj.exe"; filename*=UTF-8''gpj.exe"#),
        ("../../etc/passwd", r#"attachment; filename="_.._etc_passwd"; filename*=UTF-8''_.._etc_passwd"#),
        (r"C:\x.txt", r#"attachment; filename="C__x.txt"; filename*=UTF-8''C__x.txt"#),
        ("50%.txt", r#"attachment; filename="50_.txt"; filename*=UTF-8''50%25.txt"#),
        ("it's.txt", r#"attachment; filename="its.txt"; filename*=UTF-8''its.txt"#),
        ("x.exe. . ", r#"attachment; filename="x.exe"; filename*=UTF-8''x.exe"#),
        ("", r#"attachment; filename="file"; filename*=UTF-8''file"#),
        ("...", r#"attachment; filename="file"; filename*=UTF-8''file"#),
    ] {
        assert_eq!(attachment(name), expected, "{name:?}");
    }
}

#[test]
fn a_long_name_keeps_its_extension() {
    let header = attachment(&format!("{}.jpeg", "я".repeat(255)));
    let (_, encoded) = header.split_once("UTF-8''").unwrap();
    let name = percent_encoding::percent_decode_str(encoded).decode_utf8().unwrap();
    assert_eq!(name.chars().count(), 180);
    assert!(name.ends_with("я.jpeg"));
}

proptest! {
    #[test]
    fn no_name_leaves_its_place(name in any::<String>()) {
        let header = attachment(&name);
        prop_assert!(header.bytes().all(|b| (0x20..0x7f).contains(&b)));
        prop_assert_eq!(header.matches('"').count(), 2);
        prop_assert_eq!(header.matches('\'').count(), 2);
        let (_, encoded) = header.split_once("UTF-8''").unwrap();
        prop_assert!(encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&+-.^_`|~%".contains(&b)));
        let shown = percent_encoding::percent_decode_str(encoded).decode_utf8().unwrap();
        let is_safe = !shown.is_empty() && !shown.contains(['/', '\\', '\u{202E}', '\u{2066}', '\0']);
        prop_assert!(is_safe, "{:?}", shown);
    }
}
