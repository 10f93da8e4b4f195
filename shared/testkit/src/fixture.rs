//! Cards in each state, made by the product's own statements.

use cards::{
    Announced, ByteCount, Card, ConfirmedBy, ETag, Facts, Ids, Keep, MediaType, ObjectFacts, OwnerId,
    Problem, ProblemCode, Sha256, State, TicketMethod, VersionId, timing,
};
use objects::fake::Fake;
use store::Db;
use store::confirm::Confirmation;
use store::finish::{Accepted, Finished};
use store::lease::Leased;
use store::tickets::{Issued, NewCard};
use store::timer::Expired;

use crate::TestDb;

/// An owner of its own.
pub async fn owner(api: &Db) -> OwnerId {
    let subject = format!("owner-{}", Ids.owner());
    let mut tx = api.begin().await.expect("a transaction");
    let owner = store::owners::of_subject(&mut tx, Ids, &subject).await.expect("an owner");
    tx.commit().await.expect("commit");
    owner
}

/// What a ticket is asked for: `size` bytes of this type.
pub fn new_card(owner: OwnerId, media_type: MediaType, size: u64, sha256: Option<Sha256>) -> NewCard {
    NewCard {
        id: Ids.card(),
        owner,
        filename: "sample".to_owned(),
        announced: Announced { size: ByteCount::new(size).expect("a size"), media_type, sha256 },
        method: TicketMethod::Post,
        keep: Keep::Always,
        life: timing::TICKET_LIFE,
        replaces: None,
        traceparent: None,
        idempotency: None,
    }
}

/// Issues a ticket.
pub async fn issue(api: &Db, new: &NewCard) -> Card {
    let mut tx = api.begin().await.expect("a transaction");
    let issued = store::tickets::issue(&mut tx, new).await.expect("a ticket");
    tx.commit().await.expect("commit");
    match issued {
        Issued::New(card) => card,
        other @ (Issued::Before(_)
        | Issued::OtherRequest
        | Issued::NotReplaceable(_)
        | Issued::ReplacementOpen) => panic!("{other:?}"),
    }
}

/// A pending card for these bytes.
pub async fn pending(api: &Db, owner: OwnerId, media_type: MediaType, bytes: &[u8]) -> Card {
    issue(api, &new_card(owner, media_type, bytes.len() as u64, None)).await
}

/// Uploads bytes as the card's ticket would.
pub fn upload(fake: &Fake, card: &Card, bytes: &[u8]) -> VersionId {
    let content_type = card.announced.media_type.as_str();
    fake.upload(&card.source_key().to_string(), bytes.to_vec(), content_type, &[])
}

/// A queued card whose bytes are in the store.
pub async fn queued(
    db: &Db,
    api: &Db,
    fake: &Fake,
    owner: OwnerId,
    media_type: MediaType,
    bytes: &[u8],
) -> Card {
    let card = pending(api, owner, media_type, bytes).await;
    let pinned = upload(fake, &card, bytes);
    let confirmation = Confirmation {
        card: card.id,
        revision: card.revision,
        pinned,
        by: ConfirmedBy::Event,
        surplus: false,
    };
    let mut tx = db.begin().await.expect("a transaction");
    let moved = store::confirm::confirm(&mut tx, Ids, &[confirmation]).await.expect("a confirmation");
    tx.commit().await.expect("commit");
    assert!(moved.contains(&card.id));
    read(db, &card).await
}

/// The same card, leased by a new token.
pub async fn leased(db: &Db, card: &Card) -> Card {
    let mut tx = db.begin().await.expect("a transaction");
    let leased = store::lease::take(&mut tx, Ids, card.id, Ids.lease()).await.expect("a lease");
    tx.commit().await.expect("commit");
    match leased {
        Leased::Yes(card) => *card,
        other @ (Leased::Held { .. }
        | Leased::Never(_)
        | Leased::Parked
        | Leased::NotConfirmed
        | Leased::NotThere) => {
            panic!("{other:?}")
        }
    }
}

/// The card as it is now.
pub async fn read(db: &Db, card: &Card) -> Card {
    let mut connection = db.acquire().await.expect("a connection");
    store::cards::by_id(&mut connection, card.id).await.expect("a read").expect("the card")
}

/// What a decoder hands in for this leased card, with a copy that needs no store.
pub fn accepted(card: &Card, bytes: &[u8]) -> Accepted {
    use sha2::Digest;
    let State::Processing { lease, .. } = &card.state else { panic!("{card:?} is not leased") };
    Accepted {
        card: card.id,
        object: ObjectFacts {
            token: lease.token,
            version: VersionId::parse("copy").expect("a version"),
            etag: ETag::new("copy"),
            sha256: Sha256(sha2::Sha256::digest(bytes).into()),
            ready_at: card.created_at,
        },
        facts: Facts {
            media_type: card.announced.media_type,
            width_px: None,
            height_px: None,
            frames: None,
            pages: None,
        },
        derivatives: Vec::new(),
    }
}

/// A ready text file.
pub async fn ready(db: &Db, api: &Db, fake: &Fake, owner: OwnerId, bytes: &[u8]) -> Card {
    let card = queued(db, api, fake, owner, MediaType::Text, bytes).await;
    let card = leased(db, &card).await;
    let mut tx = db.begin().await.expect("a transaction");
    let end = store::finish::accept(&mut tx, Ids, &accepted(&card, bytes)).await.expect("an end");
    tx.commit().await.expect("commit");
    done(end)
}

/// A rejected text file.
pub async fn rejected(db: &Db, api: &Db, fake: &Fake, owner: OwnerId, bytes: &[u8]) -> Card {
    let card = queued(db, api, fake, owner, MediaType::Text, bytes).await;
    let card = leased(db, &card).await;
    let State::Processing { lease, .. } = &card.state else { panic!("{card:?}") };
    let problem = Problem::new(ProblemCode::TextInvalid, "a NUL");
    let mut tx = db.begin().await.expect("a transaction");
    let end =
        store::finish::reject(&mut tx, Ids, card.id, lease.token, &problem, None).await.expect("an end");
    tx.commit().await.expect("commit");
    done(end)
}

/// An expired card.
pub async fn expired(test: &TestDb, db: &Db, api: &Db, owner: OwnerId) -> Card {
    let card = pending(api, owner, MediaType::Text, b"never uploaded").await;
    test.sql(&format!(
        "update cards
         set ticket_issued_at = ticket_issued_at - interval '1 hour', ticket_ends_at = ticket_ends_at - interval '1 hour'
         where id = '{}'",
        card.id
    ))
    .await;
    let mut tx = db.begin().await.expect("a transaction");
    let end = store::timer::expire(&mut tx, Ids, &card, card.created_at).await.expect("an end");
    tx.commit().await.expect("commit");
    assert_eq!(end, Expired::Yes);
    read(db, &card).await
}

fn done(end: Finished) -> Card {
    match end {
        Finished::Done(card) => *card,
        other @ (Finished::Duplicate(_) | Finished::LostLease | Finished::TryAgain) => panic!("{other:?}"),
    }
}
