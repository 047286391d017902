#!/usr/bin/env python3
"""Writes golden/: a small random aurora checkpoint and the logits it must give, computed here with numpy alone, in double. Shares
no code with aurora.cc.  make_golden.py [--check DIR]: computes DIR's golden instead and says how far off it is: DIR is another
checkpoint of a Llama, Qwen3 or Mistral kind, whose golden comes from somebody else's implementation."""
import json
import pathlib
import struct
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = {"architectures": ["AuroraForCausalLM"], "model_type": "aurora", "vocab_size": 128, "hidden_size": 48, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 80, "hidden_act": "silu",
          "max_position_embeddings": 128, "rms_norm_eps": 0.01, "rope_theta": 10000.0, "sliding_window": 8, "bos_token_id": 1,
          "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
TYPES = {"F32": "<f4", "I32": "<i4", "BF16": "<u2"}


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in entry["data_offsets"])
        raw = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = raw.reshape(entry["shape"])
    return tensors


def write(path, tensors):
    """tensors: name -> (dtype, array of that dtype's numpy type)."""
    header, offset = {}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.astype(TYPES[d]).tobytes() for d, a in tensors.values()))


def weights(config, random):
    """Stored bf16; norms around 1, and spread, so that one that is left out shows."""
    hidden, width, inner = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (q, hidden),
                            "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
                            "self_attn.q_norm": (width,), "self_attn.k_norm": (width,), "mlp.gate_proj": (inner, hidden),
                            "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    for name, shape in shapes.items():
        values = random.standard_normal(shape) * (shape[-1] ** -0.5 if len(shape) == 2 else 0.3) + (len(shape) == 1)
        yield name, (values.astype(np.float32).view(np.uint32) + 0x8000 >> 16).astype(np.uint16)


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, theta):  # [T, heads, width], halves are pairs
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def logits(config, w, ids):
    tokens, eps = len(ids), config["rms_norm_eps"]
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    behind = np.arange(tokens)[:, None] - np.arange(tokens)[None]  # keys so many rows before the query
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        at = lambda name: w[f"model.layers.{layer}.{name}.weight"]  # noqa: E731
        y = norm(x, at("input_layernorm"), eps)
        q, k, v = ((y @ at(f"self_attn.{n}_proj").T).reshape(tokens, -1, width) for n in "qkv")
        if f"model.layers.{layer}.self_attn.q_norm.weight" in w:
            q, k = norm(q, at("self_attn.q_norm"), eps), norm(k, at("self_attn.k_norm"), eps)
        q, k = rotate(q, config["rope_theta"]), rotate(k, config["rope_theta"])
        scores = np.einsum("qhd,khd->hqk", q, np.repeat(k, heads // kv_heads, 1)) * width ** -0.5
        window = config.get("sliding_window") if config["model_type"] != "aurora" or layer % 2 == 1 else None
        seen = (behind >= 0) & (behind < (window or tokens))
        scores = np.exp(np.where(seen, scores - scores.max(-1, keepdims=True), -np.inf))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), np.repeat(v, heads // kv_heads, 1))
        x = x + mixed.reshape(tokens, -1) @ at("self_attn.o_proj").T
        y = norm(x, at("post_attention_layernorm"), eps)
        gate = y @ at("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ at("mlp.up_proj").T)) @ at("mlp.down_proj").T
    return norm(x, w["model.norm.weight"], eps) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def load(folder):
    return json.loads((folder / "config.json").read_text()), {n: t.astype(np.float64) for n, t in read(folder / "model.safetensors").items()}


def main():
    if sys.argv[1:2] == ["--check"]:
        folder = pathlib.Path(sys.argv[2])
        config, w = load(folder)
        golden = read(folder / "golden.safetensors")
        for i in range(3):
            print(f"p{i}: {np.abs(logits(config, w, golden[f'p{i}.input_ids']) - golden[f'p{i}.logits']).max():.2e}")
        return
    folder, random = HERE / "golden", np.random.default_rng(17)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    write(folder / "model.safetensors", {name: ("BF16", bits) for name, bits in weights(CONFIG, random)})
    config, w = load(folder)
    golden = {}
    for i, length in enumerate((1, 9, 40)):
        ids = random.integers(3, config["vocab_size"], length).astype(np.int32)
        golden[f"p{i}.input_ids"] = ("I32", ids)
        golden[f"p{i}.logits"] = ("F32", logits(config, w, ids).astype(np.float32))
    write(folder / "golden.safetensors", golden)


main()
