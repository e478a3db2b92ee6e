// Implements `engine bench kernels`: measures every operator alone, at the shapes of the models.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "engine/core/error.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "io/gpu/usable_devices.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/bench/kernels/kernel_bench.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

struct KernelFlags {
  std::string set = "models", ops, models, shape, device = "cpu", amp = "off", conv = "auto";
  ReportFormat format = ReportFormat::kTable;
  std::vector<std::int64_t> sides{512, 1024, 2048, 4096, 8192};
  int threads = 0, batch = 0;
  double seconds = 0.2;
  bool list = false, tile_sweep = false;
};

bool named(const std::string& list, const std::string& option, const std::string& name) {
  if (list.empty()) return true;
  const std::vector<std::string> parts = split_list(list, option.c_str());
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return name.find(part) != std::string::npos; });
}
bool wanted(const KernelFlags& flags, const KernelCase& test) {
  const auto model = split_list(flags.models.empty() ? test.model : flags.models, "--model");
  return named(flags.ops, "--op", test.op) &&
         std::find(model.begin(), model.end(), test.model) != model.end() &&
         test.shape.find(flags.shape) != std::string::npos;
}

engine::Device choose_device(const KernelFlags& flags) {
  engine::Device device;
  try {
    device = engine::parse_device(flags.device);
  } catch (const engine::Error&) {
    throw UsageError("--device '" + flags.device + "': expected cpu, cuda or cuda:N");
  }
  if (device.kind == engine::Device::Kind::kCpu) {
    if (flags.amp != "off" && flags.amp != "bf16")
      throw UsageError("--amp " + flags.amp + " is for CUDA devices: add --device cuda");
    const std::string missing = flags.amp == "bf16" ? engine::ops::missing_bf16_products() : "";
    if (!missing.empty()) throw UsageError("--amp bf16 on the CPU: " + missing);
    return device;
  }
  if (const std::string missing = engine::cuda::missing(); !missing.empty())
    throw UsageError("--device " + flags.device + ": " + missing);
  if (device.index >= engine::cuda::device_count())
    throw UsageError("--device " + flags.device + ": there are " +
                     std::to_string(engine::cuda::device_count()));
  if (const auto unused = base::cuda::unused_devices(); unused.contains(device.index))
    throw UsageError("--device " + flags.device + ": " +
                     base::cuda::unused_text({*unused.find(device.index)}));
  return device;
}

std::string device_text(const KernelBenchOptions& options) {
  if (options.device.kind == engine::Device::Kind::kCpu)
    return "cpu, " + std::to_string(options.threads) +
           (options.threads == 1 ? " thread" : " threads") +
           (options.amp == "bf16" ? ", --amp bf16 (products)" : "");
  return to_string(options.device) + ", " + engine::cuda::device_info(options.device.index).name +
         ", " + engine::cuda::versions() + ", --amp " + options.amp;
}

std::vector<KernelCase> cases_of(const KernelFlags& flags, std::int64_t images) {
  const BatchSizes sizes{.images = images, .texts = std::max<std::int64_t>(images / 4, 1)};
  if (flags.set == "gemm") return square_cases(flags.sides);
  return flags.set == "conv" ? resnet_convolution_cases(sizes) : kernel_cases(sizes);
}

std::string type_text(const KernelFlags& flags) { return flags.amp == "off" ? "f32" : flags.amp; }

struct ChosenCases {
  std::vector<KernelCase> timed;
  // The same with a small batch, of which errors are measured, because the float64 reference takes
  // its time; but with one that chooses the same kernels of convolutions.
  std::vector<KernelCase> small;
};

ChosenCases choose_cases(const KernelFlags& flags, bool cuda) {
  const std::int64_t images = flags.batch > 0 ? flags.batch : cuda ? 256 : 32;
  const std::vector<KernelCase> cases = cases_of(flags, images);
  const std::vector<KernelCase> small = cases_of(flags, std::min<std::int64_t>(images, 8));
  ChosenCases chosen;
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (wanted(flags, cases[i]) && (!cuda || cases[i].cuda)) {
      chosen.timed.push_back(cases[i]);
      chosen.small.push_back(small[i]);
    }
  if (chosen.timed.empty())
    throw UsageError(
        "no operator matches that name, model and shape: see engine bench kernels --list");
  return chosen;
}

void print_list(const std::vector<KernelCase>& cases) {
  for (const KernelCase& test : cases)
    std::printf("%s %s %s\n", test.op.c_str(), test.model.c_str(), test.shape.c_str());
}

// Each product's lines as soon as they are measured: a run that is cut off has those before.
void print_cuts(const KernelBenchOptions& options, const std::vector<KernelCase>& cases,
                const std::string& type) {
  KernelBench bench(options);
  std::fputs(cuts_text(nullptr, type, {}).c_str(), stdout);
  for (const KernelCase& test : cases) {
    std::fputs(cuts_text(&test, type, bench.cut_times(test)).c_str(), stdout);
    std::fflush(stdout);
  }
}

void print_rows(const KernelBenchOptions& options, const ChosenCases& cases,
                const KernelFlags& flags) {
  const bool cuda = options.device.kind == engine::Device::Kind::kCuda;
  KernelHeading heading{.bench = bench_heading(), .device = device_text(options), .cuda = cuda};
  KernelBench bench(options);
  std::unique_ptr<CublasLt> cublaslt;
  if (cuda) {
    std::string missing;
    cublaslt = CublasLt::load(missing);
    heading.cublaslt = cublaslt ? cublaslt->description() : "no cuBLASLt (" + missing + ")";
  }
  heading.ceilings = bench.ceilings();
  std::vector<KernelRow> rows;
  for (std::size_t i = 0; i < cases.timed.size(); ++i) {
    const KernelCase& test = cases.timed[i];
    rows.push_back(make_row(test, bench.stored(), type_text(flags), heading.ceilings));
    rows.back().seconds = bench.median_seconds(test);
    rows.back().occupancy = bench.occupancy(test);
    if (cublaslt) rows.back().cublaslt_seconds = bench.cublaslt_seconds(test, *cublaslt);
    rows.back().error = bench.error(cases.small[i]);
  }
  const std::string text = kernels_text(heading, rows, flags.format);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void add_options(CLI::App& app, KernelFlags& flags) {
  app.add_option("--set", flags.set,
                 "models: operators at the models' shapes; gemm: square products; conv: ResNet's "
                 "convolutions")
      ->check(CLI::IsMember({"models", "gemm", "conv"}))
      ->capture_default_str();
  app.add_option("--sizes", flags.sides, "sides of the squares of --set gemm: 512,1024")
      ->type_name("LIST")
      ->delimiter(',')
      ->transform(whole_number(1, 65536))
      ->capture_default_str();
  app.add_option("--op", flags.ops,
                 "only operators whose name contains one of these: dense,conv2d_forward")
      ->type_name("LIST")
      ->check(some_text("parts of names, as dense,conv2d"));
  app.add_option("--model", flags.models, "only shapes of these models: convnet,gpt-nano")
      ->type_name("LIST")
      ->check(some_text("names of models, as convnet,mlp"));
  app.add_option("--shape", flags.shape, "only shapes whose text contains this: 32x32x64")
      ->type_name("PART")
      ->check(some_text("a part of a shape, as 32x32"));
  app.add_flag("--list", flags.list, "list what would be measured and exit");
  app.add_flag("--tile-sweep,--cuts", flags.tile_sweep,
               "CUDA: dense layers and convolutions with each tile and split, as CSV");
  app.add_option("--device", flags.device, "where to compute")
      ->type_name("cpu|cuda|cuda:N")
      ->capture_default_str();
  app.add_option("--amp", flags.amp, "precision; on the CPU: off or bf16 (operands of products)")
      ->check(CLI::IsMember({"off", "tf32", "O1", "O2", "bf16"}))
      ->capture_default_str();
  app.add_option("--conv", flags.conv, "convolutions on the CPU, as in engine train")
      ->check(CLI::IsMember({"auto", "direct"}))
      ->capture_default_str();
  app.add_option("--batch", flags.batch,
                 "images per batch; texts: a quarter of it (default: 32, on a CUDA device 256)")
      ->transform(whole_number(1));
  app.add_option("--threads", flags.threads, "CPU threads (default: the allowed cores)")
      ->type_name("N")
      ->transform(whole_number(1));
  app.add_option("--seconds", flags.seconds, "measuring time per row")
      ->transform(number_above_zero())
      ->capture_default_str();
  add_format_option(app, flags.format)->excludes("--tile-sweep")->excludes("--list");
}

}  // namespace

int bench_kernels_command(const Arguments& arguments) {
  CLI::App app(
      "Measures single operators at the shapes that the models use: median time, rates, their "
      "share of the device's limit (multiply-add and copy rates measured in the same run), and "
      "error relative to float64.",
      "engine bench kernels");
  KernelFlags flags;
  add_options(app, flags);
  if (!parse(app, arguments)) return kExitOk;
  if (flags.threads > 0) check_threads(flags.threads);
  if (flags.set != "gemm" && app.count("--sizes") > 0)
    throw UsageError("--sizes is for --set gemm, and this is --set " + flags.set);

  const KernelBenchOptions options{
      .device = choose_device(flags),
      .amp = flags.amp,
      .convolutions =
          flags.conv == "direct" ? engine::Convolutions::kDirect : engine::Convolutions::kAuto,
      .threads = flags.threads > 0 ? flags.threads : default_threads(1),
      .seconds = flags.seconds};
  const bool cuda = options.device.kind == engine::Device::Kind::kCuda;
  const ChosenCases cases = choose_cases(flags, cuda);
  if (flags.list) {
    print_list(cases.timed);
    return kExitOk;
  }
  if (flags.tile_sweep && !cuda)
    throw UsageError("--tile-sweep is for CUDA devices: add --device cuda");
  if (flags.tile_sweep)
    print_cuts(options, cases.timed, type_text(flags));
  else
    print_rows(options, cases, flags);
  return kExitOk;
}

}  // namespace tools
