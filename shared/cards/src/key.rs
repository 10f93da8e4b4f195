//! Object keys. The server picks every key; no owner name and no file name is ever part of one (R-A1).
//!
//! ```text
//! incoming/<card>                      the source: what the browser uploaded
//! files/<card>/<token>                 the permanent copy
//! derived/<card>/<token>/<name>        what the decoder made
//! ```

use std::fmt;

use crate::{CardId, DerivativeName, LeaseToken};

/// The prefix that tickets allow and bucket events are taken from.
pub const SOURCE_PREFIX: &str = "incoming/";
/// The prefix of permanent copies.
pub const FILE_PREFIX: &str = "files/";
/// The prefix of derivatives.
pub const DERIVED_PREFIX: &str = "derived/";

/// `incoming/<card>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceKey(pub CardId);

impl SourceKey {
    /// The card a source key names; `None` for any other text.
    pub fn parse(key: &str) -> Option<Self> {
        key.strip_prefix(SOURCE_PREFIX)?.parse().ok().map(Self)
    }
}

impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SOURCE_PREFIX}{}", self.0)
    }
}

/// `files/<card>/<token>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The card.
    pub card: CardId,
    /// The lease under which the copy was made.
    pub token: LeaseToken,
}

impl fmt::Display for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FILE_PREFIX}{}/{}", self.card, self.token)
    }
}

/// `derived/<card>/<token>/<name>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DerivedKey {
    /// The card.
    pub card: CardId,
    /// The lease under which it was made.
    pub token: LeaseToken,
    /// Which one.
    pub name: DerivativeName,
}

impl fmt::Display for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DERIVED_PREFIX}{}/{}/{}", self.card, self.token, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_key_reads_back_and_nothing_else_does() {
        let card = CardId("0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01".parse().unwrap());
        let key = SourceKey(card).to_string();
        assert_eq!(key, "incoming/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01");
        assert_eq!(SourceKey::parse(&key), Some(SourceKey(card)));
        for other in [
            "",
            "incoming/",
            "incoming/x",
            "Incoming/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01",
            "incoming/0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01/",
            "incoming//0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01",
        ] {
            assert_eq!(SourceKey::parse(other), None, "{other}");
        }
    }
}
