//! Damages strings and bytes, as a stream of random numbers decides.

/// A small generator (splitmix64), seeded with the number of the case.
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(number: u64) -> Self {
        Self(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }

    pub(crate) fn number(&mut self) -> &'static str {
        let numbers: Vec<&str> = NUMBERS.split(' ').collect();
        numbers[self.below(numbers.len())]
    }

    pub(crate) fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// Numbers at and beyond the limits of every type.
const NUMBERS: &str = "0 1 2 3 5 -1 0.5 -0.0 127 255 1000 65536 65537 1000000 16777216 2147483647 4294967296 1000000000 \
    1000000000000 9007199254740993 9223372036854775807 18446744073709551615 18446744073709551616 -9223372036854775808 1e308 -1e308 1e-320 1e999 nan inf";

const PIECES: [&str; 24] = [
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"x\"",
    "[[",
    "}",
    "\n",
    "\0",
    "\u{feff}",
    "\u{1f642}",
    "\\",
    "\"",
    "'",
    ",",
    "=",
    "#",
    "{{",
    "%}",
    "../../etc",
    "\u{202e}",
    "NaN",
    "-",
];

/// Damages bytes. In a text, mostly its numbers, quotes and lines.
pub(crate) fn damage(bytes: &[u8], draws: &mut Draws) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=draws.below(3) {
        bytes = once(bytes, draws);
    }
    bytes
}

fn once(mut bytes: Vec<u8>, draws: &mut Draws) -> Vec<u8> {
    let at = draws.below(bytes.len() + 1);
    let length = 1 + draws.below(16).pow(2);
    let end = (at + length).min(bytes.len());
    match draws.below(14) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let piece = bytes[at..end].to_vec();
            let to = draws.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        3 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << draws.below(8)),
        4 => bytes.iter_mut().skip(at).take(8).for_each(|b| *b = draws.bits() as u8),
        5 => bytes[at..end].fill(0xff),
        6 | 7 => {
            let piece = draws.of(&PIECES).as_bytes().to_vec();
            bytes.splice(at..at, piece);
        }
        8 => {
            let piece = draws.of(&["[", "{\"a\":", "(", "{%", "\"", "x"]).repeat(1 << draws.below(18));
            bytes.splice(at..at, piece.into_bytes());
        }
        9 => bytes.clear(),
        _ => number(&mut bytes, draws),
    }
    bytes
}

/// Replaces a number in the text by an extreme one.
fn number(bytes: &mut Vec<u8>, draws: &mut Draws) {
    let starts: Vec<usize> = (0..bytes.len())
        .filter(|&i| bytes[i].is_ascii_digit() && (i == 0 || !bytes[i - 1].is_ascii_alphanumeric()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = *draws.of(&starts);
    let end = bytes[start..]
        .iter()
        .position(|b| !(b.is_ascii_digit() || b".eE+-_".contains(b)))
        .map_or(bytes.len(), |n| start + n);
    bytes.splice(start..end, draws.number().bytes());
}
