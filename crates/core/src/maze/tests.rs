//! The generator's statistics and shape, and the rewards, case by case.

use super::*;
use std::collections::{HashMap, HashSet};

#[test]
fn seventeen_cells_wide_mazes_have_the_published_statistics() {
    let total = 10_000u64;
    let mut lengths: HashMap<usize, f64> = HashMap::new();
    for index in 0..total {
        let maze = generate(17, 3, index);
        assert_eq!(maze.open.iter().filter(|&&open| open).count(), 127);
        *lengths.entry(maze.solve().unwrap().len()).or_default() += 100.0 / total as f64;
    }
    // Shares in percent; five standard errors of 10,000 draws.
    for (length, share, slack) in [(28, 76.0, 2.2), (32, 20.0, 2.2), (36, 3.0, 1.3), (40, 0.3, 0.4)] {
        let actual = lengths.get(&length).copied().unwrap_or(0.0);
        assert!((actual - share).abs() < slack, "length {length}: {actual} % instead of {share} %");
    }
    let listed: f64 = [28, 32, 36, 40].iter().filter_map(|l| lengths.get(l)).sum();
    assert!(listed > 99.5, "other lengths make up {} %", 100.0 - listed);
    assert!(lengths.keys().all(|l| *l >= 28 && l % 4 == 0), "{lengths:?}");
}

#[test]
fn corridors_form_a_tree() {
    for size in [5, 7, 9, 13, 17, 21] {
        for index in 0..50 {
            let maze = generate(size, 11, index);
            // Connected and one connection fewer than cells: a tree on all open cells.
            let cells: Vec<Position> =
                (0..size).flat_map(|r| (0..size).map(move |c| (r, c))).filter(|&p| maze.is_open(p)).collect();
            let edges = cells.iter().flat_map(|&p| [Move::Right, Move::Down].map(|m| m.from(p, 1).unwrap()));
            assert_eq!(edges.filter(|&q| maze.is_open(q)).count(), cells.len() - 1);
            let mut seen = HashSet::from([maze.start()]);
            let mut stack = vec![maze.start()];
            while let Some(cell) = stack.pop() {
                for next in Move::ALL.into_iter().filter_map(|m| m.from(cell, 1)).filter(|&p| maze.is_open(p))
                {
                    if seen.insert(next) {
                        stack.push(next);
                    }
                }
            }
            assert_eq!(seen.len(), cells.len());
            let odd = ((size - 1) / 2).pow(2);
            assert_eq!(cells.len(), 2 * odd - 1);
        }
    }
}

/// Adds the number of simple paths that extend `walk` to the goal to `count`.
fn simple_paths(maze: &Maze, walk: &mut Vec<Position>, count: &mut usize) {
    let here = walk[walk.len() - 1];
    if here == maze.goal() {
        *count += 1;
        return;
    }
    for next in Move::ALL.into_iter().filter_map(|m| m.from(here, 1)) {
        if maze.is_open(next) && !walk.contains(&next) {
            walk.push(next);
            simple_paths(maze, walk, count);
            walk.pop();
        }
    }
}

#[test]
fn one_simple_path_leads_to_the_goal_and_it_is_the_target() {
    for index in 0..200 {
        let maze = generate(9, 2, index);
        let mut count = 0;
        simple_paths(&maze, &mut vec![maze.start()], &mut count);
        assert_eq!(count, 1);
        let target = maze.solve().unwrap();
        let walk = maze.walk(&target);
        assert_eq!((walk.len(), walk[target.len()]), (target.len() + 1, maze.goal()));
        assert_eq!(walk.iter().collect::<HashSet<_>>().len(), walk.len(), "no cell twice");
    }
}

#[test]
fn a_maze_depends_on_its_size_seed_and_index_alone() {
    let alone = generate(9, 5, 1_000);
    let in_order: Vec<Maze> = (0..=1_000).map(|i| generate(9, 5, i)).collect();
    assert_eq!(in_order[1_000], alone);
    assert_ne!(generate(9, 6, 1_000), alone);
    let distinct: HashSet<&Maze> = in_order.iter().collect();
    assert!(distinct.len() > 950, "{} distinct of 1,001", distinct.len());
}

/// The four 5x5 mazes come with the probabilities of randomised Prim, worked by hand.
#[test]
fn smallest_mazes_are_drawn_with_the_probabilities_of_prim() {
    let total = 20_000u64;
    let mut counts: HashMap<Maze, u64> = HashMap::new();
    for index in 0..total {
        *counts.entry(generate(5, 1, index)).or_default() += 1;
    }
    // Four cells in a ring. The first cell carved is a neighbour of the start (1/2 each), and the second the goal or the
    // other neighbour (1/2 each). The last cell is joined to either of its neighbours (1/2 each). So the only wall in
    // the ring is next to the start with probability 1/8 for each of two places, and next to the goal with 3/8 for each.
    let mut shares: Vec<f64> = counts.values().map(|&c| c as f64 / total as f64).collect();
    shares.sort_by(f64::total_cmp);
    for (actual, expected) in shares.iter().zip([0.125, 0.125, 0.375, 0.375]) {
        assert!((actual - expected).abs() < 0.018, "{shares:?}");
    }
    assert_eq!(shares.len(), 4);
}

#[test]
fn training_and_held_out_indices_never_overlap() {
    let ends = |split: Split| (split.index(0), split.index(Split::LEN - 1));
    let (train, held_out) = (ends(Split::Train), ends(Split::HeldOut));
    assert!(train.0 <= train.1 && train.1 < held_out.0 && held_out.0 <= held_out.1);
    assert!(held_out.1 < 1 << 53, "exact as a JSON number");
    for split in [Split::Train, Split::HeldOut] {
        assert!([ends(split).0, ends(split).1].iter().all(|&i| Split::of(i) == split));
    }
}

#[test]
#[should_panic(expected = "of a split that holds")]
fn index_beyond_its_split_is_a_bug() {
    Split::Train.index(Split::LEN);
}

/// The first `count` held-out mazes with one solution.
fn trees(size: usize, seed: u64, count: u64) -> HeldOut {
    HeldOut::new(Mazes { size, seed, solutions: Solutions::One }, count)
}

#[test]
fn no_held_out_maze_is_ever_trained_on() {
    let held_out = trees(9, 1, 128);
    let twins = (0..5_000).filter(|&i| held_out.contains(&generate(9, 1, Split::Train.index(i)))).count();
    assert!(twins > 20, "without the redraw there are twins: {twins}");
    for i in 0..5_000 {
        let (index, maze) = held_out.training(i).unwrap();
        assert!(!held_out.contains(&maze));
        assert_eq!((Split::of(index), generate(9, 1, index)), (Split::Train, maze));
    }
    assert_eq!(held_out.mazes()[5].1, generate(9, 1, Split::HeldOut.index(5)));
}

#[test]
fn held_out_mazes_are_all_different_and_made_from_their_indices() {
    let held_out = trees(7, 0, 128);
    let different: HashSet<&Maze> = held_out.mazes().iter().map(|(_, maze)| maze).collect();
    assert_eq!((held_out.mazes().len(), different.len()), (72, 72));
    assert!(held_out.mazes().iter().all(|(index, maze)| generate(7, 0, *index) == *maze));
    // More draws add mazes and change none.
    assert_eq!(trees(7, 0, 200).mazes()[..72], *held_out.mazes());
}

#[test]
fn grid_whose_mazes_are_all_held_out_has_no_training_maze() {
    // There are four mazes of this size; sixty draws hold them all.
    assert!(trees(5, 1, 60).training(0).is_none());
    assert!(trees(5, 1, 1).training(0).is_some());
}

const SMALL: &str = "#####\n#S  #\n### #\n#  G#\n#####\n";

#[test]
fn drawing_reads_back_as_the_same_maze() {
    let maze = generate(13, 4, 9);
    assert_eq!(Maze::from_ascii(&maze.ascii(&[])).unwrap(), maze);
    let small = Maze::from_ascii(SMALL).unwrap();
    assert_eq!(small.ascii(&small.walk(&small.solve().unwrap())), "#####\n#S..#\n###.#\n#  G#\n#####\n");
    assert!(Maze::from_ascii("####\n#  #\n#  #\n####\n").is_none(), "even size");
    assert!(Maze::from_ascii("# ###\n#   #\n### #\n#   #\n#####\n").is_none(), "open border");
}

#[test]
fn maze_without_a_way_has_no_solution() {
    assert_eq!(Maze::from_ascii("#####\n#   #\n#####\n#   #\n#####\n").unwrap().solve(), None);
}

#[test]
fn completions_are_graded_case_by_case() {
    use Grade::*;
    let maze = Maze::from_ascii(SMALL).unwrap();
    let table = [
        ("RIGHT RIGHT DOWN DOWN DONE", Correct, Correct),
        ("RIGHT RIGHT DOWN DOWN DONE UP", Correct, Correct),
        ("RIGHT RIGHT DOWN DOWN LEFT RIGHT DONE", Detour, Correct),
        ("RIGHT LEFT RIGHT RIGHT DOWN DOWN DONE", Detour, Correct),
        ("RIGHT RIGHT DOWN DOWN LEFT DONE", Detour, Correct),
        ("RIGHT RIGHT DOWN DOWN DOWN DONE", HitsWall, HitsWall),
        ("UP DONE", HitsWall, HitsWall),
        ("RIGHT RIGHT DONE", MissesGoal, MissesGoal),
        ("DONE", MissesGoal, MissesGoal),
        ("RIGHT RIGHT DOWN DOWN", NoDone, NoDone),
        ("RIGHT RIGHT DOWN DOWN <eos>", NoDone, NoDone),
        ("", NoDone, NoDone),
        ("RIGHT WALL DOWN DOWN DONE", NotAMove, NotAMove),
        ("RIGHT RIGHT DOWN DOWN <reserved_20> DONE", NotAMove, NotAMove),
    ];
    for (text, exact, reaches_goal) in table {
        let completion = tokens::read(text);
        assert_eq!(grade(&maze, &completion, Scoring::Exact), exact, "{text}");
        assert_eq!(grade(&maze, &completion, Scoring::ReachesGoal), reaches_goal, "{text}");
    }
}

#[test]
fn the_target_is_correct_and_every_other_short_completion_is_not() {
    let maze = generate(5, 8, 0);
    let target = tokens::completion(&maze.solve().unwrap());
    assert_eq!(target.len(), 5);
    let mut correct = 0;
    for code in 0..4u32.pow(4) {
        let mut completion: Vec<u32> = (0..4).map(|i| Token::Up as u32 + (code >> (2 * i)) % 4).collect();
        completion.push(Token::Done as u32);
        let grade = grade(&maze, &completion, Scoring::Exact);
        assert_eq!(grade.correct(), completion == target);
        correct += u32::from(grade.correct());
    }
    assert_eq!(correct, 1);
}

/// The settings of grids with several shortest paths in the tests.
fn grids(size: usize) -> Mazes {
    Mazes { size, seed: 4, solutions: Solutions::Many { walls: 0.3, min: 6, max: 40 } }
}

/// Every walk of a given number of moves that ends at the goal, by exhaustive search.
fn walks_to_the_goal(maze: &Maze, moves: &mut Vec<Move>, length: usize, walks: &mut HashSet<Vec<Move>>) {
    if moves.len() == length {
        let walk = maze.walk(moves);
        if walk.len() == length + 1 && walk[length] == maze.goal() {
            walks.insert(moves.clone());
        }
        return;
    }
    for step in Move::ALL {
        moves.push(step);
        if maze.walk(moves).len() == moves.len() + 1 {
            walks_to_the_goal(maze, moves, length, walks);
        }
        moves.pop();
    }
}

#[test]
fn solutions_are_all_the_shortest_walks_to_the_goal_and_each_is_correct() {
    let mazes = grids(7);
    mazes.check().unwrap();
    for index in 0..40 {
        let maze = mazes.maze(index);
        let solutions = maze.solutions();
        assert!((6..=40).contains(&solutions.len()), "{} solutions", solutions.len());
        assert_eq!(maze.solution_count(), solutions.len() as u64);
        assert_eq!(maze.solve().as_ref(), solutions.first());
        let length = maze.shortest().unwrap();
        for shorter in 0..length {
            let mut none = HashSet::new();
            if shorter >= 8 {
                walks_to_the_goal(&maze, &mut Vec::new(), shorter, &mut none);
            }
            assert!(none.is_empty());
        }
        let mut expected = HashSet::new();
        walks_to_the_goal(&maze, &mut Vec::new(), length, &mut expected);
        assert_eq!(solutions.iter().cloned().collect::<HashSet<_>>(), expected);
        for moves in &solutions {
            assert_eq!(grade(&maze, &tokens::completion(moves), Scoring::Exact), Grade::Correct);
        }
        // Longer walks reach the goal too, and earn nothing.
        let back = [solutions[0].as_slice(), &[Move::Up, Move::Down]].concat();
        let verdict = grade(&maze, &tokens::completion(&back), Scoring::Exact);
        assert!(matches!(verdict, Grade::Detour | Grade::HitsWall), "{verdict:?}");
    }
}

#[test]
fn an_open_grid_has_the_binomial_number_of_shortest_paths() {
    for (size, paths) in [(5, 6), (7, 70), (9, 924)] {
        let open =
            Mazes { size, seed: 1, solutions: Solutions::Many { walls: 0.0, min: 1, max: u64::MAX } }.maze(3);
        assert_eq!((open.solution_count(), open.solutions().len()), (paths, paths as usize));
    }
}

#[test]
fn grids_depend_on_their_index_alone_and_are_rarely_equal() {
    let mazes = grids(7);
    let some: Vec<Maze> = (0..1_000).map(|index| mazes.maze(index)).collect();
    assert_eq!(some[700], mazes.maze(700));
    let distinct: HashSet<&Maze> = some.iter().collect();
    assert!(distinct.len() > 900, "{} distinct of 1,000", distinct.len());
}

#[test]
fn distributions_without_mazes_are_refused_before_one_is_drawn() {
    let mazes =
        |size, walls, min, max| Mazes { size, seed: 1, solutions: Solutions::Many { walls, min, max } };
    let refused = [
        mazes(6, 0.1, 1, 9),
        mazes(7, 1.0, 1, 9),
        mazes(7, f64::NAN, 1, 9),
        mazes(7, -0.1, 1, 9),
        mazes(7, 0.1, 0, 9),
        mazes(7, 0.1, 9, 6),
        // An interior of five by five has at most 70 shortest paths.
        mazes(7, 0.1, 71, 90),
        mazes(7, 0.9, 6, 40),
    ];
    for mazes in refused {
        assert!(mazes.check().is_err(), "{mazes:?}");
    }
}
