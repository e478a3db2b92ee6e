// From options to the parts of a training: model, plan, threads, optimizer, what is done when.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/group.h"
#include "engine/train/trainer.h"
#include "io/config/run_config.h"
#include "tools/compute_choice.h"

namespace tools {

engine::DType dtype_of(const io::RunConfig& config);
engine::ThreadPool make_pool(const io::RunConfig& config, const backends::Group& group);
engine::Graph build_graph(const io::RunConfig& config, const io::Dataset& dataset);
engine::PlanOptions plan_options(const io::RunConfig& config, const Compute& compute, const io::Sampler& sampler,
                                 const engine::ThreadPool& pool);
std::unique_ptr<engine::Optimizer> make_optimizer(const io::RunConfig& config, const engine::FlatBuffer& values);
engine::LearningRate make_learning_rate(const io::RunConfig& config, int world_size, std::int64_t steps_per_epoch,
                                        std::int64_t total_steps);
engine::BufferMode buffer_mode(const io::RunConfig& config);
engine::OnDesync on_desync(const io::RunConfig& config);
engine::Every every(const io::Interval& interval);

}  // namespace tools
