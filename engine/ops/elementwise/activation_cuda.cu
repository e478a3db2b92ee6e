// Activation functions as operations of map_elements.h: a kernel for each function. Bound by bytes;
// with 16-bit storage the functions with an exponential take almost as long.
#include "engine/ops/device/map_elements.h"
#include "engine/ops/elementwise/activation.h"
#include "engine/ops/elementwise/elementwise_cuda.h"

namespace engine::ops::cuda {
namespace {

// NaN passes, as in PyTorch.
__device__ __forceinline__ float relu6(float x) {
  const float positive = x < 0 ? 0.0f : x;
  return positive > 6 ? 6.0f : positive;
}
__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// Each function's value at x, and its derivative at `v`, which is y if uses_output(), else x.
// `slope` is that of leaky_relu.
struct Relu6 {
  static __device__ __forceinline__ float value(float x, float) { return relu6(x); }
  static __device__ __forceinline__ float derivative(float v, float) {
    return v > 0 && v < 6 ? 1.0f : 0.0f;
  }
};
struct Silu {
  static __device__ __forceinline__ float value(float x, float) { return x / (1 + expf(-x)); }
  static __device__ __forceinline__ float derivative(float v, float) {
    const float s = sigmoid(v);
    return s * (1 + v * (1 - s));
  }
};
struct Sigmoid {
  static __device__ __forceinline__ float value(float x, float) { return sigmoid(x); }
  static __device__ __forceinline__ float derivative(float v, float) { return v * (1 - v); }
};
struct HardSigmoid {
  static __device__ __forceinline__ float value(float x, float) { return relu6(x + 3) / 6; }
  static __device__ __forceinline__ float derivative(float v, float) {
    return v > -3 && v < 3 ? 1.0f / 6 : 0.0f;
  }
};
struct HardSwish {
  static __device__ __forceinline__ float value(float x, float) { return x * relu6(x + 3) / 6; }
  static __device__ __forceinline__ float derivative(float v, float) {
    return v <= -3 ? 0.0f : v < 3 ? v / 3 + 0.5f : 1.0f;
  }
};
struct LeakyRelu {
  static __device__ __forceinline__ float value(float x, float slope) {
    return x > 0 ? x : x * slope;
  }
  static __device__ __forceinline__ float derivative(float v, float slope) {
    return v > 0 ? 1.0f : slope;
  }
};
struct Tanh {
  static __device__ __forceinline__ float value(float x, float) { return tanhf(x); }
  static __device__ __forceinline__ float derivative(float v, float) { return 1 - v * v; }
};

template <class F>
struct ValueOf {
  static constexpr bool kPair = false;
  float slope;
  __device__ __forceinline__ float operator()(float x, float) const { return F::value(x, slope); }
};
template <class F>
struct GradientOf {
  static constexpr bool kPair = true;
  float slope;
  __device__ __forceinline__ float operator()(float v, float dy) const {
    return dy * F::derivative(v, slope);
  }
};

template <class Start>
void with_function(int kind, Start start) {
  switch (static_cast<ActivationKind>(kind)) {
    case ActivationKind::kRelu6:
      return start(Relu6{});
    case ActivationKind::kSilu:
      return start(Silu{});
    case ActivationKind::kSigmoid:
      return start(Sigmoid{});
    case ActivationKind::kHardSigmoid:
      return start(HardSigmoid{});
    case ActivationKind::kHardSwish:
      return start(HardSwish{});
    case ActivationKind::kLeakyRelu:
      return start(LeakyRelu{});
    case ActivationKind::kTanh:
      return start(Tanh{});
  }
}

}  // namespace

void activation_forward(KernelContext& context, TensorView x, int kind, float slope, TensorView y) {
  with_function(kind, [&]<class F>(F) {
    launch_map(context, "activation_forward", ValueOf<F>{slope},
               {.a = x, .b = {}, .count = x.count(), .to = y});
  });
}

void activation_backward(KernelContext& context, TensorView value, TensorView dy, int kind,
                         float slope, TensorView dx, Write write) {
  with_function(kind, [&]<class F>(F) {
    launch_map(context, "activation_backward", GradientOf<F>{slope},
               {.a = value, .b = dy, .count = value.count(), .to = dx, .write = write});
  });
}

}  // namespace engine::ops::cuda
