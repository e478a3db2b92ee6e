// Windows along height and width: the attributes of nodes, images of one row, and windows that no
// layer has, as entries of rows and columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/onnx_translation/onnx_operator.h"

namespace models {

struct OnnxWindows {
  std::vector<std::int64_t> kernel, strides, dilations;  // of height and width
  std::vector<std::int64_t> pads;  // top, left, bottom, right; empty until set_same_pads()

  // The number of places that a window covers along an axis: at most 2^60.
  std::int64_t reach(std::size_t axis) const { return dilations[axis] * (kernel[axis] - 1) + 1; }
};

// Input 0, an image [batch, channels, height, width]; or [batch, channels, length] as an image of
// one row; or a constant image, which all samples share; or, if `several` is true, several images
// of each sample, [6 batch, channels, height, width], below each other as one.
struct OnnxWindowInput {
  OnnxActivation value;
  bool is_row = false, is_shared = false;
  // The extents of the dimension of several images, with kOnnxBatch for the samples; else empty.
  std::vector<std::int64_t> images{};

  std::int64_t image_count() const;  // 1 for one image
};
OnnxWindowInput window_input(OnnxOperator& op, bool several = false);
// The node's output: again without the row or the samples that `from` was given, and as several
// images, of which `rows` rows are windows inside of them.
void set_windows(OnnxOperator& op, const OnnxWindowInput& from, OnnxActivation value,
                 std::int64_t rows = 0);

// The attributes of the node. `kernel`, of height and width, replaces a kernel_shape that is
// missing. Throws OnnxUnsupported for numbers that are out of range.
OnnxWindows window_attributes(OnnxOperator& op, const std::vector<std::int64_t>& kernel,
                              bool is_row);
// Puts the rows of pads between several images, so that a window reads one of them, and takes these
// pads from `windows`. Each image then has a number of rows that the stride divides.
OnnxActivation spread_images(OnnxOperator& op, const OnnxWindowInput& from, OnnxWindows& windows);
// Sets the pads that auto_pad leaves to an image of [height, width].
void set_same_pads(OnnxOperator& op, const std::vector<std::int64_t>& image, OnnxWindows& windows);
// Cuts pads in two: the first is the smaller one for SAME_UPPER, else the second.
void set_pads_along(OnnxOperator& op, std::size_t axis, std::int64_t total, OnnxWindows& windows);

void expect_onnx_extent(std::int64_t extent);  // throws OnnxUnsupported above kMaxOnnxExtent
// Throws unless there are `count` numbers from `least` on.
void expect_numbers(const char* name, const std::vector<std::int64_t>& values, std::size_t count,
                    std::int64_t least);
// Equal numbers as one.
std::string number_or_list(const std::vector<std::int64_t>& values);

// For each number of an axis, the entries of the old axis that it is computed from.
struct OnnxEntries {
  std::vector<std::int64_t> entries;  // [numbers, taps]
  std::vector<double> weights{};      // [numbers, taps]; empty: the largest entry
  std::int64_t taps = 1;

  std::int64_t numbers() const { return static_cast<std::int64_t>(entries.size()) / taps; }
};
// Replaces an axis of an image, 0: its rows, 1: its columns, by sums or maxima of entries.
OnnxActivation with_entries(OnnxOperator& op, OnnxActivation image, std::size_t axis,
                            const OnnxEntries& along);
// Multiplies an image [h, w, c] by numbers [h, w].
OnnxActivation scaled_pixels(OnnxOperator& op, OnnxActivation image, std::vector<double> factors);

}  // namespace models
