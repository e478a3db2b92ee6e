// Implements 4 to 7 of what plan.cc describes: times, in place, recomputation, blocks.
#include "engine/graph/plan_memory.h"

#include <algorithm>

#include "engine/core/arena.h"

namespace engine {
namespace {

constexpr double kFlopsPerElement = 32;

}  // namespace

PlanMemory::PlanMemory(Plan& plan, std::vector<bool> has_gradient)
    : plan_(plan), has_gradient_(std::move(has_gradient)), producer_(plan.tensors.size(), kNone) {
  for (int i = 0; i < step_count(); ++i) at(producer_, step(i).output) = i;
}

bool PlanMemory::is_input(int i) const {
  return plan_.graph->nodes()[static_cast<std::size_t>(i)].layer == nullptr;
}

// A graph input with the data's own dtype is read from the caller's memory.
bool PlanMemory::bound_at_run_time(int i) const {
  return is_input(i) && (plan_.graph->nodes()[static_cast<std::size_t>(i)].dtype != DType::kF32 ||
                         tensor(i).dtype == DType::kF32);
}

std::size_t PlanMemory::bytes(int i) const {
  return static_cast<std::size_t>(tensor(i).item_shape.count() * plan_.options.max_batch) *
         size_of(tensor(i).dtype);  // the compiler has checked the product
}

// Layers without products are bound by memory: an element takes the time of many operations.
double PlanMemory::flops(int i) const {
  return engine::forward_flops(*plan_.graph, step(i).node) +
         kFlopsPerElement * static_cast<double>(tensor(step(i).output).item_shape.count());
}

void PlanMemory::place(const std::vector<PlanSegment>& segments) {
  set_segments(segments);
  find_kept();
  find_repeats();
  set_times();
  find_last_reads();
  blocks_.clear();
  value_block_.assign(plan_.tensors.size(), kNone);
  gradient_block_.assign(plan_.tensors.size(), kNone);
  for (const int i : plan_.inputs)
    if (!bound_at_run_time(i)) at(value_block_, i) = new_block(bytes(i), 0, at(last_read_, i));
  for (int i = 0; i < step_count(); ++i) place_values(i);
  std::vector<int> saved_block;
  saved_block.reserve(plan_.steps.size());
  for (int i = 0; i < step_count(); ++i) saved_block.push_back(place_saved(i));
  if (plan_.options.training)
    for (int i = step_count() - 1; i >= 0; --i) place_gradient(i, at(saved_block, i));
  plan_.arena_bytes = place_blocks(blocks_);
  set_offsets(saved_block);
  describe(segments);
}

void PlanMemory::set_segments(const std::vector<PlanSegment>& segments) {
  segment_.assign(plan_.steps.size(), kNone);
  for (PlanStep& s : plan_.steps) {
    s.repeats = false;
    s.repeats_from = -1;
  }
  for (std::size_t k = 0; k < segments.size(); ++k) {
    for (int i = segments[k].first; i < segments[k].end; ++i) at(segment_, i) = static_cast<int>(k);
    step(segments[k].end - 1).repeats_from = segments[k].first;
  }
}

// Kept are all values but those that only steps of their own segment read.
void PlanMemory::find_kept() {
  kept_.assign(plan_.tensors.size(), true);
  for (int i = 0; i < step_count(); ++i)
    if (at(segment_, i) != kNone) kept_[static_cast<std::size_t>(step(i).output)] = false;
  for (int i = 0; i < step_count(); ++i)
    for_each_read(plan_, step(i), [&](int r) {
      const int producer = at(producer_, r);
      if (producer != kNone && at(segment_, producer) != at(segment_, i))
        kept_[static_cast<std::size_t>(r)] = true;
    });
  for (const int i : {plan_.logits, plan_.loss, static_cast<int>(plan_.options.watched)})
    if (i >= 0) kept_[static_cast<std::size_t>(root(i))] = true;
}

// A step repeats if its output is not kept and is read again, or if it saves values again.
void PlanMemory::find_repeats() {
  std::vector<bool> wanted(plan_.tensors.size(), false);
  const auto want = [&](int r) { wanted[static_cast<std::size_t>(r)] = true; };
  for (const PlanStep& s : plan_.steps) {
    if (!s.backward) continue;
    const BackwardNeeds needs = s.layer->traits().backward_needs;
    if (needs.inputs)
      for (const int input : s.inputs) want(root(input));
    if (needs.output || s.relu) want(s.output);
  }
  for (int i = step_count() - 1; i >= 0; --i) {
    PlanStep& s = step(i);
    if (at(segment_, i) == kNone) continue;
    const bool saves = s.backward && s.saved_bytes > 0 && !s.layer->traits().repeats_from_saved;
    s.repeats = saves || (wanted[static_cast<std::size_t>(s.output)] && !is_kept(s.output));
    if (s.repeats) for_each_read(plan_, s, want);
  }
}

void PlanMemory::set_times() {
  backward_time_.assign(plan_.steps.size(), kNone);
  repeat_time_.assign(plan_.steps.size(), kNone);
  int time = step_count();
  for (int i = step_count() - 1; i >= 0; --i) {
    if (step(i).repeats_from >= 0)
      for (int k = step(i).repeats_from; k <= i; ++k)
        if (step(k).repeats) at(repeat_time_, k) = time++;
    at(backward_time_, i) = time++;
  }
  end_time_ = time;
}

void PlanMemory::find_last_reads() {
  forward_read_.assign(plan_.tensors.size(), kNone);
  last_read_.assign(plan_.tensors.size(), kNone);
  const auto read = [&](int r, int time) { at(last_read_, r) = std::max(at(last_read_, r), time); };
  for (int i = 0; i < step_count(); ++i) {
    const PlanStep& s = step(i);
    for_each_read(plan_, s, [&](int r) {
      at(forward_read_, r) = i;
      read(r, std::max(i, at(repeat_time_, i)));
    });
    if (s.repeats && is_kept(s.output)) read(s.output, at(repeat_time_, i));  // the same is written
    if (!s.backward) continue;
    const BackwardNeeds needs = s.layer->traits().backward_needs;
    if (needs.inputs)
      for (const int input : s.inputs) read(root(input), at(backward_time_, i));
    if (needs.output || s.relu) read(s.output, at(backward_time_, i));
  }
  read(root(plan_.logits), step_count() - 1);
  read(root(plan_.loss), end_time_);
  if (plan_.options.watched >= 0) read(root(plan_.options.watched), end_time_);
}

// Whether step i writes its output over input 0, which no later step reads. What is computed twice
// shares memory only with what is computed with it both times.
bool PlanMemory::runs_in_place(int i) const {
  const PlanStep& s = step(i);
  if (!s.layer->traits().may_run_in_place || s.output != s.node) return false;
  const int from = root(s.inputs[0]);
  if (at(value_block_, from) == kNone || is_input(from) || bytes(from) != bytes(s.output))
    return false;
  if (is_kept(from)) return at(last_read_, from) == i;
  return !is_kept(s.output) && at(forward_read_, from) == i &&
         (!s.repeats || at(last_read_, from) == at(repeat_time_, i));
}

void PlanMemory::place_values(int i) {
  const PlanStep& s = step(i);
  int& own = at(value_block_, s.output);
  const bool twice = !is_kept(s.output);
  const int last = twice ? at(forward_read_, s.output) : at(last_read_, s.output);
  if (runs_in_place(i)) {
    own = at(value_block_, root(s.inputs[0]));
    if (blocks_[static_cast<std::size_t>(own)].has_early())
      block(own).early_last = std::max(block(own).early_last, std::max(i, last));
    else
      block(own).last = std::max(block(own).last, std::max(i, last));
  } else {
    own = new_block(bytes(s.output), i, last);
  }
  if (twice && s.repeats) add_period(own, at(repeat_time_, i), at(last_read_, s.output));
}

int PlanMemory::place_saved(int i) {
  const PlanStep& s = step(i);
  if (s.saved_bytes == 0) return kNone;
  const int last = s.backward ? at(backward_time_, i) : i;
  const int from = root(s.inputs[0]), of_input = at(value_block_, from);
  if (s.layer->traits().may_save_in_place && at(segment_, i) == kNone && of_input != kNone &&
      !is_input(from) && at(last_read_, from) == i && bytes(from) == s.saved_bytes) {
    block(of_input).last = last;
    return of_input;
  }
  if (!s.repeats || s.layer->traits().repeats_from_saved) return new_block(s.saved_bytes, i, last);
  const int made = new_block(s.saved_bytes, i, i);
  add_period(made, at(repeat_time_, i), last);
  return made;
}

// Called from the last step to the first: the gradient of a step's output already has its block;
// the gradients of the tensors that it reads get theirs here if this step writes them first.
void PlanMemory::place_gradient(int i, int saved_block) {
  const PlanStep& s = step(i);
  if (!s.backward) return;
  const int now = at(backward_time_, i);
  int& own = at(gradient_block_, s.output);
  if (own == kNone)
    own = new_block(bytes(s.output), step_count(), now);  // the loss: filled before backward
  block(own).last = now;
  const int own_block = own;
  if (writes_gradient_of_first(s)) {
    const int first = root(s.inputs[0]);
    if (s.layer->traits().may_run_in_place && s.output == s.node && bytes(first) == bytes(s.output))
      at(gradient_block_, first) = own_block;
    if (s.layer->traits().may_save_in_place && bytes(first) == s.saved_bytes)
      at(gradient_block_, first) = saved_block;
  }
  for_each_read(plan_, s, [&](int r) {
    int& its = at(gradient_block_, r);
    if (has_gradient(r) && its == kNone) its = new_block(bytes(r), now, now);
  });
}

// Returns true if input 0 has a gradient and this step is the first to write it.
bool PlanMemory::writes_gradient_of_first(const PlanStep& s) const {
  if (s.inputs.empty() || s.input_writes[0] == Write::kAdd) return false;
  const int to = root(s.inputs[0]);
  for (std::size_t k = 1; k < s.inputs.size(); ++k)
    if (root(s.inputs[k]) == to) return false;
  return has_gradient(to);
}

int PlanMemory::new_block(std::size_t size, int first, int last) {
  blocks_.push_back({.bytes = size, .first = first, .last = std::max(first, last)});
  return static_cast<int>(blocks_.size()) - 1;
}

// The block's time so far becomes its earlier period, unless it already has one.
void PlanMemory::add_period(int number, int first, int last) {
  MemoryBlock& b = block(number);
  if (b.has_early()) {
    b.last = std::max({b.last, first, last});
    return;
  }
  b.early_first = b.first;
  b.early_last = b.last;
  b.first = first;
  b.last = std::max(first, last);
}

std::size_t PlanMemory::offset_of(int number) const {
  return number == kNone ? PlanTensor::kNone : blocks_[static_cast<std::size_t>(number)].offset;
}

void PlanMemory::set_offsets(const std::vector<int>& saved_block) {
  for (int i = 0; i < static_cast<int>(plan_.tensors.size()); ++i) {
    tensor(i).offset = offset_of(at(value_block_, root(i)));
    tensor(i).gradient_offset = offset_of(at(gradient_block_, root(i)));
  }
  for (int i = 0; i < step_count(); ++i)
    if (at(saved_block, i) != kNone) step(i).saved_offset = offset_of(at(saved_block, i));
}

void PlanMemory::describe(const std::vector<PlanSegment>& segments) {
  plan_.recomputation = {.segments = segments};
  Recomputation& found = plan_.recomputation;
  for (const MemoryBlock& b : blocks_) {
    if (b.has_early())
      found.repeated_bytes += b.bytes;
    else if (b.first < step_count() && b.last >= step_count())
      found.kept_bytes += b.bytes;
  }
  found.steps = static_cast<int>(std::ranges::count_if(plan_.steps, &PlanStep::repeats));
  if (found.steps > 0) found.added_flops = repeated_flops() / (3 * forward_flops());
}

std::vector<StepCost> PlanMemory::step_costs() const {
  std::vector<std::size_t> entering(plan_.steps.size() + 1, 0), leaving = entering;
  for (int r = 0; r < static_cast<int>(plan_.tensors.size()); ++r)
    if (at(producer_, r) != kNone && at(forward_read_, r) > at(producer_, r)) {
      entering[static_cast<std::size_t>(at(producer_, r)) + 1] += bytes(r);
      leaving[static_cast<std::size_t>(at(forward_read_, r)) + 1] += bytes(r);
    }
  std::vector<StepCost> costs;
  std::size_t alive = 0;
  for (int i = 0; i < step_count(); ++i) {
    const PlanStep& s = step(i);
    if (s.output == root(plan_.logits) || s.output == root(plan_.loss) ||
        s.layer->traits().may_save_in_place)
      break;
    alive = alive + entering[static_cast<std::size_t>(i)] - leaving[static_cast<std::size_t>(i)];
    StepCost cost{.entering = alive, .flops = flops(i)};
    if (at(last_read_, s.output) >= step_count()) cost.bytes += bytes(s.output);
    if (s.backward && !s.layer->traits().repeats_from_saved) cost.bytes += s.saved_bytes;
    costs.push_back(cost);
  }
  return costs;
}

double PlanMemory::repeated_flops() const {
  double sum = 0;
  for (int i = 0; i < step_count(); ++i)
    if (step(i).repeats) sum += flops(i);
  return sum;
}

double PlanMemory::forward_flops() const {
  double sum = 0;
  for (int i = 0; i < step_count(); ++i) sum += flops(i);
  return sum;
}

}  // namespace engine
