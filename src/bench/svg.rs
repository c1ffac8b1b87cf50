//! Drawings for the page: plain SVG elements, coloured by classes of the page's style.

use std::fmt::Write as _;

use super::stats::{quantile, sorted};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 20.0;
const ROW: f64 = 30.0;
const AXIS: f64 = 30.0;

/// One contestant in a drawing: its name, the number of its colour, its values.
pub struct Line<'a> {
    pub name: &'a str,
    pub colour: usize,
    pub values: Vec<f64>,
}

/// A logarithmic axis: contestants differ by a factor, not by an amount.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(lines: &[Line<'_>]) -> Axis {
        let all = || lines.iter().flat_map(|l| l.values.iter().copied()).filter(|v| *v > 0.0);
        let low = all().fold(f64::INFINITY, f64::min);
        let high = all().fold(0.0, f64::max);
        if !low.is_finite() {
            return Axis { low: 1.0, high: 10.0 };
        }
        Axis { low: low * 0.9, high: (high * 1.1).max(low * 1.5) }
    }

    fn x(&self, value: f64) -> f64 {
        let part = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    /// 1, 2, 5, 10, 20, …
    fn ticks(&self) -> Vec<f64> {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all = (first..=last).flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e)));
        all.filter(|t| (self.low..=self.high).contains(t)).collect()
    }

    fn draw(&self, height: f64, unit: &str) -> String {
        let mut out = String::new();
        for tick in self.ticks() {
            let x = self.x(tick);
            // Writing to a String can't fail, here and below.
            let _ =
                write!(out, "<line class=\"grid\" x1=\"{x:.1}\" y1=\"0\" x2=\"{x:.1}\" y2=\"{height:.1}\"/>");
            let y = height + 16.0;
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{tick} {unit}</text>"
            );
        }
        out
    }
}

fn frame(height: f64, title: &str, inside: &str) -> String {
    let title = escape(title);
    format!(
        "<svg role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {WIDTH} {:.0}\"><title>{title}</title>{inside}</svg>\n",
        height + AXIS
    )
}

/// A strip for each contestant: a dot for each value, a bar at the median.
pub fn strips(title: &str, lines: &[Line<'_>]) -> String {
    let axis = Axis::of(lines);
    let height = ROW * lines.len() as f64;
    let mut out = axis.draw(height, "ms");
    for (row, line) in lines.iter().enumerate() {
        let middle = ROW * (row as f64 + 0.5);
        let (c, y) = (line.colour, middle + 4.0);
        let _ = write!(
            out,
            "<text class=\"name c{c}\" x=\"{:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            escape(line.name)
        );
        for (i, value) in line.values.iter().enumerate() {
            // Spread by their number, so that equal values stay apart and the picture is the same each time.
            let y = middle + ((i * 7919) % 17) as f64 - 8.0;
            let _ = write!(
                out,
                "<circle class=\"dot c{c}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2.2\"/>",
                axis.x(*value)
            );
        }
        let x = axis.x(quantile(&sorted(&line.values), 0.5));
        let (a, b) = (middle - 12.0, middle + 12.0);
        let _ =
            write!(out, "<line class=\"median\" x1=\"{x:.1}\" y1=\"{a:.1}\" x2=\"{x:.1}\" y2=\"{b:.1}\"/>");
    }
    frame(height, title, &out)
}

/// The share of runs that took at most so long, a line for each contestant.
pub fn ecdf(title: &str, lines: &[Line<'_>]) -> String {
    const HEIGHT: f64 = 220.0;
    let axis = Axis::of(lines);
    let mut out = axis.draw(HEIGHT, "ms");
    let y = |share: f64| HEIGHT - share * (HEIGHT - 8.0);
    for share in [0.0, 0.5, 0.95, 1.0] {
        let at = y(share);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.0}\" y2=\"{at:.1}\"/>",
            WIDTH - RIGHT
        );
        // 0.95 is just below 1: its word goes under its line.
        let below = if share == 0.95 { 12.0 } else { 4.0 };
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}%</text>",
            LEFT - 10.0,
            at + below - if share == 1.0 { 2.0 } else { 0.0 },
            share * 100.0
        );
    }
    for line in lines {
        let values = sorted(&line.values);
        let n = values.len() as f64;
        let mut points = String::new();
        for (i, value) in values.iter().enumerate() {
            let (x, from, to) = (axis.x(*value), y(i as f64 / n), y((i + 1) as f64 / n));
            let _ = write!(points, "{x:.1},{from:.1} {x:.1},{to:.1} ");
        }
        let end = (WIDTH - RIGHT, y(1.0));
        let _ = write!(points, "{:.1},{:.1}", end.0, end.1);
        let _ = write!(
            out,
            "<polyline class=\"line c{}\" points=\"{points}\"><title>{}</title></polyline>",
            line.colour,
            escape(line.name)
        );
    }
    frame(HEIGHT, title, &out)
}

/// A bar for each name, with its value.
pub fn bars(title: &str, unit: &str, bars: &[(String, usize, f64)]) -> String {
    let most = bars.iter().map(|b| b.2).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let mut out = String::new();
    for (row, (name, colour, value)) in bars.iter().enumerate() {
        let top = ROW * row as f64 + 4.0;
        let width = (value.max(0.0) / most) * (WIDTH - LEFT - RIGHT - 110.0);
        let y = top + 15.0;
        let _ = write!(
            out,
            "<text class=\"name c{colour}\" x=\"{:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            escape(name)
        );
        let _ = write!(
            out,
            "<rect class=\"bar c{colour}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.0}\"/>",
            ROW - 8.0
        );
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{y:.1}\">{value:.1} {}</text>",
            LEFT + width + 6.0,
            escape(unit)
        );
    }
    frame(ROW * bars.len() as f64, title, &out)
}

/// Text for an element or an attribute in quotes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_its_values_on_it() {
        let line = Line { name: "creel", colour: 1, values: vec![3.0, 4.0, 250.0] };
        let axis = Axis::of(&[line]);
        assert_eq!(axis.ticks(), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert!(axis.x(3.0) > LEFT && axis.x(250.0) < WIDTH - RIGHT && axis.x(4.0) > axis.x(3.0));
        let none = Axis::of(&[Line { name: "x", colour: 0, values: vec![] }]);
        assert!(none.x(0.0).is_finite());
        let one = Axis::of(&[Line { name: "x", colour: 0, values: vec![2.0] }]);
        assert!(one.x(2.0).is_finite());
    }

    #[test]
    fn names_are_text() {
        assert_eq!(escape("<a href=\"x\">&\x1b图"), "&lt;a href=&quot;x&quot;&gt;&amp;\u{fffd}图");
        let drawn = strips("a<b", &[Line { name: "<x>", colour: 0, values: vec![1.0] }]);
        assert!(drawn.contains("&lt;x&gt;") && !drawn.contains("<x>"));
    }
}
