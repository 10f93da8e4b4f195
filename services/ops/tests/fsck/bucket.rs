//! What the bucket holds against what the cards say (R-H2, R-H3, INV-1, INV-3).

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cards::{Card, DerivativeName, DerivedKey, FileKey, Ids, State, StateName, VersionId};
use objects::fake::{Fake, Fault};
use objects::{
    Body, CopyObject, DeleteFailure, Head, ListCursor, ListPage, ListedVersion, ObjectError, ObjectStore,
    Operation, PutObject, Stored,
};
use ops::fsck::FsckError;
use testkit::{TestDb, fixture};

use crate::world::{World, told};

/// The permanent copy's key, and the thumbnail's.
fn keys(ready: &Card) -> [String; 2] {
    let State::Ready { object, .. } = &ready.state else { panic!("{ready:?}") };
    let (card, token) = (ready.id, object.token);
    [FileKey { card, token }.to_string(), DerivedKey { card, token, name: DerivativeName::Thumb }.to_string()]
}

async fn remove(fake: &Fake, key: &str) {
    for version in fake.versions(key) {
        fake.delete_versions(&[(key.to_owned(), version)]).await.unwrap();
    }
}

#[tokio::test]
async fn a_bucket_with_a_card_in_every_state_is_clean() {
    let world = World::new().await;
    let cards = world.every_state().await;
    let states: BTreeSet<StateName> = cards.iter().map(|card| card.state.name()).collect();
    assert_eq!(states.len(), StateName::ALL.len());
    let report = world.fsck().await;
    assert_eq!((told(&report.violations), told(&report.warnings)), (vec![], vec![]));
    assert!(report.is_clean(true));
    assert_eq!(report.checked.cards, 10);
    // Pinned sources of queued and processing; copy and thumbnail of ready.
    assert_eq!(report.checked.references, 4);
    // The sources of ready, duplicate and rejected, and the duplicate's own copy and thumbnail.
    assert_eq!(report.on_its_way, 5);
    assert!(report.checked.versions > report.on_its_way && report.checked.outbox_rows > 0, "{report:?}");
    for card in cards {
        let alone = world.try_fsck(Arc::clone(&world.fake) as _, Some(card.id)).await.unwrap();
        assert!(alone.is_clean(true), "{alone:?}");
        assert_eq!(alone.checked.cards, 1);
    }
}

#[tokio::test]
async fn an_object_that_is_not_there_violates_inv_3() {
    let world = World::new().await;
    world.every_state().await;
    let (copyless, thumbless) = (world.settled(b"one").await, world.settled(b"two").await);
    let sourceless = world.queued(b"three").await;
    let lost = [keys(&copyless)[0].clone(), keys(&thumbless)[1].clone(), sourceless.source_key().to_string()];
    for key in &lost {
        remove(&world.fake, key).await;
    }
    // Another version under the key is another object.
    world.fake.upload(&lost[0], b"one".as_slice(), "text/plain", &[]);
    // A marker is no object, whatever its version.
    world.fake.add_delete_marker(&lost[2]);
    let report = world.fsck().await;
    let mut expected: Vec<_> = [&copyless, &thumbless, &sourceless]
        .into_iter()
        .zip(&lost)
        .map(|(card, key)| ("missing_object", Some(card.id), Some(key.clone())))
        .collect();
    expected.sort();
    assert_eq!(told(&report.violations), expected);
    assert!(report.violations.iter().all(|finding| finding.invariant == Some("INV-3")));
    assert!(!report.is_clean(false));

    let alone = world.try_fsck(Arc::clone(&world.fake) as _, Some(thumbless.id)).await.unwrap();
    assert_eq!(told(&alone.violations), [("missing_object", Some(thumbless.id), Some(lost[1].clone()))]);
}

#[tokio::test]
async fn an_object_that_is_not_what_its_card_records_violates_inv_1() {
    let world = World::new().await;
    world.every_state().await;
    let (tagged, sized) = (world.settled(b"one").await, world.settled(b"two").await);
    world
        .test
        .sql(&format!(
            "update cards set object_etag = 'another' where id = '{}';
             update cards set derivatives = jsonb_set(derivatives, '{{0,size_bytes}}', '6') where id = '{}'",
            tagged.id, sized.id
        ))
        .await;
    let report = world.fsck().await;
    let mut expected = vec![
        ("object_differs", Some(tagged.id), Some(keys(&tagged)[0].clone())),
        ("object_differs", Some(sized.id), Some(keys(&sized)[1].clone())),
    ];
    expected.sort();
    assert_eq!(told(&report.violations), expected);
    let detail = |id| report.violations.iter().find(|one| one.card == Some(id)).unwrap().detail.clone();
    assert!(detail(tagged.id).contains("the card says another"), "{}", detail(tagged.id));
    assert!(detail(sized.id).contains("5 bytes, the card says 6"), "{}", detail(sized.id));
}

#[tokio::test]
async fn a_version_nobody_keeps_is_a_stray_unless_its_purge_is_owed() {
    let world = World::new().await;
    world.every_state().await;
    let ready = world.settled(b"one").await;
    let (source, [copy, _]) = (ready.source_key().to_string(), keys(&ready));
    world.fake.upload(&source, b"late".as_slice(), "text/plain", &[]);
    world.fake.upload(&copy, b"again".as_slice(), "text/plain", &[]);
    world.fake.add_delete_marker(&copy);
    let strangers = [
        format!("incoming/{}", Ids.card()),
        format!("files/{}/x", Ids.card()),
        format!("derived/{}/x/thumb", ready.id.to_string().to_uppercase()),
        "files/readme".to_owned(),
    ];
    for key in &strangers {
        world.fake.upload(key, b"who".as_slice(), "text/plain", &[]);
    }
    let report = world.fsck().await;
    assert_eq!(told(&report.violations), []);
    let of = |code| report.warnings.iter().filter(move |finding| finding.code == code);
    let mut keys: Vec<_> = of("stray").map(|finding| finding.key.clone().unwrap()).collect();
    keys.sort();
    assert_eq!(keys, [copy.clone(), copy, source.clone()]);
    assert_eq!(of("stray").filter(|finding| finding.detail.contains("a delete marker")).count(), 1);
    let mut unknown: Vec<_> = of("stray_unknown").map(|finding| finding.key.clone().unwrap()).collect();
    unknown.sort();
    let mut expected = strangers.to_vec();
    expected.sort();
    assert_eq!(unknown, expected);
    assert!(report.is_clean(false) && !report.is_clean(true));

    let mut tx = world.db.begin().await.unwrap();
    store::purge::request(&mut tx, Ids, ready.id, "late").await.unwrap();
    tx.commit().await.unwrap();
    let asked = world.fsck().await;
    assert!(asked.warnings.iter().all(|finding| finding.code == "stray_unknown"));
    assert_eq!(asked.on_its_way, report.on_its_way + 3);
}

/// R-E2: a key that merely starts like a card's is not the card's.
#[tokio::test]
async fn one_card_alone_is_checked_under_its_own_keys_only() {
    let world = World::new().await;
    let ready = world.settled(b"one").await;
    world.fake.upload(&format!("{}2", ready.source_key()), b"alike".as_slice(), "text/plain", &[]);
    let alone = world.try_fsck(Arc::clone(&world.fake) as _, Some(ready.id)).await.unwrap();
    assert!(alone.is_clean(true), "{alone:?}");
    assert_eq!((alone.checked.versions, alone.checked.references), (2, 2));

    let nobody = Ids.card();
    let error = world.try_fsck(Arc::clone(&world.fake) as _, Some(nobody)).await.unwrap_err();
    assert!(matches!(error, FsckError::NoSuchCard(card) if card == nobody), "{error}");
    world.fake.upload(&format!("incoming/{nobody}"), b"who".as_slice(), "text/plain", &[]);
    let alone = world.try_fsck(Arc::clone(&world.fake) as _, Some(nobody)).await.unwrap();
    assert_eq!(told(&alone.warnings), [("stray_unknown", Some(nobody), Some(format!("incoming/{nobody}")))]);
}

/// More cards than a page and more versions than a listing's page: nothing is lost between them, at the end neither.
#[tokio::test]
async fn a_bucket_of_many_pages_is_compared_to_its_last_key() {
    const CARDS: usize = 2_300;
    let world = World::new().await;
    let model = world.settled(b"model").await;
    let State::Ready { object, .. } = &model.state else { panic!("{model:?}") };
    let mut ids: Vec<_> = (0..CARDS).map(|_| Ids.card()).collect();
    ids.sort();
    let values: Vec<_> = ids
        .iter()
        .map(|card| {
            let key = FileKey { card: *card, token: object.token }.to_string();
            let version = world.fake.upload(&key, b"model".as_slice(), "text/plain", &[]);
            format!("('{card}'::uuid, '{version}')")
        })
        .collect();
    world
        .test
        .sql(&format!(
            "insert into cards
             select (jsonb_populate_record(c, jsonb_build_object(
                 'id', v.id, 'source_key', 'incoming/' || v.id, 'object_version', v.version, 'derivatives', '[]'::jsonb,
                 'sha256', '\\x' || encode(sha256(v.id::text::bytea), 'hex')
             ))).*
             from cards c, (values {}) as v (id, version)
             where c.id = '{}'",
            values.join(", "),
            model.id
        ))
        .await;
    world.fake.clear_calls();
    let clean = world.fsck().await;
    assert!(clean.is_clean(true), "{:?}", clean.violations.first());
    // What is whole costs listings only.
    assert!(world.fake.calls().iter().all(|call| call.operation == Operation::ListVersions));
    assert_eq!((clean.checked.cards, clean.checked.references), (CARDS as u64 + 1, CARDS as u64 + 2));

    let lost = [ids[0], ids[999], ids[1_000], ids[1_500], ids[CARDS - 1]];
    for card in lost {
        remove(&world.fake, &FileKey { card, token: object.token }.to_string()).await;
    }
    let found: Vec<_> = world.fsck().await.violations.iter().map(|finding| finding.card.unwrap()).collect();
    assert_eq!(found, lost);
}

/// R-B8: an outage is never told as "missing".
#[tokio::test]
async fn a_store_that_is_away_is_an_outage_and_nothing_is_missing() {
    let world = World::new().await;
    let ready = world.settled(b"one").await;
    world.fake.switch_off();
    for card in [None, Some(ready.id)] {
        let error = world.try_fsck(Arc::clone(&world.fake) as _, card).await.unwrap_err();
        assert!(error.is_outage(), "{error}");
        assert!(error.to_string().contains("nothing follows"), "{error}");
    }
    world.fake.heal();
    // It goes away between the two readings.
    remove(&world.fake, &keys(&ready)[0]).await;
    for fault in [Fault::Refuse, Fault::Unavailable] {
        world.fake.fail(Operation::Head, fault);
        assert!(world.try_fsck(Arc::clone(&world.fake) as _, None).await.unwrap_err().is_outage());
    }
    assert_eq!(world.fsck().await.violations.len(), 1);
    world.db.close().await;
    assert!(world.try_fsck(Arc::clone(&world.fake) as _, None).await.unwrap_err().is_outage());
}

/// A bucket in which something happens between the first reading and the second.
struct Meanwhile {
    fake: Arc<Fake>,
    test: Arc<TestDb>,
    /// A key that the first listing does not show yet.
    hidden: Option<String>,
    /// What somebody commits just before the store is asked again.
    sql: Option<String>,
}

#[async_trait]
impl ObjectStore for Meanwhile {
    async fn head(&self, key: &str, version: Option<&VersionId>) -> Result<Head, ObjectError> {
        if let Some(sql) = &self.sql {
            self.test.sql(sql).await;
        }
        self.fake.head(key, version).await
    }

    async fn versions_of(&self, key: &str, at_most: usize) -> Result<Vec<ListedVersion>, ObjectError> {
        if let Some(sql) = &self.sql {
            self.test.sql(sql).await;
        }
        self.fake.versions_of(key, at_most).await
    }

    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&ListCursor>,
        page: usize,
    ) -> Result<ListPage, ObjectError> {
        let mut page = self.fake.list_versions(prefix, after, page).await?;
        page.versions.retain(|version| Some(&version.key) != self.hidden.as_ref());
        Ok(page)
    }

    async fn get(&self, key: &str, version: &VersionId, bytes_max: u64) -> Result<Body, ObjectError> {
        self.fake.get(key, version, bytes_max).await
    }

    async fn put(&self, request: PutObject<'_>) -> Result<Stored, ObjectError> {
        self.fake.put(request).await
    }

    async fn copy(&self, request: CopyObject<'_>) -> Result<Stored, ObjectError> {
        self.fake.copy(request).await
    }

    async fn delete_versions(
        &self,
        versions: &[(String, VersionId)],
    ) -> Result<Vec<DeleteFailure>, ObjectError> {
        self.fake.delete_versions(versions).await
    }

    async fn probe(&self) -> Result<(), ObjectError> {
        self.fake.probe().await
    }
}

#[tokio::test]
async fn what_heals_before_it_is_read_again_does_not_count() {
    let world = World::new().await;
    let bytes = Bytes::from_static(b"one");
    let ready = world.settled(&bytes).await;
    let [copy, thumb] = keys(&ready);
    let meanwhile = |hidden: Option<&String>, sql: Option<&str>| {
        Arc::new(Meanwhile {
            fake: Arc::clone(&world.fake),
            test: Arc::clone(&world.test),
            hidden: hidden.cloned(),
            sql: sql.map(str::to_owned),
        })
    };
    // The object came just after the listing.
    let report = world.try_fsck(meanwhile(Some(&copy), None), None).await.unwrap();
    assert!(report.is_clean(true), "{report:?}");

    // A stray, and a look that is late: both are seen to by the time they are read again.
    world.fake.upload(&ready.source_key().to_string(), b"late".as_slice(), "text/plain", &[]);
    let overdue = world.pending().await;
    world
        .test
        .sql(&format!(
            "update cards set next_check_at = now() - interval '2 hours' where id = '{}'",
            overdue.id
        ))
        .await;
    let both = world.fsck().await;
    assert_eq!((both.violations[0].code, both.warnings[0].code), ("overdue_look", "stray"));
    let seen_to = "update cards set next_check_at = now(), purge_at = now()";
    let report = world.try_fsck(meanwhile(None, Some(seen_to)), None).await.unwrap();
    assert!(report.is_clean(true), "{report:?}");
    assert_eq!(report.on_its_way, 1);

    // The file is deleted, and its bytes are gone, between the two readings: nobody points at them any more.
    remove(&world.fake, &thumb).await;
    assert_eq!(world.fsck().await.violations.len(), 1);
    let deleted = format!(
        "update cards
         set state = 'deleting', object_version = null, ready_at = null, derivatives = '[]',
             delete_after = now() - interval '1 minute', delete_requested_at = now(), next_check_at = now()
         where id = '{}'",
        ready.id
    );
    let report = world.try_fsck(meanwhile(None, Some(&deleted)), None).await.unwrap();
    assert_eq!(told(&report.violations), []);
    assert_eq!(fixture::read(&world.db, &ready).await.state.name(), StateName::Deleting);
}
