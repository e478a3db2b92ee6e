// What a snapshot states of the samples that its model takes, so that the model can be used where
// the run's data are not: their shape, the names of the classes, how images are normalized and how
// a table's columns become numbers, and the number that a regression predicts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/checkpoint/checkpoint.h"
#include "io/data/dataset/sample_coding.h"
#include "tools/run/data/session_data.h"

namespace tools {

// As JSON, for Checkpoint::samples. "" where it would be too long to be part of every snapshot
// (a column of text with very many values): then the data are needed as before.
std::string sample_statement(const io::DatasetSplits& splits, io::Normalization normalization);

struct InputSchema {
  io::DatasetSplits splits;   // without samples; `coding` for tables
  std::string normalization;  // images: "unit" or "standard"; else ""
};
// Throws io::DataError, naming `source`: not such a statement, or one that contradicts itself.
InputSchema read_sample_statement(const std::string& text, const std::string& source);

// The coding of a snapshot's samples, and how it normalizes images. Null and nothing: it states
// none. `path` stands for the snapshot. Throws as above.
struct StatedCoding {
  std::shared_ptr<const io::SampleCoding> coding = {};
  std::optional<io::Normalization> normalization = {};
};
StatedCoding stated_coding(const io::Checkpoint& snapshot, const std::string& path);
// That of data that have been read; the digest is theirs.
std::shared_ptr<const io::SampleCoding> coding_of(const io::DatasetSplits& splits,
                                                  const std::string& source);

}  // namespace tools
