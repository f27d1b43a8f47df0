//! The user's own verifier: a program that reads one JSON line per completion and answers with one JSON line.
//!
//! Input: `{"id": 7, "problem": <row of the data set>, "completion": "...", "answer_text": "..."}`; `answer_text` is what
//! follows the thoughts of the completion. Output: `{"score": 0.5}`, or
//! `{"unscorable": "why"}` if the program can't judge the completion. It may include `"id": 7` to show which question
//! it answers. The score is the reward; a completion counts as correct if its score is at least `correct_from`.
//!
//! Each grading thread has its own child process, which is started once and kept. If a child doesn't answer in time,
//! dies or gives an invalid answer, its whole process group is killed, a new child replaces it, and the completion is
//! unscorable: a failure never becomes a score. The child's standard error is passed through. A request to stop the
//! program ends the wait for an answer at once.
//!
//! There is no sandbox: the program runs with the user's rights.

use crate::graded::{Graded, LARGEST_REWARD, Response};
use crate::io::interrupt;
use crate::io::process_group::ProcessGroup;
use fgrpo_verify::verdict::Verdict;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest answer line in bytes; a longer line is invalid.
const LONGEST_ANSWER: usize = 1 << 20;

/// Interval at which a wait for an answer checks for a request to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest timeout that can be configured: one day.
const LONGEST_WAIT_S: f64 = 86_400.0;

/// How to run the program. Kind `command` has a command, kind `python` a function.
#[derive(Debug, Clone, PartialEq, serde::Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The program and its arguments: a text, which is split at white space, or a list.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "text_or_list")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::text_or_list"))]
    pub command: Vec<String>,
    /// The function, as `"grade.py:reward"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Time limit for one answer, in seconds.
    pub timeout_s: f64,
    /// Additional seconds for the first answer of a process.
    pub startup_s: f64,
    /// Lowest score that counts as correct.
    pub correct_from: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { command: Vec::new(), function: None, timeout_s: 10.0, startup_s: 30.0, correct_from: 1.0 }
    }
}

impl Settings {
    /// Settings from a command line, split at white space; quotes keep white space together.
    /// Fails if the command line is empty, or a quote isn't closed.
    pub fn parse(line: &str) -> anyhow::Result<Self> {
        Ok(Self { command: words(line)?, ..Self::default() })
    }

    /// Settings for a Python function, as `grade.py:reward`.
    pub fn of_function(function: &str) -> Self {
        Self { function: Some(function.to_owned()), ..Self::default() }
    }

    /// Reads a command as a text, a list or a table with limits.
    pub fn read_command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        deserializer
            .deserialize_any(TextOrTable("a command line, a list of words or a table", Self::parse))
            .map(Some)
    }

    /// Reads a Python function as a text or a table with limits.
    pub fn read_function<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let read = |text: &str| Ok(Self::of_function(text));
        deserializer
            .deserialize_any(TextOrTable("\"FILE.py:FUNCTION\" or a table with `function`", read))
            .map(Some)
    }
}

/// The schemas of what is read.
#[cfg(feature = "schema")]
pub mod schema {
    use super::Settings;
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    /// A command as a text, a list or a table.
    pub fn command(generator: &mut SchemaGenerator) -> Schema {
        short_or_table(text_or_list(generator), "function", generator)
    }

    /// A Python function as a text or a table.
    pub fn function(generator: &mut SchemaGenerator) -> Schema {
        short_or_table(String::json_schema(generator), "command", generator)
    }

    pub(super) fn text_or_list(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
    }

    fn short_or_table(short: Schema, other: &str, generator: &mut SchemaGenerator) -> Schema {
        let mut table = Settings::json_schema(generator);
        table.get_mut("properties").and_then(|keys| keys.as_object_mut()?.shift_remove(other));
        json_schema!({ "anyOf": [short, table] })
    }
}

/// Reads [`Settings`] from a text alone, from the words of a command, or from a table.
struct TextOrTable(&'static str, fn(&str) -> anyhow::Result<Settings>);

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Settings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Settings, E> {
        self.1(text).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Settings, A::Error> {
        let command = Vec::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(Settings { command, ..Settings::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Settings, A::Error> {
        Settings::deserialize(MapAccessDeserializer::new(table))
    }
}

/// Reads the words of a command from a list, or from one text.
fn text_or_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let wanted = "a command line or a list of words";
    Ok(deserializer.deserialize_any(TextOrTable(wanted, Settings::parse))?.command)
}

/// Splits a command line like a shell, without expansions.
fn words(line: &str) -> anyhow::Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        bad_input!("command: found an unclosed quote in {line:?}");
    }
    words.extend(word);
    if words.is_empty() {
        bad_input!("command: found nothing, wanted a program and its arguments");
    }
    Ok(words)
}

/// A function of this process that answers questions, line by line, as a program would.
pub type Answerer = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// How the configuration names the answerer of this process.
pub const THIS_PROCESS: &str = "<python>:";

static ANSWERER: Mutex<Option<Answerer>> = Mutex::new(None);

/// Lets a function of this process grade where the configuration names [`THIS_PROCESS`]; `None` ends that.
pub fn grade_here(answerer: Option<Answerer>) {
    *ANSWERER.lock().unwrap_or_else(|e| e.into_inner()) = answerer;
}

/// Reads the answer to the question of a number, or says what is wrong with it.
type ReadAnswer<'a, T> = &'a dyn Fn(&[u8], u64) -> Result<T, String>;

/// What answers: the children of one program, one for each thread that is grading, or a function of this process.
pub struct Program {
    settings: Settings,
    idle: Mutex<Vec<Worker>>,
    here: Option<Answerer>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Program {
    /// Starts the first child, so that a wrong command is detected before any work is done.
    /// Fails if the settings are invalid or the program can't be started; both are bad input.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let (timeout, startup) = (settings.timeout_s, settings.startup_s);
        if !(timeout > 0.0 && timeout <= LONGEST_WAIT_S && (0.0..=LONGEST_WAIT_S).contains(&startup)) {
            bad_input!(
                "command: timeout_s: found {timeout}, startup_s: found {startup}; wanted 0 (timeout_s: above 0) to {LONGEST_WAIT_S}"
            );
        }
        if settings.function.as_ref().is_some_and(|function| function.starts_with(THIS_PROCESS)) {
            let here = ANSWERER.lock().unwrap_or_else(|e| e.into_inner()).clone();
            if here.is_none() {
                bad_input!(
                    "grader: found {}, a function of the Python process that began this run; continue the run with fgrpo.train, or name a file with grader = \"FILE.py:FUNCTION\"",
                    settings.function.unwrap_or_default()
                );
            }
            return Ok(Self { settings, idle: Mutex::default(), here });
        }
        let Some(program) = settings.command.first() else {
            bad_input!("command: found nothing, wanted a program and its arguments");
        };
        match Worker::start(&settings) {
            Ok(worker) => Ok(Self { settings, idle: Mutex::new(vec![worker]), here: None }),
            Err(error) => bad_input!("command: cannot start {program:?}: {error}"),
        }
    }

    /// Asks the program to judge two completions of a problem, an empty one and a short one, so that a program that
    /// doesn't work is detected before any work is done. At least one of the two must get an answer.
    pub fn check(&self, problem: &Value) -> anyhow::Result<()> {
        let (mut last, mut shown) = (String::new(), String::new());
        for completion in ["", "The answer is 1."] {
            let response = Response { text: completion, answer: completion };
            let Graded { reason, reward, printed, .. } = self.grade_response(problem, response);
            // "unscorable" from the program itself counts as an answer too.
            let failed = reward.is_none()
                && ["timeout", "died", "bad_answer: ", "not_started: ", "raised "]
                    .iter()
                    .any(|f| reason.starts_with(f));
            if !failed {
                if !last.is_empty() {
                    tracing::warn!(
                        "{}: {last} on an empty completion, which will be unscorable",
                        self.shown()
                    );
                }
                return Ok(());
            }
            shown = printed.unwrap_or_default();
            last = match reason.as_ref() {
                "died" => "ended without an answer".to_owned(),
                "timeout" => {
                    let seconds = self.settings.timeout_s + self.settings.startup_s;
                    format!("gave no answer within {seconds} s (timeout_s + startup_s)")
                }
                other => other.replace("bad_answer: ", "answered "),
            };
            if reason == "timeout" {
                break;
            }
        }
        let wanted = match self.settings.function {
            Some(_) => {
                "It must return a number, a bool or None; with an argument `completions`, a list of one of these"
            }
            None => {
                r#"It must read lines such as {"id": 1, "problem": {...}, "completion": "..."} and answer each with a line {"score": 0.5}"#
            }
        };
        bad_input!(
            "{}: {last} when it was asked about the first problem. {wanted}; {}",
            self.shown(),
            if shown.is_empty() {
                "its stderr is above".to_owned()
            } else {
                format!("it printed:\n{}", shown.trim_end())
            }
        )
    }

    /// The function or the original command.
    fn shown(&self) -> String {
        match &self.settings.function {
            Some(function) => format!("grader {function}"),
            None => format!("command `{}`", self.settings.command.join(" ")),
        }
    }

    /// Asks the program to judge one completion. Reasons without a score: `timeout`, `died`, `bad_answer: ...`,
    /// `not_started: ...`, `stopped`, or the program's own reason.
    pub fn grade(&self, problem: &Value, completion: &str) -> Graded {
        self.ask(&json!({ "problem": problem, "completion": completion }))
    }

    /// [`Program::grade`] with the answer after the thoughts beside the completion, as `answer_text`.
    pub fn grade_response(&self, problem: &Value, response: Response<'_>) -> Graded {
        let Response { text, answer } = response;
        self.ask(&json!({ "problem": problem, "completion": text, "answer_text": answer }))
    }

    /// Asks for the grade of what the question describes.
    pub fn ask(&self, question: &Value) -> Graded {
        let read = |line: &[u8], asked| read_answer(line, asked, self.settings.correct_from);
        self.exchange(question, &read).unwrap_or_else(|failed| *failed)
    }

    /// Asks for something else than a grade.
    ///
    /// # Errors
    /// The grade of a completion that can't go on: unscorable, with the reason.
    pub fn ask_for<T: DeserializeOwned>(&self, question: &Value) -> Result<T, Box<Graded>> {
        let answer = self.exchange(question, &|line, asked| {
            let mut answer: Map<String, Value> =
                serde_json::from_slice(line).map_err(|why| why.to_string())?;
            match answer.shift_remove("id").is_some_and(|id| id != asked) {
                true => Err(format!("to another question than {asked}")),
                false => Ok(answer),
            }
        })?;
        let bad = |why: String| Box::new(Graded::unscorable(format!("bad_answer: {why}")));
        let answer = Value::from(answer);
        if answer.get("unscorable").is_some() {
            return Err(read_answer(answer.to_string().as_bytes(), 0, 0.0).map_or_else(bad, Box::new));
        }
        serde_json::from_value(answer).map_err(|why| bad(why.to_string()))
    }

    /// Sends a question and reads its answer.
    fn exchange<T>(&self, question: &Value, read: ReadAnswer<'_, T>) -> Result<T, Box<Graded>> {
        let body = question.to_string();
        let failed = |reason: String| Box::new(Graded::unscorable(reason));
        let bad = |why: String| failed(format!("bad_answer: {why}"));
        if let Some(here) = &self.here {
            return read(here(&body).as_bytes(), 0).map_err(bad);
        }
        let start = || Worker::start(&self.settings).map_err(|error| failed(format!("not_started: {error}")));
        // Everything after the opening brace; the id is added in front of it.
        let body = &body[1..];
        let idle = self.idle.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let mut worker = idle.map_or_else(start, Ok)?;
        let mut asked = worker.ask(body, &self.settings);
        // A child may have exited, or written more output, since its last answer. This completion isn't the cause.
        if worker.answers > 0 && matches!(asked, Err(DIED | SPOKE_FIRST)) {
            drop(worker);
            worker = start()?;
            asked = worker.ask(body, &self.settings);
        }
        match asked {
            // After an invalid answer, further output can't be matched to a question.
            Ok(answer) => read(&answer, worker.asked).map_err(bad).inspect(|_| {
                self.idle.lock().unwrap_or_else(|e| e.into_inner()).push(worker);
            }),
            Err(reason) => Err(failed(reason.to_owned())),
        }
    }
}

/// The program's answer line.
fn read_answer(line: &[u8], asked: u64, correct_from: f64) -> Result<Graded, String> {
    #[derive(Deserialize)]
    struct Answer {
        id: Option<u64>,
        score: Option<f64>,
        #[serde(default)]
        rewards: BTreeMap<String, f64>,
        unscorable: Option<String>,
        reason: Option<String>,
        test: Option<u32>,
        printed: Option<String>,
    }
    let excerpt = || String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
    let answer: Answer =
        serde_json::from_slice(line).map_err(|_| format!("{:?}, wanted {{\"score\": number}}", excerpt()))?;
    if answer.id.is_some_and(|id| id != asked) {
        return Err(format!("{:?}, wanted the answer to {asked}", excerpt()));
    }
    match (answer.score, answer.unscorable.or_else(|| answer.reason.clone())) {
        (Some(score), _) if answer.rewards.values().chain([&score]).all(|r| r.abs() <= LARGEST_REWARD) => {
            let verdict = if score >= correct_from { Verdict::Correct } else { Verdict::Wrong };
            let reason = answer.reason.map_or(Cow::Borrowed("score"), Cow::Owned);
            let graded = Graded::new(verdict, reason);
            let Answer { rewards, test, printed, .. } = answer;
            Ok(Graded { reward: Some(score), rewards, test, printed, ..graded })
        }
        (Some(_), _) => Err(format!(
            "{:?}, wanted a score, and rewards, from -{LARGEST_REWARD} to {LARGEST_REWARD}",
            excerpt()
        )),
        (None, Some(reason)) => Ok(Graded { printed: answer.printed, ..Graded::unscorable(reason) }),
        _ => Err(format!("{:?}, wanted a score or a reason", excerpt())),
    }
}

/// Why a child gave no answer: the reason of the grade. A child of which one of these two is true is replaced at once.
type Failure = &'static str;
const DIED: Failure = "died";
const SPOKE_FIRST: Failure = "bad_answer: before the question";

/// One child process. Dropping it kills its process group.
#[derive(Debug)]
struct Worker {
    _group: ProcessGroup,
    input: ChildStdin,
    output: ChildStdout,
    /// The part of the answer read so far.
    read: Vec<u8>,
    /// Number of questions asked and of answers read.
    asked: u64,
    answers: u64,
}

impl Worker {
    fn start(settings: &Settings) -> io::Result<Self> {
        let mut command = Command::new(&settings.command[0]);
        command.args(&settings.command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = ProcessGroup::spawn(&mut command)?;
        let child = group.child();
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipes"));
        };
        for fd in [input.as_raw_fd(), output.as_raw_fd()] {
            not_blocking(fd)?;
        }
        Ok(Self { _group: group, input, output, read: Vec::new(), asked: 0, answers: 0 })
    }

    /// Sends a question (its JSON after the brace) and waits for the line that answers it. Watches both pipes at once,
    /// because a child may fill its output pipe before it has read all of its input.
    fn ask(&mut self, body: &str, settings: &Settings) -> Result<Vec<u8>, Failure> {
        let startup = if self.answers == 0 { settings.startup_s } else { 0.0 };
        let deadline = Instant::now() + Duration::from_secs_f64(settings.timeout_s + startup);
        self.asked += 1;
        let request = format!("{{\"id\":{},{body}\n", self.asked);
        self.read.clear();
        if self.receive()? {
            return Err(SPOKE_FIRST);
        }
        let mut unsent = request.as_bytes();
        let mut searched = 0;
        loop {
            let line_feed = self.read[searched..].iter().position(|&b| b == b'\n');
            if let Some(end) = line_feed.map(|i| searched + i) {
                if !unsent.is_empty() {
                    return Err(SPOKE_FIRST);
                }
                if end + 1 != self.read.len() {
                    return Err("bad_answer: more than a line");
                }
                self.answers += 1;
                return Ok(self.read[..end].to_vec());
            }
            searched = self.read.len();
            if self.read.len() > LONGEST_ANSWER {
                return Err("bad_answer: line too long");
            }
            if interrupt::requested() {
                return Err("stopped");
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                return Err("timeout");
            };
            let input = (!unsent.is_empty()).then_some(self.input.as_raw_fd());
            let (writable, readable) =
                wait(input, self.output.as_raw_fd(), left.min(LOOK_EVERY)).map_err(|_| DIED)?;
            if writable {
                match self.input.write(unsent) {
                    Ok(n) => unsent = &unsent[n..],
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    Err(_) => return Err(DIED),
                }
            }
            if readable {
                self.receive()?;
            }
        }
    }

    /// Reads the available output without waiting. Returns whether there was any.
    fn receive(&mut self) -> Result<bool, Failure> {
        let mut buffer = [0u8; 8192];
        match self.output.read(&mut buffer) {
            Ok(0) => Err(DIED),
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(_) => Err(DIED),
        }
    }
}

fn not_blocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl on a descriptor owned by the caller, with integer arguments only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits until `input`, if there is one, is writable or `output` is readable. Returns (writable, readable); both are
/// false after a timeout.
pub fn wait(input: Option<RawFd>, output: RawFd, left: Duration) -> io::Result<(bool, bool)> {
    // poll ignores a negative descriptor.
    let mut watched = [
        libc::pollfd { fd: input.unwrap_or(-1), events: libc::POLLOUT, revents: 0 },
        libc::pollfd { fd: output, events: libc::POLLIN, revents: 0 },
    ];
    let milliseconds = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the count are from an array that outlives the call.
    let n = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, milliseconds) };
    if n < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == ErrorKind::Interrupted { Ok((false, false)) } else { Err(error) };
    }
    // Hang-ups and errors are detected by the next read or write.
    Ok((watched[0].revents != 0, watched[1].revents != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(program: &str) -> Program {
        let mut settings = Settings::parse("python3 -u -c").unwrap();
        settings.command.push(program.to_owned());
        settings.timeout_s = 3.0;
        settings.startup_s = 20.0;
        Program::new(settings).unwrap()
    }

    fn reason(graded: &Graded) -> &str {
        &graded.reason
    }

    #[test]
    fn a_child_that_hangs_is_killed_with_its_children_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let verifier = python(&format!(
            "import sys, json, subprocess, time\nfor line in sys.stdin:\n d = json.loads(line)\n if d['completion'] == 'hang':\n  p = subprocess.Popen(['sleep', '1000'])\n  open({:?}, 'w').write(str(p.pid))\n  time.sleep(1000)\n print(json.dumps({{'score': 1}}))",
            pids.to_str().unwrap()
        ));
        assert_eq!(verifier.grade(&Value::Null, "x").reward, Some(1.0));
        let hung = verifier.grade(&Value::Null, "hang");
        assert_eq!((hung.verdict, reason(&hung)), (Verdict::Unscorable, "timeout"));
        assert_eq!(verifier.grade(&Value::Null, "x").reward, Some(1.0));
        let grandchild: i32 = std::fs::read_to_string(pids).unwrap().parse().unwrap();
        // Killed, and reaped by its new parent; a zombie has no command line.
        let gone = || std::fs::read(format!("/proc/{grandchild}/cmdline")).map_or(true, |c| c.is_empty());
        let retry = Instant::now() + Duration::from_secs(5);
        while !gone() && Instant::now() < retry {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(gone(), "process {grandchild} still runs");
    }

    #[test]
    fn a_child_that_dies_is_replaced_and_its_completion_unscorable() {
        let verifier = python(
            "import sys, json\nfor line in sys.stdin:\n if 'die' in line: sys.exit(3)\n print(json.dumps({'score': 0}))",
        );
        assert_eq!(reason(&verifier.grade(&Value::Null, "die")), "died");
        assert_eq!(verifier.grade(&Value::Null, "x").reward, Some(0.0));
        // The child has answered before, so the completion gets a second try, in which the child dies again.
        assert_eq!(reason(&verifier.grade(&Value::Null, "die")), "died");
        assert_eq!(verifier.grade(&Value::Null, "x").verdict, Verdict::Wrong);
    }

    #[test]
    fn a_child_that_left_between_two_completions_is_not_held_against_the_second() {
        let verifier =
            python("import sys, json\nline = sys.stdin.readline()\nprint(json.dumps({'score': 1}))");
        for _ in 0..3 {
            assert_eq!(verifier.grade(&Value::Null, "x").reward, Some(1.0));
        }
    }

    #[test]
    fn garbage_and_out_of_step_answers_are_unscorable() {
        for (program, wanted) in [
            ("import sys\nfor line in sys.stdin: print('oops')", "bad_answer"),
            ("import sys\nfor line in sys.stdin: print('{\"score\": \"1\"}')", "bad_answer"),
            ("import sys\nfor line in sys.stdin: print('{\"score\": NaN}')", "bad_answer"),
            ("import sys\nfor line in sys.stdin: print('{}')", "bad_answer"),
            ("import sys\nfor line in sys.stdin: print('{\"score\": 1e308}')", "bad_answer"),
            (
                "import sys\nfor line in sys.stdin: sys.stdout.write('{\"score\": 1}\\n{\"score\": 0}\\n')",
                "bad_answer: more",
            ),
            ("import sys\nfor line in sys.stdin: print('{\"score\": 1, \"id\": 7}')", "bad_answer"),
            ("import sys\nprint('ready')\nfor line in sys.stdin: print('{\"score\": 1}')", "bad_answer"),
            ("import sys\nfor line in sys.stdin: print('x' * 3000000)", "bad_answer"),
            ("import sys\nfor line in sys.stdin: print('{\"unscorable\": \"no tests\"}')", "no tests"),
        ] {
            let verifier = python(program);
            for _ in 0..2 {
                let graded = verifier.grade(&Value::Null, "x");
                assert_eq!(graded.verdict, Verdict::Unscorable, "{program}");
                assert!(reason(&graded).starts_with(wanted), "{program}: {}", reason(&graded));
            }
        }
    }

    #[test]
    fn a_late_answer_is_not_taken_for_the_next_one() {
        let verifier = python(
            "import sys, json, time\nfor line in sys.stdin:\n d = json.loads(line)\n if d['completion'] == 'slow': time.sleep(3.5)\n print(json.dumps({'score': 1 if d['completion'] == 'slow' else 0}))",
        );
        assert_eq!(verifier.grade(&Value::Null, "x").reward, Some(0.0));
        assert_eq!(reason(&verifier.grade(&Value::Null, "slow")), "timeout");
        std::thread::sleep(Duration::from_millis(900));
        assert_eq!(verifier.grade(&Value::Null, "x").reward, Some(0.0));
    }

    #[test]
    fn a_child_that_never_reads_cannot_block_a_large_question() {
        let mut settings = Settings::parse("sleep 1000").unwrap();
        (settings.timeout_s, settings.startup_s) = (0.3, 0.0);
        let verifier = Program::new(settings).unwrap();
        let large = "x".repeat(4 << 20);
        assert_eq!(reason(&verifier.grade(&Value::Null, &large)), "timeout");
    }

    #[test]
    fn threads_have_children_of_their_own() {
        let verifier = python(
            "import sys, json, time\nfor line in sys.stdin:\n time.sleep(0.05)\n print(json.dumps({'score': int(json.loads(line)['completion'])}))",
        );
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let verifier = &verifier;
                scope.spawn(move || {
                    for i in 0..5 {
                        let n = thread * 10 + i;
                        let graded = verifier.grade(&Value::Null, &n.to_string());
                        assert_eq!(graded.reward, Some(f64::from(n)), "{}", graded.reason);
                    }
                });
            }
        });
    }

    #[test]
    fn a_command_that_cannot_start_is_bad_input() {
        let settings = Settings::parse("/no/such/program 'with an' argument").unwrap();
        assert_eq!(settings.command, ["/no/such/program", "with an", "argument"]);
        let error = Program::new(settings).unwrap_err();
        assert_eq!(crate::failure::exit_code(&error), 2);
        assert!(Settings::parse("a 'b").is_err() && Settings::parse(" ").is_err());
    }
}
