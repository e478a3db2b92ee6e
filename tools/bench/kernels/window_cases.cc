// Lists convolutions of any window, of networks for segmentation and from ONNX, and resizing.
#include "engine/ops/windows/resize.h"
#include "engine/ops/windows/window_conv2d.h"
#include "tools/bench/kernels/case_parts.h"

namespace tools {
namespace {

using engine::KernelContext;
using engine::Shape;
using Views = KernelCase::Views;
namespace k = engine::ops;

constexpr bool kWindowsOnCuda = true;

std::string axis_text(const k::WindowAxis& rows, const k::WindowAxis& columns,
                      std::int64_t k::WindowAxis::*part) {
  return std::to_string(rows.*part) + "x" + std::to_string(columns.*part);
}

// A transposed convolution is listed with its forward pass as backward_data, and the reverse.
void add_convolution(std::vector<KernelCase>& cases, const char* model, std::int64_t n,
                     const k::WindowConv2d& conv) {
  const k::WindowGeometry& g = conv.window;
  const Shape x{n, g.rows.extent, g.columns.extent, g.channels},
      y{n, g.rows.count(), g.columns.count(), conv.out_channels},
      weight{conv.out_channels, g.rows.kernel, g.columns.kernel, g.channels / conv.groups};
  const auto add = [&](const char* op, Operands operands, KernelCase::Call call) {
    KernelCase made = make_case(op, model, x, kWindowsOnCuda, std::move(operands), std::move(call));
    made.shape += "->" + std::to_string(conv.out_channels) + " k" +
                  axis_text(g.rows, g.columns, &k::WindowAxis::kernel) + " s" +
                  axis_text(g.rows, g.columns, &k::WindowAxis::stride) + " d" +
                  axis_text(g.rows, g.columns, &k::WindowAxis::dilation) + " g" +
                  std::to_string(conv.groups);
    made.flops = 2.0 * static_cast<double>(y.count()) *
                 static_cast<double>(weight.count() / conv.out_channels);
    made.scratch_bytes = [=](engine::DType dtype, int threads, engine::Device::Kind device,
                             engine::Products products) {
      return k::window_conv2d_scratch_bytes(conv, n, dtype, threads, device, products);
    };
    cases.push_back(std::move(made));
  };
  add("window_conv2d_forward", {{x}, {weight}, out(y)}, [conv](KernelContext& c, const Views& v) {
    k::window_conv2d_forward(c, {.conv = conv, .x = v[0], .weight = v[1], .y = v[2]});
  });
  add("window_conv2d_backward_data", {{y}, {weight}, out(x)},
      [conv](KernelContext& c, const Views& v) {
        k::window_conv2d_backward_data(c, {.conv = conv, .dy = v[0], .weight = v[1], .dx = v[2]});
      });
  add("window_conv2d_backward_weights", {{x}, {y}, {weight, Storage::kVector, Use::kOut}},
      [conv](KernelContext& c, const Views& v) {
        k::window_conv2d_backward_weights(c,
                                          {.conv = conv, .x = v[0], .dy = v[1], .dweight = v[2]});
      });
}

// Twice the size.
void add_resize(std::vector<KernelCase>& cases, const char* model, const Shape& x, bool linear) {
  const k::ResizeAxis rows{x[1], 2 * x[1], 0.5, linear}, columns{x[2], 2 * x[2], 0.5, linear};
  const Shape y{x[0], rows.out, columns.out, x[3]};
  const auto add = [&](const char* op, Operands operands, KernelCase::Call call) {
    cases.push_back(make_case(op, model, x, kWindowsOnCuda, std::move(operands), std::move(call)));
    cases.back().shape += linear ? " linear" : " nearest";
  };
  add("resize_forward", {{x}, out(y)}, [=](KernelContext& c, const Views& v) {
    k::resize_forward(c, {.rows = rows, .columns = columns, .x = v[0], .y = v[1]});
  });
  add("resize_backward", {{y}, out(x)}, [=](KernelContext& c, const Views& v) {
    k::resize_backward(c, {.rows = rows, .columns = columns, .dy = v[0], .dx = v[1]});
  });
}

}  // namespace

std::vector<KernelCase> window_cases(const BatchSizes& sizes) {
  std::vector<KernelCase> cases;
  const std::int64_t n = sizes.images;
  // Axes: extent, kernel, stride, dilation, before, after.
  add_convolution(cases, "deeplab", n, {{{28, 3, 1, 2, 2, 2}, {28, 3, 1, 2, 2, 2}, 64}, 64, 1});
  add_convolution(cases, "unet", n, {{{28, 2, 2, 1, 0, 0}, {28, 2, 2, 1, 0, 0}, 32}, 64, 1});
  add_convolution(cases, "inception", n, {{{17, 1, 1, 1, 0, 0}, {17, 7, 1, 1, 3, 3}, 64}, 96, 1});
  add_convolution(cases, "groups", n, {{{29, 5, 2, 1, 1, 2}, {29, 5, 2, 1, 1, 2}, 48}, 48, 4});
  for (const bool linear : {false, true}) add_resize(cases, "unet", {n, 14, 14, 64}, linear);
  return cases;
}

}  // namespace tools
