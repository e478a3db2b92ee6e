// --amp of the real program on the CPU: what is said, and what is refused in one line.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/ops/common/bf16_dispatch.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using program::expect_words;
using program::quick_train;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;

std::vector<std::string> train_on_cpu(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"--device", "cpu", "--steps", "3", "--eval-every", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return quick_train(arguments);
}

TEST(CpuPrecisionProgram, WhatTheCpuCannotComputeIsRefusedInOneLine) {
  expect_error(engine(train_on_cpu({"--amp", "O1"})), 78,
               "requires --device cuda: CPUs compute off and bf16");
  expect_error(engine(train_on_cpu({"--amp", "O2"})), 78,
               "requires --device cuda: CPUs compute off and bf16");
  expect_error(engine(train_on_cpu({"--amp", "tf32"})), 78,
               "requires --device cuda: CPUs compute off and bf16");
  expect_error(engine(train_on_cpu({"--amp", "bf16", "--loss-scale", "128"})), 78,
               "losses CUDA devices");
  expect_error(engine(train_on_cpu({"--amp", "bf16", "--dtype", "f64"})), 78,
               "expected f32 beside --amp bf16");
  // A CPU that has less than this one.
  const bool has_baseline = engine::ops::is_supported(engine::ops::CpuIsa::kBaseline);
  const std::map<std::string, std::string> less{{"ENGINE_ISA", has_baseline ? "baseline" : "avx2"}};
  const CommandResult train = engine(train_on_cpu({"--amp", "bf16"}), less);
  expect_error(train, 78, "--amp bf16 on the CPU: ");
  EXPECT_CONTAINS(train.err, "AVX512_BF16");
  const CommandResult bench = engine(argv("bench kernels --op dense --amp bf16"), less);
  expect_error(bench, 2, "AVX512_BF16");
}

TEST(CpuPrecisionProgram, SaysWhatItComputesAndWhatAResumedRunChanges) {
  if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
    GTEST_SKIP() << missing;
  const TemporaryDirectory folder;
  const CommandResult run =
      expect_success(engine(train_on_cpu({"--amp", "bf16", "--save-dir", folder / "run"})));
  const std::string isa(engine::ops::to_string(engine::ops::isa_of(engine::Products::kBF16)));
  expect_words(run.out, {"1 thread on cpu (" + isa, "), bf16 products and activations | "});
  const CommandResult plain = engine(train_on_cpu({}));
  EXPECT_LACKS(plain.out, "bf16");

  const CommandResult same = expect_success(call("train --resume", folder / "run", "--steps 4"));
  expect_words(same.out, {"), bf16 products and activations | "});
  const CommandResult changed =
      expect_success(call("train --resume", folder / "run", "--steps 5 --amp off"));
  expect_words(changed.out + changed.err, {"amp bf16 -> off"});
  expect_success(call("eval", folder / "run", "--device cpu --threads 1 --amp bf16"));
  const CommandResult dry = expect_success(engine(train_on_cpu({"--amp", "bf16", "--dry-run"})));
  EXPECT_NE(dry.out, engine(train_on_cpu({"--dry-run"})).out);
}

TEST(CpuPrecisionProgram, ModelsOfTextKeepActivationsInF32) {
  if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
    GTEST_SKIP() << missing;
  const CommandResult run = expect_success(call(
      "train --model gpt-nano --dataset synthetic --synthetic-shape 8 --steps 1 --eval-every 0 "
      "--device cpu --threads 1 --amp bf16"));
  expect_words(run.out, {"), bf16 products | "});
}

TEST(CpuPrecisionProgram, RatesOfKernelsAreShown) {
  if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
    GTEST_SKIP() << missing;
  const CommandResult table = expect_success(call(
      "bench kernels --amp bf16 --set gemm --sizes 32,65 --threads 1 --seconds 0.01 --format csv"));
  expect_words(table.out, {"gemm,gemm,32x32x32,bf16,", "gemm,gemm,65x65x65,bf16,"});
}

}  // namespace
