//! Episodes: a policy talks to an environment and calls its tools. Sampled tokens are never encoded again. The chat template renders the answers
//! to a turn, and only the text after the previous one is encoded. If the template rewrites earlier turns, for example by cutting thoughts from
//! the history, a new part of the episode begins with the conversation as its prompt.

use crate::language::Language;
use crate::language::calls::{Call, calls};
use crate::language::chat::{ChatOptions, ChatTemplate};
use crate::policy::{Policy, Request, Sampling, Sequence};
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
    /// All tokens of the sequence.
    pub tokens: Vec<u32>,
    /// Indices of the tokens that the policy sampled, ascending.
    pub sampled: Vec<usize>,
    /// Number of messages of the conversation in the sequence's prompt.
    pub messages: usize,
}

impl Part {
    /// Returns the sequence with the sampled tokens as targets, or `None` if no token was sampled. Tokens after the last
    /// sampled one are left out, because they may exceed the model's positions.
    pub fn sequence(&self) -> Option<Sequence> {
        let tokens = self.tokens[..=*self.sampled.last()?].to_vec();
        Some(Sequence::of_indices(tokens, &self.sampled))
    }
}

/// An episode that has ended.
#[derive(Debug, Clone)]
pub struct Episode {
    /// Sequences of the episode: one, unless the template rewrites earlier turns.
    pub parts: Vec<Part>,
    /// The sampled tokens of all parts, in order. The completion counts as cut off if a turn, the number of turns or
    /// the model's positions reached their limit.
    pub completion: Completion,
    /// Number of the policy's turns.
    pub turns: u64,
    /// Text of the conversation before the first turn.
    pub prompt: String,
    /// Text of the rest of the conversation.
    pub text: String,
    /// The environment's grade.
    pub graded: Graded,
    /// The conversation.
    pub messages: Vec<Value>,
    /// Tools that the template offers.
    offered: Vec<Value>,
}

impl Episode {
    /// Returns the sequences of the episode with `hint` added to the last user message before the first turn. The prompt of each part is rendered
    /// again; the tokens after it stay as they are. As in [`Part::sequence`], tokens after the last sampled one are left out.
    ///
    /// # Errors
    /// Bad input: the first prompt lacks a user message with text, or the template can't render it.
    pub fn hinted(&self, rules: &Rules<'_>, hint: &str) -> anyhow::Result<Vec<Sequence>> {
        // An episode that couldn't begin has no parts.
        let Some(first) = self.parts.first().map(|part| part.messages) else { return Ok(Vec::new()) };
        let (index, text) = last_user_message(&self.messages[..first])?;
        let mut messages = self.messages.clone();
        messages[index]["content"] = format!("{text}{hint}").into();
        let mut sequences = Vec::new();
        for part in self.parts.iter().filter(|part| !part.sampled.is_empty()) {
            let text = rules.render(&messages[..part.messages], &self.offered)?;
            let mut tokens = rules.language.encode_parts(&text)?;
            let (from, to) = (part.sampled[0], part.sampled[part.sampled.len() - 1]);
            let sampled: Vec<usize> = part.sampled.iter().map(|at| at - from + tokens.len()).collect();
            tokens.extend_from_slice(&part.tokens[from..=to]);
            sequences.push(Sequence::of_indices(tokens, &sampled));
        }
        Ok(sequences)
    }
}

/// The episodes to play for a problem.
#[derive(Clone)]
pub struct Wanted<'a> {
    /// The problem's set, with its prompt settings and environment.
    pub set: &'a ProblemSet,
    /// The problem.
    pub problem: &'a Problem,
    /// Indices of the episodes.
    pub samples: std::ops::Range<usize>,
    /// Random key. The draws of episode `i` come from `key.with(i)`.
    pub key: Key,
    /// Whether the environment's feedback is requested with the reward.
    pub feedback: bool,
}

/// Plays all episodes in parallel, turn by turn, with at most `max_tokens` tokens in a turn. Returns the episodes of
/// each problem in order, or `None` once `go_on` returns `false`.
///
/// # Errors
/// Bad input: a template that can't render a conversation with tools, a prompt that leaves no position; errors from the engine.
pub fn play(
    policy: &mut Policy,
    requests: &[Wanted<'_>],
    max_tokens: usize,
    sampling: &Sampling,
    go_on: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<Vec<Vec<Episode>>>> {
    let (positions, language) = (policy.positions(), &*Arc::clone(policy.language()));
    // Each turn continues the sequences before it.
    let sampling = Sampling { keep_cache: true, ..*sampling };
    let mut players = Vec::new();
    for request in requests {
        for sample in request.samples.clone() {
            players.push(Player::begin(language, request, players.len(), sample)?);
        }
    }
    for turn in 0.. {
        let mut requests: Vec<Request> = Vec::new();
        let mut active: Vec<usize> = Vec::new();
        for (at, player) in players.iter_mut().enumerate() {
            let Some(tokens) = player.game.prompt(positions) else { continue };
            active.push(at);
            let (samples, key) = match turn {
                0 => (player.sample..player.sample + 1, player.key),
                later => (0..1, player.key.with(player.sample as u64).with(later)),
            };
            match requests.last_mut() {
                // Episodes with the same prompt share a request, so that it is computed once.
                Some(last)
                    if last.key == key && last.prompt == tokens && last.samples.end == samples.start =>
                {
                    last.samples.end = samples.end;
                }
                _ => requests.push(Request { prompt: tokens.to_vec(), samples, max_tokens, stop: None, key }),
            }
        }
        if active.is_empty() {
            break;
        }
        let Some(drawn) = policy.sample_while(&requests, &sampling, go_on)? else { return Ok(None) };
        for (at, completion) in active.into_iter().zip(drawn.into_iter().flatten()) {
            players[at].answer(completion)?;
            if !go_on() {
                return Ok(None);
            }
        }
    }
    let mut grades = players.into_iter().map(|player| player.grade(language));
    let episodes =
        requests.iter().map(|request| grades.by_ref().take(request.samples.len()).collect()).collect();
    Ok(go_on().then_some(episodes))
}

/// Returns the tokens of the first prompt of a problem's episode, including the tools and the text of `reset`.
///
/// # Errors
/// Bad input: a template that can't render the conversation, an environment that fails.
pub fn first_prompt(language: &Language, set: &ProblemSet, problem: &Problem) -> anyhow::Result<Vec<u32>> {
    Ok(begin(language, set, problem)?.parts.into_iter().flat_map(|part| part.tokens).collect())
}

/// Fails if a teacher's hint can't be added to a problem's first prompt, or if its environment gives no feedback but `needs_feedback` is true.
///
/// # Errors
/// Bad input that names the method or the missing message; otherwise as [`first_prompt`].
pub fn check_hint(
    language: &Language,
    set: &ProblemSet,
    problem: &Problem,
    needs_feedback: bool,
) -> anyhow::Result<()> {
    let game = begin(language, set, problem)?;
    last_user_message(&game.messages)?;
    if needs_feedback && !game.gives_feedback {
        bad_input!(
            "teacher.hint: {{feedback}} requires an environment with a method feedback(self), but the environment of row {} has none; add the method, which returns a string, to the class in task.environment",
            problem.row
        );
    }
    Ok(())
}

/// Returns the index and the text of the message to which a hint is added: the last one of the user.
fn last_user_message(messages: &[Value]) -> anyhow::Result<(usize, &str)> {
    let user = messages.iter().rposition(|message| message["role"] == "user");
    let Some((index, text)) = user.and_then(|index| Some((index, messages[index]["content"].as_str()?)))
    else {
        bad_input!(
            "teacher.hint: the prompt of an episode has no user message with text, to which the hint is added"
        )
    };
    Ok((index, text))
}

/// Begins an episode of a problem.
fn begin(language: &Language, set: &ProblemSet, problem: &Problem) -> anyhow::Result<Game> {
    let request = Wanted { set, problem, samples: 0..1, key: Key::new(0), feedback: false };
    let Player { game, environment, .. } = Player::begin(language, &request, 0, 0)?;
    match environment {
        Ok(_) => Ok(game),
        Err(failed) => bad_input!(
            "task.environment: {} when it started row {}; it printed:\n{}",
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
    feedback: bool,
    game: Game,
    /// The environment's episode, or the grade if the environment failed.
    environment: Result<environment::Episode<'a>, Box<Graded>>,
}

impl<'a> Player<'a> {
    fn begin(
        language: &'a Language,
        request: &Wanted<'a>,
        index: usize,
        sample: usize,
    ) -> anyhow::Result<Self> {
        let Wanted { set, problem, key, feedback, .. } = *request;
        let (Truth::Environment(environment::Truth { columns }), Some((program, max_turns))) =
            (&problem.truth, set.grader.environment())
        else {
            unreachable!("the kind of the task is the kind of its problems")
        };
        let rules = Rules::new(language, set.prompt.thinking)?;
        // A problem may occur twice, so its id can't be the name.
        let name = index.to_string();
        let messages = json!(set.conversation(problem));
        let start = environment::Episode::begin(program, &name, columns, messages);
        let (game, environment) = match start {
            Ok((environment, start)) => (Game::begin(&rules, start)?, Ok(environment)),
            Err(failed) => (Game::default(), Err(failed)),
        };
        Ok(Self { rules, sample, key, max_turns, feedback, game, environment })
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
        let Game { messages, parts, mut completion, turns, offered, .. } = self.game;
        completion.sample = self.sample;
        let graded = match self.environment {
            Ok(environment) => environment.reward(&messages, self.feedback),
            Err(failed) => *failed,
        };
        let first = parts.first().map_or(0, |part| part.sampled.first().map_or(part.tokens.len(), |&at| at));
        let prompt = parts.first().map(|part| language.text(&part.tokens[..first])).unwrap_or_default();
        let whole = parts.last().map(|part| language.text(&part.tokens)).unwrap_or_default();
        let text = whole.strip_prefix(&prompt).unwrap_or(&whole).to_owned();
        Episode { parts, completion, turns, prompt, text, graded, messages, offered }
    }
}

/// Settings that turn a conversation into tokens.
pub struct Rules<'a> {
    language: &'a Language,
    template: &'a ChatTemplate,
    thinking: Option<bool>,
}

impl<'a> Rules<'a> {
    /// Makes the settings from a model's tokenizer and chat template. `thinking` is the template's switch for thoughts.
    ///
    /// # Errors
    /// Bad input: the model lacks a chat template.
    pub fn new(language: &'a Language, thinking: Option<bool>) -> anyhow::Result<Self> {
        let Some(template) = language.template() else {
            bad_input!("environment: requires a model with a chat template, for the conversation");
        };
        Ok(Self { language, template, thinking })
    }

    /// Renders a conversation for [`Language::encode_parts`]. Special tokens in text that the policy didn't write are encoded as plain text.
    pub fn render(&self, messages: &[Value], tools: &[Value]) -> anyhow::Result<String> {
        let options = ChatOptions { enable_thinking: self.thinking, ..ChatOptions::default() };
        let broken = |message: &Value| {
            if message["role"] != "assistant" {
                return self.broken(message);
            }
            let mut message = message.clone();
            if let Some(responses) = message.get_mut("tool_responses") {
                *responses = self.broken(responses);
            }
            message
        };
        let messages: Vec<Value> = messages.iter().map(broken).collect();
        self.template.render_values(&messages, &(!tools.is_empty()).then_some(tools), &options)
    }

    /// Reads the tool calls in a turn of the policy that follows the rendered conversation `before`. Returns the turn, beginning with the thoughts
    /// that `before` opened, the length of its text before the first call, and the calls. Calls in thoughts don't count.
    pub fn heard(&self, before: &str, content: String, tools: &[Value]) -> (String, usize, Vec<Call>) {
        let open = self.template.tags().unwrap_or_default().open;
        let opening = before.rfind(&open).map_or("", |at| &before[at..]);
        let content = if opening.trim_end() == open { format!("{opening}{content}") } else { content };
        let (text, calls) = calls(&content, self.template, tools);
        let length = text.len();
        (content, length, calls)
    }

    /// Separates the thoughts of a turn from the rest, if the template takes thoughts as a field of a message.
    fn separated<'b>(&self, turn: &'b str) -> (Option<&'b str>, &'b str) {
        let tags = self.template.tags().filter(|_| self.template.source().contains("reasoning_content"));
        let parts = tags.and_then(|tags| turn.strip_prefix(&tags.open)?.split_once(&tags.close));
        parts.map_or((None, turn), |(thoughts, rest)| (Some(thoughts), rest))
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

/// An episode in progress. The caller samples the turns and runs the environment.
#[derive(Debug, Clone, Default)]
pub struct Game {
    /// The conversation.
    pub messages: Vec<Value>,
    /// Sequences of the episode so far, as in [`Episode::parts`].
    pub parts: Vec<Part>,
    /// The sampled tokens so far, as in [`Episode::completion`].
    pub completion: Completion,
    /// Number of the policy's turns.
    pub turns: u64,
    /// Whether the episode ended because the last allowed turn still called a tool.
    pub out_of_turns: bool,
    playing: bool,
    /// Whether the environment has a method `feedback`.
    gives_feedback: bool,
    /// Schemas of the tools.
    tools: Vec<Value>,
    /// Tools that the template offers.
    offered: Vec<Value>,
    /// Text of the last part.
    text: String,
}

impl Game {
    /// Begins an episode. The template offers the tools if it supports them. Otherwise the system message offers
    /// them, or the first message if the template doesn't support system messages.
    ///
    /// # Errors
    /// Bad input: a conversation that the template can't render.
    pub fn begin(rules: &Rules<'_>, begun: environment::Begun) -> anyhow::Result<Self> {
        let environment::Begun { mut messages, tools, offer, feedback: gives_feedback, .. } = begun;
        let mut offered = tools.clone();
        if !tools.is_empty() && !rules.template.source().contains("tools") {
            offered.clear();
            let system = |content: &str| json!({"role": "system", "content": content});
            if messages[0]["role"] != "system" {
                let conversation: Vec<Value> =
                    std::iter::once(system(&offer)).chain(messages.iter().cloned()).collect();
                if rules.render(&conversation, &[]).is_ok() {
                    messages.insert(0, system(""));
                }
            }
            let Some(first) = messages[0]["content"].as_str() else {
                bad_input!("messages[0].content: expected a string, found {}", messages[0]["content"]);
            };
            messages[0]["content"] = format!("{first}\n\n{offer}").trim().into();
        }
        let text = rules.render(&messages, &offered)?;
        let mut game = Self { messages, tools, offered, playing: true, gives_feedback, ..Self::default() };
        game.start(rules, text)?;
        Ok(game)
    }

    /// Begins a part. The conversation so far is its prompt, which isn't trained on.
    fn start(&mut self, rules: &Rules<'_>, text: String) -> anyhow::Result<()> {
        let (tokens, messages) = (rules.language.encode_parts(&text)?, self.messages.len());
        self.parts.push(Part { tokens, sampled: Vec::new(), messages });
        self.text = text;
        Ok(())
    }

    /// Returns the tokens before the policy's next turn, or `None` if the episode has ended, or ends because these
    /// tokens fill the model's positions.
    pub fn prompt(&mut self, positions: usize) -> Option<&[u32]> {
        if self.playing && self.parts.last()?.tokens.len() >= positions {
            self.end(Finish::Length);
        }
        self.parts.last().filter(|_| self.playing).map(|part| part.tokens.as_slice())
    }

    fn end(&mut self, finish: Finish) {
        (self.playing, self.completion.finish) = (false, finish);
    }

    /// Adds a turn of the policy. Returns its tool calls, for the environment, or `None` if the turn ends the episode, because it was cut off,
    /// doesn't call a tool, or is the last one.
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
        let has_stop = turn.tokens.last().is_some_and(|token| language.stop_tokens().contains(token));
        let content = language.decoded(&turn.tokens[..turn.tokens.len() - usize::from(has_stop)], true)?;
        let (content, _, calls) = rules.heard(&self.text, content, &self.tools);
        self.text += &language.decoded(&turn.tokens, true)?;
        self.messages.push(json!({"role": "assistant", "content": content}));
        let whole = turn.finish != Finish::Length;
        if !whole || last || calls.is_empty() {
            self.out_of_turns = whole && !calls.is_empty();
            self.end(if whole && calls.is_empty() { Finish::Stop } else { Finish::Length });
            return Ok(None);
        }
        Ok(Some(calls))
    }

    /// Adds the tools' results for the calls of the last turn, in the first form in which the template writes the
    /// results and continues the text so far. Otherwise a new part begins.
    ///
    /// # Errors
    /// Bad input: results that the template can't render.
    pub fn go_on(&mut self, rules: &Rules<'_>, calls: &[Call], results: &[String]) -> anyhow::Result<()> {
        let Some(turn) = self.messages.pop() else { unreachable!("`hear` added a turn") };
        let before = self.messages.len();
        let fields: Vec<Value> =
            calls.iter().enumerate().map(|(i, call)| call.field(&format!("{i:09}"))).collect();
        let (thoughts, speech) = rules.separated(turn["content"].as_str().unwrap_or_default());
        let with_thoughts = |content: &str, thoughts: Option<&str>| {
            let thoughts = thoughts.map(|text| ("reasoning_content".to_owned(), Value::from(text)));
            let message = [("role".to_owned(), "assistant".into()), ("content".to_owned(), content.into())];
            message.into_iter().chain(thoughts).collect::<Value>()
        };
        let trimmed = thoughts.map(|text| text.trim_matches('\n'));
        let mut called = with_thoughts("", trimmed);
        called["tool_calls"] = fields.into();
        // Forms of the turn with its answers: as sampled, with thoughts as a field, with calls as fields (which some
        // templates require), and two with the answers in Gemma 4's field.
        let forms = |results: &[String]| -> [Vec<Value>; 5] {
            let names = calls.iter().map(|call| call.name.as_deref().unwrap_or("unknown"));
            let named = || names.clone().zip(results).enumerate();
            let tool = |(i, (name, result))| json!({"role": "tool", "name": name, "tool_call_id": format!("{i:09}"), "content": result});
            let answers: Vec<Value> = named().map(tool).collect();
            let responses: Value =
                named().map(|(_, (name, result))| json!({"name": name, "response": result})).collect();
            let with_responses = |mut message: Value| {
                message["tool_responses"] = responses.clone();
                message
            };
            let answered = |message: Value| [vec![message], answers.clone()].concat();
            [
                answered(turn.clone()),
                answered(with_thoughts(speech, thoughts)),
                answered(called.clone()),
                vec![with_responses(called.clone())],
                vec![with_thoughts(speech, trimmed), with_responses(with_thoughts("", None))],
            ]
        };
        let mut rendered = |form: &[Value]| {
            self.messages.truncate(before);
            self.messages.extend_from_slice(form);
            rules.render(&self.messages, &self.offered)
        };
        let others: Vec<String> = results.iter().map(|result| format!(".{result}")).collect();
        let mut best = None;
        for (i, (form, other)) in forms(results).into_iter().zip(forms(&others)).enumerate() {
            let Ok(text) = rendered(&form) else { continue };
            if rendered(&other).is_ok_and(|other| other == text) {
                continue; // The template leaves out the answers of this form.
            }
            let continues = text.starts_with(&self.text);
            // A template with a field for thoughts may write thoughts in the content a second time.
            if continues || best.is_none() || i == 1 {
                best = Some((form, text));
            }
            if continues {
                break;
            }
        }
        let (form, text) = match best {
            Some(best) => best,
            None => {
                let form = vec![turn, json!({"role": "user", "content": results.join("\n")})];
                let text = rendered(&form).context("rendering a conversation with tools' answers")?;
                (form, text)
            }
        };
        self.messages.truncate(before);
        self.messages.extend(form);
        let Some(more) = text.strip_prefix(&self.text) else { return self.start(rules, text) };
        let answers = rules.language.encode_parts(more)?;
        self.parts.last_mut().expect("as above").tokens.extend(answers);
        self.text = text;
        Ok(())
    }
}
