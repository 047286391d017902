#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: corpus/<target>/seed_*. Small files that parse, with something of every kind that a
parser knows; what fuzzing has found lies beside them under other names. Standard library only.
"""
import json
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TESTS / "cli"))

from containers import ARRAY, F32_VALUE, STRING, U32, Gguf, Tensor, safetensors_header  # noqa: E402

I32, BOOL = 5, 7
BETWEEN = b"\n=====\n"  # files of one input (support.h)
# ggml type -> (elements, bytes) of a block; those that we decode and one that we do not.
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 12: (256, 144), 14: (256, 210), 23: (256, 136)}


def save(target, name, content):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed_{name}").write_bytes(content if isinstance(content, bytes) else content.encode())


def as_json(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pattern(size):
    """Bytes that are no zeros and no NaNs."""
    return bytes((i * 7 + 3) % 61 for i in range(size))


def json_seeds():
    save("json", "kinds", '{"a":[1,-2,3.5e2,true,false,null,"x\\u00e9\\n\\ud83d\\ude00"],"b":{"c":{}},"d":[],"a":0}')
    save("json", "numbers", "[NaN,Infinity,-Infinity,9223372036854775807,9223372036854775808,18446744073709551616,1e400,-0.0]")
    save("json", "marks", '["Infinity","\\u0001number:NaN",NaN,"a\\"NaN"]')
    save("json", "deep", "[" * 30 + "]" * 30)


def options_seeds():
    save("options_yaml", "all", "log: debug\njson: true\nthreads: 2\nisa: avx2\nmemory: 8G\ncompute: fp32\nattn-backend: VANILLA\n"
         "kv-dtype: bf16\npage-tokens: 64\nkv-tokens: 1024\nmax-seq-len: auto\nprefill-chunk: 32\nmla-context-chunk: 7\n"
         "allow-downgrade: [weights.unused, attention]\nseed: random\ntemp: 0.5\ntop-k: 3\ntop-p: .9\nmin-p: 0\n"
         "repetition-penalty: 1.1\nmax-new-tokens: unlimited\nstop:\n  - \"\\n\"\n  - '###'\n")
    save("options_yaml", "wrong", "isa: avx3\nthreads: -1\nmemory: 5 parsecs\nmemry: 1\nconfig: x\n? [a]\n: 1\n")
    save("options_yaml", "yaml", "%YAML 1.2\n---\nstop: &a [\"x\", *a]\nlog: !!str warning # c\nseed: ~\ntemp: >-\n  1\n"
         "top-k: |\n  2\n...\n")


def plugin_note_seeds():
    """Shared libraries of nothing but segments of notes."""
    def notes(alignment, *entries):
        def pad(text):
            return text + bytes(-len(text) % alignment)
        return b"".join(pad(struct.pack("<III", len(owner) + 1, len(text), kind) + owner + b"\0") + pad(text) for owner, kind, text in entries)

    def library(*segments):
        table, body = b"", b""
        for alignment, text in segments:
            offset = 64 + 56 * len(segments) + len(body)
            table += struct.pack("<IIQQQQQQ", 4, 4, offset, 0, 0, len(text), len(text), alignment)
            body += text
        header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
        return header + table + body

    tag = (b"Tenon", 1, b"tenon-0.1 x86-64 itanium-1 libstdc++-cxx11")
    save("plugin_note", "one", library((4, notes(4, tag))))
    save("plugin_note", "others", library((8, notes(8, (b"GNU", 5, b"0" * 16))), (4, notes(4, (b"GNU", 3, b"build"), (b"", 0, b""), tag))))
    save("plugin_note", "none", library((4, notes(4, (b"Tenon", 2, b"x"), (b"Teno", 1, b"y")))))


def safetensors_bytes(tensors, header=None):
    header = safetensors_header(tensors) if header is None else header
    text = as_json(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(t.data for t in tensors.values())


def safetensors_seeds():
    kinds = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I64": 8, "I32": 4, "I16": 2,
             "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}
    kinds_of = {f"model.{name}": Tensor(name, [2, 3], pattern(6 * size)) for name, size in kinds.items()}
    save("safetensors", "kinds", safetensors_bytes(kinds_of))
    shapes = {"scalar": Tensor("F32", [], pattern(4)), "none": Tensor("F32", [0, 3], b""),
              "five": Tensor("U8", [1, 2, 1, 2, 1], pattern(4)),
              "token_embd.weight": Tensor("F16", [4, 2], pattern(16)), "blk.0.attn_q.weight": Tensor("BF16", [4, 2], pattern(16)),
              "blk.1.ffn_up_exps.weight": Tensor("F32", [2, 1, 2], pattern(16))}
    header = {"__metadata__": {"format": "pt"}, **safetensors_header(shapes)}
    header["odd"] = {"dtype": "F6_E3M2", "shape": [4], "data_offsets": [0, 3]}
    save("safetensors", "shapes", safetensors_bytes(shapes, header))


def index_seeds():
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    save("hf_index", "right", as_json({"metadata": {"total_size": 2}, "weight_map": {"a": first, "b": second}}))
    save("hf_index", "elsewhere", as_json({"weight_map": {"a": second, "b": "../x.safetensors", "c": "absent.safetensors"}}))
    save("hf_index", "partial", as_json({"metadata": None, "weight_map": {"a": first}}))


def gguf_bytes(gguf):
    gguf.lay_out()
    head = gguf.head()
    data = b"".join(t[4] + b"\0" * (-len(t[4]) % 32) for t in gguf.tensors)
    return head + b"\0" * (-len(head) % 32) + data


def block_tensor(name, kind, dims):
    elements, size = BLOCKS[kind]
    count = 1
    for d in dims:
        count *= d
    return [name, dims, kind, 0, pattern(count // elements * size)]


MERGES = ["h e", "l l", "he ll", "hell o", "\u0120 w", "i n"]
TOKENS = (["<s>", "</s>", "<unk>", "<pad>", "<|x|>"] + [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a"] +
          [m.replace(" ", "") for m in MERGES])
TYPES = [3, 3, 2, 3, 4] + [1] * (len(TOKENS) - 5)


def vocabulary_keys():
    return {"tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "smollm"),
            "tokenizer.ggml.tokens": (ARRAY, (STRING, TOKENS)), "tokenizer.ggml.token_type": (ARRAY, (I32, TYPES)),
            "tokenizer.ggml.merges": (ARRAY, (STRING, MERGES)),
            "tokenizer.ggml.bos_token_id": (U32, 0), "tokenizer.ggml.eos_token_id": (U32, 1),
            "tokenizer.ggml.unknown_token_id": (U32, 2), "tokenizer.ggml.padding_token_id": (U32, 3),
            "tokenizer.ggml.add_bos_token": (BOOL, True), "tokenizer.ggml.add_eos_token": (BOOL, False),
            "tokenizer.chat_template": (STRING, "{% for m in messages %}{{ m.content }}{% endfor %}")}


def llama_keys():
    return {"general.architecture": (STRING, "llama"), "llama.block_count": (U32, 2), "llama.context_length": (U32, 128),
            "llama.embedding_length": (U32, 64), "llama.feed_forward_length": (U32, 96), "llama.attention.head_count": (U32, 4),
            "llama.attention.head_count_kv": (ARRAY, (U32, [2, 2])), "llama.rope.dimension_count": (U32, 16),
            "llama.rope.freq_base": (F32_VALUE, 10000.0), "llama.attention.layer_norm_rms_epsilon": (F32_VALUE, 1e-5),
            "llama.rope.scaling.type": (STRING, "yarn"), "llama.rope.scaling.factor": (F32_VALUE, 4.0),
            "llama.rope.scaling.original_context_length": (U32, 32)}


def gguf_seeds():
    numbers = {0: 200, 1: -3, 2: 60000, 3: -9, 4: 1 << 31, 5: -7, 6: 0.5, 7: True, 10: 1 << 63, 11: -(1 << 40), 12: 0.25}
    keys = {f"n.{kind}": (kind, value) for kind, value in numbers.items()}
    keys |= {f"a.{kind}": (ARRAY, (kind, [value, value])) for kind, value in numbers.items()}
    keys |= {"text": (STRING, "x"), "texts": (ARRAY, (STRING, ["", "ab"])), "empty": (ARRAY, (U32, [])),
             "nested": (ARRAY, (ARRAY, [(U32, [1, 2, 3]), (STRING, ["n"])])), "general.alignment": (U32, 32)}
    save("gguf", "values", gguf_bytes(Gguf(keys, [block_tensor("t", 0, [2])])))
    blocks = [block_tensor(f"t.{kind}", kind, [256, 1] if elements > 1 else [3, 2]) for kind, (elements, _) in BLOCKS.items()]
    save("gguf", "blocks", gguf_bytes(Gguf({}, blocks)))
    names = [block_tensor("token_embd.weight", 2, [32, 4]), block_tensor("blk.0.attn_q.weight", 8, [32, 4]),
             block_tensor("blk.0.attn_k.weight", 1, [2, 4]), block_tensor("blk.1.ffn_up_exps.weight", 0, [2, 1, 3]),
             block_tensor("output_norm.weight", 0, [4])]
    gguf = Gguf({"split.no": (2, 0), "split.count": (2, 2), "general.type": (STRING, "model")}, names)
    gguf.version = 2
    save("gguf", "names", gguf_bytes(gguf))

    save("gguf_model", "llama", gguf_bytes(Gguf(llama_keys() | vocabulary_keys(), [block_tensor("token_embd.weight", 0, [2])])))
    save("gguf_model", "config", gguf_bytes(Gguf(llama_keys() | {"llama.vocab_size": (U32, 9)})))
    ids = ("tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id")
    small = {"tokenizer.ggml.tokens": (ARRAY, (STRING, ["a", "b", "ab"])), "tokenizer.ggml.merges": (ARRAY, (STRING, ["a b"])),
             "tokenizer.ggml.token_type": (ARRAY, (I32, [1, 1, 1])), "tokenizer.ggml.scores": (ARRAY, (F32_VALUE, [0, 0, 1.0]))}
    save("gguf_model", "vocabulary", gguf_bytes(Gguf({k: v for k, v in (vocabulary_keys() | small).items() if k not in ids})))

    def part(number, tensors):
        return gguf_bytes(Gguf({"split.no": (2, number), "split.count": (2, 2), "split.tensors.count": (I32, 3)}, tensors))

    first = part(0, [block_tensor("a", 0, [2]), block_tensor("b", 2, [32])])
    save("gguf_set", "two", first + BETWEEN + part(1, [block_tensor("c", 1, [2, 2])]))
    save("gguf_set", "one", gguf_bytes(Gguf({"split.count": (2, 1)}, [block_tensor("c", 1, [2, 2])])))


def config_seeds():
    generation = {"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": -1, "do_sample": True, "temperature": 0.6,
                  "top_k": 20, "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "repetition_penalty": 1.1,
                  "no_repeat_ngram_size": 2, "max_new_tokens": 9, "max_length": 20, "min_new_tokens": 1, "stop_strings": ["x"],
                  "forced_bos_token_id": 1, "forced_eos_token_id": [2], "suppress_tokens": [4], "begin_suppress_tokens": [5],
                  "decoder_start_token_id": 0, "transformers_version": "4.46.1"}
    quantised = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    chat = {"chat_template": [{"name": "default", "template": "{{ messages }}"}], "bos_token": {"content": "<s>"}}
    companions = BETWEEN + as_json(generation).encode() + BETWEEN + as_json(quantised).encode() + BETWEEN + as_json(chat).encode()
    for config in sorted((TESTS / "goldens").glob("*/config.json")):
        value = json.loads(config.read_text())
        save("hf_config", config.parent.name, as_json(value).encode() + (companions if config.parent.name == "llama" else b""))
    llama = json.loads((TESTS / "goldens/llama/config.json").read_text())
    for key in ("rope_theta", "rope_scaling", "torch_dtype"):
        llama.pop(key, None)
    llama |= {"dtype": "bfloat16", "head_dim": 16, "num_key_value_heads": 2}
    flat = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32,
            "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.7, "truncate": False, "attention_factor": None}
    save("hf_config", "flat_rope", as_json(llama | {"rope_parameters": flat}))
    save("hf_config", "typed_rope", as_json(llama | {"rope_parameters": {"full_attention": flat}, "use_cache": True}))
    longrope = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 32}
    save("hf_config", "longrope", as_json(llama | {"rope_scaling": longrope, "rope_theta": 5e5}))
    save("hf_config", "quantised", as_json(llama | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}))
    save("hf_config", "nested", as_json({"architectures": ["X"], "text_config": llama, "quantization_config": None}))


def bpe(**fields):
    vocabulary = {token: i for i, token in enumerate(TOKENS)}
    return {"type": "BPE", "vocab": vocabulary, "merges": MERGES, **fields}


def tokenizer(model, **sections):
    added = {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    wide = {"id": 300, "content": "wide", "single_word": True, "lstrip": True, "rstrip": True, "normalized": True, "special": False}
    return as_json({"version": "1.0", "truncation": None, "padding": {}, "added_tokens": [added, wide], **sections, "model": model})


def tokenizer_seeds():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
    split = {"type": "Split", "pattern": {"Regex": r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"},
             "behavior": "Isolated", "invert": False}
    merges = [m.split(" ") for m in MERGES]
    save("tokenizer_json", "byte_level", tokenizer(bpe(), normalizer=None, pre_tokenizer=byte_level, post_processor=byte_level,
                                                   decoder=byte_level))
    save("tokenizer_json", "split", tokenizer(
        bpe(merges=merges, ignore_merges=True), normalizer={"type": "NFC"}, decoder=byte_level,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [split, byte_level | {"use_regex": False}]},
        post_processor={"type": "Sequence", "processors": [byte_level, template]}))
    fallback = {"<s>": 0, "<unk>": 256, **{f"<0x{i:02X}>": i + 1 for i in range(0, 256, 5)}, "\u2581": 257, "a": 258, "\u2581a": 259}
    save("tokenizer_json", "fallback", tokenizer(
        {"type": "BPE", "vocab": fallback, "merges": ["\u2581 a"], "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        pre_tokenizer=None, post_processor=None,
        decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                  {"type": "ByteFallback"}, {"type": "Fuse"},
                                                  {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}))
    normalizers = [{"type": t} for t in ("NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")]
    normalizers += [{"type": "Strip", "strip_left": True, "strip_right": True},
                    {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}]
    pre_tokenizers = [{"type": t} for t in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")]
    pre_tokenizers += [{"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"},
                       {"type": "CharDelimiterSplit", "delimiter": "-"},
                       {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}]
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False}
    save("tokenizer_json", "components", tokenizer(
        bpe(end_of_word_suffix="</w>", continuing_subword_prefix="##", unk_token="<unk>"),
        normalizer={"type": "Sequence", "normalizers": normalizers},
        pre_tokenizer={"type": "Sequence", "pretokenizers": pre_tokenizers}, post_processor=template, decoder=metaspace))

    lines = [f"{kind}{token}" for kind, token in zip(TYPES, TOKENS)]
    for pre in ("", "default", "gpt-2", "llama-bpe", "qwen2", "deepseek-v3", "smollm", "gpt-4o", "tekken"):
        whole = pre in ("", "smollm")
        tokens = lines if whole else [*lines[:12], "1\u0120", "1!\""]
        few = MERGES if whole else ["! \""]
        text = "\n".join([f"gpt2 {pre}", "0 1 2 3 1 0", *tokens, "", *few])
        save("gguf_vocabulary", pre or "none", text)


def template_seeds():
    for template in sorted((TESTS / "goldens/templates").glob("*.jinja")):
        save("chat_template", template.stem, template.read_bytes())
    request = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "yes"}], "documents": [{"a": 1}],
               "kwargs": {"n": 3}, "continue_final_message": True, "now": "2025-01-31T23:59:59"}
    save("chat_template", "request", "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}{{ strftime_now('%d %b %Y') }}"
         + BETWEEN.decode() + as_json(request))


if __name__ == "__main__":
    for seeds in (json_seeds, options_seeds, plugin_note_seeds, safetensors_seeds, index_seeds, gguf_seeds, config_seeds, tokenizer_seeds,
                  template_seeds):
        seeds()
