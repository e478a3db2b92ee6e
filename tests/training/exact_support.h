// What the tests of exactness across worlds share: options, comparisons, a text.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/train/balance/share_balance.h"
#include "io/base/files/io_error.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace exact_support {

using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;
constexpr io::Section kBuffers = io::Section::kBuffer;

// f64, so that what is compared is the semantics and not the rounding.
inline const Options kExact = "dtype=f64 epochs=2 lr=0.05 momentum=0.9 weight-decay=0.001";
// A fiftieth of the parameters of the built-in mlp.
inline const Options kSmallMlp =
    "model=" + test_support::source_directory() + "/tests/training/small_mlp.toml";
inline const Options kConv = with(kExact, "model=convnet synthetic-shape=8x8x1 epochs=1");

inline void write_some_text(const std::string& path) {
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += "line " + std::to_string(i * i * 7919 % 1000) + " of some text\n";
  test_support::write_text(path, text);
}

// After these steps, --shares auto and --local-steps auto measure these speeds at once.
inline session_runner::AfterStep measured(
    const std::vector<std::pair<std::int64_t, std::vector<double>>>& speeds) {
  return [speeds](int rank, engine::TrainState& state) {
    for (const auto& [step, of_ranks] : speeds) {
      if (state.progress.global_step != step) continue;
      for (engine::Stateful* part : state.parts)
        if (auto* balance = dynamic_cast<engine::ShareBalance*>(part))
          for (int i = 0; i < 6; ++i)  // as if by steps of a minute
            balance->add_step({60 * of_ranks[static_cast<std::size_t>(rank)], 60});
    }
  };
}

inline void expect_in_sync(const std::vector<RankResult>& ranks) {
  for (std::size_t r = 1; r < ranks.size(); ++r)
    EXPECT_TRUE(same_bits(ranks[0], ranks[r], io::Section::kParameter)) << "rank " << r;
}

inline void expect_losses(const RankResult& expected, const RankResult& got, double relative) {
  ASSERT_EQ(expected.losses.size(), got.losses.size());
  for (std::size_t s = 0; s < expected.losses.size(); ++s)
    EXPECT_NEAR(got.losses[s], expected.losses[s], relative * std::abs(expected.losses[s]))
        << "step " << s + 1;
}

inline std::string refusal(int world, const Options& options) {
  try {
    train(world, options);
  } catch (const io::ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace exact_support
