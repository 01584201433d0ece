#!/usr/bin/env python3
"""Writes tests/fixtures/quantised: tiny checkpoints in each quantised layout with what they compute to.

    python tools/make_quantised_fixtures.py [CASE...]

Needs torch, transformers, safetensors, numpy and compressed-tensors. The weights of compressed-tensors checkpoints are
packed and unpacked by that package; those of the other layouts are unpacked here by the formulas of their quantisers
(ModelOpt, transformers' fine-grained FP8, GPTQModel, AutoAWQ). The model that computes the logits is transformers'
Llama, Qwen3-MoE for stacked experts, or Qwen3.5 and its MoE for the layouts of published hybrids, with the unpacked
weights. Everything is seeded: the same package versions write the same bytes.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import compressed_tensors
import numpy as np
import safetensors.torch
import torch
import transformers
from compressed_tensors.compressors import (
    FloatQuantizationCompressor,
    IntQuantizationCompressor,
    NVFP4PackedCompressor,
    PackedQuantizationCompressor,
)
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize

OUTPUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "quantised"
POSITIONS = 24
VOCAB = 48
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, LAYERS = 64, 128, 4, 2, 2
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "float16",
}

MOE_CONFIG = CONFIG | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": HIDDEN // HEADS,
    "moe_intermediate_size": 48,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}

HYBRID_CONFIG = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HIDDEN // HEADS,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
}
DENSE_HYBRID = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "torch_dtype": "float16",
    "tie_word_embeddings": False,
    "text_config": HYBRID_CONFIG | {"model_type": "qwen3_5_text", "intermediate_size": INTERMEDIATE},
}
MOE_HYBRID = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "torch_dtype": "float16",
    "tie_word_embeddings": False,
    "text_config": HYBRID_CONFIG
    | {
        "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    },
}

Tensors = dict[str, torch.Tensor]


@dataclass
class Stored:
    """What a quantised module becomes: its tensors, the weight they stand for, and whether its codes are integers."""

    tensors: Tensors
    weight: torch.Tensor
    integers: bool = False
    order: torch.Tensor | None = None  # of the inputs, if groups are not neighbours


@dataclass
class Case:
    seed: int
    quantization_config: dict | None
    schemes: Callable[[str], Callable[[torch.Tensor, np.random.Generator], Stored] | None]
    hf_quant_config: dict | None = None
    extra: Tensors = field(default_factory=dict)  # tensors that do not count
    config: dict = field(default_factory=lambda: CONFIG)


def compressed(compressor, args: dict, activations: dict | None, tensors: Tensors, integers: bool) -> Stored:
    """Through compressed-tensors' own compressor, there and back."""
    scheme = QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(**args),
        input_activations=QuantizationArgs(**activations) if activations else None,
    )
    packed = compressor.compress(dict(tensors), scheme)
    stored = {name: tensor.detach().clone() for name, tensor in packed.items()}
    weight = compressor.decompress(dict(packed), scheme)["weight"].detach().float()
    return Stored(stored, weight, integers)


FP8_CHANNEL = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
FP8_TENSOR = FP8_CHANNEL | {"strategy": "tensor"}
FP8_TOKEN = FP8_CHANNEL | {"strategy": "token", "dynamic": True}
FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
INT4_ZERO = INT4 | {"symmetric": False}
INT4_CHANNEL = {"num_bits": 4, "type": "int", "strategy": "channel", "symmetric": True}
INT8 = INT4 | {"num_bits": 8}
INT8_CHANNEL = INT4_CHANNEL | {"num_bits": 8}
INT8_TENSOR = INT8_CHANNEL | {"strategy": "tensor"}
INT8_TOKEN = INT8_CHANNEL | {"strategy": "token", "dynamic": True}


def ct_fp8_channel(weight, _):
    scale = weight.abs().amax(1, keepdim=True) / 448
    tensors = {"weight": weight, "weight_scale": scale}
    return compressed(FloatQuantizationCompressor, FP8_CHANNEL, FP8_TOKEN, tensors, False)


def ct_fp8_tensor(weight, _):
    tensors = {"weight": weight, "weight_scale": (weight.abs().max() / 448).reshape(1)}
    stored = compressed(FloatQuantizationCompressor, FP8_TENSOR, FP8_TENSOR, tensors, False)
    stored.tensors["input_scale"] = torch.tensor([0.02])
    return stored


def ct_nvfp4(weight, _):
    global_scale = (2688 / weight.abs().max()).reshape(1)
    scale = (weight.reshape(weight.shape[0], -1, 16).abs().amax(2) * global_scale / 6).to(torch.float8_e4m3fn).float()
    tensors = {"weight": weight, "weight_scale": scale, "weight_global_scale": global_scale}
    activations = FP4 | {"dynamic": "local"}
    stored = compressed(NVFP4PackedCompressor, FP4, activations, tensors, True)
    codes = unpack_fp4_from_uint8(stored.tensors["weight_packed"], *weight.shape, dtype=torch.float32)
    stored.weight = dequantize(
        codes, scale, args=QuantizationArgs(**FP4), global_scale=global_scale, dtype=torch.float32
    )
    stored.tensors["input_global_scale"] = torch.tensor([310.0])
    return stored


def ct_int4(weight, _):
    scale = weight.reshape(weight.shape[0], -1, 32).abs().amax(2) / 7
    tensors = {"weight": weight, "weight_scale": scale.bfloat16().float()}
    stored = compressed(PackedQuantizationCompressor, INT4, None, tensors, True)
    stored.tensors["weight_scale"] = stored.tensors["weight_scale"].bfloat16()
    return stored


def ct_int4_channel(weight, _):
    tensors = {"weight": weight, "weight_scale": weight.abs().amax(1, keepdim=True) / 7}
    return compressed(PackedQuantizationCompressor, INT4_CHANNEL, None, tensors, True)


def ct_int4_zero(weight, generator):
    groups = weight.reshape(weight.shape[0], -1, 32)
    scale = ((groups.amax(2) - groups.amin(2)) / 15).half().float()
    zero = torch.from_numpy(generator.integers(-6, 6, scale.shape)).to(torch.int8)
    tensors = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}
    return compressed(PackedQuantizationCompressor, INT4_ZERO, None, tensors, True)


def ct_int8_packed(weight, _):
    scale = weight.reshape(weight.shape[0], -1, 32).abs().amax(2) / 127
    scale[0] *= 2**-12  # far from the others
    tensors = {"weight": weight, "weight_scale": scale.bfloat16().float()}
    stored = compressed(PackedQuantizationCompressor, INT8, None, tensors, True)
    stored.tensors["weight_scale"] = stored.tensors["weight_scale"].bfloat16()
    return stored


def ct_int8_channel(weight, _):
    scale = (weight.abs().amax(1, keepdim=True) / 127).bfloat16().float()
    tensors = {"weight": weight, "weight_scale": scale}
    return compressed(IntQuantizationCompressor, INT8_CHANNEL, INT8_TOKEN, tensors, True)


def ct_int8_tensor(weight, _):
    tensors = {"weight": weight, "weight_scale": (weight.abs().max() / 127).reshape(1)}
    return compressed(IntQuantizationCompressor, INT8_TENSOR, INT8_TOKEN, tensors, True)


def ct_int4_order(weight, generator):
    """Activation order as compressed-tensors had it: the inputs, sorted by g_idx, make the groups."""
    order = torch.from_numpy(generator.permutation(weight.shape[1]))
    group = torch.empty(weight.shape[1], dtype=torch.int32)
    group[order] = (torch.arange(weight.shape[1]) // 32).int()
    by_group = torch.argsort(group, stable=True)
    sorted_weight = ct_int4(weight[:, by_group], generator)
    back = torch.argsort(by_group)
    tensors = sorted_weight.tensors
    codes = unpack_from_int32(tensors["weight_packed"], 4, weight.shape)[:, back].contiguous()
    tensors = tensors | {"weight_packed": pack_to_int32(codes, 4), "weight_g_idx": group}
    return Stored(tensors, sorted_weight.weight[:, back].contiguous(), True, by_group)


def modelopt_fp8(weight, _):
    scale = weight.abs().max() / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    tensors = {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(0.03)}
    return Stored(tensors, codes.float() * scale)


def modelopt_nvfp4(weight, generator):
    """Random codes: w = e2m1 * e4m3 * weight_scale_2, element 2i of a row in the low nibble."""
    codes = torch.from_numpy(generator.integers(0, 16, weight.shape)).to(torch.uint8)
    scale_2 = (weight.abs().max() / 2688).float()
    scale = (weight.reshape(weight.shape[0], -1, 16).abs().amax(2) / 6 / scale_2).to(torch.float8_e4m3fn)
    values = E2M1[codes.long()] * scale.float().repeat_interleave(16, 1) * scale_2
    tensors = {
        "weight": codes[:, ::2] | codes[:, 1::2] << 4,
        "weight_scale": scale,
        "weight_scale_2": scale_2,
    }
    return Stored(tensors, values, True)


def fp8_block(rows: int, cols: int):
    def store(weight, _):
        """FineGrainedFP8: one weight_scale_inv for a block, which multiplies."""
        high, wide = -(-weight.shape[0] // rows), -(-weight.shape[1] // cols)
        scale = torch.empty(high, wide)
        spread = torch.empty_like(weight)
        for i in range(high):
            for j in range(wide):
                part = (slice(i * rows, (i + 1) * rows), slice(j * cols, (j + 1) * cols))
                scale[i, j] = (weight[part].abs().max() / 448).bfloat16()
                spread[part] = scale[i, j]
        codes = (weight / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
        return Stored({"weight": codes, "weight_scale_inv": scale.bfloat16()}, codes.float() * spread)

    return store


def fp8_stack(rows: int, cols: int):
    def store(weights, generator):
        """The experts of transformers' FP8Experts: all in one tensor, and so are their scales."""
        each = [fp8_block(rows, cols)(weight, generator) for weight in weights]
        tensors = {
            "": torch.stack([one.tensors["weight"] for one in each]),
            "_scale_inv": torch.stack([one.tensors["weight_scale_inv"] for one in each]),
        }
        return Stored(tensors, torch.stack([one.weight for one in each]))

    return store


def pack_words(values: torch.Tensor, dim: int, order=range(8), bits: int = 4) -> torch.Tensor:
    """As many values along `dim` as fit into an int32, value order[k] in field k."""
    values = values.to(torch.int64).movedim(dim, -1)
    values = values.reshape(*values.shape[:-1], -1, 32 // bits)
    words = sum(values[..., source] << bits * k for k, source in enumerate(order))
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return words.movedim(-1, dim).contiguous()


def random_int4(weight, generator, group_size: int):
    inputs, groups = weight.shape[1], weight.shape[1] // group_size
    codes = torch.from_numpy(generator.integers(0, 16, (inputs, weight.shape[0])))
    zeros = torch.from_numpy(generator.integers(0, 16, (groups, weight.shape[0])))
    scales = (weight.std() * (0.15 + 0.15 * torch.from_numpy(generator.random((groups, weight.shape[0]))))).half()
    return codes, zeros, scales


def gptq(group_size: int, act_order: bool, added: int):
    def store(weight, generator):
        """w[i, o] = (q - zero) * scale of group g_idx[i]; the zero is stored less `added`, modulo 16."""
        codes, zeros, scales = random_int4(weight, generator, group_size)
        g_idx = (torch.arange(weight.shape[1]) // group_size).int()
        if act_order:
            g_idx = g_idx[torch.from_numpy(generator.permutation(weight.shape[1]))]
        values = (codes - zeros[g_idx.long()]).float() * scales.float()[g_idx.long()]
        tensors = {
            "qweight": pack_words(codes, 0),
            "qzeros": pack_words((zeros - added) % 16, 1),
            "scales": scales,
            "g_idx": g_idx,
        }
        return Stored(tensors, values.T.contiguous(), True, torch.argsort(g_idx, stable=True))

    return store


def gptq_8bit(weight, generator):
    """As gptq() in act-order, with zero points around 128, so that the differences are signed bytes."""
    inputs, outputs, groups = weight.shape[1], weight.shape[0], weight.shape[1] // 32
    g_idx = (torch.arange(inputs) // 32).int()[torch.from_numpy(generator.permutation(inputs))]
    zeros = torch.from_numpy(generator.integers(120, 136, (groups, outputs)))
    zeros[:, ::2] = 128
    values = torch.from_numpy(generator.integers(-120, 120, (inputs, outputs)))
    scales = (weight.std() * (0.015 + 0.015 * torch.from_numpy(generator.random((groups, outputs))))).half()
    tensors = {
        "qweight": pack_words(values + zeros[g_idx.long()], 0, range(4), 8),
        "qzeros": pack_words(zeros - 1, 1, range(4), 8),
        "scales": scales,
        "g_idx": g_idx,
    }
    weight = (values.float() * scales.float()[g_idx.long()]).T.contiguous()
    return Stored(tensors, weight, True, torch.argsort(g_idx, stable=True))


def awq_gemv(weight, generator):
    """AutoAWQ's WQLinear_GEMV: rows are outputs, words are in order, zeros and scales have room for more groups."""
    codes, zeros, scales = (part.T for part in random_int4(weight, generator, 32))
    outputs, groups = zeros.shape
    width = 4 * -(-groups // 32)  # in words, for groups of 32
    wide_zeros = torch.zeros(outputs, 8 * width, dtype=zeros.dtype)
    wide_zeros[:, :groups] = zeros
    wide_scales = torch.zeros(outputs, 8 * width, dtype=torch.float16)
    wide_scales[:, :groups] = scales
    values = (codes - zeros.repeat_interleave(32, 1)).float() * scales.float().repeat_interleave(32, 1)
    tensors = {"qweight": pack_words(codes, 1), "qzeros": pack_words(wide_zeros, 1), "scales": wide_scales}
    return Stored(tensors, values.contiguous(), True)


def awq(weight, generator):
    codes, zeros, scales = random_int4(weight, generator, 32)
    values = (codes - zeros.repeat_interleave(32, 0)).float() * scales.float().repeat_interleave(32, 0)
    tensors = {
        "qweight": pack_words(codes, 1, AWQ_ORDER),
        "qzeros": pack_words(zeros, 1, AWQ_ORDER),
        "scales": scales,
    }
    return Stored(tensors, values.T.contiguous(), True)


def all_but(*names: str, scheme):
    return lambda module: None if any(name in module for name in names) else scheme


def ct_config(layout: str, groups: dict, ignore: list[str], **rest) -> dict:
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": groups,
        "ignore": ignore,
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    } | rest


def ct_group(weights: dict, activations: dict | None, targets: list[str], layout: str | None = None) -> dict:
    group = {"weights": weights, "input_activations": activations, "output_activations": None, "targets": targets}
    return group | ({"format": layout} if layout else {})


MIXED_LAYERS = {
    f"model.layers.{layer}.{module}": {"quant_algo": algorithm} | ({"group_size": 16} if "FP4" in algorithm else {})
    for layer in range(LAYERS)
    for module, algorithm in [(f"mlp.{p}_proj", "W4A16_NVFP4") for p in ("gate", "up", "down")]
    + [(f"self_attn.{p}_proj", "FP8") for p in "qkvo"]
} | {"lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}

MIXED_HYBRID = {
    f"model.language_model.layers.{layer}.{module}": {"quant_algo": algorithm}
    | ({"group_size": 16} if "FP4" in algorithm else {})
    for layer, modules in enumerate(
        [
            ["linear_attn." + p for p in ("in_proj_qkv", "in_proj_z", "out_proj")],
            [f"self_attn.{p}_proj" for p in "qkvo"],
        ]
    )
    for module, algorithm in [(module, "FP8") for module in modules]
    + [
        (f"mlp.{mlp}.{p}_proj", "W4A16_NVFP4")
        for mlp in ("shared_expert", *(f"experts.{e}" for e in range(4)))
        for p in ("gate", "up", "down")
    ]
} | {"lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}

# Of parts that a text model leaves out.
OTHER_PARTS = {
    "mtp.fc.weight": torch.zeros(4, 8).half(),
    "mtp.layers.0.self_attn.q_proj.weight": torch.zeros(4, 8).half(),
    "mtp.norm.weight": torch.zeros(4).half(),
    "model.visual.blocks.0.attn.qkv.weight": torch.zeros(4, 8).half(),
    "model.visual.blocks.0.attn.qkv.bias": torch.zeros(4).half(),
    "model.visual.patch_embed.proj.weight": torch.zeros(4, 3, 2, 2, 2).half(),
}

CASES = {
    "fp8-channel": Case(
        1,
        ct_config("float-quantized", {"group_0": ct_group(FP8_CHANNEL, FP8_TOKEN, ["Linear"])}, ["lm_head"]),
        all_but("lm_head", scheme=ct_fp8_channel),
    ),
    "fp8-tensor": Case(
        2,
        ct_config(
            "float-quantized",
            {"group_0": ct_group(FP8_TENSOR, FP8_TENSOR, ["Linear"])},
            ["re:.*lm_head", "model.layers.1.mlp.down_proj"],
            kv_cache_scheme={"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False},
        ),
        all_but("lm_head", "layers.1.mlp.down_proj", scheme=ct_fp8_tensor),
        extra={f"model.layers.{i}.self_attn.{p}_scale": torch.tensor([0.1]) for i in range(LAYERS) for p in "kv"},
    ),
    "fp8-block": Case(
        3,
        {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [48, 64],
            "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn.o_proj"],
        },
        all_but("lm_head", "layers.0.self_attn.o_proj", scheme=fp8_block(48, 64)),
    ),
    "modelopt-fp8": Case(
        4,
        None,
        all_but("lm_head", "layers.0.self_attn", scheme=modelopt_fp8),
        {
            "producer": {"name": "modelopt", "version": "0.29.0"},
            "quantization": {
                "quant_algo": "FP8",
                "kv_cache_quant_algo": None,
                "exclude_modules": ["lm_head", "model.layers.0.self_attn*"],
            },
        },
    ),
    "nvfp4": Case(
        5,
        ct_config(
            "nvfp4-pack-quantized",
            {"group_0": ct_group(FP4, FP4 | {"dynamic": "local"}, ["Linear"])},
            ["lm_head", r"re:.*layers\.0\.self_attn\.[qk]_proj$"],
        ),
        all_but("lm_head", "layers.0.self_attn.q", "layers.0.self_attn.k", scheme=ct_nvfp4),
    ),
    "modelopt-mixed": Case(
        6,
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": MIXED_LAYERS},
        lambda module: modelopt_fp8 if "self_attn" in module else modelopt_nvfp4,
    ),
    "gptq": Case(
        7,
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False},
        all_but("lm_head", scheme=gptq(32, True, 1)),
    ),
    "gptq-v2": Case(
        8,
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 64,
            "desc_act": False,
            "sym": False,
            "checkpoint_format": "gptq_v2",
        },
        all_but("lm_head", scheme=gptq(64, False, 0)),
    ),
    "awq": Case(
        9,
        {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"},
        all_but("lm_head", scheme=awq),
    ),
    "int4": Case(
        10,
        ct_config(
            "mixed-precision",
            {
                "group_0": ct_group(INT4, None, ["re:.*mlp.(gate|up)_proj"], "pack-quantized"),
                "group_1": ct_group(INT4_ZERO, None, ["re:.*self_attn.*"], "pack-quantized"),
                "group_2": ct_group(INT4_CHANNEL, None, ["Linear"], "pack-quantized"),
                "group_3": ct_group(
                    INT4 | {"actorder": "group"}, None, ["model.layers.1.mlp.up_proj"], "pack-quantized"
                ),
            },
            ["lm_head"],
        ),
        lambda module: (
            None
            if module == "lm_head"
            else ct_int4_zero
            if "self_attn" in module
            else ct_int4_channel
            if "down" in module
            else ct_int4_order
            if module == "model.layers.1.mlp.up_proj"
            else ct_int4
        ),
    ),
    "fp8-narrow": Case(
        11,
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [40, 48]},
        all_but("lm_head", scheme=fp8_block(40, 48)),
    ),
    "fp8-experts": Case(
        12,
        {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "static",
            "weight_block_size": [32, 64],
            "modules_to_not_convert": ["lm_head", *(f"model.layers.{i}.mlp.gate" for i in range(LAYERS))],
        },
        lambda module: (
            None
            if module == "lm_head" or module.endswith("mlp.gate")
            else fp8_stack(32, 64)
            if "experts" in module
            else fp8_block(32, 64)
        ),
        extra={
            f"model.layers.{i}.mlp.experts.{p}_proj_activation_scale": torch.full((6,), 0.1)
            for i in range(LAYERS)
            for p in ("gate_up", "down")
        },
        config=MOE_CONFIG,
    ),
    "int8": Case(
        13,
        ct_config(
            "mixed-precision",
            {
                "group_0": ct_group(INT8, None, ["re:.*mlp.(gate|up)_proj"], "pack-quantized"),
                "group_1": ct_group(INT8_CHANNEL, INT8_TOKEN, ["re:.*self_attn.*"], "int-quantized"),
                "group_2": ct_group(INT8_TENSOR, INT8_TOKEN, ["Linear"], "int-quantized"),
            },
            ["lm_head"],
        ),
        lambda module: (
            None
            if module == "lm_head"
            else ct_int8_channel
            if "self_attn" in module
            else ct_int8_tensor
            if "down" in module
            else ct_int8_packed
        ),
    ),
    "gptq-8bit": Case(
        14,
        {"quant_method": "gptq", "bits": 8, "group_size": 32, "desc_act": True, "sym": False},
        all_but("lm_head", scheme=gptq_8bit),
    ),
    "awq-gemv": Case(
        15,
        {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemv"},
        all_but("lm_head", scheme=awq_gemv),
    ),
    "modelopt-hybrid": Case(
        16,
        None,
        lambda module: (
            modelopt_nvfp4
            if "expert" in module and not module.endswith("gate") or module == "lm_head"
            else modelopt_fp8
            if "self_attn" in module or module.endswith(("in_proj_qkv", "in_proj_z", "out_proj"))
            else None
        ),
        {
            "producer": {"name": "modelopt", "version": "0.45.0"},
            "quantization": {
                "quant_algo": "MIXED_PRECISION",
                "kv_cache_quant_algo": None,
                "quantized_layers": MIXED_HYBRID,
            },
        },
        extra=OTHER_PARTS,
        config=MOE_HYBRID,
    ),
    "nvfp4-hybrid": Case(
        17,
        ct_config(
            "nvfp4-pack-quantized",
            {"group_0": ct_group(FP4, FP4 | {"dynamic": "local"}, ["Linear"])},
            ["lm_head", "re:.*visual.*", "re:.*linear_attn\\.in_proj_.*", "re:^mtp.*"],
        ),
        all_but("lm_head", "conv1d", "in_proj", scheme=ct_nvfp4),
        extra=OTHER_PARTS,
        config=DENSE_HYBRID,
    ),
}


def plain_tensors(model: transformers.PreTrainedModel, generator: np.random.Generator) -> Tensors:
    tensors = {}
    for name, parameter in model.named_parameters():
        values = torch.from_numpy(generator.standard_normal(tuple(parameter.shape), dtype=np.float32))
        if "norm" in name:
            values = 0.3 * values + 1
        elif "embed" in name:
            values = 0.6 * values
        else:
            values = values * (1.3 / np.sqrt(values.shape[-1]))
        tensors[name] = values.half().float()
    return tensors


def with_experts_apart(weights: Tensors) -> Tensors:
    """Views of the matrices of stacked experts under the names of a module each, and the other tensors."""
    out = {}
    for name, values in weights.items():
        if ".experts." not in name:
            out[name] = values
            continue
        parent, kind = name.rsplit(".", 1)
        kinds = ("gate_proj", "up_proj") if kind == "gate_up_proj" else ("down_proj",)
        for expert, matrix in enumerate(values):
            for each, part in zip(kinds, matrix.chunk(len(kinds)), strict=True):
                out[f"{parent}.{expert}.{each}.weight"] = part
    return out


def int8_blocks(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Activations as int8 with one scale for 32 neighbours in `order`."""
    blocks = x[..., order].reshape(*x.shape[:-1], -1, 32)
    top = blocks.abs().amax(-1, keepdim=True)
    codes = torch.round(blocks * torch.where(top > 0, 127 / top, torch.zeros(())))
    return (codes * (top / 127)).reshape(x.shape)[..., torch.argsort(order)]


def make(name: str) -> None:
    case = CASES[name]
    folder = OUTPUT / name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    generator = np.random.default_rng(case.seed)
    text = case.config.get("text_config")
    settings = dict(text or case.config)
    model_type = settings.pop("model_type")
    settings.pop("architectures", None)
    if text:
        settings |= {"tie_word_embeddings": False, "experts_implementation": "eager"}
    kind = transformers.AutoConfig.for_model(model_type, **settings, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(kind).float()
    weights = plain_tensors(model, generator)
    stored: Tensors = dict(case.extra)
    integers, rows, row_values = {}, [], []
    for tensor_name, values in (with_experts_apart(weights) if text else weights).items():
        storage = values.untyped_storage().data_ptr()
        if text:
            tensor_name = re.sub(r"^model\.", "model.language_model.", tensor_name)
        module = tensor_name.removesuffix(".weight")
        scheme = case.schemes(module) if values.ndim >= 2 and "embed" not in module else None
        if scheme is None:
            stored[tensor_name] = values.half()
            continue
        result = scheme(values, generator)
        values.copy_(result.weight)
        prefix = module if values.ndim == 3 else module + "."
        stored |= {prefix + part: tensor.contiguous() for part, tensor in result.tensors.items()}
        if result.integers:
            integers[storage] = result.order if result.order is not None else torch.arange(values.shape[1])
        matrix = result.weight.float().reshape(-1, values.shape[-1])
        for row in (3, len(matrix) - 2):
            rows.append([tensor_name, row])
            row_values.append(matrix[row].numpy())
    safetensors.torch.save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = case.config | ({"quantization_config": case.quantization_config} if case.quantization_config else {})
    write_json(folder / "config.json", config)
    if case.hf_quant_config:
        write_json(folder / "hf_quant_config.json", case.hf_quant_config)

    model.load_state_dict(weights, assign=True)
    model.eval()
    token_ids = np.random.default_rng(100 + case.seed).integers(0, VOCAB, POSITIONS)
    batch = torch.from_numpy(token_ids)[None]
    with torch.no_grad():
        logits = model(batch, use_cache=False).logits[0].numpy()
        linear, seen = torch.nn.functional.linear, set()

        def rounding_linear(x, weight, bias=None):
            storage = weight.untyped_storage().data_ptr()
            if storage in integers:
                seen.add(storage)
                x = int8_blocks(x, integers[storage])
            return linear(x, weight, bias)

        torch.nn.functional.linear = rounding_linear
        rounded = model(batch, use_cache=False).logits[0].numpy()
        torch.nn.functional.linear = linear
        assert seen == set(integers)
    np.stack([logits, rounded]).astype("<f4").tofile(folder / "expected_logits.f32")
    np.concatenate(row_values).astype("<f4").tofile(folder / "expected_rows.f32")
    write_json(
        folder / "expected.json",
        {
            "transformers": transformers.__version__,
            "compressed_tensors": compressed_tensors.__version__,
            "torch": torch.__version__.split("+")[0],
            "token_ids": list(map(int, token_ids)),
            "std": round(float(logits.std()), 4),
            "rows": rows,
        },
    )
    print(
        f"{name}: logits std {logits.std():.2f}, int8 activations change them by {np.abs(rounded - logits).max():.3f}"
    )


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=None if path.name == "expected.json" else 2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all when none is given")
    cases = parser.parse_args().cases or list(CASES)
    unknown = [case for case in cases if case not in CASES]
    if unknown:
        parser.error(f"no case is called '{unknown[0]}'; known are {', '.join(CASES)}")
    for case in cases:
        make(case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
