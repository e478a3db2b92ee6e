// Folders that cannot be trained: one line that names the file, the setting and what is supported.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/core/error.h"
#include "io/interchange/array_files.h"
#include "models/publish.h"
#include "models/published/published_config.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/published/published_fixture.h"

namespace {

namespace fs = std::filesystem;

std::string config_of(const std::string& name) {
  return test_support::read_text(published::golden_file("golden_" + name + ".json"));
}

// `text` with the value of `key` replaced, or with the key added.
std::string with(std::string text, const std::string& key, const std::string& value) {
  const std::string begin = "\"" + key + "\": ";
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return "{" + begin + value + "," + text.substr(text.find('{') + 1);
  const std::size_t from = at + begin.size();
  const std::size_t end =
      text[from] == '[' ? text.find(']', from) + 1 : text.find_first_of(",\n", from);
  return text.replace(from, end - from, value);
}

std::string fault_of(const std::string& config) {
  try {
    models::parse_published_config(config, "m/config.json");
  } catch (const engine::ModelError& error) {
    return error.what();
  }
  return "no error";
}

struct Refusal {
  std::string type, key, value, text;
};
void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.type << " " << refusal.key << " " << refusal.value;
}

class PublishedConfigTest : public testing::TestWithParam<Refusal> {};

TEST_P(PublishedConfigTest, NamesTheSettingAndWhatIsSupported) {
  const auto& [type, key, value, text] = GetParam();
  EXPECT_VALUES(fault_of(with(config_of(type), key, value)), "m/config.json" + text);
}
INSTANTIATE_TEST_SUITE_P(
    Settings, PublishedConfigTest,
    testing::Values(
        Refusal{"gpt2", "model_type", "\"gpt5\"",
                ": 'model_type' is \"gpt5\"; supported: gpt2, llama, mistral, qwen2, qwen3"},
        Refusal{"gpt2", "model_type", "7", ": 'model_type' is 7; supported: text"},
        Refusal{"gpt2", "n_head", "3", ": 'n_head' is 3; supported: a divisor of n_embd, 8"},
        Refusal{"gpt2", "n_layer", "100000",
                ": 'n_layer' is 100000; supported: an integer from 1 to 500"},
        Refusal{"gpt2", "n_layer", "null",
                ": 'n_layer' is missing; expected an integer from 1 to 500"},
        Refusal{"gpt2", "vocab_size", "-1",
                ": 'vocab_size' is -1; supported: an integer from 1 to 16777216"},
        Refusal{"gpt2", "n_embd", "8.5",
                ": 'n_embd' is 8.5; supported: an integer from 1 to 16777216"},
        Refusal{"gpt2", "activation_function", "\"relu\"",
                ": 'activation_function' is \"relu\"; supported: gelu_new, gelu_pytorch_tanh and "
                "gelu"},
        Refusal{"gpt2", "scale_attn_by_inverse_layer_idx", "true",
                ": 'scale_attn_by_inverse_layer_idx' is true; supported: false"},
        Refusal{"gpt2", "layer_norm_epsilon", "0",
                ": 'layer_norm_epsilon' is 0; supported: a number above 0"},
        Refusal{"gpt2", "quantization_config", "{\"bits\": 4}",
                ": 'quantization_config' f16, bf16, f32 f64"},
        Refusal{"llama", "hidden_act", "\"gelu\"", ": 'hidden_act' is \"gelu\"; supported: silu"},
        Refusal{"llama", "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4.0}",
                ": rope_scaling: 'rope_type' is \"yarn\"; supported: default and llama3"},
        Refusal{"llama", "rope_scaling", "{\"factor\": 8.0}",
                ": rope_scaling: 'rope_type' is missing; supported: default and llama3"},
        Refusal{"llama", "rope_scaling", "{\"rope_type\": \"llama3\", \"type\": \"linear\"}",
                ": rope_scaling: 'type' is \"linear\"; supported: the same as rope_type, llama3"},
        Refusal{"llama", "rope_parameters", "{\"full_attention\": {\"rope_theta\": 500.0}}",
                ": rope_parameters: 'full_attention' {\"rope_theta\":500.0}; one"},
        Refusal{"llama", "rms_norm_eps", "NaN",
                ": not JSON: parse error at line 22, column 19: syntax error while parsing value - "
                "invalid literal; last read: '\"rms_norm_eps\": N'"},
        Refusal{"llama", "num_key_value_heads", "3",
                ": 'num_key_value_heads' is 3; supported: a divisor of num_attention_heads, 4"},
        Refusal{"llama", "head_dim", "3", ": 'head_dim' is 3; supported: an even number"},
        Refusal{"mistral", "sliding_window", "0",
                ": 'sliding_window' is 0; supported: an integer from 1 to 16777216"},
        Refusal{"gpt2", "num_attention_heads", "3",
                ": 'num_attention_heads' is 3; supported: a divisor of n_embd, 8"},
        Refusal{"llama", "layer_types", "[\"sliding_attention\"]",
                ": 'layer_types' is [\"sliding_attention\"]; supported: full_attention for "
                "every layer"}));

// In `transformers` these names of GPT-2's settings have precedence.
TEST(PublishedGpt2, HasAliasesOfItsSettings) {
  std::string text = config_of("gpt2");
  for (const auto& [key, value] :
       {std::pair{"num_attention_heads", "4"}, std::pair{"num_hidden_layers", "7"},
        std::pair{"hidden_size", "16"}, std::pair{"max_position_embeddings", "33"}})
    text = with(text, key, value);
  const models::PublishedConfig config = models::parse_published_config(text, "config.json");
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.layers, 7);
  EXPECT_EQ(config.width, 16);
  EXPECT_EQ(config.context, 33);
}

TEST(PublishedWindow, IsNoneIfNoLayerSlides) {
  const auto window = [](const std::string& text) {
    return models::parse_published_config(text, "config.json").window;
  };
  const std::string slides =
      with(with(config_of("qwen2"), "use_sliding_window", "true"), "sliding_window", "8");
  EXPECT_EQ(window(with(slides, "use_sliding_window", "false")), 0);
  const std::string counted = with(slides, "layer_types", "null");
  EXPECT_EQ(window(with(counted, "max_window_layers", "2")), 0);
  EXPECT_EQ(window(with(counted, "max_window_layers", "1")), 8);
  EXPECT_EQ(window(with(slides, "layer_types", "[\"full_attention\"]")), 0);
  EXPECT_EQ(window(with(slides, "layer_types", "[\"sliding_attention\"]")), 8);
}

TEST(PublishedWindow, IsTheLongestText) {
  const test_support::TemporaryDirectory folder;
  const std::string model = published::copy_of("golden_qwen2", folder);
  const auto fault = [&](const std::string& window, std::int64_t tokens) -> std::string {
    test_support::write_text(model + "/config.json",
                             with(config_of("mistral"), "sliding_window", window));
    try {
      models::build_model(
          model,
          {.sample_shape = engine::Shape{tokens},
           .classes = models::token_counts(model).value_or(models::TokenCounts()).vocabulary});
    } catch (const engine::ModelError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(fault("16", 16), "no error");
  EXPECT_VALUES(fault("16", 17), model + "/config.json 'sliding_window' 16 17 --context");
  EXPECT_EQ(fault("null", 17), "no error");
  EXPECT_EQ(fault("8", 8), "no error") << "shorter than max_position_embeddings";
  EXPECT_VALUES(fault("8", 9), "'sliding_window' 8");
}

TEST(PublishedConfigText, IsBounded) {
  EXPECT_CONTAINS(fault_of("[]"), "m/config.json: not a JSON object");
  EXPECT_CONTAINS(fault_of(std::string(1000, '[')), "not a JSON object");
  EXPECT_CONTAINS(fault_of("{\"a\": " + std::string(100, '[') + std::string(100, ']') + "}"),
                  "not a JSON object");
  EXPECT_VALUES(fault_of(std::string(70'000, ' ')), "m/config.json 70000 bytes 65536");
  EXPECT_CONTAINS(fault_of(with(config_of("qwen2"), "layer_types", "[\"sliding_attention\"]")),
                  "'layer_types' is [\"sliding_attention\"]");
}

class PublishedFolder : public testing::Test {
 protected:
  std::string fault() const {
    try {
      static_cast<void>(models::model_weights(copy_));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }
  // Writes the arrays after `change`.
  template <class Change>
  void rewrite(const Change& change) {
    std::vector<io::NamedArray> arrays = io::load_arrays(weights_);
    change(arrays);
    io::save_arrays(arrays, weights_);
  }
  static io::NamedArray& array_of(std::vector<io::NamedArray>& arrays, const std::string& name) {
    return *std::ranges::find(arrays, name, &io::NamedArray::name);
  }

  const test_support::TemporaryDirectory folder_;
  const std::string copy_ = published::copy_of("golden_gpt2", folder_),
                    weights_ = copy_ + "/model.safetensors",
                    index_ = copy_ + "/model.safetensors.index.json";
};

TEST_F(PublishedFolder, MissingFilesAreNamed) {
  fs::rename(weights_, copy_ + "/pytorch_model.bin");
  EXPECT_VALUES(fault(), copy_ +
                             ": model.safetensors, model.safetensors.index.json pytorch_model.bin "
                             "save_pretrained()");
  fs::remove(copy_ + "/config.json");
  EXPECT_VALUES(fault(), copy_ + ": weights config.json;");
  fs::remove(copy_ + "/pytorch_model.bin");
  EXPECT_VALUES(fault(), copy_ + ": no config.json;");
}

TEST_F(PublishedFolder, DamagedWeightsAreNamed) {
  fs::resize_file(weights_, 5000);
  EXPECT_CONTAINS(fault(), weights_ + ": '");
  fs::resize_file(weights_, 4);
  EXPECT_VALUES(fault(), weights_ + ": safetensors 4 bytes");
}

TEST_F(PublishedFolder, ShapesFollowTheConfig) {
  rewrite([](auto& arrays) { array_of(arrays, "transformer.wpe.weight").shape = {4, 18}; });
  EXPECT_EQ(fault(), weights_ +
                         ": 'transformer.wpe.weight' has shape [4, 18]; config.json "
                         "implies [9, 8]");
}

TEST_F(PublishedFolder, TensorsAreThoseOfTheConfig) {
  rewrite([](auto& arrays) { array_of(arrays, "transformer.ln_f.bias").name = "surprise"; });
  EXPECT_EQ(fault(), copy_ + ": lacks 'transformer.ln_f.bias', which config.json implies");
  rewrite([](auto& arrays) {
    arrays.push_back(array_of(arrays, "surprise"));
    arrays.back().name = "transformer.ln_f.bias";
  });
  EXPECT_VALUES(fault(), copy_ + ": 1 gpt2 config.json 'surprise'");
}

// The output layer of a model that ties it may be stored as well, but not with other values.
TEST_F(PublishedFolder, ATiedOutputLayerIsTheEmbedding) {
  rewrite([](auto& arrays) {
    arrays.push_back(array_of(arrays, "transformer.wte.weight"));
    arrays.back().name = "lm_head.weight";
  });
  EXPECT_EQ(fault(), "no error");
  rewrite([](auto& arrays) { array_of(arrays, "lm_head.weight").data[7] ^= std::byte{1}; });
  EXPECT_VALUES(fault(), copy_ +
                             ": 'lm_head.weight' 'transformer.wte.weight', config.json "
                             "\"tie_word_embeddings\" false 'lm_head.weight'");
}

TEST_F(PublishedFolder, WholeNumbersAreNoWeights) {
  rewrite([](auto& arrays) {
    io::NamedArray& array = array_of(arrays, "transformer.ln_f.bias");
    array.type = io::DType::kU8;
    array.data.resize(8);
  });
  EXPECT_VALUES(fault(), weights_ + ": 'transformer.ln_f.bias' u8; f16, bf16, f32 f64");
}

TEST_F(PublishedFolder, ShardsAreReadAndMissingOnesNamed) {
  std::vector<io::NamedArray> arrays = io::load_arrays(weights_);
  const std::vector<io::NamedArray> all = arrays;
  const std::vector<io::NamedArray> first(arrays.begin(), arrays.begin() + 5);
  arrays.erase(arrays.begin(), arrays.begin() + 5);
  io::save_arrays(first, copy_ + "/a.safetensors");
  io::save_arrays(arrays, copy_ + "/b.safetensors");
  fs::remove(weights_);
  const auto write_index = [&](const std::string& file_of_first) {
    std::string map;
    for (const io::NamedArray& array : all) {
      const bool in_first =
          std::ranges::find(first, array.name, &io::NamedArray::name) != first.end();
      map += (map.empty() ? "\"" : ", \"") + array.name + "\": \"" +
             (in_first ? file_of_first : "b.safetensors") + "\"";
    }
    test_support::write_text(index_, "{\"weight_map\": {" + map + "}}");
  };
  write_index("a.safetensors");
  EXPECT_EQ(fault(), "no error");
  const std::string listed = test_support::read_text(index_), entry = "\"" + first.back().name;
  const std::size_t at = listed.find(entry), end = listed.find(", ", at);
  test_support::write_text(index_, listed.substr(0, at) + listed.substr(end + 2));
  EXPECT_EQ(fault(), copy_ + "/a.safetensors: has '" + first.back().name + "', which " + index_ +
                         " does not list");
  write_index("b.safetensors");
  EXPECT_EQ(fault(), copy_ + "/b.safetensors: lacks '" + first.front().name + "', which " + index_ +
                         " expects there");
  write_index("c.safetensors");
  EXPECT_VALUES(fault(), copy_ + "/c.safetensors: missing; " + index_ + " 2");
  write_index("../a.safetensors");
  EXPECT_VALUES(fault(), index_ + " '../a.safetensors'; .safetensors");
  test_support::write_text(index_, "{\"weight_map\": []}");
  EXPECT_VALUES(fault(), index_ + ": JSON 'weight_map',");
}

TEST(Publish, OnlyWhatTransformersHas) {
  const auto fault = [](const std::string& name, const std::string& definition) {
    try {
      models::publish(name, definition, {});
    } catch (const engine::ModelError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_VALUES(fault("resnet18", ""), "'resnet18' transformers");
  EXPECT_VALUES(fault("x.toml", "[[layer]]\nkind = \"flatten\"\n"), "x.toml: published");
  EXPECT_VALUES(fault("gpt2", ""), "gpt2: 'transformer.wpe.weight' gpt2");
}

}  // namespace
