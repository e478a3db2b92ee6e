// A model in inference mode, on the CPU or on a CUDA device, and what it gives, in host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/graph/device_inference.h"

namespace engine {

struct InferenceOptions {
  std::int64_t batch = 64;    // most samples a forward pass
  DType dtype = DType::kF32;  // of activations
  Device device = {};
  Products products = Products::kF32;
  std::vector<float> image_table = {};  // on a device: batches carry bytes (DeviceExecutorOptions)
  NodeId watched = -1;                  // whose output can be read; -1: no one's
};

class Inference {
 public:
  // Everything given outlives this; `state` lies in host memory. Allocates here, and in the first
  // calls of logits() and watched().
  Inference(const Graph& graph, ModelState& state, ThreadPool& threads,
            const InferenceOptions& options);
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  // On a device: takes over the state as it stands. On the CPU it is read in place.
  void load();
  BatchResult forward(const BatchView& batch);
  // The same for samples without labels: the loss is that of labels which stand in for them, and
  // means nothing.
  void predict(BatchView batch);
  std::int64_t classes() const;  // logits of a row

  // Of the last forward(), valid until the next call: the logits, row by row; the watched node's
  // output. 16-bit numbers are converted.
  const std::vector<double>& logits();
  const std::vector<double>& watched();
  Shape watched_shape() const;  // of one sample

 private:
  void read(const TensorView& view, std::vector<double>& values);

  ModelState& state_;
  Plan plan_;
  std::unique_ptr<Executor> executor_;  // one of these two
  std::unique_ptr<DeviceInference> on_device_;
  std::vector<double> logits_, watched_;
  std::vector<std::byte> staging_;
  // Placeholder labels: one of the two is as large as the largest batch needs, once
  // predict() was called.
  std::vector<std::int32_t> no_labels_;
  std::vector<float> no_targets_;
};

}  // namespace engine
