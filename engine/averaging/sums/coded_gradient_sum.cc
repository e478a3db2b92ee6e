// Sums gradients as lossy codes. Quantized gradients are summed by bucket during backward, sparse
// ones after it.
#include <optional>

#include "engine/averaging/codes/coded_sum.h"
#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/sums/gradient_sum.h"

namespace engine {
namespace {

// With momentum, each rank accumulates its gradients into a velocity before the selection, and the
// error accumulates velocities (momentum correction). The velocity of sent elements is set to zero
// (momentum factor masking). Method: Lin et al., "Deep gradient compression", 2017.
class CodedGradientSum final : public GradientSum {
 public:
  CodedGradientSum(backends::Communicator& communicator, FlatBuffer& gradients,
                   KernelContext& context, const LossyOptions& options)
      : gradients_(gradients),
        context_(context),
        whole_(options.kind == LossyOptions::Kind::kSparse),
        error_(FlatBuffer::like(gradients)),
        sum_(communicator, options, "gradients", gradients.size()) {
    if (options.momentum > 0) velocity_ = FlatBuffer::like(gradients);
  }
  std::string note() const override { return " (" + lossy_text(sum_.options()) + ")"; }
  bool whole() const override { return whole_; }
  void begin_step(std::int64_t step) override { step_ = step; }
  void sum(std::int64_t first, std::int64_t count) override {
    if (velocity_) accumulate();
    // During backward, its threads are busy.
    sum_.sum({gradients_, error_, error_, velocity_ ? &*velocity_ : nullptr}, {first, count}, step_,
             whole_ ? context_.threads : nullptr);
    bytes_sent_ += static_cast<std::int64_t>(code_bytes(sum_.options(), count, step_));
  }
  std::vector<PolicyState> state() override {
    std::vector<PolicyState> state{{"gradient_error", &error_, true}};
    if (velocity_) state.push_back({"gradient_velocity", &*velocity_, true});
    return state;
  }

 private:
  void accumulate() {
    with_element_type(gradients_.dtype(), [&]<class T>(T) {
      T *gradient = gradients_.span<T>().data(), *velocity = velocity_->span<T>().data();
      const T momentum = static_cast<T>(sum_.options().momentum);
      context_.threads->run(gradients_.size(), [=](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i)
          gradient[i] = velocity[i] = momentum * velocity[i] + gradient[i];
      });
    });
  }

  FlatBuffer& gradients_;
  KernelContext& context_;
  const bool whole_;
  FlatBuffer error_;
  std::optional<FlatBuffer> velocity_;
  CodedSum sum_;
  std::int64_t step_ = 0;
};

}  // namespace

std::unique_ptr<GradientSum> make_coded_sum(backends::Communicator& communicator,
                                            FlatBuffer& gradients, KernelContext& context,
                                            const LossyOptions& options) {
  return std::make_unique<CodedGradientSum>(communicator, gradients, context, options);
}

}  // namespace engine
