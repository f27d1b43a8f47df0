//! Files of a job: the data and graders that the configuration names, and a configuration that names the copies.

use super::texts;
use crate::config::Config;
use crate::language::copy_files;
use anyhow::Context;
use fgrpo_eval::dataset;
use fgrpo_eval::io::files::parent;
use fgrpo_eval::kind::python;
use fgrpo_eval::program;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the tokenizer and its chat template, which the job uses to render prompts and to find thoughts.
const TOKENIZER: &str = "tokenizer";

/// Folder of the user's graders, each part of a mix in a folder of its own.
pub(super) const GRADER: &str = "grader";

/// Copies data, tokenizer and graders into the folder of the job, and returns the configuration that names the copies, relative to
/// the folder. `written` has the paths and names that the user wrote, `local` the files on this machine.
pub(super) fn copy(
    folder: &Path,
    (written, local): (&Config, &Config),
    model: &str,
) -> anyhow::Result<Config> {
    let mut config = written.clone();
    config.model.path = Some(model.into());
    config.model.init = None;
    config.model.size = None;
    config.sft = None;
    let sources = texts(&local.task)?;
    let several = sources.len() > 1;
    if let Some(from) = local.task.tokenizer().or(local.model.path.as_ref()) {
        fs::create_dir(folder.join(TOKENIZER))?;
        copy_files(from, &folder.join(TOKENIZER))?;
        config.task.set_tokenizer(TOKENIZER.into());
    }
    for ((name, source), text) in sources.iter().zip(config.task.texts_mut()) {
        let part = if several { name.as_str() } else { "" };
        let (place, graders) = (Path::new("data").join(part), Path::new(GRADER).join(part));
        text.data = copy_data(folder, &place.join("train"), &source.data).context("task.data")?;
        if let Some(held_out) = &source.held_out {
            text.held_out =
                Some(copy_data(folder, &place.join("held-out"), held_out).context("task.held_out")?);
        }
        for program in [&mut text.grader, &mut text.verifier.command].into_iter().flatten() {
            copy_program(folder, &graders, program)?;
        }
    }
    Ok(config)
}

/// Copies the files of a data set into `place`, and returns the path of the copy.
fn copy_data(folder: &Path, place: &Path, data: &Path) -> anyhow::Result<PathBuf> {
    let files = dataset::files(data)?;
    fs::create_dir_all(folder.join(place))?;
    for file in &files {
        let name = file.file_name().unwrap_or_default();
        fs::copy(file, folder.join(place).join(name)).with_context(|| file.display().to_string())?;
    }
    Ok(match files.as_slice() {
        [one] => place.join(one.file_name().unwrap_or_default()),
        _ => place.to_owned(),
    })
}

/// Copies the files of a grader's program into `place`, a folder of the job, with the Python modules that they import from
/// their own folder.
///
/// Fails if the grader is a function of the running Python process, because such a function doesn't have a file. Also fails
/// if two different files have the same name.
fn copy_program(folder: &Path, place: &Path, program: &mut program::Settings) -> anyhow::Result<()> {
    if let Some(name) = &program.in_process {
        bad_input!("task.grader: {name} is a function of this process; name a file, \"FILE.py:FUNCTION\"");
    }
    let copy = |path: &str| -> anyhow::Result<String> {
        let path = Path::new(path);
        let name = Path::new(path.file_name().unwrap_or_default());
        fs::create_dir_all(folder.join(place))?;
        copy_code(parent(path), name, &folder.join(place))
            .with_context(|| format!("task.grader: {}", path.display()))?;
        Ok(place.join(name).to_string_lossy().into_owned())
    };
    if let Some((file, name)) = program.function.as_deref().and_then(python::parts) {
        program.function = Some(format!("{}:{name}", copy(file)?));
    }
    for argument in program.command.iter_mut().filter(|argument| Path::new(argument).is_file()) {
        // A program with an absolute path belongs to the system and isn't copied.
        if Path::new(argument).is_relative() {
            *argument = copy(argument)?;
        }
    }
    Ok(())
}

/// Copies `name`, a file or a package in the folder `from`, into the folder `to`, with everything in `from` that its Python code imports.
fn copy_code(from: &Path, name: &Path, to: &Path) -> anyhow::Result<()> {
    let (source, copy) = (from.join(name), to.join(name));
    if source.is_dir() {
        if copy.exists() {
            return Ok(());
        }
        fs::create_dir_all(&copy)?;
        // A folder that isn't marked as a package may be a data set by the name of an installed module.
        let package = source.join("__init__.py").exists();
        for entry in fs::read_dir(&source)? {
            let entry = entry?;
            let (path, file) = (entry.path(), entry.file_name());
            let hidden = file.to_string_lossy().starts_with('.') || file == "__pycache__";
            if !hidden && (package || path.is_dir() || is_python(&path)) {
                copy_code(from, &name.join(file), to)?;
            }
        }
        return Ok(());
    }
    if copy.exists() {
        if fs::read(&copy)? != fs::read(&source)? {
            bad_input!("the grader has two files named {}; rename one", name.display());
        }
        return Ok(());
    }
    fs::copy(&source, &copy)?;
    if is_python(&source) {
        for module in imported(&fs::read_to_string(&source)?) {
            for name in [format!("{module}.py"), module].iter().filter(|name| from.join(name).exists()) {
                copy_code(from, Path::new(name), to)?;
            }
        }
    }
    Ok(())
}

fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "py")
}

/// Returns the top-level modules that Python code imports, by the lines that begin with `import` or `from`.
fn imported(code: &str) -> Vec<String> {
    let names = code.lines().flat_map(|line| {
        let line = line.trim_start();
        let one = line.strip_prefix("from ").and_then(|rest| rest.split_whitespace().next());
        let several = line.strip_prefix("import ").into_iter().flat_map(|rest| rest.split(','));
        one.into_iter().chain(several.filter_map(|name| name.split_whitespace().next()))
    });
    let modules = names.map(|name| name.split('.').next().unwrap_or_default().to_owned());
    let is_name = |module: &String| module.chars().all(|c| c.is_alphanumeric() || c == '_');
    modules.filter(|module| !module.is_empty() && is_name(module)).collect()
}
