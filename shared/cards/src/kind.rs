//! The types of file that are taken in (R-A3). Everything else, SVG first of all, is refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A type of file, announced with the ticket and found again in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MediaType {
    /// `image/png`
    Png,
    /// `image/jpeg`
    Jpeg,
    /// `image/webp`
    Webp,
    /// `image/gif`; off unless set.
    Gif,
    /// `application/pdf`
    Pdf,
    /// `text/plain`
    Text,
}

/// A content type that is not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not taken in")]
pub struct MediaTypeError(pub String);

impl MediaType {
    /// Every type, GIF among them.
    pub const ALL: [Self; 6] = [Self::Png, Self::Jpeg, Self::Webp, Self::Gif, Self::Pdf, Self::Text];

    /// The content type, exactly as it must be announced and uploaded: lower case, without parameters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
            Self::Pdf => "application/pdf",
            Self::Text => "text/plain",
        }
    }

    /// Whether the decoder makes derivatives of it.
    pub fn is_image(self) -> bool {
        match self {
            Self::Png | Self::Jpeg | Self::Webp | Self::Gif => true,
            Self::Pdf | Self::Text => false,
        }
    }
}

impl FromStr for MediaType {
    type Err = MediaTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| MediaTypeError(text.to_owned()))
    }
}

impl TryFrom<String> for MediaType {
    type Error = MediaTypeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MediaType> for String {
    fn from(kind: MediaType) -> Self {
        kind.as_str().to_owned()
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
