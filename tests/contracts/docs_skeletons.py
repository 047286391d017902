"""The C++ in our documents compiles: a skeleton that someone copies works with the interfaces of today."""
import re

from tree import Commands, compile_text, in_parallel

FENCE = re.compile(r"^```cpp(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(path):
    """(line of the first text line, words after ```cpp, text) of each block."""
    document = path.read_text()
    for match in FENCE.finditer(document):
        yield document.count("\n", 0, match.start("text")) + 1, match["info"].split(), match["text"]


def docs_skeletons(root, build):
    """Every ```cpp block of CONTRIBUTING.md and docs/ names the folder it belongs to (```cpp src/zoo) and compiles there, with
    that folder's include roots."""
    commands = Commands(build)
    todo = []
    for path in [root / "CONTRIBUTING.md", *sorted((root / "docs").glob("**/*.md"))]:
        if not path.exists():
            continue
        for number, info, text in blocks(path):
            entry = commands.of_folder(info[0]) if len(info) == 1 else None
            if entry is None:
                yield f"{path}:{number - 1}: a block says ```cpp and the folder it belongs to, not '{' '.join(info)}'"
            else:
                name = f"docs/{path.relative_to(root)}_{number}"
                todo.append((entry, f'#line {number} "{path}"\n{text}', name, build))
    yield from filter(None, in_parallel(lambda arguments: compile_text(*arguments), todo))
