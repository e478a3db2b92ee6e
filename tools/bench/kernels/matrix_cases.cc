// Lists dense layers and convolutions of the models.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/dense/dense.h"
#include "tools/bench/kernels/kernel_case.h"

namespace tools {
namespace {

using engine::KernelContext;
using engine::Shape;
using engine::Write;
using engine::ops::Conv2dGeometry;
using Views = KernelCase::Views;

constexpr bool kDenseOnCuda = true, kConvolutionOnCuda = true;

void add_dense(std::vector<KernelCase>& cases, const char* model, std::int64_t n, std::int64_t in,
               std::int64_t out) {
  KernelCase base;
  base.model = model;
  base.shape = std::to_string(n) + "x" + std::to_string(in) + "->" + std::to_string(out);
  base.cuda = kDenseOnCuda;
  base.flops = 2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out);
  base.scratch_bytes = [=](engine::DType dtype, int threads, engine::Device::Kind device,
                           engine::Products products) {
    return engine::ops::dense_scratch_bytes(n, in, out, dtype, threads, device, products);
  };
  const Shape x{n, in}, y{n, out}, weight{out, in}, bias{out};

  KernelCase forward = base, data = base, weights = base;
  forward.op = "dense_forward";
  forward.operands = {
      {x}, {weight}, {bias, Storage::kVector}, {y, Storage::kActivation, Use::kOut}};
  forward.call = [](KernelContext& c, const Views& v) {
    engine::ops::dense_forward(c, {.x = v[0], .weight = v[1], .bias = v[2], .y = v[3]});
  };
  forward.product = {{n, out, in, true, true}, 0, 1, 3};
  data.op = "dense_backward_data";
  data.operands = {{y}, {weight}, {x, Storage::kActivation, Use::kOut}};
  data.call = [](KernelContext& c, const Views& v) {
    engine::ops::dense_backward_data(
        c, {.dy = v[0], .weight = v[1], .dx = v[2], .write = Write::kOverwrite});
  };
  data.product = {{n, in, out, true, false}, 0, 1, 2};
  weights.op = "dense_backward_weights";
  weights.operands = {
      {x}, {y}, {weight, Storage::kVector, Use::kOut}, {bias, Storage::kVector, Use::kOut}};
  weights.call = [](KernelContext& c, const Views& v) {
    engine::ops::dense_backward_weights(
        c, {.x = v[0], .dy = v[1], .dweight = v[2], .dbias = v[3], .write = Write::kOverwrite});
  };
  weights.product = {{out, in, n, false, false}, 1, 0, 2};
  for (KernelCase* each : {&forward, &data, &weights}) cases.push_back(std::move(*each));
}

struct Convolution {
  const char* model;
  std::int64_t side, in, out, kernel, stride, padding, groups = 1;
};

void add_convolution(std::vector<KernelCase>& cases, const Convolution& k, std::int64_t n) {
  const Conv2dGeometry g{.in_h = k.side,
                         .in_w = k.side,
                         .in_channels = k.in,
                         .out_channels = k.out,
                         .kernel_h = k.kernel,
                         .kernel_w = k.kernel,
                         .stride = k.stride,
                         .padding = k.padding,
                         .groups = k.groups};
  const Shape x{n, k.side, k.side, k.in}, y{n, g.out_h(), g.out_w(), k.out},
      weight{k.kernel, k.kernel, k.in / k.groups, k.out};
  KernelCase base;
  base.model = k.model;
  base.shape = extents_text(x) + "->" + std::to_string(k.out) + " k" + std::to_string(k.kernel) +
               " s" + std::to_string(k.stride) +
               (k.groups == 1 ? "" : " g" + std::to_string(k.groups));
  base.cuda = kConvolutionOnCuda;
  base.flops = 2.0 * static_cast<double>(y.count()) *
               static_cast<double>(k.kernel * k.kernel * k.in / k.groups);
  base.scratch_bytes = [g, n](engine::DType dtype, int threads, engine::Device::Kind device,
                              engine::Products products) {
    return engine::ops::conv2d_scratch_bytes(g, n, dtype, threads, device, products);
  };
  KernelCase forward = base, data = base, weights = base;
  forward.op = "conv2d_forward";
  forward.operands = {{x}, {weight}, {y, Storage::kActivation, Use::kOut}};
  forward.call = [g](KernelContext& c, const Views& v) {
    engine::ops::conv2d_forward(c, {.geometry = g, .x = v[0], .weight = v[1], .y = v[2]});
  };
  data.op = "conv2d_backward_data";
  data.operands = {{y}, {weight}, {x, Storage::kActivation, Use::kOut}};
  data.call = [g](KernelContext& c, const Views& v) {
    engine::ops::conv2d_backward_data(c, {.geometry = g, .dy = v[0], .weight = v[1], .dx = v[2]});
  };
  weights.op = "conv2d_backward_weights";
  weights.operands = {{x}, {y}, {weight, Storage::kVector, Use::kOut}};
  weights.call = [g](KernelContext& c, const Views& v) {
    engine::ops::conv2d_backward_weights(c,
                                         {.geometry = g, .x = v[0], .dy = v[1], .dweight = v[2]});
  };
  cases.push_back(std::move(forward));
  if (k.in > 3) cases.push_back(std::move(data));  // the first layer's input needs no gradient
  cases.push_back(std::move(weights));
}

// Samples whole rows of c = a b^T, all [side, side]: the first, the last and others at varying
// positions within tiles. The rows are whole, because a product may be wrong in single columns, or
// lack a part of its sum.
std::vector<Sample> square_samples(std::int64_t side,
                                   const std::function<double(std::size_t, std::size_t)>& at) {
  constexpr std::int64_t kRows = 8;
  const auto row_of = [&](std::size_t operand, std::int64_t row) {
    std::vector<double> numbers(static_cast<std::size_t>(side));
    for (std::size_t k = 0; k < numbers.size(); ++k)
      numbers[k] = at(operand, static_cast<std::size_t>(row * side) + k);
    return numbers;
  };
  std::set<std::int64_t> places{side - 1};
  for (std::int64_t i = 0; i + 1 < kRows; ++i)
    places.insert(
        std::min(i * (side / kRows) + 37 * i % std::max<std::int64_t>(side / kRows, 1), side - 1));
  std::vector<std::pair<std::int64_t, std::vector<double>>> rows;
  for (const std::int64_t place : places) rows.emplace_back(place, row_of(0, place));
  std::vector<Sample> samples;
  for (std::int64_t column = 0; column < side; ++column) {
    const std::vector<double> other = row_of(1, column);
    for (const auto& [place, row] : rows)
      samples.push_back({static_cast<std::size_t>(place * side + column),
                         std::inner_product(row.begin(), row.end(), other.begin(), 0.0)});
  }
  return samples;
}

}  // namespace

std::vector<KernelCase> square_cases(const std::vector<std::int64_t>& sides) {
  std::vector<KernelCase> cases;
  for (const std::int64_t side : sides) {
    KernelCase test;
    const Shape square{side, side};
    test.op = test.model = "gemm";
    test.shape = extents_text({side, side, side});
    test.cuda = kDenseOnCuda;
    test.flops =
        2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
    test.operands = {{square}, {square}, {square, Storage::kActivation, Use::kOut}};
    test.call = [](KernelContext& c, const Views& v) {
      engine::ops::dense_forward(c, {.x = v[0], .weight = v[1], .y = v[2]});
    };
    test.scratch_bytes = [side](engine::DType dtype, int threads, engine::Device::Kind device,
                                engine::Products products) {
      return engine::ops::dense_scratch_bytes(side, side, side, dtype, threads, device, products);
    };
    test.product = {{side, side, side, true, true}, 0, 1, 2};
    test.sample = [side](const auto& at) { return square_samples(side, at); };
    cases.push_back(std::move(test));
  }
  return cases;
}

std::vector<KernelCase> resnet_convolution_cases(const BatchSizes& sizes) {
  std::vector<KernelCase> cases;
  for (const Convolution& each : {Convolution{"conv", 32, 3, 64, 3, 1, 1},
                                  {"conv", 32, 64, 64, 3, 1, 1},
                                  {"conv", 32, 64, 128, 3, 2, 1},
                                  {"conv", 16, 128, 128, 3, 1, 1},
                                  {"conv", 8, 256, 256, 3, 1, 1},
                                  {"conv", 4, 512, 512, 3, 1, 1},
                                  {"conv", 32, 64, 256, 1, 1, 0},
                                  {"conv", 8, 1024, 256, 1, 1, 0}})
    add_convolution(cases, each, sizes.images);
  return cases;
}

std::vector<KernelCase> dense_cases(const BatchSizes& sizes) {
  std::vector<KernelCase> cases;
  for (const auto& [in, out] : {std::pair{784, 512}, {512, 512}, {512, 10}})
    add_dense(cases, "mlp", sizes.images, in, out);
  add_dense(cases, "resnet50", sizes.images, 2048, 1000);
  const std::int64_t nano = sizes.texts * 64, gpt2 = sizes.texts * 256;
  for (const auto& [in, out] : {std::pair{128, 384}, {128, 128}, {128, 512}, {512, 128}, {128, 65}})
    add_dense(cases, "gpt-nano", nano, in, out);
  for (const auto& [in, out] : {std::pair{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}})
    add_dense(cases, "gpt2", gpt2, in, out);
  add_dense(cases, "gpt2", nano, 768, 50257);  // the head; in bf16 its rows are aligned to 2 bytes
  return cases;
}

std::vector<KernelCase> convolution_cases(const BatchSizes& sizes) {
  std::vector<KernelCase> cases;
  for (const Convolution& each :
       {Convolution{"convnet", 28, 1, 16, 5, 1, 2}, {"convnet", 14, 16, 32, 5, 1, 2},
        {"resnet18-cifar", 32, 3, 64, 3, 1, 1},     {"resnet18-cifar", 32, 64, 64, 3, 1, 1},
        {"resnet18-cifar", 32, 64, 128, 3, 2, 1},   {"resnet18-cifar", 32, 64, 128, 1, 2, 0},
        {"resnet18-cifar", 16, 128, 128, 3, 1, 1},  {"resnet18-cifar", 8, 256, 256, 3, 1, 1},
        {"resnet18-cifar", 16, 128, 256, 3, 2, 1},  {"resnet18-cifar", 16, 128, 256, 1, 2, 0},
        {"resnet18-cifar", 8, 256, 512, 3, 2, 1},   {"resnet18-cifar", 8, 256, 512, 1, 2, 0},
        {"resnet18-cifar", 4, 512, 512, 3, 1, 1},   {"resnet50-cifar", 32, 3, 64, 3, 1, 1},
        {"resnet50-cifar", 32, 64, 64, 1, 1, 0},    {"resnet50-cifar", 32, 64, 64, 3, 1, 1},
        {"resnet50-cifar", 32, 64, 256, 1, 1, 0},   {"resnet50-cifar", 32, 256, 64, 1, 1, 0},
        {"resnet50-cifar", 32, 256, 128, 1, 1, 0},  {"resnet50-cifar", 32, 128, 128, 3, 2, 1},
        {"resnet50-cifar", 16, 128, 512, 1, 1, 0},  {"resnet50-cifar", 32, 256, 512, 1, 2, 0},
        {"resnet50-cifar", 16, 512, 128, 1, 1, 0},  {"resnet50-cifar", 16, 128, 128, 3, 1, 1},
        {"resnet50-cifar", 16, 512, 256, 1, 1, 0},  {"resnet50-cifar", 16, 256, 256, 3, 2, 1},
        {"resnet50-cifar", 8, 256, 1024, 1, 1, 0},  {"resnet50-cifar", 16, 512, 1024, 1, 2, 0},
        {"resnet50-cifar", 8, 1024, 256, 1, 1, 0},  {"resnet50-cifar", 8, 256, 256, 3, 1, 1},
        {"resnet50-cifar", 8, 1024, 512, 1, 1, 0},  {"resnet50-cifar", 8, 512, 512, 3, 2, 1},
        {"resnet50-cifar", 4, 512, 2048, 1, 1, 0},  {"resnet50-cifar", 8, 1024, 2048, 1, 2, 0},
        {"resnet50-cifar", 4, 2048, 512, 1, 1, 0},  {"resnet50-cifar", 4, 512, 512, 3, 1, 1},
        {"resnet50", 224, 3, 64, 7, 2, 3},          {"resnet50", 56, 64, 64, 3, 1, 1},
        {"resnet50", 56, 64, 256, 1, 1, 0},         {"resnet50", 56, 256, 512, 1, 2, 0},
        {"resnet50", 56, 128, 128, 3, 2, 1},        {"resnet50", 28, 128, 128, 3, 1, 1},
        {"resnet50", 14, 1024, 256, 1, 1, 0},       {"resnet50", 14, 256, 256, 3, 1, 1},
        {"resnet50", 7, 512, 512, 3, 1, 1}})
    add_convolution(cases, each, sizes.images);
  for (const Convolution& each : {Convolution{"mobilenet_v2", 14, 384, 384, 3, 1, 1, 384},
                                  {"mobilenet_v2", 14, 576, 576, 3, 2, 1, 576},
                                  {"efficientnet_b0", 14, 480, 480, 5, 1, 2, 480},
                                  {"regnet_y_400mf", 28, 104, 104, 3, 1, 1, 13}})
    add_convolution(cases, each, sizes.images);
  return cases;
}

}  // namespace tools
