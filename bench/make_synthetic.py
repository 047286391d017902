#!/usr/bin/env python3
"""Write a GGUF with random weights and the shape of Llama-3.2-1B, to measure speed where no such model is at hand.

    make_synthetic.py {bf16|q8_0|q4_0} OUT.gguf

Deterministic. The text that it generates means nothing; its vocabulary knows single bytes only. Standard library only.
"""
import argparse
import random

from gguf_writer import FILE_TYPES, GgufWriter, tensor_bytes
from struct import pack

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, VOCAB = 16, 2048, 8192, 32, 8, 128256
STRETCH = 1 << 18  # elements that are drawn; longer tensors repeat them


def stretch(kind):
    """Bytes of STRETCH random numbers of moderate size."""
    draw = random.Random(1)
    if kind == "bf16":  # +-0.0078 to +-0.031
        data = bytearray(2 * STRETCH)
        data[0::2] = draw.randbytes(STRETCH)
        data[1::2] = draw.randbytes(STRETCH).translate(bytes([0x3C] * 128 + [0xBC] * 128))
        return bytes(data)
    scale, numbers = {"q8_0": (0.0003, 32), "q4_0": (0.004, 16)}[kind]
    return b"".join(pack("<e", scale) + draw.randbytes(numbers) for _ in range(STRETCH // 32))


def repeated(data, size):
    def pieces():
        for at in range(0, size, len(data)):
            yield data[: size - at]
    return pieces


def shapes():
    """Names and dims of the matrices, the row's length first."""
    yield "token_embd.weight", [HIDDEN, VOCAB]
    for layer in range(LAYERS):
        for name, dims in (("attn_q", [HIDDEN, HIDDEN]), ("attn_k", [HIDDEN, HIDDEN // HEADS * KV_HEADS]),
                           ("attn_v", [HIDDEN, HIDDEN // HEADS * KV_HEADS]), ("attn_output", [HIDDEN, HIDDEN]),
                           ("ffn_gate", [HIDDEN, INNER]), ("ffn_up", [HIDDEN, INNER]), ("ffn_down", [INNER, HIDDEN])):
            yield f"blk.{layer}.{name}.weight", dims


def norms():
    yield "output_norm.weight"
    for layer in range(LAYERS):
        yield f"blk.{layer}.attn_norm.weight"
        yield f"blk.{layer}.ffn_norm.weight"


def set_sizes(gguf, kind):
    gguf.set("general.name", "synthetic-1b")
    gguf.set("general.file_type", FILE_TYPES[kind])
    for key, value in (("block_count", LAYERS), ("context_length", 131072), ("embedding_length", HIDDEN),
                       ("feed_forward_length", INNER), ("attention.head_count", HEADS),
                       ("attention.head_count_kv", KV_HEADS), ("attention.layer_norm_rms_epsilon", 1e-5),
                       ("rope.freq_base", 500000.0), ("rope.dimension_count", HIDDEN // HEADS), ("vocab_size", VOCAB)):
        gguf.set_own(key, value)


def byte_alphabet():
    """The character that stands for each byte in byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


def set_vocabulary(gguf):
    tokens = byte_alphabet() + ["ab"] + [f"t{i}" for i in range(257, VOCAB - 2)] + ["<|bos|>", "<|eot|>"]
    gguf.set("tokenizer.ggml.model", "gpt2")
    gguf.set("tokenizer.ggml.pre", "llama-bpe")
    gguf.set("tokenizer.ggml.tokens", tokens)
    gguf.set("tokenizer.ggml.token_type", [1] * (VOCAB - 2) + [3, 3])
    gguf.set("tokenizer.ggml.merges", ["a b"])
    gguf.set("tokenizer.ggml.bos_token_id", VOCAB - 2)
    gguf.set("tokenizer.ggml.eos_token_id", VOCAB - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("type", choices=sorted(FILE_TYPES), help="format of all matrices")
    parser.add_argument("out", help="the file to write")
    arguments = parser.parse_args()
    gguf = GgufWriter("llama")
    set_sizes(gguf, arguments.type)
    set_vocabulary(gguf)
    data = stretch(arguments.type)
    for name, dims in shapes():
        gguf.add(name, dims, arguments.type, repeated(data, tensor_bytes(arguments.type, dims[0] * dims[1])))
    for name in norms():
        gguf.add(name, [HIDDEN], "f32", repeated(pack("<f", 1.0) * HIDDEN, 4 * HIDDEN))
    gguf.write(arguments.out)


if __name__ == "__main__":
    main()
