// A whole training step asks for no memory: loader, forward, backward, averaging over two ranks,
// optimizer. Steps 3 to 10.
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>

#include "tests/support/allocation_counter.h"
#include "tools/session/train_session.h"
#include "tools/workers/worker_threads.h"

namespace {

tools::RunConfig make_config(const std::map<std::string, std::string>& options) {
  tools::ConfigValues values;
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"model", "convnet"},
                                          {"dataset", "synthetic"},
                                          {"synthetic-shape", "8x8x1"},
                                          {"synthetic-size", "44"},  // the fourth step has fewer
                                          {"batch-size", "12"},
                                          {"eval-every", "0"},
                                          {"threads", "2"}})
    values[name] = {value, "--" + name};
  for (const auto& [name, value] : options) values[name] = {value, "--" + name};
  tools::apply_defaults(values);
  return tools::resolve_run_config(values);
}

class StepAllocation : public testing::TestWithParam<std::map<std::string, std::string>> {};

TEST_P(StepAllocation, NoneOnAnyRank) {
  if (!COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer or C library has its own malloc";
  const tools::RunConfig config = make_config(GetParam());
  const std::atomic<int> never{0};
  long counted = -1;
  tools::run_inproc_ranks(2, 20'000, [&](std::unique_ptr<backends::Group> group) {
    tools::TrainSession session(tools::session_options(config), *group);
    static_cast<void>(session.start_state());
    engine::Trainer trainer = session.make_trainer(never);
    const auto control = group->make_communicator();
    long before = 0;
    for (int step = 1; step <= 10; ++step) {
      if (step == 3) {
        control->barrier();
        before = test_support::allocations;
        control->barrier();
      }
      trainer.step();
    }
    control->barrier();
    if (group->rank() == 0) counted = test_support::allocations - before;
    control->barrier();
    group->leave();
    return 0;
  });
  EXPECT_EQ(counted, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, StepAllocation,
    testing::Values(
        std::map<std::string, std::string>{}, std::map<std::string, std::string>{{"workers", "0"}},
        std::map<std::string, std::string>{{"delay-allreduce", "true"}, {"optimizer", "adamw"}},
        std::map<std::string, std::string>{{"sync", "params"}, {"sync-every", "2"}},
        std::map<std::string, std::string>{{"sync-bn", "true"}, {"grad-accum", "3"}},
        std::map<std::string, std::string>{{"reduction-order", "canonical"}, {"sync-bn", "true"}},
        std::map<std::string, std::string>{{"sync", "diloco"},
                                           {"sync-every", "2"},
                                           {"sync-warmup", "1"},
                                           {"average-state", "all"}},
        std::map<std::string, std::string>{{"sync", "slowmo"}, {"sync-island", "host"}},
        std::map<std::string, std::string>{{"compress", "bf16"}},
        std::map<std::string, std::string>{{"compress", "topk"}},
        std::map<std::string, std::string>{{"compress", "powersgd"}},
        std::map<std::string, std::string>{{"dtype", "f64"}, {"clip-grad", "1"}}));

TEST(StepAllocation, TheCounterSeesAnAllocation) {
  if (!COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer or C library has its own malloc";
  const long before = test_support::allocations;
  std::free(std::malloc(100));
  EXPECT_GE(test_support::allocations - before, 1);
}

}  // namespace
