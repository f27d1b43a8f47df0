//! Reads the words after a value: units, and counted things.
//!
//! Units of a quantity are compared by their canonical names, so that `m/s` is `meters per second`. They are not
//! converted: 10 cm and 0.1 m differ. A value without a unit agrees with any unit, because golds often leave it out.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::words::{is_scale, ordinal};

/// Canonical names of units, each with its other spellings.
const UNITS: &str = "\
    mm millimeter millimetre | cm centimeter centimetre | dm decimeter decimetre | m meter metre | \
    km kilometer kilometre kms | inch in inches | foot ft feet | yard yd yds | mile mi | mg milligram | \
    g gram gm gms | kg kilogram kgs | tonne ton | pound lb lbs | ounce oz | ms millisecond | \
    s second sec secs | minute min mins | hour h hr hrs | day | week | month | year yr yrs | \
    ml milliliter millilitre | l liter litre | gallon gal | degree deg | radian rad rads | celsius c | \
    fahrenheit f | k kelvin | n newton | j joule | kj kilojoule | w watt | kw kilowatt | v volt | \
    a amp ampere | ohm | hz hertz | pa pascal | mol mole | acre | hectare ha | dollar usd bucks | \
    cent cents | euro eur | sterling gbp | yen jpy | rupee rs inr | am | pm";

/// Units whose spelling denotes two units, such as a unit per hour.
const SPEEDS: &[(&str, [&str; 2])] =
    &[("mph", ["mile", "hour"]), ("kmh", ["km", "hour"]), ("kmph", ["km", "hour"]), ("kph", ["km", "hour"])];

/// Words that don't affect the unit.
const EMPTY: &[&str] = &[
    "unit", "total", "in", "of", "the", "a", "an", "altogether", "long", "each", "exactly", "only", "and",
    "is", "about", "there", "are", "different", "possible", "as", "required", "away", "old", "left",
    "remaining", "us",
];

/// Words that change the meaning of the value before them.
const CHANGING: &[&str] = &[
    "not", "never", "isn", "wrong", "incorrect", "false", "or", "more", "less", "greater", "fewer",
    "smaller", "larger", "least", "most", "than", "maybe", "perhaps", "possibly", "probably",
    "approximately", "roughly", "around", "nearly", "almost", "between", "to", "until", "unless", "except",
    "minus", "plus", "times", "half", "twice", "double", "triple", "negative", "hundred", "thousand",
    "million", "billion", "trillion", "dozen", "percent", "modulo", "base", "squared", "cubed", "halves",
    "below", "above", "factorial", "choose", "power", "root", "excluded", "extraneous", "rejected",
    "invalid", "impossible", "point", "divided", "multiplied", "over", "mod", "added", "increased",
    "decreased", "subtracted", "doubled", "halved", "negated", "backwards", "permille", "lakh", "crore",
    "gross", "bn", "mn", "tn", "th", "st", "nd", "rd", "grand", "kilo", "kilos", "basis", "thrice", "halfs",
    "short",
];

/// Participles that describe what is counted.
const DESCRIBING: &[&str] = &["needed", "required", "used", "expected", "colored", "coloured", "shaded"];

/// Prepositions, before which the counted things are named.
const PREPOSITIONS: &[&str] = &[
    "of", "in", "per", "for", "on", "at", "from", "with", "without", "by", "into", "to", "under", "over",
    "as", "that", "who", "which",
];

/// Spellings of units with capital letters. Those of a symbol in another case are other units, as in `mS` and `ms`.
const CAPITALS: &str = " K N J KJ kJ W KW kW Kw V A Hz HZ Pa L mL dL C F AM PM Am Pm USD EUR GBP JPY INR Rs Kg KG Km KM \
    Cm CM Ft FT Hr Lb Oz Sec Min Day Yen Ha ";

/// A unit, or the counted things.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Unit {
    /// Canonical names with their exponents, sorted.
    known: Vec<(Box<str>, i32)>,
    /// Other words, without plural endings.
    words: Vec<Box<str>>,
    /// Words that change the value's meaning.
    changing: Vec<Box<str>>,
    /// Number of words before the first known unit, and before the first preposition.
    before: Option<usize>,
    counted: Option<usize>,
}

/// Returns the canonical name of a unit as written. The case of a symbol matters, as in `mA` and `MA`.
fn written(word: &str) -> Option<&'static str> {
    let capital = word.len() <= 3 && word.contains(|c: char| c.is_ascii_uppercase());
    canonical(&word.to_lowercase()).filter(|_| !capital || CAPITALS.contains(&format!(" {word} ")))
}

/// Returns the canonical name of a unit in lower case.
pub(crate) fn canonical(word: &str) -> Option<&'static str> {
    static NAMES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let units = UNITS.split(" | ").map(|unit| unit.split_whitespace());
        units
            .flat_map(|mut words| words.next().map(|name| words.chain([name]).map(move |word| (word, name))))
            .flatten()
            .collect()
    });
    let plural = word.strip_suffix('s').filter(|stem| stem.len() > 2);
    [Some(word), plural].into_iter().flatten().find_map(|word| NAMES.get(word).copied())
}

/// Returns the currency that an abbreviation before an amount names, as in `USD 5`.
pub(crate) fn currency(word: &str) -> Option<&'static str> {
    let short = matches!(&*word.to_ascii_lowercase(), "usd" | "eur" | "gbp" | "jpy" | "inr" | "rs");
    short.then(|| canonical(&word.to_ascii_lowercase())).flatten()
}

/// Returns whether a word changes the meaning of the value next to it.
pub(crate) fn changes(word: &str) -> bool {
    let stem = word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(word);
    CHANGING.contains(&word)
        || CHANGING.contains(&stem) && is_scale(word)
        || stem.ends_with("illion")
        || stem.ends_with("fold") && stem.len() > 5
        || matches!(word, "no" | "none" | "neither" | "nor" | "unknown")
}

/// Returns the denominator that a word such as `fifths` denotes.
pub(crate) fn denominator(word: &str) -> Option<u32> {
    match word {
        "half" | "halves" => Some(2),
        "quarter" | "quarters" => Some(4),
        _ => ordinal(word).and_then(|number| number.try_into().ok()),
    }
}

/// Whether the words right behind a number turn it into another one, as in `12 inverted`, `12 in the denominator`.
fn turns(words: &[String]) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    let next = rest.first().map(|next| &**next);
    match &**first {
        "with" | "without" | "under" | "over" => true,
        "as" => next.is_some_and(|next| !DESCRIBING.contains(&next) && next != "desired"),
        "in" => {
            next.is_some_and(|next| !matches!(next, "total" | "all" | "each") && canonical(next).is_none())
        }
        "split" | "cut" => true,
        first => {
            let participle = first.len() > 4 && first.ends_with("ed") && !first.ends_with("eed");
            participle && !DESCRIBING.contains(&first) && next.is_none_or(|next| PREPOSITIONS.contains(&next))
        }
    }
}

/// Returns whether letters in a row are a unit when they follow a number. Single letters are variables.
pub(crate) fn is_unit(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    word.len() > 1 && (canonical(&lower).is_some() || SPEEDS.iter().any(|(name, _)| *name == lower))
}

impl Unit {
    /// Reads words such as `square centimeters`, `km per hour`, `m/s^2`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut unit = Self::default();
        let mut sign = 1;
        let mut power = 1;
        let mut all: Vec<String> = Vec::new();
        let text = &*text.replace('²', "^2").replace('³', "^3");
        let mut rest = text;
        if let Some(modulus) = text.trim_matches(['{', '}', ' ']).strip_prefix("mod ") {
            unit.words.push(format!("mod {modulus}").into());
            return unit;
        }
        loop {
            let start =
                rest.find(|c: char| c.is_alphabetic() || matches!(c, '/' | '^')).unwrap_or(rest.len());
            // A number among the words is another value; one that a letter touches is part of a word: `m2`.
            let numbers = rest[..start].split(char::is_whitespace).skip(1);
            unit.changing
                .extend(numbers.filter(|n| n.starts_with(|c: char| c.is_ascii_digit())).map(Box::from));
            rest = &rest[start..];
            if rest.is_empty() {
                break;
            }
            if let Some(after) = rest.strip_prefix('/') {
                (sign, rest) = (-1, after);
                continue;
            }
            if let Some(after) = rest.strip_prefix('^') {
                let after = after.trim_start_matches(['{', ' ']);
                let length = after.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(after.len());
                if let (Ok(exponent), Some(last)) = (after[..length].parse::<i8>(), unit.known.last_mut()) {
                    last.1 *= i32::from(exponent);
                }
                rest = &after[length..];
                continue;
            }
            let length = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
            let spelled = &rest[..length];
            let word = spelled.to_lowercase();
            rest = &rest[length..];
            let inches = !rest.trim_start().starts_with(|c: char| c.is_alphabetic());
            all.push(word.clone());
            if PREPOSITIONS.contains(&&*word) && (word != "in" || !inches) {
                unit.counted.get_or_insert(unit.words.len());
            }
            match word.as_str() {
                "in" if !inches => {}
                "per" => {
                    sign = -1;
                    unit.words.push("per".into());
                }
                "square" | "sq" | "squared" => match unit.known.last_mut() {
                    Some(last) if word == "squared" => last.1 *= 2,
                    None if word == "squared" => unit.changing.push(word.into()),
                    _ => power = 2,
                },
                "cubic" | "cubed" => match unit.known.last_mut() {
                    Some(last) if word == "cubed" => last.1 *= 3,
                    None if word == "cubed" => unit.changing.push(word.into()),
                    _ => power = 3,
                },
                _ => {
                    if let Some((_, [above, below])) = SPEEDS.iter().find(|(name, _)| *name == word) {
                        unit.known.extend([((*above).into(), 1), ((*below).into(), -1)]);
                    } else if let Some(name) = written(spelled) {
                        unit.before.get_or_insert(unit.words.len());
                        unit.known.push((name.into(), sign * power));
                        (sign, power) = (1, 1);
                    } else {
                        let stem = word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(&word);
                        // A symbol keeps its case.
                        let symbol = length <= 4 && spelled.contains(|c: char| c.is_ascii_uppercase());
                        let kept = if symbol { spelled } else { stem };
                        if changes(&word) || denominator(&word).is_some() {
                            unit.changing.push(if symbol { spelled.into() } else { word.clone().into() });
                        } else if !EMPTY.contains(&stem) && !EMPTY.contains(&word.as_str()) {
                            unit.words.push(kept.into());
                        }
                    }
                }
            }
        }
        if turns(&all) {
            unit.changing.push(all.join(" ").into());
        }
        if unit.words.iter().all(|word| &**word == "per") {
            unit.words.clear();
        }
        if unit.known.iter().any(is_temperature) {
            unit.known.retain(|(name, _)| &**name != "degree");
        }
        unit.known.sort();
        unit
    }

    /// Returns whether the unit is a currency with cents.
    pub(crate) fn is_money(&self) -> bool {
        self.known.iter().any(|(name, _)| matches!(&**name, "dollar" | "euro" | "sterling"))
    }

    /// Returns the modulus of a remainder, `5` in `\pmod{5}`.
    pub(crate) fn modulus(&self) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("mod "))
    }

    /// Returns the letters of a unit with their exponents, if all its letters could be variables, as in `m/s`.
    pub(crate) fn letters(&self) -> &[(Box<str>, i32)] {
        let letters = self.words.is_empty() && self.known.iter().all(|(name, _)| name.len() == 1);
        if letters { &self.known } else { &[] }
    }

    /// Returns whether the unit is the second half of a day, if it is a half of a day.
    pub(crate) fn half_day(&self) -> Option<bool> {
        match &self.known[..] {
            [(name, 1)] if matches!(&**name, "am" | "pm") => Some(&**name == "pm"),
            _ => None,
        }
    }

    /// Whether the unit is degrees of an angle or of any temperature.
    pub(crate) fn is_degree(&self) -> bool {
        matches!(&self.known[..], [(name, 1)] if &**name == "degree")
    }

    /// Returns whether words change the value's meaning, so that it is not the value alone.
    pub(crate) fn changes(&self) -> bool {
        !self.changing.is_empty()
    }

    /// Returns whether a value in this unit may equal a value in the other.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        if self.changing != other.changing {
            return false;
        }
        let bare = |unit: &Self| unit.known.is_empty() && unit.words.is_empty();
        if bare(self) || bare(other) {
            return true;
        }
        match (self.known.is_empty(), other.known.is_empty()) {
            (false, false) if self.is_degree() || other.is_degree() => {
                [self, other].iter().all(|unit| unit.is_degree() || unit.known.iter().all(is_temperature))
            }
            (false, false) => {
                let named = |unit: &Self| unit.words[..unit.before.unwrap_or(0)].to_vec();
                self.known == other.known && named(self) == named(other)
            }
            (true, true) => {
                // The counted things have one name: pairs of shoes aren't shoes, and cats per dog aren't cats.
                let named = |unit: &Self| {
                    let end = unit.counted.filter(|end| *end > 0).unwrap_or(unit.words.len());
                    let name = unit.words[..end].iter().rfind(|word| !word.ends_with("ed"));
                    (name.cloned(), unit.words.iter().filter(|word| &***word == "per").count())
                };
                if named(self) != named(other) {
                    return false;
                }
                // One side may describe the counted things with more words, which must contain the other's words in order.
                let [few, many] =
                    if self.words.len() < other.words.len() { [self, other] } else { [other, self] };
                let mut words = many.words.iter();
                few.words.iter().all(|word| words.any(|found| found == word))
            }
            _ => false,
        }
    }
}

fn is_temperature((name, _): &(Box<str>, i32)) -> bool {
    matches!(&**name, "celsius" | "fahrenheit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_agree_by_meaning() {
        for (first, second, wanted) in [
            ("cm", "centimeters", true),
            ("cm", "m", false),
            ("square cm", "cm^2", true),
            ("cm^{2}", "cm^3", false),
            ("m/s", "meters per second", true),
            ("m/s", "m", false),
            ("mph", "miles per hour", true),
            ("km/h", "kmh", true),
            ("apples", "apple", true),
            ("apples", "pears", false),
            ("different ways", "ways", true),
            ("square units", "units", true),
            ("cm", "", true),
            ("cm", "apples", false),
            ("min", "minutes", true),
            ("degrees", "rad", false),
            ("degrees", "C", true),
            ("degrees Celsius", "C", true),
            ("F", "C", false),
            ("m2", "", true),
            ("apples 13", "apples", false),
            ("{mod 97}", "mod 97", true),
            ("mod 97", "", true),
            ("mod 97", "mod 89", false),
            ("apples 13 pears", "", false),
        ] {
            let (a, b) = (Unit::parse(first), Unit::parse(second));
            assert_eq!((a.agrees(&b), b.agrees(&a)), (wanted, wanted), "{first} and {second}: {a:?} {b:?}");
        }
    }
}
