"""Contracts on the text of the sources."""
import os
import re

from tree import CODE, LAYERS, PRIVATE, sources, without_comments


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
    for path in [*sources(root, "src", "apps", "bench", "tests", "examples", "fuzz"),
                 *(p for folder in ("bench", "fuzz", "tests") for p in sorted((root / folder).rglob("*.py")))]:
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
    allowed = set("\u2026\u2192\u00d7\u21d4\u2013")
    for path in sources(root, "src", "apps", "bench", "examples"):
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


def property_checks(root, _):
    """rc::check returns whether the property held: a bare call would pass whatever it says."""
    for path in sources(root, "tests"):
        text = without_comments(path.read_text())
        for call in re.finditer(r"\brc::check\s*\(", text):
            if not re.search(r"\b(EXPECT|ASSERT)_TRUE\(\s*$", text[: call.start()]):
                number = text.count("\n", 0, call.start()) + 1
                yield f"{path}:{number}: rc::check( outside EXPECT_TRUE( or ASSERT_TRUE("


# Text files that people write; goldens and other data are made elsewhere.
WRITTEN = {*CODE, ".py", ".md", ".cmake", ".txt", ".json", ".yaml", ".yml", ".in", ".sh", ""}
# In pieces, so that this file passes its own rule.
PLACES = re.compile("|".join((r"(?<![\w.~-])/" + "(work|root)/", "/tmp/" + "wt", r"\bpypi" + r"\.org", "pythonhosted" + r"\.org",
                              r"registry\." + "npmjs", r"\bcrates" + r"\.io", r"proxy\." + r"golang\.org")))


def no_sessions(root, _):
    """Nothing names a folder of the machine it was written on, or the host of a package registry."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in (".git", ".cache", "__pycache__") and not f.startswith("build"))
        for name in sorted(names):
            path = root.__class__(folder) / name
            if name == ".git" or path.suffix not in WRITTEN or path.is_symlink() or path.stat().st_size > 1 << 20:
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                match = PLACES.search(line)
                if match:
                    yield f"{path}:{number}: names {match[0]}"
