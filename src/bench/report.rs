//! What is printed for people.

use std::fmt::Write as _;

use super::outcome::{Density, Outcome, Rate, Series};
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
        What::Throughput => format!(
            "Runs are started for {} s, so many at a time, each as soon as one has ended; those begun are waited for, and they and \
             their time count. {} windows for each contestant ({peers}), in an order that is shuffled anew (seed {}), after {} \
             runs that do not count.",
            plan.window.as_secs_f64(),
            plan.rounds,
            plan.seed,
            plan.warm_up
        ),
        What::Density => format!(
            "{} sandboxes are started one after the other, each waits in `sleep`; then the memory of all their processes is read \
             (PSS: a page that three processes have in common counts a third for each), and how far MemAvailable fell, which has the \
             kernel's own memory in it and whatever else the machine did meanwhile. One sandbox before them does not count.",
            plan.count
        ),
    }];
    if plan.what == What::Cold {
        how.push(format!(
            "sequential: one after the other. staggered: {} starts, one every {} ms, ended or not. burst: {} at once.",
            plan.burst,
            ms(plan.stagger),
            plan.burst
        ));
    }
    if plan.what != What::Density {
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
            out += &times(&group.collect::<Vec<_>>());
        }
    }
    out += &timings(outcome);
    out += &rates(&outcome.rates);
    if let Some(density) = &outcome.density {
        out += &memory(density);
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
    let mut out = table(&rows);
    let noisy = |s: &&&Series| s.summary.p95 > 2.0 * s.summary.median;
    let noisy: Vec<&str> = group.iter().filter(noisy).map(|s| s.contestant).collect();
    if !noisy.is_empty() {
        let _ = writeln!(out, "noisy, p95 over twice the median: {}", noisy.join(", "));
    }
    out
}

fn timings(outcome: &Outcome) -> String {
    if outcome.timings.is_empty() {
        return String::new();
    }
    let head = ["", "n", "launch", "run", "harvest", "clean", "total", "by our clock"];
    let mut rows = vec![head.map(str::to_owned)];
    for t in &outcome.timings {
        let ms = |v: f64| format!("{v:.2}");
        rows.push([
            t.work.into(),
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
        let head = ["", "runs", "median", "min", "max", "x bare", "x creel"];
        let mut rows = vec![head.map(str::to_owned)];
        for r in rates[at..].iter().take_while(|r| Some((r.work, r.at_once)) == key) {
            let of = |v: f64| format!("{v:.1}");
            let s = &r.summary;
            rows.push([
                r.contestant.into(),
                r.runs.to_string(),
                of(s.median),
                of(s.min),
                of(s.max),
                interval(r.ratio_to_bare.as_ref()),
                interval(r.ratio_to_creel.as_ref()),
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
