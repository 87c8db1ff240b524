// SPDX-License-Identifier: GPL-2.0

//! `make report`: all that was kept of all pages, as one page in HTML that needs nothing else.

use super::Page;
use super::plot::{self, Bar, Plot};
use super::report::{Costs, Record, number};
use super::results::{self, Results};
use crate::layout::Layout;
use crate::machine::Lane;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::fs;
use std::path::Path;

const STYLE: &str = "
body { font: 1rem/1.4 sans-serif; max-width: 64rem; margin: 0 auto; padding: 0 .75rem 3rem; color: #222 }
h2 { border-top: 2px solid #0072b2; margin-top: 2.5rem; padding-top: .5rem }
figure { margin: 0 0 1rem }
figcaption { font-weight: bold; margin-bottom: .25rem }
svg { display: block; width: 100%; max-width: 40rem; height: auto }
.plots { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)) }
.key { font-size: .9rem; margin-right: 1rem; white-space: nowrap }
.key b { display: inline-block; width: 1.2em; height: .25em; margin-right: .4em; vertical-align: middle }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .5rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top }
th:first-child, td:first-child { text-align: left; padding-left: 0; min-width: 5rem }
td:first-child { overflow-wrap: anywhere }
td:not(:first-child) { white-space: nowrap }
small { color: #666; display: block }
.missing { color: #a33 }
summary { cursor: pointer }
@media (max-width: 30rem) { table { font-size: .8rem } th, td { padding: .2rem .25rem } }
";

impl Page {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn title(self) -> &'static str {
        match self {
            Page::Ud => "Datagram mode",
            Page::Disorder => "A wire that reorders and loses",
            Page::Rc => "Connected mode",
            Page::Fabric => "The simulated fabric",
            Page::Ib => "InfiniBand",
            Page::Papers => "The papers' tables and figures",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Page::Ud => {
                "This driver and a copy of the kernel's C driver that runs over RoCE, both on soft-RoCE in one kernel."
            }
            Page::Disorder => {
                "Half of the frames are delayed, and others overtake them. What is compared is in the unit, or it is \
                 the copy of the C driver."
            }
            Page::Rc => {
                "Connections, against the C driver's. What is compared is in the unit, or it is the copy of the C \
                 driver."
            }
            Page::Fabric => "The simulated HCAs of ib_hwsim, and soft-RoCE, in one kernel.",
            Page::Ib => {
                "This driver and the kernel's own ib_ipoib, on the same simulated HCAs, which do checksums and LSO."
            }
            Page::Papers => {
                "Message sizes, connections and files, by netperf, iperf3, nginx and wrk, with this driver, with the \
                 kernel's own ib_ipoib on the same simulated HCAs, and over plain Ethernet (veth). A cable and its HCAs \
                 cost instructions here, a veth nearly none."
            }
        }
    }

    /// Names of the two sides of a record: ours, and the other one.
    fn sides(self) -> [&'static str; 2] {
        match self {
            Page::Ud => ["ours", "C driver"],
            Page::Disorder | Page::Rc => ["ours", "other"],
            Page::Fabric => ["ib_hwsim", "soft-RoCE"],
            Page::Ib | Page::Papers => ["ours", "ib_ipoib"],
        }
    }
}

/// Writes build/report.html from the results in build/bench.
pub fn write(layout: &Layout) -> Result<()> {
    let path = layout.build().join("report.html");
    let html = page(&results::dir(layout))?;
    fs::create_dir_all(layout.build())?;
    fs::write(&path, html).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}

/// The whole page, of the results in a directory.
fn page(dir: &Path) -> Result<String> {
    let (mut list, mut sections) = (String::new(), String::new());
    for &page in Page::value_variants() {
        let name = page.name();
        let mut lanes = Vec::new();
        let mut body = String::new();
        for &lane in page.lanes() {
            match Results::load(&dir.join(results::file(&name, lane_name(lane)))) {
                Ok(Some(results)) => {
                    lanes.push(lane_name(lane));
                    body += &section(page, lane, &results)?;
                }
                Ok(None) => body += &missing(page, lane, "Not measured."),
                Err(e) => body += &missing(page, lane, &format!("{e:#}.")),
            }
        }
        let lanes = if lanes.is_empty() {
            "<span class=\"missing\">not measured</span>".to_owned()
        } else {
            lanes.join(", ")
        };
        let title = escape(page.title());
        list += &format!("<li><a href=\"#{name}\">{title}</a>: {lanes}</li>\n");
        sections += &format!(
            "<section id=\"{name}\">\n<h2>{title}</h2>\n<p>{}</p>\n{body}</section>\n",
            escape(page.about())
        );
    }
    let html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>ipoib_rs: measurements</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>ipoib_rs: measurements</h1>\n\
         <p>A ratio above 1 says that ours is better. A driver of no instructions at all would reach the bound. \
         A bar is the median of the ratios; the thin line on it goes from the least to the greatest, and the black one \
         stands at 1. On icount, a guest's nanosecond is an instruction; on uml, time is the wall clock's.</p>\n\
         <ul>\n{list}</ul>\n{sections}</body>\n</html>\n"
    );
    // HTML has no characters for these.
    let is_no_text = |c: char| c.is_control() && c != '\n';
    Ok(html.replace(is_no_text, "\u{fffd}"))
}

fn lane_name(lane: Lane) -> &'static str {
    super::fabric::name(lane)
}

/// Says that there is nothing of a page on a lane, why, and how there will be.
fn missing(page: Page, lane: Lane, why: &str) -> String {
    let lane_option = match lane {
        Lane::Qemu => "qemu",
        Lane::Uml => "uml",
    };
    format!(
        "<h3>{}</h3>\n<p class=\"missing\">{} <code>make bench PAGE={} LANE={lane_option}</code> measures it.</p>\n",
        lane_name(lane),
        escape(why),
        page.name()
    )
}

/// A page on a lane.
fn section(page: Page, lane: Lane, results: &Results) -> Result<String> {
    let mut html = format!("<h3>{}</h3>\n", lane_name(lane));
    html += &stamps(&results.records);
    html += "<div class=\"plots\">\n";
    let mut rest: Vec<&Record> = results.records.iter().collect();
    for plot in &results.plots {
        let mut points = Vec::new();
        rest.retain(|record| {
            let is_point = record.at.is_some() && record.case == plot.name;
            if is_point {
                points.push(*record);
            }
            !is_point
        });
        points.sort_by_key(|record| record.at);
        html += &figure(page, plot, &points)?;
    }
    html += "</div>\n";
    if !rest.is_empty() {
        let bars: Vec<Bar> = rest.iter().filter_map(|record| bar(record)).collect();
        let table = table(page, "case", &rest);
        html += &format!(
            "<figure>\n<figcaption>Ratios</figcaption>\n{}</figure>\n{table}",
            plot::bars(&bars)?
        );
    }
    Ok(html + &costs(page, &results.records))
}

/// Where the instructions of cases went, if that was counted.
fn costs(page: Page, records: &[Record]) -> String {
    let mut rows = String::new();
    for record in records {
        for (side, costs) in page.sides().iter().zip(record.costs.iter().flatten()) {
            let mut row = vec![(record.case.clone(), (*side).to_owned())];
            row.extend(costs.parts().map(plain));
            rows += &cells("td", &row);
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let mut header = vec![plain("case".to_owned())];
    header.extend(Costs::NAMES.map(|name| plain(name.to_owned())));
    format!(
        "<p>Instructions for each unit of work:</p>\n<div class=\"scroll\"><table>\n{}{rows}</table></div>\n",
        cells("th", &header)
    )
}

/// Which versions were measured, and how many results are of each.
fn stamps(records: &[Record]) -> String {
    let mut all: Vec<(&str, usize)> = Vec::new();
    for record in records {
        match all.iter_mut().find(|(stamp, _)| *stamp == record.stamp) {
            Some((_, count)) => *count += 1,
            None => all.push((&record.stamp, 1)),
        }
    }
    let lines = all.iter().map(|(stamp, count)| {
        let results = if *count == 1 { "result" } else { "results" };
        format!("{count} {results}: {}", escape(stamp))
    });
    format!("<p>{}</p>\n", lines.collect::<Vec<_>>().join("<br/>"))
}

/// A plot with its points.
fn figure(page: Page, plot: &Plot, points: &[&Record]) -> Result<String> {
    let mut html = format!(
        "<figure>\n<figcaption>{}</figcaption>\n{}",
        escape(&plot.title),
        plot.svg()?
    );
    for (n, line) in plot.lines.iter().enumerate() {
        html += &format!(
            "<span class=\"key\"><b style=\"background: {}\"></b>{}</span>\n",
            plot::html_color(n),
            escape(&line.name)
        );
    }
    if !points.is_empty() {
        let table = table(page, &plot.x, points);
        html += &format!("<details>\n<summary>Table</summary>\n{table}</details>\n");
    }
    Ok(html + "</figure>\n")
}

fn bar(record: &Record) -> Option<Bar> {
    let value = record.ratio?;
    Some(Bar {
        name: label(record),
        value,
        least: record.ratio_min.unwrap_or(value),
        greatest: record.ratio_max.unwrap_or(value),
    })
}

fn label(record: &Record) -> String {
    match record.at {
        Some(x) => format!("{} {x}", record.case),
        None => record.case.clone(),
    }
}

/// A cell of a table: text, and smaller text below it.
type Cell = (String, String);

/// Results as a table. Points of a plot have their unit in the header; a column that would be empty is left out.
fn table(page: Page, first: &str, records: &[&Record]) -> String {
    let points = records.iter().all(|record| record.at.is_some());
    let ethernet = records.iter().any(|record| record.ceiling.is_some());
    let bound = records.iter().any(|record| record.bound.is_some());
    let unit = records.first().filter(|_| points).map(|r| r.unit.clone());
    let [ours, other] = page.sides();
    let row = |first: Cell, [ours, other, ceiling, most]: [String; 4], ratio: Cell| {
        let mut cells = vec![first, ratio, plain(ours), plain(other)];
        cells.extend(ethernet.then(|| plain(ceiling)));
        cells.extend(bound.then(|| plain(most)));
        cells
    };
    let header = row(
        (first.to_owned(), unit.unwrap_or_default()),
        [ours, other, "Ethernet", "bound"].map(str::to_owned),
        ("ratio".to_owned(), "min–max".to_owned()),
    );
    let mut html = format!("<div class=\"scroll\"><table>\n{}", cells("th", &header));
    let ratio = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.3}"));
    for record in records {
        let first = match record.at {
            Some(x) if points => plain(x.to_string()),
            _ => (label(record), record.unit.clone()),
        };
        let values = [
            number(record.ours),
            number(record.peer),
            number(record.ceiling),
            ratio(record.bound),
        ];
        let row = row(first, values, (ratio(record.ratio), record.extremes("–")));
        html += &cells("td", &row);
    }
    html + "</table></div>\n"
}

fn plain(text: String) -> Cell {
    (text, String::new())
}

fn cells(tag: &str, row: &[Cell]) -> String {
    let mut html = String::from("<tr>");
    for (text, small) in row {
        html += &format!("<{tag}>{}", escape(text));
        if !small.is_empty() {
            html += &format!("<small>{}</small>", escape(small));
        }
        html += &format!("</{tag}>");
    }
    html + "</tr>\n"
}

/// Text for HTML.
fn escape(text: &str) -> String {
    let mut html = String::new();
    for c in text.chars() {
        match c {
            '&' => html += "&amp;",
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '"' => html += "&quot;",
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::{Page, page};
    use crate::bench::plot::tests::plot;
    use crate::bench::report::{Costs, Record};
    use crate::bench::results::tests::record;
    use crate::bench::results::{Results, file};
    use clap::ValueEnum;
    use regex::Regex;
    use std::fs;
    use std::path::Path;

    /// Fails unless each element ends where it should, attributes are quoted, and the text has no stray characters.
    fn well_formed(html: &str) {
        let text = html
            .strip_prefix("<!DOCTYPE html>")
            .expect("a document type");
        let tag = Regex::new(r#"<(/?)([a-z0-9]+)((?: [a-zA-Z0-9-]+="[^"<>]*")*)(/?)>"#);
        let tag = tag.expect("a pattern");
        let entity = Regex::new("&(amp|lt|gt|quot|apos);").expect("a pattern");
        let (mut open, mut end) = (Vec::new(), 0);
        for found in tag.captures_iter(text) {
            let whole = found.get(0).expect("all of it");
            let between = entity.replace_all(&text[end..whole.start()], "");
            let style = open.last() == Some(&"style".to_owned());
            assert!(style || !between.contains(['<', '>', '&']), "{between}");
            end = whole.end();
            let name = found[2].to_owned();
            match (&found[1], &found[4]) {
                ("", "") => open.push(name),
                ("", _) => {}
                _ => assert_eq!(open.pop(), Some(name), "{}", &text[..end]),
            }
        }
        assert_eq!((open, text[end..].trim()), (Vec::new(), ""));
    }

    fn save(dir: &Path, page: &str, lane: &str, records: &[Record]) {
        let mut results = Results::default();
        results.records.extend_from_slice(records);
        results
            .plots
            .push(plot(true, vec![(2.0, 50.0), (4.0, 250.0)]));
        results.save(&dir.join(file(page, lane))).expect("written");
    }

    /// A page's section.
    fn section<'a>(html: &'a str, page: &str) -> &'a str {
        let mut parts = html.split("<section ");
        let begin = format!("id=\"{page}\"");
        parts.find(|p| p.starts_with(&begin)).expect("a section")
    }

    #[test]
    fn a_page_that_was_never_measured_is_said_so() {
        let dir = tempfile::tempdir().expect("a directory");
        let html = page(&dir.path().join("none")).expect("a page");
        well_formed(&html);
        for page in Page::value_variants() {
            let name = page.name();
            assert!(html.contains(&format!("<a href=\"#{name}\">")), "{name}");
            let section = section(&html, &name);
            let told = section.matches("Not measured.").count();
            assert_eq!(told, page.lanes().len(), "{section}");
            assert!(section.contains(&format!("make bench PAGE={name} LANE=qemu")));
        }
        assert_eq!(html.matches(">not measured<").count(), 6);
    }

    #[test]
    fn results_are_in_the_section_of_their_page() {
        let dir = tempfile::tempdir().expect("a directory");
        let points = [
            record("stream_ud", Some(4), 250.0),
            record("stream_ud", Some(2), 50.0),
        ];
        save(dir.path(), "papers", "uml", &points);
        save(
            dir.path(),
            "rc",
            "icount",
            &[record("tcp_65520", None, 109.0)],
        );
        let html = page(dir.path()).expect("a page");
        well_formed(&html);
        let papers = section(&html, "papers");
        let row = |x, ours, ratio, least, most| {
            format!(
                "<td>{x}</td><td>{ratio}<small>{least}–{most}</small></td><td>{ours}</td><td>100</td></tr>"
            )
        };
        let first = papers.find(&row("2", "50.00", "0.500", "0.250", "1.000"));
        let second = papers.find(&row("4", "250", "2.500", "1.250", "5.000"));
        assert!(first.expect("a row") < second.expect("a row"), "{papers}");
        assert!(papers.contains("<svg ") && papers.contains("2 results: Linux 7.3.4, today"));
        // There is nothing but points, and only one lane is missing.
        assert!(!papers.contains("Ratios") && papers.matches("Not measured.").count() == 1);
        let rc = section(&html, "rc");
        assert!(
            rc.contains("<td>tcp_65520<small>Mbit/s</small></td><td>1.090<"),
            "{rc}"
        );
        assert!(rc.contains("Ratios") && rc.contains("\n1.090\n"), "{rc}");
        assert_eq!(html.matches(">not measured<").count(), 4);
    }

    #[test]
    fn nothing_is_taken_from_elsewhere() {
        let dir = tempfile::tempdir().expect("a directory");
        save(dir.path(), "ud", "uml", &[record("tcp_1", None, 109.0)]);
        let html = page(dir.path()).expect("a page");
        let html = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for word in [
            "http", "src=", "<script", "<link", "<img", "url(", "@import",
        ] {
            assert!(!html.contains(word), "{word}");
        }
        assert!(html.contains("name=\"viewport\""));
    }

    #[test]
    fn instructions_are_a_table_of_their_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut counted = record("tcp_1", None, 109.0);
        counted.costs = Some([4321.0, 9876.0].map(|driver| Costs {
            driver,
            ..Costs::default()
        }));
        save(dir.path(), "ib", "icount", &[counted]);
        save(dir.path(), "ud", "icount", &[record("tcp_1", None, 1.0)]);
        let html = page(dir.path()).expect("a page");
        well_formed(&html);
        let ib = section(&html, "ib");
        let row = "<td>tcp_1<small>ib_ipoib</small></td><td>9876</td><td>0</td>";
        assert!(ib.contains("<td>4321</td>") && ib.contains(row), "{ib}");
        assert_eq!(html.matches("Instructions for each unit").count(), 1);
    }

    #[test]
    fn broken_results_are_one_pages_own() {
        let dir = tempfile::tempdir().expect("a directory");
        save(dir.path(), "ud", "uml", &[record("tcp_1", None, 109.0)]);
        save(dir.path(), "ib", "uml", &[record("tcp_rr", None, 98.0)]);
        let path = dir.path().join(file("ib", "uml"));
        let whole = fs::read_to_string(&path).expect("text");
        fs::write(&path, &whole[..whole.len() / 2]).expect("written");
        let html = page(dir.path()).expect("a page");
        well_formed(&html);
        assert!(section(&html, "ud").contains("tcp_1"));
        let ib = section(&html, "ib");
        assert!(ib.contains("ib-uml.json cannot be read: "), "{ib}");
        assert!(ib.contains("<code>make bench PAGE=ib LANE=uml</code>") && !ib.contains("tcp_rr"));
    }

    #[test]
    fn words_of_results_are_no_markup() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut hostile = record("<script>alert(\"1\")</script>&\u{1b}", None, 1.0);
        hostile.unit = "</td>".into();
        hostile.stamp = "</p><b>".into();
        hostile.ratio = Some(f64::MAX);
        save(dir.path(), "ud", "uml", &[hostile.clone()]);
        hostile.ratio = None;
        hostile.ours = None;
        save(dir.path(), "ib", "uml", &[hostile]);
        let html = page(dir.path()).expect("a page");
        well_formed(&html);
        assert!(!html.contains("<script") && !html.contains('\u{1b}'));
        assert!(section(&html, "ib").contains("<td>–</td><td>100</td></tr>"));
    }
}
