// Defines the implementation of a public Model.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/thread_pool.h"
#include "engine/graph/batch_view.h"
#include "engine/graph/inference.h"
#include "engine/model.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/images/image_preparer.h"
#include "models/model_catalog.h"

namespace engine::api {

struct Model::Impl {
  Impl(std::string model_name, const std::string& model_definition, const ModelShape& model_shape,
       std::uint64_t seed, int threads);

  // Replaces the weights. `source` names them in messages. Throws io::DataError.
  void take(const std::vector<io::NamedArray>& arrays, const std::string& source,
            const std::vector<io::UnreadArray>& unread = {});
  // Sets the preparation of the images that the model was trained on.
  void prepare_as(const io::ImageFormat& images, io::Normalization normalization);
  // `items`: number of items per sample. `batch_of(first, count)` returns these samples.
  template <class BatchOf>
  std::vector<float> predict(std::size_t items, std::size_t given, const char* what,
                             const BatchOf& batch_of);

  const std::string name, definition;
  const ModelShape shape;
  const engine::Graph graph;
  engine::ModelState state;
  engine::ThreadPool pool;
  engine::Device device;                         // of the inference
  std::unique_ptr<engine::Inference> inference;  // null: no prediction has been made on `device`
  bool loaded = false;                           // the inference has the current weights
  std::optional<io::ImagePreparer> preparer;     // for images like those that it was trained on
};

std::string name_of(engine::Device device);  // as for set_device(): "cpu", "cuda:1"

}  // namespace engine::api
