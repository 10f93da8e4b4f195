//! SIGTERM and SIGINT: the first asks every role to finish or hand back what it has, the second ends the process.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The shell's code for "ended by SIGINT".
const EXIT_INTERRUPTED: i32 = 130;

/// A token that is cancelled by the first signal.
pub(crate) fn shutdown() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let shutdown = CancellationToken::new();
    let asked = shutdown.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if asked.is_cancelled() {
                tracing::warn!("asked twice: ending now; unfinished work comes again by itself");
                std::process::exit(EXIT_INTERRUPTED);
            }
            tracing::info!("stopping: finishing or handing back what is in hand; ask again to end now");
            asked.cancel();
        }
    });
    Ok(shutdown)
}
