//! What is printed for people.

use std::fmt::Write as _;

use super::outcome::{Density, Outcome, Rate, Series, Slots};
use super::stats::Interval;
use super::{Plan, What};
use crate::text::one_line;

/// How it was done, in sentences.
pub fn how(plan: &Plan) -> Vec<String> {
    let ms = |d: std::time::Duration| d.as_millis();
    let peers = if plan.peers { "bare, creel and every peer found" } else { "bare and creel" };
    let mut how = vec![match plan.what {
        What::Cold => format!(
            "Each round starts every contestant ({peers}) once, in an order that is shuffled anew (seed {}); {} ms of rest before \
             each start let the last one's tear-down go by. {} rounds were run first and dropped.",
            plan.seed,
            ms(plan.pause),
            plan.warm_up
        ),
        What::Warm => format!(
            "Each round has every entrant run the same once, in an order that is shuffled anew (seed {}), after {} ms of rest and when its pool is \
             full again; what refills it meanwhile is in the times, as it is in a daemon. {} rounds were run first and dropped. A run that did not \
             start as it was meant to counts as missed and is not among the samples. zygote, warm and cold have an executor each in this process, and \
             a CPU limit of one CPU, the most that a zygote allows, as creel (`creel run`) has here; bare has no limits.",
            plan.seed,
            ms(plan.pause),
            plan.warm_up
        ),
        What::Throughput => format!(
            "Runs are started for {} s, so many at a time, each as soon as one has ended; those begun are waited for, and they and \
             their time count. {} windows for each contestant ({peers}), in an order that is shuffled anew (seed {}), after {} \
             runs that do not count.",
            plan.window.as_secs_f64(),
            plan.rounds,
            plan.seed,
            plan.warm_up
        ),
        What::Density if plan.slots.is_some() => format!(
            "{} slots of a zygote pool are made and wait; then the memory of all their processes is read (PSS: a page that three processes have in \
             common counts a third for each), and how far MemAvailable fell from when one slot and the zygote were there, which has the kernel's own \
             memory in it and whatever else the machine did meanwhile. Then each is given a program. It stops early when the host gets short of memory.",
            plan.slots.unwrap_or_default()
        ),
        What::Density => format!(
            "{} sandboxes are started one after the other, each waits in `sleep`; then the memory of all their processes is read \
             (PSS: a page that three processes have in common counts a third for each), and how far MemAvailable fell, which has the \
             kernel's own memory in it and whatever else the machine did meanwhile. One sandbox before them does not count.",
            plan.count
        ),
    }];
    if matches!(plan.what, What::Cold | What::Warm) {
        how.push(format!(
            "sequential: one after the other. staggered: {} starts, one every {} ms, ended or not. burst: {} at once.",
            plan.burst,
            ms(plan.stagger),
            plan.burst
        ));
    }
    if plan.what == What::Warm {
        how.push(format!(
            "Runs per second: so many clients, each with one run after the other, for {} s, after half as long that does not count; those begun are \
             waited for, and they and their time count. Ratios are paired: of the medians in the same round, then the median of these; in brackets its \
             interval from order statistics.",
            plan.window.as_secs_f64()
        ));
    } else if plan.what != What::Density {
        how.push(
            "Everyone gets the same root read-only, and as far as it can 512 MiB, 128 tasks and a CPU limit of all CPUs, which is set \
             and never bites. Ratios are paired: of the medians in the same round, then the median of these; in brackets its \
             interval from order statistics."
                .into(),
        );
    }
    how
}

/// The whole report.
pub fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    // Writing to a String can't fail, here and below.
    let _ = writeln!(out, "creel bench {}", outcome.measured);
    out += &machine(outcome);
    for sentence in &outcome.how {
        let _ = writeln!(out, "{sentence}");
    }
    if outcome.measured != "density" {
        let _ = writeln!(out, "The clock runs {}.", outcome.clock);
    }
    let mut last = None;
    for (at, one) in outcome.series.iter().enumerate() {
        if last != Some((one.work, one.mode)) {
            last = Some((one.work, one.mode));
            let _ = write!(out, "\n{}, {}", describe(one.work), one.mode);
            let _ = writeln!(
                out,
                "{}",
                if one.in_a_round > 1 { format!(" ({} in a round)", one.in_a_round) } else { String::new() }
            );
            let group = outcome.series[at..].iter().take_while(|s| Some((s.work, s.mode)) == last);
            let group: Vec<&Series> = group.collect();
            out += if outcome.measured == "warm" { warm_times(&group) } else { times(&group) }.as_str();
        }
    }
    out += &timings(outcome);
    out += &rates(&outcome.rates);
    if let Some(density) = &outcome.density {
        out += &memory(density);
    }
    if let Some(found) = &outcome.slots {
        out += &slots(found);
    }
    out += &people(outcome);
    out
}

fn machine(outcome: &Outcome) -> String {
    let f = &outcome.facts;
    let load = |l: Option<f64>| l.map_or_else(|| "?".into(), |l| format!("{l:.1}"));
    let digest = f.digest.as_deref().map(|d| format!(" ({})", d.chars().take(19).collect::<String>()));
    format!(
        "creel {}{}, image {}{}, Linux {} {}, {} x {}, {} MiB, cgroup {}, {}, load {} before and {} after\npage cache: {}\n",
        f.creel,
        if f.debug_build { " (debug build)" } else { "" },
        one_line(&f.image),
        digest.unwrap_or_default(),
        f.kernel,
        f.arch,
        f.cpus,
        f.cpu,
        f.memory_mib.unwrap_or_default(),
        f.cgroup,
        if f.root { "as root" } else { "as an ordinary user" },
        load(f.load_before),
        load(f.load_after),
        f.page_cache
    )
}

/// What a piece of work is.
pub fn describe(work: &str) -> &'static str {
    match work {
        "true" => "true",
        "python" => "python3 -I -S -c pass",
        "pass-script" => "the script `pass`",
        "pandas-script" => "the script `import pandas as pd; print(pd.DataFrame({'a':[1,2,3]}).a.sum())`",
        _ => "python3 -I -c 'import pandas'",
    }
}

/// `2.10 [1.95 2.31]`, with the probability where it is less than the usual.
pub fn interval(i: Option<&Interval>) -> String {
    let Some(i) = i else {
        return "-".into();
    };
    let less = if i.confidence < 0.95 { format!(" {:.0}%", i.confidence * 100.0) } else { String::new() };
    format!("{:.2} [{:.2} {:.2}{less}]", i.median, i.low, i.high)
}

fn times(group: &[&Series]) -> String {
    let head = ["", "n", "median", "p95", "p99", "max", "min", "x bare [95%]", "x creel [95%]"];
    let mut rows = vec![head.map(str::to_owned)];
    for s in group {
        let ms = |v: f64| format!("{v:.2}");
        let m = &s.summary;
        rows.push([
            s.contestant.into(),
            m.n.to_string(),
            ms(m.median),
            ms(m.p95),
            ms(m.p99),
            ms(m.max),
            ms(m.min),
            interval(s.ratio_to_bare.as_ref()),
            interval(s.ratio_to_creel.as_ref()),
        ]);
    }
    table(&rows) + &noise(group)
}

fn warm_times(group: &[&Series]) -> String {
    let head = ["", "n", "median", "p95", "p99", "max", "min", "missed", "cold / this [95%]", "x bare [95%]"];
    let mut rows = vec![head.map(str::to_owned)];
    for s in group {
        let ms = |v: f64| format!("{v:.2}");
        let m = &s.summary;
        rows.push([
            s.contestant.into(),
            m.n.to_string(),
            ms(m.median),
            ms(m.p95),
            ms(m.p99),
            ms(m.max),
            ms(m.min),
            s.missed.to_string(),
            interval(s.cold_to_this.as_ref()),
            interval(s.ratio_to_bare.as_ref()),
        ]);
    }
    table(&rows) + &noise(group)
}

fn noise(group: &[&Series]) -> String {
    let noisy = |s: &&&Series| s.summary.p95 > 2.0 * s.summary.median;
    let noisy: Vec<&str> = group.iter().filter(noisy).map(|s| s.contestant).collect();
    match noisy.is_empty() {
        true => String::new(),
        false => format!("noisy, p95 over twice the median: {}\n", noisy.join(", ")),
    }
}

fn timings(outcome: &Outcome) -> String {
    if outcome.timings.is_empty() {
        return String::new();
    }
    let head = ["", "n", "launch", "run", "harvest", "clean", "total", "by our clock"];
    let mut rows = vec![head.map(str::to_owned)];
    for t in &outcome.timings {
        let ms = |v: f64| format!("{v:.2}");
        let who = if t.contestant == "creel" { String::new() } else { format!(", {}", t.contestant) };
        rows.push([
            format!("{}{who}", t.work),
            t.n.to_string(),
            ms(t.launch),
            ms(t.run),
            ms(t.harvest),
            ms(t.clean),
            ms(t.total),
            ms(t.wall),
        ]);
    }
    "\ncreel's own account of its sequential runs, ms, medians (each its own: they need not add up)\n"
        .to_owned()
        + &table(&rows)
}

fn rates(rates: &[Rate]) -> String {
    let mut out = String::new();
    let mut last = None;
    for (at, rate) in rates.iter().enumerate() {
        let key = Some((rate.work, rate.at_once));
        if last == key {
            continue;
        }
        last = key;
        let _ = writeln!(out, "\n{}, {} at once, runs per second", describe(rate.work), rate.at_once);
        let head = ["", "runs", "hits", "median", "min", "max", "x bare", "x creel", "x cold"];
        let mut rows = vec![head.map(str::to_owned)];
        for r in rates[at..].iter().take_while(|r| Some((r.work, r.at_once)) == key) {
            let of = |v: f64| format!("{v:.1}");
            let s = &r.summary;
            rows.push([
                r.contestant.into(),
                r.runs.to_string(),
                r.hits.map_or_else(|| "-".into(), |hits| hits.to_string()),
                of(s.median),
                of(s.min),
                of(s.max),
                interval(r.ratio_to_bare.as_ref()),
                interval(r.ratio_to_creel.as_ref()),
                interval(r.ratio_to_cold.as_ref()),
            ]);
        }
        out += &table(&rows);
    }
    out
}

fn memory(d: &Density) -> String {
    let mib = |kib: f64| format!("{:.2}", kib / 1024.0);
    let each = f64::from(d.count);
    let mut rows = vec![["".to_owned(), "MiB in all".to_owned(), "MiB each".to_owned()]];
    for (part, kib) in &d.pss_kib {
        rows.push([format!("PSS {part}"), mib(*kib as f64), mib(*kib as f64 / each)]);
    }
    rows.push(["PSS, all".into(), mib(d.pss_kib_each * each), mib(d.pss_kib_each)]);
    let fell = (mib(d.available_fell_kib as f64), mib(d.available_fell_kib_each));
    rows.push(["MemAvailable fell by".into(), fell.0, fell.1]);
    format!(
        "\n{} idle sandboxes, {} processes, up after {:.0} ms; {} ended by themselves when asked to\n{}",
        d.count,
        d.processes,
        d.started_ms,
        d.ended_well,
        table(&rows)
    )
}

fn slots(s: &Slots) -> String {
    let mib = |kib: f64| format!("{:.2}", kib / 1024.0);
    let held = s.held.max(1) as f64;
    let mut rows = vec![["".to_owned(), "MiB in all".to_owned(), "MiB each".to_owned()]];
    let mut row = |name: String, kib: f64| rows.push([name, mib(kib), mib(kib / held)]);
    for (part, kib) in &s.pss_kib {
        row(format!("PSS {part}"), *kib as f64);
    }
    row("PSS, all of the slots".into(), s.pss_kib_each * held);
    for (part, kib) in &s.once_kib {
        row(format!("once: PSS {part}"), *kib as f64);
    }
    let fell = s.available_fell_kib as f64;
    for (name, kib) in &s.kernel_kib {
        row(format!("of the kernel's: {name} grew by"), *kib as f64);
    }
    if let Some(kib) = s.cgroup_kernel_kib {
        row("kernel memory of the cgroups".into(), kib as f64);
    }
    rows.push(["MemAvailable fell by".into(), mib(fell), mib(s.available_fell_kib_each)]);
    let why = s.stopped.as_ref().map_or_else(String::new, |why| format!(" (no more: {})", one_line(why)));
    format!(
        "\n{} of {} slots wait{why}, {} processes, made in {:.0} ms; {} of {} did the program that they were given\n{}",
        s.held,
        s.wanted,
        s.processes,
        s.made_ms,
        s.worked,
        s.delivered,
        table(&rows)
    )
}

/// Who took part and who did not, and what to think of it.
fn people(outcome: &Outcome) -> String {
    let mut out = String::from("\n");
    for entry in outcome.contestants.iter().filter(|e| !e.version.is_empty() || !e.notes.is_empty()) {
        let said: Vec<&str> =
            std::iter::once(entry.version.as_str()).chain(entry.notes.iter().map(String::as_str)).collect();
        let said: Vec<&str> = said.into_iter().filter(|s| !s.is_empty()).collect();
        let _ = writeln!(out, "{}: {}", entry.name, one_line(&said.join("; ")));
    }
    for absent in &outcome.absent {
        let who = if absent.name == "*" { "" } else { &absent.name };
        let work = absent.work.map_or("", |w| w);
        let what = [who, work].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "not measured: {what}: {}", one_line(&absent.reason));
    }
    for doubt in &outcome.doubts {
        let _ = writeln!(out, "doubt: {doubt}");
    }
    out
}

/// Columns: the first to the left, the others to the right.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = format!("  {:w$}", row[0], w = widths[0]);
        for (cell, w) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>w$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_say_how_sure_they_are() {
        let i = |confidence| Interval { n: 3, median: 2.0, low: 1.5, high: 2.25, confidence };
        assert_eq!(interval(Some(&i(0.96))), "2.00 [1.50 2.25]");
        assert_eq!(interval(Some(&i(0.75))), "2.00 [1.50 2.25 75%]");
        assert_eq!(interval(None), "-");
    }

    #[test]
    fn columns() {
        let rows = [["", "n"].map(str::to_owned), ["bubblewrap", "12"].map(str::to_owned)];
        assert_eq!(table(&rows), "               n\n  bubblewrap  12\n");
    }
}
