//! `arkiv setup`: makes broker and bucket what the product needs (R-I4). It may be run again at any time.
//!
//! In: [`SetupSettings`], and whether to act or only to look ([`Mode`]). Out: a [`SetupReport`], and each [`Step`] as it
//! ends. The first step that fails ends the run, with what was tried, why it failed and what to do ([`SetupError`]); what
//! was done before stays, and the next run finds it. A server that is away is waited for, for a minute, and said so.
//!
//! 1. `topology`: exchanges, queues, bindings. First, because Ceph looks for the exchange and loses events without it.
//! 2. `bucket`
//! 3. `versioning`: refused where it can't be had: a version is what INV-1 pins (R-B9).
//! 4. `policy`: who may do what, the ticket signer only `PutObject` under `incoming/` (R-A2).
//! 5. `access_block`: after the policy, which a block of policies would refuse. Makes ACLs powerless.
//! 6. `cors`: from which pages a browser may upload.
//! 7. `lifecycle`: clears unfinished multiparts and expired markers, never a version.
//! 8. `notification`: the bucket's events to the exchange (R-B1), as `minio-notify.json` says.
//! 9. `put_tickets`: whether PUT tickets can be misused here (R-A2). Only told: the API then gives none out.

mod error;
mod report;
mod steps;
#[cfg(test)]
mod tests;

use broker::topology::BUCKET_EVENTS;
use objects::admin::{Admin, Principals, PutProbe};
use objects::notify::{NotifyPlan, NotifySpec};
use objects::ticket::TicketSigner;
use objects::{S3Settings, SignerSettings};
use serde::Serialize;

pub use self::error::{Cause, SetupError};
pub use self::report::{Mode, SetupReport, Step, StepId, StepResult};

/// Shown each step as it ends, and each wait as it goes on ([`StepResult::Waiting`]).
pub type Progress<'a> = &'a mut (dyn FnMut(&Step) + Send);

/// What setup is told.
#[derive(Clone, Debug)]
pub struct SetupSettings {
    /// The bucket, as the identity sees it that owns it.
    pub store: S3Settings,
    /// Who signs tickets: the PUT probe uses one.
    pub signer: SignerSettings,
    /// The other identities, as the policy names them.
    pub principals: Principals,
    /// Which events are sent: `minio-notify.json`.
    pub notify: NotifySpec,
    /// The broker as our processes reach it.
    pub broker: broker::Settings,
    /// The broker as the store reaches it, with the store's own user: a password, never shown. Only Ceph is told.
    pub amqp_store_url: StoreUrl,
    /// The origins of pages that may upload.
    pub cors_origins: Vec<String>,
}

/// An AMQP URL that debug output keeps to itself.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(pub String);

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreUrl(***)")
    }
}

impl SetupSettings {
    /// The exchange the store publishes to: exactly the one the topology step declares, so that they can't disagree.
    pub fn exchange(&self) -> String {
        format!("{}{BUCKET_EVENTS}", self.broker.prefix)
    }

    /// How the bucket's events are wired. Ceph's topic, which is also the routing key, is named as the bucket.
    fn plan(&self) -> NotifyPlan {
        NotifyPlan {
            exchange: self.exchange(),
            amqp_url: self.amqp_store_url.0.clone(),
            topic: self.store.bucket.clone(),
            spec: self.notify.clone(),
        }
    }
}

/// Whether the API may give out PUT tickets (R-A2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum PutTickets {
    /// The store takes what a ticket signed and refuses what it did not.
    Allowed,
    /// It does not, or nobody knows.
    Refused {
        /// Why, for operators.
        reason: String,
    },
}

/// Runs all steps.
pub async fn setup(
    settings: &SetupSettings,
    mode: Mode,
    progress: Progress<'_>,
) -> Result<SetupReport, SetupError> {
    steps::Run::new(settings, mode, progress)?.all().await
}

/// Tries to misuse a PUT ticket, as its holder could. Needs the bucket's owner, whose object would be the victim. A probe
/// that could not be made refuses PUT tickets too: POST tickets do without.
pub async fn probe_put_tickets(store: &S3Settings, signer: &SignerSettings) -> PutTickets {
    let refused = |reason: String| PutTickets::Refused { reason };
    let admin = match Admin::new(store.clone()) {
        Ok(admin) => admin,
        Err(error) => return refused(format!("the probe could not be made: {error}")),
    };
    match admin.probe_put(&TicketSigner::new(signer.clone())).await {
        Ok(PutProbe::NoControl { status }) => refused(format!(
            "the signer's plain PUT under incoming/ was answered {status}, so the probe proves nothing: check the \
             signer's key (ARKIV_S3_SIGNER_*) and the bucket's policy (arkiv setup)"
        )),
        Ok(probe @ PutProbe::Tried { .. }) if probe.is_safe() => PutTickets::Allowed,
        Ok(PutProbe::Tried { copy_source, acl }) => refused(format!(
            "the store does not refuse what a ticket did not sign: x-amz-copy-source got {copy_source}, x-amz-acl got \
             {acl}"
        )),
        Err(error) => refused(format!("the probe could not be made: {error}")),
    }
}
