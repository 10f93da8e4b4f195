//! WebP: the container is walked here, pictures are decoded by libwebp.
//!
//! libwebp rather than `image-webp`: twice as fast, and the latter panics on some small animations. libwebp's animation
//! decoder keeps every frame in memory, so the first frame is taken out of the container and decoded as a picture of
//! its own; the others are counted. What follows the RIFF chunk is not looked at.

use cards::Problem;
use image::metadata::Orientation;
use webp::{BitstreamFeatures, Decoder, WebPImage};

use super::gif::{Area, on_canvas};
use super::raster::{Channels, Picture, Raster};
use super::{Limits, corrupt, exif, too_much, truncated};

const ALPHA_FLAG: u8 = 0x10;
const FRAME_HEADER_BYTES: usize = 16;

/// What the walk over the container found.
#[derive(Default)]
struct Container<'a> {
    /// Width and height of the canvas, from VP8X.
    canvas: Option<(u32, u32)>,
    profile: Option<&'a [u8]>,
    exif: Option<&'a [u8]>,
    first_frame: Option<&'a [u8]>,
    frames: u32,
}

/// Decodes the picture or its first frame.
pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Picture, Problem> {
    let bytes = riff(bytes)?;
    let container = walk(&bytes[12..], limits)?;
    let orientation = container.exif.map_or(Orientation::NoTransforms, exif::orientation);
    let profile = container.profile.map(<[u8]>::to_vec);
    if let Some(frame) = container.first_frame {
        let (width_px, height_px) =
            container.canvas.ok_or_else(|| corrupt("the WebP animation has no canvas"))?;
        limits.check_size(width_px, height_px)?;
        limits.check_frames(width_px, height_px, container.frames)?;
        let raster = first_frame(frame, width_px, height_px, limits)?;
        return Ok(Picture { width_px, height_px, frames: container.frames, orientation, profile, raster });
    }
    let image = picture(bytes, limits)?;
    let (width_px, height_px) = (image.width(), image.height());
    let channels = if image.is_alpha() { Channels::Rgba } else { Channels::Rgb };
    let raster = Raster { width_px, height_px, channels, pixels: Box::new(image) };
    Ok(Picture { width_px, height_px, frames: 1, orientation, profile, raster })
}

/// The RIFF chunk, without what follows it.
fn riff(bytes: &[u8]) -> Result<&[u8], Problem> {
    let size = bytes.get(4..8).and_then(le32).ok_or_else(cut)?;
    let end = size.checked_add(8).ok_or_else(cut)?;
    let riff = bytes.get(..end).ok_or_else(cut)?;
    if riff.len() < 20 { Err(cut()) } else { Ok(riff) }
}

fn walk<'a>(mut rest: &'a [u8], limits: &Limits) -> Result<Container<'a>, Problem> {
    let mut container = Container::default();
    while let Some((tag, data, next)) = chunk(rest)? {
        match tag {
            b"VP8X" => {
                let side = |at: usize| data.get(at..at + 3).and_then(le24).map(|side| side + 1);
                container.canvas = side(4).zip(side(7));
            }
            b"ICCP" => container.profile = container.profile.or(Some(data)),
            b"EXIF" => container.exif = container.exif.or(Some(data)),
            b"ANMF" => {
                container.first_frame = container.first_frame.or(Some(data));
                container.frames += 1;
                limits.check_frames(1, 1, container.frames)?;
            }
            _ => {}
        }
        rest = next;
    }
    Ok(container)
}

type Chunk<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// The first chunk: its tag, its data, and what follows.
fn chunk(rest: &[u8]) -> Result<Option<Chunk<'_>>, Problem> {
    // One stray byte of padding at the end is common.
    if rest.len() < 2 {
        return Ok(None);
    }
    let (Some(tag), Some(size)) = (rest.get(..4), rest.get(4..8).and_then(le32)) else {
        return Err(cut());
    };
    let end = size.checked_add(8).ok_or_else(cut)?;
    let data = rest.get(8..end).ok_or_else(cut)?;
    let next = rest.get(end + size % 2..).unwrap_or_default();
    Ok(Some((tag, data, next)))
}

fn first_frame(frame: &[u8], width_px: u32, height_px: u32, limits: &Limits) -> Result<Raster, Problem> {
    let number = |at: usize| frame.get(at..at + 3).and_then(le24).ok_or_else(cut);
    let (left, top) = (number(0)? * 2, number(3)? * 2);
    let (frame_width, frame_height) = (number(6)? + 1, number(9)? + 1);
    let chunks = frame.get(FRAME_HEADER_BYTES..).ok_or_else(cut)?;
    let image = picture(&standalone(chunks, frame_width, frame_height)?, limits)?;
    if (image.width(), image.height()) != (frame_width, frame_height) {
        return Err(corrupt("the first frame of the WebP is not as large as it says"));
    }
    let pixels = if image.is_alpha() {
        image.to_vec()
    } else {
        image.chunks_exact(3).flat_map(|px| [px[0], px[1], px[2], u8::MAX]).collect()
    };
    let size = |side: u32| usize::try_from(side).map_err(|_| cut());
    let area =
        Area { left: size(left)?, top: size(top)?, width: size(frame_width)?, height: size(frame_height)? };
    let pixels = on_canvas(pixels, area, width_px, height_px)?;
    Ok(Raster { width_px, height_px, channels: Channels::Rgba, pixels: Box::new(pixels) })
}

/// A file that holds one frame's chunks: `ALPH` (which needs a `VP8X` that says so) and `VP8 `, or `VP8L`.
fn standalone(mut chunks: &[u8], width_px: u32, height_px: u32) -> Result<Vec<u8>, Problem> {
    let mut body = Vec::with_capacity(chunks.len());
    let mut alpha = 0;
    while let Some((tag, data, next)) = chunk(chunks)? {
        match tag {
            b"ALPH" | b"VP8 " | b"VP8L" => {
                if tag == b"ALPH" {
                    alpha = ALPHA_FLAG;
                }
                push_chunk(&mut body, tag, data);
            }
            _ => {}
        }
        chunks = next;
    }
    let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
    if alpha != 0 {
        let mut header = vec![alpha, 0, 0, 0];
        header.extend_from_slice(&(width_px - 1).to_le_bytes()[..3]);
        header.extend_from_slice(&(height_px - 1).to_le_bytes()[..3]);
        push_chunk(&mut file, b"VP8X", &header);
    }
    file.extend_from_slice(&body);
    let size = u32::try_from(file.len() - 8).map_err(|_| corrupt("the WebP is too large"))?;
    file[4..8].copy_from_slice(&size.to_le_bytes());
    Ok(file)
}

fn push_chunk(file: &mut Vec<u8>, tag: &[u8], data: &[u8]) {
    // `data` is part of a file of at most 10 MiB.
    let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
    file.extend_from_slice(tag);
    file.extend_from_slice(&size.to_le_bytes());
    file.extend_from_slice(data);
    file.resize(file.len() + data.len() % 2, 0);
}

/// Decodes a file that holds one picture.
fn picture(bytes: &[u8], limits: &Limits) -> Result<WebPImage, Problem> {
    let features =
        BitstreamFeatures::new(bytes).ok_or_else(|| corrupt("the header of the WebP is damaged"))?;
    let (width_px, height_px) = (features.width(), features.height());
    limits.check_size(width_px, height_px)?;
    Decoder::new(bytes).decode().ok_or_else(|| {
        // libwebp says nothing but no. A lossless picture needs its pixels twice at 4 bytes: past the memory limit
        // that, not damage, is the likelier cause.
        if u64::from(width_px) * u64::from(height_px) * 8 > limits.memory_bytes {
            too_much("the WebP needs more memory than it may have")
        } else {
            corrupt("the picture data of the WebP is damaged")
        }
    })
}

fn le32(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

fn le24(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [a, b, c] => Some(u32::from_le_bytes([*a, *b, *c, 0])),
        _ => None,
    }
}

fn cut() -> Problem {
    truncated("the WebP ends too early")
}
