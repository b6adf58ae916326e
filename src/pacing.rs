//! How fast a sweep may go.

mod bucket;

pub(crate) use bucket::Bucket;
