// --sync auto in the real program: the bits of the chosen policy, its record, what is rejected.
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;
using Words = std::vector<std::string>;

constexpr const char* kTrain =
    "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
    "--batch-size 12 --log-every 2 --threads 1";

Words words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

CommandResult train(const std::string& more) {
  return test_support::engine(words_of(std::string(kTrain) + " " + more));
}

// Returns "--sync params --sync-every 16": what the output says after "chosen: ".
std::string chosen_in(const CommandResult& result) {
  const std::string before = "Sync auto: chosen: ";
  const std::size_t at = result.out.find(before);
  EXPECT_NE(at, std::string::npos) << result.out;
  if (at == std::string::npos) return "--sync none";
  const std::size_t begin = at + before.size();
  return result.out.substr(begin, result.out.find(" (", begin) - begin);
}

TEST(SyncAuto, HasTheBitsOfTheChosenPolicyAndKeepsItWhenResumed) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run", typed = folder / "typed";
  const CommandResult first =
      expect_success(train("--spawn 2 --epochs 2 --sync auto --backend socket --save-dir " + run));
  EXPECT_VALUES(first.out, "Sync auto: 2 1 0 1 (socket)");
  EXPECT_CONTAINS(first.out, "; the run has 10 steps\n");
  for (const char* candidate : {"--sync grad ", "--compress int8", "--sync params --sync-every 4 "})
    EXPECT_CONTAINS(first.out, candidate);
  for (const char* for_longer_runs : {"--sync-every 16", "--sync streaming", "--sync diloco"})
    EXPECT_EQ(first.out.find(for_longer_runs), std::string::npos) << first.out;
  const std::string chosen = chosen_in(first), sync = words_of(chosen).at(1);
  expect_success(train("--spawn 2 --epochs 2 --save-dir " + typed + " " + chosen));
  expect_success(call("verify", run, typed));

  const CommandResult again =
      expect_success(train("--spawn 2 --epochs 3 --sync auto --resume auto --save-dir " + run));
  EXPECT_VALUES(again.out, "Sync recorded " + sync);
  EXPECT_EQ(again.out.find("slowest link"), std::string::npos) << again.out;
  EXPECT_EQ(again.err.find("sync "), std::string::npos) << again.err;  // nothing has changed
  const CommandResult plain = expect_success(call("train --resume", run, "--epochs 4 --spawn 2"));
  EXPECT_EQ(plain.out.find("Sync auto"), std::string::npos) << plain.out;
  EXPECT_CONTAINS(plain.out, "sync " + sync);
}

// Given options replace recorded ones, and those that depend on them.
TEST(SyncAuto, NamesWhatItTakesFromTheRecordAlone) {
  const TemporaryDirectory folder;
  const std::string run = folder / "run";
  expect_success(train("--spawn 2 --epochs 1 --compress topk --topk-ratio 0.2 --save-dir " + run));
  const std::string again = "--spawn 2 --sync auto --resume auto --save-dir " + run;
  const std::string recorded = expect_success(train("--epochs 2 " + again)).out;
  EXPECT_VALUES(recorded, "Sync auto: recorded: sync grad, compress topk, topk-ratio 0.2");
  const std::string plain = expect_success(train("--epochs 3 --compress none " + again)).out;
  EXPECT_VALUES(plain, "Sync auto: recorded: sync grad");
  EXPECT_LACKS(plain, "sync grad,");
}

// A step takes 0.1 ms, as long as an exchange in memory: no code makes that faster.
TEST(SyncAuto, RanksOfOneHostSumGradientsInTheirMemory) {
  EXPECT_EQ(chosen_in(expect_success(train("--dry-run --spawn 2 --sync auto --backend shm"))),
            "--sync grad");
}

TEST(SyncAuto, OneRankGivenOptionsAndContradictions) {
  EXPECT_VALUES(expect_success(train("--steps 1 --sync auto")).out,
                "Sync auto: one rank, sync grad");
  const CommandResult given =
      expect_success(train("--steps 1 --spawn 2 --sync auto --sync-every 7"));
  EXPECT_CONTAINS(chosen_in(given), "--sync-every 7");
  EXPECT_EQ(given.out.find("--sync grad"), std::string::npos) << given.out;
  const CommandResult dry =
      expect_success(train("--dry-run --spawn 2 --sync auto --compress int4"));
  EXPECT_CONTAINS(chosen_in(dry), "--compress int4");
  for (const char* other : {"--compress topk", "--shard-optimizer", "--reduction-order canonical",
                            "--sync-warmup 5", "--elastic 1:2", "--sync-fragments 2"})
    EXPECT_EQ(train(std::string("--spawn 2 --sync auto ") + other).exit_code, 78) << other;
}

}  // namespace
