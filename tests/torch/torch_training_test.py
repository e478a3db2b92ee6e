#!/usr/bin/env python3
"""Trains with DistributedDataParallel and with shards of parameters (fully_shard) over "engine" and over Gloo: the losses are the same.

Usage: PEER_PYTHON=PYTHON tests/torch/torch_training_test.py BUILD_FOLDER     exits with 77 without PyTorch
A rank runs this file with RANK set; the word of the backend is all that differs. Two ranks add two numbers, which has one
result, so their losses are equal bit by bit; those of three ranks to the rounding of the order.
"""
import json
import os
import sys

import torch_ranks

STEPS = 12


def model_of(name):
    import torch
    from torch import nn
    torch.manual_seed(7)
    if name == "mlp":
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), (32,)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(),
                         nn.Linear(16 * 8 * 8, 10)), (1, 12, 12)


def wrapped(kind, model):
    if kind == "ddp":
        from torch.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(model, bucket_cap_mb=0.01)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    import torch.distributed as dist
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def run_rank(backend, kind, name):
    import torch
    import torch.distributed as dist
    import engine_torch  # noqa: F401  registers the backend
    dist.init_process_group(backend)
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    model, shape = model_of(name)
    model = wrapped(kind, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step * world + rank)
        inputs = torch.randn(16, *shape, generator=generator)
        labels = (inputs.flatten(1)[:, :16].sum(1) > 0).long()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / world)
    print("losses", json.dumps(losses))
    dist.destroy_process_group()


def losses_of(build, backend, kind, name, world):
    outputs = torch_ranks.run_ranks(build, __file__, world, [backend, kind, name])
    found = [json.loads(line[len("losses "):]) for output in outputs for line in output.splitlines() if line.startswith("losses ")]
    assert len(found) == world and all(losses == found[0] for losses in found), outputs
    return found[0]


def main(build):
    torch_ranks.require_torch()
    for kind, name, world in (("ddp", "mlp", 2), ("ddp", "convnet", 2), ("ddp", "mlp", 3), ("fsdp", "mlp", 2)):
        ours, theirs = (losses_of(build, backend, kind, name, world) for backend in ("engine", "gloo"))
        assert ours[-1] < ours[0] and len(ours) == STEPS
        if world == 2:
            assert ours == theirs, f"{kind} {name}: {ours}, Gloo: {theirs}"
        else:
            assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(ours, theirs)), f"{kind} {name}: {ours}, Gloo: {theirs}"
        print(f"{kind} of {name} on {world} ranks: {STEPS} losses as over Gloo, {ours[0]:.6f} to {ours[-1]:.6f}")


if __name__ == "__main__":
    if "RANK" in os.environ and len(sys.argv) == 4:
        run_rank(*sys.argv[1:])
    else:
        main(sys.argv[1])
