"""Runs one step of FGRPOTrainer in each of two processes, and prints their results."""

import os

import torch
from datasets import Dataset
from tiny import digit_reward, tiny
from trl import GRPOConfig, GRPOTrainer

from fgrpo.trl import Focal

torch.set_num_threads(1)


def values(tensor):
    return " ".join(f"{x:.9g}" for x in tensor.tolist())


class Base(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        self.base = out["advantages"].clone()
        return out


class Spy(Focal, Base):
    printed = False

    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        if not self.printed:
            rank = self.accelerator.process_index
            lines = [
                f"rank {rank} gathered {values(self._gathered)}",
                f"rank {rank} base {values(self.base)}",
                f"rank {rank} advantages {values(out['advantages'])}",
            ]
            # One write: the processes share a pipe.
            os.write(1, ("\n".join(lines) + "\n").encode())
            self.printed = True
        return out


model, tokenizer = tiny()
config = GRPOConfig(
    output_dir="out",
    per_device_train_batch_size=2,
    num_generations=4,
    max_completion_length=8,
    max_steps=1,
    learning_rate=1e-2,
    report_to=[],
    use_cpu=True,
    bf16=False,
    save_strategy="no",
    gradient_checkpointing=False,
    disable_tqdm=True,
    seed=1,
)
data = Dataset.from_dict({"prompt": ["1+1=?", "2+3=?", "4+4=?", "a b c"]})
trainer = Spy(model=model, reward_funcs=digit_reward, args=config, train_dataset=data, processing_class=tokenizer, focal_gamma=1.0)
trainer.train()
torch.distributed.destroy_process_group()
