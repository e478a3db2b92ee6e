// The parts of a small training on synthetic images, put together without options: for tests that
// look at one part or replace it. Whole trainings by options: session_runner.h.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/train/step/batch_views.h"
#include "engine/train/trainer.h"
#include "io/data/loader/batch_loader.h"

namespace tiny_training {

struct Options {
  std::array<std::int64_t, 3> shape{4, 4, 1};
  std::int64_t samples = 24, batch = 6;  // of an epoch and of a step, over all ranks
  std::int64_t micro_batches = 1;
  int rank = 0, world_size = 1;
  bool shuffle = false;
  bool shares_change = false;
  std::uint64_t seed = 0;  // of the weights and of the order of samples
  engine::DType storage = engine::DType::kF32;
  engine::Device device = {};
  io::LoaderOptions loader = {};
  std::string model = "mlp";
  std::function<engine::Graph(const io::Dataset&)> make_graph = {};  // instead of `model`
};

io::Dataset images(const std::array<std::int64_t, 3>& shape, std::int64_t samples);

// A model with its first weights, the plan of a step and this rank's batches. Made in this order;
// neither copied nor moved, since each part refers to those before it.
struct Parts {
  explicit Parts(const Options& options);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // The loader's next batch, valid until the next call.
  engine::BatchView next_batch();

  const io::Dataset set;
  const engine::Graph graph;
  engine::ModelState model;
  engine::ThreadPool pool;
  const io::SamplerOptions shares;
  io::Sampler sampler;
  const engine::Plan plan;
  io::BatchLoader loader;
  std::vector<engine::ops::ImageDraw> draws;  // of next_batch()
};

// Runs the trainer for `steps` steps with a report of every `log_every`, told to `observer`.
struct Run {
  engine::Optimizer& optimizer;
  engine::StepWork& work;
  engine::AveragingPolicy& policy;
  backends::Communicator& control;
  std::int64_t steps = 1, log_every = 1;
  engine::TrainObserver* observer = nullptr;
  engine::OnNonFinite on_nonfinite = engine::OnNonFinite::kAbort;
  double clip_grad = 0;
  engine::LossScaleRule loss_scale = {};
  engine::StepControl* scaling = nullptr;  // of the loss scale
  engine::ShareBalance* balance = nullptr;
};
engine::TrainResult train(Parts& parts, const Run& run);

}  // namespace tiny_training
