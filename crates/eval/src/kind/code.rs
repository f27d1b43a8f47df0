//! Python programs judged by tests, in a sandbox (`code.py`).

use super::exact::{self, MARK, structured};
use super::fenced::{self, Block};
use crate::graded::{Graded, Response};
use crate::program::{self, Program};
use crate::row::{Row, Table, Unusable, shown, value};
use crate::verifier::{Beside, Grading, Limits, Reader, Reference, Settings, Unreadable, Verifier};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

/// Source of the Python process that runs programs and tests.
const SANDBOX: &str = include_str!("code.py");

/// The tests of a problem. A program must pass all of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Truth {
    /// Inputs with the output that a program must print.
    pub pairs: Vec<Pair>,
    /// Statements that fail if the program is wrong.
    pub asserts: Vec<String>,
    /// Calls of the function `entry` with the results that it must return.
    pub calls: Vec<Call>,
    /// Statements that run before the asserts.
    pub setup: String,
    /// The function that the problem asks for.
    pub entry: Option<String>,
    /// The first lines of the function. A completion may be only its body.
    pub header: Option<String>,
}

/// An input with the output that a program must print.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The program's standard input.
    pub input: String,
    /// Expected output. It is compared line by line and word by word.
    pub output: String,
}

/// A call of the function with the expected result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Index of the test.
    pub test: usize,
    /// The arguments.
    pub args: Vec<Value>,
    /// The expected result. Tuples are written as lists.
    pub output: Value,
    /// Whether the function may also return the only element of `output`, a list of one, as in TACO and APPS.
    #[serde(default)]
    pub wrapped: bool,
}

impl Truth {
    /// Reads the tests of a row, in any of the usual layouts. Returns `None` if the row lacks tests or one can't be read.
    fn of(row: &Row) -> Option<Self> {
        let text = |name: &str| value(row, name).and_then(Value::as_str).map(str::to_owned);
        let setup = ["setup", "test_setup_code"].into_iter().find_map(|name| value(row, name));
        let mut truth = Self {
            entry: ["entry", "entry_point", "fn_name", "metadata.func_name", "metadata.fn_name"]
                .into_iter()
                .find_map(text)
                .map(|name| name.trim_start_matches("Solution().").to_owned())
                .filter(|name| !name.is_empty()),
            setup: setup.filter(|lines| !lines.is_null()).map_or(Some(String::new()), printed)?,
            ..Self::default()
        };
        if let Some(Value::Array(imports)) = value(row, "test_imports").map(structured) {
            let imports = imports.iter().map(|line| Some(format!("{}\n", line.as_str()?)));
            truth.setup = imports.collect::<Option<String>>()? + &truth.setup;
        }
        // HumanEval and similar data sets. The sandbox calls `check(candidate)`.
        if let (Some(test), Some(_)) = (text("test"), &truth.entry) {
            truth.asserts.push(test);
            truth.header = text("prompt");
        }
        for name in [
            "tests",
            "asserts",
            "test_list",
            "input_output",
            "reward_model.ground_truth",
            "ground_truth",
            "test_cases",
            "public_tests",
            "private_tests",
            "generated_tests",
        ] {
            if let Some(tests) = value(row, name).filter(|tests| !tests.is_null()) {
                truth.add(&structured(tests), false)?;
            }
        }
        let any = !(truth.pairs.is_empty() && truth.asserts.is_empty() && truth.calls.is_empty());
        any.then_some(truth)
    }

    /// Adds tests from a list of statements or objects, or from an object of lists. If `one` is true, `tests` is an item of
    /// a list and so a single test. Returns `None` if a test can't be read.
    fn add(&mut self, tests: &Value, one: bool) -> Option<()> {
        match tests {
            Value::Array(list) => list.iter().try_for_each(|test| self.add(test, true))?,
            Value::String(assertion) if assertion.trim().is_empty() => return None,
            Value::String(assertion) => self.asserts.push(assertion.clone()),
            Value::Object(fields) => {
                if let Some(name) = ["entry", "fn_name"].iter().find_map(|n| fields.get(*n)?.as_str()) {
                    self.entry = Some(name.to_owned());
                }
                if let Some(asserts) = fields.get("asserts") {
                    self.add(asserts, one)?;
                }
                let named = |names: [&str; 2]| names.iter().find_map(|n| fields.get(*n));
                match (named(["inputs", "input"]), named(["outputs", "output"])) {
                    (Some(Value::Array(inputs)), Some(Value::Array(outputs)))
                        if !one || fields.contains_key("inputs") =>
                    {
                        if inputs.len() != outputs.len() {
                            return None;
                        }
                        for (input, output) in inputs.iter().zip(outputs) {
                            self.add_test(fields, input, output)?;
                        }
                    }
                    (Some(input), Some(output)) => self.add_test(fields, input, output)?,
                    (None, None) if fields.contains_key("asserts") => {}
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Adds a test. It is a call of the function if the test declares one or if its input or output isn't a string, and
    /// otherwise a run of the program.
    fn add_test(&mut self, fields: &Map<String, Value>, input: &Value, output: &Value) -> Option<()> {
        let said = fields.get("testtype").or(fields.get("type")).and_then(Value::as_str);
        let functional = fields.contains_key("fn_name") || said.is_some_and(|kind| !kind.contains("std"));
        // Some data sets put the output into a list of one.
        let alone = match output {
            Value::Array(list) if list.len() == 1 && self.entry.is_none() => &list[0],
            output => output,
        };
        let texts = if functional { None } else { printed(input).zip(printed(alone)) };
        if let Some((input, output)) = texts {
            self.pairs.push(Pair { input, output });
            return Some(());
        }
        self.entry.as_ref()?;
        let parsed = |text: &str| {
            serde_json::from_slice(&exact::marked(text.as_bytes())).unwrap_or_else(|_| json!(text))
        };
        // LiveCodeBench writes one argument per line.
        let args = match input {
            Value::Array(args) => args.clone(),
            Value::String(lines) => lines.lines().map(parsed).collect(),
            other => vec![other.clone()],
        };
        // With `fn_name`, results are values. Without it, they are strings that contain JSON.
        let values = fields.contains_key("fn_name");
        let wrapped = values && output.as_array().is_some_and(|list| list.len() == 1);
        let output = match output {
            Value::String(text) if !values || text.starts_with(['[', '{', '"']) => parsed(text),
            other => other.clone(),
        };
        let test = self.calls.len();
        self.calls.push(Call { test, args, output, wrapped });
        Some(())
    }

    /// Returns the names that a program may have to define: the function's name, or the words in the asserts.
    fn asked(&self) -> HashSet<String> {
        let words = |text: &String| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect::<Vec<_>>()
        };
        match &self.entry {
            Some(name) => HashSet::from([name.clone()]),
            None => self.asserts.iter().flat_map(words).collect(),
        }
    }

    fn problem(&self, fenced: bool) -> Value {
        let mut problem = serde_json::to_value(self).expect("tests are JSON");
        problem["fenced"] = json!(fenced);
        problem
    }
}

/// Converts an input or output to text. It may be a string, a number, which is kept as written, or a list of lines.
fn printed(side: &Value) -> Option<String> {
    match side {
        Value::String(text) => Some(text.strip_prefix(MARK).unwrap_or(text).to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(lines) => {
            let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
            Some(lines?.join("\n"))
        }
        _ => None,
    }
}

/// Languages of a fenced block that can mean Python. The empty string matches a fence without a language.
const LANGUAGES: [&str; 6] = ["", "python", "python3", "py", "py3", "ipython"];

/// Matches the first line of a program.
static BEGINS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(?:(?:async )?def \w+\(|class \w+[:(]|import \w|from [\w.]+ import |@\w|print\(|\w+ *=[^=])")
});
/// Matches a definition in a program; one of the two groups is its name.
static DEFINED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?m)^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*="));

fn pattern(source: &str) -> Regex {
    Regex::new(source).unwrap_or_else(|error| panic!("pattern {source}: {error}"))
}

/// Finds the program in an answer, and returns it with whether it was fenced. The candidates are the fenced blocks of
/// Python or, if there aren't any, the blocks without a language. The program is the last candidate that defines a name in
/// `asked`, or else the longest candidate. Without candidates, the whole answer is the program.
fn program_in<'a>(answer: &'a str, asked: &HashSet<String>) -> (Cow<'a, str>, bool) {
    let blocks = fenced::blocks(answer, |line| BEGINS.is_match(line));
    let (mut python, bare): (Vec<Block>, Vec<Block>) = blocks
        .into_iter()
        .filter(|block| LANGUAGES.contains(&&*block.language))
        .partition(|block| !block.language.is_empty());
    if python.is_empty() {
        python = bare;
    }
    let defines = |block: &Block| {
        DEFINED.captures_iter(&block.text).any(|found| {
            let name = found.get(1).or(found.get(2)).map_or("", |name| name.as_str());
            asked.contains(name)
        })
    };
    let place = python.iter().rposition(defines).or_else(|| {
        let longest = python.iter().enumerate().max_by_key(|(_, block)| block.text.len());
        longest.map(|(place, _)| place)
    });
    match place {
        Some(place) => (Cow::Owned(python.swap_remove(place).text), true),
        None => (Cow::Borrowed(answer), false),
    }
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        match &grading.program {
            Some(program) => {
                let problems = [false, true].map(|fenced| self.problem(fenced));
                Ok(Box::new(Prepared { problems, asked: self.asked(), program: Arc::clone(program) }))
            }
            None => Err(Unreadable::new("no_sandbox", "no sandbox was started")),
        }
    }

    fn read_as(&self) -> Option<String> {
        let counts = [
            (self.pairs.len(), "inputs with outputs"),
            (self.asserts.len(), "asserts"),
            (self.calls.len(), "calls"),
        ];
        let counts: Vec<String> =
            counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let entry = self.entry.as_ref().map_or(String::new(), |name| format!(" of {name}"));
        Some(format!("{}{entry}", counts.join(", ")))
    }

    /// Returns the first assert, or a sentence, from which the model learns the function's name.
    fn shown_below(&self, question: &str) -> Option<String> {
        if let Some(first) = self.asserts.first().filter(|_| self.header.is_none()) {
            return Some(format!("Your code should pass tests such as:\n{first}"));
        }
        let entry = self.entry.as_ref().filter(|name| !question.contains(name.as_str()))?;
        Some(format!("The function must be named {entry}."))
    }

    fn program(settings: &Settings) -> anyhow::Result<Option<program::Settings>> {
        let Limits { timeout_s, memory_mb } = settings.code;
        if !(timeout_s > 0.0 && timeout_s <= 3600.0 && memory_mb >= 64) {
            bad_input!(
                "code: timeout_s: expected above 0 to 3600, found {timeout_s}; memory_mb: expected at least 64, found {memory_mb}"
            );
        }
        // Tests turn off one of the two mechanisms by this variable.
        let only = std::env::var("FGRPO_SANDBOX").ok();
        let limits = json!({
            "restart": true, "timeout_s": timeout_s, "memory_mb": memory_mb, "filters": filters(std::env::consts::ARCH)?,
            "namespaces": only.as_deref() != Some("landlock"), "landlock": only.as_deref() != Some("namespaces"),
        });
        let python = std::env::var("FGRPO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let command = vec![python, "-c".to_owned(), SANDBOX.to_owned(), limits.to_string()];
        // The sandbox enforces its own limits. This limit applies if the sandbox hangs.
        let function = Some("programs in a sandbox".to_owned());
        let timeout_s = 20.0 * timeout_s + 60.0;
        Ok(Some(program::Settings { command, function, timeout_s, ..program::Settings::default() }))
    }

    fn verifier_of_line(line: &[u8], grading: &Grading) -> Result<Box<dyn Verifier>, String> {
        let row: Row = crate::io::json::parse(&exact::marked(line)).map_err(|why| why.to_string())?;
        let Some(truth) = Self::of(&row) else {
            return Err(format!(
                "expected tests (a list of inputs with outputs, or asserts), found {}",
                shown(&row, "tests")
            ));
        };
        truth.verifier(grading).map_err(|unreadable| unreadable.message)
    }
}

struct Prepared {
    /// The problem in the form for the sandbox: for a program without a code fence, and for a fenced program.
    problems: [Value; 2],
    asked: HashSet<String>,
    program: Arc<Program>,
}

impl Verifier for Prepared {
    fn check(&self, response: Response<'_>) -> Graded {
        let (program, fenced) = program_in(response.answer, &self.asked);
        // The configuration sets the reward of a correct program.
        Graded { reward: None, ..self.program.grade(&self.problems[usize::from(fenced)], &program) }
    }

    fn check_start(&self) -> anyhow::Result<()> {
        self.program.check(&self.problems[1])
    }
}

/// Finds the columns of the tests. Returns an error if no row has tests.
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let answer = table.column("tests", beside.answer, &[])?;
    if answer.is_none() && !table.rows.iter().take(50).any(|row| Truth::of(row).is_some()) {
        let usual =
            ["tests", "test_list", "input_output", "test with entry_point", "reward_model.ground_truth"];
        table.require("tests", None, &usual)?;
    }
    Ok(Box::new(move |cells| {
        let mut row = cells.row.clone();
        if let Some(tests) = answer.as_deref().and_then(|name| value(cells.row, name)) {
            row.insert("tests".to_owned(), tests.clone());
        }
        Truth::of(&row).ok_or_else(|| {
            Unusable::new("no tests that can be read", shown(cells.row, answer.as_deref().unwrap_or("tests")))
        })
    }))
}

/// System calls that a Python program needs if it starts no process and uses no network.
#[cfg(target_os = "linux")]
const CALLS: &str = "read write readv writev pread64 pwrite64 openat close lseek fstat newfstatat statx getdents64 getcwd \
    chdir readlinkat faccessat faccessat2 mkdirat unlinkat renameat2 ftruncate fsync fdatasync dup dup3 pipe2 mmap munmap \
    mprotect mremap madvise brk futex rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack getrandom clock_gettime \
    clock_getres clock_nanosleep nanosleep gettimeofday times getrusage sysinfo uname getpid gettid getppid getuid geteuid \
    getgid getegid sched_yield sched_getaffinity set_robust_list rseq set_tid_address restart_syscall setitimer ppoll \
    pselect6 epoll_create1 epoll_ctl epoll_pwait eventfd2 recvfrom exit exit_group statfs fstatfs membarrier clone3";
/// Calls that the C library makes only on x86-64.
#[cfg(target_os = "linux")]
const X86_64_CALLS: &str = "open stat lstat access readlink mkdir rmdir unlink rename dup2 pipe poll select epoll_wait time \
    getrlimit arch_prctl";
/// Calls that the C library makes only on aarch64, where `rename` is `renameat`.
#[cfg(target_os = "linux")]
const AARCH64_CALLS: &str = "renameat";

/// Compiles the two seccomp programs of an architecture, as hexadecimal digits: one for threads, one for all calls.
#[cfg(target_os = "linux")]
fn filters(arch: &str) -> anyhow::Result<Vec<String>> {
    let call = |name: &str| json!({"syscall": name});
    let when = |name: &str, index: u8, length: &str, op: Value, value: u64| json!({"syscall": name, "args": [{"index": index, "type": length, "op": op, "val": value}]});
    let own = if arch == "x86_64" { X86_64_CALLS } else { AARCH64_CALLS };
    let mut calls: Vec<Value> = CALLS.split(' ').chain(own.split(' ')).map(call).collect();
    let thread = libc::CLONE_THREAD as u64;
    calls.push(when("clone", 0, "qword", json!({"masked_eq": thread}), thread));
    // TCGETS, which Python calls on each file that it opens; FIOCLEX, FIONCLEX; and FIONBIO, after which a socket doesn't block.
    calls.extend([0x5401, 0x5451, 0x5450, 0x5421].map(|asked| when("ioctl", 1, "dword", json!("eq"), asked)));
    // Descriptors, a lock and status flags; but no owner, whom the kernel would signal, and so no O_ASYNC.
    let commands =
        [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETLK];
    calls.extend(commands.map(|asked| when("fcntl", 1, "dword", json!("eq"), asked as u64)));
    let mut flags = when("fcntl", 1, "dword", json!("eq"), libc::F_SETFL as u64);
    let asynchronous = json!({"index": 2, "type": "qword", "op": {"masked_eq": libc::O_ASYNC}, "val": 0});
    flags["args"].as_array_mut().expect("a list").push(asynchronous);
    calls.push(flags);
    // Allowed only for limits of the calling process, sends to a connected socket, and pairs of local sockets.
    calls.push(when("prlimit64", 0, "dword", json!("eq"), 0));
    calls.push(when("sendto", 4, "qword", json!("eq"), 0));
    calls.push(when("socketpair", 0, "dword", json!("eq"), libc::AF_UNIX as u64));
    let refused = |errno: i32| json!({"errno": errno});
    let filters = json!({
        // Without clone3, the C library creates threads by clone, whose flags a filter can read.
        "threads": {"mismatch_action": "allow", "match_action": refused(libc::ENOSYS), "filter": [call("clone3")]},
        "calls": {"mismatch_action": refused(libc::EPERM), "match_action": "allow", "filter": calls},
    });
    let compiled = seccompiler::compile_from_json(filters.to_string().as_bytes(), arch.try_into()?)?;
    let digits = |program: &seccompiler::BpfProgram| -> String {
        let bytes = program.iter().flat_map(|i| {
            let [code, k] = [i.code.to_ne_bytes().to_vec(), i.k.to_ne_bytes().to_vec()];
            [code, vec![i.jt, i.jf], k].concat()
        });
        bytes.map(|b| format!("{b:02x}")).collect()
    };
    Ok(["threads", "calls"].map(|name| digits(&compiled[name])).into())
}

#[cfg(not(target_os = "linux"))]
fn filters(_: &str) -> anyhow::Result<Vec<String>> {
    bad_input!(
        "task code: programs are confined by means of Linux (seccomp, namespaces, landlock): run it there"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_that_defines_the_function_is_the_program_or_else_the_longest() {
        let asked = HashSet::from(["f".to_owned()]);
        for (completion, program, fenced) in [
            ("```python\na\n```\nor\n```py\nb\n```\n", "b\n", true),
            ("```python\na\n```\noutput:\n```text\n1\n```", "a\n", true),
            ("```python\nprint(1)", "print(1)", true),
            ("return x", "return x", false),
            ("```python\ndef f(): 1\n```\n```python\nprint(f(), f(), f())\n```", "def f(): 1\n", true),
            ("```\ndef f(): 1\n```\nNo:\n```\ndef f(): 2\n```\n", "def f(): 2\n", true),
            (
                "```py\nimport sys\nprint(1)\n```\nIt prints\n```\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n```",
                "import sys\nprint(1)\n",
                true,
            ),
            ("```bash\npython f.py\n```", "```bash\npython f.py\n```", false),
        ] {
            let (found, was_fenced) = program_in(completion, &asked);
            assert_eq!((&*found, was_fenced), (program, fenced), "{completion}");
        }
    }

    /// Returns the verdict of a filter on a call without arguments, as the kernel computes it from the instructions.
    #[cfg(target_os = "linux")]
    fn verdict(program: &str, arch: u32, call: u32) -> u32 {
        let bytes: Vec<u8> = (0..program.len() / 2)
            .map(|i| u8::from_str_radix(&program[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        let (mut at, mut value) = (0, 0);
        loop {
            let i = &bytes[8 * at..8 * at + 8];
            let k = u32::from_ne_bytes(i[4..].try_into().unwrap());
            let mut jump = |taken: bool| at += usize::from(if taken { i[2] } else { i[3] });
            match u16::from_ne_bytes([i[0], i[1]]) {
                0x20 => value = [call, arch].get(k as usize / 4).copied().unwrap_or(0),
                0x54 => value &= k,
                0x05 => at += k as usize,
                0x15 => jump(value == k),
                0x25 => jump(value > k),
                0x35 => jump(value >= k),
                0x06 => return k,
                code => panic!("unknown instruction {code:#x}"),
            }
            at += 1;
        }
    }

    /// Compares the numbers of calls with Linux's tables of calls.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_may_rename_files_but_not_connect_on_either_architecture() {
        let (allowed, refused) = (0x7fff_0000, 0x0005_0000 | libc::EPERM as u32);
        for (arch, id, renames, connect) in
            [("x86_64", 0xc000_003e, vec![82, 316], 42), ("aarch64", 0xc000_00b7, vec![38, 276], 203)]
        {
            let calls = filters(arch).unwrap().remove(1);
            for rename in renames {
                assert_eq!(verdict(&calls, id, rename), allowed, "call {rename} of {arch}");
            }
            assert_eq!(verdict(&calls, id, connect), refused, "{arch}");
        }
    }

    #[test]
    fn the_usual_layouts_are_read() {
        let of = |row: Value| Truth::of(row.as_object().unwrap());
        let pairs = |n| Truth {
            pairs: vec![Pair { input: "1\n".into(), output: "2".into() }; n],
            ..Truth::default()
        };
        let calls = |output: Value| {
            let wrapped = output.is_array();
            let call = Call { test: 0, args: vec![json!([1, 2])], output, wrapped };
            Truth { calls: vec![call], entry: Some("f".into()), ..Truth::default() }
        };
        let io = r#"{"inputs": ["1\n", "1\n"], "outputs": ["2", "2"]}"#;
        let functional = r#"{"fn_name": "f", "inputs": [[[1, 2]]], "outputs": [[3]]}"#;
        for (row, truth) in [
            (json!({"tests": [{"input": "1\n", "output": "2"}]}), pairs(1)),
            (json!({"input_output": io}), pairs(2)),
            (json!({"reward_model": {"ground_truth": io}}), pairs(2)),
            (
                json!({"public_tests": {"input": ["1\n"], "output": ["2"]}, "private_tests": {"input": ["1\n"], "output": ["2"]}}),
                pairs(2),
            ),
            (
                json!({"tests": "[{\"input\": \"1\\n\", \"output\": \"2\", \"type\": \"stdin_stdout\"}]"}),
                pairs(1),
            ),
            (json!({"input_output": functional}), calls(json!([3]))),
            (json!({"tests": [{"input": "1\n", "output": ["2"]}]}), pairs(1)),
            (json!({"tests": [{"input": "1\n", "output": [2]}]}), pairs(1)),
            (
                json!({"tests": [{"input": "[1, 2]", "output": "3", "testtype": "functional"}], "metadata": {"func_name": "f"}}),
                calls(json!(3)),
            ),
            (
                json!({"test_list": ["assert f(1) == 2"], "test_setup_code": "import math"}),
                Truth {
                    asserts: vec!["assert f(1) == 2".into()],
                    setup: "import math".into(),
                    ..Truth::default()
                },
            ),
            (
                json!({"prompt": "def f(x):\n", "test": "def check(candidate):\n  pass\n", "entry_point": "f"}),
                Truth {
                    asserts: vec!["def check(candidate):\n  pass\n".into()],
                    entry: Some("f".into()),
                    header: Some("def f(x):\n".into()),
                    ..Truth::default()
                },
            ),
        ] {
            assert_eq!(of(row.clone()), Some(truth), "{row}");
        }
        for unread in [
            json!([]),
            json!({"inputs": ["1\n", "2\n"], "outputs": ["1"]}),
            json!({"inputs": [[1, 2]], "outputs": [[3]]}),
            json!([{"input": "1\n", "output": "2"}, {"input": [1, 2], "output": 3}]),
            json!({"input": "1", "output": null}),
            json!([{"input": "1", "output": "1"}, {"input": "2", "expected": "5"}]),
            json!([{"input": "1", "output": "1"}, null]),
            json!({"asserts": [""]}),
        ] {
            assert_eq!(of(json!({"tests": unread})), None, "{unread}");
        }
        let swapped = json!({"tests": [{"input": [1, 2], "output": [2, 1]}], "entry_point": "f"});
        assert_eq!(of(swapped).map(|truth| truth.calls.len()), Some(1));
        let call = Call { test: 0, args: vec![json!(1), json!(2)], output: json!(3), wrapped: false };
        for tests in [json!([{"input": [1, 2], "output": 3}]), json!({"inputs": [[1, 2]], "outputs": [3]})] {
            let read = of(json!({"tests": tests, "entry_point": "f"}));
            assert_eq!(read.map(|truth| truth.calls), Some(vec![call.clone()]), "{tests}");
        }
    }
}
