// Executor: the constructor makes the views of every step; a run changes only batch extents and the
// addresses of inputs.
#include "engine/graph/executor.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "engine/core/cuda.h"
#include "engine/core/random.h"
#include "engine/graph/batch_targets.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/loss/row_weights.h"
#include "engine/ops/optim_step/device_step.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

struct Step {
  explicit Step(KernelContext& context) : run{.kernels = context} {}

  std::vector<TensorView> inputs, input_gradients, parameters, buffers, parameter_gradients;
  std::span<std::byte> saved;
  LayerRun run;
  const char* name = "layer";  // for traces
};

// A view of memory of the caller of forward(): labels (or targets), or samples (perhaps tokens).
struct Binding {
  TensorView* view;
  bool labels;
};

void set_batch(TensorView& view, std::int64_t count) {
  if (view.shape.rank() > 0) view.shape[0] = count;
}

}  // namespace

struct Executor::Impl {
  const Plan& plan;
  ModelState& state;
  Arena arena, scratch;
  Arena unwanted;  // for gradients of frozen parameters, which layers between trained ones write
  Arena rank_memory;
  KernelContext context;
  std::vector<Step> steps;
  std::vector<Binding> bindings;
  struct Inputs {
    TensorView samples, labels, weights;  // the caller's; weights may be absent: 1 each
    TensorView cast_samples;              // the arena's, where the plan is not f32; else absent
    TensorView image_table;               // absent: batches carry samples
    std::int64_t sample_items = 0, label_items = 0;  // elements of one sample
  };
  struct Outputs {
    TensorView logits, loss, loss_gradient;
    TensorView ranks;  // LayerRun::ranks of the step that gives the loss; absent for targets
  };
  Inputs in;
  BatchTargets targets;
  Outputs out;
  DeviceStep device_step;
  std::int64_t bound_count = -1;
  // LayerRun::earlier of all steps, for `kept_texts` texts of `context_length`, and the steps whose
  // parameters are packed.
  Arena kept;
  std::vector<bool> is_packed;
  std::int64_t kept_texts = 0, context_length = 0;
  bool backward_allowed = false;

  Impl(const Plan& the_plan, ModelState& the_state, const KernelContext& the_context,
       std::uint64_t seed)
      : plan(the_plan),
        state(the_state),
        arena(plan.arena_bytes, the_context.device, "activations"),
        scratch(plan.scratch_bytes, the_context.device, "workspace"),
        unwanted(unwanted_bytes(plan), the_context.device, "workspace"),
        context(the_context) {
    require(state.parameters.values.dtype() == state_dtype(plan.options.dtype),
            "plan and state have different dtypes");
    require(!is_half(plan.options.dtype) || state.half_dtype == plan.options.dtype,
            "the state has no halves of the plan's dtype");
    require(plan.options.device == context.device.kind,
            "the plan was made for another kind of device");
    require(on_cuda(context) || context.threads->threads() == plan.options.threads,
            "the plan was made for another number of threads");
    context.scratch = {scratch.data(), scratch.bytes()};
    bind_inputs();
    steps.reserve(plan.steps.size());
    const std::vector<std::size_t> first_entry = first_entries();
    for (const PlanStep& from : plan.steps) make_step(from, seed, first_entry);
    out.logits = view(plan.logits);
    out.loss = view(plan.loss);
    if (plan.options.training) out.loss_gradient = gradient(plan.loss);
    if (!has_targets()) make_ranks();
  }

  void set_image_table(const TensorView& table) {
    require(on_cuda(context), "images are prepared on CUDA devices only");
    if (reads_tokens() || in.samples.shape.rank() != 4 ||
        table.count() != in.samples.shape[3] * ops::kImageTableRow)
      throw ModelError("the model reads samples of the shape " + in.samples.shape.to_string() +
                       ", not images with " + std::to_string(table.count() / ops::kImageTableRow) +
                       " channels");
    in.image_table = table;
  }

  void check(const BatchView& batch, bool training) const {
    require(batch.count >= 0 && batch.count <= plan.options.max_batch,
            "a batch is larger than the plan's");
    require(!training || plan.options.training, "training needs a training plan");
    require(plan.options.positions == 0, "a plan that extends texts has no whole samples");
    check_batch(batch,
                {.samples = reads_tokens()   ? BatchShape::Samples::kTokens
                            : reads_pixels() ? BatchShape::Samples::kPixels
                                             : BatchShape::Samples::kValues,
                 .sample_items = in.sample_items,
                 .label_items = in.label_items,
                 .classes = has_targets() ? 0 : out.logits.shape[out.logits.shape.rank() - 1],
                 .resident = batch.resident && on_cuda(context)},
                training);
  }

  BatchResult forward(const BatchView& batch, bool training) {
    backward_allowed = false;
    if (!on_cuda(context)) check(batch, training);
    bind(batch);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      LayerRun& run = steps[i].run;
      run.training = training;
      run.repeats = false;
      run.statistics.still = training && plan.steps[i].still;
      run.saved = training ? steps[i].saved : std::span<std::byte>{};
      run.random.epoch = batch.epoch;
      run.random.sample_ids = batch.sample_ids;
      const base::TraceSpan span(steps[i].name);
      plan.steps[i].layer->forward(run);
    }
    backward_allowed = training;
    if (in.weights) ops::weigh_rows(context, in.weights, out.loss);
    if (on_cuda(context)) {
      leave_totals(!training);
      return {};
    }
    ops::BatchTotals totals;
    add_totals(!training, &totals, nullptr);
    return {.loss_sum = totals.loss_sum,
            .correct = totals.correct,
            .rows = totals.rows,
            .top5 = totals.top5};
  }

  void keep_texts(std::int64_t texts) {
    context_length = plan.graph->nodes()[0].shape[0];
    std::size_t bytes = 0;
    for (const PlanStep& step : plan.steps)
      bytes += align_up(kept_bytes(step, texts)) + align_up(step.packed);
    kept = Arena(bytes, context.device, "keys, values and packed weights");
    kept_texts = texts;
    is_packed.assign(plan.steps.size(), false);
  }

  void extend(const TextExtension& next) {
    const std::int64_t texts = std::ssize(next.earlier);
    require(texts * next.positions <= plan.options.max_batch * plan.options.positions &&
                std::ssize(next.tokens) == texts * next.positions &&
                next.first_text + texts <= kept_texts,
            "an extension is larger than its plan");
    set_count(texts);
    set_positions(next.positions);
    for (const Binding& binding : bindings)
      if (!binding.labels) binding.view->data = const_cast<std::int32_t*>(next.tokens.data());
    const PlanStep& last = plan.steps.back();
    const bool skips = !next.logits && last.output == plan.logits && last.kept_per_position == 0;
    std::byte* memory = kept.data();
    for (std::size_t i = 0; i + (skips ? 1 : 0) < steps.size(); ++i) {
      LayerRun& run = steps[i].run;
      const std::size_t each = kept_bytes(plan.steps[i], 1);
      std::byte* packed = memory + align_up(kept_bytes(plan.steps[i], kept_texts));
      run.earlier = {next.earlier,
                     context_length,
                     {memory + static_cast<std::size_t>(next.first_text) * each,
                      static_cast<std::size_t>(texts) * each},
                     {packed, plan.steps[i].packed},
                     is_packed[i],
                     plan.options.packed};
      memory = packed + align_up(plan.steps[i].packed);
      const base::TraceSpan span(steps[i].name);
      plan.steps[i].layer->forward(run);
      is_packed[i] = true;
    }
  }

  void backward(double scale, Write parameter_write,
                const std::function<void(std::int64_t)>& ready) {
    require(backward_allowed, "backward needs a training forward before it");
    backward_allowed = false;
    if (out.loss_gradient) {
      if (on_cuda(context))
        ops::fill_loss_gradient(context, device_step.numbers, device_step.control,
                                out.loss_gradient);
      else
        ops::fill(context, scale, out.loss_gradient);
      if (in.weights) ops::weigh_rows(context, in.weights, out.loss_gradient);
    }
    for (std::size_t i = steps.size(); i-- > 0;) {
      if (plan.steps[i].repeats_from >= 0)
        repeat_forward(static_cast<std::size_t>(plan.steps[i].repeats_from), i);
      Step& step = steps[i];
      const base::TraceSpan span(step.name);
      step.run.gradients.parameter_write =
          plan.steps[i].adds_to_parameters ? Write::kAdd : parameter_write;
      if (plan.steps[i].backward)
        plan.steps[i].layer->backward(step.run);
      else if (step.run.gradients.parameter_write == Write::kOverwrite)
        for (const TensorView& gradient_view : step.parameter_gradients)
          ops::zero(context, gradient_view);
      if (ready && !step.parameters.empty()) ready(plan.steps[i].gradients_complete);
    }
  }

  // Computes again what the plan has not kept of the steps from `first` to `last`.
  void repeat_forward(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i <= last; ++i) {
      if (!plan.steps[i].repeats) continue;
      const base::TraceSpan span(steps[i].name);
      steps[i].run.repeats = true;
      plan.steps[i].layer->forward(steps[i].run);
    }
  }

  TensorView view(int i) const { return at(i, tensor(i).offset); }

 private:
  void make_ranks() {
    rank_memory = Arena(static_cast<std::size_t>(out.loss.count()) * size_of(DType::kI32),
                        context.device, "activations");
    out.ranks = {rank_memory.data(), DType::kI32, out.loss.shape, context.device};
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (plan.steps[i].output == plan.loss) steps[i].run.ranks = out.ranks;
  }

  const PlanTensor& tensor(int i) const { return plan.tensors[static_cast<std::size_t>(i)]; }

  TensorView at(int i, std::size_t offset) const {
    return {offset == PlanTensor::kNone ? nullptr : arena.data() + offset, tensor(i).dtype,
            tensor(i).item_shape.with_batch(plan.options.max_batch), arena.device()};
  }
  TensorView gradient(int i) const {
    return tensor(i).gradient_offset == PlanTensor::kNone ? TensorView{}
                                                          : at(i, tensor(i).gradient_offset);
  }

  void bind_inputs() {
    in.weights = {nullptr, DType::kF64, {}, context.device};
    if (plan.inputs.size() != 2)
      throw ModelError(
          "a model reads one input of samples or tokens and then one of labels or targets; this "
          "one has " +
          std::to_string(plan.inputs.size()) + " inputs");
    in.samples = view(plan.inputs[0]);
    in.sample_items = tensor(plan.inputs[0]).item_shape.count();
    if (in.samples.dtype != DType::kI32) {
      if (tensor(plan.inputs[0]).offset != PlanTensor::kNone) in.cast_samples = in.samples;
      in.samples.dtype = DType::kF32;
    }
    in.labels = view(plan.inputs[1]);
    in.label_items = tensor(plan.inputs[1]).item_shape.count();
    if (in.labels.dtype != DType::kI32) {
      targets.plan(in.labels);
      in.labels.dtype = DType::kF32;
    }
  }

  bool reads_tokens() const { return in.samples.dtype == DType::kI32; }
  bool has_targets() const { return in.labels.dtype == DType::kF32; }
  bool reads_pixels() const { return static_cast<bool>(in.image_table); }

  // For each node, the position of its parameters and buffers in the state's entries.
  std::vector<std::size_t> first_entries() const {
    std::vector<std::size_t> first;
    std::size_t next = 0;
    for (NodeId id = 0; id < static_cast<NodeId>(plan.graph->nodes().size()); ++id) {
      first.push_back(next);
      const Layer* layer = plan.graph->nodes()[static_cast<std::size_t>(id)].layer.get();
      if (layer == nullptr) continue;
      next += plan.graph->own_parameters(id).size() + own_buffers(*plan.graph, id).size();
    }
    require(next == state.entries.size(), "the state belongs to another graph");
    return first;
  }

  void make_step(const PlanStep& from, std::uint64_t seed,
                 const std::vector<std::size_t>& first_entry) {
    Step& step = steps.emplace_back(context);
    for (const int input : from.inputs) {
      step.inputs.push_back(view(input));
      step.input_gradients.push_back(gradient(input));
    }
    bind_state(from, first_entry, step);
    if (from.saved_bytes > 0) step.saved = {arena.data() + from.saved_offset, from.saved_bytes};
    LayerRun& run = step.run;
    run.inputs = step.inputs;
    run.gradients.inputs = step.input_gradients;
    run.parameters = step.parameters;
    run.buffers = step.buffers;
    run.gradients.parameters = step.parameter_gradients;
    run.gradients.input_writes = from.input_writes;
    run.gradients.residual_write = from.residual_write;
    run.output = view(from.output);
    run.gradients.output = gradient(from.output);
    run.relu = from.relu;
    if (from.residual >= 0) {
      run.residual = view(from.residual);
      run.gradients.residual = gradient(from.residual);
    }
    const std::string& name = plan.graph->nodes()[static_cast<std::size_t>(from.node)].name;
    run.random.key =
        stream_key(seed, name.empty() ? std::string("#").append(std::to_string(from.node)) : name);
    if (base::Tracer* tracer = base::Tracer::of_this_thread())
      step.name = tracer->keep(plan.graph->describe(from.node));
    for (std::size_t k = 0; k < from.inputs.size(); ++k)
      remember_if_bound(from.inputs[k], step.inputs[k]);
    if (from.residual >= 0) remember_if_bound(from.residual, run.residual);
  }

  bool has_gradient(const ModelState::Entry& parameter) const {
    return parameter.slot < state.parameters.gradients.slots().size();
  }

  void bind_state(const PlanStep& from, const std::vector<std::size_t>& first_entry,
                  Step& step) const {
    const std::vector<Shape> shapes = plan.graph->input_shapes(from.node);
    std::size_t parameter =
        first_entry[static_cast<std::size_t>(plan.graph->parameter_node(from.node))];
    std::size_t passed = 0;  // offset in `unwanted`
    for (std::size_t k = from.layer->parameters(shapes).size(); k > 0; --k, ++parameter) {
      const ModelState::Entry& entry = state.entries[parameter];
      step.parameters.push_back(parameter_view(entry));
      if (has_gradient(entry)) {
        step.parameter_gradients.push_back(state.parameters.gradients.view(entry.slot));
      } else if (from.backward) {
        TensorView view_of_entry = state.view(entry);
        view_of_entry.data = unwanted.data() + passed;
        passed += align_up(static_cast<std::size_t>(view_of_entry.count()) *
                           size_of(view_of_entry.dtype));
        step.parameter_gradients.push_back(view_of_entry);
      }
    }
    const NodeId owner = buffer_node(*plan.graph, from.node);
    std::size_t buffer =
        first_entry[static_cast<std::size_t>(owner)] + plan.graph->own_parameters(owner).size();
    for (std::size_t k = from.layer->buffers(shapes).size(); k > 0; --k, ++buffer)
      step.buffers.push_back(state.view(state.entries[buffer]));
  }

  // Matrices are read in the dtype of the activations, vectors always in f32 or f64.
  TensorView parameter_view(const ModelState::Entry& entry) const {
    const TensorView view_of_entry = state.view(entry);
    return is_half(plan.options.dtype) && view_of_entry.shape.rank() >= 2 ? state.half_view(entry)
                                                                          : view_of_entry;
  }

  void remember_if_bound(int i, TensorView& view_of_input) {
    if (tensor(i).offset == PlanTensor::kNone)
      bindings.push_back({&view_of_input, i == plan.inputs[1]});
  }

  void set_count(std::int64_t count) {
    if (count == bound_count) return;
    bound_count = count;
    for (Step& step : steps) {
      for (TensorView& view_of_input : step.inputs) set_batch(view_of_input, count);
      for (TensorView& view_of_gradient : step.input_gradients) set_batch(view_of_gradient, count);
      LayerRun& run = step.run;
      for (TensorView* each :
           {&run.output, &run.gradients.output, &run.residual, &run.gradients.residual, &run.ranks})
        set_batch(*each, count);
    }
    for (TensorView* each :
         {&out.logits, &out.loss, &out.loss_gradient, &out.ranks, &in.cast_samples})
      set_batch(*each, count);
  }

  void set_positions(std::int64_t positions) {
    for (Step& step : steps) {
      for (TensorView& view_of_input : step.inputs) view_of_input.shape[1] = positions;
      step.run.output.shape[1] = positions;
      if (step.run.residual) step.run.residual.shape[1] = positions;
    }
    out.logits.shape[1] = positions;
  }

  std::size_t kept_bytes(const PlanStep& step, std::int64_t texts) const {
    return step.kept_per_position * static_cast<std::size_t>(texts * context_length);
  }

  void bind(const BatchView& batch) {
    set_count(batch.count);
    // An empty batch has no memory, but its views must not count as absent.
    static const std::array<float, 1> kNothing{};
    const void* sample_data = kNothing.data();
    if (batch.count > 0)
      sample_data =
          reads_tokens() ? static_cast<const void*>(batch.tokens.data()) : batch.samples.data();
    const void* label_data = kNothing.data();
    if (batch.count > 0)
      label_data =
          has_targets() ? static_cast<const void*>(batch.targets.data()) : batch.labels.data();
    in.labels.data = const_cast<void*>(label_data);
    in.weights.data = batch.weights.empty() ? nullptr : const_cast<double*>(batch.weights.data());
    in.weights.shape = {static_cast<std::int64_t>(batch.weights.size())};
    set_batch(in.labels, batch.count);
    if (has_targets()) label_data = targets.bind(context, in.labels, in.weights);
    for (const Binding& binding : bindings)
      binding.view->data = const_cast<void*>(binding.labels ? label_data : sample_data);
    in.samples.data = const_cast<void*>(sample_data);
    set_batch(in.samples, batch.count);
    if (reads_pixels() && batch.count > 0)
      prepare_images(batch);
    else if (in.cast_samples)
      ops::cast(context, in.samples, in.cast_samples);
  }

  void prepare_images(const BatchView& batch) {
    const TensorView pixels{const_cast<std::uint8_t*>(batch.pixels.data()), DType::kU8,
                            in.samples.shape, in.samples.device};
    ops::prepare_images(context, {.images = pixels,
                                  .draws = batch.draws.data(),
                                  .table = in.image_table,
                                  .out = in.cast_samples ? in.cast_samples : in.samples});
  }

  void leave_totals(bool top5) {
    if (device_step.last != nullptr && !device_step.continues)
      cuda::set_bytes_async(device_step.last, 0, sizeof *device_step.last, context.stream);
    ops::BatchTotals *last = device_step.last, *total = device_step.total;
    if (last == nullptr) std::swap(last, total);
    if (last == nullptr) return;
    add_totals(top5, last, total);
  }

  void add_totals(bool top5, ops::BatchTotals* totals, ops::BatchTotals* more) {
    TensorView row_losses = out.loss, row_ranks = out.ranks;
    row_losses.shape = row_ranks.shape = {out.loss.count()};
    ops::add_batch_totals(
        context,
        {.ranks = row_ranks, .loss = row_losses, .top5 = top5, .totals = totals, .more = more});
  }
};

Executor::Executor(const Plan& plan, ModelState& state, ThreadPool& threads, std::uint64_t seed)
    : Executor(plan, state,
               KernelContext{.device = {},
                             .threads = &threads,
                             .convolutions = plan.options.convolutions,
                             .products = plan.options.products},
               seed) {}

Executor::Executor(const Plan& plan, ModelState& state, const KernelContext& context,
                   std::uint64_t seed)
    : impl_(std::make_unique<Impl>(plan, state, context, seed)) {}

Executor::~Executor() = default;

void Executor::set_replicas(ReplicaExchange* replicas) {
  for (Step& step : impl_->steps) step.run.statistics.replicas = replicas;
}

void Executor::set_statistics_weight(double weight) {
  for (Step& step : impl_->steps) step.run.statistics.weight = weight;
}

void Executor::set_device_step(const DeviceStep& step) {
  impl_->device_step = step;
  impl_->context.epoch = step.numbers == nullptr ? nullptr : &step.numbers->epoch;
}

void Executor::set_image_table(TensorView table) { impl_->set_image_table(table); }

void Executor::check(const BatchView& batch, bool training) const { impl_->check(batch, training); }

BatchResult Executor::forward(const BatchView& batch, bool training) {
  return impl_->forward(batch, training);
}

void Executor::keep_texts(std::int64_t texts) { impl_->keep_texts(texts); }

void Executor::extend(const TextExtension& extension) { impl_->extend(extension); }

void Executor::backward(double scale, Write parameter_write,
                        const std::function<void(std::int64_t)>& ready) {
  impl_->backward(scale, parameter_write, ready);
}

TensorView Executor::logits() const { return impl_->out.logits; }

TensorView Executor::watched() const {
  const NodeId node = impl_->plan.options.watched;
  if (node < 0) throw ModelError("the plan watches no layer");
  TensorView output = impl_->view(node);
  if (!output)
    throw ModelError(impl_->plan.graph->describe(node) + " only passes on the model's input");
  set_batch(output, impl_->bound_count);
  return output;
}

const Plan& Executor::plan() const { return impl_->plan; }

}  // namespace engine
