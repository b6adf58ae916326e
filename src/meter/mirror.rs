//! Passing what is counted on to the `metrics` facade. Without the feature `metrics` nothing is passed on.

use std::time::Duration;

use super::names::Metric;

/// A label's name and value.
pub(super) type Label<'a> = (&'static str, &'a str);

#[cfg(feature = "metrics")]
pub(super) use facade::Mirror;
#[cfg(not(feature = "metrics"))]
pub(super) use nothing::Mirror;

#[cfg(feature = "metrics")]
mod facade {
    use std::sync::Once;

    use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

    use super::{Duration, Label, Metric};
    use crate::meter::names::{METRICS, MetricKind};

    /// Describes every metric before the first event, by when a recorder is installed, if one is to be.
    #[derive(Debug)]
    pub(crate) struct Mirror(Once);

    impl Default for Mirror {
        fn default() -> Self {
            Self(Once::new())
        }
    }

    impl Mirror {
        pub(crate) fn count(&self, metric: &Metric, labels: &[Label], count: u64) {
            self.described();
            counter!(metric.name, &owned(labels)).increment(count);
        }

        pub(crate) fn set(&self, metric: &Metric, labels: &[Label], value: f64) {
            self.described();
            gauge!(metric.name, &owned(labels)).set(value);
        }

        pub(crate) fn observe(&self, metric: &Metric, labels: &[Label], values: impl IntoIterator<Item = Duration>) {
            self.described();
            let histogram = histogram!(metric.name, &owned(labels));
            values.into_iter().for_each(|value| histogram.record(value.as_secs_f64()));
        }

        fn described(&self) {
            self.0.call_once(|| METRICS.iter().for_each(describe));
        }
    }

    fn describe(metric: &Metric) {
        let unit = if metric.unit == "seconds" { Unit::Seconds } else { Unit::Count };
        match metric.kind {
            MetricKind::Counter => describe_counter!(metric.name, unit, metric.description),
            MetricKind::Gauge => describe_gauge!(metric.name, unit, metric.description),
            MetricKind::Histogram => describe_histogram!(metric.name, unit, metric.description),
        }
    }

    fn owned(labels: &[Label]) -> Vec<(&'static str, String)> {
        labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }
}

#[cfg(not(feature = "metrics"))]
mod nothing {
    use super::{Duration, Label, Metric};

    #[derive(Debug, Default)]
    pub(crate) struct Mirror;

    #[allow(clippy::unused_self)]
    impl Mirror {
        pub(crate) fn count(&self, _: &Metric, _: &[Label], _: u64) {}

        pub(crate) fn set(&self, _: &Metric, _: &[Label], _: f64) {}

        pub(crate) fn observe(&self, _: &Metric, _: &[Label], _: impl IntoIterator<Item = Duration>) {}
    }
}
