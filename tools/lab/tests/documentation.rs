// SPDX-License-Identifier: GPL-2.0

//! Documentation/ says of counters, settings, attributes and parameters what their declarations in the driver say, has the
//! sizes of the driver's buffers, and names functions and tests that exist; README.md has the figures of performance.rst.
//! Comments begin with a noun or a verb.

#![cfg(test)]

use regex::{Captures, Regex};
use std::collections::HashSet;
use std::fs;
use std::path::Path;

const DRIVER: &str = "drivers/infiniband/ulp/ipoib_rs";

/// Documented form of a declaration.
struct Entry {
    name: String,
    limits: String,
    sentence: String,
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a regular expression")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Declarations in a file that match `pattern`, each as `entry` makes it.
fn all(path: &str, pattern: &str, entry: impl Fn(&Captures<'_>) -> Entry) -> Vec<Entry> {
    let entries: Vec<_> = regex(pattern)
        .captures_iter(&read(path))
        .map(|c| entry(&c))
        .collect();
    assert!(!entries.is_empty(), "{path} declares nothing");
    entries
}

/// Declarations whose sentence is the first paragraph of the comment in front.
fn commented(file: &str, pattern: &str, limits: impl Fn(&Captures<'_>) -> String) -> Vec<Entry> {
    let comment = r"(?m)((?:^ *///.*\n)+) *";
    all(
        &format!("{DRIVER}/{file}"),
        &format!("{comment}{pattern}"),
        |c| {
            let lines = c[1]
                .lines()
                .map(|line| line.trim_start().trim_start_matches("///"));
            let paragraph: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            Entry {
                name: c["name"].to_lowercase(),
                limits: limits(c),
                sentence: one_line(&paragraph.join(" ")),
            }
        },
    )
}

fn counters() -> Vec<Entry> {
    let pattern = r#"\w+ = "(?<name>\w+)","#;
    let mut counters = commented("base/counters.rs", pattern, |_| String::new());
    counters.extend(commented("proto/drop.rs", pattern, |_| String::new()));
    counters
}

fn settings() -> Vec<Entry> {
    let pattern =
        r"(?<name>\w+): \w+ in (?<min>[\d_]+)\.\.=(?<max>[\d_]+), default (?<default>\S+) =>";
    commented("base/settings.rs", pattern, |c| {
        let number = |text: &str| text.replace('_', "").parse::<u32>();
        let (min, max) = (
            number(&c["min"]).expect("fits"),
            number(&c["max"]).expect("fits"),
        );
        let range = if (min, max) == (0, 1) {
            "0 or 1".to_string()
        } else {
            format!("{min} to {max}")
        };
        match number(&c["default"]) {
            Ok(default) => {
                assert!((min..=max).contains(&default), "{}", &c["name"]);
                format!(" ({range}, default {default})")
            }
            Err(_) => format!(" ({range}, default as the module parameter)"),
        }
    })
}

/// Attributes of `ip link add`, whose limits stand in the text of a refusal.
fn attributes() -> Vec<Entry> {
    let pattern = r"(?<name>\w+): (?:u16|u32|Text<.*>) = \d+[,;]";
    commented("ctl/netlink.rs", pattern, |_| String::new())
}

/// Module parameters, whose limits stand in their descriptions, since `modinfo` shows these.
fn parameters() -> Vec<Entry> {
    let entry = |c: &Captures<'_>| Entry {
        name: c["name"].to_string(),
        limits: format!(" (default {})", c["default"].replace('_', "")),
        sentence: format!("{}.", &c["text"]),
    };
    let rust =
        r#"(?<name>\w+): \w+ \{\s*default: (?<default>\w+),\s*description: "(?<text>[^"]+)""#;
    let description = r#"(?s:.*?)MODULE_PARM_DESC\(\w+,\s*"(?<text>[^"]+)""#;
    let string = r"static char \*(?<name>\w+);";
    let helpers = "rust/ipoib_module/helpers.c";
    let mut parameters = all(&format!("{DRIVER}/main.rs"), rust, entry);
    // What a string is without it stands in its description.
    let entry = |c: &Captures<'_>| Entry {
        name: c["name"].to_string(),
        limits: String::new(),
        sentence: format!("{}.", &c["text"]),
    };
    parameters.extend(all(helpers, &format!("{string}{description}"), entry));
    parameters
}

/// The text between a heading and what follows the section.
fn section(text: &str, heading: &str, end: &str) -> String {
    let (_, rest) = text
        .split_once(heading)
        .unwrap_or_else(|| panic!("no {heading}"));
    rest.split(end).next().unwrap_or_default().to_string()
}

/// Checks that a section has the entries in order, with their limits and sentences, and no others.
fn check(section: &str, entries: &[Entry], term: &str, quotes: &str) {
    let found: Vec<_> = regex(term)
        .captures_iter(section)
        .map(|c| c[1].to_string())
        .collect();
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(found, names);
    let section = one_line(section);
    for Entry {
        name,
        limits,
        sentence,
    } in entries
    {
        let wanted = format!("{quotes}{name}{quotes}{limits} {sentence}");
        assert!(section.contains(&wanted), "not documented: {wanted}");
    }
}

#[test]
fn using_says_what_is_declared() {
    let using = read("Documentation/using.rst");
    let check = |heading: &str, end, entries: &[Entry]| {
        check(
            &section(&using, heading, end),
            entries,
            r"(?m)^``(\w+)``",
            "``",
        );
    };
    check("\nCounters\n========\n", "\nDebugfs\n", &counters());
    check("\nSysctls\n=======\n", "\nCounters\n", &settings());
    check(
        "\nModule parameters\n=================\n",
        "\nPeers\n",
        &parameters(),
    );
    check(" Attributes:\n", "\n``ip`` knows", &attributes());
}

#[test]
fn the_man_page_says_what_is_declared() {
    let page = read("Documentation/man/ipoib_rs.4").replace('"', "");
    let check = |heading: &str, entries: &[Entry]| {
        check(
            &section(&page, heading, "\n.SH"),
            entries,
            r"(?m)^\.TP\n\.BR (\w+)",
            "",
        );
    };
    check("\n.SH SYSCTLS\n", &settings());
    check("\n.SH MODULE PARAMETERS\n", &parameters());
}

/// The plugin of `ip` has names, numbers and texts of its own, and a manual page.
#[test]
fn the_plugin_knows_the_attributes_that_are_declared() {
    let plugin = read("tools/iproute2/link_ipoib_rs.c");
    let own = regex(r"(?m)^#define (IFLA_IPOIB_RS_\w+) (\d+)$");
    let own: Vec<_> = own.captures_iter(&plugin).collect();
    // Those of <linux/if_link.h>.
    let mut numbers = vec![
        ("IFLA_IPOIB_PKEY", "1"),
        ("IFLA_IPOIB_MODE", "2"),
        ("IFLA_IPOIB_UMCAST", "3"),
    ];
    numbers.extend(own.iter().map(|c| <(&str, &str)>::from(c.extract().1)));
    let options = section(&plugin, "options[] = {\n", "};");
    let known: Vec<_> = regex(r#"\[(\w+)\] = "(\w+)","#)
        .captures_iter(&options)
        .map(|c| {
            let number = numbers.iter().find(|(name, _)| *name == &c[1]);
            format!("{} = {}", &c[2], number.expect("a number").1)
        })
        .collect();
    let declared = read(&format!("{DRIVER}/ctl/netlink.rs"));
    let declared: Vec<_> = regex(r"(?m)^    (\w+): (?:u16|u32|Text<.*>) = (\d+)[,;]")
        .captures_iter(&declared)
        .map(|c| format!("{} = {}", &c[1], &c[2]))
        .collect();
    assert_eq!(known, declared);
    let page = read("Documentation/man/ip-link-ipoib_rs.8");
    for Entry { name, .. } in attributes() {
        let term = regex(&format!(r#"(?m)^\.TP\n\.BI?R? "?{name}\b"#));
        assert!(term.is_match(&page), "the manual page has no {name}");
    }
}

#[test]
fn the_sample_is_as_short_as_promised() {
    let page = read("Documentation/netdev.rst");
    let promise = regex(r"a whole driver, in less than (\d+)\s+lines");
    let promise = promise.captures(&page).expect("a promise");
    let lines = read("samples/rust_loopback/main.rs").lines().count();
    assert!(
        lines < promise[1].parse().expect("a number"),
        "{lines} lines"
    );
}

/// Limits of queue sizes stand in their descriptions, which have to be literals.
#[test]
fn descriptions_name_the_limits_that_are_checked() {
    let sizes = read(&format!("{DRIVER}/proto/flow/sizes.rs"));
    let range = regex(r"RANGE: RangeInclusive<u32> = (\d+)\.\.=(\d+);");
    let range = range.captures(&sizes).expect("declares RANGE");
    let limits = format!("; {} to {}.", &range[1], &range[2]);
    for Entry { name, sentence, .. } in parameters() {
        if name.ends_with("queue_size") {
            let sentence = sentence.replace("a power of two, ", "");
            assert!(sentence.ends_with(&limits), "{name}: {sentence}");
        }
    }
}

/// The numbers in a file of the driver's that `pattern` captures.
fn numbers(file: &str, pattern: &str) -> Vec<u32> {
    let text = read(&format!("{DRIVER}/{file}"));
    let found = regex(pattern).captures(&text);
    let found = found.unwrap_or_else(|| panic!("{file}: no {pattern}"));
    let numbers = found.iter().skip(1).flatten();
    let number = |text: &str| text.replace('_', "").parse();
    numbers
        .map(|text| number(text.as_str()).expect("a number"))
        .collect()
}

/// The table of buffers has the defaults of the settings and parameters that it names, and the limits that are fixed.
#[test]
fn buffers_are_as_the_driver_has_them() {
    let using = read("Documentation/using.rst");
    let table = section(&using, "\nBuffers\n=======\n", "\nTCP\n===\n");
    let table = one_line(&table);
    let declared: Vec<_> = settings().into_iter().chain(parameters()).collect();
    let named = regex(r"``(?:ib0/)?(\w+)`` \((\d+)\)");
    let mut names = Vec::new();
    for (_, [name, default]) in named.captures_iter(&table).map(|c| c.extract()) {
        let entry = declared.iter().find(|entry| entry.name == name);
        let limits = entry.map_or("", |entry| entry.limits.trim_end_matches(')'));
        let is_default = limits.ends_with(&format!("default {default}"));
        assert!(is_default, "{name}: {default}");
        names.push(name);
    }
    let expected = [
        "send_queue_size",
        "recv_queue_size",
        "rc_recv_queue_size",
        "reorder_window",
        "napi_budget",
        "rx_copybreak",
    ];
    assert_eq!(names, expected);

    let length = numbers("ctl/netdev.rs", r"tx_queue_len: (\d+)");
    let mut rows = vec![format!("txqueuelen`` ({})", length[0])];
    for (kind, what, whose) in [("Path", "path", "peer"), ("Group", "group", "group")] {
        let pattern = format!(r"type {kind}Waiting = Frames<(\d+), ([\d_]+)>");
        let [frames, bytes] = numbers("ud/paths.rs", &pattern)[..] else {
            panic!("two numbers");
        };
        rows.push(format!(
            "frames that wait for a {what} {frames}, and {bytes} bytes, of each {whose}: fixed"
        ));
    }
    let file = "proto/flow/backlog.rs";
    let limit = r"LIMIT: Backlog = Backlog \{\s*frames: (\d+),\s*bytes: (\d+) << 20";
    let high =
        r"HIGH_WATERMARK: Backlog = Backlog \{\s*frames: Self::LIMIT.frames / (\d+) \* (\d+),\s*";
    let high = format!(r"{high}bytes: Self::LIMIT.bytes / (\d+) \* (\d+)");
    let [frames, mib] = numbers(file, limit)[..] else {
        panic!("two numbers");
    };
    let [n, of, m, of_bytes] = numbers(file, &high)[..] else {
        panic!("four numbers");
    };
    let (high, high_mib) = (frames / n * of, mib / m * of_bytes);
    rows.push(format!(
        "{high}, or {high_mib} MiB, stop the stack's queue; {frames}, or {mib} MiB, are the limit, \
         beyond which frames are dropped: fixed"
    ));
    let sends = numbers("rc/conn.rs", r"const SENDS: u32 = (\d+);");
    rows.push(format!("send ring of a connection {}: fixed", sends[0]));
    for row in &rows {
        assert!(table.contains(row), "not in the table: {row}");
    }
    // The first row is about a number that can be set.
    assert_eq!(table.matches(": fixed").count(), rows.len() - 1);
}

/// Where the columns of a table begin and end, if this is a line that rules one off.
fn columns(line: &str) -> Option<Vec<std::ops::Range<usize>>> {
    let rule = regex("^ *=+(?: +=+)+$").is_match(line);
    rule.then(|| regex("=+").find_iter(line).map(|c| c.range()).collect())
}

/// Lines of tables with a text that runs from one column into the next, which Sphinx does not take.
fn torn_rows(text: &str) -> Vec<&str> {
    let mut torn = Vec::new();
    let mut table = None;
    for line in text.lines() {
        if line.is_empty() {
            table = None;
        } else if let Some(columns) = columns(line) {
            table.get_or_insert(columns);
        } else if let Some(columns) = &table {
            let between = columns.windows(2).any(|pair| {
                line.chars()
                    .take(pair[1].start)
                    .skip(pair[0].end)
                    .any(|c| c != ' ')
            });
            if between {
                torn.push(line);
            }
        }
    }
    torn
}

#[test]
fn tables_have_room_for_their_texts() {
    assert_eq!(torn_rows("==  ==\nab  c\nabc d\n==  ==\n"), ["abc d"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Documentation");
    for entry in fs::read_dir(folder).expect("Documentation/") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "rst") {
            let text = fs::read_to_string(&path).expect("a document");
            let torn = torn_rows(&text);
            assert!(torn.is_empty(), "{}: {torn:#?}", path.display());
        }
    }
}

/// Names of functions and types, and the file that `text` says has them: "``Type::name`` (``file``)".
fn located(text: &str) -> Vec<(String, String)> {
    regex(r"``(?:\w+::)?(\w+)``\s+\(``([\w/]+\.rs)``\)")
        .captures_iter(text)
        .map(|c| (c[1].to_owned(), c[2].to_owned()))
        .collect()
}

#[test]
fn the_walks_name_functions_that_exist() {
    let design = read("Documentation/design.rst");
    let walks = section(&design, "A datagram sent", "Where do I change");
    let located = located(&walks);
    assert!(located.len() > 15, "{located:?}");
    for (name, file) in located {
        let folder = if file.starts_with("rust/") {
            ""
        } else {
            DRIVER
        };
        let text = read(format!("{folder}/{file}").trim_start_matches('/'));
        let declared = regex(&format!(r"\b(?:fn|struct|enum|trait) {name}\b"));
        assert!(declared.is_match(&text), "{file} has no {name}");
    }
    // Methods without a file are of a type that was named before.
    let all: String = sources(KERNEL).map(|path| read_at(&path)).collect();
    for c in regex(r"``\w+::(\w+)``").captures_iter(&walks) {
        assert!(all.contains(&format!("fn {}", &c[1])), "no {}", &c[0]);
    }
}

/// Rows of a table with a frame, below its head, each as the texts of its columns.
fn rows(table: &str) -> Vec<Vec<String>> {
    let mut rows = vec![Vec::new()];
    for line in table.lines() {
        if line.starts_with('+') {
            rows.push(Vec::new());
        } else if let Some(line) = line.strip_prefix('|') {
            let row: &mut Vec<String> = rows.last_mut().expect("a row");
            for (at, text) in line.trim_end_matches('|').split('|').enumerate() {
                if at == row.len() {
                    row.push(String::new());
                }
                row[at] += text.trim();
                row[at].push(' ');
            }
        }
    }
    rows.retain(|row| !row.is_empty());
    rows.split_off(1)
}

/// Scenarios and unit tests in a folder, each as its file's name and its own: "file::test".
fn tests(folder: &str) -> Vec<String> {
    let test = regex(r"fn (?<scenario>\w+)\(bed\)|#\[test\]\s+fn (?<unit>\w+)");
    let mut tests = Vec::new();
    for path in sources(&[folder]) {
        let file = path.file_stem().expect("a name").to_string_lossy();
        for c in test.captures_iter(&read_at(&path)) {
            let name = c.name("scenario").or(c.name("unit")).expect("a test");
            tests.push(format!("{file}::{}", name.as_str()));
        }
    }
    tests
}

#[test]
fn each_rule_names_a_test_that_exists() {
    let table = "+-+-+\n|a|b|\n+=+=+\n|c|d|\n| |e|\n+-+-+\n|f|g|\n";
    assert_eq!(rows(table), [["c  ", "d e "], ["f ", "g "]]);
    let design = read("Documentation/design.rst");
    let table = section(&design, "Rules of liveness and fairness", "Smaller rules");
    let rules = rows(&table);
    assert!(rules.len() > 20, "{}", rules.len());
    let folders = [&format!("{DRIVER}/proto"), "rust/rings", "tests/scenarios"];
    let all: HashSet<_> = folders.into_iter().flat_map(tests).collect();
    let name = regex(r"``(\w+::\w+)``");
    for rule in rules {
        let names: Vec<_> = name.captures_iter(&rule[3]).collect();
        assert!(!names.is_empty(), "no test: {rule:?}");
        for c in names {
            assert!(all.contains(&c[1]), "no {}: {rule:?}", &c[1]);
        }
    }
}

fn read_at(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The folders of the kernel's side.
const KERNEL: &[&str] = &["rust", "drivers"];

/// The folders with sources of either side.
const ALL: &[&str] = &["rust", "drivers", "samples", "tests", "tools"];

/// The sources in folders, in Rust and in C.
fn sources(folders: &[&str]) -> impl Iterator<Item = std::path::PathBuf> + use<> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let extension = path.extension().and_then(|e| e.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if matches!(extension, Some("rs" | "c" | "h")) {
                files.push(path);
            }
        }
    }
    files.into_iter()
}

/// First lines of comments on items that begin with a clause and not with a noun or a verb. Comments within functions of C
/// may, as they may in Rust.
fn clauses(text: &str) -> Vec<&str> {
    let clause = regex(r"^ *(?://[/!]|/\*\*?| \*) (?:What|Who|The same)\b");
    let continued = regex(r"^ *(?://[/!]| \*) *\S");
    let mut before = "";
    let mut found = Vec::new();
    for line in text.lines() {
        if clause.is_match(line) && !continued.is_match(before) {
            found.push(line);
        }
        before = line;
    }
    found
}

#[test]
fn comments_begin_with_a_noun_or_a_verb() {
    let text = "/// What it is.\n/// A thing.\n/// The same again.\n/*\n * Who asks.\n */\n";
    assert_eq!(clauses(text), ["/// What it is.", " * Who asks."]);
    for path in sources(ALL) {
        let text = read_at(&path);
        let found = clauses(&text);
        assert!(found.is_empty(), "{}: {found:#?}", path.display());
    }
}

/// The words of a row of performance.rst that begins with a case, behind the section's heading.
fn figures(heading: &str, case: &str) -> Vec<String> {
    let text = read("Documentation/performance.rst");
    let section = section(&text, heading, "\n\n\n");
    let row = section
        .lines()
        .find(|line| line.starts_with(&format!("``{case}``")));
    let row = row.unwrap_or_else(|| panic!("no {case} behind {heading}"));
    row.split_whitespace().map(str::to_owned).collect()
}

/// The numbers of a sentence of the README.
fn claims(pattern: &str) -> Vec<String> {
    let readme = one_line(&read("README.md"));
    let found = regex(pattern).captures(&readme);
    let found = found.unwrap_or_else(|| panic!("no {pattern}"));
    let numbers = found.iter().skip(1).flatten();
    numbers.map(|n| n.as_str().to_owned()).collect()
}

#[test]
fn the_readme_has_the_figures_that_were_measured() {
    let ratios = claims(r"carries ([\d.]+) times .*? and ([\d.]+) times");
    let cases = ["tcp_4092_vs_peer_4092", "tcp_4092_vs_peer_65520"];
    for (claim, case) in ratios.iter().zip(cases) {
        let row = figures("In connected mode\n====", case);
        let decimals = claim.split('.').nth(1).map_or(0, str::len);
        let rounded = |word: &String| word.parse::<f64>().map(|n| format!("{n:.decimals$}"));
        // The ratio, in front of the least and the greatest.
        let end = row.iter().position(|word| word == "…").expect("a range");
        assert_eq!(rounded(&row[end - 2]).as_ref(), Ok(claim), "{case}");
    }
    let rates = claims(r"carries ([\d]+) Mbit over veth, (\d+) over .*? and (\d+) with");
    let row = figures("Figures\n====", "tcp_1");
    let at = row.iter().position(|word| *word == rates[1]);
    let at = at.unwrap_or_else(|| panic!("{} is not in {row:?}", rates[1]));
    assert_eq!(row[at + 1], rates[2]);
    let veth = format!("Plain veth does {} in ``tcp_1``", rates[0]);
    assert!(
        read("Documentation/performance.rst").contains(&veth),
        "{veth}"
    );
}
