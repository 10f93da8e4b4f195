//! What setup did, as a table for people and as JSON for programs.

use std::fmt;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use super::PutTickets;

/// Fits most terminals and a page of a log.
const TABLE_COLUMNS: u16 = 120;

/// Act, or only look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Bring everything to what it should be.
    Apply,
    /// Say what would be done. Nothing is written anywhere.
    DryRun,
}

/// A step's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepId {
    /// Exchanges, queues and bindings.
    Topology,
    /// The bucket.
    Bucket,
    /// Its versions.
    Versioning,
    /// Who may do what with it.
    Policy,
    /// ACLs.
    AccessBlock,
    /// Pages that may upload.
    Cors,
    /// What the store clears by itself.
    Lifecycle,
    /// The bucket's events.
    Notification,
    /// The PUT probe.
    PutTickets,
}

impl StepId {
    /// Every step, in order.
    pub const ALL: [Self; 9] = [
        Self::Topology,
        Self::Bucket,
        Self::Versioning,
        Self::Policy,
        Self::AccessBlock,
        Self::Cors,
        Self::Lifecycle,
        Self::Notification,
        Self::PutTickets,
    ];

    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Topology => "topology",
            Self::Bucket => "bucket",
            Self::Versioning => "versioning",
            Self::Policy => "policy",
            Self::AccessBlock => "access_block",
            Self::Cors => "cors",
            Self::Lifecycle => "lifecycle",
            Self::Notification => "notification",
            Self::PutTickets => "put_tickets",
        }
    }

    /// What it does.
    pub fn what(self) -> &'static str {
        match self {
            Self::Topology => "declares exchanges, queues and bindings at the broker",
            Self::Bucket => "makes the bucket",
            Self::Versioning => "switches versioning on",
            Self::Policy => "lets each identity do what it is for, and nothing else",
            Self::AccessBlock => "makes ACLs powerless",
            Self::Cors => "lets pages of our origins upload",
            Self::Lifecycle => "clears unfinished multiparts and expired markers",
            Self::Notification => "sends the bucket's events to the broker",
            Self::PutTickets => "tries to misuse a PUT ticket",
        }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// It was not there, and now is.
    Created,
    /// It was as it should be.
    Already,
    /// It was otherwise, and now is as it should be.
    Changed,
    /// A dry run found it missing or different.
    WouldChange,
    /// A dry run found one. It would be put again; whether that changes anything is known only afterwards.
    WouldRepeat,
    /// Something was found out; there is nothing to make.
    Checked,
    /// Not for this store, or not in a dry run: the evidence says which.
    Skipped,
    /// Not an end: a server is away and is asked again. Only [`super::Progress`] sees it.
    Waiting,
}

impl StepResult {
    /// Its words in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Already => "already",
            Self::Changed => "changed",
            Self::WouldChange => "would change",
            Self::WouldRepeat => "would repeat",
            Self::Checked => "checked",
            Self::Skipped => "skipped",
            Self::Waiting => "waiting",
        }
    }
}

/// One step as it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Which.
    pub id: StepId,
    /// What it does.
    pub what: &'static str,
    /// How it ended.
    pub result: StepResult,
    /// What was seen.
    pub evidence: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:12}  {:12}  {}", self.id.as_str(), self.result.as_str(), self.evidence)
    }
}

/// The whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetupReport {
    /// The bucket.
    pub bucket: String,
    /// Whether anything was written.
    pub mode: Mode,
    /// Every step, in order.
    pub steps: Vec<Step>,
    /// What the probe said; a dry run makes none, because it writes.
    pub put_tickets: Option<PutTickets>,
}

impl SetupReport {
    /// How one step ended.
    pub fn result(&self, id: StepId) -> Option<StepResult> {
        self.steps.iter().find(|step| step.id == id).map(|step| step.result)
    }
}

impl fmt::Display for SetupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        // Evidence can be long: it is wrapped. The terminal is not asked, output to a file looks the same.
        table
            .load_style(presets::UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(TABLE_COLUMNS)
            .set_header(["step", "what it does", "result", "evidence"]);
        for step in &self.steps {
            table.add_row([step.id.as_str(), step.what, step.result.as_str(), &step.evidence]);
        }
        writeln!(f, "{table}")?;
        match &self.put_tickets {
            Some(PutTickets::Allowed) => write!(f, "PUT tickets: allowed"),
            Some(PutTickets::Refused { reason }) => write!(f, "PUT tickets: refused, {reason}"),
            None => write!(f, "PUT tickets: not probed in a dry run"),
        }
    }
}
