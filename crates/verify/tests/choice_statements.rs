//! Multiple choice with content: honest statements of the right option are correct, and no statement of another option, of
//! several options or of none is. `cargo test -p fgrpo-verify --test choice_statements -- --nocapture` prints the counts.

use std::collections::BTreeMap;

use fgrpo_verify::choice::{Error, Match, Verifier, letter, show};
use fgrpo_verify::verdict::Verdict;

/// Options of different kinds: words, articles, numbers that begin other numbers, formulas, sentences.
const QUESTIONS: [&[&str]; 14] = [
    &["13", "-13", "1.3", "-1/3"],
    &["True", "False"],
    &["Yes", "No", "Cannot be determined"],
    &["+5 V", "-5 V", "±5 V", "0 V"],
    &["(1, 2)", "(2, 1)", "[1, 2]", r"\{1, 2\}"],
    &["$-x$", "$x$", r"$\frac{-1}{x}$", "$x^{-1}$"],
    &["Only I", "I and II", "I, II and III", "Neither I nor II"],
    &["London", "Paris", "Rome", "A dog"],
    &["5", "5.5", "55", "1/5"],
    &["10 cm", "10 m", "100 cm", "1 km", "10 million"],
    &[r"$\frac{1}{2}$", r"$\frac{1}{3}$", r"$\frac12 + 1$", r"$x^2$"],
    &["It rises.", "It falls.", "It does not change.", "It is not defined."],
    &["Increase", "Decrease"],
    &["a cell wall", "a cell", "an atom", "Vitamin C", "B-complex vitamins", "I think", "None of the above"],
];

/// `L` is the letter and `T` the words of the stated option, `l` and `t` those of another option.
const HONEST: &[(&str, &str)] = &[
    ("box", r"\boxed{L}"),
    ("box", r"\boxed{(L)}"),
    ("box", r"So it is $\boxed{\text{L}}$."),
    ("box", r"\boxed{\textbf{(L)}}"),
    ("box", r"\boxed{\color{red}L}"),
    ("box", r"\boxed{\textcolor{blue}{\mathbf{L}}}"),
    ("box", r"\boxed{L) T}"),
    ("box", r"\boxed{\text{L. T}}"),
    ("box", r"\boxed{T}"),
    ("box", r"\boxed{\text{Option L}}"),
    ("box", r"\fbox{L}"),
    ("box", r"\boxed{\boxed{L}}"),
    ("box", r"\boxed{\Large L}"),
    ("box, corrected", "\\boxed{l}\n\nThat was too quick.\n\n\\boxed{L}"),
    ("tag", "<answer>L</answer>"),
    ("tag", "<think>l?</think>\n<answer>\n(L)\n</answer>"),
    ("tag", "<answer>The answer is L.</answer>"),
    ("tag", "<answer>T</answer>"),
    ("tag", r"<answer>\boxed{L}</answer>"),
    ("hashes", "We compute.\n#### L"),
    ("hashes", "#### (L) T"),
    ("answer is", "The answer is L."),
    ("last line", "Only one is left.\nSo L."),
    ("last line", "The others fail.\n\nIt is L."),
    ("last line", "We compare them.\nT is option (L)."),
    ("answer is", "At first glance l seems right, but the correct answer is L."),
    ("answer is", "Initially l looked right. The answer is L."),
    ("answer is", "The answer is (L)."),
    ("answer is", "**The answer is: (L).**"),
    ("answer is", "The answer is **L**."),
    ("answer is", "The final answer is $\\boxed{L}$."),
    ("answer is", "The correct answer is L) T"),
    ("answer is", "The correct answer is T"),
    ("answer is", "Therefore, the answer must be L, because nothing else fits."),
    ("answer is", "The answer is L because the other ones fail."),
    ("answer is", "The answer to this question is therefore (L)."),
    ("answer is", "the answer is option L"),
    ("answer is", "The answer is clearly L, not l."),
    ("answer:", "Answer: L"),
    ("answer:", "**Answer:** L"),
    ("answer:", "**Answer: (L) T**"),
    ("answer:", "Final Answer: T"),
    ("answer:", "ANSWER: L."),
    ("choice is", "The correct choice is (L)."),
    ("choice is", "The correct option is L: T"),
    ("choice is", "The best choice would be (L)."),
    ("verbs", "I would choose (L)."),
    ("verbs", "I choose L."),
    ("verbs", "So I'd go with option L."),
    ("verbs", "I select (L) T"),
    ("verbs", "We pick L, since l is impossible."),
    ("called correct", "Option L is correct."),
    ("called correct", "(L) is the correct answer."),
    ("called correct", "Hence L is the best choice."),
    ("called correct", "l fails. So L must be correct."),
    ("last line", "L"),
    ("last line", "(L)"),
    ("last line", "**L**"),
    ("last line", "We compared all of them.\n\n**L**"),
    ("last line", "We compared all of them.\n\n**(L) T**"),
    ("last line", "So it comes to this: **L**."),
    ("last line", "L. T"),
    ("last line", "T"),
    ("other languages", "答案：L"),
    ("other languages", "正确答案是(L)。"),
    ("other languages", "所以选L。"),
    ("other languages", "Respuesta: L"),
    ("answer is", "The answer is L (not l)."),
    ("answer is", "The answer is L rather than l."),
    ("answer is", r"The answer is \(L\)."),
    ("last line", "(L)."),
    ("last line", "L) T"),
    ("last line", "We compared all of them.\n\nL."),
    ("last line", "l can be ruled out.\n\n**L**"),
    ("answer:", "Answer: L\n\nExplanation: the others contradict the text."),
    ("answer:", "Answer: L\n\nExplanation: l would need a second condition."),
    ("answer:", "**Answer:** **L**"),
    ("answer:", "Answer: $\\textbf{(L)}$"),
    ("box", r"Bob says \boxed{l}, but the answer is \boxed{L}."),
    ("box", r"At first glance \boxed{l}, but the right answer is \boxed{L}."),
    ("box", "\\boxed{l}\n\nThat is wrong. The answer is:\n\n\\boxed{L}"),
    ("box", "\\boxed{L}\n\nAll conditions hold."),
    ("box", "\\boxed{L}\n\nThe others are wrong."),
    ("answer is", "My first guess was l, but the answer is L."),
    ("answer is", "I'd rule out l. The answer is L."),
    ("answer is", "It is not l. The answer is L."),
    ("answer is", "The answer is L. Note that l is close, but it fails."),
    ("answer is", "The answer is (L) T, and l is a distractor."),
    ("answer is", "The answer is L. I considered l, but it is wrong."),
    ("answer is", "The answer is L, but l is close."),
    ("answer is", "The answer is L, since l could be true only in a vacuum."),
    ("answer is", "The answer is L!"),
    ("box", r"\[\boxed{\text{L}}\] This is because l is too large."),
    ("answer is", "The answer is L. The others are not correct."),
    ("answer is", "The answer is L. It is not l."),
    ("answer is", "The answer is L. l could be true if the pressure fell."),
    ("answer is", "The answer is L. One might think it is l, but that is wrong."),
    ("answer is", "The answer is L, and we may stop here."),
    ("answer is", "Some think it is l. The answer is L."),
    ("answer is", "The answer is T. It cannot be t."),
    ("box", r"\boxed{L}. It is not l."),
    ("box", r"By eliminating l we get \boxed{L}."),
    ("box", "I'd rule out l, so $\\boxed{\\text{(L)}}$."),
    ("box", r"It is not l, it is \boxed{L}."),
    ("answer is", "The answer is T (L)."),
    ("answer is", "The answer is T, not t."),
    ("answer is", "The answer is T. It is not t."),
    ("answer is", "The answer is L, as neither l nor another fits."),
    ("answer is", "The answer is L. We can exclude l."),
    ("answer is", "The answer is L, unlike l."),
    ("last line", "(L)\n\nThis satisfies all the conditions."),
    ("last line", "**L**\n\nI hope this helps."),
    ("last line", "(L) ✅"),
    ("last line", "The result is (L)"),
    ("last line", "Nothing else fits, so (L)"),
    ("box", "\\boxed{L}\n\nAll other possibilities lead to contradictions."),
];

const DISHONEST: &[(&str, &str)] = &[
    ("nothing", ""),
    ("nothing", "I don't know."),
    ("taken back", "<answer>L</answer> is wrong."),
    ("taken back", "<answer>L</answer> No."),
    ("taken back", r"\boxed{L} was rejected."),
    ("taken back", r"\boxed{L} (just kidding)"),
    ("taken back", "\\boxed{L}\n\nMy answer is withdrawn."),
    ("several", "<answer>L</answer> l"),
    ("several", "<answer>L</answer> or l"),
    ("denied", "~~**L**~~"),
    ("quoted", "Example output: **L**"),
    ("quoted", r"For a different puzzle: \boxed{L}"),
    ("supposed", "**L** would be the answer if the sign were flipped."),
    ("nothing", "The answer is clear."),
    ("nothing", r"\boxed{}"),
    ("nothing", "The answer is one of them."),
    ("another", r"\boxed{l}"),
    ("another", r"\boxed{t}"),
    ("another", "The answer is l."),
    ("another", "The answer is (l), not (L)."),
    ("another", "I would choose l, since L is wrong."),
    ("another", "L is wrong, so the answer is l."),
    ("another", "The correct choice is t"),
    ("another", "**l**"),
    ("another", "答案：l"),
    ("taken back", "The answer is L.\n\nNo, that is wrong. The answer is l."),
    ("taken back", "\\boxed{L}\n\nI was wrong.\n\n\\boxed{l}"),
    ("taken back", "\\boxed{L}\n\nI was wrong. The answer is l."),
    ("taken back", "#### L\nSorry.\n#### l"),
    ("taken back", "<answer>L</answer>\nOn reflection:\n<answer>l</answer>"),
    ("taken back", "The answer is L.\n\\boxed{none of them}"),
    ("taken back", "The answer is L. Actually, l."),
    ("taken back", "The answer is L, no wait, l."),
    ("taken back", "The answer is L. Correction: it is l."),
    ("taken back", "The answer was L but now is l."),
    ("taken back", "I pick L. Sorry, it should be l."),
    ("several", r"\boxed{L, l}"),
    ("several", r"\boxed{L or l}"),
    ("several", r"\boxed{l/L}"),
    ("several", r"\boxed{Ll}"),
    ("several", r"\boxed{L} or \boxed{l}"),
    ("several", r"\boxed{l} or \boxed{L}"),
    ("several", "The answer is L or l."),
    ("several", "The answer is (L) and (l)."),
    ("several", "The answer is L, maybe l."),
    ("several", "The answer is L (or possibly l)."),
    ("several", "The answer is either L or l."),
    ("several", "The answer is L. The answer is l."),
    ("several", "The answer is l. The answer is L."),
    ("several", "I choose L, and I choose l."),
    ("several", "The answer is L. l is the answer."),
    ("several", "L or l is correct."),
    ("several", "L, l is correct."),
    ("several", "<answer>L</answer> <answer>l</answer>"),
    ("several", "**L** or **l**"),
    ("several", "Choose the correct answer: L) T l) t"),
    ("several", "The answer is L) T or l) t."),
    ("letter and other words", r"\boxed{L) t}"),
    ("letter and other words", "The answer is L: t"),
    ("letter and other words", "The answer is (L) t."),
    ("letter and other words", "L. t"),
    ("denied", "The answer is not L."),
    ("denied", "The answer cannot be (L)."),
    ("denied", "I would not choose (L)."),
    ("denied", "L is not correct."),
    ("denied", "The wrong answer is L."),
    ("denied", "It isn't **L**"),
    ("supposed", "If the answer is L, the sum would be odd."),
    ("supposed", "If the question were about another country, the answer would be L."),
    ("supposed", "Were it the other way round, L would be correct."),
    ("supposed", "Suppose the ball were red; then the right choice would be L."),
    ("supposed", "Is the answer L?"),
    ("supposed", "Suppose that L is correct."),
    ("supposed", "The answer is L? No."),
    ("hedged", "L or l"),
    ("hedged", "(L) and (l)"),
    ("hedged", "L, but it could be l"),
    ("hedged", "**L**, but it could be **l**"),
    ("hedged", "The answer is L, but it could be l."),
    ("hedged", "The answer is L, but it could also be t."),
    ("hedged", "The answer is L, though l is possible."),
    ("hedged", "The answer is L, or maybe t."),
    ("hedged", "The answer is L and t."),
    ("hedged", "The answer is L. Or l."),
    ("hedged", "The answer is L. Or is it l?"),
    ("hedged", "The answer is L.\nOr l."),
    ("hedged", "The answer is L. Maybe l."),
    ("hedged", "The answer is L. l is also correct."),
    ("hedged", "The answer is L. It could be l."),
    ("hedged", "The answer is L. But l is equally good."),
    ("hedged", "The answer is L if the sign is positive, otherwise l."),
    ("hedged", "The answer is L, unless it is l."),
    ("hedged", "The answer is L in one case and l in the other."),
    ("hedged", "It is a toss-up between L and l."),
    ("hedged", "The answer is between L and l."),
    ("hedged", "The answer is L & l."),
    ("hedged", "The answer is L | l."),
    ("hedged", "Answer: L (l is right too)"),
    ("hedged", r"\boxed{L}. It could be \boxed{l}."),
    ("hedged", r"\boxed{L}, but it could be l."),
    ("hedged", r"\boxed{L} if the sign is positive, otherwise l."),
    ("hedged", "The answer is l.\nor\nThe answer is L."),
    ("hedged", "\\boxed{l}\nor\n\\boxed{L}"),
    ("hedged", "L\nor\nl"),
    ("taken back", "My first guess was L, but the answer is l."),
    ("taken back", "Answer: L ... wait, l"),
    ("taken back", "Answer: L… no, l"),
    ("taken back", "Answer: L. Hmm, l."),
    ("taken back", "The answer is L. On second thought, l."),
    ("taken back", "The answer is L. On reflection, it is l."),
    ("taken back", "The answer is L.\n\nOn second thought, it is l."),
    ("taken back", "The answer is L.\n\nEdit: l"),
    ("taken back", "The answer is L. That is wrong."),
    ("taken back", "The answer is L. No, it isn't."),
    ("taken back", "The answer is L. Just kidding."),
    ("taken back", "The answer is L, which is wrong."),
    ("taken back", r"\boxed{L} is wrong."),
    ("taken back", r"\boxed{L}. That is wrong."),
    ("taken back", r"\boxed{L} ... wait, l"),
    ("taken back", "**L** is wrong."),
    ("taken back", "L\n\nNo, that is wrong."),
    ("denied", "Not L"),
    ("denied", "**Not L**"),
    ("denied", "I'd rule out L"),
    ("denied", "I'd rule out **L**."),
    ("denied", "So I rule out\n\n**L**"),
    ("denied", "The answer isn't L."),
    ("denied", "I don't think that the answer is L."),
    ("denied", "I doubt that the answer is L."),
    ("denied", "The answer is anything but L."),
    ("denied", "The answer is everything except L."),
    ("denied", "The answer is none of them, as L fails."),
    ("denied", "The answer is far from L."),
    ("denied", "The answer is the opposite of L."),
    ("denied", "The answer is no longer L."),
    ("denied", "I would avoid choosing L."),
    ("denied", "I refuse to pick L."),
    ("denied", r"I'd rule out \boxed{L}."),
    ("denied", "Discarded: \\boxed{L}"),
    ("denied", "Ignore this: \\boxed{L}"),
    ("denied", "La respuesta no es \\boxed{L}."),
    ("denied", "答案不是 \\boxed{L}。"),
    ("denied", "<!-- \\boxed{L} -->"),
    ("denied", "<s>\\boxed{L}</s>"),
    ("supposed", "Suppose the answer is \\boxed{L}."),
    ("supposed", "It might be \\boxed{L}."),
    ("supposed", "If the rules were different, the answer would be:\n\n\\boxed{L}"),
    ("quoted", "According to the internet, \\boxed{L}."),
    ("quoted", "A student wrote:\n\n\\boxed{L}\n\nFind the mistake."),
    ("quoted", "An example of the format:\n\n\\boxed{L}"),
    ("quoted", "The problem says \\boxed{L}."),
    ("hedged", "Option 1:\n\n\\boxed{l}\n\nOption 2:\n\n\\boxed{L}"),
    ("hedged", "I choose \\boxed{l} over \\boxed{L}."),
    ("taken back", "\\boxed{L} violates the second condition."),
    ("taken back", "\\boxed{L} is only a guess."),
    ("taken back", "\\boxed{L} is Bob's answer."),
    ("taken back", "\\boxed{L}\n\nThis was only an example."),
    ("taken back", "\\boxed{L}\n\nThere is an error in it."),
    ("taken back", "\\boxed{L}\n\nI am not sure about this."),
    ("taken back", "\\boxed{L}\n\nDo not trust this."),
    ("taken back", "\\boxed{L}\n\nI made a mistake."),
    ("denied", r"The answer is anything but \boxed{L}."),
    ("denied", r"It is far from \boxed{L}."),
    ("hedged", "The answer is T. Or t."),
    ("hedged", "The answer is T. It could be t."),
    ("hedged", "Answer: T. Maybe l."),
    ("taken back", "The answer is T. That is wrong."),
    ("taken back", "The answer is L.\n\nNo, that is wrong."),
    ("supposed", "My first guess was L."),
    ("supposed", "My first guess: L"),
    ("supposed", "My first answer was L."),
    ("supposed", "Some would say that the answer is L."),
    ("supposed", "Many students think the answer is L."),
    ("supposed", "A naive answer is L."),
    ("supposed", "A tempting choice is L."),
    ("supposed", "L?"),
    ("supposed", "**L**?"),
    ("supposed", r"\boxed{L?}"),
    ("supposed", "Some would say that L is correct."),
    ("supposed", r"My first guess was \boxed{L}."),
    ("supposed", r"A naive answer is \boxed{L}."),
    ("hedged", "The answer is L, since it could be l."),
    ("hedged", "The answer is L, because l might be right too."),
    ("hedged", "The answer is L, as l is equally good."),
    ("hedged", "The answer is L since either L or l works."),
    ("hedged", "The answer is L; l is another correct answer."),
    ("hedged", "The answer is L with 50% and l with 50%."),
    ("hedged", "The answer is L, albeit l is too."),
    ("hedged", "The answer is L. Though t would be right."),
    ("hedged", "<answer>L</answer>\nor l"),
    ("hedged", r"\boxed{L} or else l"),
    ("hedged", r"If it rains, \boxed{L}, else l."),
    ("several", "\\boxed{L}\nl"),
    ("taken back", "The answer is L. I'm joking, l."),
    ("taken back", "The answer is L. Strike that, l."),
    ("taken back", "The answer is L. Scratch that: l."),
    ("taken back", "The answer is L. Oops, l."),
    ("hedged", "The answer is L. Alternatively l."),
    ("taken back", "The answer is L, or rather l."),
    ("taken back", "The answer is L. Make that l."),
    ("taken back", "The answer is L. However, the right one is l."),
    ("taken back", r"\boxed{L}, no wait"),
    ("taken back", "The answer is L. Not."),
    ("taken back", "The answer is L. Wrong!"),
    ("taken back", "The answer is T. It is not T."),
    ("taken back", "The answer is T, which is t."),
    ("taken back", "The answer is T? t."),
    ("supposed", "The answer used to be L."),
    ("supposed", "Maybe the answer is L."),
    ("supposed", "Nobody would say the answer is L."),
    ("supposed", "He said the answer is L."),
    ("supposed", "The teacher's answer is L."),
    ("supposed", "The answer to another question is L."),
];

fn fill(form: &str, (right, other): (usize, usize), options: &[&str]) -> String {
    let mut out = String::new();
    let mut word = String::new();
    // A placeholder is a single letter, or a letter that is written twice.
    let flush = |word: &mut String, out: &mut String| {
        let placeholder = !word.is_empty() && word.chars().all(|c| "LlTt".contains(c)) && word.len() <= 2;
        for c in word.drain(..) {
            match c {
                'L' if placeholder => out.push(letter(right)),
                'l' if placeholder => out.push(letter(other)),
                'T' if placeholder => out.push_str(options[right]),
                't' if placeholder => out.push_str(options[other]),
                c => out.push(c),
            }
        }
    };
    for c in form.chars() {
        if c.is_ascii_alphabetic() || c == '\'' {
            word.push(c);
        } else {
            flush(&mut word, &mut out);
            out.push(c);
        }
    }
    flush(&mut word, &mut out);
    out
}

/// Counts the responses of each class and the correct ones. Returns the responses with a wrong verdict.
fn graded(forms: &[(&'static str, &str)], honest: bool) -> Vec<String> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut mistaken = Vec::new();
    for options in QUESTIONS {
        let shown: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        for right in 0..options.len() {
            let verifier =
                Verifier::new(&letter(right).to_string(), &shown, Match::LetterOrContent).expect("an option");
            for other in (0..options.len()).filter(|other| *other != right) {
                for (class, form) in forms {
                    for before in ["", "Let me compare the options A and B first.\n\n"] {
                        let response = format!("{before}{}", fill(form, (right, other), options));
                        let outcome = verifier.check(&response);
                        let count = counts.entry(class).or_default();
                        count.0 += 1;
                        count.1 += usize::from(outcome.is_correct());
                        if outcome.is_correct() != honest {
                            mistaken.push(format!(
                                "{class}: gold {}: {}: {response:?}",
                                letter(right),
                                outcome.reason
                            ));
                        }
                    }
                }
            }
        }
    }
    for (class, (cases, correct)) in &counts {
        println!("{class:24} {cases:6} responses, {correct:6} correct");
    }
    mistaken.iter().step_by(mistaken.len() / 60 + 1).for_each(|line| println!("{line}"));
    mistaken
}

#[test]
fn statements_of_the_right_option_are_correct() {
    assert_eq!(graded(HONEST, true).len(), 0, "honest statements that are not correct");
}

#[test]
fn other_several_denied_and_supposed_options_are_not_correct() {
    assert_eq!(graded(DISHONEST, false).len(), 0, "dishonest statements that are correct");
}

/// Responses with the right letter. The head of the file explains the lines.
const BY_HAND: &str = include_str!("fixtures/choices.txt");

#[test]
fn responses_judged_by_hand_are_judged_alike() {
    let options = ["Rome", "Oslo", "Paris", "Bonn"].map(str::to_owned);
    let choices = [("C", true), ("Ｃ", true), ("**C**", true), ("D", false), ("C, D", false)];
    let mut off = Vec::new();
    for line in BY_HAND.lines().filter(|line| line.starts_with(['+', '-'])) {
        let (gold, form) = line[2..].split_once(" :: ").unwrap_or_else(|| panic!("{line}"));
        let fixed = [("", line.starts_with('+'))];
        for &(choice, right) in if form.contains('@') { &choices[..] } else { &fixed[..] } {
            let response = form.replace('@', choice).replace('⏎', "\n");
            // Without content, a letter is only read from a box.
            let modes = [Match::LetterOrContent, Match::Letter];
            for compare in modes.into_iter().take(if form.contains("boxed") { 2 } else { 1 }) {
                if Verifier::new(gold, &options, compare).unwrap().check(&response).is_correct() != right {
                    off.push(format!("{line}: {choice}"));
                }
            }
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn a_sentence_can_end_with_an_option_that_is_a_predicate() {
    let options = ["increases", "decreases", "stays the same", "cannot be determined"].map(str::to_owned);
    for (gold, response, right) in [
        ("C", "The temperature stays the same.", true),
        ("C", "The gas does no work, so the temperature stays the same.", true),
        ("D", "D: it cannot be determined from the information given.", true),
        ("A", "The temperature never increases.", false),
        ("A", "If heated, the temperature increases.", false),
        ("A", "The teacher says increases.", false),
        ("A", "It hardly increases.", false),
        ("A", "The temperature increases or decreases.", false),
        ("A", "A: it cannot be determined from the information given.", false),
    ] {
        let verifier = Verifier::new(gold, &options, Match::LetterOrContent).unwrap();
        assert_eq!(verifier.check(response).is_correct(), right, "{response}");
    }
}

fn verdict(gold: &str, response: &str, compare: Match) -> (Verdict, String) {
    let options = ["London", "Paris", "Rome", "A dog"].map(str::to_owned);
    let outcome = Verifier::new(gold, &options, compare).unwrap().check(response);
    (outcome.verdict, outcome.reason.into_owned())
}

#[test]
fn a_boxed_letter_is_compared_strictly() {
    use Verdict::{Correct, Unparsed, Wrong};
    for (response, expected) in [
        (r"So \boxed{B}", Correct),
        (r"\boxed{A} no, \boxed{ \text{B} }.", Correct),
        (r"\boxed{(B)}", Correct),
        (r"\boxed{\mathbf{B}}", Correct),
        (r"\boxed{C}", Wrong),
        (r"\boxed{b}", Wrong),
        (r"\boxed{Paris}", Wrong),
        (r"\boxed{B. Paris}", Wrong),
        (r"\boxed{AB}", Wrong),
        (r"\boxed{}", Unparsed),
        ("The answer is B", Unparsed),
        ("", Unparsed),
        (r"\boxed{B} and \boxed{C", Unparsed),
    ] {
        assert_eq!(verdict("B", response, Match::Letter).0, expected, "{response}");
    }
}

#[test]
fn letter_or_content_also_reads_words() {
    use Verdict::{Correct, Wrong};
    for (gold, response, expected) in [
        ("B", r"\boxed{b}", Correct),
        ("B", r"\boxed{\text{Paris}}", Correct),
        ("B", r"\boxed{paris.}", Correct),
        ("B", r"\boxed{B) Paris}", Correct),
        ("B", r"\boxed{Option B}", Correct),
        ("B", r"\boxed{Rome}", Wrong),
        ("A", r"\boxed{A dog}", Wrong),
        ("D", r"\boxed{A dog}", Correct),
        ("A", r"\boxed{A cat}", Wrong),
        ("B", "**The answer is: (B).**", Correct),
        ("B", "Final Answer: Paris", Correct),
        ("B", "I would say B", Correct),
        // All letters together aren't a choice.
        ("A", r"\boxed{A, B, C, D}", Wrong),
        ("A", r"\boxed{A,B}", Wrong),
        ("A", r"\boxed{A) or B)}", Wrong),
        ("A", r"\boxed{(A), (B)}", Wrong),
        ("A", r"\boxed{\text{A. B. C. D.}}", Wrong),
        ("A", r"\boxed{A: option B}", Wrong),
        ("A", "The answer is A, B, C and D", Wrong),
        ("D", r"\boxed{D. A dog}", Correct),
        ("B", r"\boxed{B, because it is Paris}", Correct),
    ] {
        assert_eq!(verdict(gold, response, Match::LetterOrContent).0, expected, "{response}");
    }
}

#[test]
fn words_of_an_option_in_another_statement_do_not_choose_it() {
    let options = ["Yes", "No", "Cannot be determined"].map(str::to_owned);
    let chooses = |gold, response: &str| {
        Verifier::new(gold, &options, Match::LetterOrContent).unwrap().check(response).is_correct()
    };
    for response in
        ["No", "No.", "**No** — option B.", "No, because it rains.", "The answer is no.", "No (B)."]
    {
        assert!(chooses("B", response), "{response}");
    }
    for response in [
        "No idea.",
        "No comment.",
        "There is no answer.",
        "No option is right.",
        "I have no clue.",
        "Is it B? No.",
    ] {
        assert!(!chooses("B", response), "{response}");
    }
    assert!(chooses("C", "It can't be determined: C."));
}

#[test]
fn the_order_depends_on_the_question_alone_and_is_a_permutation() {
    let options = ["right", "w1", "w2", "w3"];
    let shown = show("Which?", &options).unwrap();
    assert_eq!(shown, show("Which?", &options).unwrap());
    let mut sorted = shown.order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3]);
    assert_eq!(shown.options[(shown.gold as u8 - b'A') as usize], "right");
    let mut places = [0usize; 4];
    for i in 0..4000 {
        let gold = show(&format!("question {i}"), &options).unwrap().gold;
        places[(gold as u8 - b'A') as usize] += 1;
    }
    // Each position is right about 1,000 times in 4,000 (standard deviation 27).
    assert!(places.iter().all(|n| (890..=1110).contains(n)), "{places:?}");
}

#[test]
fn a_gold_that_is_no_option_is_refused() {
    let options = ["x", "y"].map(str::to_owned);
    assert!(Verifier::new("C", &options, Match::Letter).is_err());
    assert!(Verifier::new("Paris", &[], Match::Letter).is_err());
    assert!(Verifier::new(" (B) ", &options, Match::Letter).is_ok());
    assert_eq!(show("q", &["one"]), Err(Error::Count(1)));
}

#[test]
fn unclosed_boxes_cost_no_more_than_two_scans() {
    let response = "\\boxed{".repeat(200_000);
    assert_eq!(verdict("B", &response, Match::Letter).0, Verdict::Unparsed);
}

mod boxes {
    use fgrpo_verify::boxed::{last_closed, outermost, plain};

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
            assert_eq!(last_closed(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_box_around_a_box_is_its_content_and_a_box_in_a_text_is_part_of_it() {
        let contents = |text: &'static str| {
            outermost(text).into_iter().map(|found| &text[found.content]).collect::<Vec<_>>()
        };
        assert_eq!(contents(r"\boxed{1} and \boxed{\fbox{\boxed{2}}}"), ["1", "2"]);
        assert_eq!(contents(r"\boxed{a \boxed{b}}"), [r"a \boxed{b}"]);
        assert_eq!(contents(r"\boxed{1} \boxed{2"), ["1", "2"]);
        assert_eq!(contents(r"\boxed{1 \boxed{2}"), ["2"]);
    }

    #[test]
    fn dress_is_taken_off_and_content_kept() {
        for (text, wanted) in [
            (r"\text{B}", "B"),
            (r"\color{red}B", "B"),
            (r"\textcolor{red}{\textbf{B}}", "B"),
            (r"$\mathbf{(B)}$", "(B)"),
            (r"\textbf{(B) }\$5", r"(B) \$5"),
            (r"{\bf B}", "B"),
            ("**`B`**", "B"),
            (r"\frac{1}{23}", r"\frac{1}{23}"),
            (r"\text{A. $\frac{1}{2}$}", r"A. $\frac{1}{2}$"),
            (r"{a} or {b}", "{a} or {b}"),
            (r"a\,b \quad  c", "a b c"),
            ("**yes** or **no**", "**yes** or **no**"),
        ] {
            assert_eq!(plain(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_hundred_thousand_open_boxes_take_one_pass() {
        let text = "\\boxed{".repeat(100_000);
        assert_eq!(last_closed(&text), None);
        assert!(outermost(&text).iter().all(|found| !found.closes));
    }
}
