//! One run's life: stage → launch → stream → settle → harvest → clean.

#![forbid(unsafe_code)]

pub mod report;
pub mod request;
