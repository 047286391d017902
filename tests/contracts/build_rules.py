"""Contracts on what the build makes: its symbols, and which headers its flags let a source see."""
import re
import shlex
import subprocess

from tree import Commands, compile_text, flags_of, in_parallel, object_of, sources, without_comments


def library_output(_, build):
    """The libraries never print, exit or abort; base/check does, and base/log goes through the logger."""
    forbidden = {"abort", "exit", "_exit", "printf", "puts", "putchar", "std::cout", "std::cerr", "perror"}
    for archive in sorted((build / "src").rglob("libtenon_*.a")):
        text = subprocess.run(["nm", "-C", "-u", "-A", str(archive)], capture_output=True, text=True).stdout
        for line in text.splitlines():
            where, _, symbol = line.partition(" U ")
            name = symbol.strip().split("(")[0].split("@")[0]
            if name in forbidden and "status.cc" not in where:
                yield f"{where.strip()}: uses {name}"


def without_arguments(symbol):
    """A demangled name without the types of its parameters and template arguments."""
    symbol = symbol.replace("(anonymous namespace)", "anonymous").split("(")[0]
    while re.search(r"<[^<>]*>", symbol):
        symbol = re.sub(r"<[^<>]*>", "", symbol)
    return symbol


def weak_symbols(_, build):
    """Kernels define no weak symbol and use nothing of the standard library. Their sources are compiled for several instruction
    sets: of equal weak functions (inline ones, templates) the linker keeps any, which might be the one for the newest set."""
    objects = sorted((build / "src" / "kernels").rglob("*.o"))
    if not objects:
        yield f"{build}/src/kernels: no object, nothing was checked"
    for path in objects:
        text = subprocess.run(["nm", "-C", str(path)], capture_output=True, text=True).stdout
        for line in text.splitlines():
            match = re.match(r"[0-9a-f]*\s+([A-Za-z])\s(.*)", line)
            if match and match[1] in "WwVvu":
                yield f"{path}: weak symbol {match[2]}"
            elif match and re.search(r"\bstd::|\b__gnu_cxx::", without_arguments(match[2])):
                yield f"{path}: {match[2]} is of the standard library"


def zoo_initialisers(_, build):
    """Nothing in the zoo runs before main: its objects have no initialiser, so that a start costs the same with any number of
    families, and reading the index runs no family's code."""
    objects = sorted((build / "src" / "zoo").rglob("*.o"))
    if not objects:
        yield f"{build}/src/zoo: no object, nothing was checked"
    for path in objects:
        text = subprocess.run(["readelf", "-SW", str(path)], capture_output=True, text=True).stdout
        for section in re.findall(r"\s(\.(?:init_array|ctors|preinit_array)\S*)\s", text):
            yield f"{path}: runs code before main ({section})"


def include_refusal(_, build):
    """The build itself refuses upward, private and undeclared includes: tried with small layers."""
    commands = Commands(build)
    cases = {  # layer: an include that must not be found
        "base": "tenon/numeric/dtype.h",
        "tensor": "tenon/ops/tape.h",
        "modules": "tenon/kernels/table.h",
        "config": "tenon/ops/tape.h",
    }
    for layer, include in cases.items():
        entry = commands.of_folder(f"src/{layer}")
        if entry is None:
            yield f"no source of layer {layer} in compile_commands.json"
            continue
        probe = subprocess.run([*flags_of(entry), "-fsyntax-only", "-x", "c++", "-"], input=f'#include "{include}"\n', text=True,
                               capture_output=True)
        if not re.search(r"<stdin>:1:\d+: fatal error", probe.stderr):  # nested: in another file
            yield f"layer {layer} can include {include}"


def first_include(path):
    """What a file includes before anything else; None when something precedes it (a definition, a condition)."""
    for line in without_comments(path.read_text()).splitlines():
        if line.strip() in ("", "#pragma once"):
            continue
        match = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
        return match[1] if match else None
    return None


def proved_by_build(root, commands):
    """Headers that some compiled source includes first: they have compiled with nothing before them. So has the header that
    such a header includes first, and so on. An object older than the header, or a precompiled header, proves nothing."""
    proved = set()
    for source in (root / "src").rglob("*.cc"):
        entry = commands.of_file(source)
        if entry is None or "-include" in shlex.split(entry["command"]) or not object_of(entry).exists():
            continue
        made = object_of(entry).stat().st_mtime
        at = source
        while made >= at.stat().st_mtime:
            if at != source:
                proved.add(at)
            include = first_include(at)
            if not include or not include.startswith("tenon/") or not (root / "src" / include[6:]).exists():
                break
            at = root / "src" / include[6:]
            if at in proved:
                break
    return proved


def self_contained(root, build):
    """Every header compiles alone: the build has proved most of them, the others are compiled here."""
    commands = Commands(build)
    proved = proved_by_build(root, commands)

    def problem(path):
        relative = path.relative_to(root / "src")
        entry = commands.of_folder(f"src/{relative.parts[0]}")
        if entry is None:
            return f"{path}: no source of layer {relative.parts[0]} in compile_commands.json"
        error = compile_text(entry, f'#include "tenon/{relative}"\n', f"self_contained/{relative}", build)
        return f"{path}: does not compile alone: {error}" if error else None

    rest = [path for path in sources(root, "src") if path.suffix == ".h" and path not in proved]
    yield from filter(None, in_parallel(problem, rest))
