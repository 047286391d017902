#!/usr/bin/env python3
"""Contracts that a compiler does not check. `contracts.py NAME ROOT [BUILD]` runs one; `contracts.py self-test` shows that each
fails when its rule is broken (it breaks it in a temporary copy). Standard library only.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

LAYERS = "base numeric tensor kernels ops checkpoint config tokenizer cache attention modules registry zoo plan engine server".split()
PRIVATE = {"kernels": {"kernels", "ops", "attention"}}  # who may see a private layer
CODE = (".cc", ".h", ".inc")


def sources(root, *folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in CODE and path.is_file():
                yield path


def layer_order(root, _):
    """No include of a layer below, none of a private layer, none by relative path."""
    for path in sources(root, "src"):
        own = path.relative_to(root / "src").parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
            if not match:
                continue
            target = match.group(1)
            if target.startswith("."):
                yield f"{path}:{number}: relative include {target}"
            parts = target.split("/")
            if parts[0] != "tenon":
                continue
            other = parts[1]
            if other not in LAYERS or own not in LAYERS:
                yield f"{path}:{number}: {target}: unknown layer"
            elif LAYERS.index(other) > LAYERS.index(own):
                yield f"{path}:{number}: {own} includes {target}, a layer below it"
            elif other in PRIVATE and own not in PRIVATE[other]:
                yield f"{path}:{number}: {own} includes {target}, which is private to {sorted(PRIVATE[other])}"


def file_length(root, _):
    """At most 600 lines."""
    for path in sources(root, "src", "apps", "tests"):
        lines = len(path.read_text().splitlines())
        if lines > 600:
            yield f"{path}: {lines} lines, at most 600"


def architecture_names(root, _):
    """No architecture or model_type of a family outside src/zoo."""
    pattern = re.compile(r'"[A-Z][A-Za-z0-9_]*(ForCausalLM|ForConditionalGeneration|ForMaskedLM|LMHeadModel)"')
    types = set()
    index = root / "src" / "zoo" / "index.inc"
    if index.exists():
        types = {m for m in re.findall(r'"([a-z0-9_]+)"', index.read_text())}
    for path in sources(root, "src", "apps"):
        if (root / "src" / "zoo") in path.parents:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0]
            if pattern.search(code):
                yield f"{path}:{number}: architecture name outside src/zoo: {code.strip()}"
            for literal in re.findall(r'"([a-z0-9_]+)"', code):
                if literal in types and re.search(r"model_type|architecture", code):
                    yield f"{path}:{number}: model_type outside src/zoo: {code.strip()}"


def header_comment(root, _):
    """Every header opens with a comment of at least two lines and has #pragma once."""
    for path in sources(root, "src"):
        if path.suffix != ".h":
            continue
        lines = path.read_text().splitlines()
        count = 0
        while count < len(lines) and lines[count].startswith("//"):
            count += 1
        if count < 2 and (count < 1 or len(lines[0]) < 60):
            yield f"{path}: a header opens with what it is for"
        if count > 12:
            yield f"{path}: the opening comment has {count} lines"
        if "#pragma once" not in lines[: count + 2]:
            yield f"{path}: no #pragma once after the comment"


def ascii_only(root, _):
    """Sources are ASCII, but for typographic marks in text and comments that are listed here."""
    allowed = set("…→×⇔–")
    for path in sources(root, "src", "apps"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            strange = {c for c in line if ord(c) > 127 and c not in allowed}
            if strange:
                yield f"{path}:{number}: non-ASCII {sorted(strange)}"


def readmes(root, _):
    """Every layer has a README of at most 30 lines."""
    for layer in LAYERS:
        folder = root / "src" / layer
        if not any(folder.glob("*.cc")) and not any(folder.glob("*.h")):
            continue
        readme = folder / "README.md"
        if not readme.exists():
            yield f"{readme}: missing"
        elif len(readme.read_text().splitlines()) > 30:
            yield f"{readme}: more than 30 lines"


def library_output(root, build):
    """The libraries never print, exit or abort; base/check does, and base/log goes through the logger."""
    forbidden = {"abort", "exit", "_exit", "printf", "puts", "putchar", "std::cout", "std::cerr", "perror"}
    for archive in sorted((build / "src").rglob("libtenon_*.a")):
        text = subprocess.run(["nm", "-C", "-u", "-A", str(archive)], capture_output=True, text=True).stdout
        for line in text.splitlines():
            where, _, symbol = line.partition(" U ")
            name = symbol.strip().split("(")[0].split("@")[0]
            if name in forbidden and "status.cc" not in where:
                yield f"{where.strip()}: uses {name}"


def include_refusal(root, build):
    """The build itself refuses upward, private and undeclared includes: tried with small layers."""
    cases = {  # (folder, include that must not be found)
        "base": "tenon/numeric/dtype.h",
        "tensor": "tenon/ops/tape.h",
        "modules": "tenon/kernels/table.h",
        "config": "tenon/ops/tape.h",
    }
    commands = (build / "compile_commands.json").read_text()
    import json
    for layer, include in cases.items():
        entry = next((c for c in json.loads(commands) if f"/src/{layer}/" in c["file"]), None)
        if entry is None:
            yield f"no source of layer {layer} in compile_commands.json"
            continue
        roots = [a for a in entry["command"].split() if a.startswith("-I")]
        probe = subprocess.run(["clang++", "-std=c++20", "-fsyntax-only", "-x", "c++", *roots, "-"],
                               input=f'#include "{include}"\n', text=True, capture_output=True)
        if "file not found" not in probe.stderr:
            yield f"layer {layer} can include {include}"


def self_contained(root, build):
    """Every public header compiles alone."""
    import json
    commands = json.loads((build / "compile_commands.json").read_text())
    for path in sources(root, "src"):
        if path.suffix != ".h":
            continue
        layer = path.relative_to(root / "src").parts[0]
        entry = next((c for c in commands if f"/src/{layer}/" in c["file"]), None)
        if entry is None:
            yield f"no source of layer {layer}"
            continue
        flags = [a for a in entry["command"].split() if a.startswith(("-I", "-D", "-isystem"))]
        include = f"tenon/{path.relative_to(root / 'src')}"
        result = subprocess.run(["clang++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", "-x", "c++", *flags, "-"],
                                input=f'#include "{include}"\n', text=True, capture_output=True)
        if result.returncode != 0:
            yield f"{path}: {result.stderr.splitlines()[0] if result.stderr else 'does not compile alone'}"


CHECKS = {f.__name__.replace("_", "-"): f for f in (layer_order, file_length, architecture_names, header_comment, ascii_only,
                                                     readmes, library_output, include_refusal, self_contained)}

# For each source-level rule: a file that breaks it.
BREAKS = {
    "layer-order": ("src/base/broken.h", '#include "tenon/ops/tape.h"\n'),
    "file-length": ("src/base/broken.cc", "//\n" * 601),
    "architecture-names": ("src/plan/broken.cc", 'const char* a = "LlamaForCausalLM";\n'),
    "header-comment": ("src/base/broken.h", "#pragma once\n"),
    "ascii-only": ("src/base/broken.cc", "// caf\u00e9\n"),
    "readmes": ("src/server/broken.h", "// A layer without a README: this is what the rule is for.\n// Second line.\n#pragma once\n"),
}


def self_test():
    failed = 0
    for name, (where, text) in BREAKS.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            path = root / where
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            if not list(CHECKS[name](root, None)):
                print(f"{name} did not notice a broken {where}")
                failed = 1
    # The symbol rule: an archive that prints.
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder)
        (build / "src").mkdir()
        (build / "x.cc").write_text('#include <cstdio>\nvoid f() { std::printf("%d", 1); }\n')
        subprocess.run(["clang++", "-c", "-O0", "x.cc", "-o", "x.o"], cwd=build, check=True)
        subprocess.run(["ar", "rc", "src/libtenon_x.a", "x.o"], cwd=build, check=True)
        if not list(library_output(None, build)):
            print("library-output did not notice printf")
            failed = 1
    return failed


def main():
    name = sys.argv[1]
    if name == "self-test":
        sys.exit(self_test())
    problems = list(CHECKS[name](pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
