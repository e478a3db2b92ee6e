// Gloo's own algorithms run over the transport.
#include <gloo/allreduce_ring.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backends/transport/gloo/gloo_transport.h"
#include "tests/backends/transport/link_job.h"

namespace {

class Context final : public gloo::Context {
 public:
  explicit Context(std::shared_ptr<backends::GlooTransport> transport)
      : gloo::Context(transport->rank, transport->size) {
    transportContext_ = std::move(transport);
  }
};

TEST(GlooTransport, RunsGloosAlgorithms) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 100'003;
  link_job::Job job;
  std::atomic<int> finished{0};
  const auto errors = group_harness::outcomes(kRanks, [&](int rank) {
    const auto transport = std::make_shared<backends::GlooTransport>(job.context(rank, kRanks));
    const auto context = std::make_shared<Context>(transport);
    std::vector<float> sums(kCount, static_cast<float>(rank + 1)), sent(kCount);
    for (std::size_t i = 0; i < kCount && rank == 1; ++i) sent[i] = static_cast<float>(i);
    gloo::AllreduceRing<float> reduce(context, {sums.data()}, static_cast<int>(kCount));
    gloo::BroadcastOneToAll<float> broadcast(context, {sent.data()}, static_cast<int>(kCount), 1);
    gloo::BarrierAllToAll barrier(context);
    reduce.run();
    broadcast.run();
    barrier.run();
    ++finished;  // the rest of a message is sent while its sender waits for something
    while (finished < kRanks)
      transport->exchange_until(base::deadline_in(std::chrono::milliseconds(5)),
                                [] { return false; });
    EXPECT_EQ(sums, std::vector<float>(kCount, 6.f));
    EXPECT_EQ(sent[kCount - 1], static_cast<float>(kCount - 1));
  });
  EXPECT_EQ(errors, std::vector<std::string>(kRanks));
}

}  // namespace
