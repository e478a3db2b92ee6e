// Gradient of convolution's input, as a matrix product whose left operand is gathered from dy. With
// stride s the pixels of dx form s * s classes by the remainders of their coordinates; all pixels
// of a class see the same taps of the kernel, and each class is a convolution with stride 1. So the
// zeros that the stride would insert between the pixels of dy are never multiplied
// ("implicit GEMM": Chetlur et al., "cuDNN", 2014; the classes: as in transposed convolution as
// several small ones, Shi et al., "Is the deconvolution layer the same as a convolutional layer?",
// 2016). Bound by flops.
#include <algorithm>

#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/conv2d/conv2d_loaders.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/gemm/gemm_launch.h"

namespace engine::ops::cuda {
namespace {

// The pixels of dx whose coordinates have these remainders, and the taps that they see.
struct DataClass {
  Window window;
  TapGrid taps;
  int first_y = 0, first_x = 0;
};
constexpr int kClasses = 4;  // per launch: all classes of stride 2

// An epilogue that stores the places of a class in their pixels of dx.
template <class S>
struct PixelStore {
  MatrixStore<S> dx;  // rows are pixels
  Numbering by_place;
  int stride, first_y, first_x, in_h, in_w;

  __device__ __forceinline__ void operator()(int row, int column, const float (&values)[8],
                                             int count) const {
    const Digits place = by_place.digits(row);
    const int y = place.middle * stride + first_y, x = place.low * stride + first_x;
    dx((place.high * in_h + y) * in_w + x, column, values, count);
  }
};

// One axis of a class: tap number first + i * stride reads index place + start - i of dy.
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

struct Remainders {
  std::int64_t y, x;
};
DataClass class_of(const Conv2dGeometry& g, std::int64_t n, const Remainders& at, int step) {
  const Axis down = axis_of(g.in_h, g.kernel_h, g.stride, g.padding, at.y),
             right = axis_of(g.in_w, g.kernel_w, g.stride, g.padding, at.x);
  DataClass c;
  c.first_y = static_cast<int>(at.y), c.first_x = static_cast<int>(at.x);
  if (down.places == 0 || right.places == 0) return c;
  c.window.map_h = static_cast<int>(g.out_h()), c.window.map_w = static_cast<int>(g.out_w());
  c.window.first_y = static_cast<int>(down.start), c.window.first_x = static_cast<int>(right.start);
  c.window.set_places(n, down.places, right.places, step);
  c.window.set_taps(down.taps, right.taps, g.out_channels, step);
  c.taps = {static_cast<int>(g.kernel_w), static_cast<int>(down.first_tap),
            static_cast<int>(right.first_tap), static_cast<int>(g.stride)};
  return c;
}

// Up to kClasses classes; those with most taps come first, so that the last blocks to start are
// short.
struct ClassGroup {
  DataClass classes[kClasses];
  int count = 0;
  std::int64_t places = 0, depth = 0;  // sums over all classes
};
ClassGroup group_of(const Conv2dGeometry& g, std::int64_t n, std::int64_t first, int step) {
  ClassGroup group;
  for (std::int64_t i = first; i < g.stride * g.stride && group.count < kClasses; ++i) {
    const DataClass c = class_of(g, n, {i / g.stride, i % g.stride}, step);
    int at = group.count++;
    for (; at > 0 && group.classes[at - 1].window.depth < c.window.depth; --at)
      group.classes[at] = group.classes[at - 1];
    group.classes[at] = c;
    group.places += c.window.places;
    group.depth += c.window.depth;
  }
  return group;
}

}  // namespace

void conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o, GemmPlan plan) {
  const Conv2dGeometry& g = o.geometry;
  const std::int64_t n = o.dx.shape[0];
  if (o.dx.dtype == DType::kF64)
    return conv2d_backward_data_f64(context, conv_f64(g, n), o.dy.as<double>(),
                                    o.weight.as<double>(), o.dx.as<double>(), o.write);
  require_countable(g, n);
  const GemmKind kind(o.dx.dtype, context.products);
  const bool add = o.write == Write::kAdd;
  for (std::int64_t first = 0; first < g.stride * g.stride; first += kClasses) {
    const ClassGroup classes = group_of(g, n, first, kind.stage_depth);
    const GemmShape shape{classes.places, g.in_channels, classes.depth / classes.count};
    with_storage(o.dx.dtype, [&]<class S>(S) {
      using Product = GemmProduct<PlaceLoader<S, -1>, WeightLoader<S>, PixelStore<S>>;
      GemmGroup<Product, kClasses> group{{}, classes.count};
      const bool vector =
          in_chunks(o.dy.as<S>(), g.out_channels) && in_chunks(o.weight.as<S>(), g.out_channels);
      for (int i = 0; i < classes.count; ++i) {
        const DataClass& c = classes.classes[i];
        const bool nothing = add && c.window.depth == 0;
        group.products[i] = {
            .name = "conv2d_backward_data",
            .m = nothing ? 0 : c.window.places,
            .n = g.in_channels,
            .k = c.window.depth,
            .a = PlaceLoader<S, -1>::of(c.window, o.dy.as<S>(), vector),
            .b = WeightLoader<S>::of(c.window, c.taps, o.weight.as<S>(), g.in_channels, vector),
            .store = {.dx = MatrixStore<S>::of(o.dx.as<S>(), g.in_channels, add),
                      .by_place = c.window.by_place,
                      .stride = static_cast<int>(g.stride),
                      .first_y = c.first_y,
                      .first_x = c.first_x,
                      .in_h = static_cast<int>(g.in_h),
                      .in_w = static_cast<int>(g.in_w)}};
      }
      with_products<S>(context.products, [&](auto products) {
        using Group = GemmGroup<Product, kClasses>;
        const GemmPlan cut = plan.tile == 0
                                 ? plan_on_device(shape, kind, residents_of<products(), Group>(), 1)
                                 : plan;
        launch_gemm_group<products()>(context, cut, group);
      });
    });
  }
}

}  // namespace engine::ops::cuda
