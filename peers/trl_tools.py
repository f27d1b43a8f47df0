"""Runs the same environment in TRL's GRPOTrainer (`environment_factory`) and in `fgrpo train`. Compares seconds per step and rewards.

    python -m venv .venv && .venv/bin/pip install torch==2.15.0 transformers==5.24.0 trl==1.16.0 datasets accelerate
    .venv/bin/python peers/trl_tools.py --fgrpo target/release/fgrpo --out runs/trl-tools

Policy and calculator come from examples/calculator. TRL renders calls from fields of a message and parses them again; the template that it gets
here renders the same text. Finished runs are stored.
"""

import argparse
import functools
import pathlib
import statistics
import sys
import time

from trl_job import lines, measured, newest, recorder

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples/calculator"
PROMPTS, GROUP_SIZE, LR, WARMUP, TURNS, TOKENS = 32, 8, 2e-4, 5, 4, 12
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for t in m.tool_calls or [] %}"
    '<tool_call>{"name": "{{ t.function.name }}", "arguments": {{ t.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>", "close_pattern": "</tool_call>", "repeats": True, "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|end\|>", "content": "text"},
    },
}


def trl(out, args):
    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    sys.path.insert(0, str(EXAMPLE))
    import calculator

    class Calculator:
        """The environment for TRL, which takes every public method for a tool, so the reward is a separate function."""

        reset, add = calculator.Calculator.reset, calculator.Calculator.add

    def reward(completions, answer, **columns):
        return [float(turns[-1].get("content") == f"It is {sum}.") for turns, sum in zip(completions, answer)]

    torch.set_num_threads(args.threads)
    start = newest(out / "start")
    tokenizer = AutoTokenizer.from_pretrained(start)
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, RESPONSE
    data = load_dataset("json", data_files=str(out / "calculator/problems.jsonl"), split="train")
    data = data.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})
    write = recorder(out / "trl.jsonl")
    rows = PROMPTS * GROUP_SIZE
    config = GRPOConfig(
        output_dir=str(out / "trainer"), seed=1, max_steps=args.steps, per_device_train_batch_size=rows, gradient_accumulation_steps=1,
        num_generations=GROUP_SIZE, max_completion_length=TURNS * (TOKENS + 4), max_tool_calling_iterations=TURNS - 1, temperature=1.0, top_p=1.0, top_k=0,
        learning_rate=LR, lr_scheduler_type="constant_with_warmup", warmup_steps=WARMUP, weight_decay=0.01, max_grad_norm=1.0, beta=0.0, epsilon=0.2,
        loss_type="dapo", scale_rewards="group", bf16=False, use_cpu=True, gradient_checkpointing=False, logging_steps=1, save_strategy="no",
        report_to="none", disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32), processing_class=tokenizer, args=config, reward_funcs=reward,
        train_dataset=data, environment_factory=Calculator, callbacks=[write],
    )
    write.began = time.perf_counter()
    trainer.train()
    (out / "trl-done").touch()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fgrpo", default="fgrpo", help="the program")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/trl-tools"))
    parser.add_argument("--trl", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = args.out.resolve()
    if args.trl:
        return trl(out, args)
    out.mkdir(parents=True, exist_ok=True)
    fgrpo = str(pathlib.Path(args.fgrpo).resolve()) if "/" in args.fgrpo else args.fgrpo
    run = functools.partial(measured, out)

    def ours(command, config, to, *settings):
        sets = [word for setting in (f"compute.threads={args.threads}", *settings) for word in ("--set", setting)]
        return [fgrpo, command, EXAMPLE / config, "--out", to, *sets]

    run(sys.executable, EXAMPLE / "calculator.py", "calculator", done="calculator/problems.jsonl")
    run(*ours("sft", "sft.toml", "start", f'task.grader="{EXAMPLE}/calculator.py:complete"'), done="start/checkpoints/step-000600")
    settings = [
        f'task.environment="{EXAMPLE}/calculator.py:Calculator"', 'model.path="start"', f"steps={args.steps}", "algorithm.focal_gamma=0", "eval.every=0",
        f"rollout.prompts={PROMPTS}", f"rollout.group_size={GROUP_SIZE}", f"rollout.max_new_tokens={TOKENS}", f"task.max_turns={TURNS}",
        f"update.lr={LR}", f"update.warmup_steps={WARMUP}", "update.betas=[0.9, 0.999]", "update.weight_decay=0.01", f"save.every={args.steps}",
    ]
    run(*ours("train", "calculator.toml", "ours", *settings), done=f"ours/checkpoints/step-{args.steps:06}")
    run(sys.executable, pathlib.Path(__file__).resolve(), *sys.argv[1:], "--out", out, "--trl", done="trl-done")

    usage = {row["done"].split("/")[0]: row for row in lines(out / "usage.jsonl")}
    ours, theirs = lines(out / "ours/metrics.jsonl"), lines(out / "trl.jsonl")
    table = {
        "fgrpo": ([row["reward_mean"] for row in ours], [sum(row["seconds"][p] for p in ("rollout", "grade", "update")) for row in ours], usage["ours"]),
        "TRL": ([row["reward"] for row in theirs], [row["seconds"] for row in theirs], usage["trl-done"]),
    }
    print(f"\n{args.steps} steps of {PROMPTS} problems x {GROUP_SIZE} episodes of at most {TURNS} turns, {args.threads} thread(s)\n")
    print("| | seconds a step, median | processor seconds a step, with loading | GiB | reward of the first 10 steps | of the last 10 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, (rewards, seconds, used) in table.items():
        ends = [f"{100 * statistics.mean(part):.1f} %" for part in (rewards[:10], rewards[-10:])]
        print(f"| {name} | {statistics.median(seconds):.2f} | {used['processor_seconds'] / args.steps:.2f} | {used['gib']:.1f} | {' | '.join(ends)} |")


main()
