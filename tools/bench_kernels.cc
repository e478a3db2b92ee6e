// Times single kernels, one request per line on standard input, for tools/bench_kernels.py, which
// compares them with PyTorch.
//
//   THREADS OP n in out                                 OP = dense_forward | dense_backward_data |
//   dense_backward_weights THREADS OP n h w in out kernel stride padding       OP = conv_forward |
//   conv_backward_data | conv_backward_weights 1 fma the rate of independent multiply-adds
// Answers one line: seconds per call (the median of repeated timings over about 0.2 s), or for fma
// the flop/s.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "engine/core/arena.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/gemm/dense.h"
#include "tools/bench/kernels/kernel_bench.h"

namespace {

using engine::Arena;
using engine::KernelContext;
using engine::Shape;
using engine::TensorView;
using engine::Write;

// With one thread its CPU time: other people's load on the machine then counts little.
bool use_cpu_time = true;

double seconds_now() {
  if (!use_cpu_time)
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median_seconds(const std::function<void()>& call) {
  for (int i = 0; i < 2; ++i) call();
  const double start = seconds_now();
  call();
  const double once = std::max(seconds_now() - start, 1e-7);
  const int inner = std::max(1, static_cast<int>(0.005 / once)),
            rounds = std::clamp(static_cast<int>(0.2 / (inner * once)), 3, 41);
  std::vector<double> each;
  for (int round = 0; round < rounds; ++round) {
    const double begin = seconds_now();
    for (int i = 0; i < inner; ++i) call();
    each.push_back((seconds_now() - begin) / inner);
  }
  std::nth_element(each.begin(), each.begin() + rounds / 2, each.end());
  return each[static_cast<std::size_t>(rounds / 2)];
}

// A tensor of random values in [-1, 1) with its memory.
struct Operand {
  Arena memory;
  TensorView view;

  explicit Operand(const Shape& shape)
      : memory(static_cast<std::size_t>(shape.count()) * sizeof(float)) {
    view = {memory.data(), engine::DType::kF32, shape, {}};
    std::uint32_t state = 12345;
    for (float& value : view.span<float>()) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) * 0x1p-23f - 1.f;
    }
  }
};

double time_dense(const std::string& op, int threads, std::istream& sizes) {
  std::int64_t n = 0, in = 0, out = 0;
  sizes >> n >> in >> out;
  engine::ThreadPool pool(threads);
  Arena scratch(engine::ops::dense_scratch_bytes(n, in, out, engine::DType::kF32, threads));
  KernelContext context{{}, &pool, {scratch.data(), scratch.bytes()}};
  const Operand x({n, in}), y({n, out}), weight({out, in}), bias({out});
  return median_seconds([&] {
    if (op == "dense_forward") {
      engine::ops::dense_forward(context, x.view, weight.view, bias.view, false, y.view);
    } else if (op == "dense_backward_data") {
      engine::ops::dense_backward_data(context, y.view, weight.view, x.view, Write::kOverwrite);
    } else {
      engine::ops::dense_backward_weights(context, x.view, y.view, weight.view, bias.view,
                                          Write::kOverwrite);
    }
  });
}

double time_conv(const std::string& op, int threads, std::istream& sizes) {
  std::int64_t n = 0, kernel = 0;
  engine::ops::Conv2dGeometry g;
  sizes >> n >> g.in_h >> g.in_w >> g.in_channels >> g.out_channels >> kernel >> g.stride >>
      g.padding;
  g.kernel_h = g.kernel_w = kernel;
  engine::ThreadPool pool(threads);
  Arena scratch(engine::ops::conv2d_scratch_bytes(g, n, engine::DType::kF32, threads));
  KernelContext context{{}, &pool, {scratch.data(), scratch.bytes()}};
  const Operand x({n, g.in_h, g.in_w, g.in_channels}), y({n, g.out_h(), g.out_w(), g.out_channels});
  const Operand weight({kernel, kernel, g.in_channels, g.out_channels}), bias({g.out_channels});
  return median_seconds([&] {
    if (op == "conv_forward") {
      engine::ops::conv2d_forward(context, g, x.view, weight.view, bias.view, y.view);
    } else if (op == "conv_backward_data") {
      engine::ops::conv2d_backward_data(context, g, y.view, weight.view, x.view, Write::kOverwrite);
    } else {
      engine::ops::conv2d_backward_weights(context, g, x.view, y.view, weight.view, bias.view,
                                           Write::kOverwrite);
    }
  });
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    int threads = 1;
    std::string op;
    words >> threads >> op;
    use_cpu_time = threads == 1;
    const double answer = op == "fma"               ? tools::fma_rate(true)
                          : op.starts_with("dense") ? time_dense(op, threads, words)
                                                    : time_conv(op, threads, words);
    std::cout << answer << std::endl;
  }
}
