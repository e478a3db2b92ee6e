// A folder of data files that a test writes, what is read from it, and what is said of damage.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/sources/dataset_registry.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace dataset_fixture {

class DatasetFiles : public ::testing::Test {
 protected:
  explicit DatasetFiles(const std::string& name) {
    options_.name = name;
    options_.directory = folder_.path().string();
  }

  void write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    test_support::write_text(folder_ / name, content);
  }
  void remove(const std::string& name) { std::filesystem::remove(folder_ / name); }
  std::string read(const std::string& name) { return test_support::read_text(folder_ / name); }

  io::DatasetSplits load() { return io::load_dataset(options_); }
  io::DatasetSplits load(const std::string& name) {
    options_.name = name;
    return load();
  }

  // The one line that loading says.
  template <class ErrorType = io::DataError>
  std::string complaint() {
    const std::string text = test_support::error_of<ErrorType>([&] { load(); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  // That it has all of `parts`.
  template <class ErrorType = io::DataError>
  void expect_complaint(const std::vector<std::string>& parts) {
    const std::string text = complaint<ErrorType>();
    for (const std::string& part : parts) EXPECT_VALUES(text, part);
  }
  template <class ErrorType = io::DataError>
  void expect_complaint(const std::string& name, const std::vector<std::string>& parts) {
    options_.name = name;
    expect_complaint<ErrorType>(parts);
  }

  test_support::TemporaryDirectory folder_;
  io::DatasetOptions options_;
};

// The table set.csv.
class CsvFile : public DatasetFiles {
 protected:
  CsvFile() : DatasetFiles("csv") {}

  io::DatasetSplits load(const std::string& text) {
    write("set.csv", text);
    return DatasetFiles::load();
  }
  template <class ErrorType = io::DataError>
  void expect_complaint(const std::string& text, const std::vector<std::string>& parts) {
    write("set.csv", text);
    DatasetFiles::expect_complaint<ErrorType>(parts);
  }
};

}  // namespace dataset_fixture
