// Means of replicas, plain and compressed: bits, bounds, ranges, failures and continuations.
#include "engine/averaging/sums/replica_mean.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <thread>

#include "backends/group.h"
#include "engine/core/random.h"
#include "tests/support/time_limits.h"

namespace engine {
namespace {

constexpr int kRounds = 6;

std::vector<NamedLayout> parameter_layouts() {
  return {{"a", TensorLayout::plain({61, 83}), DType::kF32},
          {"b", TensorLayout::plain({5}), DType::kF32},
          {"c", TensorLayout::plain({1500}), DType::kF32},
          {"frozen", TensorLayout::plain({9}), DType::kF32}};
}

// The change of a rank in a round, in [-0.1, 0.1).
float change(int rank, int round, std::size_t i) {
  return 0.2F * (uniform_float(philox(static_cast<std::uint64_t>(rank),
                                      static_cast<std::uint64_t>(round), i)[0]) -
                 0.5F);
}

double weight_of(int rank, int world) {  // uneven; the last of three and more has none
  if (world >= 3 && rank == world - 1) return 0;
  const int sharing = world >= 3 ? world - 1 : world;
  return 2.0 * (rank + 1) / (sharing * (sharing + 1));
}

struct Outcome {
  std::vector<float> values, error;
  std::int64_t bytes = 0;
};

using Rounds = std::function<Outcome(backends::Communicator&, KernelContext&, int rank)>;

std::vector<Outcome> on_ranks(int world, const Rounds& rounds) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
  auto groups = backends::make_inproc_groups(world, test_support::deadline_ms(20'000));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      const auto communicator = groups[static_cast<std::size_t>(rank)]->make_communicator();
      ThreadPool pool(2);
      KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
      outcomes[static_cast<std::size_t>(rank)] = rounds(*communicator, context, rank);
      groups[static_cast<std::size_t>(rank)]->leave();
    });
  for (std::thread& t : threads) t.join();
  return outcomes;
}

std::vector<float> copy_of(const FlatBuffer& buffer) {
  return {buffer.span<float>().begin(), buffer.span<float>().end()};
}

// Each round, every rank changes its trained parameters, then all average.
void train_and_average(ReplicaMean& mean, ParameterBuffer& parameters, int rank, int world,
                       int first, int last) {
  for (int round = first; round < last; ++round) {
    mean.start(mean.all(), parameters.values.part(0, mean.all().count));
    const auto values = parameters.values.span<float>();
    for (const FlatBuffer::Slot& slot : parameters.gradients.slots())
      for (std::int64_t k = 0; k < slot.count; ++k) {
        const auto i = static_cast<std::size_t>(slot.offset + k);
        values[i] += change(rank, round, i);
      }
    mean.average(weight_of(rank, world), round, {});
  }
}

Outcome outcome_of(ReplicaMean& mean, const ParameterBuffer& parameters) {
  Outcome outcome{.values = copy_of(parameters.values), .error = {}, .bytes = mean.bytes_sent()};
  for (const PolicyState& s : mean.state()) outcome.error = copy_of(*s.buffer);
  return outcome;
}

std::vector<Outcome> run(int world, const std::optional<LossyOptions>& lossy) {
  return on_ranks(world,
                  [&](backends::Communicator& communicator, KernelContext& context, int rank) {
                    ParameterBuffer parameters(DType::kF32, parameter_layouts(), {}, 1);
                    ReplicaMean mean(communicator, context, parameters, {}, lossy);
                    train_and_average(mean, parameters, rank, world, 0, kRounds);
                    return outcome_of(mean, parameters);
                  });
}

const LossyOptions kInt8{.bits = 8}, kInt4{.bits = 4},
    kSparse{.kind = LossyOptions::Kind::kSparse, .bits = 2, .ratio = 0.1};

TEST(ReplicaMean, CompressedReplicasHaveTheSameBitsAndMoveWithTheMean) {
  for (const int world : {1, 2, 3, 4, 8}) {
    const std::vector<Outcome> plain = run(world, std::nullopt);
    for (const LossyOptions& lossy : {kInt8, kInt4, kSparse}) {
      const std::vector<Outcome> ranks = run(world, lossy);
      for (const Outcome& rank : ranks) {
        EXPECT_EQ(rank.values, ranks[0].values) << world << " ranks, " << lossy_text(lossy);
        EXPECT_EQ(rank.bytes, ranks[0].bytes);
      }
      // The errors hold the unsent part: without decay, nothing is lost.
      double owed = 0;
      for (std::size_t i = 0; i < ranks[0].error.size(); ++i) {
        double whole = static_cast<double>(ranks[0].values[i]);
        for (const Outcome& rank : ranks) whole += static_cast<double>(rank.error[i]);
        ASSERT_NEAR(whole, static_cast<double>(plain[0].values[i]), 1e-5)
            << world << " ranks, " << lossy_text(lossy) << ", element " << i;
        owed = std::max(owed, std::abs(static_cast<double>(ranks[0].error[i])));
      }
      EXPECT_GT(owed, 1e-5);
    }
  }
}

TEST(ReplicaMean, SendsFourAndEightTimesLess) {
  for (const int world : {2, 4}) {
    const auto plain = static_cast<double>(run(world, std::nullopt)[0].bytes);
    const auto int8 = run(world, kInt8)[0].bytes, int4 = run(world, kInt4)[0].bytes;
    // 5063 elements, 5 and 1500, each rounded up to 16: 6592 elements are 25.75 blocks.
    EXPECT_EQ(plain, kRounds * 6592 * 4);
    EXPECT_EQ(int8, kRounds * (26 * 2 + 6592));
    EXPECT_EQ(int4, kRounds * (26 * 2 + 3296));
    EXPECT_GE(plain / static_cast<double>(int8), 3.9);
    EXPECT_GE(plain / static_cast<double>(int4), 7.5);
  }
}

TEST(ReplicaMean, NeverChangesWhatIsFrozen) {
  for (const std::optional<LossyOptions>& lossy :
       {std::optional<LossyOptions>{}, std::optional(kInt4)})
    on_ranks(2, [&](backends::Communicator& communicator, KernelContext& context, int rank) {
      ParameterBuffer parameters(DType::kF32, parameter_layouts(), {}, 1);
      const FlatBuffer::Slot& frozen = parameters.values.slots().back();
      const auto value = parameters.values.span<float>().subspan(
          static_cast<std::size_t>(frozen.offset), static_cast<std::size_t>(frozen.count));
      for (float& v : value) v = 0.1F;
      ReplicaMean mean(communicator, context, parameters, {}, lossy);
      train_and_average(mean, parameters, rank, 2, 0, 2);
      for (const float v : value) EXPECT_EQ(v, 0.1F);
      return Outcome{};
    });
}

// A copy of error and round is all that a resumed run needs.
TEST(ReplicaMean, AContinuationHasTheBitsOfOneRun) {
  for (const LossyOptions& lossy : {kInt8, kInt4, kSparse}) {
    for (const int world : {2, 4, 8}) {
      const std::vector<Outcome> whole = run(world, lossy);
      const std::vector<Outcome> parts = on_ranks(
          world, [&](backends::Communicator& communicator, KernelContext& context, int rank) {
            ParameterBuffer parameters(DType::kF32, parameter_layouts(), {}, 1);
            std::vector<float> error;
            {
              ReplicaMean mean(communicator, context, parameters, {}, lossy);
              train_and_average(mean, parameters, rank, world, 0, 3);
              error = copy_of(*mean.state()[0].buffer);
            }
            ReplicaMean mean(communicator, context, parameters, {}, lossy);
            std::ranges::copy(error, mean.state()[0].buffer->span<float>().begin());
            train_and_average(mean, parameters, rank, world, 3, kRounds);
            return outcome_of(mean, parameters);
          });
      for (std::size_t rank = 0; rank < whole.size(); ++rank) {
        EXPECT_EQ(parts[rank].values, whole[rank].values) << lossy_text(lossy);
        EXPECT_EQ(parts[rank].error, whole[rank].error) << lossy_text(lossy);
      }
    }
  }
}

TEST(ReplicaMean, ARangeLeavesTheOtherElementsAsTheyAre) {
  constexpr Elements kRange{5104, 1000};
  for (const std::optional<LossyOptions>& lossy :
       {std::optional<LossyOptions>{}, std::optional(kInt8)}) {
    const auto ranks =
        on_ranks(2, [&](backends::Communicator& communicator, KernelContext& context, int rank) {
          ParameterBuffer parameters(DType::kF32, parameter_layouts(), {}, 1);
          ReplicaMean mean(communicator, context, parameters, {}, lossy);
          mean.start(mean.all(), parameters.values.part(0, mean.all().count));
          const auto values = parameters.values.span<float>();
          for (float& v : values) v = static_cast<float>(1 + rank);
          const FlatBuffer memory = FlatBuffer::like(parameters.gradients);
          mean.contribute(0.5, kRange, memory);
          mean.sum_range(0, kRange, memory, context.threads);
          EXPECT_LE(mean.bytes_of(0, kRange), 1000 * 4);
          std::copy_n(memory.span<float>().begin() + kRange.first, kRange.count,
                      values.begin() + kRange.first);
          return outcome_of(mean, parameters);
        });
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::size_t i = 0; i < ranks[rank].values.size(); ++i) {
        const bool inside = i >= 5104 && i < 6104;
        ASSERT_NEAR(ranks[rank].values[i], inside ? 1.5F : static_cast<float>(1 + rank), 0.02F);
        if (!inside && i < ranks[rank].error.size()) {
          ASSERT_EQ(ranks[rank].error[i], 0);
        }
      }
  }
}

// Each of three ranks starts from 10 (rank + 1) and changes by rank + 1; the last one's weight is
// 0.
TEST(ReplicaMean, ChangesOfUnequalStartsKeepTheMeanOfTheStarts) {
  const auto mean_of = [](std::function<double(int rank)> weight, float change) {
    return on_ranks(3, [&](backends::Communicator& communicator, KernelContext& context, int rank) {
      ParameterBuffer parameters(DType::kF32, parameter_layouts(), {}, 1);
      const FlatBuffer start = FlatBuffer::like(parameters.gradients);
      FlatBuffer further = FlatBuffer::like(parameters.gradients);
      for (const std::span<float> values :
           {parameters.values.span<float>(), start.span<float>(), further.span<float>()})
        for (float& v : values) v = static_cast<float>(10 * (rank + 1));
      for (float& v : parameters.values.span<float>()) v += change * static_cast<float>(rank + 1);
      FlatBuffer* const also = &further;
      ReplicaMean mean(communicator, context, parameters, {});
      mean.average(weight(rank), 0, std::span(&also, 1), {.start = &start});
      EXPECT_EQ(mean.bytes_sent(), 2 * 6592 * 4);
      for (const float v : further.span<float>()) EXPECT_NEAR(v, 20, 1e-5);
      return outcome_of(mean, parameters);
    });
  };
  const auto uneven = mean_of([](int rank) { return weight_of(rank, 3); }, 1);
  const auto even = mean_of([](int) { return 1.0 / 3; }, 1);
  const auto one = mean_of([](int rank) { return rank == 0 ? 1 : 0; }, 1);
  const float trained = uneven[0].values[0];
  EXPECT_NEAR(trained, 20 + 1.0 / 3 + 2.0 * 2 / 3, 1e-5);
  EXPECT_NEAR(even[0].values[0], 22, 1e-5);
  EXPECT_NEAR(one[0].values[0], 21, 1e-5);  // not 11: what the others had before counts
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome& of_rank = uneven[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < 6592; ++i) ASSERT_EQ(of_rank.values[i], trained) << i;
    EXPECT_EQ(of_rank.values.back(), static_cast<float>(11 * (rank + 1)));  // frozen
  }
}

// One rank whose collectives fail when they are told to.
class FailingCommunicator final : public backends::Communicator {
 public:
  bool fails = false;
  std::string_view name() const override { return "failing"; }
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void run(const backends::Call& call) override {
    if (fails) throw std::runtime_error("the collective failed");
    if (call.input != nullptr) std::memcpy(call.data, call.input, call.word.count);
  }
  void abort(std::string_view) noexcept override {}
};

TEST(ReplicaMean, AFailedCollectiveChangesNeitherValuesNorErrors) {
  for (const LossyOptions& lossy : {kInt8, kSparse}) {
    FailingCommunicator communicator;
    ThreadPool pool(1);
    KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
    ParameterBuffer parameters(DType::kF32, parameter_layouts(), {}, 1);
    ReplicaMean mean(communicator, context, parameters, {}, lossy);
    train_and_average(mean, parameters, 0, 1, 0, 2);
    const Outcome before = outcome_of(mean, parameters);
    communicator.fails = true;
    EXPECT_THROW(mean.average(1, 2, {}), std::runtime_error);
    EXPECT_EQ(outcome_of(mean, parameters).values, before.values);
    EXPECT_EQ(outcome_of(mean, parameters).error, before.error);
    EXPECT_EQ(mean.bytes_sent(), before.bytes);
  }
}

}  // namespace
}  // namespace engine
