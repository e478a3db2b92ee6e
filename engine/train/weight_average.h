// An average of the weights over time that a run keeps beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/core/parameter_buffer.h"
#include "engine/core/state_home.h"
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
  virtual const char* name() const = 0;  // of the weights, in evaluations: "ema", "average"
  // An epoch has ended, or the run (`last`), and replicas are together. Collective.
  virtual void end_epoch(StateHome& /*home*/, const TrainProgress&, bool /*last*/) {}
  // Whether there is one to evaluate already.
  virtual bool ready() const = 0;
  // The model's weights and the average change places; a second time, and all is as before.
  // REQUIRES: ready(), and a HostView.
  virtual void swap() = 0;
};

// Of an optimizer with_moving_average(): parameters only. Buffers, such as BatchNorm's running
// statistics, stay the model's own, as in torch.optim.swa_utils.AveragedModel by default
// (use_buffers=False). Null where the optimizer keeps none. Both outlive it.
std::unique_ptr<WeightAverage> make_weight_average(Optimizer& optimizer, ModelState& model);

// Stochastic weight averaging (Izmailov et al., 2018): the mean of the parameters at the ends of
// the last epochs; where the run ends within an epoch, that is the end of its last. Buffers belong
// to it at the end of the run: running statistics of the mean. A part of the state: mean and count.
struct EpochAverageOptions {
  std::int64_t epochs = 1;  // at the ends of how many
  RunLength run = {};
  Device device = {};  // the tag of its arrays
  // Recomputes the model's running statistics with the parameters in place, after `epoch` epochs,
  // collectively. Not called for a model without any.
  std::function<void(std::int64_t epoch)> recompute_statistics;
};

class EpochAverage final : public WeightAverage, public Stateful {
 public:
  // `model`, in host memory, and `context`, of the CPU, outlive it.
  EpochAverage(ModelState& model, const KernelContext& context, const EpochAverageOptions& options);

  const char* name() const override { return "average"; }
  bool ready() const override { return complete_; }
  void end_epoch(StateHome& home, const TrainProgress& progress, bool last) override;
  void swap() override;

  void capture(StateCopy& copy) const override;
  void restore(const io::Checkpoint& checkpoint, const std::string& source,
               const std::function<void(const std::string&)>& notice) override;

 private:
  // From 1: the first that counts, of a run that stands at `progress`.
  std::int64_t first_epoch(const TrainProgress& progress) const;
  void complete(std::int64_t epoch);

  ModelState& model_;
  KernelContext context_;
  const EpochAverageOptions options_;
  FlatBuffer values_, running_;
  std::int64_t count_ = 0;  // epochs so far
  bool complete_ = false;   // the run is at its end, and running_ belongs to values_
};

// Whether the average of a snapshot is that of a run that has ended, with all that belongs to it.
bool average_is_complete(const io::Checkpoint& checkpoint);

// The average in the model's place for as long as this lives.
class [[nodiscard]] AverageInPlace {
 public:
  explicit AverageInPlace(WeightAverage& average) : average_(average) { average_.swap(); }
  ~AverageInPlace() { average_.swap(); }
  AverageInPlace(const AverageInPlace&) = delete;
  AverageInPlace& operator=(const AverageInPlace&) = delete;

 private:
  WeightAverage& average_;
};

// Exchanges the contents. REQUIRES: buffers of one size, in host memory.
void swap_contents(const FlatBuffer& a, const FlatBuffer& b);

}  // namespace engine
