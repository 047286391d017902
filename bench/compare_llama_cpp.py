#!/usr/bin/env python3
"""Compare Tenon with llama.cpp (llama-cpp-python, compiled here for this CPU) in interleaved rounds.

    compare_llama_cpp.py --setup                       # once: a virtual environment with llama-cpp-python
    compare_llama_cpp.py --model FILE.gguf [--model-tenon DIR] [--threads 1,2] [--rounds 5] [--what pp,tg,cold]

Every round runs each engine once per test, in alternating order, each in a process of its own, with the same token ids. A test's
figure is the median of its quiet rounds; the ratio is the median of the rounds' own ratios, above 1 where Tenon is faster; "of
bests" compares each engine's fastest run, which a busy machine disturbs least. A round is noisy when other processes took more
than --noise cores meanwhile. Standard library only.
"""
import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "llama-cpp-python==0.3.36"
TEXT = "The lighthouse keeper opened her logbook, dipped the pen in the ink, and wrote that"
CONTEXT = 4096  # of the cold start, in both engines
TESTS = {  # name: prompt or generation, timed tokens, tokens before them
    "pp": ("prompt", 512, 0),
    "tg": ("generation", 128, 0),
    "deep": ("generation", 64, 4096),
}


def cache_folder():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tenon"


def set_up(venv):
    """Compiles llama-cpp-python for this CPU; takes some minutes. With g++, for clang 14 leaves llama.cpp's AMX products out; and
    without its elimination of dead stores, for g++ 12 would drop the tile configuration and the products die of an illegal
    instruction. No cached wheel: it may come from other flags or another CPU."""
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--quiet", "numpy"], check=True)
    flags = {"CC": "gcc", "CXX": "g++", "CXXFLAGS": "-fno-tree-dse -fno-dse", "CMAKE_ARGS": "-DGGML_NATIVE=ON",
             "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    subprocess.run([*pip, "--no-cache-dir", "--no-binary", "llama-cpp-python", PACKAGE], check=True, env={**flags, **os.environ})


class ForeignTime:
    """CPU time of all processes but ours, in cores, over a stretch of time; stolen time counts."""

    def __enter__(self):
        self._busy, self._own, self._begin = self._machine(), self._ours(), time.monotonic()
        self.cores = 0.0
        return self

    def __exit__(self, *_):
        foreign = (self._machine() - self._busy) - (self._ours() - self._own)
        self.cores = max(0.0, foreign / max(1e-3, time.monotonic() - self._begin))

    @staticmethod
    def _machine():
        ticks = [int(n) for n in open("/proc/stat").readline().split()[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _ours():
        spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def run(command, stdin=""):
    done = subprocess.run([str(c) for c in command], input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{pathlib.Path(str(command[0])).name} failed ({done.returncode}): {done.stderr.strip()[-2000:]}")
    return done.stdout


class Tenon:
    def __init__(self, arguments):
        self.binary, self.model = arguments.tenon, arguments.model_tenon or arguments.model
        self.version = run([self.binary, "--version"]).strip()

    def seconds(self, test, threads):
        common = [self.model, "--threads", threads]
        if test == "cold":
            begin = time.monotonic()
            run([self.binary, "run", *common, "-p", TEXT, "-n", 1, "--max-seq-len", CONTEXT])
            return time.monotonic() - begin
        kind, tokens, depth = TESTS[test]
        sizes = ["-p", tokens, "-n", 0] if kind == "prompt" else ["-p", 0, "-n", tokens]
        room = max(CONTEXT, depth + tokens)
        out = run([self.binary, "bench", *common, *sizes, "-d", depth, "-r", 1, "-o", "json", "--max-seq-len", room])
        return json.loads(out)["tests"][0]["seconds"][0]


class LlamaCpp:
    def __init__(self, arguments):
        self.python, self.model, self.version, self.system = arguments.venv / "bin" / "python", arguments.model, "", ""

    def seconds(self, test, threads):
        job = {"model": str(self.model), "threads": threads, "context": CONTEXT, "what": "cold", "text": TEXT}
        if test != "cold":
            job["what"], job["tokens"], job["depth"] = TESTS[test]
            job["context"] = max(CONTEXT, job["depth"] + job["tokens"])
        answer = json.loads(run([self.python, HERE / "llama_cpp_worker.py"], json.dumps(job)))
        self.version, self.system = f"llama-cpp-python {answer['version']}", answer["system"]
        return answer["seconds"]


def one_round(engines, test, threads, tenon_first):
    """{engine: (seconds, foreign cores)}"""
    result = {}
    for name in ("tenon", "llama_cpp") if tenon_first else ("llama_cpp", "tenon"):
        with ForeignTime() as foreign:
            seconds = engines[name].seconds(test, threads)
        result[name] = {"seconds": seconds, "foreign_cores": round(foreign.cores, 3)}
    return result


def title(test):
    if test == "cold":
        return "start -> first token"
    kind, tokens, depth = TESTS[test]
    return f"{'pp' if kind == 'prompt' else 'tg'}{tokens}" + (f" @ {depth}" if depth else "")


def figure(test, seconds):
    """Tokens per second, or the seconds of a cold start."""
    return seconds if test == "cold" else TESTS[test][1] / seconds


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def summary(test, threads, rounds, noise):
    """Of the quiet rounds; of all where none was quiet."""
    quiet = [r for r in rounds if all(e["foreign_cores"] <= noise for e in r.values())]
    used = quiet or rounds
    row = {"test": title(test), "threads": threads, "rounds": len(rounds), "quiet_rounds": len(quiet), "runs": rounds}
    for name in ("tenon", "llama_cpp"):
        row[name] = spread([figure(test, r[name]["seconds"]) for r in used])
        row[name]["foreign_cores"] = spread([r[name]["foreign_cores"] for r in used])["median"]
    row["ratio"] = spread([r["llama_cpp"]["seconds"] / r["tenon"]["seconds"] for r in used])
    row["best_ratio"] = min(r["llama_cpp"]["seconds"] for r in rounds) / min(r["tenon"]["seconds"] for r in rounds)
    return row


def cell(test_spread, digits):
    return "{median:.{d}f} [{least:.{d}f}-{most:.{d}f}]".format(d=digits, **test_spread)


def markdown(report):
    lines = [f"{report['tenon']}, {report['tenon_model']}; {report['llama_cpp']}, {report['llama_cpp_model']}. {report['cpu']}.",
             "", "| test | threads | Tenon | llama.cpp | ratio | of bests | foreign cores | quiet rounds |",
             "|---|---|---|---|---|---|---|---|"]
    for row in report["rows"]:
        digits = 3 if row["test"].startswith("start") else 1
        noisy = "" if row["quiet_rounds"] else " (noisy)"
        lines.append(f"| {row['test']} | {row['threads']} | {cell(row['tenon'], digits)} | {cell(row['llama_cpp'], digits)} | "
                     f"{cell(row['ratio'], 2)}{noisy} | {row['best_ratio']:.2f} | {row['tenon']['foreign_cores']:.2f} / "
                     f"{row['llama_cpp']['foreign_cores']:.2f} | {row['quiet_rounds']} of {row['rounds']} |")
    lines += ["", "Tokens per second; start in seconds: Tenon's whole process, llama.cpp from loading on, Python had started."]
    return "\n".join(lines)


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} CPUs"
    return platform.machine()


def compare(arguments):
    engines = {"tenon": Tenon(arguments), "llama_cpp": LlamaCpp(arguments)}
    rounds = {(test, threads): [] for threads in arguments.threads for test in arguments.what}
    for i in range(arguments.rounds):
        for (test, threads), results in rounds.items():
            results.append(one_round(engines, test, threads, tenon_first=i % 2 == 0))
            print(f"round {i + 1}, {title(test)}, {threads} threads: {json.dumps(results[-1])}", file=sys.stderr)
    return {"schema": 1, "cpu": cpu_name(), "tenon": engines["tenon"].version,
            "tenon_model": pathlib.Path(engines["tenon"].model).name, "llama_cpp": engines["llama_cpp"].version,
            "llama_cpp_model": pathlib.Path(arguments.model).name, "llama_cpp_system": engines["llama_cpp"].system,
            "rows": [summary(test, threads, r, arguments.noise) for (test, threads), r in rounds.items()]}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--setup", action="store_true", help="make the virtual environment with llama-cpp-python, then stop")
    parser.add_argument("--venv", type=pathlib.Path, default=cache_folder() / "compare-venv",
                        help="where it is (default: compare-venv in Tenon's cache folder)")
    parser.add_argument("--tenon", default=HERE.parent / "build" / "release" / "apps" / "tenon" / "tenon",
                        help="the binary (default: the release build's)")
    parser.add_argument("--model", type=pathlib.Path, help="GGUF file for both engines")
    parser.add_argument("--model-tenon", type=pathlib.Path, help="the same weights in another form, for Tenon alone")
    parser.add_argument("--threads", default="1,2", type=lambda text: [int(t) for t in text.split(",")], help="default: 1,2")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--what", default="pp,tg,cold", type=lambda text: text.split(","),
                        help="of pp (a prompt), tg (generation), deep (64 tokens after 4096), cold (start to first token); "
                             "default: pp,tg,cold")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of pp (default: 512)")
    parser.add_argument("--generate", type=int, default=128, help="tokens of tg (default: 128)")
    parser.add_argument("--noise", type=float, default=0.12, help="foreign cores that make a round noisy (default: 0.12)")
    parser.add_argument("--format", choices=("md", "json"), default="md", help="on stdout; every run goes to stderr")
    arguments = parser.parse_args()
    TESTS["pp"], TESTS["tg"] = ("prompt", arguments.prompt, 0), ("generation", arguments.generate, 0)
    unknown = set(arguments.what) - {*TESTS, "cold"}
    if unknown:
        parser.error(f"--what {','.join(sorted(unknown))}: allowed are {', '.join([*TESTS, 'cold'])}")
    if not arguments.setup and not arguments.model:
        parser.error("--model is needed")
    return arguments


def main():
    arguments = parse()
    if arguments.setup:
        set_up(arguments.venv)
        return
    if not (arguments.venv / "bin" / "python").exists():
        raise SystemExit(f"{arguments.venv} is not there; fix: compare_llama_cpp.py --setup")
    report = compare(arguments)
    print(json.dumps(report, indent=1) if arguments.format == "json" else markdown(report))


if __name__ == "__main__":
    main()
