// The entry points of libFuzzer, for the target named by FUZZ_TARGET.
#include <algorithm>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::FUZZ_TARGET({data, size});
  return 0;
}

#ifdef FUZZ_REPAIR
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (seed % 8 == 0) return size;  // wrong sums too
  std::vector<std::uint8_t> bytes(data, data + size);
  fuzz::FUZZ_REPAIR(bytes);
  std::copy(bytes.begin(), bytes.end(), data);
  return size;
}
#endif
