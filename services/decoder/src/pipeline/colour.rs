//! From the embedded ICC profile to sRGB (R-C4).
//!
//! A profile that is too large, damaged or of another kind of colour than the pixels is ignored: the picture is shown
//! as if it had none, as browsers do. Nothing here refuses a file.

use std::panic::{AssertUnwindSafe, catch_unwind};

use moxcms::{ColorProfile, DataColorSpace, Layout, TransformOptions};

use super::raster::{Channels, Raster};

/// Largest profile that is read. Real ones of printers have up to 2 MiB; 64 MiB of zeros fit into 64 KiB of a PNG.
const PROFILE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Converts RGB or RGBA pixels to sRGB.
pub(super) fn to_srgb(raster: Raster, profile: Option<&[u8]>) -> Raster {
    let Some(profile) = profile.filter(|bytes| bytes.len() <= PROFILE_BYTES_MAX) else {
        return raster;
    };
    match guarded(|| convert(&raster, profile)) {
        Some(pixels) if pixels.len() == raster.pixels.len() => Raster { pixels: Box::new(pixels), ..raster },
        Some(_) | None => raster,
    }
}

/// Converts CMYK pixels (255 is full ink) to sRGB by their profile; `None` where there is none that fits.
pub(super) fn cmyk_to_srgb(inks: &[u8], profile: Option<&[u8]>) -> Option<Vec<u8>> {
    let bytes = profile.filter(|bytes| bytes.len() <= PROFILE_BYTES_MAX)?;
    guarded(|| {
        let source = ColorProfile::new_from_slice(bytes).ok()?;
        if source.color_space != DataColorSpace::Cmyk {
            return None;
        }
        transform(&source, Layout::Rgba, inks, Layout::Rgb, inks.len() / 4 * 3)
    })
}

fn convert(raster: &Raster, bytes: &[u8]) -> Option<Vec<u8>> {
    let source = ColorProfile::new_from_slice(bytes).ok()?;
    let layout = match raster.channels {
        Channels::Rgb => Layout::Rgb,
        Channels::Rgba => Layout::Rgba,
        Channels::Grey | Channels::GreyAlpha => return None,
    };
    if source.color_space == DataColorSpace::Rgb {
        return transform(&source, layout, &raster.pixels, layout, raster.pixels.len());
    }
    if source.color_space != DataColorSpace::Gray {
        return None;
    }
    // The pixels are grey spread over three channels: 256 values are converted once and looked up.
    let ramp: Vec<u8> = (0..=255).collect();
    let table = transform(&source, Layout::Gray, &ramp, Layout::Rgb, 256 * 3)?;
    let size = raster.channels.count();
    let mut pixels = raster.pixels.to_vec();
    for pixel in pixels.chunks_exact_mut(size) {
        let at = usize::from(pixel[0]) * 3;
        pixel[..3].copy_from_slice(&table[at..at + 3]);
    }
    Some(pixels)
}

fn transform(
    source: &ColorProfile,
    from: Layout,
    pixels: &[u8],
    to: Layout,
    to_bytes: usize,
) -> Option<Vec<u8>> {
    let target = ColorProfile::new_srgb();
    let executor = source.create_transform_8bit(from, &target, to, TransformOptions::default()).ok()?;
    let mut converted = vec![0; to_bytes];
    executor.transform(pixels, &mut converted).ok()?;
    Some(converted)
}

/// A profile that makes the colour code panic is a damaged profile, not a damaged picture.
fn guarded(work: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    catch_unwind(AssertUnwindSafe(work)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_pixel(channels: Channels, pixel: &[u8]) -> Raster {
        Raster { width_px: 1, height_px: 1, channels, pixels: Box::new(pixel.to_vec()) }
    }

    #[test]
    fn display_p3_becomes_srgb_and_alpha_stays() {
        let profile = ColorProfile::new_display_p3().encode().unwrap();
        // Green of P3 (0.2, 0.8, 0.2) lies outside sRGB's red.
        let raster = to_srgb(one_pixel(Channels::Rgba, &[51, 204, 51, 77]), Some(&profile));
        assert!(raster.pixels[0] < 10 && raster.pixels[1] > 204, "{:?}", &raster.pixels[..]);
        assert_eq!(raster.pixels[3], 77);
    }

    #[test]
    fn a_linear_grey_profile_is_applied() {
        let profile = ColorProfile::new_gray_with_gamma(1.0).encode().unwrap();
        let raster = to_srgb(one_pixel(Channels::Rgb, &[128; 3]), Some(&profile));
        assert!((183..=193).contains(&raster.pixels[0]), "{:?}", &raster.pixels[..]);
    }

    #[test]
    fn a_bad_profile_is_ignored() {
        let mut cut = ColorProfile::new_display_p3().encode().unwrap();
        cut.truncate(200);
        let huge = vec![0; PROFILE_BYTES_MAX + 1];
        for profile in [&b""[..], b"no profile", &cut, &huge] {
            let raster = to_srgb(one_pixel(Channels::Rgb, &[1, 2, 3]), Some(profile));
            assert_eq!(&raster.pixels[..], [1, 2, 3]);
        }
    }
}
