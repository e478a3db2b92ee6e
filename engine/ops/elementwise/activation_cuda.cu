// Activation functions as operations of map_elements.h: a kernel for each function. Bound by bytes;
// with 16-bit storage the functions with an exponential take almost as long.
#include "engine/ops/device/map_elements.h"
#include "engine/ops/elementwise/elementwise_cuda.h"

namespace engine::ops::cuda {
namespace {

// NaN passes, as in PyTorch.
__device__ __forceinline__ float relu6(float x) {
  const float positive = x < 0 ? 0.0f : x;
  return positive > 6 ? 6.0f : positive;
}
__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

struct Numbers {
  float first, second;
};

// Each function's value at x, and its derivative at `v`, which is y if uses_output(), else x.
struct Relu6 {
  static __device__ __forceinline__ float value(float x, Numbers) { return relu6(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    return v > 0 && v < 6 ? 1.0f : 0.0f;
  }
};
struct Silu {
  static __device__ __forceinline__ float value(float x, Numbers) { return x / (1 + expf(-x)); }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    const float s = sigmoid(v);
    return s * (1 + v * (1 - s));
  }
};
struct Sigmoid {
  static __device__ __forceinline__ float value(float x, Numbers) { return sigmoid(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) { return v * (1 - v); }
};
struct HardSigmoid {
  static __device__ __forceinline__ float value(float x, Numbers) { return relu6(x + 3) / 6; }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    return v > -3 && v < 3 ? 1.0f / 6 : 0.0f;
  }
};
struct HardSwish {
  static __device__ __forceinline__ float value(float x, Numbers) { return x * relu6(x + 3) / 6; }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    return v <= -3 ? 0.0f : v < 3 ? v / 3 + 0.5f : 1.0f;
  }
};
struct LeakyRelu {
  static __device__ __forceinline__ float value(float x, Numbers n) {
    return x > 0 ? x : x * n.first;
  }
  static __device__ __forceinline__ float derivative(float v, Numbers n) {
    return v > 0 ? 1.0f : n.first;
  }
};
struct Tanh {
  static __device__ __forceinline__ float value(float x, Numbers) { return tanhf(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) { return 1 - v * v; }
};

__device__ __forceinline__ float power(float x, float exponent) {
  return exponent == 2 ? x * x : exponent == 1 ? x : powf(x, exponent);
}

struct Exp {
  static __device__ __forceinline__ float value(float x, Numbers) { return expf(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) { return v; }
};
struct Log {
  static __device__ __forceinline__ float value(float x, Numbers) { return logf(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) { return 1 / v; }
};
struct Sqrt {
  static __device__ __forceinline__ float value(float x, Numbers) { return sqrtf(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) { return 0.5f / v; }
};
struct Erf {
  static __device__ __forceinline__ float value(float x, Numbers) { return erff(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    return 1.1283791671f * expf(-v * v);
  }
};
struct Abs {
  static __device__ __forceinline__ float value(float x, Numbers) { return fabsf(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    return v > 0 ? 1.0f : v < 0 ? -1.0f : 0.0f;
  }
};
struct Negate {
  static __device__ __forceinline__ float value(float x, Numbers) { return -x; }
  static __device__ __forceinline__ float derivative(float, Numbers) { return -1; }
};
struct Reciprocal {
  static __device__ __forceinline__ float value(float x, Numbers) { return 1 / x; }
  static __device__ __forceinline__ float derivative(float v, Numbers) { return -v * v; }
};
struct Softplus {
  static __device__ __forceinline__ float value(float x, Numbers) {
    return (x < 0 ? 0.0f : x) + log1pf(expf(-fabsf(x)));
  }
  static __device__ __forceinline__ float derivative(float v, Numbers) { return sigmoid(v); }
};
struct Elu {
  static __device__ __forceinline__ float value(float x, Numbers) { return x > 0 ? x : expm1f(x); }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    return v > 0 ? 1.0f : v + 1;
  }
};
// tanh(log(1 + e)) is n / (n + 2) with n = e (e + 2), which is 1 in f32 from x = 20 on.
struct Mish {
  static __device__ __forceinline__ float n_of(float x) {
    const float e = expf(x > 20 ? 20.0f : x);
    return e * (e + 2);
  }
  static __device__ __forceinline__ float value(float x, Numbers) {
    const float n = n_of(x);
    return x * (n / (n + 2));
  }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    const float n = n_of(v), t = n / (n + 2);
    const float rest = 2 / (n + 2) * (1 + t);  // 1 - t^2
    return t + (v > 20 ? 20.0f : v) * rest * sigmoid(v);
  }
};
struct Softsign {
  static __device__ __forceinline__ float value(float x, Numbers) { return x / (1 + fabsf(x)); }
  static __device__ __forceinline__ float derivative(float v, Numbers) {
    return 1 / ((1 + fabsf(v)) * (1 + fabsf(v)));
  }
};
struct Clip {
  static __device__ __forceinline__ float value(float x, Numbers n) {
    return x < n.first ? n.first : x > n.second ? n.second : x;
  }
  static __device__ __forceinline__ float derivative(float v, Numbers n) {
    return v >= n.first && v <= n.second ? 1.0f : 0.0f;
  }
};
struct Power {
  static __device__ __forceinline__ float value(float x, Numbers n) { return power(x, n.first); }
  static __device__ __forceinline__ float derivative(float v, Numbers n) {
    return n.first == 0 ? 0.0f : n.first * power(v, n.first - 1);
  }
};
struct ScaleShift {
  static __device__ __forceinline__ float value(float x, Numbers n) {
    return n.first * x + n.second;
  }
  static __device__ __forceinline__ float derivative(float, Numbers n) { return n.first; }
};

template <class F>
struct ValueOf {
  static constexpr bool kPair = false;
  Numbers numbers;
  __device__ __forceinline__ float operator()(float x, float) const { return F::value(x, numbers); }
};
template <class F>
struct GradientOf {
  static constexpr bool kPair = true;
  Numbers numbers;
  __device__ __forceinline__ float operator()(float v, float dy) const {
    return dy * F::derivative(v, numbers);
  }
};

// Calls start(F{}) with the function of number `kind` of the list.
template <class... F>
struct FunctionList {
  template <class Start>
  static void with(int kind, Start start) {
    int number = 0;
    static_cast<void>(((number++ == kind && (start(F{}), true)) || ...));
  }
};
// In the order of ActivationKind.
using Functions =
    FunctionList<Relu6, Silu, Sigmoid, HardSigmoid, HardSwish, LeakyRelu, Tanh, Exp, Log, Sqrt, Erf,
                 Abs, Negate, Reciprocal, Softplus, Elu, Mish, Softsign, Clip, Power, ScaleShift>;

}  // namespace

void activation_forward(KernelContext& context, TensorView x, const ElementFunction& f,
                        TensorView y) {
  Functions::with(f.kind, [&]<class F>(F) {
    launch_map(context, "activation_forward", ValueOf<F>{{f.first, f.second}},
               {.a = x, .b = {}, .count = x.count(), .to = y});
  });
}

void activation_backward(KernelContext& context, TensorView value, TensorView dy,
                         const ElementFunction& f, TensorView dx, Write write) {
  Functions::with(f.kind, [&]<class F>(F) {
    launch_map(context, "activation_backward", GradientOf<F>{{f.first, f.second}},
               {.a = value, .b = dy, .count = value.count(), .to = dx, .write = write});
  });
}

}  // namespace engine::ops::cuda
