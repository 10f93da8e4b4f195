//! GIF, by the `gif` crate.
//!
//! The first frame is decoded and laid on the canvas; the others are walked over without inflating them and counted,
//! to the trailer: a file without one is cut. What follows the trailer (an archive, say) is not looked at.

use std::num::NonZeroU64;

use cards::Problem;
use gif::{ColorOutput, DecodeOptions, DecodingError, MemoryLimit};
use image::metadata::Orientation;

use super::raster::{Channels, Picture, Raster, raster_bytes};
use super::{Limits, corrupt, too_much, truncated};

/// Decodes the first frame and counts all.
pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Picture, Problem> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    options.set_memory_limit(memory_limit(limits));
    let mut decoder = options.read_info(bytes).map_err(problem)?;
    let (width_px, height_px) = (u32::from(decoder.width()), u32::from(decoder.height()));
    limits.check_size(width_px, height_px)?;
    // Before any pixel: a file of many frames is refused by its count.
    let frames = count_frames(bytes, limits, width_px, height_px)?;

    let frame = decoder.next_frame_info().map_err(problem)?.ok_or_else(|| corrupt("the GIF has no frame"))?;
    let area = Area {
        left: usize::from(frame.left),
        top: usize::from(frame.top),
        width: usize::from(frame.width),
        height: usize::from(frame.height),
    };
    limits.check_size(u32::from(frame.width), u32::from(frame.height))?;
    let mut pixels = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut pixels).map_err(problem)?;

    let pixels = on_canvas(pixels, area, width_px, height_px)?;
    Ok(Picture {
        width_px,
        height_px,
        frames,
        orientation: Orientation::NoTransforms,
        profile: decoder.icc_profile().map(<[u8]>::to_vec),
        raster: Raster { width_px, height_px, channels: Channels::Rgba, pixels: Box::new(pixels) },
    })
}

fn count_frames(bytes: &[u8], limits: &Limits, width_px: u32, height_px: u32) -> Result<u32, Problem> {
    let mut options = DecodeOptions::new();
    options.skip_frame_decoding(true);
    options.set_memory_limit(memory_limit(limits));
    let mut decoder = options.read_info(bytes).map_err(problem)?;
    let mut frames = 0;
    while decoder.next_frame_info().map_err(problem)?.is_some() {
        frames += 1;
        limits.check_frames(width_px, height_px, frames)?;
    }
    if frames == 0 { Err(corrupt("the GIF has no frame")) } else { Ok(frames) }
}

/// Where a frame lies on its canvas. It may stick out; what does is not shown.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: usize,
    pub(super) top: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// Lays RGBA pixels on a transparent canvas.
pub(super) fn on_canvas(
    pixels: Vec<u8>,
    area: Area,
    width_px: u32,
    height_px: u32,
) -> Result<Vec<u8>, Problem> {
    let size =
        |side: u32| usize::try_from(side).map_err(|_| corrupt("the size of the canvas makes no sense"));
    let (width, height) = (size(width_px)?, size(height_px)?);
    if area.left == 0 && area.top == 0 && area.width == width && area.height == height {
        return Ok(pixels);
    }
    let mut canvas = vec![0; raster_bytes(width_px, height_px, 4)?];
    let shown = area.width.min(width.saturating_sub(area.left)) * 4;
    for row in 0..area.height.min(height.saturating_sub(area.top)) {
        let from = row * area.width * 4;
        let to = ((area.top + row) * width + area.left) * 4;
        if shown > 0 {
            canvas[to..to + shown].copy_from_slice(&pixels[from..from + shown]);
        }
    }
    Ok(canvas)
}

fn memory_limit(limits: &Limits) -> MemoryLimit {
    let bytes = NonZeroU64::new(limits.pixels_max.saturating_mul(4)).unwrap_or(NonZeroU64::MIN);
    MemoryLimit::Bytes(bytes)
}

fn problem(error: DecodingError) -> Problem {
    let text = error.to_string();
    match error {
        DecodingError::UnexpectedEof => truncated("the GIF ends too early"),
        DecodingError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            truncated("the GIF ends too early")
        }
        DecodingError::OutOfMemory | DecodingError::MemoryLimit => {
            too_much("the GIF needs more memory than it may have")
        }
        DecodingError::DecoderNotFound
        | DecodingError::EndCodeNotFound
        | DecodingError::LzwError(_)
        | DecodingError::Format(_)
        | DecodingError::Io(_)
        | _ => corrupt(format!("the GIF is damaged: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_sticks_out_is_clipped() {
        let area = Area { left: 1, top: 1, width: 3, height: 3 };
        let canvas = on_canvas(vec![9; 36], area, 2, 2).unwrap();
        assert_eq!(canvas, [[0; 4], [0; 4], [0; 4], [9; 4]].concat());
        let outside = Area { left: 5, ..area };
        assert_eq!(on_canvas(vec![9; 36], outside, 2, 2).unwrap(), [0; 16]);
    }
}
