// From options to the parts of a training: model, plan, threads, optimizer, what is done when.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/group.h"
#include "engine/train/trainer.h"
#include "tools/options/run_config.h"
#include "tools/session/compute_choice.h"

namespace tools {

engine::DType dtype_of(const tools::RunConfig& config);
engine::ThreadPool make_pool(const tools::RunConfig& config, const backends::Group& group);
engine::Graph build_graph(const tools::RunConfig& config, const io::Dataset& dataset);
engine::PlanOptions plan_options(const tools::RunConfig& config, const Compute& compute,
                                 const io::Sampler& sampler, const engine::ThreadPool& pool);
std::unique_ptr<engine::Optimizer> make_optimizer(const tools::RunConfig& config,
                                                  const engine::Graph& graph,
                                                  const engine::FlatBuffer& values);
engine::LearningRate make_learning_rate(const tools::RunConfig& config, int world_size,
                                        std::int64_t steps_per_epoch, std::int64_t total_steps);
engine::BufferMode buffer_mode(const tools::RunConfig& config);
engine::OnDesync on_desync(const tools::RunConfig& config);
engine::Every every(const tools::Interval& interval);

}  // namespace tools
