#!/usr/bin/env python3
"""Compares every call of torch.distributed over "engine" with the same call over Gloo: types, reductions, shapes, 2 to 4 ranks.

Usage: PEER_PYTHON=PYTHON tests/torch/torch_collectives_test.py BUILD_FOLDER     exits with 77 without PyTorch
A rank runs this file with RANK set: it stores its results in a file, by the name of the case.
"""
import os
import sys
import tempfile

import torch_ranks

REDUCTIONS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
SHAPES = ((), (0,), (1,), (5,), (3, 4), (2, 3, 4), (1000,), (70001,))


def values(shape, dtype, rank, seed=0):
    """Numbers whose reductions are exact in every type, in any order."""
    import torch
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    numbers = torch.randint(0, 3, shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.double().flip(0) if shape else numbers.double()).to(dtype)
    return numbers.to(dtype)


class Cases:
    def __init__(self, backend):
        import torch
        import torch.distributed as dist
        self.torch, self.dist, self.results = torch, dist, {}
        self.rank, self.world, self.backend = dist.get_rank(), dist.get_world_size(), backend

    def keep(self, name, *tensors):
        self.results[name] = [tensor.clone().contiguous() for tensor in tensors]

    def types(self):
        t = self.torch
        return (t.float32, t.float64, t.float16, t.bfloat16, t.int8, t.uint8, t.int32, t.int64)

    def all_reduce(self):
        for dtype in self.types():
            for name in REDUCTIONS:
                if dtype.is_floating_point and name in ("BAND", "BOR", "BXOR"):
                    continue
                for shape in SHAPES:
                    tensor = values(shape, dtype, self.rank)
                    self.dist.all_reduce(tensor, getattr(self.dist.ReduceOp, name))
                    self.keep(f"all_reduce {dtype} {name} {shape}", tensor)
        tensor = values((4, 6), self.torch.float32, self.rank).t()
        self.dist.all_reduce(tensor)
        self.keep("all_reduce of a transposed tensor", tensor)
        works = []
        tensors = [values((100,), self.torch.float32, self.rank, seed) for seed in range(20)]
        for tensor in tensors:
            works.append(self.dist.all_reduce(tensor, async_op=True))
        for work in works:
            work.wait()
        self.keep("20 pending all_reduce", *tensors)
        tensor = values((8,), self.torch.float32, self.rank)
        future = self.dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
        self.keep("future of an all_reduce", future.wait())
        tensors = [values(shape, self.torch.float32, self.rank) for shape in ((3,), (2, 2), ())]
        self.dist.all_reduce_coalesced(tensors)
        self.keep("all_reduce_coalesced", *tensors)

    def rooted(self):
        for dtype in self.types():
            for root in range(self.world):
                tensor = values((3, 5), dtype, self.rank)
                self.dist.broadcast(tensor, root)
                self.keep(f"broadcast {dtype} {root}", tensor)
                tensor = values((7,), dtype, self.rank)
                self.dist.reduce(tensor, root)
                if self.rank == root:
                    self.keep(f"reduce {dtype} {root}", tensor)
                own = values((2, 3), dtype, self.rank)
                parts = [self.torch.empty_like(own) for _ in range(self.world)] if self.rank == root else None
                self.dist.gather(own, parts, root)
                self.keep(f"gather {dtype} {root}", *(parts or []))
                parts = [values((4,), dtype, self.rank, r) for r in range(self.world)] if self.rank == root else None
                own = self.torch.zeros(4, dtype=dtype)
                self.dist.scatter(own, parts, root)
                self.keep(f"scatter {dtype} {root}", own)

    def gathered(self):
        for dtype in self.types():
            for shape in ((), (0,), (1,), (3, 4), (5001,)):
                own = values(shape, dtype, self.rank)
                parts = [self.torch.empty_like(own) for _ in range(self.world)]
                self.dist.all_gather(parts, own)
                self.keep(f"all_gather {dtype} {shape}", *parts)
            own = values((3, 2), dtype, self.rank)
            whole = self.torch.empty((3 * self.world, 2), dtype=dtype)
            self.dist.all_gather_into_tensor(whole, own)
            self.keep(f"all_gather_into_tensor {dtype}", whole)
        parts = [None] * self.world
        self.dist.all_gather_object(parts, {"rank": self.rank, "text": "x" * self.rank})
        assert parts == [{"rank": r, "text": "x" * r} for r in range(self.world)], parts

    def scattered(self):
        for dtype in self.types():
            for name in ("SUM", "MIN", "MAX", "PRODUCT"):
                parts = [values((5,), dtype, self.rank, r) for r in range(self.world)]
                own = self.torch.empty(5, dtype=dtype)
                self.dist.reduce_scatter(own, parts, getattr(self.dist.ReduceOp, name))
                self.keep(f"reduce_scatter {dtype} {name}", own)
                whole = values((self.world * 3, 2), dtype, self.rank)
                before = whole.clone()
                own = self.torch.empty((3, 2), dtype=dtype)
                self.dist.reduce_scatter_tensor(own, whole, getattr(self.dist.ReduceOp, name))
                assert self.torch.equal(whole, before), "reduce_scatter_tensor has changed its input"
                self.keep(f"reduce_scatter_tensor {dtype} {name}", own)

    def exchanged(self):
        for dtype in self.types():
            own = values((2 * self.world, 3), dtype, self.rank)
            theirs = self.torch.empty_like(own)
            self.dist.all_to_all_single(theirs, own)
            self.keep(f"all_to_all_single {dtype}", theirs)
        sent = [r + 1 for r in range(self.world)]
        own = values((sum(sent), 2), self.torch.float32, self.rank)
        theirs = self.torch.empty(self.world * (self.rank + 1), 2)
        self.dist.all_to_all_single(theirs, own, [self.rank + 1] * self.world, sent)
        self.keep("all_to_all_single of unequal parts", theirs)
        # Equal parts on one rank only, as explicit sizes and as none.
        own = values((self.world,), self.torch.float32, self.rank)
        theirs = self.torch.empty_like(own)
        sizes = [1] * self.world if self.rank == 0 else None
        self.dist.all_to_all_single(theirs, own, sizes, sizes)
        self.keep("all_to_all_single of equal parts with and without sizes", theirs)
        if self.backend == "engine":  # Gloo has no list of tensors
            parts = [values((r + 1,), self.torch.float32, self.rank, r) for r in range(self.world)]
            theirs = [self.torch.empty(self.rank + 1) for _ in range(self.world)]
            self.dist.all_to_all(theirs, parts)
            for r, part in enumerate(theirs):
                assert self.torch.equal(part, values((self.rank + 1,), self.torch.float32, r, self.rank)), (r, part)

    def messages(self):
        t, d = self.torch, self.dist
        right, left = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        for shape in ((), (0,), (3,), (300_000,)):
            own, theirs = values(shape, t.float32, self.rank), t.empty(shape)
            for work in d.batch_isend_irecv([d.P2POp(d.isend, own, right), d.P2POp(d.irecv, theirs, left)]):
                work.wait()
            self.keep(f"ring of {shape}", theirs)
        # In the opposite order of their tags, and before the receptions are requested.
        sends = [d.isend(t.full((2,), float(10 * self.rank + tag)), right, tag=tag) for tag in (1, 2, 3)]
        for tag in (3, 1, 2):
            theirs = t.empty(2)
            d.recv(theirs, left, tag=tag)
            self.keep(f"tag {tag}", theirs)
        for work in sends:
            work.wait()
        if self.rank == 0:
            found = {}
            for _ in range(self.world - 1):
                theirs = t.empty(2, 4)
                sender = d.recv(theirs)
                found[sender] = theirs.clone()
            assert sorted(found) == list(range(1, self.world)), found
            self.keep("any source", *[found[r] for r in sorted(found)])
        else:
            d.send(values((2, 4), t.float32, self.rank), 0)

    def groups(self):
        d = self.dist
        for members in ([0, 1], [self.world - 1], list(range(1, self.world))):
            group = d.new_group(members)
            if self.rank in members:
                tensor = values((9,), self.torch.float32, self.rank)
                d.all_reduce(tensor, group=group)
                self.keep(f"group {members}", tensor)
                d.barrier(group)
            if len(members) == 2 and self.rank in members:
                d.destroy_process_group(group)
        d.barrier()
        d.monitored_barrier()

    def only_here(self):
        """What Gloo rejects or rounds otherwise."""
        t, d = self.torch, self.dist
        tensor = t.full((5,), float(self.rank))
        d.all_reduce(tensor, d.ReduceOp.AVG)
        assert t.equal(tensor, t.full((5,), (self.world - 1) / 2)), tensor
        tensor = t.tensor([self.rank == 0, False, True])
        d.all_reduce(tensor)
        assert tensor.tolist() == [True, False, True], tensor
        tensor = t.tensor([100], dtype=t.int8)
        d.all_reduce(tensor)
        assert tensor.item() == (100 * self.world + 128) % 256 - 128, tensor
        tensor = t.complex(t.ones(3), t.full((3,), float(self.rank)))
        d.all_reduce(tensor)
        assert tensor[0] == complex(self.world, sum(range(self.world))), tensor
        for dtype in (t.bool, t.complex64, t.int16):
            own, parts = values((3, 2), dtype, self.rank), [t.empty((3, 2), dtype=dtype) for _ in range(self.world)]
            d.all_gather(parts, own)
            assert all(t.equal(part, values((3, 2), dtype, r)) for r, part in enumerate(parts)), parts
            d.gather(own, parts if self.rank == 1 else None, 1)
            assert all(t.equal(part, values((3, 2), dtype, r)) for r, part in enumerate(parts)), parts
            d.broadcast(own, 1)
            assert t.equal(own, values((3, 2), dtype, 1)), own
        # Strided tensors, which Gloo rejects or sends in the order of memory.
        tensor = values((6, 4), t.float32, self.rank)[:, ::2]
        d.broadcast(tensor, 1)
        assert t.equal(tensor, values((6, 4), t.float32, 1)[:, ::2]), tensor
        right, left = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        theirs = t.zeros(4, 2).t()
        work = d.isend(values((4, 2), t.float32, self.rank).t(), right)
        d.recv(theirs, left)
        work.wait()
        assert t.equal(theirs, values((4, 2), t.float32, left).t()), theirs
        for wrong, kind in ((lambda: d.broadcast(t.ones(1), self.world), ValueError),
                            (lambda: d.all_reduce(t.ones(1), d.ReduceOp.BAND), ValueError),
                            (lambda: d.all_gather([t.ones(2)] * self.world, t.ones(3)), ValueError)):
            try:
                wrong()
            except kind:
                continue
            raise AssertionError(f"{kind.__name__} was expected")


def run_rank(backend, folder):
    import torch
    import torch.distributed as dist
    if backend == "engine":
        import engine_torch
        assert engine_torch.__doc__
    dist.init_process_group(backend)
    cases = Cases(backend)
    for part in (cases.all_reduce, cases.rooted, cases.gathered, cases.scattered, cases.exchanged, cases.messages, cases.groups):
        part()
    if backend == "engine":
        cases.only_here()
    torch.save(cases.results, f"{folder}/{backend}.{dist.get_rank()}")
    dist.destroy_process_group()


COMPARE = """
import sys, torch
folder, world = sys.argv[1], int(sys.argv[2])
count = 0
for rank in range(world):
    ours, theirs = (torch.load(f"{folder}/{name}.{rank}") for name in ("engine", "gloo"))
    assert ours.keys() == theirs.keys(), set(ours) ^ set(theirs)
    for name in ours:
        assert len(ours[name]) == len(theirs[name]), name
        for a, b in zip(ours[name], theirs[name]):
            assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b), f"rank {rank}, {name}: {a}, Gloo: {b}"
        count += 1
print(count, "results of", world, "ranks equal Gloo's")
"""


def main(build):
    import subprocess
    torch_ranks.require_torch()
    ways = ({}, {"ENGINE_LOCAL_STAGE": "off"}, {"ENGINE_LOCAL_STAGE": "off", "ENGINE_ENCRYPT": "on"})
    for world in (2, 3, 4):
        for variables in ways if world == 3 else ways[:1]:
            with tempfile.TemporaryDirectory() as folder:
                for backend in ("engine", "gloo"):
                    torch_ranks.run_ranks(build, __file__, world, [backend, folder], variables)
                subprocess.run([torch_ranks.PYTHON, "-c", COMPARE, folder, str(world)], check=True)


if __name__ == "__main__":
    if "RANK" in os.environ and len(sys.argv) == 3:
        run_rank(sys.argv[1], sys.argv[2])
    else:
        main(sys.argv[1])
