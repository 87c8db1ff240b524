// SPDX-License-Identifier: GPL-2.0

//! Plots, as SVG that a page in HTML can hold.

use anyhow::{Context, Result};
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::{Deserialize, Serialize};
use std::sync::Once;

/// Units of a plot, which are no fewer than pixels of a phone: letters are as large as the text beside it.
const WIDTH: u32 = 480;
const HEIGHT: u32 = 320;
/// The height of a bar with its name.
const BAR: i32 = 38;
const FONT: &str = "sans-serif";
const LETTERS: i32 = 20;

/// Colours that the colour-blind can tell apart.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

fn color(n: usize) -> RGBColor {
    COLORS[n % COLORS.len()]
}

/// A line's colour in HTML.
pub(super) fn html_color(n: usize) -> String {
    let RGBColor(red, green, blue) = color(n);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A line of a plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    /// Through `points`, from left to right; those that are no numbers are left out.
    pub(super) fn new(name: &str, mut points: Vec<(f64, f64)>) -> Line {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        Line {
            name: name.to_owned(),
            points,
        }
    }

    /// A level.
    pub(super) fn flat(name: &str, from: f64, to: f64, y: f64) -> Line {
        Line::new(name, vec![(from, y), (to, y)])
    }
}

/// A plot of lines: part of what was measured of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Plot {
    pub(super) page: String,
    pub(super) lane: String,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) x: String,
    pub(super) y: String,
    /// Both axes are logarithmic.
    pub(super) log: bool,
    pub(super) lines: Vec<Line>,
}

impl Plot {
    /// A line's points that have a place.
    fn points<'a>(&self, line: &'a Line) -> impl Iterator<Item = (f64, f64)> + use<'a> {
        let least = if self.log { 1e-15 } else { -1e15 };
        let has_place = move |v: f64| v >= least && v <= 1e15;
        let points = line.points.iter().copied();
        points.filter(move |(x, y)| has_place(*x) && has_place(*y))
    }

    /// Draws it, without its title and the names of its lines. Empty if there are no points.
    pub(super) fn svg(&self) -> Result<String> {
        let points = || self.lines.iter().flat_map(|line| self.points(line));
        let extent = |of: fn((f64, f64)) -> f64| {
            let least = points().map(of).reduce(f64::min)?;
            Some((least, points().map(of).reduce(f64::max)?))
        };
        let (Some((left, mut right)), Some((bottom, top))) = (extent(|p| p.0), extent(|p| p.1))
        else {
            return Ok(String::new());
        };
        if left >= right {
            right = if self.log { left * 10.0 } else { left + 1.0 };
        }
        let mut svg = String::new();
        {
            let area = area(&mut svg, HEIGHT)?;
            let mut builder = ChartBuilder::on(&area);
            builder
                .margin(8)
                .margin_right(24)
                .x_label_area_size(52)
                .y_label_area_size(66);
            if self.log {
                // Whole powers of ten, which are what the axis is labelled with.
                let (bottom, mut top) = (bottom.log10().floor(), top.log10().ceil());
                if top <= bottom {
                    top = bottom + 1.0;
                }
                let (x, y) = (left..right * 1.001, 10_f64.powf(bottom)..10_f64.powf(top));
                self.lines(builder.build_cartesian_2d(x.log_scale(), y.log_scale())?)?;
            } else {
                let (bottom, top) = (bottom.min(0.0), top.max(1e-9) * 1.05);
                self.lines(builder.build_cartesian_2d(left..right, bottom..top)?)?;
            }
            area.present().context("an SVG")?;
        }
        Ok(svg)
    }

    fn lines<X, Y>(
        &self,
        mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    ) -> Result<()>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_labels(7)
            .y_labels(7)
            .x_label_formatter(&|v| scaled(*v))
            .y_label_formatter(&|v| scaled(*v))
            .label_style((FONT, LETTERS))
            .axis_desc_style((FONT, LETTERS))
            .max_light_lines(0)
            .draw()?;
        for (n, line) in self.lines.iter().enumerate() {
            let style = color(n).stroke_width(2);
            chart.draw_series(LineSeries::new(self.points(line), style).point_size(3))?;
        }
        Ok(())
    }
}

/// A ratio, with the least and the greatest of several.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

/// Draws ratios as bars, one below the other, and a line at 1. Empty if there are none.
pub(super) fn bars(bars: &[Bar]) -> Result<String> {
    let mut svg = String::new();
    if bars.is_empty() {
        return Ok(svg);
    }
    let ratios = bars.iter().flat_map(|bar| [bar.value, bar.greatest]);
    let most = ratios.fold(1.0, f64::max) * 1.02;
    let to_x = |value: f64| (value.max(0.0) / most * f64::from(WIDTH - 2)) as i32 + 1;
    let letters = (FONT, LETTERS).into_font();
    let right = Pos::new(HPos::Right, VPos::Top);
    let height = BAR * i32::try_from(bars.len())?;
    {
        let area = area(&mut svg, height.unsigned_abs())?;
        for (bar, top) in bars.iter().zip((0..).step_by(BAR as usize)) {
            area.draw(&Text::new(bar.name.clone(), (1, top + 2), letters.clone()))?;
            let value = format!("{:.3}", bar.value);
            let at = (WIDTH as i32 - 2, top + 2);
            area.draw(&Text::new(value, at, letters.color(&BLACK).pos(right)))?;
            let corners = [(1, top + 21), (to_x(bar.value), top + 33)];
            area.draw(&Rectangle::new(corners, color(0).filled()))?;
            let middle = top + 27;
            let ends = [(to_x(bar.least), middle), (to_x(bar.greatest), middle)];
            area.draw(&PathElement::new(ends, color(4).stroke_width(3)))?;
            let one = [(to_x(1.0), top + 18), (to_x(1.0), top + 36)];
            area.draw(&PathElement::new(one, BLACK.stroke_width(1)))?;
        }
        area.present().context("an SVG")?;
    }
    Ok(svg)
}

fn area(
    svg: &mut String,
    height: u32,
) -> Result<DrawingArea<SVGBackend<'_>, plotters::coord::Shift>> {
    static FONTS: Once = Once::new();
    FONTS.call_once(|| {
        // It refuses what is no font only, which this is.
        let _ = plotters::style::register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
    });
    let area = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    Ok(area)
}

/// A number on an axis.
fn scaled(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        v if v >= 999_995.0 => (value / 1e6, " M"),
        v if v >= 999.995 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    // Two digits after the point, and no more of them than there are.
    let value = (value * 100.0).round() / 100.0;
    format!("{value}{suffix}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Bar, Line, Plot, bars, scaled};

    /// A plot of two lines.
    pub(in crate::bench) fn plot(log: bool, points: Vec<(f64, f64)>) -> Plot {
        Plot {
            page: "papers".into(),
            lane: "uml".into(),
            name: "stream_ud".into(),
            title: "title".into(),
            x: "bytes <&>".into(),
            y: "Mbit".into(),
            log,
            lines: vec![
                Line::new("ours", points),
                Line::flat("other", 2.0, 128.0, 2.0),
            ],
        }
    }

    #[test]
    fn lines_are_drawn() {
        for log in [false, true] {
            let svg = plot(log, vec![(2.0, 1.0), (128.0, 300.0)])
                .svg()
                .expect("an SVG");
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
            for color in ["#0072B2", "#D55E00"] {
                let of =
                    |element| move |line: &&str| line.starts_with(element) && line.contains(color);
                assert_eq!(svg.lines().filter(of("<polyline ")).count(), 1, "{svg}");
                assert_eq!(svg.lines().filter(of("<circle ")).count(), 2, "{svg}");
            }
            assert!(svg.contains("bytes &lt;&amp;&gt;"), "{svg}");
            assert_eq!(svg.contains("\n300\n"), !log, "{svg}");
        }
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        let line = Line::new("a", vec![(1.0, f64::NAN), (f64::INFINITY, 1.0), (2.0, 3.0)]);
        assert_eq!(line.points, [(2.0, 3.0)]);
        let far = vec![(0.0, -1.0), (1e308, -1e308)];
        for (log, points, drawn) in [
            (false, far.clone(), 1),
            (true, far, 0),
            (false, vec![(2.0, 0.0)], 1),
            (true, vec![(2.0, 0.0)], 0),
            (true, Vec::new(), 0),
        ] {
            let svg = plot(log, points).svg().expect("an SVG");
            let is_point = |line: &&str| line.starts_with("<circle ") && line.contains("#0072B2");
            assert_eq!(svg.lines().filter(is_point).count(), drawn, "{svg}");
            let mut none = plot(log, Vec::new());
            none.lines.clear();
            assert_eq!(none.svg().expect("nothing"), "");
        }
    }

    #[test]
    fn a_bar_is_as_long_as_its_ratio() {
        let bar = |value: f64| Bar {
            name: "tcp_1".into(),
            value,
            least: value / 2.0,
            greatest: value,
        };
        let svg = bars(&[bar(2.0), bar(1.0)]).expect("an SVG");
        let widths: Vec<u32> = svg
            .lines()
            .filter(|line| line.starts_with("<rect ") && line.contains("#0072B2"))
            .filter_map(|line| {
                line.split("width=\"")
                    .nth(1)?
                    .split('"')
                    .next()?
                    .parse()
                    .ok()
            })
            .collect();
        assert_eq!(widths.len(), 2, "{svg}");
        // The longest takes nearly all of the width.
        assert!(widths[0].abs_diff(468) <= 2, "{widths:?}");
        assert!(widths[0].abs_diff(2 * widths[1]) <= 2, "{widths:?}");
        assert!(svg.contains("\n2.000\n") && svg.contains("\n1.000\n"));
        assert_eq!(bars(&[]).expect("nothing"), "");
    }

    #[test]
    fn numbers_on_an_axis() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (1.0000000000001, "1"),
            (999.0, "999"),
            (1000.0, "1 k"),
            (999_999.0, "1 M"),
            (1.5e6, "1.5 M"),
        ] {
            assert_eq!(scaled(value), text);
        }
    }
}
