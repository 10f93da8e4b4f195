//! Tracing, metrics and the trace context that travels through metadata, outbox rows and message headers (R-I5).
//!
//! - [`init`]: log lines to standard error, for people or for machines.
//! - [`Metrics`] and [`metric`]: numbers for Prometheus, all named in one table.
//! - [`trace`]: one trace from ticket to last consumer. Spans carry it as the field `trace_id`.
//! - [`kill`]: points at which failure tests let a process die.

pub mod kill;
pub mod metric;
pub mod trace;

mod logs;
mod numbers;

pub use logs::{LogFormat, LogFormatError, init};
pub use numbers::Metrics;
pub use trace::TraceParent;

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The filter is not in the syntax of `tracing_subscriber::EnvFilter`.
    #[error("the log filter `{filter}` can't be read: {source}")]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// There is already a subscriber in this process.
    #[error("logs are already set up: {0}")]
    Logs(String),
    /// There is already a recorder in this process, or the buckets are wrong.
    #[error("metrics can't be set up: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// The thread that keeps histograms small did not start.
    #[error("the thread for metrics did not start: {0}")]
    Thread(#[from] std::io::Error),
}
