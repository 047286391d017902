"""Writes GGUF files (version 3): metadata, then tensors in the order in which they were added. Standard library only."""
import struct

ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
# Tensor types: the number in the file, elements and bytes of a block.
TYPES = {"f32": (0, 1, 4), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "bf16": (30, 1, 2)}
FILE_TYPES = {"q4_0": 2, "q8_0": 7, "bf16": 32}  # general.file_type


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _scalar(value):
    """A value's type number and bytes; Python's own type decides."""
    if isinstance(value, bool):
        return BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return U32, struct.pack("<I", value)
    if isinstance(value, float):
        return F32, struct.pack("<f", value)
    return STRING, _string(value)


def _array(values):
    """All of one kind; whole numbers as 32-bit signed, as token types are."""
    if isinstance(values[0], int):
        kind, items = I32, [struct.pack("<i", v) for v in values]
    else:
        kind, items = _scalar(values[0])[0], [_scalar(v)[1] for v in values]
    return ARRAY, struct.pack("<IQ", kind, len(items)) + b"".join(items)


def tensor_bytes(kind, elements):
    _, block, size = TYPES[kind]
    return elements // block * size


class GgufWriter:
    def __init__(self, architecture):
        self._architecture = architecture
        self._metadata = []
        self._tensors = []
        self.set("general.architecture", architecture)

    def set(self, key, value):
        kind, data = _array(value) if isinstance(value, list) else _scalar(value)
        self._metadata.append(_string(key) + struct.pack("<I", kind) + data)

    def set_own(self, key, value):
        """A key below the architecture's name."""
        self.set(f"{self._architecture}.{key}", value)

    def add(self, name, dims, kind, pieces):
        """dims: the row's length first. pieces(): the tensor's bytes, in any number of parts."""
        elements = 1
        for dim in dims:
            elements *= dim
        self._tensors.append((name, dims, kind, tensor_bytes(kind, elements), pieces))

    def write(self, path):
        with open(path, "wb") as out:
            out.write(b"GGUF" + struct.pack("<IQQ", 3, len(self._tensors), len(self._metadata)))
            out.write(b"".join(self._metadata))
            offset = 0
            for name, dims, kind, size, _ in self._tensors:
                out.write(_string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims))
                out.write(struct.pack("<IQ", TYPES[kind][0], offset))
                offset += size + -size % ALIGNMENT
            out.write(b"\0" * (-out.tell() % ALIGNMENT))
            for name, _, _, size, pieces in self._tensors:
                written = sum(out.write(piece) for piece in pieces())
                if written != size:
                    raise ValueError(f"{name}: {written} bytes, its shape needs {size}")
                out.write(b"\0" * (-size % ALIGNMENT))
