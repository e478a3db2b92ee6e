"""Writes the initial weights of the stored loss traces as a safetensors file: parity_weights.py MODEL FILE.

The values follow from integers alone, so that the test makes the same ones without storing them (see parity_weights.h):
one SplitMix64 sequence (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), seeded as SEEDS says, runs
over all trained tensors in the order of ../models/state_dicts.txt, elements in row-major order. A value is v = (floor(x / 2^40) - 2^23) / 2^23,
in [-1, 1). Weights and biases of layers are v / sqrt(fan-in), the range of PyTorch's own initialization; BatchNorm
weights are 1 + v / 8, its biases v / 8.
Computed in float64, stored as float32. Running statistics start at mean 0, variance 1, count 0.
The seeds are such that float32 stays within 5e-7 of float64 over the compared steps, on one rank and on two, with PyTorch's
kernels and with several orders of summation. With one seed in ten a value comes so close to a kink (a ReLU at zero, two
equals in a pooling window) that rounding decides on which side it falls, and from there on the losses part.
"""
import json
import pathlib
import struct
import sys

import numpy as np

SEEDS = {"mlp": 14, "convnet": 8, "resnet18-cifar": 1, "resnet50-cifar": 1, "pyramidnet110": 1, "gpt-nano": 1}
STATE_DICTS = pathlib.Path(__file__).parent.parent / "models" / "state_dicts.txt"


def state_dict(model):
    """(name, shape) of each entry, in PyTorch's order."""
    for line in STATE_DICTS.read_text().splitlines():
        of, name, shape = line.split(" ", 2)
        if of == model:
            yield name, tuple(json.loads(shape))


def make(model):
    drawn = 0

    def draw(shape):
        nonlocal drawn
        count = int(np.prod(shape))
        z = np.uint64(SEEDS[model]) + np.arange(drawn + 1, drawn + 1 + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        drawn += count
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        return (((z >> np.uint64(40)).astype(np.int64) - 2**23) / 2**23).reshape(shape)

    state, root = {}, 8.0
    for name, shape in state_dict(model):
        kind = name.rpartition(".")[2]
        if kind == "weight":
            root = np.sqrt(float(np.prod(shape[1:]))) if len(shape) > 1 else 8.0
            state[name] = (draw(shape) / root + (len(shape) == 1)).astype(np.float32)
        elif kind == "bias":  # of the weight before
            state[name] = (draw(shape) / root).astype(np.float32)
        elif kind == "num_batches_tracked":
            state[name] = np.zeros((), np.int64)
        else:
            state[name] = np.full(shape, {"running_mean": 0, "running_var": 1}[kind], np.float32)
    return state


def save(state, path):
    header, offset = {}, 0
    for name, array in state.items():
        kind = {"float32": "F32", "int64": "I64"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in state.values():
            file.write(array.tobytes())


if __name__ == "__main__":
    save(make(sys.argv[1]), sys.argv[2])
