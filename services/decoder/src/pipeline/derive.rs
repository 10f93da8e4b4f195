//! Preview and thumbnail of a picture (R-C4).
//!
//! 1. Shrink to the preview's size: all that follows works on at most 1600 x 1600 pixels.
//! 2. Grey to RGB, then the profile's colours to sRGB.
//! 3. Turn upright.
//! 4. Encode; the thumbnail is shrunk from the preview.
//!
//! The encoders see pixels alone: EXIF, XMP, ICC, comments and whatever follows the picture have no way into a
//! derivative.

use cards::{DerivativeName, Problem};
use turbojpeg::{Compressor, PixelFormat, Subsamp};
use webp::{Encoder, PixelLayout, WebPConfig};

use super::raster::{Channels, Picture, Raster, fit};
use super::{DerivativeFormat, DerivedImage, colour, corrupt};

/// Of libwebp and libjpeg alike: the quality at which neither shows its blocks on photos.
const QUALITY: i32 = 80;
/// libwebp's effort. Method 2 costs half the time of the default 4 for 4 % more bytes.
const WEBP_METHOD: i32 = 2;

/// Makes both derivatives.
pub(super) fn derivatives(picture: Picture, format: DerivativeFormat) -> Result<Vec<DerivedImage>, Problem> {
    let (width_px, height_px) =
        fit(picture.width_px, picture.height_px, DerivativeName::Preview.side_px_max());
    let preview = picture.raster.resized(width_px, height_px)?.coloured();
    let preview = colour::to_srgb(preview, picture.profile.as_deref()).turned(picture.orientation);
    let encoded = encode(DerivativeName::Preview, &preview, format)?;
    let (width_px, height_px) = fit(preview.width_px, preview.height_px, DerivativeName::Thumb.side_px_max());
    let thumb = preview.resized(width_px, height_px)?;
    Ok(vec![encode(DerivativeName::Thumb, &thumb, format)?, encoded])
}

fn encode(name: DerivativeName, raster: &Raster, format: DerivativeFormat) -> Result<DerivedImage, Problem> {
    let bytes = match format {
        DerivativeFormat::Webp => webp(raster),
        DerivativeFormat::Jpeg => jpeg(raster),
    };
    Ok(DerivedImage {
        name,
        content_type: format.content_type(),
        width_px: raster.width_px,
        height_px: raster.height_px,
        // No file makes an encoder fail that was given sound pixels; short memory does, and that is the file's doing.
        bytes: bytes.ok_or_else(|| corrupt(format!("no {name} can be made of the picture")))?,
    })
}

fn webp(raster: &Raster) -> Option<Vec<u8>> {
    let layout = match raster.channels {
        Channels::Rgb => PixelLayout::Rgb,
        Channels::Rgba => PixelLayout::Rgba,
        Channels::Grey | Channels::GreyAlpha => return None,
    };
    let mut config = WebPConfig::new().ok()?;
    config.quality = 80.0;
    config.method = WEBP_METHOD;
    let encoder = Encoder::new(&raster.pixels, layout, raster.width_px, raster.height_px);
    Some(encoder.encode_advanced(&config).ok()?.to_vec())
}

fn jpeg(raster: &Raster) -> Option<Vec<u8>> {
    let flat: Vec<u8>;
    let pixels: &[u8] = match raster.channels {
        Channels::Rgb => &raster.pixels,
        Channels::Rgba => {
            flat = raster.pixels.chunks_exact(4).flat_map(on_white).collect();
            &flat
        }
        Channels::Grey | Channels::GreyAlpha => return None,
    };
    let width = usize::try_from(raster.width_px).ok()?;
    let height = usize::try_from(raster.height_px).ok()?;
    let mut compressor = Compressor::new().ok()?;
    compressor.set_quality(QUALITY).ok()?;
    compressor.set_subsamp(Subsamp::Sub2x2).ok()?;
    compressor
        .compress_to_vec(turbojpeg::Image {
            pixels,
            width,
            pitch: width * 3,
            height,
            format: PixelFormat::RGB,
        })
        .ok()
}

fn on_white(pixel: &[u8]) -> [u8; 3] {
    let alpha = u16::from(pixel[3]);
    [0, 1, 2].map(|channel: usize| {
        let mixed = (u16::from(pixel[channel]) * alpha + 255 * (255 - alpha) + 127) / 255;
        u8::try_from(mixed).unwrap_or(u8::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transparency_becomes_white() {
        assert_eq!(on_white(&[0, 0, 0, 0]), [255; 3]);
        assert_eq!(on_white(&[10, 20, 30, 255]), [10, 20, 30]);
        assert_eq!(on_white(&[0, 0, 0, 128]), [127; 3]);
    }
}
