#!/usr/bin/env python3
"""Writes a small U-Net whose output is a map of logits, data for it, and PyTorch's losses and scores.

Usage: torch_maps.py FOLDER     exits with 77 if a package is missing
train.npz and test.npz have labels of pixels, 255 where there is none; unet.onnx; expected.npz: the losses of 36 steps
of SGD in float64 over train.npz in its order, 8 samples a step, plain, with label smoothing and with weights of classes,
and loss, pixel accuracy and IoU of each class on test.npz after the plain ones.
"""
import copy
import pathlib
import sys
import warnings

try:
    import numpy
    import torch
except ImportError as error:
    print(error)
    sys.exit(77)

CLASSES, IGNORED, STEPS, BATCH, RATE = 3, 255, 36, 8, 0.5
WEIGHTS = [0.3, 1.1, 2.7]


class UNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down = torch.nn.Conv2d(2, 8, 3, padding=1)
        self.deep = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.up = torch.nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.joined = torch.nn.Conv2d(16, 8, 3, padding=1)
        self.head = torch.nn.Conv2d(8, CLASSES, 1)

    def forward(self, x):
        skipped = torch.relu(self.down(x))
        deep = torch.relu(self.deep(torch.nn.functional.max_pool2d(skipped, 2)))
        return self.head(torch.relu(self.joined(torch.cat([self.up(deep), skipped], 1))))


def part(samples, seed):
    """Unequal numbers of labels in the samples; the first has none."""
    random = numpy.random.default_rng(seed)
    x = random.normal(size=(samples, 2, 8, 12)).astype(numpy.float32)
    y = (x[:, 0] > 0.3).astype(numpy.uint8) + (x[:, 1] > 0.5).astype(numpy.uint8)
    y[random.random(y.shape) < random.random((samples, 1, 1))] = IGNORED
    y[0] = IGNORED
    return x, y


def trained(model, x, y, **options):
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=IGNORED, **options)
    losses = []
    for step in range(STEPS):
        first = step * BATCH % len(x)
        optimizer.zero_grad()
        loss = loss_of(model(x[first:first + BATCH]), y[first:first + BATCH])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def scores(model, x, y):
    with torch.no_grad():
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, y, ignore_index=IGNORED).item()
    predicted, counts = logits.argmax(1), y != IGNORED
    iou = []
    for c in range(CLASSES):
        label, guess = (y == c) & counts, (predicted == c) & counts
        iou.append((label & guess).sum().item() / max(1, (label | guess).sum().item()))
    return [loss, ((predicted == y) & counts).sum().item() / counts.sum().item(), *iou]


def main(folder):
    warnings.filterwarnings("ignore")
    data = {name: part(samples, seed) for name, samples, seed in (("train", 24, 1), ("test", 10, 2))}
    for name, (x, y) in data.items():
        numpy.savez(folder / f"{name}.npz", x=x, y=y)
    torch.manual_seed(0)
    model = UNet()
    torch.onnx.export(copy.deepcopy(model), (torch.zeros(1, 2, 8, 12),), str(folder / "unet.onnx"), dynamo=False,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, input_names=["x"],
                      dynamic_axes={"x": {0: "batch"}})
    model = model.double()
    tensors = {name: (torch.tensor(x).double(), torch.tensor(y).long()) for name, (x, y) in data.items()}
    after, plain = trained(model, *tensors["train"])
    smoothed = trained(model, *tensors["train"], label_smoothing=0.1)[1]
    weighted = trained(model, *tensors["train"], weight=torch.tensor(WEIGHTS, dtype=torch.float64))[1]
    numpy.savez(folder / "expected.npz", plain=plain, smoothed=smoothed, weighted=weighted,
                scores=scores(after, *tensors["test"]))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
