// Layers of models of text, and losses, in device memory, for every storage, against the same
// layers in float64 on the host: what they save, which scratch they ask for, and that they leave
// device memory to the device.
#include <cstring>
#include <memory>

#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"
#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine {
namespace {

using namespace cuda_test;

constexpr std::int64_t kBatch = 3, kClasses = 7;

// Tensors of one run, in host memory or in the device's.
class TensorMemory {
 public:
  explicit TensorMemory(Device device) : device_(device) {}

  TensorView put(DType dtype, const Shape& shape, const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * size_of(dtype));
    const auto write = [&]<class T>(T) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        T value;
        if constexpr (std::is_arithmetic_v<T>)
          value = static_cast<T>(values[i]);
        else
          value = from_float<T>(values[i]);
        std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
      }
    };
    with(dtype, write);
    arenas_.push_back(std::make_unique<Arena>(bytes.size() + 1, device_));
    copy(arenas_.back()->data(), bytes.data(), bytes.size());
    return {arenas_.back()->data(), dtype, shape, device_};
  }
  std::vector<double> get(const TensorView& view) const {
    std::vector<std::byte> bytes(view.bytes());
    copy(bytes.data(), view.data, bytes.size());
    std::vector<double> values;
    with(view.dtype, [&]<class T>(T value) {
      for (std::int64_t i = 0; i < view.count(); ++i) {
        std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof value,
                    sizeof value);
        if constexpr (std::is_arithmetic_v<T>)
          values.push_back(static_cast<double>(value));
        else
          values.push_back(to_float(value));
      }
    });
    return values;
  }

 private:
  template <class Call>
  static void with(DType dtype, Call call) {
    if (dtype == DType::kF32) return call(float{});
    if (dtype == DType::kF64) return call(double{});
    if (dtype == DType::kI32) return call(std::int32_t{});
    dtype == DType::kBF16 ? call(bf16{}) : call(f16{});
  }
  void copy(void* to, const void* from, std::size_t bytes) const {
    if (device_.kind == Device::Kind::kCpu) {
      std::memcpy(to, from, bytes);
      return;
    }
    engine::cuda::synchronize_device();
    engine::cuda::copy_async(to, from, bytes, nullptr);
    engine::cuda::synchronize_device();
  }

  Device device_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

std::vector<float> numbers(const Shape& shape, std::uint32_t seed) {
  return random_operand(shape, seed).values;
}

Shape batched(const Shape& item) {
  std::vector<std::int64_t> dims{kBatch};
  dims.insert(dims.end(), item.dims().begin(), item.dims().end());
  return Shape(std::span<const std::int64_t>(dims));
}

// Output, gradients of the inputs, gradients of the parameters.
using Outcome = std::vector<std::vector<double>>;

// One step of the layer with activations of `storage`.
Outcome run(const Layer& layer, std::span<const Shape> items, DType storage,
            KernelContext& context) {
  TensorMemory tensors(context.device);
  std::vector<TensorView> inputs, input_gradients, parameters, parameter_gradients;
  std::vector<Write> writes;
  std::uint32_t seed = 1;
  const bool regression = layer.kind().ends_with("_loss"),
             is_loss = regression || layer.kind() == "softmax_cross_entropy";
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Shape shape = batched(items[i]);
    const bool ids = layer.input_dtype(static_cast<int>(i)) == DType::kI32,
               targets = regression && i == 1;
    std::vector<float> values = numbers(shape, seed++);
    for (float& value : values)
      value = ids ? std::floor((value + 1) / 2 * (kClasses - 0.01f))
                  : to_float(from_float<bf16>(value));
    const DType dtype = ids ? DType::kI32 : targets ? ops::wide_dtype(storage) : storage;
    inputs.push_back(tensors.put(dtype, shape, values));
    input_gradients.push_back(
        ids || targets ? TensorView{}
                       : tensors.put(storage, shape, std::vector<float>(values.size(), NAN)));
    writes.push_back(Write::kOverwrite);
  }
  for (const ParameterSpec& spec : layer.parameters(items)) {
    const Shape shape = spec.layout.memory_shape();
    std::vector<float> values = numbers(shape, seed++);
    for (float& value : values) value = to_float(from_float<bf16>(value));
    parameters.push_back(
        tensors.put(shape.rank() >= 2 ? storage : ops::wide_dtype(storage), shape, values));
    parameter_gradients.push_back(
        tensors.put(ops::wide_dtype(storage), shape, std::vector<float>(values.size(), NAN)));
  }
  const Shape out = batched(layer.output_shape(items));
  const DType out_dtype = is_loss ? ops::wide_dtype(storage) : storage;
  std::vector<float> dy = numbers(out, seed++);
  for (float& value : dy) value = to_float(from_float<bf16>(value));
  const TensorView output = tensors.put(out_dtype, out, std::vector<float>(dy.size(), NAN));
  const std::size_t saved =
      layer
          .memory(
              {.inputs = items, .batch = kBatch, .dtype = storage, .device = context.device.kind})
          .saved;
  const Arena saved_memory(saved, context.device);
  const TensorView ids = tensors.put(
      DType::kF32, {2 * kBatch}, std::vector<float>(2 * kBatch, 0.f));  // eight bytes each: id 0

  LayerRun step{.kernels = context};
  step.training = true;
  step.inputs = inputs, step.parameters = parameters, step.output = output;
  step.saved = {saved_memory.data(), saved};
  step.random.key = 99, step.random.epoch = 0;
  step.random.sample_ids = {static_cast<const std::int64_t*>(ids.data),
                            static_cast<std::size_t>(kBatch)};
  step.gradients.output = tensors.put(out_dtype, out, dy);
  step.gradients.inputs = input_gradients, step.gradients.input_writes = writes,
  step.gradients.parameters = parameter_gradients;
  layer.forward(step);
  layer.backward(step);
  Outcome outcome{tensors.get(output)};
  for (const TensorView& view : input_gradients)
    if (view) outcome.push_back(tensors.get(view));
  for (const TensorView& view : parameter_gradients) outcome.push_back(tensors.get(view));
  return outcome;
}

template <class T>
class TextLayersCuda : public CudaTest {
 protected:
  static void compare(const LayerPtr& layer, std::vector<Shape> items, bool dropout = false) {
    SCOPED_TRACE(std::string(layer->kind()) + " " + items[0].to_string());
    Context host(
        2, layer->memory({.inputs = items, .batch = kBatch, .dtype = DType::kF64, .threads = 2})
               .scratch);
    const Outcome expected = run(*layer, items, DType::kF64, host.context);
    DeviceContext device(layer
                             ->memory({.inputs = items,
                                       .batch = kBatch,
                                       .dtype = DTypeOf<T>::value,
                                       .device = Device::Kind::kCuda})
                             .scratch);
    const Arena epoch(sizeof(std::uint64_t), kDevice);  // 0
    if (dropout) device.context.epoch = reinterpret_cast<const std::uint64_t*>(epoch.data());
    const Outcome found = run(*layer, items, DTypeOf<T>::value, device.context);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_LE(relative_error(found[i], expected[i]),
                (is_half(DTypeOf<T>::value) ? 1e-2 : storage_error<T>()))
          << "result " << i;
  }
};
TYPED_TEST_SUITE(TextLayersCuda, Storages);

TYPED_TEST(TextLayersCuda, AgreeWithFloat64OnTheHost) {
  this->compare(layers::embedding(kClasses, 24), {{11}});
  this->compare(layers::layer_norm(), {{5, 48}});
  this->compare(layers::rms_norm(), {{5, 48}});
  this->compare(layers::rms_norm(), {{3, 1100}});
  this->compare(layers::gelu(), {{5, 17}});
  this->compare(layers::gelu(ops::GeluKind::kTanh), {{5, 16}});
  this->compare(layers::rotary({.heads = 3}), {{9, 3 * 3 * 8}});
  this->compare(layers::rotary({.heads = 4, .kv_heads = 2}), {{9, 8 * 6}});
  this->compare(layers::causal_self_attention(3), {{9, 3 * 3 * 8}});
  this->compare(layers::causal_self_attention({.heads = 4, .kv_heads = 2}), {{9, 8 * 6}});
  this->compare(layers::self_attention({.heads = 3}), {{9, 3 * 3 * 8}});
  this->compare(layers::self_attention({.heads = 4, .kv_heads = 2, .dropout = 0.3}), {{9, 8 * 6}},
                true);
  this->compare(layers::self_attention({.heads = 2}), {{70, 3 * 2 * 32}});
  this->compare(layers::dense(11), {{3, 5, 16}});
  this->compare(layers::matmul({.scale = 0.3}), {{2, 5, 16}, {2, 16, 9}});
  this->compare(layers::matmul({.transpose_second = true}), {{5, 16}, {7, 16}});
  this->compare(layers::softmax(), {{5, 17}});
  this->compare(layers::softmax(), {{2, 1100}});
  this->compare(layers::layer_norm(1e-5, false), {{5, 48}});
  this->compare(layers::scale_shift(0.5, -1), {{5, 17}});
  this->compare(layers::head_rms_norm({.heads = 3}), {{9, 3 * 3 * 8}});
  this->compare(layers::head_rms_norm({.heads = 4, .kv_heads = 2}), {{9, 8 * 6}});
  this->compare(layers::causal_self_attention(2, 0.3), {{9, 3 * 2 * 32}}, true);
  this->compare(layers::softmax_cross_entropy(), {{kClasses}, Shape{}});
  this->compare(layers::softmax_cross_entropy(0.1), {{5, kClasses}, {5}});
  this->compare(layers::softmax_cross_entropy(), {{3, 4, kClasses}, {3, 4}});
  for (const auto kind : {ops::RegressionLoss::kSquared, ops::RegressionLoss::kAbsolute,
                          ops::RegressionLoss::kHuber, ops::RegressionLoss::kLogistic}) {
    this->compare(layers::regression_loss(kind), {{1}, {1}});
    this->compare(layers::regression_loss(kind), {{5}, {5}});
  }
}

}  // namespace
}  // namespace engine
