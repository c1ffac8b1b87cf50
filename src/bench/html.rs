//! One page with everything on it: no script, no font, no picture from elsewhere.

use std::fmt::Write as _;

use super::outcome::{Outcome, Series};
use super::report;
use super::svg::{Line, bars, ecdf, escape, strips};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1e21;--soft:#63686e;--grid:#dfe2e6;--page:#fff;\
--c0:#6b7178;--c1:#0b62c4;--c2:#b3560b;--c3:#1d7d45;--c4:#8a3ab9;--c5:#b3263f;--c6:#0b7f86;--c7:#7a6400;--c8:#5147c9}
@media (prefers-color-scheme:dark){:root{--ink:#e8eaed;--soft:#a2a8af;--grid:#353a40;--page:#16181b;\
--c0:#a2a8af;--c1:#6fb1ff;--c2:#f0a35e;--c3:#6fcf97;--c4:#cf9bf0;--c5:#ff8fa0;--c6:#62d0d6;--c7:#d9c157;--c8:#a9a2ff}}
body{margin:2rem auto;max-width:56rem;padding:0 1rem;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem}p.soft{color:var(--soft)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.15rem .5rem;text-align:right;border-bottom:1px solid var(--grid);font-weight:400}
td:first-child,th:first-child{text-align:left}th{color:var(--soft)}
div.wide{overflow-x:auto}pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px;color:var(--soft)}
svg{width:100%;height:auto;margin:.6rem 0}.grid{stroke:var(--grid)}.tick{fill:var(--soft);font-size:12px}.name{font-size:13px}
.dot{fill-opacity:.45}.median{stroke:var(--ink);stroke-width:2}.line{fill:none;stroke-width:2}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.c8{--c:var(--c8)}
.name,.dot,.bar{fill:var(--c)}.line{stroke:var(--c)}";

/// The page.
pub fn page(outcome: &Outcome) -> String {
    let title = format!("creel bench {}", outcome.measured);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
    );
    for sentence in &outcome.how {
        // Writing to a String can't fail, here and below.
        let _ = writeln!(out, "<p>{}</p>", escape(sentence));
    }
    let _ = writeln!(out, "<p class=\"soft\">The clock runs {}.</p>", escape(outcome.clock));
    for doubt in &outcome.doubts {
        let _ = writeln!(out, "<p><strong>Doubt:</strong> {}</p>", escape(doubt));
    }
    out += &facts(outcome);
    out += &distributions(outcome);
    out += &rates(outcome);
    out += &memory(outcome);
    out += &contestants(outcome);
    let _ = writeln!(out, "<h2>As text</h2>\n<pre>{}</pre>\n</body></html>", escape(&report::text(outcome)));
    out
}

/// The same colour for a contestant in every drawing.
fn colour(outcome: &Outcome, name: &str) -> usize {
    outcome.contestants.iter().position(|c| c.name == name).unwrap_or(0).min(8)
}

fn rows(head: &[&str], body: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"wide\"><table><tr>");
    for cell in head {
        let _ = write!(out, "<th>{}</th>", escape(cell));
    }
    out += "</tr>";
    for row in body {
        out += "<tr>";
        for cell in row {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out += "</tr>";
    }
    out + "</table></div>\n"
}

fn facts(outcome: &Outcome) -> String {
    let f = &outcome.facts;
    let load = |l: Option<f64>| l.map_or_else(|| "?".to_owned(), |l| format!("{l:.2}"));
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let image = format!("{} {}", f.image, f.digest.clone().unwrap_or_default());
    let body = [
        row("creel", format!("{}{}", f.creel, if f.debug_build { " (debug build)" } else { "" })),
        row("image", image),
        row("kernel", format!("{} {}", f.kernel, f.arch)),
        row("CPU", format!("{} x {}{}", f.cpus, f.cpu, if f.hypervisor { " (virtual machine)" } else { "" })),
        row("memory", format!("{} MiB", f.memory_mib.unwrap_or_default())),
        row("cgroup", f.cgroup.to_owned()),
        row("user", if f.root { "root" } else { "an ordinary user" }.to_owned()),
        row("load before and after", format!("{} and {}", load(f.load_before), load(f.load_after))),
        row("page cache", f.page_cache.clone()),
    ];
    "<h2>On what</h2>\n".to_owned() + &rows(&["", ""], &body)
}

fn distributions(outcome: &Outcome) -> String {
    let mut out = String::new();
    let mut last = None;
    for (at, one) in outcome.series.iter().enumerate() {
        let key = Some((one.work, one.mode));
        if last == key {
            continue;
        }
        last = key;
        let group: Vec<&Series> =
            outcome.series[at..].iter().take_while(|s| Some((s.work, s.mode)) == key).collect();
        let title = format!("{}, {}", report::describe(one.work), one.mode);
        let _ = writeln!(out, "<h2>{}</h2>", escape(&title));
        let line = |s: &&Series| Line {
            name: s.contestant,
            colour: colour(outcome, s.contestant),
            values: s.samples.iter().map(|v| v.ms).collect(),
        };
        let lines: Vec<Line<'_>> = group.iter().map(line).collect();
        out += &strips(&format!("{title}: each run"), &lines);
        out += &ecdf(&format!("{title}: share of runs that took at most so long"), &lines);
        let body: Vec<Vec<String>> = group.iter().map(|s| series_row(s, outcome.measured)).collect();
        let last: &[&str] =
            if outcome.measured == "warm" { &["missed", "cold ÷ this"] } else { &["× bare", "× creel"] };
        out += &rows(&[&["ms", "n", "median", "p95", "p99", "max", "min"], last].concat(), &body);
    }
    out
}

fn series_row(s: &Series, measured: &str) -> Vec<String> {
    let m = &s.summary;
    let mut row = vec![s.contestant.to_owned(), m.n.to_string()];
    row.extend([m.median, m.p95, m.p99, m.max, m.min].map(|v| format!("{v:.2}")));
    if measured == "warm" {
        row.extend([s.missed.to_string(), report::interval(s.cold_to_this.as_ref())]);
        return row;
    }
    row.extend([report::interval(s.ratio_to_bare.as_ref()), report::interval(s.ratio_to_creel.as_ref())]);
    row
}

fn rates(outcome: &Outcome) -> String {
    let mut out = String::new();
    let mut last = None;
    for (at, rate) in outcome.rates.iter().enumerate() {
        let key = Some((rate.work, rate.at_once));
        if last == key {
            continue;
        }
        last = key;
        let title = format!("{}, {} at once, runs per second", report::describe(rate.work), rate.at_once);
        let _ = writeln!(out, "<h2>{}</h2>", escape(&title));
        let group = outcome.rates[at..].iter().take_while(|r| Some((r.work, r.at_once)) == key);
        let bar = |r: &super::outcome::Rate| {
            let hits = r.hits.map_or_else(String::new, |hits| format!(" ({hits}/{})", r.runs));
            (format!("{}{hits}", r.contestant), colour(outcome, r.contestant), r.summary.median)
        };
        out += &bars(&title, "/s", &group.map(bar).collect::<Vec<_>>());
    }
    out
}

fn memory(outcome: &Outcome) -> String {
    if let Some(s) = &outcome.slots {
        let title = format!("Memory of each of {} slots that wait", s.held);
        let each = |kib: f64| kib / s.held.max(1) as f64;
        let parts = s.pss_kib.iter().map(|(part, kib)| (format!("PSS {part}"), 1, each(*kib as f64)));
        let kernel =
            s.kernel_kib.iter().map(|(name, kib)| ((*name).to_owned(), 4, each(*kib as f64).max(0.0)));
        let mut list: Vec<(String, usize, f64)> = parts.collect();
        list.push(("PSS, all".into(), 2, s.pss_kib_each));
        list.extend(kernel);
        list.push(("MemAvailable".into(), 3, s.available_fell_kib_each.max(0.0)));
        return format!("<h2>{}</h2>\n{}", escape(&title), bars(&title, "KiB", &list));
    }
    let Some(d) = &outcome.density else {
        return String::new();
    };
    let title = format!("Memory of each of {} idle sandboxes", d.count);
    let each = |kib: f64| kib / f64::from(d.count);
    let mut list: Vec<(String, usize, f64)> =
        d.pss_kib.iter().map(|(part, kib)| (format!("PSS {part}"), 1, each(*kib as f64))).collect();
    list.push(("PSS, all".into(), 2, d.pss_kib_each));
    list.push(("MemAvailable".into(), 3, d.available_fell_kib_each));
    format!("<h2>{}</h2>\n{}", escape(&title), bars(&title, "KiB", &list))
}

fn contestants(outcome: &Outcome) -> String {
    let mut out = String::from("<h2>Who took part</h2>\n");
    for entry in &outcome.contestants {
        let notes: String = entry.notes.iter().map(|n| format!("; {n}")).collect();
        let _ = writeln!(out, "<p>{} {}{}</p>", entry.name, escape(&entry.version), escape(&notes));
        // A filter of hundreds of names is cut: the JSON has all of it.
        let short = |a: &String| a.chars().take(200).collect::<String>();
        let command: Vec<String> = entry.command.iter().map(short).collect();
        let _ = writeln!(out, "<pre>{}</pre>", escape(&command.join(" ")));
    }
    for absent in &outcome.absent {
        let work = absent.work.map(|w| format!(", {w}")).unwrap_or_default();
        let name = if absent.name == "*" { "everyone" } else { &absent.name };
        let _ = writeln!(out, "<p>Not measured: {}{work}: {}</p>", escape(name), escape(&absent.reason));
    }
    out
}
