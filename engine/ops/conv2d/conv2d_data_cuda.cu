// Gradient of convolution's input, as a matrix product whose left operand is gathered from dy. With
// stride s the pixels of dx fall into s * s classes, by their coordinates' remainders; all pixels
// of one see the same taps of the kernel, and the class alone is a convolution with stride 1. So no
// product with a zero that the stride would have put between dy's pixels is ever made
// ("implicit GEMM": Chetlur et al., "cuDNN", 2014; the classes: as in transposed convolution as
// several small ones, Shi et al., "Is the deconvolution layer the same as a convolutional layer?",
// 2016). Bound: flops.
#include <algorithm>

#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/conv2d/conv2d_dispatch.h"

namespace engine::ops::cuda {
namespace {

// The pixels of dx whose coordinates leave these remainders, and the taps that they see.
struct DataClass {
  Window window;
  TapGrid taps;
  int first_y = 0, first_x = 0;
};
constexpr int kClasses = 4;  // of one launch: all of stride 2

template <class S>
struct DataTask {
  DataClass classes[kClasses];
  const S *dy, *weight;
  bool vector;  // dy and weight
  int column_tiles, stride, in_h, in_w;
  Results<S> dx;
};

template <class S, class Math>
__global__ void __launch_bounds__(Math::kThreads, Math::kResident)
    data_kernel(const DataTask<S> task) {
  using Storage = typename Math::Storage;
  auto* shared = &block_shared<Storage>();
  const DataClass& pixels = task.classes[blockIdx.z];
  const int row_tile = static_cast<int>(blockIdx.x) / task.column_tiles,
            column_tile = static_cast<int>(blockIdx.x) - row_tile * task.column_tiles;
  const int first_row = row_tile * Math::Shape::kM, first_column = column_tile * Math::Shape::kN;
  // The whole block: of a class smaller than others, or with nothing to add.
  if (first_row >= pixels.window.places || (pixels.window.depth == 0 && task.dx.add)) return;
  const PlaceRows<S, typename Math::A::Share> rows(pixels.window, task.dy, task.vector, first_row);
  const WeightRows<S, typename Math::B::Share> columns(pixels.window, pixels.taps, task.weight,
                                                       task.dx.columns, task.vector, first_column);
  Math math;
  accumulate(math, rows, columns, 0, pixels.window.depth, shared);
  math.finish(reinterpret_cast<float*>(shared), [&](int row, int column, const auto& values) {
    if (first_row + row >= pixels.window.places) return;
    const Place place = pixels.window.place(first_row + row);
    const std::int64_t pixel =
        (std::int64_t{place.image} * task.in_h + place.y * task.stride + pixels.first_y) *
            task.in_w +
        place.x * task.stride + pixels.first_x;
    task.dx.put(pixel * task.dx.columns, first_column + column, values);
  });
}

// One axis of a class: tap number first + i * stride reads place + start - i of dy.
struct Axis {
  std::int64_t places, first_tap, taps, start;
};
Axis axis_of(std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
             std::int64_t remainder) {
  const std::int64_t first = (remainder + padding) % stride;
  return {remainder < extent ? (extent - remainder - 1) / stride + 1 : 0, first,
          first < kernel ? (kernel - first - 1) / stride + 1 : 0,
          (remainder + padding - first) / stride};
}

DataClass class_of(const Conv2dGeometry& g, std::int64_t n, std::int64_t y, std::int64_t x) {
  const Axis down = axis_of(g.in_h, g.kernel_h, g.stride, g.padding, y),
             right = axis_of(g.in_w, g.kernel_w, g.stride, g.padding, x);
  DataClass c;
  c.first_y = static_cast<int>(y), c.first_x = static_cast<int>(x);
  if (down.places == 0 || right.places == 0) return c;
  c.window.map_h = static_cast<int>(g.out_h()), c.window.map_w = static_cast<int>(g.out_w());
  c.window.first_y = static_cast<int>(down.start), c.window.first_x = static_cast<int>(right.start);
  c.window.direction = -1;
  c.window.set_places(n, down.places, right.places);
  c.window.set_taps(down.taps, right.taps, g.out_channels);
  c.taps = {static_cast<int>(g.kernel_w), static_cast<int>(down.first_tap),
            static_cast<int>(right.first_tap), static_cast<int>(g.stride)};
  return c;
}

// Up to kClasses of them; those with most taps first, so that the last blocks to start are short.
struct Group {
  DataClass classes[kClasses];
  int count = 0;
  std::int64_t places = 0, most_places = 0;  // of all, of the largest
  std::int64_t depth = 0;                    // of all
};
Group group_of(const Conv2dGeometry& g, std::int64_t n, std::int64_t first) {
  Group group;
  for (std::int64_t i = first; i < g.stride * g.stride && group.count < kClasses; ++i) {
    const DataClass c = class_of(g, n, i / g.stride, i % g.stride);
    int at = group.count++;
    for (; at > 0 && group.classes[at - 1].window.depth < c.window.depth; --at)
      group.classes[at] = group.classes[at - 1];
    group.classes[at] = c;
    group.places += c.window.places;
    group.most_places = std::max<std::int64_t>(group.most_places, c.window.places);
    group.depth += c.window.depth;
  }
  return group;
}

}  // namespace

void conv2d_backward_data(KernelContext& context, const Conv2dGeometry& g, TensorView dy,
                          TensorView weight, TensorView dx, Write write) {
  const std::int64_t n = dx.shape[0];
  require_countable(g, n);
  for (std::int64_t first = 0; first < g.stride * g.stride; first += kClasses) {
    const Group group = group_of(g, n, first);
    if (group.places == 0) continue;
    const ProductPlan plan = plan_product({group.places, g.in_channels, group.depth / group.count},
                                          1, ProductKind(dx.dtype, context.products));
    with_product<void, Lines::kAlongDepth, Lines::kAlongDepth>(
        dx.dtype, context.products, plan.tile, [&]<class S, class Math>(S, Math*) {
          DataTask<S> task{};
          std::copy_n(group.classes, group.count, task.classes);
          task.dy = dy.as<S>(), task.weight = weight.as<S>();
          task.vector =
              in_pieces(task.dy, g.out_channels) && in_pieces(task.weight, g.out_channels);
          task.column_tiles = static_cast<int>(divide_up(g.in_channels, Math::Shape::kN));
          task.stride = static_cast<int>(g.stride);
          task.in_h = static_cast<int>(g.in_h), task.in_w = static_cast<int>(g.in_w);
          task.dx = {dx.as<S>(), nullptr, static_cast<int>(g.in_channels), write == Write::kAdd,
                     in_pieces(dx.as<S>(), g.in_channels)};
          const auto blocks = static_cast<unsigned>(divide_up(group.most_places, Math::Shape::kM) *
                                                    task.column_tiles);
          launch("conv2d_backward_data", data_kernel<S, Math>,
                 {blocks, 1, static_cast<unsigned>(group.count)}, Math::kThreads,
                 Math::kSharedBytes, context.stream, task);
        });
  }
}

}  // namespace engine::ops::cuda
