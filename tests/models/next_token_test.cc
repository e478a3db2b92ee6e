// The next token of texts that grow: keys and values that are kept give the logits of the whole
// context.
#include "models/next_token.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "io/base/numbers/half.h"
#include "tests/models/text_models.h"

namespace {

using engine::DType;
using engine::ModelState;
using namespace text_models;

constexpr models::NextToken::Tokens kNone{};

class KeptPositions : public testing::TestWithParam<std::tuple<TextModel, DType>> {
 protected:
  static Model make() {
    const auto [model, dtype] = GetParam();
    return make_model(model, dtype);
  }
  static double tolerance() { return std::get<1>(GetParam()) == DType::kF64 ? 1e-12 : 1e-5; }
};

TEST_P(KeptPositions, GiveTheLogitsOfTheWholeContextAtEachPosition) {
  Model m = make();
  const auto context = static_cast<std::size_t>(kPositions);
  const auto expected = m.whole(m.text(0, context));
  models::NextToken next(m.graph, m.state, m.threads);
  ASSERT_TRUE(next.keeps_positions());
  for (std::size_t length = 1; length <= context; ++length)
    EXPECT_LE(difference(next.logits_after(m.text(0, length)), expected[length - 1]), tolerance())
        << length;
  // Beyond it, the context moves on.
  for (std::size_t length = context + 1; length <= context + 3; ++length)
    EXPECT_LE(difference(next.logits_after(m.text(0, length)), m.whole(m.text(0, length)).back()),
              tolerance())
        << length;
}

TEST_P(KeptPositions, PromptsOfAnyLength) {
  Model m = make();
  const auto context = static_cast<std::size_t>(kPositions);
  for (const std::size_t length : {std::size_t{1}, std::size_t{7}, context, 2 * context}) {
    models::NextToken next(m.graph, m.state, m.threads);
    EXPECT_LE(difference(next.logits_after(m.text(0, length)), m.whole(m.text(0, length)).back()),
              tolerance())
        << length;
  }
}

TEST_P(KeptPositions, ATextThatChangesIsComputedAnewFromThere) {
  Model m = make();
  models::NextToken next(m.graph, m.state, m.threads);
  next.logits_after(m.text(0, 20));
  std::vector<std::int32_t> other(m.tokens.begin(), m.tokens.begin() + 15);
  other[9] = 30;
  EXPECT_LE(difference(next.logits_after(other), m.whole(other).back()), tolerance());
  const std::vector<double> again = copied(next.logits_after(other));
  EXPECT_LE(difference(again, m.whole(other).back()), tolerance());
  other.resize(10);
  EXPECT_LE(difference(next.logits_after(other), m.whole(other).back()), tolerance());
}

TEST_P(KeptPositions, SeveralTextsAreWhatEachIsAlone) {
  Model m = make();
  models::NextToken batched(m.graph, m.state, m.threads, {}, 3);
  const double bits = std::get<1>(GetParam()) == DType::kF64 ? 1e-12 : 0;  // Eigen's products
  for (std::size_t length = 1; length < 40; length += 6) {
    const models::NextToken::Tokens texts[] = {m.text(0, length), m.text(5, 2 * length % 11 + 1),
                                               m.text(9, 30)};
    batched.compute(texts);
    for (std::size_t i = 0; i < 3; ++i) {
      models::NextToken next(m.graph, m.state, m.threads);
      EXPECT_LE(difference(batched.logits_of(i), next.logits_after(texts[i])), bits)
          << i << " at " << length;
    }
  }
}

TEST_P(KeptPositions, RejectNoTextAndUnknownTokens) {
  Model m = make();
  models::NextToken next(m.graph, m.state, m.threads);
  EXPECT_THROW(next.logits_after(kNone), engine::InputError);
  EXPECT_THROW(next.logits_after(std::vector<std::int32_t>{1, kTokens}), engine::InputError);
  const std::vector<std::int32_t> one{3};
  EXPECT_LE(difference(next.logits_after(one), m.whole(one).back()), tolerance());
}

class PackedInBf16 : public KeptPositions {};

// A tied table is rounded as the head's weight, but not as an embedding, which no state expresses.
TEST_P(PackedInBf16, GivesTheLogitsOfRoundedWeights) {
  Model m = make(), rounded = make();
  models::NextToken next(m.graph, m.state, m.threads, {.packed = DType::kBF16}, 2);
  ASSERT_TRUE(next.keeps_positions());
  const models::NextToken::Tokens texts[] = {m.text(0, 20), m.text(3, 7)};
  next.compute(texts);
  bool tied = true;
  for (const ModelState::Entry& entry : rounded.state.entries) {
    tied = tied && entry.name != "head.weight";
    const engine::TensorView view = rounded.state.view(entry);
    if (view.shape.rank() != 2 || entry.name.find("wte") != entry.name.npos ||
        entry.name.find("wpe") != entry.name.npos)
      continue;
    for (float& value : view.span<float>())
      value = base::to_float(base::from_float<base::bf16>(value));
  }
  models::NextToken plain(rounded.graph, rounded.state, rounded.threads, {}, 2);
  plain.compute(texts);
  for (std::size_t i = 0; i < 2; ++i) {
    const double largest = std::ranges::max(plain.logits_of(i));
    EXPECT_LE(difference(next.logits_of(i), plain.logits_of(i)), tied ? 0.02 * largest : 0) << i;
    EXPECT_GT(difference(next.logits_of(i), m.whole(texts[i]).back()), 1e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KeptPositions,
                         testing::Combine(testing::ValuesIn(kTextModels),
                                          testing::Values(DType::kF32, DType::kF64)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name) +
                                  (std::get<1>(param.param) == DType::kF64 ? "F64" : "F32");
                         });

INSTANTIATE_TEST_SUITE_P(Models, PackedInBf16,
                         testing::Combine(testing::ValuesIn(kTextModels),
                                          testing::Values(DType::kF32)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name);
                         });

}  // namespace
