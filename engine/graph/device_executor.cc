// Implements slots as one block of memory each, [weights | numbers | sample ids | labels or targets
// | draws | samples, tokens or pixels], which is sent in one copy, without weights if there are
// none.
#include "engine/graph/device_executor.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/ops/samples/gather_samples.h"

namespace engine {
namespace {

// Host memory for one slot, pinned or pageable.
class HostBlock {
 public:
  HostBlock(std::size_t bytes, bool pinned) : pinned_(pinned) {
    if (pinned) {
      data_ = static_cast<std::byte*>(cuda::allocate_pinned(bytes));
    } else {
      plain_.resize(bytes);
      data_ = plain_.data();
    }
  }
  ~HostBlock() {
    if (pinned_) cuda::release_pinned(data_);
  }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  std::byte* data() const { return data_; }

 private:
  bool pinned_;
  std::byte* data_ = nullptr;
  std::vector<std::byte> plain_;
};

// The offsets within a slot for the plan's largest batch.
struct SlotLayout {
  std::size_t numbers = 0, ids = 0, labels = 0, draws = 0, samples = 0, bytes = 0;
  std::size_t on_host = 0;  // bytes in host memory, which lacks samples that the device gathers
};

struct Slot {
  Slot(const SlotLayout& layout, bool pinned, Device device)
      : host(layout.on_host, pinned), device_memory(layout.bytes, device, "batches") {}
  HostBlock host;
  Arena device_memory;
  cuda::Event arrived, used;
  BatchView on_device;
};

// The sums that the device accumulates and reports.
struct Report {
  ops::BatchTotals last, total;
  DeviceFault fault;
};

template <class T>
std::span<const T> on_device(const Arena& memory, std::size_t offset, std::size_t count) {
  return {reinterpret_cast<const T*>(memory.data() + offset), count};
}

BatchResult to_result(const ops::BatchTotals& totals) {
  return {.loss_sum = totals.loss_sum,
          .correct = totals.correct,
          .rows = totals.rows,
          .top5 = totals.top5};
}

KernelContext with_fault(KernelContext context, const Arena& report) {
  context.fault = reinterpret_cast<DeviceFault*>(report.data() + offsetof(Report, fault));
  return context;
}

}  // namespace

struct DeviceExecutor::Impl {
  Impl(const Plan& plan, ModelState& state, const KernelContext& context,
       const DeviceExecutorOptions& the_options)
      : options(the_options),
        stream(context.stream),
        report(sizeof(Report), context.device, "workspace"),
        host_report(sizeof(Report), true),
        executor(plan, state, with_fault(context, report), the_options.seed) {
    const auto item = [&](int input) {
      return static_cast<std::size_t>(
          plan.tensors[static_cast<std::size_t>(plan.inputs[static_cast<std::size_t>(input)])]
              .item_shape.count() *
          plan.options.max_batch);
    };
    sample_items = item(0) / static_cast<std::size_t>(plan.options.max_batch);
    layout.numbers = align_up(sizeof(double) * item(1));  // the weights are first
    layout.ids = layout.numbers + align_up(sizeof(StepNumbers));
    layout.labels = layout.ids + align_up(sizeof(std::int64_t) *
                                          static_cast<std::size_t>(plan.options.max_batch));
    const bool images = !options.image_table.empty();
    layout.draws = layout.labels +
                   align_up(sizeof(std::int32_t) * item(1));  // targets have the size of labels
    layout.samples =
        layout.draws +
        align_up(images ? sizeof(ops::ImageDraw) * static_cast<std::size_t>(plan.options.max_batch)
                        : 0);
    layout.bytes = layout.samples + align_up((images ? 1 : sizeof(float)) *
                                             item(0));  // tokens have the size of numbers
    layout.on_host = options.resident == nullptr ? layout.bytes : layout.samples;
    if (images) set_image_table(plan, item(0));
    if (options.texts > 0) executor.keep_texts(options.texts);
    for (int s = 0; s < options.slots; ++s)
      slots.push_back(std::make_unique<Slot>(layout, options.pinned, context.device));
  }

  void set_image_table(const Plan& plan, std::size_t elements) {
    const std::size_t bytes = options.image_table.size() * sizeof(float);
    image_table = Arena(bytes, report.device(), "batches");
    cuda::copy_async(image_table.data(), options.image_table.data(), bytes, stream);
    cuda::synchronize_stream(stream);
    executor.set_image_table(
        {image_table.data(),
         DType::kF32,
         {static_cast<std::int64_t>(options.image_table.size()) / ops::kImageTableRow,
          ops::kImageTableRow},
         report.device()});
    // Only the compute stream prepares and reads it, so all slots share one.
    if (plan.options.dtype == DType::kF32)
      prepared = Arena(elements * sizeof(float), report.device(), "batches");
  }

  Slot& slot(int index) { return *slots[static_cast<std::size_t>(index)]; }
  const StepNumbers* numbers(int index) {
    return reinterpret_cast<const StepNumbers*>(slot(index).device_memory.data() + layout.numbers);
  }
  Report* device_report() const { return reinterpret_cast<Report*>(report.data()); }

  // The elements of a batch that the device gathers, or that come with the batch.
  struct Counts {
    std::size_t samples, pixels, tokens, labels;
  };
  Counts counts_of(const BatchView& batch) const {
    if (options.resident == nullptr)
      return {batch.samples.size(), batch.pixels.size(), batch.tokens.size(), batch.labels.size()};
    const std::size_t elements = static_cast<std::size_t>(batch.count) * sample_items;
    if (options.resident->is_text()) return {0, 0, elements, elements};
    if (options.resident->samples.dtype == DType::kU8) return {0, elements, 0, batch.labels.size()};
    return {elements, 0, 0, batch.labels.size()};
  }

  void fill(Slot& to, const BatchView& batch, const StepNumbers& numbers_of_step) const {
    std::byte* host = to.host.data();
    const auto put = [host](std::size_t offset, const auto& values) {
      if (!values.empty()) std::memcpy(host + offset, values.data(), values.size_bytes());
    };
    std::memcpy(host + layout.numbers, &numbers_of_step, sizeof numbers_of_step);
    put(layout.ids, batch.sample_ids);
    put(layout.labels, batch.labels);
    put(layout.labels, batch.targets);
    put(0, batch.weights);
    put(layout.draws, batch.draws);
    put(layout.samples, batch.samples);
    put(layout.samples, batch.pixels);
    put(layout.samples, batch.tokens);
    const Counts counts = counts_of(batch);
    to.on_device = {
        .count = batch.count,
        .samples = on_device<float>(to.device_memory, layout.samples, counts.samples),
        .pixels = on_device<std::uint8_t>(to.device_memory, layout.samples, counts.pixels),
        .draws = on_device<ops::ImageDraw>(to.device_memory, layout.draws, batch.draws.size()),
        .tokens = on_device<std::int32_t>(to.device_memory, layout.samples, counts.tokens),
        .labels = on_device<std::int32_t>(to.device_memory, layout.labels, counts.labels),
        .targets = on_device<float>(to.device_memory, layout.labels, batch.targets.size()),
        .weights = on_device<double>(to.device_memory, 0, batch.weights.size()),
        .sample_ids =
            on_device<std::int64_t>(to.device_memory, layout.ids, batch.sample_ids.size()),
        .epoch = batch.epoch};
    if (prepared.data() != nullptr)
      to.on_device.samples = on_device<float>(prepared, 0, counts.pixels);
  }

  // Gathers the samples of a slot after the batch's ids have been sent.
  void gather(const BatchView& to) const {
    if (to.count == 0) return;
    KernelContext context;
    context.device = report.device();
    context.stream = copies.handle();
    const auto view = [&](const auto& values, DType dtype, Shape shape) {
      return TensorView{const_cast<void*>(static_cast<const void*>(values.data())), dtype, shape,
                        context.device};
    };
    const TensorView& all = options.resident->samples;
    if (options.resident->is_text()) {
      const Shape shape{to.count, static_cast<std::int64_t>(sample_items)};
      return ops::gather_windows(context, {.stream = all,
                                           .stride = options.resident->stride,
                                           .ids = to.sample_ids.data(),
                                           .tokens = view(to.tokens, DType::kI32, shape),
                                           .next = view(to.labels, DType::kI32, shape)});
    }
    Shape shape = all.shape;
    shape[0] = to.count;
    ops::gather_rows(context,
                     {.rows = all,
                      .ids = to.sample_ids.data(),
                      .out = all.dtype == DType::kU8 ? view(to.pixels, DType::kU8, shape)
                                                     : view(to.samples, DType::kF32, shape)});
  }

  // The part of a slot that a batch sends to the device. Labels of text are also gathered there.
  std::span<const std::byte> sent_part(const BatchView& batch, const Slot& from) const {
    const std::size_t first = batch.weights.empty() ? layout.numbers : 0;
    const std::size_t end = options.resident != nullptr && options.resident->is_text()
                                ? layout.labels
                                : layout.samples + batch.samples.size_bytes() +
                                      batch.tokens.size_bytes() + batch.pixels.size_bytes();
    return {from.host.data() + first, end - first};
  }

  // Copies a batch to the next slot, whose number it returns.
  int send(const BatchView& batch, const StepNumbers& numbers_of_step) {
    const int index = next;
    next = (next + 1) % options.slots;
    Slot& to = slot(index);
    if (!to.arrived.done())
      wait(copies.handle());  // otherwise the previous copy might still read memory that is
                              // overwritten now
    fill(to, batch, numbers_of_step);
    to.used.make_wait(copies.handle());
    if (!options.pinned)
      wait(copies.handle());  // otherwise the copy itself would wait here, without a deadline
    const std::span<const std::byte> sent = sent_part(batch, to);
    cuda::copy_async(to.device_memory.data() + (sent.data() - to.host.data()), sent.data(),
                     sent.size(), copies.handle());
    if (options.resident != nullptr) gather(to.on_device);
    to.arrived.record(copies.handle());
    to.arrived.make_wait(stream);
    if (!options.non_blocking) wait(copies.handle());
    return index;
  }

  // Selects the slot of the next step.
  void choose(int index, bool training, bool continues) {
    executor.set_device_step({.numbers = numbers(index),
                              .control = control,
                              .last = &device_report()->last,
                              .continues = continues,
                              .total = training ? &device_report()->total : nullptr});
  }

  void wait(void* on) const {
    if (options.wait) return options.wait(on);
    cuda::Event end;
    end.record(on);
    end.synchronize();
  }

  const DeviceExecutorOptions options;
  void* stream;
  cuda::Stream copies;
  SlotLayout layout;
  std::size_t sample_items = 0;  // elements per sample
  std::vector<std::unique_ptr<Slot>> slots;
  int next = 0;
  Arena report;
  HostBlock host_report;
  Arena image_table, prepared;  // prepared: the input of a plan that reads samples in place
  const StepControl* control = nullptr;
  Executor executor;
};

DeviceExecutor::DeviceExecutor(const Plan& plan, ModelState& state, const KernelContext& context,
                               const DeviceExecutorOptions& options)
    : impl_(std::make_unique<Impl>(plan, state, context, options)) {}

DeviceExecutor::~DeviceExecutor() = default;

void DeviceExecutor::set_replicas(ReplicaExchange* replicas) {
  impl_->executor.set_replicas(replicas);
}
void DeviceExecutor::set_control(const StepControl* control) { impl_->control = control; }
const StepNumbers* DeviceExecutor::numbers(int slot) const { return impl_->numbers(slot); }
const ops::BatchTotals* DeviceExecutor::last() const { return &impl_->device_report()->last; }
int DeviceExecutor::slots() const { return impl_->options.slots; }
const Plan& DeviceExecutor::plan() const { return impl_->executor.plan(); }
TensorView DeviceExecutor::logits() const { return impl_->executor.logits(); }
TensorView DeviceExecutor::watched() const { return impl_->executor.watched(); }

int DeviceExecutor::stage(const BatchView& batch, const StepNumbers& numbers, bool training) {
  require(batch.resident == (impl_->options.resident != nullptr), "batches come as it was agreed");
  impl_->executor.check(batch, training);
  return impl_->send(batch, numbers);
}

void DeviceExecutor::extend(const TextExtension& extension) {
  Impl& e = *impl_;
  const auto most = static_cast<std::size_t>(plan().options.max_batch) * e.sample_items;
  require(extension.tokens.size() <= most, "an extension is larger than its plan");
  const int index = e.send({.count = std::ssize(extension.earlier),
                            .samples = {},
                            .tokens = extension.tokens,
                            .labels = {},
                            .sample_ids = {}},
                           {});
  TextExtension on_device = extension;
  on_device.tokens = e.slot(index).on_device.tokens;
  e.executor.extend(on_device);
  release(index);
}

void DeviceExecutor::release(int slot) { impl_->slot(slot).used.record(impl_->stream); }

void DeviceExecutor::forward(int slot, bool training, bool continues, double statistics_weight) {
  impl_->choose(slot, training, continues);
  if (statistics_weight >= 0) impl_->executor.set_statistics_weight(statistics_weight);
  impl_->executor.forward(impl_->slot(slot).on_device, training);
}

void DeviceExecutor::backward(int, Write parameter_write,
                              const std::function<void(std::int64_t)>& ready) {
  impl_->executor.backward(/*scale: in the step's numbers*/ 1, parameter_write, ready);
}

StepResults DeviceExecutor::results() {
  Impl& e = *impl_;
  auto* report = reinterpret_cast<Report*>(e.host_report.data());
  cuda::copy_async(report, e.report.data(), sizeof *report, e.stream);
  e.wait(e.stream);
  if (const DeviceFault& fault = report->fault; fault.found != 0) {
    throw InputError("token or label " + std::to_string(fault.value) + " at place " +
                     std::to_string(fault.at) + " of a batch is out of range: expected 0 to " +
                     std::to_string(fault.limit - 1));
  }
  return {to_result(report->last), to_result(report->total)};
}

BatchResult DeviceExecutor::infer(const BatchView& batch) {
  const int slot = stage(batch, StepNumbers{.epoch = batch.epoch}, false);
  forward(slot, false);
  release(slot);
  return results().last;
}

}  // namespace engine
