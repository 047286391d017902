"""A small model directory under damage, and the check that every command refuses it with one message."""
import json
import shutil

from containers import read_safetensors, safetensors_header, write_safetensors
from support import CliTest, tenon, text_model


class Model:
    """A small model directory under damage."""

    def __init__(self, path):
        self.path = text_model(path)
        self.weights = path / "model.safetensors"

    def config(self, **changes):
        """Replaces or (…) removes keys."""
        config = json.loads((self.path / "config.json").read_text())
        config.update(changes)
        self.write("config.json", {k: v for k, v in config.items() if v is not ...})

    def write(self, name, content):
        if not isinstance(content, (str, bytes)):
            content = json.dumps(content)
        (self.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def edit(self, name, edit):
        content = json.loads((self.path / name).read_text())
        edit(content)
        self.write(name, content)

    def tensors(self, edit):
        tensors = read_safetensors(self.weights)
        edit(tensors)
        write_safetensors(self.weights, tensors)

    def header(self, edit):
        tensors = read_safetensors(self.weights)
        header = safetensors_header(tensors)
        edit(header)
        write_safetensors(self.weights, tensors, header)

    def cut(self, name, size):
        data = (self.path / name).read_bytes()
        self.write(name, data[:size] if size >= 0 else data[:len(data) + size])

    def shard(self):
        """In two files with an index."""
        tensors = read_safetensors(self.weights)
        names = sorted(tensors)
        halves = names[:len(names) // 2], names[len(names) // 2:]
        files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        for file, half in zip(files, halves):
            write_safetensors(self.path / file, {n: tensors[n] for n in half})
        self.weights.unlink()
        self.write("model.safetensors.index.json",
                   {"metadata": {}, "weight_map": {n: f for f, half in zip(files, halves) for n in half}})
        return files


class MalformedTest(CliTest):
    def refuse(self, model, *patterns, codes=3, commands=("explain", "logits", "run"), fix=True):
        """Every command refuses the path with one message."""
        arguments = {"explain": [], "logits": ["--ids", "1,2", "-o", self.dir / "out.safetensors"],
                     "run": ["-p", "hi", "-n", "1"],
                     "tokenize": ["hi"], "inspect": [], "render": ["--messages", self.dir / "messages.json"]}
        (self.dir / "messages.json").write_text('[{"role": "user", "content": "hi"}]')
        for command in commands:
            with self.subTest(command=command):
                (self.dir / "out.safetensors").unlink(missing_ok=True)
                outcome = tenon(command, model, *arguments[command], cpu_seconds=2, memory=4 << 30)
                self.check_error(outcome, codes, *patterns, fix=fix)
                self.assertFalse((self.dir / "out.safetensors").exists())

    def refuse_each(self, cases, **options):
        """cases: (name, damage(model), pattern…). The damaged copy is made anew for each."""
        for name, damage, *patterns in cases:
            with self.subTest(case=name):
                shutil.rmtree(self.dir / "m", ignore_errors=True)
                model = Model(self.dir / "m")
                damage(model)
                self.refuse(model.path, *patterns, **options)
