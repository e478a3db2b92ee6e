// Compressed sums: nothing is lost for ever, all ranks agree, and what they do not send they
// remember.
#include "engine/averaging/sums/gradient_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "backends/group.h"
#include "engine/averaging/low_rank/low_rank.h"
#include "engine/averaging/math/flat_math.h"
#include "engine/core/random.h"
#include "tests/support/time_limits.h"

namespace engine {
namespace {

constexpr int kWorld = 3, kSteps = 12;

std::vector<NamedLayout> layouts(DType dtype) {
  return {
      {"bias", TensorLayout::plain({7}), dtype},
      {"dense", TensorLayout::plain({20, 33}), dtype},
      {"conv", TensorLayout{.file_shape = {8, 5, 3, 3}, .permutation = {2, 3, 1, 0, 4, 5, 6, 7}},
       dtype},
      {"norm", TensorLayout::plain({1}), dtype}};
}

// In [-1, 1), of rank r and step s; the gaps between tensors stay zero.
template <class T>
void fill(const FlatBuffer& buffer, int rank, int step) {
  for (const FlatBuffer::Slot& slot : buffer.slots())
    for (std::int64_t i = 0; i < slot.count; ++i)
      buffer.span<T>()[static_cast<std::size_t>(slot.offset + i)] =
          static_cast<T>(2 * uniform_float(philox(static_cast<std::uint64_t>(rank),
                                                  static_cast<std::uint64_t>(step),
                                                  static_cast<std::uint64_t>(slot.offset + i))[0]) -
                         1);
}

struct RankOutcome {
  std::vector<double> sums;    // of all steps' results
  std::vector<double> errors;  // what is owed at the end
  std::vector<double> last;    // the last step's result
  std::int64_t bytes = 0;
};

using Make = std::function<std::unique_ptr<GradientSum>(backends::Communicator&, FlatBuffer&,
                                                        KernelContext&)>;

template <class T>
std::vector<RankOutcome> run(const Make& make, bool equal_steps = false) {
  std::vector<RankOutcome> outcomes(kWorld);
  auto groups = backends::make_inproc_groups(kWorld, test_support::deadline_ms(20'000));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank)
    threads.emplace_back([&, rank] {
      const auto communicator = groups[static_cast<std::size_t>(rank)]->make_communicator();
      ThreadPool pool(2);
      KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
      FlatBuffer gradients(DTypeOf<T>::value, layouts(DTypeOf<T>::value));
      const auto sum = make(*communicator, gradients, context);
      RankOutcome& out = outcomes[static_cast<std::size_t>(rank)];
      out.sums.assign(static_cast<std::size_t>(gradients.size()), 0);
      for (int step = 0; step < kSteps; ++step) {
        fill<T>(gradients, rank, equal_steps ? 0 : step);
        sum->begin_step(step);
        const std::int64_t half = gradients.size() / 2;
        if (sum->whole()) {
          sum->sum(0, gradients.size());
        } else {
          sum->sum(0, half);
          sum->sum(half, gradients.size() - half);
        }
        const auto result = gradients.span<T>();
        for (std::size_t i = 0; i < out.sums.size(); ++i)
          out.sums[i] += static_cast<double>(result[i]);
        out.last.assign(result.begin(), result.end());
      }
      for (const PolicyState& s : sum->state())
        if (s.name == "gradient_error")
          out.errors.assign(s.buffer->span<T>().begin(), s.buffer->span<T>().end());
      out.bytes = sum->bytes_sent();
      groups[static_cast<std::size_t>(rank)]->leave();
    });
  for (std::thread& t : threads) t.join();
  return outcomes;
}

Make of_kind(const std::string& kind) {
  return [kind](backends::Communicator& c, FlatBuffer& g, KernelContext& context) {
    const LossyOptions sparse{.kind = LossyOptions::Kind::kSparse, .bits = 2, .ratio = 0.1};
    return kind == "plain"    ? make_plain_sum(c, g)
           : kind == "bf16"   ? make_bf16_sum(c, g)
           : kind == "topk"   ? make_top_k_sum(c, g, 0.1)
           : kind == "all"    ? make_top_k_sum(c, g, 1)
           : kind == "int8"   ? make_coded_sum(c, g, context, {.bits = 8})
           : kind == "int4"   ? make_coded_sum(c, g, context, {.bits = 4})
           : kind == "sparse" ? make_coded_sum(c, g, context, sparse)
                              : make_power_sgd_sum(c, g, context, 2);
  };
}

class Compressed : public testing::TestWithParam<const char*> {};

// What came out over all steps, plus what every rank still owes, is what went in: error feedback's
// telescoping sum.
TEST_P(Compressed, LosesNothingForEver) {
  const std::vector<RankOutcome> plain = run<double>(of_kind("plain")),
                                 less = run<double>(of_kind(GetParam()));
  // bf16 rounds when it adds, too, and that is not fed back: 3 roundings of 2^-9 of at most 3, over
  // 12 steps.
  const double tolerance = std::string(GetParam()) == "bf16" ? 0.2 : 1e-12;
  double owed = 0;
  for (std::size_t i = 0; i < plain[0].sums.size(); ++i) {
    double total = less[0].sums[i];
    for (const RankOutcome& rank : less) total += rank.errors[i];
    ASSERT_NEAR(total, plain[0].sums[i], tolerance) << i;
    owed = std::max(owed, std::abs(less[1].errors[i]));
  }
  EXPECT_GT(owed, 1e-6);  // else nothing was compressed
}

TEST_P(Compressed, GivesAllRanksTheSameBitsAndSendsLess) {
  const std::int64_t all = run<float>(of_kind("plain"))[0].bytes;
  const std::vector<RankOutcome> less = run<float>(of_kind(GetParam()));
  for (const RankOutcome& rank : less) {
    EXPECT_EQ(rank.last, less[0].last);
    EXPECT_EQ(rank.bytes, less[0].bytes);
    EXPECT_LT(rank.bytes, 0.6 * static_cast<double>(all));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Compressed,
                         testing::Values("bf16", "topk", "powersgd", "int8", "int4", "sparse"),

                         [](const auto& kind) { return std::string(kind.param); });

TEST(Bf16Sum, SendsHalfTheBytes) {
  EXPECT_EQ(run<float>(of_kind("plain"))[0].bytes, 2 * run<float>(of_kind("bf16"))[0].bytes);
}

TEST(TopKSum, OfAllIsThePlainSumToTheBit) {
  EXPECT_EQ(run<float>(of_kind("all"))[0].sums, run<float>(of_kind("plain"))[0].sums);
  EXPECT_EQ(run<double>(of_kind("all"))[0].sums, run<double>(of_kind("plain"))[0].sums);
}

TEST(TopKSum, SendsTheCountAskedFor) {
  // 7 + 660 + 360 + 1 elements: a tenth, rounded up, each with an index of 4 bytes.
  EXPECT_EQ(run<float>(of_kind("topk"))[0].bytes, kSteps * 103 * 8);
}

// Ties at the limit: exactly k are taken, the first ones, and the rest is kept.
TEST(TopKSum, TakesExactlyKOfEqualElements) {
  auto group = backends::make_inproc_groups(1, 1000);
  const auto communicator = group[0]->make_communicator();
  FlatBuffer gradients(DType::kF32, {{"w", TensorLayout::plain({10}), DType::kF32}});
  const auto sum = make_top_k_sum(*communicator, gradients, 0.3);
  const auto g = gradients.span<float>();
  for (std::size_t i = 0; i < 10; ++i) g[i] = i % 2 ? -1.0F : 1.0F;
  g[9] = 5;
  sum->sum(0, gradients.size());
  EXPECT_EQ(std::vector<float>(g.begin(), g.begin() + 10),
            (std::vector<float>{1, -1, 0, 0, 0, 0, 0, 0, 0, 5}));
  g[4] = std::nanf("");
  sum->sum(0, gradients.size());
  EXPECT_TRUE(std::isnan(g[4]));  // a gradient that is no number is not kept back
  group[0]->leave();
}

// Three elements are infinite, and two are sent.
TEST(TopKSum, KeepsNothingThatIsNotFinite) {
  auto group = backends::make_inproc_groups(1, 1000);
  const auto communicator = group[0]->make_communicator();
  FlatBuffer gradients(DType::kF32, {{"w", TensorLayout::plain({10}), DType::kF32}});
  const auto sum = make_top_k_sum(*communicator, gradients, 0.2);
  const auto g = gradients.span<float>();
  for (const std::size_t i : {2, 4, 7}) g[i] = std::numeric_limits<float>::infinity();
  g[5] = 1;
  sum->sum(0, gradients.size());
  EXPECT_TRUE(std::isinf(g[2]) && std::isinf(g[4]));
  std::fill(g.begin(), g.end(), 0.0F);
  sum->sum(0, gradients.size());
  EXPECT_EQ(g[5], 1);
  EXPECT_EQ(g[7], 0);
  group[0]->leave();
}

// A gradient of rank 2 needs no more than two columns; with the same one every step the factors
// converge at once.
TEST(PowerSgdSum, ALowRankGradientComesThroughWhole) {
  auto group = backends::make_inproc_groups(1, 1000);
  const auto communicator = group[0]->make_communicator();
  ThreadPool pool(1);
  KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
  FlatBuffer gradients(DType::kF64, {{"w", TensorLayout::plain({20, 30}), DType::kF64}});
  const auto sum = make_power_sgd_sum(*communicator, gradients, context, 2);
  const auto expected = [](std::size_t i, std::size_t j) {
    return std::sin(1.0 + static_cast<double>(i)) * std::cos(static_cast<double>(j)) +
           0.3 * static_cast<double>(i * i % 7) * static_cast<double>(j % 5);
  };
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < 20; ++i)
      for (std::size_t j = 0; j < 30; ++j) gradients.span<double>()[i * 30 + j] = expected(i, j);
    sum->sum(0, gradients.size());
    for (std::size_t i = 0; i < 20; ++i)
      for (std::size_t j = 0; j < 30; ++j)
        ASSERT_NEAR(gradients.span<double>()[i * 30 + j], expected(i, j), 1e-9);
  }
  // 2 * (20 + 30) numbers instead of 600, and two rounds of them; Q is laid out in whole cache
  // lines.
  EXPECT_EQ(sum->bytes_sent(), 3 * (2 * 20 + 64) * 8);
  group[0]->leave();
}

TEST(PowerSgdSum, GoesOnAfterAStepWithoutGradient) {
  auto group = backends::make_inproc_groups(1, 1000);
  const auto communicator = group[0]->make_communicator();
  ThreadPool pool(1);
  KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
  FlatBuffer gradients(DType::kF32, {{"w", TensorLayout::plain({20, 30}), DType::kF32}});
  const auto sum = make_power_sgd_sum(*communicator, gradients, context, 2);
  sum->sum(0, gradients.size());
  for (const float v : gradients.span<float>()) ASSERT_EQ(v, 0);
  for (std::size_t i = 0; i < 20; ++i) gradients.span<float>()[i * 30] = 1;
  sum->sum(0, gradients.size());
  EXPECT_NEAR(gradients.span<float>()[0], 1, 1e-5);
  group[0]->leave();
}

TEST(PowerSgdSum, GoesOnAfterAGradientThatIsNotFinite) {
  auto group = backends::make_inproc_groups(1, 1000);
  const auto communicator = group[0]->make_communicator();
  ThreadPool pool(1);
  KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
  FlatBuffer gradients(DType::kF32, {{"w", TensorLayout::plain({20, 30}), DType::kF32}});
  const auto sum = make_power_sgd_sum(*communicator, gradients, context, 2);
  const auto g = gradients.span<float>();
  g[7] = std::numeric_limits<float>::infinity();
  sum->sum(0, gradients.size());
  EXPECT_FALSE(std::isfinite(g[7]));  // it is detected
  std::fill(g.begin(), g.end(), 0.0F);
  for (std::size_t i = 0; i < 20; ++i) g[i * 30] = 1;
  sum->sum(0, gradients.size());
  EXPECT_NEAR(g[0], 1, 1e-5);
  EXPECT_NEAR(g[1], 0, 1e-5);
  group[0]->leave();
}

TEST(Orthonormalize, ColumnsAreOrthonormalAndSpannedOnesAreZero) {
  constexpr int kRows = 11, kRank = 4;
  std::vector<double> p(kRows * kRank);
  for (std::size_t i = 0; i < kRows; ++i) {
    const auto x = static_cast<double>(i);
    p[i * kRank] = 1 + x;
    p[i * kRank + 1] = std::sin(x);
    p[i * kRank + 2] = 3 * (1 + x) - 2 * std::sin(x);
    p[i * kRank + 3] = std::cos(x);
  }
  orthonormalize(p.data(), kRows, kRank);
  for (std::size_t a = 0; a < kRank; ++a)
    for (std::size_t b = 0; b < kRank; ++b) {
      double dot = 0;
      for (std::size_t i = 0; i < kRows; ++i) dot += p[i * kRank + a] * p[i * kRank + b];
      EXPECT_NEAR(dot, a == b && a != 2 ? 1 : 0, 1e-12) << a << " " << b;
    }
}

// Method: Lin et al., 2017, algorithm 4, with k of every step chosen from one block.
TEST(CodedSum, MomentumIsAccumulatedBeforeTheSelection) {
  auto group = backends::make_inproc_groups(1, 1000);
  const auto communicator = group[0]->make_communicator();
  ThreadPool pool(1);
  KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
  FlatBuffer gradients(DType::kF64, {{"w", TensorLayout::plain({16}), DType::kF64}});
  const auto sum = make_coded_sum(*communicator, gradients, context,
                                  {.kind = LossyOptions::Kind::kSparse,
                                   .bits = 8,
                                   .ratio = 0.0625,  // one of 16
                                   .momentum = 0.5});
  const auto g = gradients.span<double>();
  const auto step = [&](double first, double second) {
    std::fill(g.begin(), g.end(), 0.0);
    g[0] = first;
    g[1] = second;
    sum->sum(0, gradients.size());
    return std::pair(g[0], g[1]);
  };
  EXPECT_EQ(step(1, 2), std::pair(0.0, 2.0));
  EXPECT_EQ(step(1, 0), std::pair(2.5, 0.0));  // velocities 1 and 1.5; that of g[1] was cleared
  EXPECT_EQ(step(0, 1), std::pair(0.0, 1.0));  // both velocities had been cleared
  EXPECT_EQ(sum->state().size(), 2u);
  group[0]->leave();
}

// E.g. of a loss scale that is too large: the step is skipped, and later ones continue.
TEST(Bf16Sum, AGradientThatIsNotFiniteDoesNotStayInTheError) {
  const auto groups = backends::make_inproc_groups(1, test_support::deadline_ms(20'000));
  const auto communicator = groups[0]->make_communicator();
  FlatBuffer gradients(DType::kF32, layouts(DType::kF32));
  const auto sum = make_bf16_sum(*communicator, gradients);
  for (const float value : {std::numeric_limits<float>::infinity(), 0.0F}) {
    std::ranges::fill(gradients.span<float>(), value);
    sum->sum(0, gradients.size());
  }
  for (const float value : gradients.span<float>()) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace engine
