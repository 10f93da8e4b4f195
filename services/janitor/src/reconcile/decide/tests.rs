//! Every standing, every edge of a range, every verdict.

use cards::card::{Announced, Keep, Ticket, TicketMethod};
use cards::{
    ByteCount, Derivative, DerivativeName, ETag, Ids, LeaseToken, MediaType, ObjectFacts, Problem,
    ProblemCode, Sha256, State,
};
use store::reconcile::Identity;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
}

fn version(text: &str) -> VersionId {
    VersionId::parse(text).unwrap()
}

fn token() -> LeaseToken {
    LeaseToken("00000000-0000-4000-8000-000000000001".parse().unwrap())
}

fn card(id: CardId, state: State) -> Card {
    Card {
        id,
        owner: Ids.owner(),
        filename: "a.jpg".to_owned(),
        announced: Announced { size: ByteCount::new(5).unwrap(), media_type: MediaType::Jpeg, sha256: None },
        ticket: Ticket { method: TicketMethod::Post, issued_at: at(0), ends_at: at(600), traceparent: None },
        keep: Keep::Always,
        state,
        revision: 1,
        attempts: 0,
        looks: 0,
        overdue_looks: 0,
        problem: None,
        refused: Vec::new(),
        confirmed_by: None,
        facts: None,
        derivatives: Vec::new(),
        replaces: None,
        parked: None,
        purge_at: None,
        purged_at: None,
        delete_requested_at: None,
        next_check_at: None,
        created_at: at(0),
        updated_at: at(0),
    }
}

fn ready(id: CardId) -> Card {
    let object = ObjectFacts {
        token: token(),
        version: version("object"),
        etag: ETag::new("e"),
        sha256: Sha256([7; 32]),
        ready_at: at(5),
    };
    let mut card = card(id, State::Ready { pinned: version("pinned"), object });
    card.derivatives.push(Derivative {
        name: DerivativeName::Thumb,
        content_type: "image/webp".to_owned(),
        width_px: 1,
        height_px: 1,
        size_bytes: 1,
        version: version("thumb"),
    });
    card
}

fn listed(key: &str, id: &str) -> ListedVersion {
    ListedVersion {
        key: key.to_owned(),
        version: version(id),
        is_latest: true,
        is_delete_marker: false,
        size_bytes: 5,
        etag: None,
        last_modified: at(0),
    }
}

fn id(digit: char) -> CardId {
    format!("0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e0{digit}").parse().unwrap()
}

#[test]
fn a_version_is_kept_owed_a_cards_stray_or_unknown() {
    let mut rejected =
        card(id('2'), State::Rejected { problem: Problem::new(ProblemCode::Corrupt, "broken") });
    let mut asked = ready(id('4'));
    asked.purge_at = Some(at(7));
    let waiting = card(id('5'), State::Deleting { delete_after: at(960) });
    let mut rows = vec![
        (id('1'), Some(ready(id('1')))),
        (id('2'), Some(rejected.clone())),
        (id('3'), None),
        (id('4'), Some(asked)),
        (id('5'), Some(waiting)),
    ];
    rejected.id = id('6');
    rejected.purged_at = Some(at(970));
    rows.push((id('6'), Some(rejected)));
    let cards = Cards::new(at(959), rows);
    let file = |digit| format!("files/{}/{}", id(digit), token());
    for (key, id_, expected) in [
        (file('1'), "object", Standing::Kept),
        (file('1'), "another", Standing::StrayOf(id('1'))),
        (format!("derived/{}/{}/thumb", id('1'), token()), "thumb", Standing::Kept),
        (format!("derived/{}/{}/thumb", id('1'), Ids.lease()), "thumb", Standing::StrayOf(id('1'))),
        (format!("incoming/{}", id('1')), "pinned", Standing::StrayOf(id('1'))),
        (format!("incoming/{}", id('2')), "any", Standing::Owed),
        (format!("incoming/{}", id('3')), "any", Standing::Kept),
        (file('4'), "another", Standing::Owed),
        (file('4'), "object", Standing::Kept),
        // E1: before its time everything of it stays.
        (file('5'), "any", Standing::Kept),
        // E3: bytes that turned up later.
        (format!("incoming/{}", id('6')), "late", Standing::StrayOf(id('6'))),
        (format!("incoming/{}", id('7')), "any", Standing::Unknown),
        (format!("incoming/{}2", id('1')), "any", Standing::Unknown),
        (format!("files/{}", id('1')), "object", Standing::Unknown),
        (format!("files/{}/x", id('1').to_string().to_uppercase()), "object", Standing::Unknown),
    ] {
        assert_eq!(standing(&key, &version(id_), &cards), expected, "{key} {id_}");
    }
}

#[test]
fn a_key_that_no_column_holds_is_counted_and_not_remembered() {
    let listed = [listed("incoming/a\0b", "v"), listed("incoming/ab", "v")];
    let sorted = sort(&listed, &Cards::default());
    assert_eq!((sorted.counts.versions, sorted.counts.unknown, sorted.unspeakable), (2, 2, 1));
    assert_eq!(sorted.seen.iter().map(|seen| seen.key.as_str()).collect::<Vec<_>>(), ["incoming/ab"]);
}

fn chunk(prefix: &'static str, after: Option<&str>, through: Option<&str>) -> Chunk {
    let text = |text: Option<&str>| text.map(|text| format!("{prefix}{text}"));
    Chunk { versions: Vec::new(), prefix, after: text(after), through: text(through) }
}

#[test]
fn a_range_of_keys_is_a_range_of_ids() {
    let ends = |after, through| {
        let range = id_range(&chunk("files/", after, through)).unwrap();
        (range.first.to_string(), range.last.to_string())
    };
    let whole = ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff");
    let is = |range: (String, String), first: &str, last: &str| {
        assert_eq!((range.0.as_str(), range.1.as_str()), (first, last));
    };
    is(ends(None, None), whole.0, whole.1);
    let one = "0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01/x";
    let same = "0192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01/y";
    is(ends(Some(one), Some(same)), &one[..36], &one[..36]);
    is(
        ends(Some("0192f3c4-7"), Some("0192f3c4-8z")),
        "0192f3c4-7000-0000-0000-000000000000",
        "0192f3c4-8fff-ffff-ffff-ffffffffffff",
    );
    // A hyphen where none belongs, and the other way round: no id goes on like this.
    is(
        ends(Some("01-2"), Some("0192f3c47")),
        "01000000-0000-0000-0000-000000000000",
        "0192f3c4-ffff-ffff-ffff-ffffffffffff",
    );
    is(ends(Some("kатя"), Some("zzz")), whole.0, whole.1);
    assert_eq!(id_range(&chunk("files/", Some("x"), Some("x"))), None, "a part of a key covers nothing");
}

#[test]
fn every_id_whose_keys_are_in_the_range_is_in_the_range_of_ids() {
    let texts = ["0", "01", "0192f3c4-", "0192f3c4-7a", "0192f3c5", "0192g", "1-", "f", "~", ""];
    let ids: Vec<CardId> = (0..16)
        .map(|digit| format!("{digit:x}192f3c4-7a11-7c3e-9d2f-5b6a7c8d9e01").parse().unwrap())
        .collect();
    for after in texts {
        for through in texts {
            let chunk = chunk("files/", Some(after), Some(through));
            for id in &ids {
                let key = format!("files/{id}/x");
                let range = id_range(&chunk);
                let is_in = range.is_some_and(|range| range.first <= *id && *id <= range.last);
                assert!(is_in || !covers(&chunk, &key), "{after:?} {through:?} {id}");
            }
        }
    }
}

#[test]
fn what_a_card_points_at_and_the_range_does_not_show_is_a_suspect() {
    let (one, two) = (ready(id('1')), ready(id('2')));
    let key = |card: &Card| format!("files/{}/{}", card.id, token());
    let mut files = chunk("files/", None, None);
    files.versions = vec![listed(&key(&one), "object"), listed(&key(&two), "another")];
    let found = |chunk: &Chunk| -> Vec<String> {
        suspects(chunk, [&one, &two].into_iter()).into_iter().map(|object| object.key).collect()
    };
    assert_eq!(found(&files), [key(&two)], "another version under its key is not it");
    files.versions[1].version = version("object");
    assert_eq!(found(&files), [""; 0]);
    files.versions[1].is_delete_marker = true;
    assert_eq!(found(&files), [key(&two)]);
    // Outside the range, and under another prefix, nothing is said.
    files.versions.clear();
    files.after = Some(key(&one));
    assert_eq!(found(&files), [key(&two)]);
    files.through = Some(key(&one));
    assert_eq!(found(&files), [""; 0]);
    assert_eq!(found(&chunk("incoming/", None, None)), [""; 0], "a ready card's source may be gone");
    assert_eq!(found(&chunk("derived/", None, None)).len(), 2);

    let pinned = card(id('3'), State::Queued { pinned: version("pinned") });
    let mut incoming = chunk("incoming/", None, None);
    assert_eq!(suspects(&incoming, [&pinned].into_iter()).len(), 1);
    incoming.versions = vec![listed(&pinned.source_key().to_string(), "pinned")];
    assert_eq!(suspects(&incoming, [&pinned].into_iter()), []);
}

#[test]
fn removal_is_forbidden_past_one_percent_and_in_another_database() {
    let counts =
        |versions, unknown, card_strays| Counts { versions, unknown, card_strays, ..Counts::default() };
    for (versions, unknown, card_strays, allowed, expected) in [
        (0, 0, 0, None, None),
        (20_000, 150, 50, None, None),
        (20_000, 150, 51, None, Some(Verdict::TooManyStrays)),
        (20_000, 150, 51, Some(200), Some(Verdict::TooManyStrays)),
        (20_000, 150, 51, Some(201), None),
        (99, 1, 0, None, Some(Verdict::TooManyStrays)),
        (100, 1, 0, None, None),
    ] {
        let counts = counts(versions, unknown, card_strays);
        assert_eq!(forbidden(&Known::Yes, &counts, allowed), expected, "{counts:?} {allowed:?}");
        let identity = Identity { system_identifier: 1, timeline_id: 1, database_oid: 1, cards_oid: 1 };
        let changed =
            Known::No { recorded: identity.clone(), found: Identity { timeline_id: 2, ..identity } };
        assert_eq!(forbidden(&changed, &counts, Some(u64::MAX)), Some(Verdict::DatabaseChanged));
    }
}

#[test]
fn a_verdict_says_what_was_done() {
    let none = Counts::default();
    let some = Counts { versions: 500, unknown: 5, ..none };
    let nothing = Removals::default();
    for (applies, counts, removals, expected) in [
        (false, none, nothing, Verdict::Clean),
        (false, some, nothing, Verdict::DryRun),
        // It was left by a run that removed.
        (false, some, Removals { removed: 1, ..nothing }, Verdict::DryRun),
        (true, some, nothing, Verdict::Clean),
        (true, some, Removals { failed: 5, ..nothing }, Verdict::Clean),
        (true, some, Removals { removed: 1, ..nothing }, Verdict::Removed),
        (true, some, Removals { purges: 1, ..nothing }, Verdict::Removed),
    ] {
        assert_eq!(verdict(applies, &counts, &removals), expected, "{applies} {counts:?} {removals:?}");
    }
}
