// A whole training step asks for no memory: loader, forward, backward, averaging over two ranks,
// optimizer. Steps 3 to 10.
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>

#include "tests/support/allocation_counter.h"
#include "tests/support/time_limits.h"
#include "tests/training/session_runner.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/run/session/train_session.h"

namespace {

const session_runner::Options kBase{{"model", "convnet"},
                                    {"synthetic-shape", "8x8x1"},
                                    {"synthetic-size", "44"},  // the fourth step has fewer
                                    {"log-every", "100"},
                                    {"threads", "2"}};

class StepAllocation : public testing::TestWithParam<session_runner::Options> {};

TEST_P(StepAllocation, NoneOnAnyRank) {
  if (!COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer or C library has its own malloc";
  const tools::RunConfig config =
      session_runner::make_config(session_runner::with(kBase, GetParam()));
  const std::atomic<int> never{0};
  long counted = -1;
  tools::run_inproc_ranks(2, test_support::deadline_ms(20'000),
                          [&](std::unique_ptr<backends::Group> group) {
                            tools::TrainSession session(config, *group);
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
        session_runner::Options{}, session_runner::Options("workers=0"),
        session_runner::Options("delay-allreduce=true optimizer=adamw"),
        session_runner::Options("sync=params sync-every=2"),
        session_runner::Options("sync-bn=true grad-accum=3"),
        session_runner::Options("reduction-order=canonical sync-bn=true"),
        session_runner::Options("sync=diloco sync-every=2 sync-warmup=1 average-state=all"),
        session_runner::Options("sync=slowmo sync-island=host"),
        session_runner::Options("shard-optimizer=true optimizer=adamw clip-grad=1"),
        session_runner::Options("compress=bf16"), session_runner::Options("compress=topk"),
        session_runner::Options("compress=powersgd"), session_runner::Options("compress=int8"),
        session_runner::Options("compress=sparse sparse-warmup=2 momentum=0 sparse-momentum=0.9"),
        session_runner::Options("compress=int4 sync=diloco sync-every=2"),
        session_runner::Options("compress=sparse sync=params sync-every=2"),
        session_runner::Options("sync=streaming sync-every=4 sync-overlap=2"),
        session_runner::Options("sync=gossip sync-every=2 outer-momentum=0.5"),
        session_runner::Options("sync=diloco sync-every=2 stale=2 stale-patience=1000000"),
        session_runner::Options("compress=int4 sync=streaming sync-every=4 sync-overlap=2"),
        session_runner::Options("dtype=f64 clip-grad=1")));

TEST(StepAllocation, TheCounterSeesAnAllocation) {
  if (!COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer or C library has its own malloc";
  const long before = test_support::allocations;
  std::free(std::malloc(100));
  EXPECT_GE(test_support::allocations - before, 1);
}

}  // namespace
