//! The demo's files, made by code and the same each time: good ones, and bad ones with the reason they are refused for.
//!
//! Out: [`chains`]. Files of one chain are uploaded one after the other (a duplicate needs its original first), chains
//! run beside each other. An error means that an encoder refused, which no setting or server can cause.

use anyhow::Context as _;
use bytes::Bytes;
use cards::{MediaType, ProblemCode, StateName, TicketMethod};

use super::{documents, picture};

/// The quality a phone's camera saves with.
const PHOTO_QUALITY: i32 = 88;

/// One file, and how it must end.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The name it is uploaded under.
    pub(crate) name: &'static str,
    /// The announced type; not always the true one.
    pub(crate) media_type: MediaType,
    /// The form of ticket that is asked for.
    pub(crate) method: TicketMethod,
    /// The bytes.
    pub(crate) bytes: Bytes,
    /// The state it must end in.
    pub(crate) expected: StateName,
    /// The reason it must be refused for.
    pub(crate) reason: Option<ProblemCode>,
    /// The thumbnail's sides in pixels, where there must be one.
    pub(crate) thumb_px: Option<(u32, u32)>,
}

impl Sample {
    fn ready(name: &'static str, media_type: MediaType, bytes: Vec<u8>) -> Self {
        Self {
            name,
            media_type,
            method: TicketMethod::Post,
            bytes: bytes.into(),
            expected: StateName::Ready,
            reason: None,
            thumb_px: None,
        }
    }

    /// Every picture is 4 to 3: its thumbnail is as large as one may be (R-C4), lying or standing.
    fn with_thumb(self, width_px: u32, height_px: u32) -> Self {
        Self { thumb_px: Some((width_px, height_px)), ..self }
    }

    fn refused(name: &'static str, media_type: MediaType, bytes: Vec<u8>, reason: ProblemCode) -> Self {
        Self { expected: StateName::Rejected, reason: Some(reason), ..Self::ready(name, media_type, bytes) }
    }
}

/// All of them. CPU work of some seconds in a debug build: call it off the async threads.
pub(super) fn chains() -> anyhow::Result<Vec<Vec<Sample>>> {
    let photo = picture::turned(&picture::jpeg(4000, 3000, PHOTO_QUALITY, 1)?)
        .context("the photo has no place for its orientation")?;
    let alpha = picture::png_with_alpha(800, 600)?;
    let again = Sample {
        expected: StateName::Duplicate,
        ..Sample::ready("alpha-again.png", MediaType::Png, alpha.clone())
    };
    let small = picture::jpeg(1200, 900, PHOTO_QUALITY, 2)?;
    let mut cut = picture::jpeg(800, 600, PHOTO_QUALITY, 3)?;
    cut.truncate(cut.len() * 3 / 5);
    let text = documents::many_scripts();
    let singles = [
        // Saved lying with the note "turn me" (EXIF orientation 6), as phones do: its thumbnail stands.
        Sample::ready("photo-12mp.jpg", MediaType::Jpeg, photo).with_thumb(192, 256),
        Sample::ready("picture.webp", MediaType::Webp, picture::webp(1024, 768)?).with_thumb(256, 192),
        Sample::ready("письмо-xat-手紙.txt", MediaType::Text, text.into_bytes()),
        Sample::ready("three-pages.pdf", MediaType::Pdf, documents::pdf(3, false)),
        Sample {
            method: TicketMethod::Put,
            ..Sample::ready("by-put.jpg", MediaType::Jpeg, small).with_thumb(256, 192)
        },
        Sample::refused("cut-off.jpg", MediaType::Jpeg, cut, ProblemCode::Truncated),
        Sample::refused(
            "png-in-disguise.jpg",
            MediaType::Jpeg,
            picture::png_with_alpha(320, 240)?,
            ProblemCode::TypeMismatch,
        ),
        Sample::refused(
            "with-a-nul.txt",
            MediaType::Text,
            b"before\0after\n".to_vec(),
            ProblemCode::TextInvalid,
        ),
        Sample::refused("locked.pdf", MediaType::Pdf, documents::pdf(1, true), ProblemCode::PdfEncrypted),
    ];
    let mut chains: Vec<_> = singles.into_iter().map(|sample| vec![sample]).collect();
    let original = Sample::ready("alpha.png", MediaType::Png, alpha).with_thumb(256, 192);
    // Second, right behind the photo: the longest chain begins early.
    chains.insert(1, vec![original, again]);
    Ok(chains)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use cards::ByteCount;

    use super::*;

    static SAMPLES: LazyLock<Vec<Sample>> =
        LazyLock::new(|| chains().unwrap().into_iter().flatten().collect());

    fn sample(name: &str) -> Sample {
        SAMPLES.iter().find(|sample| sample.name == name).unwrap().clone()
    }

    #[test]
    fn every_sample_fits_a_ticket_and_is_the_same_each_time() {
        let second: Vec<_> = chains().unwrap().into_iter().flatten().collect();
        for (sample, again) in SAMPLES.iter().zip(&second) {
            assert!(ByteCount::new(sample.bytes.len() as u64).is_ok(), "{}", sample.name);
            assert_eq!(sample.bytes, again.bytes, "{}", sample.name);
            assert_eq!(sample.reason.is_some(), sample.expected == StateName::Rejected, "{}", sample.name);
        }
        assert_eq!(SAMPLES.len(), 11);
    }

    #[test]
    fn only_the_duplicate_has_the_bytes_of_another_sample() {
        for (at, sample) in SAMPLES.iter().enumerate() {
            let is_again = SAMPLES[..at].iter().any(|earlier| earlier.bytes == sample.bytes);
            assert_eq!(is_again, sample.expected == StateName::Duplicate, "{}", sample.name);
        }
    }

    #[test]
    fn the_photo_has_twelve_megapixels_the_weight_of_one_and_lies_on_its_side() {
        let photo = sample("photo-12mp.jpg");
        let pixels = turbojpeg::decompress(&photo.bytes, turbojpeg::PixelFormat::RGB).unwrap();
        assert_eq!((pixels.width, pixels.height), (4000, 3000));
        // Real ones have 3 to 8 MB; a gradient alone would have 0.3.
        assert!((2_500_000..=9_000_000).contains(&photo.bytes.len()), "{} bytes", photo.bytes.len());
        let exif = photo.bytes.windows(6).position(|window| window == b"Exif\0\0").unwrap();
        assert_eq!(photo.bytes[exif - 4..exif - 2], [0xff, 0xe1]);
        assert_eq!(photo.bytes[exif + 24..exif + 26], [0, 6], "orientation");
    }

    #[test]
    fn pictures_decode_to_four_by_three() {
        for name in ["by-put.jpg", "photo-12mp.jpg"] {
            let header = turbojpeg::read_header(&sample(name).bytes).unwrap();
            assert_eq!(header.width * 3, header.height * 4, "{name}");
        }
        let webp = webp::Decoder::new(&sample("picture.webp").bytes).decode().unwrap();
        assert_eq!((webp.width(), webp.height()), (1024, 768));
        let png = sample("alpha.png").bytes;
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png[..])).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (800, 600, png::ColorType::Rgba));
        assert!(pixels.chunks_exact(4).any(|pixel| pixel[3] == 0), "nothing is transparent");
        assert!(pixels.chunks_exact(4).any(|pixel| pixel[3] == 255), "nothing is opaque");
    }

    #[test]
    fn the_bad_ones_are_bad_in_the_announced_way() {
        let cut = sample("cut-off.jpg").bytes;
        assert!(cut.starts_with(b"\xff\xd8\xff") && !cut.ends_with(b"\xff\xd9"));
        assert!(sample("png-in-disguise.jpg").bytes.starts_with(b"\x89PNG"));
        let nul = sample("with-a-nul.txt").bytes;
        assert!(std::str::from_utf8(&nul).is_ok() && nul.contains(&0));
        let text = sample("письмо-xat-手紙.txt").bytes;
        assert!(std::str::from_utf8(&text).is_ok() && !text.contains(&0));
    }
}
