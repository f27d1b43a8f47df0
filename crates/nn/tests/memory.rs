//! Computed memory needs compared with the allocated memory, which a counting allocator measures.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fgrpo_nn::config::{Architecture, Config, GatedDeltaNet, Gemma4, LayerType, RopeScaling};
use fgrpo_nn::{
    AdamW, BaseFormat, Batch, Device, Engine, LoraConfig, Needs, ProductFormat, Prompt, Sampling, Workload,
};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

impl Counting {
    fn more(bytes: usize) {
        MOST.fetch_max(HELD.fetch_add(bytes, Relaxed) + bytes, Relaxed);
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::more(layout.size());
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // In place, as the system resizes large blocks, so both blocks never exist together.
        HELD.fetch_sub(layout.size(), Relaxed);
        Counting::more(size);
        // SAFETY: the caller's promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn config(vocab_size: usize, num_hidden_layers: usize) -> Config {
    Config {
        architecture: Architecture::Qwen3,
        vocab_size,
        hidden_size: 128,
        intermediate_size: 352,
        num_hidden_layers,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 32,
        rms_norm_eps: 1e-6,
        rope_theta: 1e6,
        rope_scaling: RopeScaling::Default,
        tie_word_embeddings: true,
        max_position_embeddings: 512,
        bos_token_id: None,
        eos_token_id: vec![],
        pad_token_id: None,
        ..Config::default()
    }
}

/// Qwen3.5 with one layer of attention in four.
fn recurrent() -> Config {
    let (linear, full) = (LayerType::LinearAttention, LayerType::FullAttention);
    Config {
        architecture: Architecture::Qwen3_5Text,
        layer_types: vec![linear, linear, full, linear],
        partial_rotary_factor: Some(0.25),
        linear_attention: Some(GatedDeltaNet {
            linear_conv_kernel_dim: 4,
            linear_key_head_dim: 32,
            linear_value_head_dim: 32,
            linear_num_key_heads: 2,
            linear_num_value_heads: 4,
        }),
        ..config(512, 4)
    }
}

/// Gemma 4 with per-layer inputs and borrowed keys and values.
fn gemma4() -> Config {
    let (sliding, full) = (LayerType::SlidingAttention, LayerType::FullAttention);
    Config {
        architecture: Architecture::Gemma4Text,
        layer_types: vec![sliding, full, sliding, full, sliding, full],
        sliding_window: Some(64),
        rope_local_base_freq: Some(1e4),
        gemma4: Some(Gemma4 {
            global_head_dim: 64,
            num_global_key_value_heads: 2,
            attention_k_eq_v: false,
            num_kv_shared_layers: 2,
            use_double_wide_mlp: true,
            hidden_size_per_layer_input: 32,
            vocab_size_per_layer_input: 512,
            final_logit_softcapping: Some(30.0),
        }),
        ..config(512, 6)
    }
}

/// A workload whose batches fill the chunks of all threads.
fn workload(threads: usize, checkpointing: bool, lora: Option<LoraConfig>) -> Workload {
    Workload {
        threads,
        products: ProductFormat::F32,
        gpu: None,
        chunk_tokens: 1024,
        checkpointing,
        optimizer_offload: false,
        lora,
        base: None,
        family_tokens: 250,
        predicting_rows: 50,
        prompts: 12,
        prompt_tokens: 200,
        samples: 240,
        new_tokens: 40,
        max_cached_tokens: None,
    }
}

/// Trains and generates twice; returns the peak of additional bytes.
fn run(config: &Config, w: &Workload) -> usize {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let number = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as f64 / f64::from(u32::MAX) - 0.5;
    let device = Device::Cpu { threads: w.threads, products: w.products };
    let mut engine = Engine::init_with_base(config, 0.02, &number, w.base, &device).unwrap();
    engine.set_chunk_tokens(w.chunk_tokens);
    engine.set_checkpointing(w.checkpointing);
    if let Some(lora) = &w.lora {
        engine.adapt(lora, &mut || 0.5).unwrap();
    }
    let mut batch = Batch::default();
    // At most two teams of threads share a batch; ten families are more than a chunk holds.
    for _ in 0..10 * w.threads.min(2) {
        let tokens: Vec<u32> = (0..w.family_tokens as u32).map(|t| t % config.vocab_size as u32).collect();
        batch.push_segment(&tokens, None);
        for row in batch.tokens.len() - w.predicting_rows..batch.tokens.len() {
            batch.predict(row, 1);
        }
    }
    let prompt: Vec<u32> = (0..w.prompt_tokens as u32).map(|t| t % config.vocab_size as u32).collect();
    let each = w.samples / w.prompts;
    let prompts: Vec<Prompt<'_>> =
        (0..w.prompts).map(|_| Prompt { tokens: &prompt, samples: 0..each }).collect();
    let sampling = Sampling { max_new_tokens: w.new_tokens, ..Sampling::default() };
    let uniform =
        |p: usize, s: usize, t: usize| ((p * 7919 + s * 104_729 + t * 31 + 17) % 9973) as f64 / 9973.0;
    for _ in 0..2 {
        engine.generate(&prompts, &sampling, &uniform, None, &mut |_| ControlFlow::Continue(())).unwrap();
        engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(1e-3)).unwrap();
        assert!(engine.update(&AdamW::default(), Some(1.0)).unwrap().applied);
    }
    MOST.load(Relaxed) - before
}

/// A single test, because the counters belong to the process.
#[test]
fn computed_needs_are_what_is_allocated_within_15_percent() {
    for (name, config, w) in [
        ("activations", config(512, 6), workload(2, false, None)),
        ("checkpointing", config(512, 6), workload(2, true, None)),
        ("weights", config(40_000, 2), Workload { samples: 60, new_tokens: 5, ..workload(1, false, None) }),
        ("adapters", config(512, 12), workload(2, true, Some(LoraConfig::default()))),
        (
            "a base of 4 bits",
            Config { hidden_size: 512, intermediate_size: 1408, ..config(512, 12) },
            Workload {
                base: Some(BaseFormat::Nf4),
                samples: 24,
                ..workload(2, true, Some(LoraConfig { rank: 4, ..LoraConfig::default() }))
            },
        ),
        ("three threads", config(2000, 4), workload(3, false, None)),
        ("recurrent states", recurrent(), workload(2, false, None)),
        ("recurrent states and checkpointing", recurrent(), workload(2, true, None)),
        ("per-layer inputs", gemma4(), workload(2, false, None)),
        ("per-layer inputs and checkpointing", gemma4(), workload(2, true, None)),
        (
            "sixteen threads",
            config(40_000, 2),
            Workload { samples: 60, new_tokens: 5, ..workload(16, false, None) },
        ),
    ] {
        let needs = Needs::of(&config, &w);
        let few = Needs::of(&config, &Workload { threads: w.threads.min(2), ..w.clone() });
        assert_eq!(needs.gradient, few.gradient, "{name}: memory that grows with threads");
        let held = run(&config, &w);
        let off = needs.total() as f64 / held as f64 - 1.0;
        println!("{name}: held {held}, computed {} ({:+.1} %): {needs:?}", needs.total(), 100.0 * off);
        assert!(off.abs() < 0.15, "{name}: held {held}, computed {}: {needs:?}", needs.total());
    }
}
