"""What the contracts share: the list of layers, walks over the tree, and single compilations with a layer's own flags."""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

LAYERS = ("base numeric tensor kernels ops checkpoint config tokenizer cache attention modules registry zoo plan engine "
          "server").split()
PRIVATE = {"kernels": {"kernels", "ops", "attention"}}  # who may see a private layer
CODE = (".cc", ".h", ".inc")


def sources(root, *folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in CODE and path.is_file():
                yield path


def without_comments(text):
    """C++ text with its comments blanked: lines and columns stay. String literals are kept."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return token.sub(lambda m: m[0] if m[0][0] in "\"'" else re.sub(r"[^\n]", " ", m[0]), text)


class Commands:
    """compile_commands.json: what the build compiles and how."""

    def __init__(self, build):
        self.build = build
        self.entries = json.loads((build / "compile_commands.json").read_text())

    def of_folder(self, folder):
        """Some entry of a folder such as "src/ops"; None: nothing there is compiled."""
        return next((e for e in self.entries if f"/{folder}/" in e["file"] and e["file"].endswith(".cc")), None)

    def of_file(self, path):
        return next((e for e in self.entries if pathlib.Path(e["file"]) == path), None)


def object_of(entry):
    arguments = shlex.split(entry["command"])
    return pathlib.Path(entry["directory"]) / arguments[arguments.index("-o") + 1]


def flags_of(entry):
    """The compiler, then its include roots and definitions: not warnings, not a precompiled header."""
    arguments = shlex.split(entry["command"])
    flags = [arguments[0], "-std=c++20"]
    for i, argument in enumerate(arguments):
        if argument in ("-I", "-D", "-isystem"):
            flags += [argument, arguments[i + 1]]
        elif argument.startswith(("-I", "-D", "-isystem")):
            flags.append(argument)
    return flags


def compile_text(entry, text, name, build):
    """Compiles a text as one translation unit with the entry's flags. Returns the first error, or None. Through ccache, so
    that an unchanged text costs nothing; the unit lies at a fixed place in the build folder for that reason."""
    unit = build / "contracts" / f"{name}.cc"
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(text)
    launcher = [shutil.which("ccache")] if shutil.which("ccache") else []
    result = subprocess.run([*launcher, *flags_of(entry), "-O0", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-c",
                             str(unit), "-o", str(unit.with_suffix(".o"))], text=True, capture_output=True)
    if result.returncode == 0:
        return None
    lines = result.stderr.splitlines()
    return next((line for line in lines if "error:" in line), lines[0] if lines else "does not compile")


def in_parallel(function, items):
    """function(item) of all items on the machine's cores, in their order."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))
