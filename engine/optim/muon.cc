// Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon): orthogonalizes the
// momentum of each hidden matrix, and uses AdamW for all other parameters.
//
// A matrix is a parameter of two or more dimensions viewed as [first dimension, all others], so
// that a convolution has a row for each output channel. Its update is scaled by sqrt(max(1, rows /
// columns)).
#include <algorithm>
#include <cmath>

#include "engine/ops/optim_step/device_step.h"
#include "engine/ops/optim_step/orthogonalize.h"
#include "engine/optim/elementwise_optimizer.h"
#include "io/base/text/text_parts.h"

namespace engine {
namespace {

struct Matrix {
  std::size_t slot = 0, state_slot = 0;  // in the values and in the momentum
  std::int64_t rows = 0, columns = 0;    // in memory order: may be the transpose
  double factor = 1;
};

// Adjacent elements that AdamW updates at once, gaps included.
struct Run {
  std::int64_t from = 0, state_from = 0, count = 0;
};

FlatBuffer buffer_of(const FlatBuffer& values, const std::vector<std::size_t>& slots) {
  std::vector<NamedLayout> layouts;
  layouts.reserve(slots.size());
  for (const std::size_t slot : slots)
    layouts.push_back({values.slots()[slot].name, values.slots()[slot].layout, values.dtype()});
  return {values.dtype(), layouts, values.device()};
}

// Returns those of these slots that this rank updates.
std::vector<std::size_t> own_slots(const OptimizerParts& parts,
                                   const std::vector<std::size_t>& slots) {
  if (parts.share == nullptr) return slots;
  std::vector<std::size_t> own;
  for (const std::size_t slot : slots) {
    const std::int64_t offset = parts.values.slots()[slot].offset;
    if (std::ranges::any_of(*parts.share, [offset](const Elements& e) {
          return e.first <= offset && offset < e.first + e.count;
        }))
      own.push_back(slot);
  }
  return own;
}

// The orthogonalization does not depend on the order of columns or a transposition.
Matrix matrix_of(const TensorLayout& layout, std::size_t index, std::size_t state_index) {
  const Shape& shape = layout.file_shape;
  const std::int64_t outputs = shape[0], others = shape.count() / shape[0];
  const bool first = layout.permutation[0] == 0;
  require(first || layout.permutation[static_cast<std::size_t>(shape.rank() - 1)] == 0,
          "muon: a matrix whose rows are not the first or last dimension in memory");
  return {.slot = index,
          .state_slot = state_index,
          .rows = first ? outputs : others,
          .columns = first ? others : outputs,
          .factor =
              std::sqrt(std::max(1.0, static_cast<double>(outputs) / static_cast<double>(others)))};
}

struct Workspace {  // in bytes; the largest of all matrices
  std::size_t direction = 0, scratch = 0;
  void add(const Matrix& m, DType dtype, Device::Kind device) {
    direction = std::max(direction, static_cast<std::size_t>(m.rows * m.columns) * size_of(dtype));
    scratch = std::max(scratch, ops::orthogonalize_scratch_bytes(m.rows, m.columns, dtype, device));
  }
};

// Formats names as "blocks.{0,1,2}.fc.weight, layer2.0.weight": names that differ only in their
// last number are grouped.
std::string names_text(const std::vector<std::string>& names) {
  struct Family {
    std::string before, numbers, after;
    bool several = false;
  };
  std::vector<Family> families;
  for (const std::string& name : names) {
    std::size_t end = name.size(), begin = end;  // range of the last part that is a number
    while (end > 0) {
      begin = name.find_last_of('.', end - 1) + 1;
      if (begin < end && name.find_first_not_of("0123456789", begin) >= end) break;
      end = begin == 0 ? 0 : begin - 1;
    }
    if (end == 0) begin = end = name.size();
    Family found{name.substr(0, begin), name.substr(begin, end - begin), name.substr(end)};
    const auto known = std::ranges::find_if(families, [&](const Family& f) {
      return f.before == found.before && f.after == found.after;
    });
    if (known == families.end()) {
      families.push_back(std::move(found));
    } else {
      known->numbers += "," + found.numbers;
      known->several = true;
    }
  }
  std::string text;
  for (const Family& f : families)
    text += (text.empty() ? "" : ", ") + f.before +
            (f.several ? "{" + f.numbers + "}" : f.numbers) + f.after;
  return text;
}

class Muon final : public Optimizer {
 public:
  Muon(const OptimizerSpec& spec, const OptimizerParts& parts)
      : Optimizer(spec),
        momentum_step_{.beta = parts.settings.at("muon-momentum"),
                       .nesterov = parts.settings.at("muon-nesterov") != 0},
        apply_step_{.weight_decay = parts.settings.at("weight-decay")},
        adamw_step_{.beta1 = parts.settings.at("muon-adam-beta1"),
                    .beta2 = parts.settings.at("muon-adam-beta2"),
                    .eps = parts.settings.at("muon-adam-eps"),
                    .weight_decay = parts.settings.at("weight-decay")},
        adamw_share_(parts.settings.at("muon-adam-lr") / parts.settings.at("lr")),
        steps_(static_cast<int>(parts.settings.at("muon-steps"))) {
    split(parts);
    const std::vector<std::size_t> hidden = own_slots(parts, hidden_),
                                   others = own_slots(parts, others_);
    for (std::size_t i = 0; i < hidden.size(); ++i)
      matrices_.push_back(matrix_of(parts.values.slots()[hidden[i]].layout, hidden[i], i));
    momentum_ = buffer_of(parts.values, hidden);
    first_ = buffer_of(parts.values, others);
    second_ = buffer_of(parts.values, others);
    add_runs(parts.values, others);
    Workspace workspace;
    for (const Matrix& m : matrices_)
      workspace.add(m, parts.values.dtype(), parts.values.device().kind);
    direction_ = Arena(workspace.direction, parts.values.device());
    scratch_ = Arena(workspace.scratch, parts.values.device());
    text_ = "muon on " + names_text(matrix_names(parts.values)) + "; adamw lr " +
            base::number_text("%g", parts.settings.at("muon-adam-lr")) + " on the other " +
            std::to_string(others_.size());
  }

  std::string text() const override { return text_; }

  void step(KernelContext& context, double lr, double gradient_scale, const FlatBuffer& gradients,
            FlatBuffer& values) override {
    const ops::UpdateTime time{lr, gradient_scale, step_count_ + 1};
    KernelContext own = context;
    own.scratch = {scratch_.data(), scratch_.bytes()};
    for (const Matrix& m : matrices_) step_matrix(own, m, time, gradients, values);
    const ops::UpdateTime slow{lr * adamw_share_, gradient_scale, step_count_ + 1};
    for (const Run& r : runs_) {
      const TensorView states[] = {first_.part(r.state_from, r.count),
                                   second_.part(r.state_from, r.count)};
      ops::update(context, {.step = at_time(adamw_step_, slow),
                            .gradient = gradients.part(r.from, r.count),
                            .states = states,
                            .value = values.part(r.from, r.count)});
    }
    ++step_count_;
  }

  // A skipped step orthogonalizes what the last one left, to no effect.
  void step_on_device(KernelContext& context, const DeviceStep& step) override {
    KernelContext own = context;
    own.scratch = {scratch_.data(), scratch_.bytes()};
    const auto update = [&](const ops::UpdateStep& rule, TensorView gradient,
                            std::span<const TensorView> states, TensorView value) {
      return ops::DeviceUpdate{.step = rule,
                               .numbers = step.numbers,
                               .control = step.control,
                               .gradient = gradient,
                               .states = states,
                               .value = value};
    };
    for (const Matrix& m : matrices_) {
      const FlatBuffer::Slot& slot = step.values.slots()[m.slot];
      const TensorView direction = direction_of(slot.count, step.values),
                       momentum = momentum_of(m, slot);
      ops::update_on_device(
          own, update(momentum_step_, step.gradients.part(slot.offset, slot.count), {&momentum, 1},
                      direction));
      orthogonalize(own, m, direction);
      ops::DeviceUpdate apply =
          update(apply_of(m), direction, {}, step.values.part(slot.offset, slot.count));
      apply.half_copy = step.halves(slot.offset, slot.count);
      ops::update_on_device(own, apply);
    }
    for (const Run& r : runs_) {
      const TensorView states[] = {first_.part(r.state_from, r.count),
                                   second_.part(r.state_from, r.count)};
      ops::DeviceUpdate others = update(adamw_step_, step.gradients.part(r.from, r.count), states,
                                        step.values.part(r.from, r.count));
      others.half_copy = step.halves(r.from, r.count), others.rate = adamw_share_;
      ops::update_on_device(own, others);
    }
  }

  std::vector<State> state() override {
    FlatBuffer* const buffers[] = {&momentum_, &first_, &second_};
    const std::vector<std::size_t>* const slots[] = {&hidden_, &others_, &others_};
    std::vector<State> all;
    for (std::size_t i = 0; i < std::size(buffers); ++i)
      all.push_back({spec().states[i].name, spec().states[i].role, buffers[i], slots[i]});
    return all;
  }

 private:
  void split(const OptimizerParts& parts) {
    for (std::size_t slot = 0; slot < parts.values.slots().size(); ++slot) {
      const std::string& name = parts.values.slots()[slot].name;
      const bool hidden =
          std::ranges::find(parts.hidden_matrices, name) != parts.hidden_matrices.end();
      (hidden ? hidden_ : others_).push_back(slot);
    }
    if (hidden_.empty())
      throw ModelError(
          "the optimizer muon finds no matrix between the first and the last layer of "
          "this model: take adamw");
  }

  void add_runs(const FlatBuffer& values, const std::vector<std::size_t>& slots) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const FlatBuffer::Slot& from = values.slots()[slots[i]];
      const std::int64_t state_from = first_.slots()[i].offset;
      if (i == 0 || slots[i] != slots[i - 1] + 1) runs_.push_back({from.offset, state_from, 0});
      runs_.back().count = from.offset + from.count - runs_.back().from;
    }
  }

  void step_matrix(KernelContext& context, const Matrix& m, const ops::UpdateTime& time,
                   const FlatBuffer& gradients, FlatBuffer& values) {
    const FlatBuffer::Slot& slot = values.slots()[m.slot];
    const TensorView direction = direction_of(slot.count, values), momentum = momentum_of(m, slot);
    ops::update(context, {.step = at_time(momentum_step_, time),
                          .gradient = gradients.part(slot.offset, slot.count),
                          .states = {&momentum, 1},
                          .value = direction});
    orthogonalize(context, m, direction);
    ops::update(context, {.step = at_time(apply_of(m), time),
                          .gradient = direction,
                          .states = {},
                          .value = values.part(slot.offset, slot.count)});
  }

  TensorView direction_of(std::int64_t count, const FlatBuffer& values) const {
    return {direction_.data(), values.dtype(), Shape{count}, values.device()};
  }
  TensorView momentum_of(const Matrix& m, const FlatBuffer::Slot& slot) const {
    return momentum_.part(momentum_.slots()[m.state_slot].offset, slot.count);
  }
  ops::MuonApplyStep apply_of(const Matrix& m) const {
    ops::MuonApplyStep apply = apply_step_;
    apply.factor = m.factor;
    return apply;
  }
  void orthogonalize(KernelContext& context, const Matrix& m, TensorView direction) const {
    direction.shape = Shape{m.rows, m.columns};
    ops::orthogonalize(context, steps_, direction);
  }

  std::vector<std::string> matrix_names(const FlatBuffer& values) const {
    std::vector<std::string> names;
    for (const std::size_t slot : hidden_) names.push_back(values.slots()[slot].name);
    std::ranges::reverse(names);  // slots are in the order of backward
    return names;
  }

  const ops::MuonMomentumStep momentum_step_;
  const ops::MuonApplyStep apply_step_;
  const ops::AdamwStep adamw_step_;
  const double adamw_share_;  // AdamW's rate relative to that of the matrices; schedules change
                              // both together
  const int steps_;
  std::vector<std::size_t> hidden_, others_;  // slots of the values, on all ranks
  std::vector<Matrix> matrices_;
  std::vector<Run> runs_;
  FlatBuffer momentum_, first_, second_;
  Arena direction_, scratch_;
  std::string text_;
};

std::unique_ptr<Optimizer> make(const OptimizerSpec& spec, const OptimizerParts& parts) {
  return std::make_unique<Muon>(spec, parts);
}

std::size_t workspace_bytes(std::span<const TensorLayout> hidden_matrices, DType dtype,
                            Device::Kind device) {
  Workspace workspace;
  for (const TensorLayout& layout : hidden_matrices)
    workspace.add(matrix_of(layout, 0, 0), dtype, device);
  return workspace.direction + workspace.scratch;
}

}  // namespace

using Kind = OptimizerOption::Kind;

extern const OptimizerSpec kMuonSpec;
const OptimizerSpec kMuonSpec{
    .name = "muon",
    .lr = 0.02,
    .weight_decay = 0,
    .options = {{"muon-momentum", Kind::kFraction, 0.95, "momentum of muon's matrices"},
                {"muon-nesterov", Kind::kFlag, 1, "Nesterov momentum for muon's matrices"},
                {"muon-steps", Kind::kCount, 5, "Newton-Schulz iterations of muon"},
                {"muon-adam-lr", Kind::kPositive, 3e-4,
                 "learning rate of muon's AdamW, for all but hidden matrices"},
                {"muon-adam-beta1", Kind::kFraction, 0.9, "first decay of muon's AdamW"},
                {"muon-adam-beta2", Kind::kFraction, 0.95, "second decay of muon's AdamW"},
                {"muon-adam-eps", Kind::kPositive, 1e-10, "epsilon of muon's AdamW"}},
    .states = {{"momentum", StateRole::kFirstMoment, nullptr, OptimizerState::Of::kHiddenMatrices},
               {"exp_avg", StateRole::kFirstMoment, nullptr, OptimizerState::Of::kOthers},
               {"exp_avg_sq", StateRole::kSecondMoment, nullptr, OptimizerState::Of::kOthers}},
    .on_cuda = true,
    .by_ranges = false,
    .make = make,
    .workspace_bytes = workspace_bytes};

}  // namespace engine
