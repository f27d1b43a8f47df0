"""verl 0.9.1 on a CPU: a platform, its FSDP engine, and a sampler of Transformers in the place of vLLM.

verl loads this module in each of its processes if VERL_USE_EXTERNAL_MODULES=verl_cpu and VERL_PLATFORM=cpu. The sampler
adds its completions to the file $ROLLOUTS.
"""

import json
import os
import types

import torch

torch.set_num_threads(1)
import ray  # noqa: E402
from verl.models.transformers import monkey_patch  # noqa: E402
from verl.plugin.platform.platform_cuda import PlatformCUDA  # noqa: E402
from verl.plugin.platform.platform_manager import PlatformRegistry  # noqa: E402


class Cpu(types.ModuleType):
    """`torch.cpu` with the functions of `torch.cuda` that verl calls."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)


device = Cpu("torch_cpu")
for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "current_device"):
    setattr(device, name, lambda *_: 0)
for name in ("empty_cache", "reset_peak_memory_stats", "ipc_collect", "synchronize", "set_device"):
    setattr(device, name, lambda *_: None)
device.device_count = lambda: 1
device.is_available = lambda: True
device.mem_get_info = lambda *_: (0, 0)
device.get_device_name = lambda *_: "CPU"
device.get_rng_state = lambda *_: torch.get_rng_state()
device.set_rng_state = lambda state, *_: torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformCUDA):
    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: device)
    is_available = lambda self: True
    is_platform_available = lambda self, use_smi_check=False: True
    current_device = lambda self: torch.device("cpu")
    device_count = lambda self: 1
    set_device = lambda self, index: None
    synchronize = lambda self, index=None: None
    manual_seed = lambda self, seed: torch.manual_seed(seed)
    manual_seed_all = manual_seed
    set_allocator_settings = lambda self, settings: None
    empty_cache = lambda self: None
    communication_backend_name = lambda self: "gloo"
    get_device_capability = lambda self, index=0: (None, None)


# With TRL installed the engine patches a class of it that TRL 1.16 no longer has.
monkey_patch.is_trl_available = lambda: False

from verl.workers.engine import EngineRegistry  # noqa: E402
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead  # noqa: E402
from verl.workers.rollout import base  # noqa: E402
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput  # noqa: E402

EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithLMHead)


class Server:
    """Samples one completion at a time, and reports log-probabilities at the temperature, as vLLM does in verl.

    It never draws the pad token, whose input embedding torch doesn't train.
    """

    def __init__(self, path, seed, limit):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(path)
        self.end, self.pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        self.random = torch.Generator().manual_seed(seed)
        self.limit, self.steps = limit, 0

    async def set_weights(self, weights, steps):
        missing, unexpected = self.model.load_state_dict(weights, strict=False)
        self.model.tie_weights()
        assert not unexpected and all("lm_head" in name for name in missing), (missing, unexpected)
        self.steps = steps or 0

    async def generate(self, request_id, prompt_ids, sampling_params, **_):
        ids, past, tokens, logprobs = torch.tensor([prompt_ids]), None, [], []
        with torch.no_grad():
            while len(tokens) < self.limit and (not tokens or tokens[-1] != self.end):
                out = self.model(input_ids=ids, past_key_values=past, use_cache=True)
                past = out.past_key_values
                logp = torch.log_softmax(out.logits[0, -1] / sampling_params["temperature"], -1)
                drawn_from = logp.exp()
                drawn_from[self.pad] = 0.0
                token = torch.multinomial(drawn_from, 1, generator=self.random).item()
                tokens.append(token)
                logprobs.append(logp[token].item())
                ids = torch.tensor([[token]])
        row = {"steps": self.steps, "prompt": list(prompt_ids), "tokens": tokens, "logprobs": logprobs}
        with open(os.environ["ROLLOUTS"], "a") as file:
            file.write(json.dumps(row) + "\n")
        steps = dict.fromkeys(("global_steps", "min_global_steps", "max_global_steps"), self.steps)
        return TokenOutput(token_ids=tokens, log_probs=logprobs, stop_reason="completed", num_preempted=0, extra_fields=steps)

    async def nothing(self, *_, **__):
        pass

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = nothing


class Replica(RolloutReplica):
    async def launch_servers(self):
        server = ray.remote(Server).options(name=f"cpu_server_{self.replica_rank}", num_cpus=0.1)
        seed = self.config.seed + self.replica_rank
        self.servers = [server.remote(self.model_config.path, seed, self.config.response_length)]
        self._server_handle, self._server_address = self.servers[0], f"cpu:{self.replica_rank}"
        await self._server_handle.wake_up.remote()


class Adapter(base.BaseRollout):
    """Passes the learner's weights to the server of its rank."""

    async def resume(self, tags):
        pass

    release = resume

    async def update_weights(self, weights, global_steps=None, **_):
        copies = {name: weight.detach().float().cpu().clone() for name, weight in weights}
        server = ray.get_actor(f"cpu_server_{torch.distributed.get_rank()}")
        await server.set_weights.remote(copies, global_steps)


base._ROLLOUT_REGISTRY[("vllm", "async")] = "verl_cpu.Adapter"
RolloutReplicaRegistry.register("vllm", lambda: Replica)

# verl names one backend for the CPU and one for the device; torch refuses two for the CPU.
init_process_group = torch.distributed.init_process_group


def with_one_backend(backend=None, *arguments, **named):
    if isinstance(backend, str):
        backend = ",".join(sorted(set(backend.split(","))))
    return init_process_group(backend, *arguments, **named)


torch.distributed.init_process_group = with_one_backend
