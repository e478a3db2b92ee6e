// An average of the weights over time that a run maintains in addition to them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/averaging/math/state_home.h"
#include "engine/core/parameter_buffer.h"
#include "engine/graph/model_state.h"
#include "engine/optim/optimizer.h"
#include "engine/train/epoch_steps.h"
#include "engine/train/saving/average_kind.h"
#include "engine/train/saving/stateful.h"
#include "engine/train/saving/train_progress.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

class WeightAverage {
 public:
  virtual ~WeightAverage() = default;
  virtual const char* name() const = 0;  // name of the weights in evaluations: "ema", "average"
  // Called at the end of an epoch or of the run, when replicas are synchronized. Collective.
  virtual void end_epoch(StateHome& /*home*/, const TrainProgress&) {}
  // Returns true if the state is that of the end of an epoch for which end_epoch() is still due: a
  // rank was lost before it.
  virtual bool is_behind() const { return false; }
  // Returns true at the end of a run whose average still needs complete(), which may fail.
  virtual bool is_incomplete(const TrainProgress&) const { return false; }
  // REQUIRES: is_incomplete(), and not is_behind(). Collective. After a failure all is as before.
  virtual void complete(StateHome& /*home*/, const TrainProgress&) {}
  // Returns true if there is already an average to evaluate.
  virtual bool ready() const = 0;
  // Exchanges the model's weights and the average; a second call restores both. REQUIRES: ready(),
  // and a HostView.
  virtual void swap() = 0;
};

// Returns the average of an optimizer with_moving_average(), for parameters only. Buffers, such as
// BatchNorm's running statistics, stay the model's own, as in torch.optim.swa_utils.AveragedModel
// by default (use_buffers=False). Null if the optimizer has no average. Both must outlive it.
std::unique_ptr<WeightAverage> make_weight_average(Optimizer& optimizer, ModelState& model);

// Stochastic weight averaging (Izmailov et al., 2018): the mean of the parameters at the ends of
// the last epochs; if the run ends within an epoch, that is the end of its last one. At the end of
// the run the average also has buffers: running statistics of the mean. Its mean and count are part
// of the state, so that a run which was stopped before complete() makes up for it when resumed.
struct EpochAverageOptions {
  std::int64_t epochs = 1;  // averages the ends of this many epochs
  RunLength run = {};
  Device device = {};  // device tag of its arrays
  // Recomputes the model's running statistics with the current parameters after `epoch` epochs.
  // Collective. Not called for a model without running statistics.
  std::function<void(std::int64_t epoch)> recompute_statistics;
};

class EpochAverage final : public WeightAverage, public Stateful {
 public:
  // `model`, in host memory, and `context`, of the CPU, must outlive it.
  EpochAverage(ModelState& model, const KernelContext& context, const EpochAverageOptions& options);

  const char* name() const override { return "average"; }
  bool ready() const override { return complete_; }
  void end_epoch(StateHome& home, const TrainProgress& progress) override;
  bool is_behind() const override { return behind_; }
  bool is_incomplete(const TrainProgress& progress) const override;
  void complete(StateHome& home, const TrainProgress& progress) override;
  void swap() override;

  void capture(StateCopy& copy) const override;
  void restore(const io::Checkpoint& checkpoint, const std::string& source,
               const std::function<void(const std::string&)>& notice) override;

 private:
  // The first epoch (from 1) that counts, for a run with this progress.
  std::int64_t first_epoch(const TrainProgress& progress) const;
  bool is_at_end(const TrainProgress& progress) const;
  // The number of epochs that have ended: at the end of the run, one that it leaves counts as well.
  std::int64_t ended_epochs(const TrainProgress& progress) const;

  ModelState& model_;
  KernelContext context_;
  const EpochAverageOptions options_;
  FlatBuffer values_, running_;
  std::int64_t count_ = 0;  // number of epochs so far
  std::int64_t last_ = 0;   // the last one (from 1)
  bool behind_ = false;     // see is_behind()
  bool complete_ = false;   // the run is at its end, and running_ matches values_
};

// Returns true if the average in a checkpoint is the complete one of a run that has ended.
bool average_is_complete(const io::Checkpoint& checkpoint);

// The average replaces the model's weights during the lifetime of this object.
class [[nodiscard]] AverageInPlace {
 public:
  explicit AverageInPlace(WeightAverage& average) : average_(average) { average_.swap(); }
  ~AverageInPlace() { average_.swap(); }
  AverageInPlace(const AverageInPlace&) = delete;
  AverageInPlace& operator=(const AverageInPlace&) = delete;

 private:
  WeightAverage& average_;
};

// Exchanges the contents. REQUIRES: buffers of the same size, in host memory.
void swap_contents(const FlatBuffer& a, const FlatBuffer& b);

}  // namespace engine
