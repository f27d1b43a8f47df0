//! Files of a job: the data and graders that the configuration names, and a configuration that names the copies.

use super::texts;
use crate::config::Config;
use crate::language::copy_files;
use anyhow::Context;
use fgrpo_eval::dataset;
use fgrpo_eval::kind::python;
use fgrpo_eval::program;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the tokenizer and its chat template, which the job uses to render prompts and to find thoughts.
const TOKENIZER: &str = "tokenizer";

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
        let place = if several { Path::new("data").join(name) } else { PathBuf::from("data") };
        text.data = copy_data(folder, &place.join("train"), &source.data).context("task.data")?;
        if let Some(held_out) = &source.held_out {
            text.held_out =
                Some(copy_data(folder, &place.join("held-out"), held_out).context("task.held_out")?);
        }
        for program in [&mut text.grader, &mut text.verifier.command].into_iter().flatten() {
            copy_program(folder, program)?;
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

/// Copies the files of a grader's program into `folder`.
///
/// Fails if the grader is a function of the running Python process, because such a function doesn't have a file.
fn copy_program(folder: &Path, program: &mut program::Settings) -> anyhow::Result<()> {
    if let Some(name) = &program.in_process {
        bad_input!("task.grader: {name} is a function of this process; name a file, \"FILE.py:FUNCTION\"");
    }
    let copy = |path: &str| -> anyhow::Result<String> {
        let path = Path::new(path);
        let name = path.file_name().unwrap_or_default();
        fs::copy(path, folder.join(name)).with_context(|| format!("task.grader: {}", path.display()))?;
        Ok(name.to_string_lossy().into_owned())
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
