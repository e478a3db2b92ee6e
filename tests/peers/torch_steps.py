#!/usr/bin/env python3
"""Whole training steps of the engine's models in PyTorch: forward, loss, backward, update, on one device.

Usage: torch_steps.py --model gpt2 --batch 16 [--variants eager,compiled] [--amp bf16|tf32|off] [--device cuda]
                      [--optimizer sgd|adamw] [--seconds 2] [--warmup 10] [--size 224] [--threads 1]
       torch_steps.py --parameters          the number of parameters of each of the engine's models, without training
One line of JSON for each variant: model, batch, variant, amp, step_ms (the median of rounds of steps), samples_per_second,
loss. Variants: eager; channels_last (images in NHWC); compiled (torch.compile); graphs (the same, with CUDA graphs:
mode="reduce-overhead"). Words are joined by "+": channels_last+compiled. A variant that fails is reported on stderr and the next
one runs; then the exit code is 1. bf16 is autocast with parameters in float32, as the engine's --amp bf16; tf32 allows TF32 in
products and convolutions, off allows it in neither. Samples are random, always the same, and stay on the device. Text models have
no dropout, attention is scaled_dot_product_attention, and the output layer is tied to the embedding. Exits with 77 if there is no
PyTorch, or none that sees the device.
The networks of torchvision (IMPORTED) need torchvision, and have no Dropout and no stochastic depth, as in imported_steps.py.
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    print("skipped: no PyTorch", file=sys.stderr)
    sys.exit(77)


def conv(cin, cout, kernel, stride=1):
    return nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)


def normed(*parts):
    """A convolution and the batch norm of its output."""
    layer = conv(*parts)
    return nn.Sequential(layer, nn.BatchNorm2d(layer.out_channels))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def convnet():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 5, padding=2), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*stage(1, 16), *stage(16, 32), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


class Residual(nn.Module):
    """relu(branch(x) + shortcut(x)). The branch is two 3x3 convolutions, or 1x1, 3x3, 1x1 if `expansion` is 4."""

    def __init__(self, cin, width, stride, expansion):
        super().__init__()
        cout = width * expansion
        if expansion == 1:
            self.branch = nn.Sequential(normed(cin, width, 3, stride), nn.ReLU(), normed(width, cout, 3))
        else:
            self.branch = nn.Sequential(normed(cin, width, 1), nn.ReLU(), normed(width, width, 3, stride), nn.ReLU(),
                                        normed(width, cout, 1))
        self.shortcut = nn.Identity() if stride == 1 and cin == cout else normed(cin, cout, 1, stride)

    def forward(self, x):
        return F.relu(self.branch(x) + self.shortcut(x))


def resnet(stem, depths, expansion, classes):
    layers, cin = list(stem), 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for block in range(depth):
            layers.append(Residual(cin, width, 2 if stage > 0 and block == 0 else 1, expansion))
            cin = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))


def resnet18_cifar():
    return resnet([normed(3, 64, 3), nn.ReLU()], [2, 2, 2, 2], 1, 10)


def resnet50():
    return resnet([normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], [3, 4, 6, 3], 4, 1000)


class TextBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        texts, tokens, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(texts, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.joined(y.transpose(1, 2).reshape(texts, tokens, width))
        return x + self.mlp(self.before_mlp(x))


class TextModel(nn.Module):
    """GPT-2's: learned positions, layer norm before each branch, output tied to the embedding."""

    def __init__(self, vocabulary, context, layers, heads, width):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[TextBlock(width, heads) for _ in range(layers)])
        self.last = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        return F.linear(self.last(self.blocks(x)), self.tokens.weight)


IMPORTED = ("resnet18", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b_16", "resnext50_32x4d",
            "regnet_y_400mf")  # of torchvision


def imported(name):
    """A network of torchvision with random weights that draws no random numbers in a step."""
    import torchvision
    model = torchvision.models.get_model(name, weights=None)
    random = (nn.Dropout, torchvision.ops.StochasticDepth)
    for module in list(model.modules()):
        for child, layer in list(module.named_children()):
            if isinstance(layer, random):
                setattr(module, child, nn.Identity())
    return model


MODELS = {  # how it is made; the shape of an image, or vocabulary and context
    "mlp": (mlp, (1, 28, 28), 10),
    "convnet": (convnet, (1, 28, 28), 10),
    "resnet18-cifar": (resnet18_cifar, (3, 32, 32), 10),
    "resnet50": (resnet50, (3, 224, 224), 1000),
    "gpt-nano": (lambda: TextModel(65, 64, 4, 4, 128), 64, 65),
    "gpt2": (lambda: TextModel(50257, 1024, 12, 12, 768), 1024, 50257),
    **{name: (lambda name=name: imported(name), (3, 224, 224), 1000) for name in IMPORTED},
}


def samples(args):
    """Inputs and labels: images and classes, or token ids and those that come next."""
    _, shape, classes = MODELS[args.model]
    if isinstance(shape, tuple):
        if args.size:
            shape = (shape[0], args.size, args.size)
        return torch.randn(args.batch, *shape, device=args.device), torch.randint(classes, (args.batch,), device=args.device)
    text = torch.randint(classes, (args.batch, (args.context or shape) + 1), device=args.device)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def optimizer_of(args, parameters):
    fused = args.device.startswith("cuda")
    if args.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-4, fused=fused)
    return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, fused=fused)


def training_step(args, words):
    """A function that does one step and returns its loss."""
    torch.manual_seed(0)
    model = MODELS[args.model][0]().to(args.device)
    x, labels = samples(args)
    if "channels_last" in words:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = optimizer_of(args, model.parameters())
    if "graphs" in words:
        model = torch.compile(model, mode="reduce-overhead")
    elif "compiled" in words:
        model = torch.compile(model)
    kind = args.device.partition(":")[0]

    def step():
        with torch.autocast(kind, torch.bfloat16, enabled=args.amp == "bf16"):
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss
    return step


def measure(args, variant):
    step = training_step(args, variant.split("+"))
    finish = torch.cuda.synchronize if args.device.startswith("cuda") else (lambda: None)
    for _ in range(args.warmup):  # compiles, chooses algorithms, fills caches
        loss = step()
    finish()
    start = time.perf_counter()
    loss = step()
    finish()
    # Rounds of about a twentieth of the time, so that waiting for the device is rare; at least five of them.
    inner = max(1, int(args.seconds / 20 / max(time.perf_counter() - start, 1e-6)))
    rounds, end = [], time.perf_counter() + args.seconds
    while len(rounds) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(inner):
            loss = step()
        finish()
        rounds.append((time.perf_counter() - start) / inner)
    seconds = statistics.median(rounds)
    return {"peer": "torch", "version": torch.__version__, "model": args.model, "batch": args.batch, "variant": variant,
            "amp": args.amp, "step_ms": float(f"{seconds * 1e3:.5g}"), "samples_per_second": float(f"{args.batch / seconds:.5g}"),
            "loss": float(f"{loss.item():.5g}")}


def set_precision(amp):
    torch.set_float32_matmul_precision("highest" if amp == "off" else "high")
    torch.backends.cudnn.allow_tf32 = amp != "off"
    torch.backends.cudnn.benchmark = True


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=MODELS, default="mlp")
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--context", type=int, default=0, help="tokens of a text; by default the model's")
    p.add_argument("--variants", default="eager")
    p.add_argument("--size", type=int, default=0, help="height and width of an image; by default the model's")
    p.add_argument("--threads", type=int, default=0, help="threads of a CPU; by default PyTorch's choice")
    p.add_argument("--amp", choices=["bf16", "tf32", "off"], default="bf16")
    p.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    p.add_argument("--device", default="cuda")
    p.add_argument("--seconds", type=float, default=2.0, help="measuring time of each variant")
    p.add_argument("--warmup", type=int, default=10, help="steps before that")
    p.add_argument("--parameters", action="store_true")
    args = p.parse_args()
    for word in args.variants.replace("+", ",").split(","):
        if word not in ("eager", "channels_last", "compiled", "graphs"):
            p.error(f"--variants: '{word}' is not eager, channels_last, compiled or graphs")
    return args


def main():
    args = parse()
    if args.parameters:
        for name, (make, _, _) in MODELS.items():
            if name not in IMPORTED:
                print(name, sum(parameter.numel() for parameter in make().parameters()))
        return 0
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        print("skipped: this PyTorch sees no CUDA device", file=sys.stderr)
        return 77
    set_precision(args.amp)
    if args.threads:
        torch.set_num_threads(args.threads)
    failed = 0
    for variant in args.variants.split(","):
        try:
            print(json.dumps(measure(args, variant)), flush=True)
        except Exception as error:  # out of memory, no compiler: the others are still measured
            failed = 1
            print(f"{args.model} {variant}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        if args.device.startswith("cuda"):
            torch.cuda.empty_cache()
        torch.compiler.reset()
    return failed


if __name__ == "__main__":
    sys.exit(main())
