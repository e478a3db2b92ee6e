// An optimizer for tests of slow ranks.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "engine/core/error.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/optimizer_spec.h"
#include "tests/engine/optim/typed_optimizers.h"

namespace trainer_fixture {

// SGD whose update takes `delay` longer.
class DelayedSgd : public engine::Optimizer {
 public:
  DelayedSgd(const engine::FlatBuffer& values, std::chrono::milliseconds delay)
      : Optimizer(*engine::find_optimizer("sgd")),
        sgd_(engine::make_sgd({}, values)),
        delay_(delay) {}
  void step(engine::KernelContext& context, double lr, double scale,
            const engine::FlatBuffer& gradients, engine::FlatBuffer& values) override {
    std::this_thread::sleep_for(delay_);
    sgd_->step(context, lr, scale, gradients, values);
  }
  void step_on_device(engine::KernelContext&, const DeviceStep&) override {
    throw engine::Error("steps on the CPU only");
  }
  std::vector<State> state() override { return sgd_->state(); }

 private:
  std::unique_ptr<Optimizer> sgd_;
  const std::chrono::milliseconds delay_;
};

}  // namespace trainer_fixture
