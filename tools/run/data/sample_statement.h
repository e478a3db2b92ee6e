// Describes in a checkpoint the samples that its model takes, so that the model can be used without
// the run's data: their shape, the names of the classes, the normalization of images, the coding of
// a table's columns, and the number that a regression predicts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/checkpoint/checkpoint.h"
#include "io/data/dataset/sample_coding.h"
#include "tools/options/table/option_table.h"
#include "tools/run/data/session_data.h"

namespace tools {

// Returns JSON for Checkpoint::samples. "" if it would be too long to be part of every checkpoint
// (a column of text with very many values): then the data are needed as before.
std::string sample_statement(const io::DatasetSplits& splits, io::Normalization normalization);

struct InputSchema {
  io::DatasetSplits splits;                        // without samples; `coding` for tables
  std::optional<io::Normalization> normalization;  // of images; else none
};
// Throws io::DataError that names `source` for an invalid or inconsistent statement.
InputSchema read_sample_statement(const std::string& text, const std::string& source);

// Returns the coding of a checkpoint's samples, and its normalization of images. Null and empty: it
// states none. `path` names the checkpoint. Throws as above.
struct StatedCoding {
  std::shared_ptr<const io::SampleCoding> coding = {};
  std::optional<io::Normalization> normalization = {};
};
StatedCoding stated_coding(const io::Checkpoint& checkpoint, const std::string& path);
// The model determines the columns: throws io::ConfigError if the options `given` contain others
// than `saved`, those of its checkpoint at `path`. `remedy` ends the message.
void check_columns(const ConfigValues& given, const ConfigValues& saved, const std::string& path,
                   const std::string& remedy = "");
// Returns the coding of data that have been read, with their digest.
std::shared_ptr<const io::SampleCoding> coding_of(const io::DatasetSplits& splits,
                                                  const std::string& source);

}  // namespace tools
