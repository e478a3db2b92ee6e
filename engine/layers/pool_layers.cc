// Maximum, average and global average pooling. Maximum pooling saves the winner's place in each
// window, one byte each.
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/pool/pool2d.h"

namespace engine::layers {
namespace {

// What both windowed kinds share: options, geometry and output shape.
class WindowPool : public Layer {
 public:
  WindowPool(const char* kind, const PoolOptions& options) : kind_(kind), options_(options) {
    expect_at_least(kind, "window", options.window, 1);
    expect_at_least(kind, "stride", options.stride, 0);
    expect_at_least(kind, "padding", options.padding, 0);
    if (options.window > 15)
      throw ModelError(std::string(kind) + ": window must be at most 15, not " +
                       std::to_string(options.window));
    if (options.padding > options.window / 2)
      throw ModelError(std::string(kind) + ": padding must be at most half the window (" +
                       std::to_string(options.window / 2) + "), not " +
                       std::to_string(options.padding));
    if (options_.stride == 0) options_.stride = options_.window;
  }

  std::string_view kind() const override { return kind_; }
  bool stores_bf16_on_cpu() const override { return true; }
  std::vector<LayerOption> options() const override {
    return {{"window", static_cast<double>(options_.window)},
            {"stride", static_cast<double>(options_.stride)},
            {"padding", static_cast<double>(options_.padding)},
            {"ceil_mode", options_.ceil_mode ? 1.0 : 0.0}};
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const std::int64_t spare =
        options_.ceil_mode ? options_.stride - 1 : 0;  // a window may stick out by that
    expect_window(inputs[0], options_.window, options_.padding, spare);
    const ops::Pool2dGeometry g = geometry(inputs[0][0], inputs[0][1], inputs[0][2]);
    return {g.out_h(), g.out_w(), g.channels};
  }

 protected:
  ops::Pool2dGeometry geometry(std::int64_t h, std::int64_t w, std::int64_t c) const {
    return {.in_h = h,
            .in_w = w,
            .channels = c,
            .window = options_.window,
            .stride = options_.stride,
            .padding = options_.padding,
            .ceil_mode = options_.ceil_mode};
  }
  ops::Pool2dGeometry geometry(const TensorView& x) const {
    return geometry(x.shape[1], x.shape[2], x.shape[3]);
  }

 private:
  const char* kind_;
  PoolOptions options_;
};

class MaxPool final : public WindowPool {
 public:
  explicit MaxPool(const PoolOptions& options) : WindowPool("max_pool2d", options) {}

  std::size_t saved_bytes(std::span<const Shape> inputs, std::int64_t batch, DType) const override {
    return static_cast<std::size_t>(output_shape(inputs).count() * batch);
  }
  void forward(const LayerRun& run) const override {
    ops::max_pool2d_forward(run.kernels, {.geometry = geometry(run.inputs[0]),
                                          .x = run.inputs[0],
                                          .y = run.output,
                                          .argmax = run.training ? argmax(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    if (run.input_gradients[0])
      ops::max_pool2d_backward(run.kernels, {.geometry = geometry(run.inputs[0]),
                                             .dy = run.output_gradient,
                                             .argmax = argmax(run),
                                             .dx = run.input_gradients[0],
                                             .write = run.input_writes[0]});
  }

 private:
  static TensorView argmax(const LayerRun& run) {
    return {run.saved.data(), DType::kU8, run.output.shape, run.output.device};
  }
};

class AveragePool final : public WindowPool {
 public:
  explicit AveragePool(const PoolOptions& options) : WindowPool("average_pool2d", options) {}

  void forward(const LayerRun& run) const override {
    ops::average_pool2d_forward(
        run.kernels, {.geometry = geometry(run.inputs[0]), .x = run.inputs[0], .y = run.output});
  }
  void backward(const LayerRun& run) const override {
    if (run.input_gradients[0])
      ops::average_pool2d_backward(run.kernels, {.geometry = geometry(run.inputs[0]),
                                                 .dy = run.output_gradient,
                                                 .dx = run.input_gradients[0],
                                                 .write = run.input_writes[0]});
  }
};

class GlobalAveragePool final : public Layer {
 public:
  std::string_view kind() const override { return "global_average_pool"; }
  bool stores_bf16_on_cpu() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 3, "[h, w, c]");
    return {inputs[0][2]};
  }
  void forward(const LayerRun& run) const override {
    ops::global_average_pool_forward(run.kernels, run.inputs[0], run.output);
  }
  void backward(const LayerRun& run) const override {
    if (run.input_gradients[0])
      ops::global_average_pool_backward(run.kernels, run.output_gradient, run.input_gradients[0],
                                        run.input_writes[0]);
  }
};

}  // namespace

LayerPtr max_pool2d(const PoolOptions& options) { return std::make_unique<MaxPool>(options); }
LayerPtr average_pool2d(const PoolOptions& options) {
  return std::make_unique<AveragePool>(options);
}
LayerPtr global_average_pool() { return std::make_unique<GlobalAveragePool>(); }

}  // namespace engine::layers
