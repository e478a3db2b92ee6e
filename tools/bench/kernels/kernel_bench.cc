// Implements operands, timing and errors.
#include "tools/bench/kernels/kernel_bench.h"
#include "io/base/time/deadline.h"
#include "tools/run/choices/compute_choice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "engine/core/dtype.h"
#include "engine/ops/device/ceiling_probes_cuda.h"
#include "engine/ops/gemm/gemm_plan.h"
#include "io/gpu/kernel_resources.h"

namespace tools {
namespace {

using engine::Arena;
using engine::Device;
using engine::DType;
using engine::KernelContext;
using engine::TensorView;

constexpr Device kHost{};
bool is_cuda(Device device) { return device.kind == Device::Kind::kCuda; }

DType dtype_of(const OperandSpec& spec, DType activations, DType vectors) {
  switch (spec.storage) {
    case Storage::kActivation:
      return activations;
    case Storage::kVector:
      return vectors;
    case Storage::kSums:
      return DType::kF64;
    case Storage::kIndex:
      return DType::kI32;
    case Storage::kByte:
      return DType::kU8;
  }
  return DType::kF32;
}

// Calls f(T{}) with the type that a DType stores.
template <class Call>
void with_type(DType dtype, Call call) {
  switch (dtype) {
    case DType::kF32:
      return call(float{});
    case DType::kF64:
      return call(double{});
    case DType::kI32:
      return call(std::int32_t{});
    case DType::kU8:
      return call(std::uint8_t{});
    case DType::kBF16:
      return call(engine::bf16{});
    case DType::kF16:
      return call(engine::f16{});
    default:
      throw engine::Error("internal: an operand of an unexpected type");
  }
}
template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, engine::bf16> || std::is_same_v<T, engine::f16>)
    return engine::from_float<T>(static_cast<float>(value));
  else
    return static_cast<T>(value);  // indices: rounds towards zero, so within [0, high)
}
template <class T>
double to_double(T value) {
  if constexpr (std::is_same_v<T, engine::bf16> || std::is_same_v<T, engine::f16>)
    return engine::to_float(value);
  else
    return static_cast<double>(value);
}

// Returns numbers in [low, high), always the same for an operand: a table of 2^16 numbers, repeated
// from a different position.
std::vector<std::byte> random_bytes(const OperandSpec& spec, DType dtype, std::size_t operand) {
  static const std::vector<double> table = [] {
    std::vector<double> made(1 << 16);
    std::uint64_t state = 1;
    for (double& value : made) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<double>(state >> 11) * 0x1p-53;
    }
    return made;
  }();
  const auto count = static_cast<std::size_t>(spec.shape.count());
  std::vector<std::byte> bytes(count * base::size_of(dtype));
  with_type(dtype, [&]<class T>(T) {
    auto* values = reinterpret_cast<T*>(bytes.data());
    for (std::size_t i = 0; i < count; ++i)
      values[i] = from_double<T>(spec.low + (spec.high - spec.low) *
                                                table[(i + 7919 * operand + (i >> 16)) & 0xffff]);
  });
  return bytes;
}

std::vector<double> as_doubles(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<double> result(bytes.size() / base::size_of(dtype));
  with_type(dtype, [&]<class T>(T) {
    const auto* values = reinterpret_cast<const T*>(bytes.data());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = to_double(values[i]);
  });
  return result;
}

double element(const std::vector<std::byte>& bytes, DType dtype, std::size_t i) {
  double value = 0;
  with_type(dtype,
            [&]<class T>(T) { value = to_double(reinterpret_cast<const T*>(bytes.data())[i]); });
  return value;
}

double relative_error(const std::vector<double>& found, const std::vector<double>& expected) {
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    const double d = std::fabs(found[i] - expected[i]);
    if (!(d <= difference)) difference = std::isfinite(d) ? d : INFINITY;
  }
  return largest > 0 ? difference / largest : difference;
}

}  // namespace

// The operands of a case on a device, filled by `random_bytes` for the types of the bench (the
// float64 reference gets the same numbers, rounded as they are stored).
class KernelBench::Operands {
 public:
  Operands(const KernelCase& test, Device device, DType activations, DType vectors,
           DType rounded_to)
      : test_(test) {
    for (std::size_t i = 0; i < test.operands.size(); ++i) {
      const OperandSpec& spec = test.operands[i];
      const DType dtype = dtype_of(spec, activations, vectors),
                  first = dtype_of(spec, rounded_to, DType::kF32);
      std::vector<std::byte> bytes = random_bytes(spec, first, i);
      if (first != dtype) {
        const std::vector<double> wide = as_doubles(bytes, first);
        bytes.resize(wide.size() * sizeof(double));
        std::memcpy(bytes.data(), wide.data(), bytes.size());
      }
      memory_.emplace_back(std::max<std::size_t>(bytes.size(), 1), device);
      views_.push_back({memory_.back().data(), dtype, spec.shape, device});
      if (is_cuda(device)) {
        engine::cuda::copy_async(memory_.back().data(), bytes.data(), bytes.size(), nullptr);
        engine::cuda::synchronize_device();
      } else {
        std::memcpy(memory_.back().data(), bytes.data(), bytes.size());
      }
    }
  }
  const KernelCase::Views& views() const { return views_; }
  std::vector<double> values(std::size_t i) const { return as_doubles(bytes(i), views_[i].dtype); }
  std::vector<std::byte> bytes(std::size_t i) const {
    std::vector<std::byte> bytes(views_[i].bytes());
    if (is_cuda(views_[i].device)) {
      engine::cuda::synchronize_device();
      engine::cuda::copy_async(bytes.data(), views_[i].data, bytes.size(), nullptr);
      engine::cuda::synchronize_device();
    } else {
      std::memcpy(bytes.data(), views_[i].data, bytes.size());
    }
    return bytes;
  }
  // Returns the error of the elements that the case samples.
  double sampled_error() const {
    std::vector<std::vector<std::byte>> all;
    for (std::size_t i = 0; i < views_.size(); ++i) all.push_back(bytes(i));
    std::vector<double> found, expected;
    for (const Sample& each : test_.sample(
             [&](std::size_t i, std::size_t j) { return element(all[i], views_[i].dtype, j); })) {
      found.push_back(element(all.back(), views_.back().dtype, each.element));
      expected.push_back(each.value);
    }
    return relative_error(found, expected);
  }
  ProductOperands product() const {  // REQUIRES: the case is a product
    const CaseProduct& p = *test_.product;
    return {views_[p.a].data, views_[p.b].data, views_[p.c].data, views_[p.a].dtype,
            views_[p.c].dtype};
  }
  void prepare(KernelContext& context) const {
    if (test_.prepare) test_.prepare(context, views_);
  }
  void call(KernelContext& context) const { test_.call(context, views_); }

 private:
  const KernelCase& test_;
  std::vector<Arena> memory_;
  KernelCase::Views views_;
};

KernelBench::KernelBench(const KernelBenchOptions& options)
    : options_(options), pool_(options.threads) {
  using engine::Products;
  if (!is_cuda(options.device)) {
    if (options.amp == "bf16") products_ = Products::kBF16;
    return;
  }
  engine::cuda::use_device(options.device.index);
  apply_warpgroup_switch();
  stream_ = std::make_unique<engine::cuda::Stream>();
  numbers_ = Arena(256, options.device);
  if (options.amp == "tf32") products_ = Products::kTf32;
  if (options.amp == "O1") products_ = Products::kF16;
  if (options.amp == "O2") stored_ = DType::kF16, products_ = Products::kF16;
  if (options.amp == "bf16") stored_ = DType::kBF16, products_ = Products::kBF16;
}

KernelBench::~KernelBench() = default;

KernelContext KernelBench::context(const Arena& scratch) {
  KernelContext made;
  made.device = options_.device;
  made.scratch = {scratch.data(), scratch.bytes()};
  if (!is_cuda(options_.device)) {
    made.threads = &pool_;
    made.convolutions = options_.convolutions;
    made.products = products_;
    return made;
  }
  made.stream = stream_->handle();
  made.products = products_;
  made.epoch = reinterpret_cast<const std::uint64_t*>(numbers_.data());
  made.fault = reinterpret_cast<engine::DeviceFault*>(numbers_.data() + 64);
  return made;
}

std::size_t KernelBench::scratch_bytes(const KernelCase& test) const {
  return test.scratch_bytes
             ? test.scratch_bytes(stored_, options_.threads, options_.device.kind, products_)
             : 0;
}

// Returns the median of rounds of several calls each. On a CUDA device a round is one captured
// graph, like a training step.
double KernelBench::time(const std::function<void()>& call) {
  const bool cuda = is_cuda(options_.device);
  const auto finish = [&] {
    if (cuda) stream_->synchronize();
  };
  call();
  finish();
  double start = base::steady_seconds();
  call();
  finish();
  const double once = std::max(base::steady_seconds() - start, 1e-7);
  const int inner = std::clamp(static_cast<int>(0.025 * options_.seconds / once), 1, 1000);
  const int rounds = std::clamp(static_cast<int>(options_.seconds / (inner * once)), 3, 41);
  engine::cuda::StepGraph graph;
  if (cuda) {
    engine::cuda::StepGraph::begin_capture(stream_->handle());
    try {
      for (int i = 0; i < inner; ++i) call();
    } catch (...) {
      engine::cuda::StepGraph::drop_capture(stream_->handle());
      throw;
    }
    graph = engine::cuda::StepGraph::end_capture(stream_->handle());
    graph.launch(stream_->handle());  // the first launch uploads it
    finish();
  }
  std::vector<double> each;
  for (int round = 0; round < rounds; ++round) {
    if (cuda) {
      engine::cuda::Event begin(true), end(true);
      begin.record(stream_->handle());
      graph.launch(stream_->handle());
      end.record(stream_->handle());
      end.synchronize();
      each.push_back(end.seconds_since(begin) / inner);
      continue;
    }
    start = base::steady_seconds();
    for (int i = 0; i < inner; ++i) call();
    each.push_back((base::steady_seconds() - start) / inner);
  }
  std::nth_element(each.begin(), each.begin() + rounds / 2, each.end());
  return std::max(each[static_cast<std::size_t>(rounds / 2)], 1e-9);
}

double KernelBench::median_seconds(const KernelCase& test) {
  const Operands operands(test, options_.device, stored_, DType::kF32, stored_);
  const Arena scratch(scratch_bytes(test), options_.device);
  KernelContext c = context(scratch);
  operands.prepare(c);
  return time([&] { operands.call(c); });
}

Occupancy KernelBench::occupancy(const KernelCase& test) {
  Occupancy found;
  if constexpr (engine::cuda::kBuilt) {
    if (!is_cuda(options_.device)) return found;
    const Operands operands(test, options_.device, stored_, DType::kF32, stored_);
    const Arena scratch(scratch_bytes(test), options_.device);
    KernelContext c = context(scratch);
    operands.prepare(c);
    const engine::cuda::LaunchRecord record;
    operands.call(c);
    stream_->synchronize();
    if (record.launches().empty()) return found;
    const auto& largest = *std::ranges::max_element(
        record.launches(), {}, [](const auto& each) { return each.blocks * each.use.threads; });
    found.blocks = engine::cuda::resident_blocks(largest.use);
    found.warps = found.blocks * largest.use.threads / 32;
  }
  return found;
}

std::optional<double> KernelBench::cublaslt_seconds(const KernelCase& test, CublasLt& library) {
  if (!test.product) return std::nullopt;
  const Operands operands(test, options_.device, stored_, DType::kF32, stored_);
  const auto call =
      library.product(test.product->shape, operands.product(), products_, stream_->handle());
  return call ? std::optional(time(call)) : std::nullopt;
}

std::optional<double> KernelBench::cublaslt_difference(const KernelCase& test, CublasLt& library) {
  if (!test.product) return std::nullopt;
  const Operands operands(test, options_.device, stored_, DType::kF32, stored_);
  const Arena scratch(scratch_bytes(test), options_.device);
  KernelContext c = context(scratch);
  operands.prepare(c);
  operands.call(c);
  const std::vector<double> ours = operands.values(test.product->c);
  const auto call =
      library.product(test.product->shape, operands.product(), products_, stream_->handle());
  if (!call) return std::nullopt;
  engine::cuda::set_bytes_async(operands.product().c, 0xff,
                                operands.views()[test.product->c].bytes(), stream_->handle());
  call();
  return relative_error(operands.values(test.product->c), ours);
}

std::vector<CutTime> KernelBench::cut_times(const KernelCase& test) {
  std::vector<CutTime> times;
  if constexpr (engine::cuda::kBuilt) {
    namespace kernels = engine::ops::cuda;
    const Operands operands(test, options_.device, stored_, DType::kF32, stored_);
    const Arena scratch(scratch_bytes(test), options_.device);
    KernelContext c = context(scratch);
    operands.prepare(c);
    const auto made = [&](const kernels::GemmCutWish& wish) {
      kernels::wish_for_cut(wish);
      operands.call(c);
      return kernels::last_cut();
    };
    const kernels::GemmPlan own = made({});
    if (own.tile == 0) return times;
    for (const kernels::GemmTileFacts& tile : kernels::kGemmTiles) {
      int last = 0;
      for (const int splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128}) {
        const kernels::GemmPlan plan = made({tile.rows, tile.columns, splits});
        if (plan.tile != tile.rows || plan.columns != tile.columns) break;  // it does not fit
        if (plan.splits <= last) continue;
        last = plan.splits;
        times.push_back({.rows = plan.tile,
                         .columns = plan.columns,
                         .splits = plan.splits,
                         .warpgroup = plan.warpgroup,
                         .chosen = plan.tile == own.tile && plan.columns == own.columns &&
                                   plan.splits == own.splits,
                         .seconds = time([&] { operands.call(c); })});
      }
    }
    if (std::none_of(times.begin(), times.end(), [](const CutTime& t) { return t.chosen; })) {
      made({});
      times.push_back({own.tile, own.columns, own.splits, own.warpgroup, true,
                       time([&] { operands.call(c); })});
    }
    kernels::wish_for_cut({});
  }
  return times;
}

double KernelBench::error(const KernelCase& test) {
  const Operands operands(test, options_.device, stored_, DType::kF32, stored_);
  const Arena scratch(scratch_bytes(test), options_.device);
  KernelContext c = context(scratch);
  operands.prepare(c);
  operands.call(c);
  if (test.sample) return operands.sampled_error();

  const Operands reference(test, kHost, DType::kF64, DType::kF64, stored_);
  const Arena wide(test.scratch_bytes
                       ? test.scratch_bytes(DType::kF64, options_.threads, Device::Kind::kCpu,
                                            engine::Products::kF32)
                       : 0);
  KernelContext exact;
  exact.threads = &pool_;
  exact.scratch = {wide.data(), wide.bytes()};
  reference.prepare(exact);
  reference.call(exact);
  double worst = 0;
  for (std::size_t i = 0; i < test.operands.size(); ++i)
    if (test.operands[i].use == Use::kOut || test.operands[i].use == Use::kInOut)
      worst = std::max(worst, relative_error(operands.values(i), reference.values(i)));
  return worst;
}

Ceilings KernelBench::ceilings() {
  Ceilings found;
  if constexpr (engine::cuda::kBuilt) {
    if (is_cuda(options_.device)) {
      const bool emulated =
          engine::cuda::device_info(options_.device.index).name.starts_with("emulated");
      const std::size_t bytes = emulated ? 1 << 16 : std::size_t{1} << 30;
      const Arena sink(256, options_.device), from(bytes, options_.device),
          to(bytes, options_.device), none;
      KernelContext c = context(none);
      const engine::Shape all{static_cast<std::int64_t>(bytes / 4)};
      engine::ops::cuda::MultiplyAddProbe probe;
      const int blocks = 8 * (emulated ? 1 : engine::cuda::processor_count());
      const double busy = time([&] {
        probe = engine::ops::cuda::probe_multiply_adds(
            c, emulated ? 1 : 4096, blocks, {sink.data(), DType::kF32, {64}, options_.device});
      });
      const double copying = time([&] {
        engine::ops::cuda::probe_copy(c, {from.data(), DType::kF32, all, options_.device},
                                      {to.data(), DType::kF32, all, options_.device});
      });
      return {probe.operations / busy, 2 * static_cast<double>(bytes) / copying, probe.instruction};
    }
  }
  std::vector<double> rates(static_cast<std::size_t>(options_.threads));
  pool_.run(options_.threads, [&](std::int64_t first, std::int64_t last, int) {
    for (; first < last; ++first)
      rates[static_cast<std::size_t>(first)] = fma_rate(false, products_);
  });
  for (const double rate : rates) found.flops += rate;
  const std::int64_t each = std::int64_t{64} << 20;
  const Arena from(static_cast<std::size_t>(each * options_.threads)), to(from.bytes());
  found.bytes_per_second =
      2 * static_cast<double>(from.bytes()) / time([&] {
        pool_.run(options_.threads, [&](std::int64_t first, std::int64_t last, int) {
          std::memcpy(to.data() + first * each, from.data() + first * each,
                      static_cast<std::size_t>((last - first) * each));
        });
      });
  return found;
}

double moved_bytes(const KernelCase& test, DType stored) {
  if (test.moved > 0) return test.moved * static_cast<double>(base::size_of(stored));
  double bytes = 0;
  for (const OperandSpec& spec : test.operands)
    if (spec.use != Use::kSetup)
      bytes += (spec.use == Use::kInOut ? 2.0 : 1.0) * static_cast<double>(spec.shape.count()) *
               static_cast<double>(base::size_of(dtype_of(spec, stored, DType::kF32)));
  return bytes;
}

}  // namespace tools
