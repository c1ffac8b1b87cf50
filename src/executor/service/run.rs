//! One run in a daemon, from the queue to the report.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use super::attempt::{Attempt, Done};
use super::cancel::Cancel;
use super::queue::Place;
use super::streams::Chunk;
use super::{Inner, REFUSED};
use crate::executor::plan::open_skills;
use crate::executor::prepare::{io_error, state_error};
use crate::executor::report::{Category, Report};
use crate::executor::request::{Input, Request, Stdin};
use crate::executor::run::{Stop, blank, lost_output, ms, stage_all};
use crate::executor::run_id::new_run_id;
use crate::executor::settle::{collect, settle};
use crate::executor::state::{Run, State};
use crate::executor::worker::take_code;
use crate::sandbox::cgroup::Found;

/// What a run was submitted with.
pub struct Submitted {
    pub request: Request,
    pub tenant: Option<String>,
    pub place: Place,
    pub cancel: Cancel,
    pub chunks: mpsc::Sender<Chunk>,
    pub since: Instant,
}

/// Carries it out; the report is that of `creel run`.
pub async fn life(inner: Arc<Inner>, submitted: Submitted) -> Report {
    let Submitted { mut request, tenant, place, cancel, chunks, since } = submitted;
    let mut report = blank(&request);
    let mut run = Life { inner, tenant, cancel, chunks };
    if let Err(stop) = run.carry_out(&mut request, &mut report, place).await {
        report.error_category = stop.category;
        report.error = Some(stop.error);
        report.exit_code = None;
    }
    report.notes.append(&mut request.notes);
    report.limits = request.limits;
    report.timings_ms.total = ms(since);
    report
}

struct Life {
    inner: Arc<Inner>,
    tenant: Option<String>,
    cancel: Cancel,
    chunks: mpsc::Sender<Chunk>,
}

impl Life {
    async fn carry_out(
        &mut self,
        request: &mut Request,
        report: &mut Report,
        place: Place,
    ) -> Result<(), Stop> {
        let queued = Instant::now();
        let turn = tokio::select! {
            biased;
            signal = self.cancel.next() => return Err(cancelled(signal)),
            turn = place.turn() => turn,
        };
        report.timings_ms.queue = ms(queued);
        // Held to the end.
        let Some(_turn) = turn else { return Err(Stop::rejected(REFUSED, "the service is shutting down")) };

        let staging = Instant::now();
        let staged = staged(std::mem::take(&mut request.inputs)).await?;
        let result = self.with_inputs(request, report, staged.as_ref().map(|(_, dir)| dir), staging).await;
        if let Some((run, dir)) = staged {
            let cleaning = Instant::now();
            drop(dir);
            let removed = blocking(move || run.remove()).await;
            report.timings_ms.clean = ms(cleaning);
            if let Err(e) | Ok(Err(e)) = removed.map_err(|stop| io::Error::other(stop.error.message)) {
                report.notes.push(format!(
                    "cannot remove the run's inputs: {e}; creel gc or the next run will try again"
                ));
            }
        }
        result
    }

    async fn with_inputs(
        &mut self,
        request: &mut Request,
        report: &mut Report,
        inputs: Option<&OwnedFd>,
        staging: Instant,
    ) -> Result<(), Stop> {
        let filter = self.inner.shared.filters.get(&request.seccomp)?;
        let skills = open_skills(&request.skills)?;
        let code = take_code(request);
        let stdin = match std::mem::replace(&mut request.stdin, Stdin::Null) {
            Stdin::Null => None,
            Stdin::File(file) => Some(file),
        };
        report.timings_ms.stage = ms(staging);
        if let Some(signal) = self.cancel.now() {
            return Err(cancelled(signal));
        }
        let mut attempt = Attempt {
            inner: &self.inner,
            request,
            code: &code,
            stdin: stdin.as_ref(),
            inputs,
            skills: &skills,
            filter: &filter,
            cancel: &mut self.cancel,
            chunks: &self.chunks,
        };
        let done = attempt.carry_out(self.tenant.as_deref()).await?;
        self.finish(request, report, done).await
    }

    /// Makes the report of what came of it.
    async fn finish(&self, request: &mut Request, report: &mut Report, done: Done) -> Result<(), Stop> {
        let Done { planned, start, notes, followed, taken, launched, sandbox } = done;
        let between = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
        report.start = start;
        report.enforced = planned.enforced;
        let timeout = request.limits.timeout;
        request.limits = planned.limits;
        request.limits.timeout = timeout;
        request.notes.extend(notes);
        request.notes.extend(planned.notes);
        report.limits = request.limits.clone();
        report.timings_ms.launch = followed.started.map_or(0.0, |t| between(launched, t));
        report.timings_ms.run = followed.started.map_or(0.0, |t| between(t, followed.over));
        settle(report, followed.outcome.as_ref(), self.cancel.signal(), &planned.program);

        let (limits, dir, owner) = (request.limits.clone(), request.output_dir.clone(), planned.owner);
        let mut harvested = report.clone();
        let outputs = followed.outputs;
        let (harvested, kept) = blocking(move || {
            let kept = collect(&mut harvested, &limits, &dir, outputs.as_ref().map(AsFd::as_fd), owner);
            (harvested, kept)
        })
        .await?;
        *report = harvested;
        // The launcher cleans up and ends from here on.
        drop(sandbox);
        (report.stdout, report.stdout_bytes, report.stdout_truncated) = taken.stdout;
        (report.stderr, report.stderr_bytes, report.stderr_truncated) = taken.stderr;
        kept?;
        taken.lost.map_or(Ok(()), |e| Err(lost_output(e)))
    }
}

/// A copy of the inputs in an entry of its own in the ledger; none when there are none.
async fn staged(inputs: Vec<Input>) -> Result<Option<(Run, OwnedFd)>, Stop> {
    if inputs.is_empty() {
        return Ok(None);
    }
    blocking(move || {
        let state = State::open().map_err(state_error)?;
        let id = new_run_id().map_err(io_error("get random bytes"))?;
        // It has no cgroup.
        let none = Found::None { reason: "staged inputs".into() };
        let mut run = state.new_run(&id, &none).map_err(state_error)?;
        let dir = run.inputs().map_err(state_error)?;
        stage_all(&run, &inputs)?;
        Ok(Some((run, dir)))
    })
    .await?
}

/// Does what waits for the disk in a thread of its own.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Stop> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Stop::host("host.thread", format!("a thread of the service broke off: {e}")))
}

fn cancelled(signal: Option<i32>) -> Stop {
    let by = signal.map_or(String::new(), |s| format!(" by signal {s}"));
    Stop::new(Category::Cancelled, "run.cancelled", format!("cancelled{by}"))
}
