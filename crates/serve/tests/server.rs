//! The server's rules over HTTP, in this process: passes, samples and answers compared with direct calls of the engine.
//! Kills and restarts are tested with the command.

mod client;

use client::{
    Client, Got, SEQUENCES, a_client, close, datum, floats, ints, logprobs, next, numbers, pass, sampled,
    step, supervised,
};
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::Message;
use fgrpo_eval::events::Events;
use fgrpo_nn::config::{Architecture, Config as ModelConfig};
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{AdamW, Batch, Device, Engine, LoraConfig};
use fgrpo_serve::Settings;
use fgrpo_serve::wire::{self, DType, Encoding, ForwardBackwardOutput, NumberOrText, SampleResponse};
use fgrpo_train::config::{ComputeConfig, Config};
use fgrpo_train::language::Language;
use fgrpo_train::policy::{Datum, Loss, Policy, PolicyOptions, Sequence, fresh};
use fgrpo_train::problem::Task;
use prost::Message as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A small model folder with tokenizer and template.
fn base() -> &'static Path {
    static MODEL: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let made = MODEL.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("base");
        let sizes = ["hidden_size=16", "intermediate_size=32", "num_hidden_layers=1"];
        let mut set: Vec<String> = sizes.map(|size| format!("model.init.{size}")).into();
        set.extend(["task.train=8".to_owned(), "task.held_out=2".to_owned()]);
        let config = Config::load(Path::new("arithmetic-quick"), &set).unwrap();
        let task = Task::open(&config).unwrap();
        let engine = fresh(&config, &task, &Device::cpu(2)).unwrap();
        Policy::new(engine, Arc::clone(&task.language)).save(&model).unwrap();
        (folder, model)
    });
    &made.1
}

/// Writes a model of one layer with new weights for the tokenizer in `tokenizer`. Returns its policy.
fn new_model(tokenizer: &Path, out: &Path, architecture: Architecture, hidden_size: usize) -> Policy {
    let language = Language::read(tokenizer, &[]).unwrap();
    let config = ModelConfig {
        architecture,
        vocab_size: language.vocab_size(),
        hidden_size,
        intermediate_size: 3 * hidden_size,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: hidden_size / 2,
        rms_norm_eps: 1e-6,
        rope_theta: 1e6,
        tie_word_embeddings: true,
        max_position_embeddings: 4096,
        bos_token_id: language.bos_token(),
        eos_token_id: language.stop_tokens().to_vec(),
        pad_token_id: language.pad_token(),
        ..ModelConfig::default()
    };
    let key = Key::new(0);
    let engine = Engine::init(&config, 0.02, &|i| key.nth_normal(i), &Device::cpu(2)).unwrap();
    let policy = Policy::new(engine, Arc::new(language));
    policy.save(out).unwrap();
    policy
}

/// Messages of a server to its user.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<String>>);

impl Events for Said {
    fn say(&mut self, line: &str) {
        *self.0.lock().unwrap() += &format!("{line}\n");
    }
}

/// A server in a thread of this process, which serves until the process ends.
struct Server {
    folder: tempfile::TempDir,
    client: Client,
    said: Said,
}

impl Deref for Server {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Starts a server of [`base`] with a change of its settings.
#[track_caller]
fn serve(change: impl FnOnce(&mut Settings)) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let compute = ComputeConfig { threads: 2, ..ComputeConfig::default() };
    let mut settings = Settings {
        model: base().to_owned(),
        name: "base".into(),
        tokenizer: "base".into(),
        teacher: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        out: folder.path().join("serve"),
        resume: false,
        key_file: None,
        full: false,
        seed: 0,
        repeatable: false,
        device: Device::cpu(2),
        compute: ("cpu".into(), compute),
        most_body: 1 << 20,
        most_waiting: 4096,
        save_every: Duration::from_secs(60),
    };
    change(&mut settings);
    let said = Said::default();
    let mut events = said.clone();
    let thread = std::thread::spawn(move || fgrpo_serve::run(&settings, &mut events));
    let url = loop {
        assert!(!thread.is_finished(), "the server has ended: {:?}", thread.join());
        let said = said.0.lock().unwrap().clone();
        if let Some(url) = said.split_once("serving base at ").and_then(|(_, after)| after.lines().next()) {
            break url.to_owned();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let key = std::fs::read_to_string(folder.path().join("serve/key")).unwrap().trim().to_owned();
    Server { client: Client::new(url, key), folder, said }
}

/// Log-probabilities of all tokens but the first under [`base`].
fn scored(sequences: &[&[u32]]) -> Vec<Vec<f32>> {
    let mut policy = Policy::open(base(), &PolicyOptions::default()).unwrap();
    let all: Vec<Sequence> = sequences.iter().map(|tokens| Sequence::new(tokens.to_vec())).collect();
    policy.score(&all, 1.0).unwrap().into_iter().map(|scores| scores.logp).collect()
}

#[test]
fn cross_entropy_and_prompt_logprobs_are_those_of_the_engine() {
    let server = serve(|_| {});
    let model = server.created();
    let wanted = scored(&SEQUENCES);
    let output = server.passed(&pass(&model, 1, "cross_entropy", supervised()));
    let found = logprobs(&output);
    assert!(found.iter().zip(&wanted).all(|(found, wanted)| close(found, wanted)), "{found:?} {wanted:?}");
    let loss: f32 = wanted.iter().map(|logp| -1.5 * logp[1..].iter().sum::<f32>()).sum();
    assert!(close(&[output.metrics["loss:sum"] as f32], &[loss]), "{:?} {loss}", output.metrics);
    // A new adapter changes nothing, so snapshot and base give the same values.
    let session = model.split(':').next().unwrap();
    let base = json!({"session_id": session, "sampling_session_seq_id": 7, "base_model": "base"});
    let base = server.post("create_sampling_session", base).json()["sampling_session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for sampler in [server.snapshot(&model, 2, 0), base] {
        for (seq, (tokens, wanted)) in SEQUENCES.iter().zip(&wanted).enumerate() {
            let got = server.samples(
                &sampler,
                seq as u64,
                tokens,
                json!({"prompt_logprobs": true, "num_samples": 1}),
            );
            let found = numbers(got.prompt_logprobs.as_ref().unwrap());
            assert!(found[0].is_nan() && close(&found[1..], wanted), "{found:?} {wanted:?}");
        }
    }
    let top = server.samples(
        &format!("{session}:sample:0"),
        50,
        SEQUENCES[0],
        json!({"topk_prompt_logprobs": 400}),
    );
    let top = top.topk_prompt_logprobs.unwrap();
    assert_eq!((top.k, top.length), (400, SEQUENCES[0].len() as u32));
    let (ids, values) = (numbers(&top.token_ids), numbers(&top.logprobs));
    // Only for the last tokens, if only these are requested.
    let last = json!({"topk_prompt_logprobs": 2, "prompt_logprobs": true, "prompt_logprobs_last_n": 2});
    let last = server.samples(&format!("{session}:sample:0"), 51, SEQUENCES[0], last);
    let (own, best) =
        (numbers(&last.prompt_logprobs.unwrap()), numbers(&last.topk_prompt_logprobs.unwrap().logprobs));
    assert!(own[..5].iter().all(|l| l.is_nan()) && close(&own[5..], &wanted[0][4..]));
    assert!(best[..10].iter().all(|&l| l == -99999.0) && best[10..].iter().all(|&l| l > -99.0), "{best:?}");
    for t in 1..SEQUENCES[0].len() {
        let row = t * 400..(t + 1) * 400;
        let at = ids[row.clone()].iter().position(|id| id.to_bits() == SEQUENCES[0][t]).unwrap();
        assert!(close(&[values[row.start + at]], &[wanted[0][t - 1]]));
        assert!(values[row].windows(2).all(|pair| pair[0] >= pair[1]));
    }
}

#[test]
fn several_targets_of_a_position_are_those_of_several_passes_dense_or_sparse() {
    let server = serve(|_| {});
    let model = server.created();
    let tokens = [5u32, 6, 7];
    let (first, second) = ([6i64, 7, 8], [20i64, 21, 22]);
    let weights = [[0.5f32, 0.25], [1.0, 0.0], [0.0, 2.0]];
    let one = |targets: &[i64; 3], column: usize| {
        let own = weights.map(|row| row[column]);
        vec![datum(&tokens, &[("target_tokens", ints(targets)), ("weights", floats(&own))])]
    };
    let a = server.passed(&pass(&model, 1, "cross_entropy", one(&first, 0)));
    let b = server.passed(&pass(&model, 2, "cross_entropy", one(&second, 1)));
    let apart = server.done("optim_step", step(&model, 3, 0.0))["metrics"]["grad_norm"].as_f64().unwrap();
    let shaped = |tensor: wire::Tensor| wire::Tensor { shape: vec![3, 2], ..tensor };
    let both: Vec<i64> = first.iter().zip(&second).flat_map(|(a, b)| [*a, *b]).collect();
    let dense = [("target_tokens", shaped(ints(&both))), ("weights", shaped(floats(weights.as_flattened())))];
    // Cells without weight aren't listed.
    let csr = |values: Vec<u8>, dtype: DType| {
        let index =
            |numbers: &[i64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let (crow_indices, col_indices) = (index(&[0, 2, 3, 4]), index(&[0, 1, 0, 1]));
        let encoding = Some(Encoding::SparseCsr(wire::SparseCsr { values, crow_indices, col_indices }));
        wire::Tensor { encoding, dtype: dtype as i32, shape: vec![3, 2] }
    };
    let ids = [6i64, 20, 7, 22].iter().flat_map(|id| id.to_le_bytes()).collect();
    let sparse = [
        ("target_tokens", csr(ids, DType::Int64)),
        ("weights", csr(wire::floats(&[0.5, 0.25, 1.0, 2.0]), DType::Float32)),
    ];
    let (la, lb) = (logprobs(&a).remove(0), logprobs(&b).remove(0));
    for (k, (inputs, listed)) in
        [(dense, [[true; 2]; 3]), (sparse, [[true, true], [true, false], [false, true]])]
            .into_iter()
            .enumerate()
    {
        let seq = 4 + 2 * k as i32;
        let output = server.passed(&pass(&model, seq, "cross_entropy", vec![datum(&tokens, &inputs)]));
        assert_eq!(output.loss_fn_outputs[0].fields["logprobs"].trailing_shape, [2]);
        let wanted: Vec<f32> = (0..3)
            .flat_map(|t| [(la[t], listed[t][0]), (lb[t], listed[t][1])])
            .map(|(logp, listed)| if listed { logp } else { 0.0 })
            .collect();
        assert!(close(&logprobs(&output)[0], &wanted), "{output:?} {wanted:?}");
        let loss = a.metrics["loss:sum"] + b.metrics["loss:sum"];
        assert!((output.metrics["loss:sum"] - loss).abs() < 1e-4, "{output:?} {loss}");
        let norm = server.done("optim_step", step(&model, seq as u64 + 1, 0.0))["metrics"]["grad_norm"]
            .as_f64()
            .unwrap();
        assert!((norm - apart).abs() < 1e-4 * apart, "{norm} {apart}");
    }
    // Sampling also scores given tokens at the prompt's positions; -1 requests nothing.
    let sampler = server.snapshot(&model, 8, 0);
    let wanted = json!({"data": [6, 20, -1, 21], "dtype": "int64", "shape": [2, 2]});
    let got = server.samples(&sampler, 0, &tokens, json!({"target_prompt_logprobs": wanted}));
    let found = got.target_prompt_logprobs.unwrap();
    let Some(Encoding::Dense(bytes)) = &found.encoding else { panic!("{found:?}") };
    assert_eq!(found.shape, [2, 2]);
    assert!(close(&numbers(bytes), &[la[0], lb[0], 0.0, lb[1]]), "{:?}", numbers(bytes));
}

/// The server's model, made without the server.
fn engine() -> Engine {
    let mut engine = Engine::open(&Checkpoint::open(base()).unwrap(), &Device::cpu(2)).unwrap();
    let mut draws = fgrpo_core::rng::Key::new(5).with(9).stream();
    let lora = LoraConfig { rank: 4, ..LoraConfig::default() };
    engine.adapt(&lora, &mut || draws.uniform()).unwrap();
    engine
}

fn adamw(lr: f64) -> AdamW {
    AdamW { lr, beta1: 0.9, beta2: 0.95, eps: 1e-12, weight_decay: 0.01, decay_norms_and_biases: true }
}

#[test]
fn passes_and_updates_are_those_of_the_engine_called_directly() {
    let server = serve(|_| {});
    let model = server.created();
    let mut engine = engine();
    let lengths: Vec<usize> = SEQUENCES.iter().map(|tokens| tokens.len() - 1).collect();
    let old = [-3.0f32, -5.5, -7.0];
    let advantages = [1.5f32, -0.5, 2.0];
    // (name, loss and derivative of a token at (l, q, A))
    type Loss = fn(f64, f64, f64) -> (f64, f64);
    let losses: [(&str, Loss); 3] = [
        ("importance_sampling", |l, q, a| (-(l - q).exp() * a, -(l - q).exp() * a)),
        ("ppo", |l, q, a| {
            let r = (l - q).exp();
            let clipped = r.clamp(0.7, 1.5) * a;
            if r * a <= clipped { (-r * a, -r * a) } else { (-clipped, 0.0) }
        }),
        ("cispo", |l, q, a| {
            let weight = (l - q).exp().clamp(0.7, 1.5);
            (-weight * a * l, -weight * a)
        }),
    ];
    let mut seq = 1;
    for (name, loss) in losses {
        let data = SEQUENCES.iter().zip(old).zip(advantages).map(|((tokens, old), advantage)| {
            let n = tokens.len() - 1;
            let inputs = [
                ("target_tokens", ints(&next(tokens))),
                ("logprobs", floats(&vec![old; n])),
                ("advantages", floats(&vec![advantage; n])),
            ];
            datum(&tokens[..n], &inputs)
        });
        let mut request = pass(&model, seq, name, data.collect());
        if name != "importance_sampling" {
            let number = |n| wire::LossConfigValue { value: Some(NumberOrText::Number(n)) };
            request.loss_fn_config_v2 = BTreeMap::from([
                ("clip_low_threshold".into(), number(0.7)),
                ("clip_high_threshold".into(), number(1.5)),
            ]);
        }
        let output = server.passed(&request);
        let update = server.done("optim_step", step(&model, seq as u64 + 1, 1e-2));
        seq += 2;

        let mut batch = Batch::default();
        let mut owner = Vec::new();
        for (i, tokens) in SEQUENCES.iter().enumerate() {
            batch.push_group(&tokens[..1], &[&tokens[1..]]);
            owner.resize(batch.predictions.len(), i);
        }
        let (scores, sums) = engine
            .accumulate(&batch, 1.0, &|family| {
                let mut sum = 0.0;
                for (i, &place) in family.predictions.iter().enumerate() {
                    let i_own = owner[place];
                    let (value, dlogp) =
                        loss(family.logp[i].into(), old[i_own].into(), advantages[i_own].into());
                    sum += value;
                    family.dlogp[i] = dlogp as f32;
                }
                sum
            })
            .unwrap();
        let mut wanted = Vec::new();
        let mut rest = &scores.logp[..];
        for &n in &lengths {
            wanted.push(rest[..n].to_vec());
            rest = &rest[n..];
        }
        let found = logprobs(&output);
        assert!(found.iter().zip(&wanted).all(|(a, b)| close(a, b)), "{name}: {found:?} {wanted:?}");
        let (found, wanted) = (output.metrics["loss:sum"], sums.iter().sum::<f64>());
        assert!((found - wanted).abs() < 1e-4 * wanted.abs().max(1.0), "{name}: {found} {wanted}");
        let report = engine.update(&adamw(1e-2), Some(0.5)).unwrap();
        let found = update["metrics"]["grad_norm"].as_f64().unwrap();
        assert!(
            (found - report.gradient_norm).abs() < 1e-4 * report.gradient_norm,
            "{name}: {found} {report:?}"
        );
    }
}

#[test]
fn samples_repeat_with_their_seed_and_follow_their_weights() {
    let server = serve(|_| {});
    let model = server.created();
    let seeded = json!({"sampling_params": {"max_tokens": 6, "temperature": 1.0, "seed": 11, "stop": []}});
    let before = server.snapshot(&model, 1, 0);
    let first = server.samples(&before, 0, SEQUENCES[0], seeded.clone());
    assert_eq!(server.samples(&before, 1, SEQUENCES[0], seeded.clone()), first);
    let other = json!({"sampling_params": {"max_tokens": 6, "temperature": 1.0, "seed": 12, "stop": []}});
    assert_ne!(server.samples(&before, 7, SEQUENCES[0], other), first);
    let tokens =
        |response: &SampleResponse| response.sequences.iter().map(|s| s.tokens.clone()).collect::<Vec<_>>();
    assert!(tokens(&first).windows(2).all(|pair| pair[0] != pair[1]), "{first:?}");
    assert!(
        first
            .sequences
            .iter()
            .all(|s| s.tokens.len() == 24 && s.stop_reason == wire::StopReason::Length as i32)
    );
    // Without a seed, requests give different samples.
    let free = json!({"sampling_params": {"max_tokens": 6, "stop": []}});
    assert_ne!(
        tokens(&server.samples(&before, 2, SEQUENCES[0], free.clone())),
        tokens(&server.samples(&before, 3, SEQUENCES[0], free))
    );
    // A trained model samples differently. The earlier snapshot, the base and the trained model keep their weights.
    for k in 0..3 {
        server.passed(&pass(&model, 2 + 2 * k, "cross_entropy", supervised()));
        server.done("optim_step", step(&model, 3 + 2 * k as u64, 0.1));
    }
    let after = server.snapshot(&model, 8, 1);
    let second = server.samples(&after, 0, SEQUENCES[0], seeded.clone());
    assert_ne!(second, first);
    assert_eq!(server.samples(&before, 4, SEQUENCES[0], seeded.clone()), first);
    assert_eq!(server.samples(&after, 1, SEQUENCES[0], seeded.clone()), second);
    // Near the maximum length a sample is cut, even next to a shorter prompt. It equals the sample drawn alone.
    let long = vec![5; 117];
    let asked = |tokens: &[u32]| {
        json!({"base_model": "base", "num_samples": 2, "prompt": {"chunks": [{"tokens": tokens}]},
               "sampling_params": {"max_tokens": 9, "seed": 2, "stop": []}})
    };
    let ids = [&long[..], SEQUENCES[0], &long].map(|tokens| server.accepted("asample", asked(tokens)));
    let cut = ids.map(|id| SampleResponse::decode(&server.retrieve(&id).body[..]).unwrap());
    let lengths = cut
        .each_ref()
        .map(|response| response.sequences.iter().map(|s| s.tokens.len() / 4).collect::<Vec<_>>());
    assert_eq!(lengths, [[3, 3], [9, 9], [3, 3]]);
    assert!(tokens(&cut[0]) == tokens(&cut[2]));
    assert!(cut[0].sequences.iter().all(|s| s.stop_reason == wire::StopReason::Length as i32));
    // A stop token ends a sample and is part of it.
    let stop = u32::from_le_bytes(second.sequences[0].tokens[8..12].try_into().unwrap());
    let stopped = json!({"sampling_params": {"max_tokens": 6, "seed": 11, "stop": [stop]}});
    let stopped = server.samples(&after, 2, SEQUENCES[0], stopped);
    assert!(second.sequences[0].tokens.starts_with(&stopped.sequences[0].tokens));
    assert!(stopped.sequences[0].tokens.ends_with(&stop.to_le_bytes()));
    assert_eq!(stopped.sequences[0].stop_reason, wire::StopReason::Stop as i32);
    // Saved under a name, the weights are the same, and their adapter gives the same log-probabilities.
    let named = json!({"model_id": model, "seq_id": 9, "path": "final", "kind": "snapshot"});
    let path = server.done("save_weights_for_sampler", named)["path"].as_str().unwrap().to_owned();
    assert_eq!(path, format!("tinker://{model}/sampler_weights/final"));
    let session =
        json!({"session_id": model.split(':').next(), "sampling_session_seq_id": 9, "model_path": path});
    let session = server.post("create_sampling_session", session).json()["sampling_session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(server.samples(&session, 0, SEQUENCES[0], seeded), second);
    let adapter = server
        .folder
        .path()
        .join("serve/models")
        .join(model.replace(':', "-"))
        .join("sampler_weights/final/adapter");
    let mut adapted =
        Policy::open(base(), &PolicyOptions { adapter: Some(adapter), ..PolicyOptions::default() }).unwrap();
    let wanted = adapted.score(&[Sequence::new(SEQUENCES[0].to_vec())], 1.0).unwrap().remove(0).logp;
    let scored = server.samples(&session, 1, SEQUENCES[0], json!({"prompt_logprobs": true}));
    assert!(close(&numbers(scored.prompt_logprobs.as_ref().unwrap())[1..], &wanted));
}

#[test]
fn requests_join_others_under_way_with_the_same_tokens() {
    let server = serve(|_| {});
    let sampler = server.base_sampler();
    let asked = |seq: u64, samples: usize, most: usize| {
        json!({
            "sampling_session_id": sampler, "seq_id": seq, "num_samples": samples,
            "prompt": {"chunks": [{"tokens": SEQUENCES[seq as usize % 3]}]},
            "sampling_params": {"max_tokens": most, "stop": [], "seed": seq},
        })
    };
    // Long enough for other requests to arrive, which are shorter and end earlier.
    let long = server.accepted("asample", asked(0, 700, 110));
    let short: Vec<String> = (1..9).map(|seq| server.accepted("asample", asked(seq, 2, 4))).collect();
    let short: Vec<Got> = short.iter().map(|id| server.retrieve(id)).collect();
    let waiting = server.metric("requests_waiting");
    let long = SampleResponse::decode(&server.retrieve(&long).body[..]).unwrap();
    assert!(server.metric("joined_requests_total") >= 1.0);
    assert_eq!(waiting, 1.0, "the long request was not done first");
    // If a server samples each request separately, one at a time, the tokens are the same.
    let alone = serve(|settings| settings.repeatable = true);
    alone.base_sampler();
    let again = |seq: u64, samples: usize, most: usize| {
        let got = alone.retrieve(&alone.accepted("asample", asked(seq, samples, most)));
        SampleResponse::decode(&got.body[..]).unwrap()
    };
    assert!(sampled(&long) == sampled(&again(0, 700, 110)));
    for (got, seq) in short.iter().zip(1..) {
        let found = SampleResponse::decode(&got.body[..]).unwrap();
        let wanted = again(seq, 2, 4);
        assert_eq!(sampled(&found), sampled(&wanted));
        for (a, b) in found.sequences.iter().zip(&wanted.sequences) {
            assert!(close(&numbers(a.logprobs.as_ref().unwrap()), &numbers(b.logprobs.as_ref().unwrap())));
        }
    }
    assert_eq!(alone.metric("joined_requests_total"), 0.0);
}

#[test]
fn a_later_turn_of_a_conversation_does_not_compute_its_history_again() {
    let (server, alone) = (serve(|_| {}), serve(|settings| settings.repeatable = true));
    let samplers = [server.base_sampler(), alone.base_sampler()];
    let params = json!({"num_samples": 1, "sampling_params": {"max_tokens": 9, "stop": [], "seed": 5}});
    let mut prompt: Vec<u32> = (5..40).collect();
    let mut history = 0;
    for turn in 0..4 {
        let found = server.samples(&samplers[0], turn, &prompt, params.clone());
        let wanted = alone.samples(&samplers[1], turn, &prompt, params.clone());
        assert_eq!(sampled(&found), sampled(&wanted), "turn {turn}");
        assert_eq!((found.prompt_cache_hit_tokens, wanted.prompt_cache_hit_tokens), (history as i32, 0));
        prompt.extend(&sampled(&found)[0]);
        // All but the last token, from which nothing was predicted.
        history = prompt.len() - 1;
        prompt.extend([7, 8, 9]);
    }
    assert_eq!(server.metric("reused_prompt_tokens_total"), f64::from(43 + 55 + 67));
    assert_eq!(alone.metric("reused_prompt_tokens_total"), 0.0);
    // A trained model can't use the base's cache. After the base comes back, its cache is empty too.
    let model = server.created();
    server.passed(&pass(&model, 1, "cross_entropy", supervised()));
    server.done("optim_step", step(&model, 2, 0.1));
    let trained = server.snapshot(&model, 3, 0);
    for (sampler, seq) in [(&trained, 0), (&samplers[0], 9)] {
        let found = server.samples(sampler, seq, &prompt, params.clone());
        assert_eq!(found.prompt_cache_hit_tokens, 0, "{sampler}");
        let same =
            sampled(&found) == sampled(&alone.samples(&samplers[1], 20 + seq, &prompt, params.clone()));
        assert_eq!(same, seq == 9, "{sampler}");
    }
}

#[test]
fn a_teacher_scores_and_samples_beside_the_model_that_is_trained() {
    // A trained model is the teacher of its base.
    let server = serve(|settings| settings.full = true);
    let model = server.created();
    for k in 0..3 {
        server.passed(&pass(&model, 1 + 2 * k, "cross_entropy", supervised()));
        server.done("optim_step", step(&model, 2 + 2 * k as u64, 0.05));
    }
    server.done("save_weights_for_sampler", json!({"model_id": model, "seq_id": 7, "path": "final"}));
    let sampler = server.snapshot(&model, 8, 0);
    let asked = json!({"prompt_logprobs": true, "sampling_params": {"max_tokens": 5, "seed": 3, "stop": []}});
    let wanted = server.samples(&sampler, 0, SEQUENCES[0], asked.clone());
    let teacher =
        server.folder.path().join("serve/models").join(model.replace(':', "-")).join("sampler_weights/final");
    let server = serve(|settings| settings.teacher = Some((teacher, "teacher".into())));
    let models = server.get("/api/v1/get_server_capabilities").json()["supported_models"].clone();
    assert_eq!((&models[1]["model_name"], &models[1]["trainable"]), (&json!("teacher"), &json!(false)));
    let student = server.created();
    let session = student.split(':').next().unwrap();
    let sampler = |number: u64, name: &str| {
        let asked = json!({"session_id": session, "sampling_session_seq_id": number, "base_model": name});
        server.post("create_sampling_session", asked).json()["sampling_session_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (teacher, base) = (sampler(1, "teacher"), sampler(2, "base"));
    let before = server.samples(&base, 0, SEQUENCES[0], asked.clone());
    let scores =
        |response: &SampleResponse| numbers(response.prompt_logprobs.as_ref().unwrap())[1..].to_vec();
    for turn in 0..2 {
        let found = server.samples(&teacher, turn, SEQUENCES[0], asked.clone());
        assert_eq!(sampled(&found), sampled(&wanted));
        assert!(close(&scores(&found), &scores(&wanted)) && !close(&scores(&found), &scores(&before)));
        // The student is trained between the teacher's answers.
        server.passed(&pass(&student, 1 + 2 * turn as i32, "cross_entropy", supervised()));
        server.done("optim_step", step(&student, 2 + 2 * turn, 0.05));
    }
    assert_eq!(server.get(&format!("/api/v1/samplers/{teacher}")).json()["base_model"], "teacher");
    let asked = json!({"session_id": session, "model_seq_id": 1, "base_model": "teacher", "lora_config": {"rank": 4}});
    assert!(server.post("create_model", asked).refused(400).contains("base_model: expected \"base\""));
}

#[test]
fn a_checkpoint_continues_with_and_without_its_optimizer() {
    let server = serve(|_| {});
    let model = server.created();
    server.passed(&pass(&model, 1, "cross_entropy", supervised()));
    server.done("optim_step", step(&model, 2, 1e-2));
    let path =
        server.done("save_weights", json!({"model_id": model, "seq_id": 3, "path": "one"}))["path"].clone();
    assert_eq!(path, json!(format!("tinker://{model}/weights/one")));
    let taken = server
        .retrieve(&server.accepted("save_weights", json!({"model_id": model, "seq_id": 4, "path": "one"})));
    assert!(taken.json()["error"].as_str().unwrap().contains("already exists"), "{taken:?}");
    let info = server.post("weights_info", json!({"tinker_path": path})).json();
    assert_eq!(
        (&info["lora_rank"], &info["base_model"], &info["is_lora"]),
        (&json!(4), &json!("base"), &json!(true))
    );
    let more = |model: &str, first: i32| {
        let loss = server.passed(&pass(model, first, "cross_entropy", supervised())).metrics["loss:sum"];
        let norm = server.done("optim_step", step(model, first as u64 + 1, 1e-2));
        let then = server.passed(&pass(model, first + 2, "cross_entropy", supervised()));
        (loss, norm, then)
    };
    let wanted = more(&model, 5);
    let session = model.split(':').next().unwrap();
    let load = |number: u64, optimizer: bool| {
        let asked =
            json!({"session_id": session, "model_seq_id": number, "path": path, "optimizer": optimizer});
        server.done("load_weights", asked)["model_id"].as_str().unwrap().to_owned()
    };
    assert_eq!(more(&load(1, true), 1), wanted);
    let fresh = more(&load(2, false), 1);
    assert_eq!((fresh.0, &fresh.1), (wanted.0, &wanted.1));
    assert_ne!(fresh.2, wanted.2);
    assert_eq!(
        server.post("get_info", json!({"model_id": format!("{session}:train:1")})).json()["lora_rank"],
        4
    );
    // The state doesn't include the gradient: a load drops what was accumulated.
    server.done("load_weights", json!({"model_id": model, "seq_id": 8, "path": path, "optimizer": true}));
    assert_eq!(more(&model, 9), wanted);
}

#[test]
fn saved_weights_are_listed_until_they_expire_or_are_deleted() {
    let server = serve(|_| {});
    let model = server.created();
    let api = |path: &str| server.get(&format!("/api/v1/{path}"));
    let save = |endpoint: &str, seq: u64, name: &str, more: Value| {
        let mut asked = json!({"model_id": model, "seq_id": seq, "path": name});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.done(endpoint, asked)["path"].as_str().unwrap().to_owned()
    };
    let state = save("save_weights", 1, "state", json!({"user_metadata": {"step": "7"}}));
    let kept = save("save_weights_for_sampler", 2, "kept", json!({"ttl_seconds": 7200}));
    let short = save("save_weights_for_sampler", 3, "short", json!({"ttl_seconds": 1}));
    let zero = json!({"model_id": model, "seq_id": 4, "path": "x", "ttl_seconds": 0});
    assert!(server.post("save_weights", zero).refused(400).contains("ttl_seconds: expected at least 1"));
    std::thread::sleep(Duration::from_millis(2100));
    let listed = api(&format!("training_runs/{model}/checkpoints")).json()["checkpoints"].clone();
    let listed: BTreeMap<&str, &Value> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["tinker_path"].as_str().unwrap(), entry))
        .collect();
    assert_eq!(listed.keys().copied().collect::<Vec<_>>(), [kept.as_str(), state.as_str()]);
    assert_eq!(
        (&listed[&*state]["checkpoint_type"], &listed[&*state]["expires_at"]),
        (&json!("training"), &json!(null))
    );
    assert_eq!(listed[&*state]["user_metadata"], json!({"step": "7"}));
    assert_eq!(
        (&listed[&*kept]["checkpoint_type"], &listed[&*kept]["checkpoint_id"]),
        (&json!("sampler"), &json!("sampler_weights/kept"))
    );
    assert!(
        listed[&*kept]["size_bytes"].as_u64().unwrap() > 1000 && listed[&*kept]["expires_at"].is_string()
    );
    // Expired weights can't be loaded or sampled, and their name is free.
    let session = model.split(':').next().unwrap();
    let asked = json!({"session_id": session, "sampling_session_seq_id": 5, "model_path": short});
    assert!(server.post("create_sampling_session", asked).refused(404).contains("short"));
    save("save_weights_for_sampler", 4, "short", json!({}));
    // The contents of a session and a run.
    let run = api("training_runs?limit=1").json();
    assert_eq!(run["cursor"], json!({"offset": 0, "limit": 1, "total_count": 1}));
    let run = &run["training_runs"][0];
    assert_eq!(
        (&run["training_run_id"], &run["lora_rank"], &run["base_model"]),
        (&json!(model), &json!(4), &json!("base"))
    );
    assert_eq!(run["last_checkpoint"]["tinker_path"], json!(state));
    assert!(run["last_request_time"].as_str().unwrap().starts_with("20"));
    assert_eq!(api(&format!("training_runs/{model}")).json(), *run);
    assert_eq!(api(&format!("sessions/{session}")).json()["training_run_ids"], json!([model]));
    assert_eq!(api("sessions").json()["sessions"], json!([session]));
    assert_eq!(api("training_runs/nobody:train:0").status, 404);
    let place = |path: &str| {
        path.replacen("tinker://", &format!("{}/api/v1/training_runs/", server.url), 1).replacen(
            ":train:0/",
            ":train:0/checkpoints/",
            1,
        )
    };
    let delete = |path: &str| {
        server.agent.delete(place(path)).header("X-API-Key", &server.key).call().unwrap().status().as_u16()
    };
    assert_eq!((delete(&kept), delete(&kept)), (204, 404));
    let ttl = server.agent.put(format!("{}/ttl", place(&state))).header("X-API-Key", &server.key);
    assert_eq!(ttl.send(&br#"{"ttl_seconds": 9000}"#[..]).unwrap().status(), 204);
    let left = api("checkpoints?limit=100").json()["checkpoints"].clone();
    let expires = |entry: &Value| {
        (entry["checkpoint_id"].as_str().unwrap().to_owned(), entry["expires_at"].is_string())
    };
    let mut left: Vec<(String, bool)> = left.as_array().unwrap().iter().map(expires).collect();
    left.sort();
    assert_eq!(left, [("sampler_weights/short".into(), false), ("weights/state".into(), true)]);
}

#[test]
fn operations_run_in_the_order_of_their_numbers_whatever_order_they_come_in() {
    let server = serve(|_| {});
    let (first, second) = (server.created(), server.created());
    let wanted = a_client(&server, &first, 0..1);
    // The last request comes first, with requests for another model in between.
    let update = server.accepted("optim_step", step(&second, 3, 1e-2));
    let pass_of = |model: &str, seq: i32| {
        server.pass(&pass(model, seq, "cross_entropy", supervised())).json()["request_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let later = pass_of(&second, 2);
    let other = pass_of(&first, 5);
    pass_of(&second, 1);
    let got = server.retrieve(&later);
    assert_eq!(ForwardBackwardOutput::decode(&got.body[..]).unwrap(), wanted[0].0);
    assert_eq!(server.retrieve(&update).json(), wanted[0].1);
    // The first model's gradient was stored meanwhile.
    assert!(server.retrieve(&other).protobuf);
    let alone = server.done("optim_step", step(&first, 6, 1e-2))["metrics"]["grad_norm"].as_f64().unwrap();
    server.passed(&pass(&second, 4, "cross_entropy", supervised()));
    let again = server.done("optim_step", step(&second, 5, 1e-2))["metrics"]["grad_norm"].as_f64().unwrap();
    assert!((alone - again).abs() < 1e-6 * alone, "{alone} {again}");
}

#[test]
fn whoever_has_no_key_is_refused_before_anything_is_read() {
    let server = serve(|_| {});
    for key in ["", "tml-", "tml-0000", &server.key[1..], &format!("{}x", server.key)] {
        for path in ["/api/v1/create_session", "/api/v1/nothing", "/v1/models", "/metrics"] {
            let got = server.send(path, "application/json", key, "", b"{");
            assert_eq!(got.status, 401, "{key} {path}");
        }
    }
    // A body that is announced but never sent.
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head =
        "POST /api/v1/asample HTTP/1.1\r\nHost: x\r\nX-API-Key: tml-wrong\r\nContent-Length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(server.folder.path().join("serve/key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.said.0.lock().unwrap().matches(&server.key).count(), 1);
}

#[test]
fn what_cannot_be_done_is_refused_by_name_and_changes_nothing() {
    let server = serve(|_| {});
    let model = server.created();
    let data = |inputs: &[(&str, wire::Tensor)]| vec![datum(&[5, 6], inputs)];
    let targets = || ("target_tokens", ints(&[6, 7]));
    let half = wire::Tensor { dtype: DType::Float32 as i32, ..ints(&[6, 7]) };
    let passes = [
        (pass(&model, 1, "dro", data(&[targets()])), "loss_fn: expected one of cross_entropy"),
        (pass("nobody:train:0", 1, "cross_entropy", data(&[targets()])), "model_id: \"nobody:train:0\""),
        (pass(&model, 0, "cross_entropy", data(&[targets()])), "seq_id: expected 1"),
        (pass(&model, 1, "cross_entropy", vec![]), "data: "),
        (pass(&model, 1, "cross_entropy", data(&[])), "data[0].loss_fn_inputs.target_tokens: missing"),
        (
            pass(&model, 1, "cross_entropy", data(&[("target_tokens", ints(&[6]))])),
            "target_tokens: expected 2 rows",
        ),
        (
            pass(&model, 1, "cross_entropy", data(&[("target_tokens", ints(&[6, 9999]))])),
            "expected token ids from 0 to 319, found 9999",
        ),
        (pass(&model, 1, "cross_entropy", data(&[("target_tokens", ints(&[6, -1]))])), "found -1"),
        (
            pass(&model, 1, "cross_entropy", data(&[("target_tokens", floats(&[6.0, 7.0]))])),
            "target_tokens: expected int64, found float32",
        ),
        (pass(&model, 1, "cross_entropy", data(&[("target_tokens", half)])), "int64"),
        (
            pass(&model, 1, "cross_entropy", data(&[targets(), ("weights", floats(&[1.0, f32::NAN]))])),
            "found NaN at index 1",
        ),
        (
            pass(&model, 1, "cross_entropy", data(&[targets(), ("weights", floats(&[1.0]))])),
            "weights: expected shape (2, 1)",
        ),
        (pass(&model, 1, "cross_entropy", data(&[targets(), ("mask", floats(&[1.0, 1.0]))])), "not mask"),
        (
            pass(&model, 1, "ppo", data(&[targets(), ("logprobs", floats(&[0.0, 0.0]))])),
            "advantages: missing",
        ),
        (
            pass(&model, 1, "cross_entropy", vec![datum(&[], &[targets()])]),
            "model_input: expected 1 to 120 tokens",
        ),
        (pass(&model, 1, "cross_entropy", vec![datum(&[5; 200], &[targets()])]), "expected 1 to 120 tokens"),
    ];
    for (request, wanted) in passes {
        let got = server.pass(&request);
        let status = if wanted.starts_with("model_id") { 404 } else { 400 };
        let said = got.refused(status);
        assert!(said.contains(wanted), "{said} | {wanted}");
    }
    let mut clipped = pass(
        &model,
        1,
        "ppo",
        data(&[targets(), ("logprobs", floats(&[0.0; 2])), ("advantages", floats(&[1.0; 2]))]),
    );
    clipped.loss_fn_config = BTreeMap::from([("clip_low_threshold".into(), 1.3)]);
    assert!(server.pass(&clipped).refused(400).contains("clip_low_threshold: expected 0 to 1, found 1.3"));
    clipped.loss_fn_config = BTreeMap::from([("beta".into(), 1.0)]);
    assert!(server.pass(&clipped).refused(400).contains("not beta"));
    let jsons = [
        ("optim_step", json!({"model_id": model, "seq_id": 1}), "adam_params: missing"),
        (
            "optim_step",
            json!({"model_id": model, "seq_id": 1, "optimizer_params": {"type": "dimuon"}}),
            "AdamW is the only optimizer",
        ),
        (
            "optim_step",
            json!({"model_id": model, "seq_id": 1, "adam_params": {"beta1": 1.0}}),
            "adam_params.beta1: expected",
        ),
        ("optim_step", json!({"model_id": model, "seq_id": 1, "adam_params": {"momentum": 1.0}}), "momentum"),
        ("optim_step", json!({"model_id": model, "adam_params": {}}), "seq_id: expected"),
        ("save_weights", json!({"model_id": model, "seq_id": 1, "path": "../../key"}), "found \"../../key\""),
        (
            "save_weights_for_sampler",
            json!({"model_id": model, "seq_id": 1, "sampling_session_seq_id": 0, "kind": "inflight"}),
            "found \"inflight\"",
        ),
        (
            "load_weights",
            json!({"model_id": model, "seq_id": 1, "path": "tinker://../x/weights/y", "optimizer": false}),
            "tinker://../x/weights/y",
        ),
        (
            "create_model",
            json!({"session_id": "session-9", "model_seq_id": 0, "base_model": "base"}),
            "session_id: \"session-9\"",
        ),
        (
            "create_model",
            json!({"session_id": "session-1", "model_seq_id": 5, "base_model": "gpt"}),
            "found \"gpt\"",
        ),
        (
            "create_model",
            json!({"session_id": "session-1", "model_seq_id": 5, "base_model": "base", "lora_config": {"rank": 0}}),
            "lora.rank",
        ),
        (
            "asample",
            json!({"sampling_session_id": "x", "seq_id": 1, "prompt": {"chunks": []}, "sampling_params": {}}),
            "sampling_session_id: \"x\"",
        ),
        (
            "asample",
            json!({"base_model": "base", "prompt": {"chunks": []}, "sampling_params": {}}),
            "prompt: expected 1 to",
        ),
        (
            "asample",
            json!({"base_model": "base", "prompt": {"chunks": [{"tokens": [1], "type": "image"}]}, "sampling_params": {}}),
            "found type \"image\"",
        ),
        (
            "asample",
            json!({"base_model": "base", "prompt": {"chunks": [{"tokens": [1]}]}, "sampling_params": {}, "record_stability_info": true}),
            "record_stability_info",
        ),
        (
            "asample",
            json!({"base_model": "base", "prompt": {"chunks": [{"tokens": [1]}]}, "sampling_params": {"temperature": -1}}),
            "temperature: expected",
        ),
        (
            "asample",
            json!({"base_model": "base", "prompt": {"chunks": [{"tokens": [1]}]}, "sampling_params": {"max_tokens": 0}}),
            "max_tokens: expected at least 1",
        ),
        ("retrieve_future", json!({"request_id": "x"}), "request_id: \"x\""),
        ("copy_weights", json!({}), "copy_weights: unknown endpoint"),
    ];
    for (name, body, wanted) in jsons {
        let got = server.post(name, body);
        assert!(got.status == 400 || got.status == 404, "{got:?}");
        let said = got.refused(got.status);
        assert!(said.contains(wanted), "{said} | {wanted}");
    }
    for garbage in [&b"\xff\x00garbage"[..], b"{", b"[]", b""] {
        for name in ["forward_backward", "optim_step", "asample", "retrieve_future", "create_session"] {
            let got =
                server.send(&format!("/api/v1/{name}"), "application/x-protobuf", &server.key, "", garbage);
            assert_eq!(got.status, 400, "{name} {garbage:?}");
        }
    }
    let large = server.send(
        "/api/v1/forward_backward",
        "application/x-protobuf",
        &server.key,
        "",
        &vec![0; (1 << 20) + 1],
    );
    assert!(large.refused(413).contains("larger than 1048576 bytes"));
    // A result that never existed, and half a body.
    assert_eq!(server.post("retrieve_future", json!({"request_id": "request-100000"})).status, 410);
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let head = format!(
        "POST /api/v1/optim_step HTTP/1.1\r\nHost: x\r\nX-API-Key: {}\r\nContent-Length: 500\r\n\r\n{{",
        server.key
    );
    stream.write_all(head.as_bytes()).unwrap();
    drop(stream);
    // None of these had an effect.
    let output = server.passed(&pass(&model, 1, "cross_entropy", supervised()));
    assert!(output.metrics["loss:sum"] > 0.0);
    assert_eq!(server.get("/api/v1/healthz").json()["status"], "ok");
}

#[test]
fn openai_endpoints_give_the_engines_samples_in_every_form() {
    let server = serve(|_| {});
    let post = |path: &str, body: Value| server.openai(path, &body);
    let listed = server.get("/v1/models").json()["data"][0].clone();
    assert_eq!((&listed["id"], server.get("/v1/models/base").json()), (&json!("base"), listed.clone()));
    // Every error has OpenAI's form.
    for (path, status) in [("/v1/models/gpt", 404), ("/v1/nothing", 404)] {
        let got = server.get(path);
        assert!(got.status == status && got.json()["error"]["message"].is_string(), "{got:?}");
    }
    let locked = server.agent.get(format!("{}/v1/models", server.url)).call().unwrap();
    assert_eq!(locked.status(), 401);
    assert!(locked.into_body().read_to_string().unwrap().contains("\"error\":{\"message\":"));
    let lower = server.agent.get(format!("{}/v1/models", server.url));
    let lower = lower.header("Authorization", format!("bearer {}", server.key)).call().unwrap();
    assert_eq!(lower.status(), 200);
    let prompt = SEQUENCES[0];
    let asked = json!({
        "model": "base", "prompt": prompt, "seed": 3, "max_tokens": 8, "temperature": 1.0, "logprobs": 1, "ignore_eos": true,
        "return_token_ids": true, "return_tokens_as_token_ids": true, "presence_penalty": 0.0, "top_k": -1, "n": 2,
    });
    let got = post("completions", asked.clone());
    assert_eq!(got.status, 200, "{}", String::from_utf8_lossy(&got.body));
    let body = got.json();
    assert_eq!(post("completions", asked.clone()).json()["choices"], body["choices"]);
    // Choice c of an answer has seed 3 + c, so it is the same in a request of its own, and after a copy of the prompt.
    let tokens = |choice: &Value| choice["token_ids"].as_array().unwrap().clone();
    let all = |body: &Value| body["choices"].as_array().unwrap().iter().map(tokens).collect::<Vec<_>>();
    let drawn = all(&body);
    let ask = |key: &str, value: Value, n: i32| {
        let mut asked = asked.clone();
        (asked[key], asked["n"]) = (value, json!(n));
        post("completions", asked)
    };
    assert_ne!(drawn[0], drawn[1]);
    for (seed, expected) in [3, 4].into_iter().zip(&drawn) {
        assert_eq!(all(&ask("seed", json!(seed), 1).json()), std::slice::from_ref(expected));
    }
    assert_eq!(all(&ask("prompt", json!([prompt, prompt]), 1).json()), drawn);
    // A stop token ends a completion, beside stop strings that don't occur in it.
    let mut ended = asked.clone();
    (ended["n"], ended["stop"], ended["stop_token_ids"]) = (json!(1), json!(["\u{1}"]), json!([drawn[0][2]]));
    let ended = post("completions", ended).json();
    let end = drawn[0].iter().position(|token| *token == drawn[0][2]).unwrap();
    assert_eq!(all(&ended), [&drawn[0][..=end]]);
    assert_eq!(ended["choices"][0]["finish_reason"], "stop");
    for seed in [-1, i64::MAX] {
        assert_eq!(ask("seed", json!(seed), 2).status, 200);
    }
    assert_eq!(body["usage"], json!({"prompt_tokens": 7, "completion_tokens": 16, "total_tokens": 23}));
    for choice in body["choices"].as_array().unwrap() {
        assert_eq!(
            (&choice["finish_reason"], &choice["prompt_token_ids"]),
            (&json!("length"), &json!(prompt))
        );
        let ids: Vec<u32> = serde_json::from_value(choice["token_ids"].clone()).unwrap();
        let named: Vec<String> = ids.iter().map(|id| format!("token_id:{id}")).collect();
        assert_eq!(choice["logprobs"]["tokens"], json!(named));
        let whole: Vec<u32> = prompt.iter().chain(&ids).copied().collect();
        let logp: Vec<f32> = serde_json::from_value(choice["logprobs"]["token_logprobs"].clone()).unwrap();
        assert!(close(&logp, &scored(&[&whole])[0][prompt.len() - 1..]), "{logp:?}");
    }
    // The requests of lm-eval: the prompt's log-probabilities, and the most likely tokens.
    let asked = json!({"prompt": [prompt, SEQUENCES[2]], "max_tokens": 1, "echo": true, "logprobs": 2, "return_tokens_as_token_ids": true});
    let body = post("completions", asked).json();
    for (choice, tokens) in body["choices"].as_array().unwrap().iter().zip([prompt, SEQUENCES[2]]) {
        let logprobs = &choice["logprobs"];
        let values = logprobs["token_logprobs"].as_array().unwrap();
        assert!(
            values[0].is_null() && logprobs["top_logprobs"][0].is_null() && values.len() == tokens.len() + 1
        );
        let found: Vec<f32> = values[1..tokens.len()].iter().map(|l| l.as_f64().unwrap() as f32).collect();
        assert!(close(&found, &scored(&[tokens])[0]));
        for (at, best) in logprobs["top_logprobs"].as_array().unwrap().iter().enumerate().skip(1) {
            // A token has the same value in both lists, also if it isn't among the most likely ones.
            assert_eq!(best[logprobs["tokens"][at].as_str().unwrap()], values[at], "{best}");
            let best = best.as_object().unwrap();
            assert!(
                best.len() == 2
                    || (best.len() == 3 && best.values().all(|l| l.as_f64() >= values[at].as_f64()))
            );
        }
    }
    // Only the prompt's log-probabilities: the token that is drawn for them isn't returned.
    let asked = json!({"prompt": prompt, "max_tokens": 0, "echo": true, "logprobs": 1});
    let body = post("completions", asked).json();
    assert_eq!(body["usage"]["completion_tokens"], 0);
    assert_eq!(body["choices"][0]["logprobs"]["tokens"].as_array().unwrap().len(), prompt.len());
    assert_eq!(body["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().len(), prompt.len());
    // A chat, whole and streamed, has the same text.
    let chat = |stream: bool| json!({"messages": [{"role": "user", "content": "1 + 1?"}], "max_completion_tokens": 20, "seed": 4, "stream": stream});
    let whole = post("chat/completions", chat(false)).json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let streamed = String::from_utf8(post("chat/completions", chat(true)).body).unwrap();
    let events: Vec<&str> = streamed.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let events: Vec<Value> =
        events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let pieces: String =
        events.iter().map(|event| event["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(pieces, text);
    assert!(events.len() > 3, "{streamed}");
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
    for field in ["add_generation_prompt", "parallel_tool_calls"] {
        let mut asked = chat(false);
        asked[field] = json!(true);
        assert_eq!(post("chat/completions", asked).status, 200, "{field}");
    }
    for (field, value) in [
        ("add_generation_prompt", json!(false)),
        ("parallel_tool_calls", json!(false)),
        ("echo", json!(true)),
        ("messages", json!([{"role": "user", "content": [{"type": "image_url", "text": "x"}]}])),
        ("presence_penalty", json!(1.0)),
        ("temperature", json!(1e-9)),
        ("n", json!(0)),
        ("tools", json!([{}])),
        ("tools", json!([{"type": "function", "function": {"name": "f"}}])),
        ("tool_choice", json!("required")),
        ("response_format", json!({"type": "json_object"})),
        ("top_logprobs", json!(3)),
        ("include_stop_str_in_output", json!(true)),
        ("messages", json!([{"role": "user", "content": "x", "tool_calls": [{}]}])),
        ("chat_template_kwargs", json!({"enable_thinking": "false"})),
    ] {
        let mut asked = chat(false);
        asked[field] = value;
        let got = post("chat/completions", asked);
        let message = got.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(got.status == 400 && message.starts_with(field) && !message.starts_with("num_"), "{message}");
    }
    // Null counts as absent, and fields without effect are accepted. A stream ends with its token counts if requested.
    let mut asked = chat(true);
    asked["max_tokens"] = json!(4);
    asked["max_completion_tokens"] = Value::Null;
    asked["tool_choice"] = json!("none");
    asked["stream_options"] = json!({"include_usage": true});
    let streamed = String::from_utf8(post("chat/completions", asked).body).unwrap();
    let last = streamed.split("\n\n").filter_map(|event| event.strip_prefix("data: {")).last().unwrap();
    let last: Value = serde_json::from_str(&format!("{{{last}")).unwrap();
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(4)));
    // Parts of a message are lines.
    let rendered = |content: Value| {
        let asked = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1, "return_token_ids": true});
        post("chat/completions", asked).json()["prompt_token_ids"].clone()
    };
    assert_eq!(
        rendered(json!([{"type": "text", "text": "1"}, {"type": "text", "text": "2"}])),
        rendered(json!("1\n2"))
    );
    // With ignore_eos an end token ends neither the answer nor its text.
    let asked =
        json!({"prompt": prompt, "max_tokens": 60, "seed": 5, "ignore_eos": true, "return_token_ids": true});
    let choice = &post("completions", asked).json()["choices"][0];
    let ids: Vec<u32> = serde_json::from_value(choice["token_ids"].clone()).unwrap();
    assert_eq!((ids.len(), &choice["finish_reason"]), (60, &json!("length")));
    assert_eq!(post("completions", json!({"model": "gpt", "prompt": "x"})).status, 404);
    assert!(
        server.metric("sampled_tokens_total") >= 32.0
            && server.metric("requests_waiting") == 0.0
            && server.metric("requests_refused_total") >= 4.0
    );
    let page = server
        .agent
        .get(format!("{}/?key={}", server.url, server.key))
        .call()
        .unwrap()
        .body_mut()
        .read_to_string()
        .unwrap();
    assert!(page.contains("<h1>base</h1>") && page.contains("Requests that wait or are being processed"));
    assert_eq!(
        server.agent.get(format!("{}/?key=tml-0000000000000000", server.url)).call().unwrap().status(),
        401
    );
}

/// Sends the head of a POST and the beginning of its body, and returns the connection.
fn begun(server: &Server, path: &str, length: usize, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let key = &server.key;
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
    stream
}

#[test]
fn clients_that_hang_up_or_stall_hold_up_nobody() {
    let server = serve(|settings| settings.most_waiting = 3);
    let (samples, length) = (4000, 110);
    let body =
        json!({"prompt": SEQUENCES[0], "n": samples, "max_tokens": length, "ignore_eos": true}).to_string();
    let asking = begun(&server, "/v1/completions", body.len(), &body);
    while server.metric("requests_waiting") == 0.0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(50));
    drop(asking);
    let short = |prompts: usize| {
        let asked = json!({"prompt": vec!["1"; prompts], "max_tokens": 1, "temperature": 0.5});
        server.openai("completions", &asked)
    };
    assert_eq!(short(1).status, 200);
    let drawn = server.metric("sampled_tokens_total");
    assert!(drawn < f64::from(samples * length / 2), "{drawn} tokens were sampled for nobody");
    let stalled: Vec<TcpStream> = (0..70).map(|_| begun(&server, "/v1/completions", 1000, "{")).collect();
    assert_eq!(short(1).status, 200);
    drop(stalled);
    // A list that can never wait is an error, not a reason to try again.
    let got = short(4);
    assert!(
        got.status == 400 && got.json()["error"]["message"].as_str().unwrap().contains("at most 3 prompts"),
        "{got:?}"
    );
}

/// A model with new weights whose vocabulary has bytes, some pieces and a special token, as in SentencePiece.
fn model_of_bytes(folder: &Path) -> PathBuf {
    let source = folder.join("tokenizer");
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = ["\u{2581}a", "b", "\u{e9}", "\u{2581}", "<end>"].map(str::to_owned);
    let vocab: serde_json::Map<String, Value> =
        bytes.chain(pieces).zip(0..).map(|(name, id)| (name, json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "added_tokens": [{"id": 260, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": true},
    });
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let settings = json!({"eos_token": "<end>", "chat_template": "{{ messages[0]['content'] }}"});
    std::fs::write(source.join("tokenizer_config.json"), settings.to_string()).unwrap();
    let out = folder.join("bytes");
    new_model(&source, &out, Architecture::Llama, 16);
    out
}

#[test]
fn a_stream_has_the_whole_text_where_bytes_are_no_characters() {
    let folder = tempfile::tempdir().unwrap();
    let model = model_of_bytes(folder.path());
    let server = serve(|settings| settings.model = model);
    let mut lost = 0;
    for seed in 0..40 {
        let ask = |stream: bool| {
            let answer = server.openai(
                "completions",
                &json!({"prompt": [256, 257], "max_tokens": 24, "seed": seed, "ignore_eos": true, "stream": stream}),
            );
            assert_eq!(answer.status, 200, "{answer:?}");
            answer
        };
        let whole = ask(false).json()["choices"][0]["text"].as_str().unwrap().to_owned();
        let streamed = String::from_utf8(ask(true).body).unwrap();
        let pieces = streamed.split("\n\n").filter_map(|event| event.strip_prefix("data: {"));
        let pieces = pieces.map(|event| serde_json::from_str::<Value>(&format!("{{{event}")).unwrap());
        let text: String =
            pieces.map(|event| event["choices"][0]["text"].as_str().unwrap().to_owned()).collect();
        assert_eq!(text, whole, "seed {seed}");
        lost += usize::from(whole.contains('\u{fffd}'));
    }
    assert!(lost > 30, "{lost} answers with bytes that are no characters");
    // An echo is the prompt as sent, although the tokenizer's decoder removes its first space.
    let asked = json!({"prompt": " b", "max_tokens": 0, "echo": true});
    assert_eq!(server.openai("completions", &asked).json()["choices"][0]["text"], " b");
    // A token's bytes are exact, even if they are a part of a character.
    let chat = json!({"messages": [{"role": "user", "content": "b"}], "max_tokens": 24, "seed": 1, "logprobs": true});
    let answer = server.openai("chat/completions", &chat).json();
    let entries = answer["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    for entry in entries.iter().filter(|entry| entry["id"].as_u64().unwrap() < 256) {
        assert_eq!(entry["bytes"], json!([entry["id"]]), "{entry}");
    }
    assert!(entries.iter().any(|entry| entry["id"].as_u64().unwrap() > 127), "{answer}");
}

/// A model that answers "f?" with `said`. Its template supports tools but doesn't show them.
fn caller(folder: &Path, said: &str) -> PathBuf {
    let (source, out) = (folder.join("tokenizer"), folder.join("caller"));
    std::fs::create_dir(&source).unwrap();
    Language::read(base(), &[]).unwrap().write(&source).unwrap();
    let template = source.join("chat_template.jinja");
    let known = "{% if tools %}{# <tool_call> #}{% endif %}{% for m in messages if m.tool_calls %}{{ m.tool_calls[0].function.arguments.a }}{% endfor %}";
    std::fs::write(&template, known.to_owned() + &std::fs::read_to_string(&template).unwrap()).unwrap();
    let mut policy = new_model(&source, &folder.join("new"), Architecture::Qwen3, 32);
    let language = Arc::clone(policy.language());
    let asked: Vec<Message> = serde_json::from_value(json!([{"role": "user", "content": "f?"}])).unwrap();
    let prompt = language.prompt(&asked, None).unwrap();
    let answer = language.demonstration(said).unwrap();
    let n = answer.len();
    let sequences = vec![Sequence::completion(&prompt, &answer)];
    let datum = Datum { sequences, advantages: vec![1.0 / n as f64; n], ..Datum::default() };
    let adamw = AdamW {
        lr: 1e-2,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.0,
        decay_norms_and_biases: true,
    };
    for _ in 0..150 {
        policy.forward_backward(std::slice::from_ref(&datum), &Loss::CrossEntropy, 1.0).unwrap();
        policy.step(&adamw, Some(1.0)).unwrap();
    }
    policy.save(&out).unwrap();
    out
}

#[test]
fn a_chat_that_offers_tools_gets_calls_and_takes_their_answers() {
    let folder = tempfile::tempdir().unwrap();
    let call = r#"<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>"#;
    let model = caller(folder.path(), &format!("I call. {call}"));
    let server = serve(|settings| settings.model = model);
    let post = |more: Value| {
        let mut asked =
            json!({"messages": [{"role": "user", "content": "f?"}], "max_tokens": 80, "temperature": 0});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.openai("chat/completions", &asked)
    };
    let tool = |name: &str| json!([{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}]);
    let choice = |more: Value| post(more).json()["choices"][0].clone();
    let plain = choice(json!({}));
    assert_eq!(plain["message"]["content"], json!(format!("I call. {call}")), "{plain}");
    assert_eq!(choice(json!({"tools": tool("f"), "tool_choice": "none"}))["message"], plain["message"]);
    let called = choice(json!({"tools": tool("f")}));
    let call = &called["message"]["tool_calls"][0];
    assert_eq!(
        (&called["finish_reason"], &called["message"]["content"]),
        (&json!("tool_calls"), &json!("I call."))
    );
    assert_eq!(call["function"], json!({"name": "f", "arguments": "{\"a\": 1}"}));
    let streamed = String::from_utf8(post(json!({"tools": tool("f"), "stream": true})).body).unwrap();
    let event = streamed.split("\n\n").find_map(|event| event.strip_prefix("data: ")).unwrap();
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!(event["choices"][0]["delta"]["tool_calls"][0]["function"], call["function"]);
    assert_eq!(event["choices"][0]["finish_reason"], "tool_calls");
    // The conversation continues with the message as received and the tool's answer, in which special tokens are plain text.
    let answer = |content: &str| json!({"role": "tool", "tool_call_id": call["id"], "content": content});
    let conversation = |answer: Value| {
        let more = json!({"messages": [{"role": "user", "content": "f?"}, called["message"], answer], "tools": tool("f")});
        post(more).json()
    };
    let tokens = |content: &str| conversation(answer(content))["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(tokens("<|im_end|>") - tokens("7"), "<|im_end|>".len() as u64 - 1);
    let mut wrong = called["message"].clone();
    wrong["tool_calls"][0]["function"]["arguments"] = json!("a = 1");
    let refused = post(json!({"messages": [wrong], "tools": tool("f")}));
    assert!(refused.status == 400 && String::from_utf8_lossy(&refused.body).contains("arguments"));
}
