// Implements the step on the device: issued directly, or captured and then launched as graphs
// (step_graphs.h).
//
// Gradients that are exchanged in host memory are copied from the device in pieces during backward;
// such steps are issued directly.
//
// An aborted sum on the device ends like any other, with incomplete values, and so does a graph
// that contains it. If steps can be rolled back, the update is therefore not part of the graph: the
// host issues it, and only after sums that it knows to be complete.
#include "engine/train/step/device_work.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "engine/averaging/math/device_statistics.h"
#include "engine/core/memory_purpose.h"
#include "engine/ops/optim_step/device_step.h"
#include "engine/train/step/device_copies.h"
#include "engine/train/step/gradient_copies.h"
#include "engine/train/step/step_graphs.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

class Work final : public StepWork, private StateHome {
 public:
  Work(const Plan& plan, ModelState& host, Optimizer& host_optimizer,
       const DeviceWorkOptions& options)
      : options_(on(options)),
        host_(host),
        host_optimizer_(host_optimizer),
        pin_values_(host.parameters.values, true),
        model_(ModelState::allocate(
            *plan.graph, plan.options.dtype, options.device, true,
            options.gradient_memory.allocate ? &options_.gradient_memory : nullptr)),
        gradient_copies_(model_.parameters.gradients, host.parameters.gradients,
                         !options.make_sum),  // otherwise they never leave the device
        kept_(model_, keeps_statistics()),
        optimizer_(make_optimizer()),
        control_memory_(sizeof(StepControl), options.device, "workspace"),
        scratch_(ops::find_overflow_scratch_bytes(model_.parameters.values.size()), options.device,
                 "workspace"),
        context_(make_context()),
        shards_(make_shards(plan)),
        sum_(make_sum()),
        statistics_(make_statistics(plan)),
        executor_(plan, model_, context_, executor_options()),
        graphs_(executor_.slots(), stream_.handle(), sum_.get(), find_obstacle(plan),
                [this] { averaging_.settle(); }) {
    require(options.micro_batches >= 1, "a step has at least one micro-batch");
    context_.scratch = {scratch_.data(), scratch_.bytes()};
    executor_.set_control(device_control());
    executor_.set_replicas(shards_       ? shards_->exchange()
                           : statistics_ ? statistics_.get()
                                         : options.replicas);
    now_.rows_per_sample =
        static_cast<double>(plan.tensors[static_cast<std::size_t>(plan.loss)].item_shape.count());
    if (options.averaging.wanted) make_math();
  }

  // Freeing device memory waits for all kernels of the device, and forever if one of them waits for
  // a failed rank.
  ~Work() override {
    try {
      cuda::use_device(options_.device.index);
      wait(stream_.handle());
      gradient_copies_.synchronize();
    } catch (const std::exception&) {
      // The device no longer waits for another rank; the cause of the failure is already known.
    }
    cuda::release_pinned(pinned_);
  }

  void step(const StepRequest& request, StepPhases& phases) override {
    cuda::use_device(options_.device.index);
    PhaseTimer timer;
    begin_use();
    changed();
    kept_.keep(stream_.handle());
    now_.sums_begun = sum_ != nullptr;
    timer.lap(phases.communication);
    const double loss_gradient = request.scale / now_.rows_per_sample;
    now_.numbers = {.epoch = request.batch.epoch,
                    .loss_gradient = static_cast<float>(loss_gradient),
                    .max_norm = std::max(0.0, request.clip_grad),
                    .lr = request.lr,
                    .wide_loss_gradient = loss_gradient,
                    .round = request.round};
    if (request.exchange == nullptr && graphs_.usable()) {
      captured_step(request, timer, phases);
      return;
    }
    if (shards_) {
      run_shards(request, timer, phases);
    } else {
      for (std::int64_t m = 0; m < options_.micro_batches; ++m)
        micro_batch(request, m, timer, phases);
    }
    if (request.exchange != nullptr) exchange_on_host(*request.exchange, timer, phases);
    if (waits_for_sums()) wait_for_sums();
    timer.lap(phases.communication);
    finish_step(executor_.numbers(now_.last_slot));
    executor_.release(now_.last_slot);
    if (options_.measured) wait(stream_.handle());
    timer.lap(phases.update);
  }

  // The sums have been aborted, or are aborted here: no remaining work waits for another rank.
  void rollback_step() override {
    if (!options_.supports_rollback) return;
    cuda::use_device(options_.device.index);
    try {
      wait(stream_.handle());
    } catch (const backends::PeerError&) {
      // The cause of the step's failure is already known.
    }
    now_.sums_begun = false;
    kept_.put_back(stream_.handle());
  }

  StepResults results() override {
    copy_control();
    if (shards_) shards_->download(stream_.handle());
    StepResults results = executor_.results();  // waits for the copies, too
    if (shards_) shards_->complete(results);
    results.skipped_steps = copied_control().skipped_steps;
    return results;
  }
  StateHome& home() override { return *this; }
  void fetch_gradients() override {
    cuda::use_device(options_.device.index);
    wait(stream_.handle());  // as in download()
    copy_control();
    gradient_copies_.fetch(stream_.handle());
    wait(stream_.handle());
    gradient_copies_.divide_by(static_cast<double>(copied_control().step_scale));
  }
  void add(const HomeMemory& memory) override {
    cuda::use_device(options_.device.index);
    averaging_.add(memory, options_.device);
    const std::vector<const FlatBuffer*> errors = averaging_.errors();
    if (errors.empty() || sum_ == nullptr) return;
    sum_->set_errors(errors);
    if (!options_.supports_rollback) return;
    for (const FlatBuffer* error : errors) kept_.add_error(*error);
  }

  std::string graph_text() const override { return graphs_.text(); }
  bool capture_failed() const override { return graphs_.has_failed(); }

 private:
  // Selects the device before anything is allocated.
  static const DeviceWorkOptions& on(const DeviceWorkOptions& options) {
    cuda::use_device(options.device.index);
    return options;
  }

  bool keeps_statistics() const { return options_.supports_rollback || options_.restores_skipped; }

  std::unique_ptr<Optimizer> make_optimizer() const {
    const cuda::MemoryPurpose purpose("the optimizer");
    return options_.make_optimizer(model_.parameters.values);
  }

  std::unique_ptr<DeviceShards> make_shards(const Plan& plan) {
    if (!options_.shards) return nullptr;
    return std::make_unique<DeviceShards>(*options_.shards,
                                          ShardReplicas::Parts{.plan = plan,
                                                               .model = model_,
                                                               .context = context_,
                                                               .executor = executor_options(),
                                                               .control = device_control()},
                                          options_.micro_batches);
  }

  std::unique_ptr<DeviceGradientSum> make_sum() const {
    if (shards_) return shards_->make_sum(host_);
    if (!options_.make_sum) return nullptr;
    const cuda::MemoryPurpose purpose("averaging");
    return options_.make_sum(model_.parameters.gradients);
  }

  std::unique_ptr<DeviceStatistics> make_statistics(const Plan& plan) const {
    if (options_.statistics == nullptr || shards_ || !sum_) return nullptr;
    return std::make_unique<DeviceStatistics>(*options_.statistics, exchanged_sizes(plan),
                                              context_);
  }

  KernelContext make_context() {
    pinned_ = static_cast<std::byte*>(cuda::allocate_pinned(sizeof(StepControl)));
    KernelContext context;
    context.device = options_.device;
    context.stream = stream_.handle();
    context.products = options_.products;
    return context;
  }

  DeviceExecutorOptions executor_options() {
    return {.seed = options_.seed,
            .pinned = options_.transfer.pinned,
            .non_blocking = options_.transfer.non_blocking,
            .image_table = options_.image_table,
            .resident = options_.transfer.resident,
            .wait = [this](void* stream) { wait(stream); }};
  }

  // Names its exchange's memory on both sides.
  void make_math() {
    const cuda::MemoryPurpose purpose("averaging");
    DeviceMath& math =
        averaging_.start({.context = context_,
                          .communicator = options_.averaging.communicator,
                          .values = {&host_.parameters.values, &model_.parameters.values},
                          .gradients = {&host_.parameters.gradients, &model_.parameters.gradients},
                          .half = model_.half_flat(),
                          .codes = options_.averaging.codes});
    const std::vector<Optimizer::State> here = host_optimizer_.state(), there = optimizer_->state();
    for (std::size_t i = 0; i < here.size(); ++i) math.add({here[i].buffer, there[i].buffer});
    math.add({&host_.running, &model_.running});
  }
  StateMath* math() override {
    cuda::use_device(options_.device.index);
    return averaging_.math();
  }

  StepControl* device_control() const {
    return reinterpret_cast<StepControl*>(control_memory_.data());
  }

  // The copy is complete when the stream is idle.
  void copy_control() const {
    cuda::copy_async(pinned_, control_memory_.data(), sizeof(StepControl), stream_.handle());
  }
  StepControl copied_control() const {
    StepControl control;
    std::memcpy(&control, pinned_, sizeof control);
    return control;
  }

  std::string find_obstacle(const Plan& plan) const {
    if (!options_.graph) return "--cuda-graph off";
    if (cuda::waits_for_kernels()) return "ENGINE_CUDA_SYNC=1";
    if (shards_) return "the shards of canonical order are issued one by one";
    if (options_.agreement != nullptr) return "ranks agree on skipped steps in host memory";
    if (sum_ != nullptr && !sum_->capturable())
      return std::string(sum_->exchanged()) + " pass through host memory";
    if (sum_ != nullptr && options_.measured) return "each rank's own work is measured";
    if (options_.replicas != nullptr && !statistics_)
      for (const PlanStep& step : plan.steps)
        if (step.layer->traits().synchronizes_host)
          return "batch statistics of all ranks pass through host memory";
    return "";
  }

  void download() override {
    cuda::use_device(options_.device.index);
    averaging_.settle();
    wait(stream_.handle());  // a copy to pageable memory would itself wait for the stream, without
                             // a deadline
    for_each_pair([&](const FlatBuffer& here, const FlatBuffer& there) {
      cuda::copy_async(here.data(), there.data(), here.bytes(), stream_.handle());
    });
    copy_control();
    wait(stream_.handle());
    *options_.control = copied_control();
    host_optimizer_.set_step_count(options_.control->applied_steps);
  }

  void upload() override {
    cuda::use_device(options_.device.index);
    wait(stream_.handle());  // a copy from the pinned block may still be in progress
    options_.control->applied_steps = host_optimizer_.step_count();
    for_each_pair([&](const FlatBuffer& here, const FlatBuffer& there) {
      cuda::copy_async(there.data(), here.data(), here.bytes(), stream_.handle());
    });
    std::memcpy(pinned_, options_.control, sizeof(StepControl));
    cuda::copy_async(control_memory_.data(), pinned_, sizeof(StepControl), stream_.handle());
    if (const TensorView half = model_.half_flat())
      ops::copy_to_half(context_, model_.parameters.values.flat(), half);
    wait(stream_.handle());  // the mirror may be written again
  }

  // Returns true if the update is issued after the sums are complete, instead of together with
  // them.
  bool waits_for_sums() const {
    return (options_.supports_rollback || options_.measured) && sum_ != nullptr;
  }

  void wait_for_sums() {
    wait(stream_.handle());
    if (options_.supports_rollback) now_.sums_begun = false;
  }

  // Waits with a deadline if other ranks take part in the work on the stream.
  void wait(void* stream) const {
    if (!now_.sums_begun) return wait_for_own(stream);
    try {
      sum_->wait(stream);
    } catch (const backends::PeerError&) {
      if (statistics_) statistics_->cancel();
      throw;
    }
  }

  // REQUIRES: no other rank takes part.
  static void wait_for_own(void* stream) {
    cuda::Event end;
    end.record(stream);
    end.synchronize();
  }

  // Visits all memory that a checkpoint stores: f(in host memory, on the device).
  template <class Call>
  void for_each_pair(Call call) const {
    call(host_.parameters.values, model_.parameters.values);
    call(host_.running, model_.running);
    call(host_.counters, model_.counters);
    const std::vector<Optimizer::State> here = host_optimizer_.state(), there = optimizer_->state();
    for (std::size_t i = 0; i < here.size(); ++i) call(*here[i].buffer, *there[i].buffer);
    averaging_.for_each_state(call);
  }

  // The sums begin during backward, for the batch in `slot`; finish_sums() follows.
  void sum_during_backward(int slot, Write write) {
    if (sum_ == nullptr) return executor_.backward(slot, write, {});
    sum_->begin_step(executor_.numbers(slot), now_.numbers.round);
    executor_.backward(slot, write,
                       [this](std::int64_t elements) { sum_->ready(elements, stream_.handle()); });
    if (options_.measured) wait_for_own(stream_.handle());
  }
  void finish_sums() {
    if (sum_ != nullptr) sum_->finish(stream_.handle());
  }

  void run_shards(const StepRequest& request, PhaseTimer& timer, StepPhases& phases) {
    if (shards_->exchange() != nullptr)
      wait(stream_.handle());  // layers wait for the stream without a deadline
    timer.lap(phases.communication);
    now_.last_slot = shards_->run(
        {.request = request, .numbers = now_.numbers, .executor = executor_, .context = context_},
        phases);
    timer.skip();
    if (sum_ != nullptr) sum_->finish(stream_.handle());
  }

  // Runs the whole step, from the third of its shape on as graphs, one for each micro-batch.
  void captured_step(const StepRequest& request, PhaseTimer& timer, StepPhases& phases) {
    const base::TraceSpan span("start the step on the device");
    for (std::int64_t m = 0; m < options_.micro_batches; ++m) {
      if (m > 0) executor_.release(now_.last_slot);
      now_.last_slot = captured_part(request, m);
    }
    if (options_.measured) wait(stream_.handle());
    timer.lap(phases.forward);
    if (waits_for_sums()) {
      wait_for_sums();
      timer.lap(phases.communication);
      finish_step(executor_.numbers(now_.last_slot));
      timer.lap(phases.update);
    }
    executor_.release(now_.last_slot);
  }

  int captured_part(const StepRequest& request, std::int64_t m) {
    const bool last = m + 1 == options_.micro_batches;
    const int slot = executor_.stage(part_of(request.batch, m), now_.numbers, true);
    set_shape(request, m);
    graphs_.run(slot, now_.shape, [&] {
      executor_.forward(slot, true, /*continues=*/m > 0);
      const Write write = m == 0 ? Write::kOverwrite : Write::kAdd;
      if (!last) return executor_.backward(slot, write, {});
      sum_during_backward(slot, write);
      finish_sums();
      if (!waits_for_sums()) finish_step(executor_.numbers(slot));
    });
    return slot;
  }

  // Without sums on the devices each rank captures alone.
  void set_shape(const StepRequest& request, std::int64_t m) {
    require(sum_ == nullptr || !request.counts.empty(),
            "a sum on devices knows all ranks' samples");
    const std::int64_t own[] = {request.batch.count};
    const std::span<const std::int64_t> counts = sum_ == nullptr ? own : request.counts;
    now_.shape.first = m == 0;
    now_.shape.last = m + 1 == options_.micro_batches;
    now_.shape.variant = sum_ == nullptr ? 0 : sum_->variant(request.round);
    now_.shape.counts.clear();
    for (const std::int64_t count : counts) {
      const auto [first, end] = bounds_of_part(count, m);
      now_.shape.counts.push_back(end - first);
    }
    if (statistics_) statistics_->set_counts(now_.shape.counts);
  }

  // Returns the first sample of micro-batch m, and one past its last.
  std::pair<std::int64_t, std::int64_t> bounds_of_part(std::int64_t count, std::int64_t m) const {
    return {count * m / options_.micro_batches, count * (m + 1) / options_.micro_batches};
  }
  BatchView part_of(const BatchView& batch, std::int64_t m) const {
    const auto [first, end] = bounds_of_part(batch.count, m);
    return batch.slice(first, end - first);
  }

  void micro_batch(const StepRequest& request, std::int64_t m, PhaseTimer& timer,
                   StepPhases& phases) {
    const bool final = m + 1 == options_.micro_batches;
    const base::TraceSpan span("start forward and backward on the device");
    const int slot = executor_.stage(part_of(request.batch, m), now_.numbers, true);
    if (statistics_) set_shape(request, m);
    if (m == 0 && options_.replicas != nullptr && !statistics_)
      wait(stream_.handle());  // layers wait for the stream without a deadline
    executor_.forward(slot, true, /*continues=*/m > 0);
    timer.lap(phases.forward);
    const Write write = m == 0 ? Write::kOverwrite : Write::kAdd;
    if (!final)
      executor_.backward(slot, write, {});
    else if (request.exchange != nullptr)
      executor_.backward(slot, write, [this](std::int64_t elements) {
        gradient_copies_.send(elements, stream_.handle());
      });
    else
      sum_during_backward(slot, write);
    now_.last_slot = slot;
    if (!final) executor_.release(slot);  // the last one's numbers are still read by finish_step()
    timer.lap(phases.backward);
    if (!final || request.exchange != nullptr) return;
    finish_sums();
    timer.lap(phases.communication);
  }

  // The exchange starts with the first piece that has arrived; its result is copied back as a
  // whole.
  void exchange_on_host(GradientExchange& exchange, PhaseTimer& timer, StepPhases& phases) {
    const base::TraceSpan span("wait for averaging");
    gradient_copies_.deliver(exchange);
    timer.lap(phases.backward);
    exchange.finish();
    timer.lap(phases.communication);
    gradient_copies_.copy_back(stream_.handle());
  }

  // Turns gradients into new values.
  void finish_step(const StepNumbers* numbers) {
    const TensorView gradients = model_.parameters.gradients.flat();
    ops::find_overflow(context_, options_.loss_scale, gradients, numbers, device_control());
    if (options_.agreement != nullptr) agree_on_skip();
    ops::settle_step(context_, options_.loss_scale, numbers, device_control());
    if (options_.restores_skipped) kept_.put_back_if_skipped(context_, device_control());
    optimizer_->step_on_device(context_, numbers, device_control(), model_.parameters.gradients,
                               model_.parameters.values, model_.half.data(), model_.half_dtype);
  }

  void agree_on_skip() {
    const std::size_t bytes = sizeof(StepControl::skip);
    auto* skip = reinterpret_cast<std::byte*>(device_control()) + offsetof(StepControl, skip);
    cuda::copy_async(pinned_, skip, bytes, stream_.handle());
    wait(stream_.handle());
    std::int32_t own = 0;
    std::memcpy(&own, pinned_, bytes);
    std::int64_t any = own;
    options_.agreement->all_reduce(&any, 1, DType::kI64, backends::ReduceOp::kMax);
    own = static_cast<std::int32_t>(any);
    std::memcpy(pinned_, &own, bytes);
    cuda::copy_async(skip, pinned_, bytes, stream_.handle());
  }

  const DeviceWorkOptions options_;
  ModelState& host_;
  Optimizer& host_optimizer_;
  PinnedBuffer pin_values_;
  cuda::Stream stream_;  // all computing
  ModelState model_;
  GradientCopies gradient_copies_;
  StepBackup kept_;
  std::unique_ptr<Optimizer> optimizer_;
  Arena control_memory_, scratch_;
  std::byte* pinned_ = nullptr;  // a StepControl
  KernelContext context_;
  DeviceAveraging averaging_;
  std::unique_ptr<DeviceShards> shards_;          // null: no canonical order
  std::unique_ptr<DeviceGradientSum> sum_;        // null: none
  std::unique_ptr<DeviceStatistics> statistics_;  // null: not on the device
  struct Current {
    StepNumbers numbers;
    double rows_per_sample = 1;
    int last_slot = 0;
    StepShape shape;
    bool sums_begun = false;  // work on the stream may wait for other ranks
  };
  Current now_;
  DeviceExecutor executor_;
  StepGraphs graphs_;
};

}  // namespace

std::unique_ptr<StepWork> make_device_work(const Plan& plan, ModelState& host,
                                           Optimizer& host_optimizer,
                                           const DeviceWorkOptions& options) {
  return std::make_unique<Work>(plan, host, host_optimizer, options);
}

}  // namespace engine
