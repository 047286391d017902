#!/usr/bin/env python3
"""Damaged GGUF files: one message with the key, tensor or number that is wrong; little time and memory whatever it claims."""
import struct
import unittest

from containers import ARRAY, STRING, U32, Gguf, gguf_string
from malformed import MalformedTest
from support import GGUF, tenon

LLAMA = GGUF / "llama_f16.gguf"
EVERY = ("explain", "logits", "run", "tokenize", "inspect", "render")


class GgufTest(MalformedTest):
    def refuse_bytes(self, data, *patterns, commands=EVERY, **options):
        path = self.dir / "model.gguf"
        path.write_bytes(data)
        self.refuse(path, *patterns, commands=commands, **options)

    def refuse_each_gguf(self, cases, **options):
        """cases: (name, damage(gguf), pattern…)."""
        for name, damage, *patterns in cases:
            with self.subTest(case=name):
                gguf = Gguf.read(LLAMA)
                damage(gguf)
                self.refuse(gguf.write(self.dir / "model.gguf"), *patterns, **options)

    @staticmethod
    def put(key, kind, value):
        return lambda g: g.keys.update({key: (kind, value)})

    @staticmethod
    def drop(key):
        return lambda g: g.keys.pop(key)


class Container(GgufTest):
    def test_rewriting_changes_nothing(self):
        """The writer of these tests writes what the reader reads: else they would test nothing."""
        Gguf.read(LLAMA).write(self.dir / "model.gguf")
        self.assertEqual((self.dir / "model.gguf").read_bytes(), LLAMA.read_bytes())

    def test_truncated(self):
        data = LLAMA.read_bytes()
        head = len(Gguf.read(LLAMA).head())
        cuts = [0, 1, 3, 4, 7, 8, 15, 16, 23, 24, 25, 31, 32, *range(40, head, 1499), head - 1, head, head + 40, len(data) // 2,
                len(data) - 40, len(data) - 1]
        for cut in cuts:
            with self.subTest(cut=cut):
                self.refuse_bytes(data[:cut], r"model\.gguf", commands=("explain", "tokenize"))
                self.refuse_bytes(data[:cut], r"model\.gguf",
                                  commands=("logits", "run", "inspect") if cut in (23, head + 40) else ())

    def test_head(self):
        data = LLAMA.read_bytes()

        def head(magic=b"GGUF", version=3, tensors=20, keys=24):
            return magic + struct.pack("<IQQ", version, tensors, keys) + data[24:]

        for name, content, *patterns in [
                ("magic", head(b"GGUX"), r"model\.gguf"), ("old magic", head(b"ggml"), r"model\.gguf"),
                ("version 0", head(version=0), "version"),
                ("version 99", head(version=99), "version", "99"), ("big endian", head(version=3 << 24), "endian"),
                ("2^63 tensors", head(tensors=1 << 63), "tensor"),
                ("4 billion tensors", head(tensors=1 << 32), "4294967296|tensor"),
                ("2^60 keys", head(keys=1 << 60), r"model\.gguf"), ("one key more", head(keys=25), r"model\.gguf"),
                ("one key less", head(keys=23), r"model\.gguf"), ("one tensor more", head(tensors=21), r"model\.gguf"),
                ("zeros", b"\0" * 4096, r"model\.gguf"),
                ("LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "LFS"),
                ("a web page", b"<!DOCTYPE html><html>", r"model\.gguf"),
                ("a zip", b"PK\x03\x04" + b"\0" * 100, r"model\.gguf")]:
            with self.subTest(case=name):
                self.refuse_bytes(content, *patterns)

    def test_keys(self):
        put = self.put
        self.refuse_each_gguf([
            ("value string of 2^62", put("x", STRING, struct.pack("<Q", 1 << 62)), r"\bx\b|4611686018427387904"),
            ("array of 2^61 numbers", put("x", ARRAY, struct.pack("<IQ", U32, 1 << 61)), r"\bx\b"),
            ("array of 2^60 strings", put("x", ARRAY, struct.pack("<IQ", STRING, 1 << 60)), r"\bx\b"),
            ("arrays in arrays", put("x", ARRAY, struct.pack("<IQ", ARRAY, 1) * 100000), r"\bx\b"),
            ("unknown type", put("x", 99, b"\0" * 8), r"\bx\b", "99"),
            ("array of unknown type", put("x", ARRAY, struct.pack("<IQ", 77, 1)), r"\bx\b", "77"),
            ("bool of 7", put("x", 7, b"\x07"), r"\bx\b"),
        ], commands=("explain", "inspect", "tokenize"))
        path = self.dir / "model.gguf"
        data = LLAMA.read_bytes()
        path.write_bytes(data[:24] + struct.pack("<Q", 1 << 60) + data[32:])  # the first key's length
        self.refuse(path, "1152921504606846976|key", commands=("explain", "inspect"))

    def test_tensors(self):
        def tensor(**changes):
            def damage(gguf):
                fields = gguf.find("blk.0.attn_q.weight")
                for name, value in changes.items():
                    fields[("name", "dims", "kind", "offset", "data").index(name)] = value
            return damage

        name = r"blk\.0\.attn_q\.weight"
        commands = ("explain", "inspect", "logits")
        self.refuse_each_gguf([
            ("offset past the end", tensor(offset=1 << 40), name), ("offset near 2^64", tensor(offset=(1 << 64) - 32), name),
            ("dims overflow", tensor(dims=[1 << 40, 1 << 40]), name), ("dims of 2^63", tensor(dims=[1 << 63, 2]), name),
            ("dims larger than the file", tensor(dims=[128, 1 << 30]), name), ("no dims of many", tensor(dims=[1] * 64), name),
            ("unknown type", tensor(kind=250), name, "250"), ("removed type", tensor(kind=4), name),
            ("row that is no whole block", tensor(kind=2, dims=[100, 128]), name),
            ("name repeated", tensor(name="blk.0.attn_k.weight"), "attn_k"),
        ], commands=commands)
        data = LLAMA.read_bytes()
        at = data.index(gguf_string("blk.0.attn_q.weight"))
        self.refuse_bytes(data[:at] + struct.pack("<Q", 1 << 60) + data[at + 8:], r"model\.gguf", commands=commands)
        self.refuse_each_gguf([("alignment 0", self.put("general.alignment", U32, 0), "alignment"),
                               ("alignment 3", self.put("general.alignment", U32, 3), "alignment"),
                               ("alignment 2^31", self.put("general.alignment", U32, 1 << 31),
                                "alignment|offset|truncated|data")], commands=commands)

    def test_split_sets(self):
        def part(gguf):
            gguf.keys.update({"split.no": (2, 0), "split.count": (2, 3), "split.tensors.count": (5, 60)})
        gguf = Gguf.read(LLAMA)
        part(gguf)
        self.refuse(gguf.write(self.dir / "model-00001-of-00003.gguf"), "00002-of-00003",
                    commands=("explain", "logits", "run", "inspect"))
        self.refuse(gguf.write(self.dir / "model.gguf"), "split|part|3", commands=("explain", "logits", "run", "inspect"))


class Model(GgufTest):
    MODEL_COMMANDS = ("explain", "logits", "run")

    def test_architecture(self):
        self.refuse_each_gguf([
            ("near", self.put("general.architecture", STRING, "lama"), "lama", "llama"),
            ("far", self.put("general.architecture", STRING, "zebra"), "zebra"),
            ("missing", self.drop("general.architecture"), r"general\.architecture"),
            ("a number", self.put("general.architecture", U32, 5), r"general\.architecture"),
            ("hostile", self.put("general.architecture", STRING, "\x1b[31m" + "a" * 100000), "architecture"),
        ], commands=self.MODEL_COMMANDS)

    def test_geometry(self):
        bad = {"block_count": [0, 3, 1 << 20, (1 << 32) - 1], "embedding_length": [0, 127, 1 << 31],
               "attention.head_count": [0, 3, 1 << 31],
               "attention.head_count_kv": [0, 3, 1 << 31], "feed_forward_length": [0, 1 << 31],
               "rope.dimension_count": [0, 33, 1 << 30],
               "attention.key_length": [0, 31, 1 << 30], "vocab_size": [0, 319], "context_length": [0]}
        for key, values in bad.items():
            self.refuse_each_gguf([(f"{key}={value}", self.put("llama." + key, U32, value)) for value in values], codes=(3, 4),
                                  commands=("explain", "logits"))
        kinds = [("text", STRING, "2"), ("float", 6, 2.5), ("nan", 6, float("nan")), ("list", ARRAY, (U32, [2, 2, 2])),
                 ("negative", 5, -2)]
        for key in ("block_count", "embedding_length", "attention.head_count"):
            self.refuse_each_gguf([(f"{key} {name}", self.put("llama." + key, kind, value), key) for name, kind,
                                   value in kinds],
                                  commands=("explain", "logits"))
            self.refuse_each_gguf([("missing " + key, self.drop("llama." + key), key)], commands=("explain",))
        self.refuse_each_gguf([(f"epsilon {value}", self.put("llama.attention.layer_norm_rms_epsilon", 6, value), "epsilon")
                               for value in (float("nan"), float("inf"), -1.0)], commands=("explain",))
        self.refuse_each_gguf([(f"base {value}", self.put("llama.rope.freq_base", 6, value), "freq_base")
                               for value in (float("nan"), float("inf"), -1.0, 0.0)], commands=("explain",))

    def test_tensors(self):
        def rename(gguf):
            gguf.find("blk.1.attn_v.weight")[0] = "blk.1.attn_w.weight"

        def swap(gguf):
            gguf.find("blk.0.ffn_up.weight")[1].reverse()

        def long_name(gguf):
            gguf.find("blk.0.attn_q.weight")[0] = "n" * 10000

        def norm(gguf):
            gguf.find("output_norm.weight")[1][0] = 64
        self.refuse_each_gguf([("missing", rename, r"layers\.1\.self_attn\.v_proj"),
                               ("long name", long_name, r"layers\.0\.self_attn\.q_proj"),
                               ("shape", swap, r"blk\.0\.ffn_up\.weight", r"128, 192", r"192, 128"),
                               ("short norm", norm, r"output_norm\.weight", r"\[64\]", r"\[128\]")],
                              commands=self.MODEL_COMMANDS)

    def test_tokenizer(self):
        commands = ("tokenize", "run")
        put, drop = self.put, self.drop
        tokens = Gguf.read(LLAMA).keys["tokenizer.ggml.tokens"][1][1]
        merges = Gguf.read(LLAMA).keys["tokenizer.ggml.merges"][1][1]
        self.refuse_each_gguf([
            ("none", lambda g: [g.keys.pop(k) for k in list(g.keys) if k.startswith("tokenizer.ggml.")], "tokenizer"),
            ("no model", drop("tokenizer.ggml.model"), r"tokenizer\.ggml\.model"),
            ("unknown model", put("tokenizer.ggml.model", STRING, "novel"), "novel"),
            ("unknown pre", put("tokenizer.ggml.pre", STRING, "novel"), "novel"),
            ("no tokens", drop("tokenizer.ggml.tokens"), "tokens"),
            ("empty tokens", put("tokenizer.ggml.tokens", ARRAY, (STRING, [])), "tokens"),
            ("tokens as numbers", put("tokenizer.ggml.tokens", ARRAY, (U32, [1] * 320)), "tokens"),
            ("repeated token", put("tokenizer.ggml.tokens", ARRAY, (STRING, tokens[:-1] + tokens[5:6])), "token|merge"),
            ("fewer types", put("tokenizer.ggml.token_type", ARRAY, (5, [1] * 5)), "token_type"),
            ("no merges", drop("tokenizer.ggml.merges"), "merges"),
            ("merge of unknown parts", put("tokenizer.ggml.merges", ARRAY, (STRING, ["zzz qqq"] + merges)), "merge"),
            ("merge without a space", put("tokenizer.ggml.merges", ARRAY, (STRING, ["zzz"])), "merge"),
            ("bos out of range", put("tokenizer.ggml.bos_token_id", U32, 320), "bos"),
            ("eos out of range", put("tokenizer.ggml.eos_token_id", U32, (1 << 32) - 1), "eos"),
        ], commands=commands, fix=False)

    def test_nothing_but_keys(self):
        Gguf({"general.architecture": (STRING, "llama")}).write(self.dir / "model.gguf")
        self.refuse(self.dir / "model.gguf", commands=self.MODEL_COMMANDS)
        self.check_ok(tenon("inspect", LLAMA))


if __name__ == "__main__":
    unittest.main()
