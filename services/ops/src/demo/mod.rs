//! `arkiv demo`: from a ticket to a thumbnail, as a browser would do it, for good files and bad ones.
//!
//! In: where the API is. Out: a table on stdout (or JSON, and then nothing else), each file's way on stderr, and whether
//! all ended as announced. An error means that it could not begin; a file that failed is a row of the table.
//!
//! 1. A new owner each run signs in at the development issuer, so that nothing is a duplicate of an earlier run.
//! 2. The samples are made.
//! 3. Each file: ticket, upload straight to the store, and no confirm call: the bucket's event confirms it (R-B3).
//! 4. Its card is asked for until it is settled; the states between come from its timeline, so fast ones show too.
//! 5. A picture's thumbnail is fetched through its link and decoded (R-C4, R-D2).

mod client;
mod documents;
#[cfg(test)]
mod fake_api;
mod live;
mod picture;
mod samples;
mod table;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cards::{Ids, StateName};
use futures::StreamExt as _;

use self::client::{Api, FileView};
#[cfg(test)]
pub(crate) use self::client::{Upload, upload};
use self::live::{Line, Live};
#[cfg(test)]
pub(crate) use self::samples::Sample;
#[cfg(not(test))]
use self::samples::Sample;
use self::table::Outcome;

/// Uploads at once: what browsers' uploaders do.
const UPLOADS_AT_ONCE: usize = 4;
/// Between two looks at a card, and between two steps of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the demo is told.
#[derive(Clone, Debug)]
pub struct DemoSettings {
    /// Where the API answers, `http://127.0.0.1:22700`.
    pub api_url: String,
    /// JSON on stdout instead of the table.
    pub json: bool,
    /// The longest one file may take from ticket to settled.
    pub timeout: Duration,
}

/// Runs it. True: every file ended as announced.
pub async fn run(settings: DemoSettings) -> anyhow::Result<bool> {
    let subject = format!("demo-{}", Ids.owner());
    let outcomes = play(&settings, &subject).await?;
    let mut stdout = std::io::stdout().lock();
    if settings.json {
        writeln!(stdout, "{}", table::json(&outcomes))?;
    } else {
        let next = where_next(&settings.api_url, &subject, &outcomes);
        writeln!(stdout, "{}\n{next}", table::render(&outcomes))?;
    }
    Ok(outcomes.iter().all(Outcome::as_expected))
}

async fn play(settings: &DemoSettings, subject: &str) -> anyhow::Result<Vec<Outcome>> {
    let api = Api::sign_in(&settings.api_url, subject).await?;
    let live = Live::new()?;
    live.say(&format!("signed in as {subject}; making the samples"));
    let chains = tokio::task::spawn_blocking(samples::chains).await.context("making the samples")??;
    let outcomes: Vec<Vec<Outcome>> = futures::stream::iter(chains)
        .map(|chain| travel_in_turn(&api, &live, chain, settings.timeout))
        .buffered(UPLOADS_AT_ONCE)
        .collect()
        .await;
    Ok(outcomes.into_iter().flatten().collect())
}

async fn travel_in_turn(api: &Api, live: &Live, chain: Vec<Sample>, within: Duration) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(chain.len());
    for sample in chain {
        let own = live.line(sample.name);
        let outcome = travel(api, &own, &sample, within).await;
        own.finish(&outcome);
        outcomes.push(outcome);
    }
    outcomes
}

/// One file's way. What goes wrong is written on the outcome.
async fn travel(api: &Api, line: &Line, sample: &Sample, within: Duration) -> Outcome {
    let mut outcome = Outcome {
        name: sample.name,
        content_type: sample.media_type.as_str(),
        size_bytes: sample.bytes.len() as u64,
        expected: sample.expected,
        expected_reason: sample.reason,
        expected_thumb_px: sample.thumb_px,
        id: None,
        state: None,
        reason: None,
        states: Vec::new(),
        ms: 0,
        thumb_px: None,
        error: None,
    };
    let began = Instant::now();
    let way = send_and_watch(api, line, sample, &mut outcome, within);
    let ended = tokio::time::timeout(within, way).await;
    outcome.ms = began.elapsed().as_millis();
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => outcome.error = Some(format!("{error:#}")),
        Err(_) => {
            let before = outcome.error.take().map(|error| format!("; the last answer: {error}"));
            outcome.error =
                Some(format!("not settled within {} s{}", within.as_secs(), before.unwrap_or_default()));
        }
    }
    if let (Some(id), Some(_), Some(StateName::Ready)) = (outcome.id, sample.thumb_px, outcome.state) {
        match api.thumb_px(id).await {
            Ok(px) => outcome.thumb_px = Some(px),
            Err(error) => outcome.error = Some(format!("{error:#}")),
        }
    }
    outcome
}

async fn send_and_watch(
    api: &Api,
    line: &Line,
    sample: &Sample,
    outcome: &mut Outcome,
    within: Duration,
) -> anyhow::Result<()> {
    let issued = api.ticket(sample).await?;
    outcome.id = Some(issued.id);
    outcome.state = Some(StateName::Pending);
    outcome.states = vec![StateName::Pending];
    let sent = Arc::new(AtomicU64::new(0));
    let mut upload = std::pin::pin!(client::upload(issued.upload, sample, Arc::clone(&sent), within));
    loop {
        tokio::select! {
            answer = &mut upload => break answer?,
            () = tokio::time::sleep(LOOK_EVERY) => line.sending(&sent, outcome.size_bytes),
        }
    }
    // The caller bounds this in time. An API that is away for a moment is asked again.
    loop {
        match api.file(issued.id).await {
            Ok(view) => {
                outcome.error = None;
                see(outcome, &view);
                line.travelled(&outcome.states);
                if is_over(view.state) {
                    return Ok(());
                }
            }
            Err(error) => outcome.error = Some(format!("{error:#}")),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn see(outcome: &mut Outcome, view: &FileView) {
    let mut states: Vec<_> = view.timeline.iter().map(|moment| moment.state).collect();
    states.push(view.state);
    states.dedup();
    outcome.states = states;
    outcome.state = Some(view.state);
    outcome.reason = match view.state {
        StateName::Ready => None,
        StateName::Pending
        | StateName::Queued
        | StateName::Processing
        | StateName::Duplicate
        | StateName::Rejected
        | StateName::Expired
        | StateName::Deleting
        | StateName::Deleted => view.problem.as_ref().map(|problem| problem.code.clone()),
    };
}

/// Whether waiting longer changes nothing. Nobody here deletes, so `deleting` is somebody else's doing and an end too.
fn is_over(state: StateName) -> bool {
    state.is_settled() || state == StateName::Deleting
}

/// How to look at the same by hand.
fn where_next(api_url: &str, subject: &str, outcomes: &[Outcome]) -> String {
    let url = api_url.trim_end_matches('/');
    let picture = outcomes.iter().find(|outcome| outcome.thumb_px.is_some()).and_then(|outcome| outcome.id);
    let id = picture.map_or_else(|| "FILE_ID".to_owned(), |id| id.to_string());
    format!(
        "\nTo look further, as the same owner:\n\
         \x20 TOKEN=$(curl -s {url}/dev/token -H 'content-type: application/json' \
         -d '{{\"subject\":\"{subject}\"}}' | cut -d'\"' -f4)\n\
         \x20 curl -s -H \"authorization: Bearer $TOKEN\" {url}/v1/files\n\
         \x20 curl -s -H \"authorization: Bearer $TOKEN\" {url}/v1/files/{id}\n\
         \x20 curl -sL -H \"authorization: Bearer $TOKEN\" {url}/v1/files/{id}/preview -o preview.webp\n\
         \x20 ./dev logs"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(json: &str) -> FileView {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn states_too_fast_to_be_seen_come_from_the_timeline() {
        let mut outcome = Outcome { states: vec![StateName::Pending], ..table::tests::ready() };
        see(
            &mut outcome,
            &view(
                r#"{"state":"ready","problem":null,"timeline":[
                {"event":"ticket_issued","state":"pending"},{"event":"version_refused","state":"pending"},
                {"event":"confirmed","state":"queued"},{"event":"leased","state":"processing"},
                {"event":"ready","state":"ready"}]}"#,
            ),
        );
        assert_eq!(outcome.journey(), "pending → queued → processing → ready  1.8 s");
        assert!(outcome.as_expected());
    }

    #[test]
    fn a_refused_file_has_its_reason_and_a_ready_one_none() {
        let mut outcome = table::tests::ready();
        see(&mut outcome, &view(r#"{"state":"rejected","problem":{"code":"truncated","detail":"x"}}"#));
        assert_eq!(outcome.reason.as_deref(), Some("truncated"));
        see(&mut outcome, &view(r#"{"state":"ready","problem":{"code":"metadata_mismatch","detail":"x"}}"#));
        assert_eq!(outcome.reason, None);
    }

    fn settings(api_url: String) -> DemoSettings {
        DemoSettings { api_url, json: true, timeout: Duration::from_mins(1) }
    }

    #[tokio::test]
    async fn every_file_travels_to_its_announced_end() {
        let fake = fake_api::start(None).await;
        let outcomes = play(&settings(fake.url.clone()), "demo-x").await.unwrap();
        assert_eq!(outcomes.len(), 11);
        for outcome in &outcomes {
            assert!(outcome.as_expected(), "{outcome:?}");
            let first = [StateName::Pending, StateName::Queued, StateName::Processing];
            assert_eq!(outcome.states[..3], first, "{outcome:?}");
        }
        let names: Vec<_> = fake.uploads.lock().unwrap().iter().map(|upload| upload.0.clone()).collect();
        assert_eq!(names.len(), 11, "each was sent once, without a PUT ticket too: {names:?}");
        let at = |name: &str| names.iter().position(|one| one == name).unwrap();
        assert!(at("alpha.png") < at("alpha-again.png"), "the original first");
    }

    #[tokio::test]
    async fn one_file_that_ends_otherwise_is_told_and_the_rest_goes_on() {
        let fake = fake_api::start(Some("cut-off.jpg")).await;
        let outcomes = play(&settings(fake.url), "demo-x").await.unwrap();
        let bad: Vec<_> = outcomes.iter().filter(|outcome| !outcome.as_expected()).collect();
        let [bad] = bad.as_slice() else { panic!("{bad:?}") };
        assert_eq!((bad.name, bad.state), ("cut-off.jpg", Some(StateName::Ready)));
    }

    #[test]
    fn the_lines_to_try_next_name_a_file_that_is_there() {
        let outcome = table::tests::ready();
        let lines = where_next("http://127.0.0.1:1/", "demo-x", std::slice::from_ref(&outcome));
        assert!(lines.contains(&format!("http://127.0.0.1:1/v1/files/{}/preview", outcome.id.unwrap())));
        assert!(lines.contains(r#"-d '{"subject":"demo-x"}'"#), "{lines}");
    }
}
