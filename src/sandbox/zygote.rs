//! The zygote: a Python that has imported modules, in a template sandbox, and that is forked for each slot.

use std::os::fd::OwnedFd;

use super::spec::Spec;

/// Makes the calling process, which must be single-threaded and forked for this, the launcher of a zygote, whose image, limits, environment and ids
/// stand in `spec` (`Ids::Template`, no `slot`). It imports `preload` and serves `requests`, the zygote's end of the socket that slots are asked for by
/// ([`Slot::Forked`](super::spec::Slot)). Events on `control` as from a launcher: `Ready` when it can be forked, `Ended` when it can't any more.
pub fn run_here(
    _spec: Spec,
    _control: OwnedFd,
    _requests: OwnedFd,
    _preload: Vec<String>,
    _finish: impl FnOnce() -> bool,
) -> ! {
    unimplemented!()
}
