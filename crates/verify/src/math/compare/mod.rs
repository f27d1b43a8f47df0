//! Decides whether an answer equals the gold, by rules for each kind of answer.
//!
//! In parity mode the rules are math-verify's, including its quirks: a literal decimal is compared after rounding, a
//! percentage of a whole number also equals that number, differences below the sixteenth decimal are ignored. In strict
//! mode only mathematically correct answers are accepted.

mod collections;
mod difference;
mod floating;
mod relations;
mod statements;
mod values;

use super::budget::{Exhausted, Fuel};
use super::canonical;
use super::exact;
use super::expr::{Constant, Expr, Relation};
use super::finished::{self, Open};
use super::{Mode, Options};
use relations::is_equal;
pub(super) use statements::{is_integral, is_point, named, without_domains};
pub(super) use values::without_point;

/// How a comparison was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evidence {
    /// By exact arithmetic, or because the expressions have the same structure.
    Exact,
    /// By ball arithmetic, whose error bounds prove the result.
    Certified,
    /// By equal values at random points, or by agreement to many digits. This isn't a proof.
    Probabilistic,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) equal: bool,
    pub(super) evidence: Evidence,
}

const EXACTLY_EQUAL: Answer = Answer { equal: true, evidence: Evidence::Exact };
const EXACTLY_DIFFERENT: Answer = Answer { equal: false, evidence: Evidence::Exact };
const SURELY_DIFFERENT: Answer = Answer { equal: false, evidence: Evidence::Certified };

type Compared = Result<Answer, Exhausted>;

/// A parsed answer, prepared for comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Subject {
    pub(super) expr: Expr,
    /// Whether the letter `i` occurs alone in the answer, so that its symbols are complex.
    pub(super) complex: bool,
    /// Whether the answer is marked as rounded, by `\approx`. Only strict mode reads this.
    pub(super) rounded: bool,
    /// Operations that the answer leaves to the reader but the parser carried out.
    pub(super) open: Open,
}

impl Subject {
    /// Creates a subject whose flags have their defaults.
    pub(super) fn plain(expr: Expr) -> Self {
        Self { expr, complex: false, rounded: false, open: Open::default() }
    }
}

pub(super) struct Comparer<'a> {
    options: &'a Options,
    /// Whether one side has real and the other side complex symbols. Such symbols are never equal.
    estranged: bool,
    complex: bool,
    /// Whether the gold is marked as rounded.
    rounded: bool,
    /// Whether a side is an amount of money, which is rounded to cents.
    money: bool,
    fuel: Fuel,
}

/// Compares the gold with a prediction.
pub(super) fn compare(gold: &Subject, answer: &Subject, options: &Options) -> Compared {
    let parity = options.mode == Mode::Parity;
    let mut comparer = Comparer {
        options,
        estranged: parity && gold.complex != answer.complex,
        complex: gold.complex || answer.complex,
        rounded: gold.rounded,
        money: [&gold.expr, &answer.expr]
            .iter()
            .any(|side| side.any(&|node| matches!(node, Expr::Quantity(_, unit) if unit.is_money()))),
        fuel: Fuel::new(),
    };
    let renamed = if options.strict { None } else { renamed(&gold.expr, &answer.expr) };
    let answer = renamed.as_ref().unwrap_or(&answer.expr);
    let capitals = capitals(&gold.expr).zip(capitals(answer));
    if !parity && capitals.is_some_and(|(first, second)| first != second) {
        return Ok(EXACTLY_DIFFERENT);
    }
    let mut result = comparer.answers(&gold.expr, answer)?;
    if !parity && !result.equal {
        for renamed in with_constants_renamed(&gold.expr, answer) {
            result = comparer.answers(&gold.expr, &renamed)?;
            if result.equal {
                break;
            }
        }
    }
    // In strict mode, equality is symmetric, although some rules are about one side.
    let one_sided = |expr: &Expr| expr.is_relation() || is_collection(expr);
    if parity || result.equal || !(one_sided(&gold.expr) || one_sided(answer)) {
        return Ok(result);
    }
    comparer.answers(answer, &gold.expr)
}

/// Returns the capital letters of a name such as `AB` or `\angle ABC`, which the parser reads as a product. The ends of
/// an angle are in alphabetical order.
fn capitals(expr: &Expr) -> Option<Vec<&str>> {
    let Expr::Mul(factors) = expr else { return None };
    let letter = |factor: &'_ Expr| matches!(factor, Expr::Symbol(name) if name.len() == 1 && name.starts_with(|c: char| c.is_ascii_uppercase()));
    let angle = matches!(&factors[0], Expr::Symbol(name) if &**name == "angle");
    let letters = &factors[usize::from(angle)..];
    if !letters.iter().all(letter) {
        return None;
    }
    let mut names: Vec<&str> = letters.iter().flat_map(Expr::symbols).collect();
    if angle && names.first() > names.last() {
        names.reverse();
    }
    Some(names)
}

/// Returns whether an answer that equals the gold leaves no more operations to the reader than the gold does.
pub(super) fn is_finished(gold: &Subject, answer: &Subject, options: &Options) -> bool {
    let stated = match statements::value_side(&answer.expr) {
        Some(value) if is_equation(&answer.expr) && !gold.expr.is_relation() => value,
        _ => &answer.expr,
    };
    let (mut golds, mut found) = (Vec::new(), Vec::new());
    let plain = statements::values(&gold.expr, &mut golds);
    statements::values(&answer.expr, &mut found);
    // A value with unknowns that cancel isn't worked out.
    let constant = plain && !golds.iter().any(|value| finished::has_variables(value));
    if constant && found.iter().any(|value| finished::has_work_on_variables(value, &gold.expr)) {
        return false;
    }
    // A decimal with many digits may be a rounded irrational value.
    let rational = |value: &&Expr| {
        matches!(value, Expr::Constant(Constant::Infinity | Constant::NegativeInfinity))
            || !value.any(&|node| values::has_digits(node, options.precision))
                && matches!(exact::rational(value, &mut Fuel::new()), Ok(Some(_)))
    };
    let rational = constant && golds.iter().all(rational);
    let written = |subject: &Subject, whole: &Expr, values: &[&Expr]| {
        let open = subject.open.with(Open::of(whole, false));
        values.iter().fold(open, |open, value| if rational { open.with(Open::of(value, true)) } else { open })
    };
    finished::is_finished(written(answer, stated, &found), written(gold, &gold.expr, &golds))
}

/// Whether the gold's values exceed the budget or can't be computed, so that answers can't be compared with the gold.
///
/// Half of a comparison's steps are for the gold. If the other half isn't enough, the cause is the answer.
pub(super) fn is_too_expensive(gold: &Subject, options: &Options) -> bool {
    let (complex, rounded) = (gold.complex, gold.rounded);
    let mut comparer =
        Comparer { options, estranged: false, complex, rounded, money: false, fuel: Fuel::half() };
    comparer.is_too_expensive(&gold.expr)
}

/// Renames the answer's variables to the gold's, for comparisons that ignore names.
fn renamed(gold: &Expr, answer: &Expr) -> Option<Expr> {
    let (wanted, found) = (gold.symbols(), answer.symbols());
    if wanted.len() != found.len() || wanted.is_empty() {
        return None;
    }
    let names: Vec<(&str, &str)> = found.iter().copied().zip(wanted.iter().copied()).collect();
    Some(answer.replaced(&mut |node| match node {
        Expr::Symbol(name) => names.iter().find(|(from, _)| *from == &**name).map(|(_, to)| Expr::symbol(to)),
        _ => None,
    }))
}

/// Renames the answer's constants of integration to the gold's, one to one, in every order. The list is empty if other
/// names differ.
fn with_constants_renamed(gold: &Expr, answer: &Expr) -> Vec<Expr> {
    const MOST: usize = 3;
    let (wanted, found) = (gold.symbols(), answer.symbols());
    if wanted.len() != found.len() || wanted.len() < 2 {
        return Vec::new();
    }
    let is_constant = |name: &str, letters: &[char]| {
        let mut rest = name.chars();
        rest.next().is_some_and(|first| letters.contains(&first))
            && (rest.as_str().is_empty() || rest.as_str().trim_matches(['_', '{', '}']).parse::<u8>().is_ok())
    };
    let golds: Vec<&str> = wanted.iter().copied().filter(|name| !found.contains(name)).collect();
    let answers: Vec<&str> = found.iter().copied().filter(|name| !wanted.contains(name)).collect();
    // A constant is a term, or a factor of a number, a function or a variable. Another letter is the quantity asked for, a
    // coefficient or a name.
    let is_gold = |child: &Expr| matches!(child, Expr::Symbol(name) if golds.contains(&&**name));
    let is_function = |factor: &Expr| match factor {
        Expr::Symbol(name) => matches!(&**name, "x" | "y" | "z" | "t" | "u" | "s" | "r" | "\\theta"),
        other => is_gold(other) || !matches!(other, Expr::Apply(..)),
    };
    let asked = gold.any(&|node| {
        let fits = match node {
            Expr::Add(_) => true,
            Expr::Mul(factors) => factors.iter().all(|factor| is_gold(factor) || is_function(factor)),
            _ => false,
        };
        !fits && node.children().into_iter().any(is_gold)
    });
    // An antiderivative has a variable besides its constants. `AC` and `AD` are names of segments.
    let is_variable =
        |name: &&str| name.starts_with(|first: char| first.is_lowercase()) && !golds.contains(name);
    let fits = !asked
        && wanted.iter().any(is_variable)
        && golds.len() == answers.len()
        && (1..=MOST).contains(&golds.len())
        && golds.iter().all(|name| is_constant(name, &['C', 'c', 'K']))
        && answers.iter().all(|name| {
            is_constant(name, &['C', 'c', 'K', 'k', 'A', 'B', 'D'])
                || golds.len() > 1 && matches!(*name, "a" | "b")
                || matches!(*name, "constant" | "const")
        });
    if !fits {
        return Vec::new();
    }
    let orders: &[&[usize]] = match golds.len() {
        1 => &[&[0]],
        2 => &[&[0, 1], &[1, 0]],
        _ => &[&[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]],
    };
    let renamed = |order: &&[usize]| {
        answer.replaced(&mut |node| match node {
            Expr::Symbol(name) => {
                let at = answers.iter().position(|known| *known == &**name)?;
                Some(Expr::symbol(golds[order[at]]))
            }
            _ => None,
        })
    };
    orders.iter().map(renamed).collect()
}

impl Comparer<'_> {
    fn parity(&self) -> bool {
        self.options.mode == Mode::Parity
    }

    fn is_too_expensive(&mut self, gold: &Expr) -> bool {
        let parts = match gold {
            Expr::Relation(..)
            | Expr::Chain(_)
            | Expr::Not(_)
            | Expr::Tuple(_)
            | Expr::Set(_)
            | Expr::Interval(..)
            | Expr::Union(_)
            | Expr::Intersection(_)
            | Expr::Difference(_)
            | Expr::Matrix(..) => gold.children(),
            value => return self.has_no_value(value),
        };
        parts.into_iter().any(|part| self.is_too_expensive(part))
    }

    /// Applies the rules in order: unwraps assignments, and then compares relations, sets, matrices and values.
    fn answers(&mut self, gold: &Expr, answer: &Expr) -> Compared {
        self.fuel.spend(1)?;
        if *gold == Expr::Constant(Constant::ComplexInfinity) {
            return Ok(EXACTLY_DIFFERENT);
        }
        if !self.estranged && gold == answer {
            return Ok(EXACTLY_EQUAL);
        }
        if !self.parity()
            && let Some(result) = self.strictly(gold, answer)?
        {
            return Ok(result);
        }
        let gold_is_equation = is_equation(gold);
        let answer_is_equation = is_equation(answer);
        if gold_is_equation && !answer_is_equation && is_assignment(gold) {
            // Unwraps one equation only: an equation of an equation doesn't state a value.
            let value = last_side(gold);
            // In strict mode, an equation in a list must be about the same name.
            if let (false, Expr::Set(values)) = (self.parity(), answer)
                && values
                    .iter()
                    .any(|value| is_equation(value) && !canonical::alike(first_side(gold), first_side(value)))
            {
                return Ok(EXACTLY_DIFFERENT);
            }
            return if value.is_relation() { Ok(EXACTLY_DIFFERENT) } else { self.answers(value, answer) };
        }
        if self.parity() && answer_is_equation && !gold_is_equation && !gold.is_relation() {
            let value = last_side(answer);
            return if value.is_relation() { Ok(EXACTLY_DIFFERENT) } else { self.answers(gold, value) };
        }
        // A set of one relation is that relation, on the gold's side.
        if let Expr::Set(values) = gold
            && values.len() == 1
            && values[0].is_relation()
            && answer.is_relation()
        {
            return self.answers(&values[0], answer);
        }
        if let Expr::Set(values) = answer
            && values.len() == 1
            && is_equation(gold)
            && is_equation(&values[0])
        {
            return self.relations(gold, &values[0]);
        }
        // An inequality can be answered by the set of its solutions.
        if gold.is_relation()
            && !gold_is_equation
            && let Some(set) = set_side(answer)
        {
            return self.solutions(gold, set);
        }
        if self.options.allow_set_relation_comp
            && answer.is_relation()
            && let Some(set) = set_side(gold)
        {
            return self.solutions(answer, set);
        }
        match (gold.is_relation(), answer.is_relation()) {
            (true, true) => return self.relations(gold, answer),
            (true, false) | (false, true) => return Ok(EXACTLY_DIFFERENT),
            _ => {}
        }
        if is_collection(gold) || is_collection(answer) {
            return self.collections(gold, answer);
        }
        self.values(gold, answer)
    }
}

/// Returns the expression if it is a set, or the set on the right of an equation.
fn set_side(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Relation(Relation::Equal, pair) if pair[1].is_set() => Some(&pair[1]),
        other => Some(other).filter(|other| other.is_set()),
    }
}

fn is_equation(expr: &Expr) -> bool {
    match expr {
        Expr::Relation(Relation::Equal, _) => true,
        Expr::Chain(links) => links.iter().all(is_equal),
        _ => false,
    }
}

/// Returns whether an equation names a value: its left side is a symbol, a function or a measured quantity.
fn is_assignment(expr: &Expr) -> bool {
    match expr {
        Expr::Relation(Relation::Equal, pair) => names_a_value(&pair[0]),
        Expr::Chain(links) => match links.first() {
            Some(Expr::Relation(Relation::Equal, pair)) => names_a_value(&pair[0]) || pair[0].is_number(),
            _ => false,
        },
        _ => false,
    }
}

fn names_a_value(left: &Expr) -> bool {
    left.names_only() || matches!(left, Expr::Tuple(_) | Expr::Interval(..))
}

fn first_side(expr: &Expr) -> &Expr {
    match expr {
        Expr::Relation(_, pair) => &pair[0],
        Expr::Chain(links) => links.first().map_or(expr, first_side),
        other => other,
    }
}

fn last_side(expr: &Expr) -> &Expr {
    match expr {
        Expr::Relation(_, pair) => &pair[1],
        Expr::Chain(links) => last_of(links),
        other => other,
    }
}

fn last_of(links: &[Expr]) -> &Expr {
    if let Some(Expr::Relation(_, pair)) = links.last() { &pair[1] } else { &links[0] }
}

fn is_collection(expr: &Expr) -> bool {
    expr.is_set() || matches!(expr, Expr::Tuple(_) | Expr::Matrix(..))
}
