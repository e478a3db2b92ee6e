// `engine verify`: are these models the same? Names of differing tensors on stdout, the verdict on stderr.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "io/checkpoint/compare_arrays.h"
#include "io/interchange/safetensors.h"
#include "io/text_format.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/exit_codes.h"

namespace tools {
namespace {

std::vector<io::NamedArray> read_arrays(const std::string& path, const std::string& strip_prefix) {
  std::vector<io::NamedArray> arrays =
      path.ends_with(".safetensors") ? io::load_safetensors(path) : io::load_checkpoint(path).arrays;
  for (io::NamedArray& array : arrays) {
    if (!strip_prefix.empty() && array.name.starts_with(strip_prefix)) array.name.erase(0, strip_prefix.size());
    // A plain tensor file has no sections: what PyTorch's state_dict calls these are buffers.
    if (path.ends_with(".safetensors") && (io::is_running_statistic(array.name) || array.name.ends_with("num_batches_tracked")))
      array.section = io::Section::kBuffer;
  }
  return arrays;
}

std::vector<io::Section> sections(const std::string& only) {
  using io::Section;
  if (only == "params") return {Section::kParameter};
  if (only == "buffers") return {Section::kBuffer};
  if (only == "optimizer") return {Section::kOptimizer};
  if (only == "all")
    return {Section::kParameter, Section::kBuffer, Section::kOptimizer, Section::kAveraging, Section::kRankState};
  return {Section::kParameter, Section::kBuffer};
}

std::string minority_text(const std::vector<int>& minority, const std::vector<std::string>& paths) {
  std::string text;
  for (const int f : minority) text += (text.empty() ? "" : ",") + paths[static_cast<std::size_t>(f)];
  return text;
}

// JSON has no NaN or infinity.
std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

void print_differences(const io::Comparison& comparison, const std::string& format, std::int64_t most,
                       const std::vector<std::string>& paths) {
  if (format == "table")
    std::printf("%-40s %-5s %-18s %-9s %-8s %12s %12s %12s  %s\n", "name", "dtype", "shape", "kind", "differ in", "max |d|",
                "max ulp", "first index", "minority");
  if (format == "json")
    std::printf("{\"schema\":1,\"compared\":%lld,\"differences\":[", static_cast<long long>(comparison.compared));
  std::int64_t shown = 0;
  for (const io::ArrayDifference& d : comparison.differences) {
    if (most > 0 && shown == most) break;
    const bool values = d.reason == "values";
    if (format == "names") std::printf("%s\n", d.name.c_str());
    if (format == "table") {
      char distance[32] = "-";
      if (values) std::snprintf(distance, sizeof distance, "%.6g", d.max_absolute);
      std::printf("%-40s %-5s %-18s %-9s %-9s %12s %12s %12s  %s\n", d.name.c_str(), d.type.c_str(), d.shape.c_str(),
                  io::to_string(d.section).c_str(), d.reason.c_str(), distance,
                  d.max_ulp >= 0 ? std::to_string(d.max_ulp).c_str() : "-", values ? std::to_string(d.first_index).c_str() : "-",
                  minority_text(d.minority, paths).c_str());
    }
    if (format == "json")
      std::printf(
          "%s{\"name\":%s,\"dtype\":\"%s\",\"shape\":%s,\"kind\":\"%s\",\"reason\":\"%s\",\"max_abs\":%s,\"max_ulp\":%lld,"
          "\"first_index\":%lld,\"minority\":%s}",
          shown ? "," : "", io::json_string(d.name).c_str(), d.type.c_str(), d.shape.c_str(), io::to_string(d.section).c_str(),
          d.reason.c_str(), values ? json_number(d.max_absolute).c_str() : "null", static_cast<long long>(d.max_ulp),
          static_cast<long long>(d.first_index), io::json_string(minority_text(d.minority, paths)).c_str());
    ++shown;
  }
  if (format == "json") std::printf("]}\n");
  std::fflush(stdout);
}

std::string verdict(const io::Comparison& comparison) {
  const auto& all = comparison.differences;
  const auto count = [&](auto predicate) { return std::count_if(all.begin(), all.end(), predicate); };
  const auto parameters = count([](const auto& d) { return d.section == io::Section::kParameter; });
  const auto running = count([](const auto& d) { return d.section == io::Section::kBuffer && io::is_running_statistic(d.name); });
  const auto others = static_cast<std::ptrdiff_t>(all.size()) - parameters - running;
  std::string text = std::to_string(all.size()) + " of " + std::to_string(comparison.compared) + " tensors differ";
  if (all.empty()) return text;
  text += " (" + std::to_string(parameters) + " parameters, " + std::to_string(running) + " BatchNorm running statistics";
  if (others > 0) text += ", " + std::to_string(others) + " others";
  text += ")";
  if (running > 0 && running == static_cast<std::ptrdiff_t>(all.size()))
    text += "; in sync except BN: try --sync-bn";
  return text;
}

}  // namespace

int verify_command(const Arguments& arguments) {
  CLI::App app("Compares checkpoints (.ckpt, .safetensors, mixed) and prints the names of differing tensors in model order.",
               "engine verify");
  std::vector<std::string> paths;
  io::CompareOptions options;
  std::string only = "model", format = "names", strip_prefix;
  std::int64_t most = 0;
  bool quiet = false, summary = false;
  app.add_option("FILES", paths, "two or more")->required()->expected(2, 1000)->type_name("A B [C...]");
  app.add_option("--rtol", options.relative, "equal within F * |b|")->type_name("F")->check(CLI::NonNegativeNumber);
  app.add_option("--atol", options.absolute, "equal within F")->type_name("F")->check(CLI::NonNegativeNumber);
  app.add_option("--ulp", options.ulp, "equal within N representable numbers")->type_name("N")->check(CLI::NonNegativeNumber);
  app.add_option("--only", only, "params, buffers, optimizer, all; without it parameters and buffers")
      ->check(CLI::IsMember({"params", "buffers", "optimizer", "all"}));
  app.add_option("--ignore", options.ignore, "leave out names that match (* and ?)")->type_name("GLOB")->expected(1)->take_all();
  app.add_option("--strip-prefix", strip_prefix, "take this off the front of names")->type_name("P");
  app.add_option("--format", format, "names, table or json")
      ->check(CLI::IsMember({"names", "table", "json"}))
      ->default_str("names");
  app.add_option("--max", most, "show at most N differences")->type_name("N")->check(CLI::NonNegativeNumber);
  app.add_flag("--summary", summary, "only the verdict");
  app.add_flag("-q,--quiet", quiet, "print nothing: the exit code tells");
  app.footer(
      "Exit status: 0 same, 1 different, 2 trouble (unreadable, corrupt, not a checkpoint).\n"
      "Without tolerances the comparison is bit by bit: a NaN equals the same NaN, -0 differs from +0.");
  if (!parse(app, arguments)) return kExitOk;
  options.sections = sections(only);
  std::vector<std::vector<io::NamedArray>> files;
  try {
    for (const std::string& path : paths) files.push_back(read_arrays(path, strip_prefix));
  } catch (const io::Error& error) {
    if (!quiet) std::fprintf(stderr, "engine: error: %s\n", error.what());
    return kExitUsage;
  }
  std::vector<const std::vector<io::NamedArray>*> views;
  for (const auto& file : files) views.push_back(&file);
  const io::Comparison comparison = io::compare_arrays(views, options);
  if (!quiet && !summary) print_differences(comparison, format, most, paths);
  if (!quiet) std::fprintf(stderr, "verify: %s\n", verdict(comparison).c_str());
  return comparison.differences.empty() ? kExitOk : kExitDifferent;
}

}  // namespace tools
