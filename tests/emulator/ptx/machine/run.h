// Runs a decoded kernel, block after block.
#pragma once

#include <cstddef>

#include "tests/emulator/ptx/decode/ptx_program.h"
#include "tests/emulator/simt/simt.h"

namespace ptx {

struct Schedule {
  // 0: warps take turns in their order, and copies and products arrive when they are waited for.
  // Else: warps in an order by chance, now and then after a few instructions only; copies may
  // arrive at once.
  std::uint32_t seed = 0;
};

// Whether this processor has what the interpreter is compiled for.
bool can_run();

// `parameters` is laid out as Program::parameters says. Throws Fault, which names the instruction.
// `cluster`: the launch's attribute, where the kernel is not compiled for one.
void run(const Program& program, const std::byte* parameters, simt::Index grid, simt::Index block,
         std::size_t shared_bytes, Schedule schedule, simt::Index cluster = {});

}  // namespace ptx
