#!/usr/bin/env python3
"""`tenon render`: every template golden (text, errors, the clock), and the template of a whole model."""
import json
import unittest

from support import GGUF, GOLDENS, CliTest, json_lines, tenon, text_model

TEMPLATES = GOLDENS / "templates"
REQUEST_KEYS = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "kwargs")


class Goldens(CliTest):
    def check_replies(self, cases, replies):
        for case, reply in zip(cases, replies, strict=True):
            with self.subTest(case=case.get("name", case.get("template"))):
                if "error" not in case:
                    self.assertEqual(reply.get("text", reply), case["expected"])
                else:
                    self.assertEqual(list(reply), ["error"])
                    if case["error"]["raised_by_template"]:
                        self.assertIn(case["error"]["message"], reply["error"])

    def test_templates(self):
        checked = 0
        for path in sorted(TEMPLATES.glob("*.jinja")):
            golden = json.loads(path.with_suffix(".json").read_text())
            cases = golden["cases"]
            requests = [{"now": golden["now"], **{k: c[k] for k in REQUEST_KEYS if k in c}} for c in cases]
            outcome = tenon("render", path, "--jsonl", stdin=json_lines(requests))
            failures = sum("error" in c for c in cases)
            with self.subTest(template=path.name):
                self.assertEqual(outcome.code, 1 if failures else 0, outcome)
                self.check_replies(cases, outcome.lines())
                if failures:
                    self.assertIn(f"{failures} of {len(cases)} lines failed", outcome.err)
            checked += len(cases)
        self.assertGreater(checked, 700)

    def test_expressions(self):
        """One run a template, so a sample of those that the layer's own tests run whole."""
        golden = json.loads((TEMPLATES / "expressions.json").read_text())
        cases = golden["cases"][::25]
        replies = []
        for case in cases:
            (self.dir / "t.jinja").write_text(case["template"])
            outcome = tenon("render", self.dir / "t.jinja", "--jsonl", stdin=json_lines(
                [{"messages": [], "add_generation_prompt": False, "kwargs": golden["context"], "now": golden["now"]}]))
            if outcome.out:
                replies += outcome.lines()
            else:  # a template that does not parse is refused before any line
                self.check_error(outcome, 3, r"t\.jinja", fix=False)
                replies.append({"error": outcome.err})
        self.check_replies(cases, replies)


class WholeModels(CliTest):
    MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo\n"},
                {"role": "user", "content": "\u00e9\U0001f600"}]
    TEXT = "<s>[user]Hi</s>[assistant]Yo\n</s>[user]\u00e9\U0001f600</s>"

    def setUp(self):
        super().setUp()
        self.model = text_model(self.dir / "m")
        self.file = self.dir / "messages.json"

    def render(self, content, *flags, stdin=""):
        self.file.write_text(content if isinstance(content, str) else json.dumps(content))
        return tenon("render", self.model, "--messages", self.file, *flags, stdin=stdin)

    def test_messages(self):
        # bos_token and eos_token are the model's own.
        self.assertEqual(self.check_ok(self.render(self.MESSAGES)).out, self.TEXT + "[assistant]")
        self.assertEqual(self.check_ok(self.render(self.MESSAGES, "--no-generation-prompt")).out, self.TEXT)
        whole = {"messages": self.MESSAGES, "add_generation_prompt": False, "kwargs": {"bos_token": "B"}}
        self.assertEqual(self.check_ok(self.render(whole)).out, "B" + self.TEXT[3:])
        outcome = tenon("render", self.model, "--messages", "-", stdin=json.dumps(self.MESSAGES))
        self.assertEqual(self.check_ok(outcome).out, self.TEXT + "[assistant]")

    def test_tools(self):
        (self.model / "chat_template.jinja").write_text("{{ tools[0].function.name }}|{{ tools | length }}")
        (self.dir / "tools.json").write_text(json.dumps([{"type": "function", "function": {"name": "ping"}}]))
        self.assertEqual(self.check_ok(self.render(self.MESSAGES, "--tools", self.dir / "tools.json")).out, "ping|1")

    def test_a_gguf(self):
        self.file.write_text(json.dumps(self.MESSAGES[:1]))
        self.assertEqual(self.check_ok(tenon("render", GGUF / "llama_f16.gguf", "--messages", self.file)).out,
                         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")

    def test_only_the_files_that_are_needed(self):
        for path in self.model.iterdir():
            if path.name not in ("tokenizer_config.json", "tokenizer.json"):
                path.unlink()
        self.assertEqual(self.check_ok(self.render(self.MESSAGES)).out, self.TEXT + "[assistant]")

    def test_bad_use(self):
        self.check_error(tenon("render", self.model), 2, "--messages", fix=False)
        self.check_error(tenon("render", self.model, "--messages", self.dir / "none.json"), (1, 2), r"none\.json", fix=False)
        for content in ("", "{", "5", '"text"', "{}", '[{"role"', '{"messages": 5}', '{"messages": [], "kwargs": 5}',
                        '{"messages": [], "now": "yesterday"}', '{"messages": [], "now": 5}',
                        '{"messages": [], "add_generation_prompt": "yes"}', "[" * 100000):
            with self.subTest(content=content[:50]):
                self.check_error(self.render(content), (1, 2, 3), fix=False)

    def test_bad_templates(self):
        (self.model / "chat_template.jinja").write_text("{% for m in messages %}")
        self.check_error(self.render(self.MESSAGES), 3, r"chat_template|template", fix=False)
        (self.model / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
        outcome = self.render(self.MESSAGES)
        self.check_error(outcome, (1, 2, 3), "roles must alternate", fix=False)
        for hostile in ("{% for i in range(1000000000) %}x{% endfor %}", "{{ 'x' * 10000000000 }}", "{{ range(10**9) | list }}",
                        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ " + "(" * 100000 + " }}", "{{ 10 ** 10 ** 10 }}",
                        "{% set x = 'a' %}{% for i in range(64) %}{% set x = x ~ x %}{{ x }}{% endfor %}"):
            with self.subTest(template=hostile[:50]):
                (self.model / "chat_template.jinja").write_text(hostile)
                self.file.write_text(json.dumps(self.MESSAGES))
                outcome = tenon("render", self.model, "--messages", self.file, cpu_seconds=10, memory=4 << 30)
                self.check_message(outcome)

    def test_no_template(self):
        (self.model / "tokenizer_config.json").write_text("{}")
        self.check_error(self.render(self.MESSAGES), 3, "chat template")


if __name__ == "__main__":
    unittest.main()
