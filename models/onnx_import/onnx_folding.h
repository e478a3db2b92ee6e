// Arithmetic on constants while a file is read. The number of elements is limited.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/onnx_import/onnx_operator.h"

namespace models {

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

// A sum, product ... of integers, which may be extents that are no numbers: kOnnxUnknown for what
// cannot be computed.
std::int64_t computed_extent(const std::string& type, std::int64_t a, std::int64_t b);
// Throws OnnxUnsupported for a condition that depends on an unknown extent.
void expect_known_choice(const OnnxTensor& condition);

// The functions by operator.
using OnnxFold = OnnxTensor (*)(OnnxOperator& op);
std::map<std::string, OnnxFold> onnx_arithmetic();
std::map<std::string, OnnxFold> onnx_constant_movements();
std::map<std::string, OnnxFold> onnx_constant_entries();  // onnx_tokens/ has these

// Converts the elements to ONNX's type 1 or 11 (floats), 6 or 7 (integers), or 9 (booleans).
OnnxTensor converted(OnnxOperator& op, OnnxTensor all, std::int64_t type);

}  // namespace models
