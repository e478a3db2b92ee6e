// CUPTI's records, the parts that are read, as a library that plays CUPTI hands them over.
#pragma once

#include <cstdint>

namespace fake_cupti {

struct Kernel {  // CUpti_ActivityKernel10
  std::uint32_t kind = 10, cache_and_registers = 0, partitioning[2] = {};
  std::uint64_t start = 0, end = 0, completed = 0;
  std::uint32_t device = 0, context = 1, stream = 7;
  std::int32_t numbers[8] = {};
  std::uint32_t local[2] = {}, correlation = 0;
  std::int64_t grid = 0;
  const char* name = "_ZN6engine12_GLOBAL__N_111gemm_kernelIfLi128EEEvPKf";
  char more[80] = {};
};

struct Copy {  // CUpti_ActivityMemcpy6
  std::uint32_t kind = 1;
  std::uint8_t direction = 1, rest[3] = {};
  std::uint64_t bytes = 4096, start = 0, end = 0;
  std::uint32_t device = 0, context = 1, stream = 8;
  char more[60] = {};
};

struct Fill {  // CUpti_ActivityMemset4
  std::uint32_t kind = 2, value = 0;
  std::uint64_t bytes = 64, start = 0, end = 0;
  std::uint32_t device = 1, context = 2, stream = 7;
  char more[36] = {};
};

}  // namespace fake_cupti
