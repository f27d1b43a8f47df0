"""Runs the same RL job in TRL's GRPOTrainer and in `fgrpo train`. Compares seconds per step, rewards, and pass@k of the trained policies.

    python -m venv .venv && .venv/bin/pip install torch==2.15.0 transformers==5.10.4 trl==1.16.0 datasets accelerate matplotlib
    .venv/bin/python peers/trl_job.py --fgrpo target/release/fgrpo --out runs/trl-job

Both start from the same checkpoint, draw prompts from the same file, and call the same Python reward function. SHARED has the
settings of both. Finished runs are stored, so the same command continues after an interruption. `--size lm` selects the model of
46M parameters; `--model` selects an existing model, which replaces SFT:

    .venv/bin/python peers/trl_job.py --fgrpo target/release/fgrpo --model SmolLM2-135M-Instruct.Q4_1.gguf --data words --reward number \\
        --system 'Solve the problem. Put the final answer in \\\\boxed{}.' --prompts 16 --tokens 48 --lr 2e-5 --rows 16 --steps 20 --seeds 1 --threads 2
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SHARED = {"prompts": 32, "group_size": 8, "max_new_tokens": 96, "lr": 1e-4, "warmup_steps": 10, "beta2": 0.999, "clip": 0.2, "eps": 1e-4}
SIZES = {
    "small": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2},
    "lm": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12, "num_attention_heads": 8, "num_key_value_heads": 4},
}
START = """seed = 1
steps = 0
[task]
kind = "arithmetic"
fewest_operations = 2
most_operations = 3
largest = 20
train = 20_000
held_out = 128
[model.init]
architecture = "qwen3"
{model}
[sft]
steps = {sft_steps}
batch_size = {sft_batch}
lr = {sft_lr}
warmup_steps = 50
schedule = "cosine"
seed = 1
[compute]
threads = {threads}
"""
OURS = """seed = {seed}
steps = {steps}
[task]
kind = "python"
data = "train.jsonl"
held_out = "held-out.jsonl"
grader = "grade.py:reward"
{system}
[model]
path = "{start}"
[rollout]
prompts = {prompts}
group_size = {group_size}
max_new_tokens = {max_new_tokens}
[algorithm]
advantage = {{ kind = "grpo", eps = {eps} }}
loss = {{ kind = "grpo", clip = [{clip}, {clip}] }}
aggregation = "token-mean"
focal_gamma = 0
[update]
lr = {lr}
warmup_steps = {warmup_steps}
weight_decay = 0
betas = [0.9, {beta2}]
[eval]
every = 0
[save]
every = {steps}
[compute]
threads = {threads}
precision = "{precision}"
"""
GRADE = '''import re

def reward(completions, answer, **columns):
    """1 for a completion whose last {meaning}."""
    def grade(completion, wanted):
        text = completion if isinstance(completion, str) else completion[0]["content"]
        boxes = re.findall(r"{pattern}", text)
        return float(bool(boxes) and {test})
    wanted = [answer] * len(completions) if isinstance(answer, str) else answer
    return [grade(*pair) for pair in zip(completions, wanted)]
'''
# `even` is learned in few steps, because the model only has to change its answers, not to compute them.
BOX = r"\\boxed\{(-?\d+)\}"
REWARDS = {
    "answer": {"meaning": "box is the answer", "pattern": BOX, "test": "boxes[-1] == wanted"},
    "even": {"meaning": "box has an even number", "pattern": BOX, "test": "int(boxes[-1]) % 2 == 0"},
    "number": {"meaning": "number is the answer", "pattern": r"-?\d+", "test": "boxes[-1] == wanted"},
}


def trl(folder, out, args):
    """Runs GRPOTrainer. Writes metrics.jsonl and the trained model."""
    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(args.threads)
    sys.path.insert(0, str(folder))
    from grade import reward

    start = newest(folder / "start")
    data = load_dataset("json", data_files=str(folder / "train.jsonl"), split="train")
    system = [{"role": "system", "content": args.system}] if args.system else []
    data = data.map(lambda row: {"prompt": [*system, {"role": "user", "content": row["problem"]}]}, remove_columns=["problem", "solution"])
    gpu = args.device != "cpu"
    rows = SHARED["prompts"] * SHARED["group_size"]
    config = GRPOConfig(
        output_dir=str(out / "trainer"), seed=args.trl_run, max_steps=args.steps,
        per_device_train_batch_size=args.rows or rows,
        gradient_accumulation_steps=rows // (args.rows or rows),
        num_generations=SHARED["group_size"], max_completion_length=SHARED["max_new_tokens"], temperature=1.0, top_p=1.0, top_k=0,
        learning_rate=SHARED["lr"], lr_scheduler_type="constant_with_warmup", warmup_steps=SHARED["warmup_steps"], weight_decay=0.0,
        adam_beta1=0.9, adam_beta2=SHARED["beta2"], max_grad_norm=1.0, beta=0.0, epsilon=SHARED["clip"], loss_type="dapo",
        scale_rewards="group", bf16=gpu, use_cpu=not gpu, gradient_checkpointing=False, logging_steps=1, save_strategy="no",
        report_to="none", disable_tqdm=True,
    )
    write = recorder(out / "metrics.jsonl")
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32), processing_class=AutoTokenizer.from_pretrained(start),
        args=config, reward_funcs=reward, train_dataset=data, callbacks=[write],
    )
    write.began = time.perf_counter()
    trainer.train()
    trainer.save_model(str(out / "model"))


def recorder(path):
    """Returns a callback for TRL's trainer that writes a line for each step."""
    from transformers import TrainerCallback

    log = path.open("w")

    class Write(TrainerCallback):
        began = 0.0

        def on_log(self, args, state, control, logs=None, **_):
            if "reward" in logs:
                now = time.perf_counter()
                row = {"step": state.global_step, "reward": logs["reward"], "seconds": now - self.began, "length": logs["completions/mean_length"]}
                log.write(json.dumps(row) + "\n")
                log.flush()
                self.began = time.perf_counter()

    return Write()


def make_start(args, out, run, fgrpo):
    model = "\n".join(f"{key} = {value}" for key, value in SIZES[args.size].items())
    text = START.format(model=model, sft_steps=args.sft_steps, sft_batch=args.sft_batch, sft_lr=args.sft_lr, threads=args.threads)
    (out / "start.toml").write_text(text)
    run(*fgrpo, "sft", "start.toml", "--out", "start", done=f"start/checkpoints/step-{args.sft_steps:06}")


def measured(out, *command, done):
    """Runs a command in OUT unless its result exists. Writes its time and memory to usage.jsonl, under the name of the result."""
    if (out / done).exists():
        return
    print("$", " ".join(map(str, command)), flush=True)
    with (out / "log.txt").open("a") as log:
        process = subprocess.Popen([str(c) for c in command], cwd=out, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}; its output is in {out / 'log.txt'}")
    # Linux counts the largest resident set in KiB.
    row = {"done": str(done), "processor_seconds": usage.ru_utime + usage.ru_stime, "gib": usage.ru_maxrss / 2**20}
    with (out / "usage.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def newest(run):
    return max((run / "checkpoints").glob("step-*"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fgrpo", default="fgrpo", help="the program")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--model", help="a checkpoint folder or .gguf file to start at, in place of SFT")
    parser.add_argument("--data", type=pathlib.Path, help="folder of train.jsonl and held-out.jsonl (problem, answer, solution); else arithmetic")
    parser.add_argument("--system", help="system prompt")
    parser.add_argument("--tokens", type=int, default=SHARED["max_new_tokens"], help="largest number of new tokens")
    parser.add_argument("--rows", type=int, help="completions in a pass of TRL's update (default: all, if memory holds them)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; bf16 on cuda")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--reward", choices=REWARDS, default="answer")
    parser.add_argument("--lr", type=float, default=SHARED["lr"])
    parser.add_argument("--prompts", type=int, default=SHARED["prompts"], help="prompts a step")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sft-steps", type=int, default=300)
    parser.add_argument("--sft-batch", type=int, default=64)
    parser.add_argument("--sft-lr", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--samples", type=int, default=64, help="samples for each held-out problem")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/trl-job"))
    parser.add_argument("--plot", type=pathlib.Path, help="write the reward curves to this file")
    parser.add_argument("--trl-run", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    SHARED.update(prompts=args.prompts, lr=args.lr, max_new_tokens=args.tokens)
    args.ks = [k for k in (1, 4, 16, 64) if k <= args.samples]
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if args.trl_run is not None:
        folder = out / f"trl-{args.trl_run}"
        folder.mkdir(exist_ok=True)
        return trl(out, folder, args)

    fgrpo = [str(pathlib.Path(args.fgrpo).resolve()) if "/" in args.fgrpo else args.fgrpo]

    run = functools.partial(measured, out)

    (out / "grade.py").write_text(GRADE.format(**REWARDS[args.reward]))
    if args.model:
        model = pathlib.Path(args.model).resolve()
        run(*fgrpo, "merge", "--model", model, "--out", "start/checkpoints/step-000000", done="start/checkpoints/step-000000")
    else:
        make_start(args, out, run, fgrpo)
    for split in ["train", "held-out"]:
        if args.data:
            (out / f"{split}.jsonl").write_text((args.data / f"{split}.jsonl").read_text())
        else:
            run(*fgrpo, "data", "arithmetic", "start.toml", "--split", split, "--out", f"{split}.jsonl", done=f"{split}.jsonl")
    # fgrpo uses a repeated prompt of a file once, TRL twice.
    distinct = {json.loads(line)["problem"]: line for line in (out / "train.jsonl").read_text().splitlines()}
    (out / "train.jsonl").write_text("\n".join(distinct.values()) + "\n")

    curves, seconds, passes = {"fgrpo": [], "TRL": []}, {"fgrpo": [], "TRL": []}, {"start": [], "fgrpo": [], "TRL": []}

    def evaluate(name, model):
        folder = f"eval-{name}"
        run(*fgrpo, "eval", "ours-1.toml", "--model", model, "--device", args.device, "-n", args.samples, "-k", ",".join(map(str, args.ks)), "--out", folder, done=f"{folder}/summary.json")
        return json.loads((out / folder / "summary.json").read_text())[0]

    for seed in range(1, args.seeds + 1):
        system = f"system = {json.dumps(args.system)}" if args.system else ""
        precision = "f32" if args.device == "cpu" else "bf16"
        text = OURS.format(seed=seed, steps=args.steps, start=newest(out / "start"), threads=args.threads, system=system, precision=precision, **SHARED)
        (out / f"ours-{seed}.toml").write_text(text)
        if seed == 1:
            passes["start"].append(evaluate("start", newest(out / "start")))
        run(*fgrpo, "train", f"ours-{seed}.toml", "--device", args.device, "--out", f"ours-{seed}", done=f"ours-{seed}/checkpoints/step-{args.steps:06}")
        run(sys.executable, pathlib.Path(__file__).resolve(), *sys.argv[1:], "--out", out, "--trl-run", seed, done=f"trl-{seed}/model/config.json")
        ours, theirs = lines(out / f"ours-{seed}/metrics.jsonl"), lines(out / f"trl-{seed}/metrics.jsonl")
        curves["fgrpo"].append([row["reward_mean"] for row in ours])
        curves["TRL"].append([row["reward"] for row in theirs])
        seconds["fgrpo"] += [sum(row["seconds"][part] for part in ("rollout", "grade", "update")) for row in ours]
        seconds["TRL"] += [row["seconds"] for row in theirs]
        passes["fgrpo"].append(evaluate(f"ours-{seed}", f"ours-{seed}"))
        passes["TRL"].append(evaluate(f"trl-{seed}", f"trl-{seed}/model"))

    report(args, curves, seconds, passes, lines(out / "usage.jsonl"))


def report(args, curves, seconds, passes, usage):
    names = list(map(str, args.ks))
    print(f"\n{args.model or args.size}, {args.steps} steps of {SHARED['prompts']} prompts x {SHARED['group_size']} completions, {args.threads} thread(s)\n")
    print("| | seconds a step, median | mean reward, last third | " + " | ".join(f"pass@{k}" for k in names) + " |")
    print("| --- | ---: | ---: | " + " | ".join("---:" for _ in names) + " |")
    for name in ["start", "fgrpo", "TRL"]:
        cells = ["–", "–"]
        if name in curves:
            last = [statistics.mean(c[-len(c) // 3 :]) for c in curves[name]]
            cells = [f"{statistics.median(seconds[name]):.2f}", spread([100 * x for x in last])]
        print(f"| {name} | " + " | ".join(cells + [spread([100 * p["pass_at_k"][k] for p in passes[name]]) for k in names]) + " |")
    ratio = statistics.median(seconds["TRL"]) / statistics.median(seconds["fgrpo"])
    print(f"\nTRL's seconds a step over fgrpo's: {ratio:.1f}")
    for name, run in {"fgrpo": "ours-", "TRL": "trl-"}.items():
        mine = [row for row in usage if row["done"].startswith(run)]
        processor = statistics.mean(row["processor_seconds"] for row in mine) / args.steps
        print(f"{name}: {processor:.1f} processor seconds a step with loading and saving, at most {max(row['gib'] for row in mine):.1f} GiB")
    if args.plot:
        plot(args.plot, curves, max(1, args.steps // 10))


def spread(values):
    mean = statistics.mean(values)
    return f"{mean:.1f}" if len(values) < 2 else f"{mean:.1f} ± {statistics.stdev(values):.1f}"


def plot(path, curves, window):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    for name, colour in [("fgrpo", "#1f6feb"), ("TRL", "#d1741f")]:
        for i, curve in enumerate(curves[name]):
            smooth = [statistics.mean(curve[max(0, t - window + 1) : t + 1]) for t in range(len(curve))]
            axes.plot(range(window, len(curve) + 1), smooth[window - 1 :], color=colour, lw=1.4, alpha=0.85, label=name if i == 0 else None)
    axes.set_xlabel("step")
    axes.set_ylabel(f"mean reward, last {window} steps")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    figure.tight_layout()
    figure.savefig(path, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
