"""The tiny checkpoints of tests/fixtures/transformers: their configurations."""

from dataclasses import dataclass, field

import torch

VOCAB = 300


@dataclass
class Case:
    config: dict
    seed: int
    splitter: str  # "llama-bpe", "qwen2" or "gpt-2"
    stored: torch.dtype = torch.float32
    shards: int = 1
    gguf: str | None = None  # file name; written from the same weights
    stacked_experts: bool = False  # all experts of a layer in one tensor, else each in its own
    generation: dict = field(default_factory=dict)
    oracle: dict | None = None  # read by transformers in place of config, where it does not know the architecture


def dense(architecture: str, model_type: str, **rest) -> dict:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": VOCAB,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "max_position_embeddings": 512,
        "use_cache": True,
    } | rest


LLAMA = dense(
    "LlamaForCausalLM",
    "llama",
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=3,
    num_key_value_heads=1,
    intermediate_size=80,
    hidden_act="silu",
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    attention_bias=False,
    mlp_bias=False,
    rope_theta=10000.0,
    rope_scaling={
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    torch_dtype="float32",
)
MISTRAL = dense(
    "MistralForCausalLM",
    "mistral",
    hidden_size=60,
    num_hidden_layers=3,
    num_attention_heads=5,
    num_key_value_heads=5,
    head_dim=12,
    intermediate_size=92,
    hidden_act="silu",
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    sliding_window=8,
    rope_theta=10000.0,
    torch_dtype="float32",
)
QWEN2 = dense(
    "Qwen2ForCausalLM",
    "qwen2",
    hidden_size=56,
    num_hidden_layers=3,
    num_attention_heads=7,
    num_key_value_heads=1,
    intermediate_size=76,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    rope_theta=1000000.0,
    use_sliding_window=False,
    sliding_window=4096,
    max_window_layers=3,
    torch_dtype="float32",
)
QWEN3 = dense(
    "Qwen3ForCausalLM",
    "qwen3",
    hidden_size=40,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=72,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    attention_bias=False,
    use_sliding_window=False,
    sliding_window=None,
)
GEMMA3 = dense(
    "Gemma3ForCausalLM",
    "gemma3_text",
    hidden_size=42,
    num_hidden_layers=7,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=56,
    hidden_activation="gelu_pytorch_tanh",
    rms_norm_eps=1e-6,
    sliding_window=8,
    attention_bias=False,
    final_logit_softcapping=None,
    attn_logit_softcapping=None,
)
QWEN3_5 = dense(
    "Qwen3_5ForCausalLM",
    "qwen3_5_text",
    hidden_size=40,
    num_hidden_layers=5,
    full_attention_interval=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=24,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=12,
    linear_value_head_dim=40,
    linear_conv_kernel_dim=4,
    intermediate_size=56,
    hidden_act="silu",
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    dtype="float32",
    rope_parameters={
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [1, 1, 1],
        "mrope_interleaved": True,
    },
)
QWEN3_5_MOE = QWEN3_5 | dense(
    "Qwen3_5MoeForCausalLM",
    "qwen3_5_moe_text",
    hidden_size=32,
    num_hidden_layers=3,
    full_attention_interval=3,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=24,
    num_experts=12,
    num_experts_per_tok=2,
)
del QWEN3_5_MOE["intermediate_size"]
QWEN3_NEXT = QWEN3_5_MOE | dense(
    "Qwen3NextForCausalLM",
    "qwen3_next",
    tie_word_embeddings=False,
    intermediate_size=36,
    norm_topk_prob=True,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 72,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
}
LONGROPE = {
    "short_factor": [1.0, 1.05, 1.1, 1.25, 1.5, 2.0],
    "long_factor": [1.1, 1.4, 2.5, 6.0, 11.0, 20.0],
}
PHI3 = dense("Phi3ForCausalLM", "phi3", **SMALL, pad_token_id=2, partial_rotary_factor=0.75, sliding_window=None)
GRANITE = dense(
    "GraniteForCausalLM",
    "granite",
    **SMALL | {"tie_word_embeddings": False},
    embedding_multiplier=6.0,
    attention_multiplier=0.4,
    residual_multiplier=0.22,
    logits_scaling=3.0,
    attention_bias=False,
    mlp_bias=False,
)
MINICPM = dense(
    "MiniCPMForCausalLM", "minicpm", **SMALL, scale_emb=7, scale_depth=1.4, dim_model_base=24, num_experts=0
)
OLMO2 = dense("Olmo2ForCausalLM", "olmo2", **SMALL | {"tie_word_embeddings": False}, attention_bias=False)
GLM4 = dense(
    "Glm4ForCausalLM", "glm4", **SMALL, pad_token_id=2, head_dim=16, partial_rotary_factor=0.5, attention_bias=True
)
GEMMA2 = dense(
    "Gemma2ForCausalLM",
    "gemma2",
    hidden_size=42,
    num_hidden_layers=3,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=56,
    hidden_act="gelu_pytorch_tanh",
    hidden_activation="gelu_pytorch_tanh",
    rms_norm_eps=1e-6,
    sliding_window=8,
    attention_bias=False,
    query_pre_attn_scalar=16,
    attn_logit_softcapping=3.0,
    final_logit_softcapping=2.0,
    rope_theta=10000.0,
    torch_dtype="float32",
)
SMALL_LLAMA = dense("LlamaForCausalLM", "llama", **SMALL)
QWEN3_MOE = QWEN3 | dense(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=40,
    moe_intermediate_size=28,
    num_experts=12,
    num_experts_per_tok=3,
    norm_topk_prob=True,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    rope_theta=1000000.0,
    rope_scaling=None,
    torch_dtype="float32",
)
QWEN2_MOE = QWEN2 | dense(
    "Qwen2MoeForCausalLM",
    "qwen2_moe",
    hidden_size=42,
    num_hidden_layers=2,
    num_attention_heads=3,
    max_window_layers=2,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=36,
    num_experts=9,
    num_experts_per_tok=4,
    norm_topk_prob=False,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)
MIXTRAL = dense(
    "MixtralForCausalLM",
    "mixtral",
    hidden_size=36,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    intermediate_size=44,
    hidden_act="silu",
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    sliding_window=None,
    rope_theta=1000000.0,
    num_local_experts=5,
    num_experts_per_tok=2,
    torch_dtype="float32",
)

CASES = {
    "llama": Case(LLAMA, 1, "llama-bpe", gguf="llama.gguf"),
    "mistral": Case(MISTRAL, 2, "gpt-2", shards=2),
    "qwen2": Case(QWEN2, 3, "qwen2", generation={"eos_token_id": [1, 2]}),
    "qwen2-f16": Case(QWEN2 | {"torch_dtype": "float16"}, 4, "qwen2", stored=torch.float16),
    # rope and dtype in the spelling of newer exports
    "qwen3": Case(
        QWEN3 | {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "dtype": "float32"},
        5,
        "qwen2",
        gguf="qwen3.gguf",
    ),
    "qwen3-bf16": Case(
        QWEN3 | {"rope_theta": 1000000.0, "rope_scaling": None, "torch_dtype": "bfloat16"},
        6,
        "qwen2",
        stored=torch.bfloat16,
    ),
    # a scale that head_dim does not give, an own rope for local and (linearly scaled) global layers; no tie key
    "gemma3": Case(
        GEMMA3
        | {
            "query_pre_attn_scalar": 24,
            "dtype": "float32",
            "layer_types": ["sliding_attention"] * 2
            + ["full_attention"]
            + ["sliding_attention"] * 3
            + ["full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            },
        },
        7,
        "gpt-2",
    ),
    # older spelling, and only what a GGUF of the architecture can express: pattern 6, scale from head_dim
    "gemma3-old": Case(
        GEMMA3
        | {
            "query_pre_attn_scalar": 16,
            "torch_dtype": "float32",
            "sliding_window_pattern": 6,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
        },
        8,
        "gpt-2",
        gguf="gemma3.gguf",
    ),
    # 40 positions are more than the original context: the long factors
    "phi3": Case(
        PHI3
        | {
            "original_max_position_embeddings": 24,
            "rope_scaling": {"type": "longrope", **LONGROPE},
        },
        9,
        "gpt-2",
        gguf="phi3.gguf",
    ),
    # fewer than the original context: the short factors, for an engine that is told to stay within it
    "phi3-short": Case(
        PHI3
        | {
            "tie_word_embeddings": False,
            "sliding_window": 8,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                **LONGROPE,
            },
        },
        10,
        "gpt-2",
    ),
    "granite": Case(GRANITE, 11, "gpt-2", gguf="granite.gguf"),
    # transformers has no code for it; the numbers of its Granite can say the same
    "minicpm": Case(
        MINICPM,
        12,
        "gpt-2",
        gguf="minicpm.gguf",
        oracle=GRANITE
        | {
            "tie_word_embeddings": True,
            "embedding_multiplier": MINICPM["scale_emb"],
            "attention_multiplier": 16**-0.5,
            "residual_multiplier": MINICPM["scale_depth"] / MINICPM["num_hidden_layers"] ** 0.5,
            "logits_scaling": MINICPM["hidden_size"] / MINICPM["dim_model_base"],
        },
    ),
    "olmo2": Case(OLMO2, 13, "gpt-2", gguf="olmo2.gguf"),
    "glm4": Case(GLM4, 14, "gpt-2", gguf="glm4.gguf"),
    "gemma2": Case(GEMMA2, 15, "gpt-2", gguf="gemma2.gguf"),
    "llama-yarn": Case(
        SMALL_LLAMA
        | {
            "max_position_embeddings": 32,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 1.0,
                "beta_slow": 0.25,
            },
        },
        16,
        "llama-bpe",
        gguf="llama.gguf",
    ),
    # biases everywhere; 40 positions are factor times the trained 20, where a growing base has reached the fixed one
    "llama-dynamic": Case(
        SMALL_LLAMA
        | {
            "max_position_embeddings": 20,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_scaling": {"type": "dynamic", "factor": 2.0},
        },
        17,
        "llama-bpe",
    ),
    "qwen2-window": Case(
        dense("Qwen2ForCausalLM", "qwen2", **SMALL)
        | {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        18,
        "qwen2",
    ),
    "qwen3-window": Case(
        dense("Qwen3ForCausalLM", "qwen3", **SMALL)
        | {
            "num_hidden_layers": 3,
            "head_dim": 16,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        19,
        "qwen2",
    ),
    "qwen3-moe": Case(QWEN3_MOE, 21, "qwen2", gguf="qwen3moe.gguf"),
    # only layer 3 has experts: 0 and 2 by the step, 1 by name
    "qwen3-moe-sparse": Case(
        QWEN3_MOE | {"num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [1], "norm_topk_prob": False},
        22,
        "qwen2",
        stacked_experts=True,
    ),
    "qwen2-moe": Case(QWEN2_MOE, 23, "qwen2", gguf="qwen2moe.gguf"),
    "mixtral": Case(MIXTRAL | {"torch_dtype": "float16"}, 24, "gpt-2", stored=torch.float16, gguf="mixtral.gguf"),
    "qwen3_5-moe": Case(QWEN3_5_MOE, 10, "qwen2", stacked_experts=True, gguf="qwen35moe.gguf"),
    "qwen3-next": Case(QWEN3_NEXT, 11, "qwen2", gguf="qwen3next.gguf"),
    "qwen3_5": Case(QWEN3_5, 9, "qwen2", gguf="qwen35.gguf"),
}


def is_hybrid(config: dict) -> bool:
    """Of gated DeltaNet and gated attention."""
    return "linear_num_key_heads" in config
