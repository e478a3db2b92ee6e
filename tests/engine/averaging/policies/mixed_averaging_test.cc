// Policies of which one averages gradients in a step and another one parameters.
#include <gtest/gtest.h>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/policies/averaging_policy.h"

namespace engine {
namespace {

class PolicyWithMemory final : public AveragingPolicy {
 public:
  explicit PolicyWithMemory(std::string name)
      : name_(std::move(name)),
        memory_(DType::kF32, {{"memory", TensorLayout::plain({4}), DType::kF32}}) {}
  std::string_view name() const override { return name_; }
  double loss_scale(const StepWeights&) const override { return 1; }
  std::vector<PolicyState> state() override { return {{name_, &memory_, true}}; }
  std::vector<PolicyState> exchange_state() override { return state(); }
  AveragingReport take_report() override { return {}; }

 private:
  const std::string name_;
  FlatBuffer memory_;
};

// A failed step restores this memory, while the thread of the other policy may write its own.
TEST(MixedAveraging, AnExchangeOfGradientsChangesNoMemoryOfTheParameters) {
  const auto within_hosts =
      make_mixed_averaging({.name = "params",
                            .island = std::make_unique<PolicyWithMemory>("gradients"),
                            .parameters = std::make_unique<PolicyWithMemory>("parameters")});
  ASSERT_EQ(within_hosts->exchange_state().size(), 1u);
  EXPECT_EQ(within_hosts->exchange_state()[0].name, "gradients");
  const auto apart = make_mixed_averaging(
      {.name = "params", .parameters = std::make_unique<PolicyWithMemory>("parameters")});
  EXPECT_TRUE(apart->exchange_state().empty());
}

}  // namespace
}  // namespace engine
