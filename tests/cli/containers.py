"""Small readers and writers of safetensors and GGUF, independent of the engine's, for tests that check or damage files."""
import json
import math
import struct

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "U8": 1, "I8": 1}


class Tensor:
    """A stored tensor: dtype name, shape, bytes."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), data

    def values(self):
        """Its numbers, as a tuple."""
        count = math.prod(self.shape)
        if self.dtype == "BF16":
            words = struct.unpack(f"<{count}H", self.data)
            return struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *(w << 16 for w in words)))
        return struct.unpack(f"<{count}{ {'F32': 'f', 'I32': 'i', 'F16': 'e', 'I64': 'q', 'U8': 'B'}[self.dtype] }", self.data)


def read_safetensors(path):
    raw = path.read_bytes()
    length = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    data = memoryview(raw)[8 + length:]
    return {name: Tensor(t["dtype"], t["shape"], bytes(data[t["data_offsets"][0]:t["data_offsets"][1]])) for name,
            t in header.items()}


def safetensors_header(tensors):
    """The header of tensors that lie one after the other, as a dict to damage."""
    header, offset = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [offset, offset + len(t.data)]}
        offset += len(t.data)
    return header


def write_safetensors(path, tensors, header=None, length=None):
    """Writes tensors; `header` (a dict, or raw bytes) and `length` replace what would be right."""
    header = safetensors_header(tensors) if header is None else header
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q",
                                 len(text) if length is None else length) + text + b"".join(t.data for t in tensors.values()))


# GGUF value types: number -> struct code.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY, U32, F32_VALUE = 8, 9, 4, 6
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 14: (256, 210)}  # ggml type -> (elements, bytes)


def gguf_string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(kind, value):
    """(kind, value) as stored; an array's value is (element kind, list); raw bytes are taken as they are."""
    if isinstance(value, bytes):
        return value
    if kind == STRING:
        return gguf_string(value)
    if kind == ARRAY:
        return struct.pack("<IQ", value[0], len(value[1])) + b"".join(gguf_value(value[0], v) for v in value[1])
    return struct.pack("<" + NUMBERS[kind], value)


class Gguf:
    """A GGUF file in parts: keys {key: (kind, value)} and tensors [[name, dims, ggml type, offset, bytes]], to be damaged."""

    def __init__(self, keys=None, tensors=None):
        self.version, self.keys, self.tensors = 3, keys or {}, tensors or []
        self.key_count = self.tensor_count = None  # None: as many as there are

    @classmethod
    def read(cls, path):
        raw, at, self = path.read_bytes(), 0, cls()

        def take(code):
            nonlocal at
            value = struct.unpack_from("<" + code, raw, at)[0]
            at += struct.calcsize("<" + code)
            return value

        def text():
            nonlocal at
            length = take("Q")
            at += length
            return raw[at - length:at].decode()

        def value(kind):
            if kind == STRING:
                return text()
            if kind == ARRAY:
                inner = take("I")
                return inner, [value(inner) for _ in range(take("Q"))]
            return take(NUMBERS[kind])

        at = 4
        self.version, count, keys = take("I"), take("Q"), take("Q")
        for _ in range(keys):
            key, kind = text(), take("I")
            self.keys[key] = (kind, value(kind))
        for _ in range(count):
            name = text()
            dims = [take("Q") for _ in range(take("I"))]
            self.tensors.append([name, dims, take("I"), take("Q"), b""])
        start = -(-at // 32) * 32
        for tensor in self.tensors:
            elements, size = BLOCKS[tensor[2]]
            tensor[4] = raw[start + tensor[3]:start + tensor[3] + math.prod(tensor[1]) // elements * size]
        return self

    def find(self, name):
        return next(t for t in self.tensors if t[0] == name)

    def lay_out(self):
        """Offsets as a writer would choose them."""
        offset = 0
        for tensor in self.tensors:
            tensor[3] = offset
            offset += -(-len(tensor[4]) // 32) * 32
        return self

    def head(self):
        """Everything before the data, unpadded."""
        out = [b"GGUF", struct.pack("<IQQ", self.version, len(self.tensors) if self.tensor_count is None else self.tensor_count,
                                    len(self.keys) if self.key_count is None else self.key_count)]
        for key, (kind, value) in self.keys.items():
            out += [gguf_string(key), struct.pack("<I", kind), gguf_value(kind, value)]
        for name, dims, kind, offset, _ in self.tensors:
            out += [gguf_string(name), struct.pack("<I", len(dims)), *(struct.pack("<Q", d) for d in dims),
                    struct.pack("<IQ", kind, offset)]
        return b"".join(out)

    def write(self, path):
        head = self.head()
        data = b"".join(t[4] + b"\0" * (-len(t[4]) % 32) for t in self.tensors)
        path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
        return path
