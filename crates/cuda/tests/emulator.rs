//! The emulator finds mistakes that may not show on a GPU.

use fgrpo_cuda::emulated::Emulated;
use fgrpo_cuda::{Argument, Command, Driver, Error, Graph, Launch, Memory, Message, Pinned, Queue, Shape};
use std::sync::Arc;

fn device(order: u32) -> Arc<dyn Driver> {
    Arc::new(Emulated::new(order))
}

/// A launch of `gather_f32` over `blocks` blocks.
fn gather(blocks: usize, arguments: [Argument; 4]) -> Command {
    Command::Launch(Launch {
        kernel: "gather_f32",
        shape: Shape::of(blocks, 32, 0),
        arguments: arguments.to_vec(),
    })
}

fn run(
    driver: &Arc<dyn Driver>,
    kernel: &'static str,
    threads: u32,
    shared: u32,
    arguments: &[Argument],
) -> Result<(), Error> {
    let shape = Shape { grid: [1, 1, 1], threads, shared };
    driver.submit(&Command::Launch(Launch { kernel, shape, arguments: arguments.to_vec() }))?;
    driver.synchronize()
}

#[test]
fn a_missing_barrier_shows_in_some_order_of_threads() {
    let results: Vec<Vec<u32>> = (0..4)
        .map(|order| {
            let driver = device(order);
            let out = Memory::<f32>::new(&driver, 64).unwrap();
            run(&driver, "fault_missing_barrier", 64, 256, &[(&out).into()]).unwrap();
            out.read().unwrap().iter().map(|v| v.to_bits()).collect()
        })
        .collect();
    assert!(results.iter().any(|r| r != &results[0]));
}

#[test]
fn a_copy_that_nobody_waited_for_is_poison() {
    let driver = device(0);
    let input = Memory::from(&driver, &[1.0f32; 128]).unwrap();
    let out = Memory::<f32>::new(&driver, 32).unwrap();
    run(&driver, "fault_missing_wait", 32, 512, &[(&input).into(), (&out).into()]).unwrap();
    assert!(out.read().unwrap().iter().all(|v| v.is_nan()));
}

#[test]
fn a_queue_that_does_not_wait_for_another_is_found() {
    // Copy to the device, run a kernel, copy back: if one of the waits is missing, some order has another result.
    for missing in [None, Some(Queue::Compute), Some(Queue::Download)] {
        let driver = device(0);
        let (from, to) =
            (Memory::from(&driver, &[0.0f32; 32]).unwrap(), Memory::from(&driver, &[0.0f32; 32]).unwrap());
        let row = Memory::from(&driver, &[0u32]).unwrap();
        let mut host = Pinned::<f32>::new(&driver, 64).unwrap();
        let turns = (1..=12).map(|turn| {
            host.write(0, &[turn as f32; 32]).unwrap();
            host.upload(0, 32, from.address()).unwrap();
            driver.record(Queue::Upload, 0).unwrap();
            if missing != Some(Queue::Compute) {
                driver.wait(Queue::Compute, 0).unwrap();
            }
            let arguments = [(&from).into(), (&row).into(), (&to).into(), 32u32.into()];
            driver.submit(&gather(1, arguments)).unwrap();
            driver.record(Queue::Compute, 1).unwrap();
            if missing != Some(Queue::Download) {
                driver.wait(Queue::Download, 1).unwrap();
            }
            host.download(to.address(), 32, 32).unwrap();
            host.read().unwrap()[32..] == [turn as f32; 32]
        });
        assert_eq!(turns.collect::<Vec<_>>().contains(&false), missing.is_some(), "without {missing:?}");
    }
}

#[test]
fn a_message_waits_for_the_work_before_it_and_not_for_the_work_after_it() {
    let driver = Arc::new(Emulated::new(0));
    let device = Arc::clone(&driver) as Arc<dyn Driver>;
    let [from, to] = [0, 1].map(|_| Memory::from(&device, &[0.0f32; 32]).unwrap());
    let row = Memory::from(&device, &[0u32]).unwrap();
    let mut there = Message::<f32>::new(&device, 32).unwrap();
    let mut back = [0, 1].map(|_| Message::<f32>::new(&device, 64).unwrap());
    let mut unfinished = 0;
    for turn in 0..12 {
        let number = |step: usize| (2 * turn + step) as f32;
        for (step, back) in back.iter_mut().enumerate() {
            // The second copy must not overwrite the first before it has left.
            there.send(&[number(step); 32], from.address()).unwrap();
            let arguments = [(&from).into(), (&row).into(), (&to).into(), 32u32.into()];
            driver.submit(&gather(1, arguments)).unwrap();
            back.receive(to.address(), 32).unwrap();
        }
        assert_eq!(back[0].read().unwrap(), [number(0); 32]);
        unfinished += u64::from(driver.launched() < 2 * turn as u64 + 2);
        assert_eq!(back[1].read().unwrap(), [number(1); 32]);
    }
    assert!(unfinished > 0, "the first message never came before the second launch");
}

#[test]
fn memory_of_another_device_is_no_argument_of_a_kernel() {
    let devices = [0, 1].map(device);
    let [own, other] = [0, 1].map(|device| Memory::from(&devices[device], &[0.0f32; 32]).unwrap());
    let row = Memory::from(&devices[0], &[0u32]).unwrap();
    let launch = |from: &Memory<f32>| {
        let arguments = [from.into(), (&row).into(), (&own).into(), 32u32.into()];
        devices[0].submit(&gather(1, arguments))
    };
    launch(&own).unwrap();
    let message = launch(&other).unwrap_err().to_string();
    assert!(message.contains("gather_f32") && message.contains("argument 0"), "{message}");
}

#[test]
fn a_lost_device_fails_from_the_launch_after_the_last_one_on() {
    let device: Arc<dyn Driver> = Arc::new(Emulated::new(0).lost_after(Some(1)));
    let memory = Memory::from(&device, &[1.0f32; 32]).unwrap();
    let row = Memory::from(&device, &[0u32]).unwrap();
    let to = Memory::from(&device, &[0.0f32; 32]).unwrap();
    for turn in 0..3 {
        let arguments = [(&memory).into(), (&row).into(), (&to).into(), 32u32.into()];
        device.submit(&gather(1, arguments)).unwrap();
        assert_eq!(to.read().is_err(), turn > 0);
    }
}

#[test]
fn divergence_and_overruns_are_failures_that_name_the_kernel() {
    for (kernel, arguments, wanted) in [
        ("fault_divergent_barrier", 1, "left before the barrier"),
        ("fault_divergent_shuffle", 1, "different operations"),
        ("fault_shared_overrun", 1, "outside of shared memory"),
    ] {
        let driver = device(0);
        let memory = Memory::from(&driver, &[0.0f32; 256]).unwrap();
        let error =
            run(&driver, kernel, 64, 1024, &vec![(&memory).into(); arguments]).unwrap_err().to_string();
        assert!(error.contains(kernel) && error.contains(wanted), "{error}");
        // As on a GPU, the failure is permanent.
        assert!(memory.read().is_err());
    }
}

#[test]
fn launches_wait_until_somebody_reads() {
    let driver = Emulated::new(0);
    let memory = driver.allocate(256).unwrap();
    let [width, rows] = [driver.allocate(4).unwrap(), driver.allocate(256).unwrap()];
    driver.write(memory, &[0; 256]).unwrap();
    driver.write(width, &0u32.to_ne_bytes()).unwrap();
    let arguments = [memory.into(), width.into(), rows.into(), 64u32.into()];
    driver.submit(&gather(1, arguments)).unwrap();
    assert_eq!(driver.launched(), 0);
    let mut bytes = [1; 256];
    driver.read(rows, &mut bytes).unwrap();
    assert_eq!((driver.launched(), bytes), (1, [0; 256]));
}

#[test]
fn a_graph_runs_when_it_is_replayed_on_what_memory_holds_then() {
    let driver = device(0);
    let (x, rows) =
        (Memory::from(&driver, &[1.0f32; 64]).unwrap(), Memory::from(&driver, &[0u32, 1]).unwrap());
    let y = Memory::from(&driver, &[0.0f32; 64]).unwrap();
    let gather = |to: &Memory<f32>| gather(2, [(&x).into(), (&rows).into(), to.into(), 32u32.into()]);
    let commands = [
        gather(&y),
        Command::Copy { from: x.address(), to: y.address(), bytes: 4 },
        Command::Zero { at: y.at(32), bytes: 8 },
    ];
    let graph = Graph::capture(&driver, &commands).unwrap();
    assert_eq!(y.read().unwrap(), [0.0; 64], "a capture runs nothing");
    for number in [2.0, 3.0] {
        x.write(0, &[number; 64]).unwrap();
        graph.replay().unwrap();
        let mut wanted = [number; 64];
        wanted[32..34].fill(0.0);
        assert_eq!(y.read().unwrap(), wanted);
    }
    // A graph has the same effect as a stream of launches.
    y.write(0, &[0.0; 64]).unwrap();
    commands.iter().for_each(|command| driver.submit(command).unwrap());
    assert_eq!(y.read().unwrap()[..32], [3.0; 32]);
}

#[test]
fn a_graph_whose_memory_moved_is_refused_and_so_are_wrong_nodes() {
    let driver = device(0);
    let memory = |len: usize| Memory::from(&driver, &vec![1.0f32; len]).unwrap();
    let (x, y) = (memory(64), memory(64));
    let copy = Command::Copy { from: x.address(), to: y.address(), bytes: 256 };
    let graph = Graph::capture(&driver, &[Command::Zero { at: x.address(), bytes: 4 }, copy]).unwrap();
    graph.replay().unwrap();
    let at = y.address();
    drop(y);
    let message = graph.replay().unwrap_err().to_string();
    assert!(
        message.contains("graph") && message.contains("command 1") && message.contains("freed"),
        "{message}"
    );
    assert!(message.contains(&format!("{:#x}", at.0)), "{message}");
    // Refused, not run.
    assert_eq!(x.read().unwrap()[1..], [1.0; 63]);
    let unknown = Launch { kernel: "no_such_kernel", shape: Shape::of(1, 32, 0), arguments: Vec::new() };
    let message = Graph::capture(&driver, &[Command::Launch(unknown)]).unwrap_err().to_string();
    assert!(message.contains("no such kernel"), "{message}");
}

#[test]
fn wrong_launches_are_refused_by_name() {
    let driver = device(0);
    let memory = Memory::<f32>::new(&driver, 64).unwrap();
    let m = || Argument::from(&memory);
    let refused = |kernel, shape, arguments: &[Argument]| {
        let launch = Launch { kernel, shape, arguments: arguments.to_vec() };
        driver.submit(&Command::Launch(launch)).unwrap_err().to_string()
    };
    assert!(refused("no_such_kernel", Shape::of(1, 32, 0), &[]).contains("no such kernel"));
    assert!(
        refused("gather_f32", Shape::of(1, 32, 0), &[m(), m(), m()])
            .contains("its arguments have [8, 8, 8, 4] bytes")
    );
    let all = [m(), m(), m(), 1u32.into()];
    assert!(refused("gather_f32", Shape::of(1, 33, 0), &all).contains("33 threads"));
    assert!(refused("gather_f32", Shape::of(1, 2048, 0), &all).contains("2048 threads"));
    assert!(refused("gather_f32", Shape::of(1, 32, 1 << 20), &all).contains("shared memory"));
    assert!(
        refused("gather_f32", Shape { grid: [1, 70_000, 1], threads: 32, shared: 0 }, &all).contains("grid")
    );
}

#[test]
fn every_kernel_of_the_emulator_is_in_the_shipped_ptx() {
    let ptx = include_str!("../ptx/kernels.ptx");
    for kernel in Emulated::kernels().into_iter().filter(|k| !k.starts_with("fault_")) {
        assert!(ptx.contains(&format!(".entry {kernel}(")), "{kernel}");
    }
}
