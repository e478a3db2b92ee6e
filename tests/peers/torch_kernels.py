#!/usr/bin/env python3
"""PyTorch's products (cuBLAS), convolutions (cuDNN) and attention, alone, at the shapes of `engine bench kernels`: of --set gemm and
conv, and of --op attention.

Usage: torch_kernels.py [--device cuda] [--set gemm,conv,attention] [--dtype bf16,tf32,f32] [--sizes 512,1024] [--batch 128]
                        [--shape TEXT] [--seconds 0.2]
One line of JSON for each: op, shape (both as `engine bench kernels` names them), dtype, ms (of a call, the median of rounds),
tflops. gemm is a b^T, as a dense layer computes it. Attention is causal, by scaled_dot_product_attention, and its gradient; there
are a quarter as many texts as --batch says. Convolutions are channels_last, with cudnn.benchmark, without bias. f32 is
without tensor cores, tf32 with them, both on f32 operands. Each round is many calls between two CUDA events, from one captured
graph where that works, as the engine's are; values are random. Exits with 77 where there is no PyTorch, or none that sees the
device.
"""
import argparse
import json
import statistics
import sys
import time

SIZES = "512,1024,2048,4096,8192"
CONVOLUTIONS = [  # side, channels in and out, kernel, stride, padding
    (32, 3, 64, 3, 1, 1),
    (32, 64, 64, 3, 1, 1),
    (32, 64, 128, 3, 2, 1),
    (16, 128, 128, 3, 1, 1),
    (8, 256, 256, 3, 1, 1),
    (4, 512, 512, 3, 1, 1),
    (32, 64, 256, 1, 1, 0),
    (8, 1024, 256, 1, 1, 0),
]
ATTENTIONS = [(64, 128, 4), (128, 192, 6), (256, 768, 12)]  # tokens, width, heads


def gemm_cases(sizes):
    for n in sizes:
        yield "gemm", f"{n}x{n}x{n}", 2.0 * n**3, lambda make, n=n: product(make(n, n), make(n, n), make(n, n))


def product(a, b, out):
    import torch
    return lambda: torch.matmul(a, b.t(), out=out)


def conv_cases(batch):
    for side, cin, cout, kernel, stride, padding in CONVOLUTIONS:
        place = (side + 2 * padding - kernel) // stride + 1
        shape = f"{batch}x{side}x{side}x{cin}->{cout} k{kernel} s{stride}"
        flops = 2.0 * batch * place * place * cout * kernel * kernel * cin
        for op, mask in (("forward", None), ("backward_data", (True, False, False)), ("backward_weights", (False, True, False))):
            if op == "backward_data" and cin == 3:
                continue  # the first layer's input has no gradient

            def build(make, op=op, mask=mask, sizes=(side, place, cin, cout, kernel, stride, padding)):
                return convolution(make, batch, sizes, mask)
            yield "conv2d_" + op, shape, flops, build


def convolution(make, batch, sizes, mask):
    import torch
    side, place, cin, cout, kernel, stride, padding = sizes
    x, weight = make(batch, cin, side, side), make(cout, cin, kernel, kernel)
    if mask is None:
        return lambda: torch.nn.functional.conv2d(x, weight, None, stride, padding)
    dy, pair = make(batch, cout, place, place), lambda v: [v, v]
    return lambda: torch.ops.aten.convolution_backward(dy, x, weight, None, pair(stride), pair(padding), [1, 1], False, [0, 0], 1,
                                                       mask)


def attention_cases(batch):
    for tokens, width, heads in ATTENTIONS:
        texts = max(batch // 4, 1)
        shape = f"{texts}x{tokens}x{width} h{heads}"
        pairs = texts * heads * tokens * (tokens + 1) / 2
        for op, flops in (("forward", 4 * pairs * (width // heads)), ("backward", 10 * pairs * (width // heads))):
            def build(make, op=op, sizes=(texts, heads, tokens, width // heads)):
                return attention(make, sizes, op == "backward")
            yield "causal_attention_" + op, shape, flops, build


def attention(make, sizes, backward):
    """The gradient is timed with the forward pass, whose time is then subtracted: a captured graph must hold both."""
    import torch
    q, k, v, dy = (make(*sizes).contiguous().requires_grad_(backward) for _ in range(4))

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        with torch.enable_grad():
            return torch.autograd.grad(forward(), (q, k, v), dy)
    return (both, forward) if backward else forward


def captured(call, inner):
    """`inner` calls as one CUDA graph, or None where they cannot be captured."""
    import torch
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(inner):
                call()
        return graph.replay
    except RuntimeError as error:
        print(f"no graph: {error}", file=sys.stderr)
        torch.cuda.synchronize()
        return None


def median_seconds(call, device, seconds):
    """Of a call. Rounds of many calls: the first ones choose algorithms and do not count."""
    import torch
    cuda = device.startswith("cuda")
    finish = torch.cuda.synchronize if cuda else (lambda: None)
    for _ in range(3):
        call()
    finish()
    start = time.perf_counter()
    call()
    finish()
    once = max(time.perf_counter() - start, 1e-7)
    inner = min(max(int(0.025 * seconds / once), 1), 1000)
    rounds = min(max(int(seconds / (inner * once)), 3), 41)

    def plain():
        for _ in range(inner):
            call()
    many = (captured(call, inner) if cuda else None) or plain
    many()
    finish()
    each = []
    for _ in range(rounds):
        if cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            many()
            end.record()
            end.synchronize()
            each.append(begin.elapsed_time(end) / 1e3 / inner)
        else:
            start = time.perf_counter()
            many()
            each.append((time.perf_counter() - start) / inner)
    return statistics.median(each)


def measure(args, dtype):
    import torch
    tf32 = dtype == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    stored = torch.bfloat16 if dtype == "bf16" else torch.float32

    def make(*shape):
        values = (torch.rand(shape, device=args.device) * 2 - 1).to(stored)
        return values.to(memory_format=torch.channels_last) if len(shape) == 4 else values
    cases = []
    if "gemm" in args.set:
        cases += gemm_cases(args.sizes)
    if "conv" in args.set:
        cases += conv_cases(args.batch)
    if "attention" in args.set:
        cases += attention_cases(args.batch)
    for op, shape, flops, build in cases:
        if args.shape not in shape:
            continue
        with torch.no_grad():
            call = build(make)
            call, less = call if isinstance(call, tuple) else (call, None)
            seconds = median_seconds(call, args.device, args.seconds)
            if less:
                seconds = max(seconds - median_seconds(less, args.device, args.seconds), 1e-9)
        print(json.dumps({"op": op, "shape": shape, "dtype": dtype, "ms": float(f"{seconds * 1e3:.5g}"),
                          "tflops": float(f"{flops / seconds / 1e12:.4g}")}), flush=True)


def main():
    def words(text):
        return text.split(",")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda")
    p.add_argument("--set", type=words, default=["gemm", "conv"])
    p.add_argument("--dtype", type=words, default=["bf16", "tf32", "f32"])
    p.add_argument("--sizes", type=lambda text: [int(word) for word in words(text)], default=SIZES)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--shape", default="", help="only shapes with this in their text")
    p.add_argument("--seconds", type=float, default=0.2, help="measuring time of each")
    args = p.parse_args()
    if set(args.set) - {"gemm", "conv", "attention"} or set(args.dtype) - {"bf16", "tf32", "f32"}:
        p.error("--set is gemm, conv or attention, --dtype bf16, tf32 or f32")
    try:
        import torch
    except ImportError:
        print("skipped: no PyTorch", file=sys.stderr)
        return 77
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        print("skipped: this PyTorch sees no CUDA device", file=sys.stderr)
        return 77
    torch.manual_seed(0)
    for dtype in args.dtype:
        measure(args, dtype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
