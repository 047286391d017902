#!/usr/bin/env python3
"""`tenon models`: what is served and what one needs, by architecture, family or model_type; and the answer to a misspelt name
in a config.json."""
import json
import re
import unittest

from support import GOLDENS, TESTS, CliTest, tenon

FIXTURES = TESTS / "fixtures" / "config_only"
KEYS = {"architecture", "model_type", "kind", "family", "status", "served", "since", "gguf"}


def table(outcome):
    """The architectures of the printed table."""
    return [line.split()[0] for line in outcome.out.splitlines()[1:] if not re.match(r"\d+ more ", line)]


def golden_identities():
    """(architecture, model_type) of everything that the goldens show to be served."""
    configs = [json.loads(path.read_text()) for path in GOLDENS.glob("*/config.json")]
    return {(config["architectures"][0], config["model_type"]) for config in configs}


class Models(CliTest):
    def report(self, *arguments, code=0):
        outcome = tenon("models", *arguments, "--json")
        self.assertEqual(outcome.code, code, outcome)
        report = json.loads(outcome.out_bytes, parse_constant=self.fail)
        self.assertEqual(report["schema"], 1)
        for row in report["models"]:
            self.assertLessEqual(KEYS, set(row), row)
            self.assertEqual("why_not" in row, not row["served"], row)
        return report["models"]

    def test_what_is_served(self):
        goldens = {architecture for architecture, _ in golden_identities()}
        self.assertGreater(len(goldens), 4)
        outcome = self.check_ok(tenon("models"))
        self.assertEqual(outcome.err, "")
        self.assertLessEqual(goldens, set(table(outcome)))
        self.assertRegex(outcome.out.splitlines()[-1], r"^\d+ more .*--all$")
        rows = self.report()
        self.assertEqual({row["architecture"] for row in rows if row["served"]}, set(table(outcome)))

    def test_all(self):
        outcome = self.check_ok(tenon("models", "--all"))
        served = set(table(self.check_ok(tenon("models"))))
        self.assertEqual(outcome.err, "")
        self.assertLess(served, set(table(outcome)))
        self.assertEqual(sorted(table(outcome)), sorted(row["architecture"] for row in self.report()))
        self.assertIn("Qwen3ForCausalLM", table(outcome))

    def test_by_name(self):
        for architecture, model_type in golden_identities():
            family = next(row["family"] for row in self.report() if row["architecture"] == architecture)
            for name in (architecture, model_type, family, architecture.upper()):
                with self.subTest(name=name):
                    outcome = self.check_ok(tenon("models", name))
                    self.assertRegex(outcome.out, rf"(?m)^{architecture}: served$")
                    self.assertEqual(outcome.err, "")
                    self.assertIn(architecture, [row["architecture"] for row in self.report(name)])

    def test_unknown(self):
        for name, near in (("LlamaForCasualLM", "LlamaForCausalLM"), ("lama", "llama"), ("mixtrl", "mixtral")):
            with self.subTest(name=name):
                self.check_error(tenon("models", name), 3, name, rf"did you mean .*\b{near}\b")
                self.check_error(tenon("models", name, "--json"), 3, name)
        self.check_error(tenon("models", "zzzzqqq"), 3, "zzzzqqq", "tenon models --all")

    def test_known_and_not_built(self):
        for name in ("Starcoder2ForCausalLM", "starcoder2", "FalconForCausalLM"):
            with self.subTest(name=name):
                outcome = tenon("models", name)
                self.assertEqual(outcome.code, 3, outcome)
                self.assertRegex(outcome.out, r"(?m)^\w+: not served$")
                self.assertRegex(outcome.err, r"known, but not built: .*fix: ")
                for row in self.report(name, code=3):
                    self.assertFalse(row["served"])
                    self.assertIn("not built", row["why_not"])

    def test_misspelt_in_a_config(self):
        for command in ("explain", "run"):
            outcome = tenon(command, FIXTURES / "arch_typo")
            self.check_error(outcome, 3, "'LlamaForCasualLM'", "did you mean LlamaForCausalLM", r"config\.json", "fix: ")
            self.assertNotIn("\n", outcome.err.rstrip("\n"))


if __name__ == "__main__":
    unittest.main()
