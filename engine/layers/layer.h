// One kind of node of the graph: its traits as data, output shape, parameter specs, forward and
// backward.
// A layer is constant after construction, owns no memory, knows no rank and no batch size; one
// object may serve several plans and threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/replica_exchange.h"
#include "engine/core/tensor_layout.h"
#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

// Initial values of a parameter, drawn from its own stream of (seed, name) in file order: the same
// for every rank.
struct Initializer {
  enum class Kind { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  double value =
      0;  // the constant; or the half-width of the uniform range; or the standard deviation
};

struct ParameterSpec {
  std::string name;  // "weight": the node's name and a dot come before it
  TensorLayout layout;
  Initializer initializer;
};

// State that is not trained: running statistics (in the compute dtype; f32 on a CUDA device) and
// counters (i64).
struct BufferSpec {
  std::string name;  // "running_mean"
  Shape shape;
  bool counter = false;
  double initial = 0;
};

// A number that a layer was made with.
struct LayerOption {
  std::string_view name;  // as in a model's TOML file
  double value = 0;
};

// What a plan may fold into this layer (see LayerRun::relu and LayerRun::residual).
struct Fusions {
  bool relu = false;      // a ReLU that alone reads the output
  bool residual = false;  // an addition of another tensor before that ReLU
};

// What of the forward pass must still be in memory when backward runs.
struct BackwardNeeds {
  bool inputs = false;
  bool output = false;  // a plan that fuses a ReLU keeps the output in any case
};

// Describes a layer as data, whatever its inputs are.
struct LayerTraits {
  std::string_view kind;  // "conv2d", as in a model's TOML file
  // Numbers that inference depends on and that neither the kind nor shapes of inputs and
  // parameters say: for files of other programs.
  std::vector<LayerOption> options = {};
  int integer_input = -1;  // the input that has class labels or token ids, i32; -1: none
  BackwardNeeds backward_needs = {};
  Fusions fusions = {};
  // The CPU has kernels for it whose activations are stored in bf16.
  bool stores_bf16_on_cpu = false;
  // It calls ReplicaStatistics::replicas.
  bool uses_replicas = false;
  // On a CUDA device, where the replicas are there, it waits for the context's stream: such a step
  // cannot be captured as a graph.
  bool synchronizes_host = false;
  // The output may be written over input 0 when nobody else needs that input; and in backward the
  // gradient of input 0 over the gradient of the output.
  bool may_run_in_place = false;
  // What is saved may be written over input 0 when nobody else needs that input, and in backward
  // the gradient of input 0 over what is saved. For layers that save as much as input 0 has.
  bool may_save_in_place = false;
};

// Everything that the memory of a layer depends on.
struct MemoryRequest {
  std::span<const Shape> inputs;  // item shapes, without the batch
  std::int64_t batch = 1;
  DType dtype = DType::kF32;  // of activations
  int threads = 1;
  Device::Kind device = Device::Kind::kCpu;
  Products products = Products::kF32;
};

// In bytes.
struct LayerMemory {
  std::size_t saved = 0;    // kept from forward to backward
  std::size_t scratch = 0;  // KernelContext::scratch, within one call
};

// Random numbers of a step are drawn from these: the key of (seed, layer name), the epoch, and the
// data set's ids of the batch's samples.
struct LayerRandomness {
  std::uint64_t key = 0, epoch = 0;
  std::span<const std::int64_t> sample_ids{};
};

// For layers with statistics of batches.
struct ReplicaStatistics {
  ReplicaExchange* replicas = nullptr;  // for layers with uses_replicas; null: the only replica
  // Training of others: the layer's own parameters are frozen, it uses its running statistics as in
  // inference and leaves them as they are.
  bool still = false;
  // The weight of this batch in running statistics; below 0: the layer's momentum.
  double weight = -1;
};

// Gradients that backward reads and writes.
struct LayerGradients {
  TensorView output{};                    // nobody reads it afterwards: backward may overwrite it
  std::span<const TensorView> inputs{};   // absent where not needed
  std::span<const Write> input_writes{};  // kAdd when another consumer has written there first
  TensorView residual{};                  // absent when nothing is fused or not needed
  Write residual_write = Write::kOverwrite;
  std::span<const TensorView> parameters{};
  Write parameter_write =
      Write::kOverwrite;  // kAdd while gradients are accumulated over micro-batches
};

// One execution of one layer. All shapes are [batch, item shape...].
struct LayerRun {
  KernelContext& kernels;
  bool training = false;
  std::span<const TensorView> inputs{};
  std::span<const TensorView> parameters{};  // as parameters() lists them, in memory shape
  std::span<const TensorView> buffers{};     // as buffers() lists them
  TensorView output{};
  std::span<std::byte> saved{};  // LayerMemory::saved; empty in inference
  bool relu = false;             // fused
  TensorView residual{};         // fused; absent otherwise
  // For the layer whose output is the loss of class labels: i32, one for each loss, which it
  // writes: how many classes come before the label's. For the batch's totals.
  TensorView ranks{};
  LayerRandomness random{};
  ReplicaStatistics statistics{};
  LayerGradients gradients{};  // backward only
};

class Layer {
 public:
  explicit Layer(LayerTraits traits) : traits_(std::move(traits)) {}
  virtual ~Layer() = default;

  const LayerTraits& traits() const { return traits_; }
  std::string_view kind() const { return traits_.kind; }
  // kF32 stands for the compute dtype; kI32 for labels and token ids.
  DType input_dtype(int index) const {
    return index == traits_.integer_input ? DType::kI32 : DType::kF32;
  }

  // Item shapes, without the batch. Throws ShapeError that says what was expected and what came;
  // the graph adds the name.
  virtual Shape output_shape(std::span<const Shape> inputs) const = 0;
  // The output is the input's memory, unchanged (flatten of one channel, dropout of rate 0): no
  // buffer, no work.
  virtual bool is_alias(std::span<const Shape>) const { return false; }
  virtual std::vector<ParameterSpec> parameters(std::span<const Shape>) const { return {}; }
  virtual std::vector<BufferSpec> buffers(std::span<const Shape>) const { return {}; }
  virtual LayerMemory memory(const MemoryRequest&) const { return {}; }
  // The same layer with its batch statistics taken over all replicas, under the same parameter and
  // buffer names; null where nothing in it depends on other samples of the batch, or where it is
  // that already.
  virtual std::unique_ptr<const Layer> synchronized() const { return nullptr; }

  virtual void forward(const LayerRun& run) const = 0;
  virtual void backward(const LayerRun& run) const = 0;

 private:
  const LayerTraits traits_;
};

using LayerPtr = std::unique_ptr<const Layer>;

}  // namespace engine
