//! The maze's vocabulary of 32 tokens: prompts, targets, and parsing of completions.

use std::sync::LazyLock;

use super::{Maze, Move};

/// A token of the vocabulary. The discriminant is the token id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Token {
    /// Unused.
    Pad = 0,
    /// Begins a prompt.
    Bos = 1,
    /// Stops sampling like [`Token::Done`], but a completion without DONE isn't correct.
    Eos = 2,
    /// Unused.
    Unknown = 3,
    /// Precedes the first row.
    GridStart = 4,
    /// Follows the last row.
    GridEnd = 5,
    /// Ends the prompt; the moves follow.
    PathStart = 6,
    /// Ends the moves.
    Done = 7,
    /// A free cell.
    Path = 8,
    /// A wall.
    Wall = 9,
    /// The goal cell.
    Goal = 10,
    /// The start cell.
    Start = 11,
    /// Ends a row.
    Newline = 12,
    /// Move to the row above.
    Up = 13,
    /// Move to the row below.
    Down = 14,
    /// Move to the column before.
    Left = 15,
    /// Move to the column after.
    Right = 16,
}

/// The spelling of every token, indexed by token id. Ids from 17 on are reserved.
pub static VOCABULARY: LazyLock<Vec<&str>> = LazyLock::new(|| {
    const WORDS: &str = "<pad> <bos> <eos> <unk> GRID_START GRID_END PATH_START DONE PATH WALL GOAL START NEWLINE UP DOWN \
        LEFT RIGHT <reserved_17> <reserved_18> <reserved_19> <reserved_20> <reserved_21> <reserved_22> <reserved_23> \
        <reserved_24> <reserved_25> <reserved_26> <reserved_27> <reserved_28> <reserved_29> <reserved_30> <reserved_31>";
    WORDS.split(' ').collect()
});

/// The tokens that end a completion.
pub const STOP: [u32; 2] = [Token::Done as u32, Token::Eos as u32];

impl From<Move> for Token {
    fn from(step: Move) -> Self {
        match step {
            Move::Up => Self::Up,
            Move::Down => Self::Down,
            Move::Left => Self::Left,
            Move::Right => Self::Right,
        }
    }
}

/// Returns the move that a token denotes, or `None` if the token isn't a move.
pub fn as_move(token: u32) -> Option<Move> {
    Move::ALL.into_iter().find(|&m| Token::from(m) as u32 == token)
}

/// Returns the number of tokens of a prompt for mazes of this size, for example 310 at size 17.
pub const fn prompt_len(size: usize) -> usize {
    size * (size + 1) + 4
}

/// Returns the prompt: `<bos> GRID_START`, the cells of each row and NEWLINE, `GRID_END PATH_START`.
pub fn prompt(maze: &Maze) -> Vec<u32> {
    let mut tokens = Vec::with_capacity(prompt_len(maze.size()));
    tokens.extend([Token::Bos as u32, Token::GridStart as u32]);
    for row in 0..maze.size() {
        tokens.extend((0..maze.size()).map(|column| maze.cell((row, column)) as u32));
        tokens.push(Token::Newline as u32);
    }
    tokens.extend([Token::GridEnd as u32, Token::PathStart as u32]);
    tokens
}

/// Returns the completion for these moves: the tokens of the moves and DONE.
pub fn completion(moves: &[Move]) -> Vec<u32> {
    moves.iter().map(|&m| Token::from(m) as u32).chain([Token::Done as u32]).collect()
}

/// Returns the moves at the start of a completion, up to the first token that isn't a move.
pub fn moves(completion: &[u32]) -> Vec<Move> {
    completion.iter().map_while(|&t| as_move(t)).collect()
}

/// Returns the spellings of the tokens, separated by spaces. An id outside the vocabulary is spelled `<unk>`.
pub fn spell(tokens: &[u32]) -> String {
    let word = |&t: &u32| VOCABULARY.get(t as usize).copied().unwrap_or(VOCABULARY[Token::Unknown as usize]);
    tokens.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Parses the output of [`spell`]. Words outside the vocabulary become `<unk>`.
pub fn read(text: &str) -> Vec<u32> {
    let id =
        |word: &str| VOCABULARY.iter().position(|v| *v == word).unwrap_or(Token::Unknown as usize) as u32;
    text.split_whitespace().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maze::generate;

    #[test]
    fn prompt_has_the_specified_length_and_order() {
        assert_eq!(prompt(&generate(17, 1, 0)).len(), 310);
        let maze = Maze::from_ascii("#####\n#   #\n### #\n#   #\n#####\n").unwrap();
        let expected = "<bos> GRID_START WALL WALL WALL WALL WALL NEWLINE WALL START PATH PATH WALL NEWLINE \
                      WALL WALL WALL PATH WALL NEWLINE WALL PATH PATH GOAL WALL NEWLINE \
                      WALL WALL WALL WALL WALL NEWLINE GRID_END PATH_START";
        assert_eq!(spell(&prompt(&maze)), expected);
        assert_eq!(prompt(&maze).len(), prompt_len(5));
        assert_eq!(read(expected), prompt(&maze));
    }

    #[test]
    fn token_numbers_are_those_of_the_vocabulary() {
        let numbered =
            [(Token::Pad, 0), (Token::Done, 7), (Token::Wall, 9), (Token::Start, 11), (Token::Right, 16)];
        for (token, number) in numbered {
            assert_eq!(token as u32, number);
        }
        assert_eq!(VOCABULARY[Token::Newline as usize], "NEWLINE");
        assert_eq!(VOCABULARY[Token::Up as usize..=Token::Right as usize], ["UP", "DOWN", "LEFT", "RIGHT"]);
        let mut words = VOCABULARY.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 32);
    }

    #[test]
    fn moves_read_back_from_a_completion() {
        let path = [Move::Down, Move::Right, Move::Up, Move::Left];
        assert_eq!(completion(&path), [14, 16, 13, 15, 7]);
        assert_eq!(moves(&completion(&path)), path);
        assert_eq!(moves(&[14, 99, 16]), [Move::Down]);
        assert_eq!((spell(&[14, 99]), read("UP nowhere")), ("DOWN <unk>".into(), vec![13, 3]));
    }
}
