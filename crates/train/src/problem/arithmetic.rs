//! Multi-step arithmetic as text: the language-model task that needs no download.
//!
//! A problem is a short instruction text generated from (seed, index). Its demonstration works it out step by step and
//! boxes the result, and the math verifier grades it. The tokenizer is a byte-level BPE trained on generated text. It
//! splits numbers into single digits, as current model families do.

use crate::config::ArithmeticConfig;
use crate::language::Language;
use crate::language::chat::ChatTemplate;
use fgrpo_core::rng::{Key, Stream};
use fgrpo_eval::bad_input;
use fgrpo_eval::dataset::{Message, Problem, id_of};
use fgrpo_eval::kind::{self, Truth};
use std::collections::HashSet;
use std::fmt::Write;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, PreTokenizerWrapper, Tokenizer, TokenizerBuilder};

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

/// The name of its held-out problems.
pub const NAME: &str = "arithmetic";
/// Texts that the tokenizer is trained on.
const CORPUS: u64 = 2000;
/// Number of draws for a training problem before the run fails because there are too many held-out problems.
const TRIES: u64 = 1000;

/// The completion length limit: 1.5 times the longest solution, so a policy that rambles is cut off.
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

/// The training problems and the held-out problems. No problem is in both.
///
/// # Errors
/// Bad input if the held-out problems leave none to train on.
pub fn problems(config: &ArithmeticConfig) -> anyhow::Result<(Vec<Problem>, Vec<Problem>)> {
    let mut apart = HashSet::new();
    let mut held_out = Vec::new();
    for index in 0..config.held_out {
        let Some(problem) = draw(config, 1, index, |p| !apart.contains(&p.id)) else {
            bad_input!(
                "task.held_out: found {}, wanted fewer: there are not that many different problems",
                config.held_out
            );
        };
        apart.insert(problem.id.clone());
        held_out.push(problem);
    }
    let train = (0..config.train)
        .map(|index| draw(config, 0, index, |p| !apart.contains(&p.id)))
        .collect::<Option<Vec<_>>>();
    let Some(train) = train else {
        bad_input!(
            "task.held_out: found {}, wanted fewer: no problem would be left for training",
            config.held_out
        );
    };
    Ok((train, held_out))
}

/// The first acceptable problem among the draws of (split, index). Split 0 is trained on, 1 is held out.
fn draw(
    config: &ArithmeticConfig,
    split: u64,
    index: u64,
    accept: impl Fn(&Problem) -> bool,
) -> Option<Problem> {
    let of_split = Key::new(config.seed).with(split);
    (0..TRIES).map(|attempt| problem(config, of_split.with(index).with(attempt))).find(accept)
}

/// One problem: a start value, and operations that keep every value in `0..=largest`.
fn problem(config: &ArithmeticConfig, key: Key) -> Problem {
    let mut draws = key.stream();
    let spread = (config.most_operations - config.fewest_operations) as u64 + 1;
    let operations = config.fewest_operations + draws.below(spread) as usize;
    let mut value = 1 + draws.below(config.largest);
    let begin = ["Start with", "Begin with", "Take"][draws.below(3) as usize];
    let mut question = format!("{begin} {value}.");
    let mut solution = String::new();
    for _ in 0..operations {
        let (said, sign, operand, result) = operation(config.largest, value, &mut draws);
        let _ = write!(question, " {said}");
        let _ = writeln!(solution, "{value} {sign} {operand} = {result}");
        value = result;
    }
    question.push_str(" What is the result?");
    let _ = write!(solution, "\\boxed{{{value}}}");
    let messages = vec![Message::new("user", question)];
    let truth = Truth::Math(kind::math::Truth { gold: value.to_string() });
    Problem {
        solution: Some(solution),
        level: Some(operations.to_string()),
        ..Problem::new(id_of(&messages), messages, truth)
    }
}

/// The text of an operation, its sign, its operand and its result for `value`.
fn operation(largest: u64, value: u64, draws: &mut Stream) -> (String, char, u64, u64) {
    loop {
        let n = 1 + draws.below(20);
        let wording = draws.below(2) as usize;
        match draws.below(4) {
            0 if value + n <= largest => {
                let said = [format!("Add {n}."), format!("Increase it by {n}.")][wording].clone();
                return (said, '+', n, value + n);
            }
            1 if value >= n => {
                let said = [format!("Subtract {n}."), format!("Take away {n}.")][wording].clone();
                return (said, '-', n, value - n);
            }
            2 if value > 0 && 2 * value <= largest => {
                let said = ["Double it.", "Multiply by 2."][wording].to_owned();
                return (said, '*', 2, 2 * value);
            }
            3 if value > 0 && 3 * value <= largest => {
                let said = ["Triple it.", "Multiply by 3."][wording].to_owned();
                return (said, '*', 3, 3 * value);
            }
            _ => {}
        }
    }
}

/// Trains the tokenizer on texts that aren't in any split; the same configuration gives the same files. Completions
/// end at the template's end token and at the texts of `stop`.
///
/// # Errors
/// Errors from the tokenizer's trainer.
pub fn language(config: &ArithmeticConfig, stop: &[String]) -> anyhow::Result<Language> {
    let wrong = |e: tokenizers::Error| anyhow::anyhow!("training the tokenizer: {e}");
    let corpus = Key::new(config.seed).with(2);
    let texts = (0..CORPUS).map(|i| {
        let problem = problem(config, corpus.with(i));
        let solution = problem.solution.as_deref().unwrap_or_default();
        format!("user\n{}\nassistant\n{solution}", problem.question())
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
        .vocab_size(config.vocab_size)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, TaskConfig};
    use crate::problem::{Split, Task};
    use fgrpo_eval::verifier::Mode;
    use fgrpo_verify::verdict::Verdict;

    fn config(train: u64, held_out: u64) -> ArithmeticConfig {
        ArithmeticConfig {
            fewest_operations: 2,
            most_operations: 4,
            largest: 99,
            train,
            held_out,
            vocab_size: 320,
            seed: 0,
            mode: Mode::TRAINING,
        }
    }

    fn open(task: &ArithmeticConfig) -> anyhow::Result<Task> {
        let mut config = Config::parse(include_str!("../../../../configs/arithmetic-quick.toml"), &[])?;
        config.task = TaskConfig::Arithmetic(task.clone());
        Task::open(&config)
    }

    #[test]
    fn every_demonstration_is_graded_correct_and_a_changed_result_is_not() {
        let task = open(&config(300, 20)).unwrap();
        let language = &task.language;
        for id in 0..300 {
            let prompt = task.prompt(Split::Train, id);
            let mut tokens = task.demonstration(&prompt).unwrap();
            let graded = task.grade(&prompt, &tokens);
            assert_eq!(graded.verdict, Verdict::Correct, "{}", language.text(&tokens));
            // The last digit comes before the brace and the end token.
            let at = tokens.len() - 3;
            let digit = language.text(&tokens[at..=at]);
            let other = if digit == "7" { "8" } else { "7" };
            tokens[at] = language.encode(other).unwrap()[0];
            if id < 20 {
                let graded = task.grade(&prompt, &tokens);
                assert_eq!(graded.verdict, Verdict::Wrong, "{}", language.text(&tokens));
            }
        }
    }

    #[test]
    fn no_held_out_problem_is_trained_on_and_none_stands_there_twice() {
        // With so few operations the same problems are drawn again and again.
        let mut few = config(2000, 50);
        (few.fewest_operations, few.most_operations, few.largest) = (1, 1, 20);
        let task = open(&few).unwrap();
        let text = |split, id| task.prompt(split, id).problem.question().to_owned();
        let held_out: HashSet<String> = (0..50).map(|i| text(Split::HeldOut, i)).collect();
        assert_eq!(held_out.len(), 50);
        assert!((0..2000).all(|i| !held_out.contains(&text(Split::Train, i))));
        few.held_out = 1_000_000;
        assert!(format!("{:#}", open(&few).err().unwrap()).contains("task.held_out: found 1000000"));
    }

    #[test]
    fn the_tokenizer_is_the_same_each_time_and_gives_back_any_text() {
        let (a, b) = (language(&config(5, 5), &[]).unwrap(), language(&config(5, 5), &[]).unwrap());
        let (x, y) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        a.write(x.path()).unwrap();
        b.write(y.path()).unwrap();
        let read = |d: &tempfile::TempDir| std::fs::read(d.path().join("tokenizer.json")).unwrap();
        assert_eq!(read(&x), read(&y));
        let opened = Language::open(x.path(), &[]).unwrap();
        assert_eq!((opened.vocab_size(), a.vocab_size()), (320, 320));
        assert_eq!(opened.stop_tokens(), a.stop_tokens());
        for text in ["Start with 12. Añada 3 🙂", "12 + 3 = 15\n\\boxed{15}"] {
            assert_eq!(opened.text(&opened.encode(text).unwrap()), text);
        }
    }

    #[test]
    fn a_prompt_is_what_the_chat_template_renders() {
        let task = open(&config(3, 3)).unwrap();
        let prompt = task.prompt(Split::HeldOut, 1);
        let question = prompt.problem.question();
        let prompt = task.language.text(&prompt.tokens);
        assert_eq!(prompt, format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"));
    }
}
