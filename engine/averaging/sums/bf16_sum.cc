// Sums gradients that are sent as bfloat16.
#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "io/base/numbers/half.h"

namespace engine {
namespace {

class Bf16Sum final : public GradientSum {
 public:
  Bf16Sum(backends::Communicator& communicator, FlatBuffer& gradients)
      : communicator_(communicator),
        gradients_(gradients),
        error_(FlatBuffer::like(gradients)),
        wire_(static_cast<std::size_t>(gradients.size())) {}
  std::string note() const override { return " (bf16)"; }
  void sum(std::int64_t first, std::int64_t count) override {
    with_element_type(gradients_.dtype(), [&]<class T>(T) {
      T* gradient = gradients_.span<T>().data() + first;
      T* error = error_.span<T>().data() + first;
      base::bf16* wire = wire_.data() + first;
      for (std::int64_t i = 0; i < count; ++i) {
        const T owed = gradient[i] + error[i];
        wire[i] = base::from_float<base::bf16>(static_cast<float>(owed));
        error[i] = owed - static_cast<T>(base::to_float(wire[i]));
      }
      communicator_.all_reduce(wire, static_cast<std::size_t>(count), DType::kBF16,
                               backends::ReduceOp::kSum);
      for (std::int64_t i = 0; i < count; ++i)
        gradient[i] = static_cast<T>(base::to_float(wire[i]));
    });
    bytes_sent_ += count * static_cast<std::int64_t>(sizeof(base::bf16));
  }
  std::vector<PolicyState> state() override { return {{"gradient_error", &error_, true}}; }

 private:
  backends::Communicator& communicator_;
  FlatBuffer& gradients_;
  FlatBuffer error_;
  std::vector<base::bf16> wire_;
};

}  // namespace

std::unique_ptr<GradientSum> make_bf16_sum(backends::Communicator& communicator,
                                           FlatBuffer& gradients) {
  return std::make_unique<Bf16Sum>(communicator, gradients);
}

}  // namespace engine
