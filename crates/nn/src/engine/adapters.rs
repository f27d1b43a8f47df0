//! LoRA in the engine: factors and merged weights.
//!
//! Quantized matrices don't change: sampling, scoring and training add `scale · B A x` to their results.
//!
//! Other adapted matrices always are `W0 + scale · B A`, recomputed after each update from the base weights and the factors. A resumed run therefore
//! computes the same as an uninterrupted one, and rounding errors don't accumulate. The base weights are stored for this, in 16 bits if that is
//! exact, as for models stored in bfloat16. (Mapping the checkpoint instead would save this memory, but wouldn't work for weights from other sources.)

use std::collections::BTreeSet;
use std::path::Path;

use super::{Engine, NamedTensor};
use crate::backend::Store;
use crate::error::Error;
use crate::families::is_left_out;
use crate::lora::{
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, AdapterLayout, BASE, LoraConfig, PEFT, name_in_whole, open_weights,
};
use crate::quantized::BaseFormat;
use crate::weights::{Dtype, TensorWriter, write_json};

pub(crate) struct Adapters {
    config: LoraConfig,
    pub(super) layout: AdapterLayout,
    /// Whether passes apply the adapters. Otherwise passes use only the base weights.
    pub(super) applied: bool,
}

/// Returns the layout of the factors that passes apply separately from the weights, or `None` if all factors are merged or not applied.
pub(super) fn unmerged(adapters: &Option<Adapters>) -> Option<&AdapterLayout> {
    adapters.as_ref().filter(|adapters| adapters.applied && !adapters.layout.merged).map(|a| &a.layout)
}

impl Engine {
    /// Adds LoRA's factors to the matrices that `lora` selects. From then on only the factors are trained, and nothing else has a gradient or optimizer state.
    /// Initially the weights are unchanged: `B` is 0, and `A` is uniform within `1 / √inputs`, from `uniform`, which returns numbers in [0, 1), as in PEFT.
    /// An existing gradient or optimizer state is dropped.
    /// Returns an error if a setting is invalid ([`LoraConfig::check`]), or the engine already has adapters.
    pub fn adapt(&mut self, lora: &LoraConfig, uniform: &mut dyn FnMut() -> f64) -> Result<(), Error> {
        self.runtime.forget_prompts();
        lora.check()?;
        if self.adapters.is_some() {
            return Err(Error::request("lora", "an engine that has adapters", "an engine without adapters"));
        }
        let config = lora.of_model(&self.decoder.layout)?;
        let layout = AdapterLayout::new(&self.decoder.layout, &config);
        self.runtime.backend_mut().adapt(&layout);
        for parts in layout.adapted.chunk_by(|part, next| part.a == next.a) {
            let adapted = parts[0];
            let bound = 1.0 / (adapted.inputs as f64).sqrt();
            self.runtime.backend_mut().fill(Store::Factors, adapted.a, &mut |out| {
                out.fill_with(|| ((2.0 * uniform() - 1.0) * bound) as f32);
                Ok(())
            })?;
        }
        self.adapters = Some(Adapters { config, layout, applied: true });
        self.step = 0;
        Ok(())
    }

    /// Returns the LoRA settings, or `None` without adapters.
    pub fn lora(&self) -> Option<&LoraConfig> {
        self.adapters.as_ref().map(|adapters| &adapters.config)
    }

    /// Sets whether the weights include the adapters (the default) or are, bit for bit, the base model's, as for a reference policy without a second model.
    /// Gradients and updates require the adapters.
    ///
    /// # Panics
    /// If the engine doesn't have adapters.
    pub fn set_adapter_applied(&mut self, applied: bool) {
        self.runtime.forget_prompts();
        let adapters = self.adapters.as_mut().expect("an engine with adapters");
        if adapters.applied != applied {
            adapters.applied = applied;
            self.merge();
        }
    }

    /// Writes the factors as PEFT does: `adapter_model.safetensors`, in f32, and `adapter_config.json` with `base` as the base model's name or path.
    /// The folder is created if necessary.
    /// Returns an error if the folder can't be written or contains an adapter, or a factor is not finite.
    ///
    /// # Panics
    /// If the engine doesn't have adapters.
    pub fn write_adapter(&self, dir: &Path, base: &str) -> Result<(), Error> {
        let adapters = self.adapters.as_ref().expect("an engine with adapters");
        std::fs::create_dir_all(dir).map_err(Error::io("create folder", dir))?;
        for path in [dir.join(ADAPTER_WEIGHTS), dir.join(ADAPTER_CONFIG)] {
            if path.exists() {
                let expected = "a folder without an adapter; remove it or choose another folder";
                return Err(Error::file(path, "an adapter", expected));
            }
        }
        // Names of the base's tensors are used, because PEFT and vLLM skip factors of modules that they don't find.
        let names = adapters.layout.tensors.iter().map(|tensor| &tensor.name);
        let names: Vec<String> =
            names.map(|name| if self.inner { name_in_whole(name) } else { name.clone() }).collect();
        let mut settings = adapters.config.to_json(base);
        if self.inner {
            // Full module names are written, because the image tower has modules with the same short names.
            let factors =
                names.iter().filter_map(|name| name.strip_prefix(PEFT)?.strip_suffix(".lora_A.weight"));
            settings["target_modules"] = factors.collect();
        }
        let tensors = || names.iter().zip(&adapters.layout.tensors);
        let declared: Vec<(String, Vec<usize>)> =
            tensors().map(|(name, tensor)| (name.clone(), tensor.shape.clone())).collect();
        let path = dir.join(ADAPTER_WEIGHTS);
        let base_format = self.decoder.layout.base.map(|format| (BASE, format.name()));
        let metadata: Vec<(&str, &str)> = [("format", "pt")].into_iter().chain(base_format).collect();
        let mut writer = TensorWriter::create(&path, &declared, Dtype::F32, &metadata)?;
        for (name, tensor) in tensors() {
            let values = self.runtime.backend().read(Store::Factors, tensor.span);
            writer.put(name, &tensor.shape, &values)?;
        }
        writer.finish()?;
        write_json(&dir.join(ADAPTER_CONFIG), &settings)
    }

    /// Loads an adapter in PEFT's layout. An engine without adapters takes the folder's settings; otherwise they must be equal to the engine's.
    /// Returns an error, without changing the engine, if the folder is not an adapter of this model, uses an unsupported setting (which is named), or has other
    /// settings.
    pub fn read_adapter(&mut self, dir: &Path) -> Result<(), Error> {
        self.runtime.forget_prompts();
        let lora = LoraConfig::read(dir)?.0.of_model(&self.decoder.layout)?;
        if let Some(settings) = self.lora().filter(|settings| **settings != lora) {
            return Err(Error::file(
                dir.join(ADAPTER_CONFIG),
                format!("{lora:?}"),
                format!("{settings:?} as in the engine"),
            ));
        }
        self.read_factors(dir, &lora, &BTreeSet::new())
    }

    /// Reads the layers' factors of an adapter with these settings. `used` are the names in the adapter's file that belong to other tensors.
    pub(super) fn read_factors(
        &mut self,
        dir: &Path,
        lora: &LoraConfig,
        used: &BTreeSet<String>,
    ) -> Result<(), Error> {
        let layout = AdapterLayout::new(&self.decoder.layout, lora);
        let file = open_weights(dir)?;
        // If the file doesn't name a format, PEFT may have written it, and it may have been trained on any format.
        let (trained, base) = (LoraConfig::trained_on(dir)?, self.decoder.layout.base);
        if trained.is_some() && trained != base {
            let name = |format: Option<BaseFormat>| format.map_or("none", BaseFormat::name);
            return Err(Error::file(
                file.path(),
                format!("an adapter trained on a base in the format {}", name(trained)),
                format!("one for {}, the format of this base", name(base)),
            ));
        }
        for tensor in &layout.tensors {
            file.check(&tensor.name, &tensor.shape)?;
        }
        let unknown = |name: &&str| {
            !used.contains(*name)
                && !name.strip_prefix(PEFT).is_some_and(is_left_out)
                && layout.tensors.iter().all(|tensor| tensor.name != **name)
        };
        if let Some(name) = file.names().find(unknown) {
            return Err(Error::tensor(
                file.path(),
                name,
                "a tensor that adapter_config.json doesn't account for",
                format!("the factors of {}", lora.targets.join(", ")),
            ));
        }
        // Factors are small. Read all of them first, so that one that isn't finite leaves the engine unchanged.
        let values: Vec<Vec<f32>> =
            layout.tensors.iter().map(|tensor| file.tensor(&tensor.name)).collect::<Result<_, _>>()?;
        if lora.targets.is_empty() {
            return Ok(());
        }
        if self.adapters.is_none() {
            self.adapt(lora, &mut || 0.0)?;
        }
        for (tensor, values) in layout.tensors.iter().zip(&values) {
            self.runtime.backend_mut().write(Store::Factors, tensor.span, values);
        }
        self.merge();
        Ok(())
    }

    /// Exchanges the values of LoRA's factors with `factors`, in the order of [`Engine::adapter_tensors`], so that one
    /// base computes with two adapters.
    ///
    /// # Panics
    /// If the engine doesn't have adapters, or the factors have other lengths.
    pub fn exchange_factors(&mut self, factors: &mut [Vec<f32>]) {
        self.runtime.forget_prompts();
        let tensors = &self.adapters.as_ref().expect("an engine with adapters").layout.tensors;
        assert_eq!(tensors.len(), factors.len(), "number of factors");
        for (tensor, values) in tensors.iter().zip(factors) {
            let previous = self.runtime.backend().read(Store::Factors, tensor.span).into_owned();
            self.runtime.backend_mut().write(Store::Factors, tensor.span, values);
            *values = previous;
        }
        self.merge();
    }

    /// Returns LoRA's factors under PEFT's names, `A` before `B`, in the checkpoint's order. Empty without adapters.
    pub fn adapter_tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let tensors = if self.lora().is_some() { self.trained() } else { &[] };
        self.named(Store::Factors, tensors)
    }

    /// Computes the adapted matrices from base and factors, if they are merged.
    pub(super) fn merge(&mut self) {
        if let Some(adapters) = self.adapters.as_ref().filter(|adapters| adapters.layout.merged) {
            self.runtime.backend_mut().merge(&adapters.layout, adapters.applied);
        }
    }
}
