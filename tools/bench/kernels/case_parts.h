// Helpers for writing the lists of cases.
#pragma once

#include <utility>
#include <vector>

#include "tools/bench/kernels/kernel_case.h"

namespace tools {

using Operands = std::vector<OperandSpec>;

inline OperandSpec out(const engine::Shape& shape) {
  return {shape, Storage::kActivation, Use::kOut};
}
inline OperandSpec vector(std::int64_t count, Use use = Use::kIn, double low = -1) {
  return {{count}, Storage::kVector, use, low};
}

inline KernelCase make_case(const char* op, const char* model, const engine::Shape& shape,
                            bool cuda, Operands operands, KernelCase::Call call) {
  KernelCase made;
  made.op = op;
  made.model = model;
  made.shape = extents_text(shape);
  made.cuda = cuda;
  made.operands = std::move(operands);
  made.call = std::move(call);
  return made;
}

}  // namespace tools
