//! Converts the paper's settings to and from configurations, and recognises them in the names of folders.

use super::data::{Setting, paper};
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::Shaping;
use fgrpo_train::config::Config;
use std::path::Path;

/// Returns the values of `--set` that train a setting, or `None` for the base model, which isn't trained.
pub(super) fn overrides(setting: &Setting) -> Option<Vec<String>> {
    let method = paper().methods.get(&setting.method)?;
    let common =
        [format!("algorithm.focal_gamma={}", setting.gamma), format!("rollout.group_size={}", setting.n)];
    Some(common.into_iter().chain([method.clone()]).collect())
}

/// Returns the setting that a configuration trains.
pub(super) fn of(config: &Config) -> Setting {
    let (a, u) = (&config.algorithm, &config.update);
    let method = match a.shaping {
        Shaping::Unlikely { .. } => "RUL",
        Shaping::Smoothing { .. } => "DS-GRPO",
        Shaping::HaDw { .. } => "HA-DW",
        Shaping::None if a.daro => "DARO",
        Shaping::None if u.low_lr_gamma > 0.0 => "GRPO low-LR",
        Shaping::None if a.entropy_coef > 0.0 => "GRPO-H",
        Shaping::None if a.kl_coef > 0.0 => "GRPO-KL",
        Shaping::None => &a.loss_name(),
    };
    let method = match &a.advantage {
        Advantage::Grpo { .. } => method.to_owned(),
        other => format!("{method} {}", other.name()),
    };
    let heat = config.rollout.temperature;
    let method = if heat == 1.0 { method } else { format!("{method} T={heat}") };
    let model = config.model.path.as_ref().and_then(|p| p.file_name());
    Setting {
        model: model.map(|m| m.to_string_lossy().into_owned()),
        method,
        gamma: a.focal_gamma(),
        n: config.rollout.group_size as u64,
    }
}

/// Normalises a name: spellings may differ in case, spaces and signs, and may write `γ` for gamma.
fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace('\u{3b3}', "gamma");
    let text: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
    // gamma 1.0 is gamma 1.
    ["gamma0", "gamma1", "gamma2"].iter().fold(text, |text, g| text.replace(&format!("{g}.0"), g))
}

/// Whether a folder's name, normalised, can mean a setting, whatever its model.
fn is_spelling(name: &str, setting: &Setting) -> bool {
    let Setting { method, gamma, n, .. } = setting;
    let focal = setting.method();
    let methods = [focal.clone(), format!("{method} gamma {gamma}"), format!("{focal} gamma {gamma}")];
    methods.iter().any(|m| plain(m) == name || plain(&format!("{m} N {n}")) == name)
}

/// Finds the paper's model in a result's name or, failing that, in the names of the folders above, innermost first.
pub(super) fn model_of(name: &str, path: &Path) -> Option<&'static String> {
    let is_model = |part: &str| paper().models.iter().find(|m| m.name.eq_ignore_ascii_case(part));
    let folders = path.ancestors().filter_map(|p| p.file_name()?.to_str());
    name.rsplit('/').chain(folders).find_map(is_model).map(|m| &m.name)
}

/// Returns the settings that results at `path` with the name `name` may have. The innermost part of the name that fits a
/// setting decides. If the name or a folder above the results is the name of a model of the paper, only settings of this
/// model are returned.
pub(super) fn named<'a>(name: &str, path: &Path, settings: &'a [Setting]) -> Vec<&'a Setting> {
    let model = model_of(name, path);
    let same_model = |s: &&Setting| model.is_none() || s.model.is_none() || s.model.as_ref() == model;
    let name = name.strip_suffix(".jsonl").unwrap_or(name);
    let fits = |part: &str| -> Vec<&Setting> {
        let part = plain(part);
        settings.iter().filter(|s| is_spelling(&part, s)).collect()
    };
    let all = name.rsplit('/').map(fits).find(|fits| !fits.is_empty()).unwrap_or_default();
    all.into_iter().filter(same_model).collect()
}

/// Returns the shortest name that distinguishes a setting from the other `settings`.
pub(super) fn name(setting: &Setting, settings: &[Setting]) -> String {
    let (focal, gamma, n) = (setting.method(), setting.gamma, setting.n);
    let many_models = settings.iter().any(|s| s.model != setting.model);
    let model = setting.model.as_ref().filter(|_| many_models).map_or_else(String::new, |m| format!("{m}/"));
    let candidates = [
        format!("{model}{focal}"),
        format!("{model}{focal}-gamma-{gamma}"),
        format!("{model}{focal}-N{n}"),
        format!("{model}{focal}-gamma-{gamma}-N{n}"),
    ];
    let is_unique = |c: &&String| named(c, Path::new(""), settings) == [setting];
    candidates.iter().find(is_unique).unwrap_or(&candidates[3]).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(name: &str, table: &str) -> Vec<String> {
        let settings = paper().item(table).settings();
        named(name, Path::new(name), &settings).iter().map(|s| super::name(s, &settings)).collect()
    }

    #[test]
    fn every_setting_of_every_item_has_a_name_that_finds_it() {
        for item in paper().items() {
            let settings = item.settings();
            for setting in &settings {
                let name = name(setting, &settings);
                assert_eq!(named(&name, Path::new(""), &settings), [setting], "{}: {name}", item.name);
            }
        }
    }

    #[test]
    fn names_are_read_in_several_spellings_and_the_innermost_folder_that_names_a_row_decides() {
        for (name, table, expected) in [
            ("f_grpo", "table-12", &["F-GRPO"][..]),
            ("grpo-n32", "table-12", &["GRPO-N32"]),
            ("GRPO", "table-12", &["GRPO-N2", "GRPO-N4", "GRPO-N8", "GRPO-N16", "GRPO-N32"]),
            ("F-GRPO \u{3b3}=1.0", "table-11", &["F-GRPO-gamma-1"]),
            ("qwen2.5-7b/grpo", "table-1", &["Qwen2.5-7B/GRPO"]),
            ("Qwen2.5-7B/F-GRPO/aime24", "table-1", &["Qwen2.5-7B/F-GRPO"]),
            ("evaluations/grpo-gamma-0.5-N8", "table-13", &["F-GRPO"]),
            ("F-GRPO/DARO/aime24", "table-13", &["DARO"]),
            ("F-GRPO.jsonl", "table-13", &["F-GRPO"]),
            // Another model's.
            ("Qwen2.5-7B/F-GRPO", "table-16", &[]),
            ("mine/aime24", "table-13", &[]),
        ] {
            assert_eq!(rows_of(name, table), expected, "{name}");
        }
    }

    #[test]
    fn a_setting_survives_the_way_through_a_configuration() {
        let text = include_str!("../../../configs/qwen2.5-7b-math.toml");
        let tables = ["table-1", "table-4", "table-10", "table-12"];
        for setting in tables.iter().flat_map(|name| paper().item(name).settings()) {
            let Some(set) = overrides(&setting) else { continue };
            let actual = of(&Config::parse(text, &set).unwrap());
            assert_eq!(Setting { model: setting.model.clone(), ..actual }, setting, "{set:?}");
        }
        let other = Config::parse(text, &["algorithm.advantage=\"max_rl\"".to_owned()]).unwrap();
        assert_eq!(of(&other).method, "GRPO max_rl");
    }
}
