//! The module in `docs/explore.html` gives the same values as the native functions.

use fgrpo_explore as native;
use std::io::ErrorKind;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/explore.html");

/// Prints one number per line, in the order of [`wanted`].
const SCRIPT: &str = r#"
const module = Buffer.from(require("fs").readFileSync(process.argv[1], "utf8").match(/MODULE = "([^"]+)"/)[1], "base64");
WebAssembly.instantiate(module, {}).then(({ instance: { exports: c } }) => {
  const out = x => console.log(x.toString());
  for (const mu of [0, 0.02, 0.5, 0.98, 1, 2]) for (const n of [1, 8, 16384]) {
    [c.active(mu, n), c.tail_miss(mu, mu / 10, n), c.advantage_correct(mu, n / 8), c.advantage_wrong(mu, n / 8)].forEach(out);
  }
  for (const n of [8, 512]) {
    out(c.start(1, n, 0.5, 3));
    for (let i = 0; i < 30; i++) out(c.step(1));
    [c.correct_mass(1), c.retained_mass(1)].forEach(out);
  }
});
"#;

fn wanted() -> Vec<f64> {
    let mut all = Vec::new();
    for mu in [0.0, 0.02, 0.5, 0.98, 1.0, 2.0] {
        for n in [1.0, 8.0, 16_384.0] {
            all.extend([native::active(mu, n), native::tail_miss(mu, mu / 10.0, n)]);
            all.extend([native::advantage_correct(mu, n / 8.0), native::advantage_wrong(mu, n / 8.0)]);
        }
    }
    for n in [8.0, 512.0] {
        all.push(f64::from(native::start(1, n, 0.5, 3.0)));
        all.extend((0..30).map(|_| native::step(1)));
        all.extend([native::correct_mass(1), native::retained_mass(1)]);
    }
    all
}

/// Prints each value of the page's measured runs, and the mean of the published lines.
const MEASURED: &str = r#"
const read = path => require("fs").readFileSync(path, "utf8");
const measured = JSON.parse(read(process.argv[1]).match(/MEASURED = (.+);/)[1]);
const lines = read(process.argv[2]).trim().split("\n").map(JSON.parse).filter(line => !line.width);
for (const [n, rows] of Object.entries(measured)) for (const row of rows) {
  [["GRPO", "mass"], ["GRPO", "retained"], ["gamma 1", "mass"], ["gamma 1", "retained"]].forEach(([method, name], i) => {
    const values = lines.filter(line => line.n == n && line.method == method && line.step == row[0]).map(line => line[name]);
    console.log(row[i + 1], values.reduce((a, b) => a + b, 0) / values.length);
  });
}
"#;

/// Runs a script, or returns `None` if node isn't installed.
fn node(script: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new("node").args(["-e", script]).args(arguments).output() {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            eprintln!("left out: node isn't installed");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_page_shows_the_published_measurements() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let files = ["explore.html", "retained-mass.jsonl"].map(|name| format!("{docs}/{name}"));
    let Some(lines) = node(MEASURED, &[&files[0], &files[1]]) else { return };
    let pairs = lines.lines().map(|line| line.split_once(' ').unwrap());
    let differences = pairs.map(|(shown, mean)| shown.parse::<f64>().unwrap() - mean.parse::<f64>().unwrap());
    let differences: Vec<f64> = differences.collect();
    assert!(differences.len() >= 4 * 13 && differences.iter().all(|d| d.abs() <= 5.1e-4), "{differences:?}");
}

#[test]
fn the_page_computes_what_the_library_computes() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explore.html");
    let Some(lines) = node(SCRIPT, &[page]) else { return };
    let found: Vec<f64> = lines.lines().map(|l| l.parse().unwrap_or(f64::NAN)).collect();
    let wanted = wanted();
    assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        // exp, log and powers of the two platforms differ in the last bits.
        let near = (found - wanted).abs() <= 1e-9 * (1.0 + wanted.abs());
        assert!(near || (found.is_nan() && wanted.is_nan()), "number {i}: found {found}, wanted {wanted}");
    }
}

#[test]
fn the_page_is_the_template_with_a_module() {
    let (head, rest) = PAGE.split_once("MODULE = \"").unwrap();
    let (module, rest) = rest.split_once('"').unwrap();
    let (middle, rest) = rest.split_once("MEASURED = ").unwrap();
    let (_, tail) = rest.split_once(';').unwrap();
    let template = include_str!("../page.html");
    assert!(
        format!("{head}MODULE = \"{{{{MODULE}}}}\"{middle}MEASURED = {{{{MEASURED}}}};{tail}") == template,
        "docs/explore.html: run scripts/explore"
    );
    assert!(module.len() < 1 << 20);
}
