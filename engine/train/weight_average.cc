// The moving average, and contents that change places.
#include "engine/train/weight_average.h"

#include <algorithm>

#include "engine/optim/moving_average.h"

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

}  // namespace

AverageKind average_kind(const io::Checkpoint& checkpoint) {
  const bool any = std::ranges::any_of(checkpoint.arrays, [](const io::NamedArray& array) {
    return array.section == io::Section::kAverage;
  });
  return any ? AverageKind::kMoving : AverageKind::kNone;
}

std::unique_ptr<WeightAverage> make_weight_average(Optimizer& optimizer, ModelState& model) {
  FlatBuffer* average = moving_average(optimizer);
  if (average == nullptr) return nullptr;
  return std::make_unique<Moving>(optimizer, model, *average);
}

void swap_contents(const FlatBuffer& a, const FlatBuffer& b) {
  require(a.bytes() == b.bytes(), "flat buffers of unequal size");
  auto* first = static_cast<std::byte*>(a.data());
  std::swap_ranges(first, first + a.bytes(), static_cast<std::byte*>(b.data()));
}

}  // namespace engine
