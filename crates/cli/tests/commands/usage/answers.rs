//! Answers as models write them: decimals and formatting, choices stated in many languages, programs in all kinds of fences.

use super::{fgrpo, file, run};
use serde_json::{Value, json};

/// The verdicts and reasons of lines, and stderr.
fn verify(arguments: &[&str], lines: &[Value]) -> (Vec<String>, String) {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (out, said, code) = run(fgrpo().arg("verify").args(arguments).write_stdin(input));
    assert_eq!(code, 0, "{arguments:?}: {said}");
    let verdict = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        format!("{} {}", line["verdict"].as_str().unwrap(), line["reason"].as_str().unwrap())
    };
    (out.lines().map(verdict).collect(), said)
}

/// Checks that each line's answer is right, or that each is wrong.
#[track_caller]
fn all(arguments: &[&str], lines: &[Value], right: bool) {
    let (found, _) = verify(arguments, lines);
    let missed: Vec<String> = found
        .iter()
        .zip(lines)
        .filter(|(found, _)| found.starts_with("correct") != right || found.starts_with("unscorable"))
        .map(|(found, line)| format!("{found}: {line}"))
        .collect();
    assert!(missed.is_empty(), "wanted right: {right}\n{}", missed.join("\n"));
}

fn math(pairs: &[(&str, &str)], right: bool) {
    let lines: Vec<Value> =
        pairs.iter().map(|(gold, response)| json!({"gold": gold, "response": response})).collect();
    all(&["math", "-", "--mode", "strict"], &lines, right);
}

#[test]
fn decimals_of_values_without_a_last_digit_are_right_rounded_or_cut() {
    math(
        &[
            (r"\frac{2}{3}", r"\boxed{0.6666666666666666}"),
            (r"\frac{2}{3}", r"\boxed{0.6666666666666667}"),
            (r"\frac{2}{3}", r"\boxed{0.666666}"),
            (r"\frac{2}{3}", r"\boxed{0.666667}"),
            (r"-\frac{2}{3}", r"\boxed{-0.666666}"),
            (r"\pi", r"\boxed{3.1415926}"),
            (r"\pi", r"\boxed{3.14159265358979}"),
            (r"\pi", r"\boxed{3.141592653589793}"),
            (r"\sqrt{23}", r"\boxed{4.795831523312719}"),
            (r"\sqrt{23}", r"\boxed{4.7958315233127195}"),
            (r"\frac{22}{7}", r"\boxed{3.142857142857143}"),
            (r"\frac{1}{3}", r"\boxed{0.333\ldots}"),
            (r"\frac{1}{3}", r"The answer is 0.333..."),
            (r"\frac{1}{6}", r"\boxed{0.1666\dots}"),
            (r"\frac{4}{33}", r"\boxed{0.1212…}"),
            (r"\frac{-1}{3}", r"\boxed{-0.333\ldots}"),
        ],
        true,
    );
    math(
        &[
            (r"\frac{2}{3}", r"\boxed{0.66666666666668}"),
            (r"\frac{2}{3}", r"\boxed{0.666668}"),
            (r"\frac{2}{3}", r"\boxed{0.666665}"),
            (r"\frac{2}{3}", r"\boxed{0.66666666668}"),
            (r"\frac{2}{3}", r"\boxed{0.666}"),
            (r"\frac{2}{3}", r"\boxed{-0.666667}"),
            (r"\pi", r"\boxed{3.1415925}"),
            (r"\pi", r"\boxed{3.14159265358971}"),
            (r"\pi", r"\boxed{3.14159265358970}"),
            ("e", r"\boxed{2.718280}"),
            (r"\frac{1}{3}", r"\boxed{0.33333330}"),
            (r"10000\pi", r"\boxed{3.14159260\times 10^4}"),
            (r"\pi", r"\boxed{3.14}"),
            (r"\sqrt{23}", r"\boxed{4.795831523312799}"),
            (r"\frac{1}{8}", r"\boxed{0.1249999}"),
            (r"\frac{1}{3}", r"\boxed{0.3}"),
            (r"\frac{1}{3}", r"\boxed{0.334\ldots}"),
            ("3", r"\boxed{2.9999999}"),
            ("3", r"\boxed{3.0000001}"),
        ],
        false,
    );
}

#[test]
fn dress_that_changes_nothing_is_taken_off() {
    math(
        &[
            (r"\sqrt{e}", r"\boxed{e^\frac{1}{2}}"),
            (r"\sqrt{e}", r"\boxed{e^\frac12}"),
            (r"2^{\sqrt{2}}", r"\boxed{2^\sqrt2}"),
            ("10", r"\boxed{\binom52}"),
            ("10", r"\boxed{\binom{5}2}"),
            ("10", r"\boxed{\dbinom 5 2}"),
            ("10", r"\boxed{{5 \choose 2}}"),
            (r"\frac{n(n-1)}{2}", r"\boxed{\binom n2}"),
            (r"\frac{1}{x}", r"\boxed{x^-1}"),
            (r"\frac{\pi}{2}", r"\boxed{\frac\pi2}"),
            (r"\frac{\sqrt3}{2}", r"\boxed{\frac{\sqrt 3}2}"),
            (r"6\sqrt{3}", r"\boxed{6\sqrt(3)}"),
            (r"6\sqrt{3}", r"\boxed{6\sqrt3}"),
            (r"\mathbb{R}\setminus\{1\}", r"\boxed{\mathbb{R}-\{1\}}"),
            (r"\mathbb{R}\setminus\{1\}", r"\boxed{\mathbb{R} \backslash \{1\}}"),
            (r"\mathbb{R}\setminus\{1\}", r"\boxed{\mathbb{R}\setminus\left\{1\right\}}"),
            (r"\frac14", "***1/4***"),
            (r"\frac14", "The answer is ***1/4***."),
            ("7", "**7**"),
            ("-5", "\\boxed{–5}"),
            ("-5", "The answer is –5."),
            ("x-2", "\\boxed{x – 2}"),
            ("42", "\\boxed{４２}"),
            (r"\frac12", "\\boxed{１／２}"),
            ("(1,2)", "\\boxed{（１，２）}"),
            ("x+1", "\\boxed{ｘ＋１}"),
        ],
        true,
    );
    math(
        &[
            (r"\sqrt{e}", r"\boxed{e^\frac{1}{3}}"),
            ("10", r"\boxed{\binom51}"),
            ("10", r"\boxed{\binom{5}{2}0}"),
            (r"6\sqrt{3}", r"\boxed{6\sqrt(3}"),
            (r"\mathbb{R}\setminus\{1\}", r"\boxed{\mathbb{R}-\{2\}}"),
            (r"\mathbb{R}\setminus\{1\}", r"\boxed{\mathbb{R}-1}"),
            ("5", "\\boxed{–5}"),
            ("8", "\\boxed{3–5}"),
            ("-2", "\\boxed{3–5}"),
            ("43", "\\boxed{４２}"),
            ("(2,1)", "\\boxed{（１，２）}"),
        ],
        false,
    );
}

fn choices(answers: &[&str], right: bool) {
    let lines: Vec<Value> = answers
        .iter()
        .map(|response| json!({"gold": "C", "options": ["Rome", "Oslo", "Paris", "Bonn"], "response": response}))
        .collect();
    all(&["choice", "-", "--choice", "letter-or-content"], &lines, right);
}

#[test]
fn the_stated_choice_decides_whatever_later_sentences_say_of_the_others() {
    choices(
        &[
            "The answer is C. A is incorrect.",
            "The answer is C. A and B are incorrect.",
            "The answer is `C`.",
            "The answer is C.\nWait for the next question.",
            "The answer is C. A, B and D fail.",
            "The answer is C. I checked A twice.",
            "The answer is C! D would need more.",
            "The answer is C, D being impossible.",
            "The answer is (C) Paris. B) is a city in Norway.",
            "The correct option is C; D is wrong.",
            "Answer: C. A bird cannot fly there.",
            "A is incorrect. The answer is C.",
        ],
        true,
    );
    choices(
        &[
            "The answer is D. C is incorrect.",
            "The answer is C. D.",
            "The answer is C.\nActually D.",
            "The answer is C, I mean D",
            "The answer is C. Or D.",
            "The answer is C. A. B. D.",
            "The answer is C or D.",
            "The answer is C. The answer is D.",
            "The answer is C. D is also correct.",
            "The answer is A. B. C. D.",
        ],
        false,
    );
}

#[test]
fn choices_are_read_in_many_languages_and_widths() {
    let forms = [
        "正确答案：（L）",
        "答案是L。",
        "答案：L",
        "正確答案為（L）",
        "所以选L。",
        "答えはLです。",
        "正解：L",
        "答えは（L）",
        "답은 (L)",
        "정답은 L입니다.",
        "정답: L",
        "La réponse est L",
        "La bonne réponse est la L.",
        "Réponse : L",
        "La respuesta es L",
        "La respuesta correcta es la opción L.",
        "Respuesta: L",
        "Die Antwort ist L.",
        "Antwort: L",
        "Die richtige Antwort lautet: L",
        "A resposta é L",
        "A resposta correta é a L.",
        "Resposta: L",
        "La risposta è L",
        "Risposta: L",
        "Ответ: L",
        "Правильный ответ — L",
        "Правильный ответ: L.",
        "Jawaban: L",
        "Jawabannya adalah L.",
        "Jawaban yang benar adalah L",
        "الإجابة: L",
        "الإجابة الصحيحة هي L",
        "الجواب هو L",
        "उत्तर: L",
        "सही उत्तर (L) है",
        "सही उत्तर L है",
        "উত্তর: L",
        "সঠিক উত্তর হল: L",
        "جواب: L",
        "درست جواب: L",
        "Cevap: L",
        "Doğru cevap L'dir.",
        "Đáp án: L",
        "Đáp án là L.",
        "Câu trả lời là L",
        "Odpowiedź: L",
        "Het antwoord is L",
        "Svar: L",
        "Ang sagot ay L.",
        "Jibu ni L",
        "Jibu: L",
        "பதில்: L",
        "సమాధానం: L",
        "คำตอบ: L",
        "คำตอบคือ L",
        "پاسخ: L",
        "Відповідь: L",
        "תשובה: L",
    ];
    for (letter, right) in [("C", true), ("Ｃ", true), ("**C**", true), ("D", false), ("C, D", false)] {
        // The last L is the choice.
        let fill = |form: &str| {
            let (before, after) = form.rsplit_once('L').unwrap();
            format!("{before}{letter}{after}")
        };
        let answers: Vec<String> = forms.iter().map(|form| fill(form)).collect();
        let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
        choices(&answers, right);
    }
    choices(
        &[
            "答案不是C",
            "La réponse n'est pas C",
            "La respuesta no es C",
            "Die Antwort ist nicht C",
            "답은 C가 아닙니다",
            "Si la respuesta es C",
        ],
        false,
    );
}

#[test]
fn a_boxed_letter_counts_with_what_stands_around_it() {
    let wrong = [
        r"not \boxed{B}",
        r"The answer is not \boxed{B}",
        r"surely not \boxed{B}",
        r"It can't be \boxed{B}.",
        r"Everything but \boxed{B}",
        r"I rule out \boxed{B}",
        r"\boxed{B} is wrong.",
        r"\boxed{B} was rejected.",
        r"Many people get \boxed{B} by mistake.",
        r"Example output: \boxed{B}",
        r"\boxed{B} isn't right",
        r"\boxed{B}?",
        r"-\boxed{B}",
        r"$\frac{1}{\boxed{B}}$",
        r"~~\boxed{B}~~",
        r"\boxed{B} or A",
        r"A or \boxed{B}",
        r"\boxed{B}, A",
        r"\boxed{B}/A",
        r"\boxed{A}\boxed{B}",
        r"\boxed{A} and \boxed{B}",
        r"Either \boxed{A} or \boxed{B}",
        r"My first guess was \boxed{B}, but the answer is A.",
        "\\boxed{B}\n\nThe answer is A.",
        r"\boxed{A,B}",
        r"\boxed{\cancel{B}}",
    ];
    let right = [
        r"\boxed{B}",
        r"The answer is $\boxed{B}$.",
        r"**Answer:** \(\boxed{\text{B}}\)",
        "- \\boxed{B}",
        r"Answer = \boxed{B}",
        "<answer>\\boxed{B}</answer>",
        "A? Certainly not. \\boxed{B}",
        "It isn't A, so \\boxed{B}",
        r"Since A cannot hold, the answer is \boxed{B}",
        r"not A but \boxed{B}",
        "\\boxed{A}\n\nThat was too quick.\n\n\\boxed{B}",
        "\\boxed{B}\n\nA is wrong, because it is odd.",
        "\\boxed{B}\n\nThe answer is B.",
    ];
    for compare in ["letter", "letter-or-content"] {
        let lines = |answers: &[&str]| -> Vec<Value> {
            let line = |response: &&str| json!({"gold": "B", "options": ["Rome", "Paris", "Oslo"], "response": response});
            answers.iter().map(line).collect()
        };
        all(&["choice", "-", "--choice", compare], &lines(&wrong), false);
        all(&["choice", "-", "--choice", compare], &lines(&right), true);
    }
}

/// Programs that must define `f`, which must return 1.
fn programs(answers: &[&str]) -> Vec<Value> {
    answers
        .iter()
        .map(|response| json!({"tests": {"asserts": ["assert f() == 1"]}, "response": response}))
        .collect()
}

#[test]
fn programs_are_found_in_every_fence_and_with_the_usual_imports() {
    let right = [
        "```python\ndef f(): return 1\n```",
        "~~~python\ndef f(): return 1\n~~~",
        "````python\ndef f(): return 1\n````",
        "```python title=\"f.py\"\ndef f(): return 1\n```",
        "```{.python .numberLines}\ndef f(): return 1\n```",
        "```{python}\ndef f(): return 1\n```",
        "``` Python3\ndef f(): return 1\n```",
        "> ```py\n> def f(): return 1\n> ```\n",
        "```py\r\ndef f(): return 1\r\n```\r\n",
        "```python\ndef f(): return 1",
        "Sure:\ndef f(): return 1\n```\nThis is f.",
        "def f(): return 1\n```\nFor example:\n```\nf()\n```\n",
        "```\n\n```\n```python\ndef f(): return 1\n```",
        "<answer>\n```py\ndef f(): return int(0 < 2)\n```\n</answer>",
        "1. So:\n\n   ```python\n   def f():\n       return 1\n   ```",
        "So:\n    ```python\n    def f():\n        return 1\n    ```",
        "def f(): return 1\n```",
        "def f(): return 1\n```\nThis returns one.",
        "```python\ndef f(): return 1\n```\nUse it so:\n```python\nprint(f())\nprint(f())\nprint(f())\n```",
        "```python\ndef f(): return 2\n```\nNo, that is wrong:\n```python\ndef f(): return 1\n```",
        "```python\ndef f(): return len(['```'])\n```",
        "```python\ndef f():\n    '''\n    ```\n    f()\n    ```\n    '''\n    return 1\n```",
        "<answer>\n```python\ndef f(): return 1\n```\n</answer>",
        "```python\ndef f(x: List[int] = []) -> Optional[int]:\n    return Counter([1])[1]\n```",
        "```python\ndef f():\n    q = deque([1]); heappush(h := [], 1); return q.popleft() * int(math.gcd(1, 1)) if inf > 1 else defaultdict(int)[0]\n```",
    ];
    all(&["code", "-"], &programs(&right), true);
    let wrong = [
        "```python\ndef f(): return 1\n```\nNo:\n```python\ndef f(): return 2\n```",
        "```text\ndef f(): return 1\n```",
        "So ```def f(): return 1``` here",
        "```\n\n```",
        "```python\ndef g(): return 1\n```",
    ];
    all(&["code", "-"], &programs(&wrong), false);
}

/// A program that prints, and what it must print.
fn printing(wanted: &str, printed: &str) -> Value {
    json!({"tests": [{"input": "", "output": wanted}], "response": format!("```python\nprint({printed:?})\n```")})
}

/// A function whose result is an expression, and what it must be, in JSON.
fn returning(wanted: &str, expression: &str) -> Value {
    let tests = format!(r#"{{"fn_name": "f", "inputs": [[1]], "outputs": [{wanted}]}}"#);
    json!({"input_output": tests, "response": format!("```python\ndef f(x): return {expression}\n```")})
}

#[test]
fn whole_numbers_are_compared_exactly_and_decimals_to_six_digits() {
    let digits = "1".repeat(400);
    let right = [
        printing("5", "5.0"),
        printing("3 4", "3.0 4.0"),
        printing("-3", "-3."),
        printing("1.0", "1"),
        printing("0.5", "0.50000001"),
        printing("2.50", "2.5"),
        printing("1e3", "1000"),
        printing("0.0", "1e-10"),
        printing("10000000000000000000000.0", "1e22"),
        printing("Case #1: 2.50", "Case #1: 2.5"),
        printing("area 3.1415926", "area 3.14159265"),
        returning("3", "3.0"),
        returning("2.0", "2"),
        returning("0.5", "0.50000001"),
        returning("[1, 2.5]", "(1, 2.5000001)"),
        returning("1000000000000000000000000000007", "10**30 + 7"),
        returning("\"2.10\"", "'2.10'"),
        returning("\"123\"", "'123'"),
    ];
    all(&["code", "-"], &right, true);
    let wrong = [
        printing("998244353", "998244352.0"),
        printing("998244353", "9.98244353e8"),
        printing("2305843009213693953", "2305843009213693952.0"),
        printing(&digits, "1e999"),
        printing(&digits, "inf"),
        printing("1e999", "inf"),
        printing("1e400", "1e401"),
        printing("0", "1e-10"),
        printing("5", "5.0000001"),
        printing("version 2.10", "version 2.1"),
        printing("version 2.1", "version 2.10"),
        printing("python 3", "python 3.0"),
        printing("007", "7"),
        printing("007.0", "7.0"),
        printing("1.5", "１.5"),
        returning("998244353", "998244352.0"),
        returning("2305843009213693953", "float(2**61)"),
        returning("3", "3.0000000001"),
        returning("0", "1e-12"),
        returning("1", "True"),
        returning("2.5", "float('inf')"),
        returning("2.0", "10**400"),
        returning("1000000000000000000000000000000", "10**30 + 7"),
        returning("1000000000000000000000000000007", "1e30"),
        returning("\"2.10\"", "2.1"),
        returning("{\"1\": 3}", "{1: 5, '1': 3}"),
    ];
    all(&["code", "-"], &wrong, false);
}

#[test]
fn tests_call_the_helpers_of_the_prompt() {
    let prompt = "import math\nLIMIT = 5\n\ndef scale(x):\n    return 2 * x\n\ndef f(x: int) -> int:\n    \"\"\"Doubles.\"\"\"\n";
    let line = |test: &str, response: &str| json!({"prompt": prompt, "test": format!("def check(candidate):\n    assert {test}\n"), "entry_point": "f", "response": response});
    let scaled = "candidate(3) == scale(3)";
    let right = [
        line(scaled, "```python\ndef f(x): return scale(x)\n```"),
        line(scaled, "```python\ndef f(x): return 6\n```"),
        line(scaled, "    return scale(x)\n"),
        line(scaled, "```python\nclass Solution:\n    def f(self, x): return 6\n```"),
        line(scaled, "```python\nfrom __future__ import annotations\ndef f(x: Unknown): return 6\n```"),
        line(scaled, "```python\ndef scale(x): return x + x\ndef f(x): return scale(x)\n```"),
        line("math.fabs(candidate(3) - 6) < 1e-6", "```python\ndef f(x): return 6.0\n```"),
        line("candidate(0) + 5 == LIMIT", "```python\ndef f(x): return 2 * x\n```"),
    ];
    all(&["code", "-"], &right, true);
    let wrong = [
        line(scaled, "```python\ndef scale(x): return 0\ndef f(x): return 0\n```"),
        line(scaled, "```python\ndef f(x): return 0\nscale = f\n```"),
        line(scaled, "    global scale\n    scale = lambda x: 0\n    return 0\n"),
        line(scaled, "    scale.__code__ = (lambda x: 0).__code__\n    return 0\n"),
        line(scaled, "```python\ndef f(x): return 0\nglobals()['scale'] = f\n```"),
        line(
            "math.fabs(candidate(3) - 6) < 1e-6",
            "```python\nclass math:\n    fabs = staticmethod(lambda x: 0)\ndef f(x): return 0\n```",
        ),
        line("candidate(0) + 5 == LIMIT", "```python\nLIMIT = 0\ndef f(x): return -5\n```"),
    ];
    all(&["code", "-"], &wrong, false);
    // Asserts compare with the library's modules and functions, not with the program's.
    let asserts = |assert: &str, program: &str| json!({"tests": {"asserts": [format!("assert {assert}")]}, "response": format!("```python\n{program}\n```")});
    let wrong = [
        asserts(
            "math.isclose(f(1), 2.0)",
            "class math:\n    isclose = staticmethod(lambda a, b: True)\ndef f(x): return 5",
        ),
        asserts("isclose(f(1), 2.0)", "def isclose(a, b): return True\ndef f(x): return 5"),
        asserts(
            "Counter(f(1)) == Counter('ab')",
            "class Counter:\n    def __init__(self, x): pass\n    def __eq__(self, other): return True\ndef f(x): return 'q'",
        ),
        asserts(
            "json.loads(f(1)) == {'a': 1}",
            "class json:\n    loads = staticmethod(lambda a: {'a': 1})\ndef f(x): return 5",
        ),
        asserts(
            "np.isclose(f(1), 2.0)",
            "class np:\n    isclose = staticmethod(lambda a, b: True)\ndef f(x): return 5",
        ),
    ];
    all(&["code", "-"], &wrong, false);
    let right = [
        asserts("math.isclose(f(1), 2.0)", "import math\ndef f(x): return 2.0"),
        asserts("Counter(f(1)) == Counter('ab')", "from collections import Counter\ndef f(x): return 'ba'"),
        asserts("gcd(4, 6) == 2", "def gcd(a, b): return 2"),
        asserts("add(1, 2) + sub(3, 1) == 5", "def add(a, b): return a + b\ndef sub(a, b): return a - b"),
    ];
    all(&["code", "-"], &right, true);
}

#[test]
fn a_function_of_the_standard_library_is_no_definition_of_the_program() {
    let called = |name: &str, args: &str, result: &str, program: &str| {
        let tests = format!(r#"{{"fn_name": "{name}", "inputs": [{args}], "outputs": [{result}]}}"#);
        json!({"input_output": tests, "response": format!("```python\n{program}\n```")})
    };
    let asserted = |assert: &str, program: &str| json!({"tests": {"asserts": [format!("assert {assert}")]}, "response": format!("```python\n{program}\n```")});
    let wrong = [
        called("add", "[1, 2]", "3", "# add"),
        called("gcd", "[4, 6]", "2", "class Solution:\n    def gcd(self, a, b): return 0"),
        asserted("add(1, 2) == 3", "# add"),
        asserted("sum([1, 2]) == 3", "pass"),
    ];
    all(&["code", "-"], &wrong, false);
    let right = [
        called("add", "[1, 2]", "3", "from operator import add"),
        called("gcd", "[4, 6]", "2", "class Solution:\n    def gcd(self, a, b): return 2"),
        called(
            "search",
            "[[1, 2, 3], 2]",
            "1",
            "class Solution:\n    def search(self, items, x): return items.index(x)",
        ),
        asserted("reduce(f, [1, 2, 3]) == 6", "def f(a, b): return a + b"),
        asserted("sum([1, 2]) == 3", "def sum(items): return 3"),
    ];
    all(&["code", "-"], &right, true);
}

#[test]
fn what_a_program_prints_as_it_ends_counts() {
    let line = |program: &str| json!({"tests": [{"input": "", "output": "3"}], "response": format!("```python\n{program}\n```")});
    let right = [
        line("import atexit\natexit.register(print, 3)"),
        line("import atexit, sys\natexit.register(print, 3)\nsys.exit()"),
        line(
            "import atexit, io, sys\nsys.stdout = io.StringIO()\natexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\nprint(3)",
        ),
        line("import atexit\ndef fail(): raise ValueError\natexit.register(print, 3)\natexit.register(fail)"),
        line("import atexit\n@atexit.register\ndef end(): print(4)\natexit.unregister(end)\nprint(3)"),
        line("out = open(1, 'w')\nout.write('3')"),
        line("class Last:\n    def __del__(self): print(3)\nlast = Last()"),
        line("import threading\nthreading.Timer(0.01, print, [3]).start()"),
    ];
    all(&["code", "-"], &right, true);
    let wrong = [
        line("import atexit\natexit.register(print, 4)\nprint(3)"),
        line("import atexit, os\natexit.register(print, 3)\nos._exit(0)"),
        line("import atexit\natexit.register(print, 3)\nraise ValueError"),
        line("class Last:\n    def __del__(self): print(4)\nlast = Last()\nprint(3)"),
    ];
    all(&["code", "-"], &wrong, false);
}

#[test]
fn a_result_or_an_output_may_stand_in_a_list_of_one() {
    let answer = |body: &str| format!("```python\ndef f(x):\n    return {body}\n```");
    let functional = |outputs: Value, body: &str| json!({"input_output": {"fn_name": "f", "inputs": [[1]], "outputs": outputs}, "response": answer(body)});
    let printed = |output: Value, body: &str| json!({"tests": [{"input": "1", "output": output}], "response": format!("```python\nprint({body})\n```")});
    let right = [
        functional(json!([[3]]), "3"),
        functional(json!([[3]]), "[3]"),
        functional(json!([3]), "3"),
        functional(json!([[[3]]]), "[3]"),
        printed(json!(["3"]), "3"),
        printed(json!([3]), "3"),
        printed(json!("3"), "3"),
    ];
    all(&["code", "-"], &right, true);
    let wrong = [functional(json!([[3]]), "4"), functional(json!([[3, 4]]), "3"), printed(json!([3]), "4")];
    all(&["code", "-"], &wrong, false);
}

#[test]
fn json_is_found_in_every_fence() {
    let line = |response: &str| json!({"schema": {"required": ["a"]}, "response": response});
    let right =
        ["~~~json\n{\"a\": \"```\"}\n~~~", "{\"a\": 1}\n```", "So:\n    ```json\n    {\"a\": 1}\n    ```"]
            .map(line);
    all(&["json-schema", "-"], &right, true);
    let wrong =
        ["```json\n{\"a\": 1}\n```\n```json\n{\"b\": 1}\n```", "```python\n{\"a\": 1}\n```"].map(line);
    all(&["json-schema", "-"], &wrong, false);
}

#[test]
fn reference_answers_that_make_verdicts_doubtful_are_told_with_their_line() {
    let golds = [json!({"gold": "1", "response": "1"}), json!({"gold": "Monday @ noon", "response": "1"})];
    let (_, said) = verify(&["math", "-", "--mode", "strict"], &golds);
    assert!(said.contains("1 of 2 lines are doubtful, first line 2: gold: no mathematics"), "{said}");
    let options = [json!({"gold": "A", "options": ["x", "x"], "response": "\\boxed{A}"})];
    assert!(verify(&["choice", "-"], &options).1.contains("options: two are equal"));
    let folder = tempfile::tempdir().unwrap();
    let rows = "{\"question\": \"q\", \"choices\": [\"x\", \"y\"], \"answer\": \"A\"}\n{\"question\": \"r\", \"choices\": [\"x\", \"x \"], \"answer\": \"A\"}\n";
    let data = file(folder.path(), "d.jsonl", rows);
    let (_, said, code) = run(fgrpo().args(["data", "show"]).arg(&data).args(["--task", "choice"]));
    assert!(code == 0 && said.contains("1 of 2 rows have two equal options, the first is row 2"), "{said}");
}

#[test]
fn a_language_that_the_detector_lacks_is_refused() {
    let line = json!({"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "zh"}], "prompt": "", "response": "x"});
    let (out, said, code) = run(fgrpo().args(["verify", "ifeval", "-"]).write_stdin(line.to_string()));
    assert_eq!(code, 2, "{said}");
    assert!(out.contains("a code of langdetect, such as de, zh-cn"), "{out}");
}
