//! Times attention on tensor cores, forward and backward, beside the plain kernels: on one long sequence, and on a prompt with many completions.
//!
//! Prints one JSON object per line. Run by `scripts/gpu/check`; `--small` is a check of this program. Results are compared with their definition by the
//! test `kernels`, not here.

use std::sync::Arc;
use std::time::Instant;

use fgrpo_cuda::{Argument, Command, Driver, Gpu, Launch, Memory, Shape};

/// The bit of a piece whose queries see keys only up to their own row.
const CAUSAL: u32 = 1 << 31;
/// Queries or keys of a tile.
const TILE: usize = 64;

/// A prompt and its completions, all tokens as queries.
struct Group {
    prompt: usize,
    completions: usize,
    len: usize,
}

impl Group {
    fn tokens(&self) -> usize {
        self.prompt + self.completions * self.len
    }

    /// Pairs of a query and a key that it sees.
    fn pairs(&self) -> usize {
        let own = |len: usize| len * (len + 1) / 2;
        own(self.prompt) + self.completions * (self.len * self.prompt + own(self.len))
    }

    /// (first key, last key, first query, last query), the queries' last with the causal bit.
    fn pieces(&self) -> Vec<[u32; 4]> {
        let (p, all) = (self.prompt as u32, self.tokens() as u32);
        let mut pieces = vec![[0, p, 0, p | CAUSAL]];
        if self.completions > 0 {
            pieces.push([0, p, p, all]);
        }
        for completion in 0..self.completions {
            let first = (self.prompt + completion * self.len) as u32;
            let last = first + self.len as u32;
            pieces.push([first, last, first, last | CAUSAL]);
        }
        pieces
    }

    /// The start of each tile's pieces, and the pieces, by queries or by keys.
    fn tiles(&self, by_keys: bool) -> (Vec<u32>, Vec<[u32; 4]>) {
        let (mut first, mut list) = (vec![0], Vec::new());
        for tile in 0..self.tokens().div_ceil(TILE) {
            let (from, to) = ((tile * TILE) as u32, ((tile + 1) * TILE) as u32);
            let [a, b] = if by_keys { [0, 1] } else { [2, 3] };
            list.extend(self.pieces().into_iter().filter(|p| p[a] < to && p[b] & !CAUSAL > from));
            first.push(list.len() as u32);
        }
        (first, list)
    }
}

/// The shortest of a few times in seconds, after a warm-up run.
fn seconds(driver: &Arc<dyn Driver>, repeats: usize, work: impl Fn()) -> f64 {
    let once = |_| {
        let clock = Instant::now();
        work();
        driver.synchronize().expect("the device works");
        clock.elapsed().as_secs_f64()
    };
    (0..=repeats).map(once).skip(1).fold(f64::INFINITY, f64::min)
}

fn time(
    driver: &Arc<dyn Driver>,
    repeats: usize,
    name: &str,
    group: &Group,
    heads: usize,
    key_heads: usize,
    size: usize,
) {
    let tokens = group.tokens();
    let random = |count: usize| {
        // Of size 1, in bf16.
        let number = |i: usize| 0x3f00 | (i.wrapping_mul(0x9e37_79b9) >> 20 & 0x807f) as u16;
        Memory::from(driver, &(0..count).map(number).collect::<Vec<u16>>()).expect("memory")
    };
    let (q, kv, dout) =
        (random(tokens * heads * size), random(tokens * 2 * key_heads * size), random(tokens * heads * size));
    let same = |of: &Memory<u16>| Memory::<u16>::new(driver, of.len()).expect("memory");
    let (out, dq, dkv) = (same(&q), same(&q), same(&kv));
    let [lse, delta] = [0; 2].map(|_| Memory::<f32>::new(driver, tokens * heads).expect("memory"));
    let rows = Memory::from(driver, &(0..tokens as u32).collect::<Vec<_>>()).expect("memory");
    let [by_query, by_key] = [false, true].map(|by_keys| {
        let (first, pieces) = group.tiles(by_keys);
        (Memory::from(driver, &first).expect("memory"), Memory::from(driver, &pieces).expect("memory"))
    });
    let plan = |(first, pieces): &(Memory<u32>, Memory<[u32; 4]>)| -> Vec<Argument> {
        // There is no window, so positions aren't read.
        let (rows, all) = (Argument::from(&rows), u32::MAX.into());
        vec![rows, first.into(), pieces.into(), rows, all, (&q).into(), (&kv).into()]
    };
    let saved = |to: &Memory<u16>| vec![(&lse).into(), (&delta).into(), (&dout).into(), to.into()];
    let sizes = |plain: bool| {
        let mut sizes: Vec<Argument> = vec![(heads as u32).into(), (key_heads as u32).into()];
        sizes.extend(plain.then_some(Argument::U32(size as u32)));
        sizes.extend([Argument::U32(tokens as u32), Argument::F32(1.0 / (size as f32).sqrt())]);
        sizes
    };
    let of = |base: [&'static str; 3]| if size == 64 { base[1] } else { base[2] };
    let forward = of(["", "attention_bf16_64", "attention_bf16_128"]);
    let for_dq = of(["", "attention_dq_bf16_64", "attention_dq_bf16_128"]);
    let for_dkv = of(["", "attention_dkv_bf16_64", "attention_dkv_bf16_128"]);
    let launch = |kernel: &'static str, shape: Shape, arguments: Vec<Argument>| {
        driver.submit(&Command::Launch(Launch { kernel, shape, arguments })).expect(kernel);
    };
    // In this order each has what it reads.
    for (kernel, plain, per_row, held, more, products, arguments) in [
        (
            forward,
            "attention_bf16",
            heads,
            3,
            0,
            2.0,
            [plan(&by_query), vec![(&out).into(), (&lse).into()]].concat(),
        ),
        (for_dq, "attention_dq_bf16", heads, 4, 0, 3.0, [plan(&by_query), saved(&dq)].concat()),
        (
            for_dkv,
            "attention_dkv_bf16",
            key_heads,
            4,
            4 * TILE * 4,
            4.0,
            [plan(&by_key), saved(&dkv)].concat(),
        ),
    ] {
        let shared = (held * TILE * (size + 8) * 2 + more) as u32;
        let shape = Shape { grid: [tokens.div_ceil(TILE) as u32, per_row as u32, 1], threads: 128, shared };
        let arguments = |plain: bool| [&arguments[..], &sizes(plain)].concat();
        let ours = seconds(driver, repeats, || launch(kernel, shape, arguments(false)));
        let shape = Shape::of((tokens * per_row).div_ceil(4), 128, 0);
        let slow = seconds(driver, 1, || launch(plain, shape, arguments(true)));
        let flops = 2.0 * products * (group.pairs() * heads * size) as f64;
        println!(
            "{{\"what\": \"attention\", \"shape\": \"{name}\", \"kernel\": \"{kernel}\", \"seconds\": {ours:.3e}, \"flops\": {:.3e}, \"seconds_of_plain\": {slow:.3e}}}",
            flops / ours
        );
        if kernel == forward {
            let count = tokens * heads;
            let arguments = vec![
                (&out).into(),
                (&dout).into(),
                (&delta).into(),
                (size as u32).into(),
                (count as u32).into(),
            ];
            launch("attention_delta_bf16", Shape::of(count.div_ceil(4), 128, 0), arguments);
        }
    }
}

fn main() {
    let driver: Arc<dyn Driver> = match Gpu::open(0, None) {
        Ok(gpu) => Arc::new(gpu),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    if std::env::args().any(|argument| argument == "--small") {
        time(&driver, 1, "small", &Group { prompt: 70, completions: 2, len: 20 }, 2, 1, 64);
        return;
    }
    let sequence = Group { prompt: 4096, completions: 0, len: 0 };
    let group = Group { prompt: 1024, completions: 16, len: 256 };
    for size in [64, 128] {
        time(&driver, 5, "one sequence of 4096, 16 heads over 8", &sequence, 16, 8, size);
        time(&driver, 5, "1024 tokens and 16 x 256, 16 heads over 8", &group, 16, 8, size);
    }
}
