// Measures NVIDIA's matrix products for comparison in `engine bench kernels`: cuBLASLt, loaded at
// run time if it is installed. It is not used elsewhere.
//
// ENGINE_CUBLASLT_LIBRARY names the file, or "none"; else the system's search path is searched for
// libcublasLt.so.13 and .12, starting with the CUDA runtime's version.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/core/dtype.h"
#include "engine/ops/common/kernel_context.h"

namespace tools {

// The product c [m, n] = a b, row-major and dense: a is [m, k] if a_by_depth, else [k, m]; b is [n,
// k] if b_by_depth, else [k, n].
struct PlainProduct {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_by_depth = true, b_by_depth = true;
};

struct ProductOperands {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  engine::DType type, result;  // type: a and b; result: c
};

class CublasLt {
 public:
  // Returns null if there is no library, with the reason in `missing`. Throws io::ConfigError if
  // the file that ENGINE_CUBLASLT_LIBRARY names cannot be used. The handle belongs to the calling
  // thread's device.
  static std::unique_ptr<CublasLt> load(std::string& missing);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  std::string description() const;  // e.g. "cuBLASLt 13.0.2 (/usr/lib/libcublasLt.so.13)"

  // Returns a call that enqueues the product on `stream`, with the first algorithm of cuBLASLt's
  // heuristic. Null if it has none for these operands. Operands and `this` outlive it.
  std::function<void()> product(const PlainProduct& shape, const ProductOperands& operands,
                                engine::Products products, void* stream);

 private:
  struct Library;
  CublasLt();
  std::unique_ptr<Library> library_;
};

}  // namespace tools
