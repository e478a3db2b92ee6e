#!/usr/bin/env python3
"""Makes optimizer_reference.txt: what every optimizer makes of fixed parameters and gradients.

Usage: tests/engine/optim/optimizer_reference.py >tests/engine/optim/optimizer_reference.txt

Plain Python in float64, without any package, written from the papers' descriptions:
  SGD     torch.optim.SGD's documentation, with Nesterov momentum
  Lion    Chen et al., 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2
  AdamW   Loshchilov and Hutter, 2019, "Decoupled Weight Decay Regularization"
  Muon    Jordan et al., 2024, https://kellerjordan.github.io/posts/muon, with AdamW for what is no
          hidden matrix
Parameters are listed in the order of PyTorch's layouts; optimizer_parity_test.cc fills its own in the
same way.
"""
import math

# name, shape, whether Muon takes it
PARAMETERS = [("in.weight", (4, 2), False), ("tall.weight", (7, 3), True), ("tall.bias", (7,), False),
              ("conv.weight", (4, 2, 3, 3), True), ("wide.weight", (3, 8), True), ("out.bias", (3,), False)]
STEPS, SCALE = 4, 0.7


def value(salt, i):
    return ((i * 37 + salt * 11) % 64 - 31.5) / 64


def gradient(salt, i, t):
    return ((i * 29 + i * i * 3 + t * 17 + salt * 7) % 128 - 63.5) / 128


def rate(base, t):
    return base * (1 - t / 10)


def lion(w, gradients, lr, beta1=0.9, beta2=0.99, decay=0.1):
    m = [0.0] * len(w)
    for t, g in enumerate(gradients, 1):
        for i in range(len(w)):
            c = beta1 * m[i] + (1 - beta1) * g[i]
            sign = (c > 0) - (c < 0)
            w[i] = w[i] * (1 - rate(lr, t) * decay) - rate(lr, t) * sign
            m[i] = beta2 * m[i] + (1 - beta2) * g[i]
    return w


def sgd(w, gradients, lr, momentum=0.9, decay=0.1):
    v = [0.0] * len(w)
    for t, g in enumerate(gradients, 1):
        for i in range(len(w)):
            d = g[i] + decay * w[i]
            v[i] = momentum * v[i] + d
            w[i] -= rate(lr, t) * (d + momentum * v[i])
    return w


def adamw(w, gradients, lr, beta1=0.9, beta2=0.95, eps=1e-10, decay=0.1):
    m, v = [0.0] * len(w), [0.0] * len(w)
    for t, g in enumerate(gradients, 1):
        for i in range(len(w)):
            m[i] = beta1 * m[i] + (1 - beta1) * g[i]
            v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i]
            step = (m[i] / (1 - beta1**t)) / (math.sqrt(v[i] / (1 - beta2**t)) + eps)
            w[i] = w[i] * (1 - rate(lr, t) * decay) - rate(lr, t) * step
    return w


def product(a, b):
    columns = list(zip(*b))
    return [[math.fsum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def combined(a, x, b, y):
    return [[a * p + b * q for p, q in zip(u, v)] for u, v in zip(x, y)]


def orthogonal(g, steps=5):
    rows, columns = len(g), len(g[0])
    x = [list(c) for c in zip(*g)] if rows > columns else g
    norm = math.sqrt(math.fsum(e * e for row in x for e in row)) + 1e-7
    x = [[e / norm for e in row] for row in x]
    for _ in range(steps):
        a = product(x, [list(c) for c in zip(*x)])
        b = combined(-4.7750, a, 2.0315, product(a, a))
        x = combined(3.4445, x, 1.0, product(b, x))
    return [list(c) for c in zip(*x)] if rows > columns else x


def muon(w, gradients, rows, lr, momentum=0.95, decay=0.1, nesterov=True):
    columns = len(w) // rows
    m = [0.0] * len(w)
    for t, g in enumerate(gradients, 1):
        m = [momentum * a + (1 - momentum) * b for a, b in zip(m, g)]
        u = [momentum * a + (1 - momentum) * b for a, b in zip(m, g)] if nesterov else m
        u = orthogonal([u[r * columns:(r + 1) * columns] for r in range(rows)])
        factor = math.sqrt(max(1, rows / columns))
        for i in range(len(w)):
            w[i] = w[i] * (1 - rate(lr, t) * decay) - rate(lr, t) * factor * u[i // columns][i % columns]
    return w


def inputs():
    for salt, (name, shape, hidden) in enumerate(PARAMETERS):
        count = math.prod(shape)
        yield (name, shape, hidden, [value(salt, i) for i in range(count)],
               [[SCALE * gradient(salt, i, t) for i in range(count)] for t in range(1, STEPS + 1)])


def case(name, optimizer, settings, result):
    """One case: the settings that are not the optimizer's defaults, then every parameter at the end."""
    print("case", name, optimizer, *(f"{option}={number}" for option, number in settings.items()))
    for parameter, shape, hidden, w, g in inputs():
        print(name, parameter, *(repr(v) for v in result(list(w), g, shape, hidden)))


DECAY = {"weight-decay": 0.1}
case("sgd", "sgd", {"lr": 0.1, "nesterov": 1, **DECAY}, lambda w, g, *_: sgd(w, g, 0.1))
case("adamw", "adamw", {"lr": 0.003, "adam-beta2": 0.95, "adam-eps": 1e-10, **DECAY},
     lambda w, g, *_: adamw(w, g, 0.003))
case("lion", "lion", {"lr": 0.01, **DECAY}, lambda w, g, *_: lion(w, g, 0.01))
for nesterov in (1, 0):
    case("muon" if nesterov else "muon-plain", "muon", {"muon-adam-lr": 0.003, "muon-nesterov": nesterov, **DECAY},
         lambda w, g, shape, hidden: muon(w, g, shape[0], 0.02, nesterov=nesterov) if hidden else adamw(w, g, 0.003))
