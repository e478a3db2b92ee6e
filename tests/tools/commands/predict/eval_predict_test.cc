// engine eval and engine predict agree on every file, whatever it is and however many ranks read
// it: random tables, folders of images and texts, beside the data of the run and unlike them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/io/data/images/png_bytes.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/predict/eval_support.h"

namespace {

using eval_support::evaluate;
using eval_support::Json;
using eval_support::predict;
using eval_support::Words;
using test_support::write_text;
namespace fs = std::filesystem;

// Cases of each kind, each from a seed of its own: a few, or as many as ENGINE_CODING_CASES says.
int cases(int few) {
  const char* given = std::getenv("ENGINE_CODING_CASES");
  return given != nullptr ? std::atoi(given) : few;
}

class Random {
 public:
  explicit Random(int seed) : engine_(static_cast<std::uint64_t>(seed)) {}
  int below(int end) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(end)); }
  bool chance(int percent) { return below(100) < percent; }
  double real() { return static_cast<double>(engine_() % 2000001) / 1000000 - 1; }

 private:
  std::mt19937_64 engine_;
};

// ---- tables

struct Column {
  std::string name;
  int values = 0;  // of text; 0: numbers
  double scale = 1, shift = 0;
  int missing = 0;  // per cent
};

struct Table {
  std::vector<Column> columns;
  int classes = 0;  // 0: a number is predicted
  bool header = true;
};

std::string cell(const Column& column, bool foreign, Random& random) {
  if (random.chance(column.missing)) return random.chance(50) ? "" : "NA";
  if (column.values == 0)
    return std::to_string(random.real() * column.scale + column.shift + (foreign ? 3 : 0));
  const int value = random.below(column.values + (foreign ? 2 : 0));
  return column.name + "-" + std::string(1, static_cast<char>('a' + value % 26)) +
         std::to_string(value / 26);
}

std::string answer(const Table& table, double score, bool foreign, Random& random) {
  if (table.classes == 0) return std::to_string(score * 10 + 200 + (foreign ? 50 : 0));
  if (foreign && random.chance(10)) return "unheard of";
  const int label = static_cast<int>((score + 2) / 4 * table.classes) + (random.chance(20) ? 1 : 0);
  return "class " + std::to_string(std::clamp(label, 0, table.classes - 1));
}

Table draw_table(Random& random) {
  Table table;
  table.header = random.chance(75);
  table.classes = random.chance(60) ? 2 + random.below(4) : 0;
  const int columns = 1 + random.below(4);
  for (int c = 0; c < columns; ++c) {
    Column column{.name = "col" + std::to_string(c)};
    if (c > 0 && random.chance(40))
      column.values = random.chance(70) ? 2 + random.below(8) : 30;
    else
      column.scale = std::pow(10, random.below(5) - 1);
    column.shift = random.chance(30) ? 1000 : 0;
    column.missing = c > 0 && random.chance(30) ? 15 : 0;
    table.columns.push_back(column);
  }
  return table;
}

struct Written {
  std::string text;
  Words answers;
};

// The label is last, or with a header of a foreign table anywhere; so are columns, and others.
Written write_table(const Table& table, int rows, bool foreign, Random& random) {
  std::vector<std::size_t> places;  // past the columns: the answer, then a column of no use
  for (std::size_t c = 0; c <= table.columns.size(); ++c) places.push_back(c);
  if (foreign && table.header) {
    if (random.chance(50)) places.push_back(places.size());
    for (std::size_t i = places.size(); i > 1; --i)
      std::swap(places[i - 1], places[static_cast<std::size_t>(random.below(static_cast<int>(i)))]);
  }
  const auto line = [&](const auto& field) {
    std::string text;
    for (std::size_t i = 0; i < places.size(); ++i) text += (i > 0 ? "," : "") + field(places[i]);
    return text + "\n";
  };
  const std::size_t last = table.columns.size();
  Written written;
  if (table.header)
    written.text = line([&](std::size_t c) -> std::string {
      return c < last ? table.columns[c].name : c == last ? "answer" : "unused";
    });
  for (int row = 0; row < rows; ++row) {
    const double score = random.real() + random.real();
    Words cells;
    for (const Column& column : table.columns) cells.push_back(cell(column, foreign, random));
    // The first column knows something of the answer.
    const Column& first = table.columns[0];
    cells[0] = std::to_string(score * first.scale + first.shift + (foreign ? 1 : 0));
    written.answers.push_back(answer(table, score, foreign, random));
    written.text += line([&](std::size_t c) -> std::string {
      return c < last ? cells[c] : c == last ? written.answers.back() : "x";
    });
  }
  return written;
}

// `known`: the classes of the run's data.
void expect_equal_classes(const Json& eval, const std::vector<Json>& lines, const Words& answers,
                          const std::set<std::string>& known) {
  ASSERT_EQ(lines.size(), answers.size());
  int correct = 0, unknown = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    correct += lines[i]["prediction"] == answers[i];
    unknown += !known.contains(answers[i]);
  }
  EXPECT_EQ(eval["samples"], answers.size());
  EXPECT_EQ(eval["correct"], correct);
  EXPECT_EQ(eval.value("unknown", 0), unknown);
}

void expect_equal_numbers(const Json& eval, const std::vector<Json>& lines, const Words& answers) {
  ASSERT_EQ(lines.size(), answers.size());
  double squares = 0, distances = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double error = lines[i]["prediction"].get<double>() - std::stod(answers[i]);
    squares += error * error;
    distances += std::abs(error);
  }
  const auto rows = static_cast<double>(answers.size());
  EXPECT_EQ(eval["samples"], answers.size());
  EXPECT_NEAR(eval["mse"].get<double>(), squares / rows, 1e-4 * (1 + squares / rows));
  EXPECT_NEAR(eval["mae"].get<double>(), distances / rows, 1e-4 * (1 + distances / rows));
}

TEST(EvalAndPredict, AgreeOnRandomTables) {
  const int count = cases(4);
  for (int seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("table of seed " + std::to_string(seed));
    const test_support::TemporaryDirectory folder;
    Random random(seed);
    const Table table = draw_table(random);
    const int ranks = 1 + seed % 3;
    const Written own = write_table(table, 60 + random.below(80), false, random);
    const std::set<std::string> known(own.answers.begin(), own.answers.end());
    write_text(folder / "train.csv", own.text);
    const std::string run = eval_support::train(
        folder / "run", {"--dataset", "csv", "--annotations", folder / "train.csv", "--task",
                         table.classes > 0 ? "classification" : "regression", "--lr", "0.05"});
    if (testing::Test::HasFailure()) return;
    for (const bool foreign : {true, true, false}) {
      const Written other = write_table(table, 1 + random.below(90), foreign, random);
      const std::string file = folder / "other.csv";
      write_text(file, other.text);
      const Json eval =
          evaluate(run, {"--annotations", file, "--spawn", std::to_string(ranks)}).report;
      const std::vector<Json> lines = predict(run, {file}, ranks);
      if (table.classes > 0)
        expect_equal_classes(eval, lines, other.answers, known);
      else
        expect_equal_numbers(eval, lines, other.answers);
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << other.text;
        return;
      }
    }
  }
}

// ---- images

#ifdef HAS_PNG
void write_image(const std::string& path, int label, Random& random) {
  fs::create_directories(fs::path(path).parent_path());
  const auto shade = [&](bool bright) {
    return static_cast<std::uint8_t>((bright ? 150 : 30) + random.below(80));
  };
  write_text(path,
             test_support::plain_png(static_cast<std::uint32_t>(8 + random.below(12)),
                                     static_cast<std::uint32_t>(8 + random.below(12)),
                                     shade(label == 0), shade(label == 1), shade(label == 2)));
}

TEST(EvalAndPredict, AgreeOnRandomFoldersOfImages) {
  const int count = cases(2);
  for (int seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("folder of seed " + std::to_string(seed));
    const test_support::TemporaryDirectory folder;
    Random random(seed);
    const int classes = 2 + random.below(3), ranks = 1 + (seed + 1) % 3;
    std::set<std::string> known;
    for (int c = 0; c < classes; ++c) known.insert("class" + std::to_string(c));
    for (int c = 0; c < classes; ++c)
      for (const char* part : {"train", "val"})
        for (int i = 0; i < 6; ++i)
          write_image(folder / ("data/" + std::string(part) + "/class" + std::to_string(c) + "/" +
                                std::to_string(i) + ".png"),
                      c, random);
    const std::string run =
        eval_support::train(folder / "run", {"--dataset", "images", "--data-dir", folder / "data",
                                             "--image-size", "8", "--epochs", "4", "--lr", "0.02"});
    if (testing::Test::HasFailure()) return;
    // Some of the classes and others, as DIR/CLASS or DIR/val/CLASS.
    const std::string other = folder / "other", held = random.chance(50) ? other : other + "/val";
    int images = 0;
    for (int c = 0; c < classes + 1; ++c) {
      if (c > 0 && random.chance(30)) continue;
      const std::string name = c == classes ? "unheard of" : "class" + std::to_string(c);
      const int here = 1 + random.below(8);
      for (int i = 0; i < here; ++i, ++images)
        write_image(held + "/" + name + "/" + std::to_string(i) + ".png", c, random);
    }
    const Json eval = evaluate(run, {"--data-dir", other, "--spawn", std::to_string(ranks)}).report;
    const std::vector<Json> lines = predict(run, {held}, ranks);
    Words answers;
    for (const Json& line : lines)
      answers.push_back(fs::path(line["input"].get<std::string>()).parent_path().filename());
    ASSERT_EQ(static_cast<int>(lines.size()), images);
    expect_equal_classes(eval, lines, answers, known);
    if (testing::Test::HasFailure()) return;
  }
}
#endif

// ---- texts

std::string draw_text(int length, int letters, Random& random) {
  std::string text;
  for (int i = 0; i < length; ++i)
    text += static_cast<char>('a' + (random.chance(70) && i > 0 ? (text.back() - 'a' + 1) % letters
                                                                : random.below(letters)));
  return text;
}

// With characters in between that the model lacks.
std::string with_unknown(const std::string& text, bool unknown, Random& random) {
  std::string result;
  for (const char c : text) {
    if (unknown && random.chance(15)) result += random.chance(50) ? "Z" : "\xC3";
    result += c;
  }
  return result;
}

TEST(EvalAndPredict, AgreeOnRandomTexts) {
  constexpr int kContext = 6;
  const int count = cases(2);
  for (int seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("text of seed " + std::to_string(seed));
    const test_support::TemporaryDirectory folder;
    Random random(seed);
    const int letters = 2 + random.below(8), ranks = 1 + (seed + 2) % 3;
    write_text(folder / "train.txt", draw_text(200, letters, random));
    const std::string run =
        eval_support::train(folder / "run", {"--model", "gpt-nano", "--dataset", "text",
                                             "--data-dir", folder / "train.txt", "--context",
                                             std::to_string(kContext), "--lr", "0.1"});
    if (testing::Test::HasFailure()) return;
    const bool unknown = random.chance(60);
    const int windows = 1 + random.below(3);
    const std::string text = draw_text(windows * kContext + 1, letters, random);
    write_text(folder / "other.txt", with_unknown(text, unknown, random));
    const Json eval =
        evaluate(run, {"--data-dir", folder / "other.txt", "--spawn", std::to_string(ranks)})
            .report;
    // Each beginning of each window: what follows it is what eval asks for.
    Words beginnings, following;
    fs::create_directories(folder / "beginnings");
    for (std::size_t at = 0; at + 1 < text.size(); ++at) {
      const std::size_t from = at / kContext * kContext;
      beginnings.push_back(folder / ("beginnings/" + std::to_string(at)));
      write_text(beginnings.back(),
                 with_unknown(text.substr(from, at + 1 - from), unknown, random));
      following.push_back(text.substr(at + 1, 1));
    }
    const std::vector<Json> lines = predict(run, beginnings, ranks);
    ASSERT_EQ(lines.size(), following.size());
    int correct = 0;
    for (std::size_t i = 0; i < lines.size(); ++i)
      correct += lines[i]["prediction"] == following[i];
    EXPECT_EQ(eval.value("rows", 0), static_cast<int>(following.size()));
    EXPECT_EQ(eval["correct"], correct);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
