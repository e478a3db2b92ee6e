// Sums of codes over the ranks: what each rank receives, and the bits of both ways.
#include "engine/averaging/codes/coded_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "backends/group.h"
#include "engine/core/random.h"
#include "tests/support/time_limits.h"

namespace engine {
namespace {

constexpr LossyOptions kEightBits{.bits = 8}, kFourBits{.bits = 4};

// Counts what a rank receives from the others.
class CountingCommunicator final : public backends::Communicator {
 public:
  std::int64_t received = 0;

  explicit CountingCommunicator(std::unique_ptr<backends::Communicator> inner)
      : inner_(std::move(inner)) {}
  std::string_view name() const override { return "counting"; }
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  void run(const backends::Call& call) override {
    using enum backends::Operation;
    ASSERT_TRUE(call.word.operation == kAllGather || call.word.operation == kAllToAll);
    received += static_cast<std::int64_t>(call.word.count) * (world_size() - 1);
    inner_->run(call);
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }

 private:
  std::unique_ptr<backends::Communicator> inner_;
};

struct OfRank {
  std::vector<float> sum, error;
  std::int64_t received = 0;
};

float contribution(int rank, std::int64_t i) {
  return uniform_float(
             philox(7, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i))[0]) -
         0.4F;
}

std::vector<OfRank> sum_on_ranks(int world, std::int64_t count, const LossyOptions& options,
                                 int rounds = 1, int threads = 1) {
  std::vector<OfRank> results(static_cast<std::size_t>(world));
  auto groups = backends::make_inproc_groups(world, test_support::deadline_ms(60'000));
  std::vector<std::jthread> ranks;
  ranks.reserve(results.size());
  for (int rank = 0; rank < world; ++rank)
    ranks.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      CountingCommunicator communicator(groups[at]->make_communicator());
      ThreadPool pool(threads);
      FlatBuffer values(DType::kF32, {{"v", TensorLayout::plain({count}), DType::kF32}});
      const FlatBuffer error = FlatBuffer::like(values);
      CodedSum sum(communicator, options, "test", values.size());
      for (int round = 0; round < rounds; ++round) {
        for (std::int64_t i = 0; i < count; ++i)
          values.span<float>()[static_cast<std::size_t>(i)] = contribution(rank, i);
        sum.sum({values, error, error}, {0, count}, round, threads > 1 ? &pool : nullptr);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto k = static_cast<std::size_t>(i);
          if (round == 0) results[at].sum.push_back(0);
          results[at].sum[k] += values.span<float>()[k];
        }
      }
      const auto kept = error.span<float>();
      results[at].error.assign(kept.begin(), kept.begin() + count);
      results[at].received = communicator.received;
      groups[at]->leave();
    });
  ranks.clear();  // joins
  return results;
}

// Against the ring all-reduce of f32, which delivers 2 (n - 1) / n of the buffer.
TEST(CodedSum, ReceivesAQuarterAndAnEighthForAnyNumberOfRanks) {
  constexpr std::int64_t kCount = 1'000'000;
  for (const int world : {2, 3, 4, 8}) {
    const double plain = 2.0 * (world - 1) / world * 4 * kCount;
    for (const LossyOptions& options : {kEightBits, kFourBits}) {
      const std::vector<OfRank> ranks = sum_on_ranks(world, kCount, options);
      for (const OfRank& rank : ranks) {
        EXPECT_EQ(rank.received, coded_bytes_received(options, kCount, world, 0));
        EXPECT_GE(plain / static_cast<double>(rank.received), options.bits == 8 ? 3.9 : 7.5)
            << world << " ranks";
      }
      RecordProperty("received_" + lossy_text(options) + "_" + std::to_string(world),
                     static_cast<int>(ranks[0].received));
    }
  }
  for (const int world : {16, 64})
    for (const LossyOptions& options : {kEightBits, kFourBits})
      EXPECT_GE(2.0 * (world - 1) / world * 4 * kCount /
                    static_cast<double>(coded_bytes_received(options, kCount, world, 0)),
                options.bits == 8 ? 3.9 : 7.5)
          << world << " ranks";
}

// Few blocks, whole ones and a rest: the way with fewer bytes, and nothing lost with either.
TEST(CodedSum, GivesAllRanksTheSameBitsAndLosesNothing) {
  constexpr int kRounds = 3;
  for (const int world : {1, 2, 3, 4, 5, 8}) {
    for (const std::int64_t count : {1, 255, 257, 700, 1024, 1281, 5000}) {
      for (const LossyOptions& options : {kEightBits, kFourBits}) {
        const std::vector<OfRank> ranks = sum_on_ranks(world, count, options, kRounds);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto k = static_cast<std::size_t>(i);
          double whole = static_cast<double>(ranks[0].sum[k]), expected = 0;
          for (int r = 0; r < world; ++r) {
            whole += static_cast<double>(ranks[static_cast<std::size_t>(r)].error[k]);
            expected += kRounds * static_cast<double>(contribution(r, i));
          }
          ASSERT_NEAR(whole, expected, 1e-4) << world << " ranks, element " << i << " of " << count;
        }
        for (const OfRank& rank : ranks) {
          EXPECT_EQ(rank.sum, ranks[0].sum) << world << " ranks, " << count;
          EXPECT_EQ(rank.received, kRounds * coded_bytes_received(options, count, world, 0));
          EXPECT_LE(rank.received, std::int64_t{kRounds} * (world - 1) *
                                       static_cast<std::int64_t>(code_bytes(options, count, 0)));
        }
      }
    }
  }
}

// The code of a sum is off by less than its scale, without error feedback from round to round.
TEST(CodedSum, ASumIsNearlyTheSumOfTheContributions) {
  constexpr std::int64_t kCount = 5000;
  for (const int world : {4, 8}) {
    const std::vector<OfRank> ranks = sum_on_ranks(world, kCount, kEightBits);
    for (std::int64_t i = 0; i < kCount; ++i) {
      double expected = 0;
      for (int r = 0; r < world; ++r) expected += static_cast<double>(contribution(r, i));
      ASSERT_NEAR(static_cast<double>(ranks[0].sum[static_cast<std::size_t>(i)]), expected,
                  2 * world * 0.6 / 127 * 1.01);
    }
  }
}

// Fewer elements than the largest sum may go as whole codes, which are longer than shares.
TEST(CodedSum, TakesEveryNumberOfElementsUpToItsLargest) {
  constexpr std::int64_t kMost = 1280;
  for (const int world : {3, 4, 8}) {
    auto groups = backends::make_inproc_groups(world, test_support::deadline_ms(60'000));
    std::vector<std::jthread> ranks;
    ranks.reserve(groups.size());
    for (int rank = 0; rank < world; ++rank)
      ranks.emplace_back([&groups, rank, world] {
        const auto communicator = groups[static_cast<std::size_t>(rank)]->make_communicator();
        const FlatBuffer values(DType::kF32, {{"v", TensorLayout::plain({kMost}), DType::kF32}});
        const FlatBuffer error = FlatBuffer::like(values);
        CodedSum sum(*communicator, kEightBits, "test", kMost);
        for (std::int64_t count = 1; count <= kMost; count += 51) {
          std::ranges::fill(values.span<float>(), 1.0F);
          std::ranges::fill(error.span<float>(), 0.0F);
          sum.sum({values, error, error}, {0, count}, count, nullptr);
          for (const float v : values.span<float>().first(static_cast<std::size_t>(count)))
            ASSERT_NEAR(v, world, 0.03 * world) << count << " elements";
        }
        groups[static_cast<std::size_t>(rank)]->leave();
      });
  }
}

TEST(CodedSum, ThreadsChangeNoBit) {
  for (const int world : {2, 4}) {
    const std::vector<OfRank> one = sum_on_ranks(world, 5000, kFourBits, 2),
                              several = sum_on_ranks(world, 5000, kFourBits, 2, 3);
    EXPECT_EQ(one[0].sum, several[0].sum);
    EXPECT_EQ(one[1].error, several[1].error);
  }
}

// A rank's error is what its own code dropped, at its share also what the code of the sum dropped.
TEST(CodedSum, TheOwnerOfAShareKeepsTheErrorOfItsSum) {
  constexpr std::int64_t kCount = 4096;  // 16 blocks: 4 for each of 4 ranks
  const std::vector<OfRank> ranks = sum_on_ranks(4, kCount, kEightBits);
  for (std::size_t r = 0; r < 4; ++r) {
    double own = 0, others = 0;
    for (std::size_t i = 0; i < ranks[r].error.size(); ++i)
      (i / 1024 == r ? own : others) += std::abs(static_cast<double>(ranks[r].error[i]));
    EXPECT_GT(own, 1.2 * others / 3) << "rank " << r;
  }
}

TEST(CodedSum, ANumberThatIsNotFiniteReachesAllRanksAndIsNotKept) {
  for (const int world : {2, 4}) {
    auto groups = backends::make_inproc_groups(world, test_support::deadline_ms(60'000));
    std::vector<std::jthread> ranks;
    ranks.reserve(static_cast<std::size_t>(world));
    for (int rank = 0; rank < world; ++rank)
      ranks.emplace_back([&, rank] {
        const auto communicator = groups[static_cast<std::size_t>(rank)]->make_communicator();
        const FlatBuffer values(DType::kF32, {{"v", TensorLayout::plain({4096}), DType::kF32}}),
            error = FlatBuffer::like(values);
        CodedSum sum(*communicator, kEightBits, "test", values.size());
        if (rank == 1) values.span<float>()[3000] = std::nanf("");
        sum.sum({values, error, error}, {0, 4096}, 0, nullptr);
        EXPECT_TRUE(std::isnan(values.span<float>()[3000]));
        EXPECT_EQ(values.span<float>()[0], 0);
        for (const float e : error.span<float>()) EXPECT_TRUE(std::isfinite(e));
        groups[static_cast<std::size_t>(rank)]->leave();
      });
  }
}

}  // namespace
}  // namespace engine
