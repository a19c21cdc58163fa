//! The samples as a picture: rates above, savings and rungs below, over time.

use std::fmt::Write as _;

use super::{Sample, Way};

/// A panel: where it stands, and what its axis goes up to.
struct Panel {
    top: f64,
    height: f64,
    most: f64,
    seconds: f64,
}

impl Panel {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + WIDTH * (seconds / self.seconds).min(1.0)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - (value / self.most).clamp(0.0, 1.0))
    }

    fn frame(&self, svg: &mut String, title: &str, step: f64, unit: &str) {
        let _ = writeln!(svg, r#"<text x="{LEFT}" y="{:.0}" class="title">{title}</text>"#, self.top - 10.0);
        let mut value = 0.0;
        while value <= self.most + 1e-9 {
            let y = self.y(value);
            let right = LEFT + WIDTH;
            let _ = writeln!(svg, r#"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" class="grid"/>"#);
            let (x, y) = (LEFT - 8.0, y + 4.0);
            let _ = writeln!(svg, r#"<text x="{x}" y="{y:.1}" text-anchor="end">{value}{unit}</text>"#);
            value += step;
        }
    }

    fn line(&self, svg: &mut String, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> = points.map(|(x, y)| format!("{:.1},{:.1}", self.x(x), self.y(y))).collect();
        let _ = writeln!(svg, r#"<polyline class="{class}" points="{}"/>"#, points.join(" "));
    }
}

/// Draws the samples of all ways; `phases` are the seconds of each.
pub(super) fn draw(samples: &[Sample], phases: &[u64]) -> String {
    let seconds = phases.iter().sum::<u64>() as f64;
    let peak = samples.iter().map(|row| row.delivered).fold(1.0, f64::max);
    let step =
        [5.0, 10.0, 20.0, 50.0, 100.0, 200.0].into_iter().find(|step| peak / step <= 6.0).unwrap_or(500.0);
    let rates = Panel { top: 70.0, height: 190.0, most: (peak / step).ceil() * step, seconds };
    let savings = Panel { top: 320.0, height: 120.0, most: 100.0, seconds };
    let rungs = samples.iter().map(|row| row.rung).max().unwrap_or(0).max(4) as f64;
    let steps = Panel { top: 500.0, height: 70.0, most: rungs, seconds };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} 630\" role=\"img\">\n\
         <title>Delivered rate, savings and step of the controller while a load comes and goes</title>\n{STYLE}",
        LEFT + WIDTH + 30.0
    );
    shade(&mut svg, &rates, phases);
    legend(&mut svg);
    rates.frame(&mut svg, "Delivered rate (10⁶ bytes a second)", step, "");
    savings.frame(&mut svg, "Savings (share of delivered bytes that did not cross)", 25.0, " %");
    steps.frame(&mut svg, "Step below the configured plan", (rungs / 4.0).ceil(), "");
    for way in Way::ALL {
        let rows = || samples.iter().filter(move |row| row.way == way);
        rates.line(&mut svg, way.name(), rows().map(|row| (row.seconds, row.delivered)));
        if way != Way::Uncoded {
            savings.line(&mut svg, way.name(), rows().map(|row| (row.seconds, row.savings())));
        }
    }
    let adapting = samples.iter().filter(|row| row.way == Way::Adapting);
    let stairs = adapting.scan((0.0, 0.0), |(since, rung), row| {
        let corner = [(*since, *rung), (*since, row.rung as f64), (row.seconds, row.rung as f64)];
        (*since, *rung) = (row.seconds, row.rung as f64);
        Some(corner)
    });
    steps.line(&mut svg, "adapt", stairs.flatten());
    axis(&mut svg, &steps);
    svg.push_str("</svg>\n");
    svg
}

/// Marks the loaded phase through all panels.
fn shade(svg: &mut String, panel: &Panel, phases: &[u64]) {
    let (from, to) = (panel.x(phases[0] as f64), panel.x((phases[0] + phases[1]) as f64));
    let _ = writeln!(
        svg,
        r#"<rect x="{from:.1}" y="50" width="{:.1}" height="520" class="load"/>
<text x="{:.1}" y="64" text-anchor="middle">other programs want the processors</text>"#,
        to - from,
        f64::midpoint(from, to),
    );
}

fn legend(svg: &mut String) {
    let words = ["with adapt = true", "with adapt = false", "with codec = \"none\""];
    for (at, (way, words)) in Way::ALL.into_iter().zip(words).enumerate() {
        let x = LEFT + 200.0 * at as f64;
        let class = way.name();
        let (end, text) = (x + 28.0, x + 36.0);
        let _ = writeln!(
            svg,
            r#"<line x1="{x}" y1="22" x2="{end}" y2="22" class="{class}"/><text x="{text}" y="26">{words}</text>"#
        );
    }
}

fn axis(svg: &mut String, panel: &Panel) {
    let bottom = panel.top + panel.height;
    let mut seconds = 0.0;
    while seconds <= panel.seconds {
        let (x, y) = (panel.x(seconds), bottom + 20.0);
        let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{seconds}</text>"#);
        seconds += 5.0;
    }
    let (x, y) = (LEFT + WIDTH / 2.0, bottom + 42.0);
    let _ = writeln!(svg, r#"<text x="{x}" y="{y}" text-anchor="middle">seconds</text>"#);
}

const LEFT: f64 = 60.0;
const WIDTH: f64 = 700.0;
/// Colours that can be told apart in light and dark, and by the dashes without colours.
const STYLE: &str = "<style>
text { font: 13px sans-serif; fill: #24292f }
.title { font-weight: bold }
.grid { stroke: #8888; stroke-width: 0.6 }
.load { fill: #8883 }
polyline, line { fill: none; stroke-width: 2 }
.adapt { stroke: #0969da }
.configured { stroke: #bc4c00; stroke-dasharray: 6 3 }
.none { stroke: #6e7781; stroke-dasharray: 2 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .adapt { stroke: #58a6ff }
  .configured { stroke: #f0883e }
  .none { stroke: #9da7b3 }
}
</style>
";
