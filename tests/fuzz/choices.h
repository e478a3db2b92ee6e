// Reads the bytes of an input as choices, and runs the models that are made of them.
#pragma once

#include <array>
#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/graph/plan.h"
#include "models/model_catalog.h"
#include "tests/fuzz/targets.h"

namespace fuzz {

// The input as choices; 0 after its end.
class Choices {
 public:
  explicit Choices(Input input) : input_(input) {}
  unsigned next() {
    const unsigned byte = input_.empty() ? 0u : input_.front();
    if (!input_.empty()) input_ = input_.subspan(1);
    return byte;
  }
  bool ended() const { return input_.empty(); }
  template <class T, std::size_t kCount>
  T of(const std::array<T, kCount>& values) {
    return values[next() % kCount];
  }

 private:
  Input input_;
};

// Runs a step of the plan if it is small, so that no input takes seconds. model_targets.cc has it.
void run_step(const engine::Graph& graph, const engine::Plan& plan,
              const models::ModelOptions& options, engine::ThreadPool& threads);

}  // namespace fuzz
