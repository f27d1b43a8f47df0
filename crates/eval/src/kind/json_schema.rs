//! Reads and grades problems whose answer must be JSON that fits a schema.

use super::exact::{self, Decimal, structured};
use super::fenced;
use crate::graded::{Graded, Response};
use crate::io::harmless::shortened;
use crate::io::json;
use crate::row::{Table, Unusable, shown, shown_text, value};
use crate::verifier::{Beside, Grading, Reader, Reference, Unreadable, Verifier};
use fgrpo_verify::verdict::Verdict;
use jsonschema::{PatternOptions, Validator};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Maximum number of characters of an error that a message shows.
const SHOWN: usize = 300;

/// A JSON schema. Its draft is the one in `$schema`, or 2020-12. `format` is asserted in every draft.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The schema, or a string that contains it.
    #[serde(alias = "json_schema")]
    pub schema: Value,
}

impl Truth {
    fn compiled(&self) -> Result<Validator, String> {
        let schema = structured(&self.schema);
        // The crate accepts some strings, numbers and lists as schemas.
        if !(schema.is_object() || schema.is_boolean()) {
            return Err(format!("expected an object, found {}", shown_text(&schema.to_string())));
        }
        compiled(&schema).map_err(|error| error.to_string())
    }
}

/// Compiles a schema, in which marked numbers are replaced by their nearest doubles.
fn compiled(schema: &Value) -> Result<Validator, String> {
    let mut schema = schema.clone();
    at_schemas(&mut schema, &mut |keywords| {
        at_numbers(keywords, &[&COMPARED[..], &MULTIPLES].concat(), &mut |number| {
            if let Some(text) = number.as_str().and_then(|text| text.strip_prefix(exact::MARK)) {
                *number = json!(text.parse::<f64>().unwrap_or_default().clamp(f64::MIN, f64::MAX));
            }
        });
    });
    let mut foreign = None;
    at_schemas(&mut schema, &mut |keywords| {
        let names = keywords.get("patternProperties").and_then(Value::as_object);
        let named = names.into_iter().flat_map(|names| names.keys().map(String::as_str));
        let patterns = named.chain(keywords.get("pattern").and_then(Value::as_str));
        let parts = patterns.flat_map(|pattern| FOREIGN.captures_iter(pattern));
        foreign = parts.filter_map(|part| Some(part.get(1)?.as_str().to_owned())).next().or(foreign.take());
    });
    if let Some(part) = foreign {
        return Err(format!("/pattern: {part} doesn't have the meaning of ECMAScript here"));
    }
    let international = |text: &str| {
        let halves = text.rsplit_once('@');
        halves.is_some_and(|(name, host)| {
            !name.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace)
        })
    };
    // Patterns with look-around are rejected, so matching takes linear time. References to other files aren't followed.
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    let options = options.should_validate_formats(true).with_format("idn-email", international);
    options.build(&schema).map_err(|error| format!("{}: {error}", error.instance_path()))
}

/// Matches each part of a pattern. The group matches syntax of `regex` that ECMAScript lacks or reads differently.
static FOREIGN: LazyLock<Regex> = LazyLock::new(|| {
    let class = r"\[(?:[^\\\]]|\\[^pPxU]|\\[pP]\{|\\x[^{])*\]";
    let foreign = r"\\(?:[AzU<>]|x\{|[pP][^{]|[bB]\{)|\(\?(?:P|R|[A-Za-z-]*\))|[*+?}]\+";
    Regex::new(&format!(r"({foreign})|\\.|{class}")).expect("a pattern")
});

/// Maximum number of different numbers in the schema and the answer together, if a number has too many digits for a
/// double and is kept as a string ([`exact::MARK`]).
const MOST_NUMBERS: usize = 1000;
/// Keywords whose numbers are compared with numbers in the answer.
const COMPARED: [&str; 6] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const", "enum"];
/// Keywords whose number must divide a number in the answer.
const MULTIPLES: [&str; 2] = ["multipleOf", "divisibleBy"];
/// Keywords whose value is an object of schemas.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Visits the schemas inside of a schema, and then the schema itself.
fn at_schemas(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Object(keywords) => {
            for (keyword, value) in keywords.iter_mut() {
                match (keyword.as_str(), value) {
                    ("const" | "enum" | "default" | "examples", _) => {}
                    (keyword, Value::Object(named)) if NAMED.contains(&keyword) => {
                        named.values_mut().for_each(|schema| at_schemas(schema, visit));
                    }
                    (_, value) => at_schemas(value, visit),
                }
            }
            visit(keywords);
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(|schema| at_schemas(schema, visit)),
        _ => {}
    }
}

/// Visits the values of the keywords `names` in one schema, down to the leaves of lists and objects.
fn at_numbers(keywords: &mut Map<String, Value>, names: &[&str], visit: &mut dyn FnMut(&mut Value)) {
    keywords
        .iter_mut()
        .filter(|(name, _)| names.contains(&name.as_str()))
        .for_each(|(_, value)| leaves(value, visit));
}

/// Visits the values that are neither lists nor objects.
fn leaves(value: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| leaves(value, visit)),
        Value::Object(map) => map.values_mut().for_each(|value| leaves(value, visit)),
        leaf => visit(leaf),
    }
}

impl Reference for Truth {
    fn verifier(&self, _: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        match self.compiled() {
            Ok(validator) => {
                let schema = structured(&self.schema);
                let text = schema.to_string();
                let has = |key: &str| text.contains(&format!("\"{key}\":"));
                let refers = ["$ref", "$dynamicRef", "$recursiveRef"].into_iter().any(has);
                Ok(Box::new(Prepared { validator, refers, marked: text.contains(exact::MARK), schema }))
            }
            Err(error) => Err(Unreadable::new("bad_schema", error)),
        }
    }

    fn read_as(&self) -> Option<String> {
        Some(format!("the schema {}", structured(&self.schema).to_string().replace(exact::MARK, "")))
    }

    fn verifier_of_line(line: &[u8], grading: &Grading) -> Result<Box<dyn Verifier>, String> {
        let truth: Self = json::parse(&exact::marked(line)).map_err(|why| why.to_string())?;
        truth.verifier(grading).map_err(|unreadable| unreadable.message)
    }
}

/// Parses the JSON in an answer's last fenced block or, without blocks, in the whole answer. A block counts if its language
/// is JSON or missing, or if it begins like an object or a list; in another language it is no answer. Returns the JSON with
/// whether some of its numbers are marked ([`exact::MARK`]).
fn json_in(answer: &str) -> Option<(Value, bool)> {
    let begins = |line: &str| line.starts_with(['{', '[']);
    let blocks = fenced::blocks(answer, begins);
    let is_json = |block: &fenced::Block| ["", "json"].contains(&&*block.language);
    let last = blocks.iter().rfind(|block| is_json(block) || begins(block.text.trim_start()));
    if last.is_some_and(|block| !is_json(block)) {
        return None;
    }
    let text = last.map_or(answer, |block| &block.text);
    if exact::has_mark(text) {
        return None;
    }
    let marked = exact::marked(text.as_bytes());
    Some((serde_json::from_slice(&marked).ok()?, matches!(marked, Cow::Owned(_))))
}

struct Prepared {
    validator: Validator,
    /// Whether the schema has references, so that it may be recursive.
    refers: bool,
    /// The schema.
    schema: Value,
    /// Whether the schema has marked numbers ([`exact::MARK`]).
    marked: bool,
}

impl Prepared {
    fn fits(&self, answer: &Value, marked: bool) -> bool {
        // `is_valid` caches the result of each part, so recursive alternatives take linear time.
        if self.marked || marked { self.fits_exactly(answer) } else { self.validator.is_valid(answer) }
    }

    /// Checks the answer after each number is replaced by a number of the same order, which a double represents: twice its
    /// rank among all numbers of schema and answer, plus 0.5 if it isn't whole. `multipleOf` becomes a list of the answer's
    /// numbers that aren't multiples.
    fn fits_exactly(&self, answer: &Value) -> bool {
        let (mut schema, mut answer) = (self.schema.clone(), answer.clone());
        let mut numbers: Vec<Decimal> = Vec::new();
        let mut collect = |value: &mut Value| numbers.extend(Decimal::of(value));
        at_schemas(&mut schema, &mut |keywords| at_numbers(keywords, &COMPARED, &mut collect));
        leaves(&mut answer, &mut collect);
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.len() > MOST_NUMBERS {
            return false;
        }
        let ranking = |number: &Decimal| {
            let rank = 2 * numbers.binary_search(number).unwrap_or_default();
            if number.is_whole() { json!(rank) } else { json!(rank as f64 + 0.5) }
        };
        let mut rank = |value: &mut Value| {
            if let Some(number) = Decimal::of(value) {
                *value = ranking(&number);
            }
        };
        at_schemas(&mut schema, &mut |keywords| {
            at_numbers(keywords, &COMPARED, &mut rank);
            for keyword in MULTIPLES {
                let Some(divisor) = keywords.get(keyword).and_then(Decimal::of) else { continue };
                keywords.shift_remove(keyword);
                let all = keywords.entry("allOf").or_insert_with(|| json!([{}]));
                let others = numbers.iter().filter(|number| !number.is_multiple_of(&divisor));
                let refused = others.map(|number| json!({"not": {"const": ranking(number)}}));
                all.as_array_mut().into_iter().for_each(|all| all.extend(refused.clone()));
            }
        });
        leaves(&mut answer, &mut rank);
        compiled(&schema).is_ok_and(|validator| validator.is_valid(&answer))
    }
}

impl Verifier for Prepared {
    fn check(&self, response: Response<'_>) -> Graded {
        match json_in(response.answer) {
            None => Graded::new(Verdict::Unparsed, "no_json"),
            Some((value, marked)) if self.fits(&value, marked) => Graded::new(Verdict::Correct, "valid"),
            Some(_) => Graded::new(Verdict::Wrong, "invalid"),
        }
    }

    fn explain(&self, response: Response<'_>) -> Graded {
        let graded = self.check(response);
        // `validate` doesn't cache results as `is_valid` does: its time doubles with each level of recursive alternatives.
        let answer = json_in(response.answer).filter(|(_, marked)| {
            graded.verdict == Verdict::Wrong && !(self.refers || self.marked || *marked)
        });
        let Some(Err(error)) = answer.as_ref().map(|(answer, _)| self.validator.validate(answer)) else {
            return graded;
        };
        let why = shortened(&error.to_string(), SHOWN);
        Graded::new(Verdict::Wrong, format!("invalid: {}: {why}", error.instance_path()))
    }
}

/// Finds the column of the schema.
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let usual = ["schema", "json_schema", "reward_model.ground_truth"];
    let column = table.column("the schema", beside.answer, &usual)?;
    let column = table.require("the schema", column, &usual)?;
    Ok(Box::new(move |cells| {
        let schema = value(cells.row, &column).filter(|schema| !schema.is_null());
        let schema = schema.ok_or_else(|| Unusable::new("no schema", shown(cells.row, &column)))?;
        let truth = Truth { schema: structured(schema) };
        truth.compiled().map_err(|error| Unusable::new("a schema that can't be used", error))?;
        Ok(truth)
    }))
}
