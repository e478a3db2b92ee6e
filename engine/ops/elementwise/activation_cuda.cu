// Activation functions as operations of map_elements.h: a kernel for each function, in float64 one
// for all. Bound by bytes; with 16-bit storage the functions with an exponential take almost as
// long.
#include "engine/ops/device/map_elements.h"
#include "engine/ops/elementwise/elementwise_cuda.h"

namespace engine::ops::cuda {
namespace {

// NaN passes, as in PyTorch.
template <class N>
__device__ __forceinline__ N relu6(N x) {
  const N positive = x < 0 ? N(0) : x;
  return positive > 6 ? N(6) : positive;
}
template <class N>
__device__ __forceinline__ N sigmoid(N x) {
  return 1 / (1 + exp(-x));
}

template <class N>
struct Numbers {
  N first, second;
};

// Each function's value at x, and its derivative at `v`, which is y if uses_output(), else x.
struct Relu6 {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return relu6(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return v > 0 && v < 6 ? N(1) : N(0);
  }
};
struct Silu {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return x / (1 + exp(-x));
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    const N s = sigmoid(v);
    return s * (1 + v * (1 - s));
  }
};
struct Sigmoid {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return sigmoid(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return v * (1 - v);
  }
};
struct HardSigmoid {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return relu6(x + 3) / 6;
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return v > -3 && v < 3 ? N(1) / 6 : N(0);
  }
};
struct HardSwish {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return x * relu6(x + 3) / 6;
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return v <= -3 ? N(0) : v < 3 ? v / 3 + N(0.5) : N(1);
  }
};
struct LeakyRelu {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N> n) {
    return x > 0 ? x : x * n.first;
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N> n) {
    return v > 0 ? N(1) : n.first;
  }
};
struct Tanh {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return tanh(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return 1 - v * v;
  }
};

template <class N>
__device__ __forceinline__ N power(N x, N exponent) {
  return exponent == 2 ? x * x : exponent == 1 ? x : pow(x, exponent);
}

struct Exp {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return exp(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return v;
  }
};
struct Log {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return log(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return 1 / v;
  }
};
struct Sqrt {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return sqrt(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return N(0.5) / v;
  }
};
struct Erf {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return erf(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return N(1.12837916709551257390) * exp(-v * v);
  }
};
struct Abs {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return fabs(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return v > 0 ? N(1) : v < 0 ? -N(1) : N(0);
  }
};
struct Negate {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return -x;
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N, Numbers<N>) {
    return -1;
  }
};
struct Reciprocal {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return 1 / x;
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return -v * v;
  }
};
struct Softplus {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return (x < 0 ? N(0) : x) + log1p(exp(-fabs(x)));
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return sigmoid(v);
  }
};
struct Elu {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return x > 0 ? x : expm1(x);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return v > 0 ? N(1) : v + 1;
  }
};
// tanh(log(1 + e)) is n / (n + 2) with n = e (e + 2), which is 1 in f32 from x = 20 on.
struct Mish {
  template <class N>
  static __device__ __forceinline__ N n_of(N x) {
    const N e = exp(x > 20 ? N(20) : x);
    return e * (e + 2);
  }
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    const N n = n_of(x);
    return x * (n / (n + 2));
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    const N n = n_of(v), t = n / (n + 2);
    const N rest = 2 / (n + 2) * (1 + t);  // 1 - t^2
    return t + (v > 20 ? N(20) : v) * rest * sigmoid(v);
  }
};
struct Softsign {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N>) {
    return x / (1 + fabs(x));
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N>) {
    return 1 / ((1 + fabs(v)) * (1 + fabs(v)));
  }
};
struct Clip {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N> n) {
    return x < n.first ? n.first : x > n.second ? n.second : x;
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N> n) {
    return v >= n.first && v <= n.second ? N(1) : N(0);
  }
};
struct Power {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N> n) {
    return power(x, n.first);
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N v, Numbers<N> n) {
    return n.first == 0 ? N(0) : n.first * power(v, n.first - 1);
  }
};
struct ScaleShift {
  template <class N>
  static __device__ __forceinline__ N value(N x, Numbers<N> n) {
    return n.first * x + n.second;
  }
  template <class N>
  static __device__ __forceinline__ N derivative(N, Numbers<N> n) {
    return n.first;
  }
};

// Calls start(F{}) with the function of number `kind` of the list, on the host or in a kernel.
template <class... F>
struct FunctionList {
  template <class Start>
  static constexpr void with(int kind, Start start) {
    int number = 0;
    static_cast<void>(((number++ == kind && (start(F{}), true)) || ...));
  }
};
// In the order of ActivationKind.
using Functions =
    FunctionList<Relu6, Silu, Sigmoid, HardSigmoid, HardSwish, LeakyRelu, Tanh, Exp, Log, Sqrt, Erf,
                 Abs, Negate, Reciprocal, Softplus, Elu, Mish, Softsign, Clip, Power, ScaleShift>;

// The operations for storage in up to 32 bits: a kernel for each function.
template <class F>
struct ValueOf {
  static constexpr bool kPair = false;
  Numbers<float> numbers;
  __device__ __forceinline__ float operator()(float x, float) const { return F::value(x, numbers); }
};
template <class F>
struct GradientOf {
  static constexpr bool kPair = true;
  Numbers<float> numbers;
  __device__ __forceinline__ float operator()(float v, float dy) const {
    return dy * F::derivative(v, numbers);
  }
};

// All functions in float64: one kernel selects the function.
struct AnyValue {
  static constexpr bool kPair = false;
  int kind;
  Numbers<double> numbers;
  __device__ __forceinline__ double operator()(double x, double) const {
    double y = 0;
    Functions::with(kind, [&]<class F>(F) { y = F::value(x, numbers); });
    return y;
  }
};
struct AnyGradient {
  static constexpr bool kPair = true;
  int kind;
  Numbers<double> numbers;
  __device__ __forceinline__ double operator()(double v, double dy) const {
    double slope = 0;
    Functions::with(kind, [&]<class F>(F) { slope = F::derivative(v, numbers); });
    return dy * slope;
  }
};

Numbers<float> floats_of(const ElementFunction& f) {
  return {static_cast<float>(f.first), static_cast<float>(f.second)};
}

}  // namespace

void activation_forward(KernelContext& context, TensorView x, const ElementFunction& f,
                        TensorView y) {
  constexpr const char* kName = "activation_forward";
  const MapOperands o{.a = x, .b = {}, .count = x.count(), .to = y};
  if (x.dtype == DType::kF64)
    return launch_map_of<double>(context, kName, AnyValue{f.kind, {f.first, f.second}}, o);
  with_storage(x.dtype, [&]<class T>(T) {
    Functions::with(
        f.kind, [&]<class F>(F) { launch_map_of<T>(context, kName, ValueOf<F>{floats_of(f)}, o); });
  });
}

void activation_backward(KernelContext& context, TensorView value, TensorView dy,
                         const ElementFunction& f, TensorView dx, Write write) {
  constexpr const char* kName = "activation_backward";
  const MapOperands o{.a = value, .b = dy, .count = value.count(), .to = dx, .write = write};
  if (value.dtype == DType::kF64)
    return launch_map_of<double>(context, kName, AnyGradient{f.kind, {f.first, f.second}}, o);
  with_storage(value.dtype, [&]<class T>(T) {
    Functions::with(f.kind, [&]<class F>(F) {
      launch_map_of<T>(context, kName, GradientOf<F>{floats_of(f)}, o);
    });
  });
}

}  // namespace engine::ops::cuda
