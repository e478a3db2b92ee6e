// An average of the weights over time that a run keeps beside them.
#pragma once

#include <memory>

#include "engine/core/parameter_buffer.h"
#include "engine/graph/model_state.h"
#include "engine/optim/optimizer.h"
#include "engine/train/train_observer.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

// Which average a snapshot's section `average` holds.
enum class AverageKind {
  kNone,
  kMoving,  // of the parameters after each step (--ema)
};
AverageKind average_kind(const io::Checkpoint& checkpoint);

class WeightAverage {
 public:
  virtual ~WeightAverage() = default;
  virtual const char* name() const = 0;  // of the weights, in evaluations: "ema"
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
