// Which device a rank takes: options, local ranks, schedulers; ranks that would share one; where
// saved arrays go.
#include "tools/launch/machine/device_choice.h"
#include "tests/support/command_words.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "engine/core/cuda.h"
#include "io/base/files/io_error.h"
#include "io/gpu/compiled_code.h"
#include "io/gpu/usable_devices.h"
#include "tests/support/test_support.h"
#include "tools/launch/workers/worker_threads.h"

namespace {

using test_support::argv;

using engine::Device;
using tools::DeviceRequest;
using Variables = std::map<std::string, std::string>;

struct Visible : tools::VisibleDevices {
  Visible(int number) : VisibleDevices{number, number > 0 ? "" : "no CUDA device (none)"} {}
  Visible(int number, const std::map<int, std::string>& too_old)
      : VisibleDevices{number, "", named(too_old)} {}
  static base::cuda::UnusedDevices named(const std::map<int, std::string>& too_old) {
    base::cuda::UnusedDevices unused;
    for (const auto& [index, name] : too_old) unused[index] = {name, "kernels need 6.0"};
    return unused;
  }
};

tools::DeviceName named(const char* text) { return tools::parse_device_name(text).value(); }

std::vector<Device> listed(std::initializer_list<const char*> names) {
  std::vector<Device> devices;
  for (const char* name : names) devices.push_back(engine::parse_device(name));
  return devices;
}

tools::DeviceChoice choose(const DeviceRequest& request, const Visible& visible,
                           const Variables& variables = {}) {
  return tools::choose_device(
      request,
      [&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
      },
      [&] { return visible; });
}

std::string chosen(const DeviceRequest& request, const Visible& visible,
                   const Variables& variables = {}) {
  return engine::to_string(choose(request, visible, variables).device);
}

std::string refusal(const DeviceRequest& request, const Visible& visible,
                    const Variables& variables = {}) {
  try {
    return "chose " + chosen(request, visible, variables);
  } catch (const io::ConfigError& error) {
    return error.what();
  }
}

TEST(DeviceChoice, LocalRanksTakeTheDeviceOfTheirNumber) {
  for (const char* device : {"auto", "cuda"})
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(chosen({.device = named(device), .local_rank = rank, .local_world = 4}, 4),
                "cuda:" + std::to_string(rank));
  EXPECT_EQ(choose({.device = named("cuda"), .local_rank = 1, .local_world = 2}, 4).reason,
            "local rank 1 of 2, 4 CUDA devices visible");
  EXPECT_EQ(choose({}, 4).reason,
            "auto: local rank 0 of 1, 4 CUDA devices visible; --gpu-devices 0-3 uses all");
  EXPECT_EQ(choose({}, 1).reason, "auto: local rank 0 of 1, 1 CUDA device visible");
}

TEST(DeviceChoice, TheOneThatTheSchedulerShows) {
  // srun --gpus-per-task=1: each rank sees one device, whatever its local rank.
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS"}) {
    const DeviceRequest third{.device = named("cuda"), .local_rank = 3, .local_world = 4};
    EXPECT_EQ(chosen(third, 1, {{name, "2"}}), "cuda:0");
    EXPECT_EQ(choose(third, 1, {{name, "2"}}).reason,
              "the one that " + std::string(name) + "=2 shows");
    // An entry that hides nothing says nothing about this rank.
    EXPECT_EQ(chosen(third, 4, {{name, "2"}}), "cuda:3");
  }
  EXPECT_EQ(chosen({.device = named("cuda"), .local_rank = 1, .local_world = 2}, 2,
                   {{"CUDA_VISIBLE_DEVICES", "4,7"}}),
            "cuda:1");
  EXPECT_EQ(chosen({.device = named("cuda"), .local_rank = 1, .local_world = 2}, 1,
                   {{"CUDA_VISIBLE_DEVICES", "MIG-1f2e"}}),
            "cuda:0");
}

TEST(DeviceChoice, MoreRanksThanDevicesIsAnErrorOnEachOfThem) {
  for (const char* device : {"auto", "cuda"})
    for (int rank = 0; rank < 3; ++rank) {
      const DeviceRequest request{.device = named(device), .local_rank = rank, .local_world = 3};
      const std::string chosen_device = "--device " + std::string(device);
      EXPECT_VALUES(refusal(request, 2), chosen_device + ": 3 2 --device cpu");
      EXPECT_VALUES(refusal(request, 1), chosen_device + ": 3 1 --device cpu");
      EXPECT_EQ(chosen(request, 2, {{"ENGINE_ALLOW_SHARED_GPU", "1"}}),
                "cuda:" + std::to_string(rank % 2));
      EXPECT_CONTAINS(refusal(request, 2, {{"ENGINE_ALLOW_SHARED_GPU", "0"}}), "3 ranks");
    }
}

TEST(DeviceChoice, AnExplicitDeviceWins) {
  EXPECT_EQ(chosen({.device = named("cuda:1"), .local_rank = 0, .local_world = 8}, 2), "cuda:1");
  EXPECT_EQ(chosen({.device = named("cuda:0")}, 1, {{"CUDA_VISIBLE_DEVICES", "5"}}), "cuda:0");
  EXPECT_VALUES(refusal({.device = named("cuda:2")}, 2), "--device cuda:2 2 CUDA");
  EXPECT_EQ(refusal({.device = named("cuda:5")}, 1, {{"CUDA_VISIBLE_DEVICES", "5"}}),
            "--device: there is no cuda:5, 1 CUDA device is visible to this process");
  EXPECT_EQ(choose({.device = named("cpu")}, 4).device, Device{});
}

TEST(DeviceChoice, ReplicasOfAProcessTakeTheirPlaceInTheList) {
  const DeviceRequest first{.devices = listed({"cuda:3", "cuda:1"}), .replica = 0},
      second{.devices = first.devices, .replica = 1};
  EXPECT_EQ(chosen(first, 4), "cuda:3");
  EXPECT_EQ(chosen(second, 4), "cuda:1");
  for (const DeviceRequest& request : {first, second})
    EXPECT_VALUES(refusal(request, 2), "--gpu-devices cuda:3 2 CUDA");
  EXPECT_VALUES(refusal(first, 0), "--gpu-devices cuda:3 CUDA none");
  EXPECT_EQ(chosen({.devices = listed({"cpu:0", "cpu:1"}), .replica = 1}, 0), "cpu:1");
}

TEST(DeviceChoice, NamedDevicesAreLookedForBeforeTheOthersAreMet) {
  const auto refused = [](const DeviceRequest& request, int visible) -> std::string {
    try {
      tools::require_named_devices(request, [&] {
        return tools::VisibleDevices{visible, visible > 0 ? "" : "no CUDA device (none)"};
      });
      return "";
    } catch (const io::ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refused({.device = named("cuda")}, 0),
            "--device cuda: no CUDA device (none); give --device cpu");
  EXPECT_EQ(refused({.device = named("cuda:2")}, 1),
            "--device: there is no cuda:2, 1 CUDA device is visible to this process");
  EXPECT_EQ(refused({.devices = listed({"cuda:0", "cuda:1"})}, 1),
            "--gpu-devices: there is no cuda:1, 1 CUDA device is visible to this process");
  EXPECT_EQ(refused({.device = named("cuda")}, 1), "");
  EXPECT_EQ(refused({.device = named("auto")}, 0), "");
  EXPECT_EQ(refused({.devices = listed({"cpu:0", "cpu:1"})}, 0), "");
}

TEST(DeviceChoice, OnlyAutoFallsToTheCpuAndSaysSo) {
  EXPECT_EQ(choose({}, 0).device, Device{});
  EXPECT_EQ(choose({}, 0).reason, "auto: no CUDA device (none)");
  EXPECT_EQ(choose({.cpu_only = "--weight-dtype bf16"}, 2).device, Device{});
  EXPECT_VALUES(choose({.cpu_only = "--weight-dtype bf16"}, 2).reason, "auto: --weight-dtype bf16");
  EXPECT_VALUES(refusal({.device = named("cuda"), .cpu_only = "--weight-dtype bf16"}, 2),
                "--weight-dtype bf16 CPU cuda;");
  EXPECT_VALUES(refusal({.devices = listed({"cuda:0"}), .cpu_only = "--compress topk"}, 2),
                "--compress topk CPU cuda:0;");
  EXPECT_VALUES(refusal({.cuda_only = "--amp O1", .cpu_only = "--compress topk"}, 2),
                "--amp O1 CUDA --compress topk CPU");
  EXPECT_EQ(refusal({.device = named("cuda")}, 0),
            "--device cuda: no CUDA device (none); give --device cpu");
  EXPECT_EQ(refusal({.device = named("cuda:0")}, 0),
            "--device cuda:0: no CUDA device (none); give --device cpu");
  EXPECT_EQ(refusal({.cuda_only = "--amp O2"}, 0),
            "--amp O2 is for CUDA devices: no CUDA device (none)");
}

TEST(DeviceChoice, TheCpuIsChosenWithoutAskingForDevices) {
  const auto never = []() -> tools::VisibleDevices { throw std::logic_error("asked"); };
  const auto nothing = [](const std::string&) { return std::optional<std::string>(); };
  EXPECT_EQ(tools::choose_device({.device = named("cpu")}, nothing, never).device, Device{});
  EXPECT_EQ(tools::choose_device({.devices = listed({"cpu:0"})}, nothing, never).device, Device{});
}

TEST(DeviceChoice, DevicesThatAreTooOldArePassedOver) {
  const std::string said =
      "GPU 0 (Tesla M40, compute capability 5.2) is not used: kernels need 6.0";
  const std::map<int, std::string> first{{0, "GPU 0 (Tesla M40, compute capability 5.2)"}};
  const Visible both(2, first);
  for (const char* device : {"auto", "cuda"})
    EXPECT_EQ(chosen({.device = named(device)}, both), "cuda:1");
  EXPECT_EQ(choose({}, both).reason, "auto: local rank 0 of 1, 2 CUDA devices visible; " + said);
  EXPECT_EQ(chosen({.device = named("cuda:1")}, both), "cuda:1");
  EXPECT_EQ(refusal({.device = named("cuda:0")}, both), "--device cuda:0: " + said);
  EXPECT_EQ(refusal({.devices = listed({"cuda:1", "cuda:0"})}, both),
            "--gpu-devices cuda:0: " + said);
  EXPECT_VALUES(refusal({.device = named("cuda"), .local_rank = 1, .local_world = 2}, both),
                "--device cuda 2 2 CUDA " + said + " --device");
  EXPECT_EQ(chosen({.device = named("cuda"), .local_rank = 1, .local_world = 2}, both,
                   {{"ENGINE_ALLOW_SHARED_GPU", "1"}}),
            "cuda:1");
  const Visible middle(3, {{1, "GPU 1 (Tesla M40, compute capability 5.2)"}});
  EXPECT_EQ(chosen({.device = named("cuda"), .local_rank = 1, .local_world = 2}, middle), "cuda:2");
  EXPECT_EQ(choose({}, middle).reason,
            "auto: local rank 0 of 1, 3 CUDA devices visible; GPU 1 (Tesla M40, compute capability "
            "5.2) is not used: kernels need 6.0; --gpu-devices 0,2 uses all");
  const std::string old = "kernels need 6.0", other = "kernels were compiled for sm_90a";
  EXPECT_EQ(base::cuda::unused_text({{0, {"GPU 0 (a)", old}}, {2, {"GPU 2 (b)", old}}}),
            "GPU 0 (a), GPU 2 (b) are not used: kernels need 6.0");
  EXPECT_EQ(base::cuda::unused_text({{0, {"GPU 0 (a)", other}}, {2, {"GPU 2 (b)", old}}}),
            "GPU 2 (b) is not used: kernels need 6.0; GPU 0 (a) is not used: kernels were "
            "compiled for sm_90a");
  EXPECT_EQ(base::cuda::unused_text({}), "");
}

// --- which devices code runs on

TEST(CompiledCode, RunsWhereNvidiasRulesSay) {
  using base::cuda::Runs;
  struct Case {
    const char* architectures;
    int major, minor;
    Runs expected;
  };
  for (const Case& c : {Case{"80-real;90a-real;80-virtual", 8, 0, Runs::kCompiled},
                        {"80-real;90a-real;80-virtual", 8, 9, Runs::kCompiled},
                        {"80-real;90a-real;80-virtual", 9, 0, Runs::kCompiled},
                        {"80-real;90a-real;80-virtual", 10, 0, Runs::kTranslated},
                        {"80-real;90a-real;80-virtual", 12, 1, Runs::kTranslated},
                        {"80-real 80-virtual", 9, 0, Runs::kTranslated},
                        {"80-real", 9, 0, Runs::kNo},
                        {"86-real", 8, 0, Runs::kNo},
                        {"86", 8, 0, Runs::kNo},
                        {"86", 8, 6, Runs::kCompiled},
                        {"86", 12, 0, Runs::kTranslated},
                        {"90a", 8, 0, Runs::kNo},
                        {"90a", 9, 0, Runs::kCompiled},
                        {"90a", 10, 0, Runs::kNo},
                        {"90-virtual", 10, 0, Runs::kTranslated},
                        {"100f-real", 10, 3, Runs::kCompiled},
                        {"100f", 12, 0, Runs::kNo},
                        {"100-real 120-real", 10, 3, Runs::kCompiled},
                        {"100-real 120-real", 12, 1, Runs::kCompiled},
                        {"100-real 120-real", 11, 0, Runs::kNo},
                        {"native", 8, 0, Runs::kCompiled}})
    EXPECT_EQ(base::cuda::runs_on(c.architectures, c.major, c.minor), c.expected)
        << c.architectures << " on " << c.major << "." << c.minor;
  // What each device gets of a build, of a release bundle, and of a bundle for one architecture.
  const std::string build = "80-real;90a-real;80-virtual",
                    release = "80-real;90a-real;120-real;80-virtual";
  EXPECT_EQ(base::cuda::code_for(build, 8, 6), "sm_80");
  EXPECT_EQ(base::cuda::code_for(build, 9, 0), "sm_90a");
  EXPECT_EQ(base::cuda::code_for(build, 12, 0), "compute_80");
  EXPECT_EQ(base::cuda::code_for(release, 12, 0), "sm_120");
  EXPECT_EQ(base::cuda::code_for(release, 12, 1), "sm_120");
  EXPECT_EQ(base::cuda::code_for(release, 10, 3), "compute_80");
  EXPECT_EQ(base::cuda::code_for("90a-real", 8, 9), "");
  EXPECT_EQ(base::cuda::code_for("86-real 80-real", 8, 9), "sm_86");
  EXPECT_EQ(base::cuda::code_text(build, 8, 0), "");
  EXPECT_EQ(base::cuda::code_text(build, 9, 0), "");
  EXPECT_EQ(base::cuda::code_text(build, 8, 9), "kernels for sm_80");
  EXPECT_EQ(base::cuda::code_text(build, 11, 0), "kernels from PTX for compute_80");
  EXPECT_EQ(base::cuda::code_text("native", 8, 9), "");
  EXPECT_EQ(base::cuda::architectures_text("80-real;90a;80-virtual"),
            "sm_80, sm_90a, compute_90a, compute_80");
  EXPECT_EQ(base::cuda::why_unused(5, 2, "52"), "kernels need 6.0");
  EXPECT_EQ(base::cuda::why_unused(7, 5, "75"), "");
  EXPECT_VALUES(base::cuda::why_unused(7, 5, build),
                "sm_80 sm_90a compute_80 -DENGINE_CUDA_ARCHITECTURES=75-real");
  EXPECT_EQ(base::cuda::why_unused(8, 0, "80"), "");
}

// --- ranks that would share a device
// ---------------------------------------------------------------------------------

class SharedDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    if (engine::cuda::device_count() == 0) GTEST_SKIP() << engine::cuda::missing();
  }
  // Each rank, a thread, chose the device of this number. What they all say.
  static std::vector<std::string> ranks_with(const std::vector<int>& numbers,
                                             const tools::DeviceRequest& request = {}) {
    std::vector<std::string> said(numbers.size());
    tools::run_inproc_ranks(static_cast<int>(numbers.size()), test_support::deadline_ms(20'000),
                            [&](std::unique_ptr<backends::Group> group) {
                              const auto rank = static_cast<std::size_t>(group->rank());
                              const auto control = group->make_communicator();
                              const Device device =
                                  numbers[rank] < 0 ? Device{}
                                                    : Device{Device::Kind::kCuda, numbers[rank]};
                              try {
                                tools::check_devices_apart(request, {device, ""}, *group, *control);
                                said[rank] = "fine";
                              } catch (const io::ConfigError& error) {
                                said[rank] = error.what();
                              }
                              return 0;
                            });
    return said;
  }
};

TEST_F(SharedDevices, AreAnErrorOnEveryRank) {
  for (const std::string& text : ranks_with({-1, 0, -1, 0})) {
    EXPECT_VALUES(text, "1 3 CUDA GPU-");
  }
  const Device first{Device::Kind::kCuda, 0};
  EXPECT_VALUES(ranks_with({0, 0}, {.devices = {first}})[1], "--gpu-devices --spawn --spawn");
  EXPECT_VALUES(ranks_with({0, 0}, {.device = {tools::DeviceName::Kind::kNumbered, 0}})[0],
                "ranks 0 1 --device cuda");
  EXPECT_EQ(ranks_with({-1, -1, 0}), (std::vector<std::string>{"fine", "fine", "fine"}));
  EXPECT_EQ(ranks_with({0}), std::vector<std::string>{"fine"});
  if (engine::cuda::device_count() > 1) {
    EXPECT_EQ(ranks_with({0, 1}), (std::vector<std::string>{"fine", "fine"}));
    EXPECT_CONTAINS(ranks_with({1, 0, 1})[1], "ranks 0 and 2");
  }
  setenv("ENGINE_ALLOW_SHARED_GPU", "1", 1);
  EXPECT_EQ(ranks_with({0, 0}), (std::vector<std::string>{"fine", "fine"}));
  unsetenv("ENGINE_ALLOW_SHARED_GPU");
}

// --- where saved arrays go
// -------------------------------------------------------------------------------------------

struct Remap {
  const char *spec, *saved, *own;
  int visible;
  const char* expected;  // a device, or what the refusal says
};

constexpr Remap kRemaps[] = {
    {"auto", "cuda:3", "cuda:1", 2, "cuda:1"},  // a checkpoint of a larger machine
    {"auto", "cuda:3", "cpu:0", 0, "cpu:0"},
    {"auto", "cpu:0", "cuda:0", 1, "cuda:0"},
    {"cpu", "cuda:3", "cuda:1", 2, "cpu:0"},  // host memory, from which cuda:1 is filled
    {"cpu", "cuda:3", "cpu:1", 0, "cpu:1"},
    {"cuda:1", "cuda:0", "cuda:1", 2, "cuda:1"},
    {"cuda:0=cuda:1", "cuda:0", "cuda:1", 2, "cuda:1"},  // each rank says its own local rank
    {"cuda:0=cuda:1,cuda:1=cpu,cpu=cuda:1", "cpu:0", "cuda:1", 2, "cuda:1"},
    {"cuda:0=cuda:1,cuda:1=cpu,cpu=cuda:1", "cuda:1", "cuda:1", 2, "cpu:0"},
    {"cuda:7", "cuda:0", "cuda:1", 2, "map-location cuda:0 cuda:7, cuda:7: 2 CUDA cuda:1"},
    {"cuda:3=cuda:0", "cuda:3", "cuda:1", 2, "map-location cuda:3 cuda:0, cuda:1 auto:"},
    {"cuda:0=cuda:1", "cuda:2", "cuda:1", 2, "map-location cuda:2"},
    {"cuda", "cpu:0", "cpu:0", 0, "map-location cpu:0 cuda:0, cuda:0: no CUDA cpu:0"},
    {"cuda", "cpu:0", "cpu:0", 1, "map-location cpu:0 cuda:0, cpu:0 auto:"},
};

TEST(PlaceArray, RemapsAndRefusals) {
  for (const Remap& remap : kRemaps) {
    std::string found;
    const std::string refused = test_support::error_or<io::ConfigError>(
        [&] {
          found =
              engine::to_string(tools::place_array(io::DeviceMap::parse(remap.spec), remap.saved,
                                                   engine::parse_device(remap.own), remap.visible));
        },
        "");
    if (refused.empty()) {
      EXPECT_EQ(found, remap.expected) << remap.spec << ": " << remap.saved << " on " << remap.own;
    } else {
      EXPECT_VALUES(refused, remap.expected) << remap.spec;
    }
  }
}

// --- where ranks come and go

std::vector<int> places(const std::vector<std::optional<int>>& held) {
  std::vector<int> found(held.size());
  tools::run_inproc_ranks(static_cast<int>(held.size()), test_support::deadline_ms(10'000),
                          [&](std::unique_ptr<backends::Group> group) {
                            const auto rank = static_cast<std::size_t>(group->rank());
                            const auto control = group->make_communicator();
                            found[rank] = tools::place_on_host(held[rank], *group, *control);
                            group->leave();
                            return 0;
                          });
  return found;
}

TEST(PlaceOnHost, StaysAndNewcomersTakeTheLowestThatIsFree) {
  using Places = std::vector<int>;
  constexpr auto kNone = std::nullopt;
  EXPECT_EQ(places({kNone}), Places({0}));
  EXPECT_EQ(places({2}), Places({2}));
  EXPECT_EQ(places({kNone, kNone, kNone}), Places({0, 1, 2}));
  EXPECT_EQ(places({1, 2}), Places({1, 2}));
  EXPECT_EQ(places({3, 1, kNone, kNone, kNone}), Places({3, 1, 0, 2, 4}));
  EXPECT_EQ(places({1, 2, 1}), Places({1, 2, 0})) << "somebody came while it was left out";
}

// --- what people are told
// --------------------------------------------------------------------------------------------

test_support::CommandResult engine_with(const std::string& gpus,
                                        std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), test_support::engine_binary());
  return test_support::run_command(
      arguments, {{"ENGINE_EMULATED_GPUS", gpus}, {"ENGINE_EMULATED_COMPUTE", "8.0"}}, 60'000);
}

TEST(Programs, ListTheDevicesOrSayWhyThereIsNone) {
  const int count = engine::cuda::device_count();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"env"}, {"env", "--format", "json"}, {"doctor"}}) {
    const test_support::CommandResult none = engine_with("0", command);
    const bool emulated = engine::cuda::missing().empty() &&
                          tools::gpu_lines().front().find("emulated") != std::string::npos;
    if (count == 0 || emulated) {
      EXPECT_TRUE(none.out.find("no CUDA") != std::string::npos) << none.out << none.err;
    }
    if (!emulated) continue;
    const test_support::CommandResult some = engine_with("2", command);
    EXPECT_CONTAINS(some.out, "CUDA runtime ") << some.err;
    EXPECT_CONTAINS(some.out, "cuda:0 emulated GPU, 4.0 GiB, compute capability 8.0");
    EXPECT_CONTAINS(some.out, "cuda:1 emulated GPU");
    EXPECT_LACKS(some.out, "cuda:2");
  }
}

// The device of a run of one step, or why there is none.
test_support::CommandResult step_on(const std::string& device, const std::string& capabilities) {
  return test_support::run_command(
      {test_support::engine_binary(), "train", "--model", "mlp", "--dataset", "synthetic",
       "--synthetic-size", "16", "--batch-size", "8", "--steps", "1", "--device", device},
      {{"ENGINE_EMULATED_GPUS", "2"}, {"ENGINE_EMULATED_COMPUTE", capabilities}}, 60'000);
}

TEST(Programs, UseNoDeviceThatIsTooOld) {
  if (!engine::cuda::missing().empty() ||
      !engine::cuda::device_info(0).name.starts_with("emulated"))
    GTEST_SKIP() << "no emulator of a GPU";
  const auto expect_said = [](const test_support::CommandResult& result, int exit_code,
                              const std::string& text) {
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    EXPECT_CONTAINS((result.out + result.err), text) << result.out << result.err;
  };
  const std::string first =
                        "GPU 0 (emulated GPU, compute capability 5.2) is not used: kernels need "
                        "6.0",
                    none =
                        "GPU 0 (emulated GPU, compute capability 5.2), GPU 1 (emulated GPU, "
                        "compute capability 5.2) are not used: kernels need 6.0";
  expect_said(step_on("auto", "5.2"), 0, "on cpu (");
  expect_said(step_on("auto", "5.2"), 0, "auto: " + none);
  expect_said(step_on("cuda", "5.2"), 78, "--device cuda: " + none + "; give --device cpu\n");
  expect_said(step_on("cuda:0", "5.2"), 78, "--device cuda:0: " + none + "; give --device cpu\n");
  expect_said(step_on("auto", "5.2,8.0"), 0, "cuda:1 (emulated GPU, sm_80; auto: ");
  expect_said(step_on("auto", "5.2,8.0"), 0, "2 CUDA devices visible; " + first);
  expect_said(step_on("cuda", "5.2,8.0"), 0, "cuda:1 (emulated GPU, sm_80");
  expect_said(step_on("cuda:0", "5.2,8.0"), 78, "--device cuda:0: " + first + "\n");

  // A bundle for another architecture.
  const auto hopper_on = [](const std::string& device, const std::string& capabilities) {
    return test_support::run_command(
        {test_support::engine_binary(), "train", "--model", "mlp", "--dataset", "synthetic",
         "--synthetic-size", "16", "--batch-size", "8", "--steps", "1", "--device", device},
        {{"ENGINE_EMULATED_GPUS", "2"},
         {"ENGINE_EMULATED_COMPUTE", capabilities},
         {"ENGINE_EMULATED_ARCHITECTURES", "90a-real"}},
        60'000);
  };
  const auto expect_values = [](const test_support::CommandResult& result, int exit_code,
                                const std::string& values) {
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    EXPECT_VALUES(result.out + result.err, values);
  };
  const std::string ampere = "GPU 0 8.0 sm_90a; -DENGINE_CUDA_ARCHITECTURES=80-real";
  expect_said(hopper_on("auto", "8.0,9.0"), 0, "cuda:1 (emulated GPU, sm_90; auto: ");
  expect_values(hopper_on("auto", "8.0,9.0"), 0, ampere);
  expect_values(hopper_on("cuda:0", "8.0,9.0"), 78, "--device cuda:0: " + ampere);
  expect_values(hopper_on("cuda", "8.0"), 78,
                "--device cuda: GPU 0 8.0 GPU 1 8.0 sm_90a; "
                "-DENGINE_CUDA_ARCHITECTURES=80-real --device cpu");
  // Newer than the machine code, but there is PTX.
  expect_values(step_on("cuda", "12.0"), 0, "sm_80, sm_90a, compute_80, GPU 0 12.0 translates PTX");
  EXPECT_LACKS(step_on("cuda", "9.0").err, "translates");
  // The start line names the code of each kind of device; a device newer than all is translated.
  for (const auto& [capability, text] :
       {std::pair{"8.0", "(emulated GPU, sm_80; auto: "},
        {"8.6", "(emulated GPU, sm_86, kernels for sm_80; auto: "},
        {"8.9", "(emulated GPU, sm_89, kernels for sm_80; auto: "},
        {"9.0", "(emulated GPU, sm_90; auto: "},
        {"10.0", "(emulated GPU, sm_100, kernels from PTX for compute_80; auto: "},
        {"11.0", "(emulated GPU, sm_110, kernels from PTX for compute_80; auto: "},
        {"12.0", "(emulated GPU, sm_120, kernels from PTX for compute_80; auto: "},
        {"15.3", "(emulated GPU, sm_153, kernels from PTX for compute_80; auto: "}})
    expect_said(step_on("auto", capability), 0, text);

  const auto with = [](const std::string& capabilities, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), test_support::engine_binary());
    return test_support::run_command(
        arguments, {{"ENGINE_EMULATED_GPUS", "2"}, {"ENGINE_EMULATED_COMPUTE", capabilities}},
        60'000);
  };
  expect_said(with("5.2", {"env"}), 0, none);
  expect_said(with("5.2,8.0", {"env"}), 0,
              "cuda:0 emulated GPU, 4.0 GiB, compute capability 5.2, 4 processors, not used\n");
  const std::vector<std::string> bench = argv("bench kernels --op relu_forward --device cuda:0");
  expect_said(with("5.2", bench), 2, "--device cuda:0: " + none);
  expect_said(with("5.2,8.0", bench), 2, "--device cuda:0: " + first);
}

TEST(Programs, TrainOnOlderDevices) {
  if (!engine::cuda::missing().empty() ||
      !engine::cuda::device_info(0).name.starts_with("emulated"))
    GTEST_SKIP() << "no emulator of a GPU";
  // Without instructions for its products, a device computes them in f32.
  for (const auto& [capability, amp, device] : {std::tuple{"6.0", "off", "sm_60)"},
                                                {"6.0", "O1", "sm_60; f32"},
                                                {"7.0", "O1", "sm_70)"},
                                                {"7.0", "bf16", "sm_70; f32"},
                                                {"7.5", "O2", "sm_75)"},
                                                {"7.5", "tf32", "sm_75; f32"}}) {
    const test_support::CommandResult result = test_support::run_command(
        {test_support::engine_binary(), "train", "--model", "convnet", "--dataset", "synthetic",
         "--synthetic-shape", "8x8x3", "--synthetic-size", "64", "--batch-size", "64", "--steps",
         "2", "--device", "cuda:0", "--amp", amp},
        {{"ENGINE_EMULATED_COMPUTE", capability},
         {"ENGINE_EMULATED_ARCHITECTURES", "60-real;70-real;75-real"}},
        60'000);
    EXPECT_EQ(result.exit_code, 0) << capability << amp << result.err;
    EXPECT_VALUES(result.out + result.err, "cuda:0 " + std::string(device));
  }
}

}  // namespace
