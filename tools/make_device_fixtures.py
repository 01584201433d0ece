"""Writes tests/fixtures/device_ops.json: small inputs and results of the device's operations as torch and transformers
compute them, for the test of the reference device. Run with torch and transformers installed."""

import json
import pathlib

import torch
import torch.nn.functional as F
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

torch.manual_seed(20240607)
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "device_ops.json"


def flat(tensor):
    return [float(f"{x:.8g}") for x in tensor.to(torch.float32).flatten().tolist()]


def rms_norm():
    x, weight = torch.randn(3, 40) * 2, torch.randn(40)
    norm = LlamaRMSNorm(40, eps=1e-5)
    norm.weight.data = weight.clone()
    return {"rows": 3, "cols": 40, "eps": 1e-5, "x": flat(x), "weight": flat(weight), "out": flat(norm(x))}


def rope(interleaved):
    rows, heads, head_dim, first = 4, 3, 16, 5000
    x = torch.randn(rows, heads, head_dim)
    inv_freq = 1.0 / (10000.0 ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    angles = torch.arange(first, first + rows, dtype=torch.float32)[:, None] * inv_freq
    if interleaved:
        turn = torch.polar(torch.ones_like(angles), angles)[:, None, :]
        out = torch.view_as_real(torch.view_as_complex(x.reshape(rows, heads, -1, 2)) * turn).flatten(2)
    else:
        emb = torch.cat((angles, angles), dim=-1)
        q = x.transpose(0, 1)[None]
        out = apply_rotary_pos_emb(q, q, emb.cos()[None], emb.sin()[None])[0][0].transpose(0, 1)
    return {
        "rows": rows,
        "heads": heads,
        "head_dim": head_dim,
        "first": first,
        "interleaved": interleaved,
        "inv_freq": flat(inv_freq),
        "x": flat(x),
        "out": flat(out),
    }


def gated(name, function):
    gate, up = torch.randn(2, 50) * 4, torch.randn(2, 50)
    return {"act": name, "rows": 2, "cols": 50, "gate": flat(gate), "up": flat(up), "out": flat(function(gate) * up)}


class Module(torch.nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.num_key_value_groups = groups
        self.eval()


def attention(heads, kv_heads, head_dim, tokens, window, softcap):
    q = torch.randn(1, heads, tokens, head_dim) * 2
    k, v = torch.randn(1, kv_heads, tokens, head_dim), torch.randn(1, kv_heads, tokens, head_dim)
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
    seen = (distance >= 0) & ((distance < window) if window else True)
    mask = torch.where(seen, 0.0, float("-inf"))[None, None]
    scale = head_dim**-0.5
    out, _ = eager_attention_forward(
        Module(heads // kv_heads), q, k, v, mask, dropout=0.0, scaling=scale, softcap=softcap or None
    )

    def rows(t):
        return flat(t[0].transpose(0, 1))

    return {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "tokens": tokens,
        "window": window,
        "softcap": softcap,
        "scale": scale,
        "q": rows(q),
        "k": rows(k),
        "v": rows(v),
        "out": flat(out),
    }


def main():
    x, w, b = torch.randn(3, 20), torch.randn(7, 20), torch.randn(7)
    logits = torch.randn(2, 30) * 50
    fixtures = {
        "rms_norm": [rms_norm()],
        "rope": [rope(False), rope(True)],
        "gated": [gated("silu", F.silu), gated("gelu_tanh", lambda t: F.gelu(t, approximate="tanh"))],
        "softcap": [{"rows": 2, "cols": 30, "cap": 30.0, "x": flat(logits), "out": flat(30 * torch.tanh(logits / 30))}],
        "matmul": [
            {
                "rows": 3,
                "cols": 20,
                "outputs": 7,
                "x": flat(x),
                "w": flat(w),
                "b": flat(b),
                "out": flat(F.linear(x, w, b)),
            }
        ],
        "attention": [
            attention(6, 2, 8, 40, 0, 0.0),
            attention(3, 1, 8, 40, 9, 0.0),
            attention(2, 2, 12, 37, 0, 5.0),
        ],
    }
    OUT.write_text(json.dumps(fixtures, separators=(",", ":")) + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
