//! The sandbox of a run: a slot that waits, another one if that turns out dead, else a cold start; then its events until everything in it is dead.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use tokio::sync::mpsc;

use super::Inner;
use super::cancel::Cancel;
use super::control::Control;
use super::link::Gone;
use super::slot::{Slot, why};
use super::streams::{Chunk, Feeding, Reading, Taken, input};
use crate::executor::environment;
use crate::executor::job::{Answer, Attached, Job, Planned, What, memory_file};
use crate::executor::prepare::io_error;
use crate::executor::request::{Program, Request};
use crate::executor::run::Stop;
use crate::executor::streams::Input;
use crate::sandbox::outcome::{Delivery, End, Event, Order, Outcome, Parcel};

/// Slots that may turn out dead before a run goes cold.
const SLOTS: usize = 3;

/// Everything that a sandbox for the run is made of, as often as needed.
pub struct Attempt<'a> {
    pub inner: &'a Inner,
    /// Without its code, inputs and standard input.
    pub request: &'a Request,
    pub code: &'a [u8],
    pub stdin: Option<&'a File>,
    pub inputs: Option<&'a OwnedFd>,
    pub skills: &'a [OwnedFd],
    pub filter: &'a [u8],
    pub cancel: &'a mut Cancel,
    pub chunks: &'a mpsc::Sender<Chunk>,
}

/// A run that is over.
pub struct Done {
    pub planned: Planned,
    /// `cold`, `warm` or `zygote`.
    pub start: &'static str,
    /// Why slots that were tried first did not do.
    pub notes: Vec<String>,
    pub followed: Followed,
    pub taken: Taken,
    pub launched: Instant,
    /// Dropped when the outputs are harvested.
    pub sandbox: Sandbox,
}

/// What keeps the launcher, and so the outputs.
pub enum Sandbox {
    Cold(#[expect(dead_code, reason = "dropping it is what lets the launcher go")] Control),
    Warm(#[expect(dead_code, reason = "dropping it is what lets the launcher go")] Box<Slot>),
}

/// What the launcher told.
pub struct Followed {
    /// `None`: it died without a word.
    pub outcome: Option<Outcome>,
    pub started: Option<Instant>,
    pub over: Instant,
    /// The run's `/outputs`.
    pub outputs: Option<OwnedFd>,
}

/// The streams of one attempt.
struct Streams {
    reading: Reading,
    output: Vec<OwnedFd>,
    /// Our feeder and the program's end.
    stdin: Option<(Input, OwnedFd)>,
}

impl Attempt<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// A [`Stop`] when nothing was started.
    pub async fn carry_out(&mut self, tenant: Option<&str>) -> Result<Done, Stop> {
        let mut notes = Vec::new();
        for _ in 0..SLOTS {
            let taken = self.inner.pools.take(self.request, tenant, &self.inner.shared).await;
            let Some((slot, shelf)) = taken else { break };
            match self.deliver(slot).await? {
                Ok(done) => return Ok(Done { notes: std::mem::take(&mut notes), ..done }),
                Err(outcome) => {
                    shelf.delivery_failed();
                    let why = why(outcome.as_ref(), &shelf.config);
                    notes.push(format!("a sandbox that was made ahead was not used: {why}"));
                }
            }
        }
        Ok(Done { notes, ..self.cold().await? })
    }

    async fn cold(&mut self) -> Result<Done, Stop> {
        let Streams { reading, output, stdin } = self.streams()?;
        let (feed, stdin) = stdin.map_or((None, None), |(feed, end)| (Some(feed), Some(end)));
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(io_error("duplicate a descriptor"));
        let attached = Attached {
            output,
            stdin,
            inputs: self.inputs.map(copy).transpose()?,
            skills: self.skills.iter().map(copy).collect::<Result<_, _>>()?,
            zygote: None,
        };
        let what = What::Run { stdin: attached.stdin.is_some(), inputs: attached.inputs.is_some() };
        let job = Job::new(what, &self.request.run_id, self.request);
        let launched = Instant::now();
        let (control, mut gone) = self.inner.shared.link.start(&job, self.code, attached).await?;
        let planned = match control.answer().await {
            Some(Answer::Planned(planned)) => planned,
            Some(Answer::Stopped(stop)) => return Err(stop),
            None => {
                let _ = gone.await;
                return Err(Stop::host(
                    "sandbox.lost",
                    "the worker of the run died before it was a launcher",
                ));
            }
        };
        if self.cancel.now().is_none() {
            control.order(Order::Go, self.filter, &[]);
        }
        let (followed, taken) = self.follow(&control, &mut gone, reading, feed).await;
        let sandbox = Sandbox::Cold(control);
        Ok(Done { planned, start: "cold", notes: Vec::new(), followed, taken, launched, sandbox })
    }

    /// Delivers the run into a slot; the inner error, what its launcher said at last, when the slot turned out to be of no use, and nothing of the run
    /// was done.
    async fn deliver(&mut self, mut slot: Slot) -> Result<Result<Done, Option<Outcome>>, Stop> {
        let launched = Instant::now();
        let Streams { reading, output, stdin } = self.streams()?;
        let (feed, stdin) = stdin.map_or((None, None), |(feed, end)| (Some(feed), Some(end)));
        let parcel = self.parcel(&slot.planned);
        let parcel = memory_file(&parcel.to_bytes()).map_err(io_error("write the program for a slot"))?;
        let delivery = Delivery {
            // Up to the next full millisecond, so that it never becomes none at all.
            timeout_ms: self.request.limits.timeout.as_micros().div_ceil(1000).try_into().unwrap_or(u64::MAX),
            stdin: stdin.is_some(),
            inputs: self.inputs.is_some(),
            skills: self.request.skills.iter().map(|s| s.id.clone()).collect(),
        };
        let text = serde_json::to_vec(&delivery).map_err(|e| io_error("write a delivery")(e.into()))?;
        let fds: Vec<BorrowedFd<'_>> = [&parcel]
            .into_iter()
            .chain(&output)
            .chain(&stdin)
            .chain(self.inputs)
            .chain(self.skills)
            .map(AsFd::as_fd)
            .collect();
        slot.control.order(Order::Deliver, &text, &fds);
        drop(fds);
        // Only the sandbox holds the streams now.
        drop((output, stdin));
        let control = std::sync::Arc::clone(&slot.control);
        let (followed, taken) = self.follow(&control, &mut slot.gone, reading, feed).await;
        let cancelled = matches!(&followed.outcome, Some(o) if o.end == End::Cancelled);
        if followed.started.is_none() && !cancelled {
            return Ok(Err(followed.outcome));
        }
        let (planned, start) = (slot.planned.clone(), slot.start());
        let sandbox = Sandbox::Warm(Box::new(slot));
        Ok(Ok(Done { planned, start, notes: Vec::new(), followed, taken, launched, sandbox }))
    }

    /// What a cold start of the request would start the program with.
    fn parcel(&self, planned: &Planned) -> Parcel {
        let args = match &self.request.program {
            Program::Script { args, .. } => args.iter().map(|a| a.as_bytes().to_vec()).collect(),
            // No slot is for these.
            Program::Command(_) | Program::ImageDefault => Vec::new(),
        };
        let env =
            environment::build(&planned.path_env, &planned.env, &self.request.env, planned.limits.cpu_millis);
        let env = env.into_iter().map(|(k, v)| format!("{k}={v}").into_bytes()).collect();
        Parcel { code: self.code.to_vec(), args, env }
    }

    fn streams(&self) -> Result<Streams, Stop> {
        let reading = match self.request.pass_through {
            true => Reading::start_passing(),
            false => Reading::start(self.chunks),
        };
        let (reading, output) = reading.map_err(io_error("make a pipe"))?;
        let stdin = self.stdin.map(input).transpose().map_err(io_error("make a pipe"))?;
        Ok(Streams { reading, output, stdin })
    }

    /// Serves the sandbox until everything in it is dead and its output has been taken.
    async fn follow(
        &mut self,
        control: &Control,
        gone: &mut Gone,
        reading: Reading,
        mut feed: Option<Input>,
    ) -> (Followed, Taken) {
        let (mut started, mut outputs, mut feeding) = (None, None, None);
        // Orders that came before the sandbox did.
        let mut cancelled = self.cancel.now().is_some();
        if cancelled {
            control.order(Order::Cancel, &[], &[]);
        }
        let outcome = loop {
            tokio::select! {
                event = control.event() => match event {
                    Some((Event::Started, fd)) => {
                        started = Some(Instant::now());
                        outputs = fd;
                        // Not earlier: what went into a sandbox that never started would be lost. Without a thread for it the input is empty.
                        feeding = feed.take().and_then(|feed| Feeding::start(feed).ok());
                    }
                    Some((Event::Ended(outcome), _)) => break Some(outcome),
                    Some((Event::Ready, _)) => {}
                    None => break None,
                },
                _ = self.cancel.next() => {
                    control.order(Order::Cancel, &[], &[]);
                    if cancelled {
                        reading.stop();
                    }
                    cancelled = true;
                }
            }
        };
        let over = Instant::now();
        drop((feeding, feed));
        if outcome.is_none() {
            // The launcher died. The spawner ends what it left and then says so.
            let _ = gone.await;
        }
        let (say, end) = reading.end();
        tokio::pin!(end);
        if cancelled {
            say.hurry();
        }
        let taken = loop {
            tokio::select! {
                taken = &mut end => break taken,
                _ = self.cancel.next() => {
                    say.stop();
                    say.hurry();
                }
            }
        };
        (Followed { outcome, started, over, outputs }, taken)
    }
}
