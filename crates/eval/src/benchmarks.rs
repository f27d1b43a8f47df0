//! Names of the paper's benchmarks, and averages over benchmarks.

use crate::samples::Benchmark;

/// A named average over benchmarks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Average {
    /// "Math" or "OOD", or the name given on the command line.
    pub name: String,
    /// Canonical names of the benchmarks in the average.
    pub members: Vec<String>,
}

const MATH: [&str; 6] = ["math500", "aime24", "aime25", "amc23", "minerva", "olympiad"];
const OOD: [&str; 3] = ["ifeval", "synlogic", "gpqa"];
const OOD_OF_SYNLOGIC: [&str; 6] = ["aime24", "aime25", "amc23", "math500", "ifeval", "gpqa"];

crate::named! {
    /// Domain that the models were trained on. It determines which benchmarks are out of domain.
    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Domain {
        #[default]
        Math = "math": r#"Mathematics: "Math" over six benchmarks, "OOD" over IFEval, SynLogic and GPQA Diamond"#,
        Synlogic = "synlogic": r#"SynLogic: "OOD" over AIME24, AIME25, AMC23, MATH500, IFEval and GPQA Diamond"#,
    }
}

/// Averages to show.
#[derive(Debug, Clone, Default)]
pub struct Averages {
    /// Domain that the models were trained on. The OOD average excludes it.
    pub trained_on: Domain,
    /// Averages in addition to the paper's.
    pub further: Vec<Average>,
}

impl Averages {
    /// Returns the paper's averages for models trained on `trained_on`, followed by the averages in `further`.
    pub fn all(&self) -> Vec<Average> {
        paper(self.trained_on).into_iter().chain(self.further.iter().cloned()).collect()
    }

    /// Returns the averages that can be formed over the benchmarks `names`, each with its name and the indices of its
    /// members in `names`. One of the paper's averages that lacks members is left out, which is logged.
    ///
    /// Returns the errors of [`Averages::require`].
    pub fn over(&self, names: &[&str]) -> anyhow::Result<Vec<(String, Vec<usize>)>> {
        self.require(names)?;
        let all = self.all();
        incomplete(&all, names).iter().for_each(|note| tracing::info!("{note}"));
        Ok(all.into_iter().filter_map(|a| Some((a.among(names)?, a.name))).map(|(m, n)| (n, m)).collect())
    }

    /// Returns an error unless each further average can be formed over the benchmarks `names` and has a unique name.
    pub fn require(&self, names: &[&str]) -> anyhow::Result<()> {
        for average in &self.further {
            let name = &average.name;
            for (member, places) in average.members.iter().zip(average.places(names)) {
                match places.len() {
                    1 => {}
                    0 => {
                        let distance = |n: &&&str| strsim::damerau_levenshtein(&canonical(n), member);
                        let nearest = names.iter().min_by_key(distance).copied().unwrap_or_default();
                        bad_input!(
                            "average {name}: there is no benchmark {member}; did you mean {nearest}? The benchmarks are {}",
                            names.join(", ")
                        );
                    }
                    n => bad_input!(
                        "average {name}: there are {n} benchmarks {member}; give the samples of one model"
                    ),
                }
            }
            if self.all().iter().filter(|a| a.name == *name && a.among(names).is_some()).count() > 1 {
                bad_input!("average {name}: another average has this name; choose a different one");
            }
        }
        Ok(())
    }
}

/// Returns an error if two benchmarks of one model have the same name in different spellings, since they can't be
/// distinguished.
pub fn require_distinct(benchmarks: &[Benchmark]) -> anyhow::Result<()> {
    for (i, b) in benchmarks.iter().enumerate() {
        if let Some(other) = benchmarks[..i].iter().find(|o| canonical(&o.name) == canonical(&b.name)) {
            bad_input!(
                "{} in {} and {} in {} are the same benchmark; give each benchmark of a model once",
                other.name,
                other.path.display(),
                b.name,
                b.path.display()
            );
        }
    }
    Ok(())
}

/// Returns the canonical form of a benchmark's name: only lower-case letters and digits, and no alias or owner.
pub fn canonical(name: &str) -> String {
    // The hub's data sets have their owner's name in front.
    let name = name.rsplit('/').next().unwrap_or(name);
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    match plain.as_str() {
        "" => name,
        "aime2024" => "aime24",
        "aime2025" => "aime25",
        "amc" | "amc2023" => "amc23",
        "minervamath" => "minerva",
        "olympiadbench" | "olympiadbenchmath" => "olympiad",
        name if name.starts_with("gpqadiamond") || name.starts_with("leaderboardgpqadiamond") => "gpqa",
        "leaderboardifeval" => "ifeval",
        "hmath500" | "huggingfaceh4math500" | "hendrycksmath500" | "minervamath500" | "fgrpomath500" => {
            "math500"
        }
        other => return other.to_owned(),
    }
    .to_owned()
}

/// Returns the averages of the paper's tables for models trained on `domain`.
pub fn paper(domain: Domain) -> Vec<Average> {
    let average = |name: &str, members: &[&str]| Average {
        name: name.to_owned(),
        members: members.iter().map(ToString::to_string).collect(),
    };
    match domain {
        Domain::Math => vec![average("Math", &MATH), average("OOD", &OOD)],
        Domain::Synlogic => vec![average("OOD", &OOD_OF_SYNLOGIC)],
    }
}

/// Returns whether a name is one of the paper's benchmarks.
pub fn is_known(name: &str) -> bool {
    let name = canonical(name);
    MATH.iter().chain(&OOD).any(|benchmark| *benchmark == name)
}

/// Parses `NAME=a,b,c` of the command line.
///
/// Returns an error message if the name or the members are missing, or if a member is repeated.
pub fn parse(text: &str) -> Result<Average, String> {
    let (name, members) = text.split_once('=').ok_or("expected NAME=benchmark,benchmark,...")?;
    let members: Vec<String> = members.split(',').map(canonical).filter(|m| !m.is_empty()).collect();
    if name.is_empty() || members.is_empty() {
        return Err("expected NAME=benchmark,benchmark,...".to_owned());
    }
    if let Some((_, twice)) = members.iter().enumerate().find(|(i, m)| members[..*i].contains(m)) {
        return Err(format!("{twice} is listed twice"));
    }
    Ok(Average { name: name.to_owned(), members })
}

impl Average {
    /// Returns the indices in `names` of each member.
    fn places(&self, names: &[&str]) -> Vec<Vec<usize>> {
        let canonical: Vec<String> = names.iter().map(|n| self::canonical(n)).collect();
        let indices = |member: &String| (0..names.len()).filter(|&i| canonical[i] == *member).collect();
        self.members.iter().map(indices).collect()
    }

    /// Returns the indices of the members in `names`, or `None` unless `names` has every member exactly once.
    pub fn among(&self, names: &[&str]) -> Option<Vec<usize>> {
        self.places(names).iter().map(|places| (places.len() == 1).then(|| places[0])).collect()
    }

    /// Returns the members that are missing from `names`. `None` if `names` has all members, or fewer than two, because
    /// then nobody expects the average.
    pub fn lacking(&self, names: &[&str]) -> Option<Vec<&str>> {
        let members = self.members.iter().zip(self.places(names));
        let missing: Vec<&str> =
            members.filter(|(_, places)| places.is_empty()).map(|(m, _)| m.as_str()).collect();
        (!missing.is_empty() && missing.len() + 2 <= self.members.len()).then_some(missing)
    }
}

/// Returns a sentence with the reason for each average that can't be formed.
pub fn incomplete(averages: &[Average], names: &[&str]) -> Vec<String> {
    let sentence = |a: &Average| {
        let places = a.places(names);
        let repeated = places.iter().position(|p| p.len() > 1).filter(|_| !places.contains(&Vec::new()));
        if let Some(at) = repeated {
            return Some(format!("no average {}: there are several benchmarks {}", a.name, a.members[at]));
        }
        let missing = a.lacking(names)?.join(", ");
        Some(format!("no average {}: {missing} missing (it is the mean of {})", a.name, a.members.join(", ")))
    };
    averages.iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_benchmark_meet() {
        for (name, expected) in [
            ("AIME_2024", "aime24"),
            ("MATH-500", "math500"),
            ("OlympiadBench", "olympiad"),
            ("gpqa_diamond", "gpqa"),
            ("gpqa_diamond_cot_zeroshot", "gpqa"),
            ("HuggingFaceH4/MATH-500", "math500"),
            ("math-ai/aime25", "aime25"),
            ("my-set", "myset"),
        ] {
            assert_eq!(canonical(name), expected);
        }
    }

    #[test]
    fn an_average_needs_all_of_its_benchmarks_and_says_which_are_missing() {
        let averages = paper(Domain::Math);
        let some = ["aime24", "AMC", "ifeval"];
        assert_eq!((averages[0].among(&some), averages[1].among(&some)), (None, None));
        let lacking = averages[0].lacking(&some).unwrap();
        assert_eq!(lacking, ["math500", "aime25", "minerva", "olympiad"]);
        // With only one of its benchmarks, nobody expects an average.
        assert_eq!(averages[1].lacking(&some), None);
        let sentences = incomplete(&averages, &some);
        assert!(sentences[0].starts_with("no average Math: math500, aime25"), "{sentences:?}");
        assert_eq!(averages[1].among(&["GPQA-Diamond", "x", "IFEval", "synlogic"]), Some(vec![2, 3, 0]));
        assert_eq!(parse("Mine=ifeval,aime24").unwrap().among(&some), Some(vec![2, 0]));
        assert!(parse("=a").is_err());
    }

    #[test]
    fn no_average_out_of_domain_contains_the_domain() {
        let ood = |domain| paper(domain).pop().unwrap();
        assert!(ood(Domain::Math).members.iter().all(|m| !MATH.contains(&m.as_str())));
        let average = ood(Domain::Synlogic);
        assert_eq!((average.name.as_str(), average.members.len()), ("OOD", 6));
        assert!(!average.members.iter().any(|m| m == "synlogic"));
        assert_eq!(paper(Domain::Synlogic).len(), 1);
    }
}
