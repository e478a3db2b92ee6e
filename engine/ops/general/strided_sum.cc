// Checks and dispatches strided sums. On the CPU, sums of adjacent elements of y grow side by side,
// so that operands are read in the order of memory; if the summed axes are the contiguous ones,
// each element of y is summed alone.
#include "engine/ops/general/strided_sum.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/general/strided_sum_cuda.h"

namespace engine::ops {
namespace {

using Places = std::array<std::int64_t, 4>;
constexpr Places kUnitSteps{1, 1, 1, 1};
constexpr std::int64_t kBlock = 256;  // sums side by side

bool reads_v(SumTerm term) { return term >= SumTerm::kProduct; }

void check_operand(const StridedSum& o, const char* name, const TensorView& view, int operand) {
  if (o.kept.elements() == 0 || (operand < 3 && o.summed.elements() == 0)) return;
  const std::int64_t last = o.kept.last_index(operand) + o.summed.last_index(operand);
  if (last >= view.count())
    throw ShapeError("strided_sum: the last element is " + std::to_string(last) + " of " + name +
                     " " + view.shape.to_string() + ": expected an element of it");
}

void check_sum(const KernelContext& context, const StridedSum& o) {
  check_stored("strided_sum", "u", o.u);
  check_context("strided_sum", context);
  check_dtype("strided_sum", "y", o.y, o.y.dtype == o.u.dtype ? o.u.dtype : wide_dtype(o.u.dtype));
  check_operand(o, "u", o.u, 0);
  check_operand(o, "y", o.y, 3);
  if (reads_v(o.term)) {
    check_dtype("strided_sum", "v", o.v, o.u.dtype);
    check_operand(o, "v", o.v, 1);
  }
  if (o.term == SumTerm::kDivisor) {
    check_dtype("strided_sum", "w", o.w, o.u.dtype);
    check_operand(o, "w", o.w, 2);
  }
}

template <class T>
struct Operands {
  const T *u, *v, *w;
  bool where_true;  // which u kChosen takes
};

// kTerm is kValue for kNegative, whose sum is negated instead, and kChosen for kOther.
template <SumTerm kTerm, class T>
double term_at(const Operands<T>& from, const Places& places, const Places& steps, std::int64_t i) {
  const auto element = [&](const T* operand, std::size_t k) {
    return static_cast<double>(computed(operand[places[k] + i * steps[k]]));
  };
  const double u = element(from.u, 0);
  if constexpr (kTerm == SumTerm::kProduct) return u * element(from.v, 1);
  if constexpr (kTerm == SumTerm::kQuotient) return u / element(from.v, 1);
  if constexpr (kTerm == SumTerm::kDivisor) {
    const double w = element(from.w, 2);
    return -u * element(from.v, 1) / (w * w);
  }
  if constexpr (kTerm == SumTerm::kChosen)
    return (element(from.v, 1) != 0) == from.where_true ? u : 0;
  return u;
}

bool are_unit(SumTerm term, const Places& steps) {
  return steps[0] == 1 && (!reads_v(term) || steps[1] == 1) &&
         (term != SumTerm::kDivisor || steps[2] == 1);
}

Places moved(Places places, const Places& steps, std::int64_t by) {
  for (std::size_t k = 0; k < places.size(); ++k) places[k] += by * steps[k];
  return places;
}

template <SumTerm kTerm, class T>
class Sum {
 public:
  explicit Sum(const StridedSum& o)
      : o_(o),
        from_{o.u.as<T>(), reads_v(o.term) ? o.v.as<T>() : nullptr,
              o.term == SumTerm::kDivisor ? o.w.as<T>() : nullptr, o.term != SumTerm::kOther},
        y_(o.y.dtype == o.u.dtype ? o.y.as<T>() : nullptr),
        wide_y_(y_ == nullptr ? o.y.as<Computed<T>>() : nullptr),
        scale_(o.term == SumTerm::kNegative ? -o.scale : o.scale),
        terms_(o.summed.elements()) {}

  void run(ThreadPool& threads) const {
    const Places steps = o_.kept.inner().steps;
    const bool alone = o_.summed.inner().steps[0] == 1 && steps[0] != 1;
    threads.run(o_.kept.elements(), [&](std::int64_t first, std::int64_t last, int) {
      for_each_run(o_.kept, first, last, [&](const Places& places, std::int64_t count) {
        alone ? sum_each(places, steps, count) : sum_side_by_side(places, steps, count);
      });
    });
  }

 private:
  void put(std::int64_t place, double sum) const {
    if constexpr (!std::is_same_v<T, Computed<T>>) {
      if (y_ == nullptr) return put_at(wide_y_[place], sum * scale_);
    }
    put_at(y_[place], sum * scale_);
  }
  template <class To>
  void put_at(To& to, double value) const {
    const double before = o_.write == Write::kAdd ? static_cast<double>(computed(to)) : 0;
    to = stored_as<To>(static_cast<Computed<To>>(before + value));
  }

  void sum_each(const Places& places, const Places& steps, std::int64_t count) const {
    const Places step = o_.summed.inner().steps;
    for (std::int64_t i = 0; i < count; ++i) {
      const Places start = moved(places, steps, i);
      double sums[4] = {};  // four chains: an addition takes four cycles
      for_each_run(o_.summed, 0, terms_, [&](const Places& at, std::int64_t run) {
        const Places from = moved(start, at, 1);
        std::int64_t j = 0;
        for (; j + 4 <= run; j += 4)
          for (std::int64_t k = 0; k < 4; ++k) sums[k] += term_at<kTerm>(from_, from, step, j + k);
        for (; j < run; ++j) sums[0] += term_at<kTerm>(from_, from, step, j);
      });
      put(start[3], (sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
  }

  void sum_side_by_side(const Places& places, const Places& steps, std::int64_t count) const {
    const Places step = o_.summed.inner().steps;
    const bool unit = are_unit(kTerm, steps);
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const Places start = moved(places, steps, begin);
      const std::int64_t width = std::min(kBlock, count - begin);
      double sums[kBlock] = {};
      for_each_run(o_.summed, 0, terms_, [&](const Places& at, std::int64_t run) {
        for (std::int64_t r = 0; r < run; ++r) {
          const Places from = moved(moved(start, at, 1), step, r);
          if (unit)
            for (std::int64_t j = 0; j < width; ++j)
              sums[j] += term_at<kTerm>(from_, from, kUnitSteps, j);
          else
            for (std::int64_t j = 0; j < width; ++j)
              sums[j] += term_at<kTerm>(from_, from, steps, j);
        }
      });
      for (std::int64_t j = 0; j < width; ++j) put(start[3] + j * steps[3], sums[j]);
    }
  }

  const StridedSum& o_;
  const Operands<T> from_;
  T* const y_;  // nullptr: as wide_y_
  Computed<T>* const wide_y_;
  const double scale_;
  const std::int64_t terms_;
};

template <class T>
void sum_on_cpu(ThreadPool& threads, const StridedSum& o) {
  switch (o.term) {
    case SumTerm::kValue:
    case SumTerm::kNegative:
      return Sum<SumTerm::kValue, T>(o).run(threads);
    case SumTerm::kProduct:
      return Sum<SumTerm::kProduct, T>(o).run(threads);
    case SumTerm::kQuotient:
      return Sum<SumTerm::kQuotient, T>(o).run(threads);
    case SumTerm::kDivisor:
      return Sum<SumTerm::kDivisor, T>(o).run(threads);
    case SumTerm::kChosen:
    case SumTerm::kOther:
      return Sum<SumTerm::kChosen, T>(o).run(threads);
  }
}

}  // namespace

void strided_sum(KernelContext& context, const StridedSum& o) {
  check_sum(context, o);
  if (o.kept.elements() == 0) return;
  dispatch(
      context, o.u.dtype, [&] { sum_on_cpu<double>(*context.threads, o); },
      [&] {
        if (o.u.dtype != DType::kBF16)
          sum_on_cpu<float>(*context.threads, o);
        else
          sum_on_cpu<base::bf16>(*context.threads, o);
      },
      [&] { cuda::strided_sum(context, o); });
}

}  // namespace engine::ops
