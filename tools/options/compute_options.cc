// Devices, number types, precision.
#include "tools/options/compute_options.h"

#include <algorithm>
#include <cmath>

#include "io/base/text/text_parts.h"

namespace tools {
namespace {

// "cuda:3" -> true for "cuda".
bool is_numbered(const std::string& device, const std::string& kind) {
  if (!device.starts_with(kind + ":")) return false;
  const std::string number = device.substr(kind.size() + 1);
  const auto index = parse_integer(number);
  return index && *index >= 0 && *index < 1024 && std::to_string(*index) == number;
}

void read_devices(const ValueReader& read, RunConfig& config) {
  config.device = read.text("device");
  const std::string& device = config.device;
  if (device != "auto" && device != "cpu" && device != "cuda" && !is_numbered(device, "cuda"))
    read.refuse("device", "one of auto, cpu, cuda, cuda:N");
  if (const std::string& list = read.text("gpu-devices"); list == "none") {
    config.device = "cpu";
  } else if (!list.empty()) {
    const std::vector<std::int64_t> numbers = parse_device_numbers(list).value();
    for (const std::int64_t number : numbers)
      config.devices.push_back("cuda:" + std::to_string(number));
  }
  if (read.text("devices").empty()) return;
  for (const std::string& replica : base::split_text(read.text("devices"), ',')) {
    const bool known = is_numbered(replica, "cpu") || is_numbered(replica, "cuda");
    const bool mixed =
        !config.devices.empty() && replica.substr(0, 3) != config.devices.front().substr(0, 3);
    if (!known || mixed || std::ranges::find(config.devices, replica) != config.devices.end())
      read.refuse("devices", "different devices of one kind, as cpu:0,cpu:1 or cuda:0,cuda:1");
    config.devices.push_back(replica);
  }
}

void read_precision(const ValueReader& read, RunConfig& config) {
  config.dtype = read.text("dtype");
  config.amp = read.text("amp");
  const bool amp = config.amp != "off";
  const std::string first = config.devices.empty() ? config.device : config.devices.front();
  const bool cpu = first.starts_with("cpu");
  if (amp && cpu && config.amp != "bf16")
    read.refuse("amp", "off or bf16 on the CPU: the others are for CUDA devices (--device cuda)");
  if (config.dtype == "f64" && first.starts_with("cuda"))
    read.refuse("dtype", "f32 on CUDA devices: f64 is computed on the CPU (--device cpu)");
  if (config.regression && first.starts_with("cuda"))
    read.refuse("task",
                "classification on CUDA devices: numbers are predicted on the CPU (--device cpu)");
  if (config.dtype == "f64" && amp) read.refuse("dtype", "f32 beside --amp " + config.amp);

  config.loss_scale = read.text("loss-scale");
  if (!config.loss_scale.empty() && cpu)
    read.refuse("loss-scale",
                "no value on the CPU: losses are scaled on CUDA devices (--device cuda)");
  if (config.loss_scale.empty()) {
    config.loss_scale = config.amp == "O1" || config.amp == "O2" ? "dynamic" : "off";
  } else if (config.loss_scale != "dynamic") {
    const auto scale = parse_real(config.loss_scale);
    if (!scale || !(*scale >= 1e-30 && *scale <= 1e30))
      read.refuse("loss-scale", "dynamic, or a number above 0");
  }
}

}  // namespace

void read_compute(const ValueReader& read, RunConfig& config) {
  read_devices(read, config);
  read_precision(read, config);
  config.conv = read.text("conv");
  config.buffers = read.text("buffers");
  config.threads = read.small("threads", 0, 1024, 0);
  config.bind = read.text("bind");
  config.sync_bn = read.flag("sync-bn");
  config.deterministic = read.flag("deterministic");
  config.cuda_graph = read.text("cuda-graph") == "auto";
}

}  // namespace tools
