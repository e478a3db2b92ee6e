// Runs kernels as the PTX that nvcc made of them, behind the emulator of the GPU: with
// ENGINE_TEST_PTX=FOLDER each launch looks for its kernel there (interpreter.cc), decodes it when
// it is first launched (module.h), and runs it a warp at a time (run.h). ENGINE_TEST_PTX_SEED=N
// changes the order in which warps run and when asynchronous copies arrive.
//
// What it finds: wrong numbers, as the tests see them; accesses beyond an allocation or unaligned;
// accesses of shared memory by several warps that no barrier orders; copies and products that are
// not waited for; wgmma without its fences. It knows the instructions that the kernels have: any
// other is an error when the kernel is decoded.
#pragma once

#include <string>
#include <vector>

namespace ptx {

// The name by which the symbol of a kernel compiled by another compiler is compared: what compilers
// call an anonymous namespace is replaced.
std::string comparable(const std::string& mangled);

// A function of a loaded program or library: its mangled name, and the source file that its object
// file names, without folders; empty if it has none of its own.
struct Symbol {
  std::string name, source;
};
Symbol symbol_of(const void* function);  // name is empty: none

}  // namespace ptx
