//! A client of the server, for its tests and for those of the command line: the messages of the Tinker API over HTTP.

#![allow(dead_code, reason = "each of the two test programs uses a part")]

use fgrpo_serve::wire::{self, ChunkKind, DType, Encoding, ForwardBackwardOutput, SampleResponse};
use prost::Message;
use serde_json::{Value, json};
use std::io::Read;
use std::time::Duration;

/// The address of a server, and its key.
pub(crate) struct Client {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) agent: ureq::Agent,
}

/// An answer: its status, whether it is protobuf, and its body.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) protobuf: bool,
    pub(crate) body: Vec<u8>,
}

impl Got {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The message of a refusal with this status.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json()["error"].as_str().expect("a message").to_owned()
    }
}

impl Client {
    pub(crate) fn new(url: String, key: String) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)));
        Self { url, key, agent: config.build().into() }
    }

    /// Posts JSON to an endpoint of OpenAI's.
    pub(crate) fn openai(&self, path: &str, body: &Value) -> Got {
        self.send(&format!("/v1/{path}"), "application/json", &self.key, "", body.to_string().as_bytes())
    }

    pub(crate) fn send(&self, path: &str, kind: &str, key: &str, idempotency: &str, body: &[u8]) -> Got {
        let request = self
            .agent
            .post(format!("{}{path}", self.url))
            .header("X-API-Key", key)
            .header("Content-Type", kind)
            .header("X-Idempotency-Key", idempotency);
        let mut response = request.send(body).unwrap();
        let protobuf =
            response.headers().get("content-type").is_some_and(|kind| kind == "application/x-protobuf");
        let mut body = Vec::new();
        response.body_mut().as_reader().read_to_end(&mut body).unwrap();
        Got { status: response.status().as_u16(), protobuf, body }
    }

    pub(crate) fn post(&self, name: &str, body: Value) -> Got {
        self.send(&format!("/api/v1/{name}"), "application/json", &self.key, "", body.to_string().as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Got {
        let mut response =
            self.agent.get(format!("{}{path}", self.url)).header("X-API-Key", &self.key).call().unwrap();
        let mut body = Vec::new();
        response.body_mut().as_reader().read_to_end(&mut body).unwrap();
        Got { status: response.status().as_u16(), protobuf: false, body }
    }

    /// The id of an accepted request.
    #[track_caller]
    pub(crate) fn accepted(&self, name: &str, body: Value) -> String {
        let got = self.post(name, body);
        assert_eq!(got.status, 200, "{}", String::from_utf8_lossy(&got.body));
        got.json()["request_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn retrieve(&self, id: &str) -> Got {
        loop {
            let got = self.post("retrieve_future", json!({"request_id": id}));
            if got.protobuf || got.status != 200 || got.json()["type"] != "try_again" {
                return got;
            }
        }
    }

    /// The JSON result of a request.
    #[track_caller]
    pub(crate) fn done(&self, name: &str, body: Value) -> Value {
        let got = self.retrieve(&self.accepted(name, body));
        assert!(
            got.status == 200 && got.json().get("error").is_none(),
            "{name}: {}",
            String::from_utf8_lossy(&got.body)
        );
        got.json()
    }

    pub(crate) fn session(&self) -> String {
        let got = self.post(
            "create_session",
            json!({"tags": [], "user_metadata": {}, "sdk_version": "0.38.0", "type": "create_session"}),
        );
        got.json()["session_id"].as_str().unwrap().to_owned()
    }

    /// Creates a session with one model of rank 4. Returns it.
    pub(crate) fn created(&self) -> String {
        let session = self.session();
        let lora = json!({"rank": 4, "seed": 5, "train_unembed": false});
        let asked = json!({"session_id": session, "model_seq_id": 0, "base_model": "base", "lora_config": lora, "type": "create_model"});
        self.done("create_model", asked)["model_id"].as_str().unwrap().to_owned()
    }

    /// Sends a pass and returns its request's id.
    pub(crate) fn pass(&self, pass: &wire::ForwardBackwardRequest) -> Got {
        self.send("/api/v1/forward_backward", "application/x-protobuf", &self.key, "", &pass.encode_to_vec())
    }

    #[track_caller]
    pub(crate) fn passed(&self, pass: &wire::ForwardBackwardRequest) -> ForwardBackwardOutput {
        let got = self.pass(pass);
        assert_eq!(got.status, 200, "{}", String::from_utf8_lossy(&got.body));
        let got = self.retrieve(got.json()["request_id"].as_str().unwrap());
        assert!(got.protobuf, "{}", String::from_utf8_lossy(&got.body));
        ForwardBackwardOutput::decode(&got.body[..]).unwrap()
    }

    /// Samples in a sampling session.
    pub(crate) fn samples(&self, sampler: &str, seq: u64, prompt: &[u32], more: Value) -> SampleResponse {
        let mut asked = json!({
            "sampling_session_id": sampler, "seq_id": seq, "num_samples": 3, "type": "sample",
            "prompt": {"chunks": [{"tokens": prompt, "type": "encoded_text"}]},
            "sampling_params": {"max_tokens": 6, "temperature": 1.0, "top_k": -1, "top_p": 1.0},
        });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let got = self.retrieve(&self.accepted("asample", asked));
        assert!(got.protobuf, "{}", String::from_utf8_lossy(&got.body));
        SampleResponse::decode(&got.body[..]).unwrap()
    }

    /// Creates a sampling session of the base model, in a new session.
    pub(crate) fn base_sampler(&self) -> String {
        let asked = json!({"session_id": self.session(), "sampling_session_seq_id": 0, "base_model": "base"});
        self.post("create_sampling_session", asked).json()["sampling_session_id"].as_str().unwrap().to_owned()
    }

    /// A value of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.get("/metrics").body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("fgrpo_{name} ")));
        line.unwrap().parse().unwrap()
    }

    pub(crate) fn snapshot(&self, model: &str, seq: u64, number: u64) -> String {
        let asked =
            json!({"model_id": model, "seq_id": seq, "sampling_session_seq_id": number, "kind": "snapshot"});
        self.done("save_weights_for_sampler", asked)["sampling_session_id"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn floats(numbers: &[f32]) -> wire::Tensor {
    let encoding = Some(Encoding::Dense(wire::floats(numbers)));
    wire::Tensor { encoding, dtype: DType::Float32 as i32, shape: vec![numbers.len() as i64] }
}

pub(crate) fn ints(numbers: &[i64]) -> wire::Tensor {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    wire::Tensor {
        encoding: Some(Encoding::Dense(bytes)),
        dtype: DType::Int64 as i32,
        shape: vec![numbers.len() as i64],
    }
}

pub(crate) fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect()
}

pub(crate) fn datum(tokens: &[u32], inputs: &[(&str, wire::Tensor)]) -> wire::Datum {
    let text = wire::EncodedText { tokens: wire::tokens(tokens) };
    wire::Datum {
        model_input: vec![wire::Chunk { chunk: Some(ChunkKind::EncodedText(text)) }],
        loss_fn_inputs: inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect(),
    }
}

pub(crate) fn pass(
    model: &str,
    seq: i32,
    loss: &str,
    data: Vec<wire::Datum>,
) -> wire::ForwardBackwardRequest {
    wire::ForwardBackwardRequest {
        model_id: model.into(),
        seq_id: seq,
        data,
        loss_fn: loss.into(),
        ..Default::default()
    }
}

/// Two sequences with a common beginning and different ends.
pub(crate) const SEQUENCES: [&[u32]; 3] = [&[5, 6, 7, 8, 9, 10, 11], &[5, 6, 7, 8, 9, 20], &[30, 31, 32]];

pub(crate) fn next(tokens: &[u32]) -> Vec<i64> {
    tokens[1..].iter().map(|&token| i64::from(token)).collect()
}

/// `cross_entropy` on all of [`SEQUENCES`]. The first token of each has no weight.
pub(crate) fn supervised() -> Vec<wire::Datum> {
    let one = |tokens: &&[u32]| {
        let mut weights = vec![1.5; tokens.len() - 1];
        weights[0] = 0.0;
        datum(
            &tokens[..tokens.len() - 1],
            &[("target_tokens", ints(&next(tokens))), ("weights", floats(&weights))],
        )
    };
    SEQUENCES.iter().map(one).collect()
}

pub(crate) fn step(model: &str, seq: u64, lr: f64) -> Value {
    let params = json!({"learning_rate": lr, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.01, "grad_clip_norm": 0.5});
    json!({"model_id": model, "seq_id": seq, "adam_params": params, "type": "optim_step"})
}

/// The log-probabilities of each datum.
pub(crate) fn logprobs(output: &ForwardBackwardOutput) -> Vec<Vec<f32>> {
    let mut all = Vec::new();
    for record in &output.loss_fn_outputs {
        let tensor = &record.fields["logprobs"];
        let offsets: Vec<i64> = tensor
            .offsets
            .chunks_exact(8)
            .map(|offset| i64::from_le_bytes(offset.try_into().unwrap()))
            .collect();
        assert_eq!(offsets.len() as i64, record.num_datums + 1);
        all.extend(offsets.windows(2).map(|ends| numbers(&tensor.data[ends[0] as usize..ends[1] as usize])));
    }
    all
}

pub(crate) fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 2e-5 * (1.0 + b.abs()))
}

/// The tokens of each sample.
pub(crate) fn sampled(response: &SampleResponse) -> Vec<Vec<u32>> {
    let ids =
        |bytes: &[u8]| bytes.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().unwrap())).collect();
    response.sequences.iter().map(|sequence| ids(&sequence.tokens)).collect()
}

/// Runs `steps` of training and sampling. Returns everything that a client sees.
pub(crate) fn a_client(
    server: &Client,
    model: &str,
    steps: std::ops::Range<u64>,
) -> Vec<(ForwardBackwardOutput, Value, SampleResponse)> {
    steps
        .map(|k| {
            let first = 1 + 4 * k;
            server.passed(&pass(model, first as i32, "cross_entropy", supervised()));
            let output = server.passed(&pass(model, first as i32 + 1, "cross_entropy", supervised()));
            let update = server.done("optim_step", step(model, first + 2, 1e-2));
            let sampler = server.snapshot(model, first + 3, k);
            let sample = server.samples(&sampler, 0, SEQUENCES[0], json!({}));
            (output, update, sample)
        })
        .collect()
}
