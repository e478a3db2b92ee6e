// Sums and products of any values, their functions, means and maxima, as layers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/onnx_translation/onnx_operator.h"

namespace models {

// A layer that expands its inputs to one shape, as NumPy does.
struct OnnxElementwise {
  const char* kind;
  std::vector<std::pair<std::string, std::string>> options = {};
};

// A sum, difference, product or quotient of two values, by the kind of layer.
OnnxActivation combined(OnnxOperator& op, const char* kind, OnnxActivation a, OnnxActivation b);
// The same of any number of values, which the layer reads in this order.
OnnxActivation combined_all(OnnxOperator& op, const OnnxElementwise& layer,
                            std::vector<OnnxActivation> values);
// Adds a layer `activation` with this function.
void add_function(OnnxOperator& op, OnnxActivation& value, const std::string& function);
// A mean, sum, maximum ... over these axes.
void translate_reduction(OnnxOperator& op, const std::vector<std::int64_t>& axes);
// The logarithm of the sum of powers of e over these axes.
void translate_log_sum_exp(OnnxOperator& op, const std::vector<std::int64_t>& axes);
// The mean over the height and width of an image, or of one pixel; keeps_axes: with extents of 1.
OnnxActivation global_average(OnnxOperator& op, OnnxActivation value, bool keeps_axes);

}  // namespace models
