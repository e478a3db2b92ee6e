#!/usr/bin/env python3
"""Measures torch.distributed over "engine" and over Gloo: all-reduce of 8 B to 100 MB, and steps of DistributedDataParallel.

Usage: PEER_PYTHON=PYTHON tests/peers/torch_backends.py BUILD_FOLDER [--ranks N] [--repeats N] [--part all_reduce|ddp]
Both backends are groups of the same processes and alternate: each row is the median over the repeats of the time of one call
or step, and the median of the ratios of neighbors. BUILD_FOLDER has torch/engine_torch (docs/pytorch.md).
"""
import argparse
import copy
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "torch"))
import torch_ranks  # noqa: E402

SIZES = ((8, 400), (1024, 400), (64 << 10, 100), (1 << 20, 20), (10_000_000, 4), (100_000_000, 1))


def models():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before, width, stride):
            super().__init__()
            self.path = nn.Sequential(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                      nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
            self.shortcut = nn.Identity() if stride == 1 and before == width else nn.Sequential(
                nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, x):
            return torch.relu(self.path(x) + self.shortcut(x))

    def resnet18():  # of models/, for images of 32 x 32
        blocks = [Block(before, width, stride) for before, width, stride in (
            (64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1))]
        return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *blocks,
                             nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))

    class Gpt(nn.Module):
        def __init__(self, width=128, context=64, layers=2):
            super().__init__()
            self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(context, width)
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True, norm_first=True)
            self.layers, self.head = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.Linear(width, 256)

        def forward(self, tokens):
            length = tokens.shape[1]
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            x = self.tokens(tokens) + self.places(torch.arange(length))
            return self.head(self.layers(x, mask=mask)).flatten(0, 1)

    mlp = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    convnet = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10))
    yield "mlp, batch 64", mlp, torch.randn(64, 784), torch.randint(0, 10, (64,))
    yield "convnet, batch 32", convnet, torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,))
    yield "resnet18 for CIFAR, batch 8", resnet18(), torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    yield "GPT, 2 x 64 tokens", Gpt(), torch.randint(0, 256, (2, 64)), torch.randint(0, 256, (128,))


def compare(name, run, repeats, calls, dist):
    """`run(backend)` makes one call; prints a row on rank 0."""
    times = {"engine": [], "gloo": []}
    for repeat in range(repeats + 1):
        for backend in (("engine", "gloo"), ("gloo", "engine"))[repeat % 2]:
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                run(backend)
            if repeat > 0:  # the first warms up
                times[backend].append((time.perf_counter() - begin) / calls)
    if dist.get_rank() == 0:
        ratio = statistics.median(b / a for a, b in zip(times["engine"], times["gloo"]))
        row = [statistics.median(times[backend]) * 1e6 for backend in ("engine", "gloo")]
        print(f"| {name} | {row[0]:.1f} | {row[1]:.1f} | {ratio:.2f} |", flush=True)


def run_rank(repeats, part):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    import engine_torch  # noqa: F401  registers the backend
    torch.set_num_threads(1)
    dist.init_process_group("engine")
    groups = {"engine": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if dist.get_rank() == 0:
        print("| call | engine, us | Gloo, us | ratio |\n|---|---|---|---|")
    for size, calls in SIZES if part != "ddp" else ():
        tensor = torch.zeros(size // 4)
        compare(f"all_reduce of {size} B", lambda backend: dist.all_reduce(tensor, group=groups[backend]), repeats, calls, dist)
    for name, model, inputs, labels in models() if part != "all_reduce" else ():
        replicas = {backend: DistributedDataParallel(copy.deepcopy(model), process_group=group) for backend, group in groups.items()}

        def step(backend):
            torch.nn.functional.cross_entropy(replicas[backend](inputs), labels).backward()

        compare(f"step of {name}", step, repeats, 5, dist)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--part", choices=("all", "all_reduce", "ddp"), default="all")
    arguments = parser.parse_args()
    torch_ranks.require_torch()
    outputs = torch_ranks.run_ranks(arguments.build, os.path.abspath(__file__), arguments.ranks,
                                    [str(arguments.repeats), arguments.part], seconds=1800)
    print("\n".join(line for line in outputs[0].splitlines() if line.startswith("|")))


if __name__ == "__main__":
    if "RANK" in os.environ and len(sys.argv) == 3:
        run_rank(int(sys.argv[1]), sys.argv[2])
    else:
        main()
