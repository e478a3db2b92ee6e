// Lists the operators that only training uses: losses, optimizers.
#include <algorithm>

#include "engine/ops/loss/softmax_cross_entropy.h"
#include "engine/ops/optim_step/optimizer_step.h"
#include "engine/ops/optim_step/orthogonalize.h"
#include "tools/bench/kernels/case_parts.h"

namespace tools {
namespace {

using engine::KernelContext;
using engine::Shape;
using engine::TensorView;
using engine::Write;
using Views = KernelCase::Views;
namespace k = engine::ops;

constexpr bool kLossOnCuda = true, kOptimizersOnCuda = false;

void add_loss(std::vector<KernelCase>& cases, const char* model, std::int64_t rows,
              std::int64_t classes) {
  const Shape logits{rows, classes};
  const OperandSpec labels{{rows}, Storage::kIndex, Use::kIn, 0, static_cast<double>(classes)};
  cases.push_back(make_case("softmax_cross_entropy_forward", model, logits, kLossOnCuda,
                            {{logits, Storage::kActivation, Use::kIn, -4, 4},
                             labels,
                             vector(rows, Use::kOut),
                             out(logits)},
                            [](KernelContext& c, const Views& v) {
                              k::softmax_cross_entropy_forward(
                                  c,
                                  {.logits = v[0], .labels = v[1], .loss = v[2], .gradient = v[3]});
                            }));
  cases.push_back(make_case(
      "softmax_cross_entropy_backward", model, logits, kLossOnCuda,
      {{logits}, vector(rows), out(logits)}, [](KernelContext& c, const Views& v) {
        k::softmax_cross_entropy_backward(
            c, {.gradient = v[0], .dloss = v[1], .dlogits = v[2], .write = Write::kOverwrite});
      }));
}

void add_elementwise(std::vector<KernelCase>& cases, const char* model, std::int64_t count) {
  const OperandSpec gradient = vector(count), state = vector(count, Use::kInOut);
  cases.push_back(make_case("sgd_step", model, {count}, kOptimizersOnCuda, {gradient, state, state},
                            [](KernelContext& c, const Views& v) {
                              k::sgd_step(c, {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4},
                                          v[0], v[1], v[2]);
                            }));
  cases.push_back(make_case("adamw_step", model, {count}, kOptimizersOnCuda,
                            {gradient, state, vector(count, Use::kInOut, 0.1), state},
                            [](KernelContext& c, const Views& v) {
                              k::adamw_step(c, {.lr = 0.001, .count = 10}, v[0], v[1], v[2], v[3]);
                            }));
  // The values avoid 0, around which float32 and float64 may differ in sign.
  cases.push_back(make_case("lion_step", model, {count}, kOptimizersOnCuda,
                            {vector(count, Use::kIn, 0.1), vector(count, Use::kInOut, 0.1), state},
                            [](KernelContext& c, const Views& v) {
                              k::update(c, {.step = k::LionStep{.lr = 1e-4, .weight_decay = 0.1},
                                            .gradient = v[0],
                                            .states = {&v[1], 1},
                                            .value = v[2]});
                            }));
}

// Adds momentum, five iterations of Newton-Schulz, and the update of one matrix.
void add_muon(std::vector<KernelCase>& cases, const char* model, std::int64_t rows,
              std::int64_t columns) {
  constexpr int kSteps = 5;
  const Shape shape{rows, columns};
  const OperandSpec gradient{shape, Storage::kVector}, state{shape, Storage::kVector, Use::kInOut};
  const auto direction_bytes = [=](engine::DType dtype) {  // at the start of the scratch memory
    return (static_cast<std::size_t>(rows * columns) * base::size_of(dtype) + 63) / 64 * 64;
  };
  KernelCase made =
      make_case("muon_step", model, shape, kOptimizersOnCuda, {gradient, state, state},
                [=](KernelContext& c, const Views& v) {
                  const TensorView direction{c.scratch.data(), v[0].dtype, shape, v[0].device};
                  KernelContext rest = c;
                  rest.scratch = c.scratch.subspan(direction_bytes(v[0].dtype));
                  k::update(rest, {.step = k::MuonMomentumStep{},
                                   .gradient = v[0],
                                   .states = {&v[1], 1},
                                   .value = direction});
                  k::orthogonalize(rest, kSteps, direction);
                  k::update(rest, {.step = k::MuonApplyStep{.lr = 0.02, .weight_decay = 0.01},
                                   .gradient = direction,
                                   .states = {},
                                   .value = v[2]});
                });
  const double narrow = static_cast<double>(std::min(rows, columns)),
               wide = static_cast<double>(std::max(rows, columns));
  made.flops = kSteps * 2 * narrow * narrow * (2 * wide + narrow);
  made.scratch_bytes = [=](engine::DType dtype, int, engine::Device::Kind, engine::Products) {
    return direction_bytes(dtype) + k::orthogonalize_scratch_bytes(rows, columns, dtype);
  };
  cases.push_back(std::move(made));
}

}  // namespace

std::vector<KernelCase> training_cases(const BatchSizes& sizes) {
  std::vector<KernelCase> cases;
  add_loss(cases, "convnet", sizes.images, 10);
  add_loss(cases, "gpt-nano", sizes.texts * 64, 65);
  add_loss(cases, "gpt2", sizes.texts * 64, 50257);
  add_elementwise(cases, "mlp", 669'706);
  add_elementwise(cases, "resnet18-cifar", 11'173'962);
  add_muon(cases, "gpt-nano", 512, 128);
  add_muon(cases, "resnet18-cifar", 64, 576);
  return cases;
}

}  // namespace tools
