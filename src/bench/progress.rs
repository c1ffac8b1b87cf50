//! What is shown while it works: a bar on a terminal, plain lines when asked for, else nothing.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shown between the runs, never while the clock runs.
#[derive(Debug)]
pub enum Progress {
    Bar(ProgressBar),
    Lines,
    Silent,
}

impl Progress {
    /// On standard error.
    pub fn new(verbose: bool) -> Progress {
        if verbose {
            return Progress::Lines;
        }
        if !std::io::stderr().is_terminal() {
            return Progress::Silent;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}  {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Progress::Bar(bar)
    }

    /// A part of `steps` steps begins.
    pub fn part(&self, what: &str, steps: u64) {
        match self {
            Progress::Bar(bar) => {
                bar.reset();
                bar.set_length(steps);
                bar.set_message(what.to_owned());
                bar.tick();
            }
            Progress::Lines => eprintln!("bench: {what}"),
            Progress::Silent => {}
        }
    }

    /// One step is done.
    pub fn step(&self) {
        if let Progress::Bar(bar) = self {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
