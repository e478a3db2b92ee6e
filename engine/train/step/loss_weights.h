// The weights of the losses of samples: the sum of losses of a step is divided by their sum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/averaging/policies/averaging_policy.h"
#include "io/data/order/sampler.h"

namespace engine {

class LossWeights {
 public:
  // `weights` has one for each sample of the training set; empty: the weight of each is 1.
  explicit LossWeights(std::vector<double> weights = {});

  bool given() const { return !weights_.empty(); }
  // The sums of the weights of a step, whose number in its epoch is `step`, of which earlier steps
  // have used `taken` samples. Every rank has all weights and the order of the epoch, so that it
  // knows the sum over all ranks without communication. If the weights differ, `sampler` has the
  // order of `epoch` afterwards. REQUIRES: they are equal, or the shard is kContiguous.
  struct Step {
    std::int64_t epoch = 0, number = 0, taken = 0;
  };
  StepWeights of_step(const Step& step, const StepCounts& counts,
                      std::span<const std::int64_t> own_samples, std::span<const int> island,
                      io::Sampler& sampler);

 private:
  double sum(std::span<const std::int64_t> samples) const;

  const std::vector<double> weights_;
  const bool are_equal_;
  std::int64_t epoch_ = -1;  // of the sampler's order
};

// Returns true if all are equal, or there are none.
bool are_equal(std::span<const double> weights);

}  // namespace engine
