// Models: built by name or from a list of layers, with their weights and predictions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/errors.h"

namespace engine::api {

// Returns the names that Model::build() accepts: "mlp", "convnet", "resnet18" ...
ENGINE_API std::vector<std::string> model_names();

// The shape of a model's input, and its number of classes.
struct ModelShape {
  // The shape of one sample: {height, width, channels}; {1, 1, columns} for rows of numbers;
  // {context} for text.
  std::vector<std::int64_t> sample;
  std::int64_t classes = 0;  // for text: tokens of the vocabulary
};

// A parameter or running statistic, with PyTorch's name and shape.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // row-major
};

// Computes in f32, on the CPU unless set_device() selects another device. Move-only; one caller at
// a time.
class ENGINE_API Model {
 public:
  // Builds a model. `name`: one of model_names(), or the path of a list of layers that ends in
  // .toml, of a network that ends in .onnx, or of a folder of Hugging Face (docs/models.md).
  // Initial weights are those of the network's file, else they depend only on name, shape and seed.
  // `threads`: number of compute threads; 0: all cores that the process may use. Throws
  // ConfigurationError.
  static Model build(const std::string& name, const ModelShape& shape, std::uint64_t seed = 0,
                     int threads = 0);
  // Builds a model from the text of a list of layers. `name` is used in messages and ends in .toml.
  static Model parse(const std::string& toml, const ModelShape& shape, std::uint64_t seed = 0,
                     int threads = 0, const std::string& name = "model.toml");

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const std::string& name() const;
  const ModelShape& shape() const;
  std::int64_t parameter_count() const;

  // Returns parameters and running statistics, in the model's order.
  std::vector<Tensor> tensors() const;
  // Sets all parameters; running statistics may be omitted. Throws DataError that names the tensors
  // that do not fit.
  void set_tensors(const std::vector<Tensor>& tensors);

  // Loads weights from a run's folder (its best checkpoint, else the newest), or from a .ckpt,
  // .safetensors, .npz or .pth file. Throws DataError, also for weights that are not finite.
  void load(const std::string& path);
  // Saves the weights in the format of the extension: .safetensors, .npz, .pth.
  void save(const std::string& path) const;

  // Selects the device of predict(), as the option device does: "cpu", "cuda", "cuda:N" or "auto";
  // "cuda" is the first device that kernels run on. The weights are copied to it by the next
  // predict() after they have changed. Throws ConfigurationError for a device that this process
  // does not have, and leaves the model on its device.
  void set_device(const std::string& device);
  std::string device() const;  // "cpu" or "cuda:N"

  // Returns logits, [samples, classes]; for text [samples, context, classes]. `values`: consecutive
  // samples, as the model reads them: prepared images in NHWC order, or rows of numbers. Throws
  // DataError if the values are not a whole number of samples, ResourceError if a device has not
  // enough memory.
  std::vector<float> predict(std::span<const float> values);
  // `pixels`: images as bytes, NHWC, which are prepared like the images of the training. Only for a
  // model that a Training has returned, else ConfigurationError.
  std::vector<float> predict(std::span<const std::uint8_t> pixels);
  // `tokens`: token ids, for a model of text.
  std::vector<float> predict(std::span<const std::int32_t> tokens);

  struct ENGINE_HIDDEN Impl;  // internal to the library
  explicit Model(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine::api
