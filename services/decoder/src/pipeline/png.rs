//! PNG and APNG, by the `png` crate.
//!
//! Sides are checked on the header, chunk sums on every critical chunk, and the file is read to its IEND: a file
//! without one is cut. A wrong sum of a chunk that need not be understood is no fault. What follows IEND is not looked
//! at. Text chunks are skipped unread, so what they inflate to costs nothing.

use std::io::{Cursor, ErrorKind};

use cards::Problem;
use image::metadata::Orientation;
use png::{ColorType, Decoder, DecodingError, Limits as PngLimits, Transformations};

use super::raster::{Channels, Picture, Raster, raster_bytes};
use super::{Limits, corrupt, exif, too_much, truncated};

/// Buffers of single chunks and of the inflated profile. More than the 10 MiB an upload has, so that only a bomb meets
/// it; a profile that does is ignored.
const CHUNK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Decodes the default image in full.
pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Picture, Problem> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), PngLimits { bytes: CHUNK_BYTES_MAX });
    decoder.set_ignore_text_chunk(true);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let header = decoder.read_header_info().map_err(problem)?;
    let (width_px, height_px) = (header.width, header.height);
    limits.check_size(width_px, height_px)?;

    let mut reader = decoder.read_info().map_err(problem)?;
    let frames = reader.info().animation_control.map_or(1, |animation| animation.num_frames.max(1));
    limits.check_frames(width_px, height_px, frames)?;
    let channels = match reader.output_color_type().0 {
        ColorType::Grayscale => Channels::Grey,
        ColorType::GrayscaleAlpha => Channels::GreyAlpha,
        ColorType::Rgb => Channels::Rgb,
        ColorType::Rgba => Channels::Rgba,
        ColorType::Indexed => return Err(corrupt("the palette of the picture was not expanded")),
    };
    let mut pixels = vec![0; raster_bytes(width_px, height_px, channels.count())?];
    reader.next_frame(&mut pixels).map_err(problem)?;
    reader.finish().map_err(problem)?;

    let info = reader.info();
    Ok(Picture {
        width_px,
        height_px,
        frames,
        orientation: info.exif_metadata.as_deref().map_or(Orientation::NoTransforms, exif::orientation),
        profile: info.icc_profile.as_deref().map(<[u8]>::to_vec),
        raster: Raster { width_px, height_px, channels, pixels: Box::new(pixels) },
    })
}

fn problem(error: DecodingError) -> Problem {
    match error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            truncated("the PNG ends too early")
        }
        DecodingError::LimitsExceeded => too_much("the PNG needs more memory than it may have"),
        DecodingError::IoError(error) => corrupt(format!("the PNG is damaged: {error}")),
        DecodingError::Format(error) => corrupt(format!("the PNG is damaged: {error}")),
        DecodingError::Parameter(error) => corrupt(format!("the PNG is damaged: {error}")),
    }
}
