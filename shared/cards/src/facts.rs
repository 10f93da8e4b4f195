//! What the decoder found out about a file, and what it made of it (R-C2, R-C4).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::MediaType;

/// What was read from the bytes themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The type found in the bytes; equals the announced one, or the file was refused.
    pub media_type: MediaType,
    /// Width in pixels after orientation was applied; images only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width_px: Option<u32>,
    /// Height in pixels after orientation was applied; images only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height_px: Option<u32>,
    /// Number of frames; images only. More than one: animated, and the derivatives show the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u32>,
    /// Number of pages; PDF only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u32>,
}

/// Which derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DerivativeName {
    /// Fits in 256 px.
    Thumb,
    /// Fits in 1600 px.
    Preview,
}

impl DerivativeName {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Thumb, Self::Preview];

    /// The name, as in keys and links.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Thumb => "thumb",
            Self::Preview => "preview",
        }
    }

    /// The longer side in pixels that it fits in.
    pub fn side_px_max(self) -> u32 {
        match self {
            Self::Thumb => 256,
            Self::Preview => 1600,
        }
    }
}

impl fmt::Display for DerivativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DerivativeName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or(())
    }
}

/// One derivative as it was stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Derivative {
    /// Which one.
    pub name: DerivativeName,
    /// `image/webp` or `image/jpeg`.
    pub content_type: String,
    /// Width in pixels.
    pub width_px: u32,
    /// Height in pixels.
    pub height_px: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The version the store gave it; a link is fixed to it.
    pub version: crate::VersionId,
}
