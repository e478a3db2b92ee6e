#!/usr/bin/env python3
"""Writes what the model tests compare with: state_dicts.txt (names and shapes), reference_losses.txt and reference_logits.txt
(float64).

Usage: pytorch_reference.py PEER.py       PEER.py defines MODELS = {name: (constructor, shape)} in PyTorch
Weights, samples and labels follow simple formulas that model_parity_test.cc repeats, so that no weights are stored.
"""
import importlib.util
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

COUNT, STEPS, RATE = 4, 3, 0.01


class NarrowBlock(nn.Module):
    """He et al., 2016, section 4.2, shortcut A: every second pixel, zeros before and behind the channels."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.stride, self.missing = stride, cout - cin

    def forward(self, x):
        short = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.missing // 2, self.missing - self.missing // 2))
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + short)


class NarrowResNet(nn.Module):
    def __init__(self, depth, classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        for stage in range(3):
            first = max(16, 8 << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*(
                NarrowBlock(16 << stage if i else first, 16 << stage, 2 if stage and not i else 1) for i in range(depth))))
        self.linear = nn.Linear(64, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(x.mean((2, 3)))


def models(peer):
    """name: (constructor, shape of the samples for losses; None: names and shapes only)"""
    basic = lambda *depths: lambda: peer.ResNet(peer.BasicBlock, depths)
    bottleneck = lambda *depths: lambda: peer.ResNet(peer.Bottleneck, depths)
    of_peer = lambda name: peer.MODELS[name][0]
    return {
        "mlp": (of_peer("mlp"), (1, 28, 28)),
        "convnet": (of_peer("convnet"), (1, 28, 28)),
        "resnet18": (basic(2, 2, 2, 2), (3, 40, 40)),
        "resnet34": (basic(3, 4, 6, 3), None),
        "resnet50": (bottleneck(3, 4, 6, 3), (3, 40, 40)),
        "resnet101": (bottleneck(3, 4, 23, 3), None),
        "resnet152": (bottleneck(3, 8, 36, 3), None),
        "resnet18-cifar": (of_peer("resnet18-cifar"), (3, 8, 8)),
        "resnet50-cifar": (of_peer("resnet50-cifar"), None),
        "resnet20-cifar": (lambda: NarrowResNet(3), (3, 9, 9)),
        "resnet56-cifar": (lambda: NarrowResNet(9), None),
        "pyramidnet110": (of_peer("pyramidnet110"), (3, 10, 10)),
        "gpt-nano": (of_peer("gpt-nano"), None),
        "gpt-mini": (lambda: peer.Gpt(65, 128, 6, 6, 192), None),
        "gpt2": (lambda: peer.Gpt(50257, 1024, 12, 12, 768), None),
    }


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


def samples(shape):
    c, h, w = shape
    i = torch.arange(COUNT * c * h * w, dtype=torch.int64)
    x = ((i * i + 31 * i) % 256).float() / 255  # NHWC
    return x.reshape(COUNT, h, w, c).permute(0, 3, 1, 2).double()


def logits(make, shape):
    """The first ten of each sample in inference mode, with running statistics by formula."""
    model = make().double()
    fill(model)
    for name, b in model.named_buffers():
        i = torch.arange(b.numel())
        if name.endswith("running_mean"):
            b.copy_((i * 31 % 17) / 17 - 0.5)
        elif name.endswith("running_var"):
            b.copy_(1 + (i * 13 % 7) / 7)
    model.eval()
    with torch.no_grad():
        return model(samples(shape))[:, :10].flatten().tolist()


def losses(make, shape):
    model = make().double()
    fill(model)
    x = samples(shape)
    y = torch.arange(COUNT) * 3 % 10  # of 10 or of 1000 classes
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
    with (open(here / "state_dicts.txt", "w") as names, open(here / "reference_losses.txt", "w") as numbers,
          open(here / "reference_logits.txt", "w") as eval_numbers):
        for name, (make, shape) in models(peer).items():
            for key, value in make().state_dict().items():
                names.write(f"{name} {key} {list(value.shape)}\n")
            if shape:
                eval_numbers.write(" ".join([name] + [f"{v:.9g}" for v in logits(make, shape)]) + "\n")
                numbers.write(" ".join([name] + [f"{v:.17g}" for v in losses(make, shape)]) + "\n")


if __name__ == "__main__":
    main()
