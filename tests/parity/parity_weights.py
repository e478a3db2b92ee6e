"""Writes the initial weights of the stored loss traces as a safetensors file: parity_weights.py MODEL FILE.

The values follow from integers alone, so that the test makes the same ones without storing them (see parity_weights.h):
one SplitMix64 sequence (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), seeded as SEEDS says, runs
over all trained tensors in the order below, elements in row-major order. A value is v = (floor(x / 2^40) - 2^23) / 2^23,
in [-1, 1). Weights and biases of layers are v / sqrt(fan-in), the range of PyTorch's own initialisation; BatchNorm
weights are 1 + v / 8, its biases v / 8.
Computed in float64, stored as float32. Running statistics start at mean 0, variance 1, count 0.
The seeds are such that float32 stays within 5e-7 of float64 over the compared steps, on one rank and on two, with PyTorch's
kernels and with several orders of summation. With one seed in ten a value comes so close to a kink (a ReLU at zero, two
equals in a pooling window) that rounding decides on which side it falls, and from there on the losses part.
"""
import json
import struct
import sys

import numpy as np

SEEDS = {"mlp": 14, "convnet": 8}
LAYERS = {  # (name, shape of the weight); one number: BatchNorm
    "mlp": [("layers.0", (512, 784)), ("layers.1", (512, 512)), ("layers.2", (10, 512))],
    "convnet": [("layer1.0", (16, 1, 5, 5)), ("layer1.1", (16,)), ("layer2.0", (32, 16, 5, 5)), ("layer2.1", (32,)),
                ("fc", (10, 1568))],
}


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

    state = {}
    for name, shape in LAYERS[model]:
        if len(shape) == 1:
            state[f"{name}.weight"] = (1 + draw(shape) / 8).astype(np.float32)
            state[f"{name}.bias"] = (draw(shape) / 8).astype(np.float32)
            state[f"{name}.running_mean"] = np.zeros(shape, np.float32)
            state[f"{name}.running_var"] = np.ones(shape, np.float32)
            state[f"{name}.num_batches_tracked"] = np.zeros((), np.int64)
        else:
            root = np.sqrt(float(np.prod(shape[1:])))
            state[f"{name}.weight"] = (draw(shape) / root).astype(np.float32)
            state[f"{name}.bias"] = (draw(shape[:1]) / root).astype(np.float32)
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
