// Implements both averages and the exchange of buffer contents.
#include "engine/train/weight_average.h"

#include <algorithm>

#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/policies/policy_checkpoint.h"
#include "engine/ops/optim_step/optimizer_step.h"
#include "engine/optim/moving_average.h"
#include "engine/train/saving/weights.h"

namespace engine {
namespace {

class Moving final : public WeightAverage {
 public:
  Moving(Optimizer& optimizer, ModelState& model, FlatBuffer& average)
      : optimizer_(optimizer), model_(model), average_(average) {}
  const char* name() const override { return "ema"; }
  bool ready() const override { return optimizer_.step_count() > 0; }
  void swap() override { swap_contents(model_.parameters.values, average_); }

 private:
  const Optimizer& optimizer_;
  ModelState& model_;
  FlatBuffer& average_;
};

constexpr const char* kCompleteCounter = "average.complete";
constexpr const char* kLastEpochCounter = "average.last_epoch";

FlatBuffer copy_of(const FlatBuffer& buffer) {
  FlatBuffer copy = FlatBuffer::like(buffer);
  copy_flat(buffer, copy);
  return copy;
}

}  // namespace

bool average_is_complete(const io::Checkpoint& checkpoint) {
  return average_kind(checkpoint) == AverageKind::kMoving ||
         find_counter(checkpoint.counters, kCompleteCounter, 0) > 0;
}

std::unique_ptr<WeightAverage> make_weight_average(Optimizer& optimizer, ModelState& model) {
  FlatBuffer* average = moving_average(optimizer);
  if (average == nullptr) return nullptr;
  return std::make_unique<Moving>(optimizer, model, *average);
}

EpochAverage::EpochAverage(ModelState& model, const KernelContext& context,
                           const EpochAverageOptions& options)
    : model_(model),
      context_(context),
      options_(options),
      values_(FlatBuffer::like(model.parameters.values)),
      running_(FlatBuffer::like(model.running)) {}

std::int64_t EpochAverage::first_epoch(const TrainProgress& progress) const {
  return options_.run.total_epochs(progress) - options_.epochs + 1;
}

bool EpochAverage::is_at_end(const TrainProgress& progress) const {
  // With another batch size, `step_in_epoch` of a checkpoint is not in steps of this run.
  return progress.global_step == options_.run.total_steps(progress) &&
         (options_.run.steps > 0 || progress.step_in_epoch == 0);
}

std::int64_t EpochAverage::ended_epochs(const TrainProgress& progress) const {
  return progress.epoch + (progress.step_in_epoch != 0 && is_at_end(progress) ? 1 : 0);
}

void EpochAverage::end_epoch(StateHome& home, const TrainProgress& progress) {
  if (ended_epochs(progress) < first_epoch(progress)) return;
  const HostView view(home, Access::kRead);
  ++count_;
  last_ = ended_epochs(progress);
  behind_ = false;
  const ops::AverageStep step{.weight = 1.0 / static_cast<double>(count_), .first = count_ == 1};
  ops::update(context_, {.step = step,
                         .gradient = model_.parameters.values.flat(),
                         .states = {},
                         .value = values_.flat()});
  if (is_at_end(progress) && running_.bytes() == 0) complete_ = true;
}

bool EpochAverage::is_incomplete(const TrainProgress& progress) const {
  return (count_ > 0 || behind_) && !complete_ && is_at_end(progress);
}

void EpochAverage::complete(StateHome& home, const TrainProgress& progress) {
  const HostView view(home, Access::kRead);  // whatever changes is restored
  if (running_.bytes() > 0) {
    const FlatBuffer running = copy_of(model_.running), counters = copy_of(model_.counters);
    const auto put_back = [&] {
      swap_contents(model_.parameters.values, values_);
      copy_flat(running, model_.running);
      copy_flat(counters, model_.counters);
    };
    swap_contents(model_.parameters.values, values_);
    try {
      options_.recompute_statistics(ended_epochs(progress));
    } catch (...) {  // e.g. a rank was lost, and those that remain continue with this state
      put_back();
      throw;
    }
    copy_flat(model_.running, running_);
    put_back();
  }
  complete_ = true;
}

void EpochAverage::swap() {
  swap_contents(model_.parameters.values, values_);
  swap_contents(model_.running, running_);
}

void EpochAverage::capture(StateCopy& copy) const {
  if (count_ == 0) return;
  copy.checkpoint().counters.emplace_back(kAveragedEpochs, count_);
  copy.checkpoint().counters.emplace_back(kLastEpochCounter, last_);
  copy.checkpoint().counters.emplace_back(kCompleteCounter, complete_ ? 1 : 0);
  const auto add = [&](const FlatBuffer& buffer, ModelState::Kind kind) {
    export_buffer(buffer, model_, kind, "", io::Section::kAverage, options_.device, copy);
  };
  add(values_, ModelState::Kind::kParameter);
  if (complete_) add(running_, ModelState::Kind::kRunning);
}

// A run whose length has changed averages other epochs than the checkpoint's run did. If only the
// epoch that ends here is missing, it can be added, as the state is that of its end.
void EpochAverage::restore(const io::Checkpoint& checkpoint, const std::string& source,
                           const std::function<void(const std::string&)>& notice) {
  const bool there = average_kind(checkpoint) == AverageKind::kEpochs;
  const TrainProgress at{checkpoint.global_step, checkpoint.epoch, checkpoint.step_in_epoch,
                         checkpoint.samples_seen};
  const std::int64_t found = there ? find_counter(checkpoint.counters, kAveragedEpochs, 0) : 0,
                     expected = std::max<std::int64_t>(0, ended_epochs(at) - first_epoch(at) + 1);
  const bool ended = there && average_is_complete(checkpoint) && is_at_end(at);
  last_ = there ? find_counter(checkpoint.counters, kLastEpochCounter, 0) : 0;
  behind_ = !ended && found + 1 == expected && (at.step_in_epoch == 0 || is_at_end(at)) &&
            (found == 0 || last_ + 1 == ended_epochs(at));
  count_ = 0;
  complete_ = false;
  if (!ended && !behind_ && found != expected) {
    if (notice)
      notice(source + " has an average over " + std::to_string(found) +
             " epochs where this run's " + "is over " + std::to_string(expected) +
             " by then: it starts with the next epoch");
    return;
  }
  if (!there) return;
  import_buffer(checkpoint.arrays, source, "", io::Section::kAverage, values_);
  if (ended) import_buffer(checkpoint.arrays, source, "", io::Section::kAverage, running_);
  count_ = found;
  complete_ = ended;
}

void swap_contents(const FlatBuffer& a, const FlatBuffer& b) {
  require(a.bytes() == b.bytes(), "flat buffers of unequal size");
  auto* first = static_cast<std::byte*>(a.data());
  std::swap_ranges(first, first + a.bytes(), static_cast<std::byte*>(b.data()));
}

}  // namespace engine
