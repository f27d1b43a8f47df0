//! The tokens of a Python expression: numbers, strings, names, operators, line ends.

use dashu_int::IBig;

use super::super::value::Value;
use super::{EvalError, MAX_BITS, MAX_BRACKETS, Result};
use crate::python_text::{MAX_DIGITS, regex};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Value(Value),
    Name(&'static str),
    OtherName,
    Op(&'static str),
    Newline,
    End,
}

/// The known keywords; every other name is unknown.
const WORDS: [&str; 11] = ["True", "False", "None", "and", "or", "not", "if", "else", "in", "is", "lambda"];
/// Operators, longer ones first.
const OPERATORS: [&str; 40] = [
    "...", "**=", "//=", "<<=", ">>=", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "->", ":=", "+=",
    "-=", "*=", "/=", "%=", "+", "-", "*", "/", "%", "@", "&", "|", "^", "~", "<", ">", "(", ")", "[", "]",
    "{", "}", ",", ":",
];

pub(super) struct Lexer<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) brackets: usize,
    /// Whether numbers must be written plainly, as in [`super::plain`].
    pub(super) plain: bool,
}

impl Lexer<'_> {
    /// Skips blank lines and lines with only a comment, at any indentation. The line after them may not be indented.
    pub(super) fn skip_empty_lines(&mut self) -> Result<()> {
        let mut first = true;
        loop {
            let rest = &self.text[self.at..];
            let line = rest.trim_start_matches([' ', '\t', '\u{c}']);
            let content = if line.starts_with('#') {
                &line[line.find(['\n', '\r']).unwrap_or(line.len())..]
            } else {
                line
            };
            if !content.starts_with(['\n', '\r']) {
                let indented = rest.trim_start_matches('\u{c}').len() > line.len();
                return if first || !indented { Ok(()) } else { Err(EvalError::Syntax) };
            }
            self.at += rest.len() - content.len() + 1;
            first = false;
        }
    }

    pub(super) fn next(&mut self) -> Result<Token> {
        loop {
            let rest = &self.text[self.at..];
            let Some(c) = rest.chars().next() else { return Ok(Token::End) };
            match c {
                ' ' | '\t' | '\u{c}' => self.at += 1,
                '\n' | '\r' => {
                    self.at += 1;
                    if self.brackets == 0 {
                        return Ok(Token::Newline);
                    }
                }
                '#' => self.at += rest.find(['\n', '\r']).unwrap_or(rest.len()),
                '\\' => {
                    let step = if rest.starts_with("\\\n") {
                        2
                    } else if rest.starts_with("\\\r\n") {
                        3
                    } else {
                        return Err(EvalError::Syntax);
                    };
                    self.at += step;
                }
                '\'' | '"' => return self.string("").map(Token::Value),
                '0'..='9' => return self.number().map(Token::Value),
                '.' if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
                    return self.number().map(Token::Value);
                }
                c if c == '_' || c.is_alphabetic() => return self.name(),
                _ => {
                    let op = OPERATORS.iter().find(|op| rest.starts_with(**op)).ok_or(EvalError::Syntax)?;
                    self.at += op.len();
                    match *op {
                        "(" | "[" | "{" => {
                            self.brackets += 1;
                            if self.brackets > MAX_BRACKETS {
                                return Err(EvalError::Syntax);
                            }
                        }
                        ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
                        _ => {}
                    }
                    return Ok(Token::Op(op));
                }
            }
        }
    }

    fn name(&mut self) -> Result<Token> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c == '_' || c.is_alphanumeric())).unwrap_or(rest.len());
        let word = &rest[..end];
        if word.len() <= 2 && rest[end..].starts_with(['\'', '"']) {
            let prefix = word.to_ascii_lowercase();
            if ["r", "b", "u", "f", "rb", "br", "rf", "fr"].contains(&prefix.as_str()) {
                self.at += end;
                return self.string(&prefix).map(Token::Value);
            }
        }
        self.at += end;
        Ok(WORDS.iter().find(|w| **w == word).map_or(Token::OtherName, |w| Token::Name(w)))
    }

    /// Reads a number. Its digits may have single underscores between them.
    fn number(&mut self) -> Result<Value> {
        let based = regex!(r"^0(?:[xX](?:_?[0-9a-fA-F])+|[oO](?:_?[0-7])+|[bB](?:_?[01])+)");
        let decimal = regex!(
            r"^(?:[0-9](?:_?[0-9])*)?(?:\.(?:[0-9](?:_?[0-9])*)?)?(?:[eE][-+]?[0-9](?:_?[0-9])*)?[jJ]?"
        );
        let rest = &self.text[self.at..];
        if let Some(found) = based.find(rest) {
            self.at += found.len();
            let (prefix, digits) = found.as_str().split_at(2);
            let digits = digits.replace('_', "");
            if digits.len() * 4 > MAX_BITS {
                return Err(EvalError::Budget);
            }
            let base = match prefix {
                "0x" | "0X" => 16,
                "0o" | "0O" => 8,
                _ => 2,
            };
            let value = IBig::from_str_radix(&digits, base).ok().filter(|_| !self.plain);
            return value.map(Value::Int).ok_or(EvalError::Syntax);
        }
        let written = decimal.find(rest).map_or("", |found| found.as_str());
        self.at += written.len();
        let (whole, decimals) = written.split_once('.').unwrap_or((written, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let leading_zero = whole != "0" && whole.starts_with('0');
        if self.plain && (leading_zero || !digits(whole) || !digits(decimals)) {
            return Err(EvalError::Syntax);
        }
        let text = written.replace('_', "");
        let real = |text: &str| text.parse::<f64>().map_err(|_| EvalError::Syntax);
        if let Some(imaginary) = text.strip_suffix(['j', 'J']) {
            return Ok(Value::Complex(0.0, real(imaginary)?));
        }
        if text.contains(['.', 'e', 'E']) {
            return real(&text).map(Value::Float);
        }
        let significant = text.trim_start_matches('0');
        // Leading zeros are an error except in zero itself.
        if (significant.len() < text.len() && !significant.is_empty()) || text.len() > MAX_DIGITS {
            return Err(EvalError::Syntax);
        }
        text.parse::<IBig>().map(Value::Int).map_err(|_| EvalError::Syntax)
    }

    fn string(&mut self, prefix: &str) -> Result<Value> {
        let raw = prefix.contains('r');
        let bytes = prefix.contains('b');
        let rest = &self.text[self.at..];
        let quote = &rest[..1];
        let triple = quote.repeat(3);
        let close = if rest.starts_with(&triple) { triple.as_str() } else { quote };
        self.at += close.len();
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with(close) {
                self.at += close.len();
                break;
            }
            let c = rest.chars().next().ok_or(EvalError::Syntax)?;
            self.at += c.len_utf8();
            match c {
                '\n' | '\r' if close.len() == 1 => return Err(EvalError::Syntax),
                '\\' => {
                    let escaped = rest[1..].chars().next().ok_or(EvalError::Syntax)?;
                    self.at += escaped.len_utf8();
                    if raw {
                        out.push('\\');
                        out.push(escaped);
                    } else {
                        self.escape(escaped, bytes, &mut out)?;
                    }
                }
                '{' | '}' if prefix.contains('f') => return Err(EvalError::Syntax),
                c => out.push(c),
            }
        }
        if !bytes {
            return Ok(Value::Str(out));
        }
        let bytes: Option<Vec<u8>> = out.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        bytes.map(Value::Bytes).ok_or(EvalError::Syntax)
    }

    fn escape(&mut self, c: char, bytes: bool, out: &mut String) -> Result<()> {
        let simple = match c {
            '\n' => return Ok(()),
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\\' | '\'' | '"' => c,
            '0'..='7' => {
                let mut code = c.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let next = self.text.as_bytes().get(self.at).and_then(|d| char::from(*d).to_digit(8));
                    let Some(d) = next else { break };
                    code = code * 8 + d;
                    self.at += 1;
                }
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            'x' => self.hex(2)?,
            'u' if !bytes => self.hex(4)?,
            'U' if !bytes => self.hex(8)?,
            'N' if !bytes => return Err(EvalError::Syntax),
            other => {
                out.push('\\');
                other
            }
        };
        out.push(simple);
        Ok(())
    }

    fn hex(&mut self, length: usize) -> Result<char> {
        let digits = self.text.get(self.at..self.at + length);
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.filter(|code| *code <= 0x10_FFFF).ok_or(EvalError::Syntax)?;
        self.at += length;
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}
