//! `fgrpo devices --check`: computes on the CPU what PyTorch has computed, compares sampled with scored log-probabilities, and measures speed.

use fgrpo_nn::self_check::{against_pytorch, sampled_against_scored};
use fgrpo_nn::{Device, ProductFormat, measure_flops};

/// Largest allowed difference of log-probabilities and entropies, and of a gradient relative to its tensor's largest value.
const TOLERANCE: f32 = 1e-5;

/// Largest allowed difference with `bf16x3` products.
const BF16X3_TOLERANCE: f32 = 3e-4;

/// Prints a report in Markdown. Returns an error if a result is wrong.
pub(super) fn run(threads: usize) -> anyhow::Result<()> {
    outln!("\n| result | largest difference | |\n|---|---|---|");
    let mut failed = 0;
    let mut row = |name: &str, off: f32, allowed: f32| {
        // Also fails if the difference is NaN.
        let passed = off <= allowed;
        failed += usize::from(!passed);
        outln!("| {name} | {off:.1e} | {} |", if passed { "ok" } else { "WRONG" });
    };
    let device = Device::cpu(threads);
    let folder = tempfile::tempdir()?;
    let off = against_pytorch(folder.path(), &device)?;
    row("log-probabilities and entropies, against PyTorch's", off.scores, TOLERANCE);
    row("gradients, against PyTorch's", off.gradients, TOLERANCE);
    // Emulated bfloat16 is of no use, so it isn't checked.
    let bf16x3 = ProductFormat::Bf16x3.unit();
    if let Some(unit) = bf16x3 {
        let device = Device::Cpu { threads, products: ProductFormat::Bf16x3 };
        let off = against_pytorch(folder.path(), &device)?;
        row(
            &format!("log-probabilities and entropies with products bf16x3 ({unit})"),
            off.scores,
            BF16X3_TOLERANCE,
        );
        row(&format!("gradients with products bf16x3 ({unit})"), off.gradients, BF16X3_TOLERANCE);
    }
    let (sampled, rate) = sampled_against_scored(&device)?;
    row("log-probabilities of sampling, against scoring", sampled, TOLERANCE);
    outln!("\n| speed | |\n|---|---|");
    outln!("| sampling, 3.9M parameters, 64 sequences | {rate:.0} tokens/s |");
    for threads in [1, threads] {
        let rate = measure_flops(threads, ProductFormat::F32) / 1e9;
        let unit = ProductFormat::F32.unit().unwrap_or_default();
        outln!("| products f32 ({unit}), {threads} threads | {rate:.0} GFLOP/s |");
    }
    if let Some(unit) = bf16x3 {
        let rate = measure_flops(threads, ProductFormat::Bf16x3) / 1e9;
        outln!("| products bf16x3 ({unit}), {threads} threads | {rate:.0} GFLOP/s |");
    }
    match (ProductFormat::Blas.check(), ProductFormat::Blas.unit()) {
        (Ok(()), Some(library)) => {
            let rate = measure_flops(threads, ProductFormat::Blas) / 1e9;
            outln!("| products blas ({library}), its number of threads | {rate:.0} GFLOP/s |");
        }
        (Err(why), _) => outln!("| products blas | {why} |"),
        _ => {}
    }
    if failed > 0 {
        anyhow::bail!(
            "{failed} of the results are wrong on this machine: please report it with the lines above"
        );
    }
    Ok(())
}
