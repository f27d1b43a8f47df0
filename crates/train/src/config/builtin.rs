//! Built-in configurations: the files of `configs/`, so that `fgrpo train maze-quick` works in any folder.

use fgrpo_eval::dataset::format::FileFormat;
use fgrpo_eval::io::files;
use fgrpo_files as input;
use std::path::Path;

macro_rules! configs {
    ($($name:literal)*) => {
        /// The built-in configurations, each with its name and its TOML, in alphabetical order.
        pub const CONFIGS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../configs/", $name, ".toml")))),*];
    };
}

configs! {
    "arena-arithmetic" "arena-maze" "arena-puzzles" "arithmetic-quick" "distill-quick" "grids-quick" "llama-3.2-3b-math" "maze-17" "maze-compare" "maze-long" "maze-quick" "qwen2.5-7b-math"
    "qwen3-1.7b-synlogic" "qwen3-4b-base-math" "simulation" "simulation-long" "smollm2-words"
}

/// Returns the text of a built-in configuration.
pub fn builtin(name: &str) -> Option<&'static str> {
    CONFIGS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the subject of a configuration: the beginning of its first comment.
pub fn about(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default().trim_start_matches('#').trim();
    let end = line.find(": ").or_else(|| line.find(". ")).unwrap_or(line.len());
    line[..end].trim_end_matches([':', '.'])
}

/// Reads a configuration file, or a built-in configuration if there is no such file. Fails if there is neither; the
/// message suggests a similar name.
pub fn text(path: &Path) -> anyhow::Result<String> {
    if FileFormat::of(path).is_some() && (path.is_file() || !path.exists()) {
        bad_input!("this is a data set; a configuration is a .toml file and names its data set as task.data");
    }
    if !path.exists() {
        if let Some(text) = builtin(&path.to_string_lossy()) {
            return Ok(text.to_owned());
        }
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let files = files::parent(path).read_dir().into_iter().flatten().flatten().map(|e| e.path());
        let files = files.filter(|p| p.extension().is_some_and(|e| e == "toml"));
        let here: Vec<String> =
            files.map(|p| p.strip_prefix(".").unwrap_or(&p).display().to_string()).collect();
        let names = here.iter().map(String::as_str).chain(CONFIGS.iter().map(|c| c.0));
        let near = |name: &str| name.strip_suffix(".toml").unwrap_or(name).to_owned();
        let mut near: Vec<(usize, &str)> =
            names.map(|name| (strsim::damerau_levenshtein(&near(name), &stem), name)).collect();
        near.retain(|(distance, _)| *distance * 3 <= stem.len());
        near.sort_unstable();
        match near.first() {
            Some((_, name)) => bad_input!("no such file; did you mean {name}?"),
            None => bad_input!("no such file; `fgrpo configs list` shows the built-in configurations"),
        }
    }
    Ok(input::read_to_string(path, input::SETTINGS)?)
}
