#!/usr/bin/env python3
"""Writes gpt_reference.txt, what mingpt_test.cc compares with: losses of training steps and logits of gpt-nano in float64.

Usage: gpt_reference.py PEER.py       PEER.py defines class Gpt in PyTorch
Weights follow the formula of pytorch_reference.py, with the parameters in minGPT's order (in a block ln_1, attn, ln_2, mlp);
tokens and labels the formulas below. The test repeats them.
"""
import pathlib
import sys

import torch
import torch.nn.functional as F

import pytorch_reference as reference

COUNT, STEPS, RATE, VOCABULARY, CONTEXT = 3, 4, 0.05, 65, 64


def fill(model):
    class Ordered:  # what reference.fill() asks of a model
        def named_parameters(self):
            rank = {"ln_1": 0, "attn": 1, "ln_2": 2, "mlp": 3}
            named = list(model.named_parameters())
            block = [i for i, (name, _) in enumerate(named) if ".h." in name]
            named[block[0]:block[-1] + 1] = sorted(named[block[0]:block[-1] + 1], key=lambda item: (
                int(item[0].split(".")[2]), rank[item[0].split(".")[3]]))
            return named

    reference.fill(Ordered())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    model = reference.load_peer(sys.argv[1]).Gpt().double()
    fill(model)
    i = torch.arange(COUNT * CONTEXT, dtype=torch.int64).reshape(COUNT, CONTEXT)
    x, y = (i * i + 31 * i) % VOCABULARY, (7 * i + 3) % VOCABULARY
    with open(pathlib.Path(__file__).parent / "gpt_reference.txt", "w") as out:
        for position in (0, 17, 63):  # of the last sample, before training
            out.write(" ".join(["logits", str(position)] + [f"{v:.17g}" for v in model(x)[-1, position].tolist()]) + "\n")
        for decay in (0.0, 0.1):
            losses = []
            fill(model)
            optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=decay)
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x).reshape(-1, VOCABULARY), y.reshape(-1))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            out.write(" ".join(["losses", str(decay)] + [f"{v:.17g}" for v in losses]) + "\n")


if __name__ == "__main__":
    main()
