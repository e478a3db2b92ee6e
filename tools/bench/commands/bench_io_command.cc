// Implements `engine bench io`: the speed of reading and preparing data, and of writing and reading
// checkpoints, compared with the disk.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "io/checkpoint/byte_source.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/loader/batch_loader.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/commands/bench_commands.h"
#include "tools/bench/saved_training.h"
#include "tools/bench/step/bench_step.h"
#include "tools/options/table/value_check.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/data/session_data.h"

namespace tools {
namespace {

struct IoFlags {
  std::string directory = ".";
  ReportFormat format = ReportFormat::kTable;
  int rounds = 5;
  double seconds = 1;
};

struct IoRow {
  std::string what, unit;
  double median = 0, low = 0, high = 0;  // per second
};

// `amount` is processed in each measured time.
IoRow row_of(Measured& measured, double amount, const std::string& unit) {
  const double median = measured.median();
  return {measured.what, unit, 1e3 * amount / median, 1e3 * amount / measured.ms.back(),
          1e3 * amount / measured.ms.front()};
}

// Measures batches as a training run on one rank reads them, for the given seconds per round.
IoRow batches(const char* what, const DataOptions& options, const io::Dataset& set,
              std::int64_t batch, const io::Augmentation& augmentation, const IoFlags& flags) {
  io::BatchLoader loader(set,
                         {.size = set.size(),
                          .global_batch = std::min(batch, set.size()),
                          .rank = 0,
                          .world_size = 1,
                          .seed = 0,
                          .shuffle = true},
                         {.normalization = normalization(options, set),
                          .workers = options.workers,
                          .prefetch = options.prefetch,
                          .augmentation = augmentation});
  static_cast<void>(loader.next());  // the workers have started
  IoRow row{.what = what, .unit = "samples/s"};
  std::vector<double> rates;
  for (int round = 0; round < flags.rounds; ++round) {
    std::int64_t samples = 0;
    const double start = base::steady_seconds();
    double elapsed = 0;
    while (elapsed < flags.seconds) {
      samples += loader.next().count();
      elapsed = base::steady_seconds() - start;
    }
    rates.push_back(static_cast<double>(samples) / elapsed);
  }
  row.median = quantile(rates, 0.5);
  row.low = std::ranges::min(rates);
  row.high = std::ranges::max(rates);
  return row;
}

void measure_data(const RunConfig& config, const IoFlags& flags, std::vector<IoRow>& rows) {
  const DataOptions& options = config.data;
  Measured loading{"data set loaded", {}};
  io::DatasetSplits splits;
  for (int round = 0; round < flags.rounds; ++round) {
    splits = {};
    loading.time([&] { splits = io::load_dataset(options.set); });
  }
  const io::Dataset& set = splits.train;
  if (set.size() == 0) throw io::DataError("data set '" + set.name + "' has no training samples");
  rows.push_back(
      row_of(loading, static_cast<double>(set.size() + splits.test.size()), "samples/s"));
  rows.push_back(batches("batches", options, set, config.data.sampling.global_batch, {}, flags));
  if (set.find<io::ImageSamples>() == nullptr) return;  // others are not augmented
  io::Augmentation augmentation = options.augmentation;
  const bool asked =
      augmentation.resized_crop || augmentation.crop || augmentation.flip || augmentation.cutout;
  if (!asked) augmentation.crop = augmentation.flip = true;
  rows.push_back(batches(asked ? "batches, augmented as asked" : "batches, augmented by crop,flip",
                         options, set, config.data.sampling.global_batch, augmentation, flags));
}

// Returns the checkpoint's size in bytes. Reads come from the system's file cache.
std::uint64_t measure_checkpoint(const std::string& model, const IoFlags& flags,
                                 std::vector<IoRow>& rows) {
  const BenchFolder folder(flags.directory);
  SavedTraining training(model);
  training.copy();
  std::string path = training.write(folder.path());
  const std::vector<std::byte> bytes = io::read_file(path);
  const std::string plain = folder.path() + "/plain";
  Measured all[] = {{"plain write and fsync", {}},
                    {"snapshot written", {}},
                    {"plain read", {}},
                    {"snapshot read and checked", {}}};
  for (int round = 0; round < flags.rounds; ++round) {
    all[0].time([&] { write_plainly(plain, bytes); });
    all[1].time([&] {
      training.copy();
      path = training.write(folder.path());
    });
    all[2].time([&] { static_cast<void>(io::read_file(plain)); });
    all[3].time([&] { training.load(path); });
    std::filesystem::remove(plain);
  }
  for (Measured& measured : all)
    rows.push_back(row_of(measured, static_cast<double>(bytes.size()) / 1e6, "MB/s"));
  return bytes.size();
}

std::string io_text(const RunConfig& config, const IoFlags& flags, std::uint64_t bytes,
                    const BenchHeading& heading, const std::vector<IoRow>& rows) {
  if (flags.format == ReportFormat::kJson) {
    base::JsonWriter json;
    begin_report(json, "bench io", heading);
    json.member("dataset", config.data.set.name).member("model", config.model.name);
    json.member("batch", config.data.sampling.global_batch).member("workers", config.data.workers);
    json.member("snapshot_bytes", bytes).member("rounds", flags.rounds).key("rows").begin_array();
    for (const IoRow& row : rows) {
      json.begin_object().member("what", row.what).member("unit", row.unit);
      json.member("median", row.median).member("min", row.low).member("max", row.high);
      json.end_object();
    }
    return json.end_array().end_object().text() + "\n";
  }
  std::vector<Cells> lines{{"what", "median", "min", "max", "unit"}};
  for (const IoRow& row : rows) {
    const int digits = row.median < 100 ? 1 : 0;
    lines.push_back({row.what, fixed(row.median, digits), fixed(row.low, digits),
                     fixed(row.high, digits), row.unit});
  }
  const std::string before = heading_text(heading) + config.data.set.name + ", batches of " +
                             std::to_string(config.data.sampling.global_batch) + ", " +
                             std::to_string(config.data.workers) +
                             (config.data.workers == 1 ? " worker; " : " workers; ") +
                             config.model.name + " with momentum: " + std::to_string(bytes) +
                             " bytes; " + std::to_string(flags.rounds) + " rounds\n\n";
  return report_text(flags.format, before, lines, {0, 4});
}

}  // namespace

int bench_io_command(const Arguments& arguments) {
  CLI::App app(
      "Measures how fast a data set is loaded, batched and augmented, and checkpoints are "
      "written and read, compared with plain writes and reads.",
      "engine bench io");
  IoFlags flags;
  ConfigValues values;
  add_table_options(
      app, values,
      {"model", "dataset", "data-dir", "annotations", "label-column", "image-size",
       "image-cache-mb", "context", "synthetic-shape", "synthetic-size", "normalize", "augment",
       "crop-padding", "cutout-size", "batch-size", "workers", "prefetch", "seed"});
  app.add_option("--dir", flags.directory, "parent of a temporary folder for checkpoints")
      ->type_name("DIR")
      ->check(some_text("a folder"))
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds, "number of rounds, a measurement each")
      ->transform(whole_number(1, 10'000))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds, "seconds of batches per round")
      ->transform(number_from(0.001, 3600))
      ->capture_default_str();
  add_format_option(app, flags.format);
  if (!parse(app, arguments)) return kExitOk;
  const RunConfig config = resolve_bench(values, {{"model", "resnet18-cifar"}}, 10'000);
  const BenchHeading heading = bench_heading();
  std::vector<IoRow> rows;
  measure_data(config, flags, rows);
  const std::uint64_t bytes = measure_checkpoint(config.model.name, flags, rows);
  const std::string text = io_text(config, flags, bytes, heading, rows);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace tools
