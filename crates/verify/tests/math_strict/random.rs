//! A seeded generator of choices, so that every run makes the same cases.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// An integer from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low + 1) as u64) as i64
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[(self.next() % items.len() as u64) as usize].clone()
    }

    pub(crate) fn shuffled<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        let mut items = items.to_vec();
        for last in (1..items.len()).rev() {
            items.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
        items
    }
}

/// A case: its class, a gold and a response.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) class: &'static str,
    pub(crate) gold: String,
    pub(crate) response: String,
}

/// The answer at the end of a solution, in a box.
pub(crate) fn in_a_box(random: &mut Random, answer: &str) -> String {
    match random.between(0, 5) {
        0 => format!("\\boxed{{{answer}}}"),
        1 => format!("So the answer is $\\boxed{{{answer}}}$."),
        2 => format!("We add both sides.\n\n\\[\n\\boxed{{{answer}}}\n\\]"),
        3 => format!("First $a+b=17$. **Final answer:** \\(\\boxed{{{answer}}}\\)"),
        4 => format!("Step 2 gives $c=3$, thus\n$$\\boxed{{{answer}}}$$\nas wanted."),
        _ => format!("Therefore $x$ is known, and the final answer is \\boxed{{{answer}}}."),
    }
}
