//! What an honest layer becomes: files, modes, times, links, whiteouts (issue 3, items 1 and 2).

mod agree;
mod odd;
mod semantics;
#[path = "../hostile_archives/support.rs"]
mod support;
