#!/usr/bin/env python3
"""Data-parallel training in PyTorch that goes on when ranks die, for elastic_recovery.py: torchrun's way and torchft's.

Usage: torchrun ... elastic_torch.py ddp --done FILE --state FILE    the state is saved every 20 steps and loaded at the start
       elastic_torch.py torchft --done FILE                          one replica group; TORCHFT_LIGHTHOUSE, REPLICA_GROUP_ID

The same model (784-512-512-10), optimizer (SGD with momentum) and batch (25 samples on each of four ranks) for both, with one
thread. Appends one line of JSON for each step that is done: step, time, group (another one after each change), ranks.
"""
import argparse
import datetime
import json
import os
import time

import torch
import torch.distributed as dist

BATCH = 25
SAVE_EVERY = 20


class Log:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def step(self, step, group, ranks):
        line = {"step": step, "time": time.time(), "group": group, "ranks": ranks}
        os.write(self.file, (json.dumps(line) + "\n").encode())


def make_model():
    torch.manual_seed(0)
    layers = torch.nn
    return layers.Sequential(layers.Linear(784, 512), layers.ReLU(), layers.Linear(512, 512), layers.ReLU(),
                             layers.Linear(512, 10))


class Samples:
    def __init__(self, rank):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.rand(6000, 784, generator=generator)
        self.labels = torch.randint(10, (6000,), generator=generator)
        self.rank = rank
        self.epoch, self.order = -1, None

    def batch(self, step):
        steps = len(self.labels) // (4 * BATCH)
        if step // steps != self.epoch:
            self.epoch = step // steps
            self.order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(self.epoch))
        begin = (step % steps * 4 + self.rank) * BATCH
        chosen = self.order[begin:begin + BATCH]
        return self.images[chosen], self.labels[chosen]


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train_ddp(options):
    group = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    # The agent's store still has the addresses of the workers before, to which some would connect: names of our own.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(f"attempt {group}", store), rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]))
    rank, log = dist.get_rank(), Log(options.done)
    module, step = make_model(), 0
    model = torch.nn.parallel.DistributedDataParallel(module)
    optimizer = optimizer_of(module)
    if os.path.exists(options.state):
        saved = torch.load(options.state)
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    samples = Samples(rank)
    while True:
        images, labels = samples.batch(step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        step += 1
        if rank == 0:
            log.step(step, group, dist.get_world_size())
        if rank == 0 and step % SAVE_EVERY == 0:
            state = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, options.state + ".new")
            os.replace(options.state + ".new", options.state)


def train_torchft(options):
    import torchft
    rank, log = int(os.environ["REPLICA_GROUP_ID"]), Log(options.done)
    module = make_model()
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    optimizer = None

    def load(state):
        module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    # As torchft's example train_ddp.py; its default transport, HTTP.
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=5)), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": module.state_dict(), "optimizer": optimizer.state_dict()}, rank=0, world_size=1,
        store_addr="localhost", store_port=store.port, hostname="localhost", replica_id=f"replica_{rank}",
        timeout=datetime.timedelta(seconds=30))
    model = torchft.DistributedDataParallel(manager, module)
    optimizer = torchft.Optimizer(manager, optimizer_of(module))
    samples = Samples(rank)
    while True:
        before = manager.current_step()
        images, labels = samples.batch(before)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        # A step that heals jumps; what it jumps over was done by others.
        if manager.current_step() > before:
            log.step(manager.current_step(), manager._quorum_id, manager.num_participants())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=["ddp", "torchft"])
    parser.add_argument("--done", required=True)
    parser.add_argument("--state", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.way == "ddp":
        train_ddp(options)
    else:
        train_torchft(options)


if __name__ == "__main__":
    main()
