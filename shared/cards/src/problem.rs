//! Why a file was refused, in words its owner can read (R-C7).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A stable reason code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The bytes are of another allowed type than announced.
    TypeMismatch,
    /// The bytes are of no type that is taken in.
    UnsupportedFormat,
    /// The file ends too early.
    Truncated,
    /// The file is damaged.
    Corrupt,
    /// More pixels than are decoded.
    TooManyPixels,
    /// Decoding needed more memory, time or output than is allowed.
    LimitExceeded,
    /// The bytes do not have the announced SHA-256.
    ChecksumMismatch,
    /// The PDF is encrypted.
    PdfEncrypted,
    /// The text is not UTF-8, or has a NUL.
    TextInvalid,
    /// What was uploaded is not what the ticket allows.
    MetadataMismatch,
}

impl ProblemCode {
    /// Every code.
    pub const ALL: [Self; 10] = [
        Self::TypeMismatch,
        Self::UnsupportedFormat,
        Self::Truncated,
        Self::Corrupt,
        Self::TooManyPixels,
        Self::LimitExceeded,
        Self::ChecksumMismatch,
        Self::PdfEncrypted,
        Self::TextInvalid,
        Self::MetadataMismatch,
    ];

    /// The code as it is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TypeMismatch => "type_mismatch",
            Self::UnsupportedFormat => "unsupported_format",
            Self::Truncated => "truncated",
            Self::Corrupt => "corrupt",
            Self::TooManyPixels => "too_many_pixels",
            Self::LimitExceeded => "limit_exceeded",
            Self::ChecksumMismatch => "checksum_mismatch",
            Self::PdfEncrypted => "pdf_encrypted",
            Self::TextInvalid => "text_invalid",
            Self::MetadataMismatch => "metadata_mismatch",
        }
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no problem code")]
pub struct ProblemCodeError(pub String);

impl FromStr for ProblemCode {
    type Err = ProblemCodeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|code| code.as_str() == text)
            .ok_or_else(|| ProblemCodeError(text.to_owned()))
    }
}

/// A code with one sentence for the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The stable code.
    pub code: ProblemCode,
    /// One sentence: what is wrong and, where there is one, what to do.
    pub detail: String,
}

/// Longest detail kept, in bytes: details can quote a hostile file.
pub const DETAIL_BYTES_MAX: usize = 500;

impl Problem {
    /// A problem. The detail loses control characters and anything past [`DETAIL_BYTES_MAX`]: part of it can come
    /// from the file itself, and PostgreSQL refuses a NUL.
    pub fn new(code: ProblemCode, detail: impl AsRef<str>) -> Self {
        let mut clean: String = detail.as_ref().chars().filter(|c| !c.is_control()).collect();
        let end =
            (0..=clean.len().min(DETAIL_BYTES_MAX)).rev().find(|&i| clean.is_char_boundary(i)).unwrap_or(0);
        clean.truncate(end);
        Self { code, detail: clean }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back() {
        for code in ProblemCode::ALL {
            assert_eq!(code.as_str().parse(), Ok(code));
            assert_eq!(serde_plain(code), code.as_str());
        }
    }

    fn serde_plain(code: ProblemCode) -> String {
        format!("{code:?}").chars().fold(String::new(), |mut out, c| {
            if c.is_ascii_uppercase() && !out.is_empty() {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
            out
        })
    }

    #[test]
    fn a_detail_is_short_and_printable() {
        let problem = Problem::new(ProblemCode::Corrupt, format!("a\u{0}b\n{}", "é".repeat(400)));
        assert!(problem.detail.starts_with("abé") && problem.detail.len() <= DETAIL_BYTES_MAX);
    }
}
