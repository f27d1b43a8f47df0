//! Answers in boxes: `\boxed{...}` and commands like it.

/// What stands in the last of these commands whose braces close, in one pass over the text.
///
/// `commands` are written with their backslash and opening brace: `\boxed{`.
pub fn last_closed<'a>(text: &'a str, commands: &[&str]) -> Option<&'a str> {
    // Where each open brace's content starts, and whether the brace is a command's.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut last: Option<(usize, usize)> = None;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => {
                let before = &text.as_bytes()[..=at];
                open.push((at + 1, commands.iter().any(|c| before.ends_with(c.as_bytes()))));
            }
            b'}' => {
                if let Some((start, true)) = open.pop()
                    && last.is_none_or(|(other, _)| start > other)
                {
                    last = Some((start, at));
                }
            }
            _ => {}
        }
    }
    last.map(|(start, end)| &text[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_box_that_closes_is_found() {
        for (text, wanted) in [
            (r"\boxed{1} or \boxed{\frac{1}{2}}.", Some(r"\frac{1}{2}")),
            (r"\boxed{1} and \boxed{2", Some("1")),
            (r"\boxed{1} \boxed{2 \boxed{3", Some("1")),
            (r"\boxed{a \boxed{b} c}", Some("b")),
            (r"} \boxed{\fbox{x}", Some("x")),
            (r"\boxed{}", Some("")),
            (r"{1} boxed{2}", None),
            ("", None),
        ] {
            assert_eq!(last_closed(text, &["\\boxed{", "\\fbox{"]), wanted, "{text}");
        }
    }

    #[test]
    fn a_hundred_thousand_open_boxes_take_one_pass() {
        let text = "\\boxed{".repeat(100_000);
        assert_eq!(last_closed(&text, &["\\boxed{"]), None);
    }
}
