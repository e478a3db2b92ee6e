// Text models of the library transformers: the committed ones everywhere, others and exports beside
// PyTorch where PEER_PYTHON (python3) has torch and transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "engine/train/saving/weights.h"
#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "models/publish.h"
#include "models/published/published_config.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/published/published_fixture.h"

namespace {

using published::PublishedNetwork;

class GoldenModel : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, HasPyTorchsLogitsAndLosses) {
  const test_support::TemporaryDirectory folder;
  const std::string name = "golden_" + GetParam();
  published::expect_numbers_of(published::copy_of(name, folder),
                               published::golden_file(name + ".npz"));
}

// What is written for transformers is what was read: every tensor with its bits, every setting.
TEST_P(GoldenModel, IsWrittenAsItWasRead) {
  const test_support::TemporaryDirectory parent;
  const std::string folder = published::copy_of("golden_" + GetParam(), parent);
  PublishedNetwork network(folder, 9, engine::DType::kF32);
  const models::PublishedFiles files = models::publish("gone", models::model_definition(folder),
                                                       engine::export_state(network.state, {}));
  EXPECT_EQ(files.type, GetParam());
  EXPECT_EQ(files.config, test_support::read_text(folder + "/config.json"));
  std::vector<io::NamedArray> stored = io::load_arrays(folder + "/model.safetensors"),
                              written = files.tensors;
  for (std::vector<io::NamedArray>* arrays : {&stored, &written})
    std::ranges::sort(*arrays, {}, &io::NamedArray::name);
  ASSERT_EQ(written.size(), stored.size());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(written[i].name, stored[i].name);
    EXPECT_EQ(written[i].shape, stored[i].shape) << stored[i].name;
    EXPECT_EQ(written[i].type, stored[i].type) << stored[i].name;
    EXPECT_EQ(written[i].data, stored[i].data) << stored[i].name;
  }
}
INSTANTIATE_TEST_SUITE_P(Families, GoldenModel,
                         testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3"),
                         [](const auto& test) { return test.param; });

// All in one test, because the library takes seconds to load.
TEST(ModelsOfTransformers, HavePyTorchsLogitsAndLossesAndGoBack) {
  const std::vector<std::string> names{"golden_gpt2", "gpt2_inner_shards", "gpt2_untied",
                                       "smollm",      "llama_biases",      "llama_scaled",
                                       "qwen2_wide",  "qwen3_tied",        "mistral_heads"};
  const test_support::TemporaryDirectory folder;
  std::vector<std::string> write{"write", folder / "."}, read{"read"};
  write.insert(write.end(), names.begin(), names.end());
  const auto made = published::call_transformers(write);
  if (published::is_missing(made)) GTEST_SKIP() << "no torch or no transformers: " << made.out;
  ASSERT_EQ(made.exit_code, 0) << made.err;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string source = folder / name, again = source + "_again";
    published::expect_numbers_of(source, source + ".npz");
    PublishedNetwork network(source, 9, engine::DType::kF32);
    const models::PublishedFiles files = models::publish(source, models::model_definition(source),
                                                         engine::export_state(network.state, {}));
    std::filesystem::create_directory(again);
    test_support::write_text(again + "/config.json", files.config);
    io::save_arrays(files.tensors, again + "/model.safetensors");
    read.insert(read.end(), {again, source + ".npz"});
  }
  const auto result = published::call_transformers(read);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

// The defaults of the library's classes, for settings that config.json lacks.
TEST(ModelsOfTransformers, HaveTheDefaultsOfTheirClasses) {
  const auto made = published::call_transformers({"defaults"});
  if (published::is_missing(made)) GTEST_SKIP() << "no torch or no transformers: " << made.out;
  ASSERT_EQ(made.exit_code, 0) << made.err;
  std::string text;
  for (const char* type : {"gpt2", "llama", "mistral", "qwen2", "qwen3"}) {
    const models::PublishedConfig c = models::parse_published_config(
        std::string(R"({"model_type": ")") + type + "\"}", "config.json");
    for (const std::int64_t number :
         {c.vocabulary, c.width, c.inner, c.layers, c.heads, c.kv_heads, c.head_size, c.context,
          c.window, c.ends.empty() ? -1 : c.ends.at(0)})
      text += std::to_string(number) + " ";
    text += base::shortest_text(c.eps) + " " + base::shortest_text(c.rotation.theta) + " " +
            (c.tied ? "tied" : "apart") + " " + c.type + "\n";
  }
  EXPECT_EQ(text, made.out);
}

class PublishedWeights : public testing::Test {
 protected:
  std::vector<double> logits() const {
    return PublishedNetwork(model_, 4, engine::DType::kF32).logits({1, 2, 3, 4});
  }

  const test_support::TemporaryDirectory folder_;
  const std::string model_ = published::copy_of("golden_gpt2", folder_),
                    file_ = model_ + "/model.safetensors";
};

// Weights of half the size are widened.
TEST_F(PublishedWeights, SixteenBitsAreWidened) {
  const std::vector<io::NamedArray> arrays = io::load_arrays(file_);
  const std::vector<double> whole = logits();
  for (const io::DType half : {io::DType::kF16, io::DType::kBF16}) {
    std::vector<io::NamedArray> halves;
    for (const io::NamedArray& array : arrays) halves.push_back(io::to_half(array, half, file_));
    io::save_arrays(halves, file_);
    const std::vector<double> found = logits();
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(found[i], whole[i], half == io::DType::kF16 ? 0.05 : 0.3) << i;
    EXPECT_NE(found, whole);
  }
}

// Files of the model without the output layer lack the first part of the names, and older versions
// have stored the mask of the attention.
TEST_F(PublishedWeights, NamesWithoutThePrefixAndMasksAreRead) {
  const std::vector<double> before = logits();
  const std::string prefix = "transformer.";
  std::vector<io::NamedArray> arrays = io::load_arrays(file_);
  for (io::NamedArray& array : arrays) array.name = array.name.substr(prefix.size());
  arrays.push_back({.name = "h.0.attn.bias",
                    .type = io::DType::kU8,
                    .shape = {1, 1, 9, 9},
                    .data = std::vector<std::byte>(81)});
  io::save_arrays(arrays, file_);
  EXPECT_EQ(logits(), before);
}

TEST_F(PublishedWeights, DropoutIsLeftOutWithANote) {
  models::DefinitionNotes notes;
  models::model_definition(model_, &notes);
  EXPECT_LINES(notes.lines, "dropout config.json resid_pdrop 0.1, embd_pdrop 0.1, attn_pdrop 0.1");
}

}  // namespace
