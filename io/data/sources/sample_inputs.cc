// Reads one file after the other, each with the reader for the model's kind of samples.
#include "io/data/sources/sample_inputs.h"

#include <filesystem>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/readers/arrays/array_inputs.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/readers/csv/table_inputs.h"
#include "io/data/readers/image_files/image_folder.h"
#include "io/data/readers/image_files/image_inputs.h"

namespace io {
namespace {

using Stream = std::unique_ptr<SampleStream>;

// The reader of each kind. `coding` is that of a table; null for others.
Stream open_file(const std::string& path, const ImageSamples& like, const CsvCoding*) {
  return open_images(path, like);
}
Stream open_file(const std::string& path, const FeatureSamples&, const CsvCoding* coding) {
  if (coding == nullptr)
    throw DataError(path + ": the model's samples were no rows of a table, whose columns it knows");
  return open_table(path, *coding);
}
Stream open_file(const std::string& path, const ArraySamples& like, const CsvCoding*) {
  return open_array_samples(path, like);
}
template <class Kind>
Stream open_file(const std::string& path, const Kind& like, const CsvCoding*) {
  throw DataError(path + ": samples that are " + like.kTraits.noun + " are not read one by one");
}

// Returns the files of a folder that are opened, with a line for the user if others are left out.
FoundImages files_of_folder(const std::string& folder, const ImageSamples&) {
  return images_below(folder);
}
FoundImages files_of_folder(const std::string& folder, const ArraySamples&) {
  throw DataError(folder +
                  ": found a folder, expected an .npz file with the array x, or a .npy file");
}
template <class Kind>
FoundImages files_of_folder(const std::string& folder, const Kind&) {
  throw DataError(folder + ": found a folder, expected a CSV file");
}

class FileSequence : public SampleStream {
 public:
  FileSequence(std::vector<std::string> files, const DatasetSplits& splits)
      : files_(std::move(files)), splits_(splits) {}

  void fill(std::int64_t most, Wanted wanted, SampleBlock& block) override {
    while (block.count() < most) {
      if (!current_) {
        if (next_ == files_.size()) return;
        current_ = open(files_[next_++]);
      }
      current_->fill(most, wanted, block);
      if (block.count() == most) return;
      append_unknown(lines_);
      current_.reset();
    }
  }

  std::vector<std::string> unknown() const override {
    std::vector<std::string> lines = lines_;
    append_unknown(lines);
    return lines;
  }

 private:
  void append_unknown(std::vector<std::string>& lines) const {
    if (!current_) return;
    for (std::string& line : current_->unknown()) lines.push_back(std::move(line));
  }

  Stream open(const std::string& path) const {
    return std::visit([&](const auto& like) { return open_file(path, like, splits_.coding.get()); },
                      splits_.train.samples);
  }

  const std::vector<std::string> files_;
  const DatasetSplits& splits_;
  std::size_t next_ = 0;
  Stream current_;
  std::vector<std::string> lines_;  // lines about the previous files
};

}  // namespace

std::unique_ptr<SampleStream> open_samples(const std::vector<std::string>& inputs,
                                           const DatasetSplits& splits,
                                           std::vector<std::string>* left_out) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    std::error_code unknown;
    if (!fs::exists(input, unknown))
      throw MissingFileError("cannot open " + input + ": no such file or folder");
    if (!fs::is_directory(input, unknown)) {
      files.push_back(input);
      continue;
    }
    FoundImages found = std::visit([&](const auto& like) { return files_of_folder(input, like); },
                                   splits.train.samples);
    for (std::string& path : found.paths) files.push_back(std::move(path));
    if (left_out != nullptr && !found.left_out.empty())
      left_out->push_back(std::move(found.left_out));
  }
  return std::make_unique<FileSequence>(std::move(files), splits);
}

}  // namespace io
