#!/usr/bin/env python3
"""tests/gpu/compiled_kernels.py on kernels made for it: what it must notice, what it must let pass, and what accepts a change.

Usage: tests/gpu/compiled_kernels_test.py      exits with 77 (skipped) without nvcc or nvdisasm
"""
import subprocess
import sys
import tempfile
from pathlib import Path

GATE = Path(__file__).resolve().parent / "compiled_kernels.py"
KERNELS = """
#include "engine/ops/toy/step.h"
__global__ void __launch_bounds__(256) copy(const float4* from, float4* to) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void __launch_bounds__(BOUNDS) sums(const float* from, int n, float* to) {
  float s[48] = {};
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int j = 0; j < 48; ++j) s[j] = fmaf(s[j], from[i * 48 + j], step(j));
#pragma unroll
  for (int j = 0; j < 48; ++j) to[threadIdx.x * 48 + j] = s[j];
}
"""
# Sums of products that are under way are read: ptxas has each waited for.
SERIALIZED = """
__global__ void __launch_bounds__(128) products(unsigned long long a, unsigned long long b, int steps, float* to) {
  float s[4] = {};
  for (int i = 0; i < steps; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    TOUCH
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) to[threadIdx.x * 4 + i] = s[i];
}
"""
temporary = tempfile.TemporaryDirectory()
root = Path(temporary.name)
folder = root / "engine/ops/toy"
folder.mkdir(parents=True)


def write(bounds="256", kernels=KERNELS, step="1.0f + j"):
    (folder / "toy_cuda.cu").write_text(kernels.replace("BOUNDS", bounds))
    (folder / "step.h").write_text(f"__device__ inline float step(int j) {{ return {step}; }}\n")


def gate(*options):
    done = subprocess.run([sys.executable, GATE, "--root", root, "--table", root / "table.csv", *options],
                          capture_output=True, text=True)
    print(done.stdout + done.stderr)
    return done.returncode, done.stdout


def expect(status, *texts, options=()):
    found, output = gate(*options)
    missing = [text for text in texts if text not in output]
    if found != status or missing:
        sys.exit(f"expected {status} and {texts}, got {found}")


write()
if "1 skipped" in gate("--update")[1]:
    sys.exit(77)
table = (root / "table.csv").read_text()
assert "toy_cuda.cu" in table and ",copy," in table and ",sums," in table, table
expect(0, "0 kernels of 0 files")
expect(0, "2 passed, 0 failed", options=["--all"])
write(kernels="// said otherwise\n" + KERNELS)
expect(0, "2 kernels of 1 files", "2 passed, 0 failed")
# Twice as many threads as have registers: values are spilled.
write(bounds="1024, 2")
expect(1, "toy_cuda.cu: sums: threads 256 -> 1024", "registers", "spilled 0 -> ", "--update", "1 passed, 1 failed")
# Loads of 4 bytes instead of 16.
write(kernels=KERNELS.replace("const float4* from, float4* to) { to[threadIdx.x] = from[threadIdx.x]; }",
                              "const float* from, float* to) { for (int i = 0; i < 4; ++i) "
                              "to[threadIdx.x * 5 + i] = from[threadIdx.x * 5 + i]; }"))
expect(1, "toy_cuda.cu: copy: ", "global_16 1 -> 0")
expect(0, options=["--update"])
expect(0, "0 kernels of 0 files")
# A header, on which the loop depends.
write(step="sinf(clock() + j)")
expect(1, "sums: ", "loop ")
write(kernels=KERNELS.replace("copy", "copies"))
expect(1, "copies: not in the table", "copy: in the table, but not there any more")
expect(0, options=["--update"])
write(kernels=KERNELS + SERIALIZED.replace("TOUCH", "to[i] = s[0];"))
expect(1, "toy_cuda.cu: ", "instructions are serialized due to", "ptxas serializes wgmma", "2 passed, 1 failed")
expect(1, "ptxas serializes wgmma", options=["--update"])
write(kernels=KERNELS + SERIALIZED.replace("TOUCH", 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'))
expect(0, options=["--update"])
print("all as expected")
