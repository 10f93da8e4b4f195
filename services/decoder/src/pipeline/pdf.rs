//! PDF: its structure is read, its pages are counted, nothing of it is run or drawn (R-C2).
//!
//! Read leniently where viewers are lenient too (an offset a few bytes off), but a file whose cross-reference table
//! had to be rebuilt by guessing, an object in use that can't be parsed (nested too deep among them), or a page tree
//! that runs in circles is damaged: what a viewer would show of it is anybody's guess. Encrypted files are refused
//! even where the empty password opens them.

use std::collections::HashSet;

use cards::{Problem, ProblemCode};
use lopdf::xref::{XrefEntry, XrefRecovery};
use lopdf::{DecompressError, Dictionary, Document, Error, LoadOptions, Object, ObjectId};

use super::{corrupt, too_much, truncated};

/// What one stream of objects may inflate to. Real ones hold some hundred objects.
const STREAM_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Deepest page tree. Writers balance theirs to five or six levels.
const TREE_DEPTH_MAX: usize = 64;
/// `%%EOF` stands within this many bytes of the end (PDF 1.7, implementation note 18).
const EOF_WINDOW_BYTES: usize = 1024;

/// Counts the pages of a sound, unencrypted PDF.
pub(super) fn count_pages(bytes: &[u8]) -> Result<u32, Problem> {
    let options = LoadOptions::with_max_decompressed_size(STREAM_BYTES_MAX);
    let document = Document::load_mem_with_options(bytes, options).map_err(|error| problem(&error, bytes))?;
    // lopdf sees an indirect `/Encrypt` only; a dictionary that stands in the trailer itself encrypts all the same.
    if document.is_encrypted() || document.was_encrypted() || document.trailer.has(b"Encrypt") {
        return Err(encrypted());
    }
    if document.xref_recovery == Some(XrefRecovery::Reconstructed) {
        return Err(broken(bytes, "its cross-reference table is broken"));
    }
    for (number, entry) in &document.reference_table.entries {
        // Generations are at most 65,535; one range covers them all.
        let loaded = document.objects.range((*number, 0)..=(*number, u16::MAX)).next().is_some();
        if in_use(entry) && !loaded {
            return Err(broken(bytes, &format!("its object {number} can't be parsed")));
        }
    }
    let root = document
        .catalog()
        .and_then(|catalog| catalog.get(b"Pages"))
        .and_then(Object::as_reference)
        .map_err(|_| broken(bytes, "it has no page tree"))?;
    let pages = walk(&document, root)?;
    if pages == 0 { Err(broken(bytes, "it has no pages")) } else { Ok(pages) }
}

/// Counts leaves from the root, each node at most once.
fn walk(document: &Document, root: ObjectId) -> Result<u32, Problem> {
    let mut seen = HashSet::from([root]);
    let mut open = vec![(root, 0)];
    let mut pages: u32 = 0;
    while let Some((id, depth)) = open.pop() {
        let node = document
            .get_dictionary(id)
            .map_err(|_| corrupt(format!("the PDF is damaged: page tree node {} is missing", id.0)))?;
        let Some(kids) = kids(document, node)? else {
            pages = pages.saturating_add(1);
            continue;
        };
        if depth == TREE_DEPTH_MAX {
            return Err(too_much(format!("the page tree of the PDF is deeper than {TREE_DEPTH_MAX} levels")));
        }
        for kid in kids {
            let kid = kid
                .as_reference()
                .map_err(|_| corrupt("the PDF is damaged: a page is not an object of its own"))?;
            if !seen.insert(kid) {
                return Err(corrupt("the PDF is damaged: its page tree runs in circles"));
            }
            open.push((kid, depth + 1));
        }
    }
    Ok(pages)
}

/// The children of an inner node; `None` for a page.
fn kids<'a>(document: &'a Document, node: &'a Dictionary) -> Result<Option<&'a [Object]>, Problem> {
    let Ok(kids) = node.get(b"Kids") else { return Ok(None) };
    let (_, kids) =
        document.dereference(kids).map_err(|_| corrupt("the PDF is damaged: its page tree has a gap"))?;
    match kids.as_array() {
        Ok(kids) => Ok(Some(kids)),
        Err(_) => Err(corrupt("the PDF is damaged: its page tree has a gap")),
    }
}

fn in_use(entry: &XrefEntry) -> bool {
    match entry {
        // Some writers mark unused numbers as in use at offset 0, where the header is.
        XrefEntry::Normal { offset, .. } => *offset != 0,
        XrefEntry::Compressed { .. } => true,
        XrefEntry::Free | XrefEntry::UnusableFree => false,
    }
}

fn encrypted() -> Problem {
    Problem::new(ProblemCode::PdfEncrypted, "the PDF is encrypted; upload it without a password")
}

/// A file that lacks its end is cut; with it, damaged.
fn broken(bytes: &[u8], what: &str) -> Problem {
    let tail = &bytes[bytes.len().saturating_sub(EOF_WINDOW_BYTES)..];
    if tail.windows(5).any(|window| window == b"%%EOF") {
        corrupt(format!("the PDF is damaged: {what}"))
    } else {
        truncated("the PDF ends too early: its last lines are missing")
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "forty variants of a foreign enum mean one thing: damage")]
fn problem(error: &Error, bytes: &[u8]) -> Problem {
    match error {
        Error::InvalidPassword
        | Error::Decryption(_)
        | Error::UnsupportedSecurityHandler(_)
        | Error::AlreadyEncrypted => encrypted(),
        Error::Decompress(
            DecompressError::MemoryLimitExceeded { .. } | DecompressError::TooManyFilters { .. },
        )
        | Error::RecursionLimit
        | Error::ReferenceLimit => too_much(format!("the PDF asks for too much: {error}")),
        _ => broken(bytes, &error.to_string()),
    }
}
