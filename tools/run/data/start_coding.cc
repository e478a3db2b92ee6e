// Only rank 0 reads checkpoints; the others receive the statement as text.
#include "tools/run/data/start_coding.h"

#include <optional>
#include <string>
#include <utility>

#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/byte_source.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/readers/csv/csv_coding.h"
#include "tools/folder/resume_source.h"
#include "tools/folder/run_reference.h"
#include "tools/options/table/run_config.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/data/sample_statement.h"

namespace tools {
namespace {

using Start = io::DescribedCheckpoint;

// The checkpoint manager reports problems of a checkpoint, and may use another one. All checkpoints
// of a run state the same coding.
std::optional<Start> resumed_start(const KeepingOptions& keeping) {
  try {
    return resume_source(keeping.resume, keeping.directory, keeping.run_id);
  } catch (const io::DataError&) {
    return std::nullopt;
  }
}

void check_start_columns(const Start& start, const io::CsvOptions& given) {
  if (start.description.samples.empty()) return;
  ConfigValues values;
  if (!given.columns.empty()) values["columns"].value = given.columns;
  if (!given.ignored_columns.empty()) values["ignore-columns"].value = given.ignored_columns;
  check_columns(values, options_in(start.description, start.path), start.path,
                ", or give --init-coding none");
}

// Returns the options for reading tables that differ from those of the resumed run. Its label is
// that of its coding.
io::CsvOptions::Given changed_reading(const Start& start, const io::CsvOptions& now) {
  const ConfigValues saved = options_in(start.description, start.path);
  RunConfig run;
  for (const char* name : {"separator", "csv-decimal", "csv-missing", "csv-header"})
    if (const auto found = saved.find(name); found != saved.end() && !found->second.value.empty())
      static_cast<void>(find_option(name)->field.store(run, found->second.value));
  const io::CsvOptions& before = run.data.set.csv;
  return {.separator = now.separator != before.separator,
          .decimal = now.decimal != before.decimal,
          .missing = now.missing != before.missing,
          .header = now.header != before.header};
}

// The flags as text, for the other ranks.
std::string given_text(const io::CsvOptions::Given& given) {
  std::string text;
  for (const bool flag : {given.separator, given.decimal, given.missing, given.header, given.label})
    text += flag ? '1' : '0';
  return text;
}
io::CsvOptions::Given parse_given(const std::string& text) {
  return {.separator = text.at(0) == '1',
          .decimal = text.at(1) == '1',
          .missing = text.at(2) == '1',
          .header = text.at(3) == '1',
          .label = text.at(4) == '1'};
}

std::optional<Start> initial_start(const KeepingOptions& keeping) {
  if (keeping.init_from.empty() || keeping.init_coding == InitCoding::kNone) return std::nullopt;
  return read_checkpoint(keeping.init_from, CheckpointChoice::kBest,
                         [](const std::string& file) -> std::optional<Start> {
                           if (!io::is_checkpoint(*io::open_bytes(file))) return std::nullopt;
                           return Start{file, io::load_description(file)};
                         });
}

}  // namespace

DataOptions with_start_coding(const SessionOptions& options, backends::Communicator& control) {
  const KeepingOptions& keeping = options.keeping;
  DataOptions data = options.data;
  if (data.given) return data;  // arrays of a program have no column names
  Start start;
  std::string inputs_only, reading = given_text({});
  engine::run_on_root(
      control,
      [&] {
        std::optional<Start> found = resumed_start(keeping);
        if (found && keeping.other_coding) return;
        reading = given_text(found ? changed_reading(*found, data.set.csv) : data.set.csv.given);
        if (!found) {
          found = initial_start(keeping);
          if (found) check_start_columns(*found, data.set.csv);
          if (keeping.init_coding == InitCoding::kInputs) inputs_only = "yes";
        }
        if (found) start = *std::move(found);
      },
      exit_code_of);
  for (std::string* text : {&start.path, &start.description.samples, &start.description.vocabulary,
                            &start.description.data_digest, &inputs_only, &reading})
    engine::broadcast_text(control, *text);
  StatedCoding stated = stated_coding(start.description, start.path);
  if (!stated.coding) return data;
  auto coding = std::make_shared<io::SampleCoding>(*stated.coding);
  coding->inputs_only = !inputs_only.empty();
  data.set.csv.given = parse_given(reading);
  data.set.coding = io::reading_with(std::move(coding), data.set.csv);
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
