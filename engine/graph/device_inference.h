// Runs a model on a CUDA device with its own stream and state: in inference mode, or in training
// mode for its running statistics.
#pragma once

#include "engine/graph/device_executor.h"

namespace engine {

class DeviceInference {
 public:
  // `plan` is for a CUDA device, of inference unless statistics are computed, and must outlive
  // this. The calling thread must make all calls.
  DeviceInference(const Plan& plan, Device device, Products products,
                  const DeviceExecutorOptions& options);

  // Copies the values and statistics of a state in host memory, of the same graph.
  void load(const ModelState& host);
  BatchResult forward(const BatchView& batch);
  // See DeviceExecutor::extend(). Waits for the logits if they are needed, and then throws
  // InputError for a token out of range.
  void extend(const TextExtension& extension);
  // A forward pass in training mode. `weight` is that of the batch's statistics in the running
  // ones.
  void add_statistics(const BatchView& batch, double weight);
  // Copies running statistics and counters to a state in host memory, of the same graph.
  void store_statistics(ModelState& host);
  void set_replicas(ReplicaExchange* replicas) { executor_.set_replicas(replicas); }
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
