// Sums gradients without compression, by all-reduce.
#include "engine/averaging/sums/gradient_sum.h"

#include "engine/averaging/math/flat_math.h"

namespace engine {
namespace {

class PlainSum final : public GradientSum {
 public:
  PlainSum(backends::Communicator& communicator, FlatBuffer& gradients)
      : communicator_(communicator), gradients_(gradients) {}
  std::string note() const override { return ""; }
  void sum(std::int64_t first, std::int64_t count) override {
    const std::size_t width = size_of(gradients_.dtype());
    auto* data =
        static_cast<std::byte*>(gradients_.data()) + static_cast<std::size_t>(first) * width;
    communicator_.all_reduce(data, static_cast<std::size_t>(count), gradients_.dtype(),
                             backends::ReduceOp::kSum);
    bytes_sent_ += count * static_cast<std::int64_t>(width);
  }

 private:
  backends::Communicator& communicator_;
  FlatBuffer& gradients_;
};

}  // namespace

std::unique_ptr<GradientSum> make_plain_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients) {
  return std::make_unique<PlainSum>(communicator, gradients);
}

}  // namespace engine
