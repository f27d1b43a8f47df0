//! Equations for a quantity in a notation that the parser doesn't read: `P(X=2)=\frac12`, `\|v\|=5`, `\det A=-2`.
//!
//! Only one application is a name here; what else can't be read stays unread.

use crate::python_text::regex;

/// The first side of an equation and the rest of it, if the first is one application.
pub(super) fn stated(text: &str) -> Option<(&str, &str)> {
    const SCRIPTS: &str = r"(?:\s*[_^](?:\{[^{}]*\}|.))*\s*";
    const ARGUMENT: &str = r"(?:\((?:[^()]|\([^()]*\))*\)|\[(?:[^\[\]]|\[[^\[\]]*\])*\])";
    const NAME: &str =
        r"(?:[A-Za-z]+|\\(?:text|operatorname|mathbb|mathcal|mathrm)\{[^{}]*\}|\((?:[^()]|\([^()]*\))*\))";
    const OPERATOR: &str = r"\\(?:det|dim|deg|max|min|sup|inf|Pr)(?:\b|_(?:\{[^{}]*\}|[^{]))";
    const NORM: &str = r"(?:\\\||\|)[^|]+?(?:\\\||\|)|\\l[vV]ert[^|]+?\\r[vV]ert";
    let stated = regex!(&format!(
        r"(?s)^\s*({NORM}|(?:{OPERATOR}{SCRIPTS})?{NAME}{SCRIPTS}{ARGUMENT}|{OPERATOR}{SCRIPTS}(?:{ARGUMENT}|\pL))\s*=(.*)$"
    ));
    let found = stated.captures(text)?;
    Some((found.get(1)?.as_str(), found.get(2)?.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_application_names_a_value() {
        for (text, wanted) in [
            ("P(X=2)=5", Some(("P(X=2)", "5"))),
            ("\\mathbb{E}[X^2]=5", Some(("\\mathbb{E}[X^2]", "5"))),
            ("\\text{area}(ABC) = 5", Some(("\\text{area}(ABC)", " 5"))),
            ("\\det A=-2", Some(("\\det A", "-2"))),
            ("\\det(A)=-2", Some(("\\det(A)", "-2"))),
            ("\\max_{x} f(x)=5", Some(("\\max_{x} f(x)", "5"))),
            ("\\|v\\|=5", Some(("\\|v\\|", "5"))),
            ("|A \\cup B|=5", Some(("|A \\cup B|", "5"))),
            ("(f \\circ g)(2)=4", Some(("(f \\circ g)(2)", "4"))),
            ("[K:\\mathbb{Q}]=5", None),
            ("P(A)+P(B)=5", None),
            ("P(A)P(B)=5", None),
            ("|A|+|B|=5", None),
            ("2(X=2)=5", None),
            ("x=5", None),
            ("P(X=2)=\\frac24=\\frac12", Some(("P(X=2)", "\\frac24=\\frac12"))),
            ("P(A)=1, P(B=2)=5", Some(("P(A)", "1, P(B=2)=5"))),
            ("\\sqrt(x)=5", None),
            ("(A=2)=5", None),
            ("P(X=2)", None),
            ("=5", None),
        ] {
            assert_eq!(stated(text), wanted, "{text}");
        }
    }
}
