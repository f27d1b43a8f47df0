//! Decides whether the sentence around a value states the value as the answer, for every kind of problem.
//!
//! [`lead`] reads the sign in front of the value. Only known forms state an answer. The value is alone, or follows an equals
//! sign, a colon or a stating word (`is`, `gives`, `a total of`), and precedes a counted noun, a reason or the end of the
//! sentence ([`is_ended`]). If anything else is directly beside the value, the text doesn't state an answer.
//!
//! [`is_denied_before`] is true if the text denies the value, supposes it or attributes it to somebody else, in its sentence or
//! in the line above.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::languages;
use crate::math::units;
use crate::math::words::{SCALES, number_in_words};
use crate::python_text::regex;

/// Roles of words in a statement, as a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Roles(u16);

impl Roles {
    /// Can precede a value directly: `is 8`, `we get 8`.
    const STATES: Self = Self(1);
    /// Is neutral, so that the words before it decide.
    const FILLS: Self = Self(1 << 1);
    /// Denies, supposes or disowns what is stated after it.
    const DENIES: Self = Self(1 << 2);
    /// Describes the response's own answer, as in `my final answer`.
    const OWNS: Self = Self(1 << 3);
    /// Can precede a comma and the value: `Hence, 8`.
    const LEADS: Self = Self(1 << 4);
    /// Begins a clause after a value: `8, since ..`, `8 for all ..`.
    const GOES_ON: Self = Self(1 << 5);
    /// Names the answer after a value: `8 is the answer`.
    const PRAISES: Self = Self(1 << 6);
    /// Reports an opinion, which is the response's own if `I` or `we` precedes the word.
    const THINKS: Self = Self(1 << 7);
    /// Lets a following `of` or `to` precede a value directly: `a total of 8`, `sums to 8`.
    const JOINS: Self = Self(1 << 8);
    /// Changes the value before it, or shows that this value isn't an answer: `8 etc`.
    const CHANGES: Self = Self(1 << 9);
    /// Chooses a value if `I` or `we` precedes the word: `I'd answer 8`, `we go with 8`.
    const CHOOSES: Self = Self(1 << 10);
    /// Can occur in a label before a colon: `Here's the completed grid: ..`.
    const LABELS: Self = Self(1 << 11);

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn of(word: &str) -> Self {
        static ROLES: LazyLock<HashMap<&str, Roles>> = LazyLock::new(|| {
            let mut roles = HashMap::new();
            for (words, role) in WORDS {
                for word in words.split_whitespace() {
                    let known: &mut Roles = roles.entry(word).or_default();
                    *known = known.with(*role);
                }
            }
            roles
        });
        let word = word.to_lowercase().replace('’', "'");
        match ROLES.get(&*word).or_else(|| ROLES.get(uncontracted(&word))) {
            Some(roles) => *roles,
            None if languages::means_answer(&word) => ROLES["answer"],
            None if word.ends_with("n't") => Self::DENIES,
            None if word.chars().count() == 1 => Self::FILLS,
            None => Self::default(),
        }
    }
}

/// Returns the first word of a contraction, as in `I'd`, and other words unchanged.
fn uncontracted(word: &str) -> &str {
    let ends = ["'d", "'ll", "'m", "'re", "'s", "'ve"];
    ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word)
}

/// Words with their roles. A word can be in several rows.
const WORDS: &[(&str, Roles)] = &[
    (
        "is are was were be been being it's that's here's there's thats definitely surely certainly clearly indeed obviously equals equal equaling equalling gives give giving gave yields yield \
         yielding get gets getting got gotten have has had having obtain obtains obtaining obtained find finds found finding \
         makes make making made receives received reaches reached becomes become became contains contain produces shows see reach arrive \
         worth exactly only just simply precisely approximately about roughly there here namely that which then now so thus hence \
         therefore conclude concludes consequently finally answer answers ans result solution total totals total's value \
         es ist est är er 答案是 答案为 所以答案是 因此答案是 故答案为 所以 因此",
        Roles::STATES.with(Roles::FILLS),
    ),
    (
        "needs need needed wants want takes take took costs cost leaves leave left remain remains pays pay paid earns earn \
         earned spends spend spent saves saved sells sell sold buys buy bought eats eat ate uses use used weighs weigh \
         weighed measures holds hold held owes owe owed keeps keep kept lost lose loses won wins win scored scores gained gains \
         happens happen drove drives walked walks ran runs read reads wrote writes collected collects gives gave sum product \
         difference quotient average mean median probability area length width height volume perimeter radius distance speed \
         time age price profit count amount maximum minimum sum's charges charged worked works baked bakes picked picks planted \
         plants traveled travels lives lasts grew grows drinks drank produced adds added requires required",
        Roles::STATES,
    ),
    (
        "the a an final correct right my our your this that these those it he she they we i you us me let and of to also indeed clearly \
         must should will can does do did would one its his her their new exact numerical sum sums in true case going up out am definitely surely certainly",
        Roles::FILLS,
    ),
    (
        "not no never nobody nothing none forget ignore disregard avoid skip discard cannot neither nor hardly if unless suppose supposes supposing supposed assume assumes \
         assuming assumed whether wrong incorrect false mistake mistaken fallacy trap tempted previous old former earlier naive \
         tempting guess guessed could might may or either except discard discards reject rejects exclude excludes eliminate \
         rule try doubt doubts deny denies pretend imagine fails fail refuses refuse stops far twice thrice half double until nicht pas less more most least than",
        Roles::DENIES,
    ),
    (
        "the final correct right my our this that so thus hence therefore is and of an a new exact numerical required requested desired \
         simplified overall only your total actual answer clearly numeric complete maximum minimum i we gives concise boxed \
         short full last get obtain then as following resulting means mean think believe conclude now know",
        Roles::OWNS,
    ),
    (
        "thus hence therefore so then finally consequently course indeed total all conclusion summary answer result clearly short \
         altogether overall required expected conclude now no is namely say ultimately accordingly words calculation",
        Roles::LEADS,
    ),
    (
        "that's since because as which so where when by with for on at in per each that who from during after before among while hence regardless irrespective rounded computed calculated found \
         thus therefore see total altogether the this it its we these they given giving meaning using there here let you \
         note being namely respectively such only now also achieved attained obtained",
        Roles::GOES_ON,
    ),
    (
        "answer final correct right required desired solution result value only total number minimum maximum smallest largest \
         unique greatest least sum",
        Roles::PRAISES,
    ),
    (
        "think thinks thought say says said believe believes claim claims guesses",
        Roles::THINKS.with(Roles::FILLS),
    ),
    (
        "total value probability answer length area volume distance speed cost price maximum minimum average mean median radius \
         height width result amount count profit score age weight perimeter equal equals sums sum simplifies simplify evaluates \
         comes amounts reduces leads corresponds rounds back goes number quotient loss gain discount difference increase decrease temperature size rate ratio \
         remainder given increases increased decreases decreased differ differs arrive arrives stands expressed written simplified \
         results resulting",
        Roles::JOINS,
    ),
    (
        "if fails fail can does do did should would will but vs versus score scores wait sorry actually so choose etc upwards breaks \
         violates contradicts contains has misses overcounts undercounts ignores",
        Roles::CHANGES,
    ),
    ("e x", Roles::CHANGES.with(Roles::FILLS)),
    (
        "answer say go going pick choose chose select vote submit report settle settled opt stick end ended ends lock propose suggest land \
         landed take call put write enter give",
        Roles::CHOOSES,
    ),
    (
        "answer answers ans final result solution question problem task puzzle exercise part option choice letter value form format \
         required requested correct right below above thing process elimination state stating verdict numbers crunching now know seen up combining as in by at for on to all everything nothing together putting put combining adding box boxed \
         tags asked with without further ado more left remaining needed sold spent earned long story short bottom line tl dr there here go have \
         goes easy simple simpler simplified step last no doubt about only possibility possible elimination process done overall summary \
         conclusion drum roll please voilà voila yes yep okay ok alright sure well hmm great good grid matrix board table list lists \
         sequence path order arrangement expression equation formula words word letters coordinates cells positions mines tents stars \
         numbers number brackets completed filled solved sorted output response completion missing mapping message text name names \
         steps hard not be this one is it's that's from considered given said choices options checking looking and explanation working therefore amount count money",
        Roles::LABELS,
    ),
    ("leaving", Roles::STATES),
    ("implies shows why", Roles::OWNS),
    ("ergo told yes yep okay ok alright sure well hmm voilà voila et done definitely surely", Roles::LEADS),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Sign,
    Command,
}

/// A piece of the text around a value. Delimiters, fonts, sizes, spaces and Markdown's marks are left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    kind: Kind,
    text: &'a str,
    /// Whether the piece is part of a formula, but not of text within a formula.
    formula: bool,
    /// Whether white space or a delimiter precedes the piece.
    spaced: bool,
}

impl Piece<'_> {
    fn is(&self, sign: &str) -> bool {
        self.kind != Kind::Word && self.text == sign
    }

    fn roles(&self) -> Roles {
        if self.kind == Kind::Word { Roles::of(self.text) } else { Roles::default() }
    }

    fn is_word(&self, role: Roles) -> bool {
        self.roles().has(role)
    }
}

/// Pieces of a string, in order.
pub(crate) struct Pieces<'a> {
    all: Vec<Piece<'a>>,
    /// Whether the text read so far ends with white space or a delimiter.
    gap: bool,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), gap: false }
    }

    /// Adds the pieces of `text`. `formula` is whether the text begins inside a formula.
    pub(crate) fn read(mut self, text: &'a str, mut formula: bool) -> Self {
        const DRESS: &str = concat!(
            r"^(?:\\(?:[,;:! ]|(?:q?quad|displaystyle|textstyle|[lL]arge|LARGE|[hH]uge|left|right|bf|hline|blacksquare|square|",
            r"checkmark|qed|nonumber|notag|Box)\b|color\s*\{[^{}]*\}|(?:begin|end)\{[a-z]+\*?\}(?:\{[lcr|]*\})?|",
            r"(?:tag|label|hspace|vspace|phantom)\*?\s*\{[^{}]*\})|<[^<>]{1,40}>)"
        );
        const WRAPPER: &str = concat!(
            r"^\\(?:(text(?:bf|it|rm|sf|tt|normal|up)?|[mh]box)|math(?:bf|it|rm|sf|tt|normal)|boldsymbol|bm|bold|emph|underline|",
            r"ensuremath|boxed|fbox|(?:textcolor|colorbox)\{[^{}]*\})\s*\{"
        );
        const PIECE: &str = r"^(?:\\[A-Za-z]+|\\.|[0-9]+|\pL+(?:['’-]\pL+)*|!=|<=|>=|=+>|-+>|\.\.+|.)";
        // Open braces: whether each belongs to a formula and isn't only formatting, and whether the formula
        // continues after it.
        let mut open: Vec<(bool, bool)> = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let formula_here = formula;
            if c.is_whitespace()
                || c == '\u{fe0f}'
                || matches!(c, '*' | '_' | '`' | '"' | '“' | '”' | '#' | '&' | '~')
                    && self.is_dress(c, rest, formula)
            {
                self.gap |= c.is_whitespace() || formula;
                rest = &rest[c.len_utf8()..];
            } else if c == '$' || ["\\(", "\\)", "\\[", "\\]"].iter().any(|mark| rest.starts_with(mark)) {
                let length = if c == '$' { 1 + usize::from(rest.starts_with("$$")) } else { 2 };
                formula = if c == '$' { !formula } else { matches!(rest.as_bytes()[1], b'(' | b'[') };
                self.gap = true;
                rest = &rest[length..];
            } else if let Some(struck) = regex!(r"^<(?:s|del|strike)>").find(rest) {
                self.push(Kind::Sign, struck.as_str(), formula);
                rest = &rest[struck.end()..];
            } else if let Some(found) =
                Some(c).filter(|c| matches!(c, '\\' | '<')).and(regex!(DRESS).find(rest))
            {
                self.gap = true;
                rest = &rest[found.end()..];
            } else if let Some(found) = Some(c).filter(|c| *c == '\\').and(regex!(WRAPPER).captures(rest)) {
                open.push((false, formula));
                formula &= found.get(1).is_none();
                rest = &rest[found.get(0).map_or(0, |all| all.end())..];
            } else if c == '{'
                && self.all.last().is_none_or(|last| last.kind == Kind::Sign && !"^_}".contains(last.text))
            {
                open.push((false, formula));
                rest = &rest[1..];
            } else if c == '}' {
                let (part, outer) = open.pop().unwrap_or((false, formula_here));
                formula = outer;
                if part {
                    self.push(Kind::Sign, &rest[..1], formula);
                }
                rest = &rest[1..];
            } else {
                let Some(found) = regex!(PIECE).find(rest) else { break };
                let (piece, after) = rest.split_at(found.end());
                let kind = match c {
                    '\\' => Kind::Command,
                    _ if c.is_numeric() => Kind::Number,
                    _ if c.is_alphabetic() => Kind::Word,
                    _ => Kind::Sign,
                };
                if c == '{' {
                    open.push((true, formula));
                }
                if piece == "\\\\" {
                    // A separate row.
                    self.all.clear();
                } else {
                    self.push(kind, piece, formula);
                }
                rest = after;
            }
        }
        // An open brace makes what follows a part of a formula.
        if open.iter().any(|(part, _)| *part) {
            self.push(Kind::Sign, "{", true);
        }
        self
    }

    fn push(&mut self, kind: Kind, text: &'a str, formula: bool) {
        self.all.push(Piece { kind, text, formula, spaced: std::mem::take(&mut self.gap) });
    }

    /// Whether a mark is Markdown's or a space of LaTeX: emphasis touches what it emphasises on one side only.
    fn is_dress(&self, mark: char, rest: &str, formula: bool) -> bool {
        let after = rest.trim_start_matches(mark);
        match mark {
            '~' | '&' => formula,
            '*' | '_' if formula => rest.len() - after.len() > 1,
            '*' | '_' => {
                let opens = self.all.is_empty() || self.gap;
                let closes = !after.starts_with(|c: char| c.is_alphanumeric() || c == '\\');
                opens != closes || self.all.is_empty() || after.is_empty()
            }
            _ => true,
        }
    }
}

/// Whether a sentence is in another language than English.
fn is_foreign(words: &[Piece<'_>]) -> bool {
    let mut words = words.iter().filter(|piece| piece.kind == Kind::Word && !piece.formula);
    words.any(|piece| languages::is_foreign(&piece.text.to_lowercase()))
}

/// Maximum distance in bytes from a value at which its sentence or formula begins or ends.
pub(crate) const FAR: usize = 600;

/// Returns the start of the last [`FAR`] bytes of a string.
pub(crate) fn low_end(text: &str) -> usize {
    (text.len().saturating_sub(FAR)..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Returns the last sentence or line of a string.
pub(crate) fn sentence(text: &str) -> &str {
    let ends = regex!(r"(?i)(\b(?:e\.g|i\.e|cf|vs|resp|mrs?|dr|no|eq))?(?:[.!?]\s|\n)").captures_iter(text);
    let end = ends.filter(|end| end.get(1).is_none() || end[0].ends_with('\n')).last();
    &text[end.and_then(|end| end.get(0)).map_or(0, |end| end.end())..]
}

/// Returns the words that introduce a value: those before it in its sentence, or else the line above unless that line ends a
/// sentence.
fn introduction(before: &str) -> &str {
    let same_line = sentence(before);
    if same_line.contains(char::is_alphanumeric) {
        return same_line;
    }
    let above = before.trim_end_matches(|c: char| c.is_whitespace() || "*_`$\"“([{>\\".contains(c));
    // A list or a table introduces nothing.
    let closed = regex!(r"(?:</\w+>\s*|\n\s*(?:[-*•|]|\d+[.)])\s[^\n:]*\n\W*)$").is_match(before);
    if closed || above.ends_with(['.', '!', '?', '。']) { "" } else { sentence(above) }
}

/// Whether the text before a value denies the value, supposes it, or attributes it to somebody else.
pub(crate) fn is_denied_before(before: &str) -> bool {
    let before = &before[low_end(before)..];
    let bare = regex!(r"\s*```[a-z]*\s*$").find(before).map_or(before, |fence| &before[..fence.start()]);
    // `It is not:`, and on the next line `The answer is`.
    let announced = regex!(r"(?i)(^|[:：]|\n)\W*(?:(?:the|my|final) )*answer(?: is)?\W*$").captures(bare);
    let above = announced.and_then(|announced| announced.get(1)).map(|mark| &bare[..mark.end()]);
    // `No doubt about it: the answer is` isn't a denial.
    const IDIOM: &str = r"(?i)\b(?:no doubt|no (?:\w+ )?(?:option|choice|question|need)|nothing (?:more|else)|without (?:an? |any )?(?:doubt|question|further))\b";
    let above = above.filter(|above| !regex!(IDIOM).is_match(sentence(above)));
    let texts = [Some(bare), above];
    let above = bare.trim_end().trim_end_matches(['.', '!', ' ']);
    let same_line = sentence(bare).contains(char::is_alphanumeric);
    is_struck(before)
        || !same_line && is_deferral(&sentence(above).to_lowercase())
        || texts.into_iter().flatten().any(|text| {
            let pieces = Pieces::new().read(introduction(text), false);
            // All of the last clause of a line above introduces the value.
            let above = !same_line && pieces.all.last().is_some_and(|last| last.is(":"));
            let mut clauses = pieces.all.rsplit(|piece| matches!(piece.text, "," | ";" | "but" | "so"));
            let clause = clauses.next().unwrap_or_default();
            let denied = above && clause.iter().any(|piece| piece.is_word(Roles::DENIES));
            denied || denies(&pieces.all) || is_disowned(&pieces.all)
        })
}

/// Whether the text before a value strikes the value out or begins a comment.
pub(crate) fn is_struck(before: &str) -> bool {
    regex!(r"(?:<!--|<(?:s|del|strike)>|~~)[^\w<~\n]*(?:```[a-z]*\s*)?[^\w<~\n]*$")
        .is_match(&before[low_end(before)..])
}

/// Reads the pieces before a value in its sentence. Returns the sign or currency attached to the value (`"-"`, a currency
/// or `""`), or `None` if the value isn't stated as an answer.
pub(crate) fn lead(before: &Pieces<'_>, value: &str) -> Option<&'static str> {
    let depth = before.all.iter().filter(|piece| piece.formula).fold(0, |depth: i32, piece| {
        depth + i32::from(matches!(piece.text, "(" | "[" | "\\{"))
            - i32::from(matches!(piece.text, ")" | "]" | "\\}"))
    });
    if depth > 0 || is_disowned(&before.all) { None } else { sign(&before.all, before.gap, value) }
}

/// Words that make a value a trial or an accident, anywhere in its clause: `by mistake I wrote`, `for practice`,
/// `(random pick)`.
const TRIALS: &str = "practi[cs]e|practi[cs]ing|testing|jokes?|joking|jest|illustrations?|demo|demonstrations?|placeholders?|stopgaps?|fillers?|guess(?:es|ing|work)?|hunch|random(?:ly)?|luck|accident(?:ally)?|mistake|error|oversight|typo|drafts?|sketch|template|dummy|trial|examples?|hypothes[ie]s|conjecture|fiction|show|stage|dream";

/// Returns the part of a sentence behind its last contrast.
fn contrasted(said: &str) -> &str {
    regex!(r"(?i)^.*\b(?:but|however|yet)\b").find(said).map_or(said, |turn| said[turn.end()..].trim_start())
}

/// Whether the writer doesn't know the answer: `I don't know`, `without having checked`. A contrast behind it states an answer.
fn is_ignorant(said: &str) -> bool {
    const IGNORANT: &str = concat!(
        r"(?i)\b(?:i|we)(?:'m| am|'ve| have)?(?: \w+)? ?(?:don't|do not|can't|cannot|couldn't|could not|didn't|did not|haven't|have not|never|not)(?: \w+)? ",
        r"(?:know|knew|figure|tell|solve|solved|decide|remember|understand|understood|worked|checked|verified|tested|computed|sure|certain)\b|",
        r"\b(?:i|we) (?:(?:have|had) no|haven't (?:an?|any)|don't have (?:an?|any)) (?:idea|clue)\b|\b(?:not|never|without)(?: really| actually| fully)? (?:having )?(?:knowing|solving|solved|checking|checked|verifying|verified|computing|computed)\b"
    );
    regex!(IGNORANT).is_match(contrasted(said))
}

/// Words of a clause that attributes the rest of its sentence to somebody else.
const DISOWNED_SOURCES: &str = r"(?i)\b(?:wrote|reports|argues|insists|believes|heard|told|read|wikipedia|google|internet|textbook|book|website|chatgpt|forum)\b";

/// Joins the words of a sentence by spaces, with `#` in place of each formula.
fn phrase(pieces: &[Piece<'_>]) -> String {
    let mut phrase = String::new();
    for piece in pieces {
        let text = if piece.formula { "#" } else { piece.text };
        if text != "#" || !phrase.ends_with('#') {
            phrase.push_str(if phrase.is_empty() { "" } else { " " });
            phrase.push_str(text);
        }
    }
    phrase.replace('’', "'")
}

/// Whether the sentence before a value attributes it to somebody else, supposes it, or doesn't state the answer itself.
fn is_disowned(before: &[Piece<'_>]) -> bool {
    const DISOWNED: &str = concat!(
        r"(?i)\b(?:maybe|perhaps|probably|possibly|presumably|supposedly|allegedly|wish|wishes|bet|hope (?:that )?(?:the|it|this|my)|heard|told (?:me|us|that)|was told|",
        r"opinion|myth|an? lie|the lie|joke|rumou?r|please|pretend|attempts?|would like|want the|point of view|in the view of|at first|",
        r"yesterday|distractor|decoy|trap|red herring|(?:used|rumou?red|claimed|supposed|said|alleged|reported|believed|thought) to be)\b|",
        r"\b(?:impossible that|no (?:way|chance)|absurd (?:that|to)|typo|misprint|misread\w*|mistakenly|erroneously|wrongly)\b|",
        r"\b(?:another|(?:an?|the) (?:different|other|similar|easier|harder|parallel|related|analogous|simpler|companion|previous|earlier)) (?:problem|puzzle|question|exercise|task|exam|test|version)\b|",
        r"\b(?:parallel|alternate|fictional|imaginary) (?:world|universe|reality|version)s?\b|\bsake of argument\b|\bread (?:somewhere|that)\b|\b(?:might|may) as well\b|\bhas it that\b|\b(?:legend|consensus|folklore|gossip|horoscope|oracle)\b|",
        r"\b(?:flawed|fallacious|dubious|naive|careless|sloppy|unverified|tentative|provisional|preliminary)\b|",
        r"\b(?:intermediate|partial) (?:value|result)s?\b|\b(?:dummy|wrong|incorrect|false|empty|example|sample) (?:box|template|tag|answer|solution|output|response)\b|",
        r"\b(?:would|could|might|\w+'d) have (?:been|got|gotten|had|found|\w+ed)\b|\b(?:love|like|wish|want|was going|were going|about|almost|refuse) to\b|\bwant it\b|",
        r"\b(?:chances?|odds|likelihood)\b(?: \S+){0,3}? (?:of|it's|it is|that it is)$|\bat random ?[:,]?$|",
        r"^(?:an? |the )?(?:examples?|sample|dummy|empty|random|template|trial) \w+ ?:$|",
        r"^(?:as|for|in) (?:an? |the )?(?:test|theory)\b ?,|^(?:for (?:now|the moment|the time being|a start)|until|last (?:time|year|week|month)|someone|somebody|anybody|nobody)\b|",
        r"(?:\bnot|\bnever|n't) (?:\w+ ){1,2}(?:that )?(?:it's|it is|the answer is)$|\b(?:less likely|unlikely) to\b|\btoo (?:early|soon|hard|late) to\b|",
        r"\b(?:bogus|spurious|absurd|tempting)\b|\b(?:coin|dice|horoscope) (?:flip|toss|roll|gave|says?)\b|\bfirst (?:instinct|impression|thought)\b|\bonce (?:i|we|got|thought|believed)\b|",
        r"^if (?:i|we|you) (?:\w+ ){0,2}?(?:flip|skip|ignore|forget|drop|omit|double|negate|swap|reverse|change|misread|guess)\b|\bmade (?:(?:this|that|it) )?up\b|^no answer\b|\b(?:expect\w*|wants?|wanted|told|tells?|forced?|made) (?:me|us|you) to\b|",
        r"^let's (?:say|pretend)\b|^in (?:the|an?) (?:other|another|different|easier|simpler) (?:case|version)\b|\b(?:i|we) (?:used to|initially|first|originally|almost|nearly)\b|",
        r"^step (?:[0-9]+ )?(?:gives|yields)\b|\b(?:runner-up|counterexample|second[ -]best|worst|excluded|discarded|rejected|odd one out|bait)\b(?: \S+){0,2} is$|",
        r"\b(?:practi[cs]\w*|formatting|testing)\b[^,]*:$|\blatex (?:for|of|code)\b|",
        r"^before (?:\w+ing\b|\S+ , we\b|the (?:last|final) step\b)|^up to\b|^so far\b|\bbox (?:looks|is written)\b|",
        r"^without (?:the|this|that|an?) (?:\w+ )?(?:step|rule|condition|constraint|clue|sign|correction|term|factor|case|assumption)s?\b|",
        r"\b(?:for|towards?) (?:an? |the sake of )?(?:contradiction|argument)\b|^(?:the|my|our) first\b.*\bwas$|",
        // A label that names no answer, and a scale of all values.
        r"\b(?:examples?|drafts?|hypothes[ie]s|conjectures?|templates?|placeholders?|samples?|illustrations?|sketch|attempts?|tries|try|guess(?:es)?)(?: (?:output|answer|solution|response|[0-9]+))?(?: (?:is|would be|looks like))? ?:?$|^(?:(?:the|an?|this) )?(?:\w+ )?formats?(?: (?:is|would be))? ?:?$|",
        r"\bin (?:tens|dozens|(?:hundred|thousand|million|billion|trillion)s)\b|",
        r"\b(?:wrote|says|said|claims|claimed|thinks|believes|reports|argues|insists|i read)(?: that\b| ?[:,])|",
        r"\b(?:false|wrong|incorrect|naive|mistaken|tempting|previous|earlier) (?:assumption|premise|interpretation|reading|statement|result|approach|count|step|try|calculation|",
        r"solution|estimate|claim|version|formula|method|reading|argument|idea|thought|choice|option)s?\b|",
        r"\b(?:results?|solutions?|calculations?|claims?|work) (?:of|by|from) (?-i:\p{Lu}\p{Ll}+) (?:is|are|was|were|gives|:|equals)|",
        r"^(?:for|to) (?-i:\p{Lu}\p{Ll}+) ,.*answer|",
        // Another source, or a bound, a rounding or an estimate of the answer.
        r"^(?:the |my |an? )?(?:wikipedia|google|internet|calculator|textbook|book|website|chatgpt|computer|teacher|forum) (?:gives?|has|gets?|shows?|finds?)\b|",
        r"^(?:(?:so|and|thus|but) )?(?:it|this|that) (?:contains?|rounds?|includes?|exceeds?)\b|^(?:(?:so|thus|hence|therefore) ,? ?)?(?:(?:the|an?|its) )?(?:upper|lower) bound\b|",
        r"^(?:the |an? |my )?(?:\w+ )?estimate (?:is|gives|was)\b|^initially\b|",
        r"^(?:\w+ ,? ?)?(?:if|unless|were|should|had|assuming|suppose|provided)\b.*(?:\b(?:answer|would|were)\b|'d\b)|\b(?:without|ignoring)\b.*\bwould\b|",
        // The problem's own text, and an example of a form.
        r"\b(?:problem|question|prompt|puzzle|task) (?:says?|said|shows?|gives?|states?|reads?|mentions?|contains?)\b|\bteacher wrote\b|",
        r"\bexamples? (?:of the (?:form|format|output)|(?:in|from) the (?:problem|prompt|puzzle|question|task))\b|\b(?:e \. ?g|for example|for instance|such as)\b ?[.,:]?$|",
        // One of several candidates.
        r"\b(?:another|second|third|alternative|other) (?:possib\w+|candidates?|options?|solutions?|alternatives?)\b|\b(?:option|candidate|possibility|attempt|try|guess) [0-9]\b|",
        // A comparison, an exception, and a label that rejects.
        r"\b(?:far from|opposite of|instead of|rather than|other than|over|beats?)(?: \S+){0,1}$|",
        r"\b(?:rul(?:e|es|ed|ing) out|eliminat(?:e|es|ed|ing)|exclud\w+|discard\w*|reject\w*|(?:avoid\w*|refus\w+)(?: to)? \w+)(?: (?:the|option|choice|answer|that))* ?:?$|",
        r"\bprefer\b.* to$|^(?:\S+ ){0,2}(?:reject\w*|discarded|excluded|eliminated|invalid|refuted|counterexamples?|fools?|errors?|mistakes?|tests?|testing|fails|falsch)(?: \S+){0,2} :$",
    );
    if before.is_empty() {
        return false;
    }
    let said = phrase(before);
    const ADJUNCT: &str = r"(?i)^(?:(?:so|well|ok|okay|and) ,? ?)?(?:as|for|in|by|at|on|with|through|just|only|picking|choosing|guessing)\b(?: \S+){0,4}? ";
    const CLOSED: &str = r"(?: (?:\w+ )?,| (?:i|we|you|it|it's|this|that|the)\b| :|$)";
    // `Neglecting friction, we get`, `in another world, it would be`
    const OMITTED: &str = concat!(
        r"(?i)^(?:(?:so|and|well) ,? ?)?(?:(?:ignor|neglect|forgett|omitt|skipp|dropp|disregard|overlook)ing\b|",
        r"(?:in|under|with|without|at|as|\w+ing)\b.*\b(?:it|this|that|the (?:answer|result|value)) would be$)"
    );
    if is_ignorant(&said)
        || regex!(OMITTED).is_match(contrasted(&said))
        || regex!(&format!(r"{ADJUNCT}(?:{TRIALS}|fun)\b{CLOSED}")).is_match(&said)
    {
        return true;
    }
    // What a contrast or a conclusion states is separate: `Bob says 9, but the answer is`.
    const TURNS: &str = r"(?i)(?:\b(?:but|however|yet|so|thus|hence|therefore)\b(?: [,:])?|;(?: \w+ ,)?)( (?:the|it|this|my|our|we|its|that)\b|$)";
    const EXCEPT: &str = r"(?i)\b(?:(?:any|every)thing|all|nothing) (?:but|except)(?: \S+){0,2}$";
    let turn = regex!(TURNS).captures_iter(&said).last().and_then(|turn| turn.get(1));
    let excepted = regex!(EXCEPT).is_match(&said);
    let said = turn.map_or(&*said, |turn| said[turn.start()..].trim_start());
    // The clause before the main one, as in `though I doubted it, the answer is`, unless it is a condition or a source.
    const MAIN: &str = r"(?i)^(.*?) , ((?:(?:so|then|and|now|thus) )?(?:(?:the|my|our) (?:\S+ ){0,2}?(?:answer|result|solution|value)|it|it's|this|that|that's|we|i [a-z]|i'd|i'll|you|one)\b.*)$";
    const CONDITION: &str = concat!(
        r"(?i)^(?:\w+ ,? ?)?(?:if|unless|were|should|had|assuming|suppos\w+|provided|without|ignoring|before|under|in|by|for|until|as an?|at|only|just|initially|",
        r"hypothetically|once|when|yesterday|according|to)\b|\b(?:if|unless|without|ignoring|sake|says?|said|claims?|thinks?)\b"
    );
    const POLITE: &str = r"(?i)^(?:\w+ ,? ?)?(?:if (?:i'm|i am|we're|we are|you|my|our|everything|all|i remember|i had to|i did|we did|we do)\b|unless (?:i|we)\b|having said)";
    let main =
        regex!(MAIN).captures(said).and_then(|main| Some((main.get(1)?.as_str(), main.get(2)?.as_str())));
    let dismissed = |clause: &str| {
        regex!(POLITE).is_match(clause)
            && !regex!(r"(?i)\b(?:were|had been|lied|wrong about)\b").is_match(clause)
            || !regex!(CONDITION).is_match(clause) && !regex!(DISOWNED_SOURCES).is_match(clause)
    };
    let said = main.filter(|(clause, _)| dismissed(clause)).map_or(said, |(_, main)| main);
    // `I am confident the answer is` has the answer as its own.
    const SURE: &str = r"(?i)^(?:.* )?(?:i am|i'm|we are|we're) (?:(?:now|very|quite|fairly|absolutely|completely) )?(?:confident|certain|sure|positive|convinced)(?: that)?\b";
    let said = regex!(SURE).find(said).map_or(said, |sure| said[sure.end()..].trim_start());
    if excepted
        || regex!(DISOWNED).is_match(said)
        || is_foreign(before) && languages::doubts(said)
        || cites(said)
    {
        return true;
    }
    let Some(answer) = regex!(r"(?i)^(.*)\b(?:answers?|ans)\b(.*)$").captures(said) else { return false };
    // `the square of the answer`
    const ARTICLES: &str = "the a an final correct right my our this new exact numerical numeric required desired simplified overall only your \
        total actual complete maximum minimum concise boxed short full last";
    let article = |word: &&str| ARTICLES.split_whitespace().any(|known| *known == word.to_lowercase());
    let owner = answer[1]
        .split(' ')
        .rev()
        .filter(|word| !word.is_empty())
        .find(|word| !article(word))
        .unwrap_or_default();
    // `I would answer with`
    if is_auxiliary(owner) && regex!(r"(?i)\b(?:i|we) \w+ $").is_match(&answer[1]) {
        return false;
    }
    let leads =
        regex!(r"(?i)\b(?:leads?|led|comes?|gets?|going|have|had) (?:us |me )?to\b").is_match(&answer[1]);
    if owner == "to" && !leads
        || matches!(owner, "of" | "about" | "on" | "for" | "by" | "in" | "at" | "as" | "with" | "without")
        || owner.starts_with(char::is_alphabetic)
            && !is_neutral(owner)
            && !Roles::of(owner).has(Roles::THINKS.with(Roles::LABELS).with(Roles::CHOOSES).with(Roles::OWNS))
    {
        return true;
    }
    // `the answer of Bob`, `the answer to another problem`, `the answer minus one`
    let tail = answer[2].split(':').next().unwrap_or_default();
    let tail =
        regex!(r"^ (?:is|are) not \S+ ,? ?but").find(tail).map_or(tail, |denied| &tail[denied.end()..]);
    let value = regex!(
        r"^(?: (?:is|should be|must be|will be))(?: (?:simply|just|therefore|thus|then|now))* the (\w+)"
    )
    .captures(tail);
    if value.is_some_and(|found| Roles::of(&found[1]).has(Roles::JOINS.with(Roles::PRAISES))) {
        return false;
    }
    // `the answer that we want is`, `the answer, as we saw, is`
    const ASIDE: &str = concat!(
        r"(?i)^ (?:(?:is|becomes)(?: now)? clear :|(?:consistent|compatible) with\b|(?:satisfy|match|fitt)ing\b|(?:that|which) (?:fits?|works?|satisf\w+|remains?|solves?|meets?|is left)\b|",
        r"(?:that |which )?(?:we|you|i)(?:'ve|'re|'m)?(?: are| were| have| been| all)* (?:want|need|seek|get|got|find|found|obtain|obtained|look|looking|",
        r"saw|see|have|wanted|needed|sought|asked|after)\b|\( (?:after|as)\b[^)]*\)|, (?:as|after|then|of|therefore|thus|in)\b[^,]*,)"
    );
    let denied = |text: &str| text.split(' ').any(|word| Roles::of(word).has(Roles::DENIES));
    let aside = regex!(ASIDE).is_match(tail) && !denied(tail) && !regex!(DISOWNED_SOURCES).is_match(tail);
    !aside && !tail.split(' ').all(is_about_answer)
}

/// Whether a word can occur between `answer` and its verb, as in `The answer to the given problem is`.
fn is_about_answer(word: &str) -> bool {
    const ABOUT: &str = "out up ends ended end being turns after checking requested required tags box question thing problem exercise task puzzle original given whole entire part simplest lowest reduced form format terms notation \
        interval scientific decimal decimals place places fraction rounded nearest integer number tenth hundredth cent unit units for as by \
        at comes works evaluates simplifies mixed percent percentage expressed written both all value values set following below above boxed \
        option choice letter am certain sure confident shown";
    let lower = word.to_lowercase();
    !word.starts_with(char::is_alphabetic)
        || !matches!(&*lower, "he" | "she" | "they" | "his" | "her" | "their")
            && (Roles::of(word).has(Roles::FILLS.with(Roles::LEADS))
                || ABOUT.split(' ').any(|known| known == lower)
                || units::canonical(&lower).is_some())
}

/// Whether a sentence cites a source that isn't the problem or mathematics: `according to Bob`.
fn cites(said: &str) -> bool {
    const SOURCES: &str = concat!(
        r"(?i)^(?:the|this|our|these) (?:\S+ ){0,3}?(?:problem|question|information|data|table|chart|graph|figure|diagram|conditions?|",
        r"statement|calculations?|order|pattern|scale|recipe|map|instructions|above|following)\b|",
        r"^(?:\S+ ){0,4}?(?:formulas?|equations?|rules?|laws?|theorem|lemma|definition|inequality|identity|principle|criterion|algorithm|",
        r"propert(?:y|ies)|method|test)\b"
    );
    regex!(r"(?i)\baccording to (.*)$").captures(said).is_some_and(|found| {
        !regex!(SOURCES).is_match(&found[1])
            || regex!(r"(?i)\b(?:wrong|false|incorrect)\b").is_match(&found[1])
    })
}

/// Whether all words of a string lack content, as in `the final`.
pub(crate) fn is_introduction(said: &str) -> bool {
    let words = |c: char| c.is_alphabetic() || c.is_whitespace() || "*:".contains(c);
    said.chars().all(words)
        && said.split(|c: char| !c.is_alphabetic()).all(|word| word.is_empty() || is_neutral(word))
}

/// Whether a word lacks content, so that a sentence of such words and a number states the number.
pub(crate) fn is_neutral(word: &str) -> bool {
    Roles::of(word).has(Roles::FILLS.with(Roles::LEADS))
}

/// Whether a predicate names the answer: `the answer to the problem`, `the smallest such number`.
pub(crate) fn praises(predicate: &str) -> bool {
    const PRAISED: &str = concat!(
        r"(?i)^(?:(?:the|our|my|an?|its|your|then|indeed|therefore|thus|also|exactly|clearly|simply|just) )*",
        r"(?:(?:final|correct|right|true|required|desired|only|unique|possible|smallest|largest|minimum|maximum|minimal|maximal|greatest|",
        r"least|lowest|highest|total|exact|such|valid|positive|real|integer|numerical|simplified|reduced|wanted|sought|best|optimal)\b ?)*",
        r"(?:(?:answers?|solutions?|results?|ones?)(?: (?:to|of|for) (?:the|this|our|your)(?: (?:given|original|whole|entire|above))*",
        r" (?:problem|question|exercise|task|puzzle|equation|system|inequality)s?)?(?: (?:that )?(?:i|we|you) [^,;]*| that (?:is|are|satisfies|satisfy|works?|fits?|has|have)\b.*)?",
        r"(?: ?$| ?[.,;!)]| (?:since|because|as|so|and|in simplest)\b)|what (?:we|i|you)\b[^,;]*$|",
        r"(?:numbers?|values?|sum|total|minimum|maximum|product|difference|roots?|integers?|primes?|choices?|options?|",
        r"possibilit(?:y|ies)|area|length|cost|price|amount|sets?|pairs?|probability)\b|(?: ?$| ?[.,;!)]| (?:since|because|as|so)\b))"
    );
    const REDIRECTED: &str = concat!(
        r"(?i)\b(?:wrong|incorrect|mistakes?|mistaken|fails?|failed|excluded|rejected|never|but|if|unless|without|except|other|another|",
        r"different|guess\w*|suspect\w*|hop(?:e|ed|ing)|wrote|copied|first|once|twice|half|minus|plus|squared|cubed|divided|opinion|according|subtract|add|doubl\w+|multiply|still|before)\b|n't\b|",
        r"[,;] ?(?:and )?not\b|\?|^an? (?:\w+ )?(?:answer|solution|result)\b"
    );
    regex!(PRAISED).is_match(predicate)
        && !regex!(REDIRECTED).is_match(predicate)
        && predicate.chars().any(char::is_alphabetic)
}

/// Whether the words after a value relate it to another value, another problem or another person.
pub(crate) fn is_redirected(after: &Pieces<'_>) -> bool {
    let after = &*phrase(&after.all);
    const REDIRECTED: &str = concat!(
        r"(?i)\b(?:in|for|of|to|from|by) (?:another|(?:an?|the) (?:different|previous|earlier|easier|harder|similar|other)) (?:problem|question|exercise|task|",
        r"version|case|group|student|book)s?\b|\b(?:in|for|at) (?:some|certain|many|most|other) (?:cases|times|days|versions)\b|\bhalf (?:of )?the time\b|\bsometimes\b|\bunless (?:it|n)\b|\b(?:last|next|previous) (?:time|year|week|month|step|part)\b|\buntil\b|\b(?:by (?:accident|luck)|typo|grain of salt|first (?:sight|glance)|give or take|or (?:higher|lower|more|less|so|thereabouts))\b|\b(?:earlier|first|rough) draft\b|\bwith (?:an? )?(?:\S+ ){0,2}?(?:probability|chance|confidence|odds)\b|\bwhich (?:i|we) (?:made|guessed|invented)\b|\b(?:worlds?|universes?|coin toss|guess|jest|pending|tentative(?:ly)?|unverified|unconfirmed|provisional(?:ly)?)\W*$|\bto be (?:checked|confirmed|verified|corrected|continued|determined|decided|doubled|halved|negated|squared|flipped|inverted|fixed)\b|\bpending \w+|\bfor (?:lack|want) of\b|\bsubject to\b|\b(?:by|in) (?:mistake|error)\b|\bin (?:tens|dozens|(?:hundred|thousand|million|billion|trillion)s)\b|\bopinion\b|,? says (?-i:\p{Lu})|\b(?:they|some|people|he|she) says?\W*$|, not\W*$|^(?:was|were)\b|",
        r"^for the sake of\b|^(?:on top of|in addition to|along with|together with|apart from|aside from|as well as|away from|next to|besides?|",
        r"at (?:most|least|best|worst)|off|short|too (?:many|few|much))\b|",
        r"\b(?:on top of|in addition to|along with|together with|apart from|as well as|besides?) (?:another )?[0-9]|",
        r"^for (?:odd|even|large|small|certain|most)\b|\b(?:as long as|in case|provided|assuming|at least)\b|",
        r"\brounded (?:up|down)\b|\b(?:we|then|must|to) (?:double|halve|square|negate|add|subtract|multiply|divide)\b|",
        r"\b(?:sign|upside down|reversed?|backwards|in front|behind it|hex|binary|octal|doubled|halved|negated|as an? (?:divisor|factor|guess))\b"
    );
    // Another number that follows a preposition or a connective and doesn't precede a counted noun.
    const ANOTHER: &str = concat!(
        r"(?i)^(?:in|on|with|by|at|per|for|after|before|from|during|over|under|since|until|out of) ([0-9][0-9.,]*|\w+)\W*$|",
        r"\b(?:respectively|alternatively|therefore|so|hence|thus|then) ([0-9][0-9.,]*|\w+)\b"
    );
    let number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit()) || number_in_words(&word.to_lowercase()).is_some()
    };
    let mut others = regex!(ANOTHER).captures_iter(after).filter_map(|found| found.get(1).or(found.get(2)));
    const REMARKS: &str = r"(?i)^(?:means|simplifies|satisfies|matches|corresponds|agrees|represents|leads|works|fits|checks|follows|completes|reduces|rounds|confirms|shows|was)$";
    let which = regex!(r"(?i)\bwhich (\w+)").captures(after);
    // A role that isn't the answer's, as in `as a warm-up`.
    const ANSWERS: &str = "final result answer solution consequence conclusion fraction decimal percentage percent mixed reduced simplified whole integer number single \
        unique common simple function sum product power ratio direct proper";
    let role = regex!(r"(?i)^as an? (\w+)").captures(after);
    let role = role.is_some_and(|found| !ANSWERS.split(' ').any(|word| word.eq_ignore_ascii_case(&found[1])));
    // A purpose, as in `for practice`, or one person or case, as in `for Bob`.
    const EVERY: &str =
        "sure certain short all each both everything everyone everybody us you me it this that";
    let purpose = regex!(r"(?i)^for (\w+)(?: only| purposes?)?\W*$").captures(after);
    let purpose = purpose.is_some_and(|found| {
        !EVERY.split(' ').any(|word| word.eq_ignore_ascii_case(&found[1]))
            && !found[1].starts_with(|c: char| c.is_ascii_digit())
    });
    purpose
        || role
        || regex!(REDIRECTED).is_match(after)
        || others.any(|word| number(word.as_str()))
        || cites(after)
        || which.is_some_and(|found| !is_neutral(&found[1]) && !regex!(REMARKS).is_match(&found[1]))
}

fn sign(before: &[Piece<'_>], gap: bool, value: &str) -> Option<&'static str> {
    let Some((last, head)) = before.split_last() else { return Some("") };
    let stated = || sign(head, last.spaced, value).filter(|sign| sign.is_empty());
    let unless_denied = |words: &[Piece<'_>]| if denies(words) { None } else { Some("") };
    match (last.kind, last.text) {
        (Kind::Word, word) if matches!(&*word.to_lowercase(), "minus" | "negative") => {
            stated().and(Some("-"))
        }
        (Kind::Word, word) if units::currency(word).is_some() => {
            let signs = [("dollar", "\\$"), ("euro", "€"), ("sterling", "£"), ("yen", "¥"), ("rupee", "₹")];
            let sign = signs.into_iter().find(|(name, _)| units::currency(word) == Some(name));
            stated().and(sign.map(|(_, sign)| sign))
        }
        (Kind::Word, word) => {
            let before_last = |at: usize| head.len().checked_sub(at).map_or("", |at| head[at].text);
            let join = head.last().filter(|word| word.is_word(Roles::JOINS));
            match &*word.to_lowercase() {
                "us" | "him" | "her" | "them" | "me" | "you" => stated(),
                "it" if matches!(before_last(1), "make" | "makes" | "making") => unless_denied(head),
                "with" if matches!(before_last(1), "left" | "up" | "us") => unless_denied(head),
                "with" | "for" | "on" | "in" | "at" | "as" | "to" if chooses(head) => unless_denied(head),
                _ if chooses(before) || acts(before) => unless_denied(before),
                "on" | "with" | "for" | "at" if acts(head) => unless_denied(head),
                "like" if matches!(before_last(1), "looks" | "Looks" | "seems" | "Seems") => {
                    unless_denied(&head[..head.len() - 1])
                }
                "to" | "as" | "at"
                    if matches!(before_last(1), "out" | "us" | "down" | "points" | "lead" | "it") =>
                {
                    unless_denied(head)
                }
                "to" if before_last(1) == "up" && before_last(2).starts_with("add") => Some(""),
                // A verb after an auxiliary verb: `must score 8`.
                _ if matches!(before_last(1), "will" | "can" | "must" | "should" | "to")
                    && !matches!(word, "exceed" | "avoid") =>
                {
                    unless_denied(head)
                }
                "of" if join.is_some_and(|word| !word.text.starts_with("sum")) => unless_denied(before),
                "to" | "by" | "at" | "as" | "in" if join.is_some() => unless_denied(before),
                // The sentence denies another value, but states this one.
                "but" if head.iter().any(|word| word.is_word(Roles::DENIES)) => Some(""),
                _ if last.is_word(Roles::STATES) || is_foreign(before) => unless_denied(before),
                _ => None,
            }
        }
        (Kind::Number, _) => None,
        (Kind::Command, "\\$") => stated().and(Some("\\$")),
        (Kind::Sign, "€" | "£" | "¥" | "₹") => {
            stated().and(["€", "£", "¥", "₹"].into_iter().find(|sign| *sign == last.text))
        }
        (
            Kind::Command,
            "\\Rightarrow" | "\\implies" | "\\Longrightarrow" | "\\iff" | "\\approx" | "\\therefore"
            | "\\equiv",
        ) => unless_denied(head),
        (_, "=" | "≈" | "→" | "⇒" | "⟹" | "∴" | "≡") => unless_denied(head),
        (Kind::Sign, arrow) if arrow.len() > 1 && arrow.bytes().all(|byte| b"=->".contains(&byte)) => {
            unless_denied(head)
        }
        (_, ":") => {
            let ratio = head.last().is_some_and(|piece| piece.kind == Kind::Number) && (last.formula || !gap);
            if ratio || !is_label(head) && !is_foreign(head) { None } else { unless_denied(head) }
        }
        (_, "," | ";") if last.formula => None,
        (_, "," | ";") => {
            let clause =
                head.rsplit(|piece| matches!(piece.text, "," | ";" | ".")).next().unwrap_or_default();
            let idiom = |piece: &Piece<'_>| {
                piece.is_word(Roles::FILLS.with(Roles::LEADS).with(Roles::LABELS))
                    && !piece.is_word(Roles::DENIES)
            };
            (head.last().is_none_or(|word| word.is_word(Roles::LEADS) || word.is("."))
                || clause.iter().all(idiom))
            .then_some("")
        }
        // The value repeats the number in words before it: `nine (9)`.
        (_, "(" | "[") => {
            let words = head.iter().rev().take_while(|piece| piece.kind == Kind::Word).count();
            for from in head.len() - words..head.len() {
                let said: Vec<&str> = head[from..].iter().map(|piece| piece.text).collect();
                if let Some(number) = number_in_words(&said.join(" ")) {
                    let same = number.to_string() == value;
                    return sign(&head[..from], true, value).filter(|_| same);
                }
            }
            stated()
        }
        // The label of an item or option: `(b)`, `2)`.
        (_, ")") => match head {
            [_] => Some(""),
            [head @ .., Piece { text: "(", .. }, mark] if mark.text.len() == 1 => {
                sign(head, true, value).filter(|sign| sign.is_empty())
            }
            _ => None,
        },
        (_, "-" | "−" | "–" | "—" | "+") => {
            let sign = if last.text == "+" { "" } else { "-" };
            let dash = !last.formula && gap && last.spaced;
            match head.last() {
                None if gap && !last.formula => Some(""),
                None => Some(sign),
                Some(piece) if piece.kind == Kind::Word && !piece.formula => {
                    if last.spaced || dash {
                        stated().map(|_| if dash { "" } else { sign })
                    } else {
                        None
                    }
                }
                Some(piece) if piece.kind == Kind::Number => None,
                Some(piece) if piece.is(")") || piece.is("]") || piece.is("}") => None,
                Some(_) => stated().and(Some(sign)),
            }
        }
        (
            _,
            ">" | "|" | "•" | "·" | "◦" | "‣" | "▪" | "'" | "‘" | "«" | "✅" | "✓" | "✔" | "👉" | "➡" | "➜"
            | "📌" | "🎉",
        ) if !last.formula && head.is_empty() => Some(""),
        (_, "'" | "‘" | "«") => stated(),
        _ => None,
    }
}

/// Whether the words end with a verb by which the writer chooses a value: `I'd answer`, `let's go`.
fn chooses(words: &[Piece<'_>]) -> bool {
    let Some((verb, head)) = words.split_last() else { return false };
    let neutral = |piece: &&Piece<'_>| piece.is_word(Roles::FILLS.with(Roles::LEADS).with(Roles::CHOOSES));
    verb.is_word(Roles::CHOOSES) && head.iter().rev().take_while(neutral).any(|piece| is_writer(piece.text))
}

/// Whether the words end with another verb of the writer, as in `I hereby submit`, unless the verb reports, doubts or computes.
fn acts(words: &[Piece<'_>]) -> bool {
    const OTHERS: &str = r"(?i)^(?:add|subtract|multipl|divid|doubl|halv|squar|cub|negat|cop[iy]|wrote|heard|hear|remember|recall|saw|tr[iy]|test|need|wish|hop|bet|fear|doubt|reject|refus|exclud|eliminat|disagree|hat|skip|avoid|consider|compar|cross|typ|borrow|stole|steal|invent|was|were|had|used|did|lik|lov|dread|imagin|pictur|start|begin|began|replac|substitut|plug|chang|swap|flip|guess|forg|miss|los|round|cancel|delet|drop|ignor|omit|am|are|can|will|would|could|do|of|about|from|if|or|and|than|not)";
    let Some((verb, head)) = words.split_last() else { return false };
    let adverb = |piece: &&Piece<'_>| {
        piece.is_word(Roles::FILLS.with(Roles::LEADS))
            || piece.kind == Kind::Word && piece.text.ends_with("by")
    };
    verb.kind == Kind::Word
        && !verb.formula
        && !regex!(OTHERS).is_match(verb.text)
        && !verb.is_word(Roles::DENIES)
        && head
            .iter()
            .rev()
            .take_while(adverb)
            .take(4)
            .any(|piece| matches!(uncontracted(&piece.text.to_lowercase().replace('’', "'")), "i" | "we"))
}

/// Whether a word names the writer of the response.
fn is_writer(word: &str) -> bool {
    matches!(uncontracted(&word.to_lowercase().replace('’', "'")), "i" | "we" | "let" | "you" | "one")
}

/// Whether the words before a colon name an answer. Known words do, a clause of the writer (`now we add them`), a quantity
/// (`number of coins`) and a symbol. Any other label, such as `a common error`, doesn't.
fn is_label(head: &[Piece<'_>]) -> bool {
    let label = head.rsplit(|piece| matches!(piece.text, ":" | ";" | ".")).next().unwrap_or_default();
    let words = || label.iter().filter(|piece| piece.kind == Kind::Word && !piece.formula);
    const KNOWN: Roles = Roles::STATES
        .with(Roles::FILLS)
        .with(Roles::OWNS)
        .with(Roles::LEADS)
        .with(Roles::PRAISES)
        .with(Roles::JOINS)
        .with(Roles::LABELS);
    const VERBS: [&str; 14] = [
        "is", "are", "was", "be", "get", "gets", "have", "has", "give", "gives", "find", "obtain", "becomes",
        "equals",
    ];
    let is_verb = |piece: &Piece<'_>| VERBS.contains(&piece.text);
    words().all(|piece| piece.is_word(KNOWN) || units::is_unit(piece.text))
        || words().any(|piece| {
            let quantity = regex!(r"(?i)^(?:left|remaining|needed|required|sold|spent|earned|many|matrix|grid|set|interval|vector|points?|roots?|function|polynomial)$").is_match(piece.text);
            quantity
                || piece.is_word(Roles::JOINS) && !piece.text.eq_ignore_ascii_case("given")
                || is_writer(piece.text)
        })
        || words().next_back().is_some_and(is_verb)
}

/// Whether the words before a value deny it, suppose it or attribute it to somebody else. Neutral words are skipped.
pub(crate) fn denies(words: &[Piece<'_>]) -> bool {
    let mut next_text = "";
    // Whether the subject of a verb of thinking is looked for.
    let mut thinks = false;
    // `No: 8`
    if let [.., no, mark] = words
        && no.text.eq_ignore_ascii_case("no")
        && mark.kind == Kind::Sign
        && matches!(mark.text, "," | ":" | ";")
    {
        return false;
    }
    for (at, piece) in words.iter().enumerate().rev() {
        if piece.is(".")
            || piece.kind == Kind::Sign && matches!(piece.text, "," | ";" | ":") && !next_text.is_empty()
        {
            return false;
        }
        if piece.kind != Kind::Word || piece.formula {
            // `half of 18` is a separate value.
            if next_text == "is" && piece.kind == Kind::Number {
                return false;
            }
            continue;
        }
        let roles = piece.roles();
        let lower = next_text.to_lowercase();
        let answer = matches!(&*lower, "answer" | "answers");
        let own = roles.has(Roles::OWNS);
        let earlier = words[..at].last().map_or("", |piece| piece.text);
        // `Without a doubt, it is 8.`
        if piece.text == "doubt" && matches!(&*earlier.to_lowercase(), "no" | "a" | "without" | "any") {
            return false;
        }
        if roles.has(Roles::DENIES)
            || answer && !own && !(is_auxiliary(piece.text) && is_writer(earlier))
            || thinks
                && !is_writer(piece.text)
                && !roles.has(Roles::LEADS.with(Roles::THINKS))
                && !is_auxiliary(piece.text)
        {
            return true;
        }
        thinks = roles.has(Roles::THINKS) || thinks && !is_writer(piece.text);
        if !roles.has(Roles::FILLS.with(Roles::OWNS)) {
            return false;
        }
        next_text = piece.text;
    }
    // `Say it is 8.`
    thinks
}

/// Whether a word can be between the writer and a verb: `I would say`.
fn is_auxiliary(word: &str) -> bool {
    matches!(
        word,
        "would" | "will" | "can" | "do" | "must" | "should" | "have" | "to" | "also" | "going" | "still"
    )
}

/// Whether the text between two boxes lists both: it doesn't deny either box, compute with them or compare them.
pub(crate) fn lists(between: &Pieces<'_>) -> bool {
    if matches!(&between.all[..], [word] if word.text == "to") {
        return false;
    }
    between.all.iter().all(|piece| match piece.kind {
        Kind::Word => {
            (!piece.is_word(Roles::DENIES) || matches!(piece.text, "or" | "either"))
                && !matches!(
                    &*piece.text.to_lowercase(),
                    "but" | "minus" | "plus" | "times" | "from" | "over" | "by" | "mod"
                )
        }
        Kind::Sign => !"<>+-−*/^×÷≤≥≠~".contains(piece.text.chars().next().unwrap_or(' ')),
        Kind::Command => {
            !regex!(r"^\\(?:leq?|geq?|neq?|cdot|times|pm|mp|cup|cap|div|to|lt|gt|sim)$").is_match(piece.text)
        }
        Kind::Number => true,
    })
}

/// Whether a value is still an answer with the text that follows it on its line: a counted noun, a reason, or the end of the
/// sentence. `words` is the number of following words that were already read as a unit. `worded` is whether words precede the
/// value, in which case an exclamation mark isn't a factorial.
pub(crate) fn is_ended(after: &Pieces<'_>, words: usize, value: &str, worded: bool) -> bool {
    ends(&after.all, words, value, worded) && !is_redirected(after)
}

fn ends(after: &[Piece<'_>], mut words: usize, value: &str, worded: bool) -> bool {
    let mut at = 0;
    while let Some(piece) = after.get(at) {
        let rest = &after[at + 1..];
        let next = rest.first();
        at += 1;
        let lower = piece.text.to_lowercase();
        match piece.kind {
            Kind::Number => return words > 2 && piece.spaced,
            Kind::Command => return false,
            // A formula that describes the counted things: `8 pairs $(a,b)$`.
            Kind::Word if piece.formula && words > 0 => return true,
            Kind::Word if piece.formula || words == 0 && at == 1 && !piece.spaced => return false,
            Kind::Word => {
                let number = next
                    .is_some_and(|next| next.kind != Kind::Word && !next.is(".") || spelled(next).is_some());
                // `So 8 it is.`
                let closes = lower == "it"
                    && next.is_some_and(|next| next.text == "is")
                    && rest.get(1).is_none_or(|end| end.kind == Kind::Sign);
                match &*lower {
                    _ if closes => return true,
                    // `8 must be the answer.`
                    "must" | "has" | "would" | "should" | "will" if words == 0 => {
                        let said = phrase(rest);
                        let named = regex!(r"(?i)^(?:to )?be (.*)$").captures(&said);
                        return named.is_some_and(|named| praises(&named[1])) && !offers(rest);
                    }
                    "and" if next.is_some_and(|next| next.text == "not") => {
                        return rest.get(1).is_some_and(|other| other.kind == Kind::Number);
                    }
                    "and" => return continues(next, rest.get(1)) && !taken_back(rest),
                    "or" => {
                        let equal = |piece: &Piece<'_>| {
                            piece.text == value
                                || spelled(piece).is_some_and(|number| number.to_string() == value)
                        };
                        return next.is_some_and(|next| next.text == "equivalently")
                            && rest.get(1).is_some_and(equal);
                    }
                    "of" if words == 0 && number => return false,
                    "not" => return next.is_some_and(|next| next.kind == Kind::Number),
                    "times" if next.is_none_or(|next| next.kind == Kind::Sign && !next.formula) => {}
                    "to" => return !number && next.is_some_and(|next| !matches!(next.text, "the" | "a")),
                    "more" | "fewer" | "less"
                        if words == 0
                            && !number
                            && next.is_some_and(|next| next.kind == Kind::Word && next.text != "than") => {}
                    "than" if words > 1 => return !number,
                    "is" | "are" | "was" | "were" | "equals" => {
                        if words > 0 {
                            return !taken_back(rest);
                        }
                        return praises(&phrase(rest)) && !offers(rest);
                    }
                    _ if piece.is_word(Roles::GOES_ON) => {
                        let reason = matches!(&*lower, "since" | "because" | "so" | "where" | "when" | "as");
                        let numbered = words == 0
                            && number
                            && matches!(&*lower, "by" | "at" | "per" | "in" | "with" | "on");
                        let based = next.is_some_and(|next| next.text == "base");
                        return !numbered
                            && !based
                            && next.is_none_or(|next| next.text != "if")
                            && (reason && !offers(rest) || !taken_back(rest));
                    }
                    word if is_changing(word) => return false,
                    _ => {}
                }
                words += 1;
            }
            Kind::Sign => match piece.text {
                "." | "。" | "!" if next.is_none_or(|next| next.spaced) => {
                    let last = piece.text != "!" || worded || words > 0 || piece.spaced;
                    // A number alone is another answer.
                    return last
                        && !(next.is_some_and(|next| next.kind == Kind::Number || next.is("-"))
                            && rest.len() < 4);
                }
                "." => {
                    return next.is_some_and(|next| {
                        next.kind == Kind::Word || matches!(next.text, ")" | "]" | "'" | "’" | "»")
                    });
                }
                "," | ";" | ":" | "-" | "–" | "—" => {
                    let dash = !matches!(piece.text, "," | ";" | ":");
                    if dash && !(piece.spaced && next.is_some_and(|next| next.spaced)) {
                        return false;
                    }
                    if piece.text == ":" && words > 0 {
                        return true;
                    }
                    return match next {
                        None => !dash,
                        Some(next) if next.kind == Kind::Word && !next.formula => {
                            let and = next.text == "and" && continues(rest.get(1), rest.get(2));
                            let on = next.is_word(Roles::GOES_ON) || matches!(next.text, "not" | "none");
                            // `I believe`, `no question`, `final answer`
                            let sure = regex!(
                                r"(?i)^(?:and )?(?:(?:i|we)(?:'m| am| are|'re|'ve| have)? (?:believe|think|(?:absolutely |quite |very |pretty |fairly )?(?:sure|certain|confident)|(?:double[ -]?)?checked)|if (?:i'm|i am|we)\b|as far as (?:i|we)|no (?:more|less|question|doubt)|(?:my )?final answer|done|that's it|without (?:an? |any )?(?:question|doubt)|for (?:sure|certain)|hands down|(?:complet|conclud|finish|end|solv|answer)ing (?:the|this|our|my)\b.*|as (?:required|requested|desired|wanted|claimed|expected))\b|^(?:of course|clearly|obviously|certainly|definitely|thanks?(?: you)?) ?(?:[.!].*)?$"
                            );
                            (and || on) && !taken_back(&rest[1..])
                                || sure.is_match(&phrase(rest)) && !offers(rest)
                        }
                        // The mark that closes the formula or the quotation may follow the comma.
                        Some(next) => {
                            next.kind == Kind::Sign && rest.len() == 1 && matches!(next.text, ")" | "]" | "'")
                        }
                    };
                }
                "(" if piece.formula && words > 0 => return true,
                "^" if words > 0 && next.is_some_and(|next| matches!(next.text, "2" | "3")) => at += 1,
                "(" | "[" | "{" => {
                    let length = rest
                        .iter()
                        .position(|piece| matches!(piece.text, ")" | "]" | "}"))
                        .unwrap_or(rest.len());
                    let inside = &rest[..length];
                    let said: Vec<&str> = inside.iter().map(|piece| piece.text).collect();
                    let said = said.join(" ");
                    let remark = said.to_lowercase();
                    let same = regex!(
                        r"^(?:(?:double|re) ?-? ?)?(?:verified|checked|confirmed|exact|exactly|final)$"
                    )
                    .is_match(&remark)
                        || said == value
                        || number_in_words(&said).is_some_and(|number| number.to_string() == value);
                    if !same
                        && (piece.formula
                            || !inside.first().is_some_and(|word| is_writer(word.text))
                                && !ends(inside, 1, value, true)
                            || is_correction(&remark))
                    {
                        return false;
                    }
                    at += length;
                    words += 1;
                }
                // Decoration, unless it marks an error.
                mark if mark.chars().all(is_decoration) => {}
                // The end of a cell.
                "|" if !piece.formula && next.is_none() => {}
                ")" | "]" | "’" | "»" | "}" => {}
                "'" if !piece.formula => {}
                _ => return false,
            },
        }
    }
    true
}

/// Whether a remark in lower case corrects the answer before it, doubts it or orders another step.
pub(crate) fn is_correction(words: &str) -> bool {
    const CORRECTS: &str = concat!(
        r"^(?:(?:or|and|oh|well|so|ok|okay) )*(?:(?:actually|wait|hmm+|oops|sorry|correction|errat(?:um|a)|edit|update|scratch that|psych|",
        r"nope|kidding|joking|just (?:kidding|joking)|wrong|false|incorrect|not|maybe|perhaps|possibly|probably|otherwise|else|unless|",
        r"only if|as if|if only|alternatively|rather|instead|my (?:bad|mistake|apologies)|i mean|make that|on second thoughts?|on reflection|citation|which (?:is|was) (?:wrong|false|incorrect|not)|hold on|",
        r"in your dreams|who knows|says|sadly|unfortunately|times|plus|minus|squared|cubed|divided by|right)\b|",
        r"no(?:$|[^a-z0-9 ]| (?:it|that|this|wait|i|the answer|but)\b| \d)|",
        r"if [^,]*$|(?:or|and|also|but|however)(?: also| maybe| is it| perhaps| even)* (?:\d|not\b|is it\b|so\b))|",
        r"^s/[^/ ]+/|\bno longer\b|^more (?:precisely|exactly|accurately)\b|^rounded\b.*\bexact\b|",
        // Steps that are left to the reader.
        r"^(?:(?:now|then|next|so|finally|and|please) )*(?:add|subtract|multiply|divide|double|halve|triple|square|cube|negate|invert|replace|",
        r"round|change|flip|take|swap|reverse|ignore|disregard|forget|discard|don't|do not|never)(?: \S+){0,6}$|",
        r"^(?:i|i'm|we|we're|you)\b.*\b(?:forgot|lied|lying|joking|kidding|mistake|error|wrong|not sure|unsure|(?:my|our) mind|",
        r"take (?:it|that|this) back|retract|withdraw|doubt|guess|guessed|(?:don't|do not) (?:think|believe)|still (?:have|need|must)|guessing|give up|(?:don't|do not|cannot|can't) (?:know|tell|say|solve)|made (?:it|that|this) up|retract|flipped|",
        r"must still|off by|(?:need|want|asked for) (?:the )?(?:double|twice|half|negative|opposite))\b|",
        r"^we need \S+ not\b|^the (?:problem|question|task) (?:asks|wants|needs|was)\b|\bonly$|\b(?:last|final|next|more) step\b|^what remains\b|\bremains? (?:is )?to\b|^to (?:finish|get)\b|^(?:adding|doubling|subtracting|counting|including)\b|\bin the other case\b|^the (?:opposite|negative|reverse)\b|^none of (?:this|that|it|the above)\b|",
        r"^there (?:is|are|may be|might be) (?:an?|some) (?:error|mistake|flaw|problem)s?\b|^(?:an? |my )?\pL+'s (?:answer|solution|guess|idea)\b|",
        r"^\S+ (?:says|thinks|claims|said) so$|^for \S+ n\b|",
        r"^(?:allegedly|supposedly|reportedly|whatever|i was told|i heard|they say|though i (?:doubt|may|might|could)|unless i erred|give or take)\b|\b(?:demo|demonstration|syntax)$|",
        // A removal: `Please ignore this.`
        r"^(?:(?:please|so|now|just|also|you|the|graders?|should|must|can|may) )*(?:skip|ignore|disregard|delete|cancel|strike|scratch|forget|undo|drop|discard|revise|void) (?:this|that|it|these|the (?:above|box|answer|line))\b|",
        r"\b(?:i|we)(?:'ve| have)? (?:copied|invented|cheated|stole)\b|\bhave(?:n't| not) (?:checked|verified|tested|solved|finished|computed|answered|done)\b|\b(?:check|test|verification|proof) fails?\b|\bwait for (?:the|my|an?)\b|^or (?:the|its|an?) (?:opposite|other)\b|",
        r"^but see\b|^(?:but|then|and) (?:negated|doubled|halved|flipped|reversed|squared|inverted)\b|^or (?:the one|something|some other|maybe|perhaps)\b|^said (?:nobody|no one)|^more or less\b|",
        // What is only tried, and what comes later.
        r"^(?:pending|tentative|unverified|unconfirmed|unchecked|provisional|preliminary|draft|guess|placeholder|example|sample|template|trial|to be \w+|to ?do\b.*|tbd|tbc|not)$|",
        r"^(?:(?:just|only|merely|this (?:is|was)|that (?:is|was)) )+(?:an? )?(?:test|try(?:ing)?)\b|^(?:just|only) \pL+ing\b(?: (?:you|with you|around|here))?$|^then again\b|\bmaybe not\b|\bgraders?\b|",
        r"\b(?:let(?:'s| me| us)|i|we|i'll|we'll|must|needs?|have|has|should)\b(?: \w+){0,3} (?:re-?(?:do|check|compute|consider|calculate|think|examine|try|run|start)|checking|verification)\b",
    );
    const ONLY: &str =
        "just|only|merely|an?|my|the|at|by|for|as|picked|chosen|this (?:is|was)|that (?:is|was)";
    let trial = regex!(&format!(r"^(?:(?:{ONLY}) )*(?:{TRIALS})(?: \w+)?$"));
    is_ignorant(words) || regex!(CORRECTS).is_match(words) || trial.is_match(words) || is_deferral(words)
}

/// Whether a sentence in lower case announces the answer for later.
fn is_deferral(words: &str) -> bool {
    const DEFERS: &str = concat!(
        r"\b(?:real|actual|true|proper|official|final|full|right|correct) (?:answer|solution|result|truth|value|one)\b.*\b(?:later|tomorrow|soon|next|follows?(?: in| later| below| soon| shortly|$)|separately|elsewhere|pending|coming|will (?:be|follow|come|arrive))|",
        r"\b(?:follows?|comes?|arrives?|sent|given|appears?) (?:in|with|on) (?:the|my|a) (?:next|following|later|another|separate)\b|",
        r"\b(?:i|we|i'll|we'll)\b.*\b(?:fix|correct|tell|give|send|reveal|post)\b.*\b(?:later|tomorrow|soon|next (?:time|message|part))\b|",
        r"^(?:the )?(?:real|actual|true|correct) (?:answer|one|value)\b.*\b(?:above|below|elsewhere|differs?)\b|",
        r"^(?:i|we) have no (?:idea|clue)\b|^(?:i'm|i am) (?:lost|stuck|confused)\b|",
        r"^see you\b.*\banswer\b|\bto be continued\b|\bpending$",
    );
    regex!(DEFERS).is_match(words)
}

/// Whether a sign is a check mark or a picture that doesn't mark an error or a doubt.
pub(crate) fn is_decoration(sign: char) -> bool {
    const ERRORS: &str = "✕✖✗✘❌❎❓❔👎🚫⛔🛑🙅🤔🤷🤥🤡😜🃏";
    (sign >= '\u{1f000}' || matches!(sign, '∎' | '\u{2500}'..='\u{27bf}' | '\u{fe0f}'))
        && !ERRORS.contains(sign)
}

/// Whether the words after an "and" continue the statement about the value and don't offer another value.
fn continues(word: Option<&Piece<'_>>, next: Option<&Piece<'_>>) -> bool {
    let on = next.is_some_and(|next| next.text == "on");
    word.is_some_and(|word| {
        (word.is_word(Roles::GOES_ON) || matches!(word.text, "indeed" | "nothing")) && !on
    })
}

/// Whether a clause offers another value, which is a number after a comma or a connective, outside of a formula.
fn offers(clause: &[Piece<'_>]) -> bool {
    let joins = |piece: &Piece<'_>| {
        !piece.formula && matches!(piece.text, "," | ";" | "and" | "or" | "else" | "otherwise")
    };
    clause.windows(2).any(|pair| joins(&pair[0]) && pair[1].kind == Kind::Number && !pair[1].formula)
}

/// Returns the value of a piece that is a number in one word.
fn spelled(piece: &Piece<'_>) -> Option<u64> {
    Some(piece).filter(|piece| piece.kind == Kind::Word).and_then(|piece| number_in_words(piece.text))
}

/// Whether a word after a value changes the value, or shows that it isn't an answer.
fn is_changing(word: &str) -> bool {
    let name = word.chars().count() < 3 && !matches!(word, "a" | "an" | "of" | "sq" | "cu");
    let abbreviation = !word.contains(|c: char| !c.is_ascii() || "aeiouy".contains(c))
        && units::canonical(word).is_none()
        && !matches!(word, "sq" | "cu");
    const PARTICIPLES: [&str; 6] = ["needed", "required", "used", "expected", "colored", "red"];
    name && !units::is_unit(word)
        || abbreviation
        || units::changes(word)
        || units::denominator(word).is_some()
        || SCALES.iter().any(|(scale, _)| *scale == word.trim_end_matches('s'))
        || number_in_words(word).is_some()
        || word.ends_with("n't")
        || word.ends_with("n’t")
        || word.ends_with("ed") && !PARTICIPLES.contains(&word)
        || Roles::of(word).has(Roles::CHANGES)
}

/// Whether a clause after a value calls the value wrong or offers another value.
fn taken_back(clause: &[Piece<'_>]) -> bool {
    let wrong = |piece: &Piece<'_>| {
        let word = piece.text.to_lowercase();
        matches!(&*word, "not" | "never" | "wrong" | "incorrect" | "false" | "mistaken")
            || word.ends_with("n't")
            || word.ends_with("n’t")
    };
    offers(clause) || clause.iter().take(8).any(wrong)
}
