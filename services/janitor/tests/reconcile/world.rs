//! A database and a bucket that agree, by the thousand; and what makes them disagree.

use std::sync::Arc;

use bytes::Bytes;
use cards::{CardId, Ids, OwnerId, VersionId};
use janitor::reconcile::{Mode, Progress, ReconcileError, ReconcileSettings, Reconciler, Report};
use objects::fake::Fake;
use objects::{ObjectStore, PutObject};
use store::Db;
use testkit::{TestDb, fixture};

pub(crate) const APPLY: Mode = Mode::Apply { allow_strays: None };
pub(crate) const DAY_SECONDS: u32 = 24 * 3600;

pub(crate) struct World {
    pub(crate) test: TestDb,
    pub(crate) db: Db,
    pub(crate) fake: Fake,
    pub(crate) settings: ReconcileSettings,
    pub(crate) ready: Vec<Ready>,
}

/// A ready card and its object.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) card: CardId,
    pub(crate) key: String,
    pub(crate) version: VersionId,
}

impl World {
    /// So many ready cards, each with its object.
    pub(crate) async fn with_cards(cards: usize) -> Self {
        let test = TestDb::new().await;
        let (db, fake) = (test.worker(), Fake::new());
        let ready = ready_cards(&test, Arc::new(fake.clone()), cards).await;
        Self { test, db, fake, settings: ReconcileSettings::default(), ready }
    }

    pub(crate) fn reconciler(&self) -> Reconciler {
        Reconciler::new(self.db.clone(), Arc::new(self.fake.clone()), self.settings)
    }

    pub(crate) async fn run(&self, mode: Mode) -> Report {
        self.try_run(mode, &mut |_| {}).await.unwrap()
    }

    pub(crate) async fn try_run(
        &self,
        mode: Mode,
        progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> Result<Report, ReconcileError> {
        self.reconciler().run(mode, progress).await
    }

    /// An object of no card.
    pub(crate) fn stray(&self, key: &str) -> VersionId {
        self.fake.upload(key, "stray", "text/plain", &[])
    }

    /// Strays of no card that a first run saw a day ago: the next run may remove them.
    pub(crate) async fn ripe_strays(&self, strays: usize) -> Vec<String> {
        let keys: Vec<String> = (0..strays).map(|_| format!("incoming/{}", Ids.card())).collect();
        for key in &keys {
            self.stray(key);
        }
        self.run(Mode::DryRun).await;
        self.test.pass_time(DAY_SECONDS).await;
        keys
    }

    pub(crate) fn is_there(&self, key: &str) -> bool {
        !self.fake.versions(key).is_empty()
    }

    /// Every object of a ready card is there, in its version.
    pub(crate) fn assert_all_files_are_there(&self) {
        for Ready { key, version, .. } in &self.ready {
            assert_eq!(self.fake.versions(key), std::slice::from_ref(version), "{key}");
        }
    }

    /// Runs SQL from within a progress callback, which can't wait.
    pub(crate) fn sql_meanwhile(&self, statements: &str) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(self.test.sql(statements));
            });
        });
    }
}

/// Makes ready cards: one by the product's own statements, the others as copies of its row, each with its own object.
pub(crate) async fn ready_cards(test: &TestDb, store: Arc<dyn ObjectStore>, cards: usize) -> Vec<Ready> {
    use futures::StreamExt;
    let (db, api) = (test.worker(), test.api());
    let owner: OwnerId = fixture::owner(&api).await;
    let pattern = fixture::ready(&db, &api, &Fake::new(), owner, b"pattern").await;
    let cards::State::Ready { object, .. } = &pattern.state else { panic!("{pattern:?}") };
    let token = object.token;
    let ready = futures::stream::iter((0..cards).map(|_| Ids.card()))
        .map(|card| {
            let store = Arc::clone(&store);
            async move {
                let key = format!("files/{card}/{token}");
                let version = put(&*store, &key).await;
                Ready { card, key, version }
            }
        })
        .buffer_unordered(48)
        .collect::<Vec<_>>()
        .await;
    for some in ready.chunks(5000) {
        let list = |text: &dyn Fn(&Ready) -> String| {
            some.iter().map(|ready| format!("'{}'", text(ready))).collect::<Vec<_>>().join(",")
        };
        test.sql(&format!(
            r"insert into cards
              select (jsonb_populate_record(c, jsonb_build_object(
                  'id', n.id, 'source_key', 'incoming/' || n.id, 'object_version', n.version, 'purge_at', null,
                  'next_check_at', null, 'sha256', '\x' || encode(sha256(n.id::text::bytea), 'hex')
              ))).*
              from cards c, unnest(array[{}]::uuid[], array[{}]::text[]) as n (id, version)
              where c.id = '{}'",
            list(&|ready| ready.card.to_string()),
            list(&|ready| ready.version.to_string()),
            pattern.id,
        ))
        .await;
    }
    // The pattern has no object of its own.
    test.sql(&format!(
        "delete from outbox;
         delete from card_history where card_id = '{0}';
         delete from cards where id = '{0}'",
        pattern.id
    ))
    .await;
    ready
}

pub(crate) async fn put(store: &dyn ObjectStore, key: &str) -> VersionId {
    let request = PutObject {
        key,
        bytes: Bytes::from_static(b"x"),
        content_type: "text/plain",
        content_disposition: None,
        cache_control: None,
    };
    store.put(request).await.unwrap().version
}
