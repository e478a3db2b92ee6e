// Embeddings of tokens and learned embeddings of positions.
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/embedding/token_error.h"

namespace engine::layers {
namespace {

class Embedding final : public Layer {
 public:
  Embedding(std::int64_t vocabulary, std::int64_t width, double deviation)
      : Layer({.kind = "embedding",
               .integer_input = 0,
               .backward_needs = {.inputs = true},
               .extends_texts = true}),
        vocabulary_(vocabulary),
        width_(width),
        deviation_(deviation) {
    expect_at_least("embedding", "vocabulary", vocabulary, 1);
    expect_at_least("embedding", "width", width, 1);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 1, "[positions]");
    return {inputs[0][0], width_};
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape>) const override {
    return {{"weight",
             TensorLayout::plain({vocabulary_, width_}),
             {Initializer::Kind::kNormal, deviation_}}};
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    return {.scratch =
                ops::embedding_scratch_bytes(r.batch * r.inputs[0][0], vocabulary_, r.device)};
  }

  void forward(const LayerRun& run) const override {
    try {
      ops::embedding_forward(
          run.kernels, {.tokens = run.inputs[0], .table = run.parameters[0], .y = run.output});
    } catch (const ops::TokenError& error) {  // a row does not tell a user which sample it is
      const auto row = static_cast<std::size_t>(error.token().row);
      const std::span<const std::int64_t> ids = run.random.sample_ids;
      if (row >= ids.size()) throw;
      throw ops::TokenError(error.token(), "sample " + std::to_string(ids[row]));
    }
  }
  void backward(const LayerRun& run) const override {
    ops::embedding_backward(run.kernels, {.tokens = run.inputs[0],
                                          .dy = run.gradients.output,
                                          .dtable = run.gradients.parameters[0],
                                          .write = run.gradients.parameter_write});
  }

 private:
  std::int64_t vocabulary_, width_;
  double deviation_;
};

class PositionEmbedding final : public Layer {
 public:
  PositionEmbedding(std::int64_t context, double deviation)
      : Layer({.kind = "position_embedding", .may_run_in_place = true, .extends_texts = true}),
        context_(context),
        deviation_(deviation) {
    expect_at_least("position_embedding", "context", context, 1);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 2, "[positions, width]");
    if (inputs[0][0] > context_)
      throw ShapeError("expected at most " + std::to_string(context_) + " positions, got " +
                       inputs[0].to_string());
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{"weight",
             TensorLayout::plain({context_, inputs[0][1]}),
             {Initializer::Kind::kNormal, deviation_}}};
  }

  void forward(const LayerRun& run) const override {
    if (run.earlier.counts.empty())
      return ops::add_positions_forward(run.kernels, run.inputs[0], run.parameters[0], run.output);
    for (std::size_t i = 0; i < run.earlier.counts.size(); ++i)
      ops::add_positions_forward(run.kernels, sample_of(run.inputs[0], i),
                                 rows_from(run.parameters[0], run.earlier.counts[i]),
                                 sample_of(run.output, i));
  }
  void backward(const LayerRun& run) const override {
    const TensorView dy = run.gradients.output, dx = run.gradients.inputs[0];
    ops::add_positions_backward(run.kernels, dy, run.gradients.parameters[0],
                                run.gradients.parameter_write);
    if (dx && dx.data != dy.data)
      ops::copy_or_add(run.kernels, dy, dx, run.gradients.input_writes[0]);
  }

 private:
  std::int64_t context_;
  double deviation_;
};

}  // namespace

LayerPtr embedding(std::int64_t vocabulary, std::int64_t width, double deviation) {
  return std::make_unique<Embedding>(vocabulary, width, deviation);
}
LayerPtr position_embedding(std::int64_t context, double deviation) {
  return std::make_unique<PositionEmbedding>(context, deviation);
}

}  // namespace engine::layers
