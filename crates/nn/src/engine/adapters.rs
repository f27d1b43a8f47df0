//! LoRA in the engine: factors beside merged weights.
//!
//! The weights are always `W0 + scale · B A`, computed anew after each update from the base weights and the factors alone: what a resumed run computes
//! is what the interrupted one did, and rounding doesn't pile up. The base weights of adapted matrices are therefore kept, in 16 bits where
//! that is exact, as it is for models stored in bfloat16; a mapped checkpoint would spare this memory but not serve weights that came from elsewhere.

use std::path::Path;

use rayon::prelude::*;

use super::{Engine, NamedTensor, find};
use crate::cpu::buffer::Buffer;
use crate::cpu::product::{Into, View, product};
use crate::cpu::simd;
use crate::error::Error;
use crate::lora::{ADAPTER_CONFIG, ADAPTER_WEIGHTS, AdapterLayout, LoraConfig};
use crate::weights::{Dtype, TensorFile, TensorWriter, write_json};

/// A matrix of the base model.
enum Base {
    /// All of its numbers end in 16 zero bits.
    Half(Vec<u16>),
    Full(Vec<f32>),
}

impl Base {
    fn of(w: &[f32]) -> Base {
        if w.iter().all(|x| x.to_bits() & 0xffff == 0) {
            Base::Half(w.iter().map(|x| (x.to_bits() >> 16) as u16).collect())
        } else {
            Base::Full(w.to_vec())
        }
    }

    fn write(&self, w: &mut [f32]) {
        match self {
            Base::Half(bits) => {
                w.iter_mut().zip(bits).for_each(|(w, &bits)| *w = f32::from_bits(u32::from(bits) << 16));
            }
            Base::Full(values) => w.copy_from_slice(values),
        }
    }
}

/// What an adapted engine has beside its weights.
pub(super) struct Adapters {
    config: LoraConfig,
    pub(super) layout: AdapterLayout,
    /// The factors.
    pub(super) values: Buffer,
    /// The base weights, by adapted matrix.
    base: Vec<Base>,
    /// Whether the weights are the sums rather than the base's.
    pub(super) applied: bool,
}

impl Engine {
    /// Adds LoRA's factors to the matrices that `lora` names. From now on only the factors are trained; nothing else has a gradient or optimizer state.
    /// The weights are unchanged at first: `B` is 0, and `A` uniform within `1 / √inputs` from `uniform`, which gives numbers in [0, 1), as in PEFT.
    /// A gradient or optimizer state of before is dropped.
    ///
    /// # Errors
    /// If a setting is impossible ([`LoraConfig::check`]), or the engine has adapters already.
    pub fn adapt(&mut self, lora: &LoraConfig, uniform: &mut dyn FnMut() -> f64) -> Result<(), Error> {
        lora.check()?;
        if self.adapters.is_some() {
            return Err(Error::Request {
                field: "lora",
                found: "an engine that has adapters".into(),
                wanted: "one without".into(),
            });
        }
        let layout = AdapterLayout::new(&self.decoder.layout, lora);
        let mut values = Buffer::zeros(layout.len);
        for adapted in &layout.adapted {
            let bound = 1.0 / (adapted.inputs as f64).sqrt();
            values[adapted.a.offset..][..adapted.a.len]
                .fill_with(|| ((2.0 * uniform() - 1.0) * bound) as f32);
        }
        let weights = &self.weights;
        let base = self.pool.install(|| {
            layout.adapted.par_iter().map(|a| Base::of(&weights[a.weight.offset..][..a.weight.len])).collect()
        });
        self.adapters = Some(Adapters { config: lora.clone(), layout, values, base, applied: true });
        self.moments = Default::default();
        self.step = 0;
        for worker in &mut self.workers {
            worker.gradient = Buffer::default();
        }
        Ok(())
    }

    /// LoRA's settings, where the engine has adapters.
    pub fn lora(&self) -> Option<&LoraConfig> {
        self.adapters.as_ref().map(|adapters| &adapters.config)
    }

    /// LoRA's factors under PEFT's names, `A` before `B`, in the order of the checkpoint; none without adapters.
    pub fn adapter_tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        self.adapters.iter().flat_map(|adapters| {
            adapters.layout.tensors.iter().map(|tensor| {
                let values = &adapters.values[tensor.span.offset..][..tensor.span.len];
                (tensor.name.as_str(), tensor.shape.as_slice(), values.into())
            })
        })
    }

    /// Whether the weights are those with adapters (as at first) or, bit for bit, the base model's: what a reference policy needs, without a second model.
    /// Gradients can only be accumulated, and updates made, with them.
    ///
    /// # Panics
    /// If the engine has no adapters.
    pub fn set_adapter_applied(&mut self, applied: bool) {
        let adapters = self.adapters.as_mut().expect("an engine with adapters");
        if adapters.applied != applied {
            adapters.applied = applied;
            self.merge();
        }
    }

    /// Writes the factors as PEFT does: `adapter_model.safetensors`, in f32, and `adapter_config.json` with `base` as the base model's name or path.
    /// The folder is made if need be and must not hold an adapter.
    ///
    /// # Errors
    /// If the folder can't be written or holds an adapter, or a factor is not finite.
    ///
    /// # Panics
    /// If the engine has no adapters.
    pub fn write_adapter(&self, dir: &Path, base: &str) -> Result<(), Error> {
        let adapters = self.adapters.as_ref().expect("an engine with adapters");
        std::fs::create_dir_all(dir).map_err(Error::io("create folder", dir))?;
        for path in [dir.join(ADAPTER_WEIGHTS), dir.join(ADAPTER_CONFIG)] {
            if path.exists() {
                let wanted = "a folder without one; remove it or choose another".into();
                return Err(Error::File { path, found: "an adapter".into(), wanted });
            }
        }
        let declared: Vec<(String, Vec<usize>)> =
            adapters.layout.tensors.iter().map(|t| (t.name.clone(), t.shape.clone())).collect();
        let path = dir.join(ADAPTER_WEIGHTS);
        let mut writer = TensorWriter::create(&path, &declared, Dtype::F32, &[("format", "pt")])?;
        for (name, shape, values) in self.adapter_tensors() {
            writer.put(name, shape, &values)?;
        }
        writer.finish()?;
        write_json(&dir.join(ADAPTER_CONFIG), &adapters.config.to_json(base))
    }

    /// Takes up an adapter in PEFT's layout. An engine without adapters is adapted as the folder says; one with adapters must have the same settings.
    ///
    /// # Errors
    /// If the folder is not an adapter of this model, uses what is not supported (the setting is named), or has other settings. Nothing has changed then.
    pub fn read_adapter(&mut self, dir: &Path) -> Result<(), Error> {
        let (lora, _) = LoraConfig::read(dir)?;
        if let Some(own) = self.lora().filter(|own| **own != lora) {
            return Err(Error::File {
                path: dir.join(ADAPTER_CONFIG),
                found: format!("{lora:?}"),
                wanted: format!("{own:?}, as the engine was adapted"),
            });
        }
        let layout = AdapterLayout::new(&self.decoder.layout, &lora);
        let path = dir.join(ADAPTER_WEIGHTS);
        if !path.exists() {
            let found = "no such file".into();
            return Err(Error::File { path, found, wanted: "an adapter's weights in safetensors".into() });
        }
        let file = TensorFile::open(&path)?;
        let mut values = Buffer::zeros(layout.len);
        for tensor in &layout.tensors {
            file.check(&tensor.name, &tensor.shape)?;
            file.read_into(&tensor.name, &mut values[tensor.span.offset..][..tensor.span.len])?;
        }
        if let Some(name) = file.names().find(|name| layout.tensors.iter().all(|tensor| tensor.name != *name))
        {
            return Err(Error::Tensor {
                path: path.clone(),
                tensor: name.into(),
                found: "a tensor that adapter_config.json doesn't account for".into(),
                wanted: format!("the factors of {}", lora.targets.join(", ")),
            });
        }
        if self.adapters.is_none() {
            self.adapt(&lora, &mut || 0.0)?;
        }
        self.adapters.as_mut().expect("just adapted").values = values;
        self.merge();
        Ok(())
    }

    /// Overwrites one of LoRA's factors, by its PEFT name.
    ///
    /// # Errors
    /// If there is no such factor, or it has another length.
    ///
    /// # Panics
    /// If the engine has no adapters.
    pub fn set_adapter_tensor(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        let adapters = self.adapters.as_mut().expect("an engine with adapters");
        let span = find(&adapters.layout.tensors, name, values.len())?.span;
        adapters.values[span.offset..][..span.len].copy_from_slice(values);
        self.merge();
        Ok(())
    }

    /// Computes the adapted matrices from base and factors.
    pub(super) fn merge(&mut self) {
        let Some(adapters) = &self.adapters else { return };
        self.copies.fresh = false;
        let mut parts = Vec::with_capacity(adapters.base.len());
        let (mut rest, mut reached) = (&mut self.weights[..], 0);
        for (adapted, base) in adapters.layout.adapted.iter().zip(&adapters.base) {
            let (part, others) = rest[adapted.weight.offset - reached..].split_at_mut(adapted.weight.len);
            (rest, reached) = (others, adapted.weight.offset + adapted.weight.len);
            parts.push((adapted, base, part));
        }
        let (values, scale, applied) = (&adapters.values, adapters.layout.scale, adapters.applied);
        self.pool.install(|| {
            parts.into_par_iter().for_each(|(adapted, base, w)| {
                base.write(w);
                if !applied {
                    return;
                }
                let (n, k, r) = (adapted.outputs, adapted.inputs, adapted.rank);
                let mut b = values[adapted.b.offset..][..adapted.b.len].to_vec();
                simd::scale(&mut b, scale);
                let a = View::rows(adapted.a.offset, k);
                product(n, k, r, &b, View::rows(0, r), values, a, Into::Add, w, View::rows(0, k));
            });
        });
    }
}
