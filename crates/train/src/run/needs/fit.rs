//! Checks whether a run fits into the available memory, and finds settings that make it fit.

use super::{Lengths, Memory, memory};
use crate::config::{ComputeConfig, Config, EvalConfig, Every, UpdateConfig};
use crate::problem::Task;
use fgrpo_eval::amounts::bytes;
use fgrpo_eval::io::machine::{available, resident};
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_nn::{DeviceName, GpuSettings, least_cached_tokens};

/// Kinds of GPUs for which a run can be planned, with the bytes of their memory according to NVIDIA's data sheets.
/// A100, H100 and H200 are the SXM modules.
pub const GPU_KINDS: [(&str, u64); 6] = [
    ("rtx-4070", 12_000_000_000),
    ("rtx-4090", 24_000_000_000),
    ("l40s", 48_000_000_000),
    ("a100", 80_000_000_000),
    ("h100", 80_000_000_000),
    ("h200", 141_000_000_000),
];

/// Number of tokens per pass below which recomputing activations costs less than making passes even smaller.
const SMALL: usize = 8192;

/// Memory that is available to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the GPU's memory, or of this machine's free memory plus this process's memory.
    pub memory: u64,
    /// The GPU's name, or "this machine".
    pub name: String,
}

impl Room {
    /// Returns the memory that is available to a run on this device.
    pub fn of(device: DeviceName) -> Result<Self, String> {
        if let DeviceName::Cuda(number) = device {
            let gpus = fgrpo_nn::gpus().map_err(|error| error.to_string())?;
            let gpu = gpus.get(number).ok_or_else(|| format!("there is no GPU {number}"))?;
            return Ok(Self { memory: gpu.memory as u64, name: gpu.name.clone() });
        }
        if device.is_gpu() {
            return Err("it is emulated".to_owned());
        }
        let memory = available().ok_or("this system doesn't report its free memory")?;
        Ok(Self { memory: memory + resident().unwrap_or(0), name: "this machine".to_owned() })
    }
}

/// A model, the lengths of its prompts and completions, and a device.
pub struct Fit<'a> {
    /// Sizes of the model.
    pub model: &'a ModelConfig,
    /// Sizes of a teacher that is a separate model.
    pub teacher: Option<&'a ModelConfig>,
    /// Lengths of prompts and completions.
    pub lengths: &'a Lengths,
    /// Device on which the model is trained.
    pub device: DeviceName,
    /// Available memory, if known.
    pub room: Option<&'a Room>,
}

impl Fit<'_> {
    /// Estimates the memory that a configuration needs.
    pub fn memory(&self, config: &Config) -> Memory {
        let gpu = self.gpu(config);
        let teacher = self.teacher.map_or(0, |model| memory::weights(config, model, self.lengths, gpu));
        let left = |memory: u64| memory.saturating_sub(teacher);
        let gpu = gpu.map(|gpu| GpuSettings { memory: gpu.memory.map(left), ..gpu });
        Memory { teacher, ..Memory::of(config, self.model, self.lengths, gpu) }
    }

    /// Returns the settings of the GPU, or `None` on a CPU.
    pub fn gpu(&self, config: &Config) -> Option<GpuSettings> {
        let ComputeConfig { precision, moments, exact, .. } = config.compute;
        let memory = self.room.map(|room| room.memory);
        self.device.is_gpu().then_some(GpuSettings { precision, moments, exact, memory })
    }

    /// Returns the number of bytes that a configuration needs on the device.
    fn needed(&self, config: &Config) -> u64 {
        let memory = self.memory(config);
        if self.device.is_gpu() { memory.on_device() } else { memory.total() }
    }

    /// Chooses `update.micro_batch_tokens` and `compute.checkpoint_activations` if they aren't configured: the largest
    /// micro-batches that fit, with activation checkpointing only if even small micro-batches don't fit without it.
    pub fn decided(&self, config: &Config) -> Config {
        let variant = |tokens: usize, checkpointing: bool| {
            let mut decided = config.clone();
            decided.update.micro_batch_tokens.get_or_insert(tokens);
            decided.compute.checkpoint_activations.get_or_insert(checkpointing);
            decided
        };
        let default = variant(UpdateConfig::MICRO_BATCH_TOKENS, false);
        let Some(room) = self.room else { return default };
        let minimum = self.lengths.prompt_longest + self.lengths.completion_longest;
        let down_to = |smallest: usize| {
            let sizes =
                std::iter::successors(Some(UpdateConfig::MICRO_BATCH_TOKENS), |tokens| Some(tokens / 2));
            sizes.take_while(move |&tokens| tokens > smallest).chain([smallest])
        };
        let plain = down_to(minimum.max(SMALL)).map(|tokens| variant(tokens, false));
        let checkpointed = down_to(minimum).map(|tokens| variant(tokens, true));
        plain.chain(checkpointed).find(|decided| self.needed(decided) <= room.memory).unwrap_or(default)
    }

    /// Returns a message if the configuration may not fit, with up to three settings that make it fit.
    pub fn shortage(&self, config: &Config) -> Option<String> {
        let room = self.room?;
        let needed = self.needed(config);
        if needed <= room.memory {
            return None;
        }
        let remedy = match self.remedy(config, room.memory) {
            Some((sets, then)) => {
                let sets: Vec<String> = sets.iter().map(|set| format!("--set {set}")).collect();
                format!("{} reduces that to {}", sets.join(" "), bytes(then))
            }
            None => "no three settings make it fit; use shorter completions (rollout.max_new_tokens), fewer prompts (rollout.prompts) or a smaller model"
                .to_owned(),
        };
        Some(format!(
            "not enough memory: the run needs up to {}, and {} has {}; {remedy}",
            bytes(needed),
            room.name,
            bytes(room.memory)
        ))
    }

    /// Returns the fewest settings that make the configuration fit, at most three, and the bytes that it then needs.
    /// Cheaper settings are tried first.
    fn remedy(&self, config: &Config, room: u64) -> Option<(Vec<String>, u64)> {
        let (prompt, completion) = (self.lengths.prompt_longest, self.lengths.completion_longest);
        let batches = self.device.batches(config.compute.threads());
        // Room for eight sequences at once.
        let cached = 8 * least_cached_tokens(
            Some((self.model, config.compute.precision)),
            prompt,
            completion,
            batches,
        );
        let mut settings = vec![
            "compute.checkpoint_activations=true".to_owned(),
            format!("update.micro_batch_tokens={}", prompt + completion),
            format!("rollout.max_cached_tokens={cached}"),
            "lora.rank=16".to_owned(),
            "lora.base=\"nf4\"".to_owned(),
        ];
        if self.device.is_gpu() {
            let gpu_settings = ["precision=\"bf16\"", "optimizer_offload=true", "moments=\"bf16\""];
            settings.splice(0..0, gpu_settings.map(|set| format!("compute.{set}")));
        }
        let text = config.to_toml();
        let attempt = |sets: &[usize]| {
            let sets: Vec<String> = sets.iter().map(|&i| settings[i].clone()).collect();
            let changed = Config::parse(&text, &sets).ok()?;
            let needed = self.needed(&changed);
            (needed <= room).then_some((sets, needed))
        };
        let all = 0..settings.len();
        let ones = all.clone().map(|i| vec![i]);
        let twos = all.clone().flat_map(|i| (0..i).map(move |j| vec![j, i]));
        let threes = all.flat_map(|i| (0..i).flat_map(move |j| (0..j).map(move |k| vec![k, j, i])));
        ones.chain(twos).chain(threes).find_map(|sets| attempt(&sets))
    }
}

/// Returns a message if an evaluation with the defaults of `[eval]` samples more than a fifth of what training samples,
/// with a setting that reduces it to a fifth.
pub fn costly_evaluation(config: &Config, lengths: &Lengths) -> Option<String> {
    const SHARE: u64 = 5;
    let (eval, default) = (config.eval.usual()?, EvalConfig::default());
    if (eval.every, eval.samples, eval.problems) != (default.every, default.samples, default.problems) {
        return None;
    }
    let Every::Steps(steps) = eval.every else { return None };
    let problems = lengths.held_out? as u64;
    let samples = eval.samples as u64;
    let trained = steps * (config.rollout.prompts * config.rollout.group_size) as u64;
    let affordable = trained / SHARE / samples;
    (problems > affordable).then(|| {
        let set = match affordable {
            // An evaluation on fewer problems would be too noisy.
            0..32 => format!("eval.every={}", (SHARE * problems * samples).div_ceil(trained / steps)),
            _ => format!("eval.problems={affordable}"),
        };
        format!(
            "an evaluation samples {} completions ({problems} problems x {samples}) every {steps} steps, in which training samples {}: --set {set} reduces the evaluation to a fifth of the training",
            problems * samples,
            trained
        )
    })
}

/// Fills in the settings that depend on memory, by [`Fit::decided`] or from the configuration that a resumed run
/// recorded. Also returns warnings: that the run may not fit, or that its evaluations are costly.
pub fn decided(
    config: &Config,
    task: &Task,
    device: DeviceName,
    recorded: Option<&Config>,
) -> anyhow::Result<(Config, Vec<String>)> {
    let mut config = recorded.map_or_else(|| config.clone(), |recorded| config.decided_as(recorded));
    let lengths = Lengths::of(&config, Some(task));
    let room = Room::of(device).ok();
    let mut shortage = None;
    if let Some(model) = super::model(&config, Some(task))? {
        let teacher = super::teacher(&config)?;
        let fit =
            Fit { model: &model, teacher: teacher.as_ref(), lengths: &lengths, device, room: room.as_ref() };
        config = fit.decided(&config);
        shortage = fit.shortage(&config);
    }
    let warnings = shortage.into_iter().chain(costly_evaluation(&config, &lengths)).collect();
    Ok((config, warnings))
}
