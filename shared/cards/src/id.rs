//! Identifiers, parsed at the door (STYLE 9): inside, a `String` is only text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            /// Only the hyphenated lower-case form is one of ours: two spellings would be two keys.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let id = Uuid::try_parse(text)?;
                if id.as_hyphenated().to_string() == text {
                    Ok(Self(id))
                } else {
                    // `try_parse` of nothing is how uuid spells "not a uuid" without a constructor for its error.
                    Uuid::try_parse("").map(Self)
                }
            }
        }
    };
}

uuid_id! {
    /// A card, and the file it stands for. UUIDv7: it sorts by creation.
    CardId
}
uuid_id! {
    /// Who a card belongs to.
    OwnerId
}
uuid_id! {
    /// One worker's right to finish one card (R-C1); also names the permanent copy it makes.
    LeaseToken
}
uuid_id! {
    /// A message through the broker; stays the same when a row is published twice.
    MessageId
}

/// Where new ids come from. The only place that asks for randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids;

impl Ids {
    /// A new card id.
    #[expect(clippy::disallowed_methods, reason = "the id source itself")]
    pub fn card(self) -> CardId {
        CardId(Uuid::now_v7())
    }

    /// A new lease token: random, so that nobody can guess a running worker's key.
    #[expect(clippy::disallowed_methods, reason = "the id source itself")]
    pub fn lease(self) -> LeaseToken {
        LeaseToken(Uuid::new_v4())
    }

    /// A new message id.
    #[expect(clippy::disallowed_methods, reason = "the id source itself")]
    pub fn message(self) -> MessageId {
        MessageId(Uuid::now_v7())
    }

    /// A new owner id.
    #[expect(clippy::disallowed_methods, reason = "the id source itself")]
    pub fn owner(self) -> OwnerId {
        OwnerId(Uuid::now_v7())
    }
}

/// The id a versioned bucket gave one version of an object. Never empty, never `null` (R-B2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VersionId(String);

/// Longest version id taken, in bytes. AWS documents 1024 as the limit.
pub const VERSION_ID_BYTES_MAX: usize = 1024;

/// Why a text is no version id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionIdError {
    /// The store sent none: the bucket has no versioning, or (Ceph on POST and multipart) the event leaves it out.
    #[error("the version id is empty")]
    Empty,
    /// The store says `null`: versioning is suspended, the version can be overwritten in place.
    #[error("the version id is `null`: versioning is suspended")]
    Null,
    /// Longer than any store's, or with bytes no header can carry.
    #[error("the version id is longer than {VERSION_ID_BYTES_MAX} bytes or not printable ASCII")]
    Malformed,
}

impl VersionId {
    /// Parses a version id as a store gave it.
    pub fn parse(text: &str) -> Result<Self, VersionIdError> {
        if text.is_empty() {
            return Err(VersionIdError::Empty);
        }
        if text == "null" {
            return Err(VersionIdError::Null);
        }
        if text.len() > VERSION_ID_BYTES_MAX || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(VersionIdError::Malformed);
        }
        Ok(Self(text.to_owned()))
    }

    /// The id as the store wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for VersionId {
    type Error = VersionIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<VersionId> for String {
    fn from(id: VersionId) -> Self {
        id.0
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An entity tag without its quotes. Opaque: never an MD5, never a version (R-B2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ETag(String);

impl ETag {
    /// Takes an `ETag` as a header or an event wrote it, with or without quotes.
    pub fn new(text: &str) -> Self {
        Self(text.trim_matches('"').to_owned())
    }

    /// The tag without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A SHA-256 digest: 32 bytes, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256(pub [u8; 32]);

/// A text that is not 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 is written as 64 hex digits")]
pub struct Sha256Error;

impl FromStr for Sha256 {
    type Err = Sha256Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut digest = [0_u8; 32];
        hex::decode_to_slice(text, &mut digest).map_err(|_| Sha256Error)?;
        Ok(Self(digest))
    }
}

impl TryFrom<String> for Sha256 {
    type Error = Sha256Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl TryFrom<Vec<u8>> for Sha256 {
    type Error = Sha256Error;

    fn try_from(bytes: Vec<u8>) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self).map_err(|_| Sha256Error)
    }
}

impl From<Sha256> for String {
    fn from(digest: Sha256) -> Self {
        hex::encode(digest.0)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_id_has_one_spelling() {
        let id = "0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01";
        assert_eq!(id.parse::<CardId>().unwrap().to_string(), id);
        for other in [
            "0192F3C4-7A11-7C3E-9D2F-5B6A7C8D9E01",
            "0192f3c47a117c3e9d2f5b6a7c8d9e01",
            "{0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01}",
            "",
            "x",
        ] {
            assert!(other.parse::<CardId>().is_err(), "{other}");
        }
    }

    #[test]
    fn no_version_is_not_a_version() {
        assert_eq!(VersionId::parse(""), Err(VersionIdError::Empty));
        assert_eq!(VersionId::parse("null"), Err(VersionIdError::Null));
        assert_eq!(VersionId::parse("a b"), Err(VersionIdError::Malformed));
        assert_eq!(VersionId::parse("a\u{0}"), Err(VersionIdError::Malformed));
        assert_eq!(VersionId::parse(&"v".repeat(1025)), Err(VersionIdError::Malformed));
        assert_eq!(
            VersionId::parse("O2kVhrI6Zxs0kKcc3lml1WrBfsqWFrs").unwrap().as_str(),
            "O2kVhrI6Zxs0kKcc3lml1WrBfsqWFrs"
        );
    }

    #[test]
    fn an_etag_is_compared_without_its_quotes() {
        assert_eq!(ETag::new("\"abc-2\""), ETag::new("abc-2"));
    }

    #[test]
    fn a_digest_is_64_hex_digits() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(text.parse::<Sha256>().unwrap().to_string(), text);
        assert_eq!(text.to_uppercase().parse::<Sha256>().unwrap().to_string(), text);
        assert!("ba78".parse::<Sha256>().is_err());
    }
}
