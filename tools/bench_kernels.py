#!/usr/bin/env python3
"""Holds single CPU kernels against PyTorch's, operation by operation, in turns, and prints one table.

Usage: PYTHON_WITH_TORCH tools/bench_kernels.py BENCH_KERNELS_BINARY [--threads N] [--rounds N] [--only TEXT]

Each line: median time of both over the rounds, Gflop/s of both, percent of the measured rate of multiply-adds (one thread), and
the ratio (above 1: ours is faster). With one thread, CPU time of the thread; else wall time. PyTorch runs the better of its
usual layout and channels_last.
"""
import argparse
import statistics
import subprocess
import time

import torch

MLP = [("dense", (100, 784, 512)), ("dense", (100, 512, 512)), ("dense", (100, 512, 10))]
SQUARE = [("dense", (n, n, n)) for n in (64, 128, 256, 512, 1024)]
# n, h, w, in, out, kernel, stride, padding
CONVNET = [("conv", (100, 28, 28, 1, 16, 5, 1, 2)), ("conv", (100, 14, 14, 16, 32, 5, 1, 2))]
RESNET = [
    ("conv", (32, 32, 32, 3, 64, 3, 1, 1)), ("conv", (32, 32, 32, 64, 64, 3, 1, 1)), ("conv", (32, 32, 32, 64, 128, 3, 2, 1)),
    ("conv", (32, 16, 16, 128, 128, 3, 1, 1)), ("conv", (32, 16, 16, 128, 256, 3, 2, 1)), ("conv", (32, 8, 8, 256, 256, 3, 1, 1)),
    ("conv", (32, 8, 8, 256, 512, 3, 2, 1)), ("conv", (32, 4, 4, 512, 512, 3, 1, 1)), ("conv", (32, 32, 32, 64, 128, 1, 2, 0)),
    ("conv", (32, 16, 16, 128, 256, 1, 2, 0)), ("conv", (32, 8, 8, 256, 512, 1, 2, 0)),
]
DIRECTIONS = ("forward", "backward_data", "backward_weights")


def conv_calls(size, channels_last):
    n, h, w, cin, cout, k, s, p = size
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.rand(n, cin, h, w).mul_(2).sub_(1).contiguous(memory_format=layout)
    weight = torch.rand(cout, cin, k, k).mul_(2).sub_(1).contiguous(memory_format=layout)
    bias = torch.rand(cout)
    dy = torch.rand_like(torch.nn.functional.conv2d(x, weight, bias, s, p)).contiguous(memory_format=layout)

    def backward(mask):
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, weight, [cout], [s, s], [p, p], [1, 1], False, [0, 0], 1, mask)

    return {"forward": lambda: torch.nn.functional.conv2d(x, weight, bias, s, p),
            "backward_data": backward([True, False, False]), "backward_weights": backward([False, True, True])}


def dense_calls(size):
    n, cin, cout = size
    x, weight, bias, dy = torch.rand(n, cin), torch.rand(cout, cin), torch.rand(cout), torch.rand(n, cout)
    return {"forward": lambda: torch.nn.functional.linear(x, weight, bias), "backward_data": lambda: dy.mm(weight),
            "backward_weights": lambda: (dy.t().mm(x), dy.sum(0))}


def flops(kind, size):
    if kind == "dense":
        return 2 * size[0] * size[1] * size[2]
    n, h, w, cin, cout, k, s, p = size
    return 2 * n * ((h + 2 * p - k) // s + 1) * ((w + 2 * p - k) // s + 1) * k * k * cin * cout


def seconds(call, clock):
    call()
    begin = clock()
    call()
    inner = max(1, int(0.005 / max(clock() - begin, 1e-7)))
    each = []
    for _ in range(max(3, min(41, int(0.2 / 0.005)))):
        begin = clock()
        for _ in range(inner):
            call()
        each.append((clock() - begin) / inner)
        if sum(each) * inner > 0.3:
            break
    return statistics.median(each)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    server = subprocess.Popen([options.binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ours(line):
        server.stdin.write(line + "\n")
        server.stdin.flush()
        return float(server.stdout.readline())

    limit = max(ours("1 fma") for _ in range(3)) * options.threads
    print(f"torch {torch.__version__}, {options.threads} thread(s), limit {limit / 1e9:.1f} Gflop/s")
    print(f"{'operation':52} {'ours us':>9} {'torch us':>9} {'ours GF':>8} {'torch GF':>8} {'% limit':>8} {'ratio':>6}")
    for kind, size in MLP + CONVNET + RESNET + SQUARE:
        variants = [dense_calls(size)] if kind == "dense" else [conv_calls(size, False), conv_calls(size, True)]
        for direction in DIRECTIONS:
            name = f"{kind}_{direction} {' '.join(map(str, size))}"
            if options.only not in name or (direction == "backward_data" and kind == "conv" and size[3] in (1, 3)):
                continue
            mine, theirs = [], [[] for _ in variants]
            for _ in range(options.rounds):
                mine.append(ours(f"{options.threads} {name}"))
                for times, variant in zip(theirs, variants):
                    times.append(seconds(variant[direction], clock))
            a, b = statistics.median(mine), min(statistics.median(times) for times in theirs)
            work = flops(kind, size)
            print(f"{name:52} {a * 1e6:9.1f} {b * 1e6:9.1f} {work / a / 1e9:8.1f} {work / b / 1e9:8.1f} "
                  f"{100 * work / a / limit:8.0f} {b / a:6.2f}", flush=True)


if __name__ == "__main__":
    main()
