//! Pictures of a landscape nobody has seen: sky, sun, two ridges, grain. Integers only, so every machine draws the same.

use anyhow::Context as _;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

const RGB: usize = 3;

/// Draws it and saves it as a camera would.
pub(super) fn jpeg(width: usize, height: usize, quality: i32, seed: u32) -> anyhow::Result<Vec<u8>> {
    let pixels = landscape(width, height, seed);
    let mut compressor = Compressor::new()?;
    compressor.set_quality(quality)?;
    compressor.set_subsamp(Subsamp::Sub2x2)?;
    let image = Image { pixels: &pixels[..], width, pitch: width * RGB, height, format: PixelFormat::RGB };
    Ok(compressor.compress_to_vec(image)?)
}

/// Draws it as lossy WebP.
pub(super) fn webp(width: u32, height: u32) -> anyhow::Result<Vec<u8>> {
    let pixels = landscape(usize::try_from(width)?, usize::try_from(height)?, 4);
    Ok(webp::Encoder::from_rgb(&pixels, width, height).encode(80.0).to_vec())
}

/// A coloured disc on nothing, with an edge that fades.
pub(super) fn png_with_alpha(width: u32, height: u32) -> anyhow::Result<Vec<u8>> {
    let mut pixels = Vec::with_capacity(usize::try_from(width * height)? * 4);
    let radius = width.min(height) / 2;
    for y in 0..height {
        for x in 0..width {
            let (dx, dy) = (x.abs_diff(width / 2), y.abs_diff(height / 2));
            let distance = (dx * dx + dy * dy).isqrt();
            // From opaque in the middle half to nothing at the rim.
            let alpha = (radius.saturating_sub(distance) * 510 / radius).min(255);
            pixels.extend([shade(x * 255 / width), shade(y * 255 / height), 160, shade(alpha)]);
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish().context("the PNG did not end")?;
    Ok(bytes)
}

/// The same JPEG with EXIF orientation 6: to be shown turned by 90 degrees clockwise. `None`: it has no JFIF header.
pub(super) fn turned(jpeg: &[u8]) -> Option<Vec<u8>> {
    // After SOI and the JFIF segment, whose length counts itself.
    let length = jpeg.get(2..6).filter(|head| head.starts_with(&[0xff, 0xe0]))?;
    let at = 4 + usize::from(u16::from_be_bytes([length[2], length[3]]));
    let mut exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01".to_vec();
    // Tag 0x0112, a SHORT, one of it, value 6; then no further directory.
    exif.extend([0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0]);
    let mut turned = jpeg.get(..at)?.to_vec();
    turned.extend([0xff, 0xe1]);
    turned.extend(u16::try_from(exif.len() + 2).ok()?.to_be_bytes());
    turned.extend(exif);
    turned.extend(&jpeg[at..]);
    Some(turned)
}

fn landscape(width: usize, height: usize, seed: u32) -> Vec<u8> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9) | 1);
    let far = ridge(width, height * 5 / 10, height / 7, &mut dice);
    let near = ridge(width, height * 7 / 10, height / 5, &mut dice);
    let (sun_x, sun_y, sun) = (width * 7 / 10, height / 5, height / 14);
    let mut pixels = Vec::with_capacity(width * height * RGB);
    for y in 0..height {
        let depth = shade_of(y * 120 / height);
        let sky = [70 + depth, 110 + depth, 200 + depth / 4];
        let far_hill = [60 + depth / 2, 80 + depth / 2, 110];
        let meadow = [30 + depth / 3, 60 + depth / 2, 25];
        let dy = y.abs_diff(sun_y);
        for x in 0..width {
            let (colour, grain) = if y >= near[x] {
                (meadow, 63)
            } else if y >= far[x] {
                (far_hill, 31)
            } else if dy <= sun && dy * dy + x.abs_diff(sun_x).pow(2) <= sun * sun {
                ([250, 240, 200], 3)
            } else {
                (sky, 7)
            };
            // One throw for all three: grain is of brightness.
            let light = dice.throw() & grain;
            pixels.extend(colour.map(|channel: u8| channel.saturating_add(light)));
        }
    }
    pixels
}

/// A ridge's height at each column, by midpoint displacement: halve, shift the middle, halve the shift.
fn ridge(width: usize, middle: usize, roughness: usize, dice: &mut Dice) -> Vec<usize> {
    let mut line = vec![middle, middle];
    let mut shift = roughness;
    while line.len() < width {
        let mut finer = Vec::with_capacity(line.len() * 2);
        for pair in line.windows(2) {
            let between = pair[0].midpoint(pair[1]) + shift * usize::from(dice.throw()) / 255;
            finer.extend([pair[0], between.saturating_sub(shift / 2)]);
        }
        finer.extend(line.last());
        line = finer;
        shift = shift * 11 / 20;
    }
    line
}

/// Marsaglia's xorshift: noise, not secrets.
struct Dice(u32);

impl Dice {
    fn throw(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0.to_le_bytes()[1]
    }
}

/// A value that is at most 255 by its making.
fn shade(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

fn shade_of(value: usize) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}
