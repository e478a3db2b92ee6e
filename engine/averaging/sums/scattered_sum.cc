// Sums each bucket by a reduce-scatter, the first half of the all-reduce in plain_sum.cc.
#include <cmath>
#include <vector>

#include "engine/averaging/sums/gradient_sum.h"
#include "engine/averaging/sums/optimizer_sharding.h"
#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {
namespace {

std::size_t blocks_of(std::int64_t elements) {
  return static_cast<std::size_t>((elements + ops::kSquaresBlock - 1) / ops::kSquaresBlock);
}

class ScatteredSum final : public GradientSum {
 public:
  ScatteredSum(backends::Communicator& communicator, FlatBuffer& gradients,
               const OptimizerShards& shares)
      : communicator_(communicator),
        gradients_(gradients),
        shares_(shares),
        unit_(shard_alignment(communicator.world_size())),
        squares_(blocks_of(gradients.size())) {}

  std::string note() const override { return ""; }

  void sum(std::int64_t first, std::int64_t count) override {
    const std::int64_t whole = count / unit_ * unit_;
    if (whole > 0)
      communicator_.reduce_scatter(at(first), static_cast<std::size_t>(whole), gradients_.dtype(),
                                   backends::ReduceOp::kSum);
    if (whole < count)  // the remainder that cannot be divided into equal slices of blocks
      communicator_.all_reduce(at(first + whole), static_cast<std::size_t>(count - whole),
                               gradients_.dtype(), backends::ReduceOp::kSum);
    // Together with the gathering of the parameters it forms an all-reduce, and counts as one.
    bytes_sent_ += count * static_cast<std::int64_t>(size_of(gradients_.dtype()));
  }

  // The sum of each block is on one rank, and zero on the others.
  double norm(KernelContext& context, const FlatBuffer& gradients) override {
    std::ranges::fill(squares_, 0.0);
    for (const Elements& own : shares_.own()) {
      const std::int64_t count = std::min(own.count, gradients.size() - own.first);
      if (count <= 0) continue;
      const auto block = static_cast<std::size_t>(own.first / ops::kSquaresBlock);
      ops::sums_of_squares(context, gradients.part(own.first, count),
                           std::span(squares_).subspan(block, blocks_of(count)));
    }
    communicator_.all_reduce(squares_.data(), squares_.size(), DType::kF64,
                             backends::ReduceOp::kSum);
    double total = 0;
    for (const double square : squares_) total += square;
    return std::sqrt(total);
  }

 private:
  void* at(std::int64_t element) const {
    return static_cast<std::byte*>(gradients_.data()) +
           static_cast<std::size_t>(element) * size_of(gradients_.dtype());
  }

  backends::Communicator& communicator_;
  FlatBuffer& gradients_;
  const OptimizerShards& shares_;
  const std::int64_t unit_;
  std::vector<double> squares_;  // one per block
};

}  // namespace

std::unique_ptr<GradientSum> make_scattered_sum(backends::Communicator& communicator,
                                                FlatBuffer& gradients,
                                                const OptimizerShards& shares) {
  return std::make_unique<ScatteredSum>(communicator, gradients, shares);
}

}  // namespace engine
