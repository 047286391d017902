#!/usr/bin/env python3
"""`count.py KERNEL_WORKLOAD [--update]`: instructions of each workload of the avx2 kernels, counted by valgrind, against counts.json.
A count is the same on every machine and does not waver, as a time would; it says that code changed, not that it got slower.
Standard library only.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

COUNTS = pathlib.Path(__file__).resolve().parent / "counts.json"
TOLERANCE = 0.05  # another patch level of the compiler


def count(binary, name, environment):
    # Valgrind knows no AVX-512; it also hides it from CPUID, so that no library chooses it.
    result = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=Measured", binary,
                             name], env=environment, text=True, capture_output=True)
    collected = re.search(r"Collected : (\d+)", result.stderr)
    if result.returncode != 0 or not collected or int(collected[1]) == 0:
        sys.exit(f"{name}: nothing counted (exit {result.returncode}):\n{result.stderr}")
    return int(collected[1])


def main():
    binary, update = sys.argv[1], "--update" in sys.argv
    environment = {**os.environ, "TENON_TEST_ISA": "avx2"}
    names = subprocess.run([binary], env=environment, text=True, capture_output=True, check=True).stdout.split()
    recorded = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    counts, changed = {}, []
    for name in names:
        counts[name] = count(binary, name, environment)
        was = recorded.get(name)
        change = "new" if was is None else f"{counts[name] / was - 1:+.1%}"
        print(f"{name:20} {counts[name]:12} {change}")
        if was is None or abs(counts[name] / was - 1) > TOLERANCE:
            changed.append(name)
    changed += [name for name in recorded if name not in counts]
    if update:
        COUNTS.write_text(json.dumps(counts, indent=1) + "\n")
    elif changed:
        sys.exit(f"counts differ by more than {TOLERANCE:.0%}: {', '.join(changed)}; fix: the cause, or record them: count.py "
                 f"{binary} --update")


if __name__ == "__main__":
    main()
