#!/usr/bin/env python3
"""Writes what the model tests compare with: state_dicts.txt (names and shapes) and reference_losses.txt (float64).

Usage: pytorch_reference.py PEER.py       PEER.py defines MODELS = {name: (constructor, shape)} in PyTorch
Weights, samples and labels follow simple formulas that model_parity_test.cc repeats, so that no weights are stored.
"""
import importlib.util
import pathlib
import sys

import torch
import torch.nn.functional as F

MODELS = {"mlp": (1, 28, 28), "convnet": (1, 28, 28), "resnet18-cifar": (3, 8, 8)}
COUNT, STEPS, RATE = 4, 3, 0.01


def load_peer(path):
    spec = importlib.util.spec_from_file_location("peer", path)
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    return peer


def fill(model):
    """Element i of parameter k: a number in [-0.5, 0.5) over the square root of its fan-in; norm scales around 1."""
    for k, (name, p) in enumerate(model.named_parameters()):
        i = torch.arange(p.numel(), dtype=torch.int64)
        u = ((i * 7919 + 131 * k) % 1009).double() / 1009 - 0.5
        fan_in = p[0].numel() if p.dim() > 1 else 1
        offset = 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0
        p.data = (u / fan_in ** 0.5 * (2.0 if p.dim() > 1 else 0.2) + offset).reshape(p.shape)


def losses(make, shape):
    model = make().double()
    fill(model)
    c, h, w = shape
    i = torch.arange(COUNT * c * h * w, dtype=torch.int64)
    x = ((i * i + 31 * i) % 256).float() / 255  # NHWC
    x = x.reshape(COUNT, h, w, c).permute(0, 3, 1, 2).double()
    y = torch.arange(COUNT) * 3 % 10
    values = []
    for _ in range(STEPS):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        values.append(loss.item())
        with torch.no_grad():
            for p in model.parameters():
                p -= RATE * p.grad
    model.eval()
    values.append(F.cross_entropy(model(x), y).item())
    return values


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    peer, here = load_peer(sys.argv.pop()), pathlib.Path(__file__).parent
    with open(here / "state_dicts.txt", "w") as names, open(here / "reference_losses.txt", "w") as numbers:
        for name, shape in MODELS.items():
            make = peer.MODELS[name][0]
            for key, value in make().state_dict().items():
                names.write(f"{name} {key} {list(value.shape)}\n")
            numbers.write(" ".join([name] + [f"{v:.17g}" for v in losses(make, shape)]) + "\n")


if __name__ == "__main__":
    main()
