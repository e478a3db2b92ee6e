// PowerSGD: sends gradients as products of two thin matrices. Method: Vogels, Karimireddy and
// Jaggi, 2019 (arXiv 1905.13727), algorithm 1.
//
// A gradient matrix M [rows, columns] is approximated by P Q^T with `rank` columns each. One step
// of power iteration is enough, because Q starts from the value of the previous step, and gradients
// change slowly:
//   P = M Q, summed over the ranks and orthonormalized;  Q = M^T P, summed over the ranks;
//   the gradient becomes P Q^T.
// Both products are linear in M, so the sum of the ranks' products is the product of the summed M:
// all-reduces of the thin matrices suffice, and no rank needs another rank's M. The part of a
// rank's own M that P (M^T P)^T does not represent is kept in error_ and added to the next gradient
// (error feedback); without it the dropped directions would never be learned. All ranks compute P
// and Q with the same operations on the same bits, so P and Q stay identical.
#include <algorithm>

#include "engine/averaging/low_rank/low_rank.h"
#include "engine/averaging/low_rank/power_sgd_parts.h"
#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "engine/ops/low_rank/low_rank_rules.h"

namespace engine {
namespace {

template <class T>
class PowerSgdSum final : public GradientSum {
 public:
  PowerSgdSum(backends::Communicator& communicator, FlatBuffer& gradients, KernelContext& context,
              int rank)
      : communicator_(communicator),
        gradients_(gradients),
        context_(context),
        rank_(rank),
        parts_(power_sgd_parts(gradients, rank)),
        error_(FlatBuffer::like(gradients)),
        factors_(first_power_sgd_factors(gradients, rank)),
        packed_(static_cast<std::size_t>(parts_.packed)) {}
  std::string note() const override { return power_sgd_note(rank_); }
  bool whole() const override { return true; }
  void sum(std::int64_t /*first*/, std::int64_t /*count*/) override {
    pack();
    reduce(packed_.data(), packed_.size());
    unpack_plain();
    for (std::size_t i = 0; i < parts_.matrices.size(); ++i) {
      const PowerSgdPart& m = parts_.matrices[i];
      T* const p = packed(m);
      orthonormalize(p, m.rows, rank_);
      multiply_transposed(*context_.threads, sizes(m), in(error_, m), p, factor(i));
      // The error is the part that this rank does not send.
      T* const error = in(error_, m);
      add_product(*context_.threads, sizes(m), T(-1), p, factor(i), error);
      std::transform(error, error + m.count(), error, ops::low_rank_kept<T>);
    }
    if (!parts_.matrices.empty())
      reduce(factors_.span<T>().data(), static_cast<std::size_t>(factors_.size()));
    for (std::size_t i = 0; i < parts_.matrices.size(); ++i) {
      const PowerSgdPart& m = parts_.matrices[i];
      T* const gradient = in(gradients_, m);
      std::fill(gradient, gradient + m.count(), T(0));
      add_product(*context_.threads, sizes(m), T(1), packed(m), factor(i), gradient);
      revive(i);
    }
  }
  std::vector<PolicyState> state() override {
    return {{"gradient_error", &error_, true}, {"powersgd_factor", &factors_, false}};
  }

 private:
  LowRankSizes sizes(const PowerSgdPart& m) const { return {m.rows, m.columns, rank_}; }
  T* in(const FlatBuffer& buffer, const PowerSgdPart& part) const {
    return buffer.span<T>().data() + buffer.slots()[part.tensor].offset;
  }
  T* factor(std::size_t matrix) const {
    return factors_.span<T>().data() + factors_.slots()[matrix].offset;
  }
  T* packed(const PowerSgdPart& part) { return packed_.data() + part.packed; }
  void reduce(T* data, std::size_t count) {
    communicator_.all_reduce(data, count, gradients_.dtype(), backends::ReduceOp::kSum);
    bytes_sent_ += static_cast<std::int64_t>(count * sizeof(T));
  }
  // Packs the vectors, then P = (gradient + error) Q of every matrix.
  void pack() {
    for (const PowerSgdPart& part : parts_.plain)
      std::copy_n(in(gradients_, part), part.count(), packed(part));
    for (std::size_t i = 0; i < parts_.matrices.size(); ++i) {
      const PowerSgdPart& m = parts_.matrices[i];
      T* owed = in(error_, m);
      const T* gradient = in(gradients_, m);
      for (std::int64_t k = 0; k < m.count(); ++k) owed[k] += gradient[k];
      multiply(*context_.threads, sizes(m), owed, factor(i), packed(m));
    }
  }
  void unpack_plain() {
    for (const PowerSgdPart& part : parts_.plain)
      std::copy_n(packed(part), part.count(), in(gradients_, part));
  }
  // Redraws columns that are lost, e.g. by a gradient of lower rank or a zero gradient.
  void revive(std::size_t matrix) {
    for (int column = 0; column < rank_; ++column)
      if (is_lost_column(factor(matrix), parts_.matrices[matrix].columns, rank_, column))
        draw_power_sgd_column(factors_, matrix, column);
  }

  backends::Communicator& communicator_;
  FlatBuffer& gradients_;
  KernelContext& context_;
  const int rank_;
  const PowerSgdParts parts_;
  FlatBuffer error_;    // error of the matrices; zero elsewhere
  FlatBuffer factors_;  // Q of every matrix
  std::vector<T> packed_;
};

}  // namespace

std::unique_ptr<GradientSum> make_power_sgd_sum(backends::Communicator& communicator,
                                                FlatBuffer& gradients, KernelContext& context,
                                                int rank) {
  return with_element_type(gradients.dtype(), [&]<class T>(T) -> std::unique_ptr<GradientSum> {
    return std::make_unique<PowerSgdSum<T>>(communicator, gradients, context, rank);
  });
}

}  // namespace engine
