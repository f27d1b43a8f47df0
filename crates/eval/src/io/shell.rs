//! Quotes words for a POSIX shell.

/// Quotes a word if a shell would otherwise interpret it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_words_back_as_they_were() {
        for word in ["plain-1.0/x=y", "", "two words", "it's", "a\nb", "$HOME", "*", "\"", "~", "a;b", "-é"]
        {
            let script = format!("printf '%s' {}", quoted(word));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
        assert_eq!(quoted("runs/a=b,c"), "runs/a=b,c");
    }
}
