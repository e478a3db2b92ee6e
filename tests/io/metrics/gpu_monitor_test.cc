// GPUs in the metrics file, with a library that plays the driver's.
#include "io/metrics/gpu_monitor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "io/base/files/io_error.h"
#include "tests/support/test_support.h"

namespace {

using Values = std::map<std::string, double>;

struct Variable {
  Variable(const char* variable, const char* value) : name(variable) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

std::string refusal() {
  try {
    const io::GpuMonitor monitor;
  } catch (const io::ConfigError& refused) {
    return refused.what();
  }
  return "";
}

TEST(GpuMonitor, ReadsWhatEachDeviceTells) {
  const Variable library("ENGINE_NVML_LIBRARY", FAKE_NVML_LIBRARY);
  const io::GpuMonitor monitor;
  const std::vector<io::GpuSample> samples = monitor.sample();
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].name, "GPU number 0");
  EXPECT_EQ(samples[0].bus, "00000000:01:00.0");
  EXPECT_EQ(Values(samples[0].values.begin(), samples[0].values.end()),
            (Values{{"utilization", 90},
                    {"memory_utilization", 40},
                    {"memory_used", 1e9},
                    {"memory_total", 150e9},
                    {"sm_mhz", 1980},
                    {"memory_mhz", 3201},
                    {"watts", 412.5},
                    {"celsius", 55}}));
  EXPECT_EQ(samples[1].device, 1);
  const Values second(samples[1].values.begin(), samples[1].values.end());
  EXPECT_EQ(second.at("utilization"), 91);
  EXPECT_FALSE(second.contains("sm_mhz")) << "a value that the device does not tell";
}

TEST(GpuMonitor, SaysWhatIsMissing) {
  {
    const Variable library("ENGINE_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so");
    EXPECT_NE(refusal().find("/nonexistent/libnvidia-ml.so"), std::string::npos) << refusal();
  }
  const Variable library("ENGINE_NVML_LIBRARY", FAKE_NVML_LIBRARY);
  {
    const Variable broken("FAKE_NVML", "broken");
    EXPECT_NE(refusal().find("Driver Not Loaded"), std::string::npos) << refusal();
  }
  const Variable none("FAKE_NVML", "none");
  EXPECT_NE(refusal().find("no device"), std::string::npos) << refusal();
}

TEST(GpuMonitor, TheProgramWritesThemEveryNSteps) {
  const test_support::TemporaryDirectory folder;
  const std::string metrics = (folder.path() / "m.jsonl").string();
  std::vector<std::string> command{test_support::engine_binary(),
                                   "train",
                                   "--model",
                                   "mlp",
                                   "--dataset",
                                   "synthetic",
                                   "--synthetic-size",
                                   "64",
                                   "--batch-size",
                                   "8",
                                   "--steps",
                                   "5",
                                   "--device",
                                   "cpu",
                                   "--threads",
                                   "1",
                                   "--log-gpu",
                                   "2",
                                   "--metrics",
                                   metrics};
  const auto done =
      test_support::run_command(command, {{"ENGINE_NVML_LIBRARY", FAKE_NVML_LIBRARY}}, 60'000);
  ASSERT_EQ(done.exit_code, 0) << done.err;
  std::ifstream in(metrics);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (line.find("\"event\":\"gpu\"") != std::string::npos) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4u);  // two devices, after steps 2 and 4
  const std::size_t time = lines[2].find("\"time\":");
  ASSERT_NE(time, std::string::npos) << lines[2];
  EXPECT_EQ(
      lines[2].erase(time, lines[2].find(',', time) + 1 - time),
      "{\"schema\":1,\"event\":\"gpu\",\"step\":4,\"epoch\":0,\"device\":0,\"name\":\"GPU number "
      "0\",\"bus\":\"00000000:01:00.0\","
      "\"utilization\":90,\"memory_utilization\":40,\"memory_used\":1e+09,\"memory_total\":1.5e+11,"
      "\"sm_mhz\":1980,"
      "\"memory_mhz\":3201,\"watts\":412.5,\"celsius\":55}");

  const auto missing =
      test_support::run_command(command, {{"ENGINE_NVML_LIBRARY", "/nonexistent.so"}}, 60'000);
  EXPECT_EQ(missing.exit_code, 78) << missing.err;
  command.resize(command.size() - 2);
  const auto nowhere = test_support::run_command(command, {}, 60'000);
  EXPECT_EQ(nowhere.exit_code, 78) << nowhere.err;
  EXPECT_NE(nowhere.err.find("--metrics"), std::string::npos) << nowhere.err;
}

}  // namespace
