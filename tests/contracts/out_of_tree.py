"""What a user gets: installs the build into an empty prefix, then configures, builds and runs examples/embed against it, with
nothing else of this tree in sight."""
import json
import re
import shutil
import struct
import subprocess

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


def step(arguments, problems):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if result.returncode != 0:
        lines = (result.stdout + result.stderr).strip().splitlines()
        problems.append(f"{' '.join(str(a) for a in arguments[:3])} ...: " + "\n  ".join(lines[-15:]))
    return result.stdout


def out_of_tree(root, build):
    """examples/embed builds against the installed package and reproduces a golden's greedy ids; bin/tenon runs."""
    work = build / "contracts" / "out_of_tree"
    shutil.rmtree(work, ignore_errors=True)
    prefix = work / "prefix"
    problems = []
    compiler = flags_of(Commands(build).entries[0])[0]
    model = root / "tests" / "goldens" / "llama"
    golden = model / "golden.safetensors"

    def run():
        step(["cmake", "--install", build, "--prefix", prefix], problems)
        if problems:
            return
        problems.extend(missing_headers(prefix / "include"))
        if (prefix / "include" / "tenon" / "kernels").exists():
            problems.append("the kernels' private headers are installed")
        step([prefix / "bin" / "tenon", "--version"], problems)
        ccache = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache')}"] if shutil.which("ccache") else []
        step(["cmake", "-G", "Ninja", "-S", root / "examples" / "embed", "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
              f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Release", *ccache], problems)
        if not problems:
            step(["cmake", "--build", work / "build"], problems)
        if not problems:
            steps = len(golden_tensor(golden, "p1.greedy"))
            prompt = [str(i) for i in golden_tensor(golden, "p1.input_ids")]
            output = step([work / "build" / "embed", model, steps, *prompt], problems)
            problems.extend(wrong_ids(golden, output.strip().splitlines()[-1] if output.strip() else ""))

    run()
    yield from problems
