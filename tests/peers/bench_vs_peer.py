"""Alternating rounds of `engine bench step` and torch_peer.py, as a Markdown table. Run by tools/scripts/bench_vs_peer.sh."""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys

CASES = [  # model, samples a step on each rank (gpt-nano: texts of 64 tokens), ranks, threads a rank
    ("mlp", 100, 1, 1),
    ("mlp", 100, 2, 1),
    ("convnet", 100, 1, 1),
    ("convnet", 100, 2, 1),
    ("resnet18-cifar", 32, 1, 1),
    ("resnet18-cifar", 32, 2, 1),
    ("resnet50-cifar", 16, 1, 1),
    ("gpt-nano", 12, 1, 1),
    ("gpt-nano", 12, 2, 1),
]
VARIANTS = {
    "default": [],
    "channels-last": ["--channels-last"],
    "compiled": ["--compile", "default"],
    "channels-last, compiled": ["--channels-last", "--compile", "default"],
}


def last_json(command):
    """Runs a command whose last output line is one JSON object; None if it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = result.stdout.strip().splitlines()
    if result.returncode != 0 or not lines:
        print(f"failed ({result.returncode}): {' '.join(command)}\n{result.stderr[-500:]}", file=sys.stderr)
        return None
    return json.loads(lines[-1])


def run_peer(case, variant, args):
    model, batch, ranks, threads = case
    command = [os.environ["PEER_PYTHON"], os.environ["ENGINE_PEERS"] + "/torch_peer.py", "throughput", "--model", model,
               "--batch", str(batch), "--ranks", str(ranks), "--threads", str(threads), "--seconds", str(args.seconds),
               "--amp", args.amp, *VARIANTS[variant]]
    result = last_json(command) or last_json(command)  # Gloo's threads abort one in some starts of several ranks
    if result:  # a text is one sample here
        result["samples_per_s"] = batch * ranks * 1000 / result["step_ms"]
    return result


def run_engine(case, args):
    model, batch, ranks, threads = case
    result = last_json([os.environ["ENGINE_BINARY"], "bench", "step", "--model", model, "--batch", str(batch), "--ranks",
                        str(ranks), "--threads", str(threads), "--seconds", str(args.seconds), "--amp", args.amp,
                        "--format", "json"])
    if result and (result["batch_per_rank"], result["ranks"], result["threads"]) != (batch, ranks, threads):
        sys.exit(f"engine measured another case than {case}: {result}")
    return result


def processor():
    fields = {}
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    sets = {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd"} & set(fields.get("flags", fields.get("Features", "")).split())
    return f"{fields.get('model name', platform.machine())} ({', '.join(sorted(sets))}), {os.cpu_count()} cores"


def multiply_adds(threads):
    """GFLOP/s of independent float32 multiply-adds at this moment: what one and two cores give varies with other users."""
    result = last_json([os.environ["ENGINE_BINARY"], "bench", "kernels", "--threads", str(threads), "--op", "dense_forward",
                        "--model", "mlp", "--seconds", "0.01", "--format", "json"])
    return result["ceiling_gflops"] if result else float("nan")


def measure(case, args):
    """The best variant of the peer, and per round (engine's samples/s, peer's samples/s)."""
    tried = {}
    variants = [v for v in VARIANTS if not (args.uncompiled and "compiled" in v)
                and not (case[0] in ("mlp", "gpt-nano") and "channels-last" in v)]  # these have no channels
    for variant in variants * 2:  # the better of two tries: a slow moment of the machine decides nothing
        result = run_peer(case, variant, args)
        if result:
            tried[variant] = max(tried.get(variant, 0), result["samples_per_s"])
    if not tried:
        sys.exit("the peer ran in no variant")
    best = max(tried, key=tried.get)
    print(case, {k: round(v) for k, v in tried.items()}, file=sys.stderr)
    if args.peer_only:
        return best, [(None, tried[best])], []
    rounds, rates = [], []
    for i in range(args.rounds):
        rates.append((multiply_adds(1), multiply_adds(2)))
        ours = run_engine(case, args)
        theirs = run_peer(case, best, args)
        if not ours or not theirs:
            sys.exit("a run failed")
        rounds.append((ours["samples_per_s"], theirs["samples_per_s"]))
        print(f"  round {i + 1}: engine {rounds[-1][0]:.0f}, peer {rounds[-1][1]:.0f} samples/s, "
              f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return best, rounds, rates


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", default="", help="models, separated by commas")
    parser.add_argument("--amp", choices=["off", "bf16"], default="off", help="bf16: beside PyTorch's autocast")
    parser.add_argument("--peer-only", action="store_true")
    parser.add_argument("--uncompiled", action="store_true", help="leave out torch.compile, which takes minutes to start")
    args = parser.parse_args()
    import torch  # only for its version

    wanted = args.only.split(",") if args.only else [case[0] for case in CASES]
    unknown = set(wanted) - {case[0] for case in CASES}
    if unknown:
        parser.error(f"no case of model {', '.join(sorted(unknown))}")
    cases = [case for case in CASES if case[0] in wanted]
    rows = [(case, *measure(case, args)) for case in cases]

    version = "not measured"
    if not args.peer_only:
        version = subprocess.run([os.environ["ENGINE_BINARY"], "version"], stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
    print(f"{datetime.date.today()}, {processor()}; {version}; PyTorch {torch.__version__}. "
          f"Medians of {1 if args.peer_only else args.rounds} rounds of {args.seconds:g} s.\n")
    print("| model | batch a rank | ranks x threads | engine, samples/s | PyTorch, samples/s | PyTorch's best variant | ratio (min to max) | "
          "multiply-adds on 1; 2 cores, GF/s |")
    print("|---|---|---|---|---|---|---|---|")
    for (model, batch, ranks, threads), variant, rounds, rates in rows:
        theirs = statistics.median(r[1] for r in rounds)
        ours, ratio, cores = "-", "-", "-"
        if not args.peer_only:
            ours = f"{statistics.median(r[0] for r in rounds):,.0f}"
            ratios = [r[0] / r[1] for r in rounds]
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            cores = "; ".join(f"{statistics.median(column):.0f}" for column in zip(*rates))
        print(f"| {model} | {batch} | {ranks} x {threads} | {ours} | {theirs:,.0f} | {variant} | {ratio} | {cores} |")


if __name__ == "__main__":
    main()
