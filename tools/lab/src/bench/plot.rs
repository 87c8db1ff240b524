// SPDX-License-Identifier: GPL-2.0

//! Plots of lines, as PNG and as SVG.

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::Once;

/// Pixels.
const SIZE: (u32, u32) = (1080, 540);
/// The width of the part that says what the lines are.
const LEGEND: u32 = 230;
const FONT: &str = "sans-serif";

/// A line of a plot.
pub(super) struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    /// Through `points`, from left to right.
    pub(super) fn new(name: &str, points: Vec<(f64, f64)>) -> Line {
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

/// Draws `lines` into `path`.png and `path`.svg.
pub(super) fn draw(path: &Path, title: &str, x: &str, y: &str, lines: &[Line]) -> Result<()> {
    static FONTS: Once = Once::new();
    FONTS.call_once(|| {
        // It refuses what is no font only, which this is.
        let _ = plotters::style::register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
    });
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let (png, svg) = (path.with_extension("png"), path.with_extension("svg"));
    let failed = |e: String| anyhow!("{}: {e}", path.display());
    let area = BitMapBackend::new(&png, SIZE).into_drawing_area();
    draw_on(&area, title, x, y, lines).map_err(|e| failed(e.to_string()))?;
    let area = SVGBackend::new(&svg, SIZE).into_drawing_area();
    draw_on(&area, title, x, y, lines).map_err(|e| failed(e.to_string()))?;
    Ok(())
}

fn draw_on<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    x: &str,
    y: &str,
    lines: &[Line],
) -> Result<()>
where
    B::ErrorType: 'static,
{
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = points().map(|p| p.0).fold(f64::MIN, f64::max);
    let left = points().map(|p| p.0).fold(f64::MAX, f64::min);
    let top = points().map(|p| p.1).fold(0.0, f64::max).max(1e-9) * 1.05;
    area.fill(&WHITE)?;
    let (plot, legend) = area.split_horizontally(SIZE.0 - LEGEND);
    let mut chart = ChartBuilder::on(&plot)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(left..right, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(WHITE)
        .draw()?;
    for (n, line) in lines.iter().enumerate() {
        let color = Palette99::pick(n).to_rgba();
        let style = color.stroke_width(2);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))?;
        let y = 60 + 22 * n as i32;
        legend.draw(&PathElement::new([(0, y), (20, y)], style))?;
        let text = (FONT, 14).into_font().color(&BLACK);
        legend.draw(&Text::new(line.name.clone(), (26, y - 7), text))?;
    }
    area.present().context("cannot write it")
}

#[cfg(test)]
mod tests {
    use super::{Line, draw};

    #[test]
    fn both_files_are_drawn() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("plots/a");
        let lines = [
            Line::new("a line", vec![(0.0, 1.0), (128.0, 3.0)]),
            Line::flat("a level", 0.0, 128.0, 2.0),
        ];
        draw(&path, "title", "x", "y", &lines).expect("plots");
        let png = std::fs::read(path.with_extension("png")).expect("a PNG");
        assert!(
            png.starts_with(b"\x89PNG") && png.len() > 5_000,
            "{} bytes",
            png.len()
        );
        let svg = std::fs::read_to_string(path.with_extension("svg")).expect("an SVG");
        assert!(svg.contains("a level") && svg.contains("title"));
    }
}
