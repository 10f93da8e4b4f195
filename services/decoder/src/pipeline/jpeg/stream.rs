//! Walks the markers of a JPEG and writes its first picture anew, plain (see [`super`] for what is left out and why).

use cards::{Problem, ProblemCode};

use crate::pipeline::{Limits, corrupt, too_much, truncated};

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;

/// Largest profile that is put together; `colour` ignores what is larger than its own limit anyway.
const PROFILE_BYTES_MAX: usize = 5 * 1024 * 1024;

/// The frame header.
pub(super) struct Frame {
    pub(super) width_px: u32,
    pub(super) height_px: u32,
    /// The ids of its colour components.
    pub(super) components: Vec<u8>,
    progressive: bool,
}

/// One picture, plain.
pub(super) struct Stream<'a> {
    pub(super) frame: Frame,
    /// From SOI to EOI.
    pub(super) clean: Vec<u8>,
    pub(super) exif: Option<&'a [u8]>,
    pub(super) profile: Option<Vec<u8>>,
    /// An Adobe mark was there.
    pub(super) adobe: bool,
    /// The end marker was there.
    pub(super) ended: bool,
}

impl Stream<'_> {
    /// Cuts that many bytes off in front of the end marker; `false` if there are not so many.
    pub(super) fn cut_before_end(&mut self, bytes: usize) -> bool {
        // SOI and EOI at least stay.
        let Some(end) = self.clean.len().checked_sub(2 + bytes).filter(|end| *end > 2) else { return false };
        self.clean.truncate(end);
        self.clean.extend_from_slice(&[0xff, EOI]);
        true
    }
}

#[derive(Default)]
struct Walk<'a> {
    body: Vec<u8>,
    frame: Option<Frame>,
    jfif: bool,
    adobe_transform: Option<u8>,
    exif: Option<&'a [u8]>,
    profile: Profile<'a>,
    scans: u32,
    /// Components that had a scan.
    covered: Vec<u8>,
    /// Components of the latest scan.
    latest: usize,
    ended: bool,
}

/// Reads up to the first end marker.
pub(super) fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Stream<'a>, Problem> {
    let mut walk = Walk { body: Vec::with_capacity(bytes.len()), ..Walk::default() };
    let mut at = 2;
    while let Some(marker) = next_marker(bytes, &mut at) {
        match marker {
            EOI => {
                walk.ended = true;
                break;
            }
            // Restart markers outside of a scan, and TEM: filling.
            0xd0..=0xd7 | 0x01 => continue,
            SOI => return Err(corrupt("the JPEG is damaged: a picture begins within a picture")),
            0x02..=0xbf | 0xc8 | 0xde | 0xdf | 0xf0..=0xfd => {
                return Err(corrupt(format!("the JPEG is damaged: unknown marker 0x{marker:02x}")));
            }
            0x00 | 0xc0..=0xc7 | 0xc9..=0xcf | SOS | 0xdb..=0xdd | 0xe0..=0xef | 0xfe | 0xff => {}
        }
        let payload = segment(bytes, &mut at)?;
        walk.take(marker, payload, limits)?;
        if marker == SOS {
            walk.copy_scan(bytes, &mut at);
        }
    }
    walk.finish()
}

/// Skips to the next marker: filling of any kind is left out.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        *at += bytes.get(*at..)?.iter().position(|byte| *byte == 0xff)?;
        *at += bytes[*at..].iter().position(|byte| *byte != 0xff)?;
        let marker = bytes[*at];
        *at += 1;
        if marker != 0 {
            return Some(marker);
        }
    }
}

fn segment<'a>(bytes: &'a [u8], at: &mut usize) -> Result<&'a [u8], Problem> {
    let cut = || truncated("the JPEG ends too early, before its picture data");
    let length = bytes.get(*at..*at + 2).ok_or_else(cut)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length < 2 {
        return Err(corrupt("the JPEG is damaged: a segment has no length"));
    }
    let payload = bytes.get(*at + 2..*at + length).ok_or_else(cut)?;
    *at += length;
    Ok(payload)
}

impl<'a> Walk<'a> {
    fn take(&mut self, marker: u8, payload: &'a [u8], limits: &Limits) -> Result<(), Problem> {
        match marker {
            0xe0 => self.jfif |= payload.starts_with(b"JFIF\0"),
            0xe1 if payload.starts_with(b"Exif\0\0") => self.exif = self.exif.or(Some(payload)),
            0xe2 => self.profile.take(payload),
            0xee if payload.starts_with(b"Adobe") && payload.len() >= 12 => {
                self.adobe_transform = Some(payload[11]);
            }
            0xe1..=0xef | 0xfe => {}
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                if self.frame.is_some() {
                    return Err(corrupt("the JPEG is damaged: two frame headers"));
                }
                self.frame = Some(frame(marker, payload, limits)?);
                self.copy_segment(marker, payload);
            }
            SOS => {
                self.scan(payload)?;
                self.copy_segment(marker, payload);
            }
            _ => self.copy_segment(marker, payload),
        }
        Ok(())
    }

    fn scan(&mut self, payload: &[u8]) -> Result<(), Problem> {
        if self.frame.is_none() {
            return Err(corrupt("the JPEG is damaged: picture data without a frame header"));
        }
        self.scans += 1;
        if self.scans > super::SCANS_MAX {
            return Err(too_much(format!("the JPEG has more than {} scans", super::SCANS_MAX)));
        }
        let count = payload.first().copied().map_or(0, usize::from);
        self.latest = count;
        self.covered.extend(payload.iter().skip(1).step_by(2).take(count));
        Ok(())
    }

    fn copy_segment(&mut self, marker: u8, payload: &[u8]) {
        // The payload was read by a length of 16 bits.
        let length = u16::try_from(payload.len() + 2).unwrap_or(u16::MAX);
        self.body.extend_from_slice(&[0xff, marker]);
        self.body.extend_from_slice(&length.to_be_bytes());
        self.body.extend_from_slice(payload);
    }

    /// Copies coded data up to the next marker that is no restart marker.
    fn copy_scan(&mut self, bytes: &[u8], at: &mut usize) {
        let start = *at;
        loop {
            let Some(found) = bytes.get(*at..).and_then(|rest| rest.iter().position(|byte| *byte == 0xff))
            else {
                *at = bytes.len();
                break;
            };
            *at += found;
            match bytes.get(*at + 1) {
                Some(0x00 | 0xd0..=0xd7) => *at += 2,
                Some(0xff) => *at += 1,
                // A marker, or a file that ends in the middle of one.
                Some(_) | None => break,
            }
        }
        self.body.extend_from_slice(&bytes[start..*at]);
    }

    fn finish(self) -> Result<Stream<'a>, Problem> {
        let cut = || truncated("the JPEG ends too early");
        let (Some(frame), true) = (self.frame, self.scans > 0) else {
            return Err(if self.ended { corrupt("the JPEG has no picture") } else { cut() });
        };
        let whole_in_one = self.scans == 1 && self.latest == frame.components.len() && !frame.progressive;
        if !self.ended && !whole_in_one {
            return Err(cut());
        }
        if frame.components.iter().any(|id| !self.covered.contains(id)) {
            return Err(corrupt("the JPEG is damaged: a colour component has no data"));
        }
        let mut clean = vec![0xff, SOI];
        if self.jfif {
            clean.extend_from_slice(b"\xff\xe0\0\x10JFIF\0\x01\x02\0\0\x01\0\x01\0\0");
        }
        if let Some(transform) = self.adobe_transform {
            let transform = match (frame.components.len(), transform) {
                (_, 0) => 0,
                (4, _) => 2,
                _ => 1,
            };
            clean.extend_from_slice(b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0");
            clean.push(transform);
        }
        clean.extend_from_slice(&self.body);
        clean.extend_from_slice(&[0xff, EOI]);
        Ok(Stream {
            frame,
            clean,
            exif: self.exif,
            profile: self.profile.assembled(),
            adobe: self.adobe_transform.is_some(),
            ended: self.ended,
        })
    }
}

fn frame(marker: u8, payload: &[u8], limits: &Limits) -> Result<Frame, Problem> {
    let unsupported = |what: &str| {
        let detail = format!("the JPEG is of a kind that is not taken in: {what}");
        Err(Problem::new(ProblemCode::UnsupportedFormat, detail))
    };
    // Huffman-coded baseline, extended and progressive: what browsers show.
    if !(0xc0..=0xc2).contains(&marker) {
        return unsupported("lossless, hierarchical or arithmetic coding");
    }
    let [precision, h1, h0, w1, w0, count, rest @ ..] = payload else {
        return Err(corrupt("the JPEG is damaged: its frame header is too short"));
    };
    if *precision != 8 {
        return unsupported("not 8 bits a sample");
    }
    let (width_px, height_px) =
        (u32::from(u16::from_be_bytes([*w1, *w0])), u32::from(u16::from_be_bytes([*h1, *h0])));
    limits.check_size(width_px, height_px)?;
    let components: Vec<u8> = rest.chunks_exact(3).take(usize::from(*count)).map(|spec| spec[0]).collect();
    if components.len() != usize::from(*count) {
        return Err(corrupt("the JPEG is damaged: its frame header is too short"));
    }
    if !matches!(components.len(), 1 | 3 | 4) {
        return unsupported("neither grey, nor colour, nor CMYK");
    }
    Ok(Frame { width_px, height_px, components, progressive: marker == 0xc2 })
}

/// An ICC profile, in up to 255 numbered pieces.
#[derive(Default)]
struct Profile<'a> {
    pieces: Vec<(u8, u8, &'a [u8])>,
}

impl<'a> Profile<'a> {
    fn take(&mut self, payload: &'a [u8]) {
        if let Some([number, count, data @ ..]) = payload.strip_prefix(b"ICC_PROFILE\0") {
            self.pieces.push((*number, *count, data));
        }
    }

    /// `None` unless every piece is there once: a broken profile is none.
    fn assembled(mut self) -> Option<Vec<u8>> {
        self.pieces.sort_by_key(|piece| piece.0);
        let count = usize::from(self.pieces.first()?.1);
        let whole = self.pieces.len() == count
            && self.pieces.iter().enumerate().all(|(index, piece)| usize::from(piece.0) == index + 1);
        let bytes: usize = self.pieces.iter().map(|piece| piece.2.len()).sum();
        (whole && bytes <= PROFILE_BYTES_MAX)
            .then(|| self.pieces.iter().flat_map(|piece| piece.2.iter().copied()).collect())
    }
}
