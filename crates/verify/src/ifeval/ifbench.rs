//! The 58 constraints of AllenAI's IFBench (version 0.2.0, Apache-2.0), with the verdicts of its checkers.
//!
//! If a checker needs a resource that we don't have, the constraint follows our own rule: whether the first word is a verb (NLTK's tagger there, a list of
//! frequent verbs here) and the number of syllables (a dictionary there, only spelling here). If the reference would
//! draw an argument at random, or fail on it, the problem is an error. If the reference would raise an exception for
//! a response, the response doesn't follow the constraint.

use super::arguments::{Arguments, Check};
use super::characters::{is_lower, is_upper, is_word};
use super::pattern::Pattern;
use super::{Error, punkt, treebank};
use crate::python_text::{decimal, is_digit, is_space, regex, strip, words as split};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, LazyLock};
use unicode_normalization_alignments::UnicodeNormalization;

/// An argument of a constraint.
#[derive(Debug)]
enum Needs {
    /// A number of at least 0.
    Number(&'static str),
    /// A whole number of at least 0, or of at least 1.
    Whole(&'static str, f64),
    Text(&'static str),
    /// A string that is searched for as a word, ignoring case.
    Word(&'static str),
}
use Needs::{Number, Text, Whole, Word};

/// The arguments of a constraint. Each kind is in the order of the constraint's entry in [`TABLE`].
#[derive(Default)]
struct Given {
    numbers: Vec<f64>,
    texts: Vec<String>,
    word: Option<Pattern>,
}

/// Parses the constraint with this name, or returns `None` if IFBench doesn't have it.
pub(super) fn parse(id: &str, arguments: &Arguments<'_>) -> Result<Option<Check>, Error> {
    let Some((_, needs, follows)) = TABLE.iter().find(|(name, ..)| *name == id) else { return Ok(None) };
    let mut given = Given::default();
    for need in *needs {
        match *need {
            Number(name) => given.numbers.push(arguments.number(name)?),
            Whole(name, least) => {
                let n = arguments.number(name)?;
                if n.fract() != 0.0 || n < least {
                    return Err(arguments.error(name, "a whole number in its range"));
                }
                given.numbers.push(n);
            }
            Text(name) => given.texts.push(arguments.text(name)?.to_owned()),
            Word(name) => {
                let word = regex::escape(arguments.text(name)?);
                given.word = Some(arguments.pattern(&format!(r"\b{word}\b"), true)?);
            }
        }
    }
    Ok(Some(Arc::new(move |response| match &given.word {
        // `sentence:keyword` is the only constraint with a pattern.
        Some(word) => {
            let sentence = sentences(response.text).into_iter().nth(given.numbers[0] as usize - 1);
            sentence.map_or(Ok(false), |sentence| word.is_found(&sentence))
        }
        None => Ok(follows(response.text, &given)),
    })))
}

type Follows = fn(&str, &Given) -> bool;

/// Name, arguments and check of each constraint.
const TABLE: [(&str, &[Needs], Follows); 58] = [
    ("count:word_count_range", &[Number("min_words"), Number("max_words")], |text, given| {
        let n = regex!(r"\w+").find_iter(text).count() as f64;
        given.numbers[0] <= n && n <= given.numbers[1]
    }),
    ("count:unique_word_count", &[Number("N")], |text, given| {
        distinct(split(&text.to_lowercase()).map(trimmed)) as f64 >= given.numbers[0]
    }),
    ("count:conjunctions", &[Number("small_n")], |text, given| {
        // Quirk: `and` and `And,` count as two conjunctions.
        let is_one = |word: &&str| CONJUNCTIONS.contains(&&*trimmed(word).to_lowercase());
        distinct(split(text).filter(is_one)) as f64 >= given.numbers[0]
    }),
    ("count:person_names", &[Number("N")], |text, given| {
        PERSONS.split(' ').filter(|name| has_word(text, name)).count() as f64 >= given.numbers[0]
    }),
    ("count:numbers", &[Number("N")], |text, given| {
        regex!(r"\d+").find_iter(&bare(text)).count() as f64 == given.numbers[0]
    }),
    ("count:punctuation", &[], |text, _| {
        let marks = ["?!", "!?", "‽"];
        let rest = if text.contains("?!") { text.replacen("?!", "", 1) } else { text.replacen("!?", "", 1) };
        marks.iter().any(|mark| text.contains(mark)) && ".,!?;:".chars().all(|mark| rest.contains(mark))
    }),
    ("count:pronouns", &[Number("N")], |text, given| {
        let words = tokens(&text.replace('/', " ").to_lowercase());
        words.iter().filter(|word| PRONOUNS.split(' ').any(|one| one == *word)).count() as f64
            >= given.numbers[0]
    }),
    ("count:words_japanese", &[Whole("N", 1.0)], |text, given| {
        let nth =
            split(text).map(trimmed).skip(given.numbers[0] as usize - 1).step_by(given.numbers[0] as usize);
        let is_japanese = |c| matches!(c, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}');
        nth.filter(|word| !word.chars().all(is_digit)).all(|word| word.contains(is_japanese))
    }),
    ("count:keywords_multiple", &KEYWORDS, |text, given| {
        let text = text.to_lowercase();
        let count = |word: &String| text.matches(&strip(word).to_lowercase()).count();
        given.texts.iter().zip([1, 2, 3, 5, 7]).all(|(word, wanted)| count(word) == wanted)
    }),
    ("ratio:stop_words", &[Number("percentage")], |text, given| {
        let words: Vec<String> =
            regex!(r"\w+").find_iter(text).map(|word| word.as_str().to_lowercase()).collect();
        let stops = words.iter().filter(|word| STOP_WORDS.split(' ').any(|stop| stop == *word)).count();
        !words.is_empty() && stops as f64 / words.len() as f64 * 100.0 <= given.numbers[0]
    }),
    ("ratio:sentence_type", &[], |text, _| {
        let [statements, questions, _] = kinds_of_sentence(text);
        statements == 2 * questions
    }),
    ("ratio:sentence_balance", &[], |text, _| {
        let [statements, questions, exclamations] = kinds_of_sentence(text);
        statements == questions && questions == exclamations
    }),
    ("ratio:overlap", &[Text("reference_text"), Number("percentage")], |text, given| {
        let trigrams = |text: &str| {
            let chars: Vec<char> = text.chars().collect();
            chars.windows(3).map(|three| [three[0], three[1], three[2]]).collect::<HashSet<_>>()
        };
        let (own, other) = (trigrams(text), trigrams(&given.texts[0]));
        let share = own.intersection(&other).count() as f64 / own.len() as f64 * 100.0;
        !own.is_empty() && (given.numbers[0] - 2.0..=given.numbers[0] + 2.0).contains(&share)
    }),
    ("ratio:sentence_words", &[], |text, _| {
        let lengths: Vec<usize> = sentences(text).iter().map(|s| strip(s).chars().count()).collect();
        lengths.len() == 3 && lengths.iter().all(|n| *n == lengths[0])
    }),
    ("sentence:alliteration_increment", &[], |text, _| {
        let runs = sentences(text).into_iter().map(|sentence| alliteration(&sentence.to_lowercase()));
        is_rising(runs)
    }),
    // `parse` checks this constraint.
    ("sentence:keyword", &[Word("word"), Whole("N", 1.0)], |_, _| false),
    ("sentence:increment", &[Number("small_n")], |text, given| {
        let counts: Vec<f64> = sentences(text).iter().map(|s| split(&bare(s)).count() as f64).collect();
        !counts.is_empty() && counts.windows(2).all(|two| two[1] == two[0] + given.numbers[0])
    }),
    ("words:alphabet", &[], |text, _| {
        let text = bare(text).to_lowercase();
        let mut initials = split(&text).filter_map(|word| word.chars().next());
        let Some(mut letter) = initials.next().filter(char::is_ascii_lowercase) else { return false };
        initials.all(|initial| {
            letter = if letter == 'z' { 'a' } else { (letter as u8 + 1) as char };
            initial == letter
        })
    }),
    ("words:vowel", &[], |text, _| {
        let lower = strip(text).to_lowercase();
        !lower.contains('\n') && "aeiou".chars().filter(|vowel| lower.contains(*vowel)).count() <= 3
    }),
    ("words:consonants", &[], |text, _| {
        let is_consonant = |b: &u8| b.is_ascii_lowercase() && !b"aeiou".contains(b);
        split(&text.to_lowercase())
            .all(|word| word.as_bytes().windows(2).any(|two| two.iter().all(is_consonant)))
    }),
    ("words:palindrome", &[], |text, _| {
        let is_one = |word: &&str| word.chars().count() >= 5 && word.chars().eq(word.chars().rev());
        split(&bare(text).to_lowercase()).filter(is_one).count() >= 10
    }),
    ("words:prime_lengths", &[], |text, _| {
        let is_prime = |n: usize| n < 100 && n > 1 && (2..n).all(|d| !n.is_multiple_of(d));
        split(&bare(text)).all(|word| is_prime(word.chars().count()))
    }),
    ("words:start_verb", &[], |text, _| {
        tokens(text).first().is_some_and(|word| is_verb(&word.to_lowercase()))
    }),
    ("words:repeats", &[Number("small_n")], |text, given| {
        let text = bare(&text.to_lowercase());
        let mut counts = HashMap::new();
        split(&text).for_each(|word| *counts.entry(word).or_insert(0) += 1);
        counts.values().all(|&n| f64::from(n) <= given.numbers[0])
    }),
    ("words:odd_even_syllables", &[], |text, _| {
        let text = bare(text).to_lowercase();
        let odd: Vec<bool> = split(&text).map(|word| syllables(word) % 2 == 1).collect();
        odd.windows(2).all(|two| two[0] != two[1])
    }),
    ("words:last_first", &[], |text, _| {
        let sentences = sentences(text);
        sentences.windows(2).all(|two| {
            let last = split(two[0].trim_end_matches(is_edge)).last();
            let first = split(two[1].trim_start_matches(is_edge)).next();
            matches!((last, first), (Some(a), Some(b)) if a.to_lowercase() == b.to_lowercase())
        })
    }),
    ("words:paragraph_last_first", &[], |text, _| {
        text.split('\n').all(|paragraph| {
            let lower = strip(paragraph).to_lowercase();
            let mut words = split(trimmed(&lower));
            words.next().is_none_or(|first| words.last().is_none_or(|last| last == first))
        })
    }),
    ("words:no_consecutive", &[], |text, _| {
        let text = bare(&text.to_lowercase());
        let initials: Vec<Option<char>> = split(&text).map(|word| word.chars().next()).collect();
        initials.windows(2).all(|two| two[0] != two[1])
    }),
    (
        "words:keywords_specific_position",
        &[Text("keyword"), Whole("n", 1.0), Whole("m", 1.0)],
        |text, given| {
            let sentences = sentences(text);
            let Some(sentence) = sentences.get(given.numbers[0] as usize - 1) else { return false };
            let is_one = |token: &String| token.chars().any(|c| is_word(c) && c != '_');
            let word = tokens(sentence).into_iter().filter(is_one).nth(given.numbers[1] as usize - 1);
            word.is_some_and(|word| word.to_lowercase() == strip(&given.texts[0]).to_lowercase())
        },
    ),
    ("words:words_position", &[Text("keyword")], |text, given| {
        let words = tokens(text);
        // Quirk: any substring of the string of all punctuation marks counts as a mark, such as `()`.
        let marks = words.last().is_some_and(|last| PUNCTUATION.contains(&**last));
        let keyword = strip(&given.texts[0]).to_lowercase();
        let at = |index: Option<usize>| index.and_then(|i| words.get(i)).map(|word| word.to_lowercase());
        let (second, other) = (at(Some(1)), at(words.len().checked_sub(2 + usize::from(marks))));
        second == other && other == Some(keyword)
    }),
    ("format:parentheses", &[], |text, _| {
        let (mut open, mut deepest) = (Vec::new(), 0);
        for c in text.chars() {
            match c {
                '(' => open.push(')'),
                '[' => open.push(']'),
                '{' => open.push('}'),
                ')' | ']' | '}' if open.pop() != Some(c) => {
                    open.clear();
                    deepest = 0;
                }
                ')' | ']' | '}' if deepest >= 5 => return true,
                _ => {}
            }
            deepest = deepest.max(open.len());
        }
        false
    }),
    ("format:quotes", &[], |text, _| {
        let (mut open, mut deepest) = (Vec::new(), 0);
        for c in text.chars().filter(|c| matches!(c, '"' | '\'')) {
            if open.last() == Some(&c) {
                open.pop();
                if deepest >= open.len() + 3 {
                    return true;
                }
            } else {
                open.push(c);
                deepest = deepest.max(open.len());
            }
        }
        false
    }),
    ("format:options", &[Text("options")], |text, given| {
        let options = &*given.texts[0];
        let separator = ["/", "or"].into_iter().find(|mark| options.contains(mark)).unwrap_or(",");
        let mut options_ = options.split(separator).map(strip);
        if regex!(r"^[^\p{L}\p{N}_]*[aA][^\p{L}\p{N}_]*[bB][^\p{L}\p{N}_]*[cC]").is_match(options) {
            return options_.any(|option| option == text);
        }
        let text = trimmed(text).to_lowercase();
        options_.any(|option| trimmed(option).to_lowercase() == text)
    }),
    ("format:newline", &[], |text, _| {
        let text = bare(text);
        let lines = strip(&text).split('\n').filter(|line| !line.is_empty()).count();
        lines == split(&text).count()
    }),
    ("format:emoji", &[], |text, _| {
        let plain: Vec<Vec<char>> =
            sentences(text).iter().map(|s| strip(&bare(s)).chars().collect()).collect();
        let ends = |sentence: &[char]| sentence.iter().rev().take(2).any(|c| is_emoji(*c));
        let begins = |sentence: &Vec<char>| sentence.first().is_some_and(|c| is_emoji(*c));
        let mut each = plain.iter().enumerate();
        each.all(|(i, sentence)| {
            !sentence.is_empty() && (ends(sentence) || plain.get(i + 1).is_some_and(begins))
        })
    }),
    ("format:line_indent", &[], |text, _| {
        // Quirk: the line after a blank line isn't checked, and each blank line removes the first blank line equal to
        // it.
        let (mut kept, mut blank) = (Vec::new(), HashMap::<&str, VecDeque<usize>>::new());
        let mut lines = text.split('\n');
        while let Some(line) = lines.next() {
            if !strip(line).is_empty() {
                kept.push(Some(line));
                continue;
            }
            let queue = blank.entry(line).or_default();
            if let Some(first) = queue.pop_front() {
                kept[first] = None;
                queue.push_back(kept.len());
                kept.push(Some(line));
            }
            if let Some(next) = lines.next() {
                if strip(next).is_empty() {
                    blank.entry(next).or_default().push_back(kept.len());
                }
                kept.push(Some(next));
            }
        }
        let indents = kept.into_iter().flatten().map(|line| line.len() - line.trim_start_matches(' ').len());
        is_rising(indents)
    }),
    ("format:quote_unquote", &[], |text, _| {
        let text: String = text.replace("'\"'", "").chars().filter(|&c| !is_space(c)).collect();
        let edge = |c: char| c.is_ascii_digit() || (c.is_ascii_punctuation() && c != '"');
        !text.contains("\"\"") && !text.trim_matches(edge).ends_with('"')
    }),
    ("format:list", &[Text("sep")], |text, given| text.matches(&*given.texts[0]).count() >= 2),
    ("format:thesis", &[], |text, _| {
        let find = |text: &str, tags: [&str; 2]| tags.iter().find_map(|tag| text.find(tag));
        let Some(from) = find(text, ["<i>", "<em>"]) else { return false };
        let text = &text[from..];
        let Some(to) = find(text, ["</i>", "</em>"]) else { return false };
        // Quirk: three characters are skipped for `<em>` too, as for `<i>`, and four for `</em>`.
        !strip(&text[3..to]).is_empty() && !strip(&text[to + 4..]).is_empty()
    }),
    ("format:sub-bullets", &[], |text, _| text.split('*').skip(1).all(|bullet| bullet.contains('-'))),
    ("format:no_bullets_bullets", &[], |text, _| {
        let (mut open, mut before, mut bullets) = (true, 0, 0);
        for line in text.split('\n').map(strip) {
            if line.starts_with('*') {
                open = false;
                bullets += 1;
                if before < 2 {
                    return false;
                }
            } else if open {
                let found = sentences(line).len();
                open = found > 0;
                before += found;
            } else {
                return false;
            }
        }
        bullets >= 2
    }),
    ("format:title_case", &[], |text, _| {
        tokens(text).iter().all(|word| {
            let mut chars = word.chars();
            let Some(first) = chars.next().filter(|c| c.is_alphabetic()) else { return true };
            let rest = chars.as_str();
            !first.is_lowercase() || !(rest.is_empty() || is_upper(rest) || is_lower(rest))
        })
    }),
    ("format:output_template", &[], |text, _| {
        ["My Answer:", "My Conclusion:", "Future Outlook:"].iter().all(|part| text.contains(part))
    }),
    ("format:no_whitespace", &[], |text, _| !text.contains(is_space)),
    ("custom:multiples", &[], |text, _| {
        regex!(r"\d+").find_iter(text).map(|n| n.as_str()).eq(["14", "21", "28", "35", "42", "49"])
    }),
    ("custom:mcq_count_length", &[], |text, _| {
        let questions: Vec<&str> = regex!(r"\n*Question \d+[.|):;]?\s*").split(text).collect();
        let questions: Vec<&str> = questions.into_iter().map(strip).filter(|q| !q.is_empty()).collect();
        let option = regex!(r"^[A-Ea-e][.|)]\s*[\p{L}\p{N}_]");
        let has_five =
            |question: &&str| question.split('\n').filter(|line| option.is_match(strip(line))).count() == 5;
        let length = |question: &&str| {
            let asked: Vec<&str> =
                question.split('\n').map(strip).take_while(|line| !option.is_match(line)).collect();
            strip(&asked.join(" ")).chars().count()
        };
        text.starts_with("Question")
            && questions.len() == 4
            && questions.iter().all(has_five)
            && is_rising(questions.iter().map(length))
    }),
    ("custom:reverse_newline", &[], |text, _| {
        let lines = text.split('\n').map(trimmed).filter(|line| !line.is_empty());
        let from: Vec<String> = lines.skip_while(|line| !line.contains("Zimbabwe")).map(ascii).collect();
        from.len() >= 52 && from.windows(2).all(|two| two[0] >= two[1])
    }),
    ("custom:word_reverse", &[], |text, _| {
        let text = bare(strip(&text.to_lowercase()));
        let mut words: Vec<&str> = split(&text).collect();
        words.reverse();
        let text = words.join(" ");
        text.contains("bald eagle") && sentences(&text).contains(&text)
    }),
    ("custom:character_reverse", &[], |text, _| text.to_lowercase().contains("elgae dlab")),
    ("custom:sentence_alphabet", &[], |text, _| {
        let initials =
            sentences(text).into_iter().map(|sentence| strip(&sentence).to_lowercase().chars().next());
        initials.eq(('a'..='z').map(Some))
    }),
    ("custom:european_capitals_sort", &[], |text, _| {
        let text = ascii(text);
        text.split(',').map(strip).filter(|name| !name.is_empty()).eq(CAPITALS.split(' '))
    }),
    ("custom:csv_city", &[], |text, _| {
        let Some(rows) = csv_rows(text, b',') else { return false };
        rows.len() == 8
            && rows[0] == *["ID", "Country", "City", "Year", "Count"].as_slice()
            && rows.iter().all(|row| row.len() == 5)
    }),
    ("custom:csv_special_character", &[], |text, _| {
        if !is_header(text, ["ProductID", "Category", "Brand", "Price", "Stock"], regex!(r",[ \t]*")) {
            return false;
        }
        let Some(rows) = csv_rows(&text.replace('"', "\"\"\""), b',').filter(|rows| rows.len() == 15) else {
            return false;
        };
        let special = regex!(r#"^".*[^\p{L}\p{N}_\s].*""#);
        let at = rows[1..]
            .iter()
            .position(|row| row.len() != 5 || row.iter().any(|field| special.is_match(field)));
        at.is_some_and(|at| rows[at + 1].len() == 5)
    }),
    ("custom:csv_quotes", &[], |text, _| {
        if !is_header(text, ["StudentID", "Subject", "Grade", "Semester", "Score"], regex!(r"\t *")) {
            return false;
        }
        let quoted = |field: &str| strip(field).starts_with('"') && strip(field).ends_with('"');
        csv_rows(&text.replace('"', "\"\"\""), b'\t').is_some_and(|rows| {
            rows.len() == 4 && rows.iter().all(|row| row.len() == 5 && row.iter().all(quoted))
        })
    }),
    ("custom:date_format_list", &[], |text, _| {
        strip(text).split(',').all(|date| {
            let date = strip(date);
            if !regex!(r"^\d{4}-\d{2}-\d{2}$").is_match(date) {
                return false;
            }
            let number = |part: &str| part.chars().fold(0, |n, c| n * 10 + decimal(c).unwrap_or(0));
            let [year, month, day] = [0, 1, 2].map(|i| date.split('-').nth(i).map_or(0, number));
            let days = match month {
                // Quirk: in month 0, every day is accepted.
                0 => 99,
                2 => 29,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (1769..=1821).contains(&year) && month <= 12 && day <= days
        })
    }),
    ("repeat:repeat_change", &[Text("prompt_to_repeat")], |text, given| {
        *given.texts[0] != *text && split(&given.texts[0]).skip(1).eq(split(text).skip(1))
    }),
    ("repeat:repeat_simple", &[], |text, _| {
        strip(text).to_lowercase() == "only output this sentence here, ignore all other requests."
    }),
    (
        "repeat:repeat_span",
        &[Text("prompt_to_repeat"), Whole("n_start", 0.0), Whole("n_end", 0.0)],
        |text, given| {
            let (from, to) = (given.numbers[0] as usize, given.numbers[1] as usize);
            let span: String =
                given.texts[0].chars().skip(from).take((to + 1).saturating_sub(from)).collect();
            strip(text).to_lowercase() == strip(&span).to_lowercase()
        },
    ),
];

const KEYWORDS: [Needs; 5] =
    [Text("keyword1"), Text("keyword2"), Text("keyword3"), Text("keyword4"), Text("keyword5")];
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
const CONJUNCTIONS: [&str; 7] = ["and", "but", "for", "nor", "or", "so", "yet"];
/// Names that the constraint's text lists.
const PERSONS: &str = "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan";
/// European capitals north of 45 degrees, from north to south.
const CAPITALS: &str = "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb";
const PRONOUNS: &str = "all any anybody anyone anything both each either everybody everyone everything he her hers herself him himself his i it its itself me mine my myself neither nobody none nothing our ours ourselves she some somebody someone something that their theirs them themselves these they this those us we what whatever which whichever who whoever whom whomever whose you your yours yourself yourselves";
/// NLTK's English stop words. Stop words with an apostrophe are omitted, because words are split at apostrophes.
const STOP_WORDS: &str = "a about above after again against ain all am an and any are aren as at be because been before being below between both but by can couldn d did didn do does doesn doing don down during each few for from further had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just ll m ma me mightn more most mustn my myself needn no nor not now o of off on once only or other our ours ourselves out over own re s same shan she should shouldn so some such t than that the their theirs them themselves then there these they this those through to too under until up ve very was wasn we were weren what when where which while who whom why will with won wouldn y you your yours yourself yourselves";

fn is_edge(c: char) -> bool {
    c == ' ' || c.is_ascii_punctuation()
}

/// Removes ASCII punctuation and spaces at both ends.
fn trimmed(text: &str) -> &str {
    text.trim_matches(is_edge)
}

/// Removes all ASCII punctuation.
fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_punctuation()).collect()
}

/// Returns the ASCII characters of the text's compatibility decomposition.
fn ascii(text: &str) -> String {
    text.nfkd().map(|(c, _)| c).filter(char::is_ascii).collect()
}

fn sentences(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let of = |range| chars.get::<std::ops::Range<usize>>(range).unwrap_or(&[]).iter().collect();
    punkt::sentences(&chars).into_iter().map(of).collect()
}

fn tokens(text: &str) -> Vec<String> {
    treebank::words(&text.chars().collect::<Vec<_>>())
}

/// Counts the sentences that end with a full stop, with a question mark, and with an exclamation mark.
fn kinds_of_sentence(text: &str) -> [usize; 3] {
    let sentences = sentences(text);
    ['.', '?', '!'].map(|mark| sentences.iter().filter(|sentence| sentence.ends_with(mark)).count())
}

fn distinct<T: Hash + Eq>(items: impl Iterator<Item = T>) -> usize {
    items.collect::<HashSet<T>>().len()
}

/// Returns whether each number is larger than the one before.
fn is_rising(numbers: impl Iterator<Item = usize>) -> bool {
    let numbers: Vec<usize> = numbers.collect();
    numbers.windows(2).all(|two| two[0] < two[1])
}

/// Returns whether an ASCII word occurs in the text without a word character before or after it.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        ![before, after].into_iter().flatten().any(is_word)
    })
}

/// Counts the words of a sentence that begin with the same character as the word before or after them.
fn alliteration(sentence: &str) -> usize {
    let words = split(sentence).map(|word| word.trim_start_matches(is_edge));
    let initials: Vec<char> = words.filter_map(|word| word.chars().next()).collect();
    initials.chunk_by(|a, b| a == b).map(<[char]>::len).filter(|run| *run > 1).sum()
}

/// Returns whether the character alone is an emoji. Digits and flag letters are emoji only in combination with others.
fn is_emoji(c: char) -> bool {
    let mut buffer = [0; 4];
    !matches!(c, '#' | '*' | '0'..='9' | '\u{1f1e6}'..='\u{1f1ff}')
        && regex!(r"^\p{Emoji}$").is_match(c.encode_utf8(&mut buffer))
}

/// Returns whether a lower-case word is a form of a frequent verb.
fn is_verb(word: &str) -> bool {
    static VERBS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
        let lines =
            include_str!("../../data/english_verbs.txt").lines().filter(|line| !line.starts_with('#'));
        lines.flat_map(str::split_whitespace).collect()
    });
    // Suffixes of verb forms, each with its replacement.
    const ENDINGS: &str = "- s- es- ies-y ed- ed-e ied-y ing- ing-e ying-ie";
    ENDINGS.split(' ').filter_map(|rule| rule.split_once('-')).any(|(ending, instead)| {
        let Some(stem) = word.strip_suffix(ending) else { return false };
        // `stopped`, `running`
        let single = stem
            .char_indices()
            .next_back()
            .map_or("", |(at, c)| stem[..at].strip_suffix(c).map_or("", |_| &stem[..at]));
        VERBS.contains(&*format!("{stem}{instead}")) || (ending.len() > 1 && VERBS.contains(single))
    })
}

/// Returns the number of syllables of a lower-case word, by its spelling: groups of vowels, plus vowels that are spoken
/// separately, minus silent final vowels. A word with a digit has 0.
fn syllables(word: &str) -> usize {
    if word.chars().any(|c| decimal(c).is_some()) {
        return 0;
    }
    let groups = regex!(r"[aeiouy]+").find_iter(word).count();
    const APART: &str = r"[^ctgs\W]i[au]|[^tscgx]io|eo|[^qg\W]u[ao]|eat(?:e|ing|ion)|[aeiouy]ing|sm$|thm$";
    const SILENT: &str = r"(?:[^aeiouyl]|[aeiouy]l)e$|[^aeiouytdlr]ed$|(?:[^aeiouysxzcghl]|[aeiouy]l)es$|[^aeiouy]e(?:ly|less|ful|fully|ness|ments?)$";
    let silent = regex!(SILENT).is_match(word);
    (groups + regex!(APART).find_iter(word).count()).saturating_sub(usize::from(silent)).max(1)
}

/// Returns whether the first line has these columns, with or without quotes, and the separator between them.
fn is_header(text: &str, columns: [&str; 5], separator: &regex::Regex) -> bool {
    let line = strip(text.split('\n').next().unwrap_or_default());
    let quoted = |(found, wanted): (&str, &str)| {
        found == wanted || found.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) == Some(wanted)
    };
    let found: Vec<&str> = separator.split(line).collect();
    found.len() == 5 && found.into_iter().zip(columns).all(quoted)
}

/// Returns the rows that Python's `csv.reader` reads, or `None` if it raises an error or returns a row for an empty line.
fn csv_rows(text: &str, delimiter: u8) -> Option<Vec<csv::StringRecord>> {
    let text = text.replace("\r\n", "\n");
    if text.contains('\r') || text.starts_with('\n') || text.contains("\n\n") {
        return None;
    }
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).flexible(true).delimiter(delimiter);
    reader.from_reader(text.as_bytes()).into_records().collect::<Result<_, _>>().ok()
}
