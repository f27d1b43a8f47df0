//! Generators of tables and timetables: buggy_tables and time_sequence.

use serde_json::json;

use super::{Draft, Source, values};

const COLUMNS: [&str; 6] = ["price", "weight", "stock", "rating", "sales", "returns"];

pub(crate) fn buggy_tables(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let rows = 4 + 2 * difficulty;
    let columns = 3 + difficulty / 4;
    let names = source.sample(&COLUMNS, columns);
    let original: Vec<Vec<i64>> =
        (0..rows).map(|_| (0..columns).map(|_| source.range(1, 99)).collect()).collect();
    let mut buggy = original.clone();
    // Damage the table, and describe the damage in words.
    let told = match source.below(4) {
        0 => {
            let (column, by, every) = (source.below(columns), source.range(2, 20), 2 + source.below(2));
            buggy.iter_mut().skip(every - 1).step_by(every).for_each(|row| row[column] += by);
            let name = names[column];
            format!("in every {}, counted from the first, {by} was added to {name}", ordinal(every))
        }
        1 => {
            let pair = source.sample(&(0..columns).collect::<Vec<_>>(), 2);
            buggy.iter_mut().for_each(|row| row.swap(pair[0], pair[1]));
            let (first, second) = (names[pair[0]], names[pair[1]]);
            format!("the values of {first} and {second} were exchanged in every row, the headings were not")
        }
        2 => {
            let column = source.below(columns);
            buggy.iter_mut().zip(original.iter().rev()).for_each(|(row, other)| row[column] = other[column]);
            let name = names[column];
            format!("the values of {name} were written in reverse order, the last row's in the first row")
        }
        _ => {
            let column = source.below(columns);
            buggy.iter_mut().for_each(|row| row[column] = 100 - row[column]);
            format!("each value of {} was replaced by 100 minus it", names[column])
        }
    };
    let asked = source.sample(&(0..columns).collect::<Vec<_>>(), 3);
    let [first, second, third] = [0, 1, 2].map(|i| names[asked[i]]);
    let limit = source.range(20, 70);
    let chosen: Vec<&Vec<i64>> = original.iter().filter(|row| row[asked[2]] > limit).collect();
    if chosen.is_empty() {
        return None;
    }
    let column = |c: usize| chosen.iter().map(|row| row[c]).collect::<Vec<i64>>();
    let (a, b) = (column(asked[0]), column(asked[1]));
    // The largest values are chosen rarely, because they seldom differ by much.
    let (statistic, difference, over) = match source.below(8) {
        0..=2 => ("mean", (a.iter().sum::<i64>() - b.iter().sum::<i64>()).abs(), chosen.len() as i64),
        3..=6 => ("sum", (a.iter().sum::<i64>() - b.iter().sum::<i64>()).abs(), 1),
        _ => ("largest value", (a.iter().max()? - b.iter().max()?).abs(), 1),
    };
    // The result is rounded to hundredths. A tie is avoided, because its rounding would be a matter of convention.
    let (whole, rest) = (difference * 100 / over, difference * 100 % over);
    if rest * 2 == over {
        return None;
    }
    let hundredths = whole + i64::from(rest * 2 > over);
    let answer = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    let shown = std::iter::once(format!("| {} |", names.join(" | ")))
        .chain(
            buggy
                .iter()
                .map(|row| format!("| {} |", row.iter().map(i64::to_string).collect::<Vec<_>>().join(" | "))),
        )
        .collect::<Vec<_>>()
        .join("\n");
    Some(Draft::plain(
        &answer,
        values![told, shown, third, limit, statistic, first, second],
        json!({
            "num_rows": rows, "bug_description": told, "original_table": original, "buggy_table": buggy,
            "target_answer": answer,
        }),
    ))
}

fn ordinal(n: usize) -> &'static str {
    if n == 2 { "second row" } else { "third row" }
}

const WORKERS: [&str; 8] = ["Anna", "Bruno", "Celia", "Dario", "Emma", "Fritz", "Gina", "Henri"];
const DAYS: [&str; 5] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"];
/// Minutes from 9:00 to 17:00.
const MINUTES: usize = 480;

fn clock(minute: usize) -> String {
    let minutes = 9 * 60 + minute;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

pub(crate) fn time_sequence(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let people = source.sample(&WORKERS, 2 + difficulty.div_ceil(3));
    let days = (2 + difficulty / 3).min(5);
    let mut free = vec![[true; MINUTES]; days];
    let mut text = String::new();
    let mut schedule = serde_json::Map::new();
    for person in &people {
        text += &format!("{person}:\n");
        let mut week = serde_json::Map::new();
        for (day, free) in free.iter_mut().enumerate() {
            // Cut points in order, taken by pairs.
            let count = 1 + source.below(2 + difficulty / 3);
            let mut cuts = source.sample(&(0..=MINUTES).collect::<Vec<_>>(), 2 * count);
            cuts.sort_unstable();
            let spans: Vec<(usize, usize)> = cuts.chunks(2).map(|c| (c[0], c[1])).collect();
            let busy = source.chance(3, 5);
            for (minute, open) in free.iter_mut().enumerate() {
                let inside = spans.iter().any(|(a, b)| (*a..*b).contains(&minute));
                *open &= inside != busy;
            }
            let list: Vec<String> =
                spans.iter().map(|(a, b)| format!("{} - {}", clock(*a), clock(*b))).collect();
            let word = if busy { "busy" } else { "free only" };
            text += &format!("  {}: {word} {}\n", DAYS[day], list.join(", "));
            week.insert(DAYS[day].to_owned(), json!([word, spans]));
        }
        schedule.insert((*person).to_owned(), json!(week));
    }
    // Starts at full or half hours, each with the time that is then free for all.
    let mut longest = 0;
    let mut count = 0;
    for free in &free {
        for start in (0..MINUTES).step_by(30) {
            let length = free[start..].iter().take_while(|f| **f).count();
            if length > longest {
                (longest, count) = (length, 0);
            }
            count += usize::from(length == longest && length > 0);
        }
    }
    // Times up to the end of a day are whole half hours, which would be too common.
    if (longest == 0 && source.chance(39, 40)) || (longest % 30 == 0 && source.chance(3, 4)) {
        return None;
    }
    let answer = [longest, count];
    Some(Draft {
        values: values![people = people.join(", "), days = DAYS[..days].join(", "), text],
        metadata: json!({
            "n": people.len(), "rule_prob": 0.5,
            "records": {
                "raw_schedule": schedule, "answers": {"answer_maxLen": answer[0], "answer_nums": answer[1]},
            },
        }),
        solution: format!("[{}, {}]", answer[0], answer[1]),
        answer: json!(answer),
    })
}
