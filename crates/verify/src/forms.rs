//! Reads data files of named sections, some of which contain patterns.

/// Roles of words, and patterns of sentences that state, deny or take back an answer.
pub(crate) const SENTENCES: &str = include_str!("../data/sentences.txt");

/// Returns a section of a data file, which begins with a blank line and `# NAME`.
///
/// # Panics
/// If the file doesn't have the section: names are constants.
pub(crate) fn section(data: &'static str, name: &str) -> &'static str {
    let mut sections = data.split("\n\n# ");
    let found = sections.find_map(|section| section.strip_prefix(name)?.strip_prefix('\n'));
    found.map(str::trim_end).unwrap_or_else(|| panic!("no section {name}"))
}

/// Returns the pattern in a section of a data file. A line is an alternative or, if indented, continues the line above.
pub(crate) fn source(data: &'static str, name: &str) -> String {
    let mut pattern = String::new();
    for line in section(data, name).lines().filter(|line| !line.starts_with("//")) {
        let goes_on = line.starts_with("  ");
        pattern.push_str(if goes_on || pattern.is_empty() { "" } else { "|" });
        pattern.push_str(line.trim_start());
    }
    pattern
}

/// Returns the compiled pattern in a section of [`SENTENCES`], which is stored in a static.
macro_rules! form {
    ($name:literal) => {
        $crate::python_text::regex!(&$crate::forms::source($crate::forms::SENTENCES, $name))
    };
}
pub(crate) use form;
