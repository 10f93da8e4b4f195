//! What parent and child say to each other: two fixed binary messages, numbers big-endian.
//!
//! ```text
//! request  "ArkQ" version  type format  pixels_max side_px_max frames_max frame_pixels_max memory output_max
//!          file length (8), file
//! answer   "ArkA" version  0  code (1)  length (2), detail
//!          "ArkA" version  1  type  width height frames pages (4 each, 0: none)  count (1)
//!                             and for each derivative: name format width height length (4), bytes
//! ```
//!
//! The parent reads the answer as if the file had taken the child over: every length is checked against what is left,
//! every number against what the file can have, nothing may follow. A wrong version is told apart from nonsense,
//! because a program that was replaced under a running parent must not get good files rejected.

use cards::size::OBJECT_BYTES_MAX;
use cards::{DerivativeName, Facts, MediaType, Problem, ProblemCode};

use crate::pipeline::{Decoded, DerivativeFormat, DerivedImage, Limits, Options};

/// Both messages; to be raised with every change of either.
const VERSION: u8 = 1;
const REQUEST_MAGIC: &[u8] = b"ArkQ";
const ANSWER_MAGIC: &[u8] = b"ArkA";
/// Everything in a request but the file.
const REQUEST_HEADER_BYTES: u64 = 55;
/// The longest request.
pub const REQUEST_BYTES_MAX: u64 = REQUEST_HEADER_BYTES + OBJECT_BYTES_MAX;

/// A message that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It does not begin like a message of this version.
    #[error("the message is of another version")]
    OtherVersion,
    /// It begins well and then makes no sense.
    #[error("the message makes no sense: {0}")]
    Malformed(&'static str),
}

/// What the child is asked.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The announced type.
    pub announced: MediaType,
    /// How to decode. Times stay with the parent and are the defaults here.
    pub options: Options,
    /// The file.
    pub file: &'a [u8],
}

/// The beginning of a request; the file follows it. `None` for a file no card can have.
pub fn request_header(announced: MediaType, file_bytes: usize, options: &Options) -> Option<Vec<u8>> {
    let file_bytes = u64::try_from(file_bytes).ok().filter(|bytes| *bytes <= OBJECT_BYTES_MAX)?;
    let limits = &options.limits;
    let mut message = REQUEST_MAGIC.to_vec();
    message.extend([VERSION, position(&MediaType::ALL, announced), format_code(options.derivative_format)]);
    message.extend(limits.pixels_max.to_be_bytes());
    message.extend(limits.side_px_max.to_be_bytes());
    message.extend(limits.frames_max.to_be_bytes());
    message.extend(limits.frame_pixels_max.to_be_bytes());
    message.extend(limits.memory_bytes.to_be_bytes());
    message.extend(limits.output_bytes_max.to_be_bytes());
    message.extend(file_bytes.to_be_bytes());
    Some(message)
}

/// Reads a request.
pub fn read_request(message: &[u8]) -> Result<Request<'_>, WireError> {
    let mut rest = Rest::after(message, REQUEST_MAGIC)?;
    let announced = rest.one_of(&MediaType::ALL)?;
    let derivative_format = rest.format()?;
    let limits = Limits {
        pixels_max: rest.u64()?,
        side_px_max: rest.u32()?,
        frames_max: rest.u32()?,
        frame_pixels_max: rest.u64()?,
        memory_bytes: rest.u64()?,
        output_bytes_max: rest.u64()?,
        ..Limits::default()
    };
    let length = rest.u64()?;
    let file = rest.bytes(usize::try_from(length).map_err(|_| WireError::Malformed("length"))?)?;
    rest.end()?;
    Ok(Request { announced, options: Options { derivative_format, limits }, file })
}

/// Writes an answer.
pub fn answer(decoded: &Result<Decoded, Problem>) -> Vec<u8> {
    let mut message = ANSWER_MAGIC.to_vec();
    message.push(VERSION);
    match decoded {
        Err(problem) => {
            message.extend([0, position(&ProblemCode::ALL, problem.code)]);
            // At most `DETAIL_BYTES_MAX`.
            let length = u16::try_from(problem.detail.len()).unwrap_or(u16::MAX);
            message.extend(length.to_be_bytes());
            message.extend(problem.detail.as_bytes());
        }
        Ok(decoded) => {
            message.extend([1, position(&MediaType::ALL, decoded.facts.media_type)]);
            let Facts { media_type: _, width_px, height_px, frames, pages } = decoded.facts;
            for number in [width_px, height_px, frames, pages] {
                message.extend(number.unwrap_or(0).to_be_bytes());
            }
            message.push(u8::try_from(decoded.derivatives.len()).unwrap_or(u8::MAX));
            for derived in &decoded.derivatives {
                let jpeg = derived.content_type == DerivativeFormat::Jpeg.content_type();
                let format = if jpeg { DerivativeFormat::Jpeg } else { DerivativeFormat::Webp };
                message.extend([position(&DerivativeName::ALL, derived.name), format_code(format)]);
                message.extend(derived.width_px.to_be_bytes());
                message.extend(derived.height_px.to_be_bytes());
                message.extend(u32::try_from(derived.bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
                message.extend(&derived.bytes);
            }
        }
    }
    message
}

/// Reads an answer to a request for a file of this type.
pub fn read_answer(
    message: &[u8],
    announced: MediaType,
    options: &Options,
) -> Result<Result<Decoded, Problem>, WireError> {
    let mut rest = Rest::after(message, ANSWER_MAGIC)?;
    let outcome = match rest.u8()? {
        0 => Err(problem(&mut rest)?),
        1 => Ok(decoded(&mut rest, announced, options)?),
        _ => return Err(WireError::Malformed("outcome")),
    };
    rest.end()?;
    Ok(outcome)
}

fn problem(rest: &mut Rest<'_>) -> Result<Problem, WireError> {
    let code = rest.one_of(&ProblemCode::ALL)?;
    match code {
        ProblemCode::TypeMismatch
        | ProblemCode::UnsupportedFormat
        | ProblemCode::Truncated
        | ProblemCode::Corrupt
        | ProblemCode::TooManyPixels
        | ProblemCode::LimitExceeded
        | ProblemCode::PdfEncrypted
        | ProblemCode::TextInvalid => {}
        // Found by others, never by decoding.
        ProblemCode::ChecksumMismatch | ProblemCode::MetadataMismatch => {
            return Err(WireError::Malformed("problem code"));
        }
    }
    let length = rest.u16()?;
    let detail = std::str::from_utf8(rest.bytes(usize::from(length))?)
        .map_err(|_| WireError::Malformed("problem detail"))?;
    Ok(Problem::new(code, detail))
}

fn decoded(rest: &mut Rest<'_>, announced: MediaType, options: &Options) -> Result<Decoded, WireError> {
    if rest.one_of(&MediaType::ALL)? != announced {
        return Err(WireError::Malformed("type"));
    }
    let mut number = || rest.u32().map(|number| (number != 0).then_some(number));
    let facts = Facts {
        media_type: announced,
        width_px: number()?,
        height_px: number()?,
        frames: number()?,
        pages: number()?,
    };
    check_facts(&facts, &options.limits)?;
    let expected = if announced.is_image() { DerivativeName::ALL.as_slice() } else { &[] };
    if usize::from(rest.u8()?) != expected.len() {
        return Err(WireError::Malformed("number of derivatives"));
    }
    let derivatives = expected
        .iter()
        .map(|name| derivative(rest, *name, options.derivative_format))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Decoded { facts, derivatives })
}

fn check_facts(facts: &Facts, limits: &Limits) -> Result<(), WireError> {
    let image = facts.media_type.is_image();
    let sound = match (facts.width_px, facts.height_px, facts.frames) {
        (Some(width_px), Some(height_px), Some(frames)) => {
            image
                && width_px.max(height_px) <= limits.side_px_max
                && u64::from(width_px) * u64::from(height_px) <= limits.pixels_max
                && frames <= limits.frames_max
        }
        (None, None, None) => !image,
        _ => false,
    };
    let paged = facts.pages.is_some() == (facts.media_type == MediaType::Pdf);
    if sound && paged { Ok(()) } else { Err(WireError::Malformed("facts")) }
}

fn derivative(
    rest: &mut Rest<'_>,
    name: DerivativeName,
    format: DerivativeFormat,
) -> Result<DerivedImage, WireError> {
    if rest.one_of(&DerivativeName::ALL)? != name || rest.format()? != format {
        return Err(WireError::Malformed("kind of derivative"));
    }
    let (width_px, height_px, length) = (rest.u32()?, rest.u32()?, rest.u32()?);
    if !(1..=name.side_px_max()).contains(&width_px) || !(1..=name.side_px_max()).contains(&height_px) {
        return Err(WireError::Malformed("size of derivative"));
    }
    let bytes = rest.bytes(usize::try_from(length).map_err(|_| WireError::Malformed("length"))?)?;
    let begins_right = match format {
        DerivativeFormat::Webp => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP".as_slice()),
        DerivativeFormat::Jpeg => bytes.starts_with(b"\xff\xd8\xff"),
    };
    if !begins_right {
        return Err(WireError::Malformed("format of derivative"));
    }
    Ok(DerivedImage { name, content_type: format.content_type(), width_px, height_px, bytes: bytes.to_vec() })
}

/// Codes are positions in the `ALL` of each enum: both sides are built from the same source.
fn position<T: PartialEq + Copy>(all: &[T], one: T) -> u8 {
    all.iter().position(|candidate| *candidate == one).and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

fn format_code(format: DerivativeFormat) -> u8 {
    match format {
        DerivativeFormat::Webp => 0,
        DerivativeFormat::Jpeg => 1,
    }
}

/// What is left of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn after(message: &'a [u8], magic: &[u8]) -> Result<Self, WireError> {
        match message.strip_prefix(magic).and_then(<[u8]>::split_first) {
            Some((&VERSION, rest)) => Ok(Self(rest)),
            Some(_) | None => Err(WireError::OtherVersion),
        }
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError::Malformed("too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.bytes(N)?.try_into().map_err(|_| WireError::Malformed("too short"))
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Result<T, WireError> {
        all.get(usize::from(self.u8()?)).copied().ok_or(WireError::Malformed("unknown code"))
    }

    fn format(&mut self) -> Result<DerivativeFormat, WireError> {
        self.one_of(&[DerivativeFormat::Webp, DerivativeFormat::Jpeg])
    }

    fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Malformed("something follows")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Decoded {
        let derived = |name, side: u32| DerivedImage {
            name,
            content_type: "image/webp",
            width_px: side,
            height_px: 1,
            bytes: b"RIFF\0\0\0\0WEBPpicture".to_vec(),
        };
        Decoded {
            facts: Facts {
                media_type: MediaType::Png,
                width_px: Some(1600),
                height_px: Some(1),
                frames: Some(1),
                pages: None,
            },
            derivatives: vec![derived(DerivativeName::Thumb, 256), derived(DerivativeName::Preview, 1600)],
        }
    }

    fn read(message: &[u8]) -> Result<Result<Decoded, Problem>, WireError> {
        read_answer(message, MediaType::Png, &Options::default())
    }

    #[test]
    fn a_request_reads_back() {
        let options = Options {
            derivative_format: DerivativeFormat::Jpeg,
            limits: Limits { pixels_max: 1, side_px_max: 2, frames_max: 3, ..Limits::default() },
        };
        let mut message = request_header(MediaType::Gif, 5, &options).unwrap();
        assert_eq!(u64::try_from(message.len()).unwrap(), REQUEST_HEADER_BYTES);
        message.extend(b"GIF89");
        let request = Request { announced: MediaType::Gif, options: options.clone(), file: b"GIF89" };
        assert_eq!(read_request(&message), Ok(request));
        assert!(read_request(&message[..message.len() - 1]).is_err());
        assert!(read_request(&[&message[..], b"!"].concat()).is_err());
        assert!(request_header(MediaType::Gif, usize::MAX, &options).is_none());
    }

    #[test]
    fn answers_read_back() {
        for outcome in [
            Ok(ready()),
            Err(Problem::new(ProblemCode::Truncated, "über")),
            Err(Problem::new(ProblemCode::Corrupt, "")),
        ] {
            assert_eq!(read(&answer(&outcome)), Ok(outcome));
        }
    }

    #[test]
    fn a_cut_a_longer_and_a_foreign_answer_are_refused() {
        for outcome in [Ok(ready()), Err(Problem::new(ProblemCode::Truncated, "cut"))] {
            let message = answer(&outcome);
            for end in 0..message.len() {
                let expected =
                    if end < 5 { WireError::OtherVersion } else { WireError::Malformed("too short") };
                assert_eq!(read(&message[..end]), Err(expected), "{end}");
            }
            assert_eq!(read(&[&message[..], b"!"].concat()), Err(WireError::Malformed("something follows")));
            let mut older = message.clone();
            older[4] = 0;
            assert_eq!(read(&older), Err(WireError::OtherVersion));
        }
    }

    #[test]
    fn an_answer_that_no_sound_child_gives_is_refused() {
        let breaks: [fn(&mut Decoded); 10] = [
            |decoded| decoded.facts.media_type = MediaType::Jpeg,
            |decoded| decoded.facts.width_px = None,
            |decoded| decoded.facts.width_px = Some(u32::MAX),
            |decoded| decoded.facts.frames = Some(u32::MAX),
            |decoded| decoded.facts.pages = Some(1),
            |decoded| decoded.derivatives.truncate(1),
            |decoded| decoded.derivatives.reverse(),
            |decoded| decoded.derivatives[0].width_px = 257,
            |decoded| decoded.derivatives[0].content_type = "image/jpeg",
            |decoded| decoded.derivatives[1].bytes = b"<script>".to_vec(),
        ];
        for (index, spoil) in breaks.into_iter().enumerate() {
            let mut decoded = ready();
            spoil(&mut decoded);
            assert!(matches!(read(&answer(&Ok(decoded))), Err(WireError::Malformed(_))), "{index}");
        }
        let foreign = answer(&Err(Problem::new(ProblemCode::ChecksumMismatch, "no")));
        assert_eq!(read(&foreign), Err(WireError::Malformed("problem code")));
    }

    #[test]
    fn random_answers_never_panic() {
        let sound = answer(&Ok(ready()));
        let mut state = 1_u32;
        for _ in 0..20_000 {
            let mut message = sound.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = usize::try_from(state >> 8).unwrap() % message.len();
                message[at] = state.to_be_bytes()[0];
            }
            let _ = read(&message);
        }
    }
}
