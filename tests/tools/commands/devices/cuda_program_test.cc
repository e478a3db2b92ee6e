// The program on CUDA devices, with ranks as processes: NCCL, host memory and devices of one
// process end bit-identical; a rank that dies ends the others.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/cuda.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/layers_toml.h"
#include "tests/support/nvtx_log.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::engine_binary;
using test_support::expect_success;
using test_support::run_command;
using test_support::TemporaryDirectory;

class CudaProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

// Several ranks may share one GPU; the emulated runtime shows two.
const std::map<std::string, std::string> kEnvironment{{"ENGINE_ALLOW_SHARED_GPU", "1"},
                                                      {"ENGINE_EMULATED_GPUS", "2"}};

CommandResult train(const std::string& folder, const std::vector<std::string>& more,
                    const std::map<std::string, std::string>& environment = kEnvironment) {
  return engine(
      test_support::overridden(
          argv("train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
               "--batch-size 12 --epochs 1 --momentum 0.9 --save-rank-models --save-dir",
               folder),
          more),
      environment);
}

CommandResult verify(const std::string& a, const std::string& b) { return call("verify", a, b); }

std::string rank_model(const std::string& folder, int rank) {
  return folder + "/final_model_rank_" + std::to_string(rank) + ".ckpt";
}

TEST_F(CudaProgram, RanksOverNcclEndBitIdentical) {
  const TemporaryDirectory folder;
  const CommandResult result = expect_success(
      train(folder / "a", {"--device", "cuda", "--backend", "nccl", "--spawn", "2"}));
  EXPECT_CONTAINS(result.out, "backend nccl");
  EXPECT_CONTAINS(result.out, "steps, on the device");
  EXPECT_CONTAINS(result.out, "Steps on the device: captured");
  expect_success(verify(rank_model(folder / "a", 0), rank_model(folder / "a", 1)));
}

// Returns the cells of the lines of ranks in a dry run's table of memory.
std::vector<std::vector<std::string>> memory_cells(const std::string& out) {
  std::istringstream lines(out.substr(out.find("Memory (MiB)")));
  std::vector<std::vector<std::string>> ranks;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.empty()) {
    std::istringstream cells(line);
    ranks.emplace_back(std::istream_iterator<std::string>(cells),
                       std::istream_iterator<std::string>());
  }
  return ranks;
}

TEST_F(CudaProgram, MemoryOfNcclIsInUseBeforeThePlanIsMade) {
  const auto planned = [](const char* mebibytes) {
    std::map<std::string, std::string> environment = kEnvironment;
    environment["NCCL_ON_CPU_MEMORY"] = std::string(mebibytes) + "000000";
    environment["ENGINE_EMULATED_MEMORY"] = "64000000";
    return engine(argv("train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --dry-run "
                       "--device cuda --backend nccl --spawn 2"),
                  environment);
  };
  const auto before = memory_cells(expect_success(planned("1")).out);
  const auto after = memory_cells(expect_success(planned("33")).out);
  ASSERT_EQ(after.size(), 3U);
  ASSERT_EQ(after[0][3] + after[0][4], "inuse");
  for (const int rank : {1, 2})
    EXPECT_NEAR(std::stod(after[rank][3]) - std::stod(before[rank][3]), 32e6 / (1 << 20), 0.01);
  const CommandResult refused = planned("63");
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_CONTAINS(refused.err, " of 61 MiB are free");
}

// Ranks 0 and 1 copy the state to host memory, whatever is averaged.
TEST_F(CudaProgram, ThePlanHasTheCopiesForCheckpoints) {
  const TemporaryDirectory folder;
  const auto saving = [&](std::vector<std::string> options) {
    const std::vector<std::string> train = argv(
        "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --dry-run --device cuda "
        "--spawn 3 --momentum 0.9");
    options.insert(options.begin(), train.begin(), train.end());
    std::vector<double> found;
    const auto rows = memory_cells(expect_success(engine(options, kEnvironment)).out);
    if (rows.at(0).back() == "saving")
      for (const int rank : {1, 2, 3}) found.push_back(std::stod(rows.at(rank).back()));
    return found;
  };
  EXPECT_TRUE(saving({}).empty());
  const std::vector<double> whole = saving({"--save-dir", folder / "run"});
  ASSERT_EQ(whole.size(), 3U);
  EXPECT_GT(whole[0], 0);
  EXPECT_EQ(whole[1], whole[0]);
  EXPECT_EQ(whole[2], 0);
  const std::vector<double> sharded = saving({"--save-dir", folder / "run", "--shard-optimizer"});
  ASSERT_EQ(sharded.size(), 3U);
  EXPECT_NEAR(sharded[0], whole[0], 0.02);
  EXPECT_EQ(sharded[1], 0);
}

TEST_F(CudaProgram, AShardedOptimizerGivesTheSameModel) {
  const TemporaryDirectory folder;
  for (const char* backend : {"nccl", "shm"}) {
    const std::vector<std::string> options{"--device", "cuda", "--backend", backend,
                                           "--spawn",  "2",    "--amp",     "bf16"};
    std::vector<std::string> sharded = options;
    sharded.emplace_back("--shard-optimizer");
    const std::string whole_folder = folder / (std::string(backend) + "-whole"),
                      shared_folder = folder / (std::string(backend) + "-sharded");
    expect_success(train(whole_folder, options));
    const CommandResult result = expect_success(train(shared_folder, sharded));
    EXPECT_CONTAINS(result.out, ", optimizer sharded");
    if (std::string(backend) == "nccl")
      EXPECT_CONTAINS(result.out, "Steps on the device: captured");
    EXPECT_LACKS(result.err, "captured");  // no capture has failed
    for (const int rank : {0, 1})
      expect_success(verify(rank_model(whole_folder, 0), rank_model(shared_folder, rank)));
  }
}

// In captured steps on two ranks, and evaluated.
TEST_F(CudaProgram, AModelFileWithGroupsTrains) {
  const TemporaryDirectory folder;
  test_support::write_text(folder / "net.toml", test_support::layers_toml(R"(
conv2d stem out_channels=8 padding=1
relu
conv2d depthwise out_channels=8 padding=1 groups=8
conv2d grouped out_channels=12 groups=2
global_average_pool
dense fc out=classes
)"));
  const CommandResult result =
      expect_success(train(folder / "a", {"--model", folder / "net.toml", "--device", "cuda",
                                          "--spawn", "2", "--backend", "nccl", "--amp", "bf16"}));
  EXPECT_CONTAINS(result.out, "Steps on the device: captured");
  expect_success(verify(rank_model(folder / "a", 0), rank_model(folder / "a", 1)));
}

TEST_F(CudaProgram, AFailedCaptureIsSaidAndTheSameStepsAreLaunched) {
  if (!engine::cuda::device_info(0).name.starts_with("emulated"))
    GTEST_SKIP() << "captures of a GPU do not fail on demand";
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& name, const char* capture,
                       const std::vector<std::string>& more) {
    setenv("ENGINE_EMULATED_CAPTURE", capture, 1);
    std::vector<std::string> options{"--device", "cuda"};
    options.insert(options.end(), more.begin(), more.end());
    const CommandResult result = train(folder / name, options);
    unsetenv("ENGINE_EMULATED_CAPTURE");
    return result;
  };
  const CommandResult captured = expect_success(run("captured", "on", {}));
  EXPECT_CONTAINS(captured.out, "Steps on the device: captured");
  EXPECT_LACKS(captured.err, "captured");
  for (const auto& [mode, call] : {std::pair{"off", "cudaStreamEndCapture"},  // at its end
                                   {"no-fills", "cudaMemsetAsync"}}) {        // within it
    const CommandResult failed = expect_success(run(mode, mode, {}));
    EXPECT_VALUES(failed.err, "warning: not captured: " + std::string(call) + ":") << failed.out;
    expect_success(verify(rank_model(folder / "captured", 0), rank_model(folder / mode, 0)));
  }
}

// Joined by NCCL, a graph on some ranks only would wait for ever: all go on straight, whichever
// rank cannot capture, as processes and as threads.
TEST_F(CudaProgram, ACaptureThatFailsOnOneRankIsGivenUpByAll) {
  if (!engine::cuda::device_info(0).name.starts_with("emulated"))
    GTEST_SKIP() << "captures of a GPU do not fail on demand";
  const TemporaryDirectory folder;
  const std::vector<std::string> processes{"--backend", "nccl", "--spawn", "2", "--timeout", "20"},
      threads{"--gpu-devices", "0,1", "--timeout", "20"};
  const auto run = [&](const std::string& name, const std::vector<std::string>& ranks,
                       const std::string& capture, const std::string& blocking) {
    std::map<std::string, std::string> environment = kEnvironment;
    environment["ENGINE_EMULATED_CAPTURE"] = capture;
    environment["ENGINE_NCCL_BLOCKING"] = blocking;
    std::vector<std::string> options = ranks;
    if (&ranks == &processes) options.insert(options.end(), {"--device", "cuda"});
    return train(folder / name, options, environment);
  };
  const CommandResult captured = expect_success(run("captured", processes, "on", "0"));
  EXPECT_LACKS(captured.err, "not captured");
  struct Failing {
    const char *name, *capture, *line;
  };
  for (const Failing& f : {Failing{"first", "off@0", "rank 0: cudaStreamEndCapture: "},
                           {"second", "off@1", "rank 1: cudaStreamEndCapture: "},
                           {"fill", "no-fills@1", "rank 1: cudaMemsetAsync: "},
                           {"both", "off", "rank 0: cudaStreamEndCapture: "}})
    for (const auto* ranks : {&processes, &threads}) {
      const std::string name = std::string(f.name) + (ranks == &threads ? "-threads" : "");
      SCOPED_TRACE(name);
      const CommandResult result =
          expect_success(run(name, *ranks, f.capture, ranks == &threads ? "1" : "0"));
      EXPECT_VALUES(result.err, "warning captured " + std::string(f.line)) << result.out;
      for (const int rank : {0, 1}) {
        expect_success(verify(rank_model(folder / "captured", 0), rank_model(folder / name, rank)));
      }
    }
}

// A kernel that is loaded while another device of the process waits for this rank may wait for that
// device: a process with several loads all of them at its start.
TEST_F(CudaProgram, DevicesOfOneProcessLoadTheirKernelsAtTheStart) {
  if (!engine::cuda::device_info(0).name.starts_with("emulated"))
    GTEST_SKIP() << "a GPU that loads kernels late may hang";
  const TemporaryDirectory folder;
  const std::vector<std::string> options{"--gpu-devices", "0,1", "--timeout", "20"};
  expect_success(train(folder / "eager", options));
  std::map<std::string, std::string> environment = kEnvironment;
  environment["CUDA_MODULE_LOADING"] = "LAZY";
  const CommandResult lazy = train(folder / "lazy", options, environment);
  EXPECT_NE(lazy.exit_code, 0) << lazy.out;
  EXPECT_CONTAINS(lazy.err, "is loaded while device ");
}

// NCCL may read memory of its own without a copy; what is not is refused here.
TEST_F(CudaProgram, GradientsLieInMemoryOfNccl) {
  if (!engine::cuda::device_info(0).name.starts_with("emulated"))
    GTEST_SKIP() << "needs the emulated NCCL";
  const TemporaryDirectory folder;
  const std::vector<std::string> options{"--device", "cuda", "--backend", "nccl", "--spawn", "2"};
  std::map<std::string, std::string> environment = kEnvironment;
  environment["ENGINE_EMULATED_CALLS"] = folder / "calls";
  environment["NCCL_ON_CPU_FAULT"] = "refuse_others";
  const CommandResult own = expect_success(train(folder / "own", options, environment));
  EXPECT_LACKS(own.err, "cudaMalloc");
  std::ifstream calls(folder / "calls");
  const std::string called{std::istreambuf_iterator<char>(calls), {}};
  EXPECT_CONTAINS(called, "cudaStreamCreateWithPriority\n")
      << "sums of gradients have no stream of the highest priority";
  environment["NCCL_ON_CPU_FAULT"] = "refuse_memory";
  const CommandResult other = expect_success(train(folder / "other", options, environment));
  EXPECT_VALUES(other.err, "cudaMalloc NCCL 2.28.9 ncclMemAlloc");
}

// A rank with one core leaves it to its loader while it waits.
TEST_F(CudaProgram, ARankWithOneCoreDoesNotPoll) {
  const TemporaryDirectory folder;
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // of the program, too
  const CommandResult result = train(folder / "one", {"--device", "cuda"});
  sched_setaffinity(0, sizeof all, &all);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_VALUES(result.out, "cuda:0 waits block, one core");
}

// Of 13 samples one rank has 5 and two have 4, each in its turn: no step may be a graph on some
// ranks only.
TEST_F(CudaProgram, RanksWithUnequalSharesAverageOverNccl) {
  const TemporaryDirectory folder;
  expect_success(train(folder / "a", {"--device", "cuda", "--backend", "nccl", "--spawn", "3",
                                      "--batch-size", "13", "--epochs", "2", "--timeout", "20"}));
  for (const int rank : {1, 2}) {
    expect_success(verify(rank_model(folder / "a", 0), rank_model(folder / "a", rank)));
  }
}

TEST_F(CudaProgram, EveryWayOfAveragingGivesEqualReplicas) {
  const TemporaryDirectory folder;
  for (const char* backend : {"gloo", "shm"}) {
    const CommandResult result =
        train(folder / backend, {"--device", "cuda", "--backend", backend, "--spawn", "2"});
    if (result.exit_code == 78) continue;  // not in this build
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    expect_success(verify(rank_model(folder / backend, 0), rank_model(folder / backend, 1)));
  }
  const CommandResult cpu =
      expect_success(train(folder / "cpu", {"--device", "cpu", "--spawn", "2"}));
  expect_success(call("verify --rtol 1e-4 --atol 1e-5", rank_model(folder / "cpu", 0),
                      rank_model(folder / "shm", 0)));
}

// What a line of `engine eval --format json` says of the key.
std::string value_of(const std::string& json, const std::string& key) {
  const auto at = json.find("\"" + key + "\":");
  return at == std::string::npos
             ? ""
             : json.substr(at + key.size() + 3, json.find_first_of(",}", at) - at - key.size() - 3);
}

// A library plays CUPTI: one kernel and one copy of the first device.
TEST_F(CudaProgram, ATraceHasTheKernelsOfEachRanksDevice) {
  if (!std::filesystem::exists(FAKE_CUPTI_LIBRARY)) GTEST_SKIP() << FAKE_CUPTI_LIBRARY;
  const TemporaryDirectory folder;
  std::map<std::string, std::string> environment = kEnvironment;
  environment["ENGINE_CUPTI_LIBRARY"] = FAKE_CUPTI_LIBRARY;
  environment["FAKE_CUPTI"] = "late";
  const auto traced = [&](const std::string& file) {
    return run_command(
        argv(engine_binary(),
             "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
             "--batch-size 12 --epochs 1 --device cuda:0 --trace",
             file),
        environment);
  };
  expect_success(traced(folder / "t.json"));
  std::ostringstream trace;
  trace << std::ifstream(folder / "t.json").rdbuf();
  for (const char* part : {"\"cuda:0 stream 7\"", "\"cuda:0 stream 8\"", "\"engine::gemm_kernel\"",
                           "\"copy to device\"", "\"bytes\":4096"})
    EXPECT_CONTAINS(trace.str(), part) << part;
  EXPECT_LACKS(trace.str(), "\"fill\"") << "another device's";

  environment["FAKE_CUPTI"] = "refuses";
  const CommandResult refused = expect_success(traced(folder / "u.json"));
  EXPECT_CONTAINS(refused.err, "--trace: without kernels of devices: CUPTI cannot record");
  EXPECT_TRUE(std::filesystem::exists(folder / "u.json"));
}

// Another library plays a tool of NVTX.
TEST_F(CudaProgram, StepsAndLayersAreRangesOfNvtx) {
  if (!std::filesystem::exists(FAKE_NVTX_LIBRARY)) GTEST_SKIP() << FAKE_NVTX_LIBRARY;
  const TemporaryDirectory folder;
  std::map<std::string, std::string> environment = nvtx_log::environment(folder / "log");
  environment.insert(kEnvironment.begin(), kEnvironment.end());
  const auto ranges = [&](const std::string& graph) {
    expect_success(run_command(
        argv(engine_binary(),
             "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
             "--batch-size 12 --epochs 1 --device cuda:0 --cuda-graph",
             graph),
        environment));
    return nvtx_log::ranges(folder / "log").at("training");
  };
  const std::string layer = " > layer 'layers.0' (dense)";
  const std::vector<std::string> launched = ranges("off"), captured = ranges("auto");
  const std::string launch = "step > start forward and backward on the device";
  EXPECT_EQ(std::ranges::count(launched, launch), 5);
  EXPECT_EQ(std::ranges::count(launched, launch + layer), 10) << "forward and backward";
  // Two steps without capture, and the capture of a graph for each of two slots.
  const std::string start = "step > start the step on the device";
  EXPECT_EQ(std::ranges::count(captured, start), 5);
  EXPECT_EQ(std::ranges::count(captured, start + layer), 8) << "a graph has no ranges inside";
}

TEST_F(CudaProgram, EvaluatesOnTheDevice) {
  const TemporaryDirectory folder;
  expect_success(train(folder / "a", {"--device", "cpu"}));
  const auto eval = [&](const std::vector<std::string>& more) {
    std::vector<std::string> argv{engine_binary(), "eval",  rank_model(folder / "a", 0),
                                  "--split",       "train", "--format",
                                  "json"};
    argv = test_support::overridden(argv, more);
    return run_command(argv, kEnvironment);
  };
  const CommandResult cpu = eval({"--device", "cpu"}), cuda = eval({"--device", "cuda"}),
                      half = eval({"--device", "cuda", "--amp", "bf16"});
  ASSERT_EQ(cpu.exit_code + cuda.exit_code + half.exit_code, 0) << cpu.err << cuda.err << half.err;
  EXPECT_EQ(value_of(cpu.out, "correct"), value_of(cuda.out, "correct"));
  EXPECT_NEAR(std::stod(value_of(cpu.out, "loss")), std::stod(value_of(cuda.out, "loss")), 1e-5);
  EXPECT_NEAR(std::stod(value_of(cpu.out, "loss")), std::stod(value_of(half.out, "loss")), 0.05);
}

TEST_F(CudaProgram, ContinuesTextsOnTheDeviceAsOnTheCpu) {
  const TemporaryDirectory folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i % 7) + " of a text\n";
  std::filesystem::create_directory(folder / "text");
  test_support::write_text(folder / "text/input.txt", text);
  test_support::write_text(folder / "end.txt", text.substr(0, 40));
  expect_success(call("train --model gpt-nano --dataset text --context 16 --batch-size 4 --steps 3",
                      "--optimizer adamw --device cpu --data-dir", folder / "text", "--save-dir",
                      folder / "run"));
  const auto with = [&](const std::string& device, std::vector<std::string> command) {
    command.insert(command.begin() + 1, folder / "run");
    command.insert(command.end(), {"--device", device});
    return expect_success(engine(command, kEnvironment)).out;
  };
  const auto sample = argv("sample --prompt line -n 12 --temperature 0"),
             texts = argv("sample --prompt line --prompt text -n 30 --temperature 0"),
             predict = argv("predict", folder / "end.txt", "--format json");
  EXPECT_EQ(with("cuda:1", sample), with("cpu", sample));
  EXPECT_EQ(with("cuda", texts), with("cpu", texts));  // beyond the context
  const std::string on_cpu = with("cpu", predict), on_device = with("cuda", predict);
  EXPECT_EQ(value_of(on_cpu, "prediction"), value_of(on_device, "prediction"));
  EXPECT_NEAR(std::stod(value_of(on_cpu, "probability")),
              std::stod(value_of(on_device, "probability")), 1e-5);
  const CommandResult none =
      engine({"sample", folder / "run", "--prompt", "l", "--device", "cuda:9"}, kEnvironment);
  EXPECT_EQ(none.exit_code, 78);
  EXPECT_CONTAINS(none.err, "--device: there is no cuda:9, 2 CUDA devices are visible");
}

TEST_F(CudaProgram, ARankThatDiesEndsTheOthersSoon) {
  const TemporaryDirectory folder;
  const std::string metrics = folder / "metrics";
  CommandResult result;
  std::atomic<bool> ended{false};
  std::thread runner([&] {
    result = run_command(
        argv(engine_binary(),
             "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
             "--batch-size 12 --steps 100000000 --log-every 5 --metrics",
             metrics, "--device cuda --backend nccl --spawn 2 --timeout",
             std::to_string(test_support::deadline_ms(20'000) / 1000)),
        kEnvironment, 120'000);
    ended = true;
  });
  std::vector<int> workers;
  EXPECT_TRUE(test_support::eventually(
      [&] {
        for (const int pid : test_support::workers_of(getpid()))
          workers = test_support::workers_of(pid);
        std::error_code error;
        const auto bytes = std::filesystem::file_size(metrics, error);
        return ended || (workers.size() == 2 && !error && bytes > 0);
      },
      std::chrono::seconds(60)));
  const auto killed = std::chrono::steady_clock::now();
  if (workers.size() == 2) kill(workers[1], SIGKILL);
  runner.join();
  ASSERT_EQ(workers.size(), 2u) << result.err;
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.out << result.err;
  EXPECT_FALSE(test_support::is_past(killed, std::chrono::seconds(15))) << result.err;
}

// What a job's metrics say of it: its ranks since the last change (0: none yet), and whether they
// have done steps since.
struct JobNow {
  int ranks = 0;
  bool trains = false;
};
JobNow job_now(const std::string& metrics) {
  JobNow job;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const auto has = [&](const char* word) { return line.find(word) != std::string::npos; };
    if (has(R"("event":"membership")"))
      job = {std::atoi(line.c_str() + line.find(R"("ranks":)") + 8), false};
    if (has(R"("event":"step")")) job.trains = true;
  }
  return job;
}

// Of three ranks the first one is killed, then another one. Replicas are compared in every step.
class ElasticOnCuda : public CudaProgram, public testing::WithParamInterface<const char*> {};

TEST_P(ElasticOnCuda, GoesOnWithTheRanksThatLive) {
  const TemporaryDirectory folder;
  const std::string metrics = folder / "metrics";
  std::map<std::string, std::string> environment = kEnvironment;
  environment["ENGINE_EMULATED_GPUS"] = "3";
  CommandResult result;
  std::atomic<bool> ended{false};
  std::thread runner([&] {
    result = run_command(
        argv(engine_binary(),
             "train --model convnet --dataset synthetic --synthetic-shape 4x4x1 --synthetic-size "
             "60 --batch-size 12 --steps 100000000 --log-every 1 --eval-every 0 --verify-every 1 "
             "--metrics",
             metrics, "--device cuda --backend", GetParam(), "--spawn 3 --elastic 1:3 --save-dir",
             folder / "run", "--timeout", std::to_string(test_support::deadline_ms(20'000) / 1000)),
        environment, 120'000);
    ended = true;
  });
  int launcher = 0;
  std::vector<int> workers;
  // A job of three may have been founded by fewer; those that died stay until the job ends.
  const auto trains_with = [&](int ranks) {
    return test_support::eventually(
               [&] {
                 const JobNow now = job_now(metrics);
                 return ended ||
                        (now.trains && (now.ranks == ranks || (ranks == 3 && now.ranks == 0)));
               },
               std::chrono::seconds(60)) &&
           !ended;
  };
  bool as_expected = trains_with(3);
  for (const int pid : test_support::workers_of(getpid()))
    workers = test_support::workers_of(launcher = pid);
  for (const int left : {2, 1}) {
    if (!as_expected || workers.size() != 3) break;
    kill(workers[left == 2 ? 0 : 1], SIGKILL);
    as_expected = trains_with(left);
  }
  if (launcher > 0 && !ended) kill(launcher, SIGTERM);
  runner.join();
  EXPECT_TRUE(as_expected && workers.size() == 3) << result.out << result.err;
  for (const char* words : {"membership: 2 ranks", "membership: 1 rank ", "Stopped by signal 15"})
    EXPECT_CONTAINS(result.out, words) << result.err;
  expect_success(call("inspect", folder / "run"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ElasticOnCuda, testing::Values("nccl", "shm", "socket"));

}  // namespace
