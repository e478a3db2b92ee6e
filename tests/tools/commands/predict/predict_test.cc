// engine predict beside engine eval: the same answers on the same samples, and what eval says of
// classes computed again from them.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/io/data/images/png_bytes.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"

namespace {

using program::expect_error;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::write_text;
using tools::Json;

std::vector<Json> predict_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(tools::parse_json(line, "line"));
  return lines;
}

Json evaluated(const std::string& run, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"eval", run, "--format", "json", "--threads", "1"});
  const CommandResult result = expect_success(engine(more));
  return tools::parse_json(result.out, "eval");
}

// The predictions, without the line about classes.
std::vector<Json> predicted(const std::string& run, std::vector<std::string> more) {
  more.insert(more.begin(), {"predict", run});
  more.insert(more.end(), {"--format", "json", "--threads", "1"});
  const CommandResult result = expect_success(engine(more));
  std::vector<Json> lines = predict_lines(result.out);
  if (!lines.empty()) lines.erase(lines.begin());
  return lines;
}

std::string idx_word(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

constexpr int kIdxImages = 150;  // more than two batches, the last of them not full

int idx_label(int i) { return (i * 7 + i / 10) % 10; }

// Images whose first pixels tell the label, but not always the right one.
void write_idx(const std::string& folder, const std::string& part) {
  std::string images = idx_word(0x803) + idx_word(kIdxImages) + idx_word(28) + idx_word(28);
  std::string labels = idx_word(0x801) + idx_word(kIdxImages);
  for (int i = 0; i < kIdxImages; ++i) {
    const int label = idx_label(i), shown = i % 4 == 0 ? (label + 1) % 10 : label;
    std::string image(784, '\x10');
    image.replace(78 * static_cast<std::size_t>(shown), 60, 60, '\xF0');
    image[static_cast<std::size_t>(i)] = '\x80';
    images += image;
    labels += static_cast<char>(label);
  }
  write_text(folder + "/" + part + "-images-idx3-ubyte", images);
  write_text(folder + "/" + part + "-labels-idx1-ubyte", labels);
}

class Predictions : public ::testing::Test {
 protected:
  std::string run() { return folder_ / "run"; }
  void train(std::vector<std::string> more, const std::string& model = "mlp") {
    more.insert(more.begin(), {"train", "--model", model, "--batch-size", "10", "--threads", "1",
                               "--save-dir", run()});
    expect_success(engine(more));
  }
  void train_on_idx(std::vector<std::string> more = {}) {
    write_idx(folder_.path().string(), "train");
    write_idx(folder_.path().string(), "t10k");
    more.insert(more.end(), {"--dataset", "mnist", "--data-dir", folder_.path().string(),
                             "--epochs", "2", "--lr", "0.02"});
    train(more);
  }
  // Makes of a checkpoint one that does not state what its samples are.
  static void forget_samples(const std::string& path) {
    io::Checkpoint checkpoint = io::load_checkpoint(path);
    ASSERT_FALSE(checkpoint.samples.empty());
    checkpoint.samples.clear();
    io::save_checkpoint(checkpoint, path);
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(Predictions, OfIdxImagesAreThoseOfEvalAndEvalsClassesFollowFromThem) {
  train_on_idx();
  const Json eval = evaluated(run());
  const std::vector<Json> lines = predicted(run(), {folder_ / "t10k-images-idx3-ubyte"});
  ASSERT_EQ(lines.size(), std::size_t{kIdxImages});
  std::array<std::array<int, 10>, 10> confusion{};
  struct Bin {
    int rows = 0, right = 0;
    double confidence = 0;
  };
  std::map<int, Bin> bins;
  int correct = 0;
  for (int i = 0; i < kIdxImages; ++i) {
    const Json& line = lines[static_cast<std::size_t>(i)];
    EXPECT_EQ(line["sample"], i + 1);
    const int said = line["class"].get<int>(), label = idx_label(i);
    EXPECT_EQ(line["prediction"], std::to_string(said));
    ++confusion[static_cast<std::size_t>(label)][static_cast<std::size_t>(said)];
    correct += said == label;
    const double confidence = line["probability"].get<double>();
    Bin& bin = bins[static_cast<int>(std::ceil(confidence * 15))];
    ++bin.rows;
    bin.right += said == label;
    bin.confidence += confidence;
  }
  EXPECT_EQ(eval["correct"], correct);
  EXPECT_GT(correct, 30);  // neither all right nor none: the numbers below have something to
  EXPECT_LT(correct, kIdxImages);  // tell
  EXPECT_EQ(eval["confusion"], Json(confusion));
  double calibration = 0, macro = 0;
  for (const auto& [place, bin] : bins) calibration += std::abs(bin.right - bin.confidence);
  EXPECT_NEAR(eval["calibration_error"].get<double>(), calibration / kIdxImages, 1e-6);
  int present = 0;
  for (std::size_t c = 0; c < 10; ++c) {
    int labelled = 0, said = 0;
    for (std::size_t other = 0; other < 10; ++other) {
      labelled += confusion[c][other];
      said += confusion[other][c];
    }
    const double right = confusion[c][c], precision = said == 0 ? 0 : right / said,
                 recall = right / labelled,
                 f1 = right == 0 ? 0 : 2 * precision * recall / (precision + recall);
    const Json& row = eval["classes"][c];
    EXPECT_EQ(row["support"], labelled);
    EXPECT_NEAR(row["precision"].get<double>(), precision, 1e-12);
    EXPECT_NEAR(row["recall"].get<double>(), recall, 1e-12);
    EXPECT_NEAR(row["f1"].get<double>(), f1, 1e-12);
    macro += f1;
    ++present;
  }
  EXPECT_NEAR(eval["macro"]["f1"].get<double>(), macro / present, 1e-12);
  EXPECT_EQ(evaluated(run(), {"--spawn", "3", "--backend", "inproc"}), eval);  // to the last bit
}

TEST_F(Predictions, EvalShowsClassesAndWritesTheConfusionMatrix) {
  train_on_idx();
  const CommandResult text = expect_success(call("eval", run(), "--confusion", folder_ / "c.csv"));
  program::expect_words(text.out, {"class  precision", "mean of classes: precision",
                                   "expected calibration error: 0.", "confusion matrix:"});
  const Json eval = evaluated(run());
  std::istringstream matrix(test_support::read_text(folder_ / "c.csv"));
  std::string line;
  std::getline(matrix, line);
  EXPECT_EQ(line, "label,0,1,2,3,4,5,6,7,8,9");
  for (int c = 0; c < 10; ++c) {
    std::string expected = std::to_string(c);
    for (const Json& count : eval["confusion"][static_cast<std::size_t>(c)])
      expected += "," + count.dump();
    ASSERT_TRUE(std::getline(matrix, line));
    EXPECT_EQ(line, expected);
  }
  const CommandResult csv = call("eval", run(), "--format csv");
  EXPECT_EQ(csv.out.substr(0, csv.out.find('\n')), "class,precision,recall,f1,support,iou");
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 11);
  expect_error(call("eval", run(), "--confusion", folder_ / "none/c.csv"), 73, "none");
}

TEST_F(Predictions, ProbabilitiesAreTheSoftmaxOfTheLastLayersEmbeddings) {
  train_on_idx();
  const std::string file = folder_ / "e.npy", images = folder_ / "t10k-images-idx3-ubyte";
  const std::string layers =
      " #2 flatten, #3 layers.0, #4 relu, #5 layers.1, #6 relu, #7 layers.2, #8 "
      "softmax_cross_entropy";
  for (const auto& [wanted, hint] : {std::pair("nosuch", ""),
                                     {"#9", ""},
                                     {"#0", ""},
                                     {"#", ""},
                                     {"9", ""},
                                     {"3", ": did you mean '#3'?"},
                                     {"layer.2", ": did you mean 'layers.2'?"}})
    expect_error(engine({"predict", run(), images, "--embeddings", wanted}), 2,
                 std::string("no layer '") + wanted + "'" + hint + layers);
  const CommandResult result =
      expect_success(call("predict", run(), images, "--embeddings layers.2 --embeddings-file", file,
                          "--format json --probabilities --threads 1"));
  const std::vector<Json> lines = predict_lines(result.out);
  ASSERT_EQ(lines.size(), 151u);
  const std::string bytes = test_support::read_text(file);
  ASSERT_CONTAINS(bytes, "'shape': (150, 10), }") << bytes.substr(0, 128);
  ASSERT_EQ(bytes.substr(0, 6), "\x93NUMPY");
  const std::size_t header =
      10u + static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ(header % 64, 0u);
  ASSERT_EQ(bytes.size(), header + std::size_t{150} * 10 * sizeof(float));
  for (std::size_t i = 0; i < 150; ++i) {
    std::array<float, 10> row;
    std::memcpy(row.data(), bytes.data() + header + i * sizeof row, sizeof row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    for (std::size_t c = 0; c < 10; ++c)
      ASSERT_NEAR(lines[i + 1]["probabilities"][c].get<double>(),
                  std::exp(static_cast<double>(row[c])) / sum, 1e-9);
  }
}

TEST_F(Predictions, OfRowsUseTheRunsColumnsByNameAndItsStandardisation) {
  std::string rows = "kind,size,color,mass\n", others = "mass,note,color,size\n";
  std::vector<std::string> labels;
  for (int i = 0; i < 120; ++i) {
    const std::string label = i % 3 == 0 ? "cat" : i % 3 == 1 ? "dog, big" : "eel";
    const std::string size = std::to_string(100 + 20 * (i % 3) + i % 17), mass = std::to_string(i);
    const std::string color = i % 2 == 0 ? "red" : "blue";
    labels.push_back(label);
    rows += "\"" + label + "\"," + size + "," + color + "," + mass + "\n";
    others += mass + ",\"a\nb\"," + color + "," + size + "\n";
  }
  write_text(folder_ / "rows.csv", rows);
  write_text(folder_ / "others.csv", others);
  train(
      argv("--dataset csv --annotations", folder_ / "rows.csv", "--label-column kind --epochs 3"));
  const std::vector<Json> lines = predicted(run(), {folder_ / "rows.csv"});
  ASSERT_EQ(lines.size(), labels.size());
  int correct = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) correct += lines[i]["prediction"] == labels[i];
  EXPECT_EQ(evaluated(run())["correct"].get<int>() +
                evaluated(run(), {"--split", "train"})["correct"].get<int>(),
            correct);
  const std::vector<Json> again = predicted(run(), {folder_ / "others.csv"});
  ASSERT_EQ(again.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(again[i]["probability"], lines[i]["probability"]) << i;
  // More than one block of the file; the names and rows of what is wrong in it.
  std::string many = "size,color,mass\n";
  for (int i = 0; i < 100'000; ++i) many += "1234,red,5678901\n";
  write_text(folder_ / "many.csv", many);
  const CommandResult counted = engine({"predict", run(), folder_ / "many.csv"});
  EXPECT_EQ(std::ranges::count(counted.out, '\n'), 100'001) << counted.err;
  write_text(folder_ / "bad.csv", many + "12,red,heavy\n");
  expect_error(engine({"predict", run(), folder_ / "bad.csv"}), 65,
               "bad.csv, row 100002 (line 100002): found 'heavy' in mass, expected a number");
  write_text(folder_ / "less.csv", "size,mess\n1,2\n");
  expect_error(engine({"predict", run(), folder_ / "less.csv"}), 65,
               "less.csv: row 1 names no column 'color'");
  const CommandResult csv = call("predict", run(), folder_ / "rows.csv", "--top 2");
  program::expect_words(
      csv.out,
      {"input,sample,prediction,probability,prediction_2,probability_2\n", "\"dog, big\""});
  // The checkpoint states all of that: the table may have changed, or be gone.
  write_text(folder_ / "rows.csv", rows + "cat,999,red,999\n");
  EXPECT_EQ(predicted(run(), {folder_ / "others.csv"}), again);
  std::filesystem::remove(folder_ / "rows.csv");
  EXPECT_EQ(predicted(run(), {folder_ / "others.csv"}), again);
  const std::string alone = folder_ / "alone.ckpt";
  std::filesystem::copy_file(io::find_best_checkpoint(run()), alone);
  EXPECT_EQ(predicted(alone, {folder_ / "others.csv"}), again);
  // One of an earlier version does not.
  forget_samples(alone);
  expect_error(engine({"predict", alone, folder_ / "others.csv"}), 65, "rows.csv");
  write_text(folder_ / "rows.csv", rows);
  EXPECT_EQ(predicted(alone, {folder_ / "others.csv"}), again);
  write_text(folder_ / "rows.csv", rows + "cat,999,red,999\n");
  expect_error(engine({"predict", alone, folder_ / "others.csv"}), 65, "the data differ");
}

// JSON knows nothing but Unicode: each byte that is none is U+FFFD.
TEST_F(Predictions, OfFilesWhoseNamesAreNotUtf8AreJsonAllTheSame) {
  std::string rows = "x,y,label\n";
  for (int i = 0; i < 40; ++i) rows += std::to_string(i % 7) + (i % 2 == 0 ? ",1,a\n" : ",2,b\n");
  write_text(folder_ / "rows.csv", rows);
  train(argv("--dataset csv --annotations", folder_ / "rows.csv"));
  const std::string name = folder_ / "caf\xe9\xff \"1\".csv";
  write_text(name, rows);
  const std::vector<Json> lines = predicted(run(), {name});
  ASSERT_EQ(lines.size(), 40u);
  EXPECT_EQ(lines[0].at("input"), folder_ / "caf\uFFFD\uFFFD \"1\".csv");
  const CommandResult csv = call("predict", run(), name, "--threads 1");
  EXPECT_CONTAINS(csv.out, "caf\xe9\xff ") << "CSV has the bytes";
}

TEST_F(Predictions, OfImagesNeedNoDataButTheCheckpoint) {
  train_on_idx({"--normalize", "standard"});
  const std::string images = folder_ / "inputs";
  std::filesystem::rename(folder_ / "t10k-images-idx3-ubyte", images);
  std::filesystem::copy_file(images, folder_ / "t10k-images-idx3-ubyte");
  const std::string alone = folder_ / "alone.ckpt", old = folder_ / "old.ckpt";
  std::filesystem::copy_file(io::find_newest_checkpoint(run(), nullptr), alone);
  std::filesystem::copy_file(alone, old);
  forget_samples(old);
  const std::vector<Json> before = predicted(old, {images});  // reads the run's data
  for (const std::string file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                 "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
    ASSERT_TRUE(std::filesystem::remove(folder_ / file));
  EXPECT_EQ(predicted(alone, {images}), before);
  expect_error(engine({"predict", old, images}), 65, "train-images");
  // As an ONNX graph that takes pixels, too.
  const std::string onnx = folder_ / "m.onnx";
  expect_success(call("export", alone, "-o", onnx, "--input pixels"));
  EXPECT_CONTAINS(test_support::read_text(onnx), "deviation");
  EXPECT_EQ(call("export", old, "-o", onnx, "--input pixels").exit_code, 65);
}

// One record: a label and three planes, of which one tells the label, but not always the right one.
std::string cifar_records(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const int label = i % 10, shown = i % 4 == 0 ? (label + 1) % 10 : label;
    std::string planes(3072, '\x20');
    for (std::size_t k = 0; k < planes.size(); k += 7) planes[k] = '\x30';
    planes.replace(1024 + 100 * static_cast<std::size_t>(shown), 100, 100, '\xF0');
    planes[static_cast<std::size_t>(i)] = '\x90';
    bytes += static_cast<char>(label) + planes;
  }
  return bytes;
}

TEST_F(Predictions, OfCifarsBinFilesAreThoseOfEval) {
  write_text(folder_ / "data_batch_1.bin", cifar_records(120));
  write_text(folder_ / "test_batch.bin", cifar_records(70));
  train(argv("--dataset cifar10 --data-dir", folder_.path().string(), "--epochs 2 --lr 0.01"));
  const std::string file = folder_ / "test_batch.bin";
  const std::vector<Json> lines = predicted(run(), {file});
  ASSERT_EQ(lines.size(), 70u);
  int correct = 0;
  for (int i = 0; i < 70; ++i) {
    const Json& line = lines[static_cast<std::size_t>(i)];
    EXPECT_EQ(line["input"], file);
    EXPECT_EQ(line["sample"], i + 1);
    correct += line["class"] == i % 10;
  }
  EXPECT_GT(correct, 10);
  EXPECT_LT(correct, 70);
  EXPECT_EQ(evaluated(run())["correct"], correct);
  // The labels are passed over.
  std::string unlabelled = cifar_records(70);
  for (std::size_t i = 0; i < unlabelled.size(); i += 3073) unlabelled[i] = '\0';
  write_text(file, unlabelled);
  EXPECT_EQ(predicted(run(), {file}), lines);
  write_text(file, unlabelled + "x");
  expect_error(engine({"predict", run(), file}), 65, "test_batch.bin: image 71: 1 bytes, 3073");
}

TEST_F(Predictions, OfWeightsWithoutACheckpointAreTheSame) {
  train_on_idx();
  const std::string images = folder_ / "t10k-images-idx3-ubyte";
  const std::vector<Json> lines = predicted(run(), {images});
  for (const char* name : {"m.pth", "m.safetensors", "m.npz"}) {
    const std::string file = folder_ / name;
    expect_success(call("export", run(), "-o", file));
    EXPECT_EQ(predicted(file, {images, "--model", "mlp", "--dataset", "mnist", "--data-dir",
                               folder_.path().string()}),
              lines)
        << name;
  }
}

// Writes a short text into a pipe while the program reads it.
class PipeWriter {
 public:
  PipeWriter(const std::string& path, const std::string& text)
      : path_(path), thread_([path, text] { write_text(path, text); }) {}
  ~PipeWriter() {  // the thread ends even if the program has not opened the pipe
    const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK);
    thread_.join();
    close(reader);
  }

 private:
  const std::string path_;
  std::thread thread_;
};

TEST_F(Predictions, OfAPipeAreThoseOfTheFile) {
  std::string table = "x,label\n";
  for (int i = 0; i < 40; ++i) table += std::to_string(i) + (i < 20 ? ",low\n" : ",high\n");
  write_text(folder_ / "t.csv", table);
  train({"--dataset", "csv", "--annotations", folder_ / "t.csv", "--epochs", "2"});
  const std::vector<Json> lines = predicted(run(), {folder_ / "t.csv"});
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::vector<Json> read;
  {
    const PipeWriter writer(pipe, table);
    read = predicted(run(), {pipe});
  }
  ASSERT_EQ(read.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(read[i]["probability"], lines[i]["probability"]);
  // Each rank would read a part.
  expect_error(call("predict", run(), pipe, "--spawn 2 --backend inproc"), 78, pipe + " once");
}

// Five blocks that do not end with the files.
TEST_F(Predictions, OfSeveralRanksAreTheSameToTheLastByte) {
  train_on_idx();
  const std::string images = folder_ / "t10k-images-idx3-ubyte", npy = folder_ / "e.npy";
  const auto with = [&](std::vector<std::string> more, const std::string& format) {
    std::vector<std::string> arguments =
        argv("predict", run(), images, images, "--format", format,
             "--top 3 --threads 1 --embeddings layers.2 --embeddings-file", npy, "--probabilities");
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::filesystem::remove(npy);
    const CommandResult result = expect_success(engine(arguments));
    return std::pair(result.out, test_support::read_text(npy));
  };
  for (const std::string format : {"csv", "json", "table"}) {
    const auto one = with({}, format);
    EXPECT_EQ(std::ranges::count(one.first, '\n'), 301);
    EXPECT_TRUE(with(argv("--spawn 2"), format) == one) << format;
    EXPECT_TRUE(with(argv("--spawn 3 --backend inproc"), format) == one) << format;
  }
  const auto one = with({}, "csv");
  EXPECT_TRUE(with(argv("--spawn 3 --backend socket"), "csv") == one);
  EXPECT_TRUE(with(argv("--devices cpu:0,cpu:1"), "csv") == one);
  // Under a launcher.
  const CommandResult launched =
      expect_success(call("launch --nproc-per-node 2 predict", run(), images, images,
                          "--format csv --top 3 --threads 1 --probabilities"));
  std::string plain, line;  // without "host:rank: "
  std::istringstream in(launched.out);
  while (std::getline(in, line)) plain += line.substr(line.find(": ") + 2) + "\n";
  EXPECT_EQ(plain, one.first);
}

TEST_F(Predictions, AColumnOfTheModelIsNotProposedInThePlaceOfAnotherOne) {
  std::string rows = "size1,size2,kind\n";
  for (int i = 0; i < 20; ++i)
    rows += std::to_string(i) + "," + std::to_string(i % 7) + (i % 2 == 0 ? ",big\n" : ",small\n");
  write_text(folder_ / "rows.csv", rows);
  train(argv("--dataset csv --annotations", folder_ / "rows.csv", "--epochs 1"));
  const std::string missing = "row 1 'size2'";
  write_text(folder_ / "less.csv", "size1,kind\n1,big\n");
  expect_error(call("predict", run(), folder_ / "less.csv"), 65, missing + "\n");
  write_text(folder_ / "less.csv", "size1,size_2\n1,2\n");
  expect_error(call("predict", run(), folder_ / "less.csv"), 65, missing + " mean 'size_2'");
}

TEST_F(Predictions, OfTablesOnSeveralRanksEndWhereOneRankEnds) {
  std::string rows = "size,kind\n";
  for (int i = 0; i < 200; ++i) rows += std::to_string(i % 7) + (i % 7 > 3 ? ",big\n" : ",small\n");
  write_text(folder_ / "rows.csv", rows);
  train(argv("--dataset csv --annotations", folder_ / "rows.csv", "--epochs 1"));
  const auto with = [&](const std::string& file, const std::string& ranks) {
    return call("predict", run(), folder_ / file, "--threads 1 --spawn", ranks);
  };
  const CommandResult one = expect_success(with("rows.csv", "1"));
  for (const char* ranks : {"2", "3", "5"})
    EXPECT_EQ(expect_success(with("rows.csv", ranks)).out, one.out) << ranks;
  // In the second block, the third one, and behind all.
  for (const int bad : {100, 150, 200}) {
    std::istringstream in(rows);
    std::string text, line;
    for (int i = 0; std::getline(in, line); ++i) text += (i == bad ? "wide,big" : line) + "\n";
    write_text(folder_ / "bad.csv", text);
    const CommandResult alone = with("bad.csv", "1"), two_ranks = with("bad.csv", "2");
    const std::string place = "bad.csv, row " + std::to_string(bad + 1);
    expect_error(alone, 65, place);
    EXPECT_EQ(two_ranks.exit_code, 65) << two_ranks.err;
    EXPECT_CONTAINS(two_ranks.err, place) << bad;
    EXPECT_EQ(two_ranks.out, alone.out) << two_ranks.err;
    EXPECT_EQ(std::ranges::count(alone.out, '\n'), 1 + (bad - 1) / 64 * 64);
  }
}

TEST_F(Predictions, RanksDoNotShareWhatCanBeReadOnce) {
  train_on_idx();
  const CommandResult result = call("predict", run(), "/dev/null --threads 1 --spawn 2");
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_VALUES(result.err, "/dev/null once, one rank; 2 ranks");
}

#ifdef HAS_PNG
TEST_F(Predictions, OfImagesInFoldersAreThoseOfEval) {
  for (std::uint8_t i = 0; i < 12; ++i)
    for (const std::string name : {"blue", "red"})
      for (const std::string part : {"train/", "val/"}) {
        const auto red = static_cast<std::uint8_t>(name == "red" ? 100 + 9 * i : 150 - 9 * i);
        std::filesystem::create_directories(folder_ / (part + name));
        write_text(folder_ / (part + name + "/" + static_cast<char>('a' + i) + ".png"),
                   test_support::plain_png(20u + i, 30u - i, red, 50, 120));
      }
  train(argv("--dataset images --data-dir", folder_.path().string(), "--image-size 8 --epochs 1"));
  const std::vector<Json> lines = predicted(run(), {folder_ / "val"});
  ASSERT_EQ(lines.size(), 24u);
  int correct = 0;
  for (const Json& line : lines)
    correct +=
        std::filesystem::path(line["input"].get<std::string>()).parent_path().filename().string() ==
        line["prediction"].get<std::string>();
  EXPECT_EQ(evaluated(run())["correct"], correct);
  std::filesystem::rename(folder_ / "train", folder_ / "elsewhere");
  EXPECT_EQ(predicted(run(), {folder_ / "val"}), lines);
  write_text(folder_ / "val/red/c.png", "GIF89a");
  expect_error(engine({"predict", run(), folder_ / "val"}), 65, "c.png: neither PNG nor JPEG");
}

TEST_F(Predictions, AnImageOfAnotherSizeIsRefusedByItsName) {
  train_on_idx();
  write_text(folder_ / "five.png", test_support::plain_png(28, 28, 9, 9, 9));
  EXPECT_EQ(predicted(run(), {folder_ / "five.png"}).size(), 1u);
  write_text(folder_ / "small.png", test_support::plain_png(20, 28, 9, 9, 9));
  expect_error(engine({"predict", run(), folder_ / "small.png"}), 65,
               "small.png: 28 x 20, 28 x 28 x 1");
}
#endif

TEST_F(Predictions, OfTextAreTheNextCharacter) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "abcd";
  write_text(folder_ / "text.txt", text);
  train(argv("--dataset text --data-dir", folder_ / "text.txt",
             "--context 8 --text-stride 3 --optimizer adamw --lr 0.01 --epochs 4"),
        "gpt-nano");
  write_text(folder_ / "begun", text + "ab");
  const std::vector<Json> lines = predicted(run(), {folder_ / "begun", "--probabilities"});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["prediction"], "c");
  double sum = 0;
  for (const Json& probability : lines[0]["probabilities"]) sum += probability.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  std::filesystem::remove(folder_ / "text.txt");
  EXPECT_EQ(predicted(run(), {folder_ / "begun", "--probabilities"}), lines);
  write_text(folder_ / "other", text + "abc");
  const std::vector<std::string> three{folder_ / "begun", folder_ / "other", folder_ / "begun"};
  std::vector<std::string> on_two_ranks = three;
  on_two_ranks.insert(on_two_ranks.end(), {"--spawn", "2"});
  EXPECT_EQ(predicted(run(), on_two_ranks), predicted(run(), three));
  // What the model has no character for is named and left out.
  write_text(folder_ / "other", "ab");
  const std::vector<Json> without = predicted(run(), {folder_ / "other", "--probabilities"});
  write_text(folder_ / "other", "abz");
  EXPECT_EQ(predicted(run(), {folder_ / "other", "--probabilities"}), without);
  program::expect_words(engine({"predict", run(), folder_ / "other"}).err,
                        {"other: 1 of 3 bytes are characters that the model lacks: 'z'"});
  write_text(folder_ / "begun", "zz");
  expect_error(engine({"predict", run(), folder_ / "begun"}), 65, "'z'");
  expect_error(engine({"predict", run(), folder_ / "nosuch"}), 65, "nosuch");
}

}  // namespace
