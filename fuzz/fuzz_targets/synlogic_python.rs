//! The reader of Python literals and expressions, of JSON, and of exact arithmetic.
//!
//! `cargo +nightly fuzz run synlogic_python -- -max_total_time=660`
#![no_main]

use fgrpo_verify::synlogic::{json, python, rational};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // A literal is also an expression, with the same value, except for NaN.
    if let Ok(value) = python::literal(text)
        && value == value.clone()
    {
        assert_eq!(python::evaluate(text).as_ref(), Ok(&value), "{text}");
    }
    if let (Ok(exact), Ok(value)) = (rational::evaluate(text), python::evaluate(text))
        && let (Some(a), Some(b)) = (exact.is_int().then(|| exact.numerator().clone()), python::whole(&value))
        && matches!(value, fgrpo_verify::synlogic::value::Value::Int(_))
    {
        assert_eq!(a, b, "{text}");
    }
    json::parse(text);
});
