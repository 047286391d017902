#!/usr/bin/env python3
"""Accuracy of Tenon's default arithmetic on SmolLM2-135M-Instruct: KL divergence and perplexity, beside llama.cpp's figures.

    accuracy.py --goldens DIR --model FILE.gguf [--model-hf DIR]

The goldens (goldens_smollm2 of the shared test files) hold whole logits at the prompts' last positions only. So Tenon's own
fp32 run is the reference at every position, after it has been held to the goldens: its last logits must be within 2e-3, its
perplexity of the text is printed beside theirs. KL is KL(reference || default), mean over all positions, in nats. Needs numpy.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
WINDOW = 512
LOGIT_TOLERANCE = 2e-3
EXACT = ["--compute", "fp32", "--kv-dtype", "f32"]
# How sequences are fed: whole (in chunks of 512), or one token a step, as generation does.
FEEDS = {"whole": [], "token by token": ["--prefill-chunk", "1"]}
# llama.cpp with its own defaults on the same prompts and text, recorded with the goldens: mean KL over the prompts' positions,
# whole and token by token (summary.json has them by prompt); KL and perplexities of the text.
LLAMA_CPP = {"gguf_fp32": {"name": "llama.cpp Q4_1", "text_kl": 2.53e-3, "ppl": 15.8139, "ppl_windows": 17.6391},
             "hf_bf16": {"name": "llama.cpp BF16", "kl": 8.2e-5}}


class LogitsFile:
    """A safetensors file of F32 matrices, read on demand."""

    def __init__(self, path):
        with open(path, "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            self._header = json.loads(file.read(size))
        self._data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + size)

    def __getitem__(self, name):
        entry = self._header[name]
        begin, end = entry["data_offsets"]
        return np.frombuffer(self._data[begin:end], np.float32).reshape(entry["shape"])


def logits_of(arguments, model, sequences, options, path):
    """Runs `tenon logits` over the sequences; the logits of each."""
    lines = "".join(json.dumps({"ids": ids}) + "\n" for ids in sequences)
    command = [arguments.tenon, "logits", model, "--jsonl", "-o", path, "--max-seq-len", "4096", *options]
    done = subprocess.run([str(c) for c in command], input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"tenon logits failed ({done.returncode}): {done.stderr.strip()[-2000:]}")
    file = LogitsFile(path)
    names = [json.loads(line)["tensor"] for line in done.stdout.splitlines()]
    return [file[name] for name in names]


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
    return x


def in_slices(rows, step=256):
    for at in range(0, rows, step):
        yield slice(at, at + step)


def divergence(reference, other):
    """KL(reference || other) at each position, and whether the best token is the same."""
    kl, same = [], []
    for part in in_slices(len(reference)):
        p, q = log_softmax(reference[part]), log_softmax(other[part])
        kl.append((np.exp(p) * (p - q)).sum(axis=1))
        same.append(p.argmax(axis=1) == q.argmax(axis=1))
    return np.concatenate(kl), np.concatenate(same)


def likelihoods(logits, ids):
    """Negative log-likelihood of ids[1:]."""
    targets = np.asarray(ids[1:])
    nll = []
    for part in in_slices(len(targets)):
        rows = logits[:-1][part].astype(np.float64)
        best = rows.max(axis=1)
        total = np.exp(rows - best[:, None]).sum(axis=1)
        nll.append(best + np.log(total) - rows[np.arange(len(rows)), targets[part]])
    return np.concatenate(nll)


def perplexity(logits, sequences):
    return float(np.exp(np.concatenate([likelihoods(l, ids) for l, ids in zip(logits, sequences)]).mean()))


class Goldens:
    def __init__(self, folder, reference):
        self._folder, self._reference = folder, reference
        self.prompts = [json.loads(path.read_text()) for path in sorted(folder.glob("p[0-9]*_*.json"))]
        self.text = json.loads((folder / "text.json").read_text())
        self.recorded = json.loads((folder / "summary.json").read_text())["prompts"]
        ids = self.text["input_ids"]
        self.windows = [ids[at: at + WINDOW] for at in range(0, len(ids) - 1, WINDOW)]
        self.windows = self.windows[: self.text["refs"][reference]["windows_512"]["windows"]]

    def sequences(self):
        return [p["input_ids"] for p in self.prompts] + [self.text["input_ids"]] + self.windows

    def check(self, logits):
        """Largest distances of an exact run from the goldens: last logits, perplexities."""
        worst = 0.0
        for prompt, rows in zip(self.prompts, logits):
            name = prompt["refs"][self._reference]["last_logits"]
            golden = np.fromfile(self._folder / name, dtype="<f4")
            worst = max(worst, float(np.abs(rows[-1] - golden).max()))
        if not worst <= LOGIT_TOLERANCE:
            raise SystemExit(f"the fp32 run is {worst:.2g} from the goldens' last logits, at most {LOGIT_TOLERANCE} is allowed")
        return worst

    def llama_cpp_kl(self, key):
        """Recorded mean over the prompts' positions."""
        if self._reference != "gguf_fp32":
            return None
        entries = [self.recorded[p["name"]][key] for p in self.prompts]
        return sum(e["kl_mean"] * e["positions"] for e in entries) / sum(e["positions"] for e in entries)


def figures(goldens, exact, logits):
    """What is told about one run."""
    count = len(goldens.prompts)
    pairs = [divergence(a, b) for a, b in zip(exact[: count + 1], logits)]  # not the windows: the text again
    kl = np.concatenate([k for k, _ in pairs[:count]])
    ids = goldens.sequences()
    return {"kl": float(kl.mean()), "kl_worst_prompt": max(float(k.mean()) for k, _ in pairs[:count]), "kl_max": float(kl.max()),
            "same_top1": float(np.concatenate([s for _, s in pairs[:count]]).mean()), "text_kl": float(pairs[count][0].mean()),
            "text_kl_max": float(pairs[count][0].max()), "text_same_top1": float(pairs[count][1].mean()),
            "kl_by_prompt": {p["name"]: float(k.mean()) for p, (k, _) in zip(goldens.prompts, pairs)},
            "ppl": perplexity(logits[count: count + 1], ids[count: count + 1]),
            "ppl_windows": perplexity(logits[count + 1:], ids[count + 1:])}


def measure(arguments, model, reference):
    goldens = Goldens(arguments.goldens, reference)
    sequences = goldens.sequences()
    count = len(goldens.prompts)
    with tempfile.TemporaryDirectory(prefix="tenon_accuracy_") as folder:
        def path(name):
            return pathlib.Path(folder) / f"{name}.safetensors"
        exact = logits_of(arguments, model, sequences, EXACT, path("exact"))
        report = {"reference": reference, "model": pathlib.Path(model).name, "exact_vs_goldens": goldens.check(exact),
                  "exact": {"ppl": perplexity(exact[count: count + 1], sequences[count: count + 1]),
                            "ppl_windows": perplexity(exact[count + 1:], sequences[count + 1:])},
                  "golden": {key: goldens.text["refs"][reference][part]["ppl"]
                             for key, part in (("ppl", "whole"), ("ppl_windows", "windows_512"))}, "paths": {}}
        for feed in arguments.feeds or FEEDS:
            logits = logits_of(arguments, model, sequences, [*arguments.options, *FEEDS[feed]], path("default"))
            report["paths"][feed] = figures(goldens, exact, logits)
    recorded = dict(LLAMA_CPP[reference])
    for feed, key in (("whole", "llama_cpp_prefill"), ("token by token", "llama_cpp_decode")):
        recorded[f"kl, {feed}"] = goldens.llama_cpp_kl(key) or recorded.get("kl")
    report["llama_cpp"] = recorded
    return report


def row(name, cells):
    """A line of the table: values with their formats, '-' where there is none."""
    texts = ["-" if value is None else format(value, form) for value, form in cells]
    return f"| {name} | {' | '.join(texts)} |"


def markdown(report):
    exact, golden, recorded = report["exact"], report["golden"], report["llama_cpp"]
    lines = [f"{report['model']} against {report['reference']}. In fp32 Tenon's last logits are within "
             f"{report['exact_vs_goldens']:.1e} of the goldens, and the text's perplexity (one window / windows of {WINDOW}) is "
             f"{exact['ppl']:.4f} / {exact['ppl_windows']:.4f}, the goldens' {golden['ppl']:.4f} / {golden['ppl_windows']:.4f}.",
             "", "| path | mean KL, prompts | worst prompt | max position | same top-1 | KL, text | perplexity | windows |",
             "|---|---|---|---|---|---|---|---|"]
    for feed, f in report["paths"].items():
        lines.append(row(f"Tenon, {feed}", [(f["kl"], ".2e"), (f["kl_worst_prompt"], ".2e"), (f["kl_max"], ".2g"),
                                            (f["same_top1"], ".1%"), (f["text_kl"], ".2e"), (f["ppl"], ".4f"),
                                            (f["ppl_windows"], ".4f")]))
        lines.append(row(f"{recorded['name']}, {feed}", [(recorded.get(f"kl, {feed}"), ".2e"), (None, ""), (None, ""), (None, ""),
                                                         (recorded.get("text_kl"), ".2e"), (recorded.get("ppl"), ".4f"),
                                                         (recorded.get("ppl_windows"), ".4f")]))
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--goldens", type=pathlib.Path, required=True, help="folder goldens_smollm2")
    parser.add_argument("--model", type=pathlib.Path, help="the Q4_1 GGUF, held to gguf_fp32")
    parser.add_argument("--model-hf", type=pathlib.Path, help="the bf16 directory, held to hf_bf16")
    parser.add_argument("--tenon", default=HERE.parent / "build" / "release" / "apps" / "tenon" / "tenon",
                        help="the binary (default: the release build's)")
    parser.add_argument("--options", default="", type=str.split,
                        help="more options for the measured runs: '--compute bf16 --isa avx2'")
    parser.add_argument("--feeds", nargs="+", choices=list(FEEDS), help="how sequences are fed (default: both ways)")
    parser.add_argument("--format", choices=("md", "json"), default="md")
    arguments = parser.parse_args()
    if not arguments.model and not arguments.model_hf:
        parser.error("--model or --model-hf is needed")
    return arguments


def main():
    arguments = parse()
    reports = []
    for model, reference in ((arguments.model, "gguf_fp32"), (arguments.model_hf, "hf_bf16")):
        if model:
            reports.append(measure(arguments, model, reference))
            print(f"{reference}: done", file=sys.stderr)
    print(json.dumps(reports, indent=1) if arguments.format == "json" else "\n".join(markdown(r) for r in reports))


if __name__ == "__main__":
    main()
