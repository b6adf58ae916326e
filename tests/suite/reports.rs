//! Public reports of trouble with expiry, each a small input with the right outcome, played on the stores.
//!
//! `tests/data/reports.json` holds them. Those whose steps say everything are listed here; the others have a test by
//! hand in one of the modules. Every test has its report's id and kind as its name. Those that need a feature which does
//! not exist yet are in `tests/data/reports_waiting.json`.
//!
//! Most run on both stores. Those that set the clock run on the embedded store only, whose clock can be set.

mod backend;
mod background;
mod catalogue;
mod definitions;
mod diagnoses;
mod lease;
mod load;
mod monitoring;
mod pause;
mod play;
mod races;
mod steps;
mod sweeper;
mod transactions;
pub(crate) mod wire;

use self::play::Play;

/// A test for each report, on `both` stores or on one.
macro_rules! reports {
    ($($name:ident: $id:literal on $stages:ident;)*) => { $(
        #[tokio::test]
        async fn $name() {
            for play in Play::$stages($id).await {
                play.finish().await;
            }
        }
    )* };
}

reports! {
    ttl_001_value_type_string_date: "TTL-001" on both;
    ttl_003_value_type_string_date: "TTL-003" on both;
    ttl_007_value_type_number_epoch: "TTL-007" on both;
    ttl_011_value_type_number_epoch: "TTL-011" on both;
    ttl_013_missing_or_null_field: "TTL-013" on both;
    ttl_017_time_zone: "TTL-017" on embedded;
    ttl_019_time_zone: "TTL-019" on embedded;
    ttl_021_future_past_extreme_date: "TTL-021" on both;
    ttl_023_future_past_extreme_date: "TTL-023" on both;
    ttl_025_array_or_nested_path: "TTL-025" on both;
    ttl_027_array_or_nested_path: "TTL-027" on both;
    ttl_035_expireafterseconds_invalid_value: "TTL-035" on both;
    ttl_037_expireafterseconds_zero: "TTL-037" on both;
    ttl_039_expireafterseconds_zero: "TTL-039" on embedded;
    ttl_041_expireafterseconds_units: "TTL-041" on both;
    ttl_043_expireafterseconds_units: "TTL-043" on embedded;
    ttl_045_option_change_ignored: "TTL-045" on both;
    ttl_047_option_change_ignored: "TTL-047" on both;
    ttl_055_index_conflict: "TTL-055" on both;
    ttl_059_ttl_option_dropped_or_unsupported: "TTL-059" on embedded;
    ttl_061_compound_or_special_index: "TTL-061" on both;
    ttl_065_partial_filter: "TTL-065" on both;
    ttl_081_stale_or_secondary_read: "TTL-081" on both;
    ttl_083_stale_or_secondary_read: "TTL-083" on both;
    ttl_087_clock_skew: "TTL-087" on embedded;
    ttl_115_related_data_left_behind: "TTL-115" on both;
    ttl_117_related_data_left_behind: "TTL-117" on both;
    ttl_121_collection_names: "TTL-121" on both;
    ttl_123_collection_names: "TTL-123" on both;
    ttl_131_drop_or_rename_while_running: "TTL-131" on both;
    ttl_133_registry_lost_on_restart: "TTL-133" on both;
    ttl_147_timing_expectation: "TTL-147" on embedded;
    ttl_159_unique_key_vs_unswept: "TTL-159" on both;
}
