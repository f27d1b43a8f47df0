//! The value that an answer is parsed into: numbers, symbols, functions, relations, sets, intervals, matrices.
//!
//! Nothing is simplified: the tree has the order of the text, because some comparisons depend on it.

use dashu_int::IBig;
use dashu_ratio::RBig;

use super::units::Unit;

/// Named constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Constant {
    E,
    Pi,
    EulerGamma,
    ImaginaryUnit,
    Infinity,
    NegativeInfinity,
    ComplexInfinity,
}

/// Named functions of one or two arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Function {
    Sin,
    Cos,
    Tan,
    Cot,
    Sec,
    Csc,
    Asin,
    Acos,
    Atan,
    Acot,
    Asec,
    Acsc,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    /// Logarithm: argument, base.
    Log,
    Abs,
    Floor,
    Ceiling,
    Factorial,
    Gamma,
    Binomial,
    Mod,
    Gcd,
    Lcm,
    Max,
    Min,
}

/// Sums, products and integrals over a bound variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fold {
    Sum,
    Product,
    Integral,
}

/// The relation between two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Relation {
    /// Returns the relation with its two sides exchanged.
    pub(super) fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            other => other,
        }
    }

    /// Returns the relation that holds if this one doesn't.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterEqual,
            Self::LessEqual => Self::Greater,
            Self::Greater => Self::LessEqual,
            Self::GreaterEqual => Self::Less,
        }
    }

    pub(super) fn is_inequality(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }
}

/// Number sets written in blackboard letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NumberSet {
    Naturals,
    Integers,
    Rationals,
    Reals,
    Complexes,
}

/// A parsed answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    /// An exact rational number.
    Number(RBig),
    /// A number written with a decimal point: its exact value, and the power of ten of its last digit. In parity mode the
    /// power is always 0.
    Decimal(RBig, i64),
    /// A number followed by a percent sign; the value is before the division by 100.
    Percent(Box<Expr>),
    /// Strict mode: a value with its unit, or with the name of the counted things.
    Quantity(Box<Expr>, Unit),
    Symbol(Box<str>),
    Constant(Constant),
    Add(Vec<Expr>),
    Mul(Vec<Expr>),
    Pow(Box<[Expr; 2]>),
    Call(Function, Vec<Expr>),
    /// A function named by a letter, `f(x)`.
    Apply(Box<str>, Vec<Expr>),
    /// Kind, body, variable, lower and upper end.
    Fold(Fold, Box<Expr>, Box<str>, Option<Box<[Expr; 2]>>),
    /// A limit: body and point, variable, and whether it is taken from the left.
    Limit(Box<[Expr; 2]>, Box<str>, bool),
    Derivative(Box<Expr>, Box<str>),
    Relation(Relation, Box<[Expr; 2]>),
    /// A chain of relations, each a [`Expr::Relation`].
    Chain(Vec<Expr>),
    Not(Box<Expr>),
    Tuple(Vec<Expr>),
    /// Strict mode: the terms of a ratio, or the hours and minutes of a time.
    Ratio(Vec<Expr>),
    /// A finite set, in the order written. In strict mode, a set without braces keeps repeated elements.
    Set(Vec<Expr>),
    /// The two ends, and whether the left and the right end are excluded.
    Interval(Box<[Expr; 2]>, bool, bool),
    Union(Vec<Expr>),
    Intersection(Vec<Expr>),
    Difference(Box<[Expr; 2]>),
    NumberSet(NumberSet),
    /// Number of columns, entries by rows.
    Matrix(usize, Vec<Expr>),
}

/// The children of a node, in order; mutable ones with `mut`.
macro_rules! children {
    ($node:expr, $iter:ident $(, $mutable:tt)?) => {
        match $node {
            Expr::Number(_) | Expr::Decimal(..) | Expr::Symbol(_) | Expr::Constant(_) | Expr::NumberSet(_) => {
                Vec::new()
            }
            Expr::Percent(inner) | Expr::Quantity(inner, _) | Expr::Not(inner) | Expr::Derivative(inner, _) => {
                vec![& $($mutable)? **inner]
            }
            Expr::Add(items)
            | Expr::Mul(items)
            | Expr::Call(_, items)
            | Expr::Apply(_, items)
            | Expr::Chain(items)
            | Expr::Tuple(items)
            | Expr::Ratio(items)
            | Expr::Set(items)
            | Expr::Union(items)
            | Expr::Intersection(items)
            | Expr::Matrix(_, items) => items.$iter().collect(),
            Expr::Pow(pair)
            | Expr::Relation(_, pair)
            | Expr::Interval(pair, ..)
            | Expr::Difference(pair)
            | Expr::Limit(pair, ..) => pair.$iter().collect(),
            Expr::Fold(_, body, _, ends) => {
                let ends = ends.$iter().flat_map(|pair| pair.$iter());
                std::iter::once(& $($mutable)? **body).chain(ends).collect()
            }
        }
    };
}

impl Expr {
    pub(super) fn integer(value: i64) -> Self {
        Self::Number(RBig::from(value))
    }

    pub(super) fn symbol(name: &str) -> Self {
        Self::Symbol(name.into())
    }

    pub(super) fn pow(base: Expr, exponent: Expr) -> Self {
        Self::Pow(Box::new([base, exponent]))
    }

    pub(super) fn inverse(self) -> Self {
        Self::pow(self, Self::integer(-1))
    }

    pub(super) fn relation(kind: Relation, left: Expr, right: Expr) -> Self {
        Self::Relation(kind, Box::new([left, right]))
    }

    /// Returns the negated expression. A number literal is negated directly.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Number(value) => Self::Number(-value),
            Self::Decimal(value, last) => Self::Decimal(-value, last),
            Self::Quantity(value, unit) => Self::Quantity(Box::new(value.negated()), unit),
            Self::Constant(Constant::Infinity) => Self::Constant(Constant::NegativeInfinity),
            Self::Constant(Constant::NegativeInfinity) => Self::Constant(Constant::Infinity),
            Self::Mul(mut factors) => {
                factors.insert(0, Self::integer(-1));
                Self::Mul(factors)
            }
            Self::Matrix(columns, entries) if entries.iter().all(Expr::is_number) => {
                Self::Matrix(columns, entries.into_iter().map(Expr::negated).collect())
            }
            other => Self::Mul(vec![Self::integer(-1), other]),
        }
    }

    pub(super) fn plus(self, other: Expr) -> Self {
        Self::Add(vec![self, other])
    }

    pub(super) fn minus(self, other: Expr) -> Self {
        Self::Add(vec![self, other.negated()])
    }

    /// Returns whether this is a number literal, exact or decimal.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Decimal(..))
    }

    pub(super) fn as_integer(&self) -> Option<&IBig> {
        match self {
            Self::Number(value) if value.is_int() => Some(value.numerator()),
            _ => None,
        }
    }

    /// Returns whether this is a set in a wide sense: a finite set, an interval or a combination of sets.
    pub(super) fn is_set(&self) -> bool {
        matches!(
            self,
            Self::Set(_)
                | Self::Interval(..)
                | Self::Union(_)
                | Self::Intersection(_)
                | Self::Difference(_)
                | Self::NumberSet(_)
        )
    }

    pub(super) fn is_relation(&self) -> bool {
        matches!(self, Self::Relation(..) | Self::Chain(_) | Self::Not(_))
    }

    /// Returns whether the expression consists only of names: symbols, functions of symbols, and their reciprocals.
    pub(super) fn names_only(&self) -> bool {
        match self {
            Self::Symbol(_) => true,
            Self::Add(items)
            | Self::Mul(items)
            | Self::Ratio(items)
            | Self::Call(_, items)
            | Self::Apply(_, items) => items.iter().all(Self::names_only),
            Self::Pow(pair) if pair[0] == Self::Constant(Constant::E) => pair[1].names_only(),
            Self::Pow(pair) if pair[1] == Self::integer(-1) => pair[0].names_only() || pair[0].is_number(),
            Self::Pow(pair) => pair.iter().all(Self::names_only),
            _ => false,
        }
    }

    /// Returns the children of this node.
    pub(super) fn children(&self) -> Vec<&Expr> {
        children!(self, iter)
    }

    /// Replaces each node for which `with` returns a replacement. The children of a replaced node aren't visited.
    pub(super) fn replaced(&self, with: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Self {
        let mut tree = self.clone();
        tree.replace(with);
        tree
    }

    fn replace(&mut self, with: &mut dyn FnMut(&Expr) -> Option<Expr>) {
        match with(self) {
            Some(other) => *self = other,
            None => {
                children!(self, iter_mut, mut).into_iter().for_each(|child: &mut Expr| child.replace(with))
            }
        }
    }

    /// Returns whether some node satisfies the predicate.
    pub(super) fn any(&self, predicate: &dyn Fn(&Expr) -> bool) -> bool {
        predicate(self) || self.children().into_iter().any(|child| child.any(predicate))
    }

    /// Returns whether a free symbol or an unknown function occurs.
    pub(super) fn has_unknowns(&self) -> bool {
        !self.symbols().is_empty() || self.any(&|node| matches!(node, Self::Apply(..)))
    }

    /// Returns the free symbols, each once, in order of appearance.
    pub(super) fn symbols(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.collect_symbols(&mut Vec::new(), &mut names);
        names
    }

    fn collect_symbols<'a>(&'a self, bound: &mut Vec<&'a str>, names: &mut Vec<&'a str>) {
        match self {
            Self::Symbol(name) => {
                if !bound.contains(&&**name) && !names.contains(&&**name) {
                    names.push(name);
                }
            }
            Self::Fold(kind, body, variable, ends) => {
                if let Some(pair) = ends {
                    for end in pair.iter() {
                        end.collect_symbols(bound, names);
                    }
                }
                let binds = ends.is_some() || *kind != Fold::Integral;
                if binds {
                    bound.push(variable);
                }
                body.collect_symbols(bound, names);
                if binds {
                    bound.pop();
                }
            }
            Self::Limit(pair, variable, _) => {
                pair[1].collect_symbols(bound, names);
                bound.push(variable);
                pair[0].collect_symbols(bound, names);
                bound.pop();
            }
            other => {
                for child in other.children() {
                    child.collect_symbols(bound, names);
                }
            }
        }
    }
}
