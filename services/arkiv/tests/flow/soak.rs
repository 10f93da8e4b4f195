//! The soak: hundreds of files down every path while the processes die at every kill point, then the janitor's and the
//! deleter's work, then `arkiv fsck`: zero violations, no object that no card calls for, no `ready` card without bytes
//! (R-H4, INV-1 to INV-3). And the same with every bucket event suppressed.
//!
//! Which path a file takes, and where and when a process dies, follows from a seed that is printed;
//! `ARKIV_SOAK_SEED=<n>` walks the same way again, as far as a scheduler lets it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cards::SourceKey;
use futures::{StreamExt, stream};
use objects::{ObjectStore, PutObject, S3};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::until;
use tokio_util::sync::CancellationToken;

use crate::PHOTO;
use crate::stack::{Process, Stack};

/// Files in one soak.
const FILES: usize = 240;
/// Clients that upload at once.
const CLIENTS: usize = 8;
/// For one thing to come to its end: only a fault takes so long, however busy the machine is.
const END_WITHIN: Duration = Duration::from_mins(10);

#[tokio::test(flavor = "multi_thread")]
async fn after_a_soak_with_every_kill_the_bucket_is_what_the_database_says() {
    soak(Events::Sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_soak_without_any_event_the_bucket_is_what_the_database_says() {
    soak(Events::Suppressed).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Events {
    Sent,
    /// Nobody ever reads the queue of bucket events, and it is emptied.
    Suppressed,
}

impl Events {
    fn roles(self) -> &'static [&'static str] {
        match self {
            Self::Sent => &["confirmer", "relay", "decoder", "deleter", "janitor"],
            Self::Suppressed => &["relay", "decoder", "deleter", "janitor"],
        }
    }
}

/// xorshift64*: any fixed sequence will do.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let sides = u64::try_from(sides).unwrap();
        usize::try_from((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides).unwrap()
    }
}

fn seed() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a wish of whoever runs the test, no setting of the product"
    )]
    let wish = std::env::var("ARKIV_SOAK_SEED");
    wish.ok().and_then(|wish| wish.parse().ok()).unwrap_or(20_261_201)
}

async fn soak(events: Events) {
    let seed = seed();
    let stack = Stack::new().await;
    let _api = stack.start("api");
    stack.ready().await;
    let over = CancellationToken::new();
    let died = {
        let doom = async {
            let dooms = events.roles().iter().map(|role| doom(&stack, role, seed, events, &over));
            futures::future::join_all(dooms).await.into_iter().flatten().collect::<BTreeMap<_, _>>()
        };
        let load = async {
            load(&stack, seed).await;
            over.cancel();
        };
        tokio::join!(doom, load).0
    };
    // Each process died at each of its points.
    for role in events.roles() {
        let alive: Vec<_> =
            points_of(role, events).into_iter().filter(|point| !died[role].contains(point)).collect();
        assert!(alive.is_empty(), "seed {seed}: {role} never died at {alive:?}");
    }

    // Now nothing dies. Time passes, and every card comes to its end by itself.
    let _roles: Vec<Process> = events.roles().iter().map(|role| stack.start(role)).collect();
    until("nothing to be owed any more", END_WITHIN, || async {
        if events == Events::Suppressed {
            broker::testing::purge(&stack.broker.settings(), "card.confirm").await.unwrap();
        }
        stack.db.pass_time(61).await;
        let owed = "select count(*) from cards where next_check_at is not null";
        let waiting = "select count(*) from outbox";
        (stack.db.count(owed).await == 0 && stack.db.count(waiting).await == 0).then_some(())
    })
    .await;

    stack.check().await;
    check_bucket(&stack, seed).await;
    let fsck = stack.run("fsck", &["--json"]).await;
    let report: Value = serde_json::from_slice(&fsck.stdout).unwrap();
    assert!(fsck.status.success(), "seed {seed}: {report:#}");
    assert_eq!((&report["violations"], &report["warnings"]), (&json!([]), &json!([])), "seed {seed}");
    assert_eq!(report["checked"]["cards"], json!(stack.db.count("select count(*) from cards").await));
    let states =
        stack.db.texts("select state || ' ' || count(*) from cards group by state order by state").await;
    for state in ["deleted", "duplicate", "expired", "ready", "rejected"] {
        assert!(
            states.iter().any(|row| row.starts_with(state)),
            "no file took the path to {state}: {states:?}"
        );
    }
    if events == Events::Suppressed {
        assert_eq!(stack.db.count("select count(*) from cards where confirmed_by = 'event'").await, 0);
    }
}

/// The kill points a role passes.
fn points_of(role: &str, events: Events) -> Vec<&'static str> {
    telemetry::kill::POINTS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| crate::kills::role_of(name) == role)
        // Without an event the janitor's process is the one that confirms.
        .chain((events == Events::Suppressed && role == "janitor").then_some("confirm.before_commit"))
        .collect()
}

/// Starts a role over and over, each time to die at another of its kill points, after another number of passes.
async fn doom<'a>(
    stack: &Stack,
    role: &'a str,
    seed: u64,
    events: Events,
    over: &CancellationToken,
) -> Option<(&'a str, BTreeSet<&'static str>)> {
    let mut dice = Dice(seed ^ role.bytes().fold(1, |hash, byte| hash * 31 + u64::from(byte)));
    let points = points_of(role, events);
    let mut died = BTreeSet::new();
    // Grows with each point that was not reached: on a busy machine a process needs longer to do any work at all, and one that
    // is always killed before it lets nothing come to an end.
    let mut patience = Duration::from_secs(2);
    while !over.is_cancelled() {
        // Points it has not died at come first, and soon; then any, after any number of passes.
        let spared: Vec<_> = points.iter().copied().filter(|point| !died.contains(point)).collect();
        let (choice, passes) = if spared.is_empty() { (&points, 12) } else { (&spared, 3) };
        let (point, passes) = (choice[dice.roll(choice.len())], 1 + dice.roll(passes));
        let mut doomed = stack.start_doomed(role, &format!("{point}:{passes}"));
        // A point that is not reached in this time is left for the next: the load has moved on.
        let ended = tokio::select! {
            ended = tokio::time::timeout(patience, doomed.died()) => ended.is_ok(),
            () = over.cancelled() => false,
        };
        if ended {
            died.insert(point);
            patience = Duration::from_secs(2);
        } else {
            patience += Duration::from_secs(2);
        }
        doomed.kill();
    }
    Some((role, died))
}

/// Hundreds of files, a few at a time; and time passes meanwhile.
async fn load(stack: &Stack, seed: u64) {
    let passing = async {
        loop {
            // Nothing is waited for: this is what makes the database's time run thirteen times as fast.
            tokio::time::sleep(Duration::from_secs(1)).await;
            stack.db.pass_time(13).await;
        }
    };
    let mut files = stream::iter(0..FILES)
        .map(|n| {
            let dice = Dice(seed.wrapping_mul(n as u64 * 2 + 1) | 1);
            one_file(stack, n, dice)
        })
        .buffer_unordered(CLIENTS);
    let all = async { while files.next().await.is_some() {} };
    tokio::select! {
        () = all => {}
        () = passing => {}
    }
}

/// One client's story. Nothing here may fail but by the product's fault: the API and the store never die.
async fn one_file(stack: &Stack, n: usize, mut dice: Dice) {
    let text = format!("file {n}");
    let path = dice.roll(12);
    match path {
        // Ready, with previews now and then; its ticket used twice now and then (R-B6).
        0 | 1 => {
            let (content_type, bytes) =
                if path == 0 { ("image/jpeg", PHOTO) } else { ("text/plain", text.as_bytes()) };
            let ticket = stack.ticket("POST", content_type, bytes).await;
            stack.upload_with(&ticket, bytes).await;
            if dice.roll(2) == 0 {
                stack.upload_with(&ticket, bytes).await;
            }
        }
        // The same bytes as others (R-C6).
        2 => drop(stack.upload("the same as others").await),
        // Refused by the decoder (R-C7).
        3 => drop(stack.upload_as("POST", "image/png", text.as_bytes()).await),
        // Never uploaded (R-B7).
        4 => drop(stack.ticket("POST", "text/plain", text.as_bytes()).await),
        // Refused by the confirmer, then right (R-B5): what somebody with the bucket owner's key may do.
        5 => {
            let ticket = stack.ticket("POST", "text/plain", text.as_bytes()).await;
            put_wrong(stack, &ticket).await;
            stack.upload_with(&ticket, text.as_bytes()).await;
        }
        // Deleted at once, or later, or with bytes after it (R-E1, R-E3).
        6..=8 => {
            let ticket = stack.ticket("POST", "text/plain", text.as_bytes()).await;
            let id = ticket["id"].as_str().unwrap();
            if dice.roll(3) > 0 {
                stack.upload_with(&ticket, text.as_bytes()).await;
            }
            // Nothing is waited for: the deletion comes at a random moment.
            tokio::time::sleep(Duration::from_millis(u64::try_from(dice.roll(2000)).unwrap())).await;
            let (status, answer) = stack.call(Method::DELETE, &format!("/v1/files/{id}"), None).await;
            assert_eq!(status, 202, "{answer}");
            if dice.roll(2) == 0 {
                stack.upload_with(&ticket, text.as_bytes()).await;
            }
        }
        // Replaced (R-F1), and an original with an alias deleted (R-C6), once they are there.
        _ => {
            let old = stack.upload(&text).await;
            let state = until("a file to come to an end", END_WITHIN, || async {
                let state = stack.state(&old).await;
                ["ready", "duplicate", "expired"].contains(&state.as_str()).then_some(state)
            })
            .await;
            if state == "expired" {
                // The database's time ran away from the store's while the confirmer was down.
                return;
            }
            if path == 9 {
                stack.upload(&text).await;
                stack.call(Method::DELETE, &format!("/v1/files/{old}"), None).await;
            } else {
                let new = format!("instead of {n}");
                let body = json!({
                    "filename": "new", "size": new.len(), "content_type": "text/plain", "replaces": old,
                });
                let (status, ticket) = stack.call(Method::POST, "/v1/files", Some(body)).await;
                assert_eq!(status, 201, "{ticket}");
                stack.upload_with(&ticket, new.as_bytes()).await;
            }
        }
    }
}

async fn put_wrong(stack: &Stack, ticket: &Value) {
    let key = SourceKey(ticket["id"].as_str().unwrap().parse().unwrap()).to_string();
    S3::new(&stack.bucket.settings("ADMIN"))
        .put(PutObject {
            key: &key,
            bytes: b"something else"[..].into(),
            content_type: "text/plain",
            content_disposition: None,
            cache_control: None,
        })
        .await
        .unwrap();
}

/// The bucket, compared with the rows by this test's own few lines: what is there is what `ready` cards record.
async fn check_bucket(stack: &Stack, seed: u64) {
    let called_for: BTreeSet<String> = stack
        .db
        .texts(
            "select format('files/%s/%s %s', id, accepted_token, object_version) from cards where state = 'ready'
             union all
             select format('derived/%s/%s/%s %s', id, accepted_token, d ->> 'name', d ->> 'version')
             from cards, jsonb_array_elements(derivatives) d
             where state = 'ready'",
        )
        .await
        .into_iter()
        .collect();
    let there: BTreeSet<String> = stack.versions().await.into_iter().collect();
    let strays: Vec<_> = there.difference(&called_for).collect();
    let missing: Vec<_> = called_for.difference(&there).collect();
    assert!(strays.is_empty() && missing.is_empty(), "seed {seed}: strays {strays:?}, missing {missing:?}");
}
