//! What works on this machine's GPU, in seconds: libraries, kernels, copies, products, graphs. One JSON line per step, written as it ends.
//!
//! Exits 1 if the libraries, the kernels' loading or a launch fails: then nothing else can work. Exits 2 if a later step does. `scripts/gpu/check` runs it first.

use std::sync::Arc;
use std::time::Instant;

use fgrpo_cuda::{
    Address, Argument, Command, Driver, Gpu, Graph, Launch, Matrix, Memory, Numbers, Pinned, Product, Shape,
    driver_library, probe, products_library,
};

type Done = Result<String, Box<dyn std::error::Error>>;

/// Runs a step and prints its line; whether it succeeded.
fn step(name: &str, work: impl FnOnce() -> Done) -> bool {
    let clock = Instant::now();
    let done = work();
    let ms = clock.elapsed().as_secs_f64() * 1e3;
    let (ok, text) = match &done {
        Ok(more) => (true, more.clone()),
        Err(why) => (false, format!("\"error\": {:?}", why.to_string())),
    };
    println!("{{\"probe\": \"{name}\", \"ok\": {ok}, \"ms\": {ms:.1}, {text}}}");
    ok
}

fn expect(condition: bool, what: String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what) }
}

fn launch(driver: &Arc<dyn Driver>) -> Done {
    let x: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let (from, rows, to) =
        (Memory::from(driver, &x)?, Memory::from(driver, &[0u32])?, Memory::from(driver, &[0.0f32; 32])?);
    let arguments = [(&from).into(), (&rows).into(), (&to).into(), 32u32.into()];
    driver.submit(&Command::Launch(Launch {
        kernel: "gather_f32",
        shape: Shape::of(1, 32, 0),
        arguments: arguments.to_vec(),
    }))?;
    expect(to.read()? == x, format!("found {:?}", to.read()?))?;
    Ok("\"kernel\": \"gather_f32\"".to_owned())
}

/// Attention of 64 equal keys on tensor cores: the mean of values of 1, and derivatives of 0 by the kernel with the most shared memory.
fn tensor_cores(driver: &Arc<dyn Driver>) -> Done {
    const ROWS: usize = 64;
    const SIZE: usize = 128;
    const ONE: u16 = 0x3f80;
    let kv: Vec<u16> = [[0; SIZE], [ONE; SIZE]].concat().repeat(ROWS);
    let (q, kv) = (Memory::from(driver, &[0u16; ROWS * SIZE])?, Memory::from(driver, &kv)?);
    let poison = |len: usize| Memory::from(driver, &vec![0xffffu16; len]);
    let (out, dkv) = (poison(ROWS * SIZE)?, poison(2 * ROWS * SIZE)?);
    let rows = Memory::from(driver, &(0..ROWS as u32).collect::<Vec<_>>())?;
    let first = Memory::from(driver, &[0u32, 1])?;
    let piece = Memory::from(driver, &[[0, ROWS as u32, 0, ROWS as u32 | 1 << 31]])?;
    let (lse, delta) = (Memory::from(driver, &[0.0f32; ROWS])?, Memory::from(driver, &[0.0f32; ROWS])?);
    // Without a window; nobody reads positions.
    let (rows, all) = (Argument::from(&rows), u32::MAX.into());
    let plan = [rows, (&first).into(), (&piece).into(), rows, all, (&q).into(), (&kv).into()];
    let sizes: Vec<Argument> = vec![1u32.into(), 1u32.into(), (ROWS as u32).into(), 0.1f32.into()];
    let shape = |shared: usize| Shape::of(1, 128, shared);
    let forward = [&plan[..], &[(&out).into(), (&lse).into()], &sizes].concat();
    let (kernel, shared) = ("attention_bf16_128", 3 * ROWS * (SIZE + 8) * 2);
    driver.submit(&Command::Launch(Launch { kernel, shape: shape(shared), arguments: forward }))?;
    let found = out.read()?;
    expect(found.iter().all(|&v| v == ONE), format!("attention_bf16_128: found {:#x?}", &found[..4]))?;
    let shared = 4 * ROWS * (SIZE + 8) * 2 + 4 * ROWS * 4;
    let backward =
        [&plan[..], &[(&lse).into(), (&delta).into(), (&q).into(), (&dkv).into()], &sizes].concat();
    let kernel = "attention_dkv_bf16_128";
    driver.submit(&Command::Launch(Launch { kernel, shape: shape(shared), arguments: backward }))?;
    let found = dkv.read()?;
    expect(
        found.iter().all(|&v| v & 0x7fff == 0),
        format!("attention_dkv_bf16_128: found {:#x?}", &found[..4]),
    )?;
    Ok(format!("\"shared_memory\": {shared}"))
}

fn copies(driver: &Arc<dyn Driver>, bytes: usize) -> Done {
    let device = Memory::<u8>::new(driver, bytes)?;
    let (host, mut back) = (vec![7u8; bytes], vec![0u8; bytes]);
    let time = |work: &mut dyn FnMut() -> Result<(), fgrpo_cuda::Error>| -> Result<f64, fgrpo_cuda::Error> {
        work()?;
        let clock = Instant::now();
        work()?;
        driver.synchronize()?;
        Ok(bytes as f64 / clock.elapsed().as_secs_f64() / 1e9)
    };
    let to = time(&mut || device.write(0, &host))?;
    let from = time(&mut || device.read_into(0, &mut back))?;
    expect(back == host, "what came back is not what was sent".to_owned())?;
    let mut pinned = Pinned::<u8>::new(driver, bytes)?;
    let locked_from = time(&mut || pinned.download(device.address(), 0, bytes))?;
    expect(pinned.read()? == host, "page-locked: what came back is not what was sent".to_owned())?;
    let locked_to = time(&mut || pinned.upload(0, bytes, device.address()))?;
    Ok(format!(
        "\"gb_per_second\": {{\"to\": {to:.1}, \"from\": {from:.1}, \"page_locked_to\": {locked_to:.1}, \"page_locked_from\": {locked_from:.1}}}"
    ))
}

fn products(driver: &Arc<dyn Driver>, size: usize) -> Done {
    let mut lines = Vec::new();
    for (name, numbers) in
        [("f32", Numbers::F32), ("bf16", Numbers::Bf16), ("bf16 to f32", Numbers::Bf16ToF32)]
    {
        let (operand, result) = numbers.bytes();
        let random = |seed: u64| {
            let mut state = seed;
            let mut number = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            };
            let bytes: Vec<u8> =
                (0..size * size).flat_map(|_| number().to_le_bytes()[4 - operand..].to_vec()).collect();
            Memory::from(driver, &bytes)
        };
        let (a, b) = (random(1)?, random(2)?);
        let [library, ours] = [0; 2].map(|_| Memory::from(driver, &vec![0xffu8; size * size * result]));
        let (library, ours) = (library?, ours?);
        let product = |c: Address| Product {
            m: size,
            n: size,
            k: size,
            a: Matrix::rows(a.address(), size),
            b: Matrix::rows(b.address(), size).transposed(),
            c,
            c_stride: size,
            alpha: 1.0,
            onto: None,
            bias: None,
            numbers,
            exact: false,
        };
        driver.submit(&Command::Product(product(library.address())))?;
        driver.submit(&Command::Launch(product(ours.address()).launch()))?;
        let numbers_of = |memory: &Memory<u8>| -> Result<Vec<f32>, fgrpo_cuda::Error> {
            let mut word = [0; 4];
            let mut number = |bytes: &[u8]| {
                word[4 - result..].copy_from_slice(bytes);
                f32::from_le_bytes(word)
            };
            Ok(memory.read()?.chunks(result).map(&mut number).collect())
        };
        let (library, ours) = (numbers_of(&library)?, numbers_of(&ours)?);
        let worst = library
            .iter()
            .zip(&ours)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, |most: f32, off| if off <= most { most } else { off });
        let largest = ours.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
        let bound = largest * if result == 2 { 1e-2 } else { 1e-4 };
        expect(
            worst <= bound && largest > 1.0,
            format!("{name}: {worst} off our kernel, whose largest is {largest}"),
        )?;
        lines.push(format!("\"{name}\": {worst:.1e}"));
    }
    Ok(format!("\"size\": {size}, \"off_our_kernel\": {{{}}}", lines.join(", ")))
}

/// A launch, a product, a copy and zeros as one graph, twice, with other numbers in between.
fn graph(driver: &Arc<dyn Driver>) -> Done {
    let [a, b, c, d] = [0; 4].map(|_| Memory::from(driver, &[1.0f32; 32]));
    let (a, b, c, d) = (a?, b?, c?, d?);
    let rows = Memory::from(driver, &[0u32])?;
    let product = Product {
        m: 4,
        n: 4,
        k: 4,
        a: Matrix::rows(b.address(), 4),
        b: Matrix::rows(b.at(16), 4),
        c: c.address(),
        c_stride: 4,
        alpha: 1.0,
        onto: None,
        bias: None,
        numbers: Numbers::F32,
        exact: false,
    };
    let arguments = vec![(&a).into(), (&rows).into(), (&b).into(), 32u32.into()];
    let commands = [
        Command::Launch(Launch { kernel: "gather_f32", shape: Shape::of(1, 32, 0), arguments }),
        Command::Product(product),
        Command::Copy { from: c.address(), to: d.address(), bytes: 64 },
        Command::Zero { at: d.address(), bytes: 16 },
    ];
    commands.iter().try_for_each(|command| driver.submit(command))?;
    let graph = Graph::capture(driver, &commands)?;
    for number in [2.0f32, 3.0] {
        a.write(0, &[number; 32])?;
        graph.replay()?;
        let wanted: Vec<f32> = (0..16).map(|i| if i < 4 { 0.0 } else { 4.0 * number * number }).collect();
        let found = d.read()?;
        expect(found[..16] == wanted, format!("found {found:?}"))?;
    }
    Ok("\"replays\": 2".to_owned())
}

fn main() {
    let mut gpu = None;
    let vital = step("libraries", || {
        let (driver, library) = (driver_library()?, products_library());
        let found = probe()?;
        let names: Vec<String> = found
            .iter()
            .map(|gpu| {
                format!(
                    "{} (compute capability {}.{}, {} bytes)",
                    gpu.name, gpu.capability.0, gpu.capability.1, gpu.memory
                )
            })
            .collect();
        let library = library.map_or_else(
            |why| why.to_string(),
            |found| format!("{} {}", found.path.display(), found.version),
        );
        Ok(format!(
            "\"driver\": {:?}, \"cublaslt\": {library:?}, \"gpus\": {names:?}",
            format!("{} {}", driver.path.display(), driver.version)
        ))
    }) && step("kernels are loaded", || {
        let opened = Gpu::open(0, None)?;
        let load_ms = opened.load_ms();
        gpu = Some(Arc::new(opened) as Arc<dyn Driver>);
        Ok(format!("\"load_ms\": {load_ms:.1}"))
    });
    let Some(driver) = gpu.filter(|_| vital) else { std::process::exit(1) };
    if !step("launch", || launch(&driver)) || !step("tensor cores", || tensor_cores(&driver)) {
        std::process::exit(1);
    }
    // On the fake driver the same with little.
    let small = std::env::args().any(|argument| argument == "--small");
    let (bytes, size) = if small { (1 << 20, 32) } else { (256 << 20, 512) };
    let later = [
        step("copies", || copies(&driver, bytes)),
        step("products", || products(&driver, size)),
        step("graph", || graph(&driver)),
    ];
    if later.contains(&false) {
        std::process::exit(2);
    }
}
