//! A large bucket: exactly the strays go, memory stays flat, and past 1 % nothing goes (R-H2). 20,000 versions in memory, and
//! 1,200 on the real store. With `ARKIV_TEST_LARGE_BUCKET=1` it has 20,000 too: putting them takes minutes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cards::Ids;
use futures::{StreamExt, stream};
use janitor::reconcile::{Mode, ReconcileSettings, Reconciler, Report, Verdict};
use objects::admin::{Admin, Principals};
use objects::fake::Fake;
use objects::{ObjectStore, S3, Walk};
use testkit::{Env, TestBucket, TestDb};

use crate::world::{APPLY, DAY_SECONDS, put, ready_cards};

/// All that is walked, of which so few are strays, and so many a day later.
#[derive(Clone, Copy)]
struct Size {
    versions: usize,
    few: usize,
    many: usize,
}

const TWENTY_THOUSAND: Size = Size { versions: 20_000, few: 150, many: 500 };
const OVER_A_PAGE: Size = Size { versions: 1200, few: 10, many: 40 };

/// Kilobytes of memory this process has had at most: a process that has been large stays so in this number.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn bucket() -> TestBucket {
    let bucket = TestBucket::new();
    let admin = Admin::new(bucket.settings("ADMIN")).unwrap();
    let principal = |name: &str| Env::get().value(&format!("ARKIV_S3_{name}_PRINCIPAL")).to_owned();
    admin.create_bucket().await.unwrap();
    admin.enable_versioning().await.unwrap();
    admin
        .put_policy(&Principals {
            signer: principal("SIGNER"),
            reader: principal("READER"),
            worker: principal("WORKER"),
        })
        .await
        .unwrap();
    bucket
}

async fn strays(store: &dyn ObjectStore, strays: usize) {
    stream::iter((0..strays).map(|_| format!("incoming/{}", Ids.card())))
        .for_each_concurrent(48, |key| async move {
            put(store, &key).await;
        })
        .await;
}

async fn all(store: Arc<dyn ObjectStore>) -> Vec<(String, String)> {
    let mut walk = Walk::new(store, None);
    let mut all = Vec::new();
    while let Some(chunk) = walk.next().await.unwrap() {
        all.extend(chunk.versions.into_iter().map(|version| (version.key, version.version.to_string())));
    }
    all
}

async fn run(reconciler: &Reconciler, mode: Mode) -> (Report, Duration) {
    let begun = Instant::now();
    let report = reconciler.run(mode, &mut |_| {}).await.unwrap();
    (report, begun.elapsed())
}

#[tokio::test]
async fn of_twenty_thousand_versions_exactly_the_strays_go_and_past_one_percent_none() {
    let fake = Fake::new();
    check(TWENTY_THOUSAND, Arc::new(fake.clone()), Arc::new(fake)).await;
}

#[tokio::test]
async fn the_real_store_loses_exactly_its_strays_and_past_one_percent_none() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a wish of whoever runs the test, no setting of the product"
    )]
    let large = std::env::var_os("ARKIV_TEST_LARGE_BUCKET").is_some();
    check_real(if large { TWENTY_THOUSAND } else { OVER_A_PAGE }).await;
}

/// What is no worker's to put is put by the bucket's owner; the reconciler has the worker's rights.
async fn check_real(size: Size) {
    let bucket = bucket().await;
    let [owner, worker] =
        ["ADMIN", "WORKER"].map(|name| Arc::new(S3::new(&bucket.settings(name))) as Arc<dyn ObjectStore>);
    check(size, owner, worker).await;
}

#[expect(clippy::print_stderr, reason = "its times are what an operator wants to know: --nocapture")]
async fn check(size: Size, owner: Arc<dyn ObjectStore>, worker: Arc<dyn ObjectStore>) {
    let Size { versions, few, many } = size;
    let test = TestDb::new().await;
    let begun = Instant::now();
    let ready = ready_cards(&test, Arc::clone(&owner), versions - few).await;
    strays(&*owner, few).await;
    eprintln!("{versions} PUTs took {:?}", begun.elapsed());
    let mut expected: Vec<_> =
        ready.iter().map(|ready| (ready.key.clone(), ready.version.to_string())).collect();
    expected.sort();

    let reconciler = Reconciler::new(test.worker(), Arc::clone(&worker), ReconcileSettings::default());
    let before_kb = peak_kb();
    let (first, took) = run(&reconciler, APPLY).await;
    let grown_kb = peak_kb() - before_kb;
    let per_thousand_ms = took.as_millis() * 1000 / versions as u128;
    eprintln!("a walk took {per_thousand_ms} ms per 1,000 versions, memory grew by {grown_kb} kB");
    assert_eq!((first.versions, first.unknown, first.waiting), (versions as u64, few as u64, few as u64));
    assert_eq!((first.kept, first.missing, first.removed), ((versions - few) as u64, 0, 0));
    // One chunk and its cards, whatever the bucket holds; other tests of this process grow meanwhile.
    assert!(grown_kb < 64 * 1024, "{grown_kb} kB");

    test.pass_time(DAY_SECONDS).await;
    let (second, took) = run(&reconciler, APPLY).await;
    eprintln!("a walk and {few} removals took {took:?}");
    assert_eq!((second.verdict, second.removed, second.failed), (Verdict::Removed, few as u64, 0));
    assert_eq!(all(Arc::clone(&worker)).await, expected);

    strays(&*owner, many).await;
    run(&reconciler, Mode::DryRun).await;
    test.pass_time(DAY_SECONDS).await;
    let (third, _) = run(&reconciler, APPLY).await;
    assert_eq!((third.verdict, third.is_alarm), (Verdict::TooManyStrays, true), "{third:?}");
    assert_eq!((third.removed, third.removable), (0, many as u64));
    assert_eq!(all(worker).await.len(), versions - few + many);
}
