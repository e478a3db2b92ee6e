// Runs a model in inference mode on a CUDA device, with its own stream and state.
#pragma once

#include "engine/graph/device_executor.h"

namespace engine {

class DeviceInference {
 public:
  // `plan` is an inference plan for a CUDA device and must outlive this. The calling thread must
  // make all calls. With `image_table` (DeviceExecutorOptions) batches contain bytes.
  DeviceInference(const Plan& plan, Device device, Products products,
                  std::vector<float> image_table = {});

  // Copies the values and statistics of a state in host memory, of the same graph.
  void load(const ModelState& host);
  BatchResult forward(const BatchView& batch);
  TensorView logits() const { return executor_.logits(); }    // in device memory
  TensorView watched() const { return executor_.watched(); }  // in device memory
  // Copies the view to host memory at `to`, which must have its size.
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
