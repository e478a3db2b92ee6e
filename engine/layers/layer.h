// One kind of node of the graph: output shape, parameter specs, forward, backward.
// A layer is constant after construction, owns no memory, knows no rank and no batch size; one
// object may serve several plans and threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

// One execution of one layer. All shapes are [batch, item shape...].
struct LayerRun {
  KernelContext& kernels;
  bool training = false;
  std::span<const TensorView> inputs{};
  std::span<const TensorView> parameters{};  // as parameters() lists them, in memory shape
  std::span<const TensorView> buffers{};     // as buffers() lists them
  TensorView output{};
  std::span<std::byte> saved{};  // saved_bytes(), kept from forward to backward; empty in inference
  bool relu = false;             // fused
  TensorView residual{};         // fused; absent otherwise

  // Randomness of this step: (seed, layer name) key, epoch, and the data set's ids of the batch's
  // samples.
  std::uint64_t key = 0, epoch = 0;
  std::span<const std::int64_t> sample_ids{};

  // For layers with statistics over all replicas (synchronized()); null: this is the only one.
  ReplicaExchange* replicas = nullptr;

  // Training of others: the layer's own parameters are frozen, it uses its running statistics as in
  // inference and leaves them as they are. For layers with statistics.
  bool still = false;

  // What this batch counts for in running statistics; below 0: what the layer's momentum says.
  double statistics_weight = -1;

  // For the layer whose output is the loss of class labels: i32, one for each loss, which it
  // writes: how many classes come before the label's. For the batch's totals.
  TensorView ranks{};

  // Backward only.
  TensorView output_gradient{};  // nobody reads it afterwards: backward may overwrite it
  std::span<const TensorView> input_gradients{};  // absent where not needed
  std::span<const Write> input_writes{};  // kAdd when another consumer has written there first
  TensorView residual_gradient{};         // absent when nothing is fused or not needed
  Write residual_write = Write::kOverwrite;
  std::span<const TensorView> parameter_gradients{};
  Write parameter_write =
      Write::kOverwrite;  // kAdd while gradients are accumulated over micro-batches
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string_view kind() const = 0;  // "conv2d", as in a model's TOML file

  // kF32 stands for the compute dtype; kI32 for labels and token ids.
  virtual DType input_dtype(int /*index*/) const { return DType::kF32; }
  // Item shapes, without the batch. Throws ShapeError that says what was expected and what came;
  // the graph adds the name.
  virtual Shape output_shape(std::span<const Shape> inputs) const = 0;
  virtual std::vector<ParameterSpec> parameters(std::span<const Shape>) const { return {}; }
  virtual std::vector<BufferSpec> buffers(std::span<const Shape>) const { return {}; }

  // What inference depends on and neither kind nor shapes of inputs and parameters say: for files
  // of other programs.
  virtual std::vector<LayerOption> options() const { return {}; }

  virtual std::size_t saved_bytes(std::span<const Shape>, std::int64_t /*batch*/, DType) const {
    return 0;
  }
  virtual std::size_t scratch_bytes(std::span<const Shape>, std::int64_t /*batch*/, DType,
                                    int /*threads*/, Device::Kind, Products) const {
    return 0;
  }
  virtual BackwardNeeds backward_needs() const { return {}; }
  virtual Fusions fusions() const { return {}; }
  // The same layer with its batch statistics taken over all replicas, under the same parameter and
  // buffer names; null where nothing in it depends on other samples of the batch, or where it is
  // that already.
  virtual std::unique_ptr<const Layer> synchronized() const { return nullptr; }
  // Whether the CPU has kernels for it whose activations are stored in bf16.
  virtual bool stores_bf16_on_cpu() const { return false; }
  // Whether it calls LayerRun::replicas.
  virtual bool uses_replicas() const { return false; }
  // Whether on a CUDA device, where LayerRun::replicas is there, it waits for the context's stream:
  // such a step cannot be captured as a graph.
  virtual bool synchronizes_host() const { return false; }
  // The output is the input's memory, unchanged (flatten of one channel, dropout of rate 0): no
  // buffer, no work.
  virtual bool is_alias(std::span<const Shape>) const { return false; }
  // The output may be written over input 0 when nobody else needs that input; and in backward the
  // gradient of input 0 over the gradient of the output.
  virtual bool may_run_in_place() const { return false; }
  // What is saved may be written over input 0 when nobody else needs that input, and in backward
  // the gradient of input 0 over what is saved. For layers that save as much as input 0 has.
  virtual bool may_save_in_place() const { return false; }

  virtual void forward(const LayerRun& run) const = 0;
  virtual void backward(const LayerRun& run) const = 0;
};

using LayerPtr = std::unique_ptr<const Layer>;

}  // namespace engine
