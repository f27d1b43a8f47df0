//! Right answers in the forms that models write. Each is right by construction, because the form is made from the value.

use crate::random::{Case, Random, in_a_box};

const UNITS: [&str; 8] = ["cm", "km", "kg", "hours", "apples", "dollars", "students", "square units"];

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// Digits in groups of three.
fn grouped(value: i64, separator: &str) -> String {
    let digits = value.unsigned_abs().to_string();
    let first = (digits.len() + 2) % 3 + 1;
    let mut out = digits[..first].to_owned();
    for at in (first..digits.len()).step_by(3) {
        out.push_str(separator);
        out.push_str(&digits[at..at + 3]);
    }
    if value < 0 { format!("-{out}") } else { out }
}

/// `numerator / 10^places`, with all places.
fn decimal(numerator: i64, places: usize) -> String {
    let digits = format!("{:0>width$}", numerator.unsigned_abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let sign = if numerator < 0 { "-" } else { "" };
    if places == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// The digits of `numerator/denominator` before the point, after it, and in its period.
fn periodic(numerator: i64, denominator: i64) -> (i64, String, String) {
    let mut rest = numerator % denominator;
    let mut digits = String::new();
    let mut seen: Vec<i64> = Vec::new();
    while rest != 0 && !seen.contains(&rest) {
        seen.push(rest);
        rest *= 10;
        digits.push_str(&(rest / denominator).to_string());
        rest %= denominator;
    }
    let start = seen.iter().position(|other| *other == rest).unwrap_or(digits.len());
    let (head, period) = digits.split_at(if rest == 0 { digits.len() } else { start });
    (numerator / denominator, head.to_owned(), period.to_owned())
}

/// Decorations that don't change a value.
fn dressed(random: &mut Random, value: &str) -> String {
    let colour = random.pick(&["red", "blue", "green"]);
    match random.between(0, 29) {
        0 => format!("{{{value}}}"),
        1 => format!("\\left({value}\\right)"),
        2 => format!("\\,{value}\\,"),
        3 => format!("~{value}"),
        4 => format!("\\;{value}\\;"),
        5 => format!("\\displaystyle {value}"),
        6 => format!("\\large {value}"),
        7 => format!("{value}."),
        8 => format!("\\text{{The answer is }}{value}"),
        9 => format!("\\text{{Answer: }} {value}"),
        10 => format!("\\textcolor{{{colour}}}{{{value}}}"),
        11 => format!("\\color{{{colour}}}{value}"),
        12 => format!("{{\\color{{{colour}}} {value}}}"),
        13 => format!("\\color{{{colour}}}{{{value}}}"),
        14 => format!("\\underline{{{value}}}"),
        15 => format!("\\underline{{\\underline{{{value}}}}}"),
        16 => format!("\\boxed{{{value}}}"),
        17 => format!("\\boldsymbol{{{value}}}"),
        18 => format!("\\mathbf{{{value}}}"),
        19 => format!("\\bm{{{value}}}"),
        20 => format!("${value}$"),
        21 => format!("\\({value}\\)"),
        22 => format!("**{value}**"),
        23 => format!(" {value} "),
        24 => format!("\n{value}\n"),
        25 => format!("{value}\\,"),
        26 => format!("\\quad {value}"),
        27 => format!("{value}\\text{{.}}"),
        28 => format!("\\mathbf{{\\textcolor{{{colour}}}{{{value}}}}}"),
        _ => format!("\\ensuremath{{{value}}}"),
    }
}

/// Names that can be given to a value.
fn named(random: &mut Random, value: &str) -> String {
    let name = random.pick(&[
        "x",
        "n",
        "S",
        "f(2)",
        "AB",
        "m+n",
        "x_1",
        "\\theta",
        "a_{10}",
        "\\text{Area}",
        "P(A)",
        "N",
        "f'(3)",
        "|AB|",
        "\\triangle",
        "\\angle ABC",
        "x+y",
        "ab",
        "\\frac{a}{b}",
        "V_{\\text{max}}",
        "f(g(2))",
    ]);
    format!("{name} {} {value}", random.pick(&["=", "="]))
}

fn integer(random: &mut Random) -> Case {
    let size = random.pick(&[12, 120, 9_000, 2_000_000]);
    let value = random.between(-size, size);
    let plain = value.to_string();
    let positive = value.unsigned_abs();
    let unit = random.pick(&UNITS);
    let factor = random.between(2, 9);
    let zeros = random.between(2, 7);
    let power = 10i64.pow(zeros as u32);
    let (value, plain, form) = match random.between(0, 24) {
        0 => (value, plain.clone(), format!("{plain}.0")),
        1 => (value, plain.clone(), format!("{plain}.00")),
        2 => (value, plain, grouped(value, ",")),
        3 => (value, plain, grouped(value, "{,}")),
        4 => (value, plain, grouped(value, "\\,")),
        5 => (value, plain, grouped(value, " ")),
        6 => (value, plain, grouped(value, ",\\!")),
        7 => (value, plain, grouped(value, "~")),
        8 => (value, plain, format!("\\frac{{{}}}{{{factor}}}", value * factor)),
        9 => (value, plain.clone(), format!("\\frac{{{plain}}}{{1}}")),
        10 => (value, plain.clone(), format!("{plain}\\text{{ {unit}}}")),
        11 => (value, plain.clone(), format!("{plain} {unit}")),
        12 => (value, plain.clone(), format!("{plain}\\ \\mathrm{{{unit}}}")),
        13 => (positive as i64, positive.to_string(), format!("\\${positive}")),
        14 => (positive as i64, positive.to_string(), format!("+{positive}")),
        15 => (-(positive as i64) - 1, format!("-{}", positive + 1), format!("−{}", positive + 1)),
        16 => (-(positive as i64) - 1, format!("-{}", positive + 1), format!("- {}", positive + 1)),
        17 => (factor * power, (factor * power).to_string(), format!("{factor}\\times10^{{{zeros}}}")),
        18 => (factor * power, (factor * power).to_string(), format!("{factor} \\cdot 10^{zeros}")),
        19 => (factor * power, (factor * power).to_string(), format!("{factor}.0e{zeros}")),
        20 => (factor * power, (factor * power).to_string(), format!("{factor}e{zeros}")),
        21 => {
            (factor.pow(zeros as u32), factor.pow(zeros as u32).to_string(), format!("{factor}^{{{zeros}}}"))
        }
        22 => (value, plain.clone(), format!("{}+{factor} = {plain}", value - factor)),
        23 => (value, plain.clone(), named(random, &plain)),
        _ => (value, plain.clone(), dressed(random, &plain)),
    };
    let _ = value;
    Case { class: "integers", gold: plain, response: in_a_box(random, &form) }
}

fn fraction(random: &mut Random) -> Case {
    let denominator = random.between(2, 40);
    let mut numerator = random.between(1, 90);
    while gcd(numerator, denominator) > 1 {
        numerator += 1;
    }
    let negative = random.between(0, 3) == 0;
    let sign = if negative { "-" } else { "" };
    let (p, q) = (numerator, denominator);
    let factor = random.between(2, 6);
    let (whole, head, period) = periodic(p, q);
    let plain = format!("{sign}\\frac{{{p}}}{{{q}}}");
    let form = match random.between(0, 21) {
        0 => format!("{sign}\\dfrac{{{p}}}{{{q}}}"),
        1 => format!("{sign}\\tfrac{{{p}}}{{{q}}}"),
        2 => format!("{sign}{p}/{q}"),
        3 => format!("{sign}{{{p}}}/{{{q}}}"),
        4 => format!("{sign}({p})/({q})"),
        5 => format!("{sign}\\frac{{{}}}{{{}}}", p * factor, q * factor),
        6 => format!("\\frac{{{sign}{p}}}{{{q}}}"),
        7 if negative => format!("\\frac{{{p}}}{{-{q}}}"),
        8 if p > q => format!("{sign}{}\\frac{{{}}}{{{q}}}", p / q, p % q),
        9 if p > q => format!("{sign}{} \\tfrac{{{}}}{{{q}}}", p / q, p % q),
        10 if p > q => format!("{sign}{} {}/{q}", p / q, p % q),
        11 if period.is_empty() => format!("{sign}{whole}.{head}"),
        11 | 12 if !period.is_empty() => format!("{sign}{whole}.{head}\\overline{{{period}}}"),
        13 if period.is_empty() && head.len() > 2 => format!("{sign}{whole}.{head}"),
        13 if period.is_empty() => format!("{sign}{}\\%", decimal((p * 10_000) / q, 2)),
        14 if period.len() == 1 => format!("{sign}{whole}.{head}\\dot{{{period}}}"),
        14 if !period.is_empty() => format!("{sign}{whole}.{head}({period})"),
        15 => format!("{sign}\\frac{{{p}}}{{{q}}}\\text{{ {}}}", random.pick(&UNITS)),
        16 => named(random, &plain),
        17 => format!("{sign}{{{p} \\over {q}}}"),
        18 => format!("{sign}\\left(\\frac{{{p}}}{{{q}}}\\right)"),
        19 => format!("{plain} \\approx {sign}{}", decimal((p * 100_000 / q + 5) / 10, 4)),
        20 => format!("{sign}\\frac{{{}}}{{{}}} = {plain}", p * factor, q * factor),
        21 if p < 10 && q < 10 => format!("{sign}\\frac{p}{q}"),
        _ => dressed(random, &plain),
    };
    Case { class: "fractions", gold: plain, response: in_a_box(random, &form) }
}

fn decimals(random: &mut Random) -> Case {
    let places = random.between(1, 4) as usize;
    let numerator = random.between(1, 99_999);
    let plain = decimal(numerator, places);
    let power = 10i64.pow(places as u32);
    let common = gcd(numerator, power);
    let exponent = random.between(-34, 24);
    let lead = random.between(101, 999);
    let scientific = format!("{} \\times 10^{{{exponent}}}", decimal(lead, 2));
    let power_of_ten = random.between(2, 9);
    let (gold, form) = match random.between(0, 18) {
        0 => (plain.clone(), format!("{plain}0")),
        1 => (plain.clone(), format!("+{plain}")),
        2 => (plain, format!("\\frac{{{}}}{{{}}}", numerator / common, power / common)),
        3 => (plain, format!("{numerator}\\times10^{{-{places}}}")),
        4 => (plain.clone(), format!("{plain}\\text{{ {}}}", random.pick(&UNITS))),
        5 => (plain.clone(), format!("{plain} {}", random.pick(&UNITS))),
        6 => (plain, format!("{}\\%", decimal(numerator * 100, places))),
        7 => (plain.clone(), named(random, &plain)),
        8 => {
            let gold = decimal(numerator % power, places);
            (gold.clone(), gold.trim_start_matches('0').to_owned())
        }
        9 => (scientific, format!("{}\\cdot 10^{{{exponent}}}", decimal(lead, 2))),
        10 => (scientific, format!("{}e{exponent}", decimal(lead, 2))),
        11 => (scientific, format!("{}E{exponent}", decimal(lead, 2))),
        12 => (scientific, format!("{} × 10^{{{exponent}}}", decimal(lead, 2))),
        13 => (scientific, format!("{}*10^{{{exponent}}}", decimal(lead, 2))),
        14 => (scientific, format!("{}\\times 10^{{{}}}", decimal(lead, 3), exponent + 1)),
        // The same digits and zeros.
        15 => (scientific, format!("{}\\times 10^{{{exponent}}}", decimal(lead * 100, 4))),
        16 => (
            format!("{}{}", decimal(numerator, 0), "0".repeat(power_of_ten as usize)),
            format!(
                "{} \\times 10^{{{}}}\\text{{ {}}}",
                decimal(numerator, 4),
                power_of_ten + 4,
                random.pick(&UNITS)
            ),
        ),
        17 => (plain.clone(), format!("\\approx {plain}").replace("\\approx", "x \\approx")),
        _ => (plain.clone(), dressed(random, &plain)),
    };
    Case { class: "decimals", gold, response: in_a_box(random, &form) }
}

fn surd(random: &mut Random) -> Case {
    let a = random.between(2, 20);
    let b = random.pick(&[2, 3, 5, 6, 7, 10, 11, 13, 15]);
    let p = random.between(-9, 9);
    let c = random.between(2, 9);
    let (gold, form) = match random.between(0, 22) {
        0 => (format!("{a}\\sqrt{{{b}}}"), format!("\\sqrt{{{}}}", a * a * b)),
        1 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}\\cdot\\sqrt{{{b}}}")),
        2 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}√{b}")),
        3 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}√({b})")),
        4 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}√{{{b}}}")),
        5 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}\\sqrt {b}")),
        6 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}\\cdot {b}^{{1/2}}")),
        7 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}\\cdot {b}^{{\\frac{{1}}{{2}}}}")),
        8 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}*sqrt({b})")),
        9 => (format!("{a}\\sqrt{{{b}}}"), format!("{a} sqrt({b})")),
        10 => (format!("{a}\\sqrt{{{b}}}"), format!("\\frac{{{}}}{{\\sqrt{{{b}}}}}", a * b)),
        11 => (format!("\\frac{{\\sqrt{{{b}}}}}{{{c}}}"), format!("\\frac{{1}}{{{c}}}\\sqrt{{{b}}}")),
        12 => (format!("\\frac{{\\sqrt{{{b}}}}}{{{c}}}"), format!("\\sqrt{{\\frac{{{b}}}{{{}}}}}", c * c)),
        13 => (format!("\\frac{{\\sqrt{{{b}}}}}{{{c}}}"), format!("√{b}/{c}")),
        14 => (format!("{p}+{a}\\sqrt{{{b}}}"), format!("{a}\\sqrt{{{b}}} + {p}").replace("+ -", "- ")),
        15 => (format!("{p}+{a}\\sqrt{{{b}}}").replace("+-", "-"), format!("{p} + \\sqrt{{{}}}", a * a * b)),
        16 => {
            (format!("{p}+{a}\\sqrt{{{b}}}"), format!("\\frac{{{} + {}\\sqrt{{{b}}}}}{{{c}}}", p * c, a * c))
        }
        17 => (format!("\\sqrt[3]{{{b}}}"), format!("{b}^{{1/3}}")),
        18 => (format!("\\sqrt[3]{{{b}}}"), format!("{b}^{{\\frac13}}")),
        19 => {
            let gold = format!("{a}\\sqrt{{{b}}}");
            (gold.clone(), named(random, &gold))
        }
        20 => (format!("{a}\\sqrt{{{b}}}"), format!("{a}\\sqrt{{{b}}}\\text{{ cm}}")),
        21 => (format!("{a}+\\sqrt{{{b}}}"), format!("{a} + \\sqrt{{{b}}} \\text{{ cm}}^2")),
        _ => {
            let gold = format!("{a}\\sqrt{{{b}}}");
            (gold.clone(), dressed(random, &gold))
        }
    };
    Case { class: "surds", gold, response: in_a_box(random, &form) }
}

fn constant(random: &mut Random) -> Case {
    let q = random.pick(&[2, 4, 5, 8]);
    let mut p = random.between(1, 15);
    while gcd(p, q) > 1 {
        p += 1;
    }
    let k = random.between(2, 9);
    let pi = format!("\\frac{{{p}\\pi}}{{{q}}}");
    let (gold, form) = match random.between(0, 18) {
        0 => (pi, format!("\\frac{{{p}}}{{{q}}}\\pi")),
        1 => (pi, format!("{p}\\pi/{q}")),
        2 => (pi, format!("{p}π/{q}")),
        3 => (pi, format!("{}\\pi", decimal(p * 1000 / q, 3))),
        4 => (pi, format!("\\frac{{{p}}}{{{q}}} \\cdot \\pi")),
        5 => (pi, format!("\\frac{{\\pi}}{{{q}}}\\cdot {p}")),
        6 => (pi, format!("{p}*pi/{q}")),
        7 => (format!("{k}e^{{{p}}}"), format!("{k}\\mathrm{{e}}^{{{p}}}")),
        8 => (format!("{k}e^{{{p}}}"), format!("{k}\\exp({p})")),
        9 => (format!("{k}e^{{{p}}}"), format!("{k}*exp({p})")),
        10 => (format!("e^{{{p}}}-{k}"), format!("-{k} + exp({p})")),
        11 => {
            (format!("e^{{{p}}}-{k}"), format!("e^{p}-{k}").replace(&format!("^{p}-"), &format!("^{{{p}}}-")))
        }
        12 => (format!("{k}\\ln 2"), format!("\\ln {}", 1 << k)),
        13 => (format!("{k}\\ln 2"), format!("{k}\\ln(2)")),
        14 => (format!("{k}\\ln 2"), format!("{k} ln(2)")),
        15 => (format!("{k}\\ln 2"), format!("{k}\\log_e 2")),
        16 => (format!("\\log_{{{k}}} 11"), format!("\\frac{{\\ln 11}}{{\\ln {k}}}")),
        17 => (pi.clone(), named(random, &pi)),
        _ => (pi.clone(), dressed(random, &pi)),
    };
    Case { class: "constants", gold, response: in_a_box(random, &form) }
}

fn complex(random: &mut Random) -> Case {
    let (a, b) = (random.between(-20, 20), random.between(2, 20));
    let minus = random.coin();
    let sign = if minus { "-" } else { "+" };
    let gold = format!("{a}{sign}{b}i");
    let other = if minus { format!("-{b}") } else { b.to_string() };
    let form = match random.between(0, 8) {
        0 => format!("{a} {sign} {b} i"),
        1 => format!("{other}i + {a}").replace("+ -", "- "),
        2 => format!("{a} {sign} i{b}").replace(&format!("i{b}"), &format!("i\\cdot {b}")),
        3 => format!("{a} {sign} {b}\\mathrm{{i}}"),
        4 => format!("{a}.0 + {other}.0i"),
        5 => format!("{a} {sign} {b}\\cdot i"),
        6 => format!("({a}{sign}{b}i)"),
        7 => format!("z = {gold}"),
        _ => dressed(random, &gold),
    };
    Case { class: "complex numbers", gold, response: in_a_box(random, &form) }
}

fn interval(random: &mut Random) -> Case {
    let a = random.between(-20, 20);
    let b = a + random.between(1, 20);
    let (low_open, high_open) = (random.coin(), random.coin());
    let (l, r) = (if low_open { "(" } else { "[" }, if high_open { ")" } else { "]" });
    let (lt, ge) = (if low_open { "<" } else { "\\le" }, if low_open { ">" } else { "\\ge" });
    let (rt, rge) = (if high_open { "<" } else { "\\leq" }, if high_open { ">" } else { "\\geq" });
    let plain = format!("{l}{a},{b}{r}");
    let outside = format!(
        "(-\\infty,{a}{}\\cup{}{b},\\infty)",
        if low_open { ")" } else { "]" },
        if high_open { "(" } else { "[" }
    );
    let outside_less = if low_open { "<" } else { "\\le" };
    let outside_more = if high_open { ">" } else { "\\ge" };
    let ray = format!("{l}{a},\\infty)");
    let (gold, form) = match random.between(0, 25) {
        0 => (plain, format!("\\left{l}{a}, {b}\\right{r}")),
        1 => (plain, format!("{a} {lt} x {rt} {b}")),
        2 => (plain, format!("{b} {rge} x {ge} {a}")),
        3 => (plain.clone(), format!("x \\in {plain}")),
        4 => (plain, format!("\\{{x \\mid {a} {lt} x {rt} {b}\\}}")),
        5 => (plain, format!("\\{{x : {a} {lt} x {rt} {b}\\}}")),
        6 => (plain, format!("\\{{x \\in \\mathbb{{R}} : {a} {lt} x {rt} {b}\\}}")),
        7 => (plain, format!("x {ge} {a} \\text{{ and }} x {rt} {b}")),
        8 => (format!("{a} {lt} x {rt} {b}"), plain),
        9 => (format!("{a} {lt} x {rt} {b}"), format!("x \\in \\left{l}{a},{b}\\right{r}")),
        10 => (outside.clone(), format!("x {outside_less} {a} \\text{{ or }} x {outside_more} {b}")),
        11 => (outside.clone(), format!("x \\in {outside}")),
        12 => {
            let (first, second) = outside.split_once("\\cup").unwrap_or_default();
            (outside.clone(), format!("{second} \\cup {first}"))
        }
        13 => (outside.clone(), outside.replace("\\infty", "∞").replace("\\cup", " ∪ ")),
        14 => (outside.clone(), outside.replace(",\\infty", ", +\\infty")),
        15 => (ray.clone(), format!("x {ge} {a}")),
        16 => (ray.clone(), format!("{a} {lt} x")),
        17 => (ray.clone(), format!("{l}{a}, +\\infty)")),
        18 => (format!("x {ge} {a}"), ray),
        19 => (format!("(-\\infty,{a})\\cup({a},\\infty)"), format!("x \\neq {a}")),
        20 => (format!("(-\\infty,{a})\\cup({a},\\infty)"), format!("\\mathbb{{R}} \\setminus \\{{{a}\\}}")),
        21 => (format!("x \\neq {a}"), format!("(-\\infty,{a})\\cup({a},\\infty)")),
        22 => (plain.clone(), format!("I = {plain}")),
        23 => (plain, format!("\\bigl{l}{a}, {b}\\bigr{r}")),
        24 => (plain, format!("{l}{a}.0, \\frac{{{}}}{{2}}{r}", 2 * b)),
        _ => (plain.clone(), dressed(random, &plain)),
    };
    Case { class: "intervals", gold, response: in_a_box(random, &form) }
}

fn set(random: &mut Random) -> Case {
    let a = random.between(-30, 30);
    let b = a + random.between(1, 9);
    let c = b + random.between(1, 9);
    let n = random.between(2, 30);
    let braced = random.coin();
    let list = |items: &[i64]| items.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let shuffled = list(&random.shuffled(&[a, b, c]));
    let three = if braced { format!("\\{{{a},{b},{c}\\}}") } else { format!("{a}, {b}, {c}") };
    let two = if braced { format!("\\{{{a},{b}\\}}") } else { format!("{a}, {b}") };
    let (gold, response) = match random.between(0, 22) {
        0 => (three, format!("\\{{{shuffled}\\}}")),
        1 => (three, shuffled),
        2 => (three, format!("\\left\\{{ {shuffled} \\right\\}}")),
        3 => (three, format!("\\lbrace {shuffled} \\rbrace")),
        4 => (two, format!("{b} \\text{{ and }} {a}")),
        5 => (three, format!("{c}, {a}, \\text{{ and }} {b}")),
        6 => (two, format!("x={a}, x={b}")),
        7 => (two, format!("x = {b}, {a}")),
        8 => (two, format!("x = {a} \\text{{ or }} x = {b}")),
        9 => (two, format!("x \\in \\{{{b},{a}\\}}")),
        10 => (two, format!("x_1 = {a}, x_2 = {b}")),
        11 => (three, format!("{a}; {b}; {c}")),
        12 => (format!("{n}, -{n}"), format!("\\pm {n}")),
        13 => (format!("-{n}, {n}"), format!("x = \\pm {n}")),
        14 => (format!("{n}, -{n}"), format!("±{n}")),
        15 => (two, format!("{a} \\quad {b}")),
        16 => (three, format!("{a},\\ {b},\\ {c}")),
        17 => (two.clone(), format!("S = \\{{{a}, {b}\\}}")),
        18 => {
            let response = format!("Hence $\\boxed{{{a}}}$ and $\\boxed{{{b}}}$.");
            return Case { class: "sets", gold: two, response };
        }
        19 => {
            let response = format!("The solutions are $x={a}$ and $x={b}$.");
            return Case { class: "sets", gold: two, response };
        }
        20 => (two, format!("{a} \\text{{ or }} {b}")),
        21 => (
            "\\emptyset".to_owned(),
            random.pick(&["\\varnothing", "\\{\\}", "∅", "\\emptyset", "\\{ \\}"]).to_owned(),
        ),
        _ => (three.clone(), dressed(random, &three)),
    };
    Case { class: "sets", gold, response: in_a_box(random, &response) }
}

fn tuple(random: &mut Random) -> Case {
    let values: Vec<i64> = (0..random.between(2, 3)).map(|_| random.between(-20, 20)).collect();
    let join = |separator: &str| values.iter().map(i64::to_string).collect::<Vec<_>>().join(separator);
    let names = ["x", "y", "z"];
    let assigned = |equals: &str, separator: &str| {
        let parts = values.iter().zip(names).map(|(value, name)| format!("{name}{equals}{value}"));
        parts.collect::<Vec<_>>().join(separator)
    };
    let gold = format!("({})", join(","));
    let form = match random.between(0, 22) {
        0 => format!("\\left({}\\right)", join(", ")),
        1 => format!("({}) = ({})", names[..values.len()].join(","), join(", ")),
        2 => assigned("=", ", "),
        3 => assigned(" = ", ",\\ "),
        4 => assigned(" = ", "\\text{ and }"),
        5 => format!("\\langle {}\\rangle", join(", ")),
        6 => format!("\\begin{{pmatrix}}{}\\end{{pmatrix}}", join("\\\\")),
        7 => format!("\\begin{{bmatrix}} {} \\end{{bmatrix}}", join(" \\\\ ")),
        8 => format!("\\begin{{pmatrix}}{}\\end{{pmatrix}}", join("&")),
        9 => format!("\\left(\\begin{{array}}{{c}}{}\\end{{array}}\\right)", join("\\\\")),
        10 => format!("\\begin{{cases}}{}\\end{{cases}}", assigned("=", "\\\\")),
        11 => format!("\\left\\{{\\begin{{array}}{{l}}{}\\end{{array}}\\right.", assigned("=", "\\\\")),
        12 => format!("\\begin{{aligned}}{}\\end{{aligned}}", assigned("&=", "\\\\")),
        13 => format!("({})", join("; ")),
        14 => join(", "),
        15 => format!("P = ({})", join(", ")),
        16 => format!("\\left\\langle {}\\right\\rangle", join(", ")),
        17 => format!("\\vec{{v}} = ({})", join(",")),
        18 => format!("({}.0)", join(".0, ")),
        19 => format!("( {} )", join(" , ")),
        20 => format!("({})", join(",\\,")),
        21 => format!("\\bigl({}\\bigr)", join(", ")),
        _ => dressed(random, &gold),
    };
    Case { class: "tuples", gold, response: in_a_box(random, &form) }
}

fn matrix(random: &mut Random) -> Case {
    let [a, b, c, d] = [0; 4].map(|_| random.between(-9, 9));
    let gold = format!("\\begin{{pmatrix}}{a}&{b}\\\\{c}&{d}\\end{{pmatrix}}");
    let k = random.between(2, 5);
    let form = match random.between(0, 7) {
        0 => format!("\\begin{{bmatrix}} {a} & {b} \\\\ {c} & {d} \\end{{bmatrix}}"),
        1 => format!("\\left[\\begin{{array}}{{cc}}{a}&{b}\\\\{c}&{d}\\end{{array}}\\right]"),
        2 => format!("\\left(\\begin{{array}}{{rr}}{a}&{b}\\\\{c}&{d}\\end{{array}}\\right)"),
        3 => format!("A = {gold}"),
        4 => format!("\\begin{{pmatrix}}\n{a} & {b} \\\\\n{c} & {d} \\\\\n\\end{{pmatrix}}"),
        5 => {
            format!(
                "\\frac{{1}}{{{k}}}\\begin{{pmatrix}}{}&{}\\\\{}&{}\\end{{pmatrix}}",
                a * k,
                b * k,
                c * k,
                d * k
            )
        }
        6 => format!("\\left(\\begin{{smallmatrix}}{a}&{b}\\\\{c}&{d}\\end{{smallmatrix}}\\right)"),
        _ => dressed(random, &gold),
    };
    Case { class: "matrices", gold, response: in_a_box(random, &form) }
}

fn polynomial(random: &mut Random) -> Case {
    let (a, b, k) = (random.between(1, 9), random.between(1, 9), random.between(2, 6));
    let gold = format!("x^2+{}x+{}", a + b, a * b);
    let scaled = format!("{k}x^2+{}x", k * a);
    let (gold, form) = match random.between(0, 21) {
        0 => (gold, format!("(x+{a})(x+{b})")),
        1 => (gold, format!("{}x + x^2 + {}", a + b, a * b)),
        2 => (gold, format!("{} + {}x + x^{{2}}", a * b, a + b)),
        3 => (gold, format!("x²+{}x+{}", a + b, a * b)),
        4 => (gold, format!("x^2 + {}*x + {}", a + b, a * b)),
        5 => (gold, format!("x \\cdot x + {} \\cdot x + {}", a + b, a * b)),
        6 => (gold.clone(), format!("f(x) = {gold}")),
        7 => (gold.clone(), format!("y={gold}")),
        8 => (gold.clone(), format!("P(x) = {gold}")),
        9 => (scaled, format!("{k}x(x+{a})")),
        10 => (scaled, format!("{k}\\left(x^2+{a}x\\right)")),
        11 => (format!("\\frac{{x^2}}{{{k}}}+{a}"), format!("\\frac{{1}}{{{k}}}x^2+{a}")),
        12 => (format!("\\frac{{x+{a}}}{{{k}}}"), format!("\\frac{{x}}{{{k}}} + \\frac{{{a}}}{{{k}}}")),
        13 => (format!("{k}ab+{a}a"), format!("a({k}b+{a})")),
        14 => (format!("{k}xe"), format!("{k}x(e)")),
        15 => (format!("\\frac{{x+{a}}}{{x+{}}}", a + b), format!("1-\\frac{{{b}}}{{x+{}}}", a + b)),
        16 => (format!("{k}\\sin x\\cos x"), format!("\\frac{{{k}}}{{2}}\\sin(2x)")),
        17 => (format!("e^{{{k}x}}+{a}"), format!("{a}+\\exp({k}x)")),
        18 => (format!("{k}x^3"), format!("{k}x^{{3}}")),
        19 => (
            format!("\\frac{{\\pi}}{{{k}}}+n\\pi"),
            format!("\\frac{{\\pi}}{{{k}}} + n\\pi, n \\in \\mathbb{{Z}}"),
        ),
        20 => (format!("\\frac{{x^{k}}}{{{k}}}+C"), format!("\\frac{{1}}{{{k}}}x^{k} + C")),
        _ => (gold.clone(), dressed(random, &gold)),
    };
    Case { class: "polynomials and functions", gold, response: in_a_box(random, &form) }
}

fn equation(random: &mut Random) -> Case {
    let (m, b, k) = (random.between(2, 9), random.between(1, 9), random.between(2, 5));
    let line = format!("y={m}x+{b}");
    let (gold, form) = match random.between(0, 12) {
        0 => (line, format!("{m}x-y+{b}=0")),
        1 => (line, format!("y-{m}x={b}")),
        2 => (line, format!("y - {b} = {m}x")),
        3 => (line, format!("{m}x + {b} = y")),
        4 => (line, format!("{k}y={}x+{}", k * m, k * b)),
        5 => (line, format!("y = {b} + {m}x")),
        6 => (line, format!("y={m}\\left(x+\\frac{{{b}}}{{{m}}}\\right)")),
        7 => (
            format!("(x-{m})^2+(y+{b})^2={}", k * k),
            format!("x^2+y^2-{}x+{}y+{}=0", 2 * m, 2 * b, m * m + b * b - k * k),
        ),
        8 => (format!("\\frac{{x^2}}{{{m}}}+\\frac{{y^2}}{{{b}}}=1"), format!("{b}x^2+{m}y^2={}", m * b)),
        9 => (format!("x={m}"), format!("{m} = x")),
        10 => (format!("x={m}"), m.to_string()),
        11 => (format!("x > {m}"), format!("{k}x > {}", k * m)),
        _ => (line.clone(), dressed(random, &line)),
    };
    Case { class: "equations", gold, response: in_a_box(random, &form) }
}

fn word(random: &mut Random) -> Case {
    let text = random.pick(&["Yes", "No", "Evelyn", "True", "even", "Monday", "odd", "isosceles"]);
    let letter = random.pick(&["A", "B", "C", "D", "E"]);
    let (gold, form) = match random.between(0, 11) {
        0 => (format!("\\text{{{text}}}"), text.to_owned()),
        1 => (format!("\\text{{{text}}}"), format!("\\text{{{}}}", text.to_lowercase())),
        2 => (format!("\\text{{{text}}}"), format!("\\textbf{{{text}}}")),
        3 => (format!("\\text{{{text}}}"), format!("\\mathrm{{{text}}}")),
        4 => (text.to_owned(), format!("\\text{{{text}}}")),
        5 => (text.to_owned(), format!("\\text{{ {text} }}")),
        6 => (letter.to_owned(), format!("\\text{{{letter}}}")),
        7 => (letter.to_owned(), format!("\\text{{({letter})}}")),
        8 => (letter.to_owned(), format!("\\textbf{{({letter})}}")),
        9 => (letter.to_owned(), format!("({letter})")),
        10 => (format!("\\text{{{text}}}"), format!("\\text{{{text}.}}")),
        _ => (letter.to_owned(), format!("\\mathrm{{{letter}}}")),
    };
    Case { class: "words and letters", gold, response: in_a_box(random, &form) }
}

fn quantity(random: &mut Random) -> Case {
    let n = random.between(2, 400);
    let digits: String =
        (0..random.between(3, 8)).map(|at| if at == 0 { '1' } else { random.pick(&['0', '1']) }).collect();
    let (gold, form) = match random.between(0, 32) {
        0 => (format!("{n} \\text{{ cm}}"), n.to_string()),
        1 => (format!("{n} \\text{{ cm}}"), format!("{n} cm")),
        2 => (format!("{n} \\text{{ cm}}"), format!("{n}\\,\\mathrm{{cm}}")),
        3 => (format!("{n} \\text{{ cm}}"), format!("{n}\\text{{ centimeters}}")),
        4 => (format!("{n} \\text{{ cm}}^2"), format!("{n}\\text{{ square centimeters}}")),
        5 => (format!("{n}\\text{{ m/s}}"), format!("{n}\\ \\mathrm{{m/s}}")),
        6 => (format!("{n}\\text{{ km/h}}"), format!("{n}\\text{{ km per hour}}")),
        7 => (format!("{n}^\\circ"), n.to_string()),
        8 => (n.to_string(), format!("{n}°")),
        9 => (format!("{n}^\\circ"), format!("{n}\\degree")),
        10 => (format!("{n}^\\circ"), format!("{n}^{{\\circ}}")),
        11 => (format!("{n}^{{\\circ}}"), format!("{n}\\text{{ degrees}}")),
        12 => (format!("{n}\\%"), format!("{n}%")),
        13 => (format!("{n}\\%"), format!("{n} \\%")),
        14 => (format!("{n}\\%"), format!("{n}\\text{{ percent}}")),
        15 => (format!("{n}\\%"), decimal(n, 2)),
        16 => (format!("\\${n}"), n.to_string()),
        17 => (n.to_string(), format!("\\${n}.00")),
        18 => (format!("\\${n}"), format!("{n}\\text{{ dollars}}")),
        19 => (format!("{digits}_2"), format!("{digits}_{{2}}")),
        20 => (format!("{digits}_2"), format!("({digits})_2")),
        21 => (format!("{digits}_{{2}}"), format!("{digits}_{{\\text{{two}}}}")),
        22 => (format!("{n}000000"), format!("{n}\\text{{ million}}")),
        23 => (n.to_string(), format!("{n}\\text{{ ways}}")),
        24 => (n.to_string(), format!("{n}\\text{{ cm}}^3")),
        25 => (n.to_string(), format!("{n} \\text{{ (units)}}")),
        26 => (format!("{n} \\text{{ minutes}}"), format!("{n}\\text{{ min}}")),
        27 => (format!("{n} \\text{{ m/s}}^2"), format!("{n}\\ \\mathrm{{m/s^2}}")),
        28 => (format!("{n}\\text{{ cm}}^2"), format!("{n} \\text{{ cm}}^{{2}}")),
        29 => (n.to_string(), format!("{n} \\pmod{{97}}")),
        30 => (n.to_string(), format!("x \\equiv {n} \\pmod{{97}}")),
        31 => (format!("{n} \\text{{ hours}}"), format!("{n} \\text{{ hrs}}")),
        _ => (format!("{n}m"), format!("{n}\\text{{ m}}")),
    };
    Case { class: "units, angles, percentages, bases", gold, response: in_a_box(random, &form) }
}

fn binomial(random: &mut Random) -> Case {
    let (n, k) = (random.between(5, 20), random.between(2, 4));
    let value = (0..k).fold(1, |total, at| total * (n - at) / (at + 1));
    let (gold, form) = match random.between(0, 8) {
        0 => ("\\binom{n}{k}".to_owned(), "\\frac{n!}{k!(n-k)!}".to_owned()),
        1 => ("\\binom{n}{k}".to_owned(), "\\binom{n}{n-k}".to_owned()),
        2 => ("\\frac{n!}{k!(n-k)!}".to_owned(), "\\binom{n}{k}".to_owned()),
        3 => (format!("\\binom{{n}}{{{k}}}"), format!("\\frac{{n!}}{{{k}!(n-{k})!}}")),
        4 => ("\\binom{2n}{n}".to_owned(), "\\frac{(2n)!}{(n!)^2}".to_owned()),
        5 => (format!("\\binom{{{n}}}{{{k}}}"), value.to_string()),
        6 => (value.to_string(), format!("\\binom{{{n}}}{{{k}}}")),
        7 => ("\\frac{n(n-1)}{2}".to_owned(), "\\binom{n}{2}".to_owned()),
        _ => (format!("{n}!"), (1..=n.min(18)).product::<i64>().to_string()),
    };
    let gold = if gold == format!("{n}!") { format!("{}!", n.min(18)) } else { gold };
    Case { class: "binomials", gold, response: in_a_box(random, &form) }
}

/// Simple values in the positions where models write them.
fn wrapper(random: &mut Random) -> Case {
    let n = random.between(2, 900);
    let q = random.pick(&[7, 9, 11, 13]);
    let (gold, body) = match random.between(0, 3) {
        0 => (n.to_string(), n.to_string()),
        1 => (format!("\\frac{{{}}}{{{q}}}", n * q + 1), format!("\\frac{{{}}}{{{q}}}", n * q + 1)),
        2 => (format!("{n}\\sqrt{{3}}"), format!("{n}\\sqrt{{3}}")),
        _ => (format!("x^2+{n}"), format!("x^2+{n}")),
    };
    let colour = random.pick(&["red", "blue"]);
    let response = match random.between(0, 39) {
        0 => format!("**Answer:** ${body}$"),
        1 => format!("**Answer:** \\({body}\\)"),
        2 => format!("**Answer: {body}**"),
        3 => format!("Answer: {body}"),
        4 => format!("The answer is **{body}**."),
        5 => format!("The answer is ${body}$."),
        6 => format!("The final answer is: ${body}$"),
        7 => format!("Final Answer: {body}"),
        8 => format!("### Final Answer\n\n{body}"),
        9 => format!("### Final Answer\n\n${body}$"),
        10 => format!("## Answer\n\n\\[\n{body}\n\\]"),
        11 => body.clone(),
        12 => format!("${body}$"),
        13 => format!("**{body}**"),
        14 => format!("\\[{body}\\]"),
        15 => format!("We get 3 and 4.\n\n{body}"),
        16 => format!("Answer:\n{body}"),
        17 => format!("\\boxed {{{body}}}"),
        18 => format!("\\boxed{{ {body} }}"),
        19 => format!("\\boxed{{\n{body}\n}}"),
        20 => format!("$$\n\\boxed{{\\displaystyle {body}}}\n$$"),
        21 => format!("\\boxed{{\\color{{{colour}}}{{{body}}}}}"),
        22 => format!("\\color{{{colour}}}{{\\boxed{{{body}}}}}"),
        23 => format!("\\textcolor{{{colour}}}{{\\boxed{{{body}}}}}"),
        24 => format!("**\\boxed{{{body}}}**"),
        25 => format!("\\boxed{{\\boxed{{{body}}}}}"),
        26 => format!(
            "First I thought \\boxed{{17}}. That was wrong, because the sum is larger. The answer is \\boxed{{{body}}}."
        ),
        27 => format!("<think>maybe \\boxed{{12}}</think>\nThe answer is $\\boxed{{{body}}}$"),
        28 => format!("\\boxed{{{body}}}\n\nThis agrees with the estimate of about 300 above."),
        29 => format!("The value is \\boxed{{{body}}}, that is, \\boxed{{{body}}}."),
        30 => format!("#### {body}"),
        31 => format!("Therefore, the answer is: {body}"),
        32 => format!("*Answer*: ${body}$"),
        33 => format!("__Answer__: {body}"),
        34 => format!("Answer = ${body}$"),
        35 => format!("So the correct answer is **${body}$**."),
        36 => format!("\\fbox{{${body}$}}"),
        37 => format!("The answer is:\n\n$${body}$$"),
        38 => format!("Hence the result is ${body}$."),
        _ => format!("**Final Answer**\n\\boxed{{{body}}}"),
    };
    Case { class: "wrappers", gold, response }
}

/// This many cases of every class.
pub(crate) fn cases(each: usize) -> Vec<Case> {
    let kinds: [fn(&mut Random) -> Case; 16] = [
        integer, fraction, decimals, surd, constant, complex, interval, set, tuple, matrix, polynomial,
        equation, word, quantity, binomial, wrapper,
    ];
    let mut random = Random::new(27);
    kinds.iter().flat_map(|kind| (0..each).map(|_| kind(&mut random)).collect::<Vec<_>>()).collect()
}
