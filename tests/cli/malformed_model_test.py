#!/usr/bin/env python3
"""Damaged Hugging Face directories: whichever command meets one says the problem in one line, with the value, the file and
what is allowed, and leaves with the right exit code; within little time and memory.
"""
import shutil
import struct
import unittest

from containers import Tensor
from malformed import MalformedTest, Model
from support import tenon

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 218112\n"


class Weights(MalformedTest):
    ALL = ("explain", "logits", "run", "inspect")

    def test_container(self):
        def entry(name, **changes):
            return lambda m: m.header(lambda h: h[name].update(changes))

        def raw(length, text):
            return lambda m: m.write("model.safetensors", struct.pack("<Q", length) + text)

        self.refuse_each([
            ("no bytes", lambda m: m.cut("model.safetensors", 0), r"model\.safetensors"),
            ("half a length", lambda m: m.cut("model.safetensors", 5), r"model\.safetensors"),
            ("header cut", lambda m: m.cut("model.safetensors", 200), r"model\.safetensors"),
            ("data cut", lambda m: m.cut("model.safetensors", -1), r"model\.safetensors"),
            ("header of 2^60", raw(1 << 60, b"{}"), r"model\.safetensors", r"1152921504606846976"),
            ("header of 2^64-1", raw((1 << 64) - 1, b"{}"), r"model\.safetensors"),
            ("header longer than the file", raw(1000, b"{}"), r"1008"),
            ("header not JSON", raw(4, b"{'a'"), r"model\.safetensors"),
            ("header a list", raw(2, b"[]"), r"model\.safetensors"),
            ("header deep", raw(200000, b"[" * 200000), r"model\.safetensors"),
            ("header of deep objects", raw(600000, b'{"a":' * 120000), r"model\.safetensors"),
            ("header not UTF-8", raw(12, b'{"\xff\xfe": {}}'), r"model\.safetensors"),
            ("offsets past the end", entry(Q_PROJ, data_offsets=[1 << 40, (1 << 40) + 8192]), Q_PROJ),
            ("offsets backwards", entry(Q_PROJ, data_offsets=[8192, 0]), Q_PROJ),
            ("negative offset", entry(Q_PROJ, data_offsets=[-8192, 0]), Q_PROJ),
            ("offset beyond 64 bits", entry(Q_PROJ, data_offsets=[0, 1 << 70]), r"model\.safetensors"),
            ("offsets a number", entry(Q_PROJ, data_offsets=5), Q_PROJ),
            ("bytes and shape differ", entry(Q_PROJ, shape=[64, 65]), Q_PROJ, r"64, 65"),
            ("dimensions overflow", entry(Q_PROJ, shape=[1 << 40, 1 << 40]), Q_PROJ),
            ("dimension negative", entry(Q_PROJ, shape=[-64, -64]), Q_PROJ),
            ("dimension a text", entry(Q_PROJ, shape=["64", 64]), Q_PROJ),
            ("many dimensions", entry(Q_PROJ, shape=[1] * 5000), Q_PROJ),
            ("no type", lambda m: m.header(lambda h: h[Q_PROJ].pop("dtype")), Q_PROJ),
            ("LFS pointer", lambda m: m.write("model.safetensors", LFS), "LFS", r"git lfs pull"),
            ("a web page", lambda m: m.write("model.safetensors", "<!DOCTYPE html><html>"), r"model\.safetensors"),
        ], commands=self.ALL)

    def test_tensors(self):
        def reshape(name, shape):
            def edit(tensors):
                tensors[name].shape = shape
            return lambda m: m.tensors(edit)

        self.refuse_each([
            ("missing", lambda m: m.tensors(lambda t: t.pop(Q_PROJ)), Q_PROJ),
            ("missing norm", lambda m: m.tensors(lambda t: t.pop("model.norm.weight")), r"model\.norm\.weight"),
            ("missing head", lambda m: m.tensors(lambda t: t.pop("lm_head.weight")), r"lm_head", r"tie_word_embeddings"),
            ("shape", reshape(Q_PROJ, [32, 128]), Q_PROJ, r"\[32, 128\]", r"\[64, 64\]"),
            ("shape flat", reshape(Q_PROJ, [4096]), Q_PROJ, r"\[4096\]"),
            ("shape of the embedding", reshape("model.embed_tokens.weight", [128, 128]), r"embed_tokens", r"\[128, 128\]"),
            ("extra",
             lambda m: m.tensors(lambda t: t.update({"model.layers.1.self_attn.z_proj.weight": Tensor("F32", [1], b"\0" * 4)})),
             r"z_proj"),
            ("extra layer", lambda m: m.tensors(lambda t: t.update({"model.layers.2.mlp.up_proj.weight": t[Q_PROJ]})),
             r"model\.layers\.2"),
            ("unknown type", lambda m: m.header(lambda h: h[Q_PROJ].update(dtype="F4X")), Q_PROJ, r"F4X"),
            ("integers", lambda m: m.header(lambda h: h[Q_PROJ].update(dtype="I16")), Q_PROJ, r"i16"),
        ])

    def test_sets_of_files(self):
        def one_part(m):
            (m.path / m.shard()[1]).unlink()

        def no_index(m):
            m.shard()
            (m.path / "model.safetensors.index.json").unlink()

        def index(edit):
            def damage(m):
                m.shard()
                edit(m)
            return damage

        name = "model.safetensors.index.json"
        self.refuse_each([
            ("one part", one_part, r"model-00002-of-00002"),
            ("no parts", index(lambda m: [f.unlink() for f in m.path.glob("model-*")]), r"model-00001-of-00002"),
            ("index not JSON", index(lambda m: m.cut(name, 100)), r"index\.json"),
            ("index without map", index(lambda m: m.write(name, "{}")), r"weight_map"),
            ("index leads out", index(lambda m: m.write(name, {"weight_map": {Q_PROJ: "../../etc/passwd"}})), r"\.\./"),
            ("part is a pointer", index(lambda m: m.write("model-00001-of-00002.safetensors", LFS)), r"LFS"),
            ("pickle only", lambda m: m.weights.rename(m.path / "pytorch_model.bin"), r"pickle", r"safetensors"),
            ("adapter", lambda m: (m.weights.rename(m.path / "adapter_model.safetensors"),
                                   m.write("adapter_config.json", {"base_model_name_or_path": "some/base"})), r"adapter",
             r"some/base"),
        ])
        # A config alone can be explained, not run.
        self.refuse_each([("no weights", lambda m: m.weights.unlink(), r"safetensors")], commands=("logits", "run"))
        # Parts without an index are complete by their names alone, or refused with the index's name.
        shutil.rmtree(self.dir / "m")
        model = Model(self.dir / "m")
        no_index(model)
        outcome = tenon("explain", model.path)
        if outcome.code != 0:
            self.check_error(outcome, 3, r"index\.json")


class Paths(MalformedTest):
    ALL = ("explain", "logits", "run", "tokenize", "inspect", "render")

    def test_paths(self):
        (self.dir / "empty").mkdir()
        (self.dir / "notes.txt").write_text("hello")
        (self.dir / "zero.gguf").write_bytes(b"")
        (self.dir / "other").mkdir()
        (self.dir / "other" / "readme.md").write_text("x")
        self.refuse(self.dir / "nowhere", r"nowhere", codes=2, commands=self.ALL, fix=False)
        self.refuse(self.dir / "nowhere.gguf", r"nowhere\.gguf", codes=2, commands=self.ALL, fix=False)
        self.refuse("", "empty", codes=2, commands=self.ALL)
        for name in ("empty", "notes.txt", "zero.gguf", "other"):
            self.refuse(self.dir / name, name.replace(".", r"\."), codes=3, commands=self.ALL)
        self.refuse("/dev/null", r"/dev/null", codes=2, commands=self.ALL)

    def test_hostile_names(self):
        """Control bytes of a file do not reach the terminal."""
        model = Model(self.dir / "m")
        model.tensors(lambda t: t.update({"\x1b[31mred\x07": Tensor("F32", [1], b"\0" * 4)}))
        self.refuse(model.path, r"red")
        model = Model(self.dir / "n")
        model.config(architectures=["\x1b[31m" + "A" * 5000])
        self.refuse(model.path)


class Config(MalformedTest):
    def damage(self, **changes):
        return lambda m: m.config(**changes)

    def test_files(self):
        self.refuse_each([
            ("missing", lambda m: (m.path / "config.json").unlink(), r"config\.json"),
            ("empty", lambda m: m.write("config.json", ""), r"config\.json"),
            ("cut", lambda m: m.cut("config.json", 100), r"config\.json"),
            ("a list", lambda m: m.write("config.json", "[]"), r"config\.json"),
            ("deep", lambda m: m.write("config.json", '{"a":' * 100000), r"config\.json"),
            ("a pointer", lambda m: m.write("config.json", LFS), r"config\.json", r"LFS"),
            ("not UTF-8", lambda m: m.write("config.json", b'{"architectures": ["\xff"]}'), r"config\.json"),
        ])

    def test_architecture(self):
        self.refuse_each([
            ("near", self.damage(architectures=["LlamaForCasualLM"]), r"LlamaForCasualLM", r"LlamaForCausalLM"),
            ("far", self.damage(architectures=["ZebraForCausalLM"], model_type="zebra"), r"ZebraForCausalLM"),
            ("none", self.damage(architectures=..., model_type=...), r"architectures"),
            ("empty", self.damage(architectures=[], model_type=...), r"architectures"),
            ("a text", self.damage(architectures="LlamaForCausalLM"), r"architectures"),
            ("numbers", self.damage(architectures=[1]), r"architectures"),
        ])

    def test_geometry(self):
        bad = {"hidden_size": [0, -64, 63, "64", 64.5, 1 << 40, 1 << 63, 1 << 70, [], {}, True, "big", float("nan"),
                               float("inf")],
               "num_attention_heads": [0, -4, 5, "4", 1 << 40, float("nan")],
               "num_key_value_heads": [0, 3, -1, 1 << 40],
               "head_dim": [0, -16, 15, 1 << 40],
               "num_hidden_layers": [0, -1, 3, 1 << 20, 1 << 31, 1 << 62, "2"],
               "intermediate_size": [0, -100, 99, 1 << 50],
               "vocab_size": [0, -1, 255, 1 << 40, 1 << 62],
               "max_position_embeddings": [0, -1, "many", 1 << 70],
               "rms_norm_eps": ["small", -1.0, float("nan"), float("inf")],
               "rope_theta": [0, -1.0,  "x", float("nan"), float("inf"), []],
               "rope_scaling": [5, {"type": "novel", "factor": 2}, {"type": "linear"}, {"type": "linear", "factor": 0},
                                {"type": "linear", "factor": "x"}, {"type": "linear", "factor": float("nan")}, {"type": 3}],
               "hidden_act": ["novel", 3], "tie_word_embeddings": ["yes", 2], "attention_bias": ["x"]}
        for key, values in bad.items():
            # The message names the key; or a tensor, when the value is one that a config may have.
            self.refuse_each([(f"{key}={value}", self.damage(**{key: value}), key + "|the config") for value in values],
                             codes=(3, 4), commands=("explain", "logits"))


if __name__ == "__main__":
    unittest.main()
