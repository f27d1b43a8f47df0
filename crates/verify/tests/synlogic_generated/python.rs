//! Python's literals and expressions, read as CPython reads them.

use dashu_int::IBig;
use fgrpo_verify::synlogic::python::{EvalError, evaluate, int, literal};
use fgrpo_verify::synlogic::value::Value;
use proptest::prelude::*;

fn show(source: &str) -> String {
    fn text(v: &Value) -> String {
        let join = |v: &[Value]| v.iter().map(text).collect::<Vec<_>>().join(", ");
        match v {
            Value::None => "None".into(),
            Value::Ellipsis => "...".into(),
            Value::Bool(b) => format!("{b}"),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => format!("{x:?}"),
            Value::Complex(a, b) => format!("{a:.3}+{b:.3}j"),
            Value::Str(s) => format!("{s:?}"),
            Value::Bytes(b) => format!("b{b:?}"),
            Value::List(v) => format!("[{}]", join(v)),
            Value::Tuple(v) => format!("({})", join(v)),
            Value::Set(v) => format!("{{{}}}", join(v)),
            Value::Dict(d) => {
                d.iter().map(|(k, v)| format!("{}: {}", text(k), text(v))).collect::<Vec<_>>().join("; ")
            }
        }
    }
    match evaluate(source) {
        Ok(v) => text(&v),
        Err(e) => format!("{e:?}"),
    }
}

/// The values were computed with CPython 3.11.
#[test]
fn arithmetic_agrees_with_python() {
    let cases = [
        ("1 + 2 * 3 - 4 / 2", "5.0"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7 % -3", "-2"),
        ("-7 // -2", "3"),
        ("7.5 % -2", "-0.5"),
        ("-7.5 // 2", "-4.0"),
        ("2 ** -1", "0.5"),
        ("-2 ** 2", "-4"),
        ("2 ** 3 ** 2", "512"),
        ("2 ** -1 ** 2", "0.5"),
        ("(-8) ** (1/3)", "1.000+1.732j"),
        ("(-1) ** 7", "-1"),
        ("10**400 / 10**399", "10.0"),
        ("(10**400 + 1) / 3 / 10**300", "Raised"),
        ("9007199254740993 / 1", "9007199254740992.0"),
        ("1 / 3", "0.3333333333333333"),
        ("not not 3", "true"),
        ("1 < 2 < 3", "true"),
        ("3 > 2 > 2", "false"),
        ("1 == 1.0 == True", "true"),
        ("0 and 1 / 0", "0"),
        ("1 or 1 / 0", "1"),
        ("1 if 2 > 1 else 1 / 0", "1"),
        ("1 / 0", "Raised"),
        ("5 // 0.0", "Raised"),
        ("1 << 10", "1024"),
        ("~5", "-6"),
        ("--5", "5"),
        ("5 - -5", "10"),
        ("3 & 5 | 8 ^ 1", "9"),
        ("'a' + 'b' 'c'", "\"abc\""),
        ("[0] * 3 + [1]", "[0, 0, 0, 1]"),
        ("2 in [1, 2]", "true"),
        ("[[1, 2], [3]][0][-1]", "2"),
        ("'abc'[1]", "\"b\""),
        ("{'a': 1}['a']", "1"),
        ("[1][1]", "Raised"),
        ("[[1 ][0] + 2]", "[3]"),
        ("5[0]", "Raised"),
        ("[1, *'ab', *[2]]", "[1, \"a\", \"b\", 2]"),
        ("(*(1, 2),)", "(1, 2)"),
        ("(*(1, 2))", "Syntax"),
        ("[*5]", "Raised"),
        ("1_000 + 0x1f + 0b11", "1034"),
        ("1e3", "1000.0"),
        ("08", "Syntax"),
        ("00", "0"),
        ("1 2", "Syntax"),
        ("(1)(2)", "Syntax"),
        ("x + 1", "Raised"),
        ("1 +", "Syntax"),
        ("", "Syntax"),
        ("(1, 2,)", "(1, 2)"),
        ("1, 2", "(1, 2)"),
        ("()", "()"),
        ("{1: 'a', 1.0: 'b'}", "1: \"b\""),
        ("{1, 2, 1}", "{1, 2}"),
        ("{[1]: 2}", "Raised"),
        ("[1, # note\n 2]", "[1, 2]"),
        ("1\n", "1"),
        ("1\n2", "Syntax"),
        ("# note\n[1]", "[1]"),
        ("  # note\n\t# another\r\n \t\n\n[1]", "[1]"),
        ("# note\r[1] # end", "[1]"),
        ("[1]\n  # note", "[1]"),
        ("# note\n  [1]", "Syntax"),
        ("\n [1]", "Syntax"),
        ("  [1]", "[1]"),
        ("# note", "Syntax"),
        ("'\\u00e9\\x41\\n\\q'", "\"éA\\n\\\\q\""),
        ("r'\\n'", "\"\\\\n\""),
        ("\"\"\"a\nb\"\"\"", "\"a\\nb\""),
        ("'a\nb'", "Syntax"),
    ];
    for (source, wanted) in cases {
        assert_eq!(show(source), wanted, "{source}");
    }
}

#[test]
fn literals_hold_no_operators() {
    for good in ["[1, -2, 3.5]", "('a', None, True)", "{'a': [(1, 2)]}", "1+2j", " [1]"] {
        assert!(literal(good).is_ok(), "{good}");
    }
    for bad in [
        "1 + 2", "--1", "~1", "[1][0]", "a", "f(1)", "not 1", "1 < 2", "[1", "2 ** 2", "grid = [[1]]",
        "-True",
    ] {
        assert!(literal(bad).is_err(), "{bad}");
    }
}

#[test]
fn towers_of_powers_and_long_inputs_end_at_once() {
    assert_eq!(evaluate("9**9**9**9"), Err(EvalError::Budget));
    assert_eq!(evaluate("[0] * 10**12"), Err(EvalError::Budget));
    assert_eq!(evaluate("1 << 10**9"), Err(EvalError::Budget));
    assert_eq!(evaluate(&"(".repeat(1 << 20)), Err(EvalError::Syntax));
    assert_eq!(evaluate(&"-".repeat(1 << 20)), Err(EvalError::Syntax));
    assert_eq!(evaluate(&"2**".repeat(1 << 18)), Err(EvalError::Syntax));
    assert_eq!(evaluate(&"not ".repeat(1 << 18)), Err(EvalError::Syntax));
    assert_eq!(evaluate(&"1 if ".repeat(1 << 18)), Err(EvalError::Syntax));
    assert!(evaluate(&format!("{}1", "1+".repeat(10_000))).is_ok());
    assert_eq!(evaluate(&format!("{}1", "9**9999*".repeat(10_000))), Err(EvalError::Budget));
}

#[test]
fn integers_are_read_as_python_reads_them() {
    for (text, wanted) in
        [(" 12 ", Some(12)), ("-1_0", Some(-10)), ("+7", Some(7)), ("٣", Some(3)), ("1__0", None)]
    {
        assert_eq!(int(text), wanted.map(IBig::from), "{text}");
    }
    for bad in ["", "-", "_1", "1_", "1.0", "²", "1 2", &"9".repeat(4301)] {
        assert_eq!(int(bad), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn never_panics_on_any_text(source in "\\PC*") {
        let _ = evaluate(&source);
        let _ = literal(&source);
    }

    #[test]
    fn never_panics_on_expressions(source in "[0-9+*/%(),\\[\\]{}:. <>=!&|^~'\"\\\\nrbxejaifTorue\\n-]{0,80}") {
        let _ = evaluate(&source);
        let _ = literal(&source);
    }

    #[test]
    fn small_sums_and_products_agree_with_machine_integers(a in -999_i64..999, b in -999_i64..999, c in 1_i64..999) {
        prop_assert_eq!(show(&format!("{a} + {b} * {c}")), (a + b * c).to_string());
        prop_assert_eq!(show(&format!("({a}) % {c}")), a.rem_euclid(c).to_string());
        prop_assert_eq!(show(&format!("({a}) // {c}")), a.div_euclid(c).to_string());
    }
}
