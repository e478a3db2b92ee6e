// Computed constants: their elements in another order, shape or type. The number of elements is
// limited.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/onnx_translation/onnx_operator.h"

namespace models {

using OnnxFold = OnnxTensor (*)(OnnxOperator& op);  // computes the output of a node

// Counts elements that are computed. Throws OnnxUnsupported above the limit of all of them.
void count_computed(OnnxOperator& op, std::size_t elements);
// A tensor of zeros, which is counted before it is allocated.
OnnxTensor zeros(OnnxOperator& op, const std::vector<std::int64_t>& shape, bool is_real);
std::size_t count_of(const OnnxTensor& tensor);
void copy_element(const OnnxTensor& from, std::size_t i, OnnxTensor& to, std::size_t k);
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape);

// Calls `visit(k, offset)` for each element k of `shape`, with the offset that these strides give.
void for_each_element(const std::vector<std::int64_t>& shape,
                      const std::vector<std::int64_t>& strides, std::int64_t first,
                      const std::function<void(std::size_t, std::size_t)>& visit);
// A copy of the elements that shape, strides and the first offset name.
OnnxTensor strided(OnnxOperator& op, const OnnxTensor& from, const std::vector<std::int64_t>& shape,
                   const std::vector<std::int64_t>& strides, std::int64_t first = 0);

// NumPy's rule.
std::vector<std::int64_t> broadcast_shape(const std::vector<std::int64_t>& a,
                                          const std::vector<std::int64_t>& b);
OnnxTensor expanded(OnnxOperator& op, const OnnxTensor& from,
                    const std::vector<std::int64_t>& shape);

// Throws OnnxUnsupported for an unknown extent.
OnnxTensor as_reals(OnnxTensor tensor);
// Converts the elements to ONNX's type 1 or 11 (floats), 6 or 7 (integers), or 9 (booleans).
OnnxTensor converted(OnnxOperator& op, OnnxTensor all, std::int64_t type);

// Returns the index from 0 of an entry, which may be counted from the end. Throws OnnxUnsupported
// if there is none.
std::int64_t checked_entry(std::int64_t index, std::int64_t extent);

}  // namespace models
