//! A file as its owner sees it (R-D1). Every member is always there; what does not apply is null.

use std::collections::BTreeMap;

use cards::{
    Card, CardId, Derivative, DerivativeName, Facts, Keep, MediaType, Problem, Sha256, State, StateName,
    TicketMethod, Timestamp, timing,
};
use serde::Serialize;
use serde_json::{Value, json};
use store::history::Entry;

use crate::ApiSettings;
use crate::paths::Paths;

/// One file.
#[derive(Debug, Serialize)]
pub(crate) struct FileView {
    id: CardId,
    state: StateName,
    revision: i64,
    filename: String,
    size: u64,
    content_type: MediaType,
    keep: Keep,
    /// Why versions were refused so far, or why the file was.
    problem: Option<Problem>,
    /// What was found in the bytes; of a duplicate too.
    facts: Option<Facts>,
    /// The digest of the bytes read; before that, the announced one is not repeated here.
    sha256: Option<Sha256>,
    derivatives: Vec<DerivativeView>,
    ticket: TicketTimes,
    original: Option<OriginalView>,
    /// Whether it waits for an operator (R-C7).
    parked: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    ready_at: Option<Timestamp>,
    /// The file that this one takes the place of once it is ready (R-F1).
    replaces: Option<CardId>,
    deletion: Option<DeletionView>,
    links: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct DerivativeView {
    name: DerivativeName,
    content_type: String,
    width_px: u32,
    height_px: u32,
    size: u64,
    link: String,
}

#[derive(Debug, Serialize)]
struct TicketTimes {
    method: TicketMethod,
    ends_at: Timestamp,
    /// Until when it can be renewed; null once that makes no sense.
    renewable_until: Option<Timestamp>,
}

/// Asked for is not done: each has its time (R-E4).
#[derive(Debug, Serialize)]
struct DeletionView {
    requested_at: Option<Timestamp>,
    /// Nothing is removed before this.
    delete_after: Timestamp,
    /// When the bytes were recorded as gone; null until then.
    deleted_at: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
struct OriginalView {
    id: CardId,
    link: String,
}

/// One file with what happened to it.
#[derive(Debug, Serialize)]
pub(crate) struct FileWithTimeline {
    #[serde(flatten)]
    file: FileView,
    timeline: Vec<EntryView>,
}

#[derive(Debug, Serialize)]
struct EntryView {
    id: i64,
    at: Timestamp,
    event: String,
    state: String,
    revision: i64,
    detail: Value,
}

impl FileView {
    /// The view of a card. `original` is what a duplicate stands for, where it was read: its derivatives are shown.
    pub(crate) fn new(settings: &ApiSettings, card: Card, original: Option<&Card>) -> Self {
        let paths = Paths::new(settings, card.id);
        let served = if matches!(card.state, State::Duplicate { .. }) { original } else { Some(&card) };
        let served = served.filter(|card| matches!(card.state, State::Ready { .. }));
        let derivatives: Vec<DerivativeView> = served
            .map(|card| {
                card.derivatives.iter().map(|derivative| derivative_view(&paths, derivative)).collect()
            })
            .unwrap_or_default();
        let is_pending = card.state.name() == StateName::Pending;
        let mut links = BTreeMap::from([("self", paths.this())]);
        if is_pending {
            links.insert("confirm", paths.confirm());
            links.insert("ticket", paths.ticket());
        }
        if served.is_some() {
            links.insert("download", paths.download());
        }
        for derivative in &derivatives {
            links.insert(derivative.name.as_str(), derivative.link.clone());
        }
        let (original, sha256, ready_at, deletion) = match &card.state {
            State::Ready { object, .. } => (None, Some(object.sha256), Some(object.ready_at), None),
            State::Duplicate { original: id } => {
                let link = Paths::new(settings, *id).this();
                links.insert("original", link.clone());
                (Some(OriginalView { id: *id, link }), original.and_then(digest), None, None)
            }
            State::Deleting { delete_after } => {
                (None, None, None, Some(deletion_view(&card, *delete_after, None)))
            }
            State::Deleted { delete_after } => {
                links.insert("receipt", paths.below("receipt"));
                // The move to `deleted` is the last one there is.
                (None, None, None, Some(deletion_view(&card, *delete_after, Some(card.updated_at))))
            }
            State::Pending { .. }
            | State::Queued { .. }
            | State::Processing { .. }
            | State::Rejected { .. }
            | State::Expired => (None, None, None, None),
        };
        Self {
            id: card.id,
            state: card.state.name(),
            revision: card.revision,
            filename: card.filename,
            size: card.announced.size.get(),
            content_type: card.announced.media_type,
            keep: card.keep,
            problem: card.problem,
            facts: card.facts,
            sha256,
            derivatives,
            ticket: TicketTimes {
                method: card.ticket.method,
                ends_at: card.ticket.ends_at,
                renewable_until: is_pending.then(|| card.created_at + timing::RENEWAL_WINDOW),
            },
            original,
            parked: card.parked.is_some(),
            created_at: card.created_at,
            updated_at: card.updated_at,
            ready_at,
            replaces: card.replaces,
            deletion,
            links,
        }
    }

    pub(crate) fn with_timeline(self, entries: Vec<Entry>) -> FileWithTimeline {
        FileWithTimeline { file: self, timeline: entries.into_iter().map(entry_view).collect() }
    }
}

fn deletion_view(card: &Card, delete_after: Timestamp, deleted_at: Option<Timestamp>) -> DeletionView {
    DeletionView { requested_at: card.delete_requested_at, delete_after, deleted_at }
}

fn digest(card: &Card) -> Option<Sha256> {
    match &card.state {
        State::Ready { object, .. } => Some(object.sha256),
        State::Pending { .. }
        | State::Queued { .. }
        | State::Processing { .. }
        | State::Duplicate { .. }
        | State::Rejected { .. }
        | State::Expired
        | State::Deleting { .. }
        | State::Deleted { .. } => None,
    }
}

fn derivative_view(paths: &Paths, derivative: &Derivative) -> DerivativeView {
    DerivativeView {
        name: derivative.name,
        content_type: derivative.content_type.clone(),
        width_px: derivative.width_px,
        height_px: derivative.height_px,
        size: derivative.size_bytes,
        link: paths.below(derivative.name.as_str()),
    }
}

fn entry_view(entry: Entry) -> EntryView {
    EntryView {
        id: entry.id,
        at: entry.at,
        // Why a message was dead-lettered is written for operators: it can name hosts and queues.
        detail: if entry.event == "parked" { json!({}) } else { entry.detail },
        event: entry.event,
        state: entry.state,
        revision: entry.revision,
    }
}
