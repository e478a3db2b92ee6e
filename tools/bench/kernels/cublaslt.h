// NVIDIA's matrix products beside this program's in `engine bench kernels`: cuBLASLt, loaded at run
// time where there is one. Nothing else uses it.
//
// ENGINE_CUBLASLT_LIBRARY names the file, or "none"; else the system's search path is searched for
// libcublasLt.so.13 and .12, those of the CUDA runtime's version first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/core/dtype.h"
#include "engine/ops/common/kernel_context.h"

namespace tools {

// c [m, n] = a b, row-major and dense: a is [m, k] where a_by_depth, else [k, m]; b is [n, k] where
// b_by_depth, else [k, n].
struct PlainProduct {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_by_depth = true, b_by_depth = true;
};

struct ProductOperands {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  engine::DType type, result;  // of a and b; of c
};

class CublasLt {
 public:
  // Null where there is no library, with the reason in `missing`. Throws io::ConfigError where the
  // file that ENGINE_CUBLASLT_LIBRARY names cannot be used. The handle is the calling thread's
  // device's.
  static std::unique_ptr<CublasLt> load(std::string& missing);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  std::string description() const;  // "cuBLASLt 13.0.2 (/usr/lib/libcublasLt.so.13)"

  // A call enqueues the product on `stream`, by the algorithm that cuBLASLt's heuristic names
  // first. Null where it has none for these operands. Operands and `this` outlive it.
  std::function<void()> product(const PlainProduct& shape, const ProductOperands& operands,
                                engine::Products products, void* stream);

 private:
  struct Library;
  CublasLt();
  std::unique_ptr<Library> library_;
};

}  // namespace tools
