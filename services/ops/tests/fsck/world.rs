//! A database, a bucket, and cards in every state whose objects are really there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cards::{
    Card, CardId, Derivative, DerivativeName, DerivedKey, FileKey, Ids, MediaType, ObjectFacts, OwnerId,
    State,
};
use objects::fake::Fake;
use objects::{CopyObject, ObjectStore, PutObject};
use ops::fsck::{Finding, FsckError, FsckSettings, Report, run};
use store::Db;
use store::finish::Finished;
use testkit::{TestDb, fixture};

pub(crate) struct World {
    pub(crate) test: Arc<TestDb>,
    pub(crate) db: Db,
    pub(crate) api: Db,
    pub(crate) fake: Arc<Fake>,
    pub(crate) owner: OwnerId,
}

impl World {
    pub(crate) async fn new() -> Self {
        let test = Arc::new(TestDb::new().await);
        let (db, api, fake) = (test.worker(), test.api(), Arc::new(Fake::new()));
        let owner = fixture::owner(&api).await;
        Self { test, db, api, fake, owner }
    }

    pub(crate) async fn fsck(&self) -> Report {
        self.try_fsck(Arc::clone(&self.fake) as _, None).await.unwrap()
    }

    pub(crate) async fn try_fsck(
        &self,
        store: Arc<dyn ObjectStore>,
        card: Option<CardId>,
    ) -> Result<Report, FsckError> {
        let settings = FsckSettings { card, reread_after: Duration::ZERO };
        run(&self.db, store, &settings, &mut |_| {}).await
    }

    pub(crate) async fn pending(&self) -> Card {
        fixture::pending(&self.api, self.owner, MediaType::Text, b"hello").await
    }

    pub(crate) async fn queued(&self, bytes: &[u8]) -> Card {
        fixture::queued(&self.db, &self.api, &self.fake, self.owner, MediaType::Text, bytes).await
    }

    /// Leased, copied and previewed, as a decoder does it, up to its last transaction.
    pub(crate) async fn decoded(&self, bytes: &[u8]) -> (Card, ObjectFacts, Derivative) {
        let card = fixture::leased(&self.db, &self.queued(bytes).await).await;
        let State::Processing { pinned, lease } = &card.state else { panic!("{card:?}") };
        let token = lease.token;
        let copy = self
            .fake
            .copy(CopyObject {
                from: &card.source_key().to_string(),
                from_version: pinned,
                if_match: None,
                to: &FileKey { card: card.id, token }.to_string(),
                content_type: "text/plain",
                content_disposition: None,
                cache_control: None,
            })
            .await
            .unwrap();
        let name = DerivativeName::Thumb;
        let thumb = self
            .fake
            .put(PutObject {
                key: &DerivedKey { card: card.id, token, name }.to_string(),
                bytes: Bytes::from_static(b"thumb"),
                content_type: "image/webp",
                content_disposition: None,
                cache_control: None,
            })
            .await
            .unwrap();
        let mut object = fixture::accepted(&card, bytes).object;
        object.version = copy.version;
        object.etag = copy.etag;
        let derivative = Derivative {
            name,
            content_type: "image/webp".to_owned(),
            width_px: 1,
            height_px: 1,
            size_bytes: thumb.size_bytes,
            version: thumb.version,
        };
        (card, object, derivative)
    }

    /// `ready`, or `duplicate` where the owner has these bytes.
    pub(crate) async fn accepted(&self, bytes: &[u8]) -> Card {
        let (card, object, derivative) = self.decoded(bytes).await;
        let accepted = store::finish::Accepted {
            object,
            derivatives: vec![derivative],
            ..fixture::accepted(&card, bytes)
        };
        let mut tx = self.db.begin().await.unwrap();
        let end = store::finish::accept(&mut tx, Ids, &accepted).await.unwrap();
        tx.commit().await.unwrap();
        match end {
            Finished::Done(card) | Finished::Duplicate(card) => *card,
            other @ (Finished::LostLease | Finished::TryAgain) => panic!("{other:?}"),
        }
    }

    /// Ready, and all that its state does not keep is gone: nothing is owed any more.
    pub(crate) async fn settled(&self, bytes: &[u8]) -> Card {
        let card = self.accepted(bytes).await;
        let source = card.source_key().to_string();
        for version in self.fake.versions(&source) {
            self.fake.delete_versions(&[(source.clone(), version)]).await.unwrap();
        }
        self.test
            .sql(&format!("update cards set purge_at = null, next_check_at = null where id = '{}'", card.id))
            .await;
        self.read(&card).await
    }

    pub(crate) async fn deleting(&self, card: &Card) -> Card {
        let mut tx = self.api.begin().await.unwrap();
        store::deletion::request(&mut tx, Ids, self.owner, card.id).await.unwrap();
        tx.commit().await.unwrap();
        self.read(card).await
    }

    /// Deleted as the deleter does it: the bytes are gone, the receipt is there.
    pub(crate) async fn deleted(&self, card: &Card) -> Card {
        let card = self.deleting(card).await;
        self.test
            .sql(&format!(
                "update cards
                 set ticket_issued_at = ticket_issued_at - interval '1 hour',
                     ticket_ends_at = ticket_ends_at - interval '1 hour',
                     delete_after = delete_after - interval '1 hour'
                 where id = '{}'",
                card.id
            ))
            .await;
        for key in self.fake.all_keys().into_iter().filter(|key| key.contains(&card.id.to_string())) {
            for version in self.fake.versions(&key) {
                self.fake.delete_versions(&[(key.clone(), version)]).await.unwrap();
            }
        }
        let card = self.read(&card).await;
        let mut tx = self.db.begin().await.unwrap();
        let now = store::clock::now(&mut tx).await.unwrap();
        store::purge::settle(&mut tx, Ids, &card, now, true).await.unwrap();
        tx.commit().await.unwrap();
        self.read(&card).await
    }

    pub(crate) async fn read(&self, card: &Card) -> Card {
        fixture::read(&self.db, card).await
    }

    /// Lets a look come in time however the card's other times were moved.
    pub(crate) async fn looked_after(&self) {
        self.test
            .sql("update cards set next_check_at = now() + interval '1 minute' where next_check_at is not null")
            .await;
    }

    /// A card in every state, and what each owes.
    pub(crate) async fn every_state(&self) -> Vec<Card> {
        let with_upload = self.pending().await;
        fixture::upload(&self.fake, &with_upload, b"hello");
        let ready = self.accepted(b"ready").await;
        let gone = self.accepted(b"gone").await;
        let going = self.accepted(b"going").await;
        vec![
            with_upload,
            self.pending().await,
            self.queued(b"queued").await,
            self.decoded(b"processing").await.0,
            ready,
            self.accepted(b"ready").await,
            fixture::rejected(&self.db, &self.api, &self.fake, self.owner, b"no\0").await,
            fixture::expired(&self.test, &self.db, &self.api, self.owner).await,
            self.deleting(&going).await,
            self.deleted(&gone).await,
        ]
    }
}

/// Code, card and key of each finding, in no order that matters.
pub(crate) fn told(findings: &[Finding]) -> Vec<(&'static str, Option<CardId>, Option<String>)> {
    let mut told: Vec<_> =
        findings.iter().map(|finding| (finding.code, finding.card, finding.key.clone())).collect();
    told.sort();
    told
}
