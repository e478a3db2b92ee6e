// Defines the options for devices, number types, precision: --device to --buffers.
#include "tools/options/table/option_rows.h"

#include <algorithm>
#include <cmath>

#include "engine/optim/loss_scale.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

using enum OptionSpec::Agreement;
using enum OptionSpec::OnResume;
using enum OptionSpec::Arrays;

using engine::BufferMode;
using engine::DType;
using engine::Products;

std::optional<ValueFault> take_device(RunConfig& config, const std::string& text) {
  const auto name = parse_device_name(text);
  if (!name) return ValueFault{"one of auto, cpu, cuda, cuda:N"};
  config.compute.device.device = *name;
  return std::nullopt;
}

std::optional<ValueFault> take_gpu_devices(RunConfig& config, const std::string& text) {
  DeviceRequest& request = config.compute.device;
  if (text == "none") request.device = {DeviceName::Kind::kCpu};
  const std::vector<std::int64_t> numbers = parse_device_numbers(text).value();
  for (const std::int64_t number : numbers)
    request.devices.push_back({engine::Device::Kind::kCuda, static_cast<int>(number)});
  return std::nullopt;
}

std::optional<ValueFault> take_replicas(RunConfig& config, const std::string& text) {
  std::vector<engine::Device>& devices = config.compute.device.devices;
  for (const std::string& replica : base::split_text(text, ',')) {
    const auto device = parse_numbered_device(replica);
    if (!device || (!devices.empty() && device->kind != devices.front().kind) ||
        std::ranges::find(devices, *device) != devices.end())
      return ValueFault{"different devices of one kind, as cpu:0,cpu:1 or cuda:0,cuda:1"};
    devices.push_back(*device);
  }
  return std::nullopt;
}

// Parses "8G", "1.5G", "500M": powers of 1024.
std::optional<ValueFault> take_memory(RunConfig& config, const std::string& text) {
  MemoryRequest& memory = config.compute.memory;
  memory = {.automatic = text == "auto"};
  if (memory.automatic || text == "none") return std::nullopt;
  const std::size_t unit = std::string_view("KMGT").find(text.back());
  const auto number = parse_real(std::string_view(text).substr(0, text.size() - 1));
  const double bytes = unit == std::string_view::npos || !number
                           ? 0
                           : std::ldexp(*number, 10 * (static_cast<int>(unit) + 1));
  if (!(bytes >= 1024 && bytes < 1e18))
    return ValueFault{"auto, none, or a size with a unit: 8G, 1.5G, 500M"};
  memory.bytes = static_cast<std::uint64_t>(bytes);
  return std::nullopt;
}

std::optional<ValueFault> take_loss_scale(RunConfig& config, const std::string& text) {
  const auto scale = parse_real(text);
  if (text != "dynamic" && (!scale || !(*scale >= 1e-30 && *scale <= 1e30)))
    return ValueFault{"dynamic, or a number above 0"};
  config.compute.loss_scale = engine::parse_loss_scale(text);
  return std::nullopt;
}

void check_compute(const GivenValues& given, RunConfig& config) {
  ComputeOptions& compute = config.compute;
  const Precision& precision = compute.precision;
  if (compute.dtype == DType::kF64 && precision != Precision{})
    given.refuse("dtype", "f32 beside --amp " + given.text("amp"));
  const bool of_f16 = precision.half == DType::kF16 || precision.products == Products::kF16;
  if (!given.has("loss-scale") && of_f16) compute.loss_scale = engine::parse_loss_scale("dynamic");
}

const std::vector<OptionSpec> kComputeRows{
    {.name = "device",
     .field = parsed(take_device),
     .metavar = "auto|cpu|cuda|cuda:N",
     .initial = "auto",
     .help = "cuda: the GPU of this process's local rank; auto: cuda if there is a GPU, else cpu",
     .example = "--device cuda:1",
     .agreement = kFree},
    {.name = "gpu-devices",
     .field = parsed(take_gpu_devices, OptionSpec::Type::kDevices),
     .metavar = "LIST",
     .help = "CUDA devices, a replica on each: '0 1', '0,1', '0-3' or none (default: one)",
     .example = "--gpu-devices 0,1",
     .agreement = kFree,
     .excludes = {"devices"}},
    {.name = "devices",
     .field = parsed(take_replicas),
     .metavar = "LIST",
     .help = "replicas in this process, one thread each: cpu:0,cpu:1 (default: one)",
     .example = "--devices cpu:0,cpu:1"},
    {.name = "threads",
     .field = integer([](RunConfig& c) { return &c.compute.threads; }, 0, 1024),
     .help = "threads per rank (0: the usable cores divided among the host's ranks)",
     .example = "--threads 4",
     .agreement = kFree},
    {.name = "bind",
     .field = choice([](RunConfig& c) { return &c.compute.bind; },
                     {{"none", Bind::kNone}, {"core", Bind::kCore}, {"numa", Bind::kNuma}}),
     .help = "bind ranks to separate CPUs; core: each thread to a core; numa: each rank to a "
             "NUMA node",
     .example = "--bind core"},
    {.name = "dtype",
     .field = choice([](RunConfig& c) { return &c.compute.dtype; },
                     {{"f32", DType::kF32}, {"f64", DType::kF64}}),
     .help = "floating-point type; f64 is for comparisons and gradient checks",
     .example = "--dtype f64",
     .on_resume = kReject,
     .arrays = kDiffer,
     .of_model = true,
     .of_inputs = true},
    {.name = "amp",
     .field =
         choice([](RunConfig& c) { return &c.compute.precision; }, {{"off", {}},
                                                                    {"tf32", {{}, Products::kTf32}},
                                                                    {"bf16", {DType::kBF16}},
                                                                    {"O1", {{}, Products::kF16}},
                                                                    {"O2", {DType::kF16}}}),
     .help = "mixed precision. tf32, O1: products in TF32, f16; bf16, O2: also activations and "
             "weights in bf16, f16 (master weights: f32). CPUs with AVX512_BF16: only bf16, with "
             "f32 weights",
     .example = "--amp bf16",
     .limits = {only_cuda(is("tf32|O1|O2"), "CPUs compute off and bf16"),
                on_cpus(is("bf16"), "with AVX512_BF16; weights stay f32")}},
    {.name = "conv",
     .field =
         choice([](RunConfig& c) { return &c.compute.convolutions; },
                {{"auto", engine::Convolutions::kAuto}, {"direct", engine::Convolutions::kDirect}}),
     .help = "convolutions on the CPU. auto: Winograd's method if it is faster; direct: plain "
             "sums",
     .example = "--conv direct",
     .limits = {on_cuda(given(), "no effect")}},
    {.name = "loss-scale",
     .field = parsed(take_loss_scale),
     .metavar = "dynamic|S",
     .help = "factor of the loss; dynamic: adjusted to avoid overflow (default: dynamic for O1 "
             "and O2)",
     .example = "--amp O2 --loss-scale 1024",
     .needs = {is("amp", "bf16|O1|O2")},
     .limits = {only_cuda(given(), "losses are scaled on CUDA devices")}},
    {.name = "cuda-graph",
     .field =
         choice([](RunConfig& c) { return &c.compute.graph; }, {{"auto", true}, {"off", false}}),
     .help = "auto: launch a training step as one captured CUDA graph if possible",
     .example = "--cuda-graph off",
     .agreement = kFree,
     .limits = {on_cpus(given(), "no effect")}},
    {.name = "memory",
     .field = parsed(take_memory),
     .metavar = "SIZE|auto|none",
     .initial = "none",
     .help = "memory per rank; activations that do not fit are computed again in backward",
     .example = "--memory 8G",
     .agreement = kFree},
    {.name = "sync-bn",
     .field = flag([](RunConfig& c) { return &c.model.synchronized_statistics; }),
     .help = "compute BatchNorm statistics over the samples of all ranks, not per rank",
     .example = "--sync-bn"},
    {.name = "deterministic",
     .field = flag([](RunConfig& c) { return &c.compute.deterministic; }),
     .help = "same bits for any number of --threads",
     .example = "--deterministic",
     .limits = {on_cuda(given(), "always so")}},
    {.name = "buffers",
     .field = choice([](RunConfig& c) { return &c.buffers; }, {{"local", BufferMode::kLocal},
                                                               {"rank0", BufferMode::kRank0},
                                                               {"average", BufferMode::kAverage}}),
     .help = "BatchNorm running statistics at epoch ends and in checkpoints",
     .example = "--buffers rank0"}};

}  // namespace

OptionGroup compute_rows() { return {"compute", kComputeRows, &check_compute}; }

}  // namespace tools
