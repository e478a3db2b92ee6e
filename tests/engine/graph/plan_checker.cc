// Symbolic execution of a plan; shares no code with the compiler.
#include "tests/engine/graph/plan_checker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/core/arena.h"

namespace test_support {
namespace {

using engine::Plan;
using engine::PlanStep;
using engine::PlanTensor;
using engine::Write;

struct Range {
  int owner = -1;  // tensor: its root; gradient: tensors + root; saved: 2 * tensors + step
  std::size_t first = 0, last = 0;  // lines of 64 bytes, last excluded
  bool operator==(const Range&) const = default;
};

class Checker {
 public:
  explicit Checker(const Plan& plan)
      : plan_(plan), lines_(plan.arena_bytes / engine::kAlignment, -1) {}

  std::string run() {
    for (const int i : plan_.inputs)
      if (tensor(i).offset != PlanTensor::kNone) write(value(i), "input");
    const std::vector<int> before = lines_;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) forward(i, false);
    read(value(plan_.logits), "logits after forward");
    read(value(plan_.loss), "loss after forward");
    if (plan_.options.training) {
      lines_ = before;
      for (std::size_t i = 0; i < plan_.steps.size(); ++i) forward(i, true);
      if (tensor(plan_.loss).gradient_offset != PlanTensor::kNone)
        write(gradient(plan_.loss), "gradient of the loss");
      for (std::size_t i = plan_.steps.size(); i-- > 0;) {
        if (plan_.steps[i].repeats_from >= 0)
          repeat(static_cast<std::size_t>(plan_.steps[i].repeats_from), i);
        backward(i);
      }
      read(value(plan_.loss), "loss after backward");
      if (plan_.options.watched >= 0)
        read(value(plan_.options.watched), "the watched tensor after backward");
    }
    return problem_;
  }

 private:
  const PlanTensor& tensor(int i) const { return plan_.tensors[static_cast<std::size_t>(i)]; }
  int count() const { return static_cast<int>(plan_.tensors.size()); }

  static Range range(int owner, std::size_t offset, std::size_t bytes) {
    return {owner, offset / engine::kAlignment,
            (offset + bytes + engine::kAlignment - 1) / engine::kAlignment};
  }
  std::size_t bytes(int i) const {
    return static_cast<std::size_t>(tensor(i).item_shape.count() * plan_.options.max_batch) *
           base::size_of(tensor(i).dtype);
  }
  Range value(int i) const { return range(tensor(i).root, tensor(i).offset, bytes(i)); }
  Range gradient(int i) const {
    return range(count() + tensor(i).root, tensor(i).gradient_offset, bytes(i));
  }
  Range saved(std::size_t i) const {
    return range(2 * count() + static_cast<int>(i), plan_.steps[i].saved_offset,
                 plan_.steps[i].saved_bytes);
  }
  bool in_arena(int i) const { return tensor(i).offset != PlanTensor::kNone; }

  void wrong(const std::string& what) {
    if (problem_.empty()) problem_ = what;
  }
  void read(const Range& r, const std::string& what) {
    if (r.last > lines_.size()) return wrong(what + " lies outside the arena");
    for (std::size_t l = r.first; l < r.last; ++l)
      if (lines_[l] != r.owner) return wrong(what + " has been overwritten");
  }
  void write(const Range& r, const std::string& what) {
    if (r.last > lines_.size()) return wrong(what + " lies outside the arena");
    for (std::size_t l = r.first; l < r.last; ++l) lines_[l] = r.owner;
  }
  // What one step uses at once must be apart, except one tensor with itself and the pairs of
  // `in_place`.
  void apart(const std::vector<Range>& used, const std::vector<std::pair<Range, Range>>& in_place,
             const std::string& what) {
    for (std::size_t a = 0; a < used.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        const bool overlap = used[a].first < used[b].last && used[b].first < used[a].last;
        if (!overlap || used[a] == used[b]) continue;
        const bool allowed =
            std::any_of(in_place.begin(), in_place.end(), [&](const std::pair<Range, Range>& pair) {
              return (used[a] == pair.first && used[b] == pair.second) ||
                     (used[b] == pair.first && used[a] == pair.second);
            });
        if (!allowed || used[a].first != used[b].first) return wrong(what + ": operands overlap");
      }
  }

  // Backward computes the steps' results again.
  void repeat(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i <= last; ++i)
      if (plan_.steps[i].repeats) forward(i, true, true);
  }

  void forward(std::size_t i, bool training, bool again = false) {
    const PlanStep& step = plan_.steps[i];
    const std::string what = "forward of step " + std::to_string(i);
    std::vector<int> reads = step.inputs;
    if (step.residual >= 0) reads.push_back(step.residual);
    std::vector<Range> used;
    for (const int r : reads) {
      if (!in_arena(r)) continue;
      read(value(r), what + ", tensor " + std::to_string(r));
      used.push_back(value(r));
    }
    const Range output = value(step.output);
    used.push_back(output);
    bool saves = training && step.saved_bytes > 0;
    if (saves) used.push_back(saved(i));
    if (saves && again && step.layer->traits().repeats_from_saved) {
      read(saved(i), what + ", saved");
      saves = false;
    }
    std::vector<std::pair<Range, Range>> in_place;
    if (in_arena(step.inputs[0])) {
      const Range first = value(step.inputs[0]);
      if (step.layer->traits().may_run_in_place) in_place.emplace_back(output, first);
      if (step.layer->traits().may_save_in_place) in_place.emplace_back(saved(i), first);
    }
    apart(used, in_place, what);
    write(output, what);
    if (saves) write(saved(i), what);
  }

  void backward(std::size_t i) {
    const PlanStep& step = plan_.steps[i];
    if (!step.backward) return;
    const std::string what = "backward of step " + std::to_string(i);
    const Range dy = gradient(step.output);
    read(dy, what + ", gradient of the output");
    std::vector<Range> used{dy};
    const auto needs = [&](const Range& r, const char* name) {
      read(r, what + ", " + name);
      used.push_back(r);
    };
    if (step.relu || step.layer->traits().backward_needs.output)
      needs(value(step.output), "output");
    if (step.layer->traits().backward_needs.inputs)
      for (const int input : step.inputs)
        if (in_arena(input)) needs(value(input), "input");
    if (step.saved_bytes > 0) needs(saved(i), "saved");
    const auto writes = [&](int target, Write mode) {
      if (tensor(target).gradient_offset == PlanTensor::kNone) return;
      const Range r = gradient(target);
      used.push_back(r);
      const bool first = !written_[static_cast<std::size_t>(tensor(target).root)];
      written_[static_cast<std::size_t>(tensor(target).root)] = true;
      if (first != (mode == Write::kOverwrite))
        wrong(what + ": wrong write mode for tensor " + std::to_string(target));
      const bool by_this_step = std::find(pending_.begin(), pending_.end(), r) != pending_.end();
      if (!first && !by_this_step) read(r, what + ", gradient to add to");
      pending_.push_back(r);
    };
    if (step.residual >= 0) writes(step.residual, step.residual_write);
    for (std::size_t k = 0; k < step.inputs.size(); ++k)
      writes(step.inputs[k], step.input_writes[k]);
    std::vector<std::pair<Range, Range>> in_place;
    if (tensor(step.inputs[0]).gradient_offset != PlanTensor::kNone) {
      const Range first = gradient(step.inputs[0]);
      if (step.layer->traits().may_run_in_place) in_place.emplace_back(dy, first);
      if (step.layer->traits().may_save_in_place && step.input_writes[0] == Write::kOverwrite)
        in_place.emplace_back(saved(i), first);
    }
    apart(used, in_place, what);
    for (const Range& r : pending_) write(r, what);
    pending_.clear();
  }

  const Plan& plan_;
  std::vector<int> lines_;
  std::vector<bool> written_ = std::vector<bool>(plan_.tensors.size(), false);
  std::vector<Range> pending_;
  std::string problem_;
};

}  // namespace

std::string check_plan(const Plan& plan) { return Checker(plan).run(); }

}  // namespace test_support
