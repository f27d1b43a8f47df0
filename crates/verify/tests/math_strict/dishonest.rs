//! Wrong answers that look right to a lenient reader: restated problems, hedges, signs and units that change the meaning, near misses.
//! Each is wrong by construction.

use crate::random::{Case, Random, in_a_box};

fn boxed(random: &mut Random, class: &'static str, gold: String, answer: String) -> Case {
    // Also without a box: if the answer can't be read, a part of it must not be read instead.
    let response = match random.between(0, 3) {
        0 => format!("The answer is ${answer}$."),
        _ => in_a_box(random, &answer),
    };
    Case { class, gold, response }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

fn restated(random: &mut Random) -> Case {
    let (a, b, c) = (random.between(2, 99), random.between(2, 99), random.between(2, 30));
    let (gold, answer) = match random.between(0, 35) {
        0 => (a * b, format!("{a}\\times {b}")),
        1 => (a * b, format!("{a} \\cdot {b}")),
        2 => (a * b, format!("{a}*{b}")),
        3 => (a * b, format!("({a})({b})")),
        4 => (a * b, format!("{a}({b})")),
        5 => (a + b, format!("{a}+{b}")),
        6 => (a - b, format!("{a}-{b}")),
        7 => (a + b - c, format!("{a}+{b}-{c}")),
        8 => (a * b + c, format!("{a} \\times {b} + {c}")),
        9 => (a * (b + c), format!("{a}({b}+{c})")),
        10 => (c * (c + 1) / 2, format!("\\sum_{{k=1}}^{{{c}}} k")),
        11 => (6, "\\prod_{k=1}^{3} k".to_owned()),
        12 => (gcd(a * c, b * c), format!("\\gcd({},{})", a * c, b * c)),
        13 => (a * b / gcd(a, b), format!("\\operatorname{{lcm}}({a},{b})")),
        14 => (a % c, format!("{a} \\mod {c}")),
        15 => (a % c, format!("{a} \\bmod {c}")),
        16 => (a * c - b * b, format!("\\begin{{vmatrix}}{a}&{b}\\\\{b}&{c}\\end{{vmatrix}}")),
        17 => (a * c - b * b, format!("\\det\\begin{{pmatrix}}{a}&{b}\\\\{b}&{c}\\end{{pmatrix}}")),
        18 => (a, format!("\\lim_{{x\\to {a}}} x")),
        19 => (a + b, format!("\\lim_{{x\\to 0}} \\left(x+{}\\right)", a + b)),
        20 => (a, format!("\\int_0^{{{a}}} 1 dx")),
        21 => (a * a, format!("\\int_0^{{{a}}} 2x dx")),
        22 => (a * a + b * b, format!("x^2+y^2={}", a * a + b * b)),
        23 => (a, format!("x+{b}={}", a + b)),
        24 => (a, format!("{b}x={}", a * b)),
        25 => (a, format!("\\log_2 {}", format_args!("2^{{{a}}}"))),
        26 => (a, format!("\\lfloor {a}.{b} \\rfloor")),
        27 => (a, format!("\\max({a}, {})", a - c)),
        28 => (a, format!("|-{a}|")),
        29 => (a * a + b * b, format!("{a}^2+{b}^2")),
        30 => (a, format!("\\frac{{{}+{b}}}{{2}}", 2 * a - b)),
        31 => (a, format!("\\sqrt{{{}+{}}}", a * a - 1, 1)),
        32 => (a * b, format!("x = {a} \\times {b}")),
        33 => (a, format!("{a} = {} + {b}", a + 1)),
        34 => (1, "\\sin^2 30^\\circ + \\cos^2 30^\\circ".to_owned()),
        _ => (a + b, format!("\\text{{{a} plus {b}}}")),
    };
    boxed(random, "restated: integers", gold.to_string(), answer)
}

fn restated_other(random: &mut Random) -> Case {
    let (a, b, c, d) =
        (random.between(1, 9), random.between(2, 9), random.between(1, 9), random.between(2, 9));
    let q = random.between(2, 9);
    let sum = |p: i64, q: i64| {
        let common = gcd(p, q);
        if q / common == 1 {
            (p / common).to_string()
        } else {
            format!("\\frac{{{}}}{{{}}}", p / common, q / common)
        }
    };
    let (gold, answer) = match random.between(0, 23) {
        0 => (sum(a * d + c * b, b * d), format!("\\frac{{{a}}}{{{b}}}+\\frac{{{c}}}{{{d}}}")),
        1 => (sum(a * d - c * b, b * d), format!("\\frac{{{a}}}{{{b}}}-\\frac{{{c}}}{{{d}}}")),
        2 => (sum(a * c, b * d), format!("\\frac{{{a}}}{{{b}}}\\cdot\\frac{{{c}}}{{{d}}}")),
        3 => (sum(1, q + 1), format!("\\int_0^1 x^{q} dx")),
        4 => (sum(a, b), format!("\\frac{{{}+{}}}{{{b}}}", a + 2, -2).replace("+-2", "-2")),
        5 => (format!("x+{}", a + b), format!("x+{a}+{b}")),
        6 => (format!("{}x", b * d), format!("{b}\\cdot {d} x")),
        7 => (format!("x^2+{}", a + b), format!("x^2+{a}+{b}")),
        8 => (
            format!("\\begin{{pmatrix}}{}\\\\{}\\end{{pmatrix}}", a + 2 * b, c + 2 * d),
            format!(
                "\\begin{{pmatrix}}{a}&{b}\\\\{c}&{d}\\end{{pmatrix}}\\begin{{pmatrix}}1\\\\2\\end{{pmatrix}}"
            ),
        ),
        9 => (
            format!("\\begin{{pmatrix}}{}&{}\\end{{pmatrix}}", a + c, b + d),
            format!("\\begin{{pmatrix}}{a}&{b}\\end{{pmatrix}}+\\begin{{pmatrix}}{c}&{d}\\end{{pmatrix}}"),
        ),
        10 => ("\\frac{n(n+1)}{2}".to_owned(), "\\sum_{k=1}^{n} k".to_owned()),
        11 => (format!("{}+{}i", a * c - b * d, a * d + b * c), format!("({a}+{b}i)({c}+{d}i)")),
        12 => (format!("{}+{}i", a + c, b + d), format!("({a}+{b}i)+({c}+{d}i)")),
        13 => (format!("({},{})", a + b, 3 - c), format!("({a}+{b}, 3-{c})")),
        14 => (format!("\\frac{{\\sqrt{{3}}}}{{{}}}", 2 * b), format!("\\frac{{1}}{{{b}}}\\sin 60^\\circ")),
        15 => (format!("{}, {}", a + b, 20 + c), format!("{a}+{b}, 20+{c}")),
        16 => (format!("{b}x"), format!("\\frac{{d}}{{dx}} \\frac{{{b}x^2}}{{2}}")),
        17 => (format!("x={a}"), format!("{b}x={}", a * b)),
        18 => (format!("x={a}"), format!("x-{a}=0")),
        19 => (format!("x={a}"), format!("x+{b}={}", a + b)),
        20 => (format!("({a},\\infty)"), format!("{b}x+{c} > {}", a * b + c)),
        21 => (format!("x>{a}"), format!("x+{c} > {}", a + c)),
        22 => (format!("(-{b},{b})"), format!("x^2 < {}", b * b)),
        _ => (sum(a, b), format!("\\sum_{{k=1}}^{{{a}}} \\frac{{1}}{{{b}}}")),
    };
    boxed(random, "restated: other values", gold, answer)
}

fn tolerance(random: &mut Random) -> Case {
    let tiny = random.between(7, 34);
    let digits = random.between(100, 999);
    let n = random.between(2, 900);
    let q = random.pick(&[7, 9, 11, 13]);
    let p = n * q + 1;
    let (gold, answer) = match random.between(0, 19) {
        0 => (format!("{}\\times10^{{-{tiny}}}", digits as f64 / 100.0), "0.0".to_owned()),
        1 => (format!("{}\\times10^{{-{tiny}}}", digits as f64 / 100.0), "0".to_owned()),
        2 => (format!("{}\\times10^{{-{tiny}}}", digits as f64 / 100.0), "0.0000001".to_owned()),
        3 => (format!("10^{{-{tiny}}}"), format!("2\\cdot 10^{{-{tiny}}}")),
        4 => (format!("\\frac{{1}}{{\\binom{{{}}}{{6}}}}", n + 20), "0.0000004".to_owned()),
        5 => (format!("\\frac{{1}}{{{n}!}}").replace(&n.to_string(), &(n + 10).to_string()), "0".to_owned()),
        6 => (n.to_string(), format!("{n}.0000001")),
        7 => (n.to_string(), format!("{}.9999999", n - 1)),
        8 => (n.to_string(), format!("{n}.001")),
        9 => (format!("\\frac{{{p}}}{{{q}}}"), format!("{:.1}", p as f64 / q as f64)),
        10 => (format!("\\frac{{{p}}}{{{q}}}"), format!("{:.8}", p as f64 / q as f64 + 3e-8)),
        11 => (format!("{n}\\sqrt{{2}}"), format!("{:.1}", n as f64 * 2f64.sqrt())),
        12 => (format!("{n}\\pi"), format!("{:.1}", n as f64 * std::f64::consts::PI)),
        13 => (format!("{n}.{}", digits | 1), format!("{n}.{}1", (digits | 1) + 1)),
        14 => (format!("0.{}", digits | 1), format!("0.{}", (digits | 1) + 2)),
        15 => (n.to_string(), format!("{n}^{{1+2^{{-1000}}}}")),
        16 => ("1".to_owned(), format!("2^{{2^{{-{}}}}}", n + 200)),
        17 => ("0".to_owned(), format!("10^{{-{tiny}}}")),
        18 => ("0".to_owned(), format!("0.{}1", "0".repeat(tiny as usize))),
        _ => (format!("{n}"), format!("{n} + 10^{{-{tiny}}}")),
    };
    boxed(random, "tolerance", gold, answer)
}

fn true_equation(random: &mut Random) -> Case {
    let (a, b) = (random.between(2, 6), random.between(2, 4));
    let golds = [
        format!("\\log_{{{a}}}({})={b}", a.pow(b as u32)),
        "e^{i\\pi}=-1".to_owned(),
        format!("{a}+{b}={}", a + b),
        format!("\\sqrt{{{}}}={a}", a * a),
        format!("{b}^{{{a}}}={}", b.pow(a as u32)),
        "\\sin^2 x+\\cos^2 x=1".to_owned(),
        "(a+b)^2=a^2+2ab+b^2".to_owned(),
    ];
    let answers = [
        "0=0",
        "1=1",
        "x=x",
        "2+2=4",
        "x \\in \\mathbb{R}",
        "\\tan x\\cos x=\\sin x",
        "3 \\in \\mathbb{N}",
        "5=5",
        "(x+1)^2=x^2+2x+1",
        "17-4=13",
        "y=y",
    ];
    let (gold, answer) = (random.pick(&golds), random.pick(&answers).to_owned());
    boxed(random, "identities for true equations", gold, answer)
}

fn sign(random: &mut Random) -> Case {
    let n = random.between(2, 90);
    let (gold, answer) = match random.between(0, 32) {
        0 => (n.to_string(), format!("\\neq {n}")),
        1 => (n.to_string(), format!("\\ge {n}")),
        2 => (n.to_string(), format!("\\le {n}")),
        3 => (n.to_string(), format!("> {n}")),
        4 => (n.to_string(), format!("< {n}")),
        5 => (n.to_string(), format!("\\not= {n}")),
        6 => (n.to_string(), format!("≠ {n}")),
        7 => (n.to_string(), format!("x \\ge {n}")),
        8 => (n.to_string(), format!("x \\neq {n}")),
        9 => (n.to_string(), format!("-{n}")),
        10 => (n.to_string(), format!("\\pm {n}")),
        11 => (n.to_string(), format!("{n}'")),
        12 => (n.to_string(), format!("{n}''")),
        13 => (n.to_string(), format!("{n}, \\ldots")),
        14 => (n.to_string(), format!("{n}, ...")),
        15 => (n.to_string(), format!("{n} \\\\ {}", n + 1)),
        16 => (n.to_string(), format!("{} & {n}", n - 1)),
        17 => (n.to_string(), format!("{n}!")),
        18 => (n.to_string(), format!("\\sim {n}")),
        19 => (n.to_string(), format!("\\geq {n}")),
        20 => (format!("x>{n}"), format!("x>{n}_{{x<{n}}}")),
        21 => (format!("x>{n}"), format!("x\\ge {n}")),
        22 => (format!("\\frac{{{n}}}{{7}}"), format!("(\\frac{{{n}}}{{7}})\\cup\\mathbb{{R}}")),
        23 => (format!("3x-4y+{n}=0"), format!("3x-4y+{n}=0 \\quad 3x+4y+{n}=0")),
        24 => ("\\text{Yes}".to_owned(), "\\text{No}\\approx\\text{Yes}".to_owned()),
        25 => ("\\text{Yes}".to_owned(), "\\text{No}=\\text{Yes}".to_owned()),
        26 => (n.to_string(), format!("\\cancel{{{n}}}")),
        27 => (n.to_string(), format!("\\text{{not }} {n}")),
        28 => (n.to_string(), format!("{} = {n}", n + 1)),
        29 => (n.to_string(), format!("{n}\\text{{ is not the answer}}")),
        30 => (n.to_string(), format!("{n}\\text{{ is wrong}}")),
        31 => (n.to_string(), format!("\\text{{not }}{n}")),
        _ => (format!("x={n}"), format!("x={n}, \\underline{{{}}}", n + 1)),
    };
    boxed(random, "signs that change the meaning", gold, answer)
}

fn unit(random: &mut Random) -> Case {
    let n = random.between(2, 90);
    let digits = random.pick(&["101", "1011", "1101", "110"]);
    let letter = random.pick(&["t", "x", "m", "s", "h", "k", "g", "l", "c", "d", "o"]);
    let pairs = [
        ("cm", "m"),
        ("km", "m"),
        ("kg", "g"),
        ("hours", "minutes"),
        ("cm^2", "cm^3"),
        ("cm}^2\\text{", "cm}^3\\text{"),
        ("m/s", "km/h"),
        ("dollars", "cents"),
        ("apples", "pears"),
        ("feet", "inches"),
        ("square cm", "cm"),
        ("days", "weeks"),
    ];
    let (first, second) = random.pick(&pairs);
    let (first, second) = if random.coin() { (first, second) } else { (second, first) };
    let (gold, answer) = match random.between(0, 24) {
        0 => (n.to_string(), format!("{n}_{{16}}")),
        1 => (n.to_string(), format!("{n}_8")),
        2 => (format!("{digits}_2"), format!("{digits}_3")),
        3 => (format!("{digits}_2"), digits.to_owned()),
        4 => (format!("{digits}_{{2}}"), i64::from_str_radix(digits, 2).unwrap_or(0).to_string()),
        5 | 6 => (n.to_string(), format!("{n}{letter}")),
        7 | 8 => (format!("{n}{letter}"), n.to_string()),
        9 => (format!("{n}m"), format!("{n}s")),
        10..=14 => (format!("{n}\\text{{ {first}}}"), format!("{n}\\text{{ {second}}}")),
        15 => (format!("{n}\\text{{ cm}}"), format!("{n} m")),
        16 => (format!("{n}\\text{{ cm}}"), format!("{n}\\mathrm{{m}}")),
        17 => (n.to_string(), format!("{n}\\text{{ million}}")),
        18 => (n.to_string(), format!("{n}\\text{{ thousand}}")),
        19 => (n.to_string(), format!("{n} \\text{{ or more}}")),
        20 => (n.to_string(), format!("\\text{{at least }} {n}")),
        21 => (n.to_string(), format!("{n}\\%")),
        22 => (format!("\\${n}"), format!("€{n}")),
        23 => (n.to_string(), format!("{n}\\text{{ dozen}}")),
        _ => (n.to_string(), format!("{n}\\text{{ billion}}")),
    };
    boxed(random, "units, bases, letters", gold, answer)
}

fn several(random: &mut Random) -> Case {
    let a = random.between(2, 90);
    let b = a + random.between(1, 9);
    let (right, wrong) = if random.coin() { (a, b) } else { (b, a) };
    let (first, second) = if random.coin() { (right, wrong) } else { (wrong, right) };
    let gold = right.to_string();
    let class = "several answers";
    let answer = match random.between(0, 38) {
        0 => format!("{first} \\text{{ or }} {second}"),
        1 => format!("{first} or {second}"),
        2 => format!("{first}, {second}"),
        3 => format!("\\{{{first}, {second}\\}}"),
        4 => format!("{first} \\text{{ and }} {second}"),
        5 => format!("{first} \\lor {second}"),
        6 => format!("{first} \\vee {second}"),
        7 => format!("{first};{second}"),
        8 => format!("{first} \\quad {second}"),
        9 => format!("{first}\\ {second}"),
        10 => format!("{first} | {second}"),
        11 => format!("{first}/{second}"),
        12 => format!("[{a}, {b}]"),
        13 => format!("{a} \\text{{ to }} {b}"),
        14 => format!("x={first}, x={second}"),
        15 => format!("x={first} \\text{{ or }} x={second}"),
        16 => format!("{first} \\text{{ (or }} {second})"),
        17 => format!("\\text{{either }} {first} \\text{{ or }} {second}"),
        18 => format!("{first} = {second}"),
        19 => format!("{first} \\approx {second}"),
        n => {
            let response = match n {
                20 => format!("\\boxed{{{right} \\boxed{{{wrong}}}}}"),
                21 => format!("\\boxed{{{first}}} or \\boxed{{{second}}}"),
                22 => format!("The answer is $\\boxed{{{first}}}$ or $\\boxed{{{second}}}$."),
                23 => format!("\\boxed{{{first}}}, \\boxed{{{second}}}"),
                24 => format!("\\boxed{{{first}}}\n\\boxed{{{second}}}"),
                25 => format!("\\[\\boxed{{{first}}}\\]\nor\n\\[\\boxed{{{second}}}\\]"),
                26 => format!("The answer is \\boxed{{{right}}}. Then \\boxed{{{wrong}}}."),
                27 => format!("The answer is \\boxed{{{right}}}. Then \\boxed{{\\frac{{}}}}."),
                28 => format!("\\boxed{{{right}}} and finally \\boxed{{?}}"),
                29 => format!("\\boxed{{{right}}}. Hence \\boxed{{}}"),
                30 => format!("\\boxed{{{right}}} ... \\boxed{{{wrong}"),
                31 => format!("\\boxed{{{right} \\text{{ apples}} \\boxed{{{wrong}}}}}"),
                32 => format!("The answer is {first} or {second}."),
                33 => format!("The answer is ${first}$ or ${second}$."),
                34 => format!("Either ${first}$ or ${second}$."),
                35 => format!("\\boxed{{{first}}} or ${second}$"),
                36 => format!("It could be {first} or maybe {second}"),
                37 => format!("The answer is {right}. But in fact the answer is {wrong}."),
                _ => format!("$\\boxed{{{first}}}$, $\\boxed{{{second}}}$"),
            };
            return Case { class, gold, response };
        }
    };
    boxed(random, class, gold, answer)
}

fn structure(random: &mut Random) -> Case {
    let a = random.between(-20, 20);
    let b = a + random.between(1, 20);
    let c = b + random.between(1, 9);
    let k = random.between(2, 9);
    let (gold, answer) = match random.between(0, 29) {
        0 => (format!("({a},{b})"), format!("[{a},{b}]")),
        1 => (format!("[{a},{b})"), format!("{a} < x < {b}")),
        2 => (format!("({a},{b}]"), format!("{a} \\le x \\le {b}")),
        3 => (format!("({a},\\infty)"), format!("x \\ge {a}")),
        4 => (format!("(-\\infty,{a})\\cup({b},\\infty)"), format!("x<{a} \\text{{ and }} x>{b}")),
        5 => (format!("(-\\infty,{a})\\cup({b},\\infty)"), format!("(-\\infty,{a})")),
        6 => (format!("({b},{a})"), format!("({a},{b})")),
        7 => (format!("({b},{a})"), format!("{a}, {b}")),
        8 => (format!("({a},{b},{c})"), format!("({a},{c},{b})")),
        9 => (format!("({a},{b})"), format!("x={b}, y={a}")),
        10 => (format!("{a}, {b}"), a.to_string()),
        11 => (format!("{a}, {b}"), format!("{a}, {b}, {c}")),
        12 => (format!("\\{{{a},{b}\\}}"), format!("\\{{{a},{c}\\}}")),
        13 => (format!("{k}, -{k}"), k.to_string()),
        14 => (
            format!("\\begin{{pmatrix}}{a}&{b}\\\\{c}&{k}\\end{{pmatrix}}"),
            format!("\\begin{{pmatrix}}{a}&{c}\\\\{b}&{k}\\end{{pmatrix}}"),
        ),
        15 => (
            format!("\\begin{{pmatrix}}{a}\\\\{b}\\end{{pmatrix}}"),
            format!("\\begin{{pmatrix}}{b}\\\\{a}\\end{{pmatrix}}"),
        ),
        16 => (format!("x^2+{k}"), format!("x^2-{k}")),
        17 => (format!("y={k}x+{c}"), format!("y={k}x-{c}")),
        18 => (format!("y={k}x"), format!("y={k}x+y-y+1")),
        19 => (format!("x={a}"), format!("y={a}")),
        20 => (format!("x>{a}"), format!("x<{a}")),
        21 => (format!("x>{a}"), format!("-x>{}", -a)),
        22 => (format!("{a}+{k}i"), format!("{a}-{k}i")),
        23 => (format!("{k}\\sqrt{{2}}"), format!("-{k}\\sqrt{{2}}")),
        24 => ("\\binom{n}{k}".to_owned(), "\\binom{n}{k+1}".to_owned()),
        25 => (format!("{k}xe"), format!("{k}x(e)+1")),
        26 => ("\\emptyset".to_owned(), "\\{0\\}".to_owned()),
        27 => (format!("({a},{b})"), format!("({a}, {b}) \\cup ({b}, {c})")),
        28 => (format!("x \\neq {a}"), format!("x = {a}")),
        _ => (format!("\\frac{{{k}}}{{{}}}", k + 1), format!("\\frac{{{}}}{{{k}}}", k + 1)),
    };
    boxed(random, "another value of the same kind", gold, answer)
}

fn empty(random: &mut Random) -> Case {
    let n = random.between(2, 90);
    let gold = random.pick(&[
        n.to_string(),
        format!("\\frac{{{n}}}{{97}}"),
        format!("x={n}"),
        format!("({n},{})", n + 1),
        format!("{n}, {}", n + 1),
        format!("x^2+{n}"),
        format!("y=x+{n}"),
        "\\text{Yes}".to_owned(),
    ]);
    let answer = random.pick(&[
        "",
        "?",
        "0=0",
        "x",
        "\\text{unknown}",
        "\\mathbb{R}",
        "(-\\infty,\\infty)",
        "\\text{see above}",
        "\\ldots",
        "x=x",
        "\\emptyset",
        "\\{\\}",
        "\\text{the answer}",
        "\\frac{}{}",
        "\\text{Yes or No}",
        "\\square",
        "n",
        "\\text{all real numbers}",
    ]);
    boxed(random, "answers without content", gold, answer.to_owned())
}

/// This many cases of every class.
pub(crate) fn cases(each: usize) -> Vec<Case> {
    let kinds: [fn(&mut Random) -> Case; 9] =
        [restated, restated_other, tolerance, true_equation, sign, unit, several, structure, empty];
    let mut random = Random::new(2027);
    kinds.iter().flat_map(|kind| (0..each).map(|_| kind(&mut random)).collect::<Vec<_>>()).collect()
}
