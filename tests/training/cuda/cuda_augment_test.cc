// Training images that reach a CUDA device as bytes and are prepared there: the same training as
// with numbers sent.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/core/cuda.h"
#include "engine/graph/device_inference.h"
#include "engine/optim/loss_scale.h"
#include "engine/train/step/batch_views.h"
#include "engine/train/step/device_work.h"
#include "models/model_catalog.h"
#include "tests/engine/optim/typed_optimizers.h"
#include "tests/engine/train/tiny_training.h"
#include "tests/support/test_support.h"
#include "tests/training/session_runner.h"

namespace {

using engine::DType;
using session_runner::distance;
using session_runner::loss_distance;
using session_runner::Options;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

class CudaAugment : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
    setenv("ENGINE_ALLOW_SHARED_GPU", "1",
           1);  // as many ranks as a test wants on whatever is there
    engine::cuda::use_device(0);
  }
};

constexpr engine::Device kDevice{engine::Device::Kind::kCuda, 0};
constexpr io::Augmentation kAll{
    .crop = true, .flip = true, .cutout = true, .crop_padding = 2, .cutout_size = 4};

struct Case {
  std::array<std::int64_t, 3> shape{6, 7, 3};
  DType storage = DType::kF32;
  io::Normalization normalization = io::Normalization::kStandard;
  std::int64_t batch = 8, micro_batches = 1;
  bool graph = true;
  io::Augmentation augmentation = kAll;
};

constexpr std::int64_t kSamples = 30;  // a last batch of another size

struct Trained {
  std::vector<double> losses;
  std::vector<float> parameters;
  std::string graph;
};

// Eight steps of an mlp. `bytes`: images are sent as such.
Trained steps(const Case& c, bool bytes) {
  tiny_training::Parts parts(
      {.shape = c.shape,
       .samples = kSamples,
       .batch = c.batch,
       .micro_batches = c.micro_batches,
       .shuffle = true,
       .seed = 1,
       .storage = c.storage,
       .device = kDevice,
       .loader = {
           .normalization = c.normalization, .augmentation = c.augmentation, .bytes = bytes}});
  const auto optimizer = engine::make_sgd({.momentum = 0.9}, parts.model.parameters.values);
  engine::StepControl control = engine::first_control({});
  engine::DeviceWorkOptions options;
  options.device = kDevice;
  options.micro_batches = c.micro_batches;
  options.control = &control;
  options.graph = c.graph;
  if (bytes) options.image_table = engine::image_table(parts.set, c.normalization, kDevice);
  options.make_optimizer = [](const engine::FlatBuffer& values) {
    return engine::make_sgd({.momentum = 0.9}, values);
  };
  const auto work = engine::make_device_work(parts.plan, parts.model, *optimizer, options);
  Trained result;
  for (int step = 0; step < 8; ++step) {
    const engine::BatchView batch = parts.next_batch();
    EXPECT_EQ(batch.samples.empty(), bytes);
    engine::StepPhases phases;
    work->step({.batch = batch, .scale = 1.0 / static_cast<double>(c.batch), .lr = 0.05}, phases);
    result.losses.push_back(work->results().last.loss_sum);
  }
  const engine::HostView view(work->home(), engine::Access::kRead);
  const engine::FlatBuffer& trained = parts.model.parameters.values;
  const float* values = trained.flat().as<float>();
  result.parameters.assign(values, values + trained.size());
  result.graph = work->graph_text();
  return result;
}

TEST_F(CudaAugment, WhereACaptureFailsKernelsAreLaunchedOneByOne) {
  const Trained captured = steps(Case{}, false);
  setenv("ENGINE_EMULATED_CAPTURE", "off", 1);
  const Trained straight = steps(Case{}, false);
  unsetenv("ENGINE_EMULATED_CAPTURE");
  EXPECT_EQ(captured.losses, straight.losses);
  EXPECT_EQ(captured.parameters, straight.parameters);
  EXPECT_TRUE(captured.graph.starts_with("captured")) << captured.graph;
  if (engine::cuda::device_info(0).name.starts_with("emulated")) {
    EXPECT_TRUE(straight.graph.starts_with("not captured: the capture failed, ")) << straight.graph;
  }
}

// Steps of `counts` samples, in a process where each kernel is loaded at its first launch. Ends it,
// with 0 and the line about captured steps.
void steps_of(const std::vector<std::int64_t>& counts) {
  tiny_training::Parts parts(
      {.shape = {16, 16, 1}, .samples = 600, .batch = 300, .device = kDevice});
  const auto optimizer = engine::make_sgd({}, parts.model.parameters.values);
  engine::StepControl control = engine::first_control({});
  engine::DeviceWorkOptions options;
  options.device = kDevice;
  options.control = &control;
  options.make_optimizer = [](const engine::FlatBuffer& values) {
    return engine::make_sgd({}, values);
  };
  const auto work = engine::make_device_work(parts.plan, parts.model, *optimizer, options);
  for (const std::int64_t count : counts) {
    const engine::BatchView batch = parts.next_batch().slice(0, count);
    engine::StepPhases phases;
    work->step({.batch = batch, .scale = 1.0 / static_cast<double>(count), .lr = 0.05}, phases);
  }
  std::fprintf(stderr, "%s\n", work->graph_text().c_str());
  std::exit(std::isfinite(work->results().last.loss_sum) ? 0 : 1);
}

// Which kernels a step launches depends on the size of its batch.
TEST_F(CudaAugment, ABatchSizeIsCapturedOnceItsKernelsHaveRun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  const auto exits = testing::ExitedWithCode(0);
  EXPECT_EXIT(steps_of({2, 2, 300, 300, 300}), exits, "^captured, [0-9]+ nodes\n$");
  EXPECT_EXIT(steps_of({2, 2, 300, 300, 2, 300, 300}), exits,
              "^captured, up to [0-9]+ nodes in 2 shapes\n$");
  EXPECT_EXIT(steps_of({2, 2, 300, 300}), exits, "^captured from step 3 on\n$");
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

TEST_F(CudaAugment, BytesTrainAsNumbersDo) {
  for (const Case& c : {Case{}, Case{.graph = false}, Case{.storage = DType::kBF16},
                        Case{.storage = DType::kF16}, Case{.micro_batches = 3},
                        Case{.shape = {5, 5, 1}, .normalization = io::Normalization::kUnit},
                        Case{.augmentation = {}}}) {
    SCOPED_TRACE(std::string(base::to_string(c.storage)) + ", " + std::to_string(c.micro_batches) +
                 " micro-batches");
    const Trained numbers = steps(c, false), bytes = steps(c, true);
    EXPECT_EQ(numbers.losses, bytes.losses);
    EXPECT_EQ(numbers.parameters, bytes.parameters);
    EXPECT_EQ(bytes.graph.starts_with("captured"), c.graph) << bytes.graph;
    EXPECT_TRUE(std::isfinite(bytes.losses.back()));
  }
  EXPECT_NE(steps({}, true).losses, steps({.augmentation = {}}, true).losses)
      << "nothing was drawn";
}

TEST_F(CudaAugment, RefusesBatchesOfTheOtherKind) {
  const io::Dataset set = tiny_training::images({4, 4, 3}, kSamples);
  const engine::Graph graph =
      models::build_model("mlp", {.sample_shape = {4, 4, 3}, .classes = set.classes()});
  const engine::Plan plan =
      engine::Plan::compile(graph, {.max_batch = 2, .device = kDevice.kind, .training = false});
  const std::vector<std::uint8_t> pixels(2 * 48);
  const std::vector<float> samples(2 * 48);
  const std::vector<engine::ops::ImageDraw> draws(2);
  const std::vector<std::int32_t> labels(2);
  const engine::BatchView numbers{
      .count = 2, .samples = samples, .labels = labels, .sample_ids = {}};
  const engine::BatchView bytes{.count = 2,
                                .samples = {},
                                .pixels = pixels,
                                .draws = draws,
                                .labels = labels,
                                .sample_ids = {}};
  const std::vector<float> table = engine::image_table(set, io::Normalization::kStandard, kDevice);
  engine::DeviceInference of_numbers(plan, kDevice, engine::Products::kF32, {});
  engine::DeviceInference of_bytes(plan, kDevice, engine::Products::kF32, {.image_table = table});
  EXPECT_EQ(of_numbers.forward(numbers).rows, 2);
  EXPECT_EQ(of_bytes.forward(bytes).rows, 2);
  EXPECT_EQ(of_bytes.forward({.count = 0, .samples = {}, .labels = {}, .sample_ids = {}}).rows, 0);
  EXPECT_THROW(of_numbers.forward(bytes), engine::InputError);
  EXPECT_THROW(of_bytes.forward(numbers), engine::InputError);
  engine::BatchView undrawn = bytes;
  undrawn.draws = undrawn.draws.first(1);
  EXPECT_THROW(of_bytes.forward(undrawn), engine::InputError);
  EXPECT_THROW(engine::DeviceInference(plan, kDevice, engine::Products::kF32,
                                       {.image_table = std::vector<float>(257)}),
               engine::ModelError);
  EXPECT_TRUE(engine::image_table(set, io::Normalization::kStandard, {}).empty())
      << "the CPU reads numbers";
}

const Options kAugmented =
    "model=convnet synthetic-shape=28x28x1 batch-size=5 steps=3 lr=0.05 "
    "augment=crop,flip,cutout device=cuda";

TEST_F(CudaAugment, WholeTrainingsAgreeWithTheCpu) {
  for (const Options& options :
       {kAugmented, with(kAugmented, "model=mlp synthetic-shape=9x7x3 steps=8 eval-every=4")}) {
    const Options on_cpu = with(options, "device=cpu");
    const auto cuda = train(1, options), cpu = train(1, on_cpu),
               plain = train(1, with(on_cpu, "augment="));
    EXPECT_LT(loss_distance(cpu[0], cuda[0]), 1e-5);
    EXPECT_LT(distance(cpu[0], cuda[0]), 1e-5);
    EXPECT_GT(loss_distance(cpu[0], plain[0]), 1e-4)
        << "augmentation that changes nothing proves nothing";
    EXPECT_NEAR(cuda[0].last_eval.loss, cpu[0].last_eval.loss, 1e-5);
    EXPECT_EQ(cuda[0].last_eval.correct, cpu[0].last_eval.correct);
  }
}

TEST_F(CudaAugment, IsTheSameForAnyNumberOfRanksAndAfterResumption) {
  const Options base = with(kAugmented, "model=mlp synthetic-shape=6x6x3 batch-size=13 steps=7");
  const auto one = train(1, base), two = train(2, base);
  EXPECT_LT(distance(one[0], two[0]), 1e-5);
  EXPECT_TRUE(same_bits(two[0], two[1], io::Section::kParameter));
  const test_support::TemporaryDirectory folder;
  train(1, with(base, std::string("steps=3 save-dir=") + folder / "a"));
  const auto resumed =
      train(1, with(base, std::string("save-dir=") + folder / "a" + " resume=auto"));
  EXPECT_TRUE(same_bits(one[0], resumed[0], io::Section::kParameter));
}

}  // namespace
