//! The one thing read from EXIF: the orientation. All else stays unread and is dropped (R-C4).

use image::metadata::Orientation;

/// The orientation of an EXIF block (with or without its `Exif\0\0`). What is missing, damaged or out of range counts
/// as upright: a bad tag is no reason to refuse a picture.
pub(super) fn orientation(block: &[u8]) -> Orientation {
    let tiff = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
    Orientation::from_exif_chunk(tiff).unwrap_or(Orientation::NoTransforms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(value: u16) -> Vec<u8> {
        let mut block = b"Exif\0\0MM\0*\0\0\0\x08\0\x02".to_vec();
        block.extend(b"\x01\x0f\0\x02\0\0\0\x01\0\0\0\0");
        block.extend(b"\x01\x12\0\x03\0\0\0\x01");
        block.extend(value.to_be_bytes());
        block.extend(b"\0\0\0\0\0\0");
        block
    }

    #[test]
    fn orientations_are_read_and_impossible_ones_are_upright() {
        for value in 1..=8 {
            assert_eq!(u16::from(orientation(&block(value)).to_exif()), value);
        }
        for value in [0, 9, 255, 256] {
            assert_eq!(orientation(&block(value)), Orientation::NoTransforms);
        }
    }

    #[test]
    fn a_damaged_block_is_upright() {
        let whole = block(6);
        for end in 0..whole.len() - 8 {
            assert_eq!(orientation(&whole[..end]), Orientation::NoTransforms, "{end}");
        }
        assert_eq!(orientation(b"II*\0\xff\xff\xff\xff"), Orientation::NoTransforms);
    }
}
