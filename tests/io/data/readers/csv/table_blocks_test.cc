// The separator of files that a trained model reads, and the beginning of pipes.
#include "io/data/readers/csv/table_blocks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include "io/base/files/io_error.h"
#include "io/data/readers/csv/table_inputs.h"
#include "io/data/sources/dataset_registry.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

class TableBlocksTest : public ::testing::Test {
 protected:
  CsvCoding coding(const std::string& text, const std::string& separator = "auto") const {
    DatasetOptions options;
    options.name = "csv";
    test_support::write_text(folder_ / "train.csv", text);
    options.csv.annotations = folder_ / "train.csv";
    options.csv.separator = separator;
    options.csv.test_share = 0;
    options.task = Task::kRegression;
    return *load_dataset(options).coding;
  }
  // Returns the features of a later file, as they are written, one after the other.
  std::vector<double> features(const CsvCoding& coding, const std::string& text) const {
    test_support::write_text(folder_ / "new.csv", text);
    return values(coding, folder_ / "new.csv");
  }
  static std::vector<double> values(const CsvCoding& coding, const std::string& path) {
    SampleBlock block;
    open_table(path, coding)->fill(1000, Wanted::kSamples, block);
    std::vector<double> found;
    for (const float value : std::get<FeatureSamples>(block.samples).values) {
      const CsvColumn& column = coding.columns[0];
      const double number = static_cast<double>(value) * column.deviation + column.mean;
      found.push_back(std::round(number * 1000) / 1000);
    }
    return found;
  }

  const test_support::TemporaryDirectory folder_;
};

using Features = std::vector<double>;
using Texts = std::vector<std::string>;

// One column of numbers and a target, with decimal commas.
const char* const kCommas = "x;y\n1,5;3,1\n2,5;5,0\n3,5;7,2\n4,25;8,0\n";
std::string without_header(const std::string& text) { return text.substr(text.find('\n') + 1); }

TEST_F(TableBlocksTest, DecimalCommasOfAnOnlyColumnAreNotSeparators) {
  for (const char* separator : {"auto", ";"}) {
    const CsvCoding named = coding(kCommas, separator),
                    unnamed = coding(without_header(kCommas), separator);
    const Features expected{1.5, 2.5, 3.75};
    EXPECT_EQ(features(named, "x\n1,5\n2,5\n3,75\n"), expected);
    EXPECT_EQ(features(named, "\xEF\xBB\xBFx\r\n1,5\r\n2,5\r\n3,75\r\n"), expected);
    EXPECT_EQ(features(unnamed, "1,5\n2,5\n3,75\n"), expected);
    EXPECT_EQ(features(unnamed, "1,5\n"), Features{1.5});
    // Missing values do not decide.
    EXPECT_EQ(features(named, "x\n1,5\nNA\n2,5\n")[2], 2.5);
    // Other files are as before.
    EXPECT_EQ(features(named, "x;y\n1,5;3,1\n2,5;5,0\n"), (Features{1.5, 2.5}));
    EXPECT_EQ(features(named, "x,y\n\"1,5\",\"3,1\"\n\"2,5\",5\n"), (Features{1.5, 2.5}));
    EXPECT_EQ(features(unnamed, "1,5;3,1\n2,5;5,0\n"), (Features{1.5, 2.5}));
    // R's index, which has no name.
    EXPECT_EQ(features(named, "x\n1;1,5\n2;2,5\n"), (Features{1.5, 2.5}));
    EXPECT_EQ(features(named, "sep=,\nx\n1,5\n2,7\n"), (Features{5, 7}));
  }
}

TEST_F(TableBlocksTest, ACellThatIsNoNumberIsNamedAlsoInAnOnlyColumn) {
  EXPECT_THROW(features(coding(kCommas), "x\n1,5\n2,5\n1.5,2\n"), DataError);
}

TEST_F(TableBlocksTest, DecimalCommasAreReadWithoutAKnownSeparator) {
  CsvCoding earlier = coding(kCommas);
  earlier.found_separator = 0;  // as in checkpoints of earlier versions
  EXPECT_EQ(features(earlier, "x\n1,5\n2,5\n"), (Features{1.5, 2.5}));
  const CsvCoding quoted = coding("x,y\n\"1,5\",\"3,1\"\n\"2,5\",\"5,0\"\n\"3,5\",\"7,2\"\n");
  EXPECT_EQ(features(quoted, "x\n\"1,5\"\n\"2,5\"\n"), (Features{1.5, 2.5}));
  EXPECT_EQ(features(quoted, "x\n1,5\n2,5\n"), (Features{1.5, 2.5}));
}

TEST_F(TableBlocksTest, TheIndexOfRIsLeftOutIfNumbersHaveDecimalPoints) {
  const CsvCoding points = coding("x,y\n1.5,3.1\n2.5,5.0\n3.5,7.2\n4.25,8.0\n");
  EXPECT_EQ(features(points, "x\n1,1.5\n2,2.5\n"), (Features{1.5, 2.5}));
  const CsvCoding others = coding("x;y\n1.5;3.1\n2.5;5.0\n3.5;7.2\n4.25;8.0\n");
  EXPECT_EQ(features(others, "x\n1,1.5\n2,2.5\n"), (Features{1.5, 2.5}));
}

TEST_F(TableBlocksTest, CommasWithinTheTextsOfAnOnlyColumnAreNotSeparators) {
  std::string text = "colour;y\n";
  for (int i = 0; i < 12; ++i)
    text += (i % 2 == 0 ? "red, dark;" : "blue, light;") + std::to_string(i) + "\n";
  const CsvCoding texts = coding(text);
  ASSERT_EQ(texts.columns[0].categories.size(), 2u);
  EXPECT_EQ(features(texts, "colour\nred, dark\nblue, light\n"), (Features{0, 1, 1, 0}));
}

// Writes each part after the reader has taken the one before.
void write_in_parts(int descriptor, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    ASSERT_EQ(write(descriptor, part.data(), part.size()), std::ssize(part));
    for (int left = 1; left > 0; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      ASSERT_EQ(ioctl(descriptor, FIONREAD, &left), 0);
  }
  close(descriptor);
}

TEST_F(TableBlocksTest, AShortHeaderOfAPipeDoesNotDependOnTheTimeOfItsRows) {
  CsvCoding fixed = coding("length,y\n1.5,3.1\n2.5,5.0\n3.5,7.2\n4.25,8.0\n", ",");
  fixed.separator_is_fixed = true;
  for (const Texts& parts :
       {Texts{"length\n", "1,1.5\n", "2,2.5\n", "3,3.5\n"},
        Texts{"sep=,\r\n\r\n", "length\r\n", "1,1.5\r\n", " \r\n", "2,2.5\r\n3,3.5"},
        Texts{"length\n1,1.5\n", "2,2.5\n3,3.5\n"}}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    std::thread writer([&] { write_in_parts(ends[1], parts); });
    EXPECT_EQ(values(fixed, "/dev/fd/" + std::to_string(ends[0])), (Features{1.5, 2.5, 3.5}));
    writer.join();
    close(ends[0]);
  }
}

}  // namespace
}  // namespace io
