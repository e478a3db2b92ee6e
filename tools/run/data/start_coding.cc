// Only rank 0 reads checkpoints; the others receive the statement as text.
#include "tools/run/data/start_coding.h"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/byte_source.h"
#include "tools/folder/run_reference.h"
#include "tools/options/table/run_config.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/data/sample_statement.h"

namespace tools {
namespace {

struct Start {
  std::string path;
  io::Checkpoint snapshot;  // its description
};

// Returns the newest checkpoint of the folder, from this run if that is known. Only its description
// is read, because all checkpoints of a run state the same coding.
std::optional<Start> newest_of(const std::string& folder, const std::string& run_id) {
  const std::string name = io::newest_checkpoint_name(folder);
  if (name.empty()) return std::nullopt;
  std::string path = (std::filesystem::path(folder) / name).string();
  try {
    io::Checkpoint snapshot = io::load_description(path);
    if (run_id.empty() || snapshot.run_id == run_id) return Start{path, std::move(snapshot)};
  } catch (const io::DataError&) {
    path.clear();  // damaged: an older one has the coding
  }
  path = io::find_newest_checkpoint(folder, nullptr, run_id);
  if (path.empty()) return std::nullopt;
  return Start{path, io::load_description(path)};
}

// The checkpoint manager reports problems of a checkpoint, and may use another one.
std::optional<Start> resumed_start(const KeepingOptions& keeping) {
  std::error_code unknown;
  try {
    if (!keeping.resume.is_wanted()) return std::nullopt;
    if (keeping.resume.is_automatic()) {
      if (keeping.directory.empty()) return std::nullopt;
      return newest_of(keeping.directory, keeping.run_id);
    }
    const std::string& path = keeping.resume.path;
    if (std::filesystem::is_directory(path, unknown)) return newest_of(path, "");
    return Start{path, io::load_description(path)};
  } catch (const io::DataError&) {
    return std::nullopt;
  }
}

std::optional<Start> initial_start(const KeepingOptions& keeping) {
  if (keeping.init_from.empty() || keeping.init_coding == InitCoding::kNone) return std::nullopt;
  return read_snapshot(keeping.init_from, Snapshot::kBest,
                       [](const std::string& file) -> std::optional<Start> {
                         if (!io::is_checkpoint(*io::open_bytes(file))) return std::nullopt;
                         return Start{file, io::load_description(file)};
                       });
}

// The model determines the columns: options must name the same ones, in the same words, or none.
void check_columns(const Start& start, const io::DatasetOptions& data) {
  if (start.snapshot.samples.empty()) return;
  ConfigValues saved;
  apply_config_text(start.snapshot.config, start.path, saved);
  const auto check = [&](const char* name, const std::string& given) {
    const std::string own = saved.contains(name) ? saved.at(name).value : "";
    if (!given.empty() && given != own)
      throw io::ConfigError("--" + std::string(name) + " is '" + given + "', but the model of " +
                            start.path + " was trained with " +
                            (own.empty() ? "all columns" : "'" + own + "'") +
                            ": leave it out, or give --init-coding none");
  };
  check("columns", data.csv.columns);
  check("ignore-columns", data.csv.ignored_columns);
}

}  // namespace

DataOptions with_start_coding(const SessionOptions& options, backends::Communicator& control) {
  const KeepingOptions& keeping = options.keeping;
  DataOptions data = options.data;
  if (data.given) return data;  // arrays of a program have no column names
  Start start;
  std::string inputs_only;
  engine::run_on_root(
      control,
      [&] {
        std::optional<Start> found = resumed_start(keeping);
        if (found && keeping.other_coding) return;
        if (!found) {
          found = initial_start(keeping);
          if (found) check_columns(*found, data.set);
          if (keeping.init_coding == InitCoding::kInputs) inputs_only = "yes";
        }
        if (found) start = *std::move(found);
      },
      exit_code_of);
  for (std::string* text : {&start.path, &start.snapshot.samples, &start.snapshot.vocabulary,
                            &start.snapshot.data_digest, &inputs_only})
    engine::broadcast_text(control, *text);
  StatedCoding stated = stated_coding(start.snapshot, start.path);
  if (!stated.coding) return data;
  auto coding = std::make_shared<io::SampleCoding>(*stated.coding);
  coding->inputs_only = !inputs_only.empty();
  data.set.coding = std::move(coding);
  if (!data.normalization) data.normalization = stated.normalization;
  return data;
}

std::shared_ptr<LoadedData> coded_alike(std::shared_ptr<LoadedData> before,
                                        const DataOptions& options) {
  if (!before || !options.set.coding) return before;
  const io::SampleCoding& coding = *options.set.coding;
  const auto text = [](const io::DatasetSplits& splits) {
    return sample_statement(splits, io::Normalization::kUnit) + splits.train.vocabulary();
  };
  io::DatasetSplits stated;
  stated.train = coding.like;
  stated.train.name = before->splits.train.name;
  stated.train.set_shape(before->splits.train.shape());  // it may differ for texts
  stated.coding = coding.table;
  return text(stated) == text(before->splits) ? before : nullptr;
}

}  // namespace tools
