// Convolution on a CUDA device. conv2d.h describes and conv2d.cc checks the operands. x, y, weight,
// dy and dx are stored as f32, bf16, f16 or f64; bias, dweight and dbias as f32, or as f64.
#pragma once

#include <cstddef>
#include <type_traits>

#include "engine/core/tensor_view.h"
#include "engine/ops/conv2d/conv2d_operands.h"
#include "engine/ops/float64/conv2d_f64_cuda.h"
#include "engine/ops/gemm/gemm_plan.h"

namespace engine::ops::cuda {

// Never decreases with n.
std::size_t conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n, DType dtype);

// Without a plan (tile 0) plan_on_device() makes one, which does not split k for forward and data;
// with a plan, scratch must have the size that it needs. In f64 there is no plan, and groups are
// allowed.
void conv2d_forward(KernelContext& context, const Conv2dForward& o, GemmPlan plan = {});
void conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o, GemmPlan plan = {});
void conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o,
                             GemmPlan plan = {});

// The same for several groups. All products and sums are f32, whatever context.products is.
std::size_t grouped_conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n,
                                         DType dtype);
void grouped_conv2d_forward(KernelContext& context, const Conv2dForward& o);
void grouped_conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o);
void grouped_conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o);

inline bool is_depthwise(const Conv2dGeometry& g) {
  return g.in_channels == g.groups && g.out_channels == g.groups;
}
inline std::int64_t ins_of(const Conv2dGeometry& g) { return g.in_channels / g.groups; }
inline std::int64_t outs_of(const Conv2dGeometry& g) { return g.out_channels / g.groups; }

// The sizes of a convolution in float64, which has kernels for any number of groups.
inline ConvF64 conv_f64(const Conv2dGeometry& g, std::int64_t n) {
  return {n,        g.in_h,    g.in_w,    ins_of(g), g.kernel_h, g.kernel_w,
          g.stride, g.padding, g.out_h(), g.out_w(), outs_of(g), g.groups};
}

// How the kernels of several groups divide the weights: the part of a tap's [in / groups, out] that
// a thread reads or sums at once, and the number of adjacent taps along a row.
struct GroupCut {
  int ins = 1, outs = 1, taps = 1;
};
inline GroupCut group_cut(const Conv2dGeometry& g, std::size_t element_bytes, bool aligned) {
  if (!aligned) return {};
  if (!is_depthwise(g)) return {ins_of(g) % 4 == 0 ? 4 : 1, outs_of(g) % 4 == 0 ? 4 : 1};
  const int pack = static_cast<int>(16 / element_bytes);
  if (g.out_channels % pack != 0) return {};
  if (g.stride != 1) return {1, pack};
  for (const int taps : {7, 5, 3})
    if (g.kernel_w % taps == 0) return {1, pack, taps};
  return {1, pack};
}

// Calls call(std::integral_constant<int, N>) for the N among the options that is `number`.
template <int... kOptions, class Call>
void with_number(int number, Call call) {
  (void)((number == kOptions && (call(std::integral_constant<int, kOptions>{}), true)) || ...);
}

// Calls call(pack, taps) for the cut of a depthwise layer.
template <class T, class Call>
void with_depthwise_cut(const GroupCut& cut, Call call) {
  constexpr int kPack = static_cast<int>(16 / sizeof(T));
  if (cut.outs == 1)
    return call(std::integral_constant<int, 1>{}, std::integral_constant<int, 1>{});
  with_number<1, 3, 5, 7>(cut.taps,
                          [&](auto taps) { call(std::integral_constant<int, kPack>{}, taps); });
}

}  // namespace engine::ops::cuda
