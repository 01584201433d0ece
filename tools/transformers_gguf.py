"""A tiny checkpoint as the GGUF file that converters would write of it."""

import json
from pathlib import Path

import gguf
import numpy as np
import tokenizers
import torch
from transformers_cases import VOCAB, Case, is_hybrid
from transformers_tokenizer import CHAT_TEMPLATE

PRE_NORM = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
SANDWICH_NORM = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GGUF_NAMES = {
    "gemma2": SANDWICH_NORM,
    "gemma3": SANDWICH_NORM,
    "olmo2": SANDWICH_NORM,
    "glm4": PRE_NORM | {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    "qwen35": {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "linear_attn.in_proj_qkv": "attn_qkv",
        "linear_attn.in_proj_z": "attn_gate",
        "linear_attn.in_proj_b": "ssm_beta",
        "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.in_proj_ba": "ssm_ba",
        "linear_attn.conv1d": "ssm_conv1d",
        "linear_attn.norm": "ssm_norm",
        "linear_attn.out_proj": "ssm_out",
    },
}
GGUF_COMMON = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
GGUF_ARCHITECTURES = {
    "gemma3_text": "gemma3",
    "qwen3_moe": "qwen3moe",
    "qwen2_moe": "qwen2moe",
    "mixtral": "llama",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_next": "qwen3next",
}
GGUF_PERMUTED = ("llama", "granite", "minicpm")


def apart(tensors: dict[str, torch.Tensor], model_type: str) -> dict[str, torch.Tensor]:
    """Stacked experts as the tensors of published checkpoints, one matrix each."""
    result = {}
    for name, tensor in tensors.items():
        block, part = name.rsplit(".", 1)
        if not block.endswith("mlp.experts"):
            result[name] = tensor
            continue
        for expert, matrix in enumerate(tensor):
            if part == "gate_up_proj":
                gate, up = matrix.chunk(2)
                result[f"{block}.{expert}.gate_proj.weight"] = gate.contiguous()
                result[f"{block}.{expert}.up_proj.weight"] = up.contiguous()
            else:
                result[f"{block}.{expert}.down_proj.weight"] = matrix.contiguous()
    if model_type != "mixtral":
        return result
    names = {".mlp.": ".block_sparse_moe.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    for old, new in names.items():
        result = {name.replace(old, new): tensor for name, tensor in result.items()}
    return result


def gguf_name(arch: str, name: str) -> str:
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in top:
        return top[name]
    _, _, layer, rest = name.split(".", 3)
    if rest in ("linear_attn.A_log", "linear_attn.dt_bias"):
        return f"blk.{layer}." + {"A": "ssm_a", "d": "ssm_dt.bias"}[rest.split(".")[1][0]]
    part, kind = rest.rsplit(".", 1)
    if ".experts." in part:  # the older spelling, one tensor an expert
        _, _, expert, matrix = part.split(".")
        return f"blk.{layer}.ffn_{ {'w1': 'gate', 'w3': 'up', 'w2': 'down'}[matrix] }.{expert}.{kind}"
    family = "qwen35" if arch in ("qwen35moe", "qwen3next") else arch
    names = GGUF_COMMON | GGUF_NAMES.get(family, PRE_NORM)
    return f"blk.{layer}.{names[part]}.{kind}"


def write_gguf(path: Path, case: Case, tensors: dict[str, torch.Tensor], tokenizer: tokenizers.Tokenizer) -> None:
    config = case.config
    arch = GGUF_ARCHITECTURES.get(config["model_type"], config["model_type"])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    writer = gguf.GGUFWriter(path, arch)
    # llama.cpp looks for tokens that ours has not in files whose name holds "phi3"
    writer.add_name(f"tiny random {'phi' if arch == 'phi3' else arch}")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    if "intermediate_size" in config:
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_rope_freq_base(10000000.0 if is_hybrid(config) else config.get("rope_theta", 1000000.0))
    if arch in ("llama", "granite", "minicpm", "phi3", "glm4"):
        writer.add_rope_dimension_count(int(head_dim * config.get("partial_rotary_factor", 1)))
    else:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch in ("gemma2", "gemma3", "phi3"):
        writer.add_sliding_window(config["sliding_window"] or 0)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch in ("granite", "minicpm"):
        scales = case.oracle or config
        writer.add_embedding_scale(scales["embedding_multiplier"])
        writer.add_residual_scale(scales["residual_multiplier"])
        writer.add_logit_scale(scales["logits_scaling"])
    if arch == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
    add_scaling(writer, config)
    if is_hybrid(config):
        writer.add_rope_dimension_count(head_dim // 4)
        writer.add_rope_dimension_sections([1, 1, 1, 0])
        writer.add_full_attention_interval(config["full_attention_interval"])
        writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        writer.add_ssm_state_size(config["linear_key_head_dim"])
        writer.add_ssm_group_count(config["linear_num_key_heads"])
        writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
        writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    if "num_experts_per_tok" in config:
        writer.add_expert_count(config.get("num_experts", config.get("num_local_experts")))
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])

    document = json.loads(tokenizer.to_str())
    tokens = [token for token, _ in sorted(document["model"]["vocab"].items(), key=lambda item: item[1])]
    special = {token["content"] for token in document["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(case.splitter)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]]
    )
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

    stacks: dict[str, list[np.ndarray]] = {}
    for name, tensor in (unfused(config, tensors) if arch == "qwen3next" else apart(tensors, arch)).items():
        values = tensor.float().numpy()
        if ".mlp.experts." in name:
            _, _, layer, _, _, _, matrix, _ = name.split(".")
            stacks.setdefault(f"blk.{layer}.ffn_{matrix.removesuffix('_proj')}_exps.weight", []).append(values)
            continue
        if arch in GGUF_PERMUTED and name.endswith(("q_proj.weight", "k_proj.weight")):
            # row (head, half, j) goes to (head, 2 j + half): the file's rope turns adjacent pairs
            count = heads if "q_proj" in name else kv_heads
            values = values.reshape(count, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(values.shape)
        if arch.startswith("gemma") and "norm" in name:
            values = values + np.float32(1)
        if is_hybrid(config):
            values = hybrid_values(config, name, values)
        if name.endswith("shared_expert_gate.weight"):
            values = values[0]
        writer.add_tensor(gguf_name(arch, name), np.ascontiguousarray(values, dtype=np.float32))
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config["rope_theta"], head_dim, scaling))
    for length in ("short", "long"):
        if f"{length}_factor" in scaling:
            factors = np.array(scaling[f"{length}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)
    if arch == "qwen2moe":  # gate and up in one tensor, as newer converters write them
        for layer in range(config["num_hidden_layers"]):
            gates, ups = (stacks.pop(f"blk.{layer}.ffn_{part}_exps.weight") for part in ("gate", "up"))
            stacks[f"blk.{layer}.ffn_gate_up_exps.weight"] = [
                np.concatenate(both) for both in zip(gates, ups, strict=True)
            ]
    for name, matrices in stacks.items():
        writer.add_tensor(name, np.ascontiguousarray(np.stack(matrices), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_scaling(writer: gguf.GGUFWriter, config: dict) -> None:
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
    if scaling.get("type") == "longrope":
        context = config["original_max_position_embeddings"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(context)
        writer.add_rope_scaling_attn_factors(
            float(np.sqrt(1 + np.log(config["max_position_embeddings"] / context) / np.log(context)))
        )


def unfused(config: dict, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """in_proj_qkvz, whose rows are key head by key head, as in_proj_qkv and in_proj_z."""
    heads, key = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    result = {}
    for name, tensor in tensors.items():
        if not name.endswith("in_proj_qkvz.weight"):
            result[name] = tensor
            continue
        parts = tensor.reshape(heads, -1, tensor.shape[-1]).split([key, key, values, values], dim=1)
        q, k, v, z = (part.reshape(-1, tensor.shape[-1]) for part in parts)
        result[name.replace("qkvz", "qkv")] = torch.cat([q, k, v])
        result[name.replace("qkvz", "z")] = z
    return result


def hybrid_values(config: dict, name: str, values: np.ndarray) -> np.ndarray:
    """As converters store them: norms with one added, decays ready for use, value head hk * r + j at j * Hk + hk."""
    if "norm" in name and "linear_attn" not in name:
        return values + np.float32(1)
    if "linear_attn" not in name or name.endswith("linear_attn.norm.weight"):
        return values
    if name.endswith("A_log"):
        values = -np.exp(values)
    if name.endswith("conv1d.weight"):
        values = values[:, 0]
    if config["model_type"] == "qwen3_next":  # the one that keeps the order of value heads
        return values
    heads, dim = config["linear_num_key_heads"], config["linear_value_head_dim"]
    ratio = config["linear_num_value_heads"] // heads

    def tiled(part: np.ndarray, size: int) -> np.ndarray:
        return part.reshape(heads, ratio, size, -1).swapaxes(0, 1).reshape(part.shape)

    if name.endswith("out_proj.weight"):
        return tiled(values.T, dim).T
    if name.endswith("in_proj_z.weight"):
        return tiled(values, dim)
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        keys = 2 * heads * config["linear_key_head_dim"]
        return np.concatenate([values[:keys], tiled(values[keys:], dim)])
    return tiled(values, 1)


def llama3_divisors(theta: float, dim: int, scaling: dict) -> np.ndarray:
    """What divides each rotary frequency under the Llama 3.1 scaling rule."""
    result = []
    context = scaling["original_max_position_embeddings"]
    for i in range(0, dim, 2):
        wavelength = 2 * np.pi * theta ** (i / dim)
        smooth = (context / wavelength - scaling["low_freq_factor"]) / (
            scaling["high_freq_factor"] - scaling["low_freq_factor"]
        )
        result.append(1 / ((1 - min(max(smooth, 0), 1)) / scaling["factor"] + min(max(smooth, 0), 1)))
    return np.array(result, dtype=np.float32)
