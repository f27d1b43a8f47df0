use super::*;

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
