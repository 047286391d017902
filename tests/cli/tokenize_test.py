#!/usr/bin/env python3
"""`tenon tokenize`: every case of the reference's goldens, the one-shot forms, refusals, and no quadratic time."""
import json
import lzma
import shutil
import unittest

from support import GGUF, GOLDENS, SHARED, CliTest, json_lines, skip, tenon, text_model

TINY = GOLDENS / "tokenizers_tiny"
BYTE_LEVEL_TINY = ("gpt2", "llama3")
BYTE_LEVEL_REAL = ("smollm2", "llama3_1", "qwen3", "gptoss", "deepseek_v3")


def unpack(name, directory):
    """A directory with a real tokenizer, which the shared folder keeps compressed."""
    directory.mkdir()
    packed = SHARED / "tokenizers" / name / "tokenizer.json.xz"
    (directory / "tokenizer.json").write_bytes(lzma.decompress(packed.read_bytes()))
    return directory


class Goldens(CliTest):
    def compare(self, model, golden):
        """Every case of a golden file, in one run. Returns how many there were."""
        golden = json.loads(golden.read_text())
        cases, decodes, streams = golden["cases"], golden["decode"], golden["stream"]
        requests = [{"text": c["text"], "add_special_tokens": c["add_special_tokens"],
                     "parse_special": c.get("parse_special", True)}
                    for c in cases]
        outcome = self.check_ok(tenon("tokenize", model, "--jsonl", stdin=json_lines(
            requests + [{"ids": c["ids"]} for c in decodes + streams])))
        replies = outcome.lines()
        self.assertEqual(len(replies), len(cases) + len(decodes) + len(streams))
        for case, reply in zip(cases, replies):
            with self.subTest(tag=case["tag"], text=case["text"][:60], special=case["add_special_tokens"]):
                self.assertEqual(reply["ids"], case["ids"])
                if "pieces" in case:
                    self.assertEqual(reply["pieces"], case["pieces"])
                self.check_decoded(case, reply)
        for case, reply in zip(decodes, replies[len(cases):]):
            with self.subTest(ids=case["ids"]):
                self.check_decoded(case, reply)
        for case, reply in zip(streams, replies[len(cases) + len(decodes):]):
            with self.subTest(stream=case["text"][:60]):
                self.assertIn(case["full"], (reply["decoded"], reply["decoded_skip_special"]))
        return len(replies)

    def check_decoded(self, case, reply):
        self.assertEqual(reply["decoded"], case["decoded"])
        self.assertEqual(reply["decoded_skip_special"], case.get("decoded_skip_special", case["decoded"]))

    def compare_or_refuse(self, model, golden):
        """A kind that is not served yet is refused, with the reason; one that is served is right."""
        if tenon("tokenize", model, "--jsonl").code == 0:
            return self.compare(model, golden)
        self.check_error(tenon("tokenize", model, "--jsonl", stdin=json_lines([{"text": "a"}])), 3, "tokenizer.json")
        return 0

    def test_tiny(self):
        for name in BYTE_LEVEL_TINY:
            self.assertGreater(self.compare(TINY / name, TINY / name / "goldens.json"), 500)

    def test_other_tiny_kinds(self):
        for path in sorted((SHARED / "tokenizers_tiny" if SHARED else TINY).iterdir()):
            if path.name not in BYTE_LEVEL_TINY:
                self.compare_or_refuse(path, path / "goldens.json")

    def test_real(self):
        if SHARED is None:
            skip("the large tokenizers (TENON_SHARED_DIR is not set)")
            return
        for path in sorted((SHARED / "tokenizers").iterdir()):
            golden = SHARED / "goldens_tokenizer" / (path.name + ".json")
            model = unpack(path.name, self.dir / path.name)
            if path.name in BYTE_LEVEL_REAL:
                self.assertGreater(self.compare(model, golden), 500)
            else:
                self.compare_or_refuse(model, golden)

    def test_kinds_without_a_golden_here(self):
        for kind, vocab in (("Unigram", [["<unk>", 0.0], ["a", -1.0]]), ("WordPiece", {"[UNK]": 0, "a": 1}),
                            ("Novel", {"a": 0})):
            with self.subTest(kind=kind):
                (self.dir / "tokenizer.json").write_text(json.dumps(
                    {"model": {"type": kind, "vocab": vocab, "unk_id": 0, "unk_token": "[UNK]"}, "added_tokens": []}))
                outcome = tenon("tokenize", self.dir, "a")
                if kind == "Novel" or outcome.code != 0:
                    self.check_error(outcome, 3, kind)


class Forms(CliTest):
    def test_text_ids_and_json(self):
        model = TINY / "llama3"
        case = next(c for c in json.loads((model / "goldens.json").read_text())["cases"]
                    if len(c["text"]) > 5 and not c["add_special_tokens"] and c["text"].isascii() and "pieces" in c)
        one = json.loads(self.check_ok(tenon("tokenize", model, case["text"], "--json", "--no-special")).out)
        self.assertEqual((one["ids"], one["pieces"], one["decoded"]), (case["ids"], case["pieces"], case["decoded"]))
        rows = self.check_ok(tenon("tokenize", model, case["text"], "--no-special")).out.splitlines()
        self.assertEqual([int(row.split()[0]) for row in rows], case["ids"])
        ids = ",".join(map(str, case["ids"]))
        self.assertEqual(self.check_ok(tenon("tokenize", model, "--ids", ids)).out, case["decoded"] + "\n")

    def test_no_special(self):
        with_begin, without = (json.loads(self.check_ok(tenon("tokenize", TINY / "llama3", "a", "--json", *flags)).out)["ids"]
                               for flags in ([], ["--no-special"]))
        self.assertEqual(with_begin[1:], without)

    def test_a_directory_with_only_the_tokenizer_is_enough(self):
        shutil.copy(TINY / "gpt2" / "tokenizer.json", self.dir)
        self.check_ok(tenon("tokenize", self.dir, "a"))

    def test_bad_lines_answer_and_the_rest_goes_on(self):
        bad = ['{"text": 1}', '{"text"', "[1]", '"x"', "{}", '{"ids": 5}', '{"ids": [-1]}', '{"ids": [99999999999999]}',
               '{"ids": [1.5]}', '{"ids": ["a"]}', '{"text": "a", "add_special_tokens": 1}', '{"text": "\\ud800"}',
               "[" * 100000]
        lines = [line for b in bad for line in (b, '{"text": "a"}')]
        outcome = tenon("tokenize", TINY / "gpt2", "--jsonl", stdin="\n".join(lines) + "\n")
        self.assertEqual(outcome.code, 1, outcome)
        replies = outcome.lines()
        self.assertEqual(len(replies), len(lines))
        for i, reply in enumerate(replies):
            with self.subTest(line=lines[i][:50]):
                self.assertEqual(list(reply), ["error"] if i % 2 == 0 else ["ids", "pieces", "decoded", "decoded_skip_special"])
        self.assertRegex(outcome.err, f"{len(bad)} of {len(lines)} lines failed")

    def test_input_that_is_not_utf8(self):
        outcome = tenon("tokenize", TINY / "gpt2", "--jsonl", stdin=b'{"text": "\xff\xfe"}\n{"text": "a"}\n')
        self.assertEqual([list(r)[0] for r in outcome.lines()], ["error", "ids"], outcome)

    def test_nothing_to_do_and_bad_ids(self):
        self.check_error(tenon("tokenize", TINY / "gpt2"), 2, "--ids", fix=False)
        for ids in ("x", "1,,2", "-1", "1;2", "99999999999999999999", "100000"):
            with self.subTest(ids=ids):
                self.check_error(tenon("tokenize", TINY / "gpt2", "--ids=" + ids), 2, "id")

    def test_vocabulary_of_a_gguf(self):
        # From llama.cpp, as recorded with the golden.
        text, ids = "The engine reads 42 pages", [1, 262, 225, 263, 75, 77, 268, 225, 302, 304, 225, 24, 22, 283, 69, 318]
        reply = json.loads(self.check_ok(tenon("tokenize", GGUF / "llama_f16.gguf", text, "--json")).out)
        self.assertEqual((reply["ids"], reply["decoded_skip_special"]), (ids, text))


class Work(CliTest):
    def test_time_does_not_grow_with_the_square(self):
        """A word of 50,000 letters without any cut: minutes if merging is quadratic, so a processor limit shows it."""
        words = ["a" * 50000, "ab" * 25000, "abcdefghij" * 5000, "\u4e2d\u6587" * 25000, " " * 50000, "\n" * 50000, "1" * 50000,
                 "!" * 50000, "'s" * 25000, "\u0301" * 50000]
        models = [TINY / "gpt2", TINY / "llama3"] + ([unpack("smollm2", self.dir / "smollm2")] if SHARED else [])
        for model in models:
            with self.subTest(model=model.name):
                outcome = tenon("tokenize", model, "--jsonl", stdin=json_lines(
                    [{"text": w, "add_special_tokens": False} for w in words]), cpu_seconds=4)
                replies = self.check_ok(outcome).lines()
                self.assertEqual([r["decoded"] for r in replies], words)

    def test_byte_level_model_of_the_text_tests(self):
        reply = json.loads(self.check_ok(tenon("tokenize", text_model(self.dir), "Hi there\n", "--json")).out)
        self.assertEqual((len(reply["ids"]), reply["decoded"]), (9, "Hi there\n"))


if __name__ == "__main__":
    unittest.main()
