#!/usr/bin/env python3
"""Random damage, the same on every run: whatever the bytes say, a command ends with our exit codes and a readable message."""
import random
import shutil
import unittest

from support import GGUF, GOLDENS, CliTest, tenon, text_model

ROUNDS = 60


def mutate(data, rng, reach):
    """A few flips, a cut, a repeated or an overwritten stretch, within the first `reach` bytes for most of the time."""
    out = bytearray(data)
    reach = min(reach, len(out))
    kind = rng.randrange(5)
    at = rng.randrange(reach)
    if kind == 0:
        for _ in range(rng.randrange(1, 5)):
            out[rng.randrange(reach)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del out[rng.randrange(len(out)):]
    elif kind == 2:
        out[at:at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80", b"\0\0\0\0\1\0\0\0"])
    elif kind == 3:
        out[at:at] = out[at:at + rng.randrange(1, 200)]
    else:
        out[at:at + 1] = rng.choice([b"-", b"[", b"{", b'"', b"9" * 30, b"\xff", b"", b",", b"1e999", b"null", b"\x1b"])
    return bytes(out)


class Mutations(CliTest):
    def trial(self, seed, *arguments):
        with self.subTest(seed=seed, command=arguments[0]):
            self.check_message(tenon(*arguments, cpu_seconds=5, memory=4 << 30))

    def commands(self, model, seed):
        """Two of the commands, in turn, so that all meet every kind of file."""
        every = [("explain", model), ("logits", model, "--ids", "1,2,3", "-o", self.dir / "out.safetensors"),
                 ("run", model, "-p", "hi", "-n", "2"), ("tokenize", model, "Hi there"), ("inspect", model),
                 ("explain", model, "--json")]
        for i in (0, 3):
            self.trial(seed, *every[(seed + i) % len(every)])

    def files(self, source, names, first_seed, reach):
        """Damages one of the files of a model directory at a time."""
        for seed in range(first_seed, first_seed + ROUNDS):
            rng = random.Random(seed)
            name = names[seed % len(names)]
            target = self.dir / "m" / name
            shutil.copy(source / name, target)
            intact = target.read_bytes()
            target.write_bytes(mutate(intact, rng, reach))
            self.commands(self.dir / "m", seed)
            target.write_bytes(intact)

    def test_gguf(self):
        for number, name in enumerate(("llama_q4_k_m.gguf", "qwen3moe_q8_0.gguf")):
            data = (GGUF / name).read_bytes()
            for seed in range(1000 * number, 1000 * number + ROUNDS):
                (self.dir / "m.gguf").write_bytes(mutate(data, random.Random(seed), 12000 if seed % 4 else len(data)))
                self.commands(self.dir / "m.gguf", seed)

    def test_directory(self):
        source = text_model(self.dir / "source")
        shutil.copytree(source, self.dir / "m")
        self.files(source, ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"], 5000, 3000)

    def test_sharded_directory(self):
        source = GOLDENS / "llama_tied_fp32_sharded"
        shutil.copytree(source, self.dir / "m")
        self.files(source, ["model.safetensors.index.json", "model-00001-of-00004.safetensors", "config.json"], 6000, 2000)

    def test_tokenizer(self):
        (self.dir / "m").mkdir()
        source = GOLDENS / "tokenizers_tiny" / "llama3"
        data = (source / "tokenizer.json").read_bytes()
        for seed in range(7000, 7000 + 2 * ROUNDS):
            (self.dir / "m" / "tokenizer.json").write_bytes(mutate(data, random.Random(seed), len(data)))
            self.trial(seed, "tokenize", self.dir / "m", "Hi, it's 12345 \u00e9\U0001f600  <|bos|>")


if __name__ == "__main__":
    unittest.main()
