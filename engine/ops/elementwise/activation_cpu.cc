// Activation functions of floats or bf16. Those with an exponential are bound by arithmetic, about
// 25 instructions per vector, the others by bytes.
#include "engine/ops/elementwise/activation_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

ENGINE_INLINE Floats relu6(Floats x) { return min(broadcast(6.f), relu(x)); }
ENGINE_INLINE Floats one() { return broadcast(1.f); }

struct Numbers {
  float first, second;
};

// Each function's value at x, and its derivative at x or y.
struct Relu6 {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return relu6(x); }
  static ENGINE_INLINE Floats slope(Floats y, Numbers) {
    return select((y > zero()) & (y < broadcast(6.f)), one(), zero());
  }
};

struct Silu {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return x / (one() + exp(-x)); }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) {
    const Floats s = one() / (one() + exp(-x));
    return s * (one() + x * (one() - s));
  }
};

struct Sigmoid {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return one() / (one() + exp(-x)); }
  static ENGINE_INLINE Floats slope(Floats y, Numbers) { return y * (one() - y); }
};

struct HardSigmoid {
  static ENGINE_INLINE Floats value(Floats x, Numbers) {
    return relu6(x + broadcast(3.f)) / broadcast(6.f);
  }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) {
    return select((x > broadcast(-3.f)) & (x < broadcast(3.f)), broadcast(1.f / 6), zero());
  }
};

struct HardSwish {
  static ENGINE_INLINE Floats value(Floats x, Numbers) {
    return x * relu6(x + broadcast(3.f)) / broadcast(6.f);
  }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) {
    const Floats inner = x / broadcast(3.f) + broadcast(0.5f);
    return select(x <= broadcast(-3.f), zero(), select(x < broadcast(3.f), inner, one()));
  }
};

struct LeakyRelu {
  static ENGINE_INLINE Floats value(Floats x, Numbers n) {
    return select(x > zero(), x, x * broadcast(n.first));
  }
  static ENGINE_INLINE Floats slope(Floats y, Numbers n) {
    return select(y > zero(), one(), broadcast(n.first));
  }
};

// Taylor's series within half a unit around 0, where 1 - 2 / (e^(2 x) + 1) cancels.
struct Tanh {
  static ENGINE_INLINE Floats value(Floats x, Numbers) {
    const Floats square = x * x;
    Floats series = broadcast(-929569.f / 638512875.f);
    series = series * square + broadcast(21844.f / 6081075.f);
    series = series * square + broadcast(-1382.f / 155925.f);
    series = series * square + broadcast(62.f / 2835.f);
    series = series * square + broadcast(-17.f / 315.f);
    series = series * square + broadcast(2.f / 15.f);
    series = series * square + broadcast(-1.f / 3.f);
    const Floats far = one() - broadcast(2.f) / (exp(x + x) + one());
    return select(square < broadcast(0.25f), x + x * (square * series), far);
  }
  static ENGINE_INLINE Floats slope(Floats y, Numbers) { return one() - y * y; }
};

struct Exp {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return exp(x); }
  static ENGINE_INLINE Floats slope(Floats y, Numbers) { return y; }
};

// Numbers below the smallest normal one are scaled by 2^24 first.
struct Log {
  static ENGINE_INLINE Floats value(Floats x, Numbers) {
    const Ints small = x < broadcast(0x1p-126f);
    const Floats finite = log(select(small, x * broadcast(0x1p24f), x)) -
                          select(small, broadcast(0x1.0a2b24p+4f), zero());  // 24 log(2)
    const Floats infinity = broadcast(__builtin_inff()), nan = broadcast(__builtin_nanf(""));
    const Floats positive = select(x == infinity, x, finite);
    return select(x > zero(), positive, select(x == zero(), -infinity, nan));
  }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) { return one() / x; }
};

struct Sqrt {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return square_root(x); }
  static ENGINE_INLINE Floats slope(Floats y, Numbers) { return broadcast(0.5f) / y; }
};

// Taylor's series within half a unit around 0, where 2 below - 1 cancels.
struct Erf {
  static ENGINE_INLINE Floats value(Floats x, Numbers) {
    const Floats square = x * x;
    Floats series = broadcast(1.f / 9360);
    series = series * square + broadcast(-1.f / 1320);
    series = series * square + broadcast(1.f / 216);
    series = series * square + broadcast(-1.f / 42);
    series = series * square + broadcast(1.f / 10);
    series = series * square + broadcast(-1.f / 3);
    series = series * square + one();
    const Floats below = normal_distribution(x * broadcast(0x1.6a09e6p+0f)).below;  // sqrt(2)
    return select(square < broadcast(0.25f),
                  x * series * broadcast(0x1.20dd76p+0f),  // 2 / sqrt(pi)
                  below + below - one());
  }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) {
    return exp(-(x * x)) * broadcast(0x1.20dd76p+0f);
  }
};

ENGINE_INLINE Floats magnitude(Floats x) { return max(-x, x); }

struct Abs {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return magnitude(x); }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) {
    return select(x > zero(), one(), select(x < zero(), -one(), zero()));
  }
};

struct Negate {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return -x; }
  static ENGINE_INLINE Floats slope(Floats, Numbers) { return -one(); }
};

struct Reciprocal {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return one() / x; }
  static ENGINE_INLINE Floats slope(Floats y, Numbers) { return -(y * y); }
};

// log(1 + u) for 0 <= u <= 1, as 2 artanh(u / (2 + u)) by its series.
ENGINE_INLINE Floats log_of_one_and(Floats u) {
  const Floats s = u / (broadcast(2.f) + u), square = s * s;
  Floats sum = broadcast(2.f / 13);
  sum = sum * square + broadcast(2.f / 11);
  sum = sum * square + broadcast(2.f / 9);
  sum = sum * square + broadcast(2.f / 7);
  sum = sum * square + broadcast(2.f / 5);
  sum = sum * square + broadcast(2.f / 3);
  return s * (sum * square + broadcast(2.f));
}

struct Softplus {
  static ENGINE_INLINE Floats value(Floats x, Numbers) {
    return relu(x) + log_of_one_and(exp(-magnitude(x)));
  }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) { return one() / (one() + exp(-x)); }
};

// Taylor's series above -1/2, where e^x - 1 cancels.
struct Elu {
  static ENGINE_INLINE Floats value(Floats x, Numbers) {
    Floats series = broadcast(1.f / 40320);
    series = series * x + broadcast(1.f / 5040);
    series = series * x + broadcast(1.f / 720);
    series = series * x + broadcast(1.f / 120);
    series = series * x + broadcast(1.f / 24);
    series = series * x + broadcast(1.f / 6);
    series = series * x + broadcast(0.5f);
    const Floats near = x + x * x * series, far = exp(x) - one();
    return select(x > zero(), x, select(x > broadcast(-0.5f), near, far));
  }
  static ENGINE_INLINE Floats slope(Floats y, Numbers) {
    return select(y > zero(), one(), y + one());
  }
};

// tanh(log(1 + e)) is n / (n + 2) with n = e (e + 2), which is 1 in f32 from x = 20 on.
struct Mish {
  static ENGINE_INLINE Floats n_of(Floats x) {
    const Floats e = exp(min(broadcast(20.f), x));
    return e * (e + broadcast(2.f));
  }
  static ENGINE_INLINE Floats value(Floats x, Numbers) {
    const Floats n = n_of(x);
    return x * (n / (n + broadcast(2.f)));
  }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) {
    const Floats n = n_of(x), t = n / (n + broadcast(2.f));
    const Floats rest = broadcast(2.f) / (n + broadcast(2.f)) * (one() + t);  // 1 - t^2
    return t + min(broadcast(20.f), x) * rest * (one() / (one() + exp(-x)));
  }
};

struct Softsign {
  static ENGINE_INLINE Floats value(Floats x, Numbers) { return x / (one() + magnitude(x)); }
  static ENGINE_INLINE Floats slope(Floats x, Numbers) {
    const Floats inverse = one() / (one() + magnitude(x));
    return inverse * inverse;
  }
};

struct Clip {
  static ENGINE_INLINE Floats value(Floats x, Numbers n) {
    return min(broadcast(n.second), max(broadcast(n.first), x));
  }
  static ENGINE_INLINE Floats slope(Floats x, Numbers n) {
    return select((x >= broadcast(n.first)) & (x <= broadcast(n.second)), one(), zero());
  }
};

// Exponents besides 2 are left to the C library.
ENGINE_INLINE Floats power(Floats x, float exponent) {
  if (exponent == 2) return x * x;
  if (exponent == 1) return x;
  for (int i = 0; i < kWidth; ++i) x[i] = __builtin_powf(x[i], exponent);
  return x;
}

struct Power {
  static ENGINE_INLINE Floats value(Floats x, Numbers n) { return power(x, n.first); }
  static ENGINE_INLINE Floats slope(Floats x, Numbers n) {
    if (n.first == 0) return zero();
    return broadcast(n.first) * power(x, n.first - 1);
  }
};

struct ScaleShift {
  static ENGINE_INLINE Floats value(Floats x, Numbers n) {
    return broadcast(n.first) * x + broadcast(n.second);
  }
  static ENGINE_INLINE Floats slope(Floats, Numbers n) { return broadcast(n.first); }
};

template <class F>
void forward_as(const Stored* x, const ActivationSizes& s, Stored* y, ThreadPool& threads) {
  const Numbers numbers{s.first, s.second};
  run_flat(threads, s.count, [=](auto lanes, std::int64_t i) {
    lanes.store_to(y + i, F::value(lanes.load_from(x + i), numbers));
  });
}

template <class F, bool kAdd>
void backward_as(const Stored* value, const Stored* dy, const ActivationSizes& s, Stored* dx,
                 ThreadPool& threads) {
  const Numbers numbers{s.first, s.second};
  run_flat(threads, s.count, [=](auto lanes, std::int64_t i) {
    put<kAdd>(lanes, dx + i,
              lanes.load_from(dy + i) * F::slope(lanes.load_from(value + i), numbers));
  });
}

// The loops of a function; backward without and with kAdd.
struct Loops {
  void (*forward)(const Stored* x, const ActivationSizes& s, Stored* y, ThreadPool& threads);
  void (*backward[2])(const Stored* value, const Stored* dy, const ActivationSizes& s, Stored* dx,
                      ThreadPool& threads);
};
template <class F>
constexpr Loops loops_of() {
  return {forward_as<F>, {backward_as<F, false>, backward_as<F, true>}};
}

// In the order of ActivationKind.
constexpr Loops kLoops[] = {
    loops_of<Relu6>(),     loops_of<Silu>(),       loops_of<Sigmoid>(),  loops_of<HardSigmoid>(),
    loops_of<HardSwish>(), loops_of<LeakyRelu>(),  loops_of<Tanh>(),     loops_of<Exp>(),
    loops_of<Log>(),       loops_of<Sqrt>(),       loops_of<Erf>(),      loops_of<Abs>(),
    loops_of<Negate>(),    loops_of<Reciprocal>(), loops_of<Softplus>(), loops_of<Elu>(),
    loops_of<Mish>(),      loops_of<Softsign>(),   loops_of<Clip>(),     loops_of<Power>(),
    loops_of<ScaleShift>()};

void forward(const TensorView& x, const ActivationSizes& s, const TensorView& y,
             ThreadPool& threads) {
  kLoops[s.kind].forward(stored(x), s, stored(y), threads);
}

void backward(const TensorView& value, const TensorView& dy, const ActivationSizes& s,
              const TensorView& dx, bool add, ThreadPool& threads) {
  kLoops[s.kind].backward[add ? 1 : 0](stored(value), stored(dy), s, stored(dx), threads);
}

}  // namespace

const ActivationTable activation_table{forward, backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
