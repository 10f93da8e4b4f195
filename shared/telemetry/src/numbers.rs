//! The recorder behind `metrics`. Rendering is a function: each role serves it on its own listener, beside `/livez`.

use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::InitError;
use crate::metric::{self, Kind};

/// Bucket limits in seconds. Handlers take milliseconds; a decode is killed after 30 s, a message after 5 min (R-C1).
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Bucket limits of ticket to ready: from a small file on a fast line to a ticket that was renewed.
const TICKET_TO_READY_SECONDS: &[f64] =
    &[0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
/// Histograms keep every sample until someone renders them or this passes; so nobody scraping costs no memory.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The metrics of this process.
#[derive(Clone, Debug)]
pub struct Metrics {
    handle: PrometheusHandle,
}

impl Metrics {
    /// Sets up metrics for this process, once. Before this, numbers go nowhere.
    pub fn install() -> Result<Self, InitError> {
        let recorder = recorder()?;
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(BuildError::from)?;
        describe();
        // A thread, for this must not need a runtime. It holds nothing and ends with the process.
        let upkept = handle.clone();
        std::thread::Builder::new().name("metrics-upkeep".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(UPKEEP_EVERY);
                upkept.run_upkeep();
            }
        })?;
        Ok(Self { handle })
    }

    /// All metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        self.handle.render()
    }
}

fn recorder() -> Result<PrometheusRecorder, BuildError> {
    Ok(PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
        .set_buckets_for_metric(Matcher::Full(metric::TICKET_TO_READY.to_owned()), TICKET_TO_READY_SECONDS)?
        .build_recorder())
}

/// Describes every metric, and sets the one that never changes.
fn describe() {
    for metric in metric::ALL {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
    metrics::gauge!(metric::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a recorder of its own renders after `record`: tests share no global state.
    fn rendered(record: impl FnOnce()) -> String {
        let recorder = recorder().unwrap();
        metrics::with_local_recorder(&recorder, || {
            describe();
            record();
        });
        recorder.handle().render()
    }

    #[test]
    fn the_version_is_there_from_the_start() {
        let text = rendered(|| ());
        assert!(
            text.contains(&format!("arkiv_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"))),
            "{text}"
        );
    }

    #[test]
    fn every_metric_is_rendered_under_its_own_name_with_its_help_and_type() {
        let text = rendered(|| {
            for metric in metric::ALL {
                let labels: Vec<_> =
                    metric.labels.iter().map(|label| metrics::Label::new(*label, "x")).collect();
                match metric.kind {
                    Kind::Counter => metrics::counter!(metric.name, labels).increment(1),
                    Kind::Gauge => metrics::gauge!(metric.name, labels).set(1.0),
                    Kind::Histogram => metrics::histogram!(metric.name, labels).record(1.0),
                }
            }
        });
        for metric in metric::ALL {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            assert!(text.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{}: {text}", metric.name);
            assert!(
                text.contains(&format!("# HELP {} {}\n", metric.name, metric.help)),
                "{}: {text}",
                metric.name
            );
        }
    }

    #[test]
    fn durations_are_histograms_with_buckets() {
        let text = rendered(|| {
            metrics::histogram!(metric::DECODE_DURATION, "format" => "png", "outcome" => "ready").record(0.2);
            metrics::histogram!(metric::TICKET_TO_READY).record(45.0);
        });
        assert!(
            text.contains(
                "arkiv_decode_duration_seconds_bucket{format=\"png\",outcome=\"ready\",le=\"0.25\"} 1\n"
            ),
            "{text}"
        );
        assert!(text.contains("arkiv_ticket_to_ready_seconds_bucket{le=\"30\"} 0\n"), "{text}");
        assert!(text.contains("arkiv_ticket_to_ready_seconds_bucket{le=\"60\"} 1\n"), "{text}");
    }

    #[test]
    fn numbers_of_the_process_are_rendered_once_installed_and_a_second_set_up_is_refused() {
        let metrics = Metrics::install().unwrap();
        metrics::counter!(metric::CONFIRMATIONS, "by" => "event").increment(2);
        let text = metrics.render();
        assert!(text.contains("arkiv_confirmations_total{by=\"event\"} 2\n"), "{text}");
        assert!(matches!(Metrics::install(), Err(InitError::Metrics(_))));
    }
}
