// engine bench kernels: every operator agrees with float64, and the report of the real program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "engine/ops/common/bf16_dispatch.h"
#include "engine/ops/dense/dense.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/bench/kernels/kernel_bench.h"
#include "tools/report/output/exit_codes.h"

namespace {

using namespace tools;
using Json = nlohmann::json;
using test_support::CommandResult;

CommandResult bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {test_support::engine_binary(), "bench", "kernels", "--batch",
                                       "2", "--seconds", "0.002"});
  return test_support::run_command(arguments, {}, 60'000);
}

std::vector<std::vector<std::string>> cells(const std::string& csv) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream text(csv);
  for (std::string line; std::getline(text, line);) {
    std::istringstream rest(line);
    lines.emplace_back();
    for (std::string cell; std::getline(rest, cell, ',');) lines.back().push_back(cell);
  }
  return lines;
}

// The shapes of these models take seconds in float64, and longer where the CPU plays a GPU.
bool small(const KernelCase& test) {
  return test.model != "gpt2" && test.model != "resnet50" && test.model != "resnet50-cifar" &&
         test.model != "resnet18-cifar";
}

TEST(BenchKernels, EveryOperatorAgreesWithFloat64) {
  KernelBench bench({.threads = 2, .seconds = 0.001});
  std::set<std::string> seen;
  for (const KernelCase& test : kernel_cases({.images = 2, .texts = 1})) {
    if (!small(test) && seen.contains(test.op)) continue;
    seen.insert(test.op);
    EXPECT_LE(bench.error(test), 2e-6) << test.op << " " << test.shape;
  }
  EXPECT_GE(seen.size(), 37u);
}

TEST(BenchKernels, ProductsInBf16OnTheCpu) {
  if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
    GTEST_SKIP() << missing;
  KernelBench bench({.amp = "bf16", .threads = 2, .seconds = 0.001});
  for (const KernelCase& test : kernel_cases({.images = 2, .texts = 1})) {
    if (!small(test) || (!test.op.starts_with("dense") && !test.op.starts_with("conv2d"))) continue;
    const double error = bench.error(test);
    EXPECT_LE(error, 3e-2) << test.op << " " << test.shape;
    if (test.op.starts_with("dense")) {
      EXPECT_GE(error, 1e-4) << test.op << " " << test.shape << ": not rounded to bf16";
    }
  }
}

TEST(BenchKernels, OperatorsOnADevice) {
  if (const std::string missing = engine::cuda::missing(); !missing.empty())
    GTEST_SKIP() << missing;
  const engine::Device device{engine::Device::Kind::kCuda, 0};
  for (const auto& [amp, limit] : {std::pair{"off", 2e-6}, {"O2", 5e-3}, {"bf16", 3e-2}}) {
    KernelBench bench({.device = device, .amp = amp, .seconds = 0.001});
    for (const KernelCase& test : kernel_cases({.images = 1, .texts = 1}))
      if (test.cuda && small(test)) {
        EXPECT_LE(bench.error(test), limit) << test.op << " " << test.shape << " " << amp;
      }
  }
}

TEST(BenchKernels, SameCasesAtEverySize) {
  const std::vector<KernelCase> one = kernel_cases({.images = 1, .texts = 1}),
                                many = kernel_cases({.images = 64, .texts = 16});
  ASSERT_EQ(one.size(), many.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].op, many[i].op);
    EXPECT_EQ(one[i].model, many[i].model);
    EXPECT_LE(one[i].flops, many[i].flops);
  }
}

TEST(BenchKernels, BytesAndBound) {
  KernelCase test;
  test.flops = 100;
  test.operands = {{{2, 4}},
                   {{4}, Storage::kVector},
                   {{2, 4}, Storage::kActivation, Use::kInOut},
                   {{9}, Storage::kByte, Use::kSetup}};
  EXPECT_EQ(moved_bytes(test, engine::DType::kF32), 32 + 16 + 64);
  EXPECT_EQ(moved_bytes(test, engine::DType::kBF16), 16 + 16 + 32);
  EXPECT_EQ(
      make_row(test, engine::DType::kF32, "f32", {.flops = 1000, .bytes_per_second = 112}).bound,
      1);
  EXPECT_FALSE(make_row(test, engine::DType::kF32, "f32", {.flops = 1000, .bytes_per_second = 112})
                   .by_flops);
  EXPECT_EQ(
      make_row(test, engine::DType::kF32, "f32", {.flops = 50, .bytes_per_second = 112}).bound, 2);
  EXPECT_TRUE(
      make_row(test, engine::DType::kF32, "f32", {.flops = 50, .bytes_per_second = 112}).by_flops);
  EXPECT_EQ(make_row(test, engine::DType::kF32, "f32", {.flops = 0, .bytes_per_second = 112}).bound,
            0)
      << "no ceiling is known";
}

TEST(BenchKernels, TheProgramMeasuresAndFilters) {
  const CommandResult result = bench({"--op", "dense,relu", "--model", "mlp,resnet18-cifar",
                                      "--threads", "1", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  EXPECT_EQ(report["command"], "bench kernels");
  EXPECT_GT(report["ceiling_gbs"].get<double>(), 0);
  ASSERT_EQ(report["rows"].size(), 11u);
  for (const Json& row : report["rows"]) {
    EXPECT_GT(row["us"].get<double>(), 0);
    EXPECT_LE(row["error"].get<double>(), 2e-6);
    EXPECT_EQ(row["op"].get<std::string>().starts_with("dense"), row["gflops"].get<double>() > 0)
        << row;
  }
  EXPECT_EQ(report["rows"][0]["shape"], "2x784->512");
}

TEST(BenchKernels, FormatsAndErrors) {
  const std::vector<std::string> one{"--op", "relu_forward", "--format"};
  const auto with = [&](const char* format) {
    std::vector<std::string> arguments = one;
    arguments.push_back(format);
    return bench(arguments);
  };
  EXPECT_TRUE(with("csv").out.starts_with(
      "op,model,shape,type,us,gflops,gbs,bound,share,error\nrelu_forward,"));
  EXPECT_NE(with("md").out.find("| relu_forward | resnet18-cifar | 2x32x32x64 | f32"),
            std::string::npos)
      << with("md").out;
  EXPECT_NE(with("table").out.find("GB/s of copying"), std::string::npos);
  EXPECT_EQ(bench({"--op", "no_such"}).exit_code, kExitUsage);
  EXPECT_EQ(bench({"--amp", "O2"}).exit_code, kExitUsage);
  EXPECT_EQ(bench({"--device", "tpu"}).exit_code, kExitUsage);
  EXPECT_EQ(bench({"--cuts"}).exit_code, kExitUsage);
  EXPECT_EQ(bench({"--set", "gemm", "--sizes", "99999999"}).exit_code, kExitUsage);
  const CommandResult threads = bench({"--op", "relu", "--threads", "100000"});
  EXPECT_EQ(threads.exit_code, kExitConfiguration);
  EXPECT_VALUES(threads.err, "--threads 100000");
  EXPECT_NE(bench({"--device", "cuda:77"}).err.find("cuda:77"), std::string::npos);
  const CommandResult list = bench({"--list", "--shape", "32x32x64"});
  EXPECT_NE(list.out.find("conv2d_forward resnet18-cifar 2x32x32x64->64 k3 s1"), std::string::npos)
      << list.out;
}

TEST(BenchKernels, SquaresAreHeldAgainstSamples) {
  const CommandResult result =
      bench({"--set", "gemm", "--sizes", "7,64", "--threads", "1", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json rows = Json::parse(result.out)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["shape"], "7x7x7");
  EXPECT_EQ(rows[1]["op"], "gemm");
  EXPECT_EQ(rows[1]["shape"], "64x64x64");
  for (const Json& row : rows) {
    EXPECT_GT(row["error"].get<double>(), 0) << "float32 rounds";
    EXPECT_LE(row["error"].get<double>(), 2e-6);
    EXPECT_GT(row["gflops"].get<double>(), 0);
  }
  EXPECT_NE(bench({"--set", "gemm", "--list"}).out.find("gemm gemm 8192x8192x8192\n"),
            std::string::npos);
  EXPECT_EQ(bench({"--set", "gemm", "--sizes", "0"}).exit_code, kExitUsage);
  EXPECT_EQ(bench({"--set", "no_such"}).exit_code, kExitUsage);
}

TEST(BenchKernels, SamplesShowAWrongElement) {
  std::vector<KernelCase> squares = square_cases({48});
  KernelBench bench({.threads = 1, .seconds = 0.001});
  EXPECT_LE(bench.error(squares[0]), 2e-6);
  // Whole rows are compared: any column of the first and of the last.
  for (const std::int64_t wrong : {0, 14, 47 * 48 + 29, 48 * 48 - 1}) {
    KernelCase broken = squares[0];
    broken.call = [call = squares[0].call, wrong](engine::KernelContext& context,
                                                  const KernelCase::Views& views) {
      call(context, views);
      views[2].span<float>()[static_cast<std::size_t>(wrong)] += 100;
    };
    EXPECT_GT(bench.error(broken), 1) << wrong;
    broken.call = [call = squares[0].call, wrong](engine::KernelContext& context,
                                                  const KernelCase::Views& views) {
      call(context, views);
      views[2].span<float>()[static_cast<std::size_t>(wrong)] = NAN;
    };
    EXPECT_EQ(bench.error(broken), INFINITY) << wrong;
  }
}

TEST(BenchKernels, ConvolutionsOfResNetAtABatch) {
  const std::string program = test_support::engine_binary();
  const CommandResult list = test_support::run_command(
      {program, "bench", "kernels", "--set", "conv", "--batch", "128", "--list"}, {}, 60'000);
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 23)
      << "the first layer has no gradient of its input";
  EXPECT_NE(list.out.find("conv2d_backward_data conv 128x32x32x64->128 k3 s2\n"), std::string::npos)
      << list.out;
  const CommandResult result =
      bench({"--set", "conv", "--shape", "4x4x512", "--op", "forward", "--format", "csv"});
  EXPECT_NE(result.out.find("\nconv2d_forward,conv,2x4x4x512->512 k3 s1,f32,"), std::string::npos)
      << result.out << result.err;
}

TEST(BenchKernels, SquaresOnADevice) {
  if (const std::string missing = engine::cuda::missing(); !missing.empty())
    GTEST_SKIP() << missing;
  for (const auto& [amp, limit] : {std::pair{"off", 2e-6}, {"tf32", 2e-3}, {"bf16", 3e-2}}) {
    KernelBench bench({.device = {engine::Device::Kind::kCuda, 0}, .amp = amp, .seconds = 0.001});
    EXPECT_LE(bench.error(square_cases({72})[0]), limit) << amp;
  }
}

TEST(BenchKernels, ProductsWithEveryCutOnADevice) {
  if (const std::string missing = engine::cuda::missing(); !missing.empty())
    GTEST_SKIP() << missing;
  KernelCase narrow = square_cases({8})[0];  // [8, 1024] times [8, 1024]: its depth can be split
  narrow.operands[0].shape = narrow.operands[1].shape = {8, 1024};
  narrow.scratch_bytes = [](engine::DType, int, engine::Device::Kind, engine::Products) {
    return std::size_t{1} << 20;
  };
  KernelBench bench({.device = {engine::Device::Kind::kCuda, 0}, .seconds = 0.001});
  std::set<std::pair<int, int>> tiles;
  int chosen = 0, most = 0;
  for (const CutTime& each : bench.cut_times(narrow)) {
    tiles.insert({each.rows, each.columns});
    chosen += each.chosen;
    most = std::max(most, each.splits);
    EXPECT_GT(each.seconds, 0);
  }
  EXPECT_EQ(tiles.size(), 4u);
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(most, 4);
}

// Planners are fitted to these lines by programs that know the columns by name.
TEST(BenchKernels, CutsAreCsvOfOneLineATime) {
  const CommandResult on_cpu = bench({"--set", "gemm", "--sizes", "32", "--cuts"});
  EXPECT_EQ(on_cpu.exit_code, kExitUsage);
  EXPECT_VALUES(on_cpu.err, "--tile-sweep --device cuda");
  if (const std::string missing = engine::cuda::missing(); !missing.empty())
    GTEST_SKIP() << missing;
  const bool is_hopper = engine::cuda::device_info(0).major == 9;
  for (const auto& [amp, type] : {std::pair{"off", "f32"}, {"bf16", "bf16"}}) {
    const CommandResult result =
        bench({"--set", "gemm", "--sizes", "32,64", "--device", "cuda", "--amp", amp, "--cuts"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<std::vector<std::string>> lines = cells(result.out);
    ASSERT_EQ(lines.size(), 1u + 2 * 4) << result.out;  // a heading; two squares, four tiles each
    EXPECT_EQ(lines[0],
              (std::vector<std::string>{"op", "model", "shape", "type", "rows", "columns", "splits",
                                        "warpgroup", "chosen", "us", "gflops"}));
    std::map<std::string, int> chosen;
    std::set<std::vector<std::string>> cuts;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const std::vector<std::string>& line = lines[i];
      ASSERT_EQ(line.size(), lines[0].size()) << result.out;
      EXPECT_EQ(line[0], "gemm");
      EXPECT_EQ(line[2], i <= 4 ? "32x32x32" : "64x64x64");
      EXPECT_EQ(line[3], type);
      EXPECT_EQ(line[6], "1") << "so short a depth has no parts";
      const bool warpgroup = line[3] == "bf16" && line[4] == "128" && is_hopper;
      EXPECT_EQ(line[7], warpgroup ? "1" : "0");
      chosen[line[2]] += std::stoi(line[8]);
      EXPECT_GT(std::stod(line[9]), 0);
      EXPECT_GE(std::stod(line[10]), 0);  // the emulator's may round to 0.0
      cuts.insert({line[2], line[4], line[5], line[6]});
    }
    EXPECT_EQ(cuts.size(), lines.size() - 1) << "the same cut twice:\n" << result.out;
    EXPECT_EQ(chosen, (std::map<std::string, int>{{"32x32x32", 1}, {"64x64x64", 1}}));
  }
  const CommandResult relu =
      bench({"--op", "relu_forward", "--model", "resnet18-cifar", "--device", "cuda", "--cuts"});
  EXPECT_EQ(relu.exit_code, 0) << relu.err;
  EXPECT_EQ(cells(relu.out).size(), 1u) << "no product, no cut:\n" << relu.out;
}

#if defined(FAKE_CUBLASLT_LIBRARY)
CommandResult bench_on_device(std::vector<std::string> arguments,
                              const std::map<std::string, std::string>& environment) {
  arguments.insert(arguments.begin(), {test_support::engine_binary(), "bench", "kernels", "--batch",
                                       "1", "--seconds", "0.001", "--device", "cuda"});
  return test_support::run_command(arguments, environment, 60'000);
}

// Sets a variable while it lives.
struct Variable {
  Variable(const char* name, const char* value) : name(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

TEST(BenchKernels, CuBlasLtComputesTheSameProducts) {
  if (access(FAKE_CUBLASLT_LIBRARY, R_OK) != 0) GTEST_SKIP() << "no emulated cuBLASLt here";
  const Variable library("ENGINE_CUBLASLT_LIBRARY", FAKE_CUBLASLT_LIBRARY);
  std::string missing;
  const std::unique_ptr<CublasLt> cublaslt = CublasLt::load(missing);
  ASSERT_NE(cublaslt, nullptr) << missing;
  EXPECT_TRUE(cublaslt->description().starts_with("cuBLASLt 13.0.2 (/")) << cublaslt->description();
  std::set<std::string> seen;
  std::vector<KernelCase> cases = dense_cases({.images = 2, .texts = 1});
  std::ranges::move(square_cases({48}), std::back_inserter(cases));
  for (const auto& [amp, limit] :
       {std::pair{"off", 1e-5}, {"tf32", 1e-2}, {"O1", 1e-2}, {"O2", 1e-2}, {"bf16", 3e-2}}) {
    KernelBench bench({.device = {engine::Device::Kind::kCuda, 0}, .amp = amp, .seconds = 0.001});
    for (KernelCase& test : cases) {
      if (!small(test) || test.shape.find("784") != std::string::npos) continue;
      ASSERT_TRUE(test.product) << test.op;
      if (test.op == "dense_forward")  // the product alone
        test.call = [](engine::KernelContext& c, const KernelCase::Views& v) {
          engine::ops::dense_forward(c, {.x = v[0], .weight = v[1], .y = v[3]});
        };
      const auto difference = bench.cublaslt_difference(test, *cublaslt);
      ASSERT_TRUE(difference) << test.op << " " << test.shape;
      EXPECT_LE(*difference, limit) << test.op << " " << test.shape << " " << amp;
      EXPECT_GT(bench.cublaslt_seconds(test, *cublaslt).value_or(0), 0);
      seen.insert(test.op);
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"dense_forward", "dense_backward_data",
                                         "dense_backward_weights", "gemm"}));
}

TEST(BenchKernels, CuBlasLtBesideOurs) {
  if (access(FAKE_CUBLASLT_LIBRARY, R_OK) != 0) GTEST_SKIP() << "no emulated cuBLASLt here";
  const std::vector<std::string> mlp{"--op",    "dense,relu_forward",
                                     "--model", "mlp,resnet18-cifar",
                                     "--shape", "2",
                                     "--amp",   "bf16",
                                     "--format"};
  const auto with = [&](const char* format, std::map<std::string, std::string> environment) {
    std::vector<std::string> arguments = mlp;
    arguments.push_back(format);
    return bench_on_device(arguments, environment);
  };
  const std::map<std::string, std::string> fake{{"ENGINE_CUBLASLT_LIBRARY", FAKE_CUBLASLT_LIBRARY},
                                                {"ENGINE_EMULATED_COMPUTE", "8.0"}};
  const CommandResult json = with("json", fake);
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Json report = Json::parse(json.out);
  EXPECT_TRUE(report["cublaslt"].get<std::string>().starts_with("cuBLASLt 13.0.2 (/"));
  EXPECT_EQ(report["ceiling_instruction"], "mma.sync m16n8k16 bf16");
  for (const Json& row : report["rows"]) {
    const bool dense = row["op"].get<std::string>().starts_with("dense");
    EXPECT_EQ(row["cublaslt_us"].is_number(), dense) << row;
    if (dense) {
      EXPECT_NEAR(row["ratio"].get<double>(),
                  row["cublaslt_us"].get<double>() / row["us"].get<double>(), 1e-3);
    }
    EXPECT_GT(row["blocks_per_processor"].get<int>(), 0) << row;
    EXPECT_GT(row["warps_per_processor"].get<int>(), 0) << row;
    EXPECT_LE(row["warps_per_processor"].get<int>(), 64) << row;
  }
  const auto lines = cells(with("csv", fake).out);
  ASSERT_GT(lines.size(), 2u);
  EXPECT_EQ(std::vector<std::string>(lines[0].begin() + 10, lines[0].end()),
            (std::vector<std::string>{"blocks", "warps", "cublaslt_us", "ratio"}));
  EXPECT_GT(std::stod(lines[1][12]), 0);
  const std::string table = with("table", fake).out;
  EXPECT_NE(table.find("beside: cuBLASLt 13.0.2 (/"), std::string::npos) << table;
  EXPECT_NE(table.find("(mma.sync m16n8k16 bf16)"), std::string::npos) << table;

  auto no_algorithm = fake;
  no_algorithm["CUBLASLT_ON_CPU_REFUSES"] = "1";
  for (const Json& row : Json::parse(with("json", no_algorithm).out)["rows"])
    EXPECT_TRUE(row["cublaslt_us"].is_null() && row["ratio"].is_null()) << row;
  const CommandResult none = with("table", {{"ENGINE_CUBLASLT_LIBRARY", "none"}});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_NE(none.out.find("no cuBLASLt (ENGINE_CUBLASLT_LIBRARY=none)"), std::string::npos);
  const CommandResult absent = with("table", {{"ENGINE_CUBLASLT_LIBRARY", "/no/such.so"}});
  EXPECT_EQ(absent.exit_code, kExitConfiguration);
  EXPECT_NE(absent.err.find("cannot load ENGINE_CUBLASLT_LIBRARY (/no/such.so"), std::string::npos)
      << absent.err;
  const CommandResult other = with("table", {{"ENGINE_CUBLASLT_LIBRARY", "libc.so.6"}});
  EXPECT_EQ(other.exit_code, kExitConfiguration);
  EXPECT_NE(other.err.find("this libcublasLt has no cublasLtGetVersion"), std::string::npos)
      << other.err;
}

TEST(BenchKernels, TheCeilingIsOfTheFastestInstruction) {
  const auto instruction = [](std::map<std::string, std::string> environment, const char* amp) {
    const CommandResult result =
        bench_on_device({"--op", "pad_channels", "--amp", amp, "--format", "json"}, environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json report = Json::parse(result.out);
    EXPECT_GT(report["ceiling_gflops"].get<double>(), 0);
    return report["ceiling_instruction"].get<std::string>();
  };
  const std::pair<std::string, std::string> hopper{"ENGINE_EMULATED_COMPUTE", "9.0"};
  EXPECT_EQ(instruction({hopper}, "bf16"), "wgmma m64n128k16 bf16");
  EXPECT_EQ(instruction({hopper}, "O1"), "wgmma m64n128k16 f16");
  EXPECT_EQ(instruction({hopper}, "off"), "fma f32");
  EXPECT_EQ(instruction({{"ENGINE_EMULATED_COMPUTE", "8.0"}}, "O2"), "mma.sync m16n8k16 f16");
  EXPECT_EQ(instruction({hopper, {"ENGINE_EMULATED_ARCHITECTURES", "80-real 80-virtual"}}, "bf16"),
            "mma.sync m16n8k16 bf16");
}
#endif

TEST(BenchKernels, TheProgramOnADevice) {
  const CommandResult result =
      bench({"--op", "pad_channels", "--device", "cuda", "--amp", "bf16", "--format", "json"});
  if (const std::string missing = engine::cuda::missing(); !missing.empty()) {
    EXPECT_EQ(result.exit_code, kExitUsage);
    EXPECT_NE(result.err.find(missing), std::string::npos) << result.err;
    return;
  }
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  ASSERT_EQ(report["rows"].size(), 2u);
  EXPECT_EQ(report["rows"][0]["type"], "bf16");
  EXPECT_EQ(report["rows"][0]["error"], 0);
}

}  // namespace
