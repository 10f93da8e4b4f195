//! Hostile and odd files through the real child: each ends as `cases/index.json` says (R-C2 to R-C4, R-C7), and the
//! parent decodes the next good file afterwards.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

mod common;
#[path = "common/program.rs"]
mod program;

use std::path::Path;

use cards::{DerivativeName, MediaType};
use decoder::pipeline::{DerivativeFormat, DerivedImage, Options, decode};
use image::metadata::Orientation;
use image::{DynamicImage, ImageFormat};
use serde::Deserialize;

use common::outcome;
use program::children;

#[derive(Deserialize)]
struct Case {
    file: String,
    announced: MediaType,
    /// One of these.
    expected: Vec<String>,
}

fn cases() -> Vec<Case> {
    serde_json::from_slice(&read("index.json")).unwrap()
}

fn read(file: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file)).unwrap()
}

fn picture(derived: &DerivedImage) -> DynamicImage {
    let format = match derived.content_type {
        "image/webp" => ImageFormat::WebP,
        "image/jpeg" => ImageFormat::Jpeg,
        other => panic!("{other}"),
    };
    let picture = image::load_from_memory_with_format(&derived.bytes, format).unwrap();
    assert_eq!((picture.width(), picture.height()), (derived.width_px, derived.height_px));
    picture
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

async fn preview(file: &str, announced: MediaType, format: DerivativeFormat) -> DerivedImage {
    let children = children(Options { derivative_format: format, ..Options::default() });
    let (line, decoded) = outcome(&children, announced, &read(file)).await;
    let decoded = decoded.unwrap_or_else(|| panic!("{file}: {line}"));
    decoded.derivatives.into_iter().find(|derived| derived.name == DerivativeName::Preview).unwrap()
}

#[tokio::test]
async fn every_case_ends_as_the_index_says() {
    let children = children(Options::default());
    let mut wrong = Vec::new();
    for case in cases() {
        let (line, _) = outcome(&children, case.announced, &read(&case.file)).await;
        if !case.expected.contains(&line) {
            wrong.push(format!("{}: expected {:?}, got {line}", case.file, case.expected));
        }
        let (line, _) = outcome(&children, MediaType::Png, &read("ok-1x1.png")).await;
        assert_eq!(line, "ready 1x1 frames 1", "after {}", case.file);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn every_file_has_a_case() {
    let listed: Vec<String> = cases().into_iter().map(|case| case.file).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "index.json" || listed.contains(&name), "{name}");
    }
}

/// O-IM-02. The files hold the same stored picture (red top left, green top right, blue bottom left) under each value;
/// another implementation turns it as the value says.
#[tokio::test]
async fn every_orientation_is_applied() {
    let stored = image::load_from_memory_with_format(&read("orient-1.jpg"), ImageFormat::Jpeg).unwrap();
    for format in [DerivativeFormat::Webp, DerivativeFormat::Jpeg] {
        for value in 1..=9 {
            let file =
                if value == 9 { "orient-9-invalid.jpg".to_owned() } else { format!("orient-{value}.jpg") };
            let got = picture(&preview(&file, MediaType::Jpeg, format).await).to_rgb8();
            let mut expected = stored.clone();
            expected.apply_orientation(Orientation::from_exif(value).unwrap_or(Orientation::NoTransforms));
            let expected = expected.to_rgb8();
            assert_eq!(got.dimensions(), expected.dimensions(), "{file}");
            let apart: u64 = got.iter().zip(expected.iter()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
            let samples = u64::try_from(got.len()).unwrap();
            // Another coding blurs the edges of the three fields; a wrong turn differs by 60 and more.
            assert!(apart / samples < 8, "{file} {format:?}: {} on average", apart / samples);
        }
    }
}

/// O-IM-03, O-IM-05.
#[tokio::test]
async fn derivatives_hold_nothing_of_the_file_but_its_picture() {
    let children = children(Options::default());
    let jpegs = children_of(DerivativeFormat::Jpeg);
    for (file, announced) in [
        ("gps-exif.jpg", MediaType::Jpeg),
        ("gps-exif.png", MediaType::Png),
        ("gps-xmp.jpg", MediaType::Jpeg),
        ("polyglot-png-trailing-html.png", MediaType::Png),
        ("polyglot-png-text-html.png", MediaType::Png),
        ("polyglot-gifar.gif", MediaType::Gif),
        ("trailing-bytes.jpg", MediaType::Jpeg),
    ] {
        for pool in [&children, &jpegs] {
            let (line, decoded) = outcome(pool, announced, &read(file)).await;
            for derived in decoded.unwrap_or_else(|| panic!("{file}: {line}")).derivatives {
                picture(&derived);
                for needle in [
                    &b"GPS"[..],
                    b"SyntheticCam",
                    b"Exif",
                    b"EXIF",
                    b"xap",
                    b"XMP ",
                    b"ICCP",
                    b"<script",
                    b"PK\x03\x04",
                ] {
                    assert!(!contains(&derived.bytes, needle), "{file}: {}", String::from_utf8_lossy(needle));
                }
            }
        }
    }
}

fn children_of(derivative_format: DerivativeFormat) -> decoder::child::Children {
    children(Options { derivative_format, ..Options::default() })
}

/// O-IM-10.
#[tokio::test]
async fn cmyk_has_the_right_colours() {
    for (file, expected) in
        [("cmyk-adobe-cyan.jpg", [0, 255, 255]), ("cmyk-adobe-30-60-90-120.jpg", [119, 103, 87])]
    {
        for format in [DerivativeFormat::Webp, DerivativeFormat::Jpeg] {
            let picture = picture(&preview(file, MediaType::Jpeg, format).await).to_rgb8();
            let pixel = picture.get_pixel(picture.width() / 2, picture.height() / 2).0;
            for (got, wanted) in pixel.into_iter().zip(expected) {
                assert!(i16::from(got).abs_diff(wanted) <= 3, "{file} {format:?}: {pixel:?}");
            }
        }
    }
}

/// O-IM-11.
#[tokio::test]
async fn an_ultra_hdr_file_shows_its_first_picture_alone() {
    let derived = preview("mpf-two-jpegs.jpg", MediaType::Jpeg, DerivativeFormat::Jpeg).await;
    picture(&derived);
    let starts = derived.bytes.windows(3).filter(|window| *window == b"\xff\xd8\xff").count();
    assert_eq!(starts, 1);
}

/// A cut file is never shown as if it were whole: PNG and GIF need their last chunk, WebP its announced length.
#[test]
fn every_cut_of_a_png_gif_or_webp_is_refused() {
    for (file, announced) in [
        ("gps-exif.png", MediaType::Png),
        ("anim-apng.png", MediaType::Png),
        ("anim.gif", MediaType::Gif),
        ("anim.webp", MediaType::Webp),
    ] {
        let whole = read(file);
        assert!(decode(announced, &whole, &Options::default()).is_ok(), "{file}");
        for end in 0..whole.len() {
            let outcome = decode(announced, &whole[..end], &Options::default());
            assert!(outcome.is_err(), "{file} cut at {end} of {}", whole.len());
        }
    }
}

/// PROOF (c) 16: what a chunk inflates to, or a header claims, costs nothing.
#[tokio::test]
async fn bombs_in_metadata_and_frame_counts_cost_nothing() {
    let children = children(Options::default());
    let plain = read("ok-1x1.png");
    let (header, rest) = plain.split_at(33);
    let zeros = deflated_zeros(64 * 1024 * 1024);
    let bombs = [
        (chunk(*b"iCCP", &[b"p\0\0", &zeros[..]].concat()), "ready 1x1 frames 1"),
        (chunk(*b"zTXt", &[b"t\0\0", &zeros[..]].concat()), "ready 1x1 frames 1"),
        (chunk(*b"acTL", b"\x7f\xff\xff\xff\0\0\0\0"), "limit_exceeded"),
    ];
    for (bomb, expected) in bombs {
        let file = [header, &bomb, rest].concat();
        assert_eq!(outcome(&children, MediaType::Png, &file).await.0, expected);
    }
    let gif = read("anim.gif");
    let frames = gif.windows(8).position(|window| window.starts_with(b"\x21\xf9\x04")).unwrap();
    let many = [&gif[..frames], &gif[frames..gif.len() - 1].repeat(2_000), b";"].concat();
    assert_eq!(outcome(&children, MediaType::Gif, &many).await.0, "limit_exceeded");
}

/// A zlib stream of zeros, by way of a grey picture of them.
fn deflated_zeros(bytes: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 1024 - 1, bytes / 1024);
    encoder.set_color(png::ColorType::Grayscale);
    let mut header = encoder.write_header().unwrap();
    let pixels = vec![0; usize::try_from((bytes / 1024) * 1023).unwrap()];
    header.write_image_data(&pixels).unwrap();
    drop(header);
    let mut stream = Vec::new();
    let mut rest = &file[8..];
    while rest.len() >= 12 {
        let length = usize::try_from(u32::from_be_bytes(rest[..4].try_into().unwrap())).unwrap();
        if &rest[4..8] == b"IDAT" {
            stream.extend_from_slice(&rest[8..8 + length]);
        }
        rest = &rest[12 + length..];
    }
    stream
}

/// A PNG chunk.
fn chunk(kind: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut sum = u32::MAX;
    for byte in kind.iter().chain(data) {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    [&length[..], &kind, data, &(!sum).to_be_bytes()].concat()
}

/// Whatever a file is turned into, it is decoded or refused: never the machine's fault.
#[tokio::test]
async fn spoilt_files_are_decoded_or_refused() {
    let children = children(Options::default());
    let mut state = 11_u32;
    for case in cases().into_iter().filter(|case| case.expected[0].starts_with("ready ")) {
        let whole = read(&case.file);
        for _ in 0..12 {
            let mut spoilt = whole.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = usize::try_from(state >> 8).unwrap() % spoilt.len();
                spoilt[at] = state.to_be_bytes()[0];
            }
            let (line, _) = outcome(&children, case.announced, &spoilt).await;
            assert!(!line.starts_with("machine"), "{}: {line}", case.file);
        }
    }
}

/// O-IM-12.
#[tokio::test]
async fn derivatives_fit_and_are_never_enlarged() {
    let children = children(Options::default());
    for case in cases() {
        let (_, decoded) = outcome(&children, case.announced, &read(&case.file)).await;
        let Some(decoded) = decoded.filter(|decoded| decoded.facts.media_type.is_image()) else { continue };
        let long = decoded.facts.width_px.max(decoded.facts.height_px).unwrap();
        let names: Vec<_> = decoded.derivatives.iter().map(|derived| derived.name).collect();
        assert_eq!(names, DerivativeName::ALL, "{}", case.file);
        for derived in &decoded.derivatives {
            let expected = long.min(derived.name.side_px_max());
            assert_eq!(derived.width_px.max(derived.height_px), expected, "{}", case.file);
            picture(derived);
        }
    }
}
