//! Files made by code: what is cut must be refused wherever it is cut, what is merely odd must pass.

use cards::ProblemCode;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

use super::*;

/// A noisy picture: every block has data.
fn sample(progressive: bool, subsampling: Subsamp) -> Vec<u8> {
    let (width, height) = (97, 65);
    let mut state = 7_u32;
    let pixels: Vec<u8> = (0..width * height * 3)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect();
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(75).unwrap();
    compressor.set_progressive(progressive).unwrap();
    compressor.set_subsamp(subsampling).unwrap();
    let image = Image { pixels: &pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
    compressor.compress_to_vec(image).unwrap()
}

fn pixels(bytes: &[u8]) -> Result<Vec<u8>, ProblemCode> {
    decode(bytes, &Limits::default())
        .map(|picture| picture.raster.pixels.to_vec())
        .map_err(|problem| problem.code)
}

/// Where a marker begins.
fn find(bytes: &[u8], marker: u8) -> usize {
    bytes.windows(2).position(|pair| pair == [0xff, marker]).unwrap()
}

#[test]
fn every_cut_before_the_end_of_the_data_is_refused() {
    for (progressive, subsampling) in
        [(false, Subsamp::Sub2x2), (false, Subsamp::None), (false, Subsamp::Gray), (true, Subsamp::Sub2x2)]
    {
        let whole = sample(progressive, subsampling);
        let sound = pixels(&whole).unwrap();
        let mut passed = Vec::new();
        for end in 3..whole.len() {
            match pixels(&whole[..end]) {
                Ok(cut) => {
                    // What passes shows every pixel: at most the padding of the last byte is gone.
                    assert_eq!(cut, sound, "cut at {end} of {}", whole.len());
                    passed.push(whole.len() - end);
                }
                Err(code) => assert_eq!(code, ProblemCode::Truncated, "cut at {end} of {}", whole.len()),
            }
        }
        // The end marker itself, half of it, and hardly more.
        assert!(passed.iter().all(|missing| *missing <= 3), "{progressive} {subsampling:?}: {passed:?}");
        assert_eq!(passed.is_empty(), progressive, "{progressive} {subsampling:?}");
    }
}

#[test]
fn a_cut_with_an_end_marker_put_behind_it_is_refused() {
    for progressive in [false, true] {
        let whole = sample(progressive, Subsamp::Sub2x2);
        let data = find(&whole, SOS_MARKER) + 20;
        let scans = whole.windows(2).filter(|pair| *pair == [0xff, SOS_MARKER]).count();
        let mut passed = 0;
        for end in (data..whole.len() - 8).step_by(3) {
            let mut patched = whole[..end].to_vec();
            patched.extend([0xff, 0xd9]);
            // A progressive file that ends between two scans is a whole one: nobody can tell.
            if let Ok(cut) = pixels(&patched) {
                assert!(progressive, "cut at {end} of {}", whole.len());
                assert_eq!(cut.len(), 97 * 65 * 3);
                passed += 1;
            }
        }
        // Between two scans lie some headers; within a scan no cut passes.
        assert!(passed <= scans * 15, "{passed} of {scans} scans");
    }
}

const SOS_MARKER: u8 = 0xda;

#[test]
fn filling_trailers_and_second_pictures_change_nothing() {
    for progressive in [false, true] {
        let whole = sample(progressive, Subsamp::Sub2x2);
        let sound = pixels(&whole).unwrap();
        let end = whole.len() - 2;
        for at in [find(&whole, 0xdb), find(&whole, 0xc4), find(&whole, 0xda), end] {
            for filling in
                [&[0xff; 1][..], &[0xff; 9], &[0; 1], &[0; 2], &[0; 37], &[0x20; 5], &[0xff, 0, 0xff]]
            {
                let mut odd = whole.clone();
                odd.splice(at..at, filling.iter().copied());
                if at == end && filling.len() == 3 {
                    // A stuffed byte reads as data: more of it than there are blocks.
                    continue;
                }
                assert_eq!(pixels(&odd).as_ref(), Ok(&sound), "{filling:?} at {at} of {}", whole.len());
            }
        }
        let trailing = [&whole[..], b"MotionPhoto_Data", &[0; 100]].concat();
        assert_eq!(pixels(&trailing).as_ref(), Ok(&sound));
        let twice = [&whole[..], &sample(true, Subsamp::None)].concat();
        assert_eq!(pixels(&twice).as_ref(), Ok(&sound));
    }
}

#[test]
fn a_harmless_oddity_does_not_hide_missing_data() {
    let whole = sample(false, Subsamp::Sub2x2);
    let header = find(&whole, 0xdb);
    for end in [whole.len() / 2, whole.len() - 20] {
        for tail in [&[0xff, 0xd9][..], &[0, 0, 0, 0xff, 0xd9], &[]] {
            let mut odd = whole[..end].to_vec();
            odd.extend(tail);
            odd.splice(header..header, [0, 0, 0]);
            assert!(pixels(&odd).is_err(), "{end} {tail:?}");
        }
    }
}

#[test]
fn metadata_never_reaches_the_decoder() {
    let mut whole = sample(false, Subsamp::Sub2x2);
    let sound = pixels(&whole).unwrap();
    let segment = |marker: u8, payload: &[u8]| {
        let length = u16::try_from(payload.len() + 2).unwrap().to_be_bytes();
        [&[0xff, marker][..], &length, payload].concat()
    };
    let canary = [
        // A JFIF version nobody has written, and an Adobe transform that is none.
        segment(0xe0, b"JFIF\0\x09\x09\0\0\x01\0\x01\0\0"),
        segment(0xe1, b"Exif\0\0II*\0CANARY"),
        segment(0xe2, b"ICC_PROFILE\0\x07\x01CANARY"),
        segment(0xee, b"Adobe\0\x64\0\0\0\0\x09"),
        segment(0xfe, b"CANARY"),
    ]
    .concat();
    whole.splice(2..2, canary);
    assert_eq!(pixels(&whole).unwrap(), sound);
    let stream = stream::read(&whole, &Limits::default()).unwrap();
    assert!(!stream.clean.windows(6).any(|window| window == b"CANARY"));
    assert!(stream.profile.is_none());
}

#[test]
fn a_scan_bomb_and_a_size_bomb_are_refused_from_the_header() {
    let whole = sample(true, Subsamp::Sub2x2);
    let scan = find(&whole, 0xda);
    let mut bomb = whole[..scan].to_vec();
    for _ in 0..=SCANS_MAX {
        bomb.extend(&whole[scan..scan + 14]);
    }
    assert_eq!(pixels(&bomb), Err(ProblemCode::LimitExceeded));

    let mut large = sample(false, Subsamp::Sub2x2);
    let size = find(&large, 0xc0) + 5;
    large.splice(size..size + 4, [0xff; 4]);
    assert_eq!(pixels(&large), Err(ProblemCode::TooManyPixels));
}

#[test]
fn the_scale_keeps_the_preview_sharp() {
    for (side, denominator) in [(1, 1), (3199, 1), (3200, 2), (6399, 2), (6400, 4), (12_800, 8), (32_768, 8)]
    {
        assert_eq!(scale(side).denom(), denominator, "{side}");
    }
}
