//! JPEG, by libjpeg-turbo: decoded in full, shrunk while it is decoded, and refused where data is missing.
//!
//! 1. [`stream`] walks the markers in safe code, checks the header, takes orientation and profile, and writes the
//!    picture anew without metadata, filling between segments and whatever follows the first end marker.
//! 2. libjpeg-turbo decodes that stream at 1/1, 1/2, 1/4 or 1/8. Every scale reads every coded bit, so it finds the
//!    same damage; only the arithmetic behind it is saved.
//! 3. Any warning of libjpeg means that pixels were guessed, and the file is refused.
//!
//! # Which oddities are harmless
//! libjpeg tells damage and oddity alike as warnings, keeps only the text of the first, and its simple interface
//! makes any of them an error. Looking at texts would thus let a harmless first warning hide a fatal second one. So
//! harmless oddities are removed before (step 1), each by what it is:
//!
//! | what phones and editors write | what is done |
//! |---|---|
//! | bytes between segments, `FF` filling before a marker | left out |
//! | trailing bytes, a second JPEG behind the end (MPF, Ultra HDR) | left out |
//! | odd JFIF versions, unknown application segments, broken ICC or EXIF blocks | left out; libjpeg sees a plain JFIF or Adobe mark |
//! | an unknown Adobe colour transform | read as libjpeg would: YCbCr, or YCCK |
//! | no end marker, but every block is there | one is added |
//! | filling between the last block and the end marker | see below |
//!
//! The last is known only by decoding: libjpeg then warns of "n extraneous bytes before marker 0xd9". They are cut
//! off and the picture is decoded once more; it must then pass without a word, which a picture whose blocks were
//! missing would not (a restart marker that is not there, say). Everything else is fatal: a data segment that ends
//! too early, a bad Huffman code, lost restart markers, junk between the scans of a progressive file.
//!
//! # Truncation
//! A file without an end marker is accepted only if one scan holds all there is and that scan was complete. A
//! progressive file cut between two scans decodes without a warning, only less sharp; so it needs its end marker.

mod stream;

use cards::{DerivativeName, Problem, ProblemCode};
use image::metadata::Orientation;
use turbojpeg::{Decompressor, Error, PixelFormat, ScalingFactor};

use self::stream::Stream;
use super::raster::{Channels, Picture, Raster, raster_bytes};
use super::{Limits, colour, corrupt, exif, too_much, truncated};

/// Most scans of a progressive file. Encoders write up to 20; each one costs a pass over all blocks.
const SCANS_MAX: u32 = 100;

/// Decodes the first picture in full.
pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Picture, Problem> {
    let mut stream = stream::read(bytes, limits)?;
    let (width_px, height_px) = (stream.frame.width_px, stream.frame.height_px);
    let scale = scale(width_px.max(height_px));
    let scaled = |side: u32| {
        let side = usize::try_from(side).map(|side| scale.scale(side)).ok();
        side.and_then(|side| u32::try_from(side).ok())
            .ok_or_else(|| corrupt("the size of the picture makes no sense"))
    };
    let (scaled_width, scaled_height) = (scaled(width_px)?, scaled(height_px)?);
    let cmyk = stream.frame.components.len() == 4;
    let (format, channels) = if cmyk { (PixelFormat::CMYK, 4) } else { (PixelFormat::RGB, 3) };

    let mut pixels = vec![0; raster_bytes(scaled_width, scaled_height, channels)?];
    let mut decompressor = Decompressor::new().map_err(|error| too_much(error.to_string()))?;
    decompressor
        .set_scaling_factor(scale)
        .and_then(|()| decompressor.set_scan_limit(SCANS_MAX))
        .map_err(|error| corrupt(error.to_string()))?;
    let mut attempt = |clean: &[u8]| {
        let width = usize::try_from(scaled_width).unwrap_or_default();
        let height = usize::try_from(scaled_height).unwrap_or_default();
        let image =
            turbojpeg::Image { pixels: &mut pixels[..], width, pitch: width * channels, height, format };
        decompressor.decompress(clean, image)
    };
    if let Err(error) = attempt(&stream.clean) {
        match filling_before_end(&error) {
            Some(filling) if stream.cut_before_end(filling) => {
                attempt(&stream.clean).map_err(|error| problem(&error, &stream))?;
            }
            Some(_) | None => return Err(problem(&error, &stream)),
        }
    }

    let mut profile = stream.profile;
    if cmyk {
        pixels = to_rgb(pixels, stream.adobe, profile.take().as_deref());
    }
    Ok(Picture {
        width_px,
        height_px,
        frames: 1,
        orientation: stream.exif.map_or(Orientation::NoTransforms, exif::orientation),
        profile,
        raster: Raster {
            width_px: scaled_width,
            height_px: scaled_height,
            channels: Channels::Rgb,
            pixels: Box::new(pixels),
        },
    })
}

/// The smallest scale whose long side still is as long as a preview's.
fn scale(long_side_px: u32) -> ScalingFactor {
    let preview = DerivativeName::Preview.side_px_max();
    [(8, ScalingFactor::ONE_EIGHTH), (4, ScalingFactor::ONE_QUARTER), (2, ScalingFactor::ONE_HALF)]
        .into_iter()
        .find(|(divisor, _)| long_side_px / divisor >= preview)
        .map_or(ScalingFactor::ONE, |(_, scale)| scale)
}

/// The number in "Corrupt JPEG data: 3 extraneous bytes before marker 0xd9".
fn filling_before_end(error: &Error) -> Option<usize> {
    let text = message(error);
    let rest = text.strip_prefix("Corrupt JPEG data: ")?;
    let (number, rest) = rest.split_once(' ')?;
    (rest == "extraneous bytes before marker 0xd9").then(|| number.parse().ok()).flatten()
}

fn message(error: &Error) -> String {
    if let Error::TurboJpegError(text) = error { text.clone() } else { error.to_string() }
}

fn problem(error: &Error, stream: &Stream<'_>) -> Problem {
    let text = message(error);
    if text.starts_with("Insufficient memory") || text.contains("more than") || text.contains("Memory limit")
    {
        too_much(format!("the JPEG asks for too much: {text}"))
    } else if !stream.ended || text.starts_with("Premature end") {
        truncated("the JPEG ends too early")
    } else if text.starts_with("Unsupported JPEG") {
        Problem::new(
            ProblemCode::UnsupportedFormat,
            format!("the JPEG is of a kind that is not taken in: {text}"),
        )
    } else {
        corrupt(format!("the JPEG is damaged: {text}"))
    }
}

/// CMYK to RGB. Adobe's programs store ink the other way round and say so by their mark.
fn to_rgb(mut inks: Vec<u8>, inverted: bool, profile: Option<&[u8]>) -> Vec<u8> {
    if inverted {
        for ink in &mut inks {
            *ink = u8::MAX - *ink;
        }
    }
    if let Some(rgb) = colour::cmyk_to_srgb(&inks, profile) {
        return rgb;
    }
    inks.chunks_exact(4)
        .flat_map(|pixel| {
            let paper = u16::from(u8::MAX - pixel[3]);
            [0, 1, 2].map(|channel: usize| {
                let light = (u16::from(u8::MAX - pixel[channel]) * paper + 127) / 255;
                u8::try_from(light).unwrap_or(u8::MAX)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
