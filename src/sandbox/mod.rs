//! A spec goes in, a process and an outcome come out. Knows nothing of images, skills or HTTP.

#![forbid(unsafe_code)]

pub mod root;
