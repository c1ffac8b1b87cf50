//! `creel bench density`: the memory of sandboxes that wait.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use super::clock::{Failure, Job, Running};
use super::daemon::descriptors;
use super::outcome::Density;
use super::peers::Creel;
use super::{Bench, BenchError, procs};

/// Limits of a sandbox that waits longer than the default profile allows.
const PROFILE: &str = "[limits]\ntimeout = 86400\ntimeout_max = 86400\n";
/// Descriptors beside those of the sandboxes.
const SPARE: u64 = 64;
/// Until the last page of a start has been touched and the kernel's own lists have settled: nothing announces that.
const SETTLE: Duration = Duration::from_millis(500);

/// Sandboxes that wait. Dropped, all are asked to end before the first is waited for.
#[derive(Default)]
struct Sandboxes(Vec<Running>);

impl Sandboxes {
    fn ask(&self) {
        self.0.iter().for_each(Running::ask);
    }
}

impl Drop for Sandboxes {
    fn drop(&mut self) {
        self.ask();
    }
}

/// Starts the sandboxes one after the other, measures, and ends all.
///
/// # Errors
/// [`BenchError`]: creel failed, or the caller stopped it.
pub fn measure(bench: &mut Bench, creel: &Creel) -> Result<Density, BenchError> {
    let count = bench.plan.count;
    descriptors(u64::from(count) * 2 + SPARE)?;
    let job = job(bench, creel)?;
    // One before: what the first start loads is no sandbox's own.
    if !start(bench, &job)?.end() {
        return Err(BenchError::Creel("the first sandbox did not end when asked to".into()));
    }
    bench.progress.part("starting", u64::from(count));
    rest(bench)?;
    let before = procs::available();
    let begun = Instant::now();
    let mut sandboxes = Sandboxes::default();
    for _ in 0..count {
        sandboxes.0.push(start(bench, &job)?);
        bench.progress.step();
    }
    let started_ms = begun.elapsed().as_secs_f64() * 1e3;
    rest(bench)?;
    let after = procs::available();
    let mut pss = BTreeMap::new();
    let mut processes = 0;
    bench.progress.part("measuring", u64::from(count));
    for sandbox in &sandboxes.0 {
        for (part, pid) in parts(sandbox.pid())? {
            let kib = procs::pss(pid).ok_or_else(|| {
                BenchError::Host(format!("cannot read the memory of {part} (process {pid}): needs root"))
            })?;
            *pss.entry(part).or_insert(0) += kib;
            processes += 1;
        }
        bench.progress.step();
    }
    bench.progress.part("ending", u64::from(count));
    sandboxes.ask();
    let mut ended_well = 0;
    for sandbox in &mut sandboxes.0 {
        ended_well += u32::from(sandbox.end());
        bench.progress.step();
    }
    let kib = |v: Option<u64>| v.and_then(|v| i64::try_from(v).ok()).unwrap_or(0);
    let fell = kib(before) - kib(after);
    Ok(Density {
        count,
        pss_kib_each: pss.values().sum::<u64>() as f64 / f64::from(count),
        pss_kib: pss,
        available_fell_kib: fell,
        available_fell_kib_each: fell as f64 / f64::from(count),
        started_ms,
        processes,
        ended_well,
    })
}

fn rest(bench: &Bench) -> Result<(), BenchError> {
    if bench.stop.rest(SETTLE) { Err(BenchError::Stopped) } else { Ok(()) }
}

/// A sandbox that says when it is up, and waits in `sleep`.
fn job(bench: &Bench, creel: &Creel) -> Result<Job, BenchError> {
    let lacks =
        |name: &str| BenchError::Refused(format!("image {} has no {name}", bench.setting.subject.name));
    let shell = bench.setting.subject.program("sh").ok_or_else(|| lacks("sh"))?;
    let sleep = bench.setting.subject.program("sleep").ok_or_else(|| lacks("sleep"))?;
    let profile = bench.setting.scratch.path().join("density.toml");
    let written = fs::write(&profile, PROFILE);
    written.map_err(|e| BenchError::Host(format!("cannot write {profile:?}: {e}")))?;
    let profile = profile.display().to_string();
    let command = [shell, "-c".into(), format!("echo; exec {sleep} 86400")];
    Ok(creel.run(&["--profile", &profile], &command))
}

fn start(bench: &Bench, job: &Job) -> Result<Running, BenchError> {
    match Running::start(job, &bench.stop) {
        Ok(Ok(running)) => Ok(running),
        Ok(Err(said)) => {
            let said = super::peers::explain(said.as_bytes());
            Err(BenchError::Creel(said.strip_prefix("creel: ").unwrap_or(&said).to_owned()))
        }
        Err(Failure::Stopped) => Err(BenchError::Stopped),
        Err(failure) => Err(BenchError::Creel(failure.to_string())),
    }
}

/// creel → launcher → init → payload.
fn parts(creel: u32) -> Result<Vec<(&'static str, u32)>, BenchError> {
    let mut found = vec![("creel", creel)];
    for part in ["launcher", "init", "payload"] {
        let above = found[found.len() - 1].1;
        match procs::children(above)[..] {
            [pid] => found.push((part, pid)),
            ref many => {
                return Err(BenchError::Creel(format!(
                    "{} processes where one {part} was expected",
                    many.len()
                )));
            }
        }
    }
    Ok(found)
}
