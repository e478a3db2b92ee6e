// Runs a model in inference mode on the CPU or on a CUDA device, and returns results in host
// memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/graph/device_inference.h"

namespace engine {

struct InferenceOptions {
  std::int64_t batch = 64;    // maximum number of samples per forward pass
  DType dtype = DType::kF32;  // dtype of activations
  Device device = {};
  Products products = Products::kF32;
  std::vector<float> image_table = {};  // on a device: batches contain bytes
                                        // (DeviceExecutorOptions)
  // For models of text whose new positions are computed alone: PlanOptions::positions and packed,
  // and the number of texts that are kept. 0: samples are whole.
  std::int64_t positions = 0, texts = 0;
  DType packed = DType::kF32;
  NodeId watched = -1;  // node whose output can be read; -1: none
};

class Inference {
 public:
  // All arguments must outlive this; `state` is in host memory. Allocates here, and in the first
  // calls of logits() and watched().
  Inference(const Graph& graph, ModelState& state, ThreadPool& threads,
            const InferenceOptions& options);
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  // On a device, copies the current state. On the CPU the state is read in place.
  void load();
  BatchResult forward(const BatchView& batch);
  // The same for samples without labels: the loss is that of placeholder labels, and has no
  // meaning.
  void predict(BatchView batch);
  // Computes the next positions of texts, with tokens in host memory: see Executor::extend().
  // REQUIRES: options.texts is not 0.
  void extend(const TextExtension& extension);
  std::int64_t classes() const;  // number of logits per row

  // The results of the last forward() or extend(), valid until the next call: the logits, row by
  // row or of one row, and the watched node's output. 16-bit numbers are converted.
  const std::vector<double>& logits();
  const std::vector<double>& logits_of(std::int64_t row);
  const std::vector<double>& watched();
  Shape watched_shape() const;  // shape for one sample

 private:
  TensorView logits_view() const;
  void read(const TensorView& view, std::vector<double>& values);

  ModelState& state_;
  Plan plan_;
  std::unique_ptr<Executor> executor_;  // exactly one of these two is set
  std::unique_ptr<DeviceInference> on_device_;
  std::vector<double> logits_, watched_;
  std::vector<std::byte> staging_;
  // Placeholder labels: after a call of predict(), one of the two has the size of the largest
  // batch.
  std::vector<std::int32_t> no_labels_;
  std::vector<float> no_targets_;
};

}  // namespace engine
