//! Log lines, to standard error: standard output belongs to what a command was asked for.

use std::fmt;
use std::io::{self, IsTerminal};
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::InitError;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people at a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no log format; the formats are text and json")]
pub struct LogFormatError(pub String);

impl FromStr for LogFormat {
    type Err = LogFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(LogFormatError(other.to_owned())),
        }
    }
}

/// Sets up logs for this process, once.
pub fn init(format: LogFormat, filter: &str) -> Result<(), InitError> {
    let env_filter = EnvFilter::try_new(filter)
        .map_err(|source| InitError::Filter { filter: filter.to_owned(), source })?;
    let lines = tracing_subscriber::fmt().with_env_filter(env_filter).with_writer(io::stderr);
    let set = match format {
        LogFormat::Text => {
            lines.compact().with_target(false).with_ansi(io::stderr().is_terminal()).finish().try_init()
        }
        // The trace id is a field of an outer span, so all spans are written, not just the innermost.
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(true).finish().try_init()
        }
    };
    set.map_err(|error| InitError::Logs(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_reads_back() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("JSON".parse::<LogFormat>().is_err());
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_named_and_a_second_set_up_is_refused() {
        let error = init(LogFormat::Text, "info,[").unwrap_err();
        assert!(error.to_string().contains("info,["), "{error}");
        init(LogFormat::Json, "off").unwrap();
        assert!(matches!(init(LogFormat::Text, "info"), Err(InitError::Logs(_))));
    }
}
