//! `creel bench density --slots`: the memory of sandboxes that were made ahead and wait.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::daemon::{Daemons, Failed, Ran, Spawners, descriptors};
use super::outcome::Slots;
use super::place::hierarchies;
use super::procs::{available, children, field, pss};
use super::setup::{Kind, Setup, script};
use super::{Bench, BenchError};
use crate::executor::report::Category;

/// Slots, when no number is given.
pub const COUNT: u64 = 500;
/// It stops when less of the host's memory is available than this, or than this part of it, whichever is more.
const FLOOR_KIB: u64 = 1 << 20;
const FLOOR_PART: u64 = 10;
/// Descriptors beside the control socket of each slot.
const SPARE: u64 = 256;
/// How often is looked how far it is.
const LOOK: Duration = Duration::from_millis(20);
/// Until the kernel's own lists have settled: nothing announces that.
const SETTLE: Duration = Duration::from_millis(1000);
/// What each slot is given at the end, and prints.
const PROGRAM: &str = "import sys, random\nprint(6 * 7, len(sys.argv), random.random())\n";
/// Parts of the kernel's memory in `/proc/meminfo`.
const KERNEL: [&str; 5] = ["Slab", "PageTables", "KernelStack", "Percpu", "SecPageTables"];

/// Makes the slots, measures, gives each of them a program, and ends all.
///
/// # Errors
/// [`BenchError`]: creel failed, the host refused, or the caller stopped it.
pub fn measure(bench: &mut Bench, spawners: Spawners, mut setup: Setup) -> Result<Slots, BenchError> {
    let wanted = setup.size;
    descriptors(wanted as u64 + SPARE)?;
    let cpus = super::facts::cpus();
    setup.running = cpus;
    // It has no child but the spawner yet.
    let spawner = children(std::process::id()).first().copied();
    let spawner = spawner.ok_or_else(|| BenchError::Host("cannot find the spawner in /proc".into()))?;
    bench.progress.part("starting", wanted as u64);
    let daemons = Daemons::start(spawners, setup)?;
    // What one alone brings, its zygote with it, is not each one's.
    until(bench, &daemons, 1)?;
    let (before, kernel_before) = (available(), kernel());
    let first = daemons.pool(Kind::Zygote).map_or(0, |pool| pool.ready);
    let begun = Instant::now();
    let stopped = until(bench, &daemons, wanted)?;
    let made_ms = begun.elapsed().as_secs_f64() * 1e3;
    daemons.stop_refilling(Kind::Zygote);
    if bench.stop.rest(SETTLE) {
        return Err(BenchError::Stopped);
    }
    let held = daemons.pool(Kind::Zygote).map_or(0, |pool| pool.ready);
    let (after, kernel_after) = (available(), kernel());
    let mut slots = Slots {
        wanted,
        held,
        stopped,
        pss_kib: BTreeMap::new(),
        pss_kib_each: 0.0,
        once_kib: BTreeMap::new(),
        processes: 0,
        available_fell_kib: 0,
        available_fell_kib_each: 0.0,
        kernel_kib: BTreeMap::new(),
        cgroup_kernel_kib: None,
        made_ms,
        delivered: 0,
        worked: 0,
    };
    weigh(bench, spawner, &mut slots)?;
    let kib = |v: Option<u64>| v.and_then(|v| i64::try_from(v).ok()).unwrap_or(0);
    slots.available_fell_kib = kib(before) - kib(after);
    let made = held.saturating_sub(first).max(1) as f64;
    slots.available_fell_kib_each = slots.available_fell_kib as f64 / made;
    slots.pss_kib_each = slots.pss_kib.values().sum::<u64>() as f64 / held.max(1) as f64;
    for name in KERNEL {
        if let (Some(a), Some(b)) = (kernel_before.get(name), kernel_after.get(name)) {
            slots.kernel_kib.insert(name, b - a);
        }
    }
    deliver(bench, &daemons, cpus, &mut slots)?;
    bench.progress.part("ending", 1);
    drop(daemons);
    Ok(slots)
}

/// Waits until so many slots wait. `Some(why)`: they become no more.
fn until(bench: &Bench, daemons: &Daemons, count: usize) -> Result<Option<String>, BenchError> {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|m| field(&m, "MemTotal:")).unwrap_or(0);
    let floor = FLOOR_KIB.max(total / FLOOR_PART);
    let mut seen = 0;
    while let Some(pool) = daemons.pool(Kind::Zygote) {
        (seen..pool.ready).for_each(|_| bench.progress.step());
        seen = seen.max(pool.ready);
        if pool.ready >= count {
            return Ok(None);
        }
        if let Some(why) = pool.last_error {
            return if pool.ready == 0 { Err(BenchError::Creel(why)) } else { Ok(Some(why)) };
        }
        if available().is_some_and(|kib| kib < floor) {
            let why = format!("less than {} MiB of the host's memory are available", floor / 1024);
            return Ok(Some(why));
        }
        if bench.stop.rest(LOOK) {
            return Err(BenchError::Stopped);
        }
    }
    Ok(None)
}

/// The memory of every process below the spawner, and what their cgroups are charged for.
fn weigh(bench: &Bench, spawner: u32, slots: &mut Slots) -> Result<(), BenchError> {
    let all = parts(spawner);
    bench.progress.part("measuring", all.len() as u64);
    let mut charged = None;
    let hierarchies = hierarchies();
    for (part, pid) in std::iter::once(("this process", std::process::id())).chain(all) {
        if bench.stop.is_set() {
            return Err(BenchError::Stopped);
        }
        let kib = pss(pid).ok_or_else(|| {
            BenchError::Host(format!("cannot read the memory of {part} (process {pid}): needs root"))
        })?;
        if matches!(part, "launcher" | "init" | "python") {
            *slots.pss_kib.entry(part).or_default() += kib;
            slots.processes += 1;
        } else {
            *slots.once_kib.entry(part).or_default() += kib;
        }
        if part == "init" {
            let points = hierarchies.iter().map(|h| (h.point.as_path(), h.controllers.as_deref()));
            let kernel = points.filter_map(|(point, c)| cgroup_kernel(pid, point, c)).max();
            if let Some(kib) = kernel {
                *charged.get_or_insert(0) += kib;
            }
        }
        bench.progress.step();
    }
    slots.cgroup_kernel_kib = charged;
    Ok(())
}

/// Every process below the spawner and what it is, by its title and its parent.
fn parts(spawner: u32) -> Vec<(&'static str, u32)> {
    let mut found = vec![("spawner", spawner)];
    let mut at = 0;
    while at < found.len() {
        let (above, pid) = found[at];
        for child in children(pid) {
            let title = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let is = |word: &str| title.starts_with(word.as_bytes());
            let part = match () {
                () if is("creel-zygote") => "zygote's launcher",
                () if is("creel-launcher") => "launcher",
                () if is("init\0") => "init",
                () if above == "zygote's launcher" => "zygote",
                () => "python",
            };
            found.push((part, child));
        }
        at += 1;
    }
    found
}

/// KiB of kernel memory that the cgroup of a process in the hierarchy mounted at `point` is charged for.
fn cgroup_kernel(pid: u32, point: &Path, controllers: Option<&[String]>) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let of = |line: &str| -> Option<PathBuf> {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        let fits = match controllers {
            None => names.is_empty(),
            Some(all) => names == "memory" && all.iter().any(|c| c == "memory"),
        };
        fits.then(|| point.join(path.trim_start_matches('/')))
    };
    let dir = text.lines().find_map(of)?;
    let bytes = match controllers {
        None => field(&fs::read_to_string(dir.join("memory.stat")).ok()?, "kernel ")?,
        Some(_) => fs::read_to_string(dir.join("memory.kmem.usage_in_bytes")).ok()?.trim().parse().ok()?,
    };
    Some(bytes / 1024)
}

fn kernel() -> BTreeMap<&'static str, i64> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of = |name: &'static str| Some((name, i64::try_from(field(&text, &format!("{name}:"))?).ok()?));
    KERNEL.into_iter().filter_map(of).collect()
}

/// Every slot gets a program: that it waits does not say that it works.
fn deliver(bench: &Bench, daemons: &Daemons, clients: usize, slots: &mut Slots) -> Result<(), BenchError> {
    let held = slots.held;
    bench.progress.part("giving each a program", held as u64);
    let begun = Arc::new(AtomicUsize::new(0));
    // What each printed: the third word is random, and no two may have the same.
    let printed = Arc::new(Mutex::new(Vec::new()));
    let (count, seen) = (Arc::clone(&begun), Arc::clone(&printed));
    let each = move |_: Instant, ran: &Ran| {
        let report = &ran.report;
        if report.error_category == Category::Ok && report.start == Kind::Zygote.name() {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(report.stdout.clone());
        }
        Ok(())
    };
    let enough = move || count.fetch_add(1, Ordering::Relaxed) >= held;
    let done = daemons.stream(Kind::Zygote, &script(PROGRAM), clients, enough, each, &bench.stop);
    done.map_err(|failed| match failed {
        Failed::Stopped => BenchError::Stopped,
        Failed::Why(why) => BenchError::Creel(why),
    })?;
    let mut printed = std::mem::take(&mut *printed.lock().unwrap_or_else(PoisonError::into_inner));
    printed.retain(|text| text.starts_with("42 1 0."));
    printed.sort();
    printed.dedup();
    slots.delivered = held;
    slots.worked = printed.len();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_place() {
        assert_eq!(parts(u32::MAX), [("spawner", u32::MAX)]);
        assert!(kernel().get("Slab").is_some_and(|kib| *kib > 0));
    }
}
