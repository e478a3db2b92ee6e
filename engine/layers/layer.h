// Defines the interface of one kind of graph node: its traits as data, output shape, parameter
// specs, forward and backward.
// A layer is constant after construction, owns no memory, and knows neither ranks nor the batch
// size; one object may serve several plans and threads at once.
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

// Initial values of a parameter, drawn from a separate stream of (seed, name) in file order: the
// same on every rank.
struct Initializer {
  enum class Kind { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  double value =
      0;  // the constant; or the half-width of the uniform range; or the standard deviation
};

struct ParameterSpec {
  std::string name;  // "weight"; the node's name and a dot precede it
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
  bool is_constant = false;  // comes with the model, and training never changes it
};

// A number that a layer was constructed with.
struct LayerOption {
  std::string_view name;  // as in a model's TOML file
  double value = 0;
};

// Operations that a plan may fuse into this layer (see LayerRun::relu and LayerRun::residual).
struct Fusions {
  bool relu = false;      // a ReLU that is the only reader of the output
  bool residual = false;  // an addition of another tensor before that ReLU
};

// Results of the forward pass that must still be in memory when backward runs.
struct BackwardNeeds {
  bool inputs = false;
  bool output = false;  // a plan that fuses a ReLU always keeps the output
};

// Describes a layer as data, independently of its inputs.
struct LayerTraits {
  std::string_view kind;  // "conv2d", as in a model's TOML file
  // The numbers that inference depends on and that neither the kind nor the shapes of inputs and
  // parameters determine. Exports to other formats use them.
  std::vector<LayerOption> options = {};
  int integer_input = -1;  // the input that has class labels or token ids, i32; -1: none
  BackwardNeeds backward_needs = {};
  Fusions fusions = {};
  // The CPU has kernels for this layer that store activations in bf16.
  bool stores_bf16_on_cpu = false;
  // False: the layer has no inputs, and its output is the same for every sample.
  bool reads_inputs = true;
  // The layer calls ReplicaStatistics::replicas, in training once in forward and once in backward,
  // with two numbers for each channel of its output. On a CUDA device it waits for the context's
  // stream if they pass through host memory: such a step cannot be captured as a graph.
  bool uses_replicas = false;
  // The output may overwrite input 0 if no other layer needs that input; in backward, the gradient
  // of input 0 may overwrite the gradient of the output.
  bool may_run_in_place = false;
  // The saved values may overwrite input 0 if no other layer needs that input; in backward, the
  // gradient of input 0 may overwrite the saved values. For layers that save as much as input 0
  // has.
  bool may_save_in_place = false;
  // A forward pass that runs again (LayerRun::repeats) reads what the first one saved.
  bool repeats_from_saved = false;
  // In inference the layer can compute the next positions of a text alone: each row of its output
  // depends on the same row of its inputs only, or the layer uses LayerRun::earlier.
  bool extends_texts = false;
};

// Everything that determines the memory of a layer.
struct MemoryRequest {
  std::span<const Shape> inputs;  // item shapes, without the batch
  std::int64_t batch = 1;
  DType dtype = DType::kF32;  // dtype of activations
  int threads = 1;
  Device::Kind device = Device::Kind::kCpu;
  Products products = Products::kF32;
  DType packed = DType::kF32;  // dtype of LayerMemory::packed: kF32 or kBF16
};

// Sizes in bytes.
struct LayerMemory {
  std::size_t saved = 0;    // kept from forward to backward
  std::size_t scratch = 0;  // KernelContext::scratch, within one call
  // Kept of each position of a text for the positions after it: keys and values.
  std::size_t kept_per_position = 0;
  // For the parameters in another form, which extending texts reads instead.
  std::size_t packed = 0;
};

// The random numbers of a step depend on these: the key of (seed, layer name), the epoch, and the
// data set's ids of the batch's samples.
struct LayerRandomness {
  std::uint64_t key = 0, epoch = 0;
  std::span<const std::int64_t> sample_ids{};
};

// The positions of texts that earlier calls have computed; the inputs of this call are the ones
// that follow.
struct EarlierPositions {
  // For each sample, in host memory on every device; empty: the inputs are whole samples.
  std::span<const std::int64_t> counts{};
  std::int64_t capacity = 0;  // the largest number of positions of a text
  // [samples, capacity * LayerMemory::kept_per_position], in an order within a sample that the
  // layer chooses. It writes what it keeps of the positions of this call.
  std::span<std::byte> kept{};
  std::span<std::byte> packed{};  // LayerMemory::packed, 64-byte aligned
  bool is_packed = false;         // by an earlier call; else this one writes it
  DType packed_dtype = DType::kF32;
};

// The context of layers with batch statistics.
struct ReplicaStatistics {
  ReplicaExchange* replicas = nullptr;  // for layers with uses_replicas; null: this is the only
                                        // replica
  // Only other layers are trained: this layer's parameters are frozen, and it uses its running
  // statistics as in inference without changing them.
  bool still = false;
  // The weight of this batch in running statistics; if negative, the layer's momentum is used.
  double weight = -1;
};

// The gradients that backward reads and writes.
struct LayerGradients {
  TensorView output{};                    // backward may overwrite it: nothing reads it later
  std::span<const TensorView> inputs{};   // absent if not needed
  std::span<const Write> input_writes{};  // kAdd if another consumer has written there before
  TensorView residual{};                  // absent if nothing is fused or it is not needed
  Write residual_write = Write::kOverwrite;
  std::span<const TensorView> parameters{};
  Write parameter_write =
      Write::kOverwrite;  // kAdd while gradients are accumulated over micro-batches
};

// One execution of one layer. All shapes are [batch, item shape...].
struct LayerRun {
  KernelContext& kernels;
  bool training = false;
  // Backward runs this forward pass again, because the plan has not kept its output: the layer
  // writes the same output and the same saved values, and changes no buffers.
  bool repeats = false;
  std::span<const TensorView> inputs{};
  std::span<const TensorView> parameters{};  // as parameters() lists them, in memory shape
  std::span<const TensorView> buffers{};     // as buffers() lists them
  TensorView output{};
  std::span<std::byte> saved{};  // LayerMemory::saved; empty in inference
  bool relu = false;             // a fused ReLU follows
  TensorView residual{};         // fused addition; absent otherwise
  // Only for the layer whose output is the loss of class labels, which writes it: for each loss,
  // i32, the number of classes that rank before the label's class. The totals of a batch use it.
  TensorView ranks{};
  LayerRandomness random{};
  EarlierPositions earlier{};  // inference only
  ReplicaStatistics statistics{};
  LayerGradients gradients{};  // backward only
};

// Forms that a layer may also have, with the same names of parameters and buffers.
enum class LayerForm {
  kSynchronized,  // with batch statistics over all replicas
  kCommonLayout,  // parameters in the layout of layers of its kind with other options: for sharing
};

class Layer {
 public:
  explicit Layer(LayerTraits traits) : traits_(std::move(traits)) {}
  virtual ~Layer() = default;

  const LayerTraits& traits() const { return traits_; }
  std::string_view kind() const { return traits_.kind; }
  // kF32 stands for the compute dtype; labels and token ids are kI32.
  DType input_dtype(int index) const {
    return index == traits_.integer_input ? DType::kI32 : DType::kF32;
  }

  // Item shapes, without the batch. Throws ShapeError with the expected and the given shapes; the
  // graph adds the name.
  virtual Shape output_shape(std::span<const Shape> inputs) const = 0;
  // Returns true if the output is the unchanged memory of the input (flatten of one channel,
  // dropout of rate 0), which needs no buffer and no work.
  virtual bool is_alias(std::span<const Shape>) const { return false; }
  virtual std::vector<ParameterSpec> parameters(std::span<const Shape>) const { return {}; }
  virtual std::vector<BufferSpec> buffers(std::span<const Shape>) const { return {}; }
  virtual LayerMemory memory(const MemoryRequest&) const { return {}; }
  // Returns the same layer in that form; null if it has none, or is in it already.
  virtual std::unique_ptr<const Layer> in_form(LayerForm) const { return nullptr; }

  virtual void forward(const LayerRun& run) const = 0;
  virtual void backward(const LayerRun& run) const = 0;

 private:
  const LayerTraits traits_;
};

using LayerPtr = std::unique_ptr<const Layer>;

}  // namespace engine
