// Inference: runs an inference plan on one of the two kinds of executors.
#include "engine/graph/inference.h"

#include <span>

#include "io/base/numbers/half.h"

namespace engine {
namespace {

template <class T>
double wide(T value) {
  if constexpr (sizeof(T) == 2)
    return base::to_float(value);
  else
    return value;
}

template <class T>
void widen(const void* from, std::vector<double>& values) {
  const T* typed = static_cast<const T*>(from);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = wide(typed[i]);
}

}  // namespace

Inference::Inference(const Graph& graph, ModelState& state, ThreadPool& threads,
                     const InferenceOptions& options)
    : state_(state),
      plan_(Plan::compile(graph, {.max_batch = options.batch,
                                  .dtype = options.dtype,
                                  .threads = threads.threads(),
                                  .device = options.device.kind,
                                  .training = false,
                                  .products = options.products,
                                  .watched = options.watched,
                                  .positions = options.positions,
                                  .packed = options.packed})) {
  if (options.device.kind == Device::Kind::kCuda)
    on_device_ = std::make_unique<DeviceInference>(
        plan_, options.device, options.products,
        DeviceExecutorOptions{.image_table = options.image_table, .texts = options.texts});
  else
    executor_ = std::make_unique<Executor>(plan_, state_, threads, 0);
  if (executor_ && options.texts > 0) executor_->keep_texts(options.texts);
}

void Inference::load() {
  if (on_device_) on_device_->load(state_);
}

BatchResult Inference::forward(const BatchView& batch) {
  return on_device_ ? on_device_->forward(batch) : executor_->forward(batch, false);
}

void Inference::predict(BatchView batch) {
  const PlanTensor& input = plan_.tensors.at(static_cast<std::size_t>(plan_.inputs.at(1)));
  const auto stand_in = [&](auto& values) {
    const std::int64_t items = input.item_shape.count();
    values.resize(static_cast<std::size_t>(plan_.options.max_batch * items));
    return std::span(values).first(static_cast<std::size_t>(batch.count * items));
  };
  batch.labels = {};
  batch.targets = {};
  if (input.dtype == DType::kI32)
    batch.labels = stand_in(no_labels_);
  else
    batch.targets = stand_in(no_targets_);
  forward(batch);
}

void Inference::extend(const TextExtension& extension) {
  on_device_ ? on_device_->extend(extension) : executor_->extend(extension);
}

TensorView Inference::logits_view() const {
  return on_device_ ? on_device_->logits() : executor_->logits();
}

std::int64_t Inference::classes() const {
  const Shape shape = logits_view().shape;
  return shape[shape.rank() - 1];
}

const std::vector<double>& Inference::logits() {
  read(logits_view(), logits_);
  return logits_;
}

const std::vector<double>& Inference::logits_of(std::int64_t row) {
  TensorView view = logits_view();
  const std::int64_t width = classes(), first = row * width;
  require(row >= 0 && first < view.count(), "logits have this row");
  view.data =
      static_cast<std::byte*>(view.data) + first * static_cast<std::int64_t>(size_of(view.dtype));
  view.shape = Shape{width};
  read(view, logits_);
  return logits_;
}

const std::vector<double>& Inference::watched() {
  read(on_device_ ? on_device_->watched() : executor_->watched(), watched_);
  return watched_;
}

Shape Inference::watched_shape() const {
  return plan_.tensors.at(static_cast<std::size_t>(plan_.options.watched)).item_shape;
}

void Inference::read(const TensorView& view, std::vector<double>& values) {
  values.resize(static_cast<std::size_t>(view.count()));
  const void* from = view.data;
  if (on_device_) {
    staging_.resize(view.bytes());
    on_device_->read(view, staging_.data());
    from = staging_.data();
  }
  switch (view.dtype) {
    case DType::kF64:
      return widen<double>(from, values);
    case DType::kF16:
      return widen<base::f16>(from, values);
    case DType::kBF16:
      return widen<base::bf16>(from, values);
    default:
      require(view.dtype == DType::kF32, "outputs of layers are numbers");
  }
  widen<float>(from, values);
}

}  // namespace engine
