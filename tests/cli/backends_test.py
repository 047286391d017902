#!/usr/bin/env python3
"""`tenon backends`: what the attention backends can do, as text, JSON and Markdown, which agree."""
import json
import unittest

from support import CliTest, tenon


class Backends(CliTest):
    def test_the_forms_agree(self):
        report = json.loads(self.check_ok(tenon("backends", "--json")).out)
        self.assertEqual(report["schema"], 1)
        names = [row["name"] for row in report["backends"]]
        self.assertEqual(names, ["NATIVE", "FLASHINFER", "VANILLA"])
        self.assertEqual(report["backends"][0]["aliases"], ["TRTLLM"])
        kernels = report["kernels"]
        for name in names:
            phases = {row["phase"] for row in kernels if row["backend"] == name}
            self.assertEqual(phases, {"prefill", "decode"}, name)
        text = self.check_ok(tenon("backends")).out.splitlines()
        markdown = self.check_ok(tenon("backends", "--markdown")).out.splitlines()
        self.assertEqual(len(markdown), len(kernels) + 2)
        for row, line, cells in zip(kernels, text[1:], markdown[2:]):
            columns = [cell.strip() for cell in cells.strip("|").split(" | ")]
            self.assertEqual(columns, [value for key, value in row.items() if key != "here"])
            self.assertTrue(line.startswith(row["backend"]), line)
            self.assertIn(row["features"], line)

    def test_one_form_at_a_time(self):
        outcome = tenon("backends", "--json", "--markdown")
        self.assertEqual((outcome.code, outcome.out), (2, ""), outcome)
        self.assertRegex(outcome.err, "--json and --markdown.*fix: leave one out")

    def test_what_each_may_and_may_not(self):
        kernels = json.loads(self.check_ok(tenon("backends", "--json")).out)["kernels"]
        features = {row["backend"]: row["features"].split(",") for row in kernels}
        self.assertNotIn("chunk", features["FLASHINFER"])
        self.assertIn("deterministic", features["VANILLA"])
        self.assertNotIn("mixed_kv", features["VANILLA"])


if __name__ == "__main__":
    unittest.main()
