"""Checkpoints for the contract of examples/out_of_tree_quant: a golden model with its projections in sym4, and the same model
with the weights that those four bits stand for, in fp32. Standard library only."""
import json
import struct

GROUP = 32


def read_tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entries = json.loads(data[8:8 + size])
    entries.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]])
            for name, e in entries.items()}


def write_tensors(path, tensors):
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def bf16_floats(data):
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def quantise(row):
    """A row of floats -> packed bytes, fp16 scales as bytes, the numbers that they stand for."""
    packed, scales, values = bytearray(), bytearray(), []
    for begin in range(0, len(row), GROUP):
        group = row[begin:begin + GROUP]
        scale_bytes = struct.pack("<e", max(abs(x) for x in group) / 7)
        scale = struct.unpack("<e", scale_bytes)[0]
        codes = [min(15, max(0, round(x / scale) + 8)) if scale else 8 for x in group]
        packed += bytes(codes[i] | codes[i + 1] << 4 for i in range(0, GROUP, 2))
        scales += scale_bytes
        values += [(code - 8) * scale for code in codes]
    return bytes(packed), bytes(scales), values


def make_pair(golden, coded, plain):
    """Writes the model in sym4 to folder `coded` and its dequantised twin to `plain`."""
    config = json.loads((golden / "config.json").read_text())
    in_codes, in_floats = {}, {}
    for name, (dtype, shape, data) in read_tensors(golden / "model.safetensors").items():
        if not name.endswith("_proj.weight") or "k_proj" in name:
            in_codes[name] = in_floats[name] = (dtype, shape, data)
            continue
        floats, (rows, cols) = bf16_floats(data), shape
        parts = [quantise(floats[r * cols:(r + 1) * cols]) for r in range(rows)]
        in_codes[name] = ("U8", [rows, cols // 2], b"".join(p[0] for p in parts))
        in_codes[name.replace(".weight", ".scales")] = ("F16", [rows, cols // GROUP], b"".join(p[1] for p in parts))
        in_floats[name] = ("F32", shape, b"".join(struct.pack(f"<{cols}f", *p[2]) for p in parts))
    settings = {"quant_method": "sym4", "exclude": ["lm_head", "k_proj"]}
    for folder, tensors, extra in ((coded, in_codes, {"quantization_config": settings}), (plain, in_floats, {})):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config | extra))
        write_tensors(folder / "model.safetensors", tensors)
