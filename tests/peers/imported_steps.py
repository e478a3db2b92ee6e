#!/usr/bin/env python3
"""Training steps of torchvision's networks on a CPU: `engine bench step --model NETWORK.onnx` beside PyTorch, as a Markdown table.

Usage: imported_steps.py ENGINE [--networks mobilenet_v2,vit_b_16] [--batch 8] [--size 224] [--rounds 5] [--seconds 4]
                         [--variants eager,channels_last] [--compiled] [--before OTHER_ENGINE] [--real-time] [--dir DIR]
Both sides: float32, one thread, SGD with momentum, training mode, the same batch in memory. Dropout and stochastic depth are left
out of the networks, because an ONNX file cannot state the latter. PyTorch's variants are tried first, and the fastest is measured
in rounds that alternate with the engine's; --compiled also tries torch.compile, which takes minutes. --before measures another
binary in the same rounds, and the table then has its ratio. --real-time runs all sides under `chrt -r 1`, for a busy machine.
Needs torch, torchvision and onnx; exit code 77 without them.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch_steps  # noqa: E402: exits with 77 if there is no PyTorch
from bench_vs_peer import last_json, processor  # noqa: E402


def write_network(name, args, folder):
    import torch
    path = folder / f"{name}_{args.size}.onnx"
    if not path.exists():
        torch.manual_seed(0)
        x = torch.randn(1, 3, args.size, args.size)
        torch.onnx.export(torch_steps.imported(name), (x,), str(path), training=torch.onnx.TrainingMode.TRAINING,
                          do_constant_folding=False, dynamo=False, dynamic_axes={"x": {0: "batch"}}, input_names=["x"])
    return path


def serve(args):
    """Measures variants of one network, named on stdin, and prints the milliseconds of a step."""
    import torch
    torch.set_num_threads(1)
    torch_steps.set_precision("off")
    options = argparse.Namespace(model=args.serve, batch=args.batch, size=args.size, device="cpu", optimizer="sgd", amp="off")
    steps = {}
    for line in sys.stdin:
        variant = line.strip()
        try:
            if variant not in steps:
                steps = {variant: torch_steps.training_step(options, variant.split("+"))}  # one model in memory
                for _ in range(2):
                    steps[variant]()
            times, end = [], time.perf_counter() + args.seconds
            while len(times) < 3 or time.perf_counter() < end:
                start = time.perf_counter()
                steps[variant]()
                times.append(time.perf_counter() - start)
            print(1e3 * statistics.median(times), flush=True)
        except Exception as error:  # no compiler, out of memory: the other variants are still measured
            steps = {}
            print(f"{args.serve} {variant}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
            print("nan", flush=True)


class Peer:
    def __init__(self, network, args):
        command = [sys.executable, __file__, "-", "--serve", network, "--batch", str(args.batch), "--size", str(args.size),
                   "--seconds", str(args.seconds)]
        self.process = subprocess.Popen(prefix(args) + command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, variant):
        self.process.stdin.write(variant + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline() or "nan")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def prefix(args):
    return ["chrt", "-r", "1"] if args.real_time else []


def engine_step(binary, path, args):
    result = last_json(prefix(args) + [binary, "bench", "step", "--model", str(path), "--batch", str(args.batch), "--ranks", "1",
                                       "--threads", "1", "--warmup", "1", "--seconds", str(args.seconds), "--format", "json"])
    if not result:
        sys.exit("the engine's run failed")
    return result["step_ms"]


def measure(network, args, folder):
    path = write_network(network, args, folder)
    peer = Peer(network, args)
    variants = args.variants.split(",") + (["compiled", "channels_last+compiled"] if args.compiled else [])
    tried = {variant: peer.measure(variant) for variant in variants}
    tried = {variant: ms for variant, ms in tried.items() if ms == ms}
    if not tried:
        sys.exit("the peer ran in no variant")
    best = min(tried, key=tried.get)
    print(f"{network}: " + ", ".join(f"{variant} {ms:.0f} ms" for variant, ms in tried.items()), file=sys.stderr, flush=True)
    rounds = []
    for _ in range(args.rounds):
        binaries = [args.engine] + ([args.before] if args.before else [])
        ours = [engine_step(binary, path, args) for binary in binaries]
        rounds.append((*ours, peer.measure(best)))
        print("  " + ", ".join(f"{ms:.0f} ms" for ms in rounds[-1]) + f", load {os.getloadavg()[0]:.1f}", file=sys.stderr,
              flush=True)
    peer.end()
    return best, rounds


def ratio_text(ratios):
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("engine")
    p.add_argument("--networks", default=",".join(torch_steps.IMPORTED))
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("--variants", default="eager,channels_last")
    p.add_argument("--compiled", action="store_true", help="also try torch.compile")
    p.add_argument("--before", help="another binary, measured in the same rounds")
    p.add_argument("--real-time", action="store_true", help="run all sides under chrt -r 1")
    p.add_argument("--dir", type=pathlib.Path, help="folder that keeps the ONNX files")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    args = p.parse_args()
    for network in args.networks.split(","):
        if network not in torch_steps.IMPORTED:
            p.error(f"--networks: '{network}' is not one of {', '.join(torch_steps.IMPORTED)}")
    return args


def main():
    args = parse()
    if args.serve:
        return serve(args)
    import torch
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.dir or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for network in args.networks.split(","):
            rows.append((network, *measure(network, args, folder)))
    version = subprocess.run([args.engine, "version"], stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
    print(f"{datetime.date.today()}, {processor()}; {version}; PyTorch {torch.__version__}. Batch {args.batch}, images of "
          f"{args.size} x {args.size}, one thread, medians of {args.rounds} rounds of {args.seconds:g} s.\n")
    before = " before / now (min to max) |" if args.before else ""
    print(f"| network | engine, ms | PyTorch, ms | PyTorch's best variant | ratio (min to max) |{before}")
    print("|---|--:|--:|---|---|" + ("---|" if before else ""))
    for network, variant, rounds in rows:
        ours, theirs = (statistics.median(column) for column in (list(zip(*rounds))[0], list(zip(*rounds))[-1]))
        row = f"| `{network}` | {ours:,.0f} | {theirs:,.0f} | {variant} | {ratio_text([r[-1] / r[0] for r in rounds])} |"
        print(row + (f" {ratio_text([r[1] / r[0] for r in rounds])} |" if before else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
