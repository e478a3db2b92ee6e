// Models: built by name or from a list of layers, their weights, and what they predict.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/errors.h"

namespace engine::api {

// Names that Model::build() takes: "mlp", "convnet", "resnet18" ...
ENGINE_API std::vector<std::string> model_names();

// What a model reads and how many classes it tells apart.
struct ModelShape {
  // Of one sample: {height, width, channels}; {1, 1, columns} for rows of numbers; {context} for
  // text.
  std::vector<std::int64_t> sample;
  std::int64_t classes = 0;  // of text: tokens of the vocabulary
};

// A parameter or running statistic, with PyTorch's name and shape.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // row-major
};

// Computes on the CPU, in f32. Moves only; one caller at a time.
class ENGINE_API Model {
 public:
  // `name`: one of model_names(), or the path of a list of layers that ends in .toml
  // (docs/models.md). Initial weights depend on name, shape and seed alone. `threads`: to compute
  // with, 0: all cores that the process may use. Throws ConfigurationError.
  static Model build(const std::string& name, const ModelShape& shape, std::uint64_t seed = 0,
                     int threads = 0);
  // From the text of a list of layers. `name` stands for it in messages and ends in .toml.
  static Model parse(const std::string& toml, const ModelShape& shape, std::uint64_t seed = 0,
                     int threads = 0, const std::string& name = "model.toml");

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const std::string& name() const;
  const ModelShape& shape() const;
  std::int64_t parameter_count() const;

  // Parameters and running statistics, in the model's order.
  std::vector<Tensor> tensors() const;
  // All parameters; running statistics may be left out. Throws DataError that names what does not
  // fit.
  void set_tensors(const std::vector<Tensor>& tensors);

  // Weights from a run's folder (its best snapshot, else the newest), or from a .ckpt,
  // .safetensors, .npz or .pth file. Throws DataError, also for weights that are not finite.
  void load(const std::string& path);
  // As the ending says: .safetensors, .npz, .pth.
  void save(const std::string& path) const;

  // Logits, [samples, classes]; of text [samples, context, classes]. `values`: samples one after
  // the other, as the model reads them: images NHWC, prepared; rows of numbers. Throws DataError
  // where they are not whole samples.
  std::vector<float> predict(std::span<const float> values);
  // Images as bytes, NHWC, prepared as those that the model was trained on: only for a model that a
  // Training has returned, else ConfigurationError.
  std::vector<float> predict(std::span<const std::uint8_t> pixels);
  // Token ids, for a model of text.
  std::vector<float> predict(std::span<const std::int32_t> tokens);

  struct ENGINE_HIDDEN Impl;  // for the library itself
  explicit Model(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine::api
