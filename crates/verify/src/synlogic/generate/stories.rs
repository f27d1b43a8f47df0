//! Generators of stories: boolean_expressions, goods_exchange, object_counting, object_properties, web_of_lies.

use std::sync::LazyLock;

use serde_json::json;

use super::{Draft, Source, python_block, section, values, words};

/// Statements about the world, each with whether it is true.
static FACTS: LazyLock<Vec<(&str, bool)>> = LazyLock::new(|| {
    let facts = section("facts").lines().filter_map(|line| line.rsplit_once(": "));
    facts.map(|(text, value)| (text, value == "true")).collect()
});

/// Makes a boolean expression of at most this depth, and its value. If `whole`, it isn't a single statement.
fn boolean(depth: usize, whole: bool, source: &mut Source<'_>) -> (String, bool) {
    if depth == 0 || (!whole && source.chance(1, 6)) {
        return match source.below(3) {
            0 => {
                let value = source.chance(1, 2);
                (if value { "True".into() } else { "False".into() }, value)
            }
            1 => {
                let (text, value) = source.pick(&FACTS);
                (text.into(), value)
            }
            _ => {
                let [a, b, c, d] =
                    [source.range(-9, 9), source.range(1, 9), source.range(-9, 9), source.range(1, 9)];
                let (left, right) = (a * b, c + d);
                let (word, value) = match source.below(3) {
                    0 => ("less than", left < right),
                    1 => ("greater than", left > right),
                    _ => ("at most", left <= right),
                };
                (format!("{a} * {b} is {word} {c} + {d}"), value)
            }
        };
    }
    match source.below(5) {
        0 => {
            let (text, value) = boolean(depth - 1, false, source);
            (format!("not ({text})"), !value)
        }
        op => {
            let (left, a) = boolean(depth - 1, false, source);
            let (right, b) = boolean(depth - 1, false, source);
            if op < 3 {
                (format!("({left}) and ({right})"), a && b)
            } else {
                (format!("({left}) or ({right})"), a || b)
            }
        }
    }
}

pub(crate) fn boolean_expressions(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    // There are so many expressions, each true with probability 1/2, that every set of letters is unlikely.
    let count = 7 + difficulty / 3;
    let mut lines = String::new();
    let mut right = Vec::new();
    for letter in ('A'..='Z').take(count) {
        let value = source.chance(1, 2);
        let depth = 1 + difficulty.div_ceil(2);
        let text = loop {
            let (text, found) = boolean(depth, true, source);
            if found == value {
                break text;
            }
        };
        lines += &format!("{letter}. {text}\n");
        if value {
            right.push(letter.to_string());
        }
    }
    if right.is_empty() {
        return None;
    }
    let answer = right.join(",");
    Some(Draft::boxed(answer, values![lines], json!({})))
}

const COLORS: [&str; 8] = ["red", "blue", "green", "yellow", "black", "white", "grey", "brown"];
const THINGS: [&str; 10] =
    ["cup", "scarf", "book", "lamp", "hat", "pen", "clock", "basket", "mirror", "kite"];

pub(crate) fn goods_exchange(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let people = source.sample(&words("names"), 3 + difficulty / 2);
    let n = people.len();
    let all: Vec<String> =
        COLORS.iter().flat_map(|c| THINGS.iter().map(move |t| format!("{c} {t}"))).collect();
    let goods = source.sample(&all, n);
    let mut owner: Vec<usize> = (0..n).collect();
    source.shuffle(&mut owner);
    // owner[p] is the thing of person p.
    let before = owner.clone();
    let mut steps = Vec::new();
    for _ in 0..2 + 2 * difficulty {
        let pair = source.sample(&(0..n).collect::<Vec<_>>(), 3);
        let (a, b) = (pair[0], pair[1]);
        let (p, q) = (people[a], people[b]);
        let (x, y) = (&goods[owner[a]], &goods[owner[b]]);
        match source.below(4) {
            0 => steps.push(format!("{p} and {q} exchange what they have.")),
            1 => steps.push(format!("{p} hands the {x} to {q} and gets the {y} for it.")),
            2 => steps.push(format!("Whoever has the {x} and whoever has the {y} exchange them.")),
            _ => {
                let c = pair[2];
                let r = people[c];
                steps.push(format!(
                    "{p}, {q} and {r} sit in a circle, and each passes on what they have: {p} to {q}, {q} to {r}, {r} to {p}."
                ));
                (owner[a], owner[b], owner[c]) = (owner[c], owner[a], owner[b]);
                continue;
            }
        }
        owner.swap(a, b);
    }
    let start: Vec<String> = (0..n).map(|p| format!("{} has the {}", people[p], goods[before[p]])).collect();
    let after: Vec<String> = (0..n).map(|p| format!("('{}','{}')", people[p], goods[owner[p]])).collect();
    let after = format!("({})", after.join(","));
    let owns_before: serde_json::Map<String, serde_json::Value> =
        (0..n).map(|p| (people[p].to_owned(), json!(goods[before[p]]))).collect();
    Some(Draft {
        values: values![start = start.join(", "), steps = steps.join("\n")],
        metadata: json!({
            "num_people": n, "operator_num": steps.len(), "names": people, "objects": goods, "owns_before": owns_before,
            "operations": steps, "owns_after": after, "is_chinese": false,
        }),
        solution: python_block(&after),
        answer: json!(after),
    })
}

const KINDS: [(&str, [&str; 5]); 5] = [
    ("fruit", ["apples", "pears", "plums", "lemons", "mangoes"]),
    ("animals", ["geese", "rabbits", "goats", "ponies", "ducks"]),
    ("furniture", ["chairs", "tables", "shelves", "benches", "stools"]),
    ("clothes", ["coats", "gloves", "shirts", "scarves", "socks"]),
    ("instruments", ["flutes", "drums", "violins", "guitars", "trumpets"]),
];

pub(crate) fn object_counting(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let owners = ["I", "My sister", "My uncle", "My neighbour"];
    let count = 3 + difficulty;
    let mut wanted = [0_i64; 2];
    let asked = source.sample(&KINDS, 2);
    let mut lines = Vec::new();
    for _ in 0..count {
        let (kind, items) = if source.chance(3, 4) { source.pick(&asked) } else { source.pick(&KINDS) };
        let item = source.pick(&items);
        let owner = if source.chance(3, 5) { 0 } else { 1 + source.below(owners.len() - 1) };
        let mut number = source.range(1, 60);
        let has = if owner == 0 { "have" } else { "has" };
        let mut line = format!("{} {has} {number} {item}", owners[owner]);
        for _ in 0..source.below(1 + difficulty / 3) {
            let change = source.range(1, number.max(2) - 1);
            if source.chance(1, 2) {
                number += change;
                line += &format!(", then got {change} more of them");
            } else if change < number {
                number -= change;
                line += &format!(", then gave {change} of them away");
            }
        }
        if owner == 0 {
            for (slot, (name, _)) in wanted.iter_mut().zip(&asked) {
                *slot += if *name == kind { number } else { 0 };
            }
        }
        lines.push(format!("{line}."));
    }
    let (first, second) = (asked[0].0, asked[1].0);
    let (question, answer) = match source.below(3) {
        0 => (format!("How many things that are {first} do I have now?"), wanted[0]),
        1 => (
            format!("How many things that are {first} or {second} do I have now, together?"),
            wanted[0] + wanted[1],
        ),
        _ => (
            format!(
                "By how much do the numbers of my things that are {first} and of those that are {second} differ now?"
            ),
            (wanted[0] - wanted[1]).abs(),
        ),
    };
    if answer == 0 {
        return None;
    }
    let kinds: Vec<String> =
        KINDS.iter().map(|(kind, items)| format!("{kind}: {}", items.join(", "))).collect();
    Some(Draft::boxed(
        answer,
        values![story = lines.join(" "), question, kinds = kinds.join("; ")],
        json!({"used_categories": [first, second], "language": "en"}),
    ))
}

const SIZES: [&str; 3] = ["small", "medium", "large"];
const MATERIALS: [&str; 4] = ["wooden", "glass", "metal", "paper"];

/// Things of one size, colour, material and kind, and how many there are.
type Objects = ([usize; 4], usize);

const PLURALS: [&str; 5] = ["cups", "scarves", "books", "lamps", "hats"];

fn describe(([size, color, material, thing], count): &Objects) -> String {
    format!("{count} {} {} {} {}", SIZES[*size], COLORS[*color], MATERIALS[*material], PLURALS[*thing])
}

pub(crate) fn object_properties(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let objects = |source: &mut Source<'_>| -> Objects {
        let kind = [source.below(3), source.below(4), source.below(4), source.below(5)];
        (kind, 2 + source.below(29))
    };
    let mut box_: Vec<Objects> = (0..4 + difficulty).map(|_| objects(source)).collect();
    let first = box_.iter().map(describe).collect::<Vec<_>>();
    let mut story = Vec::new();
    for _ in 0..1 + difficulty.div_ceil(2) {
        match source.below(5) {
            0 => {
                let new = objects(source);
                story.push(format!("I add {}.", describe(&new)));
                box_.push(new);
            }
            1 => {
                let a = source.below(4);
                let b = (a + 1 + source.below(3)) % 4;
                story.push(format!("I paint every {} thing {}.", COLORS[a], COLORS[b]));
                box_.iter_mut().filter(|(o, _)| o[1] == a).for_each(|(o, _)| o[1] = b);
            }
            2 => {
                let (m, s) = (source.below(4), source.below(3));
                story.push(format!("I give away everything that is both {} and {}.", SIZES[s], MATERIALS[m]));
                box_.retain(|(o, _)| o[2] != m || o[0] != s);
            }
            3 => {
                let c = source.below(4);
                story.push(format!(
                    "For every {} thing I put in another that differs only in being large.",
                    COLORS[c]
                ));
                let of_color = box_.iter().filter(|(o, _)| o[1] == c);
                let copies: Vec<Objects> = of_color.map(|(o, n)| ([2, o[1], o[2], o[3]], *n)).collect();
                box_.extend(copies);
            }
            _ => {
                let t = source.below(5);
                story.push(format!("I replace every {} by a small glass one of the same colour.", THINGS[t]));
                box_.iter_mut().filter(|(o, _)| o[3] == t).for_each(|(o, _)| (o[0], o[2]) = (0, 1));
            }
        }
        if box_.len() > 60 {
            return None;
        }
    }
    let (c, s, m) = (source.below(4), source.below(3), source.below(4));
    let count = |holds: &dyn Fn(&[usize; 4]) -> bool| {
        box_.iter().filter(|(o, _)| holds(o)).map(|(_, n)| n).sum::<usize>()
    };
    let (question, answer) = match source.below(3) {
        0 => (
            format!("How many things are {} or {}?", COLORS[c], SIZES[s]),
            count(&|o| o[1] == c || o[0] == s),
        ),
        1 => (
            format!("How many things are {} but not {}?", SIZES[s], MATERIALS[m]),
            count(&|o| o[0] == s && o[2] != m),
        ),
        _ => (
            format!("How many things are neither {} nor {}?", COLORS[c], MATERIALS[m]),
            count(&|o| o[1] != c && o[2] != m),
        ),
    };
    if answer == 0 {
        return None;
    }
    Some(Draft::boxed(
        answer,
        values![things = first.join(", "), story = story.join(" "), question],
        json!({
            "story": story, "question": question, "answer": answer, "initial_collection": first,
            "final_collection": box_.iter().map(describe).collect::<Vec<_>>(), "language": "en",
        }),
    ))
}

/// Number of yes-or-no questions per problem. With six, a guess is right once in 64 problems.
const ASKED: usize = 6;

/// Content of a person's statement.
#[derive(Clone, Copy)]
enum Claim {
    Truthful(usize, bool),
    Same(usize, usize, bool),
}

impl Claim {
    fn holds(self, world: u32) -> bool {
        let truthful = |p: usize| world >> p & 1 == 1;
        match self {
            Self::Truthful(p, value) => truthful(p) == value,
            Self::Same(p, q, value) => (truthful(p) == truthful(q)) == value,
        }
    }
}

pub(crate) fn web_of_lies(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = ASKED + 1 + difficulty / 2;
    let people = source.sample(&words("names"), n);
    let places = source.sample(&words("places"), n);
    let truth = source.below(1 << n) as u32;
    // One person is known. The statements must determine the others, so that only one of all assignments remains.
    let known = source.below(n);
    let mut worlds: Vec<u32> = (0..1 << n).filter(|w| (w >> known & 1) == (truth >> known & 1)).collect();
    let mut claims: Vec<(usize, Claim)> = Vec::new();
    while worlds.len() > 1 {
        if claims.len() > 6 * n {
            return None;
        }
        let speaker = source.below(n);
        let mut others: Vec<usize> = (0..n).filter(|p| *p != speaker).collect();
        source.shuffle(&mut others);
        let honest = truth >> speaker & 1 == 1;
        let value = |fact: bool| fact == honest;
        let is = |p: usize| truth >> p & 1 == 1;
        let claim = if difficulty > 4 && source.chance(1, 4) {
            Claim::Same(others[0], others[1], value(is(others[0]) == is(others[1])))
        } else {
            Claim::Truthful(others[0], value(is(others[0])))
        };
        worlds.retain(|world| claim.holds(*world) == (world >> speaker & 1 == 1));
        claims.push((speaker, claim));
    }
    // A person is identified by name or by place.
    let mut name = |p: usize, start: bool| match (source.chance(1, 2), start) {
        (true, _) => people[p].to_owned(),
        (false, true) => format!("The person at the {}", places[p]),
        (false, false) => format!("the person at the {}", places[p]),
    };
    let mut lines: Vec<String> = (0..n).map(|p| format!("{} is at the {}.", people[p], places[p])).collect();
    let does = |value: bool| if value { "tells the truth" } else { "lies" };
    lines.push(format!("{} {}.", name(known, true), does(truth >> known & 1 == 1)));
    for &(speaker, claim) in &claims {
        let who = name(speaker, true);
        lines.push(match claim {
            Claim::Truthful(p, value) => format!("{who} says that {} {}.", name(p, false), does(value)),
            Claim::Same(p, q, true) => {
                format!(
                    "{who} says that {} and {} either both lie or both tell the truth.",
                    name(p, false),
                    name(q, false)
                )
            }
            Claim::Same(p, q, false) => {
                format!("{who} says that exactly one of {} and {} lies.", name(p, false), name(q, false))
            }
        });
    }
    source.shuffle(&mut lines);
    let asked = source.sample(&(0..n).filter(|p| *p != known).collect::<Vec<_>>(), ASKED);
    let questions: Vec<String> =
        asked.iter().map(|p| format!("Does {} tell the truth?", people[*p])).collect();
    let answers: Vec<&str> = asked.iter().map(|p| if truth >> p & 1 == 1 { "yes" } else { "no" }).collect();
    let answer = answers.join(", ");
    Some(Draft {
        values: values![n, statements = lines.join(" "), questions = questions.join(" ")],
        metadata: json!({"num_person": n, "difficulty": difficulty, "statements": lines, "use_chinese": false}),
        solution: format!("The answer is **{answer}**."),
        answer: json!(answer),
    })
}
