// Implements `engine bench save`: the time of saving a checkpoint, compared with a plain write of
// equally many bytes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "io/checkpoint/byte_source.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/bench/saved_training.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

struct SaveFlags {
  std::string model = "resnet18-cifar", directory = ".";
  ReportFormat format = ReportFormat::kTable;
  int rounds = 11;
};

std::string report(std::vector<Measured>& all, std::uint64_t bytes, const SaveFlags& flags) {
  const bool people = flags.format != ReportFormat::kCsv;
  std::vector<Cells> lines{people ? Cells{"what", "median ms", "min ms", "max ms", "of plain"}
                                  : Cells{"what", "p50_ms", "min_ms", "max_ms", "ratio"}};
  const double plain = all.front().median();
  for (Measured& m : all) {
    const double median = m.median();
    lines.push_back({m.what, fixed(median, 1), fixed(m.ms.front(), 1), fixed(m.ms.back(), 1),
                     fixed(median / plain, 2)});
  }
  const std::string before = heading_text(bench_heading()) + flags.model +
                             " with momentum: " + std::to_string(bytes) + " bytes, " +
                             std::to_string(flags.rounds) + " rounds, in turn\n\n";
  return report_text(flags.format, before, lines, {0});
}

std::string measure(const SaveFlags& flags, const std::string& directory) {
  SavedTraining training(flags.model);
  std::vector<Measured> all{{"plain write and fsync", {}},
                            {"save", {}},
                            {"copy (what --save-async adds to a step)", {}},
                            {"load", {}}};
  training.copy();
  const std::vector<std::byte> bytes = io::read_file(training.write(directory));
  const std::string plain = directory + "/plain";
  for (int round = 0; round < flags.rounds; ++round) {
    all[0].time([&] { write_plainly(plain, bytes); });
    std::filesystem::remove(plain);
    std::string path;
    all[1].time([&] {
      all[2].time([&] { training.copy(); });
      path = training.write(directory);
    });
    training.load(path);  // meanwhile a thread still frees the space of the previous checkpoint
    all[3].time([&] { training.load(path); });
  }
  return report(all, bytes.size(), flags);
}

}  // namespace

int bench_save_command(const Arguments& arguments) {
  CLI::App app(
      "Measures saving and loading a checkpoint with SGD's momentum, interleaved with a plain "
      "write and fsync of the same bytes.",
      "engine bench save");
  SaveFlags flags;
  app.add_option("--model", flags.model, "a built-in model")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--dir", flags.directory, "parent of a temporary folder")
      ->type_name("DIR")
      ->check(some_text("a folder"))
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds, "number of rounds, a measurement each")
      ->transform(whole_number(1))
      ->capture_default_str();
  add_format_option(app, flags.format, {"table", "csv", "md"});
  if (!parse(app, arguments)) return kExitOk;
  const BenchFolder folder(flags.directory);
  const std::string text = measure(flags, folder.path());
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace tools
