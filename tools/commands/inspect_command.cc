// Implements `engine inspect`: prints the contents of a checkpoint, or the last calls of a failed
// run's ranks.
#include <CLI/CLI.hpp>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/utc_time.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "io/data/order/sampler.h"
#include "tools/commands/command.h"
#include "tools/commands/flight/flight_report.h"
#include "tools/folder/run_record.h"
#include "tools/folder/run_reference.h"
#include "tools/options/input/command_line.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/table/value_check.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/standard_output.h"
#include "tools/report/text/progress_line.h"
#include "tools/run/data/sample_statement.h"
#include "tools/run/data/table_columns.h"

namespace tools {
namespace {

using base::escape_text;

std::int64_t elements(const io::NamedArray& array) {
  return static_cast<std::int64_t>(array.data.size() / base::size_of(array.type));
}

// The values of the best evaluations are stored as the bits of a double.
std::string counter_text(const std::string& name, std::int64_t value) {
  const bool number = name.starts_with("best.") && name.ends_with("value");
  return number ? base::shortest_text(std::bit_cast<double>(value)) : std::to_string(value);
}

// `with_model`: true if the run's model has not been printed.
void print_summary(const io::Checkpoint& c, bool with_model) {
  if (with_model)
    std::printf("model    %s\ndata     %s\n", escape_text(c.model).c_str(),
                escape_text(c.dataset).c_str());
  std::printf(
      "build    %s\nprogress step %lld: epoch %lld, %lld step%s into it; %s samples seen\n"
      "world    %d\nseed     %llu\n",
      escape_text(c.build).c_str(), static_cast<long long>(c.global_step),
      static_cast<long long>(c.epoch), static_cast<long long>(c.step_in_epoch),
      c.step_in_epoch == 1 ? "" : "s", with_commas(c.samples_seen).c_str(), c.world_size,
      static_cast<unsigned long long>(c.seed));
  for (const io::Section section :
       {io::Section::kParameter, io::Section::kBuffer, io::Section::kOptimizer,
        io::Section::kAveraging, io::Section::kRankState, io::Section::kAverage}) {
    std::int64_t arrays = 0, count = 0;
    for (const io::NamedArray& a : c.arrays)
      if (a.section == section) ++arrays, count += elements(a);
    if (arrays > 0)
      std::printf("%-10s %lld arrays, %s elements\n", io::to_string(section).c_str(),
                  static_cast<long long>(arrays), with_commas(count).c_str());
  }
  if (!c.tokenizer.empty())
    std::printf("tokenizer  tokenizer.json of %s bytes\n",
                with_commas(static_cast<std::int64_t>(c.tokenizer.size())).c_str());
  for (const auto& [name, value] : c.counters)
    std::printf("counter  %s = %s\n", escape_text(name).c_str(), counter_text(name, value).c_str());
  for (const io::SaveRecord& r : c.history) {
    std::printf("saved    step %lld at %s by %d rank%s, %s\n", static_cast<long long>(r.step),
                base::utc_seconds_text(r.unix_seconds).c_str(), r.world_size,
                r.world_size == 1 ? "" : "s", escape_text(r.build).c_str());
  }
}

// Escapes text for a --config file, in which $ begins an environment variable.
std::string for_a_file(const std::string& config) {
  std::string text;
  for (const char c : config) text += c == '$' ? std::string("$$") : std::string(1, c);
  return text;
}

void print_run(const RunRecord& run, const std::string& folder) {
  std::printf("run      %s in %s\nmodel    %s on %s: %s train, %s test, digest %s\n",
              escape_text(run.id).c_str(), escape_text(folder).c_str(),
              escape_text(run.model).c_str(), escape_text(run.data.name).c_str(),
              with_commas(run.data.train).c_str(), with_commas(run.data.test).c_str(),
              escape_text(run.data.digest).c_str());
  for (const RunStart& start : run.starts)
    std::printf(
        "started  %s at step %lld with %zu rank%s%s%s: %s\n", escape_text(start.time).c_str(),
        static_cast<long long>(start.step), start.hosts.size(), start.hosts.size() == 1 ? "" : "s",
        start.changed.empty() ? "" : "; changed: ",
        escape_text(base::join_text(start.changed)).c_str(), escape_text(start.command).c_str());
  if (const std::string best = io::find_best_checkpoint(folder); !best.empty())
    std::printf("best     %s\n", escape_text(best).c_str());
}

void print_tensors(const io::Checkpoint& c) {
  for (const io::NamedArray& a : c.arrays)
    std::printf("%-10s %-44s %-4s %-18s %s\n", io::to_string(a.section).c_str(),
                escape_text(a.name).c_str(), std::string(base::to_string(a.type)).c_str(),
                base::shape_text(a.shape).c_str(), escape_text(a.device).c_str());
}

void print_columns(const io::Checkpoint& c, const std::string& path) {
  const StatedCoding stated = stated_coding(c, path);
  if (!stated.coding || !stated.coding->table)
    throw io::DataError(path +
                        ": states no coding of a table's columns; expected a model of "
                        "--dataset csv");
  for (const std::string& column : column_descriptions(*stated.coding->table))
    print_output(column + "\n");
}

// Prints the order of an epoch's samples, as in the run that wrote this checkpoint.
void print_order(const io::Checkpoint& c, std::int64_t epoch) {
  ConfigValues config;
  apply_config_text(c.config, "the checkpoint's configuration", config);
  const auto shuffle = config.find("shuffle"), shard = config.find("shard");
  if (shard != config.end() && shard->second.value == "file")
    throw io::ConfigError(
        "--order shows an order of all samples, but this run had --shard file: each rank has its "
        "own part and order");
  if (const auto sampler = config.find("sampler");
      sampler != config.end() && sampler->second.value == "stratified")
    throw io::ConfigError(
        "--order needs the data set's classes for --sampler stratified, which a checkpoint does "
        "not contain");
  std::int64_t size = 0;
  for (const auto& [name, value] : c.counters)
    if (name == "trainer.dataset_size") size = value;
  constexpr std::int64_t kMaxSamples = std::int64_t{1} << 40;
  if (size < 0 || size > kMaxSamples)
    throw io::DataError("the checkpoint counts " + std::to_string(size) +
                        " samples; expected 0 to " + std::to_string(kMaxSamples));
  io::Sampler sampler({.size = size,
                       .seed = c.seed,
                       .shuffle = shuffle == config.end() || shuffle->second.value != "false"});
  sampler.set_epoch(epoch);
  for (const std::int64_t id : sampler.order()) std::printf("%lld\n", static_cast<long long>(id));
}

// The part of a checkpoint that the options select.
struct ShownParts {
  bool tensors = false, config = false, columns = false, check = false;
  std::int64_t order = -1;  // an epoch; below 0: none
};

// `with_model`: true if the run's model has not been printed.
void print_checkpoint(const io::Checkpoint& checkpoint, const ShownParts& shown,
                      const std::string& path, bool with_model) {
  if (shown.check) {
    std::printf("%s: intact, %zu arrays\n", escape_text(path).c_str(), checkpoint.arrays.size());
  } else if (shown.order >= 0) {
    print_order(checkpoint, shown.order);
  } else if (shown.columns) {
    print_columns(checkpoint, path);
  } else if (shown.config) {
    std::printf("%s", base::visible_lines(for_a_file(checkpoint.config)).c_str());
  } else {
    print_summary(checkpoint, with_model);
    if (shown.tensors) print_tensors(checkpoint);
  }
}

// Throws io::DataError for a checkpoint of the folder that is newer than the intact one that was
// found, and damaged.
void check_newer(const std::string& folder, std::int64_t step, const std::string& intact) {
  for (const std::string& name : io::checkpoint_names_after(folder, step)) {
    try {
      io::check_checkpoint((std::filesystem::path(folder) / name).string());
    } catch (const io::DataError& error) {
      throw io::DataError(std::string(error.what()) + "; the newest intact one is " +
                          std::filesystem::path(intact).filename().string());
    }
  }
}

}  // namespace

int inspect_command(const Arguments& arguments) {
  CLI::App app(
      "Shows the contents of a checkpoint (and verifies every digest), or what the ranks of a "
      "failed run were doing.",
      "engine inspect");
  std::string path, flight, format = "text";
  ShownParts shown;
  app.add_option("RUN|CKPT", path, "run's folder (its newest checkpoint) or a checkpoint");
  app.add_option("--flight", flight,
                 "merge the flight_rank_*.json files in DIR and show who waited for whom")
      ->type_name("DIR");
  app.add_option("--format", format, "with --flight: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_flag("--tensors", shown.tensors,
               "print a line per array: section, name, dtype, shape, device");
  app.add_flag("--config", shown.config, "print the resolved configuration as TOML");
  app.add_flag("--columns", shown.columns, "print the coding of each column of a table as JSON");
  app.add_flag("--check", shown.check, "only check whether the file is intact");
  app.add_option("--order", shown.order, "print the sample ids in the order of this epoch (from 0)")
      ->type_name("EPOCH")
      ->transform(whole_number(0, kMaxCount));
  if (!parse(app, arguments)) return kExitOk;
  if (flight.empty() == path.empty())
    throw UsageError("expected a checkpoint, or --flight DIR (engine inspect --help)");
  if (!flight.empty()) {
    const FlightReport report = merge_flight_records(read_flight_records(flight));
    const std::string text = format == "json" ? to_json(report) : to_text(report);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }
  if (format != "text")
    throw UsageError("--format json needs --flight; a checkpoint's contents are shown as text");
  const bool summary = !shown.check && !shown.config && !shown.columns && shown.order < 0;
  std::error_code unknown;
  std::optional<RunRecord> run;
  std::string fault;
  if (summary && std::filesystem::is_directory(path, unknown)) run = find_run_record(path, fault);
  if (!fault.empty()) print_notice(fault + "; shown without it");
  if (run) print_run(*run, path);
  const std::string given = path;
  const io::Checkpoint checkpoint =
      read_checkpoint(given, CheckpointChoice::kNewest, [&](const std::string& file) {
        path = file;
        return io::load_checkpoint(file);
      });
  print_checkpoint(checkpoint, shown, path, !run);
  if (shown.check && given != path) check_newer(given, checkpoint.global_step, path);
  return kExitOk;
}

}  // namespace tools
