// Plan::compile: from a graph to steps with memory.
//
// 1. Fusion (fusion.cc) selects the nodes that become steps; they keep the order of the graph.
//    Tensor
//    i belongs to node i.
// 2. Gradients: a tensor has one if it depends on a parameter and the loss depends on it; so inputs
//    have none, and the first convolution computes no gradient of its input. A step runs backward
//    if
//    its output has a gradient. Frozen parameters do not count here.
// 3. Writes: backward runs the steps from the end. The first step that writes a tensor's gradient
//    overwrites, the others add, so that nothing has to be cleared. Within a step the residual's
//    gradient is written first, then the inputs' in order. The same holds for the gradients of
//    parameters that several steps share.
// 4. Time (plan_memory.cc): forward of step i is time i, its backward 2S-1-i, for S steps; 2S is
//    after everything. With three steps, forward is 0 1 2 and backward 3 4 5, so that step 0 runs
//    at 0 and at 5. Each tensor, gradient and saved area is a block that lives from its first write
//    to its last read:
//      tensor     from its step's forward to the last forward that reads it, or the last backward
//                 that needs it (Layer::backward_needs; a fused ReLU needs the step's output). The
//                 loss lives to the end, the logits to the end of forward.
//      gradient   from the backward of its last reader to the backward of its own step
//      saved      from its step's forward to its backward
//    An inference plan has only forward times and no gradients or saved areas.
// 5. In place: a step that allows it overwrites input 0 (and in backward the gradient of its
//    output) if no later step reads that memory; the two blocks then become one. The same applies
//    to what a step saves and then the gradient of input 0: logits, softmax - target and dlogits
//    share a block.
// 6. Recomputation, with a memory limit (recomputation.cc): before the backward of the last step of
//    a segment, the segment's steps run forward again, at times of their own, except those whose
//    results backward does not need or that are kept. Values that are read outside their segment
//    are kept. All others, and what their steps save, live twice, at the same offset: in forward
//    from their first write to the last read of forward, and from the second write to the last
//    read. So a step has the same views at all times. Steps with statistics of the batch keep what
//    they saved (LayerTraits::repeats_from_saved).
// 7. memory_layout.cc places the blocks; blocks of activations, gradients and saved areas share the
//    arena if their times allow it. All of this is known before the first step, so a step needs no
//    allocation.
#include "engine/graph/plan.h"

#include <algorithm>

#include "engine/core/arena.h"
#include "engine/core/checked.h"
#include "engine/graph/fusion.h"
#include "engine/graph/model_state.h"
#include "engine/graph/plan_memory.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine {
namespace {

class Compiler {
 public:
  Compiler(const Graph& graph, const PlanOptions& options)
      : graph_(graph), fused_(fuse_steps(graph, options.fuse, options.watched)) {
    plan_.options = options;
    plan_.storage = stored_dtype(graph, options);
    plan_.graph = &graph;
  }

  Plan run() {
    make_tensors();
    make_steps();
    // Sums over a batch also use scratch, although no layer requests it.
    if (plan_.options.device == Device::Kind::kCuda) plan_.scratch_bytes = kDeviceScratchBytes;
    if (training()) {
      find_gradients();
      order_writes();
    }
    size_scratch_and_saved();
    mark_completion();
    place_memory();
    return std::move(plan_);
  }

 private:
  static constexpr std::size_t kDeviceScratchBytes = std::size_t{1} << 20;

  bool training() const { return plan_.options.training; }
  int step_count() const { return static_cast<int>(plan_.steps.size()); }
  const Graph::Node& node(int id) const { return graph_.nodes()[static_cast<std::size_t>(id)]; }
  PlanTensor& tensor(int i) { return plan_.tensors[static_cast<std::size_t>(i)]; }
  const PlanTensor& tensor(int i) const { return plan_.tensors[static_cast<std::size_t>(i)]; }
  PlanStep& step(int i) { return plan_.steps[static_cast<std::size_t>(i)]; }
  int root(int i) const { return tensor(i).root; }
  bool has_gradient(int i) const { return has_gradient_[static_cast<std::size_t>(i)]; }

  // Whether the tensor is the loss, or regression targets, which only the loss reads.
  bool of_loss(int i) const {
    const Graph::Node& loss = node(graph_.loss());
    return i == graph_.loss() ||
           (node(i).layer == nullptr && loss.inputs.size() == 2 && loss.inputs[1] == i);
  }

  // Losses and targets are never stored in a half type.
  DType tensor_dtype(int i) const {
    if (node(i).dtype != DType::kF32) return node(i).dtype;
    return of_loss(i) ? state_dtype(plan_.options.dtype) : plan_.storage;
  }

  // A plan that extends texts computes fewer positions, the first extent of all shapes.
  Shape planned(Shape shape) const {
    if (plan_.options.positions > 0) shape[0] = plan_.options.positions;
    return shape;
  }
  std::vector<Shape> input_shapes(NodeId id) const {
    std::vector<Shape> shapes = graph_.input_shapes(id);
    for (Shape& shape : shapes) shape = planned(shape);
    return shapes;
  }

  void make_tensors() {
    for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
      const Graph::Node& from = node(i);
      checked_elements(
          checked_multiply(from.shape.count(), plan_.options.max_batch),
          graph_.describe(i) + ": " + from.shape.with_batch(plan_.options.max_batch).to_string());
      plan_.tensors.push_back({.item_shape = planned(from.shape),
                               .dtype = tensor_dtype(i),
                               .root = fused_.root[static_cast<std::size_t>(i)]});
      if (!from.layer) plan_.inputs.push_back(i);
    }
    plan_.logits = graph_.logits();
    plan_.loss = graph_.loss();
  }

  void make_steps() {
    for (const FusedStep& from : fused_.steps) {
      if (plan_.options.positions > 0 && from.output == graph_.loss()) continue;
      PlanStep made;
      made.node = from.node;
      made.layer = node(from.node).layer.get();
      made.inputs.assign(node(from.node).inputs.begin(), node(from.node).inputs.end());
      made.output = from.output;
      made.relu = from.relu;
      made.residual = from.residual;
      made.input_writes.assign(made.inputs.size(), Write::kOverwrite);
      plan_.steps.push_back(std::move(made));
    }
  }

  void find_gradients() {
    std::vector<bool> trained(plan_.tensors.size(), false), wanted(plan_.tensors.size(), false);
    for (const PlanStep& s : plan_.steps) {
      bool depends = graph_.trains(s.node);
      for_each_read(plan_, s,
                    [&](int r) { depends = depends || trained[static_cast<std::size_t>(r)]; });
      trained[static_cast<std::size_t>(s.output)] = depends;
    }
    wanted[static_cast<std::size_t>(root(plan_.loss))] = true;
    for (int i = step_count() - 1; i >= 0; --i)
      if (wanted[static_cast<std::size_t>(step(i).output)])
        for_each_read(plan_, step(i), [&](int r) { wanted[static_cast<std::size_t>(r)] = true; });
    has_gradient_.resize(plan_.tensors.size());
    for (std::size_t i = 0; i < has_gradient_.size(); ++i)
      has_gradient_[i] = trained[i] && wanted[i];
    for (PlanStep& s : plan_.steps) {
      s.backward = has_gradient(s.output);
      s.still = has_frozen_statistics(s);
    }
  }

  bool has_frozen_statistics(const PlanStep& s) const {
    const std::vector<Shape> shapes = graph_.input_shapes(s.node);
    return !s.layer->buffers(shapes).empty() && !s.layer->parameters(shapes).empty() &&
           !graph_.trains(s.node);
  }

  void order_writes() {
    std::vector<bool> written(plan_.tensors.size(), false);
    const auto next_write = [&](int r) {
      const Write write = written[static_cast<std::size_t>(r)] ? Write::kAdd : Write::kOverwrite;
      written[static_cast<std::size_t>(r)] = true;
      return write;
    };
    for (int i = step_count() - 1; i >= 0; --i) {
      PlanStep& s = step(i);
      if (!s.backward) continue;
      if (s.residual >= 0) s.residual_write = next_write(root(s.residual));
      for (std::size_t k = 0; k < s.inputs.size(); ++k)
        s.input_writes[k] = next_write(root(s.inputs[k]));
    }
    std::vector<bool> used(graph_.nodes().size(), false);  // for each owner of parameters
    for (int i = step_count() - 1; i >= 0; --i) {
      const auto owner = static_cast<std::size_t>(graph_.parameter_node(step(i).node));
      step(i).adds_to_parameters = used[owner];
      used[owner] = true;
    }
  }

  void size_scratch_and_saved() {
    const PlanOptions& options = plan_.options;
    for (PlanStep& s : plan_.steps) {
      const std::vector<Shape> shapes = input_shapes(s.node);
      const LayerMemory memory = s.layer->memory({.inputs = shapes,
                                                  .batch = options.max_batch,
                                                  .dtype = plan_.storage,
                                                  .threads = options.threads,
                                                  .device = options.device,
                                                  .products = options.products,
                                                  .packed = options.packed});
      if (training()) s.saved_bytes = memory.saved;
      if (options.positions > 0) {
        s.kept_per_position = memory.kept_per_position;
        s.packed = memory.packed;
      }
      plan_.scratch_bytes = std::max(plan_.scratch_bytes, memory.scratch);
    }
  }

  void mark_completion() {
    std::vector<std::size_t> bytes_of_node(graph_.nodes().size(), 0);
    const DType dtype = state_dtype(plan_.options.dtype);
    const std::size_t unit = size_of(dtype);
    for (const OrderedParameter& parameter : completion_order(graph_, dtype))
      if (!parameter.frozen)
        bytes_of_node[static_cast<std::size_t>(parameter.node)] +=
            align_up(static_cast<std::size_t>(parameter.layout.layout.file_shape.count()) * unit);
    std::size_t complete = 0;
    for (int i = step_count() - 1; i >= 0; --i) {
      complete += bytes_of_node[static_cast<std::size_t>(step(i).node)];
      step(i).gradients_complete = static_cast<std::int64_t>(complete / unit);
    }
  }

  void place_memory() {
    PlanMemory memory(plan_, has_gradient_);
    memory.place({});
    const std::size_t limit = plan_.options.memory_limit;
    if (!training() || limit == 0 || plan_.arena_bytes + plan_.scratch_bytes <= limit) return;
    const std::vector<StepCost> costs = memory.step_costs();
    memory.place(choose_segments(costs, std::max(limit, plan_.scratch_bytes) - plan_.scratch_bytes,
                                 [&](const std::vector<PlanSegment>& segments) {
                                   memory.place(segments);
                                   return SegmentTrial{.bytes = plan_.arena_bytes,
                                                       .flops = memory.repeated_flops()};
                                 }));
  }

  const Graph& graph_;
  FusionResult fused_;
  Plan plan_;
  std::vector<bool> has_gradient_;
};

void check_options(const Graph& graph, const PlanOptions& options) {
  if (graph.logits() < 0 || graph.loss() < 0)
    throw ModelError("the graph has no outputs: set_outputs() names logits and loss");
  require(options.max_batch >= 1 && options.threads >= 1, "a plan needs a batch and a thread");
  const bool cuda = options.device == Device::Kind::kCuda;
  require(options.dtype == state_dtype(options.dtype) || cuda,
          "a plan computes in f32 or f64, on a CUDA device also in bf16 or f16");
  require(options.dtype == DType::kF32 || options.dtype == DType::kF64 || is_half(options.dtype),
          "a plan computes in a floating-point type");
  if (!cuda && ops::in_bf16(options.products))
    require(options.dtype == DType::kF32, "what is rounded to bf16 is f32");
  require(options.positions == 0 || (!options.training && extends_texts(graph)),
          "only inference with a model of text computes positions one by one");
  require(options.packed == DType::kF32 || !cuda, "weights are packed in bf16 on the CPU only");
}

}  // namespace

Plan Plan::compile(const Graph& graph, const PlanOptions& options) {
  check_options(graph, options);
  return Compiler(graph, options).run();
}

}  // namespace engine
