// One file after the other.
#include "io/data/sources/inputs/sample_stream.h"

#include <filesystem>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/sources/csv/csv_coding.h"
#include "io/data/sources/images/image_folder.h"

namespace io {
namespace {

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

  std::unique_ptr<SampleStream> open(const std::string& path) const {
    const Dataset& like = splits_.train;
    if (like.kind == SampleKind::kFeatures) return open_table(path, *splits_.coding);
    return is_image_name(path) ? open_image(path, like) : open_packed_images(path, like);
  }

  const std::vector<std::string> files_;
  const DatasetSplits& splits_;
  std::size_t next_ = 0;
  std::unique_ptr<SampleStream> current_;
  std::vector<std::string> lines_;  // of the files before
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
    if (splits.train.kind != SampleKind::kImages)
      throw DataError(input + ": found a folder, expected a CSV file");
    FoundImages found = images_below(input);
    for (std::string& path : found.paths) files.push_back(std::move(path));
    if (left_out != nullptr && !found.left_out.empty())
      left_out->push_back(std::move(found.left_out));
  }
  return std::make_unique<FileSequence>(std::move(files), splits);
}

}  // namespace io
