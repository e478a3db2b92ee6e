"""A script of PyTorch as users have it, which does not import engine_torch: DistributedDataParallel, started by torchrun.

Usage: torchrun ... ddp_script.py BACKEND STEPS
"""
import hashlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(backend, steps):
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        inputs = torch.randn(16, 32, generator=torch.Generator().manual_seed(step * world + rank))
        labels = (inputs[:, :16].sum(1) > 0).long()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 20:
            print("trains", flush=True)
    parameters = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    sys.stdout.write(f"parameters {hashlib.sha256(parameters).hexdigest()}\n")
    dist.destroy_process_group()


main(sys.argv[1], int(sys.argv[2]))
