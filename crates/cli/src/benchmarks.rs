//! Names of the paper's benchmarks and the averages over them.

/// A named average over benchmarks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Average {
    /// "Math" or "OOD", or the name the command line gave.
    pub name: String,
    /// Its benchmarks by their canonical names.
    pub members: Vec<String>,
}

const MATH: [&str; 6] = ["math500", "aime24", "aime25", "amc23", "minerva", "olympiad"];
const OOD: [&str; 3] = ["ifeval", "synlogic", "gpqa"];

/// One spelling per benchmark: lower case, letters and digits only, known aliases resolved.
pub fn canonical(name: &str) -> String {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    match plain.as_str() {
        "aime2024" => "aime24",
        "aime2025" => "aime25",
        "amc" | "amc2023" => "amc23",
        "minervamath" => "minerva",
        "olympiadbench" | "olympiadbenchmath" => "olympiad",
        "gpqadiamond" => "gpqa",
        "hmath500" | "huggingfaceh4math500" => "math500",
        other => return other.to_owned(),
    }
    .to_owned()
}

/// The averages of the paper's tables: "Math" over six benchmarks, "OOD" over three.
pub fn paper() -> Vec<Average> {
    let average = |name: &str, members: &[&str]| Average {
        name: name.to_owned(),
        members: members.iter().map(ToString::to_string).collect(),
    };
    vec![average("Math", &MATH), average("OOD", &OOD)]
}

/// Parses `NAME=a,b,c` of the command line.
///
/// # Errors
/// A message for a text without a name or members.
pub fn parse(text: &str) -> Result<Average, String> {
    let (name, members) = text.split_once('=').ok_or("wanted NAME=benchmark,benchmark,...")?;
    let members: Vec<String> = members.split(',').map(canonical).filter(|m| !m.is_empty()).collect();
    if name.is_empty() || members.is_empty() {
        return Err("wanted NAME=benchmark,benchmark,...".to_owned());
    }
    Ok(Average { name: name.to_owned(), members })
}

impl Average {
    /// Where its members stand among `names`, and a label that says which are missing; nothing if fewer
    /// than two are there.
    pub fn among(&self, names: &[&str]) -> Option<(Vec<usize>, String)> {
        let canonical: Vec<String> = names.iter().map(|n| self::canonical(n)).collect();
        let found: Vec<usize> =
            self.members.iter().filter_map(|m| canonical.iter().position(|c| c == m)).collect();
        if found.len() < 2 {
            return None;
        }
        let label = if found.len() == self.members.len() {
            self.name.clone()
        } else {
            format!("{} ({} of {})", self.name, found.len(), self.members.len())
        };
        Some((found, label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_benchmark_meet() {
        for (name, wanted) in [
            ("AIME_2024", "aime24"),
            ("MATH-500", "math500"),
            ("OlympiadBench", "olympiad"),
            ("gpqa_diamond", "gpqa"),
            ("my-set", "myset"),
        ] {
            assert_eq!(canonical(name), wanted);
        }
    }

    #[test]
    fn an_average_says_how_many_of_its_benchmarks_are_there() {
        let names = ["aime24", "AMC", "ifeval"];
        let averages = paper();
        assert_eq!(averages[0].among(&names), Some((vec![0, 1], "Math (2 of 6)".to_owned())));
        assert_eq!(averages[1].among(&names), None);
        assert_eq!(parse("Mine=ifeval,aime24").unwrap().among(&names).unwrap().1, "Mine");
        assert!(parse("=a").is_err());
    }
}
