//! The resolved configuration, and where runs differ in it.

use super::input::Run;
use super::page::escape;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The keys whose values are not the same in all runs.
pub(super) fn differing(runs: &[&Run]) -> Vec<String> {
    let keys: BTreeSet<&String> = runs.iter().flat_map(|r| r.config.keys()).collect();
    let differs = |key: &&String| runs.windows(2).any(|w| w[0].config.get(*key) != w[1].config.get(*key));
    keys.into_iter().filter(differs).cloned().collect()
}

/// The section; empty when no run has a configuration.
pub(super) fn section(runs: &[Run]) -> String {
    let configured: Vec<&Run> = runs.iter().filter(|r| !r.config_text.is_empty()).collect();
    let mut html = String::new();
    let keys = differing(&configured);
    if configured.len() > 1 && !keys.is_empty() {
        html.push_str("<div class=\"card scroll\"><table><thead><tr><th>differs</th>");
        for run in &configured {
            let _ = write!(html, "<th>{}</th>", escape(&run.name));
        }
        html.push_str("</tr></thead><tbody>");
        for key in &keys {
            let _ = write!(html, "<tr><td><code>{}</code></td>", escape(key));
            for run in &configured {
                let _ = write!(html, "<td>{}</td>", escape(run.setting(key).unwrap_or("\u{2013}")));
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div>");
    }
    for run in &configured {
        let open = if configured.len() == 1 { " open" } else { "" };
        let _ = write!(
            html,
            "<details{open}><summary>{}: <code>config.toml</code></summary><pre>{}</pre></details>",
            escape(&run.name),
            escape(run.config_text.trim_end())
        );
    }
    html
}
