"""Makes the stored loss traces of regressions, of several labels and of weighted classes in tests/parity/data with PyTorch, in float64.

Usage: python3 tests/parity/regression_traces.py  (needs torch and numpy)

regression_parity_test.cc trains on the same table from the same weights: the formulas are there, too.
"""
import pathlib

import numpy
import torch

ROWS, FEATURES, HIDDEN, BATCH, STEPS, RATE, MOMENTUM = 48, 3, 8, 12, 24, 0.02, 0.9


def table():
    x = numpy.array([[((r * 17 + c * 29) % 41) / 8 for c in range(FEATURES)] for r in range(ROWS)])
    y = 40 + 3 * x[:, 0] - 2 * x[:, 1] + x[:, 0] * x[:, 2]
    return x, y


def standardized(values):
    return ((values - values.mean(0)) / numpy.sqrt(((values - values.mean(0)) ** 2).mean(0))).astype(numpy.float32)


def weights(count, salt):
    return torch.tensor([((i * 37 + salt) % 101 - 50) / 128 for i in range(count)], dtype=torch.float64)


def labels():
    """Two labels of 0 or 1 for each row; NaN: unknown."""
    x, y = table()
    flags = numpy.stack([3 * x[:, 0] > 2 * x[:, 1] + 2, x[:, 0] * x[:, 2] > 5], 1).astype(float)
    flags[numpy.arange(ROWS) % 5 == 3, 1] = numpy.nan
    return torch.tensor(flags)


def classes():
    x, _ = table()
    return torch.tensor((x[:, 0] + x[:, 2]).astype(int) % 3)


def bce(positive_weights):
    def loss(logits, flags):
        known = ~flags.isnan()
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, flags.nan_to_num(), pos_weight=positive_weights, reduction="none")
        return losses[known].sum() / known.sum()
    return loss


def trace(loss_function, targets=None):
    x, y = (torch.tensor(standardized(v)).double() for v in table())
    y = y[:, None] if targets is None else targets
    outputs = y.shape[1] if y.dim() == 2 else 3
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, outputs)).double()
    with torch.no_grad():
        for salt, parameter in enumerate(model.parameters()):
            parameter.copy_(weights(parameter.numel(), salt).reshape(parameter.shape))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    losses = []
    for step in range(STEPS):
        rows = slice(step * BATCH % ROWS, step * BATCH % ROWS + BATCH)
        loss = loss_function(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


for name, function, targets in (
        ("mse", torch.nn.MSELoss(), None), ("mae", torch.nn.L1Loss(), None), ("huber", torch.nn.HuberLoss(), None),
        ("bce", bce(None), labels()),
        ("bce-weighted", bce(torch.tensor([1.3, 0.7], dtype=torch.float64)), labels()),
        ("ce-weighted", torch.nn.CrossEntropyLoss(weight=torch.tensor([0.3, 2.1, 1.1], dtype=torch.float64)), classes())):
    path = pathlib.Path(__file__).parent / "data" / f"regression-{name}-f64.txt"
    lines = [f"# regression-{name}-f64: PyTorch {torch.__version__}, batch {BATCH}, --lr {RATE} --momentum {MOMENTUM}"]
    path.write_text("\n".join(lines + [repr(loss) for loss in trace(function, targets)]) + "\n")
