// Values whose dimensions lie in the engine's tensors in any order (OnnxPlain): changes of shape
// without layers, and the layers that move numbers where another one needs them in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/shape.h"
#include "models/onnx_translation/onnx_operator.h"

namespace models {

// The most dimensions of a layer's output.
inline constexpr std::size_t kMaxOnnxDimensions = engine::Shape::kMaxRank - 1;

// The axes of each dimension that a layer's output should have; none: an extent of 1.
using OnnxGroups = std::vector<std::vector<int>>;

// The same value with layout kPlain, and with its own layout if it has one.
OnnxActivation as_plain(const OnnxActivation& value);
OnnxActivation as_special(OnnxActivation value);

// ONNX's shape of a plain value.
std::vector<std::int64_t> shape_of(const OnnxPlain& plain);
// The axes of the layer's dimensions.
OnnxGroups stored_groups(const OnnxPlain& plain);
std::int64_t extent_of(const OnnxPlain& plain, const std::vector<int>& axes);

// Cuts an axis in two, the first of them with this extent; returns the number of the first.
int split_axis(OnnxPlain& plain, int axis, std::int64_t first);
// Gives ONNX's dimensions other extents; one may be -1. Returns false if the axes cannot
// be cut so.
bool reshape_plain(OnnxPlain& plain, const std::vector<std::int64_t>& to, std::int64_t fixed_batch);
// Cuts the axes of dimension `dim` of both values alike; false if they differ.
bool refine_plain(OnnxPlain& a, OnnxPlain& b, std::size_t dim);
// Whether both have the same places of layers' outputs of one shape in the same dimensions: the
// same order and the same selected entries. Factors may differ.
bool has_same_places(OnnxPlain a, OnnxPlain b);
// Whether the value has all numbers of the layer's output in their order, without a factor.
bool is_whole_output(const OnnxPlain& plain);

// All of the following add layers if they have to. The result has layout kPlain and the same
// dimensions.
// Without selected entries and factor.
OnnxActivation materialized(OnnxOperator& op, OnnxActivation value);
// With the layer's output in this order. REQUIRES: each axis is in one group.
OnnxActivation ordered(OnnxOperator& op, OnnxActivation value, const OnnxGroups& groups);
// With these dimensions as the last one of the layer's output.
OnnxActivation with_last(OnnxOperator& op, OnnxActivation value, const std::vector<int>& axes);
// With dimension `dim` as one axis, which is a dimension of the layer's output of its own; returns
// that in `place`.
OnnxActivation with_axis(OnnxOperator& op, OnnxActivation value, std::size_t dim,
                         std::size_t& place);
// With the dimensions of an image in the engine's order.
OnnxActivation as_image(OnnxOperator& op, const OnnxActivation& value);
// With runs of axes between the batch in ONNX's order, each as one axis.
OnnxActivation in_order(OnnxOperator& op, OnnxActivation value);

// Replaces the axes of the layer's last dimension, which are dimension `dim`, by one of this
// extent.
void replace_last(OnnxPlain& plain, std::size_t dim, std::int64_t extent);
// Removes an axis that belongs to no dimension any more from a layer's output.
void remove_axis(OnnxPlain& plain, int axis);
// Adds an axis that belongs to no dimension yet.
void insert_axis(OnnxPlain& plain, int axis, std::int64_t extent);

// A constant as the output of a layer `parameter` or `constant`.
OnnxActivation constant_value(OnnxOperator& op, std::size_t index);
// A parameter, by OnnxOperator::constant(), as the output of a layer `parameter`, and computed
// numbers as that of a `constant`.
OnnxActivation parameter_value(OnnxOperator& op, OnnxConstant stored);
OnnxActivation tensor_value(OnnxOperator& op, OnnxTensor tensor);
// The input as a plain value; a constant becomes a layer.
OnnxActivation plain_input(OnnxOperator& op, std::size_t index);
// Sets the node's output to a plain value, with its own layout if it has one.
void set_plain(OnnxOperator& op, OnnxActivation value, std::size_t output = 0);

// The dimension that an axis of ONNX names; below 0 it counts from the end.
std::size_t dimension_of(std::int64_t axis, std::size_t rank);

}  // namespace models
