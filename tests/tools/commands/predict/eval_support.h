// For tests that compare engine eval with engine predict.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/test_support.h"
#include "tools/report/output/json_file.h"

namespace eval_support {

using tools::Json;
using Words = std::vector<std::string>;

struct Evaluated {
  Json report;
  std::string err;
};
inline Evaluated evaluate(const std::string& run, Words more = {}) {
  more.insert(more.begin(), {"eval", run, "--format", "json", "--threads", "1"});
  const test_support::CommandResult result = test_support::engine(more);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  if (result.exit_code != 0) return {};
  return {tools::parse_json(result.out, "eval"), result.err};
}

// A line for each sample, without the line about classes or the target.
inline std::vector<Json> predict(const std::string& run, const Words& inputs, int ranks = 1) {
  Words words{"predict", run};
  words.insert(words.end(), inputs.begin(), inputs.end());
  words.insert(words.end(), {"--format", "json", "--threads", "1"});
  if (ranks > 1) words.insert(words.end(), {"--spawn", std::to_string(ranks)});
  const test_support::CommandResult result = test_support::engine(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<Json> lines;
  std::istringstream text(result.out);
  for (std::string line; std::getline(text, line);)
    lines.push_back(tools::parse_json(line, "predict"));
  if (!lines.empty()) lines.erase(lines.begin());
  return lines;
}

inline std::string train(const std::string& run, const Words& words) {
  const Words all = test_support::overridden({"train", "--model", "mlp", "--batch-size", "16",
                                              "--threads", "1", "--epochs", "2", "--save-dir", run},
                                             words);
  const test_support::CommandResult result = test_support::engine(all);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return run;
}

}  // namespace eval_support
