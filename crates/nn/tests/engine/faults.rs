//! Errors of NVIDIA's driver at every call of an engine's work, on the fake driver. Each must end in its message and leave nothing behind.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fgrpo_cuda::fake;
use fgrpo_nn::config::Config;
use fgrpo_nn::{AdamW, Completion, Device, Engine, Error, Precision, Prompt, Sampling};

use crate::reference::{Numbers, configs, forest};

const OUT_OF_MEMORY: i32 = 2;
const REFUSED: i32 = 999;
const CAPTURE_INVALIDATED: i32 = 901;
const LIBRARY_FAILED: i32 = 14;

fn gpu(gpu: usize, precision: Precision) -> Device {
    Device::Cuda { gpu, precision, moments: Precision::F32, exact: false }
}

/// An engine from creation to samples: two steps, one of them with moments in host memory, and rollouts with graphs.
fn work(device: &Device) -> Result<(Vec<Completion>, u64), Error> {
    let (_, config) = configs().swap_remove(1);
    let config = Config { num_hidden_layers: 1, ..config };
    let normal = |index: u64| Numbers::new(index).normal();
    let mut engine = Engine::init(&config, 0.2, &normal, device)?;
    for number in 0..2 {
        let batch = forest(&mut Numbers::new(100 + number), config.vocab_size, 2, 4, 4);
        engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(-0.1))?;
        engine.update(&AdamW { lr: 1e-2, ..AdamW::default() }, Some(1.0))?;
        engine.set_optimizer_offload(true);
    }
    let tokens: Vec<Vec<u32>> =
        [3, 9, 5].map(|len| Numbers::new(len).tokens(len as usize, config.vocab_size)).into();
    let prompts: Vec<Prompt<'_>> = tokens.iter().map(|tokens| Prompt { tokens, samples: 0..2 }).collect();
    let sampling = Sampling { max_new_tokens: 8, ..Sampling::default() };
    let uniform =
        |prompt, sample, position| Numbers::new((prompt * 100 + sample * 50 + position) as u64).uniform();
    let mut done = Vec::new();
    for rows in [3, 3, 1, 1] {
        let mut take = |completion| {
            done.push(completion);
            ControlFlow::Continue(())
        };
        engine.generate(&prompts[..rows], &sampling, &uniform, None, &mut take)?;
    }
    done.sort_by_key(|completion| (completion.prompt, completion.sample));
    Ok((done, engine.graph_counts().replayed))
}

/// Result of the work with a planted error, or the message.
fn with_fault(device: &Device, fault: (&str, u64, i32)) -> Result<Vec<Completion>, String> {
    fake::plant(Some(fault));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = catch_unwind(AssertUnwindSafe(|| work(device)));
    std::panic::set_hook(hook);
    match done {
        Ok(Ok((samples, _))) => Ok(samples),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned())),
    }
}

/// Calls of the undisturbed work, and its result.
fn undisturbed(device: &Device) -> (Vec<(String, u64)>, Vec<Completion>) {
    fake::plant(None);
    let fake::Report { calls: before, live, .. } = fake::report();
    let (samples, replayed) = work(device).unwrap();
    assert!(replayed > 0, "no graph");
    let report = fake::report();
    assert!(report.live == live && report.complaints.is_empty(), "{report:?}");
    let since = |(call, count): (String, u64)| {
        let count = count - before.get(&call).unwrap_or(&0);
        (call, count)
    };
    (report.calls.into_iter().map(since).filter(|(_, count)| *count > 0).collect(), samples)
}

#[test]
fn an_error_in_any_call_ends_the_work_with_its_message_and_leaves_nothing_behind() {
    if !fake::is_here(
        "faults::an_error_in_any_call_ends_the_work_with_its_message_and_leaves_nothing_behind",
        true,
        &[],
    ) {
        return;
    }
    let mut wrong = Vec::new();
    for device in [gpu(0, Precision::Bf16), gpu(1, Precision::F32)] {
        let (calls, samples) = undisturbed(&device);
        for (call, count) in calls {
            let code = if call.starts_with("cublasLt") { LIBRARY_FAILED } else { REFUSED };
            for number in [0, count / 2, count - 1] {
                let before: u64 = fake::report().live.values().sum();
                let done = with_fault(&device, (&call, number, code));
                let frees = ["Destroy", "Free", "Release", "Unload"].iter().any(|part| call.contains(part));
                let left = fake::report().live.values().sum::<u64>() - before;
                // If nothing failed before, freeing failed.
                if left > 0 && !frees && call != "kernel" && done.is_err() {
                    wrong.push(format!("{call} {number} of {count}: {left} left"));
                }
                match done {
                    // Freeing, or waiting while the device is closed. A missing graph isn't a loss.
                    Ok(found) if found == samples => {}
                    Ok(_) => wrong.push(format!("{call} {number} of {count}: other samples")),
                    Err(why) if why.contains("CUDA") && why.contains(": ") => {}
                    Err(why) => wrong.push(format!("{call} {number} of {count}: {why}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn too_little_memory_at_any_allocation_names_a_setting_and_leaves_nothing_behind() {
    if !fake::is_here(
        "faults::too_little_memory_at_any_allocation_names_a_setting_and_leaves_nothing_behind",
        true,
        &[],
    ) {
        return;
    }
    for device in [gpu(0, Precision::F32), gpu(1, Precision::Bf16)] {
        let (calls, _) = undisturbed(&device);
        for (call, count) in calls.into_iter().filter(|(call, _)| call.contains("Alloc")) {
            for number in 0..count {
                let why = with_fault(&device, (&call, number, OUT_OF_MEMORY)).expect_err(&call);
                assert!(why.contains("memory"), "{call} {number}: {why}");
                // The first ones are cuBLASLt's, which don't depend on a setting.
                let named = ["compute.", "update.", "rollout."].iter().any(|part| why.contains(part));
                assert!(named || number < 2 || call == "cuMemHostAlloc", "{call} {number}: {why}");
                let report = fake::report();
                assert!(
                    report.live.is_empty() && report.complaints.is_empty(),
                    "{call} {number}: {report:?}"
                );
            }
        }
    }
}

#[test]
fn a_graph_that_the_driver_refuses_changes_no_sample() {
    if !fake::is_here("faults::a_graph_that_the_driver_refuses_changes_no_sample", true, &[]) {
        return;
    }
    let device = gpu(0, Precision::F32);
    let (_, samples) = undisturbed(&device);
    let captures = "cuStreamBeginCapture_v2";
    let before = fake::report().calls[captures];
    assert!(before > 1);
    for (tried, call) in
        [captures, "cuStreamEndCapture", "cuGraphInstantiateWithFlags"].into_iter().enumerate()
    {
        fake::plant(Some((call, 0, CAPTURE_INVALIDATED)));
        let (found, replayed) = work(&device).unwrap();
        assert!(found == samples && replayed == 0, "{call}");
        // After the failing call no other is made.
        assert_eq!(fake::report().calls[captures], before + 1 + tried as u64, "{call}");
    }
}
