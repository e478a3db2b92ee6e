// Implements the step on the device: issued directly, or captured and then launched as graphs
// (step_graphs.h). Gradients that are exchanged in host memory are copied from the device in pieces
// during backward; such steps are issued directly.
//
// An aborted sum ends with incomplete values, also in a graph. If steps can be rolled back, the
// host therefore issues the update itself, after sums that it knows to be complete.
#include "engine/train/step/device_work.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "backends/backend_error.h"
#include "engine/averaging/statistics/device_statistics.h"
#include "engine/core/cuda_host.h"
#include "engine/ops/optim_step/device_step.h"
#include "engine/train/step/batch_views.h"
#include "engine/train/step/device_copies.h"
#include "engine/train/step/device_mirror.h"
#include "engine/train/step/gradient_copies.h"
#include "engine/train/step/host_step.h"
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
        control_(options.device),
        scratch_(ops::find_overflow_scratch_bytes(model_.parameters.values.size()), options.device,
                 "workspace"),
        context_(make_context()),
        shards_(make_shards(plan)),
        sum_(make_sum()),
        statistics_(make_statistics(plan)),
        executor_(plan, model_, context_, own_executor_options()),
        graphs_(DeviceExecutorOptions{}.slots, stream_.handle(),
                sums_in_graphs() ? sum_.get() : nullptr, find_obstacle(plan),
                [this] { averaging_.wait_idle(); }) {
    require(options.micro_batches >= 1, "a step has at least one micro-batch");
    context_.scratch = {scratch_.data(), scratch_.bytes()};
    executor_.set_control(control_.device());
    now_.exchange.emplace(options.replicas);
    executor_.set_replicas(shards_       ? shards_->exchange()
                           : statistics_ ? statistics_.get()
                                         : now_.exchange->get());
    now_.rows_per_sample =
        static_cast<double>(plan.tensors[static_cast<std::size_t>(plan.loss)].item_shape.count());
    if (options.measured && sum_) now_.clock.emplace();
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
    if (request.exchange == nullptr && (graphs_.usable() || now_.clock))
      return captured_step(request, timer, phases);
    if (shards_) {
      run_shards(request, timer, phases);
    } else {
      for (std::int64_t m = 0; m < options_.micro_batches; ++m)
        micro_batch(request, m, timer, phases);
    }
    if (request.exchange != nullptr) exchange_on_host(*request.exchange, timer, phases);
    wait_for_sums();
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
    control_.fetch(stream_.handle());
    if (shards_) shards_->download(stream_.handle());
    StepResults results = executor_.results();  // also waits for the copies
    if (shards_) shards_->complete(results);
    results.skipped_steps = control_.fetched().skipped_steps;
    return results;
  }
  StateHome& home() override { return *this; }
  void fetch_gradients() override {
    cuda::use_device(options_.device.index);
    wait(stream_.handle());  // as in download()
    control_.fetch(stream_.handle());
    gradient_copies_.fetch(stream_.handle());
    wait(stream_.handle());
    gradient_copies_.divide_by(static_cast<double>(control_.fetched().step_scale));
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
                                                               .control = control_.device()},
                                          options_.micro_batches, options_.graph);
  }

  std::unique_ptr<DeviceGradientSum> make_sum() const {
    if (shards_) return shards_->make_sum(host_);
    if (!options_.make_sum) return nullptr;
    const cuda::MemoryPurpose purpose("averaging");
    return options_.make_sum(model_.parameters.gradients);
  }

  std::unique_ptr<DeviceStatistics> make_statistics(const Plan& plan) const {
    if (options_.statistics == nullptr || shards_ || !sum_) return nullptr;
    return std::make_unique<DeviceStatistics>(*options_.statistics, exchanged_sizes(plan), context_,
                                              options_.measured);
  }

  KernelContext make_context() const {
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

  // The executor of the first shard has all batches of a captured step at once.
  DeviceExecutorOptions own_executor_options() {
    DeviceExecutorOptions own = executor_options();
    if (shards_ && options_.graph) own.slots = shards_->slots();
    return own;
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
    mirror_.add_to(math);
  }
  StateMath* math() override {
    cuda::use_device(options_.device.index);
    return averaging_.math();
  }

  std::string find_obstacle(const Plan& plan) const {
    if (!options_.graph) return "--cuda-graph off";
    if (cuda::waits_for_kernels()) return "ENGINE_CUDA_SYNC=1";
    if (shards_) return shards_->obstacle();
    if (sum_ != nullptr && !sum_->capturable())
      return std::string(sum_->exchanged()) + " pass through host memory";
    if (options_.replicas != nullptr && !statistics_ && layers_that_use_replicas(*plan.graph) > 0)
      return "batch statistics of all ranks pass through host memory";
    return "";
  }

  void download() override {
    cuda::use_device(options_.device.index);
    averaging_.wait_idle();
    wait(stream_.handle());  // a copy to pageable memory would itself wait, without a deadline
    mirror_.to_host(stream_.handle());
    control_.fetch(stream_.handle());
    wait(stream_.handle());
    *options_.control = control_.fetched();
    host_optimizer_.set_step_count(options_.control->applied_steps);
  }

  void upload() override {
    cuda::use_device(options_.device.index);
    wait(stream_.handle());  // a copy from the pinned block may still be in progress
    options_.control->applied_steps = host_optimizer_.step_count();
    mirror_.to_device(stream_.handle());
    control_.send(*options_.control, stream_.handle());
    if (const TensorView half = model_.half_flat())
      ops::copy_to_half(context_, model_.parameters.values.flat(), half);
    wait(stream_.handle());  // the mirror may be written again
  }

  bool sums_in_graphs() const { return sum_ != nullptr && sum_->capturable(); }
  // Returns true if nothing between the sums and the update needs the host.
  bool updates_in_graphs() const {
    const bool sums_first = sum_ != nullptr && (options_.supports_rollback || !sums_in_graphs());
    return !sums_first && options_.agreement == nullptr;
  }

  // If a step can be rolled back, its update is issued after the sums are complete.
  void wait_for_sums() {
    if (!options_.supports_rollback || sum_ == nullptr) return;
    wait(stream_.handle());
    now_.sums_begun = false;
  }

  // Waits with a deadline if other ranks take part in the work on the stream.
  void wait(void* stream) const {
    if (!now_.sums_begun) return wait_for_own(stream);
    try {
      sum_->wait(stream);
    } catch (const backends::PeerError&) {
      if (statistics_) statistics_->cancel();
      if (shards_) shards_->cancel();
      throw;
    }
  }

  // REQUIRES: no other rank takes part.
  static void wait_for_own(void* stream) {
    cuda::Event end;
    end.record(stream);
    end.synchronize();
  }

  // The sums begin during backward, for the batch in `slot`; finish_sums() follows.
  void sum_during_backward(int slot, Write write) {
    if (sum_ == nullptr) return executor_.backward(slot, write, {});
    sum_->begin_step(executor_.numbers(slot), now_.numbers.round);
    executor_.backward(slot, write,
                       [this](std::int64_t elements) { sum_->ready(elements, stream_.handle()); });
  }
  void finish_sums() {
    if (sum_ != nullptr) sum_->finish(stream_.handle());
  }

  void run_shards(const StepRequest& request, PhaseTimer& timer, StepPhases& phases) {
    if (shards_->waits_in_layers()) wait(stream_.handle());  // layers have no deadline
    timer.lap(phases.communication);
    now_.last_slot = shards_->run(
        {.request = request, .numbers = now_.numbers, .executor = executor_, .context = context_},
        phases);
    timer.skip();
    if (sum_ != nullptr) sum_->finish(stream_.handle());
  }

  // Runs the whole step, from the third of its shape on as graphs if possible: one for each
  // micro-batch, or one for all shards.
  void captured_step(const StepRequest& request, PhaseTimer& timer, StepPhases& phases) {
    const base::TraceSpan span("start the step on the device");
    if (shards_)
      captured_shards(request, timer, phases);
    else
      for (std::int64_t m = 0; m < options_.micro_batches; ++m)
        captured_part(request, m, timer, phases);
    if (options_.measured) wait(stream_.handle());
    timer.lap(phases.forward);
    if (now_.clock) phases.exclude_from_forward(now_.clock->waited_seconds());
    if (!updates_in_graphs()) {
      if (!sums_in_graphs()) finish_sums();
      wait_for_sums();
      timer.lap(phases.communication);
      finish_step(executor_.numbers(now_.last_slot));
      if (options_.measured) wait(stream_.handle());
      timer.lap(phases.update);
    }
    executor_.release(now_.last_slot);
  }

  void captured_part(const StepRequest& request, std::int64_t m, PhaseTimer& timer,
                     StepPhases& phases) {
    if (m > 0) executor_.release(now_.last_slot);
    const int slot = now_.last_slot = executor_.stage(
        micro_batch_of(request.batch, m, options_.micro_batches), now_.numbers, true);
    set_shape(request, m);
    if (m == 0) wait_for_exchanges();
    run_graph(slot, timer, phases, [&] {
      executor_.forward(slot, true, /*continues=*/m > 0);
      const Write write = m == 0 ? Write::kOverwrite : Write::kAdd;
      if (m + 1 < options_.micro_batches) return executor_.backward(slot, write, {});
      sum_during_backward(slot, write);
      issue_end();
    });
    now_.exchange->move_seconds(phases.forward, phases);
    if (!statistics_ || !options_.measured) return;
    wait(stream_.handle());
    timer.lap(phases.forward);
    phases.exclude_from_forward(statistics_->waited_seconds());
  }

  // Layers that exchange statistics in host memory wait for the stream without a deadline.
  void wait_for_exchanges() const {
    if (options_.replicas != nullptr && !statistics_) wait(stream_.handle());
  }

  void captured_shards(const StepRequest& request, PhaseTimer& timer, StepPhases& phases) {
    DeviceShards::Step step{
        .request = request, .numbers = now_.numbers, .executor = executor_, .context = context_};
    step.slots = shards_->stage(step);
    now_.last_slot = shards_->last_slot(step.slots);
    now_.shape.counts = {request.global_count};  // determines the samples of each shard
    run_graph(shards_->graph_of(step.slots), timer, phases, [&] {
      StepPhases not_counted;
      shards_->run(step, not_counted);
      issue_end();
    });
    shards_->release(step);
  }

  // The time of a capture is mostly that in which it waits for other ranks.
  template <class Issue>
  void run_graph(int slot, PhaseTimer& timer, StepPhases& phases, const Issue& issue) {
    timer.lap(phases.forward);
    const bool captured = graphs_.run(slot, now_.shape, issue);
    timer.lap(captured ? phases.communication : phases.forward);
  }

  // Enqueues what follows the step's last backward and needs no host.
  void issue_end() {
    if (now_.clock) cuda::record_in_graph(now_.clock->computed, stream_.handle());
    if (sums_in_graphs()) finish_sums();
    if (now_.clock) cuda::record_in_graph(now_.clock->summed, stream_.handle());
    if (updates_in_graphs()) finish_step(executor_.numbers(now_.last_slot));
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
    for (const std::int64_t count : counts)
      now_.shape.counts.push_back(micro_batch_size(count, m, options_.micro_batches));
    if (statistics_) statistics_->set_counts(now_.shape.counts);
  }

  void micro_batch(const StepRequest& request, std::int64_t m, PhaseTimer& timer,
                   StepPhases& phases) {
    const bool final = m + 1 == options_.micro_batches;
    const base::TraceSpan span("start forward and backward on the device");
    const int slot = executor_.stage(micro_batch_of(request.batch, m, options_.micro_batches),
                                     now_.numbers, true);
    if (statistics_) set_shape(request, m);
    if (m == 0) wait_for_exchanges();
    executor_.forward(slot, true, /*continues=*/m > 0);
    timer.lap(phases.forward);
    now_.exchange->move_seconds(phases.forward, phases);
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
    now_.exchange->move_seconds(phases.backward, phases);
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
    ParameterBuffer& own = model_.parameters;
    StepControl* const control = control_.device();
    ops::find_overflow(context_, options_.loss_scale, own.gradients.flat(), numbers, control);
    if (options_.agreement != nullptr) agree_on_skip();
    ops::settle_step(context_, options_.loss_scale, numbers, control);
    if (options_.restores_skipped) kept_.put_back_if_skipped(context_, control);
    optimizer_->step_on_device(context_, {numbers, control, own.gradients, own.values,
                                          model_.half.data(), model_.half_dtype});
  }

  void agree_on_skip() {
    control_.fetch(stream_.handle());
    wait(stream_.handle());
    control_.agree_on_skip(*options_.agreement, stream_.handle());
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
  ControlMemory control_;
  Arena scratch_;
  KernelContext context_;
  DeviceAveraging averaging_;
  const DeviceMirror mirror_{{host_, host_optimizer_}, {model_, *optimizer_}, averaging_};
  std::unique_ptr<DeviceShards> shards_;          // null: no canonical order
  std::unique_ptr<DeviceGradientSum> sum_;        // null: none
  std::unique_ptr<DeviceStatistics> statistics_;  // null: not on the device
  struct Current {
    StepNumbers numbers;
    double rows_per_sample = 1;
    int last_slot = 0;
    StepShape shape;
    bool sums_begun = false;             // work on the stream may wait for other ranks
    std::optional<SumClock> clock = {};  // none: work is not measured, or no sums on the device
    std::optional<TimedExchange> exchange = {};  // of statistics in host memory
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
