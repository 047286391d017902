#!/usr/bin/env python3
"""Turn a Hugging Face directory of a Llama model (bf16) into a GGUF with the same weights, for engines that read only those.

    make_gguf.py DIR OUT.gguf [--pre NAME]

Matrices stay as they are, bit by bit; norms become F32. The tokenizer must be byte-level BPE. Needs numpy.
"""
import argparse
import json
import pathlib
import struct

import numpy as np

from gguf_writer import FILE_TYPES, GgufWriter

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
               "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
               "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in NAMES:
        return NAMES[stem] + ".weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.weight"


def read_tensors(path):
    """(name, bf16 numbers as uint16) of every tensor of a safetensors file."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + size)
    for name, entry in header.items():
        if entry["dtype"] != "BF16":
            raise SystemExit(f"{path}: {name} is {entry['dtype']}, only BF16 is read")
        begin, end = entry["data_offsets"]
        yield name, np.frombuffer(data[begin:end].tobytes(), np.uint16).reshape(entry["shape"])


def paired(weight, heads):
    """Rows of q and k in GGUF's order: the halves of each head's rotary pairs next to each other."""
    rows, cols = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def add_tensors(gguf, folder, config):
    for name, weight in read_tensors(folder / "model.safetensors"):
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if "q_proj" in name:
            weight = paired(weight, config["num_attention_heads"])
        if "k_proj" in name:
            weight = paired(weight, config["num_key_value_heads"])
        kind = "bf16"
        if weight.ndim == 1:
            kind, weight = "f32", weight.astype(np.uint32) << 16
        data = np.ascontiguousarray(weight).tobytes()
        gguf.add(gguf_name(name), list(reversed(weight.shape)), kind, lambda data=data: [data])


def set_sizes(gguf, config):
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    gguf.set("general.file_type", FILE_TYPES["bf16"])
    for key, value in (("block_count", config["num_hidden_layers"]), ("context_length", config["max_position_embeddings"]),
                       ("embedding_length", config["hidden_size"]), ("feed_forward_length", config["intermediate_size"]),
                       ("attention.head_count", heads), ("attention.head_count_kv", config["num_key_value_heads"]),
                       ("attention.layer_norm_rms_epsilon", float(config["rms_norm_eps"])),
                       ("rope.freq_base", float(config.get("rope_theta") or rope.get("rope_theta", 10000.0))),
                       ("rope.dimension_count", config.get("head_dim") or config["hidden_size"] // heads),
                       ("vocab_size", config["vocab_size"])):
        gguf.set_own(key, value)


def set_vocabulary(gguf, folder, config, pre):
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    by_id = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    special = {entry["id"]: entry for entry in tokenizer["added_tokens"]}
    by_id.update((i, entry["content"]) for i, entry in special.items())
    ids = range(config["vocab_size"])
    gguf.set("tokenizer.ggml.model", "gpt2")
    gguf.set("tokenizer.ggml.pre", pre)
    gguf.set("tokenizer.ggml.tokens", [by_id.get(i, f"[unused {i}]") for i in ids])
    gguf.set("tokenizer.ggml.token_type", [3 if special.get(i, {}).get("special") else 1 for i in ids])
    merges = tokenizer["model"]["merges"]
    gguf.set("tokenizer.ggml.merges", [m if isinstance(m, str) else " ".join(m) for m in merges])
    gguf.set("tokenizer.ggml.add_bos_token", False)
    for name in ("bos_token_id", "eos_token_id"):
        if isinstance(config.get(name), int):
            gguf.set(f"tokenizer.ggml.{name}", config[name])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("directory", type=pathlib.Path, help="with config.json, tokenizer.json and one model.safetensors")
    parser.add_argument("out", help="the file to write")
    parser.add_argument("--pre", default="smollm", help="GGUF's name for how text is cut before merging (default: smollm)")
    arguments = parser.parse_args()
    config = json.loads((arguments.directory / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "llama":
        raise SystemExit(f"{arguments.directory}: model_type {config['model_type']}, only llama is turned into GGUF")
    gguf = GgufWriter("llama")
    set_sizes(gguf, config)
    set_vocabulary(gguf, arguments.directory, config, arguments.pre)
    add_tensors(gguf, arguments.directory, config)
    gguf.write(arguments.out)


if __name__ == "__main__":
    main()
