#!/usr/bin/env python3
"""`tenon logits`: every golden model through the batch form, and the names, shapes and types of the other forms."""
import json
import math
import unittest

from containers import read_safetensors
from support import CLEAN, GOLDENS, CliTest, json_lines, tenon, text_model

CLEAN["TENON_COMPUTE"] = "fp32"  # as the goldens were made

MODELS = sorted(p.parent.name for p in GOLDENS.glob("*/golden.safetensors"))


class Golden:
    """A model directory with the reference's answers."""

    def __init__(self, name):
        self.path = GOLDENS / name
        self.meta = json.loads((self.path / "golden.json").read_text())
        self.tensors = read_safetensors(self.path / "golden.safetensors")
        self.count = len(self.meta["prompt_lengths"])
        self.tolerance = self.meta["tolerance"]["fp32"]

    def ids(self, i, name="input_ids"):
        tensor = self.tensors.get(f"p{i}.{name}")
        return None if tensor is None else list(tensor.values())

    def request(self, i):
        decoder = self.ids(i, "decoder_input_ids")
        return {"ids": self.ids(i)} if decoder is None else {"ids": self.ids(i), "decoder_ids": decoder}


class LogitsTest(CliTest):
    def setUp(self):
        super().setUp()
        self.out = self.dir / "out.safetensors"

    def compare(self, golden, got, wanted):
        """The tolerance of the golden, on every element."""
        self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape))
        atol, rtol = golden.tolerance["atol"], golden.tolerance["rtol"]
        values = got.values()
        self.assertTrue(all(map(math.isfinite, values)))
        worst = max(abs(a - b) - rtol * abs(b) for a, b in zip(values, wanted.values()))
        self.assertLessEqual(worst, atol)


class Batch(LogitsTest):
    def test_goldens(self):
        self.assertGreaterEqual(len(MODELS), 19)
        for name in MODELS:
            with self.subTest(model=name):
                golden = Golden(name)
                outcome = self.check_ok(tenon("logits", golden.path, "--jsonl", "-o", self.out, stdin=json_lines(
                    golden.request(i) for i in range(golden.count))))
                tensors = read_safetensors(self.out)
                self.assertEqual(sorted(tensors), sorted(f"logits.{i}" for i in range(golden.count)))
                for i, reply in enumerate(outcome.lines()):
                    wanted = golden.tensors[f"p{i}.logits"]
                    self.assertEqual(reply, {"tensor": f"logits.{i}", "shape": wanted.shape})
                    self.compare(golden, tensors[f"logits.{i}"], wanted)

    def test_settings_do_not_change_the_answer(self):
        golden = Golden("llama_gqa_odd")
        for options in (["--attn-backend", "VANILLA"], ["--prefill-chunk", "7"], ["--threads", "1"], ["--page-tokens", "16"]):
            with self.subTest(options=options):
                self.check_ok(tenon("logits", golden.path, *options, "--jsonl", "-o", self.out,
                                    stdin=json_lines([golden.request(2)])))
                self.compare(golden, read_safetensors(self.out)["logits.0"], golden.tensors["p2.logits"])

    def test_bad_lines_answer_and_the_rest_goes_on(self):
        golden = Golden("llama")
        bad = ["{", "5", "{}", '{"ids": 5}', '{"ids": []}', '{"ids": [-1]}', '{"ids": [256]}', '{"ids": [4294967297]}',
               '{"ids": [1.0]}',
               '{"ids": ["1"]}', '{"ids": [99999999999999999999]}', '{"ids": [1], "decoder_ids": [1]}', '{"ids": null}',
               json.dumps({"ids": [1] * 129})]
        lines = [line for b in bad for line in (b, json.dumps(golden.request(1)))]
        outcome = tenon("logits", golden.path, "--jsonl", "-o", self.out, stdin="\n".join(lines) + "\n\n")
        self.assertEqual(outcome.code, 1, outcome)
        for i, reply in enumerate(outcome.lines()):
            with self.subTest(line=lines[i][:60]):
                self.assertEqual(list(reply), ["error"] if i % 2 == 0 else ["tensor", "shape"])
        tensors = read_safetensors(self.out)
        self.assertEqual(sorted(tensors), sorted(f"logits.{i}" for i in range(1, len(lines), 2)))
        self.compare(golden, tensors[f"logits.{len(lines) - 1}"], golden.tensors["p1.logits"])

    def test_no_lines(self):
        self.check_ok(tenon("logits", GOLDENS / "llama", "--jsonl", "-o", self.out))
        self.assertEqual(read_safetensors(self.out), {})


class One(LogitsTest):
    def one(self, golden, *arguments):
        ids = ",".join(map(str, golden.ids(1)))
        decoder = golden.ids(1, "decoder_input_ids")
        more = [] if decoder is None else ["--decoder-ids", ",".join(map(str, decoder))]
        outcome = self.check_ok(tenon("logits", golden.path, "--ids", ids, *more, "-o", self.out, *arguments))
        self.assertEqual(outcome.out, "")
        return read_safetensors(self.out)

    def test_ids(self):
        golden = Golden("llama")
        tensors = self.one(golden)
        self.assertEqual(sorted(tensors), ["input_ids", "logits"])
        self.assertEqual((tensors["input_ids"].dtype, list(tensors["input_ids"].values())), ("I32", golden.ids(1)))
        self.compare(golden, tensors["logits"], golden.tensors["p1.logits"])

    def test_hidden(self):
        """All that the golden of prompt 1 holds, decoder and encoder."""
        for name in MODELS:
            with self.subTest(model=name):
                golden = Golden(name)
                tensors = self.one(golden, "--hidden")
                wanted = {k[3:]: v for k,
                          v in golden.tensors.items() if k.startswith("p1.") and ("hidden" in k or "embed" in k)}
                self.assertLessEqual({*wanted, "logits", "input_ids"}, set(tensors))
                for key, tensor in wanted.items():
                    self.compare(golden, tensors[key], tensor)

    def test_encoder_decoder(self):
        golden = Golden("t5")
        tensors = self.one(golden)
        self.assertEqual(list(tensors["decoder_input_ids"].values()), golden.ids(1, "decoder_input_ids"))
        self.compare(golden, tensors["logits"], golden.tensors["p1.logits"])
        # Without decoder ids: its start token.
        self.check_ok(tenon("logits", golden.path, "--ids", "5,6", "-o", self.out))
        tensors = read_safetensors(self.out)
        self.assertEqual((list(tensors["decoder_input_ids"].values()), tensors["logits"].shape), ([0], [1, 256]))

    def test_prompt(self):
        model = text_model(self.dir / "m")
        ids = json.loads(tenon("tokenize", model, "Hi you", "--json").out)["ids"]
        self.check_ok(tenon("logits", model, "-p", "Hi you", "-o", self.out))
        by_text = read_safetensors(self.out)
        self.check_ok(tenon("logits", model, "--ids", ",".join(map(str, ids)), "-o", self.out))
        by_ids = read_safetensors(self.out)
        self.assertEqual((by_text["logits"].data, by_text["input_ids"].data), (by_ids["logits"].data, by_ids["input_ids"].data))
        self.assertEqual(list(by_ids["input_ids"].values()), ids)

    def test_bad_use(self):
        model = GOLDENS / "llama"
        for ids in ("256", "-1", "1,x", "1,,2", "9999999999", "99999999999999999999", "1.5"):
            with self.subTest(ids=ids):
                self.check_error(tenon("logits", model, "--ids=" + ids, "-o", self.out), 2, "id")
        self.check_error(tenon("logits", model, "--ids", ",".join(["1"] * 129), "-o", self.out), (2, 4), "128")
        self.check_error(tenon("logits", model, "-o", self.out), 2, "--ids", fix=False)
        self.check_error(tenon("logits", model, "--ids", "1", "--jsonl", "-o", self.out), 2, "--ids", fix=False)
        self.check_error(tenon("logits", model, "--ids", "1", "--decoder-ids", "1", "-o", self.out), 2, "encoder", fix=False)
        self.check_error(tenon("logits", model, "-p", "hi", "-o", self.out), 3, r"tokenizer\.json")
        self.check_error(tenon("logits", model, "-p", "", "-o", self.out), (2, 3), fix=False)
        self.assertFalse(self.out.exists())
        outcome = tenon("logits", model, "--ids", "1", "-o", self.dir / "no" / "out.safetensors")
        self.check_error(outcome, (1, 2), r"no/out\.safetensors", fix=False)


if __name__ == "__main__":
    unittest.main()
