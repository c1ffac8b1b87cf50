//! One run's life: stage → launch → stream → settle → harvest → clean.

#![forbid(unsafe_code)]

pub mod environment;
pub mod harvest;
pub mod ids;
mod job;
pub mod mime;
mod plan;
mod prepare;
pub(crate) mod pump;
pub mod report;
pub mod request;
pub mod run;
pub mod run_id;
pub mod safe_name;
pub mod service;
pub(crate) mod settle;
pub mod spawner;
pub mod stage;
pub mod state;
pub(crate) mod streams;
mod worker;
