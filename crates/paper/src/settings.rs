//! The paper's settings: how one is written in a configuration, read from one, and named by a folder.

use super::data::{Setting, paper};
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::Shaping;
use fgrpo_train::config::{Config, Loss};

/// What `--set` takes to train a setting; none for the base model, which is not trained.
pub(super) fn overrides(setting: &Setting) -> Option<Vec<String>> {
    let method = paper().methods.get(&setting.method)?;
    let own =
        [format!("algorithm.focal_gamma={}", setting.gamma), format!("rollout.group_size={}", setting.n)];
    Some(own.into_iter().chain([method.clone()]).collect())
}

/// The setting that a configuration trains.
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
        Shaping::None => match a.loss {
            Loss::Grpo { .. } => "GRPO",
            Loss::Dapo { .. } => "DAPO",
            Loss::Cispo { .. } | Loss::CispoCap { .. } => "CISPO",
            Loss::Gspo { .. } => "GSPO",
            Loss::Sapo { .. } => "SAPO",
            Loss::KlCov { .. } => "KL-Cov",
            Loss::ClipCov { .. } => "Clip-Cov",
            Loss::Gmpo { .. } => "GMPO",
            Loss::DppoTv { .. } | Loss::DppoKl { .. } => "DPPO",
        },
    };
    let method = match a.advantage {
        Advantage::Grpo { .. } => method.to_owned(),
        other => format!("{method} {}", other.name()),
    };
    let heat = config.rollout.temperature;
    let method = if heat == 1.0 { method } else { format!("{method} T={heat}") };
    let model = config.model.path.as_ref().and_then(|p| p.file_name());
    Setting {
        model: model.map(|m| m.to_string_lossy().into_owned()),
        method,
        gamma: a.focal_gamma,
        n: config.rollout.group_size as u64,
    }
}

/// A name without what spellings differ in: case, spaces, signs, `γ` for gamma.
fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace('\u{3b3}', "gamma");
    let kept: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
    // gamma 1.0 is gamma 1.
    ["gamma0", "gamma1", "gamma2"].iter().fold(kept, |text, g| text.replace(&format!("{g}.0"), g))
}

/// Every way to name a setting.
fn spellings(setting: &Setting) -> Vec<String> {
    let (method, gamma) = (&setting.method, setting.gamma);
    let mut methods = vec![format!("{method} gamma {gamma}")];
    if gamma > 0.0 {
        methods.extend([format!("F-{method}"), format!("F-{method} gamma {gamma}")]);
    } else {
        methods.push(method.clone());
    }
    let sizes = ["".to_owned(), format!(" N {}", setting.n)];
    let models: Vec<String> =
        std::iter::once(String::new()).chain(setting.model.iter().map(|m| format!("{m}/"))).collect();
    let mut all = Vec::new();
    for model in &models {
        for method in &methods {
            all.extend(sizes.iter().map(|n| plain(&format!("{model}{method}{n}"))));
        }
    }
    all
}

/// Those of `settings` that a name can stand for.
pub(super) fn fitting<'a>(name: &str, settings: &'a [Setting]) -> Vec<&'a Setting> {
    let wanted = plain(name);
    settings.iter().filter(|s| spellings(s).contains(&wanted)).collect()
}

/// Which of `settings` a name stands for; none where it names no setting, or more than one.
pub(super) fn named<'a>(name: &str, settings: &'a [Setting]) -> Option<&'a Setting> {
    match fitting(name, settings).as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

/// Those of `settings` that a folder's name with its parents' before it, `Qwen2.5-7B/F-GRPO/aime24`, can stand for: one where it or
/// a parent names one, several where that is all there is, or where a folder in between is named after another setting.
pub(super) fn meant<'a>(name: &str, settings: &'a [Setting]) -> Vec<&'a Setting> {
    let parents = std::iter::successors(Some(name), |n| n.rsplit_once('/').map(|(parent, _)| parent));
    let mut found: Vec<&Setting> = Vec::new();
    for fits in parents.map(|n| fitting(n, settings)) {
        match (found.len(), fits.len()) {
            (_, 1) => {
                found = fits;
                break;
            }
            (0, _) => found = fits,
            _ => {}
        }
    }
    if found.len() == 1 {
        let parts = name.split('/').map(|part| fitting(part, settings));
        let others: Vec<&Setting> =
            parts.filter(|fits| !fits.is_empty() && !fits.contains(&found[0])).flatten().collect();
        found.extend(others);
    }
    found
}

/// The shortest name of a setting that no other of `settings` has.
pub(super) fn name(setting: &Setting, settings: &[Setting]) -> String {
    let (focal, gamma, n) = (setting.method(), setting.gamma, setting.n);
    let model = setting.model.as_ref().map_or_else(String::new, |m| format!("{m}/"));
    let many_models = settings.iter().any(|s| s.model != setting.model);
    let model = if many_models { model } else { String::new() };
    let candidates = [
        format!("{model}{focal}"),
        format!("{model}{focal}-gamma-{gamma}"),
        format!("{model}{focal}-N{n}"),
        format!("{model}{focal}-gamma-{gamma}-N{n}"),
    ];
    let own = |c: &&String| named(c, settings) == Some(setting);
    candidates.iter().find(own).unwrap_or(&candidates[3]).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_every_item_has_a_name_that_finds_it() {
        for item in paper().items() {
            let settings = item.settings();
            for setting in &settings {
                let name = name(setting, &settings);
                assert_eq!(named(&name, &settings), Some(setting), "{}: {name}", item.name);
            }
        }
    }

    #[test]
    fn names_are_read_in_several_spellings_and_never_guessed() {
        let of = |name: &str, number| {
            let settings = paper().item(&format!("table-{number}")).settings();
            named(name, &settings).map(|s| (s.method(), s.gamma, s.n))
        };
        assert_eq!(of("f_grpo", 12), Some(("F-GRPO".to_owned(), 0.5, 8)));
        assert_eq!(of("grpo-n32", 12), Some(("GRPO".to_owned(), 0.0, 32)));
        assert_eq!(of("GRPO", 12), None, "five group sizes");
        assert_eq!(of("F-GRPO \u{3b3}=1.0", 11), Some(("F-GRPO".to_owned(), 1.0, 8)));
        assert_eq!(of("qwen2.5-7b/grpo", 1), Some(("GRPO".to_owned(), 0.0, 8)));
        assert_eq!(of("F-GRPO", 1), None, "three models");
    }

    #[test]
    fn a_folder_stands_for_the_row_that_it_or_a_parent_names_and_no_other_between() {
        let of = |name: &str, number| -> Vec<String> {
            let settings = paper().item(&format!("table-{number}")).settings();
            meant(name, &settings).iter().map(|s| super::name(s, &settings)).collect()
        };
        assert_eq!(of("Qwen2.5-7B/F-GRPO/aime24", 1), ["Qwen2.5-7B/F-GRPO"]);
        assert_eq!(of("F-GRPO/aime24", 13), ["F-GRPO"]);
        assert_eq!(of("GRPO/aime24", 12).len(), 5, "five group sizes");
        assert_eq!(of("F-GRPO/DARO/aime24", 13), ["F-GRPO", "DARO"]);
        assert_eq!(of("mine/aime24", 13), Vec::<String>::new());
    }

    #[test]
    fn a_setting_survives_the_way_through_a_configuration() {
        let text = include_str!("../../../configs/qwen2.5-7b-math.toml");
        let tables = ["table-1", "table-4", "table-10", "table-12"];
        for setting in tables.iter().flat_map(|name| paper().item(name).settings()) {
            let Some(set) = overrides(&setting) else { continue };
            let found = of(&Config::parse(text, &set).unwrap());
            assert_eq!(Setting { model: setting.model.clone(), ..found }, setting, "{set:?}");
        }
        let other = Config::parse(text, &["algorithm.advantage=\"max_rl\"".to_owned()]).unwrap();
        assert_eq!(of(&other).method, "GRPO max_rl");
    }
}
