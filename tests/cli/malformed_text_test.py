#!/usr/bin/env python3
"""Damaged tokenizers, generation settings and chat templates beside weights that are fine."""
import unittest

from malformed import MalformedTest, Model
from support import tenon


def edit(*path_and_value):
    """Sets (…: removes) a member of tokenizer.json by its path."""
    *path, key, value = path_and_value

    def damage(model):
        def change(content):
            for step in path:
                content = content[step]
            if value is ...:
                del content[key]
            else:
                content[key] = value
        model.edit("tokenizer.json", change)
    return damage


class Tokenizer(MalformedTest):
    COMMANDS = ("tokenize", "run")

    def test_file(self):
        self.refuse_each([
            ("missing", lambda m: (m.path / "tokenizer.json").unlink(), r"tokenizer\.json"),
            ("empty", lambda m: m.write("tokenizer.json", ""), r"tokenizer\.json"),
            ("cut", lambda m: m.cut("tokenizer.json", 700), r"tokenizer\.json"),
            ("a list", lambda m: m.write("tokenizer.json", "[]"), r"tokenizer\.json"),
            ("empty object", lambda m: m.write("tokenizer.json", "{}"), r"tokenizer\.json", "model"),
            ("deep", lambda m: m.write("tokenizer.json", '{"model":' * 100000), r"tokenizer\.json"),
            ("deep and closed", lambda m: m.write("tokenizer.json", "[" * 50000 + "]" * 50000), r"tokenizer\.json"),
            ("a pointer",
             lambda m: m.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"),
             r"tokenizer\.json", "LFS"),
            ("not UTF-8", lambda m: m.write("tokenizer.json", b'{"model": "\xff"}'), r"tokenizer\.json"),
        ], commands=self.COMMANDS, fix=False)

    def test_members(self):
        name = r"tokenizer\.json"
        self.refuse_each([
            ("no model", edit("model", ...), name, "model"), ("model a list", edit("model", []), name, "model"),
            ("type", edit("model", "type", "Novel"), name, "Novel"), ("type a number", edit("model", "type", 3), name, "type"),
            ("no vocabulary", edit("model", "vocab", ...), name, "vocab"),
            ("vocabulary a list", edit("model", "vocab", [1]), name, "vocab"),
            ("id negative", edit("model", "vocab", "H", -1), name, "-1"),
            ("id huge", edit("model", "vocab", "H", 1 << 40), name, "1099511627776"),
            ("id beyond 64 bits", edit("model", "vocab", "H", 1 << 70), name),
            ("id a text", edit("model", "vocab", "H", "7"), name),
            ("id in use", edit("model", "vocab", "H", 5), name, r"\b5\b"),
            ("id sparse", edit("model", "vocab", "H", (1 << 31) - 2), name),
            ("merge of unknown", edit("model", "merges", [["H", "qq"]]), name, "merge"),
            ("merge of one", edit("model", "merges", ["H"]), name, "merge"),
            ("merge of three", edit("model", "merges", [["H", "i", "x"]]), name, "merge"),
            ("merges a number", edit("model", "merges", 5), name, "merges"),
            ("merge of numbers", edit("model", "merges", [[1, 2]]), name, "merge"),
            ("pre-tokenizer", edit("pre_tokenizer", {"type": "Novel"}), name, "Novel"),
            ("pre-tokenizer a text", edit("pre_tokenizer", "x"), name),
            ("regex",
             edit("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}),
             name, r"\(a"),
            ("regex that explodes", edit("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "((a{1000}){1000}){1000}"},
                                                           "behavior": "Isolated", "invert": False}), name),
            ("behaviour",
             edit("pre_tokenizer", {"type": "Split", "pattern": {"String": "a"}, "behavior": "Novel", "invert": False}), name,
             "Novel"),
            ("normaliser", edit("normalizer", {"type": "Novel"}), name, "Novel"),
            ("decoder", edit("decoder", {"type": "Novel"}), name, "Novel"),
            ("post-processor", edit("post_processor", {"type": "Novel"}), name, "Novel"),
            ("template of an unknown token",
             edit("post_processor", {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<z>", "type_id": 0}}],
                                                                     "pair": [], "special_tokens": {}}), name, "<z>"),
            ("added token without text", edit("added_tokens", 0, "content", ...), name, "content"),
            ("added token id", edit("added_tokens", 0, "id", 1 << 40), name),
            ("added tokens a map", edit("added_tokens", {}), name, "added_tokens"),
        ], commands=self.COMMANDS, fix=False)

    def test_too_many_tokens_for_the_model(self):
        def more(model):
            model.edit("tokenizer.json", lambda t: t["model"]["vocab"].update({f"extra{i}": 99 + i for i in range(200)}))
        self.refuse_each([("more", more, "299", "256")], commands=("run",))

    def test_cases_of_no_harm(self):
        """Left-overs of training are ignored."""
        model = Model(self.dir / "m")
        model.edit("tokenizer.json", lambda t: t.update(truncation={"max_length": 2}, padding={"strategy": "BatchLongest"}))
        self.assertEqual(len(self.check_ok(tenon("tokenize", model.path, "Hello")).out.splitlines()), 5)


class Settings(MalformedTest):
    def test_generation_config(self):
        def settings(**values):
            return lambda m: m.write("generation_config.json", values)
        self.refuse_each([
            ("not JSON", lambda m: m.write("generation_config.json", "{"), r"generation_config\.json"),
            ("a list", lambda m: m.write("generation_config.json", "[]"), r"generation_config\.json"),
            ("end token a text", settings(eos_token_id="x"), "eos_token_id"),
            ("end token out of range", settings(eos_token_id=1 << 40), "eos_token_id"),
            ("temperature", settings(temperature="hot"), "temperature"),
            ("nan", settings(temperature=float("nan")), "temperature"),
        ], commands=("run",))

    def test_tokenizer_config(self):
        self.refuse_each([
            ("not JSON", lambda m: m.write("tokenizer_config.json", "{"), r"tokenizer_config\.json"),
            ("template a number", lambda m: m.write("tokenizer_config.json", {"chat_template": 5}), "chat_template"),
            ("template broken", lambda m: m.write("tokenizer_config.json", {"chat_template": "{% if %}"}), "template"),
        ], commands=("run", "render"), fix=False)


if __name__ == "__main__":
    unittest.main()
