//! The verifiers' readers of answers: JSON, exact arithmetic, values with Python's equality.

mod json {
    use fgrpo_verify::synlogic::json::parse;
    use fgrpo_verify::synlogic::value::Value;
    use proptest::prelude::*;

    #[test]
    fn reads_what_python_reads_and_refuses_what_it_refuses() {
        for good in [
            "[1, -2.5e3, \"a\\u00e9\\ud83d\\ude00\\ud800\", null, NaN, -Infinity]",
            " {\"a\": {}} ",
            "0",
            "\"\u{7f}\"",
        ] {
            assert!(parse(good).is_some(), "{good}");
        }
        for bad in [
            "", " ", "[1,]", "{\"a\":1,}", "{a:1}", "01", "1.", ".5", "1e", "{1: 2}", "'a'", "\"a\nb\"",
            "[1] 2", "[1 2]", "\\", "\"\\x\"", "\"\\u12\"", "\"", "-", "+1", "True", "nul", "{\"a\"}",
            "{\"a\":}", "{\"a\":1]", "\u{feff}{}", "\u{a0}1",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
        assert_eq!(parse("\"\\ud83d\\ude00\""), Some(Value::Str("😀".into())));
        assert_eq!(parse("{\"a\": 1, \"a\": 2}").unwrap().get("a").unwrap().as_i64(), Some(2));
    }

    #[test]
    fn a_megabyte_of_brackets_is_refused() {
        assert!(parse(&"[".repeat(1 << 20)).is_none());
        assert!(parse(&"{\"a\":".repeat(1 << 18)).is_none());
        assert!(parse(&"9".repeat(1 << 20)).is_none() && parse(&"9".repeat(4300)).is_some());
        assert!(parse(&format!("{}{}", "[".repeat(900), "]".repeat(900))).is_some());
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn never_panics_on_json_like_text(text in "[\\[\\]{}\",:0-9eE.+\\\\u \\-ntfNI]{0,60}") {
            let ours = parse(&text);
            // We read everything that serde_json reads (it refuses overflowing numbers, which Python reads as infinite).
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                prop_assert!(ours.is_some());
            }
        }
    }
}

mod rational {
    use dashu_ratio::RBig;
    use fgrpo_verify::synlogic::python::EvalError;
    use fgrpo_verify::synlogic::rational::evaluate;
    use proptest::prelude::*;

    fn int(n: i64) -> RBig {
        RBig::from(n)
    }

    #[test]
    fn fractions_are_exact() {
        for (text, wanted) in [
            ("8 / (3 - 8 / 3)", 24),
            ("(2 - 7) % (2 - 7) * 6 / 3", 0),
            ("-7 // 2", -4),
            ("-2 ** 2", -4),
            ("2 ** 3 ** 2", 512),
            ("--5", 5),
        ] {
            assert_eq!(evaluate(text), Ok(int(wanted)), "{text}");
        }
    }

    #[test]
    fn mistakes_and_monsters_are_refused() {
        for text in ["", "1 +", "(1", "1 / (2 - 2)", "1 2", "a", "2 ** (1 / 2)"] {
            assert!(evaluate(text).is_err(), "{text}");
        }
        assert_eq!(evaluate("9**9**9**9"), Err(EvalError::Budget));
        assert_eq!(evaluate(&"(".repeat(1 << 20)), Err(EvalError::Budget));
        assert_eq!(evaluate(&"1%".repeat(1 << 18)), Err(EvalError::Budget));
        assert_eq!(evaluate(&"-".repeat(1 << 20)), Err(EvalError::Budget));
        assert_eq!(evaluate(&"2**".repeat(1 << 18)), Err(EvalError::Budget));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[0-9+*/%() -]{0,60}") {
            let _ = evaluate(&text);
        }
    }
}

mod value {
    use dashu_int::IBig;
    use fgrpo_verify::synlogic::value::{Value, compare_numbers};

    #[test]
    fn numbers_of_different_types_compare_exactly() {
        let big = Value::Int((IBig::from(1) << 53) + IBig::from(1));
        assert_ne!(big, Value::Float(9_007_199_254_740_992.0));
        assert_eq!(Value::Bool(true), Value::Float(1.0));
        assert_eq!(Value::Int(IBig::from(-3)), Value::Complex(-3.0, 0.0));
        assert_ne!(Value::Float(f64::NAN), Value::Float(f64::NAN));
        assert_eq!(
            compare_numbers(&Value::Int(IBig::from(-1)), &Value::Float(-0.5)),
            Some(std::cmp::Ordering::Less)
        );
    }

    #[test]
    fn a_list_is_not_a_tuple_and_a_dictionary_ignores_order() {
        let one = || Value::Int(IBig::from(1));
        assert_ne!(Value::List(vec![one()]), Value::Tuple(vec![one()]));
        let a = Value::Dict(vec![(Value::Str("a".into()), one()), (one(), Value::None)]);
        let b =
            Value::Dict(vec![(Value::Float(1.0), Value::None), (Value::Str("a".into()), Value::Bool(true))]);
        assert_eq!(a, b);
    }
}
