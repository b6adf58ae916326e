//! What is counted, by the names it has outside. `docs/metrics.md` prints this table.

/// A metric that the feature `metrics` passes on.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, with Prometheus's endings.
    pub name: &'static str,
    /// What it does over time.
    pub kind: MetricKind,
    /// Of what its numbers are.
    pub unit: &'static str,
    /// By what it is told apart.
    pub labels: &'static [&'static str],
    /// What it says, in a sentence.
    pub description: &'static str,
    /// The upper bounds of a histogram's buckets, in seconds; empty for the others.
    pub buckets: &'static [f64],
}

/// What a metric does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size.
    Histogram,
}

impl MetricKind {
    /// As Prometheus says it: `counter`, `gauge` or `histogram`.
    pub const fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Every metric that the feature `metrics` passes on.
///
/// The facade carries no buckets: give those of the histograms to the recorder.
pub const METRICS: &[Metric] = &[
    DELETED,
    DELAY,
    UNCERTAIN,
    CHANGED,
    LEFT,
    KEPT,
    DISPUTED,
    OLDEST_DUE,
    BACKLOG,
    BATCHES,
    BATCH_DURATION,
    ERRORS,
    PASSES,
    INDEXES,
    LEASE_HELD,
    LEASE_TERM,
    PAUSED,
    RATE,
    PLANNED_RATE,
    PEAK_RATE,
    PREDICTED_LATENESS,
    HEALTH_FACTOR,
    LAST_SUCCESS,
    CONSECUTIVE_FAILURES,
];

const DATABASE: &[&str] = &["database"];
const INDEX: &[&str] = &["database", "collection", "index"];

const fn counter(name: &'static str, unit: &'static str, description: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, unit, labels: INDEX, description, buckets: &[] }
}

const fn gauge(name: &'static str, unit: &'static str, description: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, unit, labels: INDEX, description, buckets: &[] }
}

pub(super) const DELETED: Metric =
    counter("ttl_index_deleted_documents_total", "documents", "Documents deleted because they had expired.");

/// About doubling, with the minute, the hour, the day and the week among them.
pub(super) const DELAY: Metric = Metric {
    name: "ttl_index_expiration_to_deletion_delay_seconds",
    kind: MetricKind::Histogram,
    unit: "seconds",
    labels: INDEX,
    description: "How long after its expiry a document was deleted.",
    buckets: &[
        1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0,
        57_600.0, 86_400.0, 172_800.0, 345_600.0, 604_800.0,
    ],
};

pub(super) const UNCERTAIN: Metric = counter(
    "ttl_index_uncertain_documents_total",
    "documents",
    "Documents gone after a delete whose reply was lost; not among the deleted ones.",
);

pub(super) const CHANGED: Metric = counter(
    "ttl_index_changed_documents_total",
    "documents",
    "Documents that were no longer due, or gone, when they were to be deleted.",
);

pub(super) const LEFT: Metric = counter(
    "ttl_index_left_documents_total",
    "documents",
    "Times that a document was still due and could not be deleted.",
);

pub(super) const KEPT: Metric = counter(
    "ttl_index_kept_documents_total",
    "documents",
    "Times that a guard or a veto kept a document that was due.",
);

pub(super) const DISPUTED: Metric = counter(
    "ttl_index_disputed_documents_total",
    "documents",
    "Times that the backend took a document for due and the rule kept it.",
);

pub(super) const OLDEST_DUE: Metric = gauge(
    "ttl_index_oldest_due_age_seconds",
    "seconds",
    "For how long the oldest document is due that is still there; 0 if nothing is due.",
);

pub(super) const BACKLOG: Metric = gauge(
    "ttl_index_backlog_documents",
    "documents",
    "Documents that are due, as far as they were counted, without those that are known to be kept.",
);

pub(super) const BATCHES: Metric =
    counter("ttl_index_batches_total", "batches", "Batches that were found and handed to a delete.");

pub(super) const BATCH_DURATION: Metric = Metric {
    name: "ttl_index_batch_duration_seconds",
    kind: MetricKind::Histogram,
    unit: "seconds",
    labels: INDEX,
    description: "How long a batch took, from looking to the end of its delete.",
    buckets: &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0],
};

pub(super) const ERRORS: Metric = Metric {
    labels: &["database", "collection", "index", "kind", "code"],
    ..counter(
        "ttl_index_errors_total",
        "errors",
        "Failures of passes and of create, modify and drop; code is MongoDB's, empty if there is none.",
    )
};

pub(super) const PASSES: Metric = Metric {
    labels: &["database", "collection", "index", "ended"],
    ..counter(
        "ttl_index_passes_total",
        "passes",
        "Passes, by how they ended: drained, limit_reached, cancelled, paused, lease_lost or failed.",
    )
};

pub(super) const INDEXES: Metric = Metric {
    labels: &["database", "state"],
    ..gauge("ttl_index_indexes", "indexes", "TTL indexes, by state: CREATING, ACTIVE or NEEDS_REPAIR.")
};

pub(super) const LEASE_HELD: Metric = Metric {
    labels: DATABASE,
    ..gauge("ttl_index_lease_held", "1 or 0", "Whether this process is the one that sweeps the database.")
};

pub(super) const LEASE_TERM: Metric = Metric {
    labels: DATABASE,
    ..gauge("ttl_index_lease_term", "terms", "The term of the lease; it rises each time the lease is taken.")
};

pub(super) const PAUSED: Metric = Metric {
    labels: DATABASE,
    ..gauge("ttl_index_paused", "1 or 0", "Whether sweeping is paused, as the one that sweeps has seen it.")
};

pub(super) const RATE: Metric = Metric {
    labels: DATABASE,
    ..gauge("ttl_index_rate", "documents a second", "What is allowed now: as planned, unless something holds it back.")
};

pub(super) const PLANNED_RATE: Metric = Metric {
    labels: DATABASE,
    ..gauge("ttl_index_planned_rate", "documents a second", "What the plan wants now, within the limits.")
};

pub(super) const PEAK_RATE: Metric = Metric {
    labels: DATABASE,
    ..gauge(
        "ttl_index_peak_rate",
        "documents a second",
        "The highest rate that the plan will want within three target lags, without limits.",
    )
};

pub(super) const PREDICTED_LATENESS: Metric = Metric {
    labels: DATABASE,
    ..gauge(
        "ttl_index_predicted_lateness_seconds",
        "seconds",
        "How much later than the target lag the latest document will be gone; 0 if all will be on time.",
    )
};

pub(super) const HEALTH_FACTOR: Metric = Metric {
    labels: DATABASE,
    ..gauge(
        "ttl_index_health_factor",
        "0 to 1",
        "The share of the planned rate that the database can take; 1 if nothing holds back.",
    )
};

pub(super) const LAST_SUCCESS: Metric = Metric {
    labels: DATABASE,
    ..gauge(
        "ttl_index_last_success_timestamp_seconds",
        "Unix time",
        "When a pass last ended well, by the database's clock.",
    )
};

pub(super) const CONSECUTIVE_FAILURES: Metric = gauge(
    "ttl_index_consecutive_failures",
    "passes",
    "How often in a row the passes of an index have failed; 0 after one that did not.",
);
