// The next token of texts on a CUDA device: the logits and the greedy tokens of the CPU, with keys
// and values kept in the device's memory, and how much a new token computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/core/cuda.h"
#include "io/gpu/kernel_resources.h"
#include "tests/models/text_models.h"

namespace {

using engine::DType;
using engine::Products;
using models::NextToken;
using namespace text_models;

constexpr engine::Device kDevice{engine::Device::Kind::kCuda, 0};
constexpr auto kContext = static_cast<std::size_t>(kPositions);

class DeviceTexts : public testing::TestWithParam<TextModel> {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
    engine::cuda::use_device(0);
  }
};

double largest_of(std::span<const double> values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

TEST_P(DeviceTexts, HaveTheLogitsOfTheCpuAtEachPosition) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kF32, 1e-5}, std::pair{DType::kF64, 1e-12}}) {
    Model m = make_model(GetParam(), dtype);
    NextToken device(m.graph, m.state, m.threads, {.device = kDevice}),
        host(m.graph, m.state, m.threads);
    ASSERT_TRUE(device.keeps_positions());
    // Beyond the context, which then moves on, and back to a text that begins alike.
    for (const std::size_t length : {std::size_t{1}, std::size_t{2}, std::size_t{9},
                                     std::size_t{10}, kContext, kContext + 1, std::size_t{12}}) {
      const NextToken::Tokens text = m.text(0, length);
      EXPECT_LE(difference(device.logits_after(text), host.logits_after(text)), tolerance)
          << length;
    }
    std::vector<std::int32_t> other(m.tokens.begin(), m.tokens.begin() + 12);
    other[6] = 30;
    EXPECT_LE(difference(device.logits_after(other), host.logits_after(other)), tolerance);
  }
}

TEST_P(DeviceTexts, OfSeveralLengthsAreComputedTogether) {
  Model m = make_model(GetParam(), DType::kF32);
  NextToken device(m.graph, m.state, m.threads, {.device = kDevice}, 3),
      host(m.graph, m.state, m.threads, {}, 3);
  for (std::size_t length = 1; length < 30; length += 7) {
    const NextToken::Tokens texts[] = {m.text(0, length), m.text(5, 2 * length % 11 + 1),
                                       m.text(9, 30)};
    device.compute(texts);
    host.compute(texts);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_LE(difference(device.logits_of(i), host.logits_of(i)), 1e-5) << i << " at " << length;
  }
}

TEST_P(DeviceTexts, ContinueGreedilyAsOnTheCpu) {
  Model m = make_model(GetParam(), DType::kF32);
  const auto continued = [&](const engine::InferenceOptions& options) {
    NextToken next(m.graph, m.state, m.threads, options);
    std::vector<std::int32_t> tokens(m.tokens.begin(), m.tokens.begin() + 3);
    while (tokens.size() < kContext + 4) {
      const auto logits = next.logits_after(tokens);
      tokens.push_back(
          static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin()));
    }
    return tokens;
  };
  EXPECT_EQ(continued({.device = kDevice}), continued({}));
}

TEST_P(DeviceTexts, InSixteenBitsAreNearThoseOfTheCpu) {
  Model m = make_model(GetParam(), DType::kF32);
  NextToken host(m.graph, m.state, m.threads);
  for (const auto& [dtype, products, tolerance] : {std::tuple{DType::kBF16, Products::kBF16, 0.05},
                                                   std::tuple{DType::kF16, Products::kF16, 0.01}}) {
    NextToken device(m.graph, m.state, m.threads,
                     {.dtype = dtype, .device = kDevice, .products = products});
    ASSERT_TRUE(device.keeps_positions());
    for (const std::size_t length : {std::size_t{8}, std::size_t{9}, std::size_t{20}}) {
      const auto expected = host.logits_after(m.text(0, length));
      EXPECT_LE(difference(device.logits_after(m.text(0, length)), expected),
                tolerance * largest_of(expected))
          << length;
    }
  }
}

// The blocks of attention: one for each row and head where texts are extended.
struct AttentionWork {
  std::int64_t extended = 0, whole = 0;
};
AttentionWork work_of(const engine::cuda::LaunchRecord& record) {
  AttentionWork work;
  for (const auto& launch : record.launches()) {
    const std::string_view name = launch.use.name;
    if (name == "attention_extend") work.extended += launch.blocks;
    if (name == "attention_forward" || name == "attention_mma_forward") work.whole += launch.blocks;
  }
  return work;
}

TEST_P(DeviceTexts, ComputeOnePositionForANewToken) {
  Model m = make_model(GetParam(), DType::kF32);
  std::int64_t heads = 0;  // of all layers
  for (const auto& node : m.graph.nodes()) {
    if (!node.layer || node.layer->kind() != "causal_self_attention") continue;
    for (const engine::LayerOption& option : node.layer->traits().options)
      if (option.name == "heads") heads += static_cast<std::int64_t>(option.value);
  }
  NextToken device(m.graph, m.state, m.threads, {.device = kDevice}, 2);
  const auto compute = [&](std::size_t length) {
    const NextToken::Tokens texts[] = {m.text(0, length), m.text(4, length + 2)};
    const engine::cuda::LaunchRecord record;
    device.compute(texts);
    return work_of(record);
  };
  const AttentionWork first = compute(10);
  EXPECT_GT(first.whole, 0);  // both prompts at once, but their last positions
  EXPECT_EQ(first.extended, 2 * heads);
  for (std::size_t length = 11; length < 16; ++length) {
    const AttentionWork next = compute(length);
    EXPECT_EQ(next.whole, 0) << length;
    EXPECT_EQ(next.extended, 2 * heads) << length;
  }
}

TEST_P(DeviceTexts, RejectUnknownTokens) {
  Model m = make_model(GetParam(), DType::kF32);
  NextToken device(m.graph, m.state, m.threads, {.device = kDevice});
  EXPECT_THROW(device.logits_after(std::vector<std::int32_t>{1, kTokens}), engine::InputError);
  EXPECT_LE(difference(device.logits_after(m.text(0, 5)), m.whole(m.text(0, 5)).back()), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceTexts, testing::ValuesIn(kTextModels),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
