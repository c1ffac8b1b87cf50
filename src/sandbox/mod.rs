//! A spec goes in, a process and an outcome come out. Knows nothing of images, skills or HTTP.

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod channel;
pub mod disk;
mod fork;
pub mod go;
pub mod host;
pub mod init;
pub mod landlock;
pub mod launcher;
mod masks;
mod mounts;
pub mod outcome;
mod processes;
pub mod role;
pub mod root;
pub mod run_dirs;
mod script;
pub mod seccomp;
mod setup;
mod slot;
mod slot_check;
pub mod spec;
mod template;
pub mod tree;
mod trees;
mod watch;
pub mod zygote;
