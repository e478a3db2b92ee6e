// Implements `engine bench verify`: the speed of comparing files of each format.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>

#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "io/checkpoint/checkpoint.h"
#include "io/interchange/array_files.h"
#include "io/interchange/compare/compare_arrays.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/bench/saved_training.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

struct VerifyFlags {
  std::string directory = ".";
  ReportFormat format = ReportFormat::kTable;
  int megabytes = 256, rounds = 5;
};

constexpr std::size_t kArrayBytes = std::size_t{1} << 22;

// Makes numbers that resemble weights, in arrays of 4 MiB. `other`: one number of the last array
// differs.
io::Checkpoint weights(int megabytes, bool other) {
  io::Checkpoint checkpoint;
  io::SplitMix random(1, 2, 3);
  const std::size_t total = static_cast<std::size_t>(megabytes) << 20;
  for (std::size_t at = 0; at < total; at += kArrayBytes) {
    const std::size_t bytes = std::min(kArrayBytes, total - at);
    std::vector<float> numbers(bytes / sizeof(float));
    for (float& number : numbers)
      number = static_cast<float>(random.below(1u << 24)) / (1 << 23) - 1;
    if (other && at + bytes == total) numbers.back() += 2;
    io::NamedArray array{.name = "layers." + std::to_string(checkpoint.arrays.size()) + ".weight",
                         .shape = {static_cast<std::int64_t>(numbers.size())},
                         .data = {}};
    array.data.resize(bytes);
    std::memcpy(array.data.data(), numbers.data(), bytes);
    checkpoint.arrays.push_back(std::move(array));
  }
  return checkpoint;
}

struct VerifyRow {
  std::string what;
  double ms, low, high, rate;  // MB per second, for each of the two files
};

// Compares the two as `engine verify` does. Throws if it does not find the expected differences.
void compare(const std::string& a, const std::string& b, std::size_t differences) {
  const std::unique_ptr<io::ArraySource> first = io::open_arrays(a), second = io::open_arrays(b);
  const io::Comparison found = io::compare_arrays({first.get(), second.get()}, {});
  if (found.differences.size() != differences)
    throw io::Error("found " + std::to_string(found.differences.size()) +
                    " arrays that differ, expected " + std::to_string(differences));
}

VerifyRow measure(const std::string& what, const std::string& a, const std::string& b,
                  std::size_t differences, const VerifyFlags& flags) {
  Measured measured{what.c_str(), {}};
  compare(a, b, differences);  // afterwards the files are in the system's cache
  for (int round = 0; round < flags.rounds; ++round)
    measured.time([&] { compare(a, b, differences); });
  const double median = measured.median();
  return {what, median, measured.ms.front(), measured.ms.back(),
          1e3 * (static_cast<double>(flags.megabytes) * 1.048576) / median};
}

std::vector<VerifyRow> measure_all(const VerifyFlags& flags) {
  const BenchFolder folder(flags.directory);
  const io::Checkpoint one = weights(flags.megabytes, false),
                       other = weights(flags.megabytes, true);
  std::vector<VerifyRow> rows;
  const auto path = [&](const std::string& name) { return folder.path() + "/" + name; };
  for (const char* format : {"ckpt", "safetensors", "npz", "pth"}) {
    const std::string ending = std::string(".") + format, a = path("a" + ending),
                      b = path("b" + ending), c = path("c" + ending);
    const auto save = [&](const io::Checkpoint& checkpoint, const std::string& file) {
      if (ending == ".ckpt")
        io::save_checkpoint(checkpoint, file);
      else
        io::save_arrays(checkpoint.arrays, file);
    };
    save(one, a);
    save(one, b);
    rows.push_back(measure(std::string(format) + ", equal", a, b, 0, flags));
    save(other, c);
    rows.push_back(measure(std::string(format) + ", one number differs", a, c, 1, flags));
    for (const std::string& file : {a, b, c}) std::remove(file.c_str());
  }
  return rows;
}

std::string verify_text(const VerifyFlags& flags, const BenchHeading& heading,
                        const std::vector<VerifyRow>& rows) {
  if (flags.format == ReportFormat::kJson) {
    base::JsonWriter json;
    begin_report(json, "bench verify", heading);
    json.member("mebibytes", flags.megabytes).member("rounds", flags.rounds);
    json.key("rows").begin_array();
    for (const VerifyRow& row : rows) {
      json.begin_object().member("what", row.what).member("p50_ms", row.ms);
      json.member("min_ms", row.low).member("max_ms", row.high).member("mb_per_s", row.rate);
      json.end_object();
    }
    return json.end_array().end_object().text() + "\n";
  }
  const bool people = flags.format != ReportFormat::kCsv;
  std::vector<Cells> lines{people
                               ? Cells{"two files", "median ms", "min ms", "max ms", "MB/s a file"}
                               : Cells{"what", "p50_ms", "min_ms", "max_ms", "mb_per_s"}};
  for (const VerifyRow& row : rows)
    lines.push_back(
        {row.what, fixed(row.ms, 1), fixed(row.low, 1), fixed(row.high, 1), fixed(row.rate, 0)});
  const std::string before =
      heading_text(heading) + "two files of " + std::to_string(flags.megabytes) +
      " MiB of f32 in the system's cache, " + std::to_string(flags.rounds) + " rounds\n\n";
  return report_text(flags.format, before, lines, {0});
}

}  // namespace

int bench_verify_command(const Arguments& arguments) {
  CLI::App app("Measures how fast engine verify compares two files, in each format.",
               "engine bench verify");
  VerifyFlags flags;
  app.add_option("--mb", flags.megabytes, "size of a file, in MiB")
      ->type_name("N")
      ->transform(whole_number(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--dir", flags.directory, "parent of a temporary folder")
      ->type_name("DIR")
      ->check(some_text("a folder"))
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds, "number of rounds, a measurement each")
      ->transform(whole_number(1, 10'000))
      ->capture_default_str();
  add_format_option(app, flags.format);
  if (!parse(app, arguments)) return kExitOk;
  const BenchHeading heading = bench_heading();
  const std::string text = verify_text(flags, heading, measure_all(flags));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace tools
