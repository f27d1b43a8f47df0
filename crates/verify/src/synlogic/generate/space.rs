//! Generators of walks and trees: space_reasoning and space_reasoning_tree.

use serde_json::json;

use super::{Draft, Source, values, words};

const DIRECTIONS: [(&str, i64, i64); 4] =
    [("north", 0, 1), ("south", 0, -1), ("east", 1, 0), ("west", -1, 0)];

fn steps(count: i64, direction: &str) -> String {
    if count == 1 { format!("one step {direction}") } else { format!("{count} steps {direction}") }
}

pub(crate) fn space_reasoning(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let side = 3 + difficulty as i64 / 2;
    let found = 3 + difficulty;
    let items = source.sample(&words("things"), found);
    let mut at = (source.range(0, side - 1), source.range(0, side - 1));
    let mut places = vec![(at, items[0])];
    let mut story = vec![format!("you see the {}", items[0])];
    for item in &items[1..] {
        let mut moves = Vec::new();
        for _ in 0..100 {
            let (name, dx, dy) = source.pick(&DIRECTIONS);
            let count = source.range(1, 2);
            let next = (at.0 + dx * count, at.1 + dy * count);
            if (0..side).contains(&next.0) && (0..side).contains(&next.1) {
                at = next;
                moves.push(steps(count, name));
                if places.iter().all(|(p, _)| *p != at) {
                    break;
                }
            }
        }
        if places.iter().any(|(p, _)| *p == at) || moves.len() > 12 {
            return None;
        }
        places.push((at, item));
        story.push(format!("you go {} and see the {item}", moves.join(", then ")));
    }
    let here = at;
    // From where the walk ended, or from something seen, to another place.
    let (start, from) = if source.chance(1, 2) {
        (here, "From where you are now".to_owned())
    } else {
        let (place, item) = source.pick(&places);
        (place, format!("From where the {item} is"))
    };
    let target = if source.chance(1, 60) {
        (source.range(0, side - 1), source.range(0, side - 1))
    } else {
        places[source.below(places.len())].0
    };
    if target == start {
        return None;
    }
    let mut legs = Vec::new();
    let (dx, dy) = (target.0 - start.0, target.1 - start.1);
    let (split_x, split_y) =
        (if dx == 0 { 0 } else { source.range(-1, 1) }, if dy == 0 { 0 } else { source.range(-1, 1) });
    for (d, horizontal) in [(split_x, true), (split_y, false), (dx - split_x, true), (dy - split_y, false)] {
        let name = match (horizontal, d > 0) {
            (true, true) => "east",
            (true, false) => "west",
            (false, true) => "north",
            (false, false) => "south",
        };
        if d != 0 {
            legs.push(steps(d.abs(), name));
        }
    }
    let answer = places.iter().find(|(p, _)| *p == target).map_or("unknown", |(_, item)| item);
    Some(Draft::boxed(
        answer,
        values![story = story.join("; "), from, legs = legs.join(", then ")],
        json!({"shape": "build_square_network", "language": "en", "num_waypoints": found, "n": side}),
    ))
}

pub(crate) fn space_reasoning_tree(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let count = 6 + 4 * difficulty;
    let names = source.sample(&words("things"), count);
    let mut parent: Vec<Option<usize>> = vec![None];
    for node in 1..count {
        // Parents with room, the early ones first, so that the tree is neither a line nor a star.
        let room: Vec<usize> =
            (0..node).filter(|p| parent.iter().filter(|q| **q == Some(*p)).count() < 4).collect();
        parent.push(Some(room[source.below(room.len().min(5))]));
    }
    let children = |p: usize| (0..count).filter(|c| parent[*c] == Some(p)).collect::<Vec<_>>();
    let mut lines: Vec<String> = (0..count)
        .filter(|p| !children(*p).is_empty())
        .map(|p| {
            let list = children(p).iter().map(|c| names[*c]).collect::<Vec<_>>().join(", ");
            format!("The children of {} are: {list}.", names[p])
        })
        .collect();
    source.shuffle(&mut lines);
    let node = source.below(count);
    let grandparent = parent[node].and_then(|p| parent[p]);
    let depth = |mut n: usize| {
        let mut depth = 0;
        while let Some(p) = parent[n] {
            n = p;
            depth += 1;
        }
        depth
    };
    let siblings = |n: usize| -> Vec<usize> {
        parent[n].map_or(Vec::new(), |p| children(p).into_iter().filter(|c| *c != n).collect())
    };
    let of_parent = || parent[node].map_or(Vec::new(), siblings);
    let (relation, found): (&str, Vec<usize>) = match source.below(5) {
        0 => ("siblings (others with the same parent)", siblings(node)),
        1 => (
            "cousins (those with the same grandparent but another parent)",
            of_parent().into_iter().flat_map(children).collect(),
        ),
        2 => ("grandchildren", children(node).into_iter().flat_map(children).collect()),
        3 => ("grandparent", grandparent.into_iter().collect()),
        _ => ("uncles and aunts (siblings of the parent)", of_parent()),
    };
    if found.is_empty() && source.chance(39, 40) {
        return None;
    }
    let mut answer: Vec<&str> = found.iter().map(|n| names[*n]).collect();
    answer.sort_unstable();
    let answer = if answer.is_empty() { "unknown".to_owned() } else { answer.join(", ") };
    Some(Draft::boxed(
        answer,
        values![lines = lines.join("\n"), relation, thing = names[node]],
        json!({
            "language": "en", "num_nodes": count, "depth": (0..count).map(depth).max(), "asked": names[node],
        }),
    ))
}
