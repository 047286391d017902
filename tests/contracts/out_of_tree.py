"""What a user gets: installs the build into an empty prefix, then configures, builds and runs the examples against it, with
nothing else of this tree in sight: a program of its own, a plugin with a model, a plugin with an attention backend."""
import json
import re
import shutil
import struct
import subprocess

from sym4 import make_pair
from tree import Commands, flags_of


def golden_tensor(path, name):
    """An i32 or f32 tensor of a safetensors file as a list of numbers."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + size])[name]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    return list(struct.unpack(f"<{(end - begin) // 4}{ {'I32': 'i', 'F32': 'f'}[entry['dtype']] }", data[begin:end]))


def missing_headers(include):
    """Installed headers include installed headers only."""
    for path in sorted(include.rglob("*.h")):
        for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
            if not (include / target).exists():
                yield f"{path}: includes {target}, which is not installed"


def wrong_ids(golden, output):
    """Greedy ids against the golden's second prompt, up to where its best two are too close to tell apart."""
    expected = golden_tensor(golden, "p1.greedy")
    margins = golden_tensor(golden, "p1.greedy_margin")
    sure = next((i for i, margin in enumerate(margins) if margin <= 1e-3), len(expected))
    got = [int(word) for word in re.findall(r"\d+", output)]
    if not sure or len(got) < sure or got[:sure] != expected[:sure]:
        yield f"greedy ids {got}, the golden has {expected[:sure]}"


def wrong_logits(golden, got):
    """The logits of all prompts of a golden, to 2e-4."""
    for prompt in range(3):
        expected = golden_tensor(golden, f"p{prompt}.logits")
        values = golden_tensor(got, f"logits.{prompt}")
        wrong = [(a, b) for a, b in zip(values, expected) if not abs(a - b) <= 2e-4 + 2e-4 * abs(b)]  # NaN is wrong too
        if len(values) != len(expected) or wrong:
            yield f"prompt {prompt}: {len(values)} logits, {len(expected)} in the golden; {len(wrong)} differ: {wrong[:3]}"


def step(arguments, problems, stdin=None):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, input=stdin)
    if result.returncode != 0:
        lines = (result.stdout + result.stderr).strip().splitlines()
        problems.append(f"{' '.join(str(a) for a in arguments[:3])} ...: " + "\n  ".join(lines[-15:]))
    return result.stdout


def plugins(prefix, example, work, build_example, problems):
    """The plugins' examples: each is built, and bin/tenon reproduces the model's golden with it."""
    for name in ("model", "backend", "quant"):
        build_example(f"out_of_tree_{name}")
    if problems:
        return
    model = example / "out_of_tree_model" / "golden"
    golden, output = model / "golden.safetensors", work / "logits.safetensors"
    lines = "".join(json.dumps({"ids": golden_tensor(golden, f"p{i}.input_ids")}) + "\n" for i in range(3))
    logits = [prefix / "bin" / "tenon", "logits", model, "--compute", "fp32", "--jsonl", "-o", output]
    aurora = ["--custom-module-dirs", work / "out_of_tree_model" / "aurora.so"]
    loops = ["--custom-module-dirs", work / "out_of_tree_backend", "--attn-backend", "LOOPS"]
    for options in (aurora, [*aurora, *loops, "--prefill-chunk", "7", "--page-tokens", "16"]):
        output.unlink(missing_ok=True)
        step([*logits, *options], problems, lines)
        if not problems:
            problems.extend(wrong_logits(golden, output))
    without = subprocess.run([str(a) for a in logits], capture_output=True, text=True, input=lines)
    if without.returncode != 3 or "'AuroraForCausalLM' is unknown" not in without.stderr:
        problems.append(f"without the plugin: exit {without.returncode}, {without.stderr.strip()}")
    step([work / "embed" / "embed", "--plugin", aurora[1], model, 2, 3, 4], problems)
    if not problems:
        quant_method(prefix, example, work, problems)


def quant_method(prefix, example, work, problems):
    """A model in the plugin's format has the logits of the weights that it stands for; without the plugin it is refused."""
    coded, plain = work / "coded", work / "plain"
    make_pair(example.parent / "tests" / "goldens" / "llama_hd64", coded, plain)
    plugin = ["--custom-module-dirs", work / "out_of_tree_quant" / "sym4.so"]

    def logits(model, options):
        output = work / f"{model.name}.safetensors"
        return output, [prefix / "bin" / "tenon", "logits", model, "--compute", "fp32", "--ids", "1,2,3,40,5", "-o", output, *options]

    (got, with_plugin), (want, without) = logits(coded, plugin), logits(plain, [])
    step(with_plugin, problems)
    step(without, problems)
    if not problems:
        pairs = list(zip(golden_tensor(got, "logits"), golden_tensor(want, "logits")))
        worst = max(abs(a - b) if a == a else float("inf") for a, b in pairs)
        if not pairs or worst > 2e-4:
            problems.append(f"sym4: logits are off by {worst}")
    refused = subprocess.run([str(a) for a in logits(coded, [])[1]], capture_output=True, text=True)
    if refused.returncode != 3 or '"sym4", known are' not in refused.stderr:
        problems.append(f"without the quantisation plugin: exit {refused.returncode}, {refused.stderr.strip()}")
    shown = step([prefix / "bin" / "tenon", "explain", coded, *plugin], problems)
    if "sym4.so" not in shown or "self_attn.k_proj: plain (excluded" not in shown:
        problems.append(f"explain does not say who reads the weights: {shown}")


def out_of_tree(root, build):
    """The examples build against the installed package: embed reproduces a golden's greedy ids, the plugins the logits of a
    model that the package does not know; bin/tenon runs."""
    work = build / "contracts" / "out_of_tree"
    shutil.rmtree(work, ignore_errors=True)
    prefix = work / "prefix"
    problems = []
    compiler = flags_of(Commands(build).entries[0])[0]
    model = root / "tests" / "goldens" / "llama"
    golden = model / "golden.safetensors"

    def build_example(name):
        ccache = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache')}"] if shutil.which("ccache") else []
        step(["cmake", "-G", "Ninja", "-S", root / "examples" / name, "-B", work / name, f"-DCMAKE_PREFIX_PATH={prefix}",
              f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Release", *ccache], problems)
        if not problems:
            step(["cmake", "--build", work / name], problems)

    def run():
        step(["cmake", "--install", build, "--prefix", prefix], problems)
        if problems:
            return
        problems.extend(missing_headers(prefix / "include"))
        if (prefix / "include" / "tenon" / "kernels").exists():
            problems.append("the kernels' private headers are installed")
        step([prefix / "bin" / "tenon", "--version"], problems)
        build_example("embed")
        if not problems:
            steps = len(golden_tensor(golden, "p1.greedy"))
            prompt = [str(i) for i in golden_tensor(golden, "p1.input_ids")]
            output = step([work / "embed" / "embed", model, steps, *prompt], problems)
            problems.extend(wrong_ids(golden, output.strip().splitlines()[-1] if output.strip() else ""))
            plugins(prefix, root / "examples", work, build_example, problems)

    run()
    yield from problems
