#!/usr/bin/env python3
"""Help, unknown words, JSON alone on stdout, and `tenon inspect`."""
import json
import re
import unittest

from containers import Gguf, read_safetensors
from support import GGUF, GOLDENS, TESTS, CliTest, tenon

COMMANDS = ("run", "explain", "models", "logits", "tokenize", "render", "inspect", "bench", "backends")
# The words of DESIGN that each command's help must have.
OPTIONS = {"run": ["-p", "-f", "--chat", "-n", "--temp", "--top-k", "--top-p", "--min-p", "--seed", "--stop", "--system"],
           "explain": ["--json"], "models": ["--json"], "logits": ["--ids", "-p", "-o", "--hidden", "--jsonl", "--decoder-ids"],
           "tokenize": ["--ids", "--json", "--jsonl"], "render": ["--messages", "--tools", "--jsonl"],
           "inspect": ["-o", "--json"], "bench": ["-p", "-n", "-d", "-b", "-r", "-o", "--profile", "--trace"],
           "backends": ["--json", "--markdown"]}
PLANNING = ["--compute", "--attn-backend", "--kv-dtype", "--max-seq-len", "--page-tokens", "--threads", "--isa", "--memory",
            "--allow-downgrade"]


class Words(CliTest):
    def check_usage(self, outcome, *patterns):
        self.assertEqual((outcome.code, outcome.out), (2, ""), outcome)
        self.check_message(outcome)
        for pattern in patterns:
            self.assertRegex(outcome.err, pattern, outcome)

    def test_help(self):
        text = self.check_ok(tenon("--help"))
        self.assertEqual(text.err, "")
        self.assertRegex(text.out, "Exit codes: 0 .* 1 .* 2 .* 3 .* 4 ")
        self.assertEqual(self.check_ok(tenon("-h")).out, text.out)
        for command in COMMANDS:
            self.assertRegex(text.out, rf"(?m)^  {command} +\S")
            with self.subTest(command=command):
                help_text = self.check_ok(tenon(command, "--help"))
                self.assertEqual(help_text.err, "")
                wanted = OPTIONS[command] + (PLANNING if command in ("run", "explain", "logits", "bench") else [])
                for option in wanted:
                    self.assertRegex(help_text.out, rf"(?m)(^|[ ,]){option}\b", option)
                # Every option says what it does.
                for line in re.findall(r"(?m)^  (-.*)$", help_text.out):
                    self.assertTrue(re.search(r"\S {2,}\S", line) or len(line) > 27, line)

    def test_help_has_the_options_of_the_table(self):
        rows = re.findall(r"(?m)^\| `--.*$", (TESTS.parent / "docs" / "options.md").read_text())
        self.assertGreater(len(rows), 20)
        for command in COMMANDS:
            text = tenon(command, "--help").out
            for row in rows:
                cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
                option, commands = re.match("`(--[a-z-]+)`", cells[1]).group(1), cells[5]
                if commands == "all" or command in commands.split(", "):
                    self.assertRegex(text, rf"(?m)(^  |,){option}\b", command)

    def test_bench(self):
        model = GOLDENS / "llama"
        report = json.loads(self.check_ok(tenon("bench", "-p", "0", "-n", "2", "-r", "1", "-o", "json", model)).out)
        self.assertEqual((report["schema"], [row["test"] for row in report["tests"]]), (1, ["tg2"]))
        self.check_usage(tenon("bench", GOLDENS / "bert"), "kind = encoder", "causal", "fix: ")

    def test_bench_trace(self):
        path = self.dir / "trace.json"
        options = ("-p", "5", "-n", "2", "-r", "1", "--threads", "2", GOLDENS / "llama")
        self.check_ok(tenon("bench", "--trace", path, *options))
        events = json.loads(path.read_text())["traceEvents"]
        # What cannot be written costs no figures.
        outcome = tenon("bench", "--trace", self.dir / "none" / "t.json", *options)
        self.assertEqual(outcome.code, 2, outcome)
        self.assertIn("tg2", outcome.out)
        self.assertRegex(outcome.err, "none/t.json")
        self.assertEqual({event["ph"] for event in events}, {"X"})
        self.assertEqual({event["tid"] for event in events}, {0, 1})
        self.assertLessEqual({"prefill 5", "decode"}, {event["args"]["step"] for event in events})
        # A thread does one thing at a time, in the order of the step.
        for step, thread in {(event["args"]["step"], event["tid"]) for event in events}:
            spans = [e for e in events if (e["args"]["step"], e["tid"]) == (step, thread)]
            for before, after in zip(spans, spans[1:]):
                self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-3)

    def test_version(self):
        self.assertRegex(self.check_ok(tenon("--version")).out, r"^tenon \d+\.\d+\.\d+\n$")

    def test_unknown_words(self):
        self.check_usage(tenon(), "(?i)subcommand|command")
        self.check_usage(tenon("explian"), "explian", "explain")
        self.check_usage(tenon("--novel"), "--novel")
        self.check_usage(tenon("explain"), "MODEL")
        self.check_usage(tenon("explain", "a", "b"), "b")
        self.check_usage(tenon("explain", GOLDENS / "llama", "--thread", "2"), "--thread")
        self.check_usage(tenon("run", GOLDENS / "llama", "--temprature", "2"), "--temprature")
        self.check_usage(tenon("\x1b[31mred"), "red")

    def test_values_of_options(self):
        for option, values in {"threads": ["0", "-1", "x", "1.5", "999999999999"], "page-tokens": ["0", "17", "100", "x"],
                               "max-seq-len": ["0", "-5", "x", "99999999999999999999"], "kv-dtype": ["f64"], "isa": ["sse9"],
                               "compute": ["int4"], "attn-backend": ["NOVEL"], "memory": ["lots", "-1G"]}.items():
            for value in values:
                with self.subTest(option=option, value=value):
                    self.check_error(tenon("explain", GOLDENS / "llama", f"--{option}={value}"), 2, option, value)

    def test_environment(self):
        outcome = tenon("explain", GOLDENS / "llama", env={"TENON_THREADS": "many"})
        self.check_error(outcome, 2, "threads|TENON_THREADS", "many")
        outcome = tenon("explain", GOLDENS / "llama", env={"TENON_THREAD": "2"})
        self.check_error(outcome, 2, "TENON_THREAD", "TENON_THREADS")
        outcome = self.check_ok(tenon("explain", GOLDENS / "llama", env={"TENON_MAX_SEQ_LEN": "64"}))
        self.assertIn("cache, 64 tokens", outcome.out)
        # The command line has the last word.
        outcome = self.check_ok(tenon("explain", GOLDENS / "llama", "--max-seq-len", "32", env={"TENON_MAX_SEQ_LEN": "64"}))
        self.assertIn("cache, 32 tokens", outcome.out)

    def test_config_file(self):
        file = self.dir / "options.yaml"
        file.write_text("max-seq-len: 64\n")
        self.assertIn("cache, 64 tokens", self.check_ok(tenon("explain", GOLDENS / "llama", "--config", file)).out)
        outcome = tenon("explain", GOLDENS / "llama", "--config", file, env={"TENON_MAX_SEQ_LEN": "32"})
        self.assertIn("cache, 32 tokens", self.check_ok(outcome).out)
        for text, pattern in (("max-seq-lem: 64\n", "max-seq-len"), ("max-seq-len: many\n", "many"),
                              ("- 1\n", r"options\.yaml"),
                              ("max-seq-len: [1\n", r"options\.yaml"), ("a: &a [*a]\n", r"options\.yaml"),
                              ("a:\n" + " b:" * 5000, r"options\.yaml")):
            with self.subTest(text=text[:40]):
                file.write_text(text)
                self.check_error(tenon("explain", GOLDENS / "llama", "--config", file), 2, pattern, fix=False)
        self.check_error(tenon("explain", GOLDENS / "llama", "--config", self.dir / "none.yaml"), 2, r"none\.yaml", fix=False)

    def test_memory(self):
        """What does not fit is exit 4, with the parts and what to change; a smaller context fits."""
        outcome = tenon("explain", GOLDENS / "llama", "--memory", "100K")
        self.check_error(outcome, 4, "KiB|MiB")
        tenon("explain", GOLDENS / "llama", "--memory", "8G")


class Json(CliTest):
    def test_explain(self):
        for model in (GOLDENS / "llama", GOLDENS / "t5", GOLDENS / "mamba2", GOLDENS / "deepseek_v2", GGUF / "llama_q4_0.gguf"):
            with self.subTest(model=model.name):
                outcome = self.check_ok(tenon("explain", model, "--json"))
                report = json.loads(outcome.out_bytes, parse_constant=self.fail)
                self.assertEqual((report["schema"], outcome.err), (1, ""))
                self.assertTrue(self.check_ok(tenon("explain", model)).out.strip())

    def test_an_error_leaves_stdout_empty(self):
        self.check_error(tenon("explain", self.dir, "--json"), 3)


class Inspect(CliTest):
    def test_headers(self):
        for path in (GGUF / "llama_q4_k_m.gguf", GOLDENS / "llama", GOLDENS / "llama" / "model.safetensors",
                     GOLDENS / "llama_tied_fp32_sharded"):
            with self.subTest(path=path.name):
                report = json.loads(self.check_ok(tenon("inspect", path, "--json")).out)
                self.assertEqual(report["schema"], 1)
                shapes = {t["name"]: t["shape"] for t in report["tensors"]}
                self.assertEqual(shapes, self.shapes(path))
                text = self.check_ok(tenon("inspect", path)).out
                for name in shapes:
                    self.assertIn(name, text)

    @staticmethod
    def shapes(path):
        """By the readers of these tests. GGUF lists the fastest dimension first."""
        if path.suffix == ".gguf":
            return {t[0]: t[1][::-1] for t in Gguf.read(path).tensors}
        files = [path] if path.is_file() else path.glob("model*.safetensors")
        return {name: tensor.shape for file in files for name, tensor in read_safetensors(file).items()}

    def test_one_tensor(self):
        out = self.dir / "t.safetensors"
        for file in (GOLDENS / "llama" / "model.safetensors",
                     GOLDENS / "llama_tied_fp32_sharded" / "model-00001-of-00004.safetensors",
                     GOLDENS / "llama_gqa_odd" / "model.safetensors"):
            tensors = read_safetensors(file)
            for name in list(tensors)[:4]:
                with self.subTest(file=file.parent.name, tensor=name):
                    self.check_ok(tenon("inspect", file, name, "-o", out))
                    written = read_safetensors(out)
                    self.assertEqual(list(written), [name])
                    self.assertEqual((written[name].dtype, written[name].shape), ("F32", tensors[name].shape))
                    self.assertEqual(written[name].values(), tensors[name].values())

    def test_statistics(self):
        values = read_safetensors(GOLDENS / "llama" / "model.safetensors")["model.norm.weight"].values()
        text = self.check_ok(tenon("inspect", GOLDENS / "llama", "model.norm.weight")).out
        numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)]
        for wanted in (min(values), max(values), sum(values) / len(values)):
            self.assertTrue(any(abs(n - wanted) < 1e-3 * max(1, abs(wanted)) for n in numbers), (wanted, text))

    def test_bad_use(self):
        model = GOLDENS / "llama"
        self.check_error(tenon("inspect", model, "model.norm.wait"), 2, r"model\.norm\.weight")
        self.check_error(tenon("inspect", model, "-o", self.dir / "x"), 2, "TENSOR")


if __name__ == "__main__":
    unittest.main()
