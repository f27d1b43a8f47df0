//! Quirks of the reference, which parity mode has and strict mode doesn't, and problems that can't be read.

use fgrpo_verify::synlogic::{Mode, Options, Task, Verifier, check, generate, has_generator};
use fgrpo_verify::verdict::Verdict::{self, Correct, Unparsed, Wrong};

use crate::problems::numbers;

#[test]
fn names_and_aliases_are_read() {
    assert_eq!(Task::ALL.len(), 36, "35 tasks and gpqa_diamond");
    for task in Task::ALL {
        assert_eq!(task.name().parse(), Ok(task));
    }
    assert_eq!("mathador".parse(), Ok(Task::GameOf24));
    assert_eq!("val/arc_agi_2".parse(), Ok(Task::ArcAgi));
    let error = "chess".parse::<Task>().unwrap_err().to_string();
    assert!(error.contains("`chess`") && error.contains("sudoku"), "{error}");
}

#[test]
fn problems_that_cannot_be_read_are_errors_that_name_the_field() {
    let error = |task: &str, data: &str| check(task, data, "", &Options::default()).unwrap_err().to_string();
    assert!(error("sudoku", "{").contains("JSON"));
    assert!(error("sudoku", "{}").contains("original_sudoku"));
    assert!(
        error("survo", r#"{"metadata": {"original_matrix": [[1]], "n": 5}}"#).contains("original_matrix")
    );
}

fn data(answer: &str, question: &str, metadata: &str) -> String {
    format!(r#"{{"question": "{question}", "answer": {answer}, "difficulty": 1, "metadata": {metadata}}}"#)
}

/// The verdicts in parity and strict mode.
fn verdicts(task: Task, data: &str, response: &str) -> [Verdict; 2] {
    let verifier = Verifier::parse(task, data).unwrap();
    [Mode::Parity, Mode::Strict]
        .map(|mode| verifier.check(response, &Options { mode, format_gate: false }).verdict)
}

#[test]
fn game_of_24_takes_any_value_in_parity_mode_only() {
    let data =
        data("\"\"", "", r#"{"numbers": [1, 2, 3, 4], "operators": ["+", "-", "*", "/"], "result": 24}"#);
    let verdicts =
        |expression: &str| verdicts(Task::GameOf24, &data, &format!("```python\n{expression}\n```"));
    assert_eq!(verdicts("1 + 2 + 3 + 4"), [Correct, Wrong]);
    assert_eq!(verdicts("(1 + 3) * (2 + 4)"), [Correct, Correct]);
    assert_eq!(verdicts("4 / (1 - 3 / (1 * 3))"), [Wrong, Wrong], "numbers that are not given");
    assert_eq!(verdicts("1 / (2 - (3 - 1)) * 4"), [Wrong, Wrong]);
    assert_eq!(verdicts("(1 - 1) + 2"), [Wrong, Wrong]);
}

#[test]
fn expressions_beyond_the_budget_are_wrong_and_never_unscorable() {
    let nines = data("\"\"", "", r#"{"numbers": [9, 9, 9, 9], "operators": ["*"], "result": 24}"#);
    assert_eq!(verdicts(Task::GameOf24, &nines, "```python\n9**9**9**9\n```"), [Wrong, Wrong]);
    let path = data("\"\"", "", r#"{"query_expr": "?**?**?**? = 9"}"#);
    assert_eq!(verdicts(Task::MathPath, &path, "[[9**9**9**9 = 9]]"), [Wrong, Wrong]);
}

#[test]
fn an_operations_answer_is_the_last_number_that_the_reference_reads() {
    let data = data("\"79\"", "", "{}");
    let parity = |response: &str| verdicts(Task::Operation, &data, response)[0];
    assert_eq!(parity("```python\n79\n```"), Correct);
    assert_eq!(parity("```python\n5\n```\nso\n```python\n79\n```"), Correct);
    assert_eq!(parity("```python\n79\n```\nso\n```python\n5\n```"), Wrong);
    // Brackets inside brackets aren't an answer, so the block before them counts.
    assert_eq!(parity("```python\n79\n```\nso\n```python\n[[5]]\n```"), Correct);
    assert_eq!(parity("```python\n5\n```\nso\n```python\n[[79]]\n```"), Wrong);
    assert_eq!(parity("```python\n[[79]]\n```"), Unparsed);
    assert_eq!(parity("so\n[79]\n"), Correct);
    assert_eq!(parity("5 and [[1, 2], [3, 79]]"), Correct, "a number behind a blank");
    assert_eq!(parity("a [79] [5] b"), Correct, "one blank opens one bracket");
    // The reference reads a number in a text command as a name, which equals a decimal that is printed in the same way.
    let long = self::data("\"-39.199999999999996\"", "", "{}");
    let long = |response: &str| verdicts(Task::Operation, &long, response)[0];
    assert_eq!(long("\\boxed{\\text{-39.199999999999996}}"), Correct);
    assert_eq!(long("\\boxed{\\text{-39.2}}"), Wrong);
    assert_eq!(long("\\boxed{-39.2}"), Correct);
}

#[test]
fn invalid_means_valid_in_parity_mode_only() {
    let data = data("\"-1\"", "", r#"{"is_valid": true, "first_error_pos": null}"#);
    assert_eq!(verdicts(Task::DyckLanguageErrors, &data, "invalid"), [Correct, Unparsed]);
    assert_eq!(verdicts(Task::DyckLanguageErrors, &data, "-1"), [Correct, Correct]);
}

#[test]
fn letters_of_a_text_command_count_in_parity_mode_only() {
    let data = data("\"A,B\"", "", "{}");
    assert_eq!(verdicts(Task::BooleanExpressions, &data, r"\boxed{\text{A}, b}"), [Wrong, Correct]);
    assert_eq!(verdicts(Task::BooleanExpressions, &data, r"\boxed{B, A}"), [Correct, Correct]);
}

#[test]
fn norinori_without_dominoes_passes_in_parity_mode_where_no_cell_is_shaded() {
    let data = data("\"\"", "", r#"{"region_grid": [["A", "A"], ["B", "B"]]}"#);
    assert_eq!(verdicts(Task::Norinori, &data, "no idea"), [Correct, Unparsed]);
    assert_eq!(
        verdicts(Task::Norinori, &data, "[[(1,1), (1,2)]]"),
        [Correct, Wrong],
        "region B is not looked at"
    );
}

#[test]
fn futoshiki_reads_clues_back_from_rows_with_an_x_in_parity_mode() {
    // The row without an X is lost, so the clue of the last row is searched beyond the end and dropped.
    let data = data(
        "[]",
        "Current puzzle:\\n1 2\\n2 X",
        r#"{"grid_size": 2, "prefilled_coords": [[0, 0], [1, 0]], "constraints": []}"#,
    );
    assert_eq!(verdicts(Task::Futoshiki, &data, "[[2 1,1 2]]"), [Correct, Wrong]);
    assert_eq!(verdicts(Task::Futoshiki, &data, "[[1 2,2 1]]"), [Wrong, Correct]);
}

#[test]
fn any_two_numbers_are_a_mine_in_parity_mode_only() {
    let data = data("\"\"", "", r#"{"current_mines": [[3, 4]]}"#);
    assert_eq!(verdicts(Task::Minesweeper, &data, "row 3, column 4"), [Correct, Unparsed]);
    assert_eq!(verdicts(Task::Minesweeper, &data, "[(3, 4)]"), [Correct, Correct]);
    assert_eq!(verdicts(Task::Minesweeper, &data, "not [(1, 1)] but [(3, 4)]"), [Wrong, Correct]);
}

#[test]
fn know_says_no_in_parity_mode_only() {
    let data = data("\"no, yes\"", "", "{}");
    assert_eq!(verdicts(Task::WebOfLies, &data, "The answer is **I know: yes**"), [Correct, Wrong]);
    assert_eq!(verdicts(Task::WebOfLies, &data, "The answer is **no, yes**."), [Correct, Correct]);
}

#[test]
fn calcudoko_pads_short_rows_with_ones_in_parity_mode() {
    let data = data("\"\"", "", r#"{"grid_size": 2, "regions": []}"#);
    assert_eq!(verdicts(Task::Calcudoko, &data, "[[1 2,2]]"), [Correct, Unparsed]);
    assert_eq!(verdicts(Task::Calcudoko, &data, "[[1 2,2 1]]"), [Correct, Correct]);
    assert_eq!(verdicts(Task::Calcudoko, &data, "[[1, 2], [2, 1]]"), [Unparsed, Correct]);
}

#[test]
fn stars_may_be_listed_twice_and_anywhere_in_parity_mode() {
    let data = data("\"\"", "", r#"{"n": 1, "k": 1, "region_grid": [["A"]]}"#);
    let verdicts =
        |dict: &str| verdicts(Task::StarPlacementPuzzle, &data, &format!("```python\n{dict}\n```"));
    assert_eq!(verdicts("{'A': [(1, 1)]}"), [Correct, Correct]);
    assert_eq!(verdicts("{'B': [(1, 1), (1, 1)]}"), [Correct, Wrong]);
    assert_eq!(verdicts("stars = {'A': [(1, 1)]}"), [Correct, Correct]);
}

#[test]
fn an_empty_cell_of_an_arrow_maze_takes_a_zero_in_parity_mode_only() {
    let data = data("\"\"", "", r#"{"maze": [["1", "→"], ["X", "X"]]}"#);
    assert_eq!(verdicts(Task::ArrowMaze, &data, r#"[["1", "→"], ["0", "0"]]"#), [Correct, Wrong]);
}

#[test]
fn words_may_lie_inside_longer_runs_in_parity_mode_only() {
    let data = data("\"\"", "", r#"{"grid": [["X", "X", "X"]], "across_words": ["at"], "down_words": []}"#);
    assert_eq!(verdicts(Task::Wordscapes, &data, r#"[["c", "a", "t"]]"#), [Correct, Wrong]);
}

#[test]
fn the_format_gate_costs_the_score_and_reads_the_answer_tag() {
    let data = data("\"3\"", "", "{}");
    let gated = |response: &str| {
        check("object_counting", &data, response, &Options { mode: Mode::Parity, format_gate: true }).unwrap()
    };
    assert_eq!((gated(r"\boxed{3}").verdict, &*gated(r"\boxed{3}").reason), (Wrong, "format"));
    assert!(gated(r"<think>\boxed{4}</think> so <answer>\boxed{3}</answer>").is_correct());
    assert_eq!(gated(r"<think>\boxed{3}</think> <answer></answer>").verdict, Unparsed);
}

#[test]
fn equal_random_numbers_make_equal_problems() {
    for task in Task::ALL.into_iter().filter(|t| has_generator(*t)) {
        let make = |seed| generate(task, 3, 7, &mut numbers(seed)).unwrap();
        assert_eq!(make(5), make(5), "{task}");
        assert_ne!(make(5), make(6), "{task}");
    }
}

#[test]
fn tasks_without_generator_and_odd_difficulties_are_refused() {
    let refused = |task, difficulty| generate(task, difficulty, 0, &mut numbers(0)).unwrap_err().to_string();
    assert!(refused(Task::Cipher, 1).contains("no generator"));
    assert!(refused(Task::Sudoku, 0).contains("found 0"));
    assert!(refused(Task::Sudoku, 11).contains("found 11"));
}
