#!/usr/bin/env python3
"""Data-parallel training in PyTorch over slow links: DDP over Gloo, plain and with its PowerSGD hook, and torchft's DiLoCo.

Usage: link_emulator.py --hosts 2 --rate 10 --delay 25 -- PYTHON torch_links.py ddp --rank {rank} --world-size {world}
           --address {address} --interface data0
       The ways: ddp, powersgd (rank 4, compressed from the second step on), diloco (torchft, --sync-every K; outer SGD 0.7
       with Nesterov momentum 0.9), alone (one process without messages).

A gpt-nano of torch_steps.py, AdamW with lr 0.001, 16 texts of 64 tokens in a step, divided by the ranks, one thread. Rank 0 prints
a line of JSON: way, ranks, steps, step_ms (the mean of all steps after --warmup, averagings included) and sent_mb (of the
interface in these steps: every byte of every layer, acknowledgements included). Exits with 77 where PyTorch or torchft is missing.
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch_steps import MODELS
except ImportError:
    print("skipped: no PyTorch", file=sys.stderr)
    sys.exit(77)

TEXTS, TOKENS, VOCABULARY = 16, 64, 65


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("way", choices=["alone", "ddp", "powersgd", "diloco"])
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--world-size", type=int, default=1)
    p.add_argument("--address", default="127.0.0.1", help="of rank 0")
    p.add_argument("--interface", default="lo", help="by which the ranks send")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--sync-every", type=int, default=128)
    return p.parse_args()


def sent_bytes(interface):
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def training_step(model, optimizer, ranks):
    text = torch.randint(VOCABULARY, (TEXTS // ranks, TOKENS + 1))
    inputs, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).flatten(0, -2), labels.flatten()).backward()
        optimizer.step()
    return step


def measure(args, step):
    for _ in range(args.warmup):
        step()
    start, before = time.perf_counter(), sent_bytes(args.interface)
    for _ in range(args.steps):
        step()
    seconds, sent = time.perf_counter() - start, sent_bytes(args.interface) - before
    if args.rank == 0:
        print(json.dumps({"peer": "torch", "version": torch.__version__, "way": args.way, "ranks": args.world_size,
                          "steps": args.steps, "step_ms": round(seconds / args.steps * 1e3, 3), "sent_mb": round(sent / 1e6, 3)}),
              flush=True)


def make_module():
    torch.manual_seed(0)
    module = MODELS["gpt-nano"][0]()
    return module, torch.optim.AdamW(module.parameters(), lr=0.001)


def run_ddp(args):
    dist.init_process_group("gloo", init_method=f"tcp://{args.address}:29500", rank=args.rank, world_size=args.world_size)
    module, optimizer = make_module()
    if args.way == "powersgd":  # with several buckets, ranks may begin its sums in different orders, which Gloo does not bear
        dist._DEFAULT_FIRST_BUCKET_BYTES = 25 << 20
    model = torch.nn.parallel.DistributedDataParallel(module)
    if args.way == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
        model.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2),
                                 powerSGD_hook.powerSGD_hook)
    measure(args, training_step(model, optimizer, args.world_size))
    dist.destroy_process_group()


def run_diloco(args):
    try:
        import torchft
        from torchft.local_sgd import DiLoCo
    except ImportError:
        print("skipped: no torchft", file=sys.stderr)
        sys.exit(77)
    lighthouse = None
    if args.rank == 0:
        lighthouse = subprocess.Popen([str(pathlib.Path(sys.executable).parent / "torchft_lighthouse"), "--bind", "[::]:29510",
                                       "--min_replicas", str(args.world_size), "--join_timeout_ms", "10000"])
    time.sleep(1)
    os.environ["TORCHFT_LIGHTHOUSE"] = f"http://{args.address}:29510"
    own = args.address.rsplit(".", 1)[0] + f".{args.rank + 1}" if args.interface != "lo" else "127.0.0.1"
    if args.interface != "lo":  # torchft's Gloo listens where the host's name leads
        ctypes.CDLL(None).unshare(0x04000000)  # CLONE_NEWUTS
        socket.sethostname(own)
    try:
        module, optimizer = make_module()
        outer = torch.optim.SGD(module.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False)
        patience = datetime.timedelta(seconds=120)
        manager = torchft.Manager(
            pg=torchft.ProcessGroupGloo(timeout=patience), min_replica_size=args.world_size, use_async_quorum=False,
            load_state_dict=lambda state: module.load_state_dict(state["model"]),
            state_dict=lambda: {"model": module.state_dict()}, rank=0, world_size=1, store_addr=own, store_port=store.port,
            hostname=own, replica_id=f"replica_{args.rank}", timeout=patience, quorum_timeout=2 * patience)
        with DiLoCo(manager, [module], optimizer, outer, sync_every=args.sync_every):
            measure(args, training_step(module, optimizer, args.world_size))
        manager.shutdown(wait=False)
    finally:
        if lighthouse:
            lighthouse.terminate()


def main():
    args = parse()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = args.interface
    if args.way == "alone":
        module, optimizer = make_module()
        measure(args, training_step(module, optimizer, 1))
    elif args.way == "diloco":
        run_diloco(args)
    else:
        run_ddp(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
