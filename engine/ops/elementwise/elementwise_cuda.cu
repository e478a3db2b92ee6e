// Flat loops, as in map_elements.h. Bound by bytes.
#include "engine/ops/elementwise/elementwise_cuda.h"

#include "engine/ops/device/map_elements.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = kMapThreads;

// Operations of map_elements.h. ReLU passes NaN, as in PyTorch.
struct Same {
  static constexpr bool kPair = false;
  template <class N>
  __device__ __forceinline__ N operator()(N a, N) const {
    return a;
  }
};
struct Relu {
  static constexpr bool kPair = false;
  template <class N>
  __device__ __forceinline__ N operator()(N a, N) const {
    return a < 0 ? N(0) : a;
  }
};
struct Sum {
  static constexpr bool kPair = true;
  template <class N>
  __device__ __forceinline__ N operator()(N a, N b) const {
    return a + b;
  }
};
struct ReluOfSum {
  static constexpr bool kPair = true;
  template <class N>
  __device__ __forceinline__ N operator()(N a, N b) const {
    return Relu()(a + b, N(0));
  }
};
struct GradientOfRelu {
  static constexpr bool kPair = true;
  template <class N>
  __device__ __forceinline__ N operator()(N y, N dy) const {
    return y > 0 ? dy : N(0);
  }
};

// Converts W elements: a whole pack of the narrower type, so up to two of the wider.
template <int W, class From, class To>
__device__ __forceinline__ void cast_pack(const From* from, To* to) {
  constexpr int kFrom = W < Packed<From>::kCount ? W : Packed<From>::kCount;
  constexpr int kTo = W < Packed<To>::kCount ? W : Packed<To>::kCount;
  Pack<From, kFrom> in[W / kFrom];
  Pack<To, kTo> out[W / kTo];
  ENGINE_UNROLL
  for (int k = 0; k < W / kFrom; ++k) in[k] = load_pack<kFrom>(from + k * kFrom);
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j)
    out[j / kTo].at[j % kTo] = from_wide<To>(to_wide(in[j / kFrom].at[j % kFrom]));
  ENGINE_UNROLL
  for (int k = 0; k < W / kTo; ++k) store_pack<kTo>(to + k * kTo, out[k]);
}

constexpr int kCastWidth = 8;

template <class From, class To>
__global__ void cast_all(const From* from, std::int64_t packs, std::int64_t count, To* to) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = first; i < packs; i += step)
    cast_pack<kCastWidth>(from + i * kCastWidth, to + i * kCastWidth);
  for (std::int64_t i = packs * kCastWidth + first; i < count; i += step)
    cast_pack<1>(from + i, to + i);
}

template <class From, class To>
void launch_cast(KernelContext& context, const TensorView& from, std::int64_t count,
                 const TensorView& to) {
  const std::int64_t packs = aligned_to_16({from.data, to.data}) ? count / kCastWidth : 0;
  launch("cast", cast_all<From, To>, {loop_blocks(loop_length(packs, kCastWidth, count), kThreads)},
         kThreads, 0, context.stream, from.as<From>(), packs, count, to.as<To>());
}

template <class T>
__global__ void fill_all(Wide<T> value, std::int64_t packs, std::int64_t count, T* to) {
  constexpr int kWidth = Packed<T>::kCount;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     step = std::int64_t{gridDim.x} * kThreads;
  Pack<T, kWidth> pack;
  ENGINE_UNROLL
  for (int j = 0; j < kWidth; ++j) pack.at[j] = from_wide<T>(value);
  for (std::int64_t i = first; i < packs; i += step) store_pack<kWidth>(to + i * kWidth, pack);
  for (std::int64_t i = packs * kWidth + first; i < count; i += step) to[i] = pack.at[0];
}

__global__ void increment_one(std::int64_t* counter) {
  if (threadIdx.x == 0) ++*counter;
}

}  // namespace

void relu_forward(KernelContext& context, TensorView x, std::int64_t count, TensorView y) {
  launch_map(context, "relu_forward", Relu{}, {.a = x, .b = {}, .count = count, .to = y});
}

void relu_backward(KernelContext& context, TensorView y, TensorView dy, std::int64_t count,
                   TensorView dx, Write write) {
  launch_map(context, "relu_backward", GradientOfRelu{},
             {.a = y, .b = dy, .count = count, .to = dx, .write = write});
}

void add_forward(KernelContext& context, TensorView a, TensorView b, bool relu, std::int64_t count,
                 TensorView y) {
  const MapOperands o{.a = a, .b = b, .count = count, .to = y};
  if (relu)
    launch_map(context, "add_forward", ReluOfSum{}, o);
  else
    launch_map(context, "add_forward", Sum{}, o);
}

void copy_or_add(KernelContext& context, TensorView from, std::int64_t count, TensorView to,
                 Write write) {
  if (write == Write::kAdd)
    launch_map(context, "copy_or_add", Same{},
               {.a = from, .b = {}, .count = count, .to = to, .write = write});
  else if (count > 0 && from.data != to.data)
    engine::cuda::copy_async(to.data, from.data, from.bytes(), context.stream);
}

void cast(KernelContext& context, TensorView from, std::int64_t count, TensorView to) {
  if (from.dtype == to.dtype) return copy_or_add(context, from, count, to, Write::kOverwrite);
  if (count == 0) return;
  const DType other = from.dtype == DType::kF32 ? to.dtype : from.dtype;
  if (other == DType::kF64) return launch_cast<float, double>(context, from, count, to);
  with_storage(other, [&]<class T>(T) {
    if (from.dtype == DType::kF32)
      launch_cast<float, T>(context, from, count, to);
    else
      launch_cast<T, float>(context, from, count, to);
  });
}

void fill(KernelContext& context, double value, TensorView view) {
  const std::int64_t count = view.count();
  if (count == 0) return;
  with_any_storage(view.dtype, [&]<class T>(T) {
    constexpr int kWidth = Packed<T>::kCount;
    const std::int64_t packs = aligned_to_16({view.data}) ? count / kWidth : 0;
    launch("fill", fill_all<T>, {loop_blocks(loop_length(packs, kWidth, count), kThreads)},
           kThreads, 0, context.stream, static_cast<Wide<T>>(value), packs, count, view.as<T>());
  });
}

void increment(KernelContext& context, TensorView counter) {
  launch("increment", increment_one, {1}, kWarp, 0, context.stream, counter.as<std::int64_t>());
}

}  // namespace engine::ops::cuda
