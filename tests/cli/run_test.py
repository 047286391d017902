#!/usr/bin/env python3
"""`tenon run` as a user drives it: where the prompt comes from, chat, limits, stop texts, sampling, and what is refused."""
import json
import os
import pathlib
import signal
import subprocess
import unittest

from support import BINARY, CLEAN, GGUF, GOLDENS, CliTest, skip, tenon, text_model

CLEAN["TENON_COMPUTE"] = "fp32"  # as the goldens were made

MODEL = GGUF / "llama_f16.gguf"
PROMPT = "The engine reads 42 pages"
# Greedy continuation of PROMPT on which transformers and llama.cpp agree (recorded with the golden; all margins above 0.02).
GREEDY = [39, 39, 221, 182, 62, 119, 205, 205, 45, 11, 305, 129, 173, 181, 71, 310]


class RunTest(CliTest):
    def run_model(self, *arguments, model=MODEL, **options):
        return self.check_ok(tenon("run", model, *arguments, **options))


class Prompts(RunTest):
    def test_greedy_is_the_reference(self):
        text = tenon("tokenize", MODEL, "--ids", ",".join(map(str, GREEDY))).out_bytes
        outcome = self.run_model("--raw", "-p", PROMPT, "-n", str(len(GREEDY)))
        self.assertEqual(outcome.out_bytes, text)
        self.assertRegex(outcome.err, r"prompt 16 tokens, .*answer 16 tokens")

    def test_p_f_and_stdin_are_the_same(self):
        (self.dir / "prompt.txt").write_text(PROMPT)
        first = self.run_model("-p", PROMPT, "-n", "8")
        self.assertTrue(first.out_bytes.endswith(b"\n"))
        for outcome in (self.run_model("-f", self.dir / "prompt.txt", "-n", "8"), self.run_model("-n", "8", stdin=PROMPT),
                        self.run_model("-f", "-", "-n", "8", stdin=PROMPT),
                        self.run_model("--prompt", PROMPT, "--max-new-tokens", "8")):
            self.assertEqual(outcome.out_bytes, first.out_bytes, outcome)

    def test_template_and_raw(self):
        """Without --raw the template is around the prompt: the prompt's length says so."""
        ids = [len(json.loads(tenon("tokenize", MODEL, text, "--json", *flags).out)["ids"]) for text, flags in
               ((PROMPT, []), (f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n", ["--no-special"]))]
        self.assertIn(f"prompt {ids[0]} tokens", self.run_model("--raw", "-p", PROMPT, "-n", "1").err)
        self.assertIn(f"prompt {ids[1]} tokens", self.run_model("-p", PROMPT, "-n", "1").err)

    def test_system(self):
        short = self.run_model("-p", "hi", "-n", "1").err
        long = self.run_model("-p", "hi", "-n", "1", "--system", "Be terse.").err
        count = [int(text.split()[1]) for text in (short, long)]
        self.assertGreater(count[1], count[0] + 5)

    def test_quiet_and_n(self):
        outcome = self.run_model("-p", "a", "-n", "3", "-q")
        self.assertEqual(outcome.err, "")
        self.assertIn("answer 3 tokens", self.run_model("-p", "a", "-n", "3").err)

    def test_directory(self):
        model = text_model(self.dir / "m")
        self.assertIn("answer 4 tokens", self.run_model("-p", "Hi", "-n", "4", model=model).err)

    def test_real_model(self):
        path = os.environ.get("TENON_TEST_MODEL")
        if not path or not pathlib.Path(path).exists():
            skip("a real model (TENON_TEST_MODEL is not set)")
            return
        outcome = self.run_model("-p", "What is the capital of France?", "-n", "12", model=path)
        self.assertIn("Paris", outcome.out, outcome)


class Chat(RunTest):
    def test_one_answer_a_line(self):
        outcome = self.run_model("--chat", "-n", "4", stdin="hello\n\nagain\n")
        timings = [line for line in outcome.err.splitlines() if line.startswith("prompt ")]
        self.assertEqual(len(timings), 2, outcome)
        self.assertNotIn("> ", outcome.err)  # no prompt sign without a terminal
        # The second prompt holds the first exchange.
        first, second = (int(line.split()[1]) for line in timings)
        self.assertGreater(second, first + 4)
        once = self.run_model("-p", "hello", "-n", "4")
        self.assertTrue(outcome.out_bytes.startswith(once.out_bytes))

    def test_no_lines(self):
        self.assertEqual(self.run_model("--chat").out, "")

    def test_needs_a_template(self):
        model = text_model(self.dir / "m")
        (model / "tokenizer_config.json").write_text("{}")
        self.check_error(tenon("run", model, "--chat", stdin="a\n"), 3, "template", "-p")

    def test_interrupt_ends_the_answer(self):
        """Ctrl-C in the middle of an answer: what was said stays, the exit is orderly."""
        process = subprocess.Popen([BINARY, "run", str(MODEL), "-p", "a", "-n", "400", "--temp", "5"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN)
        process.stdout.read(1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertRegex(err.decode(), r"answer \d+ tokens")
        self.assertTrue(out.endswith(b"\n"))


class Sampling(RunTest):
    def sample(self, *arguments):
        return self.run_model("-p", PROMPT, "-n", "24", "-q", *arguments).out_bytes

    def test_seed(self):
        first = self.sample("--temp", "2", "--seed", "7")
        self.assertEqual(first, self.sample("--temp", "2", "--seed", "7"))
        self.assertNotEqual(first, self.sample("--temp", "2", "--seed", "8"))
        self.assertEqual(first, self.sample("--temp", "2", "--seed", "7", "--threads", "1"))

    def test_greedy_ignores_the_seed(self):
        greedy = self.sample()
        self.assertEqual(greedy, self.sample("--seed", "3", "--temp", "0"))
        self.assertEqual(greedy, self.sample("--temp", "3", "--top-k", "1", "--seed", "5"))
        self.assertEqual(greedy, self.sample("--temp", "3", "--top-p", "0.000001", "--seed", "5"))
        self.assertEqual(greedy, self.sample("--temp", "3", "--min-p", "0.9999", "--seed", "5"))
        self.assertNotEqual(greedy, self.sample("--temp", "3", "--seed", "5"))

    def test_stop(self):
        whole = self.run_model("-p", PROMPT, "-n", "40").out_bytes
        at = next(i for i in range(8, len(whole) - 3) if whole[i:i + 2].isascii() and whole[i:i + 2].isalnum())
        stop = whole[at:at + 2]
        end = whole.index(stop)
        outcome = self.run_model("-p", PROMPT, "-n", "40", "--stop", "never there", "--stop", stop.decode())
        self.assertEqual(outcome.out_bytes, whole[:end] + b"\n")
        self.assertRegex(outcome.err, "ended by .*stop")
        parts = "plan .* ms, tokenizer .* ms, weights .* ms, prompt as ids .* ms, first token .* ms"
        self.assertRegex(outcome.err, "start to first token [0-9.]+ s: " + parts)
        # A comma is part of the text.
        self.assertEqual(self.run_model("-p", PROMPT, "-n", "40", "--stop", "never," + stop.decode()).out_bytes, whole)

    def test_bad_values(self):
        for option, values in {"--temp": ["-1", "x", "nan", "inf"], "--top-p": ["-0.1", "1.5", "nan", "x"],
                               "--min-p": ["-1", "2", "nan"],
                               "--top-k": ["-1", "x", "1.5"], "--seed": ["-1", "x"],
                               "-n": ["-3", "x", "1.5", "99999999999999999999"]}.items():
            for value in values:
                with self.subTest(option=option, value=value):
                    outcome = tenon("run", MODEL, "-p", "a", option, value)
                    self.assertEqual((outcome.code, outcome.out), (2, ""), outcome)
                    self.check_message(outcome)
                    self.assertIn(option.strip("-").split("-")[0], outcome.err)


class Refusals(RunTest):
    def test_one_source_of_the_prompt(self):
        (self.dir / "p.txt").write_text("a")
        for sources in (["-p", "a", "--chat"], ["-p", "a", "-f", self.dir / "p.txt"], ["-f", self.dir / "p.txt", "--chat"]):
            self.check_error(tenon("run", MODEL, *sources), 2, "-p", "-f", "--chat", fix=False)
        self.check_error(tenon("run", MODEL, "-f", self.dir / "none.txt"), (1, 2), r"none\.txt", fix=False)

    def test_models_that_generate_no_text(self):
        self.check_error(tenon("run", GOLDENS / "bert", "-p", "a"), 3, "encoder", "tenon logits")
        self.check_error(tenon("run", GOLDENS / "llama", "-p", "a"), 3, r"tokenizer\.json")

    def test_prompt_that_does_not_fit(self):
        self.check_error(tenon("run", MODEL, "-p", "word " * 2000, "-n", "4"), (2, 4), "512")

    def test_empty_prompt(self):
        outcome = tenon("run", MODEL, "--raw", "-p", "", "-n", "2")
        self.check_ok(outcome)  # the begin token is a prompt
        outcome = tenon("run", text_model(self.dir / "m"), "--raw", "-p", "", "-n", "2")
        self.check_error(outcome, (2, 3), fix=False)

    def test_prompt_that_is_not_utf8(self):
        outcome = tenon("run", MODEL, "-n", "1", stdin=b"ab\xff\xfe")
        self.check_message(outcome)


if __name__ == "__main__":
    unittest.main()
