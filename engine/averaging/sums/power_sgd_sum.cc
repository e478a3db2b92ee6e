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

#include "engine/averaging/codes/low_rank.h"
#include "engine/averaging/math/flat_math.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "engine/core/random.h"

namespace engine {
namespace {

// A matrix view of one parameter: its columns are the last dimension in memory. For convolutions
// (HWIO) that is the transpose of the papers' [out, in * height * width].
struct Matrix {
  std::size_t slot, factor_slot;  // in the gradients; in factors_
  std::int64_t offset, rows, columns;
};

Matrix as_matrix(const FlatBuffer& gradients, std::size_t slot) {
  const FlatBuffer::Slot& s = gradients.slots()[slot];
  const Shape shape = s.layout.memory_shape();
  const std::int64_t columns =
      shape.rank() > 0 ? std::max<std::int64_t>(1, shape[shape.rank() - 1]) : 1;
  return {slot, 0, s.offset, s.count / columns, columns};
}

template <class T>
class PowerSgdSum final : public GradientSum {
 public:
  PowerSgdSum(backends::Communicator& communicator, FlatBuffer& gradients, KernelContext& context,
              int rank)
      : communicator_(communicator),
        gradients_(gradients),
        context_(context),
        rank_(rank),
        error_(FlatBuffer::like(gradients)) {
    require(rank >= 1, "PowerSGD needs a rank of 1 or more");
    std::vector<NamedLayout> factors;
    std::int64_t packed = 0;
    for (std::size_t slot = 0; slot < gradients.slots().size(); ++slot) {
      Matrix m = as_matrix(gradients, slot);
      const bool shrinks =
          m.rows > 1 && m.columns > 1 && rank * (m.rows + m.columns) < m.rows * m.columns;
      packed += shrinks ? m.rows * rank : gradients.slots()[slot].count;
      m.factor_slot = factors.size();
      (shrinks ? matrices_ : plain_).push_back(m);
      if (shrinks)
        factors.push_back({gradients.slots()[slot].name,
                           TensorLayout::plain(Shape{m.columns, rank}), gradients.dtype()});
    }
    factors_ = FlatBuffer(gradients.dtype(), factors);
    packed_.resize(static_cast<std::size_t>(packed));
    for (const Matrix& m : matrices_)
      for (int column = 0; column < rank_; ++column) draw(m, column);
    note_ = " (PowerSGD rank " + std::to_string(rank) + ")";
  }
  std::string note() const override { return note_; }
  bool whole() const override { return true; }
  void sum(std::int64_t /*first*/, std::int64_t /*count*/) override {
    pack();
    reduce(packed_.data(), packed_.size());
    T* p = unpack_plain();
    for (const Matrix& m : matrices_) {
      orthonormalize(p, m.rows, rank_);
      multiply_transposed(*context_.threads, sizes(m), error(m), p, factor(m));
      // The error is the part that this rank does not send.
      add_product(*context_.threads, sizes(m), T(-1), p, factor(m), error(m));
      p += m.rows * rank_;
    }
    if (!matrices_.empty())
      reduce(factors_.span<T>().data(), static_cast<std::size_t>(factors_.size()));
    p = packed_.data() + plain_elements();
    for (const Matrix& m : matrices_) {
      T* gradient = gradients_.span<T>().data() + m.offset;
      std::fill(gradient, gradient + m.rows * m.columns, T(0));
      add_product(*context_.threads, sizes(m), T(1), p, factor(m), gradient);
      p += m.rows * rank_;
      revive(m);
    }
  }
  std::vector<PolicyState> state() override {
    return {{"gradient_error", &error_, true}, {"powersgd_factor", &factors_, false}};
  }

 private:
  LowRankSizes sizes(const Matrix& m) const { return {m.rows, m.columns, rank_}; }
  T* error(const Matrix& m) const { return error_.span<T>().data() + m.offset; }
  T* factor(const Matrix& m) const {
    return factors_.span<T>().data() + factors_.slots()[m.factor_slot].offset;
  }
  std::int64_t plain_elements() const {
    std::int64_t count = 0;
    for (const Matrix& m : plain_) count += m.rows * m.columns;
    return count;
  }
  void reduce(T* data, std::size_t count) {
    communicator_.all_reduce(data, count, gradients_.dtype(), backends::ReduceOp::kSum);
    bytes_sent_ += static_cast<std::int64_t>(count * sizeof(T));
  }
  // Packs the vectors, then P = (gradient + error) Q of every matrix.
  void pack() {
    const T* gradient = gradients_.span<T>().data();
    T* to = packed_.data();
    for (const Matrix& m : plain_) to = std::copy_n(gradient + m.offset, m.rows * m.columns, to);
    for (const Matrix& m : matrices_) {
      T* owed = error(m);
      for (std::int64_t i = 0; i < m.rows * m.columns; ++i) owed[i] += gradient[m.offset + i];
      multiply(*context_.threads, sizes(m), owed, factor(m), to);
      to += m.rows * rank_;
    }
  }
  // Returns the position of the first P.
  T* unpack_plain() {
    T* from = packed_.data();
    for (const Matrix& m : plain_) {
      std::copy_n(from, m.rows * m.columns, gradients_.span<T>().data() + m.offset);
      from += m.rows * m.columns;
    }
    return from;
  }
  // Draws approximately normal numbers (sums of four uniform ones) that are the same on every rank.
  // It calls no function of the math library, because its last bit may differ between processors.
  void draw(const Matrix& m, int column) {
    const std::uint64_t key = stream_key(0, gradients_.slots()[m.slot].name);
    for (std::int64_t row = 0; row < m.columns; ++row) {
      float sum = -2;
      for (const std::uint32_t word :
           philox(key, static_cast<std::uint64_t>(column), static_cast<std::uint64_t>(row)))
        sum += uniform_float(word);
      factor(m)[row * rank_ + column] = static_cast<T>(sum);
    }
  }
  // Redraws a column of zeros (from a gradient of lower rank, or a zero gradient): it would stay
  // zero forever.
  void revive(const Matrix& m) {
    for (int column = 0; column < rank_; ++column) {
      bool zero = true;
      for (std::int64_t row = 0; row < m.columns && zero; ++row)
        zero = factor(m)[row * rank_ + column] == 0;
      if (zero) draw(m, column);
    }
  }

  backends::Communicator& communicator_;
  FlatBuffer& gradients_;
  KernelContext& context_;
  const int rank_;
  FlatBuffer error_;    // error of the matrices; zero elsewhere
  FlatBuffer factors_;  // Q of every matrix [columns, rank]
  std::vector<Matrix> matrices_, plain_;
  std::vector<T> packed_;  // plain parameters, then P of every matrix [rows, rank]
  std::string note_;
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
