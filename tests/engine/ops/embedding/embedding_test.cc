// Embedding: gather, scatter-add and positions against naive loops at odd sizes, thread counts, and
// ids out of range.
#include "engine/ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/ops/common/kernel_test_support.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

Operand<std::int32_t> random_tokens(std::int64_t n, std::int64_t t, std::int32_t vocabulary) {
  Operand<std::int32_t> tokens({n, t}, 0);
  std::mt19937 random(5);
  for (std::int32_t& id : tokens.values)
    id = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocabulary));
  return tokens;
}

struct EmbeddingCase {
  std::int64_t n, t, vocabulary, width;
};
constexpr EmbeddingCase kEmbeddingCases[] = {{0, 3, 5, 4},   {1, 1, 1, 1},     {2, 7, 11, 17},
                                             {5, 13, 3, 33}, {3, 64, 65, 128}, {2, 5, 300, 48}};

TEST(Embedding, TakesTheRowsOfTheTokens) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    for (const auto& [n, t, vocabulary, width] : kEmbeddingCases) {
      Operand<std::int32_t> tokens = random_tokens(n, t, static_cast<std::int32_t>(vocabulary));
      Operand<float> table = random_operand({vocabulary, width}, 1),
                     y = gemm_test::nan_operand({n, t, width});
      Operand<double> wide = widen(table), wide_y({n, t, width}, 0);
      embedding_forward(c.context, {.tokens = tokens.view(), .table = table.view(), .y = y.view()});
      embedding_forward(c.context,
                        {.tokens = tokens.view(), .table = wide.view(), .y = wide_y.view()});
      for (std::size_t i = 0; i < y.values.size(); ++i) {
        const auto place = i / static_cast<std::size_t>(width),
                   column = i % static_cast<std::size_t>(width);
        const float expected =
            table.values[static_cast<std::size_t>(tokens.values[place] * width) + column];
        ASSERT_EQ(y.values[i], expected);
        ASSERT_EQ(wide_y.values[i], expected);
      }
    }
  });
}

TEST(Embedding, AddsUpTheGradientsOfEachTokenInTheSameOrderForAnyThreads) {
  for (const auto& [n, t, vocabulary, width] : kEmbeddingCases) {
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      Operand<std::int32_t> tokens = random_tokens(n, t, static_cast<std::int32_t>(vocabulary));
      Operand<float> dy = random_operand({n, t, width}, 3),
                     start = output({vocabulary, width}, write);
      std::vector<double> expected(start.values.size(), 0);
      if (write == Write::kAdd) expected.assign(start.values.begin(), start.values.end());
      for (std::size_t i = 0; i < dy.values.size(); ++i) {
        const auto place = i / static_cast<std::size_t>(width),
                   column = i % static_cast<std::size_t>(width);
        expected[static_cast<std::size_t>(tokens.values[place] * width) + column] += dy.values[i];
      }
      std::vector<float> first;
      for_each_setting([&](int threads) {
        Context c(threads, 0);
        Operand<float> dtable = start;
        embedding_backward(
            c.context,
            {.tokens = tokens.view(), .dy = dy.view(), .dtable = dtable.view(), .write = write});
        EXPECT_EQ(far_apart(dtable.values, expected, 1e-5, 1e-5), "");
        if (first.empty()) first = dtable.values;
        EXPECT_EQ(dtable.values, first);
      });
      Context c(2, 0);
      Operand<double> wide_dy = widen(dy), wide = widen(start);
      embedding_backward(
          c.context,
          {.tokens = tokens.view(), .dy = wide_dy.view(), .dtable = wide.view(), .write = write});
      EXPECT_EQ(far_apart(wide.values, expected, 1e-14, 1e-14), "");
    }
  }
}

TEST(Positions, AreAddedToEverySample) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    for (const auto& [n, t, spare, width] : kEmbeddingCases) {
      const std::int64_t context = t + spare - 1;  // longer than the samples, or not
      Operand<float> x = random_operand({n, t, width}, 1),
                     positions = random_operand({context, width}, 2);
      Operand<float> y = gemm_test::nan_operand(x.shape);
      Operand<double> wide_x = widen(x), wide_positions = widen(positions), wide_y(x.shape, 0);
      add_positions_forward(c.context, x.view(), positions.view(), y.view());
      add_positions_forward(c.context, wide_x.view(), wide_positions.view(), wide_y.view());
      EXPECT_EQ(far_apart(y.values, wide_y.values, 1e-6, 1e-7), "");
      const auto item = static_cast<std::size_t>(t * width);
      for (std::size_t i = 0; i < x.values.size(); ++i)
        ASSERT_EQ(wide_y.values[i], wide_x.values[i] + wide_positions.values[i % item]);
      add_positions_forward(c.context, x.view(), positions.view(), x.view());  // in place
      EXPECT_EQ(x.values, y.values);
    }
  });
}

TEST(Positions, GradientsAreSumsOverTheSamples) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    for (const auto& [n, t, spare, width] : kEmbeddingCases) {
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        const std::int64_t context = t + spare - 1;
        Operand<float> dy = random_operand({n, t, width}, 1),
                       dpositions = output({context, width}, write);
        Operand<double> wide_dy = widen(dy), wide = widen(dpositions);
        std::vector<double> expected(dpositions.values.size(), 0);
        if (write == Write::kAdd) expected = wide.values;
        const auto item = static_cast<std::size_t>(t * width);
        for (std::size_t i = 0; i < dy.values.size(); ++i) expected[i % item] += dy.values[i];
        add_positions_backward(c.context, dy.view(), dpositions.view(), write);
        add_positions_backward(c.context, wide_dy.view(), wide.view(), write);
        EXPECT_EQ(far_apart(dpositions.values, expected, 1e-5, 1e-6), "");
        EXPECT_EQ(far_apart(wide.values, expected, 1e-14, 1e-14), "");
      }
    }
  });
}

TEST(Embedding, NamesTheTokenAndItsPlaceWhenItIsOutOfRange) {
  for (const std::int32_t bad : {-1, 65, 1'000'000}) {
    Operand<std::int32_t> tokens({2, 8}, 3);
    tokens.values[13] = bad;
    Operand<float> table({65, 4}, 0), y({2, 8, 4}, 7);
    Context c(2, 0);
    EXPECT_VALUES(test_support::error_of<InputError>([&] {
                    embedding_forward(
                        c.context, {.tokens = tokens.view(), .table = table.view(), .y = y.view()});
                  }),
                  std::to_string(bad) + " 5 row 1 65 tokens 0 64");
    EXPECT_EQ(y.values[0], 7);
  }
}

TEST(Embedding, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  Operand<std::int32_t> tokens({2, 3}, 0);
  Operand<float> table({5, 4}, 0), y({2, 3, 5}, 0), x({2, 3, 4}, 0), few({2, 4}, 0);
  EXPECT_THROW(
      embedding_forward(c.context, {.tokens = tokens.view(), .table = table.view(), .y = y.view()}),
      ShapeError);
  EXPECT_THROW(
      embedding_forward(c.context, {.tokens = table.view(), .table = table.view(), .y = x.view()}),
      ShapeError);
  EXPECT_THROW(add_positions_forward(c.context, x.view(), few.view(), x.view()), ShapeError);
}

}  // namespace
}  // namespace engine::ops
