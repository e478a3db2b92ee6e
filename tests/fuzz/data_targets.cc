// Data sets and images. The readers take paths: the bytes are written to a folder in memory first.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/images/image_decoder.h"
#include "io/data/readers/arrays/array_inputs.h"
#include "io/data/sources/dataset_registry.h"
#include "io/interchange/zip/zip_archive.h"
#include "io/tokenizer/tokenizer.h"
#include "tests/fuzz/input_folder.h"
#include "tests/fuzz/targets.h"

namespace fuzz {
namespace {

// The first two bytes say how long the first part is.
std::pair<Input, Input> halves(Input input) {
  if (input.size() < 2) return {input, {}};
  const std::size_t first = std::min<std::size_t>(input[0] | input[1] << 8, input.size() - 2);
  return {input.subspan(2, first), input.subspan(2 + first)};
}

void load(const std::string& name, const Folder& folder, io::DatasetOptions options = {}) {
  options.name = name;
  options.directory = folder.path();
  try {
    io::load_dataset(options);
  } catch (const io::Error&) {
  }
}

}  // namespace

void csv(Input input) {
  static const Folder folder;
  io::DatasetOptions options;
  options.csv.annotations = folder.write("x.csv", input);
  load("csv", folder, options);
}

void idx(Input input) {
  static const Folder folder;
  const auto [images, labels] = halves(input);
  for (const std::string set : {"train", "t10k"}) {
    folder.write(set + "-images-idx3-ubyte", images);
    folder.write(set + "-labels-idx1-ubyte", labels);
  }
  load("mnist", folder);
}

void cifar10(Input input) {
  static const Folder folder;
  for (const char* name : {"data_batch_1.bin", "test_batch.bin"}) folder.write(name, input);
  load("cifar10", folder);
}

void tokens(Input input) {
  static const Folder folder;
  for (const char* name : {"train.bin", "val.bin"}) folder.write(name, input);
  io::DatasetOptions options;
  options.text.context = 2;
  load("tokens", folder, options);
}

// Two arrays as x and y of both parts, read as training data and as the inputs of a model.
void arrays(Input input) {
  static const Folder folder;
  const unsigned how = input.empty() ? 0 : input.front();
  const auto [x, y] = halves(input.empty() ? input : input.subspan(1));
  std::vector<std::uint8_t> archive;
  io::ZipWriter writer([&](std::span<const std::byte> bytes) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
    archive.insert(archive.end(), first, first + bytes.size());
  });
  writer.add("x.npy", {std::as_bytes(x)});
  writer.add("y.npy", {std::as_bytes(y)});
  writer.finish();
  const std::string train = folder.write("train.npz", archive);
  folder.write("test.npz", archive);
  io::DatasetOptions options;
  if (how % 2 == 1) options.arrays.ignored_label = how / 2;
  load("arrays", folder, options);
  try {
    const auto stream = io::open_array_samples(
        train, {.extents = how % 4 < 2 ? std::array<std::int64_t, 3>{1, 1, 3}
                                       : std::array<std::int64_t, 3>{2, 3, 1}});
    io::SampleBlock block;
    stream->fill(4, io::Wanted::kSamples, block);
  } catch (const io::Error&) {
  }
}

void image(Input input) {
  try {
    io::decode_image(input, "file");
  } catch (const io::Error&) {
  }
}

// Also encodes and decodes a text.
void tokenizer(Input input) {
  try {
    const io::Tokenizer read = io::Tokenizer::parse({input.begin(), input.end()}, "file");
    std::vector<std::int32_t> ids;
    io::TokenEncoder(read).encode("It's 12 \xC3\xA9\xFF lines,\n\n  all different<|end|>", ids);
    read.decode(ids);
  } catch (const io::Error&) {
  }
}

}  // namespace fuzz
