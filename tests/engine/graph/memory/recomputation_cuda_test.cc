// Recomputation on a CUDA device: the same bits as from a plan that keeps all activations.
#include <cstring>

#include "engine/graph/device_executor.h"
#include "engine/layers/layers.h"
#include "engine/ops/optim_step/device_step.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/engine/ops/device/cuda_test_support.h"

namespace {

using engine::DType;
using engine::Graph;
using engine::NodeId;
namespace cuda = engine::cuda;
namespace layers = engine::layers;

constexpr engine::Device kDevice{engine::Device::Kind::kCuda, 0};

std::vector<std::byte> read(const engine::FlatBuffer& buffer, void* stream) {
  std::vector<std::byte> bytes(buffer.bytes());
  if (!bytes.empty()) cuda::copy_async(bytes.data(), buffer.data(), bytes.size(), stream);
  cuda::synchronize_stream(stream);
  return bytes;
}

// The gradients, running statistics and counters after two micro-batches, and their loss.
struct Found {
  std::vector<std::vector<std::byte>> state;
  double loss = 0;
  int repeated = 0;  // steps
};

// A state on the device with the initial values of one on the host, and the control of steps.
struct DeviceState {
  DeviceState(const Graph& graph, DType dtype, engine::KernelContext& context)
      : state(engine::ModelState::allocate(graph, dtype, kDevice)),
        control(sizeof(engine::StepControl), kDevice, "workspace") {
    engine::ModelState host = engine::ModelState::allocate(graph, DType::kF32);
    host.initialize(graph, 5);
    for (const auto& [from, to] :
         {std::pair{&host.parameters.values, &state.parameters.values},
          std::pair{&host.running, &state.running}, std::pair{&host.counters, &state.counters}})
      if (to->bytes() > 0) cuda::copy_async(to->data(), from->data(), to->bytes(), context.stream);
    const engine::StepControl first;
    cuda::copy_async(control.data(), &first, sizeof first, context.stream);
    cuda::synchronize_stream(context.stream);
    if (const engine::TensorView half = state.half_flat())
      engine::ops::copy_to_half(context, state.parameters.values.flat(), half);
  }
  engine::ModelState state;
  engine::Arena control;
};

Found two_micro_batches(const Graph& graph, DType dtype, std::size_t limit) {
  constexpr std::int64_t kCount = 3;
  cuda::Stream stream;
  engine::KernelContext context;
  context.device = kDevice;
  context.stream = stream.handle();
  const engine::Plan plan = engine::Plan::compile(
      graph, {.max_batch = kCount, .dtype = dtype, .device = kDevice.kind, .memory_limit = limit});
  DeviceState on_device(graph, dtype, context);
  engine::DeviceExecutor executor(plan, on_device.state, context, {.seed = 5});
  executor.set_control(reinterpret_cast<const engine::StepControl*>(on_device.control.data()));
  Found found{.repeated = plan.recomputation.steps};
  for (const std::uint64_t seed : {7, 8}) {
    const test_support::RandomBatch batch(graph, kCount, seed);
    const int slot = executor.stage(batch.view(), {.epoch = 2}, true);
    executor.forward(slot, true);
    executor.backward(slot, seed == 7 ? engine::Write::kOverwrite : engine::Write::kAdd, {});
    executor.release(slot);
  }
  found.loss = executor.results().total.loss_sum;
  for (const engine::FlatBuffer* buffer :
       {&on_device.state.parameters.gradients, &on_device.state.running, &on_device.state.counters})
    found.state.push_back(read(*buffer, context.stream));
  return found;
}

class RecomputationCuda : public cuda_test::CudaTest {
 protected:
  // Returns the number of steps that ran again.
  static int expect_same_bits(const Graph& graph, DType dtype) {
    const Found whole = two_micro_batches(graph, dtype, 0),
                limited = two_micro_batches(graph, dtype, 1);
    EXPECT_EQ(whole.repeated, 0);
    EXPECT_EQ(whole.loss, limited.loss);
    EXPECT_EQ(whole.state, limited.state);
    return limited.repeated;
  }
};

TEST_F(RecomputationCuda, ImagesHaveTheSameBitsAndStatistics) {
  int repeated = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(seed);
      repeated += expect_same_bits(test_support::random_graph(seed), dtype);
    }
  EXPECT_GT(repeated, 0);
}

TEST_F(RecomputationCuda, TextsHaveTheSameBits) {
  const Graph graph = test_support::text_model(6, [](Graph& g, NodeId x) {
    NodeId at = g.add("e", layers::embedding(11, 16), {x});
    for (const std::string name : {"a", "b", "c"}) {
      const NodeId norm = g.add(name + "n", layers::layer_norm(), {at});
      const NodeId qkv = g.add(name + "q", layers::dense(48), {norm});
      const NodeId mixed = g.add(name, layers::causal_self_attention(2, 0.2), {qkv});
      const NodeId wide = g.add(name + "w", layers::dense(32), {mixed});
      const NodeId bent = g.add("", layers::gelu(engine::ops::GeluKind::kTanh), {wide});
      const NodeId narrow = g.add(name + "p", layers::dense(16), {bent});
      at = g.add("", layers::add(), {at, g.add("", layers::dropout(0.2), {narrow})});
    }
    return g.add("fc", layers::dense(11), {at});
  });
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    EXPECT_GT(expect_same_bits(graph, dtype), 0);
}

}  // namespace
