"""Runs the published code of estimators and losses on small batches and writes methods.json.

    python make_methods.py --verl VERL --passk PASSK --rs RS --rlvr RLVR --roll ROLL --dgpo MATHFORGE --lead GRPO_LEAD --trl TRL --acr ACR \
        --ucpo UCPO --curverl CURVERL

Each argument is a folder with that source: verl and TRL from PyPI (0.9.1 and 1.16.0, unpacked wheels), the others from GitHub:
RUCAIBox/Passk_Training, Jackory/RS-GRPO, TianHongZXY/RLVR-Decomposed, alibaba/ROLL, AMAP-ML/MathForge,
aeroplanepaper/GRPO-LEAD, hexixiang/ACR, AnamikaLochab/UCPO, zhyzmath/CurveRL. Functions are taken
out of their files one by one, because the files import whole trainers. Needs torch, numpy and scipy.
"""

import argparse
import ast
import collections
import json
import math
import pathlib
import textwrap
import types

import numpy as np
import scipy
import scipy.special
import torch


def functions(path, names, space):
    """Defines the named functions of a file in `space`, without decorators and annotations."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list = []
            node.returns = None
            for a in node.args.args:
                a.annotation = None
            exec(compile(ast.Module([node], []), str(path), "exec"), space)
    return [space[name] for name in names]


parser = argparse.ArgumentParser()
for source in ["verl", "passk", "rs", "rlvr", "roll", "dgpo", "lead", "trl", "acr", "ucpo", "curverl"]:
    parser.add_argument(f"--{source}", type=pathlib.Path, required=True)
args = parser.parse_args()

torch.set_default_dtype(torch.float64)
F = {"torch": torch, "np": np}
functions(args.verl / "verl/utils/torch_functional.py", ["masked_sum", "masked_mean", "masked_var", "masked_whiten"], F)
space = {"torch": torch, "np": np, "defaultdict": collections.defaultdict, "verl_F": types.SimpleNamespace(**F),
         "comb": scipy.special.comb, "AlgoConfig": type("AlgoConfig", (), {})}


class ActorConfig(dict):
    __getattr__ = dict.get


space["ActorConfig"] = ActorConfig
CORE = args.verl / "verl/trainer/ppo/core_algos.py"

# Two groups of four and one whose rewards are equal; lengths differ.
REWARDS = [[1, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1]]
LENGTHS = [[3, 1, 2, 4], [2, 2, 5, 1], [1, 3, 2, 2]]
GRADED = [[0.25, 0, 1, 0.5], [0, -1, 0, 2], [0.5, 0.5, 0.5, 0.5]]


def batch(rewards):
    flat, lengths = torch.tensor(rewards, dtype=torch.float64).flatten(), torch.tensor(LENGTHS).flatten()
    mask = (torch.arange(5)[None, :] < lengths[:, None]).double()
    token = torch.zeros(12, 5)
    token[torch.arange(12), lengths - 1] = flat
    return {"token_level_rewards": token, "response_mask": mask}, np.repeat(np.arange(3), 4)


estimators = []


def estimator(kind, settings, source, rewards, advantages, lengths=LENGTHS, **more):
    estimators.append({"advantage": {"kind": kind, **settings}, "source": source, "rewards": rewards, "lengths": lengths,
                       "advantages": np.asarray(advantages, dtype=float).reshape(3, 4).tolist(), **more})


def of_verl(kind, function, rewards, settings={}, **more):
    (f,) = functions(CORE, [function], space)
    b, index = batch(rewards)
    found, _ = f(**b, index=index, config=ActorConfig(norm_adv_by_std_in_grpo=True), **more)
    estimator(kind, settings, f"verl {function}", rewards, found[:, 0])


for rewards in [REWARDS, GRADED]:
    of_verl("grpo", "compute_grpo_outcome_advantage", rewards)
    of_verl("rloo", "compute_rloo_outcome_advantage", rewards)
    of_verl("grpo_passk", "compute_grpo_passk_outcome_advantage", rewards)
    of_verl("opo", "compute_opo_outcome_advantage", rewards)
    of_verl("reinforce_plus_plus_baseline", "compute_reinforce_plus_plus_baseline_outcome_advantage", rewards)

calc_adv, = functions(args.passk / "code/passk_adv.py", ["calc_adv"], space)
for k in [1, 2, 3]:
    # A group without wrong completions divides 0 by 0 there, and one without correct ones has nothing to learn.
    found = [calc_adv(np.array(r, dtype=float), k) if 0 < sum(r) < 4 else np.zeros(4) for r in REWARDS]
    estimator("passk_training", {"k": k}, "RUCAIBox/Passk_Training calc_adv", REWARDS, found)

source = (args.rs / "codes/risk_sensitive_adv.py").read_text()
# One line assigns to a name that is not defined; single precision would hide differences.
source = source.replace("pass_at_1_scores[i] = rewards[i] - id2mean[index[i]]", "pass").replace("float32", "float64")
(args.rs / "patched.py").write_text(source)
rs, = functions(args.rs / "patched.py", ["compute_rs_grpo_advantage"], space)
for rewards, beta in [(REWARDS, 2.0), (REWARDS, 8.0), (GRADED, 2.0), (GRADED, -1.0)]:
    b, index = batch(rewards)
    found, _ = rs(**b, index=index, beta=beta)
    estimator("rs_grpo", {"beta": beta}, "Jackory/RS-GRPO compute_rs_grpo_advantage", rewards, found[:, 0])

psr, = functions(args.rlvr / "verl/trainer/ppo/core_algos.py", ["compute_psr_nsr_outcome_advantage"], space)
b, _ = batch(REWARDS)
found, _ = psr(b["token_level_rewards"], b["token_level_rewards"], b["response_mask"], 1.0, "weighted", 0.1)
estimator("w_reinforce", {"positive": 0.1, "negative": 1.0}, "RLVR-Decomposed compute_psr_nsr_outcome_advantage", REWARDS,
          found[:, 0])

norm, = functions(args.roll / "roll/utils/functionals.py", ["reward_norm"], space)
for rewards in [REWARDS, GRADED]:
    found = norm(torch.tensor(rewards, dtype=torch.float64).flatten(), n_sample=4, norm_mean_type="group", norm_std_type="batch")
    estimator("lite_ppo", {}, "alibaba/ROLL reward_norm", rewards, found)

# Runs the trainer's lines between these two strings. The trainer scales advantages so that its loss is a mean over the tokens of mixed groups; the scale is divided out.
text = (args.dgpo / "trl-0.20.0/trl/trainer/grpo_trainer.py").read_text()
lines = textwrap.dedent(text[text.index("        main_rewards = rewards_per_func[:, 0]"):text.index("        # Slice to keep only the local part")])
for temperature in [0.0, 2.0, 0.5]:
    options = types.SimpleNamespace(enable_dgpo=True, enable_dgpo_dqw=temperature > 0, dgpo_dqw_temp=temperature)
    this = types.SimpleNamespace(num_generations=4, scale_rewards=True, args=options, reward_weights=torch.ones(1),
                                 accelerator=types.SimpleNamespace(num_processes=1))
    names = {"torch": torch, "self": this, "device": "cpu", "gather": lambda x: x, "completion_mask": b["response_mask"],
             "rewards_per_func": torch.tensor(REWARDS, dtype=torch.float64).reshape(12, 1)}
    exec(lines, names)
    estimator("dgpo", {"temperature": temperature}, "AMAP-ML/MathForge grpo_trainer.py", REWARDS,
              names["advantages"] / names["zero_mask_ratio"])

# Lengths beyond the 4,000 tokens from which they count there. A file that is written for each group is left out.
LONG = [[4000 * t for t in row] for row in LENGTHS]
text = (args.lead / "verl/verl/trainer/ppo/core_algos.py").read_text()
for line in ["timestamp = ", "unique_id = ", "file_name = "]:
    text = "\n".join(l for l in text.split("\n") if not l.lstrip().startswith(line))
text = text.replace('with open(file_name, "w", encoding="utf-8") as f:', "if False:")
(args.lead / "patched.py").write_text(text)
_, lead = functions(args.lead / "patched.py", ["logistic_reweight", "compute_grpo_outcome_advantage"], space)
tree = ast.parse((args.lead / "verl/verl/trainer/main_ppo.py").read_text())
method, = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "get_reweight_rewards"]
exec(compile(ast.Module([method], []), "main_ppo.py", "exec"), space | (names := {"math_o": math}), names)
scores = [1.0 if r else -1.0 for row in REWARDS for r in row]
shaped = names["get_reweight_rewards"](None, scores, [t for row in LONG for t in row], [0] * 4 + [1] * 4 + [2] * 4)
b, index = batch(np.reshape(shaped, (3, 4)).tolist())
found, _ = lead(b["token_level_rewards"], b["response_mask"], index, torch.zeros(12, 1), [{"ground_truth": ""}] * 12)
estimator("grpo_lead", {"alpha": 0.05}, "aeroplanepaper/GRPO-LEAD compute_grpo_outcome_advantage, get_reweight_rewards", REWARDS,
          found[:, 0], LONG)

# The lines of the trainer that aggregate several rewards; each part has its rewards and its weight.
TRL = args.trl / "trl/trainer/grpo_trainer.py"
text = TRL.read_text()
start = text.index('        elif self.multi_objective_aggregation == "normalize_then_sum":')
lines = textwrap.dedent(text[start : text.index("            is_std_zero", start)].replace("        elif", "        if", 1))
nanstd, = functions(args.trl / "trl/trainer/utils.py", ["nanstd"], space)
LENIENT = [[0.5, 1, 0, 1], [1, 1, 0.25, 0], [0, 0.5, 0.5, 1]]
for parts in [[(REWARDS, 1.0)], [(REWARDS, 1.0), (LENIENT, 0.5)], [(REWARDS, 1.0), (LENIENT, 2.0), (GRADED, -0.25)]]:
    each = torch.stack([torch.tensor(r, dtype=torch.float64).flatten() for r, _ in parts], dim=1)
    this = types.SimpleNamespace(multi_objective_aggregation="normalize_then_sum", reward_funcs=parts,
                                 reward_weights=torch.tensor([w for _, w in parts]))
    names = {"torch": torch, "nanstd": nanstd, "self": this, "device": "cpu", "num_generations": 4, "rewards_per_func": each,
             "unscorable_mask": torch.zeros(12, dtype=torch.bool)}
    exec(lines, names)
    estimator("gdpo", {}, "TRL normalize_then_sum", REWARDS, names["advantages"],
              parts=[{"rewards": r, "weight": w} for r, w in parts])

# Runs lines of AVSPO's trainer. It adds a virtual reward if all rewards of a device's batch are equal; here the batch is one group.
text_acr = (args.acr / "trl_scope/trainer/grpo_trainer.py").read_text()
start = text_acr.index("        # Compute grouped-wise rewards")
lines = textwrap.dedent(text_acr[start : text_acr.index("        # Calculate advantage variance", start)])
for rewards in [REWARDS, [[0, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]]]:
    found = []
    for group in rewards:
        this = types.SimpleNamespace(num_generations=4, scale_rewards="group")
        exec(lines, names := {"torch": torch, "self": this, "rewards": torch.tensor(group, dtype=torch.float64)})
        found.append(names["advantages"])
    estimator("avspo", {}, "hexixiang/ACR grpo_trainer.py", rewards, torch.cat(found))

# A completion's log-probabilities differ from token to token; ours takes their mean.
space |= {"Optional": None}
logp = -0.25 * (1 + torch.arange(60, dtype=torch.float64).reshape(12, 5) % 7)
_, ucpo = functions(args.ucpo / "verl/verl/trainer/ppo/core_algos.py", ["_canon_index", "compute_dgrpo_advantage_outcome_invq_l"], space)
b, index = batch(REWARDS)
mean = (logp * b["response_mask"]).sum(-1) / b["response_mask"].sum(-1)
for tau in [0.0, 0.2, 1.0]:
    found, _, _ = ucpo(**b, old_log_prob=logp, index=index, tau=tau)
    estimator("ucpo", {"tau": tau}, "AnamikaLochab/UCPO compute_dgrpo_advantage_outcome_invq_l", REWARDS, found[:, 0],
              mean_logp=mean.reshape(3, 4).tolist())

# Single precision would hide differences.
source = (args.curverl / "verl/trainer/ppo/core_algos.py").read_text().replace("torch.float32", "torch.float64")
(args.curverl / "patched.py").write_text(source)
*_, curverl = functions(args.curverl / "patched.py", [
    "_scores_to_successes", "_normalize_prompt_key", "_prompt_keys_are_valid", "_collect_prompt_group_stats", "_copy_curverl_state",
    "_append_curverl_batch", "_compute_curverl_histogram", "_map_curverl_prompt_weights", "compute_curverl_outcome_advantage"], space)
for rewards in [REWARDS, [[1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0]], [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0]]]:
    b, index = batch(rewards)
    found, _ = curverl(**b, index=index, config={"curverl_pool_num": 0})
    estimator("curve_rl", {}, "zhyzmath/CurveRL compute_curverl_outcome_advantage", rewards, found[:, 0])

# Tokens by entropy. All numbers here are exact in single precision, in which the threshold is found there.
tree = ast.parse(text)
method, = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "get_high_entropy_mask"]
exec(compile(ast.Module([method], []), str(TRL), "exec"), names := {"torch": torch})
alone = types.SimpleNamespace(accelerator=types.SimpleNamespace(pad_across_processes=lambda x, **_: x, gather=lambda x: x))
masks = []
for entropies in [[[0.5, 1.25, 0, 2.5], [1, 0.75], [3, 0.25, 0.125]], [[1, 1, 1], [1, 0], [0.5]]]:
    for share in [0.2, 0.5, 0.75, 0.9]:
        mask, padded = torch.zeros(3, 4), torch.zeros(3, 4)
        for i, row in enumerate(entropies):
            mask[i, : len(row)], padded[i, : len(row)] = 1, torch.tensor(row)
        kept = names["get_high_entropy_mask"](alone, padded, mask, 1 - share)
        masks.append({"share": share, "source": "TRL get_high_entropy_mask", "entropies": entropies,
                      "kept": [kept[i, : len(row)].tolist() for i, row in enumerate(entropies)]})

losses = []
LOGP = [[-0.5, -1.25, -2.0, -0.1], [-1.0, -0.75], [-3.0, -0.2, -0.9]]
OLD = [[-0.6, -0.75, -2.9, -0.9], [-2.0, -0.7], [-2.5, -0.25, -1.5]]
functions(CORE, ["agg_loss"], space)


def loss(kind, settings, function, aggregation, old_logp=OLD, **config):
    (f,) = functions(CORE, [function], space)
    for advantages in [[1.5, -0.5, -2.0], [-1.0, 0.75, 1.25]]:
        mask, logp, old = torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3, 4)
        for i, row in enumerate(LOGP):
            mask[i, : len(row)] = 1
            logp[i, : len(row)], old[i, : len(row)] = torch.tensor(row), torch.tensor(old_logp[i])
        logp.requires_grad_()
        adv = torch.tensor(advantages)[:, None] * mask
        value, _ = f(old_log_prob=old, log_prob=logp, advantages=adv, response_mask=mask, loss_agg_mode=aggregation,
                     config=ActorConfig(global_batch_info={}, **config))
        value.backward()
        gradient = [logp.grad[i, : len(row)].tolist() for i, row in enumerate(LOGP)]
        losses.append({"loss": {"kind": kind, **settings}, "aggregation": aggregation, "source": f"verl {function}", "logp": LOGP,
                       "old_logp": old_logp, "advantages": advantages, "value": value.item(), "dlogp": gradient})


two = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
loss("dapo", {}, "compute_policy_loss_vanilla", "token-mean", clip_ratio_c=3.0, **two)
loss("sapo", {"tau": [1.0, 1.05]}, "compute_policy_loss_sapo", "seq-mean-token-mean", tau_pos=1.0, tau_neg=1.05)
loss("sapo", {"tau": [2.0, 0.5]}, "compute_policy_loss_sapo", "seq-mean-token-mean", tau_pos=2.0, tau_neg=0.5)
loss("gmpo", {"clip": [0.4, 0.4]}, "compute_policy_loss_geo_mean", "seq-mean-token-mean", clip_ratio_low=0.4, clip_ratio_high=0.4)
loss("dppo_tv", {"clip": [0.1, 0.15]}, "compute_policy_loss_dppo_tv", "token-mean", clip_ratio_low=0.1, clip_ratio_high=0.15,
     clip_ratio_c=20.0)
loss("dppo_tv", {"clip": [0.3, 0.2], "cap": 1.5}, "compute_policy_loss_dppo_tv", "token-mean", clip_ratio_low=0.3,
     clip_ratio_high=0.2, clip_ratio_c=1.5)
loss("dppo_kl", {"clip": [0.02, 0.05]}, "compute_policy_loss_dppo_kl", "token-mean", clip_ratio_low=0.02, clip_ratio_high=0.05,
     clip_ratio_c=20.0)

# No ratio is clipped with NEAR, and many are with OLD. A share of 0.34 of the nine tokens is three, and with OLD at most three candidates
# aren't clipped, so nothing depends on verl's random numbers.
NEAR = [[-0.45, -1.33, -1.9, -0.14], [-0.93, -0.81], [-3.05, -0.17, -0.81]]
for old in [NEAR, OLD]:
    loss("kl_cov", {"share": 0.25, "coef": 0.5}, "compute_policy_loss_kl_cov", "token-mean", old,
         policy_loss=ActorConfig(kl_cov_ratio=0.25, ppo_kl_coef=0.5))
for old, share in [(NEAR, 1.0), (OLD, 1.0), (OLD, 0.34)]:
    loss("clip_cov", {"share": share, "covariance": [0.1, 9.0]}, "compute_policy_loss_clip_cov", "token-mean", old, clip_ratio_low=0.2, clip_ratio_high=0.2,
         policy_loss=ActorConfig(clip_cov_ratio=share, clip_cov_lb=0.1, clip_cov_ub=9.0))

header = (f"make_methods.py with torch {torch.__version__}, numpy {np.__version__}, scipy {scipy.__version__}; verl 0.9.1; "
          "RUCAIBox/Passk_Training c3ba575, Jackory/RS-GRPO 2f4103b, TianHongZXY/RLVR-Decomposed a5d4e7c, alibaba/ROLL 8eb27cc, "
          "AMAP-ML/MathForge 83edda0, aeroplanepaper/GRPO-LEAD 9344bef, hexixiang/ACR ca40ccf, TRL 1.16.0, AnamikaLochab/UCPO 93ce506, zhyzmath/CurveRL e98468b")
out = pathlib.Path(__file__).with_name("methods.json")
rows = lambda items: "[\n  " + ",\n  ".join(json.dumps(item) for item in items) + "\n ]"
out.write_text(f'{{\n "made_by": {json.dumps(header)},\n "estimators": {rows(estimators)},\n "losses": {rows(losses)},\n "masks": {rows(masks)}\n}}\n')
