"""What the tests of the command line share: where things are, running the binary, what an error must look like, and a small
model directory with a tokenizer. Standard library only; the paths come from the environment (see CMakeLists.txt).
"""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

BINARY = os.environ["TENON_TEST_BINARY"]
TESTS = pathlib.Path(__file__).resolve().parent.parent
GOLDENS = TESTS / "goldens"
GGUF = TESTS / "goldens_gguf"
SHARED = pathlib.Path(os.environ["TENON_TEST_SHARED"]) if os.environ.get("TENON_TEST_SHARED") else None
# Sanitizers reserve terabytes of addresses and are slow: no limits there.
LIMITS = os.environ.get("TENON_TEST_LIMITS", "1") == "1"

# TENON_ variables are options of the binary.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TENON_")}


class Outcome:
    """How a run ended: the exit code (negative: a signal), and both streams as bytes and text."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out_bytes, self.err_bytes = arguments, code, out, err
        self.out, self.err = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def __str__(self):
        return f"tenon {' '.join(self.arguments)}\nexit {self.code}\nstdout: {self.out[:500]}\nstderr: {self.err[:2000]}"

    def lines(self):
        """The JSON lines of stdout."""
        return [json.loads(line) for line in self.out_bytes.decode().split("\n") if line]


def tenon(*arguments, stdin="", cpu_seconds=None, memory=None, env=None, cwd=None):
    """Runs the binary. cpu_seconds and memory (bytes of address space) are limits that the system enforces."""
    def limit():
        if memory and LIMITS:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if cpu_seconds and LIMITS:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    arguments = [str(a) for a in arguments]
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = subprocess.run([BINARY, *arguments], input=data, capture_output=True, timeout=120, preexec_fn=limit,
                          env={**CLEAN, **(env or {})}, cwd=cwd)
    return Outcome(arguments, done.returncode, done.stdout, done.stderr)


def json_lines(requests):
    return "".join(json.dumps(request) + "\n" for request in requests)


# Traces of a library's exception, of a failed check or of the runtime.
INTERNAL = re.compile(r"terminate called|what\(\)|std::|bad_alloc|basic_string|vector::|TN_CHECK|Assertion|core dumped|"
                      r"Sanitizer")
FIX = re.compile(r"fix:|allowed|did you mean|expected|needs|is needed|at most|at least|known|config says|must be|supported:|"
                 r"outside|deeper than|not valid JSON at")


class CliTest(unittest.TestCase):
    """A test with a temporary directory `self.dir`."""

    maxDiff = 2000

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tenon_cli_"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def check_ok(self, outcome):
        self.assertEqual(outcome.code, 0, outcome)
        return outcome

    def check_error(self, outcome, codes, *patterns, fix=True):
        """One clear error on stderr, nothing on stdout, one of the exit codes; each pattern is found in the message. When a
        cause shows in several places, the first few are listed below a line that counts them."""
        codes = codes if isinstance(codes, tuple) else (codes,)
        self.assertIn(outcome.code, codes, outcome)
        self.assertEqual(outcome.out_bytes, b"", outcome)
        self.check_message(outcome)
        message = outcome.err.rstrip("\n")
        self.assertTrue(message, outcome)
        if "\n" in message:
            self.assertRegex(message, r"^[^\n]* \d+ problems[^\n]*:(\n  [^\n]+){2,13}$", outcome)
        self.assertLess(len(message), 4000, outcome)
        self.assertRegex(message, r"^tenon [a-z]+: .", outcome)
        for pattern in patterns:
            self.assertRegex(message, pattern, outcome)
        if fix:
            self.assertRegex(message, FIX, outcome)

    def check_message(self, outcome):
        """No crash, nothing of our insides, no raw bytes of a hostile file on the terminal."""
        self.assertIn(outcome.code, (0, 1, 2, 3, 4), outcome)
        self.assertNotRegex(outcome.err, INTERNAL, outcome)
        self.assertEqual(outcome.err.encode(), outcome.err_bytes)  # UTF-8
        self.assertNotRegex(outcome.err, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", outcome)


def text_model(directory):
    """The llama golden with a tokenizer of single bytes and a chat template: text in, text out, without a large file."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDENS / "llama" / name, directory / name)
    printable = [chr(c) for c in range(0x21, 0x7F)] + ["\u0120", "\u010a"]  # space and newline as byte-level BPE writes them
    vocab = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", *printable])}
    special = [{"id": i, "content": t, "special": True, "normalized": False, "lstrip": False, "rstrip": False,
                "single_word": False}
               for t, i in vocab.items() if i < 3]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
                 "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = ("{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}")
    (directory / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": template}))
    return directory


def skip(what):
    """One line that says what did not run."""
    print(f"not run: {what}", file=sys.stderr)
