// A model in inference mode on a CUDA device, with a stream and a state of its own.
#pragma once

#include "engine/graph/device_executor.h"

namespace engine {

class DeviceInference {
 public:
  // `plan` is an inference plan for a CUDA device and outlives this. The calling thread makes all
  // calls. With `image_table` (DeviceExecutorOptions) batches carry bytes.
  DeviceInference(const Plan& plan, Device device, Products products,
                  std::vector<float> image_table = {});

  // Takes over the values and statistics of a state in host memory, of the same graph.
  void load(const ModelState& host);
  BatchResult forward(const BatchView& batch);
  TensorView logits() const { return executor_.logits(); }    // device memory
  TensorView watched() const { return executor_.watched(); }  // likewise
  // Copies it to host memory, which has its bytes.
  void read(const TensorView& view, void* to);

 private:
  KernelContext make_context(Products products) const;

  Device device_;
  cuda::Stream stream_;
  ModelState state_;
  KernelContext context_;
  DeviceExecutor executor_;
};

}  // namespace engine
