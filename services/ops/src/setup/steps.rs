//! The steps. Each looks first, writes only in [`Mode::Apply`], and says what it saw.

use std::time::Duration;

use broker::{BrokerError, topology};
use objects::admin::{Admin, Configuration};
use objects::{ObjectError, StoreKind};
use tokio::time::Instant;

use super::error::is_no_bucket;
use super::{
    Cause, Mode, Progress, PutTickets, SetupError, SetupReport, SetupSettings, Step, StepId, StepResult,
    probe_put_tickets,
};

/// How long a server that is away is waited for: a broker's cold start on a busy machine.
const AWAY_MAX: Duration = Duration::from_mins(1);
/// Between two tries.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// One run.
pub(super) struct Run<'a> {
    settings: &'a SetupSettings,
    mode: Mode,
    admin: Admin,
    progress: Progress<'a>,
    steps: Vec<Step>,
}

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bucket {
    Missing,
    Unversioned,
    Versioned,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        settings: &'a SetupSettings,
        mode: Mode,
        progress: Progress<'a>,
    ) -> Result<Self, SetupError> {
        let admin = Admin::new(settings.store.clone())
            .map_err(|error| SetupError::Refused { step: StepId::Bucket, cause: error.into() })?;
        Ok(Self { settings, mode, admin, progress, steps: Vec::new() })
    }

    pub(super) async fn all(mut self) -> Result<SetupReport, SetupError> {
        self.topology().await?;
        let bucket = self.bucket().await?;
        self.versioning(bucket).await?;
        self.policy(bucket).await?;
        self.access_block(bucket).await?;
        self.cors(bucket).await?;
        self.lifecycle(bucket).await?;
        self.notification(bucket).await?;
        let put_tickets = self.put_tickets().await;
        Ok(SetupReport {
            bucket: self.settings.store.bucket.clone(),
            mode: self.mode,
            steps: self.steps,
            put_tickets,
        })
    }

    async fn topology(&mut self) -> Result<(), SetupError> {
        let broker = &self.settings.broker;
        let stands = self
            .patiently(StepId::Topology, move || async move {
                match topology::depth(broker).await {
                    Ok(_) => Ok(true),
                    // Queues are declared after exchanges: the first that is missing says that all was not made.
                    Err(BrokerError::Topology { .. }) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            })
            .await?;
        let result = match self.mode {
            Mode::DryRun => looked(stands),
            Mode::Apply => {
                // Declaring is also the check: it fails where an argument differs.
                self.patiently(StepId::Topology, move || async move {
                    Ok(topology::declare(broker).await.map(drop)?)
                })
                .await?;
                if stands { StepResult::Already } else { StepResult::Created }
            }
        };
        let evidence = format!(
            "{} exchanges, {} queues, {} bindings; the store's exchange is {}",
            topology::EXCHANGES.len(),
            topology::QUEUES.len(),
            topology::BINDINGS.len(),
            self.settings.exchange()
        );
        self.done(StepId::Topology, result, evidence);
        Ok(())
    }

    async fn bucket(&mut self) -> Result<Bucket, SetupError> {
        let admin = &self.admin.clone();
        let found = self
            .patiently(StepId::Bucket, move || async move {
                match admin.versioning_enabled().await {
                    Ok(true) => Ok(Bucket::Versioned),
                    Ok(false) => Ok(Bucket::Unversioned),
                    Err(error) if is_no_bucket(&error) => Ok(Bucket::Missing),
                    Err(error) => Err(error.into()),
                }
            })
            .await?;
        let result = match (found, self.mode) {
            (Bucket::Versioned | Bucket::Unversioned, _) => StepResult::Already,
            (Bucket::Missing, Mode::DryRun) => StepResult::WouldChange,
            (Bucket::Missing, Mode::Apply) => {
                self.patiently(StepId::Bucket, move || async move { Ok(admin.create_bucket().await?) })
                    .await?;
                StepResult::Created
            }
        };
        let store = &self.settings.store;
        self.done(
            StepId::Bucket,
            result,
            format!("{} at {} ({})", store.bucket, store.endpoint, store.kind.as_str()),
        );
        Ok(found)
    }

    async fn versioning(&mut self, found: Bucket) -> Result<(), SetupError> {
        let (result, evidence) = match (found, self.mode) {
            (Bucket::Versioned, _) => (StepResult::Already, "enabled"),
            (Bucket::Missing | Bucket::Unversioned, Mode::DryRun) => (StepResult::WouldChange, "not enabled"),
            (Bucket::Missing | Bucket::Unversioned, Mode::Apply) => {
                let admin = &self.admin.clone();
                self.patiently(
                    StepId::Versioning,
                    move || async move { Ok(admin.enable_versioning().await?) },
                )
                .await?;
                let is_on =
                    self.patiently(StepId::Versioning, move || async move {
                        Ok(admin.versioning_enabled().await?)
                    })
                    .await?;
                if !is_on {
                    return Err(SetupError::NoVersioning { bucket: self.settings.store.bucket.clone() });
                }
                (made(found), "enabled, and read back")
            }
        };
        self.done(StepId::Versioning, result, evidence.to_owned());
        Ok(())
    }

    async fn policy(&mut self, found: Bucket) -> Result<(), SetupError> {
        let admin = &self.admin.clone();
        let principals = &self.settings.principals;
        let write = move || admin.put_policy(principals);
        let result = self.configure(StepId::Policy, found, Configuration::Policy, write).await?;
        let evidence = format!(
            "tickets {}, links {}, workers {}",
            principals.signer, principals.reader, principals.worker
        );
        self.done(StepId::Policy, result, evidence);
        Ok(())
    }

    async fn access_block(&mut self, found: Bucket) -> Result<(), SetupError> {
        let admin = &self.admin.clone();
        let is_blocked = match (found, self.mode) {
            (Bucket::Missing, Mode::DryRun) => false,
            (Bucket::Missing | Bucket::Unversioned | Bucket::Versioned, _) => {
                self.patiently(StepId::AccessBlock, move || async move {
                    Ok(admin.public_access_is_blocked().await?)
                })
                .await?
            }
        };
        let result = match self.mode {
            Mode::DryRun => looked(is_blocked),
            Mode::Apply => {
                self.patiently(
                    StepId::AccessBlock,
                    move || async move { Ok(admin.block_public_access().await?) },
                )
                .await?;
                if is_blocked { StepResult::Already } else { made(found) }
            }
        };
        let evidence = match self.settings.store.kind {
            // Its other half makes every plain PUT fail there.
            StoreKind::Ceph => "public ACLs are ignored; the policy refuses PUTs that carry one",
            StoreKind::Minio | StoreKind::Rustfs | StoreKind::Aws => "public ACLs are blocked and ignored",
        };
        self.done(StepId::AccessBlock, result, evidence.to_owned());
        Ok(())
    }

    async fn cors(&mut self, found: Bucket) -> Result<(), SetupError> {
        match self.settings.store.kind {
            StoreKind::Minio => {
                let evidence = "MinIO answers for all buckets alike: set MINIO_API_CORS_ALLOW_ORIGIN";
                self.done(StepId::Cors, StepResult::Skipped, evidence.to_owned());
                return Ok(());
            }
            StoreKind::Ceph | StoreKind::Rustfs | StoreKind::Aws => {}
        }
        let origins = &self.settings.cors_origins;
        if origins.is_empty() {
            let evidence =
                "no origin is set: nothing is written, and no page can upload unless an older rule lets it";
            self.done(StepId::Cors, StepResult::Skipped, evidence.to_owned());
            return Ok(());
        }
        let admin = &self.admin.clone();
        let write = move || async move { admin.put_cors(origins).await.map(drop) };
        let result = self.configure(StepId::Cors, found, Configuration::Cors, write).await?;
        self.done(StepId::Cors, result, origins.join(", "));
        Ok(())
    }

    async fn lifecycle(&mut self, found: Bucket) -> Result<(), SetupError> {
        let admin = &self.admin.clone();
        let write = move || admin.put_lifecycle();
        let result = self.configure(StepId::Lifecycle, found, Configuration::Lifecycle, write).await?;
        let evidence = "multiparts after a day, markers with nothing behind them; never a version";
        self.done(StepId::Lifecycle, result, evidence.to_owned());
        Ok(())
    }

    async fn notification(&mut self, found: Bucket) -> Result<(), SetupError> {
        let admin = &self.admin.clone();
        let plan = &self.settings.plan();
        let write = move || admin.wire_notifications(plan);
        let result = self.configure(StepId::Notification, found, Configuration::Notification, write).await?;
        let wired: Vec<_> = plan
            .spec
            .queues
            .iter()
            .map(|queue| format!("{}: {} to {}", queue.id, queue.events.join(" "), plan.exchange))
            .collect();
        self.done(StepId::Notification, result, wired.join("; "));
        Ok(())
    }

    async fn put_tickets(&mut self) -> Option<PutTickets> {
        let (result, evidence, told) = match self.mode {
            Mode::DryRun => (StepResult::Skipped, "the probe writes".to_owned(), None),
            Mode::Apply => {
                let told = probe_put_tickets(&self.settings.store, &self.settings.signer).await;
                let evidence = match &told {
                    PutTickets::Allowed => "x-amz-copy-source and x-amz-acl were refused".to_owned(),
                    PutTickets::Refused { reason } => reason.clone(),
                };
                (StepResult::Checked, evidence, Some(told))
            }
        };
        self.done(StepId::PutTickets, result, evidence);
        told
    }

    /// Writes a part of the bucket's configuration, and tells from its text before and after what that did.
    async fn configure<W: Future<Output = Result<(), ObjectError>>>(
        &mut self,
        step: StepId,
        found: Bucket,
        part: Configuration,
        write: impl Fn() -> W,
    ) -> Result<StepResult, SetupError> {
        let admin = &self.admin.clone();
        let before = match (found, self.mode) {
            (Bucket::Missing, Mode::DryRun) => None,
            (Bucket::Missing | Bucket::Unversioned | Bucket::Versioned, _) => {
                self.patiently(step, || async { Ok(admin.configuration(part).await?) }).await?
            }
        };
        match self.mode {
            Mode::DryRun if before.is_some() => return Ok(StepResult::WouldRepeat),
            Mode::DryRun => return Ok(StepResult::WouldChange),
            Mode::Apply => {}
        }
        self.patiently(step, || async { Ok(write().await?) }).await?;
        let after = self.patiently(step, || async { Ok(admin.configuration(part).await?) }).await?;
        Ok(match before {
            None => StepResult::Created,
            Some(_) if before == after => StepResult::Already,
            Some(_) => StepResult::Changed,
        })
    }

    /// Tries until it gets an answer, for [`AWAY_MAX`], and says that it waits.
    async fn patiently<T, A: Future<Output = Result<T, Cause>>>(
        &mut self,
        step: StepId,
        attempt: impl Fn() -> A,
    ) -> Result<T, SetupError> {
        let began = Instant::now();
        loop {
            let cause = match attempt().await {
                Ok(done) => return Ok(done),
                Err(cause) if cause.is_away() => cause,
                Err(cause) => return Err(SetupError::Refused { step, cause }),
            };
            let waited = began.elapsed();
            if waited >= AWAY_MAX {
                return Err(SetupError::StillAway { step, waited_seconds: waited.as_secs(), cause });
            }
            let left = AWAY_MAX.saturating_sub(waited).as_secs();
            let evidence = format!("no answer yet, trying for {left} s more: {cause}");
            (self.progress)(&Step { id: step, what: step.what(), result: StepResult::Waiting, evidence });
            tokio::time::sleep(TRY_EVERY).await;
        }
    }

    fn done(&mut self, id: StepId, result: StepResult, evidence: String) {
        let step = Step { id, what: id.what(), result, evidence };
        (self.progress)(&step);
        self.steps.push(step);
    }
}

fn looked(is_so: bool) -> StepResult {
    if is_so { StepResult::Already } else { StepResult::WouldChange }
}

/// What it is called that something was put on a bucket that had none.
fn made(found: Bucket) -> StepResult {
    match found {
        Bucket::Missing => StepResult::Created,
        Bucket::Unversioned | Bucket::Versioned => StepResult::Changed,
    }
}
