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

// Each function's value at x, and its derivative at x or y. `slope` is that of leaky_relu.
struct Relu6 {
  static ENGINE_INLINE Floats value(Floats x, float) { return relu6(x); }
  static ENGINE_INLINE Floats slope(Floats y, float) {
    return select((y > zero()) & (y < broadcast(6.f)), one(), zero());
  }
};

struct Silu {
  static ENGINE_INLINE Floats value(Floats x, float) { return x / (one() + exp(-x)); }
  static ENGINE_INLINE Floats slope(Floats x, float) {
    const Floats s = one() / (one() + exp(-x));
    return s * (one() + x * (one() - s));
  }
};

struct Sigmoid {
  static ENGINE_INLINE Floats value(Floats x, float) { return one() / (one() + exp(-x)); }
  static ENGINE_INLINE Floats slope(Floats y, float) { return y * (one() - y); }
};

struct HardSigmoid {
  static ENGINE_INLINE Floats value(Floats x, float) {
    return relu6(x + broadcast(3.f)) / broadcast(6.f);
  }
  static ENGINE_INLINE Floats slope(Floats x, float) {
    return select((x > broadcast(-3.f)) & (x < broadcast(3.f)), broadcast(1.f / 6), zero());
  }
};

struct HardSwish {
  static ENGINE_INLINE Floats value(Floats x, float) {
    return x * relu6(x + broadcast(3.f)) / broadcast(6.f);
  }
  static ENGINE_INLINE Floats slope(Floats x, float) {
    const Floats inner = x / broadcast(3.f) + broadcast(0.5f);
    return select(x <= broadcast(-3.f), zero(), select(x < broadcast(3.f), inner, one()));
  }
};

struct LeakyRelu {
  static ENGINE_INLINE Floats value(Floats x, float slope) {
    return select(x > zero(), x, x * broadcast(slope));
  }
  static ENGINE_INLINE Floats slope(Floats y, float slope) {
    return select(y > zero(), one(), broadcast(slope));
  }
};

// Taylor's series within half a unit around 0, where 1 - 2 / (e^(2 x) + 1) cancels.
struct Tanh {
  static ENGINE_INLINE Floats value(Floats x, float) {
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
  static ENGINE_INLINE Floats slope(Floats y, float) { return one() - y * y; }
};

template <class F>
void forward_as(const Stored* x, const ActivationSizes& s, Stored* y, ThreadPool& threads) {
  const float slope = s.slope;
  run_flat(threads, s.count, [=](auto lanes, std::int64_t i) {
    lanes.store_to(y + i, F::value(lanes.load_from(x + i), slope));
  });
}

template <class F, bool kAdd>
void backward_as(const Stored* value, const Stored* dy, const ActivationSizes& s, Stored* dx,
                 ThreadPool& threads) {
  const float slope = s.slope;
  run_flat(threads, s.count, [=](auto lanes, std::int64_t i) {
    put<kAdd>(lanes, dx + i, lanes.load_from(dy + i) * F::slope(lanes.load_from(value + i), slope));
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
constexpr Loops kLoops[] = {loops_of<Relu6>(),       loops_of<Silu>(),      loops_of<Sigmoid>(),
                            loops_of<HardSigmoid>(), loops_of<HardSwish>(), loops_of<LeakyRelu>(),
                            loops_of<Tanh>()};

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
