"""Shows that each contract can fail: every rule is broken in a temporary tree, and must be noticed; where a rule might also be
too strict, a tree that keeps it must pass.
"""
import json
import os
import pathlib
import struct
import subprocess
import tempfile

from out_of_tree import missing_headers, wrong_ids, wrong_logits

# For each source-level rule: files that break it, one at a time.
BREAKS = {
    "layer-order": [("src/base/broken.h", '#include "tenon/ops/tape.h"\n'),
                    ("src/plan/broken.cc", '#include "tenon/kernels/table.h"\n'),
                    ("src/ops/broken.cc", '#include "../base/status.h"\n')],
    "file-length": [("src/base/broken.cc", "//\n" * 601)],
    "architecture-names": [("src/plan/broken.cc", 'const char* a = "LlamaForCausalLM";\n')],
    "header-comment": [("src/base/broken.h", "#pragma once\n")],
    "ascii-only": [("src/base/broken.cc", "// caf\u00e9\n")],
    "readmes": [("src/server/broken.h", "// A layer without a README: this is what the rule is for.\n// Second line.\n")],
    "property-checks": [("tests/base/broken_test.cc", "TEST(A, B) { rc::check([] {}); }\n"),
                        ("tests/base/broken_test.cc", "// EXPECT_TRUE(\nrc::check([] {});\n"),
                        ("tests/base/broken_test.cc", "bool held = rc::check([] {});\n")],
    "no-sessions": [("docs/broken.md", "see /" + "work/main/src\n"), ("scripts/broken", "cd /" + "root/tenon\n"),
                    ("CMakeLists.txt", "set(URL https://pypi" + ".org/simple)\n")],
}
# Files that keep a rule, although they look a little like breaking it.
KEEPS = {
    "property-checks": [("tests/base/fine_test.cc", "EXPECT_TRUE(rc::check([] {}));\nASSERT_TRUE(\n    rc::check([] {}));\n"),
                        ("tests/base/fine_test.cc", "// rc::check( ignores\n")],
    "no-sessions": [("docs/fine.md", "src/work/x.h, ~/root/, pip install gguf\n")],
}


def tree(folder, files):
    root = pathlib.Path(folder)
    for where, text in files.items():
        path = root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def build_of(root, sources):
    """A build folder of the tree: objects of the sources, and compile_commands.json. Include roots as the real build has them,
    but that every layer sees all."""
    build = root / "build"
    (build / "include").mkdir(parents=True)
    (build / "include" / "tenon").symlink_to(root / "src")
    entries = []
    for source in sources:
        output = (build / source).with_suffix(".o")
        output.parent.mkdir(parents=True, exist_ok=True)
        command = ["clang++", "-std=c++20", f"-I{build}/include", "-O1", "-c", str(root / source), "-o", str(output)]
        subprocess.run(command, check=True)
        entries.append({"directory": str(build), "command": " ".join(command), "file": str(root / source)})
    (build / "compile_commands.json").write_text(json.dumps(entries))
    return build


def expect(noticed, what, problems):
    """One problem more unless a check gave some (noticed: what it gave, as a list)."""
    if not noticed:
        problems.append(f"not noticed: {what}")


def library_output(check, problems):
    with tempfile.TemporaryDirectory() as folder:
        root = tree(folder, {"x.cc": '#include <cstdio>\nvoid f() { std::printf("%d", 1); }\n'})
        build = build_of(root, ["x.cc"])
        (build / "src").mkdir()
        subprocess.run(["ar", "rc", "src/libtenon_x.a", "x.o"], cwd=build, check=True)
        expect(list(check(root, build)), "printf in a library", problems)


def zoo_initialisers(check, problems):
    with tempfile.TemporaryDirectory() as folder:
        expect(list(check(None, pathlib.Path(folder))), "a build without a zoo", problems)
        root = tree(folder, {"src/zoo/x.cc": "int F();\nstatic int x = F();\nint G() { return x; }\n"})
        expect(list(check(root, build_of(root, ["src/zoo/x.cc"]))), "a global that is computed at the start", problems)
    with tempfile.TemporaryDirectory() as folder:
        root = tree(folder, {"src/zoo/x.cc": "constexpr const char* kRows[] = {\"a\"};\nconst char* G(int i) { return kRows[i]; }\n"})
        problems.extend(check(root, build_of(root, ["src/zoo/x.cc"])))


def weak_symbols(check, problems):
    kernels = {
        "an inline function": "[[gnu::noinline]] inline int F(int x) { return x * x; }\nint G(int x) { return F(x); }\n",
        "a template": "template <int n> [[gnu::noinline]] int F(int x) { return x * n; }\nint G(int x) { return F<3>(x); }\n",
        "a local static of an inline function":
            "inline int& F() { static int x = 1; return x; }\nint G(int a) { return F() += a; }\n",
        "std::string": "#include <string>\nint G(int x) { return (int)std::to_string(x).size(); }\n",
        "std::sort": "#include <algorithm>\nvoid G(int* x, int n) { std::sort(x, x + n); }\n",
    }
    fine = ("#include <cmath>\n#include <cstddef>\nnamespace {\n"
            "template <typename T> [[gnu::noinline]] float F(const T* x, float y) { return x ? std::exp(y) : y; }\n}\n"
            "float G(const std::byte* x, float y) { return F(x, y); }\n")
    for what, text in kernels.items():
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, {"src/kernels/x.cc": text})
            expect(list(check(root, build_of(root, ["src/kernels/x.cc"]))), f"{what} in a kernel", problems)
    with tempfile.TemporaryDirectory() as folder:
        expect(list(check(None, pathlib.Path(folder))), "a build without kernels", problems)
        root = tree(folder, {"src/kernels/x.cc": fine})
        problems.extend(check(root, build_of(root, ["src/kernels/x.cc"])))


def include_refusal(check, problems):
    layers = ("base", "tensor", "modules", "config")
    files = {f"src/{layer}/x.cc": "" for layer in layers}
    files |= {f"src/{h}": "#pragma once\n" for h in ("numeric/dtype.h", "ops/tape.h", "kernels/table.h")}
    with tempfile.TemporaryDirectory() as folder:
        root = tree(folder, files)
        build = build_of(root, [f"src/{layer}/x.cc" for layer in layers])
        noticed = list(check(root, build))
        if len(noticed) != len(layers):
            problems.append(f"include-refusal noticed {noticed} of four layers that can include everything")


def self_contained(check, problems):
    lacking = "// A header.\n#pragma once\nstd::string Name();\n"
    good = "// A header.\n#pragma once\n#include <string>\nstd::string Name();\n"
    own_first = '#include "tenon/base/x.h"\nstd::string Name() { return {}; }\n'
    cases = {  # what: (headers, source, whether it must be noticed)
        "a header without its own source": ({"y.h": lacking}, "", True),
        "a header that its source includes second": ({"x.h": lacking}, "#include <string>\n" + own_first, True),
        "a header that its source includes after a definition":
            ({"x.h": "#pragma once\nTYPE Name();\n"}, '#define TYPE int\n#include "tenon/base/x.h"\n', True),
        "a header after another one":
            ({"x.h": good.replace("<string>", '<string>\n#include "tenon/base/y.h"'), "y.h": lacking}, own_first, True),
        "a good header without a source": ({"y.h": good}, "", False),
        "a header that a source proves": ({"x.h": good}, own_first, False),
    }
    for what, (headers, source, broken) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, {f"src/base/{name}": text for name, text in headers.items()} | {"src/base/x.cc": source})
            noticed = list(check(root, build_of(root, ["src/base/x.cc"])))
            if bool(noticed) != broken:
                problems.append(f"self-contained: {what}: {noticed or 'not noticed'}")
    with tempfile.TemporaryDirectory() as folder:  # an object proves only what is older than it
        root = tree(folder, {"src/base/x.h": good, "src/base/x.cc": own_first})
        build = build_of(root, ["src/base/x.cc"])
        os.utime(build / "src/base/x.o", (0, 0))
        (root / "src/base/x.h").write_text(lacking)
        expect(list(check(root, build)), "a header edited after the build", problems)


def docs_skeletons(check, problems):
    block = '# Title\n```cpp {}\n#include "tenon/base/x.h"\nint Twice() {{ return 2 * {}; }}\n```\n'
    with tempfile.TemporaryDirectory() as folder:
        root = tree(folder, {"src/base/x.h": "#pragma once\nint Once();\n", "src/base/x.cc": ""})
        build = build_of(root, ["src/base/x.cc"])
        for document in ("CONTRIBUTING.md", "docs/guide.md"):
            for layer, body, broken in (("src/base", "Once()", False), ("src/base", "Renamed()", True), ("src/none", "Once()", True),
                                        ("", "Once()", True)):
                path = tree(root, {document: block.format(layer, body)}) / document
                noticed = list(check(root, build))
                if bool(noticed) != broken:
                    problems.append(f"docs-skeletons: {document}, '{layer}', {body}: {noticed or 'not noticed'}")
                path.unlink()


def out_of_tree(check, problems):
    """Its parts; the whole is what the check itself runs. A build that cannot be installed is noticed first."""
    with tempfile.TemporaryDirectory() as folder:
        root = tree(folder, {"x.cc": ""})
        expect(list(check(root, build_of(root, ["x.cc"]))), "a build that installs nothing", problems)
        tree(root, {"include/tenon/base/x.h": '#include <string>\n#include "tenon/kernels/table.h"\n'})
        expect(list(missing_headers(root / "include")), "an installed header that includes a private one", problems)
        header = {name: {"dtype": kind, "shape": [2], "data_offsets": [8 * i, 8 * i + 8]}
                  for i, (name, kind) in enumerate((("p1.greedy", "I32"), ("p1.greedy_margin", "F32")))}
        text = json.dumps(header).encode()
        golden = root / "golden.safetensors"
        golden.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<iiff", 7, 9, 1.0, 1.0))
        for output in ("", "7", "7 8"):
            expect(list(wrong_ids(golden, output)), f"ids '{output}' instead of '7 9'", problems)
        problems.extend(wrong_ids(golden, "7 9"))
        for values in ((2.0, -3.0), (2.0008, -3.0), (2.0, -3.0, 0.0), (2.0, float("nan"))):
            for path, name in ((golden, "p{}.logits"), (root / "got.safetensors", "logits.{}")):
                floats = [*values] if name.startswith("logits") else [2.0, -3.0]
                size = 4 * len(floats)
                header = {name.format(i): {"dtype": "F32", "shape": [len(floats)], "data_offsets": [size * i, size * (i + 1)]}
                          for i in range(3)}
                text = json.dumps(header).encode()
                path.write_bytes(struct.pack("<Q", len(text)) + text + 3 * struct.pack(f"<{len(floats)}f", *floats))
            noticed = list(wrong_logits(golden, root / "got.safetensors"))
            if bool(noticed) != (values != (2.0, -3.0)):
                problems.append(f"out-of-tree: logits {values}: {noticed or 'not noticed'}")


BUILD_CASES = {f.__name__.replace("_", "-"): f
               for f in (library_output, weak_symbols, zoo_initialisers, include_refusal, self_contained, docs_skeletons, out_of_tree)}


def self_test(checks):
    problems = [f"self-test has no case for {name}" for name in checks if name not in BREAKS and name not in BUILD_CASES]
    for table, broken in ((BREAKS, True), (KEEPS, False)):
        for name, cases in table.items():
            for where, text in cases:
                with tempfile.TemporaryDirectory() as folder:
                    noticed = list(checks[name](tree(folder, {where: text}), None))
                    if bool(noticed) != broken:
                        problems.append(f"{name}: {where}: {noticed or 'not noticed'}")
    for name, case in BUILD_CASES.items():
        case(checks[name], problems)
    return problems
