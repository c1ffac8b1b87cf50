//! Who wants to know how far a long piece of work is.

use std::fmt::Debug;

/// Is told about the progress of an import, a pull or a build.
pub trait Observer: Debug {
    /// What is being done from now on: `unpacking layer 2/5`.
    fn phase(&self, text: &str);
    /// How many bytes of the source there are in all, once that is known.
    fn total(&self, bytes: u64);
    /// So many more bytes of the source were read.
    fn read(&self, bytes: u64);
}

/// Wants to know nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Observer for Quiet {
    fn phase(&self, _: &str) {}
    fn total(&self, _: u64) {}
    fn read(&self, _: u64) {}
}
