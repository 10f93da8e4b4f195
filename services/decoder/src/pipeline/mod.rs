//! Pure: from the bytes of one file to its facts and derivatives, or to the problem its owner reads (R-C2 to R-C4).
//!
//! 1. [`check_type`]: magic bytes against the announced type.
//! 2. The header: sides, pixels and frames against [`Limits`], before any pixel buffer exists.
//! 3. Every pixel of the first frame (or the whole structure, or the whole text) is decoded.
//! 4. Preview and thumbnail: fit, sRGB, upright, re-encoded from pixels alone, so that no metadata can survive.
//!
//! All of it runs in a child process ([`crate::child`]), which holds what this module cannot: C code under libjpeg-turbo
//! and libwebp, panics, stack overflows and allocations that a small file asks for. Nothing here reads a clock, a file
//! or the network. The decoder is chosen by our own enum, never guessed.

mod colour;
mod derive;
mod exif;
mod gif;
mod jpeg;
mod pdf;
mod png;
mod raster;
mod sniff;
mod text;
mod webp;

use std::time::Duration;

use cards::{DerivativeName, Facts, MediaType, Problem, ProblemCode};

pub use sniff::{Sniffed, check_type, sniff};

/// What one file may cost (R-C3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most pixels of one frame.
    pub pixels_max: u64,
    /// Longest side in pixels.
    pub side_px_max: u32,
    /// Most frames of an animation. They are counted, not decoded.
    pub frames_max: u32,
    /// Most pixels over all frames: what a viewer of the original would have to decode.
    pub frame_pixels_max: u64,
    /// Address space of the child.
    pub memory_bytes: u64,
    /// CPU time of the child; whole seconds, at least one.
    pub cpu: Duration,
    /// Time on the clock, from the request to the exit of the child.
    pub wall: Duration,
    /// Longest answer of the child.
    pub output_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pixels_max: 64_000_000,
            side_px_max: 32_768,
            // Long animations people upload have some hundred frames; a bomb has as many as fit into 10 MiB.
            frames_max: 5_000,
            frame_pixels_max: 4_000_000_000,
            memory_bytes: 512 * 1024 * 1024,
            cpu: Duration::from_secs(10),
            wall: Duration::from_secs(30),
            // Two pictures of at most 1600 x 1600: even noise at quality 80 stays below 3 MiB.
            output_bytes_max: 16 * 1024 * 1024,
        }
    }
}

impl Limits {
    /// Checks what a header claims, before anything of that size is allocated.
    fn check_size(&self, width_px: u32, height_px: u32) -> Result<(), Problem> {
        if width_px == 0 || height_px == 0 {
            return Err(Problem::new(ProblemCode::Corrupt, "the picture has no pixels"));
        }
        let pixels = u64::from(width_px) * u64::from(height_px);
        if pixels > self.pixels_max || width_px.max(height_px) > self.side_px_max {
            return Err(Problem::new(
                ProblemCode::TooManyPixels,
                format!(
                    "the picture has {width_px} x {height_px} pixels; at most {} in all and {} a side are taken",
                    self.pixels_max, self.side_px_max
                ),
            ));
        }
        Ok(())
    }

    fn check_frames(&self, width_px: u32, height_px: u32, frames: u32) -> Result<(), Problem> {
        let pixels = u64::from(width_px) * u64::from(height_px);
        if frames > self.frames_max || pixels.saturating_mul(u64::from(frames)) > self.frame_pixels_max {
            return Err(Problem::new(
                ProblemCode::LimitExceeded,
                format!(
                    "the animation has more than {} frames or {} pixels in all of them",
                    self.frames_max, self.frame_pixels_max
                ),
            ));
        }
        Ok(())
    }
}

/// What derivatives are encoded as (R-C4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DerivativeFormat {
    /// WebP, with transparency.
    #[default]
    Webp,
    /// JPEG; transparency becomes white.
    Jpeg,
}

impl DerivativeFormat {
    /// The content type of every derivative in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Webp => "image/webp",
            Self::Jpeg => "image/jpeg",
        }
    }
}

/// How files are decoded.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// What derivatives are encoded as.
    pub derivative_format: DerivativeFormat,
    /// What one file may cost.
    pub limits: Limits,
}

/// A file that was decoded in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What was read from the bytes.
    pub facts: Facts,
    /// Thumbnail and preview of an image; none of other files.
    pub derivatives: Vec<DerivedImage>,
}

/// A picture made of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedImage {
    /// Which one.
    pub name: DerivativeName,
    /// `image/webp` or `image/jpeg`.
    pub content_type: &'static str,
    /// Width in pixels.
    pub width_px: u32,
    /// Height in pixels.
    pub height_px: u32,
    /// The encoded picture.
    pub bytes: Vec<u8>,
}

/// Decodes one file in full.
pub fn decode(announced: MediaType, bytes: &[u8], options: &Options) -> Result<Decoded, Problem> {
    check_type(announced, bytes)?;
    let limits = &options.limits;
    let picture = match announced {
        MediaType::Png => png::decode(bytes, limits)?,
        MediaType::Jpeg => jpeg::decode(bytes, limits)?,
        MediaType::Webp => webp::decode(bytes, limits)?,
        MediaType::Gif => gif::decode(bytes, limits)?,
        MediaType::Pdf => {
            let pages = pdf::count_pages(bytes)?;
            return Ok(Decoded {
                facts: Facts { pages: Some(pages), ..facts(announced) },
                derivatives: vec![],
            });
        }
        MediaType::Text => {
            text::check(bytes)?;
            return Ok(Decoded { facts: facts(announced), derivatives: vec![] });
        }
    };
    let (width_px, height_px) = picture.upright_size();
    let facts = Facts {
        width_px: Some(width_px),
        height_px: Some(height_px),
        frames: Some(picture.frames),
        ..facts(announced)
    };
    let derivatives = derive::derivatives(picture, options.derivative_format)?;
    Ok(Decoded { facts, derivatives })
}

fn facts(media_type: MediaType) -> Facts {
    Facts { media_type, width_px: None, height_px: None, frames: None, pages: None }
}

/// A file that ends too early.
fn truncated(detail: &str) -> Problem {
    Problem::new(ProblemCode::Truncated, detail)
}

/// A file that is damaged.
fn corrupt(detail: impl AsRef<str>) -> Problem {
    Problem::new(ProblemCode::Corrupt, detail)
}

/// A file that asks for more than it may have.
fn too_much(detail: impl AsRef<str>) -> Problem {
    Problem::new(ProblemCode::LimitExceeded, detail)
}
