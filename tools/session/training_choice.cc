// Options of a run as the engine's own types.
#include "tools/session/training_choice.h"

#include <algorithm>
#include <cmath>

#include "engine/graph/parameter_kinds.h"
#include "io/base/io_error.h"
#include "models/model_catalog.h"
#include "tools/machine/thread_choice.h"
#include "tools/session/data_choice.h"

namespace tools {

using engine::DType;

DType dtype_of(const tools::RunConfig& config) {
  return config.dtype == "f64" ? DType::kF64 : DType::kF32;
}

// With --deterministic kernels cut their work into as many shares on every machine.
constexpr int kDeterministicShares = 16;

engine::ThreadPool make_pool(const tools::RunConfig& config, const backends::Group& group) {
  return engine::ThreadPool(config.threads > 0 ? config.threads : default_threads(group),
                            config.deterministic ? kDeterministicShares : 0);
}

// For the most samples that one pass computes: a micro-batch, of a rank or of a shard. A rank may
// have none at all.
engine::PlanOptions plan_options(const tools::RunConfig& config, const Compute& compute,
                                 const io::Sampler& sampler, const engine::ThreadPool& pool) {
  const std::int64_t most = std::max<std::int64_t>(1, sampler.max_part_count());
  return {.max_batch = (most - 1) / config.grad_accum + 1,
          .dtype = compute.storage,
          .threads = config.canonical ? 1 : pool.threads(),
          .device = compute.device.kind};
}

engine::Graph build_graph(const tools::RunConfig& config, const io::Dataset& dataset) {
  engine::Graph graph =
      models::build_model(config.model, {.sample_shape = sample_shape(dataset),
                                         .classes = dataset.classes,
                                         .label_smoothing = config.label_smoothing,
                                         .dropout = config.dropout});
  if (config.sync_bn) graph.synchronize_statistics();
  return graph;
}

std::unique_ptr<engine::Optimizer> make_optimizer(const tools::RunConfig& config,
                                                  const engine::Graph& graph,
                                                  const engine::FlatBuffer& values) {
  const engine::OptimizerSpec& spec = *engine::find_optimizer(config.optimizer);
  if (values.device().kind == engine::Device::Kind::kCuda && !spec.on_cuda)
    throw io::ConfigError("--optimizer " + config.optimizer +
                          " needs --device cpu: it has no step on CUDA devices");
  return spec.make(spec, {config.optimizer_settings, values, engine::hidden_matrices(graph)});
}

engine::LearningRate make_learning_rate(const tools::RunConfig& config, int world_size,
                                        std::int64_t steps_per_epoch, std::int64_t total_steps) {
  engine::LearningRate rate;
  rate.base = config.lr * (config.lr_scale == "linear" ? world_size
                           : config.lr_scale == "sqrt" ? std::sqrt(world_size)
                                                       : 1.0);
  using Schedule = engine::LearningRate::Schedule;
  rate.schedule = config.lr_schedule == "cosine" ? Schedule::kCosine
                  : config.lr_schedule == "step" ? Schedule::kStep
                                                 : Schedule::kConstant;
  rate.warmup_steps = config.lr_warmup_steps;
  rate.gamma = config.lr_gamma;
  rate.minimum = config.lr_min;
  rate.total_steps = total_steps;
  for (const std::int64_t epoch : config.lr_step_epochs)
    rate.milestones.push_back(epoch * steps_per_epoch);
  return rate;
}

engine::BufferMode buffer_mode(const tools::RunConfig& config) {
  return config.buffers == "rank0"     ? engine::BufferMode::kRank0
         : config.buffers == "average" ? engine::BufferMode::kAverage
                                       : engine::BufferMode::kLocal;
}

engine::OnDesync on_desync(const tools::RunConfig& config) {
  return config.on_desync == "repair" ? engine::OnDesync::kRepair
         : config.on_desync == "warn" ? engine::OnDesync::kWarn
                                      : engine::OnDesync::kAbort;
}

engine::Every every(const tools::Interval& interval) { return {interval.every, interval.epochs}; }

}  // namespace tools
