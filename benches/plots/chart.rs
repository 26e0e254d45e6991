//! Charts of two kinds: bars with their figures, and lines.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::theme::Theme;

const SIZE: (u32, u32) = (760, 400);
const FONT: &str = "sans-serif";
/// How wide the names of lines are, at the right.
const NAMES: u32 = 150;

/// Bars, the first one at the top.
pub(crate) struct Bars {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) bars: Vec<(String, f64)>,
}

/// Lines over one axis.
pub(crate) struct Lines {
    pub(crate) title: &'static str,
    pub(crate) across: &'static str,
    pub(crate) up: &'static str,
    pub(crate) scale: Scale,
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// How values are laid out.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// Each step across doubles, and each step up is a power of ten.
    Powers,
    /// Each step across doubles.
    Doubling,
    /// As they are.
    Linear,
}

impl Bars {
    pub(crate) fn draw(&self, file: &Path, theme: &Theme) -> Result<()> {
        let area = SVGBackend::new(file, SIZE).into_drawing_area();
        bars(self, &area, theme).map_err(|error| anyhow!("{}: {error}", file.display()))
    }
}

impl Lines {
    pub(crate) fn draw(&self, file: &Path, theme: &Theme) -> Result<()> {
        let area = SVGBackend::new(file, SIZE).into_drawing_area();
        lines(self, &area, theme).map_err(|error| anyhow!("{}: {error}", file.display()))
    }

    /// Where a value is across, and what is written there.
    fn across(&self, value: f64) -> f64 {
        if self.scale == Scale::Linear { value } else { value.log2() }
    }

    fn up(&self, value: f64) -> f64 {
        if self.scale == Scale::Powers { value.log10() } else { value }
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn bars(chart: &Bars, area: &Area<'_>, theme: &Theme) -> Drawn {
    let Bars { title, unit, bars } = chart;
    area.fill(&theme.background)?;
    let longest = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let rows = bars.len() as f64;
    // Room for the words beside the longest bar.
    let mut plot = ChartBuilder::on(area)
        .caption(title, (FONT, 18).into_font().color(&theme.text))
        .margin(14)
        .build_cartesian_2d(0.0..longest * 1.5, rows..0.0)?;
    let text = (FONT, 14).into_font().color(&theme.text);
    for (number, (label, value)) in bars.iter().enumerate() {
        let (top, is_ours) = (number as f64, label.starts_with("bakery"));
        let color = theme.series[usize::from(!is_ours)];
        let bar = [(0.0, top + 0.2), (*value, top + 0.8)];
        plot.draw_series([Rectangle::new(bar, color.filled())])?;
        let words = format!("{label}: {value:.2} {unit}");
        let place = (value + longest * 0.01, top + 0.35);
        plot.draw_series([Text::new(words, place, text.clone())])?;
    }
    Ok(area.present()?)
}

fn lines(chart: &Lines, area: &Area<'_>, theme: &Theme) -> Drawn {
    area.fill(&theme.background)?;
    let points = || chart.lines.iter().flat_map(|(_, points)| points);
    let across: Vec<_> = points().map(|(value, _)| chart.across(*value)).collect();
    let up: Vec<_> = points().map(|(_, value)| chart.up(*value)).collect();
    let least = |values: &[f64]| values.iter().copied().fold(f64::MAX, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(f64::MIN, f64::max);
    let (low, high) = match chart.scale {
        Scale::Powers => (least(&up).floor(), most(&up).ceil()),
        Scale::Doubling | Scale::Linear => (0.0, most(&up) * 1.1),
    };
    let (plot, names) = area.split_horizontally(SIZE.0 - NAMES);
    let mut plot = ChartBuilder::on(&plot)
        .caption(chart.title, (FONT, 18).into_font().color(&theme.text))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(62)
        .build_cartesian_2d(least(&across)..most(&across), low..high)?;
    let text = (FONT, 13).into_font().color(&theme.text);
    plot.configure_mesh()
        .axis_style(theme.grid)
        .bold_line_style(theme.grid)
        .light_line_style(theme.background)
        .label_style(text.clone())
        .axis_desc_style(text.clone())
        .x_desc(chart.across)
        .y_desc(chart.up)
        // Few enough for whole powers of ten.
        .y_labels(6)
        .x_label_formatter(&|value| match chart.scale {
            Scale::Powers | Scale::Doubling => format!("{:.0}", value.exp2()),
            Scale::Linear => thousands(*value),
        })
        .y_label_formatter(&|value| match chart.scale {
            Scale::Powers => thousands(10_f64.powf(*value)),
            Scale::Doubling | Scale::Linear => thousands(*value),
        })
        .draw()?;
    let color = |number: usize| theme.series[number % theme.series.len()];
    for (number, (_, points)) in chart.lines.iter().enumerate() {
        let points = points.iter().map(|(x, y)| (chart.across(*x), chart.up(*y)));
        let line = LineSeries::new(points, color(number).stroke_width(2)).point_size(3);
        plot.draw_series(line)?;
    }
    // In the order in which the lines end, from the top.
    let mut order: Vec<usize> = (0..chart.lines.len()).collect();
    let end = |line: usize| chart.lines[line].1.last().map_or(0.0, |(_, value)| *value);
    order.sort_by(|one, other| end(*other).total_cmp(&end(*one)));
    for (line, y) in order.into_iter().zip((60..).step_by(20)) {
        let key = PathElement::new(vec![(0, y + 6), (18, y + 6)], color(line).stroke_width(3));
        names.draw(&key)?;
        names.draw(&Text::new(chart.lines[line].0.clone(), (26, y), text.clone()))?;
    }
    Ok(area.present()?)
}

/// A short number: 1.5, 250, 20k, 1M.
fn thousands(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.0}M", value / 1e6),
        value if value >= 1e3 => format!("{:.0}k", value / 1e3),
        value if value >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}
