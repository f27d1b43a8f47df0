"""Runs this project's engine and the PyTorch programs on the same work, in turns, and prints the ratios.

    python peers/run.py [--rounds 3] [--repeats 3] [--threads 2] [--cases train decode ...] [--simd avx2] [--products f32 bf16x3 bf16] [--json FILE]

A round runs every program of a case once, in turns, so that other load on the machine affects all of them. The time of a program is its
best repetition of all rounds. The ratio is the peer's best time divided by ours; after it are the smallest and largest ratio of medians
within a round, and the ratio of processor times, which varies less on a busy machine (use --threads 1: PyTorch's threads spin while they wait).

Our engine runs with each of `--products`, with a column of ratios for each. PyTorch runs in f32. If bf16 is among the products, it also runs in bfloat16: by autocast in
training, and with weights, keys and values of 16 bits in generation.

Each PyTorch program runs twice: as installed, and "tuned". Tuned, MKL takes the CPU for an Intel CPU (on AMD it otherwise doesn't use
AVX-512 and runs at half speed), and malloc doesn't return freed memory to the system, as glibc otherwise does for each large tensor.

If a PyTorch program fails, its row says so. `--simd avx2` restricts all programs to AVX2, which most laptops and desktops have. The processor and the instruction sets in use are printed first.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import check
from work import WORKLOADS

PRODUCTS = ("f32", "bf16x3", "bf16")
ROOT = pathlib.Path(__file__).parent.parent
EXAMPLE = ROOT / "target/release/examples/step_time"


def tuned_environment(folder):
    """Returns environment variables for the fastest PyTorch that we know on this machine, or `None` without a C compiler."""
    source, library = folder / "intel.c", folder / "intel.so"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    except (OSError, subprocess.CalledProcessError):
        print("no C compiler: the tuned programs are left out", file=sys.stderr)
        return None
    keep = str(8 << 30)
    return dict(LD_PRELOAD=str(library), MALLOC_MMAP_THRESHOLD_=keep, MALLOC_TRIM_THRESHOLD_=keep, MALLOC_TOP_PAD_=str(64 << 20))


# Environment variables that restrict PyTorch and its libraries to an instruction set. MKL obeys on Intel processors, and on others if it takes them for Intel's.
HELD_TO = {
    "avx512": {},
    "avx2": dict(ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2", ONEDNN_MAX_CPU_ISA="AVX2"),
}


def processor():
    """The processor's name, as Linux gives it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    return " ".join(fields[key].strip() for key in ("model name\t", "cpu family\t", "model\t\t") if key in fields)


class Failed(Exception):
    """A program failed; its error is on stderr."""


def output(command, environment=None):
    """Runs a child process. Returns its stdout and its peak memory in GB."""
    environment = {**os.environ, **(environment or {})}
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, cwd=ROOT, env=environment) as child:
        text = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise Failed(f"{' '.join(map(str, command))} failed with {child.returncode}")
    return text, usage.ru_maxrss / 2**20


def ours(case, products, args):
    text, peak = output([EXAMPLE, "--products", products, "--threads", args.threads, "--repeats", args.repeats, case])
    line = json.loads(text)
    times = dict(best=line["best_ms"] / 1e3, median=line["ms"] / 1e3, cpu=line["cpu_ms"] / 1e3)
    return dict(times, tokens=line["tokens"], peak_gb=peak, line=line)


def peer(case, variant, args, environment, tokens):
    """Returns times for the work on `tokens` tokens. If the peer did only a part of the work, its times are scaled up."""
    command = [sys.executable, ROOT / "peers/work.py", case, variant, "--repeats", args.repeats, "--threads", args.threads]
    text, peak = output(command, environment)
    line = json.loads(text)
    scale, rest = divmod(tokens, line["tokens"])
    assert not rest, f"{case}: {variant} did other work, {line['tokens']} tokens of {tokens}"
    seconds, cpu = ([scale * x for x in line[key]["whole"]] for key in ("seconds", "cpu"))
    times = dict(best=min(seconds), median=statistics.median(seconds), cpu=statistics.median(cpu))
    return dict(times, tokens=tokens, peak_gb=peak, line=line)


def name_of(products):
    return "fgrpo" if products == "f32" else f"fgrpo {products}"


def lowest(rounds, name, key):
    return min(r[name][key] for r in rounds)


def rows(case, rounds, mine):
    """Returns the table rows of a case. Programs that failed in a round have no values."""
    tokens = rounds[0][mine[0]]["tokens"]
    for name in rounds[0]:
        label = name if name in mine else f"PyTorch {name}"
        if any(r[name] is None for r in rounds):
            yield f"| {case} | {label} | failed | | | |{' |' * len(mine)}"
            continue
        best, peak, cpu = lowest(rounds, name, "best"), max(r[name]["peak_gb"] for r in rounds), lowest(rounds, name, "cpu")
        ratios = " | ".join("" if name == own else ratio(rounds, name, own) for own in mine)
        yield f"| {case} | {label} | {best * 1e3:.0f} | {tokens / best:.0f} | {cpu * 1e3:.0f} | {peak:.2f} | {ratios} |"


def ratio(rounds, name, own):
    """Returns the time of `name` divided by the time of `own`: for the best repetitions, the range for medians, and for processor times."""
    best, cpu = (lowest(rounds, name, key) / lowest(rounds, own, key) for key in ("best", "cpu"))
    medians = [r[name]["median"] / r[own]["median"] for r in rounds]
    return f"{best:.2f} ({min(medians):.2f} to {max(medians):.2f}; {cpu:.2f})"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--cases", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    p.add_argument("--simd", choices=HELD_TO, help="the instruction set that all programs are held to; without, each takes its best")
    p.add_argument("--products", nargs="+", choices=PRODUCTS, default=["f32"], help="how our engine multiplies")
    p.add_argument("--json", type=pathlib.Path, help="write every measurement here")
    args = p.parse_args()
    if args.simd:
        os.environ.update(HELD_TO[args.simd], FGRPO_SIMD=args.simd)
    check.main()
    build = "cargo build --release -p fgrpo-nn --example step_time"
    subprocess.run(build.split(), cwd=ROOT, check=True)
    kind = subprocess.run([sys.executable, "-c", "import torch; print(torch.backends.cpu.get_cpu_capability())"], stdout=subprocess.PIPE, text=True, check=True)
    lines = [ours("maze-8-sure", products, argparse.Namespace(threads=1, repeats=1))["line"] for products in args.products]
    own = "; ".join([lines[0]["simd"], *(line["products"] for line in lines if line["simd"] not in line["products"])])
    print(f"processor: {processor()}; fgrpo: {own}; PyTorch: {kind.stdout.strip()}, {args.threads} threads\n")
    everything = []
    folder = tempfile.TemporaryDirectory()
    settings = {"": None, ", tuned": tuned_environment(pathlib.Path(folder.name))}
    if settings[", tuned"] is None:
        del settings[", tuned"]
    mine = [name_of(products) for products in args.products]
    columns = " | ".join(f"/ {name} (range over {args.rounds} rounds; CPU)" for name in mine)
    print(f"| case | program | best ms | tokens/s | CPU ms | peak GB | {columns} |\n|---|---|---|---|---|---|{'---|' * len(mine)}")
    for case in args.cases:
        variants = [v for v in WORKLOADS[case][2] if "bf16" in args.products or not v.endswith("bf16")]
        rounds = []
        for _ in range(args.rounds):
            results = {name_of(products): ours(case, products, args) for products in args.products}
            tokens = results[mine[0]]["tokens"]
            for variant in variants:
                for name, environment in settings.items():
                    try:
                        results[variant + name] = peer(case, variant, args, environment, tokens)
                    except Failed as failure:
                        print(failure, file=sys.stderr)
                        results[variant + name] = None
            rounds.append(results)
            print(f"{case}: {({k: v and round(v['best'], 3) for k, v in rounds[-1].items()})}", file=sys.stderr)
        everything.append(dict(case=case, rounds=rounds))
        print("\n".join(rows(case, rounds, mine)), flush=True)
    if args.json:
        args.json.write_text(json.dumps(dict(processor=processor(), simd=own, threads=args.threads, repeats=args.repeats, cases=everything), indent=1))


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
