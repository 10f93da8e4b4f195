//! A deletion receipt as a table for people (R-E5). As JSON it is `store::purge::Receipt` itself.

use comfy_table::{CellAlignment, Table, presets};
use store::purge::{RECEIPT_LINES_MAX, Receipt};

/// The receipt in words and a table.
pub fn render(receipt: &Receipt) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_header(["key", "version", "bytes", "stored", "listed"]);
    for removed in &receipt.removed {
        let version = if removed.is_delete_marker {
            format!("{} (marker)", removed.version)
        } else {
            removed.version.clone()
        };
        table.add_row([
            removed.key.clone(),
            version,
            removed.size_bytes.to_string(),
            seconds(removed.last_modified),
            seconds(removed.listed_at),
        ]);
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let cut = if i64::try_from(receipt.removed.len()).is_ok_and(|lines| lines >= RECEIPT_LINES_MAX) {
        format!("\nonly the first {RECEIPT_LINES_MAX} are shown; all are in the table removals")
    } else {
        String::new()
    };
    format!(
        "file {}\n  deletion requested  {}\n  nothing removed before  {}\n  removed  {} versions, {} bytes\n  \
         proved by a listing of all its keys, begun {}, that came back empty\n  recorded  {}\n{table}{cut}",
        receipt.card,
        seconds(receipt.requested_at),
        seconds(receipt.delete_after),
        receipt.versions_removed,
        receipt.bytes_removed,
        seconds(receipt.proved_at),
        seconds(receipt.deleted_at),
    )
}

/// A time in whole seconds, UTC.
fn seconds(at: cards::Timestamp) -> String {
    at.format("%Y-%m-%d %H:%M:%SZ").to_string()
}
