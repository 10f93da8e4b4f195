//! The one thing read from EXIF: the orientation. All else stays unread and is dropped (R-C4).

/// Upright: nothing to turn.
pub(super) const UPRIGHT: u8 = 1;

const ORIENTATION_TAG: u16 = 0x0112;
const SHORT: u16 = 3;

/// The orientation, 1 to 8, of an EXIF block (with or without its `Exif\0\0`). What is missing, damaged or out of
/// range counts as upright: a bad tag is no reason to refuse a picture.
pub(super) fn orientation(block: &[u8]) -> u8 {
    let tiff = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
    read(tiff).filter(|value| (1..=8).contains(value)).unwrap_or(UPRIGHT)
}

fn read(tiff: &[u8]) -> Option<u8> {
    let little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let u16_at = |at: usize| -> Option<u16> {
        let pair = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) })
    };
    let offset: [u8; 4] = tiff.get(4..8)?.try_into().ok()?;
    let directory = if little { u32::from_le_bytes(offset) } else { u32::from_be_bytes(offset) };
    let directory = usize::try_from(directory).ok()?;
    // At most 65,535 entries of 12 bytes, and the first directory only: no chain to run around in.
    for index in 0..usize::from(u16_at(directory)?) {
        let entry = directory.checked_add(2 + index * 12)?;
        if u16_at(entry)? == ORIENTATION_TAG {
            return if u16_at(entry + 2)? == SHORT { u8::try_from(u16_at(entry + 8)?).ok() } else { None };
        }
    }
    None
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
            assert_eq!(u16::from(orientation(&block(value))), value);
        }
        for value in [0, 9, 255, 256] {
            assert_eq!(orientation(&block(value)), UPRIGHT);
        }
    }

    #[test]
    fn a_damaged_block_is_upright() {
        let whole = block(6);
        for end in 0..whole.len() - 8 {
            assert_eq!(orientation(&whole[..end]), UPRIGHT, "{end}");
        }
        assert_eq!(orientation(b"II*\0\xff\xff\xff\xff"), UPRIGHT);
    }
}
