"""Makes quantized.safetensors beside it: matrices as bitsandbytes stores them in 4 bits (NF4, nested scales) and 8 bits, on a CPU.

    python crates/nn/tests/golden/make_quantized.py        (needs torch, numpy, safetensors and bitsandbytes; versions stand in the metadata)

`nf4_map` and `dynamic_map` are the values of codes. Each `case.NAME.weight` has `absmax` (scales before they are quantised), `nf4.codes`, `nf4.absmax`
(codes of scales), `nf4.nested_absmax`, `nf4.nested_offset`, `nf4.values` (dequantize_4bit), and `int8.codes`, `int8.absmax`, `int8.values`
(int8_vectorwise_quant without a threshold, int8_vectorwise_dequant). In cases called `grid*` all scales are
multiples of 2^-8, so that their mean doesn't depend on the order of a sum.
"""

import pathlib

import bitsandbytes
import bitsandbytes.functional as F
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent


def integers(codes):
    return codes.view(torch.uint8).flatten()


def case(out, name, weight):
    put = lambda key, value: out.__setitem__(f"case.{name}.{key}", value.contiguous())
    put("weight", weight)
    codes, state = F.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
    _, plain = F.quantize_4bit(weight, quant_type="nf4", compress_statistics=False)
    put("absmax", plain.absmax)
    put("nf4.codes", integers(codes))
    put("nf4.absmax", integers(state.absmax))
    put("nf4.nested_absmax", state.state2.absmax)
    put("nf4.nested_offset", state.offset.reshape(1))
    put("nf4.values", F.dequantize_4bit(codes, state))
    if weight.abs().amax(1).min() > 0:
        codes, absmax, _ = F.int8_vectorwise_quant(weight.clone())
        put("int8.codes", integers(codes))
        put("int8.absmax", absmax)
        put("int8.values", F.int8_vectorwise_dequant(codes, absmax))


def main():
    g = torch.Generator().manual_seed(7)
    out = {"nf4_map": F.get_4bit_type("nf4", device="cpu"), "dynamic_map": F.create_dynamic_map()}
    normal = lambda rows, columns: torch.randn(rows, columns, generator=g)
    case(out, "normal", normal(96, 64) * 0.02)
    # More than one block of scales, and rows that begin inside a block.
    case(out, "large", normal(221, 88) * torch.rand(221, 1, generator=g))
    # A last block that is incomplete.
    case(out, "rest", normal(5, 44))
    case(out, "small", normal(3, 6) * 1e-3)
    zeros = normal(8, 64)
    zeros[2] = 0
    case(out, "zeros", zeros)
    # Rows of whole blocks: on AVX-512, bitsandbytes 0.50.2 takes wrong scales where a row is a multiple of 32 but not of 64.
    case(out, "bfloat16", (normal(48, 128) * 0.05).bfloat16().float())
    case(out, "grid", torch.randint(-255, 256, (300, 64), generator=g) / 256)
    case(out, "grid_rest", torch.randint(-255, 256, (33, 50), generator=g) / 256)
    about = {"script": "crates/nn/tests/golden/make_quantized.py", "torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__}
    save_file(out, HERE / "quantized.safetensors", metadata=about)
    print({k: tuple(v.shape) for k, v in out.items()})


if __name__ == "__main__":
    main()
