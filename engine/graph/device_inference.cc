// Combines a state, a stream and an executor.
#include "engine/graph/device_inference.h"

#include <utility>

#include "engine/ops/optim_step/device_step.h"

namespace engine {
namespace {

Device chosen(Device device) {
  cuda::use_device(device.index);
  return device;
}

}  // namespace

DeviceInference::DeviceInference(const Plan& plan, Device device, Products products,
                                 const DeviceExecutorOptions& options)
    : device_(chosen(device)),
      state_(ModelState::allocate(*plan.graph, plan.options.dtype, device, /*gradients=*/false)),
      context_(make_context(products)),
      executor_(plan, state_, context_, options) {}

KernelContext DeviceInference::make_context(Products products) const {
  KernelContext context;
  context.device = device_;
  context.stream = stream_.handle();
  context.products = products;
  return context;
}

void DeviceInference::load(const ModelState& host) {
  cuda::use_device(device_.index);
  const std::pair<const FlatBuffer*, const FlatBuffer*> pairs[] = {
      {&host.parameters.values, &state_.parameters.values},
      {&host.running, &state_.running},
      {&host.counters, &state_.counters}};
  for (const auto& [from, to] : pairs)
    cuda::copy_async(to->data(), from->data(), to->bytes(), stream_.handle());
  if (const TensorView half = state_.half_flat())
    ops::copy_to_half(context_, state_.parameters.values.flat(), half);
  stream_.synchronize();
}

void DeviceInference::read(const TensorView& view, void* to) {
  cuda::use_device(device_.index);
  cuda::copy_async(to, view.data, view.bytes(), stream_.handle());
  stream_.synchronize();
}

void DeviceInference::add_statistics(const BatchView& batch, double weight) {
  cuda::use_device(device_.index);
  const int slot = executor_.stage(batch, StepNumbers{.epoch = batch.epoch}, true);
  executor_.forward(slot, /*training=*/true, /*continues=*/false, weight);
  executor_.release(slot);
}

void DeviceInference::store_statistics(ModelState& host) {
  static_cast<void>(executor_.results());  // throws for tokens out of range
  cuda::copy_async(host.running.data(), state_.running.data(), host.running.bytes(),
                   stream_.handle());
  cuda::copy_async(host.counters.data(), state_.counters.data(), host.counters.bytes(),
                   stream_.handle());
  stream_.synchronize();
}

void DeviceInference::extend(const TextExtension& extension) {
  cuda::use_device(device_.index);
  executor_.extend(extension);
  if (extension.logits) static_cast<void>(executor_.results());
}

BatchResult DeviceInference::forward(const BatchView& batch) {
  cuda::use_device(device_.index);
  return executor_.infer(batch);
}

}  // namespace engine
