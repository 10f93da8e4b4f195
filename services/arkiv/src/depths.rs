//! How many messages wait in each queue, for the metrics page (R-I5). The relay's process asks: it is there in every
//! deployment, and its own connection is what work queues fill from.

use std::time::Duration;

use broker::topology;
use telemetry::metric;
use tokio_util::sync::CancellationToken;

/// Each look is a connection of its own; scaling by queue length needs nothing fresher.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// What the names of dead-letter queues end with.
const DEAD: &str = ".dead";

/// Looks until `shutdown`. A broker that is away leaves the gauges as they were; the relay says that it is away.
pub(crate) async fn watch(broker: broker::Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            depths = topology::depth(&broker) => match depths {
                Ok(depths) => depths.iter().for_each(show),
                Err(error) => tracing::debug!(error = error.chain(), "could not read the depths of the queues"),
            },
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

fn show(depth: &topology::Depth) {
    let (name, queue) = match depth.queue.strip_suffix(DEAD) {
        Some(queue) => (metric::DEAD_LETTERS, queue),
        None => (metric::QUEUE_MESSAGES, depth.queue),
    };
    metrics::gauge!(name, "queue" => queue.to_owned()).set(f64::from(depth.ready));
}
