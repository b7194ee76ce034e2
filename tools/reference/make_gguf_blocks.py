"""Writes tests/data/gguf/blocks.gguf: random and edge blocks of every type that Pinion reads, and their values.

The gguf package writes the file and computes the values, except those of Q1_0, which it cannot decode.
"""

import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

OUT = pathlib.Path(__file__).parents[2] / "tests/data/gguf/blocks.gguf"
HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xC000, 0x7BFF, 0xFBFF, 0x7C00, 0x7E00]
# Offsets of the bytes that hold scales, and the edge values these bytes take one after another.
HALF = [np.frombuffer(np.uint16(half).tobytes(), np.uint8) for half in HALVES]
EXPONENTS = [np.full(1, byte, np.uint8) for byte in (0, 1, 2, 3, 127, 253, 254, 255)]
E4M3 = [np.full(4, byte, np.uint8) for byte in (0, 1, 7, 8, 0x38, 0x7E, 0x7F, 0x80, 0xB8, 0xFF)]
SCALES = {
    Type.Q4_0: [(0, HALF)],
    Type.Q4_1: [(0, HALF), (2, HALF)],
    Type.Q5_0: [(0, HALF)],
    Type.Q5_1: [(0, HALF), (2, HALF)],
    Type.Q8_0: [(0, HALF)],
    Type.Q2_K: [(80, HALF), (82, HALF)],
    Type.Q3_K: [(108, HALF)],
    Type.Q4_K: [(0, HALF), (2, HALF)],
    Type.Q5_K: [(0, HALF), (2, HALF)],
    Type.Q6_K: [(208, HALF)],
    Type.IQ4_NL: [(0, HALF)],
    Type.IQ4_XS: [(0, HALF)],
    Type.MXFP4: [(0, EXPONENTS)],
    Type.NVFP4: [(0, E4M3)],
    Type.TQ1_0: [(52, HALF)],
    Type.TQ2_0: [(64, HALF)],
    Type.Q1_0: [(0, HALF)],
}
RANDOM = 3  # blocks of 256 numbers, and more of smaller ones


def make_blocks(kind: Type, rng: np.random.Generator) -> np.ndarray:
    """[blocks, bytes]: random codes with ordinary scales, then with the edge ones, then codes without and with all bits."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    (first, edges), *others = SCALES[kind]
    ordinary = RANDOM * 256 // elements
    blocks = rng.integers(0, 256, (ordinary + len(edges) + 2, size), np.uint8)
    blocks[-2], blocks[-1] = 0, 255
    one = edges[len(edges) // 2]
    for row, block in enumerate(blocks):
        edge = row - ordinary
        block[first : first + len(one)] = edges[edge] if 0 <= edge < len(edges) else one
        for offset, values in others:
            block[offset : offset + 2] = values[edge * 7 % len(values)] if edge >= 0 else values[5]
        if edges is HALF and edge < 0:
            scale = np.float16(rng.normal()).tobytes()
            block[first : first + 2] = np.frombuffer(scale, np.uint8)
    return blocks


def values_of(blocks: np.ndarray, kind: Type) -> np.ndarray:
    if kind == Type.Q1_0:
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        return np.where(np.unpackbits(blocks[:, 2:], axis=-1, bitorder="little"), scale, -scale)
    with np.errstate(all="ignore"):
        return gguf.dequantize(blocks, kind)


def main() -> None:
    OUT.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(OUT, "blocks")
    rng = np.random.default_rng(55)
    for kind in SCALES:
        blocks = make_blocks(kind, rng)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        writer.add_tensor(kind.name + ".values", values_of(blocks, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
