// Runs kernels of PTX that are written by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/gpu/cuda_runtime.h"
#include "tests/emulator/ptx/decode/module.h"
#include "tests/emulator/ptx/machine/run.h"

namespace ptx {

// Runs kernels of one parameter, an array of 32-bit numbers in device memory.
class Ptx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_run()) GTEST_SKIP() << "the processor lacks AVX2";
  }
  // `body` finds the array's address in %rd0, the thread's number in %r0 and the address of its
  // element in %rd1. The fault's text, or nothing.
  std::string run(const std::string& body, unsigned threads = 32, std::size_t shared_bytes = 0,
                  std::uint32_t seed = 0, unsigned blocks = 1) {
    const Module module("hand.ptx",
                        ".version 9.0\n.target sm_90a\n.address_size 64\n"
                        ".extern .shared .align 128 .b8 engine_block_shared[];\n"
                        ".entry hand(\n.param .u64 hand_param_0\n)\n{\n"
                        ".reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .f32 %f<40>;\n"
                        ".reg .b64 %rd<20>; .reg .f64 %d<9>;\n"
                        "ld.param.u64 %rd0, [hand_param_0];\nmov.u32 %r0, %tid.x;\n"
                        "mul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd1, %rd0, %rd1;\n" +
                            body + "\nret;\n}\n");
    std::string fault;
    std::unique_ptr<Program> program;
    try {
      program = module.decode("hand");
    } catch (const Fault& f) {
      return f.what();
    }
    const std::size_t bytes = values.size() * sizeof(values[0]);
    void* device = base::cuda::allocate(bytes);
    if (prepare) prepare(device);
    {
      const base::cuda::Stream stream;
      base::cuda::copy_async(device, values.data(), bytes, stream.handle());
      simt::enqueue(stream.handle(), [&] {
        std::byte parameter[8];
        std::memcpy(parameter, &device, 8);
        try {
          ptx::run(*program, parameter, {blocks, 1, 1}, {threads, 1, 1}, shared_bytes, {seed},
                   {cluster, 1, 1});
        } catch (const Fault& f) {
          fault = f.what();
        }
      });
      base::cuda::copy_async(values.data(), device, bytes, stream.handle());
      stream.synchronize();
    }
    base::cuda::release(device);
    return fault;
  }
  void expect_fault(const std::string& part, const std::string& body, unsigned threads = 32,
                    std::size_t shared_bytes = 0) {
    const std::string fault = run(body, threads, shared_bytes);
    EXPECT_NE(fault.find(part), std::string::npos) << fault << "\n" << body;
  }
  // What `body` leaves in %r1 of each thread.
  std::vector<std::uint32_t> results(const std::string& body) {
    EXPECT_EQ(run(body + "\nst.global.u32 [%rd1], %r1;", 32, shared_bytes_of_results), "") << body;
    return values;
  }
  void expect_result(std::uint32_t expected, const std::string& body) {
    EXPECT_EQ(results(body)[5], expected) << body;
  }

  std::vector<std::uint32_t> values = std::vector<std::uint32_t>(32);
  std::function<void(void* device)> prepare;  // the values, when their place is known
  unsigned cluster = 1;
  std::size_t shared_bytes_of_results = 0;  // of a kernel of results()
};

inline const std::string kSharedPlace =
    "mov.u32 %r10, engine_block_shared; shl.b32 %r11, %r0, 2; add.s32 %r12, %r10, %r11; ";

}  // namespace ptx
