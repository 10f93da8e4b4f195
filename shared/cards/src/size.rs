//! Sizes in bytes, with the ceilings the database's CHECKs repeat (R-A3).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest upload, in bytes: 10 MiB. Settings may only narrow it.
pub const OBJECT_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Smallest upload, in bytes.
pub const OBJECT_BYTES_MIN: u64 = 1;

/// The size of an upload: [`OBJECT_BYTES_MIN`] to [`OBJECT_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct ByteCount(u64);

/// A size outside the ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a file has {OBJECT_BYTES_MIN} to {OBJECT_BYTES_MAX} bytes, not {0}")]
pub struct ByteCountError(pub u64);

impl ByteCount {
    /// Checks a size in bytes.
    pub fn new(bytes: u64) -> Result<Self, ByteCountError> {
        if (OBJECT_BYTES_MIN..=OBJECT_BYTES_MAX).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(ByteCountError(bytes))
        }
    }

    /// The size in bytes.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for ByteCount {
    type Error = ByteCountError;

    fn try_from(bytes: u64) -> Result<Self, Self::Error> {
        Self::new(bytes)
    }
}

impl From<ByteCount> for u64 {
    fn from(size: ByteCount) -> Self {
        size.0
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceilings_are_part_of_the_range() {
        assert!(ByteCount::new(0).is_err());
        assert!(ByteCount::new(1).is_ok());
        assert!(ByteCount::new(OBJECT_BYTES_MAX).is_ok());
        assert!(ByteCount::new(OBJECT_BYTES_MAX + 1).is_err());
    }
}
