//! Waiting for a condition, with a bound.

use std::time::{Duration, Instant};

/// Asks `condition` until it answers something, at most `bound` long. `what` names it in the failure.
pub async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    bound: Duration,
    mut condition: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(begun.elapsed() < bound, "waited {bound:?} for: {what}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}
