//! Runs the user's verifier, a program that reads one JSON line per completion and answers with one JSON line.
//!
//! Input: `{"id": 7, "problem": <row of the data set>, "completion": "...", "answer_text": "..."}`, where `answer_text`
//! is the completion without its reasoning. Output: `{"score": 0.5}`, or `{"unscorable": "why"}` if the program can't
//! judge the completion. The answer may include `"id": 7` to show which question it answers. The score is the reward. A
//! completion counts as correct if its score is at least `correct_from`.
//!
//! Each grading thread has a separate child process, which is started once and reused. If a child doesn't answer in
//! time, dies or gives an invalid answer, its whole process group is killed, a new child replaces it, and the
//! completion is unscorable: a failure never becomes a score. The child's standard error is passed through. A request
//! to stop ends the wait for an answer at once.
//!
//! The program isn't sandboxed: it runs with the user's rights.

mod answer;
mod child;
mod settings;

use crate::graded::{Graded, Response};
use child::{Child, NoAnswer};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
#[cfg(feature = "schema")]
pub use settings::schema;
pub use settings::{Answerer, Settings};
use std::sync::Mutex;

/// Longest timeout that can be configured: one day.
const LONGEST_WAIT_S: f64 = 86_400.0;

/// Parses the answer to the question with an id, or returns what is wrong with it.
type ReadAnswer<'a, T> = &'a dyn Fn(&[u8], u64) -> Result<T, String>;

/// Process or function that answers questions.
#[derive(Debug)]
enum Source {
    /// Idle children of one program. Each grading thread uses a separate child.
    Children(Mutex<Vec<Child>>),
    /// A function of this process.
    Process(Answerer),
}

/// A running program, or a function of this process in its place.
#[derive(Debug)]
pub struct Program {
    settings: Settings,
    source: Source,
}

impl Program {
    /// Starts the command, so that a wrong command is detected before any work is done. A function needs no start.
    ///
    /// Returns bad input if the settings are invalid, if the command can't be started, or if `in_process` is set and
    /// `answerer` isn't.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let (timeout, startup) = (settings.timeout_s, settings.startup_s);
        if !(timeout > 0.0 && timeout <= LONGEST_WAIT_S && (0.0..=LONGEST_WAIT_S).contains(&startup)) {
            bad_input!(
                "command: expected timeout_s above 0 and startup_s from 0, both up to {LONGEST_WAIT_S}; found timeout_s = {timeout}, startup_s = {startup}"
            );
        }
        let source = match (&settings.in_process, &settings.answerer, settings.command.first()) {
            (Some(_), Some(answerer), _) => Source::Process(answerer.clone()),
            (Some(name), None, _) => bad_input!(
                "{name} is a function of the Python process that began this run; continue the run with fgrpo.train, or name a file with grader = \"FILE.py:FUNCTION\""
            ),
            (None, _, Some(program)) => match Child::start(&settings) {
                Ok(child) => Source::Children(Mutex::new(vec![child])),
                Err(why) => bad_input!("command: {program:?} can't be started: {why}"),
            },
            (None, _, None) => {
                bad_input!("command: the command is empty; it needs a program and its arguments")
            }
        };
        Ok(Self { settings, source })
    }

    /// Asks the program to judge two completions of a problem, an empty one and a short one, so that a broken program
    /// is detected before any work is done. At least one of the two must be answered.
    pub fn check(&self, problem: &Value) -> anyhow::Result<()> {
        let (mut last, mut printed) = (String::new(), String::new());
        for completion in ["", "The answer is 1."] {
            let answer = self.exchange(
                &json!({ "problem": problem, "completion": completion, "answer_text": completion }),
                &self.graded(),
            );
            let late = matches!(answer, Err(NoAnswer::Timeout));
            last = match answer {
                Err(NoAnswer::Died) => "ended without an answer".to_owned(),
                Err(NoAnswer::Timeout) => {
                    let seconds = self.settings.timeout_s + self.settings.startup_s;
                    format!("gave no answer within {seconds} s (timeout_s + startup_s)")
                }
                Err(why) => why.to_string().replace("bad_answer: ", "answered "),
                // "unscorable" from a program counts as an answer, but not if a function raised an exception.
                Ok(graded) if graded.reward.is_none() && graded.reason.starts_with("raised ") => {
                    printed = graded.printed.unwrap_or_default();
                    graded.reason.into_owned()
                }
                Ok(_) => {
                    if !last.is_empty() {
                        let command = self.shown();
                        tracing::warn!(
                            "{command}: {last} on an empty completion, so empty completions will be unscorable"
                        );
                    }
                    return Ok(());
                }
            };
            if late {
                break;
            }
        }
        let requirement = if self.settings.is_function() {
            let columns: Vec<&str> =
                problem.as_object().into_iter().flatten().map(|(name, _)| &**name).collect();
            let others = match &columns[..] {
                // Python says `missing 1 required positional argument: 'gold'`.
                columns @ [_, ..] if last.contains("argument") => {
                    format!(". Its other arguments can be columns: {}", columns.join(", "))
                }
                _ => String::new(),
            };
            format!(
                "It must return a number, a bool or None; with an argument `completions`, a list of one of these{others}"
            )
        } else {
            r#"It must read lines such as {"id": 1, "problem": {...}, "completion": "..."} and answer each with a line {"score": 0.5}"#.to_owned()
        };
        bad_input!(
            "{}: {last} when asked about the first problem. {requirement}; {}",
            self.shown(),
            match printed.trim_end() {
                "" => "its stderr is above".to_owned(),
                printed => format!("it printed:\n{printed}"),
            }
        )
    }

    /// Returns the function or the original command, for messages.
    fn shown(&self) -> String {
        match self.settings.function.as_ref().or(self.settings.in_process.as_ref()) {
            Some(function) => format!("grader {function}"),
            None => format!("command `{}`", self.settings.command.join(" ")),
        }
    }

    /// Asks the program to judge one completion. Without a score, the grade's reason is `timeout`, `died`, `bad_answer:
    /// ...`, `not_started: ...`, `stopped`, or the reason that the program gave.
    pub fn grade(&self, problem: &Value, completion: &str) -> Graded {
        self.ask(&json!({ "problem": problem, "completion": completion }))
    }

    /// Asks the program to judge one completion like [`Program::grade`], with `answer_text`, the part after the
    /// reasoning.
    pub fn grade_response(&self, problem: &Value, response: Response<'_>) -> Graded {
        let Response { text, answer } = response;
        self.ask(&json!({ "problem": problem, "completion": text, "answer_text": answer }))
    }

    /// Sends a question whose answer is a grade.
    pub fn ask(&self, question: &Value) -> Graded {
        self.exchange(question, &self.graded()).unwrap_or_else(|why| *Box::<Graded>::from(why))
    }

    /// Returns the parser of grades.
    fn graded(&self) -> impl Fn(&[u8], u64) -> Result<Graded, String> + use<> {
        let correct_from = self.settings.correct_from;
        move |line, question_id| answer::read(line, question_id, correct_from)
    }

    /// Sends a question whose answer isn't a grade.
    ///
    /// # Errors
    /// Returns an unscorable grade with the reason if the question wasn't answered.
    pub fn ask_for<T: DeserializeOwned>(&self, question: &Value) -> Result<T, Box<Graded>> {
        let answer = self.exchange(question, &|line, question_id| {
            let mut answer: Map<String, Value> =
                serde_json::from_slice(line).map_err(|why| why.to_string())?;
            if answer.shift_remove("id").is_some_and(|id| id != question_id) {
                return Err(format!("answers another question than {question_id}"));
            }
            Ok(answer)
        })?;
        let answer = Value::from(answer);
        if answer.get("unscorable").is_some() {
            let graded = answer::read(answer.to_string().as_bytes(), 0, 0.0).map_err(NoAnswer::Bad)?;
            return Err(Box::new(graded));
        }
        serde_json::from_value(answer).map_err(|why| NoAnswer::Bad(why.to_string()).into())
    }

    /// Sends a question and reads its answer.
    fn exchange<T>(&self, question: &Value, read: ReadAnswer<'_, T>) -> Result<T, NoAnswer> {
        let body = question.to_string();
        let children = match &self.source {
            Source::Process(answerer) => {
                return read(answerer.answer(&body).as_bytes(), 0).map_err(NoAnswer::Bad);
            }
            Source::Children(children) => children,
        };
        let children = || children.lock().unwrap_or_else(|e| e.into_inner());
        // Removes the opening brace of the question, since the id is put before the other fields.
        let body = &body[1..];
        let idle = children().pop();
        let mut child = idle.map_or_else(|| Child::start(&self.settings), Ok)?;
        let mut reply = child.ask(body, &self.settings);
        // A child may have exited or written more output since its last answer, which isn't this completion's fault.
        if child.answers > 0 && matches!(reply, Err(NoAnswer::Died | NoAnswer::SpokeFirst)) {
            drop(child);
            child = Child::start(&self.settings)?;
            reply = child.ask(body, &self.settings);
        }
        // After an invalid answer the child is dropped, because its further output can't be matched to a question.
        let answer = read(&reply?, child.questions).map_err(NoAnswer::Bad)?;
        children().push(child);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_verify::verdict::Verdict;
    use std::time::{Duration, Instant};

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
        // It is killed, and reaped by its new parent. A zombie has no command line.
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
        // The child has answered before, so the completion gets a second try, in which the next child dies too.
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
        for (program, expected) in [
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
                assert!(reason(&graded).starts_with(expected), "{program}: {}", reason(&graded));
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
    fn a_function_of_the_process_answers_for_its_own_settings_alone() {
        let settings = |score: Option<&'static str>| Settings {
            in_process: Some("reward".into()),
            answerer: score.map(|score| Answerer::new(move |_| format!("{{\"score\": {score}}}"))),
            ..Settings::default()
        };
        let verifiers = ["1", "0", "\"much\""].map(|score| Program::new(settings(Some(score))).unwrap());
        let rewards = verifiers.each_ref().map(|verifier| verifier.grade(&Value::Null, "x").reward);
        assert_eq!(rewards, [Some(1.0), Some(0.0), None]);
        let error = Program::new(settings(None)).unwrap_err();
        assert!(crate::failure::exit_code(&error) == 2 && error.to_string().contains("reward"), "{error:#}");
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
