// Functions of CUDA's driver on the CPU, which programs ask the runtime for.
#include <cudaTypedefs.h>

#include <cstdio>
#include <cstring>

#include "tests/emulator/runtime/fake_machine.h"
#include "tests/emulator/runtime/tensor_map.h"

namespace {

unsigned bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
  }
  return 0;
}

fake::TensorElement element_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
      return fake::TensorElement::kF16;
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return fake::TensorElement::kBf16;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return fake::TensorElement::kF32;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return fake::TensorElement::kF64;
    default:
      return fake::TensorElement::kInteger;
  }
}

// Where a driver only says "invalid value", the reason is on stderr.
CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
                      const cuuint32_t* element_stride, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
                      CUtensorMapFloatOOBfill fill) {
  const fake::TensorElement element = element_of(type);
  const fake::TensorRequest request{bytes_of(type),
                                    element,
                                    element != fake::TensorElement::kInteger,
                                    rank,
                                    reinterpret_cast<std::uint64_t>(address),
                                    size,
                                    stride,
                                    box,
                                    element_stride,
                                    static_cast<unsigned>(interleave),
                                    static_cast<unsigned>(swizzle),
                                    static_cast<unsigned>(l2),
                                    static_cast<unsigned>(fill)};
  std::string refused = fake::refusal(request);
  if (reinterpret_cast<std::uintptr_t>(map) % 64 != 0)
    refused = "the map's own address is not aligned to 64 bytes";
  if (!refused.empty()) {
    std::fprintf(stderr, "emulated driver: cuTensorMapEncodeTiled: %s\n", refused.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  const fake::TensorMap made = fake::tensor_map_of(request);
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                        unsigned version, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* result) {
  ENGINE_MAY_FAIL(cudaErrorInvalidValue);
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  *function = nullptr;
  if (std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0) {
    found = cudaDriverEntryPointVersionNotSufficent;
    if (version >= 12000) {
      found = cudaDriverEntryPointSuccess;
      const PFN_cuTensorMapEncodeTiled_v12000 typed = encode_tiled;
      *function = reinterpret_cast<void*>(typed);
    }
  }
  if (result != nullptr) *result = found;
  return cudaSuccess;
}
