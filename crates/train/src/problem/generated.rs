//! Generated problems with a tokenizer trained on them: language-model tasks that don't need a download.
//!
//! A problem is a function of (seed, split, index). The tokenizer is a byte-level BPE that splits numbers into single
//! digits, as current model families do.

use crate::config::TaskConfig;
use crate::language::Language;
use crate::language::chat::ChatTemplate;
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::verifier::Settings;
use rayon::prelude::*;
use std::collections::HashSet;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, PreTokenizerWrapper, Tokenizer, TokenizerBuilder};

/// Number of problems, their seed, and the size of the tokenizer's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amounts {
    /// Number of training problems.
    pub train: u64,
    /// Number of held-out problems.
    pub held_out: u64,
    /// Seed of the problems.
    pub seed: u64,
    /// Size of the vocabulary.
    pub vocab_size: usize,
}

/// Generator of problems.
pub trait Generator: Sync {
    /// Returns the name of the held-out problems.
    fn name(&self) -> &str;

    /// Returns the kind whose verifier grades the problems, and the settings of the verifier.
    fn grading(&self) -> (TaskKind, Settings);

    /// Returns the numbers of problems, the seed and the size of the vocabulary.
    fn amounts(&self) -> Amounts;

    /// Returns the problem of a random key, with a demonstration, or `None` if this key doesn't give a problem.
    fn problem(&self, key: Key) -> Option<Problem>;
}

/// Returns the generator of a task with generated text problems, or `None` for other tasks.
pub fn generator(task: &TaskConfig) -> Option<&dyn Generator> {
    match task {
        TaskConfig::Arithmetic(config) => Some(config),
        TaskConfig::Puzzles(config) => Some(config),
        _ => None,
    }
}

/// Returns the kind of a task's answers, or `None` for a mix, which has several.
pub fn answers(task: &TaskConfig) -> Option<TaskKind> {
    match task {
        TaskConfig::Maze(_) => Some(TaskKind::Maze),
        TaskConfig::Mix(_) => None,
        TaskConfig::Text(text) => Some(text.kind()),
        generated => generator(generated).map(|generator| generator.grading().0),
    }
}

/// Special tokens, by id.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// The chat template: each message is between `<|im_start|>role` and `<|im_end|>`.
pub const TEMPLATE: &str = "{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}
";

const TOKENIZER_CONFIG: &str = r#"{
  "tokenizer_class": "PreTrainedTokenizerFast",
  "bos_token": null,
  "eos_token": "<|im_end|>",
  "pad_token": "<|endoftext|>",
  "clean_up_tokenization_spaces": false
}
"#;

/// Number of problems on which the tokenizer is trained.
const CORPUS: u64 = 2000;
/// Number of draws for a problem before the run fails because too few distinct ones are left.
const TRIES: u64 = 1000;

/// Returns the length limit of a completion: 1.5 times the longest solution, so that rambling completions are cut off.
///
/// # Errors
/// Errors from the tokenizer.
pub fn max_new_tokens<'a>(
    language: &Language,
    problems: impl Iterator<Item = &'a Problem>,
) -> anyhow::Result<usize> {
    let solutions = problems.filter_map(|p| p.solution.as_deref());
    let longest =
        solutions.map(|s| language.encode(s).map(|t| t.len())).try_fold(0, |a, n| n.map(|n| a.max(n)))?;
    Ok(longest + longest / 2 + 1)
}

/// Generates the training problems and the held-out problems. No problem is in both.
///
/// # Errors
/// Bad input if there are too few distinct problems.
pub fn problems(generator: &dyn Generator) -> anyhow::Result<(Vec<Problem>, Vec<Problem>)> {
    let amounts = generator.amounts();
    let mut held_out_ids = HashSet::new();
    let mut held_out = Vec::new();
    for index in 0..amounts.held_out {
        let Some(problem) = draw(generator, 1, index, |p| !held_out_ids.contains(&p.id)) else {
            bad_input!(
                "task.held_out: {} is too many: there aren't that many different problems",
                amounts.held_out
            );
        };
        held_out_ids.insert(problem.id.clone());
        held_out.push(problem);
    }
    let train = (0..amounts.train)
        .into_par_iter()
        .map(|index| draw(generator, 0, index, |p| !held_out_ids.contains(&p.id)))
        .collect::<Option<Vec<_>>>();
    let Some(train) = train else {
        bad_input!("task.held_out: {} is too many: no problem would be left for training", amounts.held_out);
    };
    Ok((train, held_out))
}

/// Returns the first acceptable problem from the draws of (split, index). Split 0 has the training problems, and split
/// 1 the held-out problems.
fn draw(
    generator: &dyn Generator,
    split: u64,
    index: u64,
    accept: impl Fn(&Problem) -> bool,
) -> Option<Problem> {
    let key = Key::new(generator.amounts().seed).with(split);
    (0..TRIES).filter_map(|attempt| generator.problem(key.with(index).with(attempt))).find(accept)
}

/// Trains the tokenizer on problems that aren't in any split. The same configuration always gives the same files.
/// Completions end at the template's end token and at the strings in `stop`.
///
/// # Errors
/// Errors from the tokenizer's trainer.
pub fn language(generator: &dyn Generator, stop: &[String]) -> anyhow::Result<Language> {
    let wrong = |e: tokenizers::Error| anyhow::anyhow!("training the tokenizer: {e}");
    let Amounts { seed, vocab_size, .. } = generator.amounts();
    let corpus = Key::new(seed).with(2);
    let texts = (0..CORPUS).filter_map(|i| {
        let problem = generator.problem(corpus.with(i))?;
        let solution = problem.solution.as_deref().unwrap_or_default();
        Some(format!("user\n{}\nassistant\n{solution}", problem.question()))
    });
    let split = Sequence::new(vec![
        PreTokenizerWrapper::Digits(Digits::new(true)),
        PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true)),
    ]);
    let bytes = ByteLevel::new(false, true, true);
    let mut trained =
        TokenizerBuilder::<BPE, tokenizers::NormalizerWrapper, Sequence, ByteLevel, ByteLevel>::new()
            .with_model(BPE::default())
            .with_normalizer(None)
            .with_pre_tokenizer(Some(split))
            .with_post_processor(None)
            .with_decoder(Some(bytes))
            .build()
            .map_err(wrong)?;
    let special: Vec<AddedToken> = SPECIAL.iter().map(|t| AddedToken::from(*t, true)).collect();
    let mut trainer = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(vocab_size)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(special)
        .build();
    trained.train(&mut trainer, texts.collect::<Vec<_>>().into_iter()).map_err(wrong)?;
    let json = trained.to_string(true).map_err(wrong)?;
    let tokenizer: Tokenizer = json.parse().map_err(wrong)?;
    let end = tokenizer.token_to_id(SPECIAL[2]).expect("the trainer keeps the special tokens");
    let files = vec![
        ("tokenizer.json".to_owned(), json.into_bytes()),
        ("tokenizer_config.json".to_owned(), TOKENIZER_CONFIG.as_bytes().to_vec()),
        ("chat_template.jinja".to_owned(), TEMPLATE.as_bytes().to_vec()),
    ];
    Language::from_files(files, Some(ChatTemplate::new(TEMPLATE, "", SPECIAL[2])), vec![end], stop)
}
