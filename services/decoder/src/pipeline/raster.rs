//! Pixels in memory, and what is done to them: fitting, turning, spreading grey over three channels.

use std::ops::DerefMut;

use cards::Problem;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{MulDiv, PixelType, ResizeOptions, Resizer};

use image::metadata::Orientation;
use image::{DynamicImage, ImageBuffer};

use super::corrupt;

/// Eight bits a channel, rows without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channels {
    Grey,
    GreyAlpha,
    Rgb,
    Rgba,
}

impl Channels {
    pub(super) fn count(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::GreyAlpha => 2,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }

    fn has_alpha(self) -> bool {
        match self {
            Self::Grey | Self::Rgb => false,
            Self::GreyAlpha | Self::Rgba => true,
        }
    }

    fn pixel_type(self) -> PixelType {
        match self {
            Self::Grey => PixelType::U8,
            Self::GreyAlpha => PixelType::U8x2,
            Self::Rgb => PixelType::U8x3,
            Self::Rgba => PixelType::U8x4,
        }
    }
}

/// Pixels, wherever they live: libwebp's are used where it left them, a copy could be 256 MB.
pub(super) type Pixels = Box<dyn DerefMut<Target = [u8]>>;

/// A rectangle of pixels.
pub(super) struct Raster {
    pub(super) width_px: u32,
    pub(super) height_px: u32,
    pub(super) channels: Channels,
    pub(super) pixels: Pixels,
}

/// A decoded picture before anything was done to it.
pub(super) struct Picture {
    /// As the file has it, before turning.
    pub(super) width_px: u32,
    /// As the file has it, before turning.
    pub(super) height_px: u32,
    pub(super) frames: u32,
    /// How it is turned upright.
    pub(super) orientation: Orientation,
    /// The embedded ICC profile.
    pub(super) profile: Option<Vec<u8>>,
    /// The first frame; it may be smaller than the picture (a JPEG is shrunk while it is decoded).
    pub(super) raster: Raster,
}

impl Picture {
    /// Width and height once turned upright.
    pub(super) fn upright_size(&self) -> (u32, u32) {
        if turns_sideways(self.orientation) {
            (self.height_px, self.width_px)
        } else {
            (self.width_px, self.height_px)
        }
    }
}

/// Bytes of a raster, for allocating. Sizes were checked against the limits before.
pub(super) fn raster_bytes(width_px: u32, height_px: u32, channels: usize) -> Result<usize, Problem> {
    let bytes = usize::try_from(width_px)
        .ok()
        .zip(usize::try_from(height_px).ok())
        .and_then(|(width, height)| width.checked_mul(height)?.checked_mul(channels));
    bytes.ok_or_else(|| corrupt("the size of the picture makes no sense"))
}

/// The size that fits into a square: never enlarged, never 0.
pub(super) fn fit(width_px: u32, height_px: u32, side_px_max: u32) -> (u32, u32) {
    let long = width_px.max(height_px);
    if long <= side_px_max {
        return (width_px, height_px);
    }
    let scaled = |side: u32| {
        let rounded =
            (u64::from(side) * u64::from(side_px_max) + u64::from(long) / 2) / u64::from(long.max(1));
        u32::try_from(rounded).unwrap_or(side_px_max).clamp(1, side_px_max)
    };
    (scaled(width_px), scaled(height_px))
}

impl Raster {
    /// Resizes with Lanczos3. Colours are multiplied by alpha meanwhile, in place: else transparent pixels, whose
    /// colour means nothing, would bleed into the edges.
    pub(super) fn resized(mut self, width_px: u32, height_px: u32) -> Result<Self, Problem> {
        if (self.width_px, self.height_px) == (width_px, height_px) {
            return Ok(self);
        }
        let kind = self.channels.pixel_type();
        let failed = |_| corrupt("the picture can't be resized");
        let mut target = Image::new(width_px, height_px, kind);
        if self.channels.has_alpha() {
            let mut source = Image::from_slice_u8(self.width_px, self.height_px, &mut self.pixels, kind)
                .map_err(|_| corrupt("the picture can't be resized"))?;
            MulDiv::new()
                .multiply_alpha_inplace(&mut source)
                .map_err(|_| corrupt("the picture can't be resized"))?;
        }
        let source = ImageRef::new(self.width_px, self.height_px, &self.pixels, kind)
            .map_err(|_| corrupt("the picture can't be resized"))?;
        Resizer::new()
            .resize(&source, &mut target, &ResizeOptions::new().use_alpha(false))
            .map_err(failed)?;
        if self.channels.has_alpha() {
            MulDiv::new()
                .divide_alpha_inplace(&mut target)
                .map_err(|_| corrupt("the picture can't be resized"))?;
        }
        Ok(Self { width_px, height_px, channels: self.channels, pixels: Box::new(target.into_vec()) })
    }

    /// Grey becomes RGB, so that what follows knows two layouts only.
    pub(super) fn coloured(self) -> Self {
        let (channels, pixels): (_, Vec<u8>) = match self.channels {
            Channels::Grey => (Channels::Rgb, self.pixels.iter().flat_map(|&grey| [grey; 3]).collect()),
            Channels::GreyAlpha => (
                Channels::Rgba,
                self.pixels.chunks_exact(2).flat_map(|px| [px[0], px[0], px[0], px[1]]).collect(),
            ),
            Channels::Rgb | Channels::Rgba => return self,
        };
        Self { channels, pixels: Box::new(pixels), ..self }
    }

    /// Turns by an EXIF orientation.
    pub(super) fn turned(self, orientation: Orientation) -> Self {
        if orientation == Orientation::NoTransforms {
            return self;
        }
        let Self { width_px: width, height_px: height, channels, pixels } = self;
        let pixels = pixels.to_vec();
        let picture = match channels {
            Channels::Grey => ImageBuffer::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8),
            Channels::GreyAlpha => {
                ImageBuffer::from_raw(width, height, pixels).map(DynamicImage::ImageLumaA8)
            }
            Channels::Rgb => ImageBuffer::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8),
            Channels::Rgba => ImageBuffer::from_raw(width, height, pixels).map(DynamicImage::ImageRgba8),
        };
        // A raster holds exactly its pixels; if it did not, an empty picture would not get past the encoder.
        let mut picture = picture.unwrap_or_default();
        picture.apply_orientation(orientation);
        Self {
            width_px: picture.width(),
            height_px: picture.height(),
            channels,
            pixels: Box::new(picture.into_bytes()),
        }
    }
}

fn turns_sideways(orientation: Orientation) -> bool {
    match orientation {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => true,
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_fits_is_never_enlarged_and_never_has_no_pixels() {
        assert_eq!(fit(4000, 3000, 1600), (1600, 1200));
        assert_eq!(fit(3000, 4000, 256), (192, 256));
        assert_eq!(fit(100, 50, 256), (100, 50));
        assert_eq!(fit(1, 32_768, 256), (1, 256));
        assert_eq!(fit(1, 1, 256), (1, 1));
        assert_eq!(fit(1601, 1601, 1600), (1600, 1600));
    }

    #[test]
    fn each_orientation_turns_as_exif_says() {
        // Row 0 of the file is what the orientation's first word names, column 0 the second.
        let table = [
            (1, "abc/def"),
            (2, "cba/fed"),
            (3, "fed/cba"),
            (4, "def/abc"),
            (5, "ad/be/cf"),
            (6, "da/eb/fc"),
            (7, "fc/eb/da"),
            (8, "cf/be/ad"),
            (9, "abc/def"),
        ];
        for (orientation, expected) in table {
            let raster = Raster {
                width_px: 3,
                height_px: 2,
                channels: Channels::Grey,
                pixels: Box::new(b"abcdef".to_vec()),
            };
            let turned =
                raster.turned(Orientation::from_exif(orientation).unwrap_or(Orientation::NoTransforms));
            let rows: Vec<_> = turned
                .pixels
                .chunks(turned.width_px as usize)
                .map(|row| String::from_utf8(row.to_vec()).unwrap())
                .collect();
            assert_eq!(rows.join("/"), expected, "{orientation}");
        }
    }

    #[test]
    fn the_colour_of_transparent_pixels_does_not_bleed() {
        // A red opaque pixel beside a green transparent one, halved.
        let raster = Raster {
            width_px: 2,
            height_px: 1,
            channels: Channels::Rgba,
            pixels: Box::new(vec![255, 0, 0, 255, 0, 255, 0, 0]),
        };
        let half = raster.resized(1, 1).unwrap();
        assert!(half.pixels[0] >= 253 && half.pixels[1] <= 2, "{:?}", &half.pixels[..]);
        assert!((120..=136).contains(&half.pixels[3]), "{:?}", &half.pixels[..]);
    }
}
