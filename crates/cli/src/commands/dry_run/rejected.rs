//! Rows of data files that were rejected: prints the first of each reason, and writes all of them to a file.

use anyhow::Context;
use fgrpo_eval::dataset::FilterReport;
use fgrpo_eval::io::files::write_whole;
use fgrpo_eval::io::harmless::harmless;
use fgrpo_eval::io::lines::to_bytes;
use std::fmt::Write;
use std::path::Path;

/// Number of rows printed for each reason.
const SHOWN: usize = 3;

/// Describes the rejected rows of a data set by reason, the most frequent first. Returns "" if no row was rejected.
pub(crate) fn explained(report: &FilterReport) -> String {
    if report.rejected.is_empty() {
        return String::new();
    }
    let source = report.source.display().to_string();
    let mut text = format!("{source}: {} of {} rows rejected\n", report.rejected.len(), report.read);
    let mut reasons: Vec<_> = report.by_reason().into_iter().collect();
    reasons.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    for (reason, rows) in reasons {
        let _ = writeln!(text, "{:>8}  {reason}", rows.len());
        for row in rows.iter().take(SHOWN) {
            let file =
                if row.file == report.source { String::new() } else { format!("{}, ", row.file.display()) };
            let _ = writeln!(text, "          {file}row {}: {}", row.row, row.found);
        }
        if rows.len() > SHOWN {
            let _ = writeln!(text, "          and {} more", rows.len() - SHOWN);
        }
    }
    harmless(&text)
}

/// Writes all rejected rows as JSON lines and prints their number.
pub(crate) fn write(reports: &[&FilterReport], out: &Path) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for report in reports {
        if report.files().any(|file| is_same(file, out)) {
            bad_input!("--rejected: {} is one of the data files; choose another file", out.display());
        }
        let mut rows: Vec<_> = report.rejected.iter().collect();
        rows.sort_by_key(|row| (&row.file, row.row));
        all.extend(rows);
    }
    write_whole(out, &to_bytes(&all)?).with_context(|| format!("writing {}", out.display()))?;
    say!("{} rejected rows: {}", all.len(), out.display());
    Ok(())
}

fn is_same(a: &Path, b: &Path) -> bool {
    a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b)
}
