// Convolutions by products of patches: the same loops over chunks and groups on every device.
#include "engine/ops/windows/window_conv2d.h"

#include <algorithm>
#include <string>

#include "engine/core/arena.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/dense/dense.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/general/strided_copy.h"
#include "engine/ops/windows/depthwise_windows.h"
#include "engine/ops/windows/patches.h"

namespace engine::ops {
namespace {

// The size of the patches of a chunk: it fits in the L2 or L3 cache of a CPU; on a CUDA device,
// where each chunk costs launches, it fills the device.
constexpr std::int64_t kCpuChunkBytes = std::int64_t{4} << 20,
                       kCudaChunkBytes = std::int64_t{64} << 20;

// The sizes of one product: `lines` of output pixels, the pixels of a line, and for one group the
// columns of the patches and of the output.
struct ChunkSizes {
  std::int64_t lines, width, columns, outs;

  std::int64_t pixels(std::int64_t of_lines) const { return of_lines * width; }
};

ChunkSizes chunk_sizes(const WindowConv2d& conv, std::int64_t n, DType dtype, Device::Kind device) {
  const WindowGeometry& g = conv.window;
  ChunkSizes s{0, g.columns.count(), g.places() * (g.channels / conv.groups),
               conv.out_channels / conv.groups};
  const std::int64_t limit = device == Device::Kind::kCuda ? kCudaChunkBytes : kCpuChunkBytes,
                     each = s.width * s.columns * static_cast<std::int64_t>(size_of(dtype));
  s.lines =
      std::clamp<std::int64_t>(limit / each, 1, std::max<std::int64_t>(1, n * g.rows.count()));
  return s;
}

std::size_t bytes_of(std::int64_t elements, DType dtype) {
  return align_up(static_cast<std::size_t>(elements) * size_of(dtype));
}

void check_conv(const char* kernel, const WindowConv2d& conv) {
  const auto is_sound = [](const WindowAxis& axis) {
    return axis.extent > 0 && axis.kernel > 0 && axis.stride > 0 && axis.dilation > 0 &&
           axis.extent + axis.before + axis.after >= axis.reach();
  };
  const std::int64_t in = conv.window.channels, out = conv.out_channels, groups = conv.groups;
  if (is_sound(conv.window.rows) && is_sound(conv.window.columns) && in > 0 && out > 0 &&
      groups > 0 && in % groups == 0 && out % groups == 0)
    return;
  throw ShapeError(std::string(kernel) + ": no output for an input of [" +
                   std::to_string(conv.window.rows.extent) + ", " +
                   std::to_string(conv.window.columns.extent) + ", " + std::to_string(in) +
                   "] with windows of " + std::to_string(conv.window.rows.reach()) + " x " +
                   std::to_string(conv.window.columns.reach()) + " and " + std::to_string(out) +
                   " output channels in " + std::to_string(groups) + " groups");
}

// The operands that all calls share: of x's, y's and weight's shape.
struct Operands {
  const TensorView &x, &y, &weight;
};

void check_operands(const char* kernel, const KernelContext& context, const WindowConv2d& conv,
                    const Operands& o, DType weight_dtype) {
  check_conv(kernel, conv);
  const WindowGeometry& g = conv.window;
  const std::int64_t n = o.x.shape.rank() == 4 ? o.x.shape[0] : 0;
  check_stored(kernel, "x", o.x);
  check_shape(kernel, "x", o.x, {n, g.rows.extent, g.columns.extent, g.channels});
  check_dtype(kernel, "y", o.y, o.x.dtype);
  check_shape(kernel, "y", o.y, {n, g.rows.count(), g.columns.count(), conv.out_channels});
  check_dtype(kernel, "weight", o.weight, weight_dtype);
  check_shape(kernel, "weight", o.weight,
              {conv.out_channels, g.rows.kernel, g.columns.kernel, g.channels / conv.groups});
  check_context(kernel, context);
  const int threads = on_cuda(context) ? 1 : context.threads->threads();
  check_context(kernel, context,
                window_conv2d_scratch_bytes(conv, n, o.x.dtype, threads, context.device.kind,
                                            context.products));
}

DType stored_weight_dtype(const KernelContext& context, const TensorView& input) {
  return on_cuda(context) ? input.dtype : wide_dtype(input.dtype);
}

// Returns rows [first, first + count) of a tensor as a matrix of `columns` columns.
TensorView rows_of(const TensorView& all, std::int64_t first, std::int64_t count,
                   std::int64_t columns) {
  const std::size_t begin = static_cast<std::size_t>(first * columns) * size_of(all.dtype);
  return {static_cast<std::byte*>(all.data) + begin, all.dtype, {count, columns}, all.device};
}
TensorView entries_of(const TensorView& vector, std::int64_t first, std::int64_t count) {
  if (!vector) return {};
  TensorView part = rows_of(vector, first, count, 1);
  part.shape = {count};
  return part;
}

// One product: the patches of some lines for one group, and the same pixels of y.
struct Chunk {
  TensorView patches, y;  // y: [pixels, outs], scratch if there are several groups
  std::int64_t group, first_line, lines;
  KernelContext context;  // with the scratch that is left for the product
};

class Chunks {
 public:
  Chunks(const KernelContext& context, const WindowConv2d& conv, const TensorView& x,
         const TensorView& y)
      : context_(context),
        conv_(conv),
        x_(x),
        y_(y),
        sizes_(chunk_sizes(conv, x.shape[0], x.dtype, context.device.kind)) {}

  const ChunkSizes& sizes() const { return sizes_; }
  Patches patches(const Chunk& chunk) const {
    const std::int64_t channels = conv_.window.channels / conv_.groups;
    return {conv_.window,           x_,      chunk.patches, chunk.first_line, chunk.lines,
            chunk.group * channels, channels};
  }

  // Calls body(chunk, is_first) for each chunk of each group; is_first: of its group.
  template <class Body>
  void for_each(Body body) const {
    const std::int64_t all = x_.shape[0] * conv_.window.rows.count();
    for (std::int64_t first = 0; first < all; first += sizes_.lines)
      for (std::int64_t group = 0; group < conv_.groups; ++group) {
        Chunk chunk{.patches = {},
                    .y = {},
                    .group = group,
                    .first_line = first,
                    .lines = std::min(sizes_.lines, all - first),
                    .context = context_};
        const std::int64_t pixels = sizes_.pixels(chunk.lines);
        chunk.patches = take(chunk.context, {pixels, sizes_.columns});
        chunk.y = conv_.groups > 1 ? take(chunk.context, {pixels, sizes_.outs})
                                   : rows_of(y_, sizes_.pixels(first), pixels, sizes_.outs);
        body(chunk, first == 0);
      }
  }

  // Copy chunk.y to its channels of y, and the other way, if it is scratch.
  void put(Chunk& chunk) const { copy(chunk, true); }
  void get(Chunk& chunk) const { copy(chunk, false); }

 private:
  TensorView take(KernelContext& context, const Shape& shape) const {
    const std::size_t bytes = bytes_of(shape.count(), x_.dtype);
    const TensorView view{context.scratch.data(), x_.dtype, shape, context.device};
    context.scratch = context.scratch.subspan(bytes);
    return view;
  }

  void copy(Chunk& chunk, bool to_y) const {
    if (conv_.groups == 1) return;
    const std::int64_t outs = sizes_.outs, wide = conv_.out_channels,
                       first = sizes_.pixels(chunk.first_line) * wide + chunk.group * outs;
    StridedCopy copy{.x = to_y ? chunk.y : y_, .y = to_y ? y_ : chunk.y, .axes = {}};
    (to_y ? copy.y_first : copy.x_first) = first;
    copy.axes.add({chunk.y.shape[0], {to_y ? outs : wide, to_y ? wide : outs}});
    copy.axes.add({outs, {1, 1}});
    strided_copy(chunk.context, copy);
  }

  const KernelContext& context_;
  const WindowConv2d& conv_;
  const TensorView &x_, &y_;
  const ChunkSizes sizes_;
};

}  // namespace

std::size_t window_conv2d_scratch_bytes(const WindowConv2d& conv, std::int64_t n, DType dtype,
                                        int threads, Device::Kind device, Products products) {
  if (is_depthwise(conv)) return depthwise_windows_scratch_bytes(conv, dtype, device);
  const ChunkSizes s = chunk_sizes(conv, n, dtype, device);
  const std::int64_t pixels = s.pixels(s.lines);
  return bytes_of(pixels * s.columns, dtype) + bytes_of(pixels * s.outs, dtype) +
         dense_scratch_bytes(pixels, s.columns, s.outs, dtype, threads, device, products);
}

void window_conv2d_forward(KernelContext& context, const WindowConv2dForward& o) {
  constexpr const char* kName = "window_conv2d_forward";
  check_operands(kName, context, o.conv, {o.x, o.y, o.weight}, stored_weight_dtype(context, o.x));
  if (o.bias) {
    require(o.write == Write::kOverwrite, "window_conv2d_forward: a bias needs kOverwrite");
    check_dtype(kName, "bias", o.bias, wide_dtype(o.x.dtype));
    check_shape(kName, "bias", o.bias, {o.conv.out_channels});
  }
  if (is_depthwise(o.conv)) return depthwise_windows_forward(context, o);
  const Chunks chunks(context, o.conv, o.x, o.y);
  const std::int64_t outs = chunks.sizes().outs, columns = chunks.sizes().columns;
  chunks.for_each([&](Chunk& chunk, bool) {
    take_patches(chunk.context, chunks.patches(chunk));
    if (o.write == Write::kAdd) chunks.get(chunk);
    dense_forward(chunk.context, {.x = chunk.patches,
                                  .weight = rows_of(o.weight, chunk.group * outs, outs, columns),
                                  .bias = entries_of(o.bias, chunk.group * outs, outs),
                                  .y = chunk.y,
                                  .write = o.write});
    chunks.put(chunk);
  });
}

void window_conv2d_backward_data(KernelContext& context, const WindowConv2dBackwardData& o) {
  check_operands("window_conv2d_backward_data", context, o.conv, {o.dx, o.dy, o.weight},
                 stored_weight_dtype(context, o.dx));
  if (is_depthwise(o.conv)) return depthwise_windows_backward_data(context, o);
  if (o.write == Write::kOverwrite) zero(context, o.dx);
  const Chunks chunks(context, o.conv, o.dx, o.dy);
  const std::int64_t outs = chunks.sizes().outs, columns = chunks.sizes().columns;
  chunks.for_each([&](Chunk& chunk, bool) {
    chunks.get(chunk);
    dense_backward_data(chunk.context,
                        {.dy = chunk.y,
                         .weight = rows_of(o.weight, chunk.group * outs, outs, columns),
                         .dx = chunk.patches});
    add_patches(chunk.context, chunks.patches(chunk));
  });
}

void window_conv2d_backward_weights(KernelContext& context, const WindowConv2dBackwardWeights& o) {
  constexpr const char* kName = "window_conv2d_backward_weights";
  const DType gradient = wide_dtype(o.x.dtype);
  check_operands(kName, context, o.conv, {o.x, o.dy, o.dweight}, gradient);
  if (o.dbias) {
    check_dtype(kName, "dbias", o.dbias, gradient);
    check_shape(kName, "dbias", o.dbias, {o.conv.out_channels});
  }
  if (is_depthwise(o.conv)) return depthwise_windows_backward_weights(context, o);
  if (o.x.shape[0] == 0 && o.write == Write::kOverwrite) {
    zero(context, o.dweight);
    if (o.dbias) zero(context, o.dbias);
  }
  const Chunks chunks(context, o.conv, o.x, o.dy);
  const std::int64_t outs = chunks.sizes().outs, columns = chunks.sizes().columns;
  chunks.for_each([&](Chunk& chunk, bool is_first) {
    take_patches(chunk.context, chunks.patches(chunk));
    chunks.get(chunk);
    dense_backward_weights(chunk.context,
                           {.x = chunk.patches,
                            .dy = chunk.y,
                            .dweight = rows_of(o.dweight, chunk.group * outs, outs, columns),
                            .dbias = entries_of(o.dbias, chunk.group * outs, outs),
                            .write = is_first ? o.write : Write::kAdd});
  });
}

}  // namespace engine::ops
