//! Episodes: a policy talks to an environment and calls its tools.
//!
//! A token that was sampled is never encoded again. The answers to a turn are rendered by the chat template, and what follows
//! the text so far is encoded. Where the template rewrites earlier turns, as when it cuts thoughts from the history, a new part
//! of the episode begins with the conversation as a prompt.

use crate::cached::{Request, draw};
use crate::language::Language;
use crate::language::chat::{ChatOptions, ChatTemplate};
use anyhow::Context;
use fgrpo_core::rng::Key;
use fgrpo_eval::bad_input;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::graded::Graded;
use fgrpo_eval::kind::{Truth, environment};
use fgrpo_eval::problems::ProblemSet;
use fgrpo_eval::program::Program;
use fgrpo_nn::{Completion, Engine, Finish, Sampling};
use serde_json::{Value, json};

/// A sequence of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// All its tokens.
    pub tokens: Vec<u32>,
    /// The places of those that the policy sampled, ascending.
    pub sampled: Vec<usize>,
}

/// An episode that has ended.
#[derive(Debug, Clone)]
pub struct Episode {
    /// Its sequences: one, unless the template rewrites earlier turns.
    pub parts: Vec<Part>,
    /// The sampled tokens of all parts, in order. It ends at a limit if a turn, the turns or the model's positions did.
    pub completion: Completion,
    /// Turns of the policy.
    pub turns: u64,
    /// The conversation before the first turn, as text.
    pub prompt: String,
    /// The rest of it, as text.
    pub text: String,
    /// The environment's grade.
    pub graded: Graded,
}

/// The episodes of one problem.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// Its episodes' indices.
    pub samples: std::ops::Range<usize>,
    /// The random draws of episode `i` are of `key.with(i)`.
    pub key: Key,
}

/// Plays episodes turn by turn, all of them at once. Those of each problem come in order. `None` if `go_on` returns false.
///
/// # Errors
/// Bad input: a template that can't render a conversation with tools, a prompt that leaves no position; errors from the engine.
pub fn play(
    engine: &mut Engine,
    language: &Language,
    set: &ProblemSet,
    wanted: &[Wanted<'_>],
    sampling: &Sampling,
    go_on: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<Vec<Vec<Episode>>>> {
    let Some((program, max_turns)) = set.grader.environment() else {
        bad_input!("task.environment: found none, wanted the class of the environment");
    };
    let Some(template) = language.template() else {
        bad_input!(
            "task.environment: found a model without a chat template, wanted one with it: a conversation needs one"
        );
    };
    let rules = Rules { language, template, program, thinking: set.prompt.thinking };
    let positions = engine.config().context();
    let mut games = Vec::new();
    for wanted in wanted {
        for sample in wanted.samples.clone() {
            games.push(Game::begin(&rules, set, wanted, (games.len(), sample))?);
        }
    }
    for turn in 0..max_turns {
        let mut requests: Vec<Request> = Vec::new();
        let mut asked: Vec<usize> = Vec::new();
        for (at, game) in games.iter_mut().enumerate() {
            let Some(part) = game.parts.last().filter(|_| game.playing) else { continue };
            if part.tokens.len() >= positions {
                game.end(Finish::Length);
                continue;
            }
            asked.push(at);
            let (samples, key) = match turn {
                0 => (game.sample..game.sample + 1, game.key),
                later => (0..1, game.key.with(game.sample as u64).with(later as u64)),
            };
            match requests.last_mut() {
                // Their prompt is computed once.
                Some(last)
                    if last.key == key && last.tokens == part.tokens && last.samples.end == samples.start =>
                {
                    last.samples.end = samples.end;
                }
                _ => requests.push(Request { tokens: part.tokens.clone(), samples, key }),
            }
        }
        if asked.is_empty() {
            break;
        }
        let stop = (language, language.stop_texts());
        let Some(drawn) = draw(engine, &requests, sampling, stop, go_on)? else { return Ok(None) };
        for (at, completion) in asked.into_iter().zip(drawn.into_iter().flatten()) {
            games[at].answer(&rules, completion, turn + 1 == max_turns)?;
            if !go_on() {
                return Ok(None);
            }
        }
    }
    let mut ended = games.into_iter().map(|game| game.grade(language));
    let episodes = wanted.iter().map(|wanted| ended.by_ref().take(wanted.samples.len()).collect()).collect();
    Ok(go_on().then_some(episodes))
}

/// What all episodes share.
struct Rules<'a> {
    language: &'a Language,
    template: &'a ChatTemplate,
    program: &'a Program,
    thinking: Option<bool>,
}

impl Rules<'_> {
    fn render(&self, messages: &[Value], tools: &[Value]) -> anyhow::Result<String> {
        let options = ChatOptions { enable_thinking: self.thinking, ..ChatOptions::default() };
        self.template.render_values(&messages, &(!tools.is_empty()).then_some(tools), &options)
    }
}

/// An episode that is being played.
struct Game<'a> {
    sample: usize,
    key: Key,
    /// `None` after it failed.
    environment: Option<environment::Episode<'a>>,
    failed: Option<Graded>,
    playing: bool,
    messages: Vec<Value>,
    /// What the template offers.
    tools: Vec<Value>,
    /// The text of the last part.
    text: String,
    parts: Vec<Part>,
    completion: Completion,
    turns: u64,
}

impl<'a> Game<'a> {
    fn begin(
        rules: &Rules<'a>,
        set: &ProblemSet,
        wanted: &Wanted<'_>,
        (index, sample): (usize, usize),
    ) -> anyhow::Result<Self> {
        let Wanted { problem, key, .. } = wanted;
        let Truth::Environment(environment::Truth { columns }) = &problem.truth else {
            unreachable!("the kind of the task is the kind of its problems")
        };
        let mut game = Self {
            sample,
            key: *key,
            environment: None,
            failed: None,
            playing: false,
            messages: Vec::new(),
            tools: Vec::new(),
            text: String::new(),
            parts: Vec::new(),
            completion: Completion {
                prompt: 0,
                sample,
                tokens: Vec::new(),
                logp: Vec::new(),
                entropy: Vec::new(),
                finish: Finish::Stop,
                cached: 0,
            },
            turns: 0,
        };
        // A problem may come twice, so its id is no name.
        let name = index.to_string();
        let messages = json!(set.conversation(problem));
        let begun =
            environment::Episode::begin(rules.program, &name, columns, messages, rules.template.source());
        match begun {
            Ok((environment, begun)) => {
                game.environment = Some(environment);
                game.offer(rules, begun);
                let text = rules.render(&game.messages, &game.tools)?;
                game.start(rules, text)?;
            }
            Err(failed) => game.failed = Some(*failed),
        }
        Ok(game)
    }

    /// Offers the tools: by the template, else in its system message, or in the first message if it knows none.
    fn offer(&mut self, rules: &Rules<'_>, begun: environment::Begun) {
        let environment::Begun { mut messages, tools, offer } = begun;
        if tools.is_empty() || rules.template.source().contains("tools") {
            (self.messages, self.tools) = (messages, tools);
            return;
        }
        let system = |content: &str| json!({"role": "system", "content": content});
        if messages[0]["role"] != "system" {
            let with: Vec<Value> = std::iter::once(system(&offer)).chain(messages.iter().cloned()).collect();
            if rules.render(&with, &[]).is_ok() {
                messages.insert(0, system(""));
            }
        }
        let first = messages[0]["content"].as_str().unwrap_or_default();
        messages[0]["content"] = format!("{first}\n\n{offer}").trim().into();
        self.messages = messages;
    }

    /// Begins a part with a conversation of which nothing is trained.
    fn start(&mut self, rules: &Rules<'_>, text: String) -> anyhow::Result<()> {
        self.parts.push(Part { tokens: rules.language.encode(&text)?, sampled: Vec::new() });
        (self.text, self.playing) = (text, true);
        Ok(())
    }

    fn end(&mut self, finish: Finish) {
        (self.playing, self.completion.finish) = (false, finish);
    }

    /// Takes a turn of the policy, and has its calls answered.
    fn answer(&mut self, rules: &Rules<'a>, turn: Completion, last: bool) -> anyhow::Result<()> {
        let (language, part) = (rules.language, self.parts.last_mut().expect("it was sampled from"));
        part.sampled.extend(part.tokens.len()..part.tokens.len() + turn.tokens.len());
        part.tokens.extend_from_slice(&turn.tokens);
        self.completion.tokens.extend_from_slice(&turn.tokens);
        self.completion.logp.extend_from_slice(&turn.logp);
        self.completion.entropy.extend_from_slice(&turn.entropy);
        self.turns += 1;
        let ended = turn.tokens.last().is_some_and(|token| language.stop_tokens().contains(token));
        let said = language.decoded(&turn.tokens[..turn.tokens.len() - usize::from(ended)], true)?;
        // Where the template opens the thoughts, the turn begins in them: no call in them is made.
        let opened = self.text.rfind("<think>").map_or("", |at| &self.text[at..]);
        let said = if opened.trim_end() == "<think>" { format!("{opened}{said}") } else { said };
        self.text += &language.decoded(&turn.tokens, true)?;
        let message = json!({"role": "assistant", "content": said});
        if turn.finish == Finish::Length {
            self.messages.push(message);
            self.end(Finish::Length);
            return Ok(());
        }
        let Some(environment) = &mut self.environment else { return Ok(()) };
        let turned = match environment.turn(&said, last) {
            Ok(turned) => turned,
            Err(failed) => {
                (self.failed, self.environment) = (Some(*failed), None);
                self.end(Finish::Stop);
                return Ok(());
            }
        };
        if turned.ways.is_empty() {
            self.messages.push(message);
            self.end(if turned.called { Finish::Length } else { Finish::Stop });
            return Ok(());
        }
        let before = self.messages.len();
        let mut rendered = Err(anyhow::anyhow!("no form of the answers"));
        for way in turned.ways {
            self.messages.truncate(before);
            self.messages.extend(way);
            rendered = rules.render(&self.messages, &self.tools);
            if rendered.is_ok() {
                break;
            }
        }
        let text = rendered.context("a conversation with answers of tools")?;
        let Some(more) = text.strip_prefix(&self.text) else { return self.start(rules, text) };
        let answers = language.encode(more)?;
        self.parts.last_mut().expect("as above").tokens.extend(answers);
        self.text = text;
        Ok(())
    }

    fn grade(mut self, language: &Language) -> Episode {
        if self.playing {
            self.end(Finish::Length);
        }
        let graded = match (self.failed, self.environment) {
            (None, Some(environment)) => environment.reward(self.messages),
            (failed, _) => failed.unwrap_or_else(|| Graded::unscorable("not_played")),
        };
        let first =
            self.parts.first().map_or(0, |part| part.sampled.first().map_or(part.tokens.len(), |&at| at));
        let prompt = self.parts.first().map(|part| language.text(&part.tokens[..first])).unwrap_or_default();
        let whole = self.parts.last().map(|part| language.text(&part.tokens)).unwrap_or_default();
        let text = whole.strip_prefix(&prompt).unwrap_or(&whole).to_owned();
        Episode { parts: self.parts, completion: self.completion, turns: self.turns, prompt, text, graded }
    }
}
