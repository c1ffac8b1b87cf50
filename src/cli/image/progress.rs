//! A progress bar on a terminal; elsewhere nothing.

use std::io::IsTerminal;
use std::rc::Rc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::image::store::{Observer, Quiet};

/// Follows a long piece of work on standard error, if that is a terminal and `quiet` is not set. Gone when it is dropped.
pub(super) fn bar(quiet: bool) -> Rc<dyn Observer> {
    if quiet || !std::io::stderr().is_terminal() {
        return Rc::new(Quiet);
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style("{spinner} {msg}  {bytes}"));
    Rc::new(Bar(bar))
}

#[derive(Debug)]
struct Bar(ProgressBar);

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Observer for Bar {
    fn phase(&self, text: &str) {
        self.0.set_message(text.to_owned());
        self.0.tick();
    }

    fn total(&self, bytes: u64) {
        self.0.set_length(bytes);
        self.0.set_style(style("{spinner} {wide_bar} {bytes}/{total_bytes}  {msg}"));
    }

    fn read(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
