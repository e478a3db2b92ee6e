// Layers of images on a CUDA device: forward and backward through LayerRun, as a captured step
// where that is promised, against the same layer in float64 on the CPU.
#include <optional>

#include "engine/layers/general/general_layers.h"
#include "engine/layers/layers.h"
#include "engine/layers/spatial/spatial_layers.h"
#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/engine/ops/elementwise/elementwise_cases.h"

namespace engine {
namespace {

// Before anything calls CUDA: a layer's first run is captured here, and a capture must load
// nothing.
[[maybe_unused]] const bool kKernelsAreLoaded = (cuda::load_kernels_at_start(), true);

using namespace cuda_test;

// Another replica, of which what it has is known.
class OtherReplica final : public ReplicaExchange {
 public:
  explicit OtherReplica(std::int64_t rows) : rows_(rows) {}
  std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) override {
    const std::size_t channels = moments.size() / 2;
    const double total = static_cast<double>(rows + rows_);
    for (std::size_t c = 0; c < channels; ++c) {
      const double mean = 0.25 + 0.125 * static_cast<double>(c % 5),
                   squares = 3.0 * static_cast<double>(rows_);
      const double difference = mean - moments[c];
      moments[c] += difference * static_cast<double>(rows_) / total;
      moments[channels + c] += squares + difference * difference * static_cast<double>(rows) *
                                             static_cast<double>(rows_) / total;
    }
    ++calls;
    return rows + rows_;
  }
  std::int64_t add(std::int64_t rows, std::span<double> sums) override {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += 0.5 + static_cast<double>(i % 3);
    ++calls;
    return rows + rows_;
  }
  int calls = 0;

 private:
  std::int64_t rows_;
};

struct Options {
  bool training = true, relu = false, residual = false;
  Write write = Write::kOverwrite;
  std::int64_t other_rows = -1;  // of another replica; -1: there is none
};

// One execution of a layer; Memory makes tensors of given values on its device, W is the type of
// activations there.
struct Tensors {
  std::vector<TensorView> inputs, parameters, buffers, input_gradients, parameter_gradients;
  std::vector<Write> writes;
  TensorView output, output_gradient, residual, residual_gradient;
};

std::vector<float> starts(const Shape& shape, std::uint32_t seed) {
  return random_operand(shape, seed).values;
}

// The initial tensors of a run. `make(values, shape, activation)` returns memory for one; weights
// are stored as activations are.
template <class Make>
Tensors make_tensors(const Layer& layer, std::span<const Shape> items, std::int64_t batch,
                     const Options& o, Make make) {
  Tensors t;
  std::uint32_t seed = 1;
  for (const Shape& item : items) {
    const Shape shape = item.with_batch(batch);
    t.inputs.push_back(make(starts(shape, seed++), shape, true));
    t.input_gradients.push_back(make(starts(shape, seed++), shape, true));
    t.writes.push_back(o.write);
  }
  for (const ParameterSpec& each : layer.parameters(items)) {
    const Shape shape = each.layout.memory_shape();
    t.parameters.push_back(make(starts(shape, seed++), shape, shape.rank() > 1));  // weights
    t.parameter_gradients.push_back(make(starts(shape, seed++), shape, false));
  }
  for (const BufferSpec& each : layer.buffers(items)) {
    if (each.counter) continue;  // they come last, see below
    std::vector<float> values = starts(each.shape, seed++);
    for (float& v : values) v = v * v + 0.5f;
    t.buffers.push_back(make(values, each.shape, false));
  }
  const Shape out = layer.output_shape(items).with_batch(batch);
  t.output = make(starts(out, seed++), out, true);
  t.output_gradient = make(starts(out, seed++), out, true);
  if (o.residual) {
    t.residual = make(starts(out, seed++), out, true);
    t.residual_gradient = make(starts(out, seed++), out, true);
  }
  return t;
}

constexpr std::uint64_t kKey = 77, kEpoch = 5;
const std::vector<std::int64_t> kIds{3, 1, 4, 15, 92};

LayerRun make_run(KernelContext& context, const Tensors& t, const Options& o,
                  std::span<std::byte> saved) {
  LayerRun run{.kernels = context};
  run.training = o.training;
  run.inputs = t.inputs;
  run.parameters = t.parameters;
  run.buffers = t.buffers;
  run.output = t.output;
  run.saved = saved;
  run.relu = o.relu;
  run.residual = t.residual;
  run.random.key = kKey;
  run.gradients.output = t.output_gradient;
  run.gradients.inputs = t.input_gradients;
  run.gradients.input_writes = t.writes;
  run.gradients.residual = t.residual_gradient;
  run.gradients.residual_write = o.write;
  run.gradients.parameters = t.parameter_gradients;
  run.gradients.parameter_write = o.write;
  return run;
}

// Calls check(name, index) for the tensors that a run writes.
template <class Check>
void for_each_result(const Tensors& t, const Options& o, Check check) {
  check("output", t.output);
  for (const TensorView& each : t.buffers) check("a buffer", each);
  if (!o.training) return;
  for (const TensorView& each : t.input_gradients) check("an input's gradient", each);
  for (const TensorView& each : t.parameter_gradients) check("a parameter's gradient", each);
  if (o.residual) check("the residual's gradient", t.residual_gradient);
}

template <class T>
std::vector<double> brought(const TensorView& view) {
  std::vector<T> values(static_cast<std::size_t>(view.count()));
  engine::cuda::copy_async(values.data(), view.data, view.bytes(), nullptr);
  engine::cuda::synchronize_device();
  const auto floats = as_floats(values);
  return {floats.begin(), floats.end()};
}

// The layer in float64 on the CPU; activations start as what T keeps of them. Returns the results
// in order.
template <class T>
std::vector<std::vector<double>> expected_results(const Layer& layer, std::span<const Shape> items,
                                                  std::int64_t batch, const Options& o,
                                                  std::int64_t& counter, bool counts) {
  std::vector<std::unique_ptr<Operand<double>>> memory;
  Tensors t = make_tensors(
      layer, items, batch, o,
      [&](const std::vector<float>& values, const Shape& shape, bool activation) {
        Operand<float> operand = operand_of<float>(shape, values);
        memory.push_back(
            std::make_unique<Operand<double>>(activation ? kept<T>(operand) : widen(operand)));
        TensorView view = memory.back()->view();
        static double nothing;
        if (view.data == nullptr) view.data = &nothing;  // an empty tensor is there
        return view;
      });
  if (counts) t.buffers.push_back({&counter, DType::kI64, {}, {}});
  Context host(1, layer.memory({.inputs = items, .batch = batch, .dtype = DType::kF64}).scratch);
  const Arena saved(layer.memory({.inputs = items, .batch = batch, .dtype = DType::kF64}).saved +
                    1);
  LayerRun run = make_run(host.context, t, o, {saved.data(), saved.bytes()});
  run.random.epoch = kEpoch;
  run.random.sample_ids = std::span(kIds).first(static_cast<std::size_t>(batch));
  OtherReplica other(o.other_rows);
  if (o.other_rows >= 0) run.statistics.replicas = &other;
  layer.forward(run);
  if (o.training) layer.backward(run);
  if (counts) t.buffers.pop_back();
  std::vector<std::vector<double>> results;
  for_each_result(t, o, [&](const char*, const TensorView& view) {
    results.emplace_back(view.as<double>(), view.as<double>() + view.count());
  });
  return results;
}

template <class T>
void compare(const Layer& layer, const std::vector<Shape>& items, std::int64_t batch,
             const Options& o) {
  SCOPED_TRACE(std::string(layer.kind()) + ", batch " + std::to_string(batch) + ", write " +
               std::to_string(static_cast<int>(o.write)));
  const std::vector<BufferSpec> buffers = layer.buffers(items);
  const bool counts = !buffers.empty() && buffers.back().counter;
  std::int64_t host_counter = 6;
  const auto expected = expected_results<T>(layer, items, batch, o, host_counter, counts);

  std::vector<std::unique_ptr<DeviceOperand<T>>> activations;
  using State = StateOf<T>;
  std::vector<std::unique_ptr<DeviceOperand<State>>> vectors;
  Tensors t = make_tensors(
      layer, items, batch, o,
      [&](const std::vector<float>& values, const Shape& shape, bool activation) {
        if (activation)
          return activations
              .emplace_back(std::make_unique<DeviceOperand<T>>(shape, stored<T>(values)))
              ->view();
        return vectors
            .emplace_back(std::make_unique<DeviceOperand<State>>(shape, stored<State>(values)))
            ->view();
      });
  const DeviceOperand<std::int64_t> counter({}, {6}), ids({5}, kIds), epoch({1}, {kEpoch});
  if (counts) t.buffers.push_back(counter.view());
  const LayerMemory memory = layer.memory(
      {.inputs = items, .batch = batch, .dtype = DTypeOf<T>::value, .device = Device::Kind::kCuda});
  DeviceContext c(memory.scratch);
  c.context.epoch = reinterpret_cast<const std::uint64_t*>(epoch.view().data);
  const Arena saved(memory.saved + 1, kDevice);
  LayerRun run = make_run(c.context, t, o, {saved.data(), saved.bytes()});
  run.random.epoch = 0;  // that of the context counts
  run.random.sample_ids = {ids.view().as<std::int64_t>(), static_cast<std::size_t>(batch)};
  OtherReplica other(o.other_rows);
  if (o.other_rows >= 0) run.statistics.replicas = &other;
  const auto execute = [&] {
    layer.forward(run);
    if (o.training) layer.backward(run);
  };
  if (layer.traits().uses_replicas && run.statistics.replicas != nullptr) {
    execute();
    EXPECT_EQ(other.calls, o.training ? 2 : 0);
  } else {
    engine::cuda::StepGraph::begin_capture(c.context.stream);
    execute();
    engine::cuda::StepGraph::end_capture(c.context.stream).launch(c.context.stream);
  }
  c.finish();
  if (counts) {
    EXPECT_EQ(counter.values()[0], host_counter);
    t.buffers.pop_back();
  }
  std::size_t i = 0;
  for_each_result(t, o, [&](const char* what, const TensorView& view) {
    const bool wide = view.dtype == DTypeOf<State>::value;
    const std::vector<double> found = wide ? brought<State>(view) : brought<T>(view);
    EXPECT_LT(relative_error(found, expected[i++], 1), wide ? state_error<T>() : storage_error<T>())
        << what;
  });
  EXPECT_EQ(i, expected.size());
}

template <class T>
class ImageLayersCuda : public CudaTest {};
TYPED_TEST_SUITE(ImageLayersCuda, Storages);

TYPED_TEST(ImageLayersCuda, AgreeWithFloat64) {
  std::vector<std::int64_t> many;  // more than one launch has, each entry often
  for (std::int64_t i = 0; i < 600; ++i) many.push_back(i * 3 % 5);
  const LayerPtr all[] = {
      layers::relu(),
      layers::dropout(0.3),
      layers::flatten(),
      layers::pad_channels(2, 3),
      layers::slice({.first = 1, .count = 4}),
      layers::slice({.axis = 0, .first = 1, .count = 2, .step = 2}),
      layers::gather(-1, {5, 1, 1, 0, 1}),
      layers::gather(0, many),
      layers::reduce({.axes = {0, 1}}),
      layers::reduce({.axes = {-1}, .keep = true}),
      layers::reduce({.function = layers::ReduceFunction::kSum, .axes = {1}}),
      layers::reduce({.function = layers::ReduceFunction::kMax, .axes = {2, 0}}),
      layers::permute({2, 0, 1}),
      layers::permute({1, 0, 2}),
      layers::reshape({2, -1}),
      layers::shuffle_channels(2),
      layers::group_norm({.groups = 2}),
      layers::group_norm({.groups = 2, .affine = false}),
      layers::max_pool2d({.window = 3, .stride = 2, .padding = 1}),
      layers::average_pool2d({.window = 2, .stride = 2, .ceil_mode = true}),
      layers::resize({.linear = true}),
      layers::resize({.linear = true, .size = {3, 11}}),
      layers::resize({.factor_height = 0.4, .factor_width = 2.5}),
      layers::pad({1, 0, 2, 3}, 0.25),
      layers::global_average_pool()};
  for (const Shape& item : {Shape{5, 7, 6}, Shape{8, 8, 16}})
    for (const LayerPtr& layer : all)
      for (const std::int64_t batch : {0, 1, 5})
        for (const Write write : {Write::kOverwrite, Write::kAdd})
          for (const bool training : {true, false})
            compare<TypeParam>(*layer, {item}, batch, {.training = training, .write = write});
  compare<TypeParam>(*layers::add(), {{5, 7, 6}, {5, 7, 6}}, 3, {});
  compare<TypeParam>(*layers::add(), {{5, 7, 6}, {5, 7, 6}}, 3, {.write = Write::kAdd});
}

TYPED_TEST(ImageLayersCuda, ConvolutionOfGroupsAgreesWithFloat64) {
  const layers::Conv2dOptions all[] = {
      {.out_channels = 16, .padding = 1, .groups = 16},
      {.out_channels = 16, .kernel = 5, .stride = 2, .padding = 2, .bias = false, .groups = 16},
      {.out_channels = 32, .stride = 2, .padding = 1, .groups = 16},
      {.out_channels = 24, .padding = 1, .groups = 4}};
  for (const layers::Conv2dOptions& options : all)
    for (const std::int64_t batch : {0, 1, 5})
      for (const Write write : {Write::kOverwrite, Write::kAdd})
        for (const bool training : {true, false})
          compare<TypeParam>(*layers::conv2d(options), {{8, 7, 16}}, batch,
                             {.training = training, .write = write});
}

TYPED_TEST(ImageLayersCuda, ConvolutionsOfAnyWindowAgreeWithFloat64) {
  const LayerPtr all[] = {
      layers::conv2d({.out_channels = 6, .kernel = {3, 1}, .stride = {1, 2}, .padding = {1, 0}}),
      layers::conv2d({.out_channels = 16,
                      .kernel = {2, 3},
                      .padding = {0, 1, 1, 2},
                      .bias = false,
                      .groups = 2,
                      .dilation = {3, 2}}),
      layers::conv2d({.out_channels = 16, .padding = 2, .groups = 16, .dilation = 2}),
      layers::conv_transpose({.out_channels = 8, .kernel = 2, .stride = 2}),
      layers::conv_transpose({.out_channels = 6,
                              .kernel = {3, 4},
                              .stride = {2, 3},
                              .padding = {1, 0, 0, 2},
                              .output_padding = {1, 2},
                              .groups = 2,
                              .dilation = {2, 1}}),
      layers::conv_transpose({.out_channels = 5, .padding = 1, .bias = false})};
  for (const LayerPtr& layer : all)
    for (const std::int64_t batch : {0, 1, 3})
      for (const Write write : {Write::kOverwrite, Write::kAdd})
        for (const bool training : {true, false})
          compare<TypeParam>(*layer, {{8, 7, 16}}, batch, {.training = training, .write = write});
}

TYPED_TEST(ImageLayersCuda, ActivationsAgreeWithFloat64) {
  for (const ops::Activation& function : kernel_test::all_activations()) {
    SCOPED_TRACE(kernel_test::activation_name(function));
    const LayerPtr layer = layers::activation(function);
    for (const Shape& item : {Shape{5, 7, 6}, Shape{33}})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        compare<TypeParam>(*layer, {item}, 3, {.write = write});
        compare<TypeParam>(*layer, {item}, 0, {.training = false, .write = write});
      }
  }
}

// Operands that are expanded, on either side; tensors that read no input.
TYPED_TEST(ImageLayersCuda, ExpandedOperandsAgreeWithFloat64) {
  using Items = std::vector<Shape>;
  const LayerPtr all[] = {layers::add(), layers::subtract(), layers::multiply()};
  for (const std::int64_t batch : {0, 1, 5})
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      for (const bool training : {true, false}) {
        const Options o{.training = training, .write = write};
        for (const Items& items :
             {Items{{5, 7, 6}, {5, 1, 6}}, Items{{5, 1, 1}, {7, 6}}, Items{{}, {3, 4}}})
          for (const LayerPtr& layer : all) compare<TypeParam>(*layer, items, batch, o);
        for (const Shape& shape : {Shape{5, 7, 6}, Shape{6}, Shape{}}) {
          const std::vector<std::int64_t> extents(shape.dims().begin(), shape.dims().end());
          compare<TypeParam>(*layers::parameter({.shape = extents}), {}, batch, o);
          compare<TypeParam>(*layers::constant(extents), {}, batch, o);
        }
      }
}

TYPED_TEST(ImageLayersCuda, ChoicesAgreeWithFloat64) {
  using Items = std::vector<Shape>;
  const LayerPtr where = layers::where();
  for (const std::int64_t batch : {0, 1, 5})
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      const Options o{.training = true, .write = write};
      for (const Items& items : {Items{{5, 7, 6}, {5, 1, 6}, {6}}, Items{{5, 1, 1}, {7, 6}, {1}}})
        compare<TypeParam>(*where, items, batch, o);
      for (const auto function :
           {layers::CompareFunction::kGreater, layers::CompareFunction::kLessEqual})
        compare<TypeParam>(*layers::compare(function), {{5, 7, 6}, {5, 1, 6}}, batch, o);
    }
}

// Products of one shape, and of channels on either side; several inputs side by side.
TYPED_TEST(ImageLayersCuda, ProductsAndConcatenationsAgreeWithFloat64) {
  using Items = std::vector<Shape>;
  const Shape image{5, 7, 6};
  const LayerPtr product = layers::multiply(), concat = layers::concat();
  for (const std::int64_t batch : {0, 1, 5})
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      for (const bool training : {true, false}) {
        const Options o{.training = training, .write = write};
        for (const Items& items : {Items{image, image}, Items{image, {6}}, Items{{1, 1, 6}, image},
                                   Items{{8, 8, 16}, {16}}, Items{{9}, {9}}})
          compare<TypeParam>(*product, items, batch, o);
        for (const Items& items :
             {Items{image, {5, 7, 1}, image}, Items{{8, 8, 16}, {8, 8, 8}}, Items{{9}, {4}}})
          compare<TypeParam>(*concat, items, batch, o);
      }
}

// Each sample has its own weight.
TYPED_TEST(ImageLayersCuda, ConvolutionsByComputedWeightsAgreeWithFloat64) {
  const LayerPtr whole = layers::convolve({.padding = {1, 1, 1, 1}}),
                 grouped = layers::convolve({.stride = 2, .groups = 2});
  for (const std::int64_t batch : {0, 1, 3})
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      const Options o{.training = true, .write = write};
      compare<TypeParam>(*whole, {{6, 7, 4}, {5, 3, 3, 4}}, batch, o);
      compare<TypeParam>(*grouped, {{6, 7, 4}, {6, 2, 3, 2}}, batch, o);
    }
}

TYPED_TEST(ImageLayersCuda, BatchNormAgreesWithFloat64) {
  for (const Shape& item : {Shape{5, 7, 6}, Shape{8, 8, 16}, Shape{3, 3, 40}})
    for (const std::int64_t batch : {0, 2, 5})
      for (int k = 0; k < 16; ++k) {
        const LayerPtr layer = layers::batch_norm2d({.affine = (k & 8) == 0});
        const Options o{.relu = (k & 1) != 0,
                        .residual = (k & 2) != 0,
                        .write = (k & 4) != 0 ? Write::kAdd : Write::kOverwrite};
        compare<TypeParam>(*layer, {item}, batch, o);
        compare<TypeParam>(*layer, {item}, batch,
                           {.training = false, .relu = o.relu, .residual = o.residual});
      }
}

// Alone, with another replica, and without samples of its own beside one that has some.
TYPED_TEST(ImageLayersCuda, SynchronisedBatchNormAgreesWithFloat64) {
  const LayerPtr layer = layers::sync_batch_norm2d({});
  EXPECT_TRUE(layer->traits().uses_replicas);
  EXPECT_FALSE(layers::batch_norm2d({})->traits().uses_replicas);
  for (const std::int64_t other : {-1, 0, 100})
    for (const std::int64_t batch : {0, 3})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        if (other == 0 && batch == 0) continue;
        compare<TypeParam>(*layer, {{5, 7, 6}}, batch,
                           {.relu = true, .write = write, .other_rows = other});
        compare<TypeParam>(*layer, {{8, 8, 16}}, batch,
                           {.residual = true, .write = write, .other_rows = other});
        compare<TypeParam>(*layer, {{8, 8, 16}}, batch, {.training = false, .other_rows = other});
      }
}

}  // namespace
}  // namespace engine
