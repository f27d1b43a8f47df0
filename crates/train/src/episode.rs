//! Episodes: a policy talks to an environment and calls its tools.
//!
//! A token that was sampled is never encoded again. The answers to a turn are rendered by the chat template, and what follows
//! the text so far is encoded. Where the template rewrites earlier turns, as when it cuts thoughts from the history, a new part
//! of the episode begins with the conversation as a prompt.

use crate::language::Language;
use crate::language::calls::{Call, calls};
use crate::language::chat::{ChatOptions, ChatTemplate};
use crate::policy::{Policy, Request, Sampling};
use anyhow::Context;
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::graded::Graded;
use fgrpo_eval::kind::{Truth, environment};
use fgrpo_eval::problems::ProblemSet;
use fgrpo_nn::{Completion, Finish};
use serde_json::{Value, json};
use std::sync::Arc;

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
#[derive(Clone)]
pub struct Wanted<'a> {
    /// How it is prompted, and what has its environments.
    pub set: &'a ProblemSet,
    /// The problem.
    pub problem: &'a Problem,
    /// Its episodes' indices.
    pub samples: std::ops::Range<usize>,
    /// The random draws of episode `i` are of `key.with(i)`.
    pub key: Key,
}

/// Plays episodes turn by turn, all of them at once, with at most `max_tokens` tokens in a turn. The episodes of each problem come in order. `None` if `go_on` returns false.
///
/// # Errors
/// Bad input: a template that can't render a conversation with tools, a prompt that leaves no position; errors from the engine.
pub fn play(
    policy: &mut Policy,
    wanted: &[Wanted<'_>],
    max_tokens: usize,
    sampling: &Sampling,
    go_on: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<Vec<Vec<Episode>>>> {
    let (positions, language) = (policy.positions(), &*Arc::clone(policy.language()));
    // Each turn continues the sequences before it.
    let sampling = Sampling { keep_cache: true, ..*sampling };
    let mut players = Vec::new();
    for wanted in wanted {
        for sample in wanted.samples.clone() {
            players.push(Player::begin(language, wanted, (players.len(), sample))?);
        }
    }
    for turn in 0.. {
        let mut requests: Vec<Request> = Vec::new();
        let mut asked: Vec<usize> = Vec::new();
        for (at, player) in players.iter_mut().enumerate() {
            let Some(tokens) = player.game.prompt(positions) else { continue };
            asked.push(at);
            let (samples, key) = match turn {
                0 => (player.sample..player.sample + 1, player.key),
                later => (0..1, player.key.with(player.sample as u64).with(later)),
            };
            match requests.last_mut() {
                // Their prompt is computed once.
                Some(last)
                    if last.key == key && last.prompt == tokens && last.samples.end == samples.start =>
                {
                    last.samples.end = samples.end;
                }
                _ => requests.push(Request { prompt: tokens.to_vec(), samples, max_tokens, stop: None, key }),
            }
        }
        if asked.is_empty() {
            break;
        }
        let Some(drawn) = policy.sample_while(&requests, &sampling, go_on)? else { return Ok(None) };
        for (at, completion) in asked.into_iter().zip(drawn.into_iter().flatten()) {
            players[at].answer(completion)?;
            if !go_on() {
                return Ok(None);
            }
        }
    }
    let mut ended = players.into_iter().map(|player| player.grade(language));
    let episodes = wanted.iter().map(|wanted| ended.by_ref().take(wanted.samples.len()).collect()).collect();
    Ok(go_on().then_some(episodes))
}

/// Returns the tokens of the first prompt of a problem's episode: with the tools, and with the text of `reset`.
///
/// # Errors
/// Bad input: a template that can't render the conversation, an environment that fails.
pub fn first_prompt(language: &Language, set: &ProblemSet, problem: &Problem) -> anyhow::Result<Vec<u32>> {
    let wanted = Wanted { set, problem, samples: 0..1, key: Key::new(0) };
    let Player { game, environment, .. } = Player::begin(language, &wanted, (0, 0))?;
    match environment {
        Ok(_) => Ok(game.parts.into_iter().flat_map(|part| part.tokens).collect()),
        Err(failed) => bad_input!(
            "task.environment: {} when it began row {}; it printed:\n{}",
            failed.reason,
            problem.row,
            failed.printed.unwrap_or_default().trim_end()
        ),
    }
}

/// An episode with the environment of its task.
struct Player<'a> {
    rules: Rules<'a>,
    sample: usize,
    key: Key,
    max_turns: usize,
    game: Game,
    /// Its grade after it failed.
    environment: Result<environment::Episode<'a>, Box<Graded>>,
}

impl<'a> Player<'a> {
    fn begin(
        language: &'a Language,
        wanted: &Wanted<'a>,
        (index, sample): (usize, usize),
    ) -> anyhow::Result<Self> {
        let Wanted { set, problem, key, .. } = *wanted;
        let (Truth::Environment(environment::Truth { columns }), Some((program, max_turns))) =
            (&problem.truth, set.grader.environment())
        else {
            unreachable!("the kind of the task is the kind of its problems")
        };
        let rules = Rules::new(language, set.prompt.thinking)?;
        // A problem may come twice, so its id is no name.
        let name = index.to_string();
        let messages = json!(set.conversation(problem));
        let begun = environment::Episode::begin(program, &name, columns, messages);
        let (game, environment) = match begun {
            Ok((environment, begun)) => (Game::begin(&rules, begun)?, Ok(environment)),
            Err(failed) => (Game::default(), Err(failed)),
        };
        Ok(Self { rules, sample, key, max_turns, game, environment })
    }

    fn answer(&mut self, turn: Completion) -> anyhow::Result<()> {
        let last = self.game.turns + 1 == self.max_turns as u64;
        let Some(calls) = self.game.hear(&self.rules, turn, last)? else { return Ok(()) };
        let environment =
            self.environment.as_mut().expect("the policy has no turn in an episode that failed");
        match environment.turn(json!(calls)) {
            Ok(results) => self.game.go_on(&self.rules, &calls, &results)?,
            Err(failed) => {
                self.game.end(Finish::Stop);
                self.environment = Err(failed);
            }
        }
        Ok(())
    }

    fn grade(self, language: &Language) -> Episode {
        let Game { messages, parts, mut completion, turns, .. } = self.game;
        completion.sample = self.sample;
        let graded = match self.environment {
            Ok(environment) => environment.reward(messages),
            Err(failed) => *failed,
        };
        let first = parts.first().map_or(0, |part| part.sampled.first().map_or(part.tokens.len(), |&at| at));
        let prompt = parts.first().map(|part| language.text(&part.tokens[..first])).unwrap_or_default();
        let whole = parts.last().map(|part| language.text(&part.tokens)).unwrap_or_default();
        let text = whole.strip_prefix(&prompt).unwrap_or(&whole).to_owned();
        Episode { parts, completion, turns, prompt, text, graded }
    }
}

/// How a conversation becomes tokens.
pub struct Rules<'a> {
    language: &'a Language,
    template: &'a ChatTemplate,
    thinking: Option<bool>,
}

impl<'a> Rules<'a> {
    /// Those of a language. `thinking`: the template's switch for thoughts.
    ///
    /// # Errors
    /// Bad input: a language without a chat template.
    pub fn new(language: &'a Language, thinking: Option<bool>) -> anyhow::Result<Self> {
        let Some(template) = language.template() else {
            bad_input!(
                "environment: found a model without a chat template, wanted one with it: a conversation needs one"
            );
        };
        Ok(Self { language, template, thinking })
    }

    /// Renders a conversation for [`Language::encode_parts`]. Texts that the policy didn't write become no special tokens.
    pub fn render(&self, messages: &[Value], tools: &[Value]) -> anyhow::Result<String> {
        let options = ChatOptions { enable_thinking: self.thinking, ..ChatOptions::default() };
        let broken = |message: &Value| match message["role"] == "assistant" {
            true => message.clone(),
            false => self.broken(message),
        };
        let messages: Vec<Value> = messages.iter().map(broken).collect();
        self.template.render_values(&messages, &(!tools.is_empty()).then_some(tools), &options)
    }

    /// Returns a turn of the policy with the thoughts that the text before it opened, the length of what precedes the first call in it, and the calls.
    /// No call in the thoughts is made.
    pub fn heard(&self, before: &str, said: String, tools: &[Value]) -> (String, usize, Vec<Call>) {
        let open = self.template.tags().unwrap_or_default().open;
        let opened = before.rfind(&open).map_or("", |at| &before[at..]);
        let said = if opened.trim_end() == open { format!("{opened}{said}") } else { said };
        let (spoken, found) = calls(&said, self.template, tools);
        let spoken = spoken.len();
        (said, spoken, found)
    }

    fn broken(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.language.broken(text).into(),
            Value::Array(list) => list.iter().map(|item| self.broken(item)).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| (key.clone(), self.broken(value))).collect::<Value>()
            }
            other => other.clone(),
        }
    }
}

/// An episode that is being played. Whoever plays it samples the turns, and asks the environment.
#[derive(Debug, Clone, Default)]
pub struct Game {
    /// The conversation.
    pub messages: Vec<Value>,
    /// As [`Episode::parts`].
    pub parts: Vec<Part>,
    /// As [`Episode::completion`].
    pub completion: Completion,
    /// Turns of the policy.
    pub turns: u64,
    /// Whether the last turn that it had called a tool.
    pub out_of_turns: bool,
    playing: bool,
    /// The schemas of the tools.
    tools: Vec<Value>,
    /// The tools that the template offers.
    offered: Vec<Value>,
    /// The text of the last part.
    text: String,
}

impl Game {
    /// Begins an episode. The tools are offered by the template, else in its system message, or in the first message if it
    /// knows none.
    ///
    /// # Errors
    /// Bad input: a conversation that the template can't render.
    pub fn begin(rules: &Rules<'_>, begun: environment::Begun) -> anyhow::Result<Self> {
        let environment::Begun { mut messages, tools, offer } = begun;
        let mut offered = tools.clone();
        if !tools.is_empty() && !rules.template.source().contains("tools") {
            offered.clear();
            let system = |content: &str| json!({"role": "system", "content": content});
            if messages[0]["role"] != "system" {
                let with: Vec<Value> =
                    std::iter::once(system(&offer)).chain(messages.iter().cloned()).collect();
                if rules.render(&with, &[]).is_ok() {
                    messages.insert(0, system(""));
                }
            }
            let Some(first) = messages[0]["content"].as_str() else {
                bad_input!("messages[0].content: found {}, wanted a text", messages[0]["content"]);
            };
            messages[0]["content"] = format!("{first}\n\n{offer}").trim().into();
        }
        let text = rules.render(&messages, &offered)?;
        let mut game = Self { messages, tools, offered, playing: true, ..Self::default() };
        game.start(rules, text)?;
        Ok(game)
    }

    /// Begins a part with a conversation of which nothing is trained.
    fn start(&mut self, rules: &Rules<'_>, text: String) -> anyhow::Result<()> {
        self.parts.push(Part { tokens: rules.language.encode_parts(&text)?, sampled: Vec::new() });
        self.text = text;
        Ok(())
    }

    /// The tokens before the policy's next turn. `None` if the episode has ended, as it does when they fill the model's positions.
    pub fn prompt(&mut self, positions: usize) -> Option<&[u32]> {
        if self.playing && self.parts.last()?.tokens.len() >= positions {
            self.end(Finish::Length);
        }
        self.parts.last().filter(|_| self.playing).map(|part| part.tokens.as_slice())
    }

    fn end(&mut self, finish: Finish) {
        (self.playing, self.completion.finish) = (false, finish);
    }

    /// Takes a turn of the policy. Returns its calls, which the environment answers, or `None` if it ends the episode: the turn was
    /// cut off, or doesn't call a tool, or is the last one.
    ///
    /// # Errors
    /// Tokens that can't be decoded.
    pub fn hear(
        &mut self,
        rules: &Rules<'_>,
        turn: Completion,
        last: bool,
    ) -> anyhow::Result<Option<Vec<Call>>> {
        let (language, part) = (rules.language, self.parts.last_mut().expect("it was sampled from"));
        part.sampled.extend(part.tokens.len()..part.tokens.len() + turn.tokens.len());
        part.tokens.extend_from_slice(&turn.tokens);
        self.completion.tokens.extend_from_slice(&turn.tokens);
        self.completion.logp.extend_from_slice(&turn.logp);
        self.completion.entropy.extend_from_slice(&turn.entropy);
        self.turns += 1;
        let ended = turn.tokens.last().is_some_and(|token| language.stop_tokens().contains(token));
        let said = language.decoded(&turn.tokens[..turn.tokens.len() - usize::from(ended)], true)?;
        let (said, _, found) = rules.heard(&self.text, said, &self.tools);
        self.text += &language.decoded(&turn.tokens, true)?;
        self.messages.push(json!({"role": "assistant", "content": said}));
        let whole = turn.finish != Finish::Length;
        if !whole || last || found.is_empty() {
            self.out_of_turns = whole && !found.is_empty();
            self.end(if whole && found.is_empty() { Finish::Stop } else { Finish::Length });
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// Goes on with the tools' answers to the calls of the turn.
    ///
    /// # Errors
    /// Bad input: answers that the template can't render.
    pub fn go_on(&mut self, rules: &Rules<'_>, calls: &[Call], results: &[String]) -> anyhow::Result<()> {
        let Some(said) = self.messages.pop() else { unreachable!("a turn was heard") };
        let before = self.messages.len();
        let answer = |(i, (call, result)): (usize, (&Call, &String))| {
            let name = call.name.as_deref().unwrap_or("unknown");
            json!({"role": "tool", "name": name, "tool_call_id": format!("{i:09}"), "content": result})
        };
        let answers: Vec<Value> = calls.iter().zip(results).enumerate().map(answer).collect();
        let fields: Vec<Value> =
            calls.iter().enumerate().map(|(i, call)| call.field(&format!("{i:09}"))).collect();
        let called = json!({"role": "assistant", "content": "", "tool_calls": fields});
        let spoken = json!({"role": "user", "content": results.join("\n")});
        // As it was said; for templates that take calls as fields alone; for those that know neither calls nor tools.
        let ways = [
            [vec![said.clone()], answers.clone()].concat(),
            [vec![called], answers].concat(),
            vec![said, spoken],
        ];
        let mut rendered = Err(anyhow::anyhow!("no form of the answers"));
        for way in ways {
            self.messages.truncate(before);
            self.messages.extend(way);
            rendered = rules.render(&self.messages, &self.offered);
            if rendered.is_ok() {
                break;
            }
        }
        let text = rendered.context("a conversation with answers of tools")?;
        let Some(more) = text.strip_prefix(&self.text) else { return self.start(rules, text) };
        let answers = rules.language.encode_parts(more)?;
        self.parts.last_mut().expect("as above").tokens.extend(answers);
        self.text = text;
        Ok(())
    }
}
