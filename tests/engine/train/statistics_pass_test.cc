// Running statistics of given weights: the means over an epoch's batches, on every rank.
#include "engine/train/statistics_pass.h"

#include <gtest/gtest.h>

#include <mutex>

#include "engine/averaging/statistics/replica_statistics.h"
#include "engine/train/replicas/state_digest.h"
#include "engine/train/saving/weights.h"
#include "models/model_catalog.h"
#include "tests/engine/train/tiny_training.h"
#include "tests/engine/train/trainer_fixture.h"

namespace {

constexpr double kMomentum = 0.1;  // of the model's layers

tiny_training::Options options_of(int rank, int world_size) {
  return {.shape = {8, 8, 1},
          .samples = 26,
          .batch = 6,
          .rank = rank,
          .world_size = world_size,
          .shuffle = true,
          .storage = engine::DType::kF64,
          .model = "convnet"};
}

std::vector<double> copy_of(const engine::FlatBuffer& buffer) {
  const std::span<double> values = buffer.span<double>();
  return {values.begin(), values.end()};
}

// Batch by batch: from running statistics of zero a batch leaves its own times the momentum.
std::vector<double> sum_of_batches(tiny_training::Parts& parts, int& batches) {
  engine::Executor executor(parts.plan, parts.model, parts.pool, 0);
  std::vector<double> sum(parts.model.running.span<double>().size());
  const std::vector<double> before = copy_of(parts.model.running);
  parts.loader.seek(3, 0);
  for (std::int64_t step = 0; step < parts.sampler.steps_per_epoch(); ++step) {
    const engine::BatchView batch = parts.next_batch();
    if (batch.count == 0) continue;
    ++batches;
    for (double& v : parts.model.running.span<double>()) v = 0;
    static_cast<void>(executor.forward(batch, true));
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += parts.model.running.span<double>()[i] / kMomentum;
  }
  std::ranges::copy(before, parts.model.running.span<double>().begin());
  return sum;
}

void recompute(tiny_training::Parts& parts, backends::Communicator& communicator,
               std::int64_t micro_batches = 1, engine::ReplicaExchange* replicas = nullptr) {
  engine::recompute_statistics({.graph = parts.graph,
                                .model = parts.model,
                                .threads = parts.pool,
                                .sampler = parts.sampler,
                                .loader = parts.loader,
                                .communicator = communicator,
                                .micro_batches = micro_batches,
                                .replicas = replicas},
                               3);
}

TEST(StatisticsPass, IsTheMeanOverTheBatchesOfAllRanks) {
  for (const int world : {1, 2, 3}) {
    std::mutex mutex;
    std::vector<double> sum;
    int batches = 0;
    std::vector<std::vector<double>> found(static_cast<std::size_t>(world));
    trainer_fixture::in_threads(world, [&](backends::Group& group) {
      const auto communicator = group.make_communicator();
      tiny_training::Parts parts(options_of(group.rank(), world));
      {
        const std::scoped_lock lock(mutex);
        const std::vector<double> own = sum_of_batches(parts, batches);
        sum.resize(own.size());
        for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
      }
      const engine::StateDigest parameters = engine::digest(parts.model.parameters.values);
      recompute(parts, *communicator);
      EXPECT_EQ(engine::digest(parts.model.parameters.values), parameters);
      found[static_cast<std::size_t>(group.rank())] = copy_of(parts.model.running);
    });
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      EXPECT_EQ(found[rank], found[0]) << "rank " << rank << " of " << world;
      ASSERT_EQ(found[rank].size(), sum.size());
      for (std::size_t i = 0; i < sum.size(); ++i)
        EXPECT_NEAR(found[rank][i], sum[i] / batches, 1e-12) << i << " of " << world << " ranks";
    }
  }
}

// Statistics of all ranks are those of one, whatever the shares, empty ones among them.
TEST(StatisticsPass, SynchronizedStatisticsAreThoseOfOneRank) {
  const auto run = [](int world) {
    std::vector<double> result;
    trainer_fixture::in_threads(world, [&](backends::Group& group) {
      const auto communicator = group.make_communicator(), statistics = group.make_communicator();
      tiny_training::Parts parts(options_of(group.rank(), world));
      engine::Graph graph = models::build_model(
          "convnet", {.sample_shape = {8, 8, 1}, .classes = parts.set.classes()});
      graph.synchronize_statistics();
      const auto replicas = engine::make_rank_statistics(*statistics);
      engine::recompute_statistics({.graph = graph,
                                    .model = parts.model,
                                    .threads = parts.pool,
                                    .sampler = parts.sampler,
                                    .loader = parts.loader,
                                    .communicator = *communicator,
                                    .replicas = world > 1 ? replicas.get() : nullptr},
                                   0);
      if (group.rank() == 0) result = copy_of(parts.model.running);
    });
    return result;
  };
  const std::vector<double> one = run(1);
  for (const int world : {2, 4}) {
    const std::vector<double> many = run(world);
    ASSERT_EQ(many.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-12) << world;
  }
}

TEST(StatisticsPass, MicroBatchesAreBatches) {
  trainer_fixture::in_threads(1, [&](backends::Group& group) {
    const auto communicator = group.make_communicator();
    tiny_training::Options small = options_of(0, 1);
    small.batch = 3;
    small.samples = 24;
    small.shuffle = false;
    tiny_training::Options large = small;
    large.batch = 6;
    tiny_training::Parts three(small), six(large);
    recompute(three, *communicator);
    recompute(six, *communicator, 2);
    const std::vector<double> a = copy_of(three.model.running), b = copy_of(six.model.running);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << i;
  });
}

}  // namespace
