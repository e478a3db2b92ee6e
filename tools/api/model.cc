// Implements models of the catalog with weights and an inference plan.
#include "engine/model.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "engine/train/checks/finite_guard.h"
#include "engine/train/saving/weights.h"
#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "tools/api/model_impl.h"
#include "tools/api/translated.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/run/data/saved_weights.h"

namespace engine::api {
namespace {

constexpr std::size_t kBatch = 64;  // samples per forward pass

models::ModelOptions options_of(const ModelShape& shape, std::string definition) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto fits = [](std::int64_t extent) { return extent >= 1 && extent <= kMost; };
  const std::vector<std::int64_t>& s = shape.sample;
  if ((s.size() != 1 && s.size() != 3) || !std::ranges::all_of(s, fits))
    throw io::ConfigError("the sample's shape is " + base::shape_text(s) +
                          ", expected [height, width, channels], or [context] for text");
  if (!fits(shape.classes))
    throw io::ConfigError("the number of classes is " + std::to_string(shape.classes) +
                          ", expected 1.." + std::to_string(kMost));
  return {.sample_shape = s.size() == 1 ? engine::Shape{s[0]} : engine::Shape{s[0], s[1], s[2]},
          .classes = shape.classes,
          .definition = std::move(definition)};
}

int threads_of(int wanted) {
  if (wanted < 0)
    throw io::ConfigError("the number of threads is " + std::to_string(wanted) +
                          ", expected 0 or more");
  tools::check_threads(wanted);
  return wanted > 0 ? wanted : tools::default_threads(1);
}

bool is_number_of_model(const io::NamedArray& array) {
  return array.type == base::DType::kF32;  // all arrays except the counters of BatchNorm
}

}  // namespace

Model::Impl::Impl(std::string model_name, const std::string& model_definition,
                  const ModelShape& model_shape, std::uint64_t seed, int threads)
    : name(std::move(model_name)),
      definition(model_definition),
      shape(model_shape),
      graph(models::build_model(name, options_of(shape, definition))),
      state(engine::ModelState::allocate(graph, engine::DType::kF32)),
      pool(threads_of(threads)) {
  const bool reads = definition.empty() && models::has_weights(name);
  const models::ModelWeights weights = reads ? models::model_weights(name) : models::ModelWeights{};
  state.initialize(graph, seed, [&](const std::string& parameter) {
    return !reads || weights.may_differ(parameter);
  });
  if (!reads) return;
  engine::import_state(
      weights.arrays, name, /*exact=*/false, state,
      [&](const std::string& array) { return weights.may_differ(array); }, {},
      /*may_take_none=*/true);
}

void Model::Impl::take(const std::vector<io::NamedArray>& arrays, const std::string& source,
                       const std::vector<io::UnreadArray>& unread) {
  loaded = false;
  engine::import_state(arrays, source, /*exact=*/false, state, {}, unread);
  if (const auto bad = engine::first_not_finite(state, /*statistics=*/true))
    throw io::DataError(source + ": '" + state.entries[*bad].name +
                        "' is not finite (NaN or infinity)");
}

void Model::Impl::prepare_as(const io::ImageFormat& images, io::Normalization normalization) {
  preparer.emplace(images, name, normalization, io::Augmentation{});
}

std::string name_of(engine::Device device) {
  return device.kind == engine::Device::Kind::kCpu ? "cpu" : engine::to_string(device);
}

template <class BatchOf>
std::vector<float> Model::Impl::predict(std::size_t items, std::size_t given, const char* what,
                                        const BatchOf& batch_of) {
  if (given % items != 0)
    throw io::DataError("predict: " + std::to_string(given) + " " + what +
                        " are no whole samples, which have " + std::to_string(items) + " each (" +
                        base::shape_text(shape.sample) + ")");
  if (!inference)
    inference = std::make_unique<engine::Inference>(
        graph, state, pool,
        engine::InferenceOptions{.batch = static_cast<std::int64_t>(kBatch), .device = device});
  if (!loaded) inference->load();
  loaded = true;
  const std::size_t samples = given / items;
  const std::size_t rows = shape.sample.size() == 1 ? items : 1;  // predictions per sample
  std::vector<float> logits;
  logits.reserve(samples * rows * static_cast<std::size_t>(inference->classes()));
  for (std::size_t first = 0; first < samples; first += kBatch) {
    const std::size_t count = std::min(kBatch, samples - first);
    engine::BatchView batch = batch_of(first, count);
    batch.count = static_cast<std::int64_t>(count);
    inference->predict(batch);
    for (const double value : inference->logits()) logits.push_back(static_cast<float>(value));
  }
  return logits;
}

std::vector<std::string> model_names() { return models::model_names(); }

Model Model::build(const std::string& name, const ModelShape& shape, std::uint64_t seed,
                   int threads) {
  return translated([&] {
    return Model(
        std::make_unique<Impl>(name, models::model_definition(name), shape, seed, threads));
  });
}

Model Model::parse(const std::string& toml, const ModelShape& shape, std::uint64_t seed,
                   int threads, const std::string& name) {
  return translated([&] {
    if (!name.ends_with(".toml"))
      throw io::ConfigError("the list of layers is called '" + name +
                            "', expected a name that ends in .toml");
    if (toml.empty()) throw io::ConfigError(name + ": the list of layers is empty");
    return Model(std::make_unique<Impl>(name, toml, shape, seed, threads));
  });
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const std::string& Model::name() const { return impl_->name; }
const ModelShape& Model::shape() const { return impl_->shape; }
std::int64_t Model::parameter_count() const { return impl_->state.parameter_count(); }

std::vector<Tensor> Model::tensors() const {
  return translated([&] {
    std::vector<Tensor> tensors;
    for (const io::NamedArray& array : engine::export_state(impl_->state, {})) {
      if (!is_number_of_model(array)) continue;
      Tensor& tensor = tensors.emplace_back(
          Tensor{array.name, array.shape, std::vector<float>(array.data.size() / sizeof(float))});
      std::memcpy(tensor.values.data(), array.data.data(), array.data.size());
    }
    return tensors;
  });
}

void Model::set_tensors(const std::vector<Tensor>& tensors) {
  translated([&] {
    std::vector<io::NamedArray> arrays;
    std::set<std::string_view> names;
    for (const Tensor& tensor : tensors) {
      if (!names.insert(tensor.name).second)
        throw io::DataError("tensor '" + tensor.name + "' is given twice, expected one of each");
      std::int64_t count = 1;
      for (const std::int64_t extent : tensor.shape) count *= extent;
      if (count != static_cast<std::int64_t>(tensor.values.size()))
        throw io::DataError("tensor '" + tensor.name + "' has " +
                            std::to_string(tensor.values.size()) + " values, expected " +
                            std::to_string(count) + " for its shape " +
                            base::shape_text(tensor.shape));
      io::NamedArray array{.name = tensor.name,
                           .section = io::section_of_name(tensor.name),
                           .type = base::DType::kF32,
                           .shape = tensor.shape,
                           .data = std::vector<std::byte>(tensor.values.size() * sizeof(float))};
      std::memcpy(array.data.data(), tensor.values.data(), array.data.size());
      arrays.push_back(std::move(array));
    }
    impl_->take(arrays, "set_tensors");
  });
}

void Model::load(const std::string& path) {
  translated([&] {
    std::string chosen;
    std::vector<io::UnreadArray> unread;
    const auto load = [&](const std::string& file) {
      chosen = file;
      return tools::load_weights(engine::AverageKind::kNone, file, &unread,
                                 {impl_->name, impl_->definition});
    };
    const auto arrays = tools::read_checkpoint(path, tools::CheckpointChoice::kBest, load);
    impl_->take(arrays, chosen, unread);
  });
}

void Model::set_device(const std::string& device) {
  translated([&] {
    const std::optional<tools::DeviceName> name = tools::parse_device_name(device);
    if (!name)
      throw io::ConfigError("device is '" + base::escape_text(device) +
                            "'; expected one of auto, cpu, cuda, cuda:N");
    const engine::Device chosen = tools::choose_device({.device = *name}).device;
    if (chosen == impl_->device) return;
    impl_->inference.reset();
    impl_->device = chosen;
    impl_->loaded = false;
  });
}

std::string Model::device() const { return name_of(impl_->device); }

void Model::save(const std::string& path) const {
  translated([&] { io::save_arrays(engine::export_state(impl_->state, {}), path); });
}

namespace {

std::size_t items_of(const ModelShape& shape) {
  std::size_t items = 1;
  for (const std::int64_t extent : shape.sample) items *= static_cast<std::size_t>(extent);
  return items;
}

void require_kind(const ModelShape& shape, bool text, const char* given) {
  if ((shape.sample.size() == 1) != text)
    throw io::ConfigError(std::string("predict: the model reads ") +
                          (text ? "numbers" : "token ids") + ", found " + given);
}

}  // namespace

std::vector<float> Model::predict(std::span<const float> values) {
  return translated([&] {
    require_kind(impl_->shape, /*text=*/false, "numbers");
    const std::size_t items = items_of(impl_->shape);
    return impl_->predict(items, values.size(), "values",
                          [&](std::size_t first, std::size_t count) {
                            engine::BatchView batch;
                            batch.samples = values.subspan(first * items, count * items);
                            return batch;
                          });
  });
}

std::vector<float> Model::predict(std::span<const std::uint8_t> pixels) {
  return translated([&] {
    require_kind(impl_->shape, /*text=*/false, "bytes");
    if (!impl_->preparer)
      throw io::ConfigError(
          "predict: this model does not know how its images were prepared: give prepared values, "
          "or take the model of a training on images");
    const std::size_t items = items_of(impl_->shape);
    std::vector<float> prepared(items * std::min(kBatch, pixels.size() / items));
    return impl_->predict(items, pixels.size(), "bytes", [&](std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i)
        impl_->preparer->prepare(&pixels[(first + i) * items], io::SplitMix(0, 0, 0),
                                 &prepared[i * items]);
      engine::BatchView batch;
      batch.samples = std::span<const float>(prepared).first(count * items);
      return batch;
    });
  });
}

std::vector<float> Model::predict(std::span<const std::int32_t> tokens) {
  return translated([&] {
    require_kind(impl_->shape, /*text=*/true, "token ids");
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= impl_->shape.classes)
        throw engine::InputError("predict: token " + std::to_string(token) +
                                 " is not in the vocabulary of " +
                                 std::to_string(impl_->shape.classes) + " tokens");
    const std::size_t items = items_of(impl_->shape);
    return impl_->predict(items, tokens.size(), "token ids",
                          [&](std::size_t first, std::size_t count) {
                            engine::BatchView batch;
                            batch.tokens = tokens.subspan(first * items, count * items);
                            return batch;
                          });
  });
}

}  // namespace engine::api
